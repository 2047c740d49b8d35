#!/usr/bin/env bash
# No line of source is wider than 120 columns: names the file and the line of each that is. Left out is what nobody
# writes by hand (pictures, recorded output, data, lock files), and Markdown, whose tables are lines.
#
# tests/width.sh [FOLDER...]: those folders instead of the workspace's.
set -uo pipefail
most=120

# wide FOLDER...: the lines that are too wide, as FILE:LINE: COLUMNS columns. Columns are characters, not bytes.
wide() {
    find "$@" -type d \( -name target -o -name out -o -name __pycache__ -o -name '.*_cache' \) -prune -o -type f \
        ! -name '*.json' ! -name '*.svg' ! -name '*.png' ! -name '*.md' ! -name '*.txt' ! -name '*.lock' \
        ! -name '*.csv' ! -name '*.dat' ! -name '*.out' ! -name '*.expected' ! -name '*.pyc' ! -name '*.so' -print0 |
        sort -z | LC_ALL=C.UTF-8 xargs -0 grep -HnIE "^.{$((most + 1)),}" | while IFS=: read -r file line text; do
            echo "$file:$line: ${#text} columns, $most at most"
        done
}

# The check itself: one line of 121 characters is found, in its place, and one of 120 that has more bytes is not.
works() {
    local folder found
    folder=$(mktemp -d) || return
    printf 'short\n%0120d×\n' 0 >"$folder/wide.rs"
    printf '%0119d×\n' 0 >"$folder/fits.c"
    found=$(wide "$folder")
    rm -r "$folder"
    [ "$found" = "$folder/wide.rs:2: 121 columns, 120 at most" ]
}

export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.." || exit 1
[ $# = 0 ] && set -- crates include workloads examples tests bench compiler fuzz
if ! works; then
    echo "FAILED: a line of 121 columns is found"
    exit 1
fi
found=$(wide "$@")
if [ -n "$found" ]; then
    echo "$found"
    echo "FAILED: no line of source is wider than $most columns: $(wc -l <<<"$found") are"
    exit 1
fi
echo "ok: no line of source is wider than $most columns"
