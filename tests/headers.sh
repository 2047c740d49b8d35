#!/usr/bin/env bash
# Each public header compiles alone, without a warning, in every language that it is for.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

# alone HEADER LANGUAGE COMPILER OPTIONS…
alone() {
    local header=$1 language=$2 compiler=$3
    shift 3
    if ! command -v "$compiler" >/dev/null 2>&1; then
        echo "SKIP: $header as $language with $compiler, which is not here"
        return
    fi
    if echo "#include <$header>" |
        "$compiler" "$@" -Iinclude -Iinclude/compat -Wall -Wextra -Wshadow -pedantic -Werror -fsyntax-only -; then
        echo "ok: $header alone as $language with $compiler"
    else
        echo "FAILED: $header alone as $language with $compiler"
        status=1
    fi
}

# An mpi.h for comem_mpi.h, which need not be installed.
mpi=-Icrates/capi/tests/programs/fake_mpi

# The interfaces of other systems.
interfaces=(jia.h tmk.h quarks.h brazos.h)

for c in cc clang; do
    [ "$c" = clang ] && ! command -v clang >/dev/null 2>&1 && continue
    # What old programs are built with: the strict old language, too, of which these headers use nothing newer.
    for standard in c89 gnu89; do
        for header in compat/comem_parmacs.h "${interfaces[@]}"; do
            alone "$header" "$standard" "$c" -x c "-std=$standard"
        done
    done
    for standard in c99 c11 c17; do
        alone comem.h "$standard" "$c" -x c "-std=$standard"
        alone comem_mpi.h "$standard" "$c" -x c "-std=$standard" -D_DEFAULT_SOURCE "$mpi"
        alone comem.h "$standard, sequential" "$c" -x c "-std=$standard" -DCOMEM_SEQUENTIAL
        alone compat/comem_parmacs.h "$standard" "$c" -x c "-std=$standard"
        alone comem.h "$standard, with plain threads" "$c" -x c "-std=$standard" -DCOMEM_PTHREADS
        for header in "${interfaces[@]}"; do
            alone "$header" "$standard" "$c" -x c "-std=$standard"
        done
    done
done
for cxx in c++ clang++; do
    [ "$cxx" = clang++ ] && ! command -v clang++ >/dev/null 2>&1 && continue
    for standard in c++17 c++20; do
        for header in include/*.h include/*.hpp "${interfaces[@]}"; do
            header=${header#include/}
            case "$header" in
            comem_sequential.h | comem_threads.h | comem_plain_atomics.h) continue ;; # parts of comem.h
            esac
            alone "$header" "$standard" "$cxx" -x c++ "-std=$standard" "$mpi"
        done
        alone compat/comem_parmacs.h "$standard" "$cxx" -x c++ "-std=$standard"
        alone comem.h "$standard, with plain threads" "$cxx" -x c++ "-std=$standard" -DCOMEM_PTHREADS
    done
done

# layout DIRECTORY SAID: whether the structures of the comem.h there are those that programs have compiled in.
layout() { cc -std=c11 "-I$1" -Wall -Wextra -Werror -fsyntax-only crates/capi/tests/programs/layout.c 2>"$2"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r include "$work/other"
# Somebody adds a field.
sed -i 's|^    int home_number; .*|&\n    int another;|' "$work/other/comem.h"
if [ "$(getconf LONG_BIT)" != 64 ]; then
    echo "SKIP: the layout of public structures: the table is that of machines of 64 bits"
elif layout "$work/other" "$work/said"; then
    echo "FAILED: a field more in a public structure is noticed"
    status=1
elif layout include "$work/said"; then
    echo "ok: public structures are as programs have them compiled in"
else
    cat "$work/said"
    echo "FAILED: public structures are as programs have them compiled in (crates/capi/tests/programs/layout.c)"
    status=1
fi
exit "$status"
