#!/usr/bin/env bash
# Installs what `make` has built, and removes it again: `make install` and `make uninstall`.
#
#     BUILD=target/release deploy/install.sh install|uninstall
#
# PREFIX (/usr/local), LIBDIR (PREFIX/lib) and DESTDIR (a directory that stands for / while a package is made) may hold
# blanks. PLUGIN names the plug-in for clang, which is left out where it is not built. MANIFEST=no writes no list of
# what was installed, for packages that have one of their own.
#
# The list, share/comem/manifest below the prefix, has one path on each line, from the prefix on; directories that were
# made end in /. Uninstalling removes these files, and these directories where nothing else lies in them.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
    echo "comem: $*" >&2
    exit 1
}

build=${BUILD:-target/release}
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}
plugin=${PLUGIN:-out/compiler/libcomem_inline.so}
list=share/comem/manifest
umask 022

case "$prefix" in
/*) ;;
*) die "PREFIX=$prefix is no absolute path; name one: make install PREFIX=\$HOME/comem" ;;
esac
# Without double and last slashes.
prefix=$(realpath -ms "$prefix")
libdir=$(realpath -ms "$libdir")
triple=$(uname -m)-linux-gnu
# Where the command looks for libraries (crates/cli/src/installation.rs).
case "$libdir" in
"$prefix/lib") up=../.. ;;
"$prefix/lib64") up=../.. ;;
"$prefix/lib/$triple") up=../../.. ;;
*) die "LIBDIR=$libdir: the command would not find its libraries there; take $prefix/lib, $prefix/lib64 or $prefix/lib/$triple" ;;
esac
lib=${libdir#"$prefix/"}
interface=
# Programs are told where the library is, unless every program looks there.
rpath=' -Wl,-rpath,${libdir}'
[ "$prefix" != /usr ] || rpath=
base=$root$prefix

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

before=()
installed=()
# note PATH: a file or, with / at its end, a directory is ours. It is in the list before it is there, so that what is
# left of an installation that was cut short can be removed.
note() {
    installed+=("$1")
    [ "${MANIFEST:-yes}" = no ] || printf '%s\n' "$1" >>"$base/$list"
}

# directory PATH: makes it, and all above it up to the prefix; ours are those that were not there before.
directory() {
    local path=$1
    [ ! -d "$base/$path" ] || return 0
    case "$path" in
    */*) directory "${path%/*}" ;;
    esac
    mkdir "$base/$path"
    note "$path/"
}

# put MODE FILE PATH: a copy of FILE. A program that runs keeps its old file.
put() {
    directory "$(dirname "$3")"
    note "$3"
    install -m "$1" "$2" "$base/$3"
}

# link TARGET PATH
link() {
    directory "$(dirname "$2")"
    note "$2"
    ln -sfn "$1" "$base/$2"
}

# fill TEMPLATE PATH: a copy with the installation's names.
fill() {
    local bindir=$prefix/bin
    sed -e "s|@VERSION@|$version|g" -e "s|@UP@|$up|g" -e "s|@INTERFACE@|$interface|g" \
        -e "s|@RPATH@|$rpath|g" -e "s|@BINDIR@|$(sed 's/[&|\\]/\\&/g' <<<"$bindir")|g" "$1" >"$work/filled"
    put 644 "$work/filled" "$2"
}

# An old list is kept until the new one is whole.
begin_list() {
    local made=() path
    if [ ! -d "$base" ]; then
        mkdir -p "$base"
        made+=(./)
    fi
    [ "${MANIFEST:-yes}" != no ] || return 0
    if [ -f "$base/$list" ]; then
        mapfile -t before <"$base/$list"
        check_list
    else
        for path in share share/comem; do
            [ -d "$base/$path" ] || { mkdir "$base/$path" && made+=("$path/"); }
        done
        : >"$base/$list"
    fi
    for path in "${made[@]}"; do note "$path"; done
    note "$list"
}

# What a list may name: paths below the prefix.
check_list() {
    local path
    for path in "${before[@]}"; do
        case "/$path/" in
        *//[!/]* | */../*) die "$base/$list names $path, which is not below $prefix: remove what is left by hand" ;;
        esac
    done
}

# Directories that were made before stay ours, and files of an older version go.
end_list() {
    [ "${MANIFEST:-yes}" != no ] || return 0
    local path
    printf '%s\n' "${installed[@]}" | sort -u >"$work/now"
    for path in "${before[@]}"; do
        case "$path" in
        */) [ -d "$base/$path" ] && printf '%s\n' "$path" >>"$work/now" ;;
        *) grep -qxF -- "$path" "$work/now" || rm -f -- "$base/$path" ;;
        esac
    done
    sort -u "$work/now" -o "$work/now"
    install -m 644 "$work/now" "$base/$list"
}

