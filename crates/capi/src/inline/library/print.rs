//! `printf` and its kin. Strings among the arguments that are in lines memory are copied, and the C library prints.

use super::arguments::{ARGUMENTS_MAX, Class, Format, Replaced, VaList, Width, int_in, pointer_in, with_va_list};
use super::memory::{self, Text, find, is_lines, keeping_errno, write};
use libc::{FILE, c_char, c_int};
use std::ptr::null_mut;

unsafe extern "C-unwind" {
    static stdout: *mut FILE;
    fn vfprintf(stream: *mut FILE, format: *const c_char, list: *mut VaList) -> c_int;
    fn vsprintf(to: *mut c_char, format: *const c_char, list: *mut VaList) -> c_int;
    fn vsnprintf(to: *mut c_char, bytes: usize, format: *const c_char, list: *mut VaList) -> c_int;
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, list: *mut VaList) -> c_int;
}

/// So much of a string is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Precision {
    /// All of it.
    All,
    /// At most so many bytes.
    Bytes(usize),
    /// What this argument says.
    Argument(usize),
}

/// What an argument is to its conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// A value.
    Value,
    /// A string of bytes.
    Text(Precision),
    /// A string of `wchar_t`.
    Wide(Precision),
    /// A place for the number of bytes printed so far.
    Count(Width),
}

/// The arguments that a format names.
#[derive(Clone, Debug, Default)]
struct Arguments {
    classes: Vec<Class>,
    /// The arguments that are pointers; one may have several uses.
    pointers: Vec<(usize, Use)>,
    next: usize,
}

impl Arguments {
    fn of(format: &[u8]) -> Arguments {
        let mut arguments = Arguments::default();
        let mut format = Format::new(format);
        while format.next_conversion() && arguments.conversion(&mut format) {}
        arguments
    }

    fn set(&mut self, position: Option<usize>, class: Class, used: Use) -> usize {
        let at = position.unwrap_or(self.next);
        self.next += usize::from(position.is_none());
        if at < ARGUMENTS_MAX {
            if self.classes.len() <= at {
                self.classes.resize(at + 1, Class::General);
            }
            self.classes[at] = class;
            self.pointers.extend((used != Use::Value).then_some((at, used)));
        }
        at
    }

    /// One conversion; `false` where nobody knows what it takes.
    fn conversion(&mut self, format: &mut Format<'_>) -> bool {
        let position = format.position();
        while b"#0- +'I".contains(&format.peek()) && format.peek() != 0 {
            format.take();
        }
        if format.skips(b'*') {
            let of = format.position();
            self.set(of, Class::General, Use::Value);
        } else {
            format.number();
        }
        let mut precision = Precision::All;
        if format.skips(b'.') {
            precision = if format.skips(b'*') {
                let of = format.position();
                Precision::Argument(self.set(of, Class::General, Use::Value))
            } else {
                Precision::Bytes(format.number().unwrap_or(0))
            };
        }
        let width = format.width();
        let (class, used) = match format.take() {
            b'%' | b'm' => return true,
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'b' | b'B' | b'c' | b'C' | b'p' => (Class::General, Use::Value),
            b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G' if width == Width::LongDouble => {
                (Class::LongDouble, Use::Value)
            }
            b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G' => (Class::Double, Use::Value),
            b's' if width == Width::Long => (Class::General, Use::Wide(precision)),
            b's' => (Class::General, Use::Text(precision)),
            b'S' => (Class::General, Use::Wide(precision)),
            b'n' => (Class::General, Use::Count(width)),
            _ => return false,
        };
        self.set(position, class, used);
        true
    }
}

/// A place for a number of bytes printed that is in lines memory, and the private one that the C library got.
struct Counted {
    own: *mut u8,
    private: Box<u64>,
    bytes: usize,
}

