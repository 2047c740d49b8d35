#!/usr/bin/env bash
# JIAJIA's own applications on Comem: builds them unchanged against include/compat/jia.h, runs them on several nodes,
# checks what they compute, and prints a table.
#
#   bench/jiajia.sh PATH [NODES…]     PATH: a copy of JIAJIA with its folder apps/; NODES: 1 2 4 if not given
#
# COMEM_BIN names the folder with comem and libcomem.so (target/release if not set); OPTIONS are passed on to `comem
# run` (`--backbone shm`, `--engine hlrc`); ONLY="sor lu" runs some of the programs; CC and CFLAGS as usual.
#
# Results are checked in these ways: a program's own check; a value that is known; or what it prints on one node, times
# masked. SOR prints no result, so that a function linked in beside it prints a checksum of its grids when it leaves.
set -uo pipefail
cd "$(dirname "$0")/.."

apps=$(realpath "${1:?usage: bench/jiajia.sh PATH [NODES…]}")/apps
shift
nodes=("$@")
[ $# = 0 ] && nodes=(1 2 4)
bin=$(realpath "${COMEM_BIN:-target/release}")
include=$(realpath include)
read -ra options <<<"${OPTIONS:-}"
# What costs something is a protocol: JIAJIA's, where OPTIONS name no other.
export COMEM_ENGINE=${COMEM_ENGINE:-scope}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# program NAME FOLDER FLAGS SOURCE…: builds one.
program() {
    local name=$1 folder=$2 flags=$3
    shift 3
    # shellcheck disable=SC2086 # flags are words
    (cd "$apps/$folder/src" && "${CC:-cc}" -std=gnu17 ${CFLAGS:--O2} -w -DLINUX $flags -I"$include/compat" \
        -I"$include/compat/jiajia" "$@" -o "$work/$name" -L"$bin" -lcomem -Wl,-rpath,"$bin" -lm)
}

cat >"$work/sor-checksum.c" <<'C'
#include <jia.h>
extern float **red_, **black_;
extern int M, N;
extern void __real_jia_exit(void);
void __wrap_jia_exit(void) {
    double sum = 0;
    int i, j;
    if (jiapid == 0) {
        for (i = 0; i <= M + 1; i++)
            for (j = 0; j <= N; j++) sum += red_[i][j] * (1 + j % 7) + black_[i][j] * (1 + j % 5);
        printf("checksum %.17g\n", sum);
    }
    __real_jia_exit();
}
C

# What of a program's output must be as on one node. (MM prints so slowly that the launcher shows parts of its lines.)
result_of() {
    case $1 in
    pi) grep -c '^pi is approximately 3\.14159265' ;;
    ep) grep -aE '^ +[0-9]+	|^No\. Gaussian' | sort -u ;;
    is) grep -aE 'PASSED|FAILED|key\[' ;;
    sor) grep -a '^checksum' ;;
    lu) grep -aoE 'TEST (PASSED|FAILED)' ;;
    mm) tr -d '\n' | grep -aoE 'c\[0\]\[[0-9]+\]=[0-9]+\.[0-9]{6}' ;;
    tsp) grep -a 'MINIMUM TOUR LENGTH' | sort -u ;;
    water) grep -aE '^ +[0-9]+ +[0-9.]+ |^ +[0-9.]+ +[0-9.]+ +-[0-9.]+$' | sort ;;
    jacobi_equation) grep -a '^\*(x' | sed 's/\(\.[0-9]\{4\}\)[0-9]*/\1/' | sort -u ;;
    jacobi_heat) grep -a '^grid' | md5sum ;;
    hello) grep -ac "^arr\[[0-9]*\] = $2$" ;;
    esac
}

# The result where it is known, whatever one node prints.
known() {
    case $1 in
    pi) echo 1 ;;
    hello) echo 200 ;;
    is) echo "PASSED:   0 out of place." ;;
    lu) echo "TEST PASSED" ;;
    esac
}

# Programs that are `void main` end with any status, and WATER's says whether one certain input gave one certain sum.
ends_well() { [ "$2" = 0 ] || { [ "$1" = is ] && [ "$2" -lt 124 ]; } || { [ "$1" = water ] && [ "$2" = 1 ]; }; }

# counted FIELD: a total from the statistics.
counted() { sed -n '/^  "totals": {/,/^  }/p' "$work/stats.json" | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" | head -n 1; }

# measure NAME ARGUMENT…: runs a program on each number of nodes.
measure() {
    local name=$1 count expected result ended seconds verdict
    shift
    expected=$(known "$name")
    for count in "${nodes[@]}"; do
        ended=0
        rm -f "$work/stats.json"
        seconds=$(date +%s.%N)
        (cd "$work" && timeout 300 "$bin/comem" run -n "$count" --stats "$work/stats.json" "${options[@]}" \
            "$work/$name" "$@") >"$work/prefixed" 2>&1 || ended=$?
        seconds=$(echo "$(date +%s.%N) - $seconds" | bc)
        if [ "$name" = mm ]; then
            sed -n 's/^\[0\] //p' "$work/prefixed" >"$work/printed"
        else
            sed 's/^\[[0-9]*\] //' "$work/prefixed" >"$work/printed"
        fi
        result=$(result_of "$name" "$count" <"$work/printed")
        [ -z "$expected" ] && expected=$result
        verdict=right
        if ! ends_well "$name" "$ended" || [ -z "$result" ] || [ "$result" != "$expected" ]; then
            verdict=WRONG
            status=1
            tail -n 5 "$work/printed" >&2
        fi
        printf '| %s | %s | %s | %.2f | %s | %s | %s | %s |\n' "$name $*" "$count" "$verdict" "$seconds" \
            "$(counted page_requests)" "$(counted messages_sent)" "$(counted bytes_sent)" "$(counted barriers)"
    done
}

# each NAME FOLDER FLAGS "SOURCES" ARGUMENT…: builds and measures, unless ONLY names others.
each() {
    local name=$1 folder=$2 flags=$3 sources=$4
    shift 4
    [[ " ${ONLY:-$name} " == *" $name "* ]] || return 0
    # shellcheck disable=SC2086 # sources are words
    if program "$name" "$folder" "$flags" $sources; then
        measure "$name" "$@"
    else
        echo "| $name | | DOES NOT COMPILE | | | | | |"
        status=1
    fi
}

cp -r "$apps/tsp/linux/tspfiles" "$apps/water/linux/waterfiles" "$work/"
water="water.c bndry.c cnstnt.c cshift.c initia.c interf.c intraf.c kineti.c poteng.c predcor.c redsync.c syscns.c"
echo "| program | nodes | result | s | page requests | messages | bytes | barriers |"
echo "|---|---|---|---|---|---|---|---|"
each sor sor "-Wl,--wrap=jia_exit" "sor.c $work/sor-checksum.c" -i 100 -m 1022 -n 511
each lu lu "" lu.c -n1024 -b32 -t
each mm mm "" mm.c
each is is "-DMEDIUM -DFULL_VERIFICATION" is.c -n 10
each ep ep "" ep.c -m 24
each tsp tsp "" "tsp.c pq.c solve.c tours.c read_tsp.c" -f 18b
each water water "" "$water" -i waterfiles/sample.in -t 5
each pi pi "" pi.c
each jacobi_equation jacobi "" jacobi_equation.c
each jacobi_heat jacobi "" jacobi_heat.c
each hello hello "" hello.c
exit "$status"
