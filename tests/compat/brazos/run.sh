#!/usr/bin/env bash
# Programs for Brazos, whose threads run UserMain(). COMEM_BIN holds comem, comem-cc and comem-cxx.
set -uo pipefail
cd "$(dirname "$0")/../../.."
. tests/compat/matrix.sh
here=tests/compat/brazos
flags=(-O1 -g -Wall -Wextra -Werror -I"$here")

# compile NAME COMPILER ARGUMENT…: the program $work/NAME, without a warning.
compile() {
    local name=$1 compiler=$2
    shift 2
    if "$bin/$compiler" "${flags[@]}" "$@" -o "$work/$name"; then
        passed "$name compiles"
    else
        failed "$name does not compile"
        return 1
    fi
}

# shapes PROGRAM WORD ARGUMENT…: the program prints a line with WORD on 1, 2 and 4 nodes with one thread and two,
# under each engine, over a bad network and over shared memory. `make test` takes each engine with each number of nodes
# once. `@n` and `@t` in an argument are nodes and threads.
shapes() {
    local program=$1 word=$2 engine n t backbone wrong=0 arguments e=0
    shift 2
    for engine in hlrc scope lrc multicast msi hardware; do
        e=$((e + 1))
        for n in 1 2 4; do
            for t in 1 2; do
                is_wanted $e $((n / 2)) $((t - 1)) || continue
                backbone="--backbone shm"
                [ $(((n + t) % 2)) = 1 ] && backbone="--faults $faults"
                arguments=("${@//@n/$n}")
                # shellcheck disable=SC2086 # an option and its value
                run -n $n -t $t --engine $engine $backbone "$work/$program" "${arguments[@]//@t/$t}"
                if [ "$ended" != 0 ] || ! grep -q "$word" <<<"$printed"; then
                    failed "$program with -n $n -t $t --engine $engine $backbone (status $ended)"
                    show
                    wrong=1
                fi
            done
        done
    done
    [ $wrong = 0 ] && passed "$program on 1, 2 and 4 nodes, with one thread and two, each engine"
}

# alone THREADS PROGRAM WORD ARGUMENT…: the same executable without comem run, in one process.
alone() {
    local threads=$1 program=$2 word=$3
    shift 3
    ended=0
    printed=$(cd "$work" && COMEM_THREADS=$threads timeout --kill-after=10 60 "./$program" "$@" 2>&1) || ended=$?
    if [ "$ended" = 0 ] && grep -q "$word" <<<"$printed"; then
        passed "$program without comem run, threads: $threads"
    else
        failed "$program without comem run, threads: $threads (status $ended)"
        show
    fi
}

# ends STATUS WHAT OPTION… PROGRAM ARGUMENT…: the job ends with this status, after the thread has printed.
ends() {
    local status=$1 what=$2
    shift 2
    run "$@"
    if [ "$ended" = "$status" ] && grep -q '^ends$' <<<"$printed"; then
        passed "$what: status $status"
    else
        failed "$what: status $ended instead of $status"
        show
    fi
}

if compile calls comem-cc -std=c11 $here/calls.c $here/other.c; then
    shapes calls '^ok$' @n @t "a word" ""
    for threads in 1 3; do alone "$threads" calls '^ok$' 1 "$threads" "a word" ""; done
fi
if command -v "${CXX:-c++}" >/dev/null &&
    compile calls-cxx comem-cxx -x c++ -std=c++17 $here/calls.c $here/other.c; then
    run -n 2 -t 2 "$work/calls-cxx" 2 2 "a word" ""
    [ "$ended" = 0 ] && passed "the same in C++" || { failed "the same in C++ (status $ended)" && show; }
fi
runs_under hardware "a Brazos program" "$work/calls" 2 1 "a word" ""
runs_under hlrc "a Brazos program that is rehearsed" --rehearse "$work/calls" 2 1 "a word" ""
if command -v m4 >/dev/null; then
    macros=$("$bin/comem" config --parmacs)
    for name in calls other; do m4 "$macros" $here/$name.c >"$work/$name-m4.c"; done
    if compile calls-m4 comem-cc -std=gnu11 "$work/calls-m4.c" "$work/other-m4.c"; then
        run -n 2 -t 2 "$work/calls-m4" 2 2 "a word" ""
        [ "$ended" = 0 ] && passed "the same through m4" || { failed "the same through m4 (status $ended)" && show; }
    fi
else
    echo "SKIP: brazos through m4: there is no m4; sudo apt-get install m4"
fi

if compile brazos comem-cc -std=c11 examples/brazos.c; then
    printed=$("$work/brazos") && shapes brazos "^$printed$" && alone 4 brazos "^$printed$"
fi

if compile ends comem-cc -std=c11 $here/ends.c; then
    ends 0 "UserMain returns 0" -n 2 -t 2 "$work/ends" return 3 0
    ends 3 "UserMain returns 3 in the first thread" -n 2 -t 2 "$work/ends" return 0 3
    ends 3 "UserMain returns 3 in the last thread" -n 2 -t 2 "$work/ends" return -1 3
    ends 3 "UserMain returns 3 in the second thread" -n 2 -t 2 "$work/ends" return 1 3
    ends 1 "UserMain returns 256" -n 2 "$work/ends" return -1 256
    ends 255 "UserMain returns -1" -n 2 "$work/ends" return -1 -1
    for who in 0 1 -1; do
        ends 0 "exit(0) in thread $who" -n 2 -t 2 "$work/ends" exit $who 0
        ends 5 "exit(5) in thread $who" -n 2 -t 2 "$work/ends" exit $who 5
    done
    refuses "common memory of different sizes" "not the same|disagree|differ" -n 2 "$work/ends" sizes 0 0
    ended=0
    printed=$("$work/ends" return 0 4 2>&1) || ended=$?
    if [ "$ended" = 4 ]; then
        passed "UserMain returns 4 without comem run"
    else
        failed "UserMain returns 4 without comem run: status $ended"
    fi
fi
compile ends-void comem-cc -std=c11 -DBRAZOS_VOID_USERMAIN $here/ends.c &&
    ends 0 "UserMain returns nothing" -n 2 "$work/ends-void" return 0 0

# A program without UserMain, and one whose UserMain is another function, are told apart before they run.
printf '#include <brazos.h>\nint usermain(int a, int b) { return a + b; }\n' >"$work/none.c"
printf '#include <brazos.h>\nint UserMain(char **words) { return words != 0; }\n' >"$work/other.c"
for name in none other; do
    if printed=$("$bin/comem-cc" "$work/$name.c" -o "$work/$name" 2>&1); then
        failed "$name.c should not build"
    elif grep -q UserMain <<<"$printed"; then
        passed "$name.c does not build, for want of UserMain"
    else
        failed "$name.c does not build, for another reason" && show
    fi
done
[ "$failures" = 0 ]
