#!/usr/bin/env bash
# Runs the programs of a SPLASH-3 or SPLASH-4 checkout (14, 15) on Comem, compares each with the suite's own threaded
# build, and prints a table.
#
#     bench/splash3.sh PATH [--size small|paper] [--nodes "1 2 4"] [--threads T] [--engine E] [--backbone B]
#                      [--only "fft radix"] [--repeat N] [--globals copy|share] [--keep] [--work DIR] [--define MACRO]
#                      [-- FLAGS OF COMEM RUN]
#
# PATH is a checkout of https://github.com/SakalisC/Splash-3 or https://github.com/OdnetninI/Splash-4. Its own makefiles
# build it twice, below DIR: with its own macros, and with MACROS and CC set to Comem's. Times are those of the parallel
# phase (between the suite's own marks), medians of N runs; a program that ends with the right results is `ok`. --keep
# builds nothing anew. --define builds both with -D MACRO (WITH_NO_OPTIONAL_LOCKS leaves out the locks that SPLASH-2 had
# not).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(realpath "${COMEM_BIN:-$here/../target/release}")

die() {
    echo "comem: $*" >&2
    exit 2
}

suite=${1:-}
[ -d "$suite/codes" ] || [ -d "$suite/Splash-4" ] ||
    die "usage: bench/splash3.sh PATH [options]; PATH is a checkout of SPLASH-3, with codes/ in it, or of SPLASH-4," \
        "with Splash-4/ in it"
suite=$(realpath "$suite")
shift
title=SPLASH-3 work=$here/../out/splash3 own_macros=$suite/codes/pthread_macros/pthread.m4.stougie
[ -d "$suite/Splash-4" ] && title=SPLASH-4 work=$here/../out/splash4 own_macros=$suite/pthread.m4
size=small nodes="1 2 4" threads=1 engine=hlrc backbone=udp only="" repeat=1 globals="" keep=no define=""
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=yes ;;
    --) shift && break ;;
    --size | --nodes | --threads | --engine | --backbone | --only | --repeat | --globals | --work | --define)
        [ $# -ge 2 ] || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    *) die "there is no option $1" ;;
    esac
    shift
done
flags=("$@")
mkdir -p "$work"
work=$(realpath "$work")

programs="barnes fmm ocean-contiguous ocean-non-contiguous radiosity raytrace volrend water-nsquared water-spatial
cholesky fft lu-contiguous lu-non-contiguous radix"
[ $title = SPLASH-4 ] && programs="$programs volrend-no_print_lock"
[ -n "$only" ] || only=$programs

# shellcheck source=bench/splash3/programs.sh
. "$here/splash3/programs.sh"

# Where the threads' time went, in hundredths, from a stats file.
split() {
    times_of "$1" | awk -F, '{
        all = $1 + $2 + $3 + $4 + $5
        for (i = 1; i <= 6; i++) printf " %.0f |", all ? 100 * $i / all : 0 }'
}

# row PROGRAM NODES: a line of the table.
row() {
    local program=$1 n=$2 p output why plain=() times=() i
    about "$program"
    p=$((n * threads))
    output=$work/$program-$n
    for ((i = 0; i < repeat; i++)); do
        plain+=("$(once threads "$program" "$p" "$output.threads")")
        times+=("$(once comem "$program" "$p" "$output.comem" "$bin/comem" run --no-prefix -n "$n" -t "$threads" \
            --engine "$engine" --backbone "$backbone" --globals "${globals:-$own_globals}" --stats "$output.json" \
            "${flags[@]}" --)")
        why=$(cat "$output.comem.status")
        if [ "$why" != 0 ]; then why="status $why"; else why=$(verdict "$program" "$output.threads" "$output.comem"); fi
        [ -z "$why" ] || break
    done
    plain=$(printf '%s\n' "${plain[@]}" | median) times=$(printf '%s\n' "${times[@]}" | median)
    awk -v name="$program" -v n="$n" -v why="$why" -v a="$plain" -v b="$times" \
        -v parts="$(split "$output.json")" 'BEGIN {
        printf "| %s | %d | %s | %.3f | %.3f | %.2f |%s\n", name, n, (why == "" ? "ok" : "differs"),
            a, b, (b > 0 ? a / b : 0), parts }'
    [ -z "$why" ] || { failed=$((failed + 1)) && echo "$program on $n nodes: $why; see $output.comem and .err" >&2; }
    [ -n "$why" ] || echo "$program $n $plain $times" >>"$work/rows"
}

# The geometric mean of the speeds against threads, for one number of nodes, without those that poll under locks.
means() {
    awk -v but="(volrend and radiosity apart)" '
        $1 !~ /^volrend/ && $1 != "radiosity" && $3 > 0 && $4 > 0 { sum[$2] += log($3 / $4); count[$2]++ }
         END { for (n in sum)
            printf "%d nodes: geometric mean %.3f of the threaded build over %d programs %s\n",
               n, exp(sum[n] / count[n]), count[n], but }' "$work/rows" | sort -n
}

failed=0
: >"$work/rows"
for program in $only; do
    about "$program"
    macros=$own_macros
    build threads "$program" ${define:+CC="gcc -D$define"} || exit 2
    macros=$("$bin/comem" config --parmacs) || die "no macro file: $bin/comem config --parmacs"
    build comem "$program" CC="$bin/comem-cc${define:+ -D$define}" || exit 2
done
echo "$title, size $size, $threads thread(s) a node, engine $engine, backbone $backbone;" \
    "times of the parallel phase in seconds"
echo
echo "| program | nodes | result | threads | comem | ratio | compute % | fetch % | lock % | barrier % | protocol %" \
    "| service % |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for program in $only; do
    for n in $nodes; do
        row "$program" "$n"
    done
done
echo
means
[ "$failed" = 0 ]