# Where the dynamic linker looks in this directory, it is told of the library.
tell_linker() {
    local ldconfig
    ldconfig=$(PATH=$PATH:/usr/sbin:/sbin command -v ldconfig) || return 0
    [ -z "$root" ] && [ "$(id -u)" = 0 ] || return 0
    if "$ldconfig" -v -N -X 2>/dev/null | awk -v of="$libdir:" 'index($0, of) == 1 { found = 1 } END { exit !found }'; then
        "$ldconfig" || true
    fi
}

install_all() {
    local file name shell
    [ -x "$build/comem" ] && [ -f "$build/libcomem.so" ] && [ -f "$build/libcomem_wrap.so" ] ||
        die "nothing is built in $build; run make first"
    # The version of the interface, as the library has it in the name by which programs ask for it.
    interface=$(grep -aom 1 'libcomem\.so\.[0-9.]*[0-9]' "$build/libcomem.so" | head -n 1 | sed 's/^libcomem\.so\.//')
    [ -n "$interface" ] || die "$build/libcomem.so has no name with a version; build it anew with make"
    begin_list

    for name in comem comem-cc comem-cxx comem-fc; do put 755 "$build/$name" "bin/$name"; done

    put 644 "$build/libcomem.so" "$lib/libcomem.so.$version"
    link "libcomem.so.$version" "$lib/libcomem.so.$interface"
    link "libcomem.so.$interface" "$lib/libcomem.so"
    [ ! -f "$build/libcomem.a" ] || put 644 "$build/libcomem.a" "$lib/libcomem.a"
    put 644 "$build/libcomem_wrap.so" "$lib/comem/libcomem_wrap.so"
    [ ! -f "$plugin" ] || put 644 "$plugin" "$lib/comem/libcomem_inline.so"

    # The headers, the module for Fortran, macros and the linker script of PARMACS lie in a directory of their own.
    # Three names before it serve who gives the compiler no directory.
    while IFS= read -r file; do put 644 "include/$file" "include/comem/$file"; done \
        < <(cd include && find . -type f ! -name '*.o' ! -name '*.mod' | sed 's|^\./||' | sort)
    for name in comem.h comem.hpp comem_dsm.hpp comem_mpi.h; do
        printf '/* Comem %s: the headers are in the directory comem. */\n#include "comem/%s"\n' "$version" "$name" >"$work/header"
        put 644 "$work/header" "include/$name"
    done

    fill deploy/comem.pc.in "$lib/pkgconfig/comem.pc"
    for name in ComemConfig ComemConfigVersion; do
        fill "deploy/cmake/$name.cmake.in" "$lib/cmake/Comem/$name.cmake"
    done

    mkdir "$work/man"
    "$build/comem" man --dir "$work/man"
    printf '.so man1/comem-c++.1\n' >"$work/man/comem-cxx.1"
    for file in "$work/man"/*.1; do put 644 "$file" "share/man/man1/${file##*/}"; done
    for shell in bash zsh fish; do "$build/comem" completions "$shell" >"$work/$shell"; done
    put 644 "$work/bash" share/bash-completion/completions/comem
    put 644 "$work/zsh" share/zsh/site-functions/_comem
    put 644 "$work/fish" share/fish/vendor_completions.d/comem.fish

    fill deploy/systemd/comem-daemon@.service.in lib/systemd/system/comem-daemon@.service
    fill deploy/systemd/comem-daemon.service.in lib/systemd/user/comem-daemon.service

    for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE docs/*.md docs/pictures/*; do
        put 644 "$file" "share/doc/comem/$file"
    done
    while IFS= read -r file; do put 644 "$file" "share/doc/comem/$file"; done \
        < <(find examples -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.f90' -o -name '*.py' \) | sort)

    end_list
    tell_linker
    echo "Comem $version is installed in $base: ${#installed[@]} files and directories"
    case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "Put its command on the path: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    echo "What is there: $prefix/bin/comem doctor"
}

uninstall_all() {
    local path
    [ -f "$base/$list" ] || die "there is no $base/$list, so nothing is known to be installed below $base; name the PREFIX (and DESTDIR) of make install"
    mapfile -t before <"$base/$list"
    check_list
    for path in "${before[@]}"; do
        case "$path" in
        "" | */) ;;
        *) rm -f -- "$base/$path" ;;
        esac
    done
    # The deepest first, and the prefix itself last.
    printf '%s\n' "${before[@]}" | grep '/$' | grep -vxF ./ | awk -F / '{ print NF "\t" $0 }' | sort -rn | cut -f 2- |
        while IFS= read -r path; do rmdir -- "$base/$path" 2>/dev/null || true; done
    if printf '%s\n' "${before[@]}" | grep -qxF ./; then rmdir -- "$base" 2>/dev/null || true; fi
    tell_linker
    echo "Comem is gone from $base"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "${1:-}" in
install) install_all ;;
uninstall) uninstall_all ;;
*) die "usage: deploy/install.sh install|uninstall" ;;
esac
