#!/usr/bin/env bash
# Slurm's own daemons, started on this machine for this test alone, run one job of Comem in each of its ways: an
# ordinary program by PMIx, and any program by comem exec.
#
#     tests/slurm.sh [BIN_DIR]
#
# Where slurmctld, slurmd, srun or the right to start them is missing it says SKIP.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-${COMEM_BIN:-target/debug}}")

skip() {
    echo "SKIP: Slurm: $1"
    exit 0
}
# Debian's packages have links of these names, which the system's alternatives make.
find_one() { command -v "$1" || command -v "$1-wlm" || ls "/usr/sbin/$1" "/usr/sbin/$1-wlm" 2>/dev/null | head -n 1; }
slurmctld=$(find_one slurmctld)
slurmd=$(find_one slurmd)
for tool in "$slurmctld" "$slurmd" "$(command -v srun)"; do
    [ -n "$tool" ] || skip "its daemons and srun are missing; sudo apt-get install slurm-wlm slurm-wlm-basic-plugins"
done
[ "$(id -u)" = 0 ] || skip "its daemons need root here"
if [ ! -e "$bin/libcomem.so" ] || [ ! -x "$bin/comem" ]; then
    echo "not ok - Slurm: there is no $bin/libcomem.so or $bin/comem; build them first: make build"
    exit 1
fi

work=$(mktemp -d)
daemons=()
finish() {
    for pid in ${daemons[@]+"${daemons[@]}"}; do kill "$pid" 2>/dev/null; done
    for pid in ${daemons[@]+"${daemons[@]}"}; do wait "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap finish EXIT

# Two ports that nobody has.
ports=$(python3 -c 'import socket
a, b = socket.socket(), socket.socket()
a.bind(("127.0.0.1", 0)); b.bind(("127.0.0.1", 0))
print(a.getsockname()[1], b.getsockname()[1])') || skip "there is no python3 to find free ports"
read -r controller_port node_port <<<"$ports"
host=$(hostname -s)
mkdir "$work/state" "$work/spool"
cat >"$work/slurm.conf" <<END
ClusterName=comem
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldPort=$controller_port
SlurmdPort=$node_port
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$work/slurm.conf
cat >"$work/prog.c" <<'END'
#include <comem.h>
#include <stdio.h>

int main(void) {
    comem_array_i64 sum;
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 3;
    sum = comem_new_i64(1, NULL);
    comem_lock(1);
    comem_write_i64(sum, 0, comem_read_i64(sum, 0) + 1);
    comem_unlock(1);
    comem_barrier();
    printf("node %d of %d: %d\n", comem_node(), comem_nodes(), (int)comem_read_i64(sum, 0));
    return comem_finish();
}
END
cc -std=c99 -Iinclude "$work/prog.c" -o "$work/prog" "$bin/libcomem.so" "-Wl,-rpath,$bin" || exit 1

"$slurmctld" -D >"$work/slurmctld.log" 2>&1 &
daemons+=($!)
"$slurmd" -D >"$work/slurmd.log" 2>&1 &
daemons+=($!)
idle() { [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; }
for _ in $(seq 300); do
    idle && break
    sleep 0.2
done
idle || skip "its daemons do not start here: $(tail -qn 2 "$work/slurmctld.log" "$work/slurmd.log" | tr '\n' ' ')"

failed=0
# check NAME COMMAND...: three tasks are the three nodes of one job.
check() {
    local name=$1
    shift
    timeout 120 "$@" >"$work/out" 2>"$work/err"
    local status=$?
    if [ "$status" = 0 ] && [ "$(sort "$work/out")" = "$(printf 'node %d of 3: 3\n' 0 1 2)" ]; then
        echo "ok - Slurm: $name"
    else
        echo "not ok - Slurm: $name (status $status)"
        cat "$work/out" "$work/err"
        tail -n 5 "$work/slurmd.log"
        failed=1
    fi
}

tasks=(srun -n 3 --overcommit)
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep '^COMEM_')
export COMEM_RUNTIME_DIR=$work/run
check "tasks of srun are one job by comem exec" "${tasks[@]}" "$bin/comem" exec "$work/prog"
# Debian's plug-in looks for the library by the name that its package for development gives it.
if why=$(timeout 60 srun -n 1 --mpi=pmix true 2>&1); then
    check "an ordinary program is one job by PMIx" "${tasks[@]}" --mpi=pmix "$work/prog"
else
    echo "SKIP: Slurm: it starts nothing by PMIx; sudo apt-get install libpmix-dev: $(head -n 1 <<<"$why")"
fi
exit "$failed"
