//! Gives the shared library its name, so that programs find it by that wherever it was when they were linked.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcomem.so");
    println!("cargo::rerun-if-changed=build.rs");
}
