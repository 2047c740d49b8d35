//! What code checked by `comem-cc --inline` calls: see `compiler/abi.h`.
//!
//! | module | functions |
//! |---|---|
//! | [`calls`] | accesses that missed, ranges, atomic operations |
//! | [`library`] | functions of the C library for lines memory |
//! | [`signals`] | handlers of signals |

mod calls;
// The plug-in makes code for this machine alone.
#[cfg(target_arch = "x86_64")]
mod library;
mod signals;
