//! Strings.

use super::memory::{Text, back, copy, find, is_lines, length, set, write};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// Copies a string of this length and its end.
///
/// # Safety
/// As for `strcpy`.
unsafe fn copy_text(to: *mut c_char, from: *const c_char, bytes: usize) -> *mut c_char {
    // SAFETY: by this function's contract.
    unsafe {
        copy(to.cast(), from.cast(), bytes);
        write(to.add(bytes).cast(), c"".as_ptr().cast(), 1);
    }
    to.wrapping_add(bytes)
}

/// Copies a string to memory of `malloc`'s; null where there is none.
///
/// # Safety
/// As for `strndup`.
unsafe fn duplicate(text: *const c_char, most: usize) -> *mut c_char {
    // SAFETY: by this function's contract; the memory has room for the end, too.
    unsafe {
        let bytes = length(text.cast(), most);
        let to = libc::malloc(bytes + 1).cast::<c_char>();
        if !to.is_null() {
            copy_text(to, text, bytes);
        }
        to
    }
}

library! {
    /// `strlen`.
    fn __comem_inline_strlen(text: *const c_char) -> usize {
        if is_lines(text) { length(text.cast(), usize::MAX) } else { libc::strlen(text) }
    }

    /// `strnlen`.
    fn __comem_inline_strnlen(text: *const c_char, most: usize) -> usize {
        length(text.cast(), most)
    }

    /// `strcmp`.
    fn __comem_inline_strcmp(one: *const c_char, other: *const c_char) -> c_int {
        let (one, other) = (Text::of(one), Text::of(other));
        libc::strcmp(one.pointer(), other.pointer())
    }

    /// `strncmp`.
    fn __comem_inline_strncmp(one: *const c_char, other: *const c_char, most: usize) -> c_int {
        let (one, other) = (Text::at_most(one, most), Text::at_most(other, most));
        libc::strncmp(one.pointer(), other.pointer(), most)
    }

    /// `strcasecmp`.
    fn __comem_inline_strcasecmp(one: *const c_char, other: *const c_char) -> c_int {
        let (one, other) = (Text::of(one), Text::of(other));
        libc::strcasecmp(one.pointer(), other.pointer())
    }

    /// `strncasecmp`.
    fn __comem_inline_strncasecmp(one: *const c_char, other: *const c_char, most: usize) -> c_int {
        let (one, other) = (Text::at_most(one, most), Text::at_most(other, most));
        libc::strncasecmp(one.pointer(), other.pointer(), most)
    }

    /// `strcpy`.
    fn __comem_inline_strcpy(to: *mut c_char, from: *const c_char) -> *mut c_char {
        if !is_lines(to) && !is_lines(from) {
            return libc::strcpy(to, from);
        }
        copy_text(to, from, length(from.cast(), usize::MAX));
        to
    }

    /// `stpcpy`.
    fn __comem_inline_stpcpy(to: *mut c_char, from: *const c_char) -> *mut c_char {
        copy_text(to, from, length(from.cast(), usize::MAX))
    }

    /// `strncpy`.
    fn __comem_inline_strncpy(to: *mut c_char, from: *const c_char, most: usize) -> *mut c_char {
        if !is_lines(to) && !is_lines(from) {
            return libc::strncpy(to, from, most);
        }
        let bytes = length(from.cast(), most);
        copy(to.cast(), from.cast(), bytes);
        set(to.add(bytes).cast(), 0, most - bytes);
        to
    }

    /// `strcat`.
    fn __comem_inline_strcat(to: *mut c_char, from: *const c_char) -> *mut c_char {
        if !is_lines(to) && !is_lines(from) {
            return libc::strcat(to, from);
        }
        copy_text(to.add(length(to.cast(), usize::MAX)), from, length(from.cast(), usize::MAX));
        to
    }

    /// `strncat`.
    fn __comem_inline_strncat(to: *mut c_char, from: *const c_char, most: usize) -> *mut c_char {
        if !is_lines(to) && !is_lines(from) {
            return libc::strncat(to, from, most);
        }
        copy_text(to.add(length(to.cast(), usize::MAX)), from, length(from.cast(), most));
        to
    }

    /// `strchr`.
    fn __comem_inline_strchr(text: *const c_char, byte: c_int) -> *mut c_char {
        if !is_lines(text) {
            return libc::strchr(text, byte);
        }
        let at = __comem_inline_strchrnul(text, byte);
        let found = byte as u8 == 0 || length(at.cast(), 1) == 1;
        if found { at } else { null_mut() }
    }

    /// `strchrnul`: the place of the byte, or the string's end.
    fn __comem_inline_strchrnul(text: *const c_char, byte: c_int) -> *mut c_char {
        let text = text.cast_mut();
        let wanted = |one: u8| one == 0 || one == byte as u8;
        if !is_lines(text) {
            let found = libc::strchr(text, byte);
            return if found.is_null() { text.add(libc::strlen(text)) } else { found };
        }
        find(text.cast(), usize::MAX, wanted).map_or(null_mut(), |at| text.wrapping_add(at))
    }

    /// `strrchr`.
    fn __comem_inline_strrchr(text: *const c_char, byte: c_int) -> *mut c_char {
        let private = Text::of(text);
        back(libc::strrchr(private.pointer(), byte), private.pointer(), text)
    }

    /// `strstr`.
    fn __comem_inline_strstr(text: *const c_char, part: *const c_char) -> *mut c_char {
        let (private, part) = (Text::of(text), Text::of(part));
        back(libc::strstr(private.pointer(), part.pointer()), private.pointer(), text)
    }

    /// `strspn`.
    fn __comem_inline_strspn(text: *const c_char, set: *const c_char) -> usize {
        let (text, set) = (Text::of(text), Text::of(set));
        libc::strspn(text.pointer(), set.pointer())
    }

    /// `strcspn`.
    fn __comem_inline_strcspn(text: *const c_char, set: *const c_char) -> usize {
        let (text, set) = (Text::of(text), Text::of(set));
        libc::strcspn(text.pointer(), set.pointer())
    }

    /// `strpbrk`.
    fn __comem_inline_strpbrk(text: *const c_char, set: *const c_char) -> *mut c_char {
        let (private, set) = (Text::of(text), Text::of(set));
        back(libc::strpbrk(private.pointer(), set.pointer()), private.pointer(), text)
    }

    /// `strdup`.
    fn __comem_inline_strdup(text: *const c_char) -> *mut c_char {
        duplicate(text, usize::MAX)
    }

    /// `strndup`.
    fn __comem_inline_strndup(text: *const c_char, most: usize) -> *mut c_char {
        duplicate(text, most)
    }
}
