//! What code checked by `comem-cc --inline` calls: see `compiler/abi.h`.
//!
//! | module | functions |
//! |---|---|
//! | [`calls`] | accesses that missed, ranges, atomic operations |

mod calls;
