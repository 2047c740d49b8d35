#!/usr/bin/env bash
# Programs in the style of Quarks.
set -uo pipefail
cd "$(dirname "$0")/../../.."
. tests/compat/matrix.sh
here=tests/compat/quarks

build quarks-calls $here/calls.c && everywhere quarks-calls @ && with_two_workers quarks-calls @
# Fewer nodes work than there are: barriers of some nodes, while the others wait for a fork that never comes.
NODES=4 everywhere quarks-calls 3
NODES=4 everywhere quarks-calls 2
build quarks-many $here/many.c && over_each_backbone quarks-many
if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "SKIP: quarks: functions in C++: there is no C++ compiler"
elif "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -Wpedantic -Werror -I"$include/compat" $here/functions.cpp \
    -o "$work/quarks-functions" \
    -L"$bin" -lcomem -Wl,-rpath,"$bin"; then
    over_each_backbone quarks-functions
else
    failed "quarks-functions does not compile"
fi
if build quarks-wrong $here/wrong.c; then
    # The launcher knows the program itself; behind a shell, it is the library that sees threads.
    refuses "a Quarks program with two threads in a process" "has one thread in each process" \
        -n 2 -t 2 sh -c "$work/quarks-wrong"
    refuses "more forks than nodes" "start it with -n 3 or more" -n 2 "$work/quarks-wrong" many
    refuses "a fork by another node than the master" "only the master, node 1, forks" -n 3 "$work/quarks-wrong" slave
    refuses "a fork of what is no function" "no function of the program" -n 2 "$work/quarks-wrong" data
    refuses "releasing a lock that is not held" "does not hold" -n 2 "$work/quarks-wrong" release
    refuses "a barrier of more nodes than there are" "the job has 2" -n 2 "$work/quarks-wrong" barrier
    refuses "a barrier of less than no nodes" "a barrier of -1 nodes" -n 2 "$work/quarks-wrong" crossers
    refuses "a barrier of no nodes" "a barrier of 0 nodes makes no sense" -n 2 "$work/quarks-wrong" nobody
    refuses "destroying a region that there is not" "there is no such region" -n 2 "$work/quarks-wrong" destroy
fi
runs_under hardware "a Quarks program" "$work/quarks-calls" 2
runs_under hlrc "a Quarks program that is rehearsed" --rehearse "$work/quarks-calls" 2
[ "$failures" = 0 ]
