#!/usr/bin/env bash
# What heuristics are worth: runs programs with each switch of docs/tuning.md on and off in turn, and compares.
#
#     bench/heuristics.sh [--switches "pages.push locks.turns"] [--programs "fft is"] [--backbones "shm udp"]
#                         [--nodes 2] [--rounds 5] [--preset large] [--splash PATH] [--size small] [--keep] [--out DIR]
#                         [-- FLAGS OF COMEM RUN]
#
# Each round runs a program with the switch on, then off. A line for each pair says the median times, their ratio (off
# by on: above 1 the heuristic gains) and the counts of both: messages sent, requests for pages, faults. Counts are
# medians, too: they repeat exactly, but for what waits long enough to be sent twice. A switch may also be a number with
# a value, to compare with its default: "pages.push_after=4".
#
# Without --switches all switches are tried, one at a time. --programs are kernels of workloads/ (fft is lu radix sor
# water). With --splash PATH, a checkout of SPLASH-3, they may be programs of it, too, such as lu-contiguous. Those are
# built below DIR/splash (--keep builds nothing anew). COMEM_BIN names the folder of comem, COMEM_WORKLOADS that of the
# kernels. A wrong result, a crash or a time-out is printed as WRONG, and the script fails. DIR (out/heuristics) gets
# table.md and runs.csv.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${COMEM_BIN:-$here/../target/release}
workloads=${COMEM_WORKLOADS:-$here/../out/workloads}

die() {
    echo "comem: $*" >&2
    exit 2
}

