#!/usr/bin/env bash
# The process model of PARMACS: workers, globals, barriers of some threads, ends. COMEM_BIN holds comem and comem-cc.
# Every scenario runs under each engine on one to four nodes; `make soak` adds each of these with one thread and with
# two, over a bad network and over shared memory.
# Called by tests/compat.sh; alone: `COMEM_BIN=target/debug tests/compat/process/run.sh [SCENARIO]`. Reports by lines
# `ok: …` / `FAILED: …`.
set -uo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=tests/compat/shapes.sh
. tests/compat/shapes.sh

bin=$(realpath "${COMEM_BIN:-target/debug}")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
faults=drop=5%,dup=5%,reorder=5%,seed=7
only=${1:-}
status=0
# Where a run names no engine its pages have a protocol, as between hosts.
export COMEM_ENGINE=hlrc

verdict() {
    echo "$1: processes: $2"
    [ "$1" = ok ] || status=1
}

for program in rounds wrong; do
    "$bin/comem-cc" -std=gnu11 -O2 -g -Wall -Wextra -Werror "tests/compat/process/$program.c" -o "$out/$program" || {
        verdict FAILED "$program.c does not build"
        exit 1
    }
done

# A library that a program loads when it runs.
echo 'int of_later = 5;' | ${CC:-cc} -shared -fPIC -Wl,--build-id -x c - -o "$out/later.so"
export COMEM_TEST_LATER="$out/later.so"

# job WANTED COMMAND…: passes when the command ends with that status and prints `ended` and nothing else but `leaving`.
job() {
    local wanted=$1 printed ended=0 rest
    shift
    printed=$(timeout --kill-after=5 180 "$@" 2>&1 </dev/null) || ended=$?
    rest=$(grep -vE '^(ended|leaving)$' <<<"$printed")
    [ "$wanted" = 0 ] || rest=$(grep -v 'ended with status' <<<"$rest")
    if [ "$ended" = "$wanted" ] && [ -z "$rest" ] && [ "$(grep -c '^ended$' <<<"$printed")" = 1 ]; then
        return 0
    fi
    echo "$printed" | head -n 12
    verdict FAILED "status $ended: $*"
    return 1
}

# scenario NAME PROCESSES STATUS WHAT: in every shape; PROCESSES is a formula of n and t.
scenario() {
    local name=$1 formula=$2 wanted=$3 what=$4 fine=1 engine n t p e=0
    [ -z "$only" ] || [ "$only" = "$name" ] || return
    for engine in hlrc scope lrc multicast msi hardware; do
        e=$((e + 1))
        for n in 1 2 3 4; do
            for t in 1 2; do
                p=$((formula))
                local shape=("$bin/comem" run --no-prefix -n "$n" -t "$t" --engine "$engine")
                if is_wanted $e $n $((t - 1)) 0; then
                    job "$wanted" "${shape[@]}" --faults "$faults" "$out/rounds" "$name" "$p" || fine=0
                fi
                if is_wanted $e $n $((t - 1)) 1; then
                    job "$wanted" "${shape[@]}" --backbone shm "$out/rounds" "$name" "$p" || fine=0
                fi
            done
        done
    done
    [ $fine = 0 ] || verdict ok "$what"
}

scenario rounds 'n*t' 0 \
    "workers see the globals as they stood at CREATE, and memory in both directions, round after round"
scenario rounds 'n*t>2?n*t-1:1' 0 "barriers of some of the threads order memory as those of all do"
scenario loops 'n*t' 0 "GETSUB hands out every subscript once, and begins again"
scenario pauses 'n*t' 0 "pauses count, and order memory"
scenario cleared 'n*t' 0 "what was set before a barrier is there after it"
scenario deep 'n*t' 0 "workers that end by exit(0) leave nothing on the stacks of those that follow"
scenario pieces 'n*t' 0 "small pieces of shared memory are freed by other processes and used again"
scenario small 'n*t' 0 "300 MB of globals that nobody touches are not resident anywhere"
scenario leave 'n*t' 7 "a worker's exit(0) ends its work, and main's status is the job's"

