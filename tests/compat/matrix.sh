# For tests of interfaces of other systems: to be read by tests/compat/GROUP/run.sh. Builds programs, and runs them on
# one to four nodes under each engine, over datagrams that get lost, doubled and reordered, and over shared memory.
# `make test` takes a part in which each engine meets each number of nodes and each network; `make soak` takes all.

# shellcheck source=tests/compat/shapes.sh
. tests/compat/shapes.sh

bin=$(realpath "${COMEM_BIN:-target/debug}")
include=$(realpath include)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

passed() { echo "ok: $*"; }
failed() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# build NAME SOURCE…: the program $work/NAME, without a warning.
build() {
    local name=$1
    shift
    if "${CC:-cc}" -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -I"$include/compat" "$@" -o "$work/$name" \
        -L"$bin" -lcomem -Wl,-rpath,"$bin" -lm; then
        passed "$name compiles"
    else
        failed "$name does not compile"
        return 1
    fi
}

# run OPTION… PROGRAM ARGUMENT…: runs a program on nodes; what it printed is in $printed, how it ended in $ended.
run() {
    ended=0
    printed=$(cd "$work" && timeout --kill-after=10 180 "$bin/comem" run --no-prefix "$@" 2>&1) || ended=$?
}

show() { sed 's/^/    /' <<<"$printed" | tail -n 20; }

faults=drop=5%,dup=5%,reorder=5%,seed=7

# everywhere NAME ARGUMENT…: the program says `ok` and nothing wrong, wherever it runs. `@` in an argument is the number
# of nodes.
everywhere() {
    local name=$1 nodes engine backbone wrong=0 e=0 b
    shift
    for nodes in ${NODES:-1 2 3 4}; do
        for engine in hlrc scope lrc multicast msi hardware; do
            e=$((e + 1)) b=0
            for backbone in "--backbone shm" "--faults $faults"; do
                b=$((1 - b))
                # Who names the number of nodes has few combinations.
                [ -n "${NODES:-}" ] || is_wanted "$e" "$nodes" "$b" || continue
                # shellcheck disable=SC2086 # an option and its value
                run -n "$nodes" --engine "$engine" $backbone "$work/$name" "${@//@/$nodes}"
                if [ "$ended" != 0 ] || ! grep -q '^ok$' <<<"$printed"; then
                    failed "$name with -n $nodes --engine $engine $backbone (status $ended)"
                    show
                    wrong=1
                fi
            done
        done
    done
    [ "$wrong" = 0 ] &&
        passed "$name${*:+ $*} on ${NODES:-1 2 3 4} nodes, each engine, with faults and over shared memory"
}

# over_each_backbone NAME: the program says `ok` on three nodes, over a good network, and over shared memory with the
# engine that a program gets there, and with a protocol.
over_each_backbone() {
    local backbone wrong=0
    for backbone in shm "shm --engine hlrc" udp; do
        # shellcheck disable=SC2086 # a backbone and perhaps an engine
        run -n 3 --backbone $backbone "$work/$1"
        if [ "$ended" != 0 ] || ! grep -q '^ok$' <<<"$printed"; then
            failed "$1 with -n 3 --backbone $backbone (status $ended)"
            show
            wrong=1
        fi
    done
    [ "$wrong" = 0 ] && passed "$1 over each backbone"
}

# with_two_workers NAME ARGUMENT…: the same with -t 2, where a worker is a process: twice as many of them, on each
# number of nodes, under each engine. `@` in an argument is the number of processes.
with_two_workers() {
    local name=$1 choice nodes engine backbone wrong=0
    shift
    run -n 3 -t 2 --dry-run "$work/$name"
    if ! grep -q '(this host, 6 nodes)' <<<"$printed"; then
        failed "$name with -n 3 -t 2 is not six processes"
        show
        wrong=1
    fi
    for choice in "1 hlrc shm" "2 scope udp" "3 msi shm" "4 hlrc udp" "4 scope shm" "3 hardware shm"; do
        read -r nodes engine backbone <<<"$choice"
        run -n "$nodes" -t 2 --engine "$engine" --backbone "$backbone" "$work/$name" "${@//@/$((2 * nodes))}"
        if [ "$ended" != 0 ] || ! grep -q '^ok$' <<<"$printed"; then
            failed "$name with -n $nodes -t 2 --engine $engine --backbone $backbone (status $ended)"
            show
            wrong=1
        fi
    done
    [ "$wrong" = 0 ] && passed "$name on 1 to 4 nodes with two workers each, which are processes"
}

# refuses WHAT SENTENCE OPTION… PROGRAM ARGUMENT…: the run fails, and says why.
refuses() {
    local what=$1 sentence=$2
    shift 2
    run "$@"
    if [ "$ended" != 0 ] && grep -qE "comem: .*$sentence" <<<"$printed"; then
        passed "$what is refused"
    else
        failed "$what should be refused with \"$sentence\" (status $ended)"
        show
    fi
}

# runs_under ENGINE WHAT OPTION… PROGRAM: by the report of the run. Under `hardware` nothing was noticed or fetched.
runs_under() {
    local engine=$1 what=$2 counters="read_faults|write_faults|signals|page_requests|diffs_sent|write_notices"
    shift 2
    run -n 2 --stats "$work/stats.json" "$@"
    printed=$("$bin/comem" report "$work/stats.json" 2>&1)
    if [ "$engine" = hardware ] && grep -qE "\"($counters)\": [1-9]" "$work/stats.json"; then
        failed "$what has faults, requests or diffs under hardware"
        show
    elif [ "$ended" = 0 ] && grep -q "pages $engine" <<<"$printed"; then
        passed "$what runs under $engine"
    else
        failed "$what does not run under $engine (status $ended)"
        show
    fi
}
