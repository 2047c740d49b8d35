//! Numbers in strings.

use super::memory::{Text, back, find, give, is_lines};
use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_ulong};
use std::ptr::null_mut;

/// Where a string begins that may be a number: all of it that can belong to one, since a text may be long and have
/// many.
///
/// # Safety
/// A string.
unsafe fn number(text: *const c_char) -> Text {
    if !is_lines(text) {
        return Text::Own(text.cast());
    }
    // SAFETY: the C library's own, with a string at least.
    let point = unsafe { *(*libc::localeconv()).decimal_point } as u8;
    let blank = |byte: u8| byte == b' ' || (9..=13).contains(&byte);
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._()".contains(&byte) || byte == point;
    // SAFETY: by this function's contract; neither goes beyond the string's end.
    unsafe {
        let blanks = find(text.cast(), usize::MAX, |byte| !blank(byte)).unwrap_or(0);
        let digits = find(text.cast::<u8>().add(blanks), usize::MAX, |byte| !part(byte)).unwrap_or(0);
        Text::copied(text.cast(), blanks + digits)
    }
}

/// Reads a number, and says where it ends unless `end` is null.
///
/// # Safety
/// As for `strtol`; `read` is one of its kin.
unsafe fn parse<N>(
    text: *const c_char,
    end: *mut *mut c_char,
    read: impl FnOnce(*const c_char, *mut *mut c_char) -> N,
) -> N {
    // SAFETY: by this function's contract.
    unsafe {
        let private = number(text);
        let mut stopped = null_mut();
        let number = read(private.pointer(), &mut stopped);
        if !end.is_null() {
            super::memory::keeping_errno(|| give(end, back(stopped.cast_const(), private.pointer(), text)));
        }
        number
    }
}

library! {
    /// `strtol` and `strtoll`.
    fn __comem_inline_strtol(text: *const c_char, end: *mut *mut c_char, base: c_int) -> c_long {
        parse(text, end, |text, end| libc::strtol(text, end, base))
    }

    /// `strtoul` and `strtoull`.
    fn __comem_inline_strtoul(text: *const c_char, end: *mut *mut c_char, base: c_int) -> c_ulong {
        parse(text, end, |text, end| libc::strtoul(text, end, base))
    }

    /// `strtod`.
    fn __comem_inline_strtod(text: *const c_char, end: *mut *mut c_char) -> c_double {
        parse(text, end, |text, end| libc::strtod(text, end))
    }

    /// `strtof`.
    fn __comem_inline_strtof(text: *const c_char, end: *mut *mut c_char) -> c_float {
        parse(text, end, |text, end| libc::strtof(text, end))
    }

    /// `atoi`.
    fn __comem_inline_atoi(text: *const c_char) -> c_int {
        libc::atoi(number(text).pointer())
    }

    /// `atol` and `atoll`.
    fn __comem_inline_atol(text: *const c_char) -> c_long {
        libc::atol(number(text).pointer())
    }

    /// `atof`.
    fn __comem_inline_atof(text: *const c_char) -> c_double {
        libc::atof(number(text).pointer())
    }
}
