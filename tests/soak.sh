#!/usr/bin/env bash
# Runs the programs on shared pages again and again for so many minutes (COMEM_SOAK_MINUTES, 10): jobs of two to eight nodes, over
# both backbones, whose start-ups and ends fall together differently each time. A job that is wrong, or not over within a
# minute, ends the script with what it printed.
set -uo pipefail
cd "$(dirname "$0")/.."

bin=${COMEM_BIN:-target/release}
programs=${COMEM_WORKLOADS:-out/workloads}
until=$((SECONDS + ${COMEM_SOAK_MINUTES:-10} * 60))
jobs=0

while [ "$SECONDS" -lt "$until" ]; do
    for kernel in radix is sor lu fft water; do
        for way in "8 shm" "2 shm" "4 udp" "8 udp"; do
            [ "$SECONDS" -lt "$until" ] || break 2
            read -r nodes backbone <<<"$way"
            size=tiny
            # Most of the start-ups that fell together badly so far did so here.
            [ "$kernel $nodes" = "radix 8" ] && size=hlrc
            command=("$bin/comem" run --no-prefix -n "$nodes" --backbone "$backbone" -- "$programs/$kernel" --preset "$size")
            printed=$(timeout --kill-after=10 60 "${command[@]}" 2>&1) || ended=$?
            if [ "${ended:-0}" != 0 ] || [[ $printed != *" ok" ]]; then
                echo "$printed" | tail -n 40
                echo "FAILED: after $jobs good jobs, status ${ended:-0}: ${command[*]}"
                exit 1
            fi
            jobs=$((jobs + 1))
        done
    done
done
echo "ok: $jobs jobs"
