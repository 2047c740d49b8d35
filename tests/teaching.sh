#!/usr/bin/env bash
# What docs/teaching.md shows a class: the programs of examples/teaching under each engine, what the report says of
# false sharing, and every command of the simulator that stands on the page.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${COMEM_BIN:-target/debug}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

verdict() {
    local result=$1
    shift
    echo "$result: $*"
    [ "$result" = FAILED ] && status=1
}

for program in store_buffering false_sharing; do
    if ! ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -Iinclude "examples/teaching/$program.c" -o "$work/$program" \
        "$bin/libcomem.so" \
        "-Wl,-rpath,$bin"; then
        verdict FAILED "$program.c does not compile"
        exit 1
    fi
done

# nobody WANTED COMEM-FLAGS…: in how many rounds of store buffering both saw nobody: none, or some.
nobody() {
    local wanted=$1 printed count
    shift
    printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix "$@" "$work/store_buffering" 2>&1)
    count=$(sed -n 's/^in \([0-9]*\) of 200 rounds both saw nobody$/\1/p' <<<"$printed")
    case "$wanted:${count:-?}" in
    none:0 | some:[1-9]*) verdict ok "store buffering with $*: $wanted (in $count of 200 rounds)" ;;
    *) verdict FAILED "store buffering with $*: wanted $wanted: $printed" ;;
    esac
}
nobody none -n 2 --engine msi
nobody none -n 1 -t 2
nobody some -n 2 --engine hlrc
nobody some -n 2 --engine scope

# The same program with checks in its code, which wants LLVM.
if ! { command -v "${COMEM_CLANG:-clang-19}" && command -v llvm-config-19; } >/dev/null; then
    echo "SKIP: store buffering with checks in the code: there is no clang-19 with llvm-config-19;" \
        "sudo apt-get install clang-19 llvm-19-dev"
elif ! make --no-print-directory --silent -C compiler ||
    ! "$bin/comem-cc" --inline -std=c11 -O2 -Wall -Wextra -Werror examples/teaching/store_buffering.c \
        -o "$work/store_buffering"; then
    verdict FAILED "store_buffering.c does not compile with comem-cc --inline"
else
    nobody none -n 2 --engine direct
    nobody none -n 2 --engine direct --backbone udp
    nobody none -n 2 --detector inline --engine msi
fi

# shares WANTED HOW ENGINE NODES ARGUMENTS…: whether the report finds a page that all nodes write.
shares() {
    local wanted=$1 how=$2 engine=$3 nodes=$4 printed found=no
    shift 4
    if ! printed=$(timeout --kill-after=10 120 "$bin/comem" run --no-prefix -n "$nodes" --engine "$engine" \
        --stats "$work/run.json" "$work/false_sharing" "$@" 2>&1) ||
        [[ $printed != *": $((nodes * 2000)) counted" ]]; then
        verdict FAILED "false sharing, $how, under $engine: $printed"
        return
    fi
    printed=$("$bin/comem" report "$work/run.json" | sed -n '/^false sharing/,$p')
    grep -qE " $(seq -s ' ' 0 $((nodes - 1)))\$" <<<"$printed" && found=yes
    if [ "$found" = "$wanted" ]; then
        verdict ok "false sharing, $how, under $engine on $nodes nodes: found: $found"
    else
        verdict FAILED "false sharing, $how, under $engine: found: $found; wanted: $wanted; $printed"
    fi
}
# Of its own writes a home under hlrc knows the page alone: two others must write too.
for setup in "msi 2" "msi 3" "hlrc 3"; do
    # shellcheck disable=SC2086 # an engine and a number of nodes
    shares yes "one page" $setup
    # shellcheck disable=SC2086
    shares no "a page each" $setup apart
done

# The commands of the page. Where an outcome is chosen, the run must end in it.
while read -r command; do
    if printed=$(cd "$work" && PATH="$bin:$PATH" timeout --kill-after=10 300 bash -c "$command" 2>&1) &&
        [ -n "$printed" ]; then
        verdict ok "$command"
    else
        verdict FAILED "$command: $printed"
    fi
done < <(grep -oE '`comem-sim --litmus [^`]*`|^comem-sim --litmus .*$' docs/teaching.md | tr -d '`' | sort -u)
exit "$status"
