#!/usr/bin/env bash
# Makes a Debian package of what `make` has built: `make deb`.
#
#     BUILD=target/release deploy/deb.sh [DIRECTORY]      DIRECTORY/comem_0.1.0-1_amd64.deb; out/deb if not named
#
# LEVEL, 0 to 9, says how hard it is compressed; 6 if not named. DEBFULLNAME and DEBEMAIL name the maintainer.
# Needs dpkg-deb and dpkg-shlibdeps (dpkg-dev), and strip (binutils). The files are those of `make install`.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
    echo "comem: $*" >&2
    exit 1
}

for tool in dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev strip:binutils; do
    command -v "${tool%%:*}" >/dev/null || die "there is no ${tool%%:*}; sudo apt-get install ${tool##*:}"
done

out=$(realpath -m "${1:-out/deb}")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
revision=1
maintainer="${DEBFULLNAME:-Comem} <${DEBEMAIL:-comem@localhost}>"
architecture=$(dpkg --print-architecture)
triple=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/comem
mkdir -p "$stage" "$out"

DESTDIR=$stage PREFIX=/usr LIBDIR=/usr/lib/$triple MANIFEST=no deploy/install.sh install >/dev/null
documents=$stage/usr/share/doc/comem

# Debian's places: zsh looks elsewhere, system units have a place of their own, licences stand in one file.
mkdir -p "$stage/usr/share/zsh/vendor-completions" "$stage/lib/systemd"
mv "$stage/usr/share/zsh/site-functions/_comem" "$stage/usr/share/zsh/vendor-completions/"
rmdir "$stage/usr/share/zsh/site-functions"
mv "$stage/usr/lib/systemd/system" "$stage/lib/systemd/system"
{
    cat deploy/debian/copyright
    echo
    echo "License: MIT"
    sed -e 's/^$/./' -e 's/^/ /' LICENSE-MIT
} >"$documents/copyright"
rm "$documents/LICENSE-MIT" "$documents/LICENSE-APACHE"

# The day of the change, not of the build: the same sources give the same package.
day=$(git log -1 --format=%cD 2>/dev/null || date -R)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(date -d "$day" +%s)}"
printf 'comem (%s-%s) unstable; urgency=medium\n\n  * See CHANGELOG.md beside this file.\n\n -- %s  %s\n' \
    "$version" "$revision" "$maintainer" "$day" | gzip -9n >"$documents/changelog.Debian.gz"
gzip -9n "$documents/CHANGELOG.md"
mv "$documents/CHANGELOG.md.gz" "$documents/changelog.gz"
find "$stage/usr/share/man" -name '*.1' -exec gzip -9n {} +

# What programs and the loader need stays; a static library keeps what the linker needs.
strip --strip-all --remove-section=.comment --remove-section=.note "$stage"/usr/bin/*
find "$stage/usr/lib" -name '*.so*' -type f \
    -exec strip --strip-unneeded --remove-section=.comment --remove-section=.note {} +
find "$stage/usr/lib" -name '*.a' -exec strip --strip-debug --enable-deterministic-archives {} +
mkdir -p "$stage/usr/share/lintian/overrides"
cp deploy/debian/lintian-overrides "$stage/usr/share/lintian/overrides/comem"
find "$stage" -type d -exec chmod 755 {} +

# Which packages the files need. dpkg-shlibdeps wants a source package around it.
mkdir -p "$work/debian" "$stage/DEBIAN"
printf 'Source: comem\n\nPackage: comem\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && find comem/usr -type f \( -path '*/bin/*' -o -name '*.so*' \) ! -name libcomem_inline.so -print0 |
    xargs -0 dpkg-shlibdeps --warnings=0 -O -xcomem -l"comem/usr/lib/$triple") ||
    die "dpkg-shlibdeps cannot tell what the package depends on"
depends=$(sed -n 's/^shlibs:Depends=//p' <<<"$depends")
[ -n "$depends" ] || die "dpkg-shlibdeps names no dependency, and there is one at least: the C library"

size=$(du -k -s --apparent-size "$stage" | cut -f 1)
sed -e "s|@VERSION@|$version-$revision|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@DEPENDS@|$depends|" \
    -e "s|@SIZE@|$size|" -e "s|@MAINTAINER@|$maintainer|" deploy/debian/control.in >"$stage/DEBIAN/control"
interface=$(cd "$stage/usr/lib/$triple" && find . -name 'libcomem.so.*' -type l | sed 's|.*libcomem\.so\.||')
printf 'libcomem %s comem (>= %s)\n' "$interface" "$version" >"$stage/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$stage/DEBIAN/triggers"
(cd "$stage" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
chmod 644 "$stage/DEBIAN"/*

# Time stamps that are no older than the sources.
find "$stage" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=$out/comem_$version-${revision}_$architecture.deb
dpkg-deb --root-owner-group -Zxz -z"${LEVEL:-6}" --build "$stage" "$package" >/dev/null
echo "The package is there: $package"
echo "To install it: sudo apt-get install $package"
