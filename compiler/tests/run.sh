#!/usr/bin/env bash
# The tests of the plug-in: programs beside an adversary, snapshots of its output, and refusals. Ends with a line of
# numbers.
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
"$clang" -O2 -w -c "$here/fake.c" -o "$work/fake.o" &&
    "$clang" -w -c "$here/fake_library.c" -o "$work/fake_library.o" &&
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
    compile "$source" "$base.plain" "$@" && "$base.plain" >"$base.expected" ||
        { fail "$name: the plain build"; return; }
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
    compile "$here/programs/mutant.c" "$base.plain" -O1 -fno-inline && "$base.plain" >"$base.expected" ||
        { fail "$name: the plain build"; return; }
    export COMEM_INLINE_WINDOWS=1
    for n in 0 1 2 3 4 5 hazards; do
        COMEM_INLINE_LEAVE_OUT=$n compile "$here/programs/mutant.c" "$base.checked" -O1 -fno-inline ||
            { fail "$name $n"; continue; }
        local wrong=no try
        for try in 1 2 3 4 5; do
            [ $wrong = yes ] && break
            FAKE_COUNTS=1 timeout 60 "$base.checked" >"$base.out" 2>"$base.err"
            cmp -s "$base.expected" "$base.out" || wrong=yes
        done
        if [ $n = 0 ] && [ $wrong = yes ]; then
            fail "$name: with all checks: diff $base.expected $base.out"
            continue
        fi
        if [ $n != 0 ] && [ $wrong = no ]; then
            fail "$name: check $n left out, and nothing went wrong"
            continue
        fi
        pass
    done
    unset COMEM_INLINE_WINDOWS
}
mutants

# What comem-cc gives, so that clang keeps the lines of instructions without -g.
lines=-Rpass=comem-inline

# refuses NAME LINE SENTENCE FLAGS…: the source on the standard input does not compile. The error has its file and
# sentence, and this line; `file`: no line.
refuses() {
    local name=refuses-$1 source=$work/refuses-$1.c sentence=$3 place
    place="^$source:$2:[0-9]+: error: comem --inline: "
    [ "$2" = file ] && place="^error: $source: comem --inline: "
    shift 3
    cat >"$source"
    wanted "$name" || return
    if "$clang" -w -O1 -fpass-plugin="$plugin" "$@" -c "$source" -o "$work/refused.o" 2>"$source.log"; then
        fail "$name: it compiles"
    elif ! grep -E "$place" "$source.log" | grep -qF "$sentence"; then
        fail "$name: the error is not the right one: $source.log"
    else
        pass
    fi
}

# accepts NAME FLAGS…: the source on the standard input compiles.
accepts() {
    local name=accepts-$1 source=$work/accepts-$1.c
    shift
    cat >"$source"
    wanted "$name" || return
    "$clang" -w -O1 -fpass-plugin="$plugin" "$@" -c "$source" -o "$work/accepted.o" 2>"$source.log" && pass ||
        fail "$name: $source.log"
}

for debug in $lines -g; do
    refuses "assembly$debug" 2 "inline assembly may touch shared memory" $debug <<<'void f(int *p) {
    __asm__ volatile("incl (%0)" : : "r"(p) : "memory"); }'
    refuses "assembly-memory-operand$debug" 2 "inline assembly may touch shared memory" $debug <<<'void f(int *p) {
    __asm__ volatile("incl %0" : "+m"(*p)); }'
    refuses "intrinsic$debug" 3 "has no check" -mavx $debug <<<'typedef double v4 __attribute__((vector_size(32)));
typedef long long m4 __attribute__((vector_size(32))); v4 f(v4 *p, m4 m) {
    return __builtin_ia32_maskloadpd256(p, m); }'
    refuses "libatomic$debug" 3 "of libatomic has no check" $debug <<<'struct t { long a[3]; };
void f(struct t *p, struct t *x) {
    __atomic_store(p, x, 5); }'
    refuses "wide-load$debug" 4 "a load of more than 64 bytes" $debug <<<'
typedef unsigned _BitInt(1024) wide;
unsigned f(wide *p) { unsigned other = 3;
    wide x = *p * 5; return (unsigned)(x >> 700) + other; }'
    refuses "wide-store$debug" 5 "a store of more than 64 bytes" $debug <<<'
typedef unsigned _BitInt(1024) wide;
void f(wide *p, unsigned by) {
    wide x = by; x = x << by;
    *p = x; }'
    refuses "inlined$debug" 2 "of libatomic has no check" -O2 $debug <<<'struct t { long a[3]; };
static inline void set(struct t *p, struct t *x) { __atomic_store(p, x, 5); }
void f(struct t *p, struct t *x) {
    set(p, x); }'
done
refuses assembly-without-lines 2 "inline assembly may touch shared memory" <<<'void f(int *p) {
    __asm__ volatile("incl (%0)" : : "r"(p) : "memory"); }'
refuses intrinsic-without-lines 3 "has no check" -mavx <<<'typedef double v4 __attribute__((vector_size(32)));
typedef long long m4 __attribute__((vector_size(32)));
v4 f(v4 *p, m4 m) {
    return __builtin_ia32_maskloadpd256(p, m); }'
