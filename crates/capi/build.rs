//! Gives the shared library a name with the version of its interface, by which programs ask for it when they start, and
//! lays a link of that name beside it, so that programs run from the build's own directory too.
//!
//! Before 1.0 each minor version may change the interface: 0.1.4 is `libcomem.so.0.1`, and 1.2.3 `libcomem.so.1`.

use std::env::var;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let number = |name: &str| var(name).unwrap_or_default();
    let interface = match (number("CARGO_PKG_VERSION_MAJOR"), number("CARGO_PKG_VERSION_MINOR")) {
        (zero, minor) if zero == "0" => format!("0.{minor}"),
        (major, _) => major,
    };
    let name = format!("libcomem.so.{interface}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    link(&name);
}

/// The link `name` to the library in the directory where Cargo puts it, which lies three above that of this script's
/// output: `release/build/comem-c-HASH/out`. Where it cannot be made, programs there want `LD_LIBRARY_PATH`.
#[cfg(unix)]
fn link(name: &str) {
    let out = var("OUT_DIR").unwrap_or_default();
    let Some(directory) = Path::new(&out).ancestors().nth(3) else { return };
    let link = directory.join(name);
    if link.is_symlink() {
        return;
    }
    if let Err(error) = std::os::unix::fs::symlink("libcomem.so", &link) {
        println!("cargo::warning={} cannot be made: {error}", link.display());
    }
}

#[cfg(not(unix))]
fn link(_: &str) {}