# Linked statically, exit comes to the same place.
if [ -z "$only" ] || [ "$only" = static ]; then
    if "$bin/comem-cc" -static -O2 tests/compat/process/rounds.c -o "$out/static" -ldl -lm 2>/dev/null; then
        fine=1
        job 7 "$out/static" leave 3 || fine=0
        job 0 "$out/static" rounds 3 || fine=0
        [ $fine = 0 ] || verdict ok "a program that is linked statically ends as others do"
    else
        echo "SKIP: processes: programs that are linked statically: this system has no libraries for them"
    fi
fi

# With AddressSanitizer, as docs/debugging.md has it: the second CREATE compares pages of globals.
if [ -z "$only" ] || [ "$only" = sanitized ]; then
    if "$bin/comem-cc" -fsanitize=address -O1 tests/compat/process/rounds.c -o "$out/sanitized" 2>/dev/null; then
        fine=1
        export ASAN_OPTIONS=replace_intrin=0:detect_leaks=0
        job 0 "$bin/comem" run --no-prefix --no-wrap -n 2 -t 2 "$out/sanitized" late 1 || fine=0
        job 0 "$bin/comem" run --no-prefix --no-wrap -n 2 "$out/sanitized" between 2 || fine=0
        unset ASAN_OPTIONS
        [ $fine = 0 ] || verdict ok "a program with AddressSanitizer runs"
    else
        echo "SKIP: processes: AddressSanitizer: this system has no libraries for it"
    fi
fi

# alone PROCESSES: without a launcher, a job of one node makes as many threads as CREATE asks for.
if [ -z "$only" ] || [ "$only" = alone ]; then
    fine=1
    for p in 1 2 7 64; do
        for name in rounds loops pauses; do
            job 0 "$out/rounds" "$name" "$p" || fine=0
        done
        job 0 "$bin/comem" run --no-prefix -n 1 "$out/rounds" rounds "$p" || fine=0
    done
    [ $fine = 0 ] || verdict ok "one node makes as many threads as the program asks for"
fi

if [ -z "$only" ] || [ "$only" = between ]; then
    fine=1
    for engine in hlrc scope lrc multicast msi hardware; do
        for n in 2 4; do
            job 0 "$bin/comem" run --no-prefix -n "$n" --engine "$engine" "$out/rounds" between "$n" || fine=0
        done
        job 0 "$bin/comem" run --no-prefix -n 3 --engine "$engine" "$out/rounds" part || fine=0
        job 0 "$bin/comem" run --no-prefix -n 2 -t 2 --engine "$engine" "$out/rounds" part || fine=0
    done
    [ $fine = 0 ] ||
        verdict ok "each worker begins with the globals as they stood at its own CREATE, also in a slot used again"
fi

if [ -z "$only" ] || [ "$only" = late ]; then
    fine=1
    for engine in hlrc scope lrc multicast msi hardware; do
        for backbone in shm udp; do
            job 0 "$bin/comem" run --no-prefix -n 2 -t 2 --engine "$engine" --backbone $backbone \
                "$out/rounds" late 1 || fine=0
            job 0 "$bin/comem" run --no-prefix -n 2 -t 3 --engine "$engine" --backbone $backbone \
                "$out/rounds" late 2 || fine=0
        done
    done
    job 0 "$out/rounds" late 0 || fine=0
    [ $fine = 0 ] ||
        verdict ok "a worker beside another one begins with what main has changed, and that one keeps its own changes"
fi

# A barrier of all threads is one message each way for each node, however many threads; thousands of pieces, and of
# pauses that are initialised, cost none. What was repeated, because others had the processor, does not count.
if [ -z "$only" ] || [ "$only" = costs ]; then
    fine=1
    for t in 1 2; do
        job 0 "$bin/comem" run --no-prefix -n 2 -t $t --stats "$out/stats.json" "$out/rounds" costs $((2 * t)) || fine=0
        messages=$(grep -o '"messages_sent": [0-9]*' "$out/stats.json" | head -n 1 | grep -o '[0-9]*$')
        repeated=$(grep -o '"timeouts": [0-9]*' "$out/stats.json" | head -n 1 | grep -o '[0-9]*$')
        if [ "$messages" -gt $((1100 + 3 * repeated)) ]; then
            verdict FAILED \
                "$messages messages of a node for 1000 barriers, 5000 pieces and 5000 pauses, $repeated repeated"
            fine=0
        fi
    done
    [ $fine = 0 ] ||
        verdict ok "barriers of all cost a message each way for each node; small pieces and pauses at their start none"
