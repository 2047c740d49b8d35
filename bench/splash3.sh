#!/usr/bin/env bash
# Runs the programs of a SPLASH-3 or SPLASH-4 checkout (14, 15) on Comem, compares each with the suite's own threaded build, and
# prints a table.
#
#     bench/splash3.sh PATH [--size small|paper] [--nodes "1 2 4"] [--threads T] [--engine E] [--backbone B]
#                      [--only "fft radix"] [--repeat N] [--globals copy|share] [--keep] [--work DIR] [--define MACRO]
#                      [-- FLAGS OF COMEM RUN]
#
# PATH is a checkout of https://github.com/SakalisC/Splash-3 or https://github.com/OdnetninI/Splash-4. Its own makefiles build it
# twice, below DIR: with its own macros, and with MACROS and CC set to Comem's. Times are those of the parallel phase (between the suite's own
# marks), medians of N runs; a program that ends with the right results is `ok`. --keep builds nothing anew. --define builds
# both with -D MACRO (WITH_NO_OPTIONAL_LOCKS leaves out the locks that SPLASH-2 had not).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(realpath "${COMEM_BIN:-$here/../target/release}")

die() {
    echo "comem: $*" >&2
    exit 2
}

suite=${1:-}
[ -d "$suite/codes" ] || [ -d "$suite/Splash-4" ] ||
    die "usage: bench/splash3.sh PATH [options]; PATH is a checkout of SPLASH-3, with codes/ in it, or of SPLASH-4, with Splash-4/ in it"
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

# about PROGRAM: sets `folder` (where the build is), `binary`, `own_globals` (copy or share: what the program needs).
about() {
    own_globals=copy
    case $1 in
    ocean-*) folder=apps/ocean/${1#ocean-}_partitions binary=OCEAN ;;
    lu-*) folder=kernels/lu/${1#lu-}_blocks binary=LU ;;
    cholesky | fft | radix) folder=kernels/$1 binary=${1^^} ;;
    *) folder=apps/$1 binary=${1^^} ;;
    esac
    folder=codes/${folder//non-/non_}
    if [ $title = SPLASH-4 ]; then
        case $1 in
        ocean-* | lu-*)
            folder=Splash-4/${1%%-*}-${folder##*/} binary=${binary}-CONT
            [[ $1 == *non* ]] && binary=${binary%-CONT}-NOCONT
            ;;
        *) folder=Splash-4/$1 ;;
        esac
        [ "$1" = volrend-no_print_lock ] && binary=VOLREND-NPL
    fi
    case $1 in fmm | volrend* | water-*) own_globals=share ;; esac
}

# command PROGRAM P: sets `arguments` and `input` (the text for its standard input) for P workers at the chosen size.
command_of() {
    local p=$2 small=no
    [ "$size" = small ] && small=yes
    input=""
    choose() { if [ $small = yes ]; then echo "$1"; else echo "$2"; fi; }
    case $1 in
    barnes) arguments="" input="
$(choose 2048 16384)
123

0.025
0.05
1.0
2.0
5.0
0.075
0.25
$p" ;;
    fmm) arguments="-o" input="two cluster
plummer
$(choose 2048 32768)
1e-6
$p
5
.025
0.0
cost zones" ;;
    ocean-contiguous) arguments="-p$p -n$(choose 66 514) -o" ;;
    ocean-non-contiguous) arguments="-p$p -n$(choose 66 258) -o" ;;
    radiosity) arguments="-p $p -batch -room -ae 5000 -en 0.05 -bf 0.1" ;;
    raytrace) arguments="-p$p -m64 inputs/$(choose teapot balls4).env" ;;
    volrend*) arguments="$p inputs/head-scaleddown$(choose 4 2) $(choose 2 4)" ;;
    water-*) arguments="" input="1.5e-16 $(choose 512 2197) $(choose 3 2) 6
-1 3000 $(choose 3 2) 0
$p $(choose 6.212752 0)" ;;
    cholesky) arguments="-p$p -t inputs/$(choose tk14 tk29).O" ;;
    fft) arguments="-p$p -m$(choose 12 20) -t" ;;
    lu-*) arguments="-p$p -n$(choose 256 1024) -b16 -t" ;;
    radix) arguments="-p$p -n$(choose 65536 4194304) -t" ;;
    esac
}

# verdict PROGRAM EXPECTED PRINTED: are the results right? Says what is wrong.
verdict() {
    case $1 in
    cholesky | fft | lu-* | radix) grep -q PASSED "$3" || echo "no PASSED in its own test" ;;
    raytrace | volrend*) if [ -s "$2.image" ]; then cmp "$2.image" "$3.image" 2>&1; else echo "the threaded build made no image"; fi ;;
    radiosity) # with threads too, one run in a hundred converges after 4 rounds and not after 3
        compare 0.15 <(grep -E 'patches:|elements:' "$2") <(grep -E 'patches:|elements:' "$3")
        compare 0.34 <(grep 'to converge' "$2") <(grep 'to converge' "$3")
        ;;
    *) compare 1e-4 <(results "$2") <(results "$3") ;;
    esac
}

