#!/usr/bin/env bash
# host.sh NAME WORK: the first process of a host that is made of namespaces. Sets the host up, says so through the pipe
# WORK/NAME/up, and stays; as the first process it also inherits, and reaps, what others leave behind.
set -euo pipefail
name=$1 work=$2

hostname "$name"
ip link set lo up
# A host has its own service directory and its own idea of names and accounts; the machine's files stay as they are.
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
if [ -f "$work/names" ]; then mount --bind "$work/names" /etc/hosts; fi
if [ -f "$work/shadow" ]; then mount --bind "$work/shadow" /etc/shadow; fi

trap 'exit 0' TERM
echo up >"$work/$name/up"
while :; do
    sleep infinity &
    wait $! || true
done
