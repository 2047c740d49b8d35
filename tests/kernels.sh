#!/usr/bin/env bash
# Runs the programs on shared pages in their tiny sizes, in three builds: for one thread, with plain threads, and with
# Comem on one to eight nodes under `hlrc`, `scope`, `lrc`, `multicast`, `msi` and `hardware`, and over udp with every
# detector and two threads a node. Each checks its own result, and all must end with the same checksum. The functions in
# which they spend their time are the same instructions in all builds. The third build is left out unless
# COMEM_KERNELS_DSM=1. Reports in TAP.
set -uo pipefail
cd "$(dirname "$0")/.."

bin=${COMEM_BIN:-target/debug}
programs=${COMEM_WORKLOADS:-out/test}
kernels=(sor lu fft radix is ep water ilink barnes rays)
# What Python and MPI compute as well; of these a few runs do.
compared=(heat kmeans)
engines=(hlrc scope lrc multicast msi hardware)
detectors=(uffd-async uffd mprotect)
number=0
status=0

# verdict RESULT WHAT…: a line of TAP.
verdict() {
    local result=$1
    shift
    number=$((number + 1))
    echo "$result $number - $*"
    [ "$result" = ok ] || status=1
}

checksum() { grep -o 'checksum=[0-9a-f]*' <<<"$1" | head -n 1; }

# run WHAT EXPECTED COMMAND…: passes when the command ends well, says `ok` last, and its checksum is the one expected
# (`any`: there must be one).
run() {
    local what=$1 expected=$2 printed ended=0
    shift 2
    printed=$(timeout --kill-after=10 120 "$@" 2>&1) || ended=$?
    if [ "$ended" = 0 ] && [[ $printed == *" ok" ]] && [ -n "$(checksum "$printed")" ] &&
        { [ "$expected" = any ] || [ "$(checksum "$printed")" = "$expected" ]; }; then
        verdict ok "$what"
    else
        echo "$printed" | tail -n 20 | sed 's/^/# /'
        verdict "not ok" "$what: status $ended, expected $expected ($*)"
    fi
}

with_comem() { [ "${COMEM_KERNELS_DSM:-0}" != 0 ]; }

# left_out WHAT [WHY]: a line of TAP for what does not run here.
left_out() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP ${2:-COMEM_KERNELS_DSM is not set}"
}

# works DETECTOR: whether shared pages can be watched in this way on this host.
works() {
    timeout --kill-after=10 120 "$bin/comem" run --no-prefix -n 2 --detector "$1" -- "$programs/sync-test" \
        --rounds 1 >/dev/null 2>&1
}

if with_comem; then
    working=()
    for detector in "${detectors[@]}"; do
        if works "$detector"; then
            working+=("$detector")
        else
            left_out "programs with $detector" "the detector does not work on this host: comem doctor says why"
        fi
    done
    detectors=("${working[@]}")
fi

for name in "${kernels[@]}"; do
    run "$name for one thread" any "$programs/$name-sequential" --preset tiny
    expected=$(checksum "$("$programs/$name-sequential" --preset tiny 2>/dev/null)")
    for threads in 1 2 4; do
        run "$name with plain threads: $threads" "$expected" \
            env COMEM_THREADS="$threads" "$programs/$name-threads" --preset tiny
    done
    if ! with_comem; then
        left_out "$name with Comem"
        continue
    fi
    for engine in "${engines[@]}"; do
        for nodes in 1 2 4 8; do
            run "$name under $engine, nodes: $nodes" "$expected" \
                "$bin/comem" run --no-prefix -n "$nodes" --engine "$engine" -- "$programs/$name" --preset tiny
        done
        for detector in "${detectors[@]}"; do
            # Nothing is noticed there.
            [ "$engine" = hardware ] && [ "$detector" != "${detectors[0]}" ] && continue
            run "$name under $engine with $detector over udp, two nodes with two threads" "$expected" \
                "$bin/comem" run --no-prefix -n 2 -t 2 --engine "$engine" --detector "$detector" --backbone udp -- \
                "$programs/$name" --preset tiny
        done
    done
done

for name in "${compared[@]}"; do
    run "$name for one thread" any "$programs/$name-sequential" --preset tiny
    expected=$(checksum "$("$programs/$name-sequential" --preset tiny 2>/dev/null)")
    run "$name with plain threads: 3" "$expected" env COMEM_THREADS=3 "$programs/$name-threads" --preset tiny
    if ! with_comem; then
        left_out "$name with Comem"
        continue
    fi
    run "$name on one host, nodes: 2" "$expected" \
        "$bin/comem" run --no-prefix -n 2 -- "$programs/$name" --preset tiny
    run "$name over udp, nodes: 3" "$expected" \
        "$bin/comem" run --no-prefix -n 3 --rehearse -- "$programs/$name" --preset tiny
done