compare() { awk -v tolerance="$1" -f "$here/splash3/same.awk" "$2" "$3"; }

# What of an output are results: all but times, and what a worker prints about itself.
results() { grep -viE 'time|start|finish|COMPUTE|fraction|PROCESS STATISTICS|^ +([0-9]+|avg|min|max) +-?[0-9]+ ' "$1" | grep -v '^ *$'; }

# The pixels of the images that a program has made. VOLREND's files end with a directory that has bytes of no meaning in it;
# where it begins stands in bytes 8 to 15.
pixels() {
    local file
    case $1 in
    raytrace) cat ./*.rl inputs/*.rl 2>/dev/null ;;
    volrend*) for file in inputs/*_1[0-9][0-9][0-9]; do head -c "$(od -An -tu8 -j8 -N8 "$file")" "$file"; done ;;
    esac
}

# build KIND PROGRAM MAKE-ARGUMENTS…
build() {
    local kind=$1 program=$2 extra="$here/splash3/region.m4"
    shift 2
    about "$program"
    [ -f "$here/splash3/$program.m4" ] && extra="$extra $here/splash3/$program.m4"
    [ $keep = yes ] && [ -x "$work/$kind/$folder/$binary" ] && return
    [ -d "$work/$kind" ] || cp -r "$suite" "$work/$kind"
    [ -f "$work/$kind/$folder/Makefile" ] || die "$suite/$folder has no Makefile"
    (cd "$work/$kind/$folder" && rm -f ./*.o "$binary" && for f in *.in; do
        [ "$f" = random.in ] || rm -f "${f%.in}"
    done)
    make -C "$work/$kind/$folder" -B "$@" MACROS="$macros $extra" >"$work/$kind-$program.log" 2>&1 ||
        { tail -n 20 "$work/$kind-$program.log" >&2 && die "$program does not build: $work/$kind-$program.log"; }
}

# once KIND PROGRAM P OUTPUT COMMAND…: runs it in its folder; prints the seconds of its parallel phase, or nothing.
once() {
    local kind=$1 program=$2 p=$3 output=$4 status=0
    shift 4
    about "$program"
    command_of "$program" "$p"
    cd "$work/$kind/$folder" || return
    rm -f ./*.rl inputs/*.rl inputs/*_1[0-9][0-9][0-9] "$output.image"
    [ "$program" != raytrace ] || ln -sf inputs/*.geo . # scenes name their models without a folder
    # shellcheck disable=SC2086
    timeout --kill-after=5 "${COMEM_SPLASH_TIMEOUT:-300}" "$@" "./$binary" $arguments >"$output" 2>"$output.err" <<<"$input" || status=$?
    pixels "$program" >"$output.image"
    echo "$status" >"$output.status"
    awk '/^region begin/ { begun = $3 } /^region end/ { printf "%.6f\n", $3 - begun; exit }' "$output.err"
}

median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }

# Where the threads' time went, in hundredths, from a stats file.
split() {
    "$bin/comem" report --csv "$1" 2>/dev/null | awk -F, '
        $3 == "time_us" { sum[$4] += $5; if ($4 != "service") all += $5 }
        END { n = split("compute fetch lock barrier protocol service", name, " ")
              for (i = 1; i <= n; i++) printf " %.0f |", all ? 100 * sum[name[i]] / all : 0 }'
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
    awk -v name="$program" -v n="$n" -v why="$why" -v a="$plain" -v b="$times" -v parts="$(split "$output.json")" 'BEGIN {
        printf "| %s | %d | %s | %.3f | %.3f | %.2f |%s\n", name, n, (why == "" ? "ok" : "differs"), a, b, (b > 0 ? a / b : 0), parts }'
    [ -z "$why" ] || { failed=$((failed + 1)) && echo "$program on $n nodes: $why; see $output.comem and .err" >&2; }
    [ -n "$why" ] || echo "$program $n $plain $times" >>"$work/rows"
}

# The geometric mean of the speeds against threads, for one number of nodes, without those that poll under locks.
means() {
    awk '$1 !~ /^volrend/ && $1 != "radiosity" && $3 > 0 && $4 > 0 { sum[$2] += log($3 / $4); count[$2]++ }
         END { for (n in sum) printf "%d nodes: geometric mean %.3f of the threaded build over %d programs (volrend and radiosity apart)\n",
               n, exp(sum[n] / count[n]), count[n] }' "$work/rows" | sort -n
}

failed=0
: >"$work/rows"
for program in $only; do
    about "$program"
    macros=$own_macros
    build threads "$program" ${define:+CC="gcc -D$define"}
    macros=$("$bin/comem" config --parmacs) || die "no macro file: $bin/comem config --parmacs"
    build comem "$program" CC="$bin/comem-cc${define:+ -D$define}"
done
echo "$title, size $size, $threads thread(s) a node, engine $engine, backbone $backbone; times of the parallel phase in seconds"
echo
echo "| program | nodes | result | threads | comem | ratio | compute % | fetch % | lock % | barrier % | protocol % | service % |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for program in $only; do
    for n in $nodes; do
        row "$program" "$n"
    done
done
echo
means
[ "$failed" = 0 ]
