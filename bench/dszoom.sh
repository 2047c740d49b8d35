#!/usr/bin/env bash
# The tables and figures of the DSZOOM paper (Radović and Hagersten, SC2001), measured on this machine and printed
# beside the paper's numbers.
#
#     bench/dszoom.sh PATH [--quick] [--out DIR] [--size small|paper] [--nodes "1 2 4"] [--repeat N] [--threads T]
#                     [--only "fft radix"] [--units "64 128 2048"] [--unit 128] [--backbones "shm udp"]
#                     [--systems "pages checked direct lines"] [--keep]
#
# PATH is an unmodified checkout of https://github.com/SakalisC/Splash-3. Its twelve programs of the paper's Table 1 are
# built three times below DIR by the same compiler ($COMEM_CLANG, else clang-19): with the suite's own macros
# (`threads`), with Comem's (`pages`), and with `comem-cc --inline` (`checked`). These systems run them:
#
#     threads  one process; the paper's Sun Enterprise E6000
#     pages    nodes under the engine hlrc
#     checked  checked code on one node; the paper's single-node DSZOOM-WF
#     direct   checked code, the engine direct: over shm the paper's DSZOOM-EMU, over udp what stands for DSZOOM-WF
#     lines    checked code, the engine msi by lines: a handler at the home, as in traditional systems
#
# Each round runs every system in turn. Times are those of the parallel phase, and the tables show medians. Every result
# is compared with that of the threads in the same round. A wrong one, a crash or a time-out ($COMEM_SPLASH_TIMEOUT
# seconds, 300) is printed as WRONG, and the script fails. What the installed comem cannot do is skipped with a line.
#
# --quick: small sizes, one round, 1 and 2 nodes, one unit. --keep builds nothing anew. DIR (out/dszoom) gets runs.csv,
# checks.csv, latency.csv, tables.txt, figure6.svg to figure8.svg, and what each run printed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${COMEM_BIN:-$here/../target/release}
clang=${COMEM_CLANG:-clang-19}

die() {
    echo "comem: $*" >&2
    exit 2
}

case ${1:-} in
--help | -h)
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
    exit
    ;;
esac
suite=${1:-}
[ -d "$suite/codes" ] || die "usage: bench/dszoom.sh PATH [options]; PATH is a checkout of SPLASH-3, with codes/ in it"
suite=$(realpath "$suite")
shift
[ -x "$bin/comem" ] || die "there is no $bin/comem: run make, or name its folder in COMEM_BIN"
bin=$(realpath "$bin")
out=$here/../out/dszoom size="" nodes="" repeat="" only="" units="" unit=128 threads=1 keep=no quick=no
backbones="shm udp" systems="pages checked direct lines"
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=yes ;;
    --quick) quick=yes ;;
    --out | --size | --nodes | --repeat | --only | --units | --unit | --backbones | --systems | --threads)
        [ $# -ge 2 ] || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    *) die "there is no option $1" ;;
    esac
    shift
done
if [ $quick = yes ]; then
    size=${size:-small} nodes=${nodes:-1 2} repeat=${repeat:-1} units=${units:-$unit}
fi
size=${size:-paper} nodes=${nodes:-1 2 4} repeat=${repeat:-3} units=${units:-64 128 2048}
[[ " $units " == *" $unit "* ]] || units="$unit $units"
mkdir -p "$out" || exit 2
out=$(realpath "$out")
# shellcheck disable=SC2034 # programs.sh reads these
title=SPLASH-3 work=$out own_macros=$suite/codes/pthread_macros/pthread.m4.stougie
# shellcheck source=bench/splash3/programs.sh
. "$here/splash3/programs.sh"

programs="fft lu-contiguous lu-non-contiguous radix barnes fmm ocean-contiguous ocean-non-contiguous radiosity raytrace
water-nsquared water-spatial"
only=${only:-$programs}
for program in $only; do
    [[ $programs =~ (^|[[:space:]])$program($|[[:space:]]) ]] || die "$program is none of: $programs"
done

skip() { echo "SKIP: $*"; }

# first_line FILE: what a command said first.
first_line() { grep -m 1 . "$1" || echo "it said nothing"; }

# flags_of SYSTEM BACKBONE UNIT: sets `flags`, those of comem run.
flags_of() {
    case $1 in
    pages) flags=(--engine hlrc) ;;
    checked | direct) flags=(--engine direct --unit-bytes "$3") ;;
    lines) flags=(--detector inline --engine msi --unit-bytes "$3") ;;
    esac
    flags+=(--backbone "$2")
}

