#!/usr/bin/env bash
# Runs the tests of the interfaces that Comem has besides its own: every tests/compat/GROUP/run.sh, or those of the
# groups named. Reports by lines `ok: …`, `FAILED: …` and `SKIP: …`.
set -uo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"
export COMEM_BIN="${COMEM_BIN:-$CARGO_TARGET_DIR/debug}"

groups=("$@")
[ $# = 0 ] && for script in tests/compat/*/run.sh; do groups+=("$(basename "$(dirname "$script")")"); done
status=0
for group in "${groups[@]}"; do
    "tests/compat/$group/run.sh" || status=1
done
exit "$status"