# instructions PROGRAM FUNCTION: a function's instructions, addresses left out, and where in a cache line it begins.
instructions() {
    objdump -d --no-show-raw-insn --disassemble="$2" "$1" 2>/dev/null | awk -v name="<$2>:" '
        $2 == name {
            inside = 1
            print "begins", $1 ~ /[048c]0$/ ? "at" : "within", "a cache line"
            next
        }
        inside && NF == 0 { exit }
        inside {
            sub(/^[^\t]*\t/, "")
            sub(/#.*/, "")
            sub(/0x[0-9a-f]+\(%rip\)/, "(%rip)")
            sub(/[0-9a-f]+ </, "<")
            print
        }'
}

# same_code NAME FUNCTION: whether all builds of a program have the same function.
same_code() {
    local expected build
    local builds=("$1-threads")
    with_comem && builds+=("$1")
    expected=$(instructions "$programs/$1-sequential" "$2")
    if [[ $expected != "begins at a cache line"* ]]; then
        verdict "not ok" "$1: $2 begins at a cache line: $(head -n 1 <<<"$expected")"
        return
    fi
    for build in "${builds[@]}"; do
        [ "$(instructions "$programs/$build" "$2")" = "$expected" ]
        verdict "$([ $? = 0 ] && echo ok || echo "not ok")" "$build: $2 is that of $1-sequential"
    done
}

for name in "${kernels[@]}" "${compared[@]}"; do
    if ! command -v objdump >/dev/null; then
        left_out "$name: the same instructions in all builds" "there is no objdump; sudo apt-get install binutils"
        continue
    fi
    hot=$(sed -n 's/^KERNEL_HOT static .*[ *]\([a-z_]*\)(.*/\1/p' workloads/"$name".[ch])
    [ -n "$hot" ] || verdict "not ok" "$name says where it spends its time"
    for function in $hot; do same_code "$name" "$function"; done
done

# What is too large for a check says so; and without being asked, one wrong number is found.
large=(--rows 1000 --columns 1000 --iterations 300)
printed=$("$programs/sor-sequential" "${large[@]}") || true
[[ $printed == *" unchecked" ]] && verdict ok "sor of many cells says that it is unchecked" ||
    verdict "not ok" "sor of many cells says that it is unchecked: $printed"
# spoiled NAME STATEMENT [AFTER [ARGUMENT…]]: the statement stands behind this one, or behind the parallel part.
spoiled() {
    local name=$1 spoil=$2 after=${3:-comem_parallel(work, NULL);} printed=
    shift "$(($# < 3 ? $# : 3))"
    if sed "/^    $after\$/a $spoil" "workloads/$name.c" |
        ${CC:-cc} -std=c11 -O2 -Iinclude -Iworkloads -DCOMEM_SEQUENTIAL -x c - -o "$programs/$name-spoiled" -lm &&
        ! printed=$("$programs/$name-spoiled" "$@") && [[ $printed == *" WRONG" ]]; then
        verdict ok "$name finds a wrong number"
    else
        verdict "not ok" "$name finds a wrong number: $printed"
    fi
}
spoiled sor 'shared.colour[BLACK][200][100] = 0;'
spoiled fft '*element(shared[1], 100, 100) = first_value(100 * side + 100);'
spoiled is 'if (round == 1) buckets[7]--;' 'add_counts(self->counts);'
spoiled ilink 'shared.log_likelihood[2] *= 1 + 1e-15;'
spoiled barnes 'shared[7].at[1] += 1e-9;' '' --bodies 2048
spoiled rays 'picture[77] ^= 1;'

# Every means of synchronisation; semaphores and flags alone order writes but under `scope`, where they need not.
sync=(--rounds 20)
run "sync-test for one thread" any "$programs/sync-test-sequential" "${sync[@]}" --publish
for threads in 1 2 4; do
    run "sync-test with plain threads: $threads" any \
        env COMEM_THREADS="$threads" "$programs/sync-test-threads" "${sync[@]}" --publish
done
if with_comem; then
    for engine in "${engines[@]}"; do
        publish=(--publish)
        case $engine in scope | multicast) publish=() ;; esac
        for nodes in 1 2 4 8; do
            run "sync-test under $engine, nodes: $nodes" any \
                "$bin/comem" run --no-prefix -n "$nodes" --engine "$engine" -- \
                "$programs/sync-test" "${sync[@]}" "${publish[@]}"
        done
        for detector in "${detectors[@]}"; do
            run "sync-test under $engine with $detector over udp, two nodes with two threads" any \
                "$bin/comem" run --no-prefix -n 2 -t 2 --engine "$engine" --detector "$detector" --backbone udp -- \
                "$programs/sync-test" "${sync[@]}" "${publish[@]}"
        done
    done
else
    left_out "sync-test with Comem"
fi
echo "1..$number"
exit "$status"
