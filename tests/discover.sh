#!/usr/bin/env bash
# Hosts made of network namespaces, joined by a bridge: the same program, started by hand on each with
# COMEM_DISCOVER=on, finds itself a job, with a key file that all have. Nobody tells anybody an address: the first
# becomes node zero and the others hear of it.
#
#     tests/discover.sh [WORKLOADS_DIR]
#
# Takes a quarter of a minute, and never more than four minutes. Where namespaces are not allowed it says SKIP; with
# CI=true it fails then.
set -uo pipefail
root=$(realpath "$(dirname "$0")/..")
workloads=$(realpath "${1:-${COMEM_WORKLOADS:-$root/out/test}}")
# shellcheck source=tests/hosts/lib.sh
. "$root/tests/hosts/lib.sh"
for program in "$workloads/sea" "$workloads/sea-seq" "$workloads/barrier-test"; do
    if [ ! -x "$program" ]; then
        echo "not ok - discover: there is no $program; build it first: make build"
        exit 1
    fi
done
enter_namespaces discover 240 "$root/tests/discover.sh" "$workloads"

sea=$workloads/sea
size=(--rows 130 --columns 128 --iterations 30)
hosts=(alder birch cedar elm)

# start HOST PROGRAM ARGUMENTS…: by hand, one of three, in the background. `auth` is how each is told to trust the
# others.
declare -A process
auth=(COMEM_KEY_FILE="$work/key")
start() {
    local host=$1
    shift
    on "$host" env COMEM_DISCOVER=on COMEM_NODES=3 COMEM_VERBOSE=on "${auth[@]}" timeout --kill-after=3 60 "$@" \
        >"$work/$host/out" 2>"$work/$host/err" &
    process[$host]=$!
}

# ended HOST: waits for what was started there; its status is in `status`.
ended() {
    wait "${process[$1]}"
    status=$?
}

checksum() { grep -ho 'checksum=[0-9a-f]*' "$@" | sort -u; }

three_find_each_other() {
    local host
    for host in alder birch cedar; do start "$host" "$sea" "${size[@]}"; done
    for host in alder birch cedar; do
        ended "$host"
        verdict "$status" "three of three: $host ends well (status $status)" "$work/$host/err" "$work/$host/out"
    done
    [ "$(checksum "$work"/{alder,birch,cedar}/out)" = "$expected" ]
    verdict $? "three of three: the answer is that of the sequential program" "$work"/{alder,birch,cedar}/{out,err}
    # Three jobs of one node would give the same answer: one job has one that speaks for it, with three threads.
    [ "$(cat "$work"/{alder,birch,cedar}/out | grep -c 'threads=3 ')" = 1 ]
    verdict $? "three of three: it was one job of three nodes" "$work"/{alder,birch,cedar}/out
}

# With five calls that nobody answers the first becomes node zero, and calls the others in itself.
the_first_becomes_zero() {
    local host
    start alder "$workloads/barrier-test" --barriers 20
    within 30 calls_in alder
    verdict $? "one after the other: alone on the network, alder calls others in" "$work/alder/err"
    for host in birch cedar; do start "$host" "$workloads/barrier-test" --barriers 20; done
    for host in alder birch cedar; do
        ended "$host"
        verdict "$status" "one after the other: $host ends well (status $status)" "$work/$host/err" "$work/$host/out"
    done
    grep -q ' ok$' "$work/alder/out"
    verdict $? "one after the other: alder, the first, is node zero" "$work"/{alder,birch,cedar}/out
}

# calls_in HOST: whether it has sent more than the five calls of one that looks for others.
calls_in() { [ "$(on "$1" awk '$1 == "Udp:" && $5 ~ /[0-9]/ { print $5 }' /proc/net/snmp)" -gt 6 ]; }

two_are_too_few() {
    local host
    for host in alder birch; do start "$host" "$sea" "${size[@]}"; done
    for host in alder birch; do
        ended "$host"
        [ "$status" = 3 ]
        verdict $? "two of three: $host cannot start (status $status)" "$work/$host/err"
    done
    grep -q "2 of 3 nodes came" "$work/alder/err" "$work/birch/err"
    verdict $? "two of three: the error says how many came" "$work"/{alder,birch}/err
}

a_fourth_is_not_needed() {
    local host surplus=0 spoke
    for host in "${hosts[@]}"; do start "$host" "$workloads/barrier-test" --barriers 2000; done
    for host in "${hosts[@]}"; do
        ended "$host"
        verdict "$status" "four for three: $host ends with status 0 (status $status)" "$work/$host/err" \
            "$work/$host/out"
        if grep -q "not needed" "$work/$host/err"; then surplus=$((surplus + 1)); fi
    done
    [ "$surplus" = 1 ]
    verdict $? "four for three: one says that it is not needed (found: $surplus)" "$work"/*/err
    spoke=$(cat "$work"/*/out | grep -c ' ok$')
    [ "$spoke" = 1 ]
    verdict $? "four for three: the others were one job (found: $spoke)" "$work"/*/out
}

without_a_key_they_refuse_unless_told_to_trust() {
    local host auth=(HOME=/nowhere)
    start alder "$workloads/barrier-test" --barriers 20
    ended alder
    [ "$status" = 3 ] && grep -q "COMEM_KEY_FILE" "$work/alder/err" && grep -q "COMEM_AUTH=off" "$work/alder/err"
    verdict $? "without a key: a node refuses and says what to do (status $status)" "$work/alder/err"
    auth=(HOME=/nowhere COMEM_AUTH=off)
    for host in alder birch cedar; do start "$host" "$workloads/barrier-test" --barriers 20; done
    for host in alder birch cedar; do
        ended "$host"
        [ "$status" = 0 ] && grep -q "COMEM_AUTH is off" "$work/$host/err"
        verdict $? "with COMEM_AUTH=off: $host ends well and warns (status $status)" "$work/$host/err"
    done
}

expected=$(checksum <("$workloads/sea-seq" "${size[@]}"))
number=0
for host in "${hosts[@]}"; do make_host "$host" "10.77.1.$((++number))"; done
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/key")
remember_processes
the_first_becomes_zero
three_find_each_other
two_are_too_few
a_fourth_is_not_needed
without_a_key_they_refuse_unless_told_to_trust
check_nothing_left "in the end"
finish discover
