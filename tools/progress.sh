#!/usr/bin/env bash
# Runs a command that prints much and takes long: its output goes to a file, and every 20 s a line says how long it has
# run and what it does. After a failure, shows what it said last.
#
# tools/progress.sh LOG COMMAND…
set -uo pipefail
log=${1:?usage: progress.sh LOG COMMAND…}
shift
every=${COMEM_PROGRESS_S:-20}
mkdir -p "$(dirname "$log")"
: >"$log"

tell() {
    # What sleeps here must not keep a pipe open that a reader waits for.
    while sleep "$every" </dev/null >/dev/null 2>&1; do
        printf '  %d s: %s\n' "$SECONDS" "$(tail -n 1 "$log" | sed 's/^ *//' | cut -c 1-90)"
    done
}
tell &
teller=$!
trap 'kill "$teller" 2>/dev/null' EXIT
"$@" >"$log" 2>&1
status=$?
if [ "$status" != 0 ]; then
    tail -n 30 "$log"
    echo "failed (status $status); all that was printed is in $log" >&2
fi
exit "$status"
