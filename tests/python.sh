#!/usr/bin/env bash
# The Python package: its tests on one, two and four nodes as one job, tests that start jobs of their own, the examples,
# and the tutorial's code. Uses the package in out/python/venv (make python makes it), or the interpreter that
# COMEM_PYTHON names.
set -uo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH

python=${COMEM_PYTHON:-out/python/venv/bin/python}
if [ -z "${COMEM_PYTHON:-}" ]; then
    log=$(mktemp)
    if ! COMEM_BUILD_PROFILE=dev make --no-print-directory PROFILE=no python 2>&1 | tee "$log"; then
        grep -q '^SKIP: Python: ' "$log" && exit 0
        echo "FAILED: the Python package cannot be built"
        exit 1
    fi
    rm -f "$log"
fi
python=$(realpath -s "$python")
failed=0

# report NAME COMMAND...: one line, with everything that was printed when it failed.
report() {
    local name=$1 log
    shift
    log=$(mktemp)
    if timeout 600 "$@" >"$log" 2>&1; then
        grep -E 'SKIP: ' "$log" | sed 's/^.*SKIP: /SKIP: /' | sort -u
        echo "ok: $name"
    else
        cat "$log"
        echo "FAILED: $name"
        failed=1
    fi
    rm -f "$log"
}

pytest=("$python" -m pytest -x -q -p no:cacheprovider)
run=("$python" -m comem run)

# What only tests need; where it cannot be had, its tests say so.
for tool in scikit-learn pandas pyarrow ipython ruff mypy mpi4py distributed ray; do
    "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$tool" >/dev/null 2>&1 ||
        echo "SKIP: Python: $tool cannot be had from a package index"
done
# has MODULE: whether the interpreter has it.
has() { "$python" -c "import $1" 2>/dev/null; }
if has ruff; then
    report "Python: ruff" "$python" -m ruff check --quiet \
        --config crates/python/pyproject.toml crates/python examples/python bench/python
fi
if has mypy; then
    report "Python: types" "$python" -m mypy --config-file crates/python/pyproject.toml crates/python/python/comem
    report "Python: the stubs are those of the extension module" "$python" -m mypy.stubtest comem._core \
        --allowlist <(echo 'comem._core.__all__')
fi

for nodes in 1 2 4; do
    report "Python: shared arrays on $nodes nodes" "${run[@]}" -n "$nodes" "${pytest[@]}" crates/python/tests/together
done
report "Python: shared arrays on 2 nodes over udp" "${run[@]}" -n 2 --backbone udp \
    "${pytest[@]}" crates/python/tests/together
report "Python: shared arrays on 2 nodes under hlrc" "${run[@]}" -n 2 --engine hlrc \
    "${pytest[@]}" crates/python/tests/together
report "Python: shared arrays on 2 nodes under mprotect" "${run[@]}" -n 2 --detector mprotect \
    "${pytest[@]}" crates/python/tests/together
report "Python: clusters started from an interpreter" "${pytest[@]}" -rs crates/python/tests/cluster
report "Python: jobs, signals, system calls, other launchers" "${pytest[@]}" -rs crates/python/tests/alone

for program in heat kmeans matmul life pagerank bloom jacobi; do
    [ -f "examples/python/$program.py" ] || continue
    for nodes in 1 2 4; do
        options=()
        [ "$program" = bloom ] && options=(--cache 1M)
        report "Python: example $program on $nodes nodes" "${run[@]}" -n "$nodes" "${options[@]}" "$python" \
            "examples/python/$program.py" --small
    done
done

# One program in three languages: the same line from each.
cargo build --quiet -p comem -p comem-c -p comem-cli --lib --bins --example jacobi || failed=1
target=${CARGO_TARGET_DIR:-target}/debug
mkdir -p out/python
if cc -std=c11 -O2 -Wall -Wextra -Iinclude examples/jacobi.c -o out/python/jacobi "$target/libcomem.so" \
    -Wl,-rpath,"$(realpath "$target")" -lm; then
    expected=$("$python" examples/python/jacobi.py 200)
    for program in "$target/examples/jacobi" out/python/jacobi "$python examples/python/jacobi.py"; do
        # shellcheck disable=SC2086 # a program and its argument
        printed=$("${run[@]}" -n 2 $program 200 2>&1 | sed 's/^\[0\] //')
        if [ -n "$expected" ] && [ "$printed" = "$expected" ]; then
            echo "ok: jacobi on 2 nodes: $program"
        else
            echo "$printed"
            echo "FAILED: jacobi on 2 nodes: $program, expected $expected"
            failed=1
        fi
    done
else
    echo "FAILED: jacobi in C cannot be built"
    failed=1
fi

# Reading another node's memory costs as many fetches from NumPy as from C. Over udp, where the counts are exact: pages
# that are taken out of a neighbour's memory (shm) come in runs that depend on how far it has got with offering them. A
# run ahead that comes before the thread gets there needs no signal, so of signals there is but a bound: one for each
# request.
counts() {
    "${run[@]}" -n 2 --backbone udp --stats "out/python/stats.json" "$@" >/dev/null &&
        "$python" -c 'import json
nodes = json.load(open("out/python/stats.json"))["nodes"]
pages = next(n for n in nodes if n["node"] == 0)["pages"]
print(*(f"{name}={pages[name]}" for name in ("pages_fetched", "page_requests")))
assert pages["signals"] <= pages["page_requests"], pages'
}
if cc -std=c11 -O2 -Wall -Wextra -D_DEFAULT_SOURCE -Iinclude bench/python/touch.c -o out/python/touch \
    "$target/libcomem.so" -Wl,-rpath,"$(realpath "$target")" &&
    from_c=$(counts out/python/touch 16) && from_numpy=$(counts "$python" bench/python/touch.py 16) &&
        [ "$from_c" = "$from_numpy" ]; then
    echo "ok: NumPy fetches pages as C does: $from_c"
else
    echo "FAILED: NumPy fetches pages not as C does: C ${from_c:-}, NumPy ${from_numpy:-}"
    failed=1
fi
exit "$failed"
