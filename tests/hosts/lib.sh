# Hosts for tests, made of namespaces; sourced by hosts.sh and discover.sh.
#
# The test runs itself again in namespaces of its own (`enter_namespaces`), with a bridge in them. A host (`make_host`)
# is one process, hosts/host.sh, that is the first of its own namespaces: network, process numbers, host name, mounts.
# So nothing of the machine's own network is ever touched, and when the test ends, in whatever way, the kernel ends
# every process and takes away every device. All hosts see the same files; the work directory is `$work`.

hosts_dir=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
export PATH="$PATH:/usr/sbin:/sbin"

declare -A anchor address
passed=0 failed=0 skipped=0

# ---- reports
# ----------------------------------------------------------------------------------------------------------

ok() {
    passed=$((passed + 1))
    echo "ok $((passed + failed + skipped)) - $*"
}

# not_ok WHAT [FILE…]: a failure, with the end of the files that explain it.
not_ok() {
    local what=$1 file
    shift
    failed=$((failed + 1))
    echo "not ok $((passed + failed + skipped)) - $what"
    for file in "$@"; do
        [ -s "$file" ] && tail -n 15 "$file" | sed "s/^/#   ${file##*/}: /"
    done
}

# skip WHAT WHY: visible; in CI a failure, for there everything must be tested.
skip() {
    if [ "${CI:-}" = true ]; then
        not_ok "$1: $2, and in CI this is never skipped"
        return
    fi
    skipped=$((skipped + 1))
    echo "ok $((passed + failed + skipped)) - $1 # SKIP $2"
}

# verdict STATUS WHAT [FILE…]
verdict() {
    local status=$1
    shift
    if [ "$status" = 0 ]; then ok "$1"; else not_ok "$@"; fi
}

# finish NAME: the closing line, and the script's end.
finish() {
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}

# Why nothing can be tested here: a failure in CI, and a visible skip elsewhere.
cannot_test() {
    if [ "${CI:-}" = true ]; then
        echo "not ok 1 - $1 (in CI this test is never skipped)"
        exit 1
    fi
    echo "SKIP: $1"
    exit 0
}

# ---- namespaces
# -------------------------------------------------------------------------------------------------------

# What it takes to make all the namespaces: nothing for root; others need one in which they are root.
namespace_flags() {
    local kind
    for kind in "" "--user --map-root-user"; do
        # shellcheck disable=SC2086 # several words
        if unshare $kind --net --mount --pid --uts --fork --kill-child --mount-proc sh -c \
            'ip link add probe type bridge && ip link add probe-a type veth peer name probe-b &&
             mount -t tmpfs tmpfs /mnt && unshare --net --mount --pid --fork --mount-proc true' 2>/dev/null; then
            echo "unshare $kind --net --mount --pid --fork --kill-child --mount-proc"
            return 0
        fi
    done
    return 1
}

# enter_namespaces NAME SECONDS SCRIPT ARGUMENTS…: the first call runs SCRIPT again inside and ends with its status; the
# second one, inside, returns.
enter_namespaces() {
    local name=$1 seconds=$2 tool unshare status
    shift 2
    if [ -n "${COMEM_TEST_WORK:-}" ]; then
        work=$COMEM_TEST_WORK
        unset "${!COMEM_@}"
        # The first process of a namespace gets no signal that it does not ask for.
        trap 'exit 143' TERM INT HUP
        ip link set lo up
        ip link add bridge type bridge
        ip link set bridge up
        return
    fi
    for tool in ip unshare nsenter setpriv timeout; do
        command -v "$tool" >/dev/null ||
            cannot_test "$name: there is no \`$tool\` (Debian: iproute2, util-linux, coreutils)"
    done
    unshare=$(namespace_flags) || cannot_test "$name: network namespaces cannot be made here; run it as root"
    work=$(mktemp -d "${TMPDIR:-/tmp}/comem-$name.XXXXXX")
    # shellcheck disable=SC2064 # its value now
    trap "rm -rf '$work'" EXIT
    # In the background, because a trap waits for what runs in the foreground.
    # shellcheck disable=SC2086 # several words
    COMEM_TEST_WORK=$work setpriv --pdeathsig KILL timeout --kill-after=3 "$seconds" \
        setpriv --pdeathsig KILL $unshare "$@" </dev/null &
    # shellcheck disable=SC2064 # its value now
    trap "kill $! && wait $!; exit 143" TERM INT HUP
    wait $!
    status=$?
    if [ "$status" = 124 ] || [ "$status" = 137 ] || [ "$status" = 143 ]; then
        echo "not ok - $name: took longer than $seconds s, or was ended (status $status)"
    fi
    exit "$status"
}

# make_host NAME ADDRESS: a host on the bridge. Its files are in $work/NAME.
make_host() {
    local name=$1 launcher
    address[$name]=$2
    mkdir -m 700 "$work/$name"
    mkfifo "$work/$name/up"
    unshare --net --mount --uts --pid --fork --kill-child --mount-proc "$hosts_dir/host.sh" "$name" "$work" \
        >"$work/$name/log" 2>&1 &
    launcher=$!
    # Opened for both, so that a host that never comes up ends the wait.
    if ! read -rt 10 <>"$work/$name/up"; then
        not_ok "host $name comes up" "$work/$name/log"
        finish hosts
    fi
    read -r "anchor[$name]" <"/proc/$launcher/task/$launcher/children"
    ip link add "to-$name" mtu 1500 type veth peer name eth0 mtu 1500 netns "${anchor[$name]}"
    ip link set "to-$name" master bridge up
    on "$name" ip address add "$2/24" dev eth0
    on "$name" ip link set eth0 up
}

# on HOST COMMAND…: runs a command there, in the work directory.
on() {
    local host=$1
    shift
    nsenter --target "${anchor[$host]}" --net --mount --uts --pid -- env -C "$work" "$@"
}

# ---- processes
# --------------------------------------------------------------------------------------------------------

# processes HOST: what runs there: `pid` in this script's numbers and `command`, a line each.
processes() {
    local space one
    space=$(readlink "/proc/${anchor[$1]}/ns/pid")
    for one in /proc/[0-9]*; do
        if [ "$(readlink "$one/ns/pid" 2>/dev/null)" = "$space" ] &&
            [ -n "$(tr -d '\0' <"$one/cmdline" 2>/dev/null)" ]; then
            echo "${one#/proc/} $(tr '\0' ' ' <"$one/cmdline" 2>/dev/null)"
        fi
    done
}

all_processes() {
    local host
    for host in "${!anchor[@]}"; do processes "$host" | sed "s/^/$host: /"; done | sort
}

# node_on HOST PROGRAM: the process of a program there, in this script's numbers.
node_on() { processes "$1" | awk -v program="$2" '$2 == program { print $1; exit }'; }

# within SECONDS COMMAND…: waits until a command succeeds. For what nobody tells: a foreign process, a line in a file.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -le "$end" ] || return 1
        sleep 0.02
    done
}

# What ran before a job; afterwards the same and nothing else must run.
remember_processes() { all_processes >"$work/before"; }
nothing_else_runs() { all_processes | diff "$work/before" - >"$work/left"; }
# check_nothing_left WHAT [SECONDS]
check_nothing_left() {
    within "${2:-3}" nothing_else_runs
    verdict $? "$1: no process is left" "$work/left"
}