switches="" programs="" backbones="shm udp" nodes=2 rounds=5 preset=large splash="" size=small keep=no
out=$here/../out/heuristics
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
        exit
        ;;
    --keep) keep=yes ;;
    --) shift && break ;;
    --switches | --programs | --backbones | --nodes | --rounds | --preset | --splash | --size | --out)
        [ $# -ge 2 ] || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    *) die "there is no option $1; see bench/heuristics.sh --help" ;;
    esac
    shift
done
flags=("$@")
[ -x "$bin/comem" ] || die "there is no $bin/comem: run make, or name its folder in COMEM_BIN"
bin=$(realpath "$bin")
COMEM_TUNING=nonsense "$bin/comem" run --dry-run true >/dev/null 2>&1 &&
    die "$bin/comem does not know COMEM_TUNING: it is too old"
# They are a protocol's, which a job on one host has where an engine is named.
export COMEM_ENGINE=${COMEM_ENGINE:-hlrc}
mkdir -p "$out" || exit 2
out=$(realpath "$out")

kernels="fft is lu radix sor water"
suite_programs="barnes fmm ocean-contiguous ocean-non-contiguous radiosity raytrace volrend water-nsquared water-spatial
cholesky lu-contiguous lu-non-contiguous splash-fft splash-radix"
[ -n "$programs" ] || programs="$kernels ${splash:+$suite_programs}"
# All switches: the names in the table of docs/tuning.md that are on by default.
[ -n "$switches" ] || switches=$(awk -F'|' '$3 ~ /^ on $/ { gsub(/[ `]/, "", $2); print $2 }' "$here/../docs/tuning.md")
[ -n "$switches" ] || die "docs/tuning.md names no switches"

is_kernel() { [[ " $kernels " == *" $1 "* ]]; }

if [ -n "$splash" ]; then
    [ -d "$splash/codes" ] || die "--splash $splash: this is no checkout of SPLASH-3, with codes/ in it"
    suite=$(realpath "$splash") title=SPLASH-3 work=$out/splash
    macros=$("$bin/comem" config --parmacs) || die "no macro file: $bin/comem config --parmacs"
    mkdir -p "$work"
    # shellcheck source=bench/splash3/programs.sh
    . "$here/splash3/programs.sh"
else
    median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
fi
for program in $programs; do
    if is_kernel "$program"; then
        [ -x "$workloads/$program" ] ||
            die "there is no $workloads/$program: run make -C workloads, or name its folder in COMEM_WORKLOADS"
    elif [ -n "$splash" ]; then
        build comem "${program#splash-}" CC="$bin/comem-cc" || exit 2
    else
        die "$program is no kernel ($kernels); for a program of SPLASH-3 add --splash PATH"
    fi
done

# counted STATS NAME…: the sum of these counters over all nodes.
counted() {
    local stats=$1 names
    shift
    names=$*
    "$bin/comem" report --csv "$stats" 2>/dev/null | awk -F, -v names=" $names " \
        'index(names, " " $4 " ") && ($3 == "messages" || $3 == "pages") { sum += $5 } END { print sum + 0 }'
}

# one PROGRAM BACKBONE TUNING OUTPUT: runs it once; prints its seconds, or nothing if it was wrong.
one() {
    local program=$1 backbone=$2 tuning=$3 output=$4 own_globals=copy
    local run=("$bin/comem" run --no-prefix -n "$nodes" --backbone "$backbone" --stats "$output.json" "${flags[@]}")
    export COMEM_TUNING=$tuning
    if is_kernel "$program"; then
        timeout --kill-after=5 "${COMEM_SPLASH_TIMEOUT:-300}" "${run[@]}" -- \
            "$workloads/$program" --preset "$preset" >"$output" 2>"$output.err"
        grep -q ' ok$\| unchecked$' "$output" && grep -o 'time_s=[0-9.]*' "$output" | head -n 1 | cut -d= -f2
        return
    fi
    about "${program#splash-}"
    local seconds
    seconds=$(once comem "${program#splash-}" "$nodes" "$output" "${run[@]}" --globals "$own_globals" --)
    [ "$(cat "$output.status")" = 0 ] && echo "$seconds"
}

failed=0
echo "switch,program,backbone,round,value,seconds,messages,requests,faults" >"$out/runs.csv"
{
    echo "$nodes nodes, $rounds rounds in turn; times in seconds; counts: messages, requests for pages, faults"
    echo
    echo "| switch | program | backbone | on | off | off / on | counts on | counts off |"
    echo "|---|---|---|---|---|---|---|---|"
} | tee "$out/table.md"
for switch in $switches; do
    # With a value: the default against that.
    on="" off=$switch=off
    [[ $switch == *=* ]] && off=$switch
    for program in $programs; do
        for backbone in $backbones; do
            declare -A times=([on]="" [off]="") counts=([on]="" [off]="")
            wrong=""
            for ((round = 1; round <= rounds; round++)); do
                for which in on off; do
                    output=$out/$program-$backbone.$which
                    seconds=$(one "$program" "$backbone" "${!which}" "$output")
                    if [ -z "$seconds" ]; then
                        wrong=$which
                        tail -n 3 "$output.err" >&2
                        continue
                    fi
                    count="$(counted "$output.json" messages_sent) $(counted "$output.json" page_requests)"
                    count="$count $(counted "$output.json" read_faults write_faults)"
                    echo "$switch,$program,$backbone,$round,$which,$seconds,${count// /,}" >>"$out/runs.csv"
                    times[$which]+="$seconds"$'\n'
                    counts[$which]+="$count"$'\n'
                done
            done
            if [ -n "$wrong" ]; then
                failed=1
                echo "| \`$switch\` | $program | $backbone | WRONG ($wrong) | | | | |"
                continue
            fi
            middle() { printf %s "${times[$1]}" | median; }
            column() { printf %s "${counts[$1]}" | cut -d' ' -f"$2" | median; }
            a=$(middle on) b=$(middle off)
            ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { if (a > 0) printf "%.3f", b / a; else print "-" }')
            line="| \`$switch\` | $program | $backbone | $a | $b | $ratio"
            for which in on off; do
                line+=" | $(column $which 1) $(column $which 2) $(column $which 3)"
            done
            echo "$line |"
        done
    done
done > >(tee -a "$out/table.md")
wait $!
exit "$failed"