refuses assembly-on-an-address 2 "inline assembly may touch shared memory" <<<'long f(long p) { long x;
    __asm__("movq 8(%1), %0" : "=r"(x) : "r"(p)); return x; }'
refuses assembly-string-instruction 2 "inline assembly may touch shared memory" $lines <<<'void f(long p) {
    __asm__ volatile("stosb" : "+D"(p)); }'
refuses assembly-outside file "assembly outside of functions" <<<'__asm__("f: movl $1, 0x1000\nret");'
refuses lto file "link-time optimisation" -flto <<<'void f(int *p) { *p = 1; }'
refuses thin-lto file "link-time optimisation" -flto=thin <<<'void f(int *p) { *p = 1; }'
for which in address thread memory hwaddress; do
    refuses "sanitizer-$which" 2 "sanitizer" -fsanitize=$which $lines <<<'int x;
void f(int *p) { *p = 1; }'
done
refuses another-machine file "x86-64 under Linux only" --target=i386-linux-gnu <<<'void f(int *p) { *p = 1; }'
accepts barriers <<<'long f(int *p, long x) {
    __asm__ volatile("" : "+r"(p) : : "memory"); __asm__ volatile("" : "+m"(*p)); __asm__ volatile("pause");
    __asm__ volatile("mfence" ::: "memory"); __asm__ volatile("rep; nop" ::: "memory");
    unsigned lo, hi; __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi)); __asm__("bswap %0" : "+r"(x)); return x + lo; }'
accepts versions <<<'__asm__(".symver old_f, f@VERSION_1");
void old_f(int *p) { *p = 1; }'

# An access that is taken for private says so to the runtime in builds of --inline-verify.
verified() {
    local base=$work/verified
    wanted verified || return
    # What memalign returns is taken for private. Here it is not.
    cat >"$base.c" <<<'#include "fake.h"
void *memalign(unsigned long a, unsigned long n); int main(void) { int *p = memalign(64, 64); p[3] = 5;
    __asm__ volatile("" : : "r"(p) : "memory"); return p[3]; }'
    COMEM_INLINE_VERIFY=1 "$clang" -w -g -O1 -I"$here" -fno-builtin -fpass-plugin="$plugin" "$base.c" "$work/fake.o" \
        "$work/fake_library.o" -pthread -lm -Wl,--defsym=memalign=shared_alloc -o "$base" 2>"$base.log" ||
        { fail "verified: $base.log"; return; }
    { "$base"; } 2>"$base.err"
    grep -q 'verified.c:2: main: an address taken for private is in lines memory' "$base.err" && pass ||
        fail "verified: $base.err"
    compile "$here/programs/torture.c" "$work/verified.plain" -O2 &&
        COMEM_INLINE_VERIFY=1 compile "$here/programs/torture.c" "$work/verified.checked" -O2 &&
        "$work/verified.checked" >"$base.out" 2>"$base.err" && cmp -s "$base.out" <("$work/verified.plain") && pass ||
        fail "verified: torture.c"
}
verified

# What an object says of itself.
section() {
    local base=$work/section
    wanted section || return
    echo 'int f(int *p) { int own = 3; volatile int *q = &own; p[0] = *q; return p[1]; }' >"$base.c"
    "$clang" -O1 -fpass-plugin="$plugin" -c "$base.c" -o "$base.o" 2>"$base.log"
    objcopy -O binary --only-section=.comem.inline --set-section-flags .comem.inline=alloc "$base.o" "$base.text"
    grep -qE '^abi=2 module=.*section.c loads=1/2 stores=1/2 ' "$base.text" && pass ||
        fail "section: $(cat "$base.text")"
}
section

# Lines for error messages cost nothing: the object is the same, and has no sections for debuggers.
no_trace_of_lines() {
    local name=no-trace-of-lines base=$work/no-trace-of-lines level
    wanted $name || return
    for level in -O0 -O3; do
        "$clang" -w $level -fpass-plugin="$plugin" -c "$here/programs/torture.c" -o "$base.plain.o" &&
            "$clang" -w $level $lines -fpass-plugin="$plugin" -c "$here/programs/torture.c" -o "$base.lines.o" &&
            cmp "$base.plain.o" "$base.lines.o" && ! objdump -h "$base.lines.o" | grep -q debug && pass ||
            fail "$name $level: $base.lines.o"
    done
}
no_trace_of_lines

# Snapshots of the code: FileCheck over small functions.
if command -v FileCheck-19 >/dev/null; then
    for source in "$here"/snapshots/*.c; do
        name=snapshot-$(basename "$source" .c)
        wanted "$name" || continue
        # shellcheck disable=SC2046
        "$clang" $(sed -n 's|^// FLAGS: ||p' "$source") -fpass-plugin="$plugin" -S "$source" \
            -o "$work/$name.s" 2>"$work/$name.log" &&
            FileCheck-19 "$source" <"$work/$name.s" 2>>"$work/$name.log" && pass || fail "$name: $work/$name.log"
    done
else
    echo "SKIP: snapshots: there is no FileCheck-19 (Debian: llvm-19-tools)" && skipped=$((skipped + 1))
fi

summary
