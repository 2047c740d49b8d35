//! The program's buffers, strings, options and places for results. In memory that the program checks itself, plain
//! loads and stores of this library would miss those checks: it would read what is invalid, and its stores would be
//! lost. So it uses the functions that checked code calls. For other memory these are plain copies.

use comem_rt::inline::calls;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;

/// So many bytes of a string are read at once. Regions of lines memory begin and end at multiples of it, so what is
/// read goes beyond none.
const CHUNK_BYTES: usize = 2048;

/// The bytes of a buffer: those themselves, or a private copy.
///
/// # Safety
/// `from` points to so many bytes, which nobody changes meanwhile; it may be null for none.
pub unsafe fn bytes_of<'a>(from: *const u8, bytes: usize) -> Cow<'a, [u8]> {
    if bytes == 0 {
        return Cow::Borrowed(&[]);
    }
    if !calls::touches_lines(from.addr(), bytes) {
        // SAFETY: by this function's contract.
        return Cow::Borrowed(unsafe { std::slice::from_raw_parts(from, bytes) });
    }
    let mut own = vec![0; bytes];
    // SAFETY: by this function's contract, and there is room.
    unsafe { calls::read(own.as_mut_ptr(), from, bytes) };
    Cow::Owned(own)
}

/// A string, or a private copy of it; `None` for null.
///
/// # Safety
/// `text` is null or a string, which nobody changes meanwhile.
pub unsafe fn text_of<'a>(text: *const c_char) -> Option<Cow<'a, CStr>> {
    if text.is_null() {
        return None;
    }
    if !calls::touches_lines(text.addr(), 1) {
        // SAFETY: by this function's contract.
        return Some(Cow::Borrowed(unsafe { CStr::from_ptr(text) }));
    }
    let (mut own, mut chunk) = (Vec::new(), [0; CHUNK_BYTES]);
    loop {
        let at = text.cast::<u8>().wrapping_add(own.len());
        let bytes = &mut chunk[..CHUNK_BYTES - at.addr() % CHUNK_BYTES];
        // SAFETY: by this function's contract the string goes on here, in a region that ends behind these bytes.
        unsafe { calls::read(bytes.as_mut_ptr(), at, bytes.len()) };
        let end = bytes.iter().position(|byte| *byte == 0);
        own.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        if end.is_some() {
            return Some(Cow::Owned(CString::new(own).unwrap_or_default()));
        }
    }
}

/// The value at a place, such as the options of a call; `None` for null.
///
/// # Safety
/// `from` is null or points to a `T`, aligned.
pub unsafe fn value_of<T: Copy>(from: *const T) -> Option<T> {
    let mut own = MaybeUninit::<T>::uninit();
    // SAFETY: by this function's contract, and there is room; what is copied is a `T`.
    (!from.is_null()).then(|| unsafe {
        calls::read(own.as_mut_ptr().cast(), from.cast(), size_of::<T>());
        own.assume_init()
    })
}

/// A copy of the program's numbers.
///
/// # Safety
/// `from` points to so many numbers.
pub unsafe fn numbers_of<T: Copy + Default>(from: *const T, count: usize) -> Vec<T> {
    let mut own = vec![T::default(); count];
    // SAFETY: by this function's contract, and there is room; numbers have no padding.
    unsafe { calls::read(own.as_mut_ptr().cast(), from.cast(), count * size_of::<T>()) };
    own
}

/// Copies bytes to the program's buffer.
///
/// # Safety
/// The buffer has room for them.
pub unsafe fn fill(buffer: *mut u8, bytes: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { calls::write(buffer, bytes.as_ptr(), bytes.len()) };
}

/// Stores a result where the program wants it.
///
/// # Safety
/// `place` points to a `T`, aligned.
pub unsafe fn give<T: Copy>(place: *mut T, value: T) {
    // SAFETY: by this function's contract.
    unsafe { calls::write(place.cast(), (&raw const value).cast(), size_of::<T>()) };
}

/// Has `change` work on the program's numbers: on themselves, or on private copies that are copied back.
///
/// # Safety
/// `values` points to so many numbers that nobody else uses meanwhile; it may be null for none.
pub unsafe fn with_numbers<T: Copy + Default, R>(
    values: *mut T,
    count: usize,
    change: impl FnOnce(&mut [T]) -> R,
) -> R {
    let bytes = count * size_of::<T>();
    if count == 0 {
        return change(&mut []);
    }
    if !calls::touches_lines(values.addr(), bytes) {
        // SAFETY: by this function's contract.
        return change(unsafe { std::slice::from_raw_parts_mut(values, count) });
    }
    // SAFETY: by this function's contract.
    let mut own = unsafe { numbers_of(values, count) };
    let result = change(&mut own);
    // SAFETY: by this function's contract.
    unsafe { calls::write(values.cast(), own.as_ptr().cast(), bytes) };
    result
}
