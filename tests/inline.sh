#!/usr/bin/env bash
# Programs built with `comem-cc --inline`, under the engine `direct` and under `msi` by lines, over shm and udp, on 1, 2
# and 4 nodes: the workloads on shared pages, which check their own results, with the checksum of the plain build, and
# tests/inline/races.c, which needs memory that is coherent without synchronisation. Skips everything, with a line,
# where there is no LLVM 19.
set -uo pipefail
cd "$(dirname "$0")/.."

bin=$(realpath "${COMEM_BIN:-target/debug}")
programs=${COMEM_WORKLOADS:-out/test}
work=$programs/inline
status=0

verdict() {
    local result=$1
    shift
    echo "$result: $*"
    [ "$result" = FAILED ] && status=1
}

for needed in "${COMEM_CLANG:-clang-19}" llvm-config-19; do
    if ! command -v "$needed" >/dev/null; then
        echo "SKIP: programs with checks in their code: there is no $needed; sudo apt-get install clang-19 llvm-19-dev"
        exit
    fi
done

mkdir -p "$work"
if ! make --no-print-directory --silent -C compiler >"$work/plug-in.log" 2>&1; then
    tail -n 20 "$work/plug-in.log"
    verdict FAILED "the plug-in does not build"
    exit 1
fi
# build NAME SOURCE…: with the flags of the plain build, whose results are the same to the bit.
build() {
    local name=$1
    shift
    "$bin/comem-cc" --inline -std=c11 -O2 -g -ffp-contract=off -Iworkloads "$@" -o "$work/$name" -lm \
        2>"$work/$name.log" && return
    tail -n 20 "$work/$name.log"
    verdict FAILED "$name does not build with comem-cc --inline"
    return 1
}

checksum() { grep -o 'checksum=[0-9a-f]*' <<<"$1" | head -n 1; }

# job WHAT EXPECTED COMEM-FLAGS… -- PROGRAM ARGUMENTS…: passes when the job ends well, its last line ends with `ok`,
# and its checksum is the one expected (`any` where there is none).
job() {
    local what=$1 expected=$2 printed ended=0
    shift 2
    printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix "$@" 2>&1) || ended=$?
    if [ "$ended" != 0 ] || [[ $printed != *" ok" ]] ||
        { [ "$expected" != any ] && [ "$(checksum "$printed")" != "$expected" ]; }; then
        echo "$printed" | tail -n 15
        verdict FAILED "$what: status $ended, expected $expected (comem run $*)"
    else
        verdict ok "$what"
    fi
}

# everywhere NAME EXPECTED PROGRAM ARGUMENTS…: on 1, 2 and 4 nodes under both engines, over both backbones, with small
# and large units in turn.
everywhere() {
    local name=$1 expected=$2 backbone=shm unit=64 nodes
    shift 2
    job "$name under direct on one node" "$expected" -n 1 --engine direct -- "$@"
    for nodes in 2 4; do
        for backbone in shm udp; do
            job "$name under direct over $backbone, units of $unit bytes, nodes: $nodes" "$expected" \
                -n "$nodes" --engine direct --unit-bytes "$unit" --backbone "$backbone" -- "$@"
            unit=$((unit == 64 ? 128 : unit == 128 ? 2048 : 64))
            job "$name under msi by lines over $backbone, units of $unit bytes, nodes: $nodes" "$expected" \
                -n "$nodes" --detector inline --engine msi --unit-bytes "$unit" --backbone "$backbone" -- "$@"
        done
    done
    job "$name under direct, two nodes of two threads" "$expected" -n 2 -t 2 --engine direct -- "$@"
    # The same program on pages: its checks see no invalid line there.
    job "$name under msi on pages, nodes: 2" "$expected" -n 2 --engine msi -- "$@"
}

for name in sor lu fft radix is ep water; do
    if ! expected=$(checksum "$("$programs/$name-sequential" --preset tiny)") || [ -z "$expected" ]; then
        verdict FAILED "$name-sequential: no checksum"
        continue
    fi
    build "$name" "workloads/$name.c" && everywhere "$name" "$expected" "$work/$name" --preset tiny
done
build sync-test workloads/sync-test.c && everywhere sync-test any "$work/sync-test" --rounds 5 --publish
build races tests/inline/races.c && everywhere races any "$work/races" --count 2000

# Shared objects of programs with checks, whose accesses are calls: in C++, and examples as they are in the guide.
examples() {
    local name source compiler expected printed flags
    for source in crates/capi/tests/programs/objects.cpp examples/histogram.c examples/jacobi.c examples/sum.cpp; do
        name=$(basename "${source%.*}")
        [[ $source == *.cpp ]] && compiler=comem-cxx || compiler=comem-cc
        if ! "$bin/$compiler" --inline -O2 "$source" -o "$work/$name" -lm 2>"$work/$name.log"; then
            tail -n 20 "$work/$name.log"
            verdict FAILED "$source does not build with $compiler --inline"
            continue
        fi
        expected=$("$work/$name")
        for flags in "-n 2 --engine direct" "-n 4 --engine direct --backbone udp" \
            "-n 2 --engine msi --detector inline" "-n 2 --engine msi"; do
            # shellcheck disable=SC2086 # the flags are words
            printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix $flags "$work/$name" 2>&1)
            if [ -n "$expected" ] && [ "$printed" = "$expected" ]; then
                verdict ok "$source with checks prints what it prints alone, $flags"
            else
                echo "$printed" | tail -n 15
                verdict FAILED "$source with checks prints what it prints alone ($expected), $flags"
            fi
        done
    done
}
examples
exit "$status"
