#!/usr/bin/env bash
# Fortran: the module comem compiles without a warning; a program that calls every procedure of it, one that makes
# errors, one with OpenMP's threads and a file, examples/heat.f90, and the workloads sor and fft in Fortran,
# which must end with the checksum of the C programs for one thread. On one to four nodes with one and two threads each,
# under `hlrc`, `scope`, `lrc`, `multicast` and `msi`, through faults and over `shm`. Each engine meets each number of
# nodes; `make soak` adds each of these with one thread and with two.
set -uo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=tests/compat/shapes.sh
. tests/compat/shapes.sh

programs=${COMEM_WORKLOADS:-out/test}
fortran=${FORTRAN:-gfortran}
faults="drop=5%,dup=2%,reorder=3%,seed=7"
status=0

verdict() {
    local result=$1
    shift
    echo "$result: $*"
    [ "$result" = FAILED ] && status=1
}

if ! command -v "$fortran" >/dev/null 2>&1; then
    echo "SKIP: Fortran: there is no $fortran; sudo apt-get install gfortran"
    exit 0
fi

bin=$(realpath "${COMEM_BIN:-target/debug}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compile WHAT OPTIONS… FILES…: without a warning.
compile() {
    local what=$1
    shift
    if "$fortran" -Wall -Wextra -Wimplicit-interface -pedantic -Werror -J"$work" "$@"; then
        verdict ok "$what compiles without a warning"
    else
        verdict FAILED "$what compiles without a warning"
    fi
}

for standard in f2018 f2008; do
    compile "the module, by -std=$standard" "-std=$standard" -O2 -c include/comem.f90 -o "$work/comem.o"
done
for name in every errors openmp direct; do
    compile "$name.f90" -std=f2008 -O2 -g -fopenmp "tests/compat/fortran/$name.f90" "$work/comem.o" \
        -o "$work/$name" "$bin/libcomem.so" -Wl,-rpath,"$bin"
done
compile "examples/heat.f90" -std=f2008 -O2 -frecursive examples/heat.f90 "$work/comem.o" \
    -o "$work/heat" "$bin/libcomem.so" -Wl,-rpath,"$bin"
[ "$status" = 0 ] || exit 1

# settings: the flags of every run, a line for each.
settings() {
    local engine nodes threads e=0
    for engine in hlrc scope lrc multicast msi hardware; do
        e=$((e + 1))
        for nodes in 1 2 3 4; do
            for threads in 1 2; do
                if is_wanted $e $nodes $((threads - 1)); then echo "-n $nodes -t $threads --engine $engine"; fi
            done
        done
        echo "-n 3 -t 2 --engine $engine --backbone udp --faults $faults"
        echo "-n 3 -t 2 --engine $engine --backbone shm"
    done
}

# run FLAGS PROGRAM ARGUMENTS…: into `printed`; gives the status. Regions name engines, and so their locks are tokens.
run() {
    local flags=$1
    shift
    # shellcheck disable=SC2086 # the flags are words
    printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix --locks tokens $flags -- "$@" 2>&1)
}

show() { tail -n 20 <<<"$1" | sed 's/^/    /'; }

# ---- every procedure ---------------------------------------------------------------------------------------------

parts=$(grep -cE "^ *call (verdict|run_part)\(.*'" tests/compat/fortran/every.f90)
while read -r flags; do
    if run "$flags" "$work/every" --comem-verbose=off one "two words" &&
        [ "$(grep -c '^right: ' <<<"$printed")" = "$parts" ] && ! grep -q '^WRONG' <<<"$printed"; then
        verdict ok "every procedure in Fortran, $flags"
    else
        show "$printed"
        verdict FAILED "every procedure in Fortran, $flags"
    fi
done < <(settings)

# ---- OpenMP and files ----------------------------------------------------------------------------------------------

while read -r flags; do
    nodes=$(sed 's/-n \([0-9]*\).*/\1/' <<<"$flags")
    if run "$flags" "$work/openmp" "$work/file" && [ "$(grep -c '^right: ' <<<"$printed")" = "$nodes" ]; then
        verdict ok "OpenMP's threads and a file in Fortran, $flags"
    else
        show "$printed"
        verdict FAILED "OpenMP's threads and a file in Fortran, $flags"
    fi
done < <(settings | grep -v -- '-n 4')

# ---- the example -------------------------------------------------------------------------------------------------

expected=$("$work/heat")
expected_heat=$expected
for flags in "-n 1 -t 2" "-n 2 --engine hlrc" "-n 3 -t 2 --engine scope" "-n 4 --engine msi"; do
    if run "$flags" "$work/heat" && [[ $printed == "mean temperature "* ]] && [ "$printed" = "$expected" ]; then
        verdict ok "examples/heat.f90 prints what it prints alone, $flags"
    else
        show "$printed"
        verdict FAILED "examples/heat.f90 prints what it prints alone ($expected), $flags"
    fi
done

# On one host no protocol is needed.
for choice in hardware: hlrc:--rehearse; do
    if run "-n 2 ${choice#*:} --stats $work/stats.json" "$work/heat" && [ "$printed" = "$expected" ] &&
        "$bin/comem" report "$work/stats.json" | grep -q "pages ${choice%%:*}"; then
        verdict ok "a program in Fortran runs under ${choice%%:*}, -n 2 ${choice#*:}"
    else
        show "$printed"
        verdict FAILED "a program in Fortran runs under ${choice%%:*}, -n 2 ${choice#*:}"
    fi
done

# ---- errors ------------------------------------------------------------------------------------------------------

