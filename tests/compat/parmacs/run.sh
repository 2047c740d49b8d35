#!/usr/bin/env bash
# Programs in PARMACS form: every macro, workers round after round, and six of the workloads, whose results must be
# those of the C ones for one thread. COMEM_BIN holds comem and comem-cc. Reports by lines `ok: …` / `FAILED: …`. Each
# engine meets each number of nodes; `make soak` adds each of these with one thread and with two, over both backbones.
set -uo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=tests/compat/shapes.sh
. tests/compat/shapes.sh

bin=$(realpath "${COMEM_BIN:-target/debug}")
out=${COMEM_COMPAT_OUT:-out/test/compat}/parmacs
status=0 failures=0
if ! command -v m4 >/dev/null; then
    echo "SKIP: parmacs: there is no m4; sudo apt-get install m4"
    exit 0
fi
macros=$("$bin/comem" config --parmacs) || { echo "FAILED: parmacs: comem config --parmacs" && exit 1; }
mkdir -p "$out"

failed() {
    echo "FAILED: $*"
    status=1
    failures=$((failures + 1))
}

# program NAME FOLDER SOURCE…: NAME from sources through m4, in the three ways that suites call it.
program() {
    local name=$1 folder=$2 source sources=() how
    shift 2
    for how in plain -P -Ulen\ -Uindex; do
        sources=()
        for source in "$@"; do
            # shellcheck disable=SC2086
            sed "$([ "$how" = -P ] && echo 's/^include(/m4_include(/')" "$folder/$source.c.in" |
                m4 ${how#plain} -I "$folder" "$macros" - >"$out/$source.c" || return
            sources+=("$out/$source.c")
        done
        "$bin/comem-cc" -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -g -ffp-contract=off -Wall -Wextra -Werror \
            -Wno-unused-function -I"$folder" -Iinclude "${sources[@]}" -o "$out/$name" -lm || return
    done
}

# expect WHAT WORD COMMAND…: passes when the command ends well and its last line says WORD.
expect() {
    local what=$1 word=$2 printed ended=0
    shift 2
    printed=$(timeout --kill-after=5 180 "$@" 2>&1 </dev/null) || ended=$?
    if [ "$ended" = 0 ] && [[ ${printed##*$'\n'} == *"$word"* ]]; then
        return
    fi
    echo "$printed" | tail -n 12
    failed "$what: status $ended, expected \"$word\" ($*)"
    return 1
}

faults="drop=5%,dup=5%,reorder=5%,seed=7"
# over NODES THREADS ENGINE BACKBONE WHAT WORD PROGRAM ARGUMENTS…
over() {
    local n=$1 t=$2 engine=$3 backbone=$4 what=$5 word=$6 extra=()
    shift 6
    [ "$backbone" = udp ] && extra=(--faults "$faults")
    expect "$what: $n nodes, $t threads, $engine, $backbone" "$word" \
        "$bin/comem" run --no-prefix -n "$n" -t "$t" --engine "$engine" --backbone "$backbone" "${extra[@]}" -- "$@"
}

checksum() { grep -o 'checksum=[0-9a-f]*' <<<"$1"; }

program macros tests/compat/parmacs macros || failed "macros does not build"
program bare tests/compat/parmacs bare bare-other || failed "bare does not build"
program atomics tests/compat/parmacs atomics || failed "atomics does not build"
program creator tests/compat/parmacs creator || failed "creator does not build"
program order tests/compat/parmacs order || failed "order does not build"
program rounds tests/compat/parmacs rounds rounds-other || failed "rounds does not build"
for name in sor is water ilink barnes rays; do
    program "$name" workloads/parmacs "$name" || failed "$name does not build"
    ${CC:-cc} -std=c11 -O2 -ffp-contract=off -DCOMEM_SEQUENTIAL -Iinclude "workloads/$name.c" \
        -o "$out/$name-sequential" -lm ||
        failed "$name for one thread does not build"
done
[ $status = 0 ] || exit 1
echo "ok: PARMACS programs build with m4 as it is, with -P and with -Ulen -Uindex"

before=$failures e=0
expect "macros by itself" "macros: ok" "$out/macros" -p4
for engine in hlrc scope lrc multicast msi hardware; do
    e=$((e + 1)) b=0
    loose=""
    case $engine in scope | multicast) loose=-l ;; esac
    for backbone in udp shm; do
        b=$((1 - b))
        for n in 1 2 3 4; do
            for t in 1 2; do
                is_wanted $e $n $((t - 1)) $b || continue
                # shellcheck disable=SC2086
                over $n $t $engine $backbone macros "macros: ok" "$out/macros" -p$((n * t)) $loose
            done
        done
    done
done
[ $failures = $before ] &&
    echo "ok: every PARMACS macro, with 1 to 8 workers on 1 to 4 nodes, under each engine of pages"

# On one host no protocol is needed.
before=$failures
for choice in hardware: hlrc:--rehearse; do
    engine=${choice%%:*}
    # shellcheck disable=SC2086 # an option, or none
    expect "macros with ${choice#*:}" "macros: ok" "$bin/comem" run --no-prefix -n 2 ${choice#*:} \
        --stats "$out/stats.json" -- "$out/macros" -p2
    "$bin/comem" report "$out/stats.json" | grep -q "pages $engine" || failed "macros do not run under $engine"
done
[ $failures = $before ] && echo "ok: a PARMACS program has one memory on one host, and a protocol where it rehearses"

# SPLASH-4's macros, and a main that only creates: as many workers as slots.
before=$failures
for name in atomics creator; do
    expect "$name by itself" "$name: ok" "$out/$name" -p4
    e=0
    for engine in hlrc scope lrc multicast msi hardware; do
        e=$((e + 1)) b=0
        for backbone in udp shm; do
            b=$((1 - b)) k=0
            for shape in "1 1" "2 1" "4 1" "2 2"; do
                k=$((k + 1))
                is_wanted $e $k $b || continue
                read -r n t <<<"$shape"
                over "$n" "$t" $engine $backbone $name "$name: ok" "$out/$name" -p$((n * t))
            done
        done
    done
    over 2 2 hlrc shm "$name with fewer workers than slots" "$name: ok" "$out/$name" -p3
done
if command -v "${CXX:-c++}" >/dev/null; then
    m4 -P "$macros" tests/compat/parmacs/atomics.c.in >"$out/atomics.cc"
    if "$bin/comem-cxx" -std=c++17 -O2 -Wall -Wextra -Werror -Wno-unused-function "$out/atomics.cc" \
        -o "$out/atomics-cxx"; then
        for engine in hlrc msi; do over 2 1 $engine shm "atomics in C++" "atomics: ok" "$out/atomics-cxx" -p2; done
    else
        failed "atomics does not build as C++"
    fi
fi
[ $failures = $before ] &&
    echo "ok: SPLASH-4's atomics on 1 to 4 nodes; workers in all slots, with numbers and arguments"

# A program that declares malloc itself: not with <stdlib.h>, which it can do without, by m4 or by the compiler.
before=$failures
for how in "-P -DCOMEM_NO_STDLIB" "-P" "-DCOMEM_NO_STDLIB" ""; do
    # shellcheck disable=SC2086
    m4 $how "$macros" tests/compat/parmacs/own-malloc.c.in >"$out/own-malloc.c"
    options=(-std=c11 -D_POSIX_C_SOURCE=200809L -O2 -fno-builtin "$out/own-malloc.c" -o "$out/own-malloc")
    if [[ $how != *NO_STDLIB ]]; then
        "$bin/comem-cc" "${options[@]}" 2>/dev/null && failed "own-malloc builds with <stdlib.h>"
        options+=(-DCOMEM_NO_STDLIB)
    fi
    "$bin/comem-cc" "${options[@]}" || failed "own-malloc does not build without <stdlib.h>"
    over 2 1 hlrc shm "own-malloc" "own-malloc: ok" "$out/own-malloc"
done
[ $failures = $before ] && echo "ok: a program that declares malloc itself, without <stdlib.h>"

before=$failures
over 1 2 hlrc shm "more workers than -t on one node" "macros: ok" "$out/macros" -p4
over 1 3 hlrc shm "as many workers as -t on one node" "macros: ok" "$out/macros" -p3
expect "bare by itself" "bare: ok" "$out/bare"
over 2 1 hlrc shm "bare" "bare: ok" "$out/bare"
if echo 'int main(void) { return 0; }' | "${CC:-cc}" -flto -x c - -o "$out/probe" 2>/dev/null; then
    "$bin/comem-cc" -O2 -flto "$out/bare.c" "$out/bare-other.c" -o "$out/bare-whole" ||
        failed "bare does not build with link-time optimisation"
    over 2 1 hlrc shm "bare with link-time optimisation" "bare: ok" "$out/bare-whole"
fi
[ $failures = $before ] &&
    echo "ok: barriers of pairs on one node, macros without parentheses, arguments with side effects"

before=$failures e=0
expect "rounds by itself" "rounds: ok" "$out/rounds" -p3
for engine in hlrc scope lrc multicast msi hardware; do
    e=$((e + 1)) b=0
    for backbone in udp shm; do
        b=$((1 - b)) k=0
        # Nodes, threads of each, and workers; the last are fewer than nodes.
        for shape in "1 1 1" "2 1 2" "4 1 4" "2 2 4" "3 1 2"; do
            k=$((k + 1))
            is_wanted $e $k $b || continue
            read -r n t workers <<<"$shape"
            over "$n" "$t" $engine $backbone "rounds of $workers workers" "rounds: ok" "$out/rounds" "-p$workers"
        done
    done
done
[ $failures = $before ] &&
    echo "ok: workers see the globals as they stood at each CREATE, and every function and stream"

# rounds_in_order WORKERS: the output that order must have.
rounds_in_order() {
    local round worker
    for ((round = 0; round < 20; round++)); do
        echo "before round $round"
        for ((worker = 0; worker < $1; worker++)); do echo "worker in round $round"; done
        echo "after round $round"
    done
}
before=$failures
for backbone in udp shm; do
    printed=$(timeout 60 "$bin/comem" run --no-prefix -n 4 --backbone $backbone -- "$out/order" -p4) ||
        failed "order over $backbone: status $?"
    [ "$printed" = "$(rounds_in_order 4)" ] || failed "order over $backbone: lines out of order: $printed"
done
[ $failures = $before ] &&
    echo "ok: what workers print stands between what main prints before CREATE and after WAIT_FOR_END"

for name in sor is water ilink barnes rays; do
    before=$failures
    word=$(checksum "$("$out/$name-sequential" --preset tiny)")
    [ -n "$word" ] || failed "$name for one thread gives no checksum"
    expect "$name by itself" "$word ok" "$out/$name" --workers 3
    for engine in hlrc scope lrc multicast msi hardware; do
        over 4 1 $engine udp "$name" "$word ok" "$out/$name" --workers 4
        over 2 2 $engine shm "$name" "$word ok" "$out/$name" --workers 4
    done
    [ $failures = $before ] && echo "ok: $name in PARMACS form gives what the C program for one thread gives"
done
exit $status