fi

# 64 MB of zeros that main has touched.
if [ -z "$only" ] || [ "$only" = zeros ]; then
    fine=1
    for backbone in udp shm; do
        job 0 "$bin/comem" run --no-prefix -n 3 --backbone $backbone --stats "$out/stats.json" \
            "$out/rounds" zeros 3 || fine=0
        bytes=$(grep -o '"bytes_sent": [0-9]*' "$out/stats.json" | grep -o '[0-9]*$' | sort -n | tail -n 1)
        if [ -z "$bytes" ] || [ "$bytes" -gt $((2 << 20)) ]; then
            verdict FAILED "${bytes:-no} bytes were sent over $backbone for pages of zeros"
            fine=0
        fi
    done
    [ $fine = 0 ] || verdict ok "pages of zeros are not shipped, also where main has read or zeroed them"
fi

program=wrong
# wrong WHAT STATUS WORDS FLAGS…: ends with that status and says the words.
wrong() {
    local what=$1 wanted=$2 words=$3 printed ended=0
    shift 3
    [ -z "$only" ] || [ "$only" = wrong ] || return
    printed=$(timeout --kill-after=5 30 "$bin/comem" run --no-prefix "$@" "$out/$program" "$what" 2>&1 </dev/null) ||
        ended=$?
    if [ "$ended" = "$wanted" ] && grep -qE "$words" <<<"$printed"; then
        verdict ok "$what: $words"
    else
        echo "$printed" | head -n 12
        verdict FAILED "$what: status $ended, expected $wanted and \"$words\""
    fi
}

if "$bin/comem-cc" -std=gnu11 -DWITHOUT_MAIN_ENV tests/compat/process/wrong.c -o "$out/unstarted"; then
    program=unstarted
    for what in lock memory; do
        wrong $what 2 \
            'a PARMACS macro was used in a program that did not start as one; put MAIN_ENV into the file with main' -n 2
    done
    program=wrong
else
    verdict FAILED "wrong.c without MAIN_ENV does not build"
fi
wrong many 2 'CREATE of worker 5, but 2 nodes of 2 threads have no free slot; start the job with -t 3' -n 2 -t 2
wrong many 2 'one node has no room for more: start more nodes' -n 1
wrong nested 2 'CREATE was called by the worker in slot 1; only main\(\) may' -n 2
wrong wait 2 'WAIT_FOR_END\(3\), but 1 workers were created and not waited for yet' -n 2
wrong numbers 2 'expect another number; let all say the same' -n 5
wrong crowd 2 'barrier 0x5 of 100000 threads, but the job has 2; start it with more' -n 2
wrong fewer 2 'a barrier of -1 threads makes no sense' -n 2
wrong nobody 2 'barrier 0x5 of 0 threads; say how many meet there, itself included' -n 2
wrong worker 5 'printed before the exit' -n 2
wrong worker 5 'printed before the exit' -n 1
wrong library 2 "a worker on node 0, in one process with main, called exit\(0\) by way of a shared library" -n 2 -t 2
wrong library 2 "a worker on node 0, in one process with main, called exit\(0\) by way of a shared library" -n 1
wrong library 0 ended -n 2
wrong counter 2 \
    'GETSUB was given a counter at 0x[0-9a-f]+, which each node has for itself; let GSDEC stand in memory of G_MALLOC' \
    -n 2
wrong counter 0 '^10 subscripts' -n 2 --globals share
wrong counter 0 '^10 subscripts' -n 1
wrong busy 9 'ended with status 9' -n 2
wrong spin 0 'spins on a plain variable, where under hlrc it never sees.*--engine msi' -n 2
wrong null 2 'CREATE was given no function' -n 2
for n in 1 2; do
    wrong both 0 '^ended$' -n $n
    wrong "both, unawaited" 0 '^worker in slot [02]$' -n $n
    wrong "number argument" 0 '^worker with -7$' -n $n
done
wrong both 0 '^worker in slot 0$' -n 2
wrong "both meet" 2 "BARRIER was used by main while a worker has main's slot.*one thread more \(-t\)" -n 2
wrong "both late" 0 "the last worker has main's slot and begins when main comes to WAIT_FOR_END.*\(-t\)" -n 2
wrong "stack argument" 2 "CREATE_WITH_ARG was given 0x[0-9a-f]+, which points to main's stack or arguments of node 0" \
    -n 2
