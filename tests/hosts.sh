#!/usr/bin/env bash
# Four hosts, made of network namespaces and joined by a bridge, run sea together: started by daemons and by ssh, with 2
# % of all datagrams lost. The answer must be that of the sequential program, the datagrams authenticated, strangers
# refused, and a node's death the end of all, as is a way that takes too short packets, or a cut between any two hosts.
#
#     tests/hosts.sh [BIN_DIR [WORKLOADS_DIR]]
#
# Takes a minute, and never more than 400 s, however busy the machine is. Where namespaces are not allowed it says SKIP;
# with CI=true it fails then.
set -uo pipefail
root=$(realpath "$(dirname "$0")/..")
bin=$(realpath "${1:-${COMEM_BIN:-$root/target/debug}}")
workloads=$(realpath "${2:-${COMEM_WORKLOADS:-$root/out/test}}")
# shellcheck source=tests/hosts/lib.sh
. "$root/tests/hosts/lib.sh"
for program in "$bin/comem" "$workloads/"{sea,sea-seq,ilink,ilink-sequential,barnes,barnes-sequential}; do
    if [ ! -x "$program" ]; then
        echo "not ok - hosts: there is no $program; build it first: make build"
        exit 1
    fi
done
enter_namespaces hosts 400 "$root/tests/hosts.sh" "$bin" "$workloads"

comem=$bin/comem
sea=$work/programs/sea
size=(--rows 130 --columns 128 --iterations 30)
long=(--rows 130 --columns 128 --iterations 10000000)
hosts=(alder birch cedar elm)
by_address=10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4
faults=(--faults "drop=2%,seed=5")
ssh_port=2222

# ---- setting up
# -------------------------------------------------------------------------------------------------------

set_up_hosts() {
    local host number=0
    mkdir -m 755 "$work/programs" "$work/elsewhere"
    cp "$workloads/sea" "$work/programs/"
    cp "$workloads/sea" "$work/elsewhere/"
    {
        echo "127.0.0.1 localhost"
        for host in "${hosts[@]}"; do echo "10.77.0.$((++number)) $host"; done
    } >"$work/names"
    # An account without a password, so that a key lets in even where the machine's own root account is locked.
    (umask 077 && echo "root:*:19000:0:99999:7:::" >"$work/shadow")
    number=0
    for host in "${hosts[@]}"; do make_host "$host" "10.77.0.$((++number))"; done
}

start_daemons() {
    local host
    "$comem" daemon make-key "$work/key"
    "$comem" daemon make-key "$work/other-key"
    for host in "${hosts[@]}"; do
        on "$host" env COMEM_RUNTIME_DIR="$work/$host/meet" "$comem" daemon -v --bind "${address[$host]}" \
            --key-file "$work/key" --allow "$work/programs" >"$work/$host/daemon" 2>&1 &
    done
    for host in "${hosts[@]}"; do
        within 30 grep -q listening "$work/$host/daemon"
        verdict $? "$host: the daemon listens" "$work/$host/daemon"
    done
}

# from_first COMEM-ARGUMENTS…: runs comem on the first host, for a bounded time; what it prints is in $work/out and
# $work/err.
from_first() {
    on alder env COMEM_RUNTIME_DIR="$work/alder/meet" ${rsh:+"COMEM_RSH=$rsh"} \
        timeout --kill-after=3 60 "$comem" "$@" >"$work/out" 2>"$work/err"
}
by_daemon() { from_first run --launch daemon --key-file "$work/key" --hosts "$by_address" "$@"; }

# ---- checks
# -----------------------------------------------------------------------------------------------------------

checksum() { grep -o 'checksum=[0-9a-f]*' "$1" | head -n 1; }
# How many nodes say in the statistics that they authenticate; the job's own line does not count.
authenticated() { sed -n '/^  "nodes": \[/,/^  \]/p' "$work/stats" | grep -c '"auth": true'; }

# The engines of pages that the statistics name.
page_engines() { grep -o '"page_engine": "[a-z]*"' "$work/stats" | grep -o '[a-z]*"$' | tr -d '"' | sort -u | xargs; }

