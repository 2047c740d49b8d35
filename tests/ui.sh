#!/usr/bin/env bash
# `comem ui` in a real headless Chromium (tests/ui/test.py). Pictures of its pages are in out/test/ui.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(realpath "${COMEM_BIN:-target/debug}")
out=out/test/ui
names=("${COMEM_CHROMIUM:-chromium}" chromium-browser google-chrome)
if ! command -v "${names[@]}" >/dev/null; then
    echo "SKIP: comem ui in a browser: there is no Chromium; sudo apt-get install chromium"
    exit
fi
if ! "$bin/comem" ui --help >/dev/null 2>&1; then
    echo "SKIP: comem ui in a browser: this comem is built without its page (--no-default-features)"
    exit
fi
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude tests/ui/shares.c -o "$work/shares" -L"$bin" -lcomem \
    -Wl,-rpath,"$bin"
# Statistics of its jobs, and the registry of running ones, are its own.
export XDG_STATE_HOME="$work/state"
mkdir -p "$XDG_STATE_HOME"
python3 tests/ui/test.py "$bin/comem" "$work/shares" "$out"
