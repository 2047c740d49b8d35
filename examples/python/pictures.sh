#!/usr/bin/env bash
# Runs the examples on four nodes of this machine and draws their pictures:
#
#     examples/python/pictures.sh DIRECTORY [PROGRAM…]      all of those below, or the ones named
#
# Uses the package in out/python/venv (make python), or the interpreter that COMEM_PYTHON names; the pictures in
# docs/pictures are made by `examples/python/pictures.sh docs/pictures`.
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
python=${COMEM_PYTHON:-$root/out/python/venv/bin/python}
to=${1:?usage: pictures.sh DIRECTORY [PROGRAM…]}
shift
mkdir -p "$to"
export MPLBACKEND=agg OMP_NUM_THREADS=1

declare -A size=([heat]="--size 120 --steps 4000" [kmeans]="--points 100000" [matmul]="--size 1200" \
    [life]="--size 96 --steps 240"
    [pagerank]="--pages 100000" [bloom]="--bytes 64000000 --keys 20000")
[ $# -gt 0 ] || set -- heat kmeans matmul life pagerank bloom plot
for program in "$@"; do
    if [ "$program" = plot ]; then
        "$python" "$root/examples/python/plot.py" --picture "$to/plot.png"
        continue
    fi
    options=()
    [ "$program" = bloom ] && options=(--cache 4M)
    # shellcheck disable=SC2086 # several words
    "$python" -m comem run --no-prefix -n 4 "${options[@]}" "$python" \
        "$root/examples/python/$program.py" ${size[$program]} --picture "$to/$program.png"
done