# is WHAT FOUND WANTED
is() {
    [ "$2" = "$3" ]
    verdict $? "$1 (found: $2; wanted: $3)" "$work/out" "$work/err"
}

# check_job WHAT STATUS: after a job on four hosts: right, authenticated, tried by losses, gone.
check_job() {
    local what=$1
    is "$what: ends well" "$2" 0
    is "$what: the answer is that of the sequential program" "$(checksum "$work/out")" "$expected"
    is "$what: every node authenticates its datagrams" "$(authenticated)" 4
    is "$what: each node was on a host of its own" \
        "$(grep -o '"hostname": "[a-z]*"' "$work/stats" | sort -u | wc -l)" 4
    [ "$(sed -n '/"totals"/,$ s/.*"retransmissions": \([0-9]*\).*/\1/p' "$work/stats")" -gt 0 ] 2>/dev/null
    verdict $? "$what: datagrams were lost and sent again" "$work/stats"
    check_nothing_left "$what"
}

daemons_run_sea() {
    remember_processes
    by_daemon -n 4 "${faults[@]}" --stats "$work/stats" -- "$sea" "${size[@]}"
    check_job "by daemons" $?
    is "by daemons: pages have a protocol between hosts" "$(page_engines)" hlrc
    by_daemon -n 4 --auth off --stats "$work/stats" -- "$sea" "${size[@]}"
    is "with --auth off: ends well" $? 0
    is "with --auth off: no node authenticates" "$(authenticated)" 0
}

# The launcher does not know what its nodes find there.
all_nodes_on_one_other_host() {
    local there=(run --launch daemon --key-file "$work/key" --hosts 10.77.0.2:2 --stats "$work/stats")
    remember_processes
    from_first "${there[@]}" -- "$sea" "${size[@]}"
    is "on one other host: ends well" $? 0
    is "on one other host: all nodes map one memory" "$(page_engines)" hardware
    from_first "${there[@]}" --rehearse -- "$sea" "${size[@]}"
    is "a rehearsal on one other host: ends well" $? 0
    is "a rehearsal on one other host: pages have a protocol" "$(page_engines)" hlrc
    check_nothing_left "on one other host"
}

# As through a VPN: the first host's kernel knows that the way to the second takes less than the interface.
a_way_takes_short_packets() {
    # Rows that fill packets.
    local wide=(--rows 34 --columns 2048 --iterations 5)
    remember_processes
    on alder ip route add 10.77.0.2/32 dev eth0 mtu 1400
    by_daemon -n 4 -- "$sea" "${wide[@]}"
    is "a way for short packets: the job ends" $? 6
    grep -q "cannot send to 10.77.0.2: .* start the job with --mtu 1400" "$work/err"
    verdict $? "a way for short packets: the sentence says what fits" "$work/err"
    by_daemon -n 4 --mtu 1400 -- "$sea" "${wide[@]}"
    is "a way for short packets, with --mtu: ends well" $? 0
    is "a way for short packets, with --mtu: the answer" "$(checksum "$work/out")" \
        "$(checksum <("$workloads/sea-seq" "${wide[@]}"))"
    on alder ip route delete 10.77.0.2/32 dev eth0
    check_nothing_left "a way for short packets"
}

# What joins the hosts drops long datagrams without a word, as some tunnels do; TCP is told what fits.
a_tunnel_drops_long_packets() {
    local host job
    # Rows that fill packets.
    local wide=(--rows 34 --columns 2048 --iterations 5)
    remember_processes
    for host in "${hosts[@]}"; do
        ip link set "to-$host" mtu 1400
        # Cut before it leaves the host, as behind any cable.
        on "$host" ip link set eth0 gso_max_segs 1
        on "$host" ip route replace 10.77.0.0/24 dev eth0 src "${address[$host]}" advmss 1360
    done
    by_daemon -n 4 -- "$sea" "${wide[@]}" &
    job=$!
    within 40 grep -q "packets of 1500 bytes to .* and back are lost, short ones get through: .* smaller --mtu" \
        "$work/err"
    verdict $? "a tunnel drops long packets: the job says so" "$work/err"
    wait "$job"
    is "a tunnel drops long packets: the job ends" $? 4
    grep -qE "node [0-9]+ \(host .*\) and node [0-9]+ \(host .*\) reach each other by short packets only" "$work/err"
    verdict $? "a tunnel drops long packets: a sentence names two nodes" "$work/err"
    by_daemon -n 4 --mtu 1400 -- "$sea" "${wide[@]}"
    is "a tunnel drops long packets, with --mtu: ends well" $? 0
    for host in "${hosts[@]}"; do
        ip link set "to-$host" mtu 1500
        on "$host" ip link set eth0 gso_max_segs 65535
        on "$host" ip route replace 10.77.0.0/24 dev eth0 src "${address[$host]}"
    done
    check_nothing_left "a tunnel drops long packets"
}

