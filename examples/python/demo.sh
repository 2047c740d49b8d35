#!/usr/bin/env bash
# The part of `make demo` in Python: heat and Life with NumPy on shared arrays, on 1, 2 and 4 nodes of this machine, and their pictures.
#
#     examples/python/demo.sh DIRECTORY
#
# Where the Python package cannot be built it says so in a line, and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
to=$(realpath -m "${1:?usage: demo.sh DIRECTORY}")
mkdir -p "$to"
python=${COMEM_PYTHON:-out/python/venv/bin/python}
if [ -z "${COMEM_PYTHON:-}" ]; then
    echo
    echo "4. The Python package is built if it is not there yet"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if ! make --no-print-directory python 2>&1 | tee "$log"; then
        grep -q '^SKIP: Python: ' "$log" && exit 0
        exit 1
    fi
fi
# The same demonstration whatever the user has set for jobs of their own.
for name in "${!COMEM_@}"; do
    [ "$name" = COMEM_RUNTIME_DIR ] || unset "$name"
done
export MPLBACKEND=agg OMP_NUM_THREADS=1
pictures=yes
"$python" -c 'import matplotlib' 2>/dev/null || pictures=no

echo
echo "NumPy arrays that all nodes share (examples/python):"
declare -A size=([heat]="--size 240 --steps 3000" [life]="--size 128 --steps 300")
for program in heat life; do
    for nodes in 1 2 4; do
        options=()
        [ "$nodes$pictures" = 4yes ] && options=(--picture "$to/$program.png")
        # shellcheck disable=SC2086 # several words
        "$python" -m comem run --no-prefix --backbone shm -n "$nodes" "$python" "examples/python/$program.py" ${size[$program]} "${options[@]}"
    done
done
if [ "$pictures" = yes ]; then
    printf 'picture of the heat:  %s\npicture of Life:      %s\n' "$to/heat.png" "$to/life.png"
else
    echo "SKIP: pictures of the Python programs: matplotlib cannot be had from a package index"
fi