# --- what can be built and run here -----------------------------------------------------------------------------------

command -v "$clang" >/dev/null || die "there is no $clang: install it, or name another in COMEM_CLANG"
command -v m4 >/dev/null || die "there is no m4: install it"
[ -x "$bin/comem" ] || die "there is no $bin/comem: make build, or name its folder in COMEM_BIN"
[ -x "$bin/comem-bench" ] || die "there is no $bin/comem-bench: make build"
export COMEM_CC=$clang COMEM_CLANG=$clang

# has KIND: can comem-cc build programs of this kind?
has() {
    local words=("$bin/comem-cc")
    [ "$1" = checked ] && words+=(--inline)
    "${words[@]}" -std=gnu11 -O2 -o "$out/latency-$1" "$here/dszoom/latency.c" >"$out/latency-$1.log" 2>&1
}

# latency SECONDS KIND ARGUMENTS…: runs that program on three nodes, with `flags`.
latency() {
    local most=$1 kind=$2
    shift 2
    timeout --kill-after=5 "$most" "$bin/comem" run --no-prefix -n 3 "${flags[@]}" -- "$out/latency-$kind" "$@"
}

# knows SYSTEM BACKBONE UNIT: does comem run it?
knows() {
    local kind=checked
    [ "$1" = pages ] && kind=pages
    flags_of "$1" "$2" "$3"
    latency 60 "$kind" "$3" read-clean >"$out/probe.log" 2>&1
}

has pages || die "comem-cc builds nothing with $clang: $(first_line "$out/latency-pages.log")"
kinds=threads
[[ " $systems " == *" pages "* ]] && kinds="threads pages"
if has checked; then
    kinds="$kinds checked"
elif [[ $systems =~ checked|direct|lines ]]; then
    skip "checked code: $(first_line "$out/latency-checked.log")"
fi

# The configurations: lines of system, backbone, unit.
configurations=""
for system in $systems; do
    [ "$system" = pages ] || [[ $kinds == *checked* ]] || continue
    for backbone in $backbones; do
        for u in $units; do
            case $system in
            pages) [ "$u" = "$unit" ] || continue ;;
            checked) [ "$u" = "$unit" ] && [ "$backbone" = "${backbones%% *}" ] || continue ;;
            esac
            if knows $system "$backbone" "$u"; then
                configurations+="$system $backbone $u"$'\n'
            else
                skip "$system over $backbone, units of $u bytes: $(first_line "$out/probe.log")"
            fi
        done
    done
done

# --- building ---------------------------------------------------------------------------------------------------------

# counts_of PROGRAM: checked and all loads, checked and all stores, of the objects of a checked program.
counts_of() {
    about "$1"
    objcopy -O binary --only-section=.comem.inline --set-section-flags .comem.inline=alloc \
        "$out/checked/$folder/$binary" "$out/section" 2>/dev/null
    tr '\0' '\n' <"$out/section" | awk '
        { for (i = 1; i <= NF; i++) {
              split($i, pair, "="); split(pair[2], n, "/")
              if (pair[1] == "loads" || pair[1] == "stores") { checked[pair[1]] += n[1]; all[pair[1]] += n[2] }
          } }
        END { printf "%d,%d,%d,%d\n", checked["loads"], all["loads"], checked["stores"], all["stores"] }'
}

failed=0
# wrong WHAT…: says it, and makes the script fail.
wrong() {
    failed=$((failed + 1))
    echo "WRONG: $*"
}

echo "program,loads_checked,loads,stores_checked,stores" >"$out/checks.csv"
built=""
for program in $only; do
    good=yes
    for kind in $kinds; do
        case $kind in
        threads) macros=$own_macros compiler=$clang ;;
        pages) compiler=$bin/comem-cc ;;
        checked) compiler="$bin/comem-cc --inline" ;;
        esac
        # shellcheck disable=SC2034 # programs.sh reads it
        [ "$kind" = threads ] || macros=$("$bin/comem" config --parmacs) ||
            die "no macro file: $bin/comem config --parmacs"
        build "$kind" "$program" CC="$compiler" && continue
        wrong "$program does not build as $kind"
        [ "$kind" = checked ] || good=no
    done
    [ $good = no ] || built="$built $program"
    [[ $kinds == *checked* ]] && echo "$program,$(counts_of "$program")" >>"$out/checks.csv"
