#!/usr/bin/env bash
# The Python package on several versions of CPython and NumPy: one wheel (it is built for the stable ABI) in a virtual
# environment for each.
#
#     tests/python-versions.sh [quick | VERSION/NUMPY…]
#
# `quick` takes the oldest CPython that is here, with the oldest NumPy that the package promises, and runs the suite on
# two nodes as one job: that is what `make test` does. Without arguments, CPython 3.9 to 3.13 as far as they are here,
# each with NumPy 1.26 and with the newest that can be had, run everything in crates/python/tests; `3.12/2.*` names one
# combination, and `3.12/2.*/quick` runs as much of it as `quick`. Needs COMEM_PYTHON or out/python/venv, with the
# package, to build the wheel; where there is neither, that is said, and no failure.
set -uo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
builder=$(realpath -ms "${COMEM_PYTHON:-out/python/venv/bin/python}")
out=$PWD/out/python
versions=(3.9 3.10 3.11 3.12 3.13)
numpys=("1.26.*" "2.*")
failed=0

# interpreter VERSION: its path, if there is one; those of pyenv count too.
interpreter() {
    local path
    for path in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if [ -x "$path" ] &&
            "$path" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            echo "$path"
            return 0
        fi
    done
    return 1
}

# The wheel is built once; `quick` takes the one that `make python` made.
wheel() {
    [ "${1:-}" = quick ] && [ -z "${COMEM_PYTHON:-}" ] && compgen -G "$out/wheels/comem-*.whl" >/dev/null && return
    mkdir -p "$out/wheels"
    rm -f "$out"/wheels/comem-*.whl
    CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}") "$builder" -m pip wheel --quiet \
        --disable-pip-version-check --no-deps \
        --wheel-dir "$out/wheels" ./crates/python
}

# environment VERSION NUMPY: a virtual environment with the wheel; says what is missing.
environment() {
    local path venv=$out/venv-$1-numpy-${2%%.*} pip
    path=$(interpreter "$1") || { echo "SKIP: Python $1: there is no such interpreter (with venv) here"; return 1; }
    [ -x "$venv/bin/python" ] || "$path" -m venv "$venv" || return 1
    pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    if ! "${pip[@]}" --only-binary :all: "numpy==$2" pytest cloudpickle joblib >"$out/pip.log" 2>&1; then
        echo "SKIP: Python $1 with NumPy $2: $(grep '^ERROR' "$out/pip.log" | tail -n 1)"
        return 1
    fi
    "${pip[@]}" --force-reinstall --no-deps "$out"/wheels/comem-*.whl ||
        { echo "FAILED: Python $1: the wheel cannot be installed"; failed=1; return 1; }
    python=$venv/bin/python
}

# report NAME COMMAND…: one line, with everything that was printed when it failed.
report() {
    local name=$1 log
    shift
    log=$(mktemp)
    if timeout 900 "$@" >"$log" 2>&1; then
        echo "ok: $name: $(grep -oE '[0-9]+ passed.*' "$log" | tail -n 1)"
    else
        cat "$log"
        echo "FAILED: $name"
        failed=1
    fi
    rm -f "$log"
}

# suite VERSION NUMPY [quick]
suite() {
    local python name
    environment "$1" "$2" || return
    name=$("$python" -c \
        'import platform, numpy; print(f"CPython {platform.python_version()}, NumPy {numpy.__version__}")')
    local pytest=("$python" -m pytest -x -q -p no:cacheprovider)
    report "$name: shared arrays on 2 nodes" "$python" -m comem run -n 2 "${pytest[@]}" crates/python/tests/together
    [ "${3:-}" = quick ] && return
    report "$name: clusters" "${pytest[@]}" crates/python/tests/cluster
    report "$name: jobs, signals, system calls" "${pytest[@]}" crates/python/tests/alone
}

if ! "$builder" -c 'import comem, pip' >/dev/null 2>&1; then
    echo "SKIP: Python: no interpreter with the package comem to build a wheel with ($builder; make python says why)"
    exit 0
fi
wheel "${1:-}" || { echo "FAILED: the wheel cannot be built"; exit 1; }
if [ "${1:-}" = quick ]; then
    oldest=
    for version in "${versions[@]}"; do
        interpreter "$version" >/dev/null && { oldest=$version; break; }
    done
    if [ -n "$oldest" ]; then
        suite "$oldest" "${numpys[0]}" quick
    else
        echo "SKIP: Python: there is no CPython ${versions[0]} to ${versions[-1]} (with venv) here"
    fi
elif [ $# -gt 0 ]; then
    for combination in "$@"; do
        IFS=/ read -r version numpy depth <<<"$combination"
        suite "$version" "$numpy" "$depth"
    done
else
    for version in "${versions[@]}"; do
        for numpy in "${numpys[@]}"; do suite "$version" "$numpy"; done
    done
fi
exit "$failed"
