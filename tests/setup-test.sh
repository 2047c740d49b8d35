#!/usr/bin/env bash
# What tests/setup.sh installs: what is missing, and nothing of which another make is there; where one package cannot be
# had, still the others. Run with commands that are made up.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

check() {
    if [ "$2" = "$3" ]; then
        echo "ok: $1"
    else
        echo "wanted: $3"
        echo "found:  $2"
        echo "FAILED: $1"
        status=1
    fi
}

# A machine with these commands. Installing writes down what was asked for; mpich's packages and gdbserver cannot be
# had.
machine() {
    local name
    rm -rf "$work/bin" "$work/asked"
    mkdir "$work/bin"
    : >"$work/asked"
    for name in bash env mktemp tail cat rm sed; do ln -s "$(command -v "$name")" "$work/bin/$name"; done
    fake id 'echo 0'
    fake cargo 'echo "cargo 1.99.0 (of tests)"'
    fake apt-get 'case "$*" in update) exit ;; esac
        shift 3; echo "$*" >>'"$work"'/asked; case "$*" in *gdbserver*) echo "E: no such package"; exit 100 ;; esac'
    for name in "$@"; do fake "$name" ':'; done
}
fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
# setup MODE: its status is in $ended, what it says in $said, and the packages asked for, one request after the other,
# in $asked.
setup() {
    said=$(env -u CI -u FORTRAN -u PYTHON PATH="$work/bin" bash tests/setup.sh "$@" 2>&1)
    ended=$?
    asked=$(paste -sd '|' "$work/asked")
}
everything=(cc c++ m4 ip mpirun mpicc gfortran ssh gdb gdbserver setpriv sshd slurmctld debootstrap lintian rustup
    pkg-config cmake clang-19 llvm-config-19 chromium)

machine "${everything[@]}"
setup test
check "where everything is, nothing is asked for" "$ended:$asked" "0:"
machine cc clang++ m4 ip mpiexec.hydra mpicc gfortran ssh gdb gdbserver setpriv sshd slurmctld-wlm debootstrap lintian \
    pkgconf cmake clang-19 llvm-config-19 google-chrome
setup test
check "another make's mpirun, C++ compiler and browser will do" "$ended:$asked" "0:"
machine cc
setup build
check "to build, C++ is not needed" "$ended:$asked" "0:"
machine cc c++ m4 ip mpicc gfortran ssh setpriv sshd slurmctld debootstrap lintian pkg-config cmake llvm-config-19 \
    chromium-browser
setup test
check "what cannot be had keeps nothing else from being installed" "$ended:$asked" \
    "0:openmpi-bin gdb gdbserver clang-19|openmpi-bin|gdb|gdbserver|clang-19"
check "and is named" "$(grep -c 'gdbserver cannot be installed: E: no such package' <<<"$said")" 1
machine "${everything[@]}"
rm "$work/bin/apt-get" "$work/bin/gdb"
setup test
check "where nothing can be installed, the command to do so is said" "$ended:$(tail -n 1 <<<"$said")" \
    "0:comem: missing: gdb; to install them: sudo apt-get install gdb"
exit "$status"
