//! Bytes from lines memory and to it.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;

#[cfg(test)]
pub use super::tests::played::{copy, overlaps, read, set, write};
#[cfg(not(test))]
pub use comem_rt::inline::calls::{copy, read, set, write};

/// Whether any of these bytes is lines memory.
#[cfg(not(test))]
#[inline]
pub fn overlaps<T>(start: *const T, bytes: usize) -> bool {
    comem_rt::inline::calls::touches_lines(start.addr(), bytes)
}

/// So many bytes are read at once. Regions of lines memory begin and end at multiples of it, so what is read goes
/// beyond none.
pub const CHUNK_BYTES: usize = 2048;

/// Whether there is lines memory at all.
#[inline]
pub fn exists() -> bool {
    overlaps(std::ptr::null::<u8>(), usize::MAX)
}

/// Whether this address is lines memory.
#[inline]
pub fn is_lines<T>(at: *const T) -> bool {
    overlaps(at, 1)
}

/// Gives private copies of at most `most` bytes, one after the other, until `each` has seen enough. It gets the
/// offset of its bytes.
///
/// # Safety
/// The bytes may be read as far as `each` wants them.
pub unsafe fn chunks<R>(
    start: *const u8,
    most: usize,
    mut each: impl FnMut(usize, &[u8]) -> ControlFlow<R>,
) -> Option<R> {
    let (mut buffer, mut done) = ([0; CHUNK_BYTES], 0);
    while done < most {
        let at = start.wrapping_add(done);
        let bytes = (CHUNK_BYTES - at.addr() % CHUNK_BYTES).min(most - done);
        // SAFETY: by this function's contract, since no allocation ends before a multiple of the chunks' size.
        unsafe { read(buffer.as_mut_ptr(), at, bytes) };
        if let ControlFlow::Break(result) = each(done, &buffer[..bytes]) {
            return Some(result);
        }
        done += bytes;
    }
    None
}

/// Where among at most `most` bytes of lines memory the first one is that `wanted` names.
///
/// # Safety
/// The bytes up to that one may be read.
pub unsafe fn find(start: *const u8, most: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let first = |done: usize, bytes: &[u8]| match bytes.iter().position(|byte| wanted(*byte)) {
        Some(at) => ControlFlow::Break(done + at),
        None => ControlFlow::Continue(()),
    };
    // SAFETY: by this function's contract.
    unsafe { chunks(start, most, first) }
}

/// The length of a string in memory of any kind, at most `most`.
///
/// # Safety
/// As for `strnlen`.
pub unsafe fn length(text: *const u8, most: usize) -> usize {
    // SAFETY: by this function's contract.
    unsafe {
        match is_lines(text) {
            true => find(text, most, |byte| byte == 0).unwrap_or(most),
            false => libc::strnlen(text.cast(), most),
        }
    }
}

/// A string that the C library may read: where it was, or a private copy.
#[derive(Debug)]
pub enum Text {
    /// It was private.
    Own(*const u8),
    /// It was not. Ends with 0.
    Copy(Vec<u8>),
}

impl Text {
    /// A string of any length; null stays null.
    ///
    /// # Safety
    /// Null or a string.
    pub unsafe fn of<T>(text: *const T) -> Text {
        // SAFETY: by this function's contract.
        unsafe { Text::at_most(text, usize::MAX) }
    }

    /// The first `most` bytes of a string, or all of it.
    ///
    /// # Safety
    /// Null, or as for `strnlen`.
    pub unsafe fn at_most<T>(text: *const T, most: usize) -> Text {
        let text = text.cast::<u8>();
        if !is_lines(text) {
            return Text::Own(text);
        }
        // SAFETY: by this function's contract.
        unsafe { Text::copied(text, length(text, most)) }
    }

    /// A copy of so many bytes, with a 0 behind them.
    ///
    /// # Safety
    /// The bytes may be read.
    pub unsafe fn copied(text: *const u8, bytes: usize) -> Text {
        let mut copy = vec![0; bytes + 1];
        // SAFETY: by this function's contract, and the copy has room.
        unsafe { read(copy.as_mut_ptr(), text, bytes) };
        Text::Copy(copy)
    }

    /// Where the C library may read it.
    pub fn pointer<T>(&self) -> *const T {
        match self {
            Text::Own(text) => text.cast(),
            Text::Copy(copy) => copy.as_ptr().cast(),
        }
    }
}

/// The C library's place in a string or block as the caller's: `found` is null or within `private`, which stands for
/// `own`.
pub fn back<T, U>(found: *const T, private: *const T, own: *const U) -> *mut U {
    if found.is_null() {
        return std::ptr::null_mut();
    }
    own.cast::<u8>().wrapping_add(found.addr() - private.addr()).cast::<U>().cast_mut()
}

/// Stores a value in memory of any kind.
///
/// # Safety
/// There is room for it, at any alignment.
pub unsafe fn give<T>(to: *mut T, value: T) {
    // SAFETY: by this function's contract.
    unsafe {
        match overlaps(to, size_of::<T>()) {
            true => write(to.cast(), (&raw const value).cast(), size_of::<T>()),
            false => to.write_unaligned(value),
        }
    }
}

/// Calls with a place for a result, or with a private one where it is lines memory, from which it is copied if
/// `filled` says so.
///
/// # Safety
/// As for the call; null is for it to treat.
pub unsafe fn with_result<T, R: Copy>(to: *mut T, filled: impl FnOnce(R) -> bool, call: impl FnOnce(*mut T) -> R) -> R {
    if !overlaps(to, size_of::<T>()) {
        return call(to);
    }
    let mut private = MaybeUninit::<T>::uninit();
    let result = call(private.as_mut_ptr());
    if filled(result) {
        // SAFETY: the call has filled it in, and by this function's contract there is room.
        keeping_errno(|| unsafe { write(to.cast(), private.as_ptr().cast(), size_of::<T>()) });
    }
    result
}

/// Runs something that may wait for other nodes, and leaves `errno` as the C library has set it.
pub fn keeping_errno<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: the C library gives each thread a valid address.
    let before = unsafe { *libc::__errno_location() };
    let result = body();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    result
}
