//! A library to preload (`LD_PRELOAD`, which `comem run` sets): it stands before the C library's functions that hand a
//! pointer to the kernel, and makes them work on shared memory.
//!
//! A load or store on a shared page that is not here raises a signal, and Comem fetches the page. A *system call* on
//! such a page raises nothing: it fails with EFAULT, or loses the datagram it was to store. So each function here asks
//! one question, does the buffer lie in the shared heap?, which costs two comparisons; almost always the answer is no,
//! and the real function is called. If it is yes, the buffer's pages are brought here first, and if another thread or
//! node takes one away before the kernel gets to it, again; after some tries the bytes take the way through private
//! memory, which nobody can take away. Memory that the program's own code checks (`comem-cc --inline`) always takes
//! that way: the kernel would read what is not here without an error.
//!
//! | file | does |
//! |---|---|
//! | [`heap`] | where the shared heap is, and bringing pages here: told by the runtime through [`comem_wrap_install`] |
//! | [`real`] | the functions that ours stand before |
//! | [`transfer`] | the rule above, for one buffer |
//! | [`vectors`] | the same for several buffers in one call |
//! | [`files`], [`sockets`], [`streams`], [`paths`], [`small`] | the functions themselves |
//!
//! These functions are called before `main`, in signal handlers and in the middle of Comem: without a shared buffer
//! they take no lock, allocate nothing and leave `errno` alone.

#![cfg_attr(test, allow(dead_code))] // tests call the parts, not the names that programs see

mod checked;
mod errno;
mod files;
mod heap;
mod paths;
mod private;
mod real;
mod small;
mod sockets;
mod streams;
#[cfg(test)]
mod tests;
mod transfer;
mod vectors;

use std::ffi::{c_int, c_uint};

/// The version of the agreement between this library and the runtime.
const VERSION: c_uint = 1;

/// What the runtime calls once its heap is there: `bytes` from `base` are shared memory, and `touch` brings pages of it
/// here. Gives 0, or -1 when the runtime speaks another version (then nothing is wrapped).
///
/// # Safety
/// `touch` may be called by any thread at any time from here on, and the heap stays where it is.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn comem_wrap_install(version: c_uint, base: usize, bytes: usize, touch: heap::Touch) -> c_int {
    if version != VERSION {
        return -1;
    }
    heap::set(base, bytes, touch);
    0
}

/// What the runtime calls when `bytes` from `base`, a part of the heap, are lines memory: `copy` copies from and to it.
///
/// # Safety
/// [`comem_wrap_install`] was called, `copy` may be called by any thread at any time, and the memory stays such memory.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn comem_wrap_lines(base: usize, bytes: usize, copy: heap::Copy) {
    heap::set_lines(base, bytes, copy);
}

/// What the runtime calls when the program's global variables, `bytes` from `base`, have become shared memory too.
///
/// # Safety
/// [`comem_wrap_install`] was called, and the memory stays shared.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn comem_wrap_add(base: usize, bytes: usize) {
    heap::add(base, bytes);
}
