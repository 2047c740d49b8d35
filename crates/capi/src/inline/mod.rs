//! What code checked by `comem-cc --inline` calls: see `compiler/abi.h`.
//!
//! | module | functions |
//! |---|---|
//! | [`calls`] | accesses that missed, ranges, atomic operations |
//! | [`signals`] | handlers of signals |

mod calls;
mod signals;