/// Prints, with private copies of what is in lines memory; `print` gets the format and the arguments.
///
/// # Safety
/// As for `vprintf`.
unsafe fn printed(
    format: *const c_char,
    list: *mut VaList,
    print: impl FnOnce(*const c_char, *mut VaList) -> c_int,
) -> c_int {
    if !memory::exists() {
        return print(format, list);
    }
    // SAFETY: by this function's contract the format is a string, and the list has the arguments that it names.
    unsafe {
        let format = Text::of(format);
        let text = std::ffi::CStr::from_ptr(format.pointer()).to_bytes();
        let mut arguments = Arguments::of(text);
        if arguments.pointers.is_empty() {
            return print(format.pointer(), list);
        }
        let places = (*list).places(arguments.classes.iter().copied());
        let most = |used: &Use| match *used {
            Use::Text(Precision::Bytes(most)) | Use::Wide(Precision::Bytes(most)) => most,
            Use::Text(Precision::Argument(at)) | Use::Wide(Precision::Argument(at)) => {
                places.get(at).map_or(0, |place| usize::try_from(int_in(*place)).unwrap_or(usize::MAX))
            }
            Use::Text(Precision::All) | Use::Wide(Precision::All) | Use::Value | Use::Count(_) => usize::MAX,
        };
        // Of several uses of an argument the longest is the one that is copied for.
        arguments.pointers.sort_by_key(|(_, used)| std::cmp::Reverse(most(used)));
        let (mut copies, mut counts, mut replaced) = (Vec::new(), Vec::new(), Replaced::default());
        for (at, used) in &arguments.pointers {
            let place = places[*at];
            let own = pointer_in::<u8>(place);
            if !is_lines(own) {
                continue;
            }
            if let Use::Count(width) = used {
                let count = Counted { own, private: Box::new(0), bytes: width.bytes() };
                replaced.replace(place, &raw const *count.private);
                counts.push(count);
                continue;
            }
            let copy =
                if matches!(used, Use::Text(_)) { Text::at_most(own, most(used)) } else { wide(own, most(used)) };
            replaced.replace(place, copy.pointer::<u8>());
            copies.push(copy);
        }
        let result = print(format.pointer(), list);
        drop(replaced);
        keeping_errno(|| {
            counts.iter().for_each(|count| write(count.own, (&raw const *count.private).cast(), count.bytes))
        });
        result
    }
}

/// A private copy of a string of `wchar_t`, of at most so many of them.
///
/// # Safety
/// Such a string in lines memory.
unsafe fn wide(text: *const u8, most: usize) -> Text {
    const BYTES: usize = size_of::<libc::wchar_t>();
    let ends = |count: usize| {
        // SAFETY: by this function's contract, since none before was the last.
        unsafe { find(text.add(count * BYTES), BYTES, |byte| byte != 0).is_none() }
    };
    let count = (0..most).find(|count| ends(*count)).unwrap_or(most);
    // SAFETY: by this function's contract. Behind the copy come four zero bytes.
    unsafe {
        let Text::Copy(mut copy) = Text::copied(text, count * BYTES) else { unreachable!("it is always a copy") };
        copy.resize((count + 1) * BYTES, 0);
        Text::Copy(copy)
    }
}

/// Prints into lines memory, of which at most `room` bytes may be used.
///
/// # Safety
/// As for `vsnprintf`.
unsafe fn printed_to(to: *mut c_char, room: usize, format: *const c_char, list: *mut VaList) -> c_int {
    // SAFETY: by this function's contract; the C library allocates what it prints.
    unsafe {
        let mut private = null_mut();
        let bytes = printed(format, list, |format, list| vasprintf(&mut private, format, list));
        if let Ok(bytes) = usize::try_from(bytes) {
            let kept = bytes.min(room.saturating_sub(1));
            if room > 0 {
                private.add(kept).write(0);
                write(to.cast(), private.cast(), kept + 1);
            }
            libc::free(private.cast());
        }
        bytes
    }
}

library! {
    /// `vprintf`.
    fn __comem_inline_vprintf(format: *const c_char, list: *mut VaList) -> c_int {
        printed(format, list, |format, list| vfprintf(stdout, format, list))
    }

    /// `vfprintf`.
    fn __comem_inline_vfprintf(stream: *mut FILE, format: *const c_char, list: *mut VaList) -> c_int {
        printed(format, list, |format, list| vfprintf(stream, format, list))
    }

    /// `vsprintf`.
    fn __comem_inline_vsprintf(to: *mut c_char, format: *const c_char, list: *mut VaList) -> c_int {
        if is_lines(to) {
            return printed_to(to, usize::MAX, format, list);
        }
        printed(format, list, |format, list| vsprintf(to, format, list))
    }

    /// `vsnprintf`.
    fn __comem_inline_vsnprintf(to: *mut c_char, room: usize, format: *const c_char, list: *mut VaList) -> c_int {
        if is_lines(to) {
            return printed_to(to, room, format, list);
        }
        printed(format, list, |format, list| vsnprintf(to, room, format, list))
    }
}

with_va_list! {
    /// `printf`.
    fn __comem_inline_printf = __comem_inline_vprintf(1, "rsi");
    /// `fprintf`.
    fn __comem_inline_fprintf = __comem_inline_vfprintf(2, "rdx");
    /// `sprintf`.
    fn __comem_inline_sprintf = __comem_inline_vsprintf(2, "rdx");
    /// `snprintf`.
    fn __comem_inline_snprintf = __comem_inline_vsnprintf(3, "rcx");
}
