#!/usr/bin/env bash
# Programs in the style of JIAJIA.
set -uo pipefail
cd "$(dirname "$0")/../../.."
. tests/compat/matrix.sh
here=tests/compat/jia

build jia-calls $here/calls.c $here/other.c && everywhere jia-calls && with_two_workers jia-calls
build jia-anl $here/anl.c && everywhere jia-anl
build jia-many $here/many.c && over_each_backbone jia-many
if build jia-wrong $here/wrong.c; then
    # The launcher knows the program itself; behind a shell, it is the library that sees threads.
    refuses "a JIAJIA program with two threads in a process" "has one thread in each process" \
        -n 2 -t 2 sh -c "$work/jia-wrong"
    refuses "a call before jia_init" "before comem_start" -n 1 "$work/jia-wrong" early
    refuses "a block of no bytes" "a block of 0 bytes" -n 2 "$work/jia-wrong" block
    refuses "an allocation at a host that is not there" "there is no host 2" -n 2 "$work/jia-wrong" host
    refuses "a list of blocks of no bytes" "one of them must be positive" -n 2 "$work/jia-wrong" list
    refuses "a list of blocks that is nowhere" "the list of block sizes is a null pointer" -n 2 \
        "$work/jia-wrong" no-list
    refuses "a negative condition variable" "no condition variable -1" -n 2 "$work/jia-wrong" cv
    refuses "releasing a lock that is not held" "does not hold" -n 2 "$work/jia-wrong" unlock
    refuses "a reduction that there is not" "no reduction 7" -n 2 "$work/jia-wrong" reduction
    refuses "a reduction of less than nothing" "a reduction of -1 numbers" -n 2 "$work/jia-wrong" numbers
    refuses "a reduction of what is not there" "was given a null pointer" -n 2 "$work/jia-wrong" nothing
    refuses "a reduction to nowhere" "was given a null pointer" -n 2 "$work/jia-wrong" nowhere
    refuses "a reduction of two types" "a reduction here and at node .* differ in shape or arguments" -n 2 \
        "$work/jia-wrong" types
    refuses "a reduction to two roots" "a reduction here and at node .* differ in shape or arguments" -n 2 \
        "$work/jia-wrong" roots
    refuses "a broadcast of two roots" "give jia_bcast.. the same root" -n 2 "$work/jia-wrong" broadcasts
    refuses "a broadcast of two roots among more" "give jia_bcast.. the same root" -n 3 "$work/jia-wrong" broadcasts
    refuses "a message longer than its buffer" "8 bytes does not fit a buffer of 4" -n 2 "$work/jia-wrong" message
    refuses "what the program itself calls an error" "ended the job: matrix 42 is singular" -n 2 "$work/jia-wrong" error
    refuses "allocations that differ between hosts" "same collective calls" -n 2 "$work/jia-wrong" order
fi

if build jia-arguments $here/arguments.c; then
    run -n 3 "$work/jia-arguments" "two words" '*' ''
    if [ "$ended" = 0 ] && [ "$(grep -c '^host [012]: \[two words\] \[\*\] \[\]$' <<<"$printed")" = 3 ]; then
        passed "every host sees the arguments as they were written"
    else
        failed "hosts see other arguments (status $ended)"
        show
    fi
    # shellcheck disable=SC2016 # each host's shell puts its number in
    run -n 3 sh -c 'exec "$0" of "$COMEM_NODE"' "$work/jia-arguments"
    if [ "$ended" = 0 ] && [ "$(grep -c '^host [012]: \[of\] \[0\]$' <<<"$printed")" = 3 ] &&
        [ "$(grep -c 'jia_init gives every host the arguments of host 0' <<<"$printed")" = 2 ]; then
        passed "every host sees host 0's arguments, and those that were started with others say so"
    else
        failed "hosts see other arguments than host 0 (status $ended)"
        show
    fi
    # shellcheck disable=SC2016
    refuses "another number of arguments on one host" \
        "started with argc 2 and host 0 with 1; start all hosts with the same" \
        -n 2 sh -c 'if [ "$COMEM_NODE" = 1 ]; then set -- more; fi; exec "$0" "$@"' "$work/jia-arguments"
    refuses "what JUMP calls an error" "ended the job: no file input of 3" -n 2 "$work/jia-arguments" error
fi

# On one host no protocol is needed. Between hosts the engine is JIAJIA's, unless the job says otherwise.
runs_under hardware "a JIAJIA program" "$work/jia-anl"
runs_under scope "a JIAJIA program that is rehearsed" --rehearse "$work/jia-anl"
runs_under msi "a JIAJIA program with --engine msi" --engine msi "$work/jia-anl"
[ "$failures" = 0 ]