# nobody_at HOST OTHER: what HOST sends to OTHER goes to a network card that nobody has. The other way is as it was.
nobody_at() { on "$1" ip neigh replace "${address[$2]}" lladdr 02:00:00:00:00:99 dev eth0 nud permanent; }
somebody_at() { on "$1" ip neigh delete "${address[$2]}" dev eth0; }

# is_over WHAT MILLISECONDS: the long job ends with status 4 in time.
is_over() {
    local what=$1 limit=$2 since=$EPOCHREALTIME status took
    wait "$job"
    status=$?
    took=$(((${EPOCHREALTIME/./} - ${since/./}) / 1000))
    is "$what: the job's status" "$status" 4
    [ "$took" -le "$limit" ]
    verdict $? "$what: all ends within $limit ms (took $took ms)" "$work/err"
}

# names_pair WHAT MILLISECONDS A B: the long job ends with status 4 in time, and one sentence names both nodes.
names_pair() {
    is_over "$1" "$2"
    grep -qE "node $4 \(host [^)]*\) was silent for .* towards node $3 \(host " "$work/err"
    verdict $? "$1: a sentence names nodes $3 and $4" "$work/err"
}

# Two hosts do not reach each other, one way or both; each of them reaches all others, and so does the launcher.
two_hosts_are_parted() {
    local what
    for what in "both ways" "one way"; do
        start_long --node-timeout 3s
        nobody_at birch cedar
        [ "$what" = "one way" ] || nobody_at cedar birch
        names_pair "two hosts are parted $what" 9000 1 2
        somebody_at birch cedar
        [ "$what" = "one way" ] || somebody_at cedar birch
        check_nothing_left "two hosts are parted $what"
    done
    # No neighbours in the ring, and the launcher does not reach the other host either.
    start_long --node-timeout 3s
    nobody_at alder cedar
    nobody_at cedar alder
    names_pair "the launcher's host is parted from another" 6500 0 2
    somebody_at alder cedar
    somebody_at cedar alder
    check_nothing_left "the launcher's host is parted from another" 20
    # Alone: the launcher and its node hear of no other host, whose agents say nothing of their nodes' end either. All
    # is over within two seconds of the time-out; three are for a busy machine, and far from the eight that it took to
    # wait for each agent.
    start_long --node-timeout 3s
    ip link set to-alder down
    is_over "the launcher's host is cut off" 6500
    ip link set to-alder up
    check_nothing_left "the launcher's host is cut off" 20
    # For a second: the job goes on.
    start_long --node-timeout 10s
    nobody_at birch cedar
    sleep 1
    somebody_at birch cedar
    sent_before=()
    within 30 all_send 400
    verdict $? "two hosts are parted for a second: the job goes on" "$work/err"
    kill -INT "$(processes alder | awk -v comem="$comem" '$2 == comem && $3 == "run" { print $1; exit }')"
    wait "$job"
    check_nothing_left "two hosts are parted for a second"
}

# A route that takes nothing, which the system says of each packet.
a_route_drops_all() {
    start_long --node-timeout 3s
    on birch ip route add blackhole 10.77.0.3/32
    names_pair "a route drops all" 9000 1 2
    on birch ip route delete blackhole 10.77.0.3/32
    check_nothing_left "a route drops all"
}

