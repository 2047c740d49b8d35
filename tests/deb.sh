#!/usr/bin/env bash
# The Debian package in an empty Debian: lintian has nothing to say, and with nothing but the package and compilers the
# README's programs in C, C++ and Fortran are built and run on two nodes. Then it is removed, and nothing is left.
#
#     tests/deb.sh [root]
#
# Needs root, debootstrap, and the archive that this machine's apt uses. What is not there is said, and skipped. The
# empty Debian is made once, in out/test/debian (`root` makes that alone); each run puts a layer of its own above it.
# COMEM_BIN names the directory with what was built.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${COMEM_BIN:-${CARGO_TARGET_DIR:-target}/debug}")
out=$PWD/out/test
empty=$out/debian
failed=0

skip() {
    echo "SKIP: the package in an empty Debian: $*"
    exit 0
}

# The archive of this machine's own release, and that release.
archive() { apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 2>/dev/null | head -n 1; }

# make_root: an empty Debian with compilers.
make_root() {
    local log=$out/debootstrap.log address release proxy=
    [ ! -e "$empty/finished" ] || return 0
    read -r address release <<<"$(archive)"
    [ -n "${release:-}" ] || skip "apt names no archive"
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    mkdir -p "$out"
    rm -rf "$empty.new" "$empty"
    # The package of this machine's compilers, and no recommendations.
    http_proxy=${proxy:-${http_proxy:-}} debootstrap --variant=minbase --include=gcc,g++,gfortran,libc6-dev \
        "$release" "$empty.new" "$address" >"$log" 2>&1 ||
        skip "debootstrap cannot make one: $(tail -n 1 "$log")"
    rm -rf "$empty.new"/var/cache/apt/archives/*.deb
    mv "$empty.new" "$empty"
    touch "$empty/finished"
}

# report NAME COMMAND…: one line, with what was printed when it failed.
report() {
    local name=$1 log
    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        grep '^SKIP: ' "$log"
        echo "ok: $name"
    else
        cat "$log"
        echo "FAILED: $name"
        failed=1
    fi
    rm -f "$log"
}

build_package() { LEVEL=0 BUILD=$build PLUGIN=none deploy/deb.sh "$out/deb"; }

look_at_it() {
    local said
    if ! command -v lintian >/dev/null; then
        echo "SKIP: lintian is not here; sudo apt-get install lintian"
        return
    fi
    said=$(lintian --allow-root --fail-on none --no-tag-display-limit --tag-display-limit 0 "$package" 2>&1)
    # What a build for tests has that a release has not: code that is not optimised across crates.
    said=$(grep -E '^(E|W):' <<<"$said")
    [ -z "$said" ] || { echo "$said"; return 1; }
}

# What runs in the empty Debian, as root there.
# shellcheck disable=SC2016
inside='
set -eu
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
before() {
    find / -xdev \( -path /proc -o -path /tmp -o -path "/var/*" -o -path "/etc/ld.so*" \) -prune -o -print | sort
}
before >/tmp/before
dpkg -i /comem.deb >/tmp/dpkg.log || { cat /tmp/dpkg.log; exit 1; }
mkdir /tmp/here && cd /tmp/here
from=/usr/share/doc/comem/examples
cc -std=c11 "$from/grid.c" -lcomem -o grid
c++ -std=c++17 "$from/sum.cpp" -lcomem -o sum
comem fc -O2 "$from/heat.f90" -o heat
comem cc -O2 "$from/jacobi.c" -o jacobi -lm
for program in grid sum heat jacobi; do
    alone=$(./$program)
    together=$(comem run -n 2 --no-prefix ./$program)
    echo "$program: $alone, on two nodes $together"
    [ -n "$alone" ]
    [ "$alone" = "$together" ]
done
[ "$(./grid)" = 999999 ]
[ "$(comem config --libs)" = -lcomem ]
comem doctor | tee doctor
grep -q "by the Debian package comem" doctor
grep -q "take shared memory, by /usr/lib/.*/comem/libcomem_wrap.so" doctor
cd / && rm -rf /tmp/here
dpkg --purge comem >/tmp/dpkg.log || { cat /tmp/dpkg.log; exit 1; }
rm -rf /root/.cache
before >/tmp/after
diff /tmp/before /tmp/after
'

in_an_empty_debian() {
    timeout 300 unshare --mount --pid --fork bash -c '
        set -eu
        mount --make-rprivate /
        mount -t tmpfs layer "$1"
        mkdir "$1/upper" "$1/work" "$1/root"
        mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root" 2>/dev/null ||
            cp -a "$2/." "$1/root"
        cp "$3" "$1/root/comem.deb"
        exec chroot "$1/root" sh -c "$4"' layers "$layer" "$empty" "$package" "$inside"
}

[ "$(id -u)" = 0 ] || skip "chroot needs root"
for tool in debootstrap dpkg-deb dpkg-shlibdeps unshare chroot; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
        skip "there is no $tool; sudo apt-get install ${tool/dpkg-*/dpkg-dev}"
done
unshare --mount true 2>/dev/null || skip "this machine lets nobody mount anything"
make_root
[ "${1:-}" != root ] || exit 0

rm -rf "$out/deb"
report "the Debian package is made" build_package
package=$(echo "$out"/deb/comem_*.deb)
[ -f "$package" ] || exit 1
report "the Debian package: lintian" look_at_it
layer=$(mktemp -d)
trap 'rm -rf "$layer"' EXIT
report "the package alone in an empty Debian: C, C++ and Fortran on two nodes" in_an_empty_debian
exit "$failed"