wrong "stack argument" 0 '^ended$' -n 1
wrong "heap argument" 2 'CREATE_WITH_ARG was given 0x[0-9a-f]+, which points to the private heap of node 0' -n 2
wrong "own variable" 2 \
    'FETCH_ADD was given a variable at 0x[0-9a-f]+, which each node has for itself.*--globals share' -n 2
wrong "own variable" 0 '^ended$' -n 2 --globals share
wrong "own variable" 0 '^ended$' -n 1
wrong askew 2 'FETCH_ADD was given a variable of 8 bytes at 0x[0-9a-f]+; give one that is aligned' -n 2
wrong "too wide" 2 'LOAD was given a variable of 16 bytes; give an integer' -n 2
wrong later 0 '^ended$' -n 2
wrong later 0 'global at 0x[0-9a-f]+ \(of_later\) points into a library that was loaded later' -n 2 --check-pointers
# So many that what a node says of them is long.
if [ -z "$only" ] || [ "$only" = wrong ]; then
    for i in {1..120}; do cp "$out/later.so" "$out/one-library-of-many-$i.so"; done
    LD_PRELOAD=$(echo "$out"/one-library-of-many-*.so) wrong later 0 '^ended$' -n 2
fi
wrong fork 0 'made by fork touched shared memory' -n 2
for backbone in shm udp; do
    wrong "worker's child" 0 'a process made by fork called Comem.*let its parent' -n 2 --backbone $backbone
    wrong "worker's child" 0 "the second child's status is right" -n 2 --backbone $backbone
done
wrong pointers 0 'global at 0x[0-9a-f]+ \(private_thing\) points into the private heap.*allocate it with G_MALLOC' \
    -n 2 --check-pointers
wrong pointers 0 'global at 0x[0-9a-f]+ \(record\+8\) points into the private heap' -n 2 --check-pointers
wrong pointers 0 "global at 0x[0-9a-f]+ \(argument\) points into main's stack or arguments" -n 2 --check-pointers
wrong pointers 0 'global at 0x[0-9a-f]+ \(private_thing\) points into the private heap' -n 2 --globals share \
    --check-pointers
wrong pointers 0 'shared memory at 0x[0-9a-f]+ \(.*\+24\) points into the private heap.*allocate it with G_MALLOC' \
    -n 2 --check-pointers
wrong much 0 'looks at the first 64 of 80 MiB of shared memory at a CREATE' -n 2 --check-pointers
for name in large mapped; do
    wrong pointers 0 \
        "global at 0x[0-9a-f]+ \\($name\\) points into private memory of malloc or mmap.*allocate it with G_MALLOC" \
        -n 2 --check-pointers
done
if [ -z "$only" ] || [ "$only" = wrong ]; then
    fine=$("$bin/comem" run --no-prefix -n 3 --check-pointers "$out/wrong" pointers 2>&1 |
        grep -E '\(fine|1048576 bytes from') || true
    [ -z "$fine" ] && verdict ok "pointers: nothing is said of those that mean the same everywhere" ||
        verdict FAILED "$fine"
fi

# by_default WHAT WORDS FLAGS…: where no engine is named, all nodes of this host map one memory.
by_default() {
    local COMEM_ENGINE=
    wrong "$1" "${@:2}"
}
by_default nested 2 'CREATE was called by the worker in slot 1; only main\(\) may' -n 2
by_default counter 2 'GETSUB was given a counter at 0x[0-9a-f]+, which each node has for itself' -n 2
by_default counter 0 '^10 subscripts' -n 2 --globals share
by_default "own variable" 2 'FETCH_ADD was given a variable at 0x[0-9a-f]+, which each node has for itself' -n 2
by_default "both meet" 2 "BARRIER was used by main while a worker has main's slot.*one thread more \(-t\)" -n 2
by_default fork 0 'made by fork touched shared memory' -n 2
by_default "worker's child" 0 "the second child's status is right" -n 2
by_default pointers 0 'shared memory at 0x[0-9a-f]+ \(.*\+24\) points into the private heap' -n 2 --check-pointers
by_default spin 0 '^ended$' -n 2

exit $status