# ends WHAT STATUS ARGUMENT PATTERN…: the program ends with the status and prints a line for each pattern.
ends() {
    local what=$1 expected=$2 argument=$3 ended=0 pattern
    shift 3
    run "-n 1" "$work/errors" "$argument" || ended=$?
    for pattern in "$@"; do
        grep -qE "$pattern" <<<"$printed" || ended="$ended, without '$pattern'"
    done
    if [ "$ended" = "$expected" ]; then
        verdict ok "$what"
    else
        show "$printed"
        verdict FAILED "$what: status $ended, expected $expected"
    fi
}

named='^comem: node 0 \(host .*, pid [0-9]+\): '
ends "errors are returned to a program that asks for it" 0 returned '^right: every error is returned'
ends "an error ends the node with a sentence" 2 unlock "${named}.*does not hold"
ends "also where there is a stat, unless the program asked for errors" 2 unlock-with-stat "${named}.*does not hold"
ends "and where there is no stat though it did" 2 unlock-without-stat '^printed before' "${named}.*does not hold"
ends "a second start is an error" 2 second-start "${named}.*joined its job already"
ends "a program ends its job with a status and a sentence" 77 abort '^printed before' "${named}the grid has a hole$"

early="${named}the program ended with status 0 before comem_finish"
ends "a stop before the finish is no success, in a job of one node either" 2 stop '^printed before' "$early"
ends "nor is the C library's exit" 2 exit "$early"
ends "a stop with a status ends with it" 3 stop-3 'STOP 3'
ends "so does error stop" 1 error-stop 'ERROR STOP'
for nodes in 2 3; do
    for argument in stop stop-on-one; do
        run "-n $nodes" "$work/errors" "$argument"
        ended=$?
        if [ "$ended" != 0 ] && grep -qE '^comem: node [0-9]+ .*before comem_finish' <<<"$printed"; then
            verdict ok "$argument, $nodes nodes, is no success in silence"
        else
            show "$printed"
            verdict FAILED "$argument, $nodes nodes, is no success in silence: status $ended"
        fi
    done
done

# ---- the engine direct -------------------------------------------------------------------------------------------

# No code in Fortran has checks: memory that names an engine of pages works, and other memory is refused.
refused="memory under the engine direct needs a program whose code checks its own accesses.*Fortran, Python and Rust"
for nodes in 2 4; do
    for backbone in shm udp; do
        flags="-n $nodes --engine direct --backbone $backbone"
        for argument in named returned; do
            if run "$flags" "$work/direct" "$argument" && grep -q '^right: memory under msi$' <<<"$printed" &&
                { [ "$argument" = named ] || grep -qE "^returned: .*$refused" <<<"$printed"; }; then
                verdict ok "Fortran under direct, $argument, $flags"
            else
                show "$printed"
                verdict FAILED "Fortran under direct, $argument, $flags"
            fi
        done
        run "$flags" "$work/direct" unnamed
        ended=$?
        if [ "$ended" = 3 ] && grep -qE "^comem: node .*$refused" <<<"$printed"; then
            verdict ok "Fortran under direct is refused memory that names no engine, $flags"
        else
            show "$printed"
            verdict FAILED "Fortran under direct is refused memory that names no engine, $flags: status $ended"
        fi
    done
done

# ---- the compiler's wrapper --------------------------------------------------------------------------------------

mkdir -p "$work/fc"
cp examples/heat.f90 "$work/fc/prog.f90"
fc() { (cd "$work/fc" && XDG_CACHE_HOME="$work/cache" COMEM_FC="$fortran" "$bin/comem-fc" "$@"); }
if fc -O2 prog.f90 -o heat && fc -O2 -c prog.f90 && fc prog.o -o heat-linked &&
    run "-n 2" "$work/fc/heat" && [ "$printed" = "$expected_heat" ] &&
    run "-n 2" "$work/fc/heat-linked" && [ "$printed" = "$expected_heat" ]; then
    verdict ok "comem fc compiles, links and finds the module"
else
    show "$printed"
    verdict FAILED "comem fc compiles, links and finds the module"
fi
if [ "$(find "$work/cache/comem" -name comem.o | wc -l)" = 1 ] && [ ! -e "$work/fc/comem.mod" ]; then
    verdict ok "comem fc compiles the module once, and leaves nothing beside the program"
else
    verdict FAILED "comem fc compiles the module once: $(find "$work/cache" -name comem.o)"
fi
if said=$(COMEM_FC=/nowhere/fortran "$bin/comem" fc prog.f90 2>&1); then
    verdict FAILED "comem fc says which compiler it does not find"
elif grep -q "cannot run the Fortran compiler /nowhere/fortran.*COMEM_FC" <<<"$said"; then
    verdict ok "comem fc says which compiler it does not find"
else
    show "$said"
    verdict FAILED "comem fc says which compiler it does not find"
fi

# ---- the workloads -----------------------------------------------------------------------------------------------

checksum() { grep -o 'checksum=[0-9a-f]*' <<<"$1" | head -n 1; }

for name in sor fft; do
    if [ ! -x "$programs/$name-fortran" ]; then
        verdict FAILED "$name in Fortran: there is no $programs/$name-fortran; build the workloads"
        continue
    fi
    expected=$(checksum "$("$programs/$name-sequential" --preset tiny)")
    while read -r flags; do
        if run "$flags" "$programs/$name-fortran" --preset tiny && [[ $printed == *" ok" ]] &&
            [ -n "$expected" ] && [ "$(checksum "$printed")" = "$expected" ]; then
            verdict ok "$name in Fortran, $flags"
        else
            show "$printed"
            verdict FAILED "$name in Fortran, $flags: expected $expected"
        fi
    done < <(settings)
done
exit "$status"
