#!/usr/bin/env bash
# The part of `make demo` in Python: heat and Life with NumPy on shared arrays, on one node and on as many as have a
# core each, and their pictures. Heat comes in two sizes: on a small plate one process is faster, on a large one several
# nodes are.
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

cores=$(nproc)
several=2
[ "$cores" -ge 4 ] && several="2 4"

# run PROGRAM NODES ARGUMENTS…: prints the program's line, and keeps its seconds in $seconds.
run() {
    local program=$1 nodes=$2 line
    shift 2
    line=$("$python" -m comem run --no-prefix --backbone shm -n "$nodes" "$python" "examples/python/$program.py" "$@")
    echo "$line"
    seconds=$(sed -n 's/.* \([0-9.]*\) s$/\1/p' <<<"$line" | tail -n 1)
}

# sizes PROGRAM WHAT ARGUMENTS…: one size on one node, which is one process, and on several; says which is faster.
sizes() {
    local program=$1 what=$2 nodes alone
    shift 2
    run "$program" 1 "$@"
    alone=$seconds
    for nodes in $several; do
        run "$program" "$nodes" "$@"
        awk -v alone="$alone" -v these="$seconds" -v nodes="$nodes" -v what="$what" 'BEGIN {
            if (these > 0 && alone > 0)
                printf "   %s: %d nodes are %.2f times as fast as one\n", what, nodes, alone / these }'
    done
}

echo
echo "5. NumPy arrays that all nodes share (examples/python)"
sizes heat "a small plate" --size 32 --steps 3000
sizes heat "a large plate" --size 1500 --steps 150
sizes life "Life" --size 512 --steps 210
echo "Each step ends with a barrier, whatever the size: nodes pay where half of a step takes longer to compute" \
    "than that."
if [ "$pictures" = yes ]; then
    # Sizes at which there is something to see.
    run heat 4 --size 120 --steps 4000 --picture "$to/heat.png" >/dev/null
    run life 4 --size 96 --steps 240 --picture "$to/life.png" >/dev/null
    printf 'picture of the heat:  %s\npicture of Life:      %s\n' "$to/heat.png" "$to/life.png"
else
    echo "SKIP: pictures of the Python programs: matplotlib cannot be had from a package index"
fi
