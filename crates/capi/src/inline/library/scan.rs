//! `scanf` and its kin. What goes to lines memory is read into private places, and copied from there.
//!
//! Nobody knows how long a string will be that is read. So the format is changed where one goes to lines memory: the
//! C library allocates it (`%ms` in place of `%s`).

use super::arguments::{ARGUMENTS_MAX, Class, Format, Replaced, VaList, Width, pointer_in, with_va_list};
use super::memory::{self, Text, is_lines, keeping_errno, write};
use libc::{FILE, c_char, c_int};

unsafe extern "C-unwind" {
    static stdin: *mut FILE;
    fn __isoc99_vfscanf(stream: *mut FILE, format: *const c_char, list: *mut VaList) -> c_int;
    fn __isoc99_vsscanf(text: *const c_char, format: *const c_char, list: *mut VaList) -> c_int;
}

/// What a conversion stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    /// So many bytes.
    Bytes(usize),
    /// A number of bytes read so far, which counts as no conversion.
    Count(usize),
    /// A string, whose letters have so many bytes.
    Text(usize),
}

/// A conversion that stores something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Conversion {
    /// The number of its argument.
    argument: usize,
    stored: Stored,
    /// Where `m` is to be put into the format.
    before_width: usize,
}

/// The conversions of a format that store something.
fn conversions(format: &[u8]) -> Vec<Conversion> {
    let (mut list, mut next) = (Vec::new(), 0);
    let mut format = Format::new(format);
    while format.next_conversion() {
        let position = format.position();
        let suppressed = format.skips(b'*');
        while matches!(format.peek(), b'\'' | b'I') {
            format.take();
        }
        let most = format.number();
        let before_width = format.at;
        let allocated = format.skips(b'm');
        let width = format.width();
        let letter = if width == Width::Long { size_of::<libc::wchar_t>() } else { 1 };
        let stored = match format.take() {
            b'%' => continue,
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' => Stored::Bytes(width.bytes()),
            b'p' => Stored::Bytes(8),
            b'n' => Stored::Count(width.bytes()),
            b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G' => Stored::Bytes(match width {
                Width::Long => 8,
                Width::LongDouble => 16,
                _ => 4,
            }),
            b's' => Stored::Text(letter),
            b'S' => Stored::Text(size_of::<libc::wchar_t>()),
            b'c' => Stored::Bytes(most.unwrap_or(1) * letter),
            b'C' => Stored::Bytes(most.unwrap_or(1) * size_of::<libc::wchar_t>()),
            b'[' => {
                format.skips(b'^');
                format.skips(b']');
                while !matches!(format.take(), b']' | 0) {}
                Stored::Text(letter)
            }
            _ => break,
        };
        if suppressed {
            continue;
        }
        // A pointer to what the C library allocates.
        let stored = if allocated { Stored::Bytes(8) } else { stored };
        let argument = position.unwrap_or(next);
        next += usize::from(position.is_none());
        if argument >= ARGUMENTS_MAX {
            break;
        }
        list.push(Conversion { argument, stored, before_width });
    }
    list
}

/// A private place that stands for one in lines memory.
struct Place {
    own: *mut u8,
    stored: Stored,
    /// How many conversions must have stored something until this one has.
    conversions: c_int,
    /// Aligned for whatever is stored.
    private: Vec<u128>,
}

impl Place {
    /// Copies what was stored here, if `done` conversions have stored something.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn give(&self, done: c_int) {
        let private = self.private.as_ptr().cast::<u8>();
        let has = done >= self.conversions;
        // SAFETY: by this function's contract; what was not stored is as it was made.
        unsafe {
            match self.stored {
                Stored::Bytes(bytes) if has => write(self.own, private, bytes),
                Stored::Count(bytes) if (0..bytes).any(|at| *private.add(at) != 0xff) => {
                    write(self.own, private, bytes)
                }
                Stored::Text(letter) => {
                    let text = private.cast::<*mut u8>().read();
                    if has && !text.is_null() {
                        let ends = |count: &usize| (0..letter).all(|at| *text.add(count * letter + at) == 0);
                        let count = (0..).find(ends).unwrap_or(0);
                        write(self.own, text, (count + 1) * letter);
                    }
                    libc::free(text.cast());
                }
                _ => {}
            }
        }
    }
}

/// Scans, with private places for what goes to lines memory; `scan` gets the format and the arguments.
///
/// # Safety
/// As for `vscanf`.
unsafe fn scanned(
    format: *const c_char,
    list: *mut VaList,
    scan: impl FnOnce(*const c_char, *mut VaList) -> c_int,
) -> c_int {
    if !memory::exists() {
        return scan(format, list);
    }
    // SAFETY: by this function's contract the format is a string, and the list has the arguments that it names.
    unsafe {
        let format = Text::of(format);
        let text = std::ffi::CStr::from_ptr(format.pointer()).to_bytes();
        let conversions = conversions(text);
        let count = conversions.iter().map(|conversion| conversion.argument + 1).max().unwrap_or(0);
        let arguments = (*list).places((0..count).map(|_| Class::General));
        let (mut changed, mut copied) = (Vec::with_capacity(text.len() + conversions.len() + 1), 0);
        let (mut places, mut replaced, mut stored) = (Vec::new(), Replaced::default(), 0);
        for conversion in &conversions {
            stored += c_int::from(!matches!(conversion.stored, Stored::Count(_)));
            let own = pointer_in::<u8>(arguments[conversion.argument]);
            if !is_lines(own) {
                continue;
            }
            let (words, fill) = match conversion.stored {
                Stored::Bytes(bytes) => (bytes.div_ceil(16), 0),
                Stored::Count(_) => (1, u128::MAX),
                Stored::Text(_) => {
                    changed.extend_from_slice(&text[copied..conversion.before_width]);
                    changed.push(b'm');
                    copied = conversion.before_width;
                    (1, 0)
                }
            };
            let place = Place { own, stored: conversion.stored, conversions: stored, private: vec![fill; words] };
            replaced.replace(arguments[conversion.argument], place.private.as_ptr());
            places.push(place);
        }
        changed.extend_from_slice(&text[copied..]);
        changed.push(0);
        let done = scan(changed.as_ptr().cast(), list);
        drop(replaced);
        keeping_errno(|| places.iter().for_each(|place| place.give(done)));
        done
    }
}

library! {
    /// `vscanf`.
    fn __comem_inline_vscanf(format: *const c_char, list: *mut VaList) -> c_int {
        scanned(format, list, |format, list| __isoc99_vfscanf(stdin, format, list))
    }

    /// `vfscanf`.
    fn __comem_inline_vfscanf(stream: *mut FILE, format: *const c_char, list: *mut VaList) -> c_int {
        scanned(format, list, |format, list| __isoc99_vfscanf(stream, format, list))
    }

    /// `vsscanf`.
    fn __comem_inline_vsscanf(text: *const c_char, format: *const c_char, list: *mut VaList) -> c_int {
        let text = Text::of(text);
        scanned(format, list, |format, list| __isoc99_vsscanf(text.pointer(), format, list))
    }
}

with_va_list! {
    /// `scanf`.
    fn __comem_inline_scanf = __comem_inline_vscanf(1, "rsi");
    /// `fscanf`.
    fn __comem_inline_fscanf = __comem_inline_vfscanf(2, "rdx");
    /// `sscanf`.
    fn __comem_inline_sscanf = __comem_inline_vsscanf(2, "rdx");
}
