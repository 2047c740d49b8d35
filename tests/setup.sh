#!/usr/bin/env bash
# Sees to it that the tools are there that building (`setup.sh build`) testing (`setup.sh test`) or the Python package (`setup.sh python`) needs: installs what
# is missing from Debian's archive where we may, and says in one sentence what to do where we may not.
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

# Installs the packages given; says why not where that is impossible. Never asks.
updated=no
install() {
    if ! may_install; then
        echo "comem: missing: $*; to install them: sudo apt-get install $*" >&2
        return 1
    fi
    echo "comem: installing $*" >&2
    local log
    log=$(mktemp)
    if [ "$updated" = no ]; then
        as_root apt-get update >"$log" 2>&1 || cat "$log" >&2
        updated=yes
    fi
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# wants COMMAND PACKAGE: tries to have a command; what needs it is skipped otherwise, and says so itself.
missing=()
wants() { have "$1" || missing+=("$2"); }

check_rust() {
    have cargo || die "there is no cargo (Rust); install it as https://rustup.rs says, then run make again"
    local version major minor
    version=$(cargo --version | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
    major=${version%%.*} minor=${version##*.}
    if [ "${major:-0}" -lt 1 ] || { [ "$major" = 1 ] && [ "${minor:-0}" -lt 89 ]; }; then
        die "cargo ${version:-of an unknown version} is too old, 1.89 or newer is needed; update it: rustup update stable"
    fi
}

check_c() {
    if ! have cc; then
        install gcc libc6-dev || die "there is no C compiler (cc); install one: sudo apt-get install build-essential"
    fi
    if ! have c++; then
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
    check_component fmt rustfmt
    check_component clippy clippy
    wants m4 m4
    wants ip iproute2
    wants mpirun openmpi-bin
    wants ssh openssh-client
    wants gfortran gfortran
    wants gdb gdb
    wants setpriv util-linux
    # An ssh server is a service: only where nobody's machine would begin to listen because of a test.
    if [ "${CI:-}" = true ] || [ ! -d /run/systemd/system ]; then
        wants sshd openssh-server
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        install "${missing[@]}" || true
    fi
    ;;
python)
    # A virtual environment needs ensurepip, which Debian packs apart.
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
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
