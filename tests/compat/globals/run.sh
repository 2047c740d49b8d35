#!/usr/bin/env bash
# Global variables as shared memory, in a C program whose variables the linker script gathers: on one to four nodes,
# with one and two threads each, under hlrc, scope, msi and hardware, with every detector, over udp (also a bad network)
# and shm. Of these, `make test` takes a part in which each engine with each detector meets each number of nodes, and
# `make soak` takes all. Called by tests/compat.sh; alone: `COMEM_BIN=target/debug tests/compat/globals/run.sh [NAME]`.
set -uo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=tests/compat/shapes.sh
. tests/compat/shapes.sh

bin=$(cd "${COMEM_BIN:-target/debug}" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
faults=drop=5%,dup=5%,reorder=5%,seed=7
only=${1:-}
status=0

verdict() {
    local result=$1
    shift
    echo "$result: globals: $*"
    [ "$result" = FAILED ] && status=1
}

build() {
    local source
    for source in variables other; do
        "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -O2 -fPIC -Iinclude -Iinclude/compat \
            -c "tests/compat/globals/$source.c" -o "$out/$source.o" || return
    done
    "${CC:-cc}" -no-pie -pthread -T include/compat/comem_globals.ld "$out/variables.o" "$out/other.o" \
        "$bin/libcomem.so" "-Wl,-rpath,$bin" -o "$out/variables" || return
    "$bin/comem-cc" -std=c11 -Wall -Wextra -Werror -O2 tests/compat/globals/workers.c -o "$out/workers"
}

# The same program, of which one file comes from an archive of its own, with a section for each variable; and with Comem
# from an archive.
archived() {
    local nodes what="variables in a program's own archives are globals" fine=1 static others
    "$bin/comem-cc" -std=c11 -O2 -fdata-sections -c tests/compat/globals/other.c -o "$out/other-apart.o" &&
        "$bin/comem-cc" -std=c11 -O2 -fdata-sections -c tests/compat/globals/variables.c -o "$out/variables-apart.o" &&
        (cd "$out" && rm -f libown.a && ar rcs libown.a other-apart.o) &&
        "$bin/comem-cc" "$out/variables-apart.o" -L"$out" -lown -o "$out/archived" || fine=0
    for nodes in 1 2 3; do program=archived job "$what" check -n "$nodes" || fine=0; done
    [ "$fine" = 1 ] && verdict ok "$what"
    what="variables of Comem and the C library, linked statically, are no globals"
    static=("$out/variables-apart.o" "$out/libown.a" "$bin/libcomem.a" -pthread -ldl -lm)
    if [ ! -e "$bin/libcomem.a" ] ||
        ! "${CC:-cc}" -static -no-pie -T include/compat/comem_globals.ld "${static[@]}" \
        -o "$out/static" 2>/dev/null; then
        echo "SKIP: globals: $what: this system has no libraries for that"
        return
    fi
    # What stands there is of the program's two files, but for two marks of the linker's.
    nm "$out/variables-apart.o" "$out/libown.a" | awk 'NF == 3 { print $3 }' | sort -u >"$out/own-names"
    others=$(nm -n "$out/static" | sed -n '/ __comem_globals_start$/,/ __comem_globals_end$/p' |
        awk '$3 !~ /^(__comem_globals_.*|__bss_start|_edata)$/ { print $3 }' |
        sort -u | comm -23 - "$out/own-names" | head -n 5)
    if [ -z "$others" ]; then
        verdict ok "$what"
    else
        verdict FAILED "$what: $others"
    fi
}

# job WHAT NAME COMEM-FLAGS…: passes when the job ends well and its only line is `ok`. ($program runs, with NAME as its
# argument.)
program=variables
job() {
    local what=$1 name=$2 printed ended=0
    shift 2
    printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix --stats "$out/stats.json" "$@" "$out/$program" \
        "$name" \
        2>&1 </dev/null) || ended=$?
    if [ "$ended" = 0 ] && [ "$printed" = ok ]; then
        return 0
    fi
    echo "$printed" | tail -n 10
    verdict FAILED "$what: status $ended (comem run $* … $program $name)"
    return 1
}

