//! What code checked by `comem-cc --inline` calls: see `compiler/abi.h`.

mod calls;
// The plug-in makes code for this machine alone.
#[cfg(target_arch = "x86_64")]
mod library;
mod signals;
