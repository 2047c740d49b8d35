#!/usr/bin/env bash
# The tests of the plug-in: programs beside an adversary, snapshots of its output, and refusals. Ends with one line of numbers.
#
#     compiler/tests/run.sh [WORD]     only the tests whose name has WORD in it
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${OUT:-$here/../../out/compiler}")
plugin=$out/libcomem_inline.so
work=$out/tests only=${1:-}
passed=0 failed=0 skipped=0
unset COMEM_INLINE_VERIFY COMEM_INLINE_COUNTS COMEM_INLINE_LEAVE_OUT COMEM_INLINE_STRIPS COMEM_INLINE_WINDOWS
clang=${COMEM_CLANG:-clang-19}

summary() { echo "$passed passed, $failed failed, $skipped skipped" && [ "$failed" = 0 ]; exit; }
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)) && echo "FAILED: $1"; }
wanted() { [[ "$1" == *"$only"* ]]; }

if ! command -v "$clang" >/dev/null; then
    echo "SKIP: compiler/tests: there is no $clang" && skipped=1 && summary
elif [ ! -f "$plugin" ]; then
    echo "SKIP: compiler/tests: there is no $plugin (make -C compiler)" && skipped=1 && summary
fi
mkdir -p "$work"
"$clang" -O2 -w -c "$here/fake.c" -o "$work/fake.o" && "$clang" -w -c "$here/fake_library.c" -o "$work/fake_library.o" &&
    "$clang" -O2 -w -c "$here/plain.c" -o "$work/plain.o" || { fail "the stand-in for libcomem" && summary; }

# compile SOURCE OUTPUT FLAGS…: plain; checked if the output's name says so.
compile() {
    local source=$1 to=$2 driver=$clang objects=$work/plain.o
    shift 2
    [[ $source == *.cpp ]] && driver="$clang --driver-mode=g++"
    local with=()
    [[ $to == *.checked ]] && with=(-fpass-plugin="$plugin") objects="$work/fake.o $work/fake_library.o"
    # shellcheck disable=SC2086
    $driver -w "${with[@]}" "$@" "$source" $objects -pthread -lm -o "$to" 2>"$to.log"
}

# same NAME SOURCE FLAGS…: the checked build beside the adversary prints what the plain build prints.
same() {
    local name=$1 source=$2 base=$work/$1 unit
    shift 2
    wanted "$name" || return
    compile "$source" "$base.plain" "$@" && "$base.plain" >"$base.expected" || { fail "$name: the plain build"; return; }
    compile "$source" "$base.checked" "$@" || { fail "$name: the checked build: $base.checked.log"; return; }
    for unit in 64 512; do
        if ! FAKE_UNIT=$unit timeout 60 "$base.checked" >"$base.out" 2>"$base.err"; then
            fail "$name, units of $unit: status not 0: $base.err"
            return
        fi
        cmp -s "$base.expected" "$base.out" || { fail "$name, units of $unit: diff $base.expected $base.out"; return; }
    done
    pass
}

for source in torture.c threads.c exceptions.cpp; do
    for flags in -O0 -O1 -O2 -O3 "-O3 -march=x86-64-v3" "-O3 -ffast-math"; do
        # shellcheck disable=SC2086
        same "${source%.*}${flags// /}" "$here/programs/$source" $flags
    done
done

# A build that leaves out one check must go wrong: the adversary sees to it.
mutants() {
    local name=mutants base=$work/mutant n
    wanted $name || return
    compile "$here/programs/mutant.c" "$base.plain" -O1 -fno-inline && "$base.plain" >"$base.expected" || { fail "$name: the plain build"; return; }
    export COMEM_INLINE_WINDOWS=1
    for n in 0 1 2 3 4 5 hazards; do
        COMEM_INLINE_LEAVE_OUT=$n compile "$here/programs/mutant.c" "$base.checked" -O1 -fno-inline || { fail "$name $n"; continue; }
        local wrong=no try
        for try in 1 2 3 4 5; do
            [ $wrong = yes ] && break
            FAKE_COUNTS=1 timeout 60 "$base.checked" >"$base.out" 2>"$base.err"
            cmp -s "$base.expected" "$base.out" || wrong=yes
        done
        if [ $n = 0 ] && [ $wrong = yes ]; then fail "$name: with all checks: diff $base.expected $base.out"; continue; fi
        if [ $n != 0 ] && [ $wrong = no ]; then fail "$name: check $n left out, and nothing went wrong"; continue; fi
        pass
    done
    unset COMEM_INLINE_WINDOWS
}
mutants

summary