done

# --- latencies --------------------------------------------------------------------------------------------------------

echo "system,backbone,unit,case,ns" >"$out/latency.csv"
while read -r system backbone u; do
    [ -n "$system" ] && [ "$system" != checked ] || continue
    kind=checked
    [ "$system" != pages ] || { kind=pages u=4096; }
    flags_of "$system" "$backbone" "$u"
    if latency 120 "$kind" "$u" >"$out/latency.out" 2>"$out/latency.err" </dev/null; then
        awk -v to="$system,$backbone,$u" 'NF == 2 { print to "," $1 "," $2 }' "$out/latency.out" >>"$out/latency.csv"
    else
        wrong "latencies under $system over $backbone, units of $u bytes: $(first_line "$out/latency.err")"
    fi
done <<<"$configurations"

# --- the programs -----------------------------------------------------------------------------------------------------

# record SYSTEM BACKBONE UNIT NODES THREADS SECONDS RESULT PARTS: a line of runs.csv.
record() {
    local IFS=,
    echo "$program,$round,$*" >>"$out/runs.csv"
}

# run_threads P: the plain build, whose results are the ones to expect.
run_threads() {
    local seconds
    expected=$out/runs/$program-threads-$1
    seconds=$(once threads "$program" "$1" "$expected")
    if [ "$(cat "$expected.status")" = 0 ] && [ -n "$seconds" ]; then
        record threads none 0 1 "$1" "$seconds" ok 0,0,0,0,0,0
    else
        record threads none 0 1 "$1" "${seconds:-0}" WRONG 0,0,0,0,0,0
        wrong "$program with $1 threads: status $(cat "$expected.status"); see $expected and .err"
    fi
}

# run_comem SYSTEM BACKBONE UNIT NODES THREADS
run_comem() {
    local system=$1 backbone=$2 u=$3 n=$4 t=$5 kind=checked seconds status why result=ok output
    [ "$system" = pages ] && kind=pages
    about "$program"
    [ -x "$out/$kind/$folder/$binary" ] || return
    flags_of "$system" "$backbone" "$u"
    output=$out/runs/$program-$system-$backbone-$u-$n
    rm -f "$output.json"
    seconds=$(once $kind "$program" $((n * t)) "$output" "$bin/comem" run --no-prefix -n "$n" -t "$t" "${flags[@]}" \
        --globals "$own_globals" --stats "$output.json" --)
    status=$(cat "$output.status")
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        why="no end within ${COMEM_SPLASH_TIMEOUT:-300} s"
    elif [ "$status" != 0 ]; then
        why="status $status"
    else
        why=$(verdict "$program" "$expected" "$output")
    fi
    if [ -n "$why" ]; then
        result=WRONG
        wrong "$program on $n node(s) of $t under $system over $backbone, units of $u bytes: $why; see $output and .err"
    fi
    record "$system" "$backbone" "$u" "$n" "$t" "${seconds:-0}" "$result" "$(times_of "$output.json")"
}

mkdir -p "$out/runs"
parts=compute,fetch,lock,barrier,protocol,service
echo "program,round,system,backbone,unit,nodes,threads,seconds,result,$parts" >"$out/runs.csv"
for program in $built; do
    for ((round = 1; round <= repeat; round++)); do
        for n in $nodes; do
            run_threads $((n * threads))
            while read -r system backbone u; do
                case $system in
                "") ;;
                checked) run_comem checked "$backbone" "$u" 1 $((n * threads)) ;;
                # One node speaks to nobody, so one configuration of a system says all there.
                pages)
                    [ "$n" = 1 ] && [ "$backbone" != "${backbones%% *}" ] ||
                        run_comem pages "$backbone" "$u" "$n" "$threads"
                    ;;
                *) [ "$n" = 1 ] || run_comem "$system" "$backbone" "$u" "$n" "$threads" ;;
                esac
            done <<<"$configurations"
        done
    done
    echo "$program: done" >&2
done

{
    echo "SPLASH-3, $size sizes, $repeat round(s), $threads thread(s) a node; $("$clang" --version | head -n 1)"
    "$bin/comem-bench" dszoom "$out" --unit "$unit"
} | tee "$out/tables.txt"
[ "${PIPESTATUS[0]}" = 0 ] || failed=$((failed + 1))
[ "$failed" = 0 ] || echo "$failed WRONG; see above and $out/runs.csv"
[ "$failed" = 0 ]