# everywhere NAME WHAT: one line for all the shapes, or one for each that fails.
everywhere() {
    local name=$1 what=$2 engine detector nodes threads fine=1 k=0 backbone b
    for engine in hlrc scope msi hardware; do
        for detector in "${detectors[@]}"; do
            k=$((k + 1))
            # Nothing is noticed there.
            [ "$engine" = hardware ] && [ "$detector" != "${detectors[0]}" ] && continue
            for nodes in 1 2 3 4; do
                threads=$((1 + (nodes + ${#engine}) % 2))
                local shape=(-n "$nodes" -t "$threads" --engine "$engine" --detector "$detector")
                b=0
                for backbone in udp shm; do
                    b=$((1 - b))
                    is_wanted $k $nodes $b || continue
                    job "$what" "$name" "${shape[@]}" --backbone $backbone || fine=0
                done
            done
            for nodes in 2 3 4; do
                every || [ "$nodes" = $((2 + k % 3)) ] || continue
                local shape=(-n "$nodes" -t "$((1 + nodes % 2))" --engine "$engine" --detector "$detector")
                job "$what" "$name" "${shape[@]}" --faults "$faults" || fine=0
            done
        done
    done
    [ "$fine" = 1 ] && verdict ok "$what, under every engine, detector and network"
}

# number NAME: the job's sum of a statistic.
number() { grep -o "\"$1\": *[0-9]*" "$out/stats.json" | grep -o '[0-9]*$' | sort -n | tail -n 1; }

# Hundreds of megabytes of which a few pages are used: neither memory (the program looks) nor messages.
untouched() {
    local engine fine=1 bytes
    for engine in hlrc scope msi hardware; do
        job "memory that nobody touches" untouched -n 3 --engine "$engine" --backbone udp || { fine=0; continue; }
        bytes=$(number bytes_sent)
        if [ -z "$bytes" ] || [ "$bytes" -gt $((2 << 20)) ]; then
            verdict FAILED "memory that nobody touches: ${bytes:-no} bytes were sent under $engine"
            fine=0
        fi
    done
    [ "$fine" = 1 ] && verdict ok "300 MB of variables that nobody touches cost neither memory nor messages"
}

# The report says which variables nodes wrote on one page.
named() {
    local what="the report of false sharing names variables"
    job "$what" check -n 3 --engine hlrc || return
    if "$bin/comem" report "$out/stats.json" | grep -q "globals .*bytes_of"; then
        verdict ok "$what"
    else
        "$bin/comem" report "$out/stats.json" | tail -n 5
        verdict FAILED "$what"
    fi
}

# Workers of the PARMACS process model, with shared variables and with copies.
workers() {
    local globals program=workers
    for globals in share copy; do
        COMEM_GLOBALS=$globals everywhere "$globals" "workers use variables under --globals $globals"
    done
}

# C++: constructors and destructors, virtual functions, templates, a vector with its elements in shared memory.
objects() {
    local program=objects engine nodes fine=1 what="global objects of C++ under --globals share"
    if ! command -v "${COMEM_CXX:-c++}" >/dev/null; then
        echo "SKIP: globals: $what: there is no C++ compiler"
        return
    fi
    if ! "$bin/comem-cxx" -std=c++17 -Wall -Wextra -Werror -O2 tests/compat/globals/objects.cpp -o "$out/objects"; then
        verdict FAILED "$what: the program cannot be built"
        return
    fi
    for engine in hlrc scope msi hardware; do
        for nodes in 1 2 3 4; do
            job "$what" "" -n "$nodes" -t $((1 + nodes % 2)) --globals share --engine "$engine" || fine=0
        done
        job "$what" "" -n 2 -t 2 --globals share --engine "$engine" --backbone shm || fine=0
    done
    [ "$fine" = 1 ] && verdict ok "$what, on 1 to 4 nodes, under every engine"
    # Link-time optimisation makes one function of several constructors; a static program has no dynamic section to look
    # for them.
    local how
    for how in "-flto" "-static"; do
        what="global objects of C++ with $how"
        if ! echo 'int main() { throw 1; }' | "${COMEM_CXX:-c++}" $how -x c++ - -o "$out/probe" 2>/dev/null; then
            echo "SKIP: globals: $what: this system cannot link so"
            continue
        fi
        fine=1
        if ! "$bin/comem-cxx" -std=c++17 -O2 $how tests/compat/globals/objects.cpp -o "$out/objects" -ldl \
            -lm 2>"$out/said"; then
            cat "$out/said"
            verdict FAILED "$what: the program cannot be built"
            continue
        fi
        # A static program loads no other library, and would say so.
        for nodes in 1 3; do job "$what" "" -n $nodes --no-wrap --globals share || fine=0; done
        [ "$fine" = 1 ] && verdict ok "$what"
    done
}

# What the larger code models keep apart from other variables; beyond 2 GiB the linker refuses.
large() {
    local said program=large model what="large arrays of -mcmodel=medium and large are globals" fine=1 \
        link=(tests/compat/globals/large.c -o "$out/large")
    if [ "$(uname -m)" != x86_64 ]; then
        echo "SKIP: globals: $what: they are of x86-64"
        return
    fi
    for model in medium large; do
        "$bin/comem-cc" -std=c11 -Wall -Wextra -Werror -O2 -mcmodel=$model "${link[@]}" || fine=0
        job "$what" "" -n 2 || fine=0
        job "$what" "" -n 2 --globals share || fine=0
    done
    [ "$fine" = 1 ] && verdict ok "$what"
    said=$("$bin/comem-cc" -mcmodel=medium -DBYTES=3000000000 "${link[@]}" 2>&1) && fine=0
    if [ "$fine" = 1 ] && [[ $said == *"2 GiB or more; let the large arrays be"* ]]; then
        verdict ok "2 GiB of variables are refused by the linker"
    else
        verdict FAILED "2 GiB of variables are not refused by the linker"
    fi
}

# A program without variables lacks nothing.
none() {
    local program=none what="a program without variables has workers" globals fine=1
    "$bin/comem-cc" -std=c11 -Wall -Wextra -Werror -O2 tests/compat/globals/none.c -o "$out/none" || fine=0
    for globals in copy share; do job "$what" "" -n 2 --globals $globals --check-pointers || fine=0; done
    [ "$fine" = 1 ] && verdict ok "$what"
}

# fails WHAT STATUS SENTENCE PROGRAM: passes when the job ends with this status and says this.
fails() {
    local what=$1 expected=$2 sentence=$3 printed ended=0
    printed=$(timeout 60 "$bin/comem" run -n 2 --globals share "$out/$4" share 2>&1 </dev/null) || ended=$?
    if [ "$ended" = "$expected" ] && [[ $printed == *"$sentence"* ]]; then
        verdict ok "$what"
    else
        echo "$printed" | tail -n 5
        verdict FAILED "$what: status $ended"
    fi
}

# Programs that were linked without the script, or so that their addresses differ.
refused() {
    local link=("$bin/libcomem.so" "-Wl,-rpath,$bin" -pthread)
    "${CC:-cc}" -fPIC -no-pie -Iinclude/compat tests/compat/globals/workers.c "${link[@]}" -o "$out/plain"
    fails "a program without the linker's script is refused under --globals share" 3 "link it with comem-cc" plain
    local said
    said=$("$bin/comem" run -n 3 --globals copy "$out/plain" 2>&1 </dev/null)
    if [ "$(grep -c "workers on other nodes do not find in them what main has set; link it with comem-cc" <<<"$said")" \
        = 1 ]; then
        verdict ok "a program without the linker's script is told once under --globals copy"
    else
        echo "$said" | tail -n 5
        verdict FAILED "a program without the linker's script is told once under --globals copy"
    fi
    if [ "$(cat /proc/sys/kernel/randomize_va_space)" = 0 ]; then
        echo "SKIP: globals: variables at different addresses: this system puts programs at fixed addresses"
        return
    fi
    "${CC:-cc}" -pie -T include/compat/comem_globals.ld "$out/variables.o" "$out/other.o" "${link[@]}" -o "$out/moves"
    fails "a program with other addresses on each node is refused" 2 "lie elsewhere on another node" moves
}

wants() { [ -z "$only" ] || [ "$only" = "$1" ]; }

if ! build; then
    verdict FAILED "the test program cannot be built"
    exit 1
fi
# What works on this host: a detector that is asked for and does not ends its node.
detectors=()
for detector in uffd-async uffd mprotect; do
    if timeout --kill-after=10 120 "$bin/comem" run -n 2 --globals share --detector "$detector" -- \
        "$out/variables" check >/dev/null 2>&1; then
        detectors+=("$detector")
    else
        echo "SKIP: globals: the detector $detector: comem doctor says why it does not work here"
    fi
done
wants check && everywhere check "variables on the same pages, written by all nodes, have their right values"
wants input && everywhere input "system calls and scanf take variables that another node wrote"
wants after && everywhere after "node 0 has all variables after the job"
wants fork && everywhere fork "children see the variables and cannot change them"
wants untouched && untouched
wants named && named
wants workers && workers
wants objects && objects
wants large && large
wants none && none
wants archived && archived
wants refused && refused
exit "$status"