# Without a launcher: node zero is told which network it is for, the other one where node zero is.
joined_by_hand() {
    local zero
    remember_processes
    on alder env COMEM_NODES=2 COMEM_IFACE=10.77.0.0/24 COMEM_KEY_FILE="$work/key" timeout 30 "$sea" \
        "${size[@]}" >"$work/out" 2>"$work/err" &
    zero=$!
    within 30 grep -q COMEM_JOIN "$work/err"
    # shellcheck disable=SC2046 # two variables
    on birch env $(grep -oE 'COMEM_(NODES|JOIN)=[0-9.:]*[0-9]' "$work/err") COMEM_KEY_FILE="$work/key" timeout 30 \
        "$sea" "${size[@]}" \
        >"$work/out1" 2>"$work/err1"
    verdict $? "joined by hand: the second ends well" "$work/out1" "$work/err1"
    wait "$zero"
    is "joined by hand: the first ends well" $? 0
    is "joined by hand: the answer" "$(checksum "$work/out")" "$expected"
    check_nothing_left "joined by hand"
}

daemons_refuse() {
    from_first run --launch daemon --key-file "$work/other-key" --hosts 10.77.0.2 -- "$sea" "${size[@]}"
    is "a wrong key: no answer" $? 7
    grep -q "wrong key" "$work/birch/daemon"
    verdict $? "a wrong key: the daemon says what it dropped" "$work/birch/daemon"
    from_first run --launch daemon --key-file "$work/key" --hosts 10.77.0.2 -- "$work/elsewhere/sea" "${size[@]}"
    is "a program outside the daemon's directories: refused" $? 8
    chmod 644 "$work/other-key"
    on birch timeout 10 "$comem" daemon --port 7758 --key-file "$work/other-key" --allow "$work/programs" \
        >"$work/out" 2>"$work/err"
    is "a key file that others can read: refused" $? 3
    is "strangers: nothing was started" "$(node_on birch "$sea")$(node_on birch "$work/elsewhere/sea")" ""
}

# start_long: a job that would take hours, in the background: returns when all its nodes exchange data.
start_long() {
    declare -gA sent_before=()
    remember_processes
    by_daemon -n 4 "$@" -- "$sea" "${long[@]}" &
    job=$!
    within 40 all_send 400
    verdict $? "a long job: its nodes compute" "$work/out" "$work/err"
}

# all_send NUMBER: whether each host has sent so many packets since this was asked first.
all_send() {
    local host sent
    for host in "${hosts[@]}"; do
        [ -n "$(node_on "$host" "$sea")" ] || return 1
        sent=$(awk -v device="to-$host:" '$1 == device { print $3 }' /proc/net/dev)
        : "${sent_before[$host]:=$sent}"
        [ $((sent - sent_before[$host])) -ge "$1" ] || return 1
    done
}

# ends_naming WHAT MILLISECONDS NODE COMMAND…: after the command the long job must end badly in time, and say who is to
# blame.
ends_naming() {
    local what=$1 limit=$2 node=$3 since=$EPOCHREALTIME status took
    shift 3
    "$@"
    wait "$job"
    status=$?
    took=$(((${EPOCHREALTIME/./} - ${since/./}) / 1000))
    [ "$status" != 0 ] && [ "$took" -le "$limit" ]
    verdict $? "$what: all ends within $limit ms (took $took ms, status $status)" "$work/err"
    local told="(\(host [^)]*, pid [0-9]+\)|has ended|was (silent|lost)).+"
    grep -qE "^comem: (node [0-9]+ \(host [^)]*, pid [0-9]+\): )?node $node $told" "$work/err"
    verdict $? "$what: a sentence names node $node" "$work/err"
}

# Milliseconds in which a death is told. Silence alone would tell after ten seconds. On a quiet machine two seconds are
# promised, and the tests of crates/runtime see to that.
soon=8000

a_node_dies() {
    start_long "${faults[@]}"
    ends_naming "a node is killed" "$soon" 2 kill -KILL "$(node_on cedar "$sea")"
    check_nothing_left "a node is killed"
}

