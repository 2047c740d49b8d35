#!/usr/bin/env bash
# NumPy arrays between hosts that are network namespaces, joined by a bridge, on lines of 1, 10 and 25 Gbit/s with a
# delay of 25 us (`--faults delay=25us,rate=…`): the time to the sum of a fresh array of 256 MiB on four hosts as a
# share of the line rate, and the smallest heat and k-means problem that two hosts solve faster than one. Prints tables
# in Markdown.
#
#     bench/python/namespaces.sh [--quick] [--line GBIT] [sum] [heat] [kmeans]     with the package in out/python/venv
#     (make python), or COMEM_PYTHON
#
# About four minutes. Where namespaces cannot be made it says SKIP.
set -uo pipefail
root=$(realpath "$(dirname "$0")/../..")
python=$(realpath -s "${COMEM_PYTHON:-$root/out/python/venv/bin/python}")
# shellcheck source=tests/hosts/lib.sh
. "$root/tests/hosts/lib.sh"
if ! "$python" -c 'import comem' 2>/dev/null; then
    echo "namespaces: $python has no package comem; make it first: make python"
    exit 1
fi
# enter_namespaces keeps no COMEM_ variable: the interpreter goes along as an argument.
enter_namespaces pybench 900 env "COMEM_PYTHON=$python" "$root/bench/python/namespaces.sh" "$@"

hosts=(alder birch cedar elm)
rates=(1 10 25)
heat_sizes=(32 64 128 256 512 1024)
kmeans_sizes=(1000 2000 4000 8000 16000 32000 64000 128000)
repeat=3 mebibytes=256
if [ "${1:-}" = --quick ]; then
    rates=(10) heat_sizes=(64 512) kmeans_sizes=(2000 16000) repeat=3 mebibytes=16
    shift
fi
if [ "${1:-}" = --line ]; then
    rates=("${2:?--line needs a number of Gbit/s}")
    shift 2
fi
[ $# -gt 0 ] || set -- sum heat kmeans

set_up_hosts() {
    local host number=0
    {
        echo "127.0.0.1 localhost"
        for host in "${hosts[@]}"; do echo "10.77.0.$((++number)) $host"; done
    } >"$work/names"
    number=0
    for host in "${hosts[@]}"; do make_host "$host" "10.77.0.$((++number))"; done
    # What stands for ssh: enters the host's namespaces.
    {
        echo '#!/bin/sh'
        echo 'host=$1; shift'
        echo 'case $host in'
        for host in "${hosts[@]}"; do echo "$host) pid=${anchor[$host]} ;;"; done
        echo 'esac'
        echo 'exec nsenter --target "$pid" --net --mount --uts --pid -- sh -c "$*"'
    } >"$work/enter"
    chmod +x "$work/enter"
}

# job NODES RATE ARGUMENTS…: what namespaces.py measures on so many hosts.
job() {
    local nodes=$1 rate=$2 list
    shift 2
    list=$(IFS=,; echo "${hosts[*]:0:$nodes}")
    env "COMEM_RSH=$work/enter" OMP_NUM_THREADS=1 \
        "$python" -m comem run --no-prefix -n "$nodes" --hosts "$list" --remote-comem "$(dirname "$python")/comem" \
        --faults "delay=25us,rate=${rate}gbit" "$python" "$root/bench/python/namespaces.py" "$@" --repeat "$repeat" \
        2>"$work/err" || { tail -n 15 "$work/err" >&2; echo "FAILED: $*" >&2; return 1; }
}

sums() {
    local rate
    echo "| line | filled by | out of the busiest host, MiB | seconds | share of the line rate" \
        "| processors busy of $(nproc) |"
    echo "|---:|---|---:|---:|---:|---:|"
    for rate in "${rates[@]}"; do
        job 4 "$rate" sum --mebibytes "$mebibytes" | awk -v rate="$rate" '{
            for (i = 2; i <= NF; i++) { split($i, pair, "="); value[pair[1]] = pair[2] }
            printf "| %s Gbit/s | %s | %.0f | %.3f | %.0f %% | %.2f |\n", rate,
                value["filled"] == "one" ? "node 0" : "each its part", value["bytes"] / 1048576, value["seconds"],
                100 * value["bytes"] * 8 / (rate * 1e9) / value["seconds"], value["processors"] }'
    done
}

# gains WHAT SIZES…: milliseconds on one host and on two, for each line.
gains() {
    local what=$1 rate
    shift
    job 1 "${rates[0]}" "$what" "$@" >"$work/one" || return 1
    for rate in "${rates[@]}"; do
        job 2 "$rate" "$what" "$@" >"$work/two" || return 1
        paste -d' ' "$work/one" "$work/two" | awk -v rate="$rate" -v what="$what" '{
            split($2, size, "="); split($3, one, "="); split($6, two, "=")
            row = row sprintf(" %s: %.2f/%.2f = %.2f;", size[2], 1e3 * one[2], 1e3 * two[2], one[2] / two[2])
            # Counts only if every larger problem gains too.
            if (two[2] >= one[2]) smallest = "none"; else if (smallest == "" || smallest == "none") smallest = size[2]
        } END { printf "| %s | %s Gbit/s | %s |%s |\n", what, rate, smallest, row }'
    done
}

set_up_hosts
heading=
for part in "$@"; do
    if [ "$part" = sum ]; then
        echo "Sum of a fresh array of $mebibytes MiB on four hosts, delay 25 us, medians of $repeat:"
        echo
        sums
        echo
        continue
    fi
    if [ -z "$heading" ]; then
        echo "The smallest problem that gains from two hosts (heat: rows of a square plate, 50 steps; k-means:" \
            "points, 20 steps), medians of $repeat:"
        echo
        echo "| example | line | smallest that gains | size: ms on one host / on two = gain |"
        echo "|---|---:|---:|---|"
        heading=printed
    fi
    sizes=${part}_sizes[@]
    gains "$part" "${!sizes}"
done
