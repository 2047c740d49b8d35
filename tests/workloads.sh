#!/usr/bin/env bash
# Runs the C workloads under the real `comem run`: the answer must be that of the build without any Comem call, at any
# number of nodes, with any engine that promises it, also with several threads, with authentication and through faults.
set -uo pipefail
cd "$(dirname "$0")/.."

bin=${COMEM_BIN:-target/debug}
programs=${COMEM_WORKLOADS:-out/test}
status=0

verdict() {
    local result=$1
    shift
    echo "$result: $*"
    [ "$result" = FAILED ] && status=1
}

checksum() { grep -o 'checksum=[0-9a-f]*' <<<"$1" | head -n 1; }

# job WHAT EXPECTED COMEM-FLAGS… -- PROGRAM ARGUMENTS…: passes when the job ends well, its last line ends with `ok`, and
# its checksum is the one expected (`any` where there is none).
job() {
    local what=$1 expected=$2 printed
    shift 2
    if ! printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix "$@" 2>&1); then
        echo "$printed" | tail -n 20
        verdict FAILED "$what (comem run $*)"
    elif [[ $printed != *" ok" ]] || { [ "$expected" != any ] && [ "$(checksum "$printed")" != "$expected" ]; }; then
        echo "$printed" | tail -n 20
        verdict FAILED "$what: expected $expected (comem run $*)"
    else
        verdict ok "$what"
    fi
}

# everywhere NAME ARGUMENTS…: one workload on all numbers of nodes, under both sequentially consistent engines, over one
# of the backbones in turn.
everywhere() {
    local name=$1 expected nodes engine backbone=shm
    shift
    if ! expected=$(checksum "$("$programs/$name-seq" "$@")") || [ -z "$expected" ]; then
        verdict FAILED "$name-seq $*: no checksum"
        return
    fi
    for engine in msi owner; do
        for nodes in 1 2 3 4 8; do
            job "$name under $engine over $backbone, nodes: $nodes" "$expected" -n "$nodes" --engine "$engine" \
                --backbone "$backbone" -- \
                "$programs/$name" "$@"
            if [ "$backbone" = shm ]; then backbone=udp; else backbone=shm; fi
        done
    done
    job "$name under broadcast, nodes: 1" "$expected" -n 1 --engine broadcast -- "$programs/$name" "$@"
    job "$name with two threads on each node" "$expected" -n 2 -t 2 -- "$programs/$name" "$@"
    job "$name with authentication" "$expected" -n 2 --auth on -- "$programs/$name" "$@"
    job "$name through faults" "$expected" -n 3 --faults "$faults" -- "$programs/$name" "$@"
}

faults="drop=5%,dup=2%,reorder=3%,seed=7"
everywhere sea --rows 66 --columns 64 --iterations 12
everywhere genetic --population 64 --generations 30 --think 100
everywhere xstate --radius 24

sea=(--rows 66 --columns 64 --iterations 12)
expected=$(checksum "$("$programs/sea-seq" "${sea[@]}")")
job "sea by ranges" "$expected" -n 4 -- "$programs/sea" "${sea[@]}" --ranges
job "sea with work split by measured weight, one node slower" "$expected" -n 3 --slow 1=3x -- "$programs/sea" \
    "${sea[@]}" --weighted
job "sea through heavy faults" "$expected" -n 4 --faults "drop=20%,dup=5%,reorder=10%,seed=3" -- "$programs/sea" \
    "${sea[@]}"

flood="drop=5%,dup=5%,reorder=5%,seed=7"
job "message-test over udp, nodes: 4" any -n 4 --backbone udp -- "$programs/message-test" --count 20000
job "message-test over shm, nodes: 4" any -n 4 --backbone shm -- "$programs/message-test" --count 20000
job "message-test through faults, nodes: 4" any -n 4 --faults "$flood" -- "$programs/message-test" --count 20000
for nodes in 2 4 9; do
    for backbone in udp shm; do
        job "barrier-test over $backbone, nodes: $nodes" any -n "$nodes" --backbone "$backbone" -- \
            "$programs/barrier-test" --barriers 200
        job "lock-test over $backbone, nodes: $nodes" any -n "$nodes" --backbone "$backbone" -- "$programs/lock-test" \
            --increments 100
    done
done
job "barrier-test through faults" any -n 4 --faults "$flood" -- "$programs/barrier-test" --barriers 200
job "lock-test through faults" any -n 4 --faults "$flood" -- "$programs/lock-test" --increments 100

# Alone, each program is a correct job of one node.
if printed=$("$programs/sea" "${sea[@]}" 2>&1) && [ "$(checksum "$printed")" = "$expected" ]; then
    verdict ok "sea without a launcher"
else
    echo "$printed"
    verdict FAILED "sea without a launcher"
fi
exit "$status"