# Nobody says that a host has gone: only its silence tells.
a_host_goes_silent() {
    start_long --node-timeout 3s
    ends_naming "a host's cable is pulled" 20000 3 ip link set to-elm down
    ip link set to-elm up
    check_nothing_left "a host's cable is pulled" 20
}

a_daemon_ends_a_job() {
    local id
    start_long
    ask_daemon list
    id=$(awk -v program="$sea" '$6 == program { print $2; exit }' "$work/answer")
    [ -n "$id" ]
    verdict $? "the daemon's list shows the job" "$work/answer"
    ends_naming "a daemon kills its part" "$soon" 1 ask_daemon kill "${id:-0}"
    check_nothing_left "a daemon kills its part"
}

ask_daemon() { on alder timeout 10 "$comem" daemon "$@" --host 10.77.0.2 --key-file "$work/key" >"$work/answer" 2>&1; }

the_launcher_dies() {
    start_long
    kill -KILL "$(processes alder | awk -v comem="$comem" '$2 == comem && $3 == "run" { print $1; exit }')"
    wait "$job"
    check_nothing_left "the launcher is killed"
}

# ---- ssh
# --------------------------------------------------------------------------------------------------------------

start_ssh_servers() {
    local host server
    server=$(command -v sshd)
    ssh-keygen -q -t ed25519 -N "" -f "$work/user-key"
    for host in "${hosts[@]}"; do
        ssh-keygen -q -t ed25519 -N "" -f "$work/$host/host-key"
        echo "[$host]:$ssh_port,[${address[$host]}]:$ssh_port $(cut -d' ' -f1,2 "$work/$host/host-key.pub")" \
            >>"$work/known-hosts"
        cat >"$work/$host/sshd_config" <<END
Port $ssh_port
ListenAddress ${address[$host]}
HostKey $work/$host/host-key
AuthorizedKeysFile $work/user-key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv COMEM_RUNTIME_DIR=$work/$host/meet
END
        on "$host" "$server" -D -e -f "$work/$host/sshd_config" >"$work/$host/sshd" 2>&1 &
    done
    cat >"$work/ssh_config" <<END
Host *
  User root
  Port $ssh_port
  IdentityFile $work/user-key
  IdentitiesOnly yes
  UserKnownHostsFile $work/known-hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
END
    for host in "${hosts[@]}"; do
        within 30 grep -q "Server listening" "$work/$host/sshd"
        verdict $? "$host: the ssh server listens" "$work/$host/sshd"
    done
}

ssh_runs_sea() {
    local rsh="ssh -F $work/ssh_config"
    remember_processes
    # By names: the first host is this very one, where no ssh is needed.
    from_first run --launch ssh --remote-comem "$comem" --hosts alder,birch,cedar,elm -n 4 "${faults[@]}" \
        --stats "$work/stats" -- "$sea" "${size[@]}"
    check_job "by ssh" $?
    from_first run --launch ssh --remote-comem /nowhere/comem --hosts birch -- "$sea" "${size[@]}"
    is "by ssh: a host without comem" $? 7
}

# A Python interpreter on one host starts workers on two others.
python_cluster_by_ssh() {
    local python=$root/out/python/venv/bin/python
    if ! "$python" -c 'import comem' 2>/dev/null; then
        # Python may be missing in CI too: make test says so where it would build the package.
        CI='' skip "a Python cluster by ssh" "there is no package comem in out/python/venv; make python"
        return
    fi
    remember_processes
    on alder env "COMEM_RSH=ssh -F $work/ssh_config" timeout --kill-after=3 30 "$python" -c '
import socket
import comem
import numpy as np
with comem.Cluster(hosts=["birch", "cedar:2"]) as c:
    a = c.zeros(300_000)
    a[:] = 2
    print(*c.run(socket.gethostname), *map(int, c.run(np.sum, a)))
' >"$work/out" 2>"$work/err"
    is "a Python cluster by ssh" "$(cat "$work/out")" "alder birch cedar cedar 600000 600000 600000 600000"
    check_nothing_left "a Python cluster by ssh"
}

