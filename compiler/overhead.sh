#!/usr/bin/env bash
# Measures what the checks cost: the twelve SPLASH-3 programs of the paper's Table 1, one thread, clang 19's plain build
# against the checked build with the tests' stand-in for libcomem (a table of zeros, nobody who revokes).
#
#     compiler/overhead.sh PATH [--only "fft radix"] [--repeat N] [--work DIR] [--keep]
#
# PATH is a checkout of https://github.com/SakalisC/Splash-3. Prints the processor's seconds in the parallel phase
# (medians of N runs in turn), their ratio, and the static counts of checked loads and stores. Outputs are compared.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
plugin=${COMEM_INLINE_PLUGIN:-$here/../out/compiler/libcomem_inline.so}
suite=${1:-}
[ -d "$suite/codes" ] || { echo "usage: $0 PATH [options]; PATH is a checkout of SPLASH-3" >&2 && exit 2; }
suite=$(realpath "$suite")
shift
only="fft lu-contiguous lu-non-contiguous radix barnes fmm ocean-contiguous ocean-non-contiguous radiosity raytrace
water-nsquared water-spatial"
repeat=5 work=$here/../out/overhead keep=no
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=yes ;;
    *) printf -v "${1#--}" %s "$2" && shift ;;
    esac
    shift
done
mkdir -p "$work"
work=$(realpath "$work")
plugin=$(realpath "$plugin")
sed 's/CLOCK_MONOTONIC/CLOCK_PROCESS_CPUTIME_ID/' "$here/../bench/splash3/region.m4" >"$work/region.m4"
clang-19 -O2 -c "$here/tests/fake.c" -o "$work/fake.o" || exit 1
clang-19 -c "$here/tests/fake_library.c" -o "$work/fake_library.o" || exit 1

# about PROGRAM: sets folder, binary, arguments, input and the settings of the macro processor.
about() {
    arguments="" input="" extra=$work/region.m4
    case $1 in
    ocean-*) folder=apps/ocean/${1#ocean-}_partitions binary=OCEAN ;;
    lu-*) folder=kernels/lu/${1#lu-}_blocks binary=LU ;;
    fft | radix) folder=kernels/$1 binary=${1^^} ;;
    *) folder=apps/$1 binary=${1^^} ;;
    esac
    folder=codes/${folder//non-/non_}
    case $1 in
    barnes)
        extra="$extra $here/../bench/splash3/barnes.m4"
        input=$'\n16384\n123\n\n0.025\n0.05\n1.0\n2.0\n5.0\n0.075\n0.25\n1'
        ;;
    fmm) arguments=-o input=$'two cluster\nplummer\n16384\n1e-6\n1\n5\n.025\n0.0\ncost zones' ;;
    ocean-contiguous) arguments="-p1 -n514 -o" ;;
    ocean-non-contiguous) arguments="-p1 -n258 -o" ;;
    radiosity) arguments="-p 1 -batch -room -ae 5000 -en 0.05 -bf 0.1" ;;
    raytrace) arguments="-p1 -m64 inputs/teapot.env" ;;
    water-*) input=$'1.5e-16 512 3 6\n-1 3000 3 0\n1 6.212752' ;;
    fft) arguments="-p1 -m20 -t" ;;
    lu-*) arguments="-p1 -n1024 -b16 -t" ;;
    radix) arguments="-p1 -n4194304 -t" ;;
    esac
}

# build KIND PROGRAM CC LDFLAGS
build() {
    about "$2"
    [ $keep = yes ] && [ -x "$work/$1/$folder/$binary" ] && return
    [ -d "$work/$1" ] || cp -r "$suite" "$work/$1"
    (cd "$work/$1/$folder" && rm -f ./*.o "$binary" && for f in *.in; do [ "$f" = random.in ] || rm -f "${f%.in}"; done)
    COMEM_INLINE_COUNTS=module make -C "$work/$1/$folder" -B CC="$3 -w" LDFLAGS="$4" \
        MACROS="$work/$1/codes/pthread_macros/pthread.m4.stougie $extra" >"$work/$1-$2.log" 2>&1 ||
        { grep -E 'error|Error' "$work/$1-$2.log" | head >&2 &&
            echo "$2 does not build: $work/$1-$2.log" >&2 && exit 1; }
}

# once KIND PROGRAM: runs it; prints the seconds of its parallel phase.
once() {
    about "$2"
    cd "$work/$1/$folder" || return
    [ "$2" != raytrace ] || ln -sf inputs/*.geo .
    # shellcheck disable=SC2086
    FAKE_ADVERSARY=0 timeout 300 "./$binary" $arguments >"$work/$1-$2.out" 2>"$work/$1-$2.err" <<<"$input" ||
        echo "$2 ($1) fails: status $?" >&2
    awk '/^region begin/ { begun = $3 } /^region end/ { printf "%.4f\n", $3 - begun; exit }' "$work/$1-$2.err"
}

results() {
    grep -viE 'time|step [0-9]|start|finish|COMPUTE|fraction|PROCESS STATISTICS|^ +([0-9]+|avg|min|max) +-?[0-9]+ ' \
        "$1" |
        grep -v '^ *$'
}
median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
# The sum of what a module's counts say, as `checked/all`.
counts() { grep -o "$1=[0-9]*/[0-9]*" "$2" | awk -F'[=/]' '{ a += $2; b += $3 } END { printf "%d/%d", a, b }'; }

for program in $only; do
    build plain "$program" clang-19 -lm
    build checked "$program" "clang-19 -fpass-plugin=$plugin" "$work/fake.o $work/fake_library.o -lm"
done
echo "| program | plain s | checked s | ratio | result | loads checked | stores checked |"
echo "|---|---|---|---|---|---|---|"
: >"$work/ratios"
for program in $only; do
    plain=() checked=()
    for ((i = 0; i < repeat; i++)); do
        plain+=("$(once plain "$program")") checked+=("$(once checked "$program")")
    done
    a=$(printf '%s\n' "${plain[@]}" | median) b=$(printf '%s\n' "${checked[@]}" | median)
    same=ok
    cmp -s <(results "$work/plain-$program.out") <(results "$work/checked-$program.out") || same=differs
    awk -v p="$program" -v a="$a" -v b="$b" -v s="$same" -v l="$(counts loads "$work/checked-$program.log")" \
        -v t="$(counts stores "$work/checked-$program.log")" -v out="$work/ratios" \
        'BEGIN { printf "| %s | %.3f | %.3f | %.2f | %s | %s | %s |\n", p, a, b, (a > 0 ? b / a : 0), s, l, t
            if (a > 0) print b / a >>out }'
done
awk '{ s += log($1) } END { if (NR) printf "geometric mean of %d programs: %.3f\n", NR, exp(s / NR) }' "$work/ratios"
