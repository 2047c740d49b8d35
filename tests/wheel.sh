#!/usr/bin/env bash
# The wheel in a clean virtual environment, without Rust: import, a cluster, `comem run`, and programs in C, C++ and
# Fortran built with the headers and the library that it carries. Its platform is what auditwheel says too.
#
# Takes the wheel that COMEM_WHEEL names, else the one that `make python` made for the tests.
set -uo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH COMEM_COMMAND COMEM_INCLUDE COMEM_LIB
shopt -s nullglob
wheels=(out/python/wheels/comem-*.whl)
wheel=${COMEM_WHEEL:-${wheels[0]:-}}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

if [ -z "$wheel" ]; then
    echo "SKIP: the wheel: there is none; make python says why"
    exit 0
fi
wheel=$(realpath "$wheel")

# report NAME COMMAND…: one line, with what was printed when it failed.
report() {
    local name=$1 log
    shift
    log=$(mktemp)
    (set -e; "$@") >"$log" 2>&1
    if [ $? = 0 ]; then
        grep '^SKIP: ' "$log"
        echo "ok: $name"
    else
        cat "$log"
        echo "FAILED: $name"
        failed=1
    fi
    rm -f "$log"
}

# The environment's commands and the system's; cargo is not among them. The directory's name has a blank, as a home may.
environment="$work/a home/venv"
# How pip reaches its index stays.
mapfile -t of_pip < <(env | grep -E '^(PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE=|[A-Za-z]+_proxy=)')
clean() { env -i "${of_pip[@]}" HOME="$work" PATH="$environment/bin:/usr/bin:/bin" LC_ALL=C.UTF-8 "$@"; }

installs() {
    clean pip --version
    ! clean sh -c 'command -v cargo' || return 1
    clean pip install --quiet --disable-pip-version-check --no-deps "$wheel"
    clean comem --version
    clean comem doctor >"$work/doctor"
    cat "$work/doctor"
    grep -q "installed .*with the Python package " "$work/doctor"
    grep -q "take shared memory, by " "$work/doctor"
}

in_python() {
    cat >"$work/first.py" <<'END'
import comem
a = comem.zeros((1000, 1000))
mine = comem.block(a)
mine += comem.rank + 1
comem.barrier()
if comem.rank == 0:
    print(a.max())
END
    [ "$(clean comem run -n 2 --no-prefix python "$work/first.py")" = 2.0 ]
    cat >"$work/cluster.py" <<'END'
import comem, numpy
c = comem.Cluster(2)
a = c.zeros(1000)
a[:] = 1.0
print(c.run(numpy.sum, a))
c.close()
END
    clean python "$work/cluster.py" | tee "$work/said"
    grep -qE '^\[(np\.float64\()?1000\.0\)?, (np\.float64\()?1000\.0\)?\]$' "$work/said"
}

in_other_languages() {
    local name
    clean comem cc -std=c11 examples/grid.c -o "$work/grid"
    clean comem-cxx -std=c++17 examples/sum.cpp -o "$work/sum"
    if [ -x /usr/bin/gfortran ]; then clean comem-fc -O2 examples/heat.f90 -o "$work/heat"; fi
    clean sh -c "cc -std=c11 $(clean comem config --cflags) examples/grid.c \
        $(clean comem config --libs) -o '$work/plain'"
    for name in grid sum heat plain; do
        [ -x "$work/$name" ] || continue
        [ "$(clean "$work/$name")" = "$(clean comem run -n 2 --no-prefix "$work/$name")" ]
    done
}

# The newest of the C library's versions among the symbols that the wheel's files want is in its name.
has_the_platform_that_it_names() {
    local newest
    mkdir "$work/unpacked"
    "$python" -m zipfile -e "$wheel" "$work/unpacked"
    # One of them is a text for the linker, of which readelf complains.
    newest=$({ find "$work/unpacked" -type f \( -name '*.so*' -o -name comem \) \
        -exec readelf --wide --version-info {} + 2>/dev/null || true; } |
        grep -o 'Name: GLIBC_[0-9.]*' | sed 's/.*_//' | sort -Vu | tail -n 1)
    case "$wheel" in
    *-manylinux_"${newest//./_}"_"$(uname -m)".whl) ;;
    *) echo "its files want glibc $newest, and it is called $wheel"; return 1 ;;
    esac
    if ! clean pip install --quiet --disable-pip-version-check --only-binary :all: auditwheel; then
        echo "SKIP: the wheel: auditwheel cannot be had from a package index"
        return
    fi
    clean auditwheel show "$wheel" | tee "$work/said"
    tr '\n' ' ' <"$work/said" | grep -q "manylinux_${newest//./_}_$(uname -m)"
}

"$python" -m venv "$environment" 2>/dev/null || {
    echo "SKIP: the wheel: $python makes no virtual environments"
    exit 0
}
if ! clean pip install --quiet --disable-pip-version-check --only-binary :all: numpy >"$work/pip" 2>&1; then
    echo "SKIP: the wheel: NumPy cannot be had: $(tail -n 1 "$work/pip")"
    exit 0
fi
report "the wheel in a clean environment, without Rust" installs
report "the wheel: comem run and a cluster" in_python
report "the wheel: C, C++ and Fortran on two nodes" in_other_languages
report "the wheel is for the platform that it names" has_the_platform_that_it_names
exit "$failed"
