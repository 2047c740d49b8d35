#!/usr/bin/env bash
# Runs jobs for so many minutes (COMEM_SOAK_MINUTES, 10), half of them the programs on shared pages again and again, of
# two to eight nodes and over both backbones, whose start-ups and ends fall together differently each time; half of them
# random programs, from another seed each time (COMEM_SOAK_SEED names it). A program on shared pages that is wrong, or
# not over within a minute, ends its half with what it printed; random programs that are wrong are told, and the next
# follow. Meanwhile the kernel moves pages about, where we are root: it does so by itself on machines that have been up
# for long, also to pages that Comem watches or copies.
set -uo pipefail
cd "$(dirname "$0")/.."

bin=${COMEM_BIN:-target/release}
programs=${COMEM_WORKLOADS:-out/workloads}
minutes=${COMEM_SOAK_MINUTES:-10}
seed=${COMEM_SOAK_SEED:-$(od -An -N5 -tu8 /dev/urandom | tr -d ' ')}
compact=/proc/sys/vm/compact_memory
mover= moved=

moved_pages() { awk '$1 == "pgmigrate_success" { print $2 }' /proc/vmstat; }

stop_moving() {
    [ -n "$mover" ] || return
    kill "$mover" 2>/dev/null
    echo "pages that the kernel moved meanwhile: $(($(moved_pages) - moved))"
}
trap stop_moving EXIT

move_pages() {
    if ! { echo 1 >"$compact"; } 2>/dev/null; then
        echo "SKIP: pages that the kernel moves meanwhile: $compact cannot be written; root may"
        return
    fi
    moved=$(moved_pages)
    while sleep 0.2; do echo 1 >"$compact"; done &
    mover=$!
}

run_kernels() {
    local until=$1 jobs=0 kernel way nodes backbone engine size command printed ended
    while [ "$SECONDS" -lt "$until" ]; do
        for kernel in radix is sor lu fft water; do
            for way in "8 shm hlrc" "2 shm hlrc" "4 udp hlrc" "8 udp hlrc" "8 shm hardware"; do
                [ "$SECONDS" -lt "$until" ] || break 3
                read -r nodes backbone engine <<<"$way"
                size=tiny
                # Most of the start-ups that fell together badly so far did so here.
                [ "$kernel $nodes" = "radix 8" ] && size=hlrc
                command=("$bin/comem" run --no-prefix -n "$nodes" --backbone "$backbone" --engine "$engine" -- \
                    "$programs/$kernel" --preset "$size")
                ended=0
                printed=$(timeout --kill-after=10 60 "${command[@]}" 2>&1) || ended=$?
                if [ "$ended" != 0 ] || [[ $printed != *" ok" ]]; then
                    echo "$printed" | tail -n 40
                    echo "FAILED: after $jobs good jobs, status $ended: ${command[*]}"
                    return 1
                fi
                jobs=$((jobs + 1))
            done
        done
    done
    echo "ok: $jobs jobs"
}

run_random_programs() {
    if ! command -v python3 >/dev/null; then
        echo "SKIP: random programs: there is no python3 to run them; sudo apt-get install python3"
        return
    fi
    tests/random/run.py --bin "$bin" --programs "$programs" --seed "$seed" --minutes "$1"
}

status=0
move_pages
run_kernels $((SECONDS + minutes * 30)) || status=1
run_random_programs "$(awk "BEGIN { print $minutes / 2 }")" || status=1
exit "$status"
