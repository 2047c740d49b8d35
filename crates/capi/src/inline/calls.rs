//! Accesses of checked code: those that missed, those of any length, and atomic operations.
//!
//! They may be called before the job has started, after it has ended, and with addresses of private memory: then they
//! do what a plain access does. None of them returns an error. What cannot be done ends the node with a sentence.

use comem_rt::inline::calls;
use std::ffi::{c_char, c_int, c_void};

/// A module of the program says that its code is checked, and how it finds its threads' hazards.
///
/// # Safety
/// `module` is a string that lives for ever, and `hazard` gives the address of a word of the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_object(
    abi: u32,
    module: *const c_char,
    hazard: extern "C" fn() -> *mut *mut u64,
) {
    // SAFETY: by this function's contract.
    unsafe { calls::object(abi, module, hazard) }
}

/// The calling thread's hazard.
#[unsafe(no_mangle)]
pub extern "C" fn __comem_inline_enter() -> *mut u64 {
    calls::enter()
}

/// A load whose value looked invalid.
///
/// # Safety
/// As for a load of so many bytes; `value` is private.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_load(address: *const u8, value: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { calls::load(address, value, bytes) }
}

/// A store to a line that is not this node's alone.
///
/// # Safety
/// As for a store of so many bytes; `value` is private.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_store(address: *mut u8, value: *const u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { calls::store(address, value, bytes) }
}

/// Makes the units of a range this node's alone, as far as that lasts.
///
/// # Safety
/// As for a store to the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_own(first: *const u8, bytes: usize) {
    calls::own(first, bytes);
}

/// As [`__comem_inline_own`], for a thread in the middle of a strip: the units become biased too.
///
/// # Safety
/// As for a store to the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_own_again(first: *const u8, bytes: usize) {
    calls::own_again(first, bytes);
}

/// An atomic operation on a line that is not this node's alone.
///
/// # Safety
/// As for the operation; the other pointers are to private values of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_atomic(
    address: *mut u8,
    bytes: u32,
    op: u32,
    operand: *const u8,
    expected: *const u8,
    old: *mut u8,
) {
    // SAFETY: by this function's contract.
    unsafe { calls::atomic(address, bytes, op, operand, expected, old) }
}

/// `memcpy` between memory of any kind.
///
/// # Safety
/// As for `memcpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    // SAFETY: by this function's contract.
    unsafe { calls::copy(to.cast(), from.cast(), bytes) };
    to
}

/// `memmove` between memory of any kind.
///
/// # Safety
/// As for `memmove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    // SAFETY: by this function's contract.
    unsafe { calls::copy(to.cast(), from.cast(), bytes) };
    to
}

/// `memset` of memory of any kind.
///
/// # Safety
/// As for `memset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_memset(to: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void {
    // SAFETY: by this function's contract.
    unsafe { calls::set(to.cast(), byte as u8, bytes) };
    to
}

/// Reads shared memory of any length into private memory.
///
/// # Safety
/// As for `memcpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_read(out: *mut c_void, shared: *const c_void, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { calls::read(out.cast(), shared.cast(), bytes) }
}

/// Writes private memory of any length into shared memory.
///
/// # Safety
/// As for `memcpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_write(shared: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { calls::write(shared.cast(), from.cast(), bytes) }
}

/// The compiler took this address for private: ends the process with a sentence if it is in lines memory.
///
/// # Safety
/// `place` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_verify(address: *const c_void, bytes: usize, place: *const c_char) {
    // SAFETY: by this function's contract.
    unsafe { calls::verify(address.cast(), bytes, place) }
}
