#!/usr/bin/env bash
# Runs every test, one stage after the other, and goes on after a failure (tests/stages.sh says how stages report). In
# the end it says how long each stage took, what was skipped, and what failed and why; the last line counts. Called by
# `make test`.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/stages.sh
. tests/stages.sh

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"
export COMEM_BIN="$CARGO_TARGET_DIR/debug"
export COMEM_WORKLOADS="$PWD/out/test"
# What is built once from nothing gains nothing by being cut for later builds, nor by being optimised across crates for
# a wheel that is only tested.
if [ "${CI:-}" = true ]; then
    export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}" CARGO_PROFILE_RELEASE_LTO="${CARGO_PROFILE_RELEASE_LTO:-off}"
fi
# Tests call the C++ compiler c++: a link gives it that name where it has another one only.
if ! command -v c++ >/dev/null && cxx=$(command -v g++ || command -v clang++); then
    mkdir -p out/test/compilers
    ln -sf "$cxx" out/test/compilers/c++
    export PATH="$PATH:$PWD/out/test/compilers"
fi

formatting() {
    if ! cargo fmt --version >/dev/null 2>&1; then
        echo "SKIP: formatting: there is no rustfmt; rustup component add rustfmt"
        return
    fi
    cargo fmt --all --check
}

lints() {
    if ! cargo clippy --version >/dev/null 2>&1; then
        echo "SKIP: lints: there is no clippy; rustup component add clippy"
        return
    fi
    cargo clippy --workspace --all-targets --quiet -- -D warnings
}

# The runner's own lines pass through; of what passing tests printed, only what they skipped. The simulator is built
# apart: its tests want a protocol crate with rules that can be switched off, and all others, programs that tests build
# among them, one without. The Python package has no tests in Rust, and beside it all libraries would be built once more
# for programs that tests build, which want less of a library for macros.
rust_tests() {
    local status=0
    rust_log=$(mktemp)
    run_rust_tests --workspace --exclude comem-sim --exclude comem-python || status=1
    run_rust_tests -p comem-sim || status=1
    if [ "$status" = 0 ]; then
        echo "ok: Rust tests"
    else
        report_rust_failures "$rust_log"
    fi
    rm -f "$rust_log"
    return "$status"
}

run_rust_tests() {
    cargo test "$@" --no-fail-fast -- --show-output 2>&1 | tee -a "$rust_log" | awk '
        /^successes:$/ { inside = 1 }
        /^(failures:$|test result:)/ { inside = 0 }
        !inside || /^SKIP: / { print; fflush() }'
    return "${PIPESTATUS[0]}"
}

build() {
    cargo build --workspace --exclude comem-python --quiet &&
        make --no-print-directory --silent -C workloads COMEM_LIB="$(realpath "$COMEM_BIN")" OUT="$COMEM_WORKLOADS" &&
        make --no-print-directory --silent -C tests/random COMEM_LIB="$(realpath "$COMEM_BIN")" OUT="$COMEM_WORKLOADS"
}

# A fixed number of fixed programs, also without Comem: is each right on one machine, and free of data races? `make
# soak` runs others.
random_programs() {
    if ! command -v python3 >/dev/null; then
        echo "SKIP: random programs: there is no python3 to run them; sudo apt-get install python3"
        return
    fi
    tests/random/run.py --plain --seed 1 --count 15 --phases 60
    tests/random/run.py --seed 1 --count 40 --phases 150
}

# Where LLVM 19 is not there, this says so, and nothing has checks.
plugin() {
    if ! command -v llvm-config-19 >/dev/null; then
        echo "SKIP: checks in programs' own code: there is no llvm-config-19; sudo apt-get install clang-19 llvm-19-dev"
        return
    fi
    make --no-print-directory --silent -C compiler OUT="$PWD/out/compiler"
}

checked_programs() { OUT="$PWD/out/compiler" compiler/tests/run.sh; }

fuzzing() { "$COMEM_BIN/comem-fuzz" --seconds 15; }

stage "the summary of tests" tests/stages-test.sh
stage "the installation of tools" tests/setup-test.sh
stage "formatting" formatting
stage "the width of lines" tests/width.sh
stage "lints" lints
stage "the plug-in for clang" plugin
stage "Rust tests" rust_tests
stage "headers" tests/headers.sh
stage "build of the workloads" build
stage "installation" tests/install.sh
stage "manifests of Kubernetes" tests/kubernetes.sh
stage "workloads" tests/workloads.sh
stage "the plug-in beside an adversary" checked_programs
stage "programs on shared pages" env COMEM_KERNELS_DSM=1 tests/kernels.sh
stage "programs with checks in their code" tests/inline.sh
stage "what a class is shown" tests/teaching.sh
stage "comem ui in a browser" tests/ui.sh
stage "random programs" random_programs
lane
stage "interfaces of other systems" tests/compat.sh
stage "Slurm's own daemons" tests/slurm.sh
lane
stage "the Python package" tests/python.sh
stage "the Python package on the oldest CPython here" tests/python-versions.sh quick
stage "the wheel in a clean environment" tests/wheel.sh
stage "hosts in network namespaces" tests/hosts.sh
stage "hosts that find each other" tests/discover.sh
lane
stage "the Debian package in an empty Debian" tests/deb.sh
end_lanes
stage "fuzzing of what comes from the network" fuzzing
run_stages
