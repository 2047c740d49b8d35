#!/usr/bin/env bash
# The kernels in workloads/, the same sources, on Comem and on ArgoDSM: times of the parallel phase, in turn, as a
# table.
#
#   bench/peers.sh ARGODSM [OPTIONS]      ARGODSM: a folder with ArgoDSM installed (lib/, include/), built with the MPI
#   that
#                                         MPICC and MPIRUN name (mpicc and mpirun if not set)
#     --nodes N       nodes, one thread each (2)
#     --repeat N      runs of each, of which the median counts (3)
#     --limit S       seconds a run may take (60)
#     --only "P …"    some of the programs: sor lu fft radix is ep water
#
# ArgoDSM runs as it does best here: under its policy `naive` with homes where the kernels ask for them
# (bench/peers/argo/comem.h), and the better of 8 (its default) and 64 pages a load, found by a run of each. On one host
# MPI moves the bytes through shared memory. COMEM_BIN names the folder with comem (target/release if not set); the
# programs are taken from out/workloads.
set -euo pipefail
cd "$(dirname "$0")/.."

argo=$(realpath "${1:?usage: bench/peers.sh ARGODSM [--nodes N] [--repeat N] [--limit S] [--only \"P …\"]}")
shift
nodes=2 repeat=3 limit=60 only="sor lu fft radix is ep water"
while [ $# -gt 0 ]; do
    case $1 in
    --nodes) nodes=$2 ;;
    --repeat) repeat=$2 ;;
    --limit) limit=$2 ;;
    --only) only=$2 ;;
    *) echo "bench/peers.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
bin=$(realpath "${COMEM_BIN:-target/release}")
MPICC=${MPICC:-mpicc} MPIRUN=${MPIRUN:-mpirun}
[ -x out/workloads/sor ] || { echo "bench/peers.sh: there is no out/workloads/sor; make build" >&2 && exit 2; }
out=out/peers
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Protocols are compared, on one host too.
export COMEM_ENGINE=${COMEM_ENGINE:-hlrc}
export ARGO_PRINT_STATISTICS=0 ARGO_ALLOCATION_POLICY=0 ARGO_MEMORY_SIZE=$((1 << 30)) ARGO_CACHE_SIZE=$((1 << 30))

declare -A preset=([sor]=nautilus [lu]=nautilus [fft]=hlrc [radix]=hlrc [is]=jiajia [ep]=nautilus [water]=jiajia)
for program in $only; do
    "$MPICC" -std=c11 -O2 -g -ffp-contract=off -Wall -Wextra -Ibench/peers/argo -I"$argo/include/argo" \
        -I"$argo/include" \
        "workloads/$program.c" -o "$out/$program" -L"$argo/lib" -largo -largobackend-mpi -Wl,-rpath,"$argo/lib" -lm
done

# Runs one thing: the seconds of its parallel phase and its checksum, or a word and nothing.
run() {
    local kind=$1 program=$2 said status=0
    local command=("$bin/comem" run -n "$nodes" --no-prefix --backbone "$kind" -- "out/workloads/$program")
    [ "$kind" = argo ] && command=("$MPIRUN" -n "$nodes" "$out/$program")
    said=$(timeout "$limit" "${command[@]}" --preset "${preset[$program]}" 2>"$out/errors") || status=$?
    case $status in
    0) sed -nE 's/.*time_s=([0-9.]+) checksum=([0-9a-f]+) (ok|unchecked).*/\1 \2/p' <<<"$said" ;;
    124) echo "> $limit" ;;
    *) echo "failed" && cat "$out/errors" >&2 ;;
    esac
}

median() { sort -g | awk '{ all[NR] = $0 } END { print all[int((NR + 1) / 2)] }'; }

# Which of two loads is faster, by one run each.
best_load() {
    local program=$1 load
    for load in 8 64; do ARGO_LOAD_SIZE=$load run argo "$program" | sed "s/ .*/ $load/"; done | sort -g |
        awk '$1 ~ /^[0-9.]+$/ { print $2; found = 1; exit } END { if (!found) print 8 }'
}

version=$("$bin/comem" --version | awk '{ print $2 }')
echo "Comem $version and ArgoDSM over ${MPI:-$MPICC}, $nodes nodes of one thread on $(nproc) cores; seconds," \
    "medians of $repeat in turn."
echo
echo "| program | preset | Comem, shm | Comem, udp | ArgoDSM | pages a load | ArgoDSM / shm | ArgoDSM / udp | results |"
echo "|---|---|---:|---:|---:|---:|---:|---:|---|"
for program in $only; do
    load=$(best_load "$program")
    export ARGO_LOAD_SIZE=$load
    : >"$out/runs"
    for _ in $(seq "$repeat"); do
        for kind in shm udp argo; do
            result=$(run $kind "$program")
            echo "$kind $result" >>"$out/runs"
            [[ $result =~ ^[0-9] ]] || { [ $kind = argo ] && break 2; }
        done
    done
    of() { awk -v kind="$1" '$1 == kind { print $2 }' "$out/runs"; }
    shm=$(of shm | median) udp=$(of udp | median) other=$(of argo | median)
    [[ $other =~ ^[0-9] ]] || other=$(grep '^argo' "$out/runs" | tail -n 1 | cut -d' ' -f2-)
    same=$(awk 'NF == 3 && length($3) == 16 { sums[$3] }
        END { n = 0; for (s in sums) n++; print n == 1 ? "same" : "differ" }' "$out/runs")
    ratio() {
        awk -v a="$other" -v b="$1" 'BEGIN {
            if (a ~ /^>/) { sub(/^> */, "", a); printf "> " }
            if (a + 0 > 0 && b + 0 > 0) printf "%.1f", a / b; else print "–" }'
    }
    echo "| $program | ${preset[$program]} | $shm | $udp | $other | $load | $(ratio "$shm") | $(ratio "$udp") | $same |"
done
