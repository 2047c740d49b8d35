# How the programs of SPLASH-3 and SPLASH-4 are built, run, timed and checked: to be read by bench/splash3.sh and
# bench/dszoom.sh, which set
#
#     suite   the checkout            title   SPLASH-3 or SPLASH-4            here     the folder bench
#     work    where builds lie        size    small or paper                  keep     yes: what is built stays
#     macros  the macro file that `build` uses
# shellcheck shell=bash disable=SC2154

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
    raytrace | volrend*)
        if [ -s "$2.image" ]; then cmp "$2.image" "$3.image" 2>&1; else echo "the threaded build made no image"; fi ;;
    radiosity) # with threads too, one run in a hundred converges after 4 rounds and not after 3
        compare 0.15 <(grep -E 'patches:|elements:' "$2") <(grep -E 'patches:|elements:' "$3")
        compare 0.34 <(grep 'to converge' "$2") <(grep 'to converge' "$3")
        ;;
    *) compare 1e-4 <(results "$2") <(results "$3") ;;
    esac
}

compare() { awk -v tolerance="$1" -f "$here/splash3/same.awk" "$2" "$3"; }

# What of an output are results: all but times, and what a worker prints about itself.
results() {
    grep -viE 'time|start|finish|COMPUTE|fraction|PROCESS STATISTICS|^ +([0-9]+|avg|min|max) +-?[0-9]+ ' "$1" |
        grep -v '^ *$'
}

# The pixels of the images that a program has made. VOLREND's files end with a directory that has bytes of no meaning in
# it; where it begins stands in bytes 8 to 15.
pixels() {
    local file
    case $1 in
    raytrace) cat ./*.rl inputs/*.rl 2>/dev/null ;;
    volrend*) for file in inputs/*_1[0-9][0-9][0-9]; do head -c "$(od -An -tu8 -j8 -N8 "$file")" "$file"; done ;;
    esac
}

# build KIND PROGRAM MAKE-ARGUMENTS…: builds it below `work`/KIND. Fails, with the compiler's last words, where it does
# not build.
build() {
    local kind=$1 program=$2 extra="$here/splash3/region.m4"
    shift 2
    about "$program"
    [ -f "$here/splash3/$program.m4" ] && extra="$extra $here/splash3/$program.m4"
    [ $keep = yes ] && [ -x "$work/$kind/$folder/$binary" ] && return
    [ -d "$work/$kind" ] || cp -r "$suite" "$work/$kind"
    [ -f "$work/$kind/$folder/Makefile" ] || { echo "comem: $suite/$folder has no Makefile" >&2 && return 1; }
    (cd "$work/$kind/$folder" && rm -f ./*.o "$binary" && for f in *.in; do
        [ "$f" = random.in ] || rm -f "${f%.in}"
    done)
    make -C "$work/$kind/$folder" -B "$@" MACROS="$macros $extra" >"$work/$kind-$program.log" 2>&1 && return
    tail -n 20 "$work/$kind-$program.log" >&2
    echo "comem: $program does not build: $work/$kind-$program.log" >&2
    return 1
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
    timeout --kill-after=5 "${COMEM_SPLASH_TIMEOUT:-300}" "$@" \
        "./$binary" $arguments >"$output" 2>"$output.err" <<<"$input" || status=$?
    pixels "$program" >"$output.image"
    echo "$status" >"$output.status"
    awk '/^region begin/ { begun = $3 } /^region end/ { printf "%.6f\n", $3 - begun; exit }' "$output.err"
}

# times_of STATS: how long the threads spent in each way, in microseconds, with commas in between.
times_of() {
    "$bin/comem" report --csv "$1" 2>/dev/null | awk -F, '
        $3 == "time_us" { sum[$4] += $5 }
        END { n = split("compute fetch lock barrier protocol service", name, " ")
              for (i = 1; i <= n; i++) printf "%s%d", (i > 1 ? "," : ""), sum[name[i]] }'
}

median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
