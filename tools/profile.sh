#!/usr/bin/env bash
# What the library's code does most, as it was counted: the compiler lays out together what runs often, and apart what
# hardly ever does. Between two sleeps a node's code finds cold caches, so programs on more nodes than cores gain 5 to
# 10 % (docs/decisions/0044).
#
#   tools/profile.sh flags   the compiler's options that use profile/comem.profdata, or nothing: counts are by symbols, whose names another release of the
#                            compiler makes otherwise
#   tools/profile.sh check   says so where the library as it was built last has hardly a function that was counted: with another set of packages, or another
#                            version of one, all symbols have other names, and nothing fails, but the gain is gone
#   tools/profile.sh wants   fails where the compiler lacks what counting takes: before anything is built for it
#   tools/profile.sh make    counts anew, with this compiler, and writes profile/: builds the library with counters, and runs programs with it (some minutes).
#                            Wants rustup's component llvm-tools, and the programs and the command as `make build` and `make -C tests/random` make them.
set -euo pipefail
cd "$(dirname "$0")/.."

counts=profile/comem.profdata
made_by=profile/rustc

compiler() { rustc -vV 2>/dev/null | grep -E '^(release|commit-hash|host):'; }

flags() {
    [ -f "$counts" ] && [ "$(compiler)" = "$(cat "$made_by" 2>/dev/null)" ] || return 0
    # Options are separated by blanks.
    [[ $PWD != *[[:space:]]* ]] || return 0
    # What has changed since it was counted is left alone, without a word.
    echo "-Cprofile-use=$PWD/$counts -Cllvm-args=-no-pgo-warn-mismatch"
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
programs=out/workloads

check() {
    local library=$target/release/libcomem.so symbol='_ZN[A-Za-z0-9_.$]+17h[0-9a-f]{16}E' here counted
    [ -n "$(flags)" ] && command -v nm >/dev/null && [ -f "$library" ] || return 0
    here=$(nm "$library" | awk '$2 ~ /^[tT]$/ && $3 ~ /comem/ { print $3 }' | grep -oE "^$symbol" | sort -u) || return 0
    counted=$(grep -aoE "$symbol" "$counts" | sort -u) || return 0
    local all known
    all=$(wc -l <<<"$here")
    known=$(comm -12 <(echo "$here") <(echo "$counted") | wc -l)
    [ $((known * 4)) -ge "$all" ] ||
        echo "comem: $counts counts $known of the library's $all functions: it was made of other code, and speeds nothing up; make profile" >&2
}

# count NAME... -- OPTIONS...: a program on shared pages with these arguments, over networks and shared memory, on few
# nodes and many.
count() {
    local program=() nodes backbone
    while [ "$1" != -- ]; do
        program+=("$1")
        shift
    done
    shift
    for nodes in 2 4 8; do
        for backbone in udp shm; do
            COMEM_ENGINE=hlrc "$target/release/comem" run --timeout 100s -n "$nodes" --backbone "$backbone" "$@" -- "$programs/${program[0]}" "${program[@]:1}" >>"$log" 2>&1 || {
                echo "comem: failed with the counting library: ${program[*]} on $nodes nodes, $backbone; see $log" >&2
                exit 1
            }
        done
    done
}

merger() { echo "$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-profdata"; }

wants() {
    [ -x "$(merger)" ] || {
        echo "comem: there is no llvm-profdata of this compiler; rustup component add llvm-tools" >&2
        exit 1
    }
}

make_counts() {
    local merge
    wants
    merge=$(merger)
    [ -x "$programs/random" ] || {
        echo "comem: there is no $programs/random; make build, and make -C tests/random COMEM_LIB=$target/release OUT=$PWD/$programs" >&2
        exit 1
    }
    local raw=out/profile
    log=$PWD/$raw/log
    rm -rf "$raw"
    mkdir -p "$raw/kernels" "$raw/others" profile
    RUSTFLAGS="-Cprofile-generate=$PWD/$raw" CARGO_TARGET_DIR="$target/counting" cargo build --release -p comem-cli -p comem-c -p comem-wrap -p comem-bench
    export LLVM_PROFILE_FILE="$PWD/$raw/kernels/%p.profraw" LD_LIBRARY_PATH="$target/counting/release"
    local engine seed
    # Small problems: what the library does for a message or a fault must not look rare beside what it does for each
    # byte.
    for engine in hlrc scope; do
        count sor --preset nautilus -- --engine $engine
        count lu --preset jiajia -- --engine $engine
        count is --preset jiajia -- --engine $engine
        count fft --side 256 -- --engine $engine
        count radix --keys 200000 -- --engine $engine
        count water --preset tiny -- --engine $engine
    done
    LLVM_PROFILE_FILE="$PWD/$raw/others/%p.profraw"
    count sor --preset tiny -- --engine msi
    count is --preset tiny -- --engine msi
    count sea --iterations 20 -- --engine msi
    count genetic --generations 10 -- --engine owner
    count lock-test --increments 1000 --
    count barrier-test --barriers 1000 --
    count message-test --count 2000 --
    for seed in 1 2 3 4 5 6; do
        count random --seed $seed --phases 30 -- --threads $((seed % 2 + 1))
        count random --seed $seed --phases 30 --mixed -- --engine scope
    done
    unset LLVM_PROFILE_FILE LD_LIBRARY_PATH
    # Of a node that others ended in the middle of writing there may be half a file.
    "$merge" merge --sparse --failure-mode=all -o "$raw/kernels.profdata" "$raw"/kernels/* 2>>"$log"
    "$merge" merge --sparse --failure-mode=all -o "$raw/others.profdata" "$raw"/others/* 2>>"$log"
    # Random programs do rare things often.
    "$merge" merge --sparse -o "$counts" --weighted-input=10,"$raw/kernels.profdata" "$raw/others.profdata"
    compiler >"$made_by"
    rm -rf "$raw"/*.profraw "$raw"/kernels "$raw"/others
    ls -l "$counts"
}

case ${1:-} in
flags) flags ;;
check) check ;;
wants) wants ;;
make) make_counts ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
