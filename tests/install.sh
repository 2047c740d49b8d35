#!/usr/bin/env bash
# What `make install` puts where, what is found from there, and what `make uninstall` leaves: nothing of its own. All in
# directories whose names have blanks. COMEM_BIN names the directory with what was built.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${COMEM_BIN:-${CARGO_TARGET_DIR:-target}/debug}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
home=$HOME
export COMEM_RUNTIME_DIR=$work/run HOME=$work
mkdir -m 700 "$COMEM_RUNTIME_DIR"
unset XDG_CACHE_HOME COMEM_INCLUDE COMEM_LIB PKG_CONFIG_PATH CMAKE_PREFIX_PATH CFLAGS LDFLAGS
prefix="$work/my programs/comem"
comem=$prefix/bin/comem
failed=0

# report NAME COMMAND…: one line, with what was printed when it failed.
report() {
    local name=$1 log
    shift
    log=$(mktemp)
    # In the condition of an `if` the shell would not end at what fails.
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

# fails COMMAND…: it has to.
fails() { ! "$@"; }

# What is built is installed as it is: CARGO names no cargo that could build it anew.
make_() { make --no-print-directory --silent CARGO=none BUILD="$build" "$@"; }
tree() { (cd "$1" && find . | sort); }

installs() {
    mkdir -p "$work/my programs/comem/share/doc"
    echo mine >"$prefix/share/doc/mine"
    tree "$work/my programs" >"$work/before"
    make_ install PREFIX="$prefix"
    [ "$(readelf -d "$prefix/lib/libcomem.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libcomem.so.0.1 ]
    [ "$(readlink "$prefix/lib/libcomem.so.0.1")" = "libcomem.so.0.1.0" ]
    # Each file that is there is in the list, and the other way round.
    (cd "$prefix" && find . -mindepth 1 ! -type d ! -path ./share/doc/mine | sed 's|^\./||' | sort) >"$work/there"
    grep -v '/$' "$prefix/share/comem/manifest" | sort | diff "$work/there" -
}

doctor_says() {
    "$comem" doctor >"$work/doctor"
    cat "$work/doctor"
    grep -q "installed .*by make install below $prefix" "$work/doctor"
    grep -q "headers  *$prefix/include/comem$" "$work/doctor"
    grep -q "system calls .*take shared memory, by" "$work/doctor"
    mv "$prefix/share/man/man1/comem-run.1" "$work/page"
    mv "$prefix/lib/comem/libcomem_wrap.so" "$work/wrapper"
    "$comem" doctor | tee "$work/doctor"
    mv "$work/page" "$prefix/share/man/man1/comem-run.1"
    mv "$work/wrapper" "$prefix/lib/comem/libcomem_wrap.so"
    grep -q "missing .*libcomem_wrap.so (system calls on shared memory).*share/man/man1/comem-run.1.*make install" \
        "$work/doctor"
}

# ends_well PROGRAM WHAT: it prints this on two nodes.
ends_well() {
    local printed
    printed=$("$comem" run -n 2 --no-prefix "$1")
    [ "$printed" = "$2" ] || { echo "$1 printed $printed"; return 1; }
}

by_config() {
    eval "cc -std=c11 $("$comem" config --cflags) examples/grid.c $("$comem" config --libs) -o '$work/a grid'"
    ends_well "$work/a grid" 999999
    "$comem" config --libs >"$work/said"
    fails grep -e comem_globals.ld -e no-pie "$work/said"
    eval "cc $("$comem" config --parmacs-cflags) examples/brazos.c $("$comem" config --parmacs-libs) -o '$work/brazos'"
    "$comem" run -n 2 "$work/brazos"
    [ -f "$("$comem" config --parmacs)" ]
    # As an ordinary user of the compiler does, without a word about directories of headers.
    cc -std=c11 -I"$prefix/include" examples/grid.c -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lcomem -o "$work/grid"
    ends_well "$work/grid" 999999
}

by_wrappers() {
    "$prefix/bin/comem-cc" -std=c11 examples/grid.c -o "$work/cc"
    ends_well "$work/cc" 999999
    "$prefix/bin/comem-cxx" -std=c++17 examples/sum.cpp -o "$work/cxx"
    ends_well "$work/cxx" 499999500000
    if command -v gfortran >/dev/null; then
        "$prefix/bin/comem-fc" -O2 examples/heat.f90 -o "$work/fc"
        ends_well "$work/fc" "$("$work/fc")"
    fi
}

by_pkg_config() {
    command -v pkg-config >/dev/null || {
        echo "SKIP: pkg-config is not here; sudo apt-get install pkg-config"
        return
    }
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    [ "$(pkg-config --modversion comem)" = 0.1.0 ]
    eval "cc -std=c11 $(pkg-config --cflags comem) examples/grid.c $(pkg-config --libs comem) -o '$work/pc'"
    ends_well "$work/pc" 999999
}

by_cmake() {
    command -v cmake >/dev/null || { echo "SKIP: cmake is not here; sudo apt-get install cmake"; return; }
    local languages="C CXX" programs="grid sum" program
    if command -v gfortran >/dev/null; then languages="C CXX Fortran" programs="grid sum heat"; fi
    mkdir -p "$work/a project"
    cp examples/grid.c examples/sum.cpp examples/heat.f90 examples/brazos.c "$work/a project"
    cat >"$work/a project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(uses_comem LANGUAGES $languages)
find_package(Comem 0.1 REQUIRED COMPONENTS $languages)
find_package(Comem 0.1 REQUIRED)
add_executable(grid grid.c)
target_link_libraries(grid Comem::comem)
add_executable(sum sum.cpp)
target_link_libraries(sum Comem::cxx)
add_executable(brazos brazos.c)
target_link_libraries(brazos Comem::parmacs)
if(CMAKE_Fortran_COMPILER)
  add_executable(heat heat.f90)
  target_link_libraries(heat Comem::fortran)
endif()
END
    cmake -S "$work/a project" -B "$work/a build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
    cmake --build "$work/a build"
    for program in $programs; do ends_well "$work/a build/$program" "$("$work/a build/$program")"; done
    "$comem" run -n 2 "$work/a build/brazos"
    # Another interface, a version to come, and a component that there is not.
    local wanted
    for wanted in "0.2" "0.1.9" "1" "0.1 COMPONENTS Cobol"; do
        printf 'cmake_minimum_required(VERSION 3.16)\nproject(p LANGUAGES C)\nfind_package(Comem %s REQUIRED)\n' \
            "$wanted" >"$work/a project/CMakeLists.txt"
        rm -rf "$work/refused"
        fails cmake -S "$work/a project" -B "$work/refused" -DCMAKE_PREFIX_PATH="$prefix"
    done
}

completions_and_pages() {
    local page complete
    complete='source "$0"; COMP_WORDS=(comem run --force); COMP_CWORD=2; _comem comem --force run
        echo "${COMPREPLY[*]}"'
    [ "$(bash -c "$complete" "$prefix/share/bash-completion/completions/comem")" = --force-engine ]
    if command -v zsh >/dev/null; then
        zsh -n "$prefix/share/zsh/site-functions/_comem"
    else
        echo "SKIP: zsh is not here to read its completions"
    fi
    if command -v fish >/dev/null; then
        fish -c 'source $argv[1]; complete -C "comem run --force"' \
            "$prefix/share/fish/vendor_completions.d/comem.fish" | grep -- --force-engine
    else
        echo "SKIP: fish is not here to read its completions"
    fi
    for page in "$prefix"/share/man/man1/comem*.1; do [ -s "$page" ]; done
    if command -v man >/dev/null; then
        # Where pages are formatted at all: small systems come without what man needs for that.
        MANPATH=$prefix/share/man man comem-run 2>/dev/null | col -b | grep -e --force-engine
        MANPATH=$prefix/share/man man comem-cxx 2>/dev/null | col -b | grep "C++"
    else
        echo "SKIP: man is not here to format its pages"
    fi
}

units() {
    command -v systemd-analyze >/dev/null || { echo "SKIP: systemd-analyze is not here to look at the units"; return; }
    local said unit
    # Units cannot name a command in a directory with blanks and be read by every version, so they are read elsewhere.
    for unit in system/comem-daemon@.service user/comem-daemon.service; do
        grep -qF "ExecStart=\"$prefix/bin/comem\" daemon" "$prefix/lib/systemd/$unit"
    done
    mkdir -p "$work/units" "$work/runtime"
    for unit in system/comem-daemon@.service user/comem-daemon.service; do
        sed "s|$prefix/bin/comem|/bin/true|" "$prefix/lib/systemd/$unit" >"$work/units/${unit#*/}"
    done
    mv "$work/units/comem-daemon@.service" "$work/units/comem-daemon@root.service"
    said=$(systemd-analyze verify --man=no "$work/units/comem-daemon@root.service" 2>&1)
    said+=$(XDG_RUNTIME_DIR=$work/runtime \
        systemd-analyze --user verify --man=no "$work/units/comem-daemon.service" 2>&1)
    [ -z "$said" ] || { echo "$said"; return 1; }
}

moves() {
    mv "$work/my programs" "$work/elsewhere"
    "$work/elsewhere/comem/bin/comem-cc" -std=c11 examples/grid.c -o "$work/moved"
    [ "$("$work/elsewhere/comem/bin/comem" run -n 2 --no-prefix "$work/moved")" = 999999 ]
    mv "$work/elsewhere" "$work/my programs"
}

upgrades() {
    # An older version had another file, and a directory for it.
    mkdir "$prefix/lib/old"
    touch "$prefix/lib/old/file"
    printf 'lib/old/\nlib/old/file\n' >>"$prefix/share/comem/manifest"
    make_ install PREFIX="$prefix"
    [ ! -e "$prefix/lib/old/file" ]
    grep -qx 'bin/comem' "$prefix/share/comem/manifest"
}

uninstalls() {
    make_ uninstall PREFIX="$prefix"
    tree "$work/my programs" | diff "$work/before" -
    fails make_ uninstall PREFIX="$prefix"
}

stages() {
    make_ install DESTDIR="$work/a stage" PREFIX=/opt/comem
    [ -x "$work/a stage/opt/comem/bin/comem" ]
    # Nothing names the directory that stands for the root while a package is made.
    fails grep -rlF "$work" "$work/a stage"
    make_ uninstall DESTDIR="$work/a stage" PREFIX=/opt/comem
    [ ! -e "$work/a stage/opt/comem" ]
}

refuses() {
    fails make_ install PREFIX="$work/x" LIBDIR="$work/y" >"$work/said" 2>&1
    grep -q "the command would not find its libraries there" "$work/said"
    [ ! -e "$work/x" ]
    mkdir -p "$work/evil/share/comem"
    touch "$work/keep"
    printf '../keep\n' >"$work/evil/share/comem/manifest"
    fails make_ uninstall PREFIX="$work/evil"
    [ -e "$work/keep" ]
    fails make_ install PREFIX="$work/x" BUILD="$work/nothing" >"$work/said" 2>&1
    grep -q "run make first" "$work/said"
}

crates() {
    HOME=$home cargo package --workspace --exclude comem-bench --exclude comem-python \
        --no-verify --allow-dirty --offline --quiet
}

report "make install, in a directory with blanks" installs
report "installed: comem doctor says where from, and what is missing" doctor_says
report "installed: comem config, for ordinary programs and for PARMACS" by_config
report "installed: comem-cc, comem-cxx, comem-fc" by_wrappers
report "installed: pkg-config" by_pkg_config
report "installed: CMake" by_cmake
report "installed: completions and pages of the manual" completions_and_pages
report "installed: units for systemd" units
report "installed: the tree may move" moves
report "make install over an older version" upgrades
report "make uninstall removes what was installed, and nothing else" uninstalls
report "make install with DESTDIR" stages
report "make install and uninstall refuse what would do harm" refuses
report "the Rust crates can be packed" crates
exit "$failed"
