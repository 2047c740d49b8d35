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
if ! command -v python3 >/dev/null; then
    echo "SKIP: comem ui in a browser: there is no python3; sudo apt-get install python3"
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
# Statistics of its jobs, the registry of running ones and the key of daemons are its own.
export XDG_STATE_HOME="$work/state" COMEM_RUNTIME_DIR="$work/run" COMEM_KEY_FILE="$work/key"
mkdir -p "$XDG_STATE_HOME"
mkdir -m 700 "$COMEM_RUNTIME_DIR"
"$bin/comem" daemon make-key "$COMEM_KEY_FILE"
python3 tests/ui/test.py "$bin/comem" "$work/shares" "$out"