# Diffs that are told to sets of nodes, two and four nodes on each host: by IP multicast, and where it is off.
sets_of_many_nodes() {
    local each nodes way wanted programs=(ilink barnes) program expected
    cp "$workloads/ilink" "$workloads/barnes" "$work/programs/"
    for each in 2 4; do
        nodes=$((4 * each))
        program=$work/programs/${programs[each / 2 - 1]}
        expected=$(checksum <("$workloads/${program##*/}-sequential" --preset tiny))
        for way in auto off; do
            remember_processes
            from_first run --launch daemon --key-file "$work/key" --hosts "${by_address//,/:$each,}:$each" \
                --engine multicast --multicast $way --stats "$work/stats" -- "$program" --preset tiny
            is "$nodes nodes under multicast, --multicast $way: ends well" $? 0
            is "$nodes nodes under multicast, --multicast $way: the answer is that of the sequential program" \
                "$(checksum "$work/out")" "$expected"
            wanted=ip
            [ $way = auto ] || wanted=off
            # What the job was told stands there once more.
            is "$nodes nodes under multicast, --multicast $way: how sets were told" \
                "$(sed -n '/^  "nodes": \[/,/^  \]/p' "$work/stats" | grep -c "\"multicast\": \"$wanted\"")" "$nodes"
            check_nothing_left "$nodes nodes under multicast, --multicast $way"
        done
    done
}

# Workers of PARMACS on other hosts, with copies of main's variables and with shared ones; and a program whose workers
# are processes, two on each host.
ssh_runs_workers() {
    local rsh="ssh -F $work/ssh_config" globals
    if ! "$bin/comem-cc" -O1 "$root/tests/compat/globals/workers.c" -o "$work/programs/workers" 2>"$work/err" ||
        ! "$bin/comem-cc" -O1 "$root/tests/compat/jia/anl.c" -o "$work/programs/jia" 2>>"$work/err"; then
        verdict 1 "programs of other interfaces are built" "$work/err"
        return
    fi
    remember_processes
    for globals in copy share; do
        from_first run --launch ssh --remote-comem "$comem" --hosts alder,birch,cedar,elm -n 4 --no-prefix \
            --globals $globals "${faults[@]}" -- "$work/programs/workers" $globals
        is "PARMACS workers by ssh, --globals $globals: ends well" $? 0
        is "PARMACS workers by ssh, --globals $globals: the answer" "$(cat "$work/out")" ok
    done
    from_first run --launch ssh --remote-comem "$comem" --hosts alder,birch -t 2 --no-prefix --stats "$work/stats" -- \
        "$work/programs/jia"
    is "a JIAJIA program by ssh with -t 2: ends well" $? 0
    is "a JIAJIA program by ssh with -t 2: the answer" "$(grep -c '^ok$' "$work/out")" 1
    is "a JIAJIA program by ssh with -t 2: two processes on each of two hosts" \
        "$(grep -o '"hostname": "[a-z]*"' "$work/stats" | sort -u | wc -l) $(grep -c '"node": [0-9]' "$work/stats")" \
        "2 4"
    check_nothing_left "workers by ssh"
}

# ---- the test
# ---------------------------------------------------------------------------------------------------------

expected=$(checksum <("$workloads/sea-seq" "${size[@]}"))
set_up_hosts
start_daemons
daemons_run_sea
all_nodes_on_one_other_host
sets_of_many_nodes
a_way_takes_short_packets
a_tunnel_drops_long_packets
two_hosts_are_parted
a_route_drops_all
joined_by_hand
daemons_refuse
a_node_dies
a_host_goes_silent
a_daemon_ends_a_job
the_launcher_dies
if ! command -v sshd >/dev/null || ! command -v ssh >/dev/null; then
    skip "sea by ssh" "there is no ssh server (Debian: openssh-server)"
elif ! on alder setpriv --clear-groups true 2>/dev/null; then
    skip "sea by ssh" "an ssh server needs a real root"
else
    start_ssh_servers
    ssh_runs_sea
    python_cluster_by_ssh
    ssh_runs_workers
fi
finish hosts
