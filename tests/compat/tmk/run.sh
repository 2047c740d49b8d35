#!/usr/bin/env bash
# Programs in the style of TreadMarks.
set -uo pipefail
cd "$(dirname "$0")/../../.."
. tests/compat/matrix.sh
here=tests/compat/tmk

build tmk-calls $here/calls.c $here/other.c && everywhere tmk-calls && with_two_workers tmk-calls
build tmk-polls -Wno-deprecated-declarations $here/polls.c && everywhere tmk-polls
build tmk-many $here/many.c && over_each_backbone tmk-many
if build tmk-wrong $here/wrong.c; then
    # The launcher knows the program itself; behind a shell, it is the library that sees threads.
    refuses "a TreadMarks program with two threads in a process" "has one thread in each process" \
        -n 2 -t 2 sh -c "$work/tmk-wrong"
    refuses "a call before Tmk_startup" "before comem_start" -n 1 "$work/tmk-wrong" early
    refuses "distributing a variable on the stack" "not all in a variable of the program" -n 2 "$work/tmk-wrong" local
    refuses "distributing what is on the private heap" "Tmk_malloc" -n 2 "$work/tmk-wrong" heap
    refuses "distributing more than the program has" "not all in a variable" -n 2 "$work/tmk-wrong" long
    refuses "distributing less than nothing" "variable of -1 bytes" -n 2 "$work/tmk-wrong" negative
    refuses "releasing a lock that is not held" "does not hold" -n 2 "$work/tmk-wrong" release
    refuses "what the program itself calls an error" "ended the job: no file input" -n 2 "$work/tmk-wrong" error
    run -n 2 "$work/tmk-wrong" status
    if [ "$ended" = 7 ]; then
        passed "the status of Tmk_exit is the job's"
    else
        failed "Tmk_exit(7) ended the job with $ended"
    fi
    if [ "$(grep -c '^an error comes early$' <<<"$printed")" = 2 ]; then
        passed "Tmk_err speaks before Tmk_startup"
    else
        failed "Tmk_err says nothing before Tmk_startup"
        show
    fi
fi
runs_under hardware "a TreadMarks program" "$work/tmk-calls"
runs_under hlrc "a TreadMarks program that is rehearsed" --rehearse "$work/tmk-calls"
[ "$failures" = 0 ]
