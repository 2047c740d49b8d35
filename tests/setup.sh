#!/usr/bin/env bash
# Sees to it that the tools are there that building (`setup.sh build`) testing (`setup.sh test`) or the Python package
# (`setup.sh python`) needs: installs what is missing from Debian's archive where we may, and says in one sentence what
# to do where we may not.
set -euo pipefail

die() {
    echo "comem: $*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }

# How to become root without asking anybody: nothing at all, sudo, or not possible.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}
may_install() {
    have apt-get && { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
}

# Installs the packages given; says why not where that is impossible. Never asks. Where one of several cannot be had,
# the others are installed all the same.
updated=no
install() {
    if ! may_install; then
        echo "comem: missing: $*; to install them: sudo apt-get install $*" >&2
        return 1
    fi
    echo "comem: installing $*" >&2
    local log package status=0
    log=$(mktemp)
    if [ "$updated" = no ]; then
        as_root apt-get update >"$log" 2>&1 || cat "$log" >&2
        updated=yes
    fi
    if ! get "$@" >"$log" 2>&1; then
        for package in "$@"; do
            [ $# -gt 1 ] && get "$package" >"$log" 2>&1 && continue
            echo "comem: $package cannot be installed: $(tail -n 1 "$log")" >&2
            status=1
        done
    fi
    rm -f "$log"
    return "$status"
}
get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }

# wants COMMANDS PACKAGE: tries to have one of these commands, of whatever make, by installing Debian's package if none
# is there. What needs it is skipped otherwise, and says so itself.
missing=()
wants() {
    local command
    for command in $1; do
        have "$command" && return
    done
    missing+=("$2")
}

check_rust() {
    have cargo || die "there is no cargo (Rust); install it as https://rustup.rs says, then run make again"
    local version major minor
    version=$(cargo --version | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
    major=${version%%.*} minor=${version##*.}
    if [ "${major:-0}" -lt 1 ] || { [ "$major" = 1 ] && [ "${minor:-0}" -lt 89 ]; }; then
        die "cargo ${version:-of an unknown version} is too old, 1.89 or newer is needed; update it:" \
            "rustup update stable"
    fi
}

check_c() {
    if ! have cc; then
        install gcc libc6-dev || die "there is no C compiler (cc); install one: sudo apt-get install build-essential"
    fi
}

# Tests need one for C++ too, under any of its names.
check_cxx() {
    if ! have c++ && ! have g++ && ! have clang++; then
        install g++ || die "there is no C++ compiler (c++); install one: sudo apt-get install build-essential"
    fi
}

# A component of Rust's toolchain: cargo COMMAND, installed by rustup where rustup is.
check_component() {
    cargo "$1" --version >/dev/null 2>&1 && return
    if have rustup; then
        rustup component add "$2" >&2 || true
    fi
}

case "${1:-}" in
build)
    check_rust
    check_c
    ;;
test)
    check_rust
    check_c
    check_cxx
    check_component fmt rustfmt
    check_component clippy clippy
    wants "m4" m4
    wants "ip" iproute2
    # Any MPI's, and any Fortran compiler that is named.
    wants "mpirun mpiexec mpiexec.hydra orterun prterun" openmpi-bin
    wants "mpicc" libopenmpi-dev
    wants "${FORTRAN:-gfortran}" gfortran
    wants "ssh" openssh-client
    wants "gdb" gdb
    wants "gdbserver" gdbserver
    # For the page of `comem ui`.
    wants "chromium chromium-browser google-chrome" chromium
    wants "setpriv" util-linux
    wants "pkg-config pkgconf" pkg-config
    wants "cmake" cmake
    # For programs with checks in their own code (comem-cc --inline).
    wants "clang-19" clang-19
    wants "llvm-config-19" llvm-19-dev
    # Servers of ssh and Slurm are services: only where nobody's machine would begin to listen because of a test. There
    # an empty Debian is worth its download, too.
    if [ "${CI:-}" = true ] || [ ! -d /run/systemd/system ]; then
        wants "sshd" openssh-server
        wants "slurmctld slurmctld-wlm" slurm-wlm
        wants "slurmctld slurmctld-wlm" slurm-wlm-basic-plugins
        wants "debootstrap" debootstrap
        wants "lintian" lintian
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        install "${missing[@]}" || true
    fi
    ;;
python)
    # A virtual environment needs ensurepip, which Debian packs apart. Whoever names an interpreter wants no other.
    if ! "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null; then
        if [ "${PYTHON:-python3}" != python3 ]; then
            echo "SKIP: Python: $PYTHON cannot make virtual environments (it has no venv and ensurepip);" \
                "name another one: make PYTHON=..."
            exit 1
        fi
        install python3 python3-venv python3-dev || {
            echo "SKIP: Python: there is no python3 with venv; sudo apt-get install python3-venv python3-dev"
            exit 1
        }
    fi
    ;;
*)
    die "usage: tests/setup.sh build|test|python"
    ;;
esac
