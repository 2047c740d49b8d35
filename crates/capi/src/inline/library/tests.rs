//! The functions on lines memory that is played: units of 64 bytes, of which any may be invalid and then hold the
//! fill. Whoever reads one directly gets that, and whoever stores into one directly is found out.

use super::bytes::*;
use super::calls::*;
use super::numbers::*;
use super::streams::*;
use super::strings::*;
use played::{Block, block};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

/// The memory.
pub mod played {
    use std::sync::{Mutex, MutexGuard, OnceLock};

    const UNIT_BYTES: usize = 64;
    const UNITS: usize = 1 << 15;
    const MAGIC: [u8; 4] = 0xfffd_fffd_u32.to_le_bytes();

    struct State {
        /// What the memory would hold if every unit were valid.
        home: Vec<u8>,
        valid: Vec<bool>,
        used: usize,
    }

    #[repr(align(2048))]
    struct Lines([u8; UNITS * UNIT_BYTES]);

    fn base() -> usize {
        static BASE: OnceLock<usize> = OnceLock::new();
        *BASE.get_or_init(|| {
            // SAFETY: zeros are a value of this type.
            let lines = unsafe { Box::<Lines>::new_zeroed().assume_init() };
            (&raw mut Box::leak(lines).0).expose_provenance()
        })
    }

    fn state() -> MutexGuard<'static, State> {
        static STATE: OnceLock<Mutex<State>> = OnceLock::new();
        let new = || State { home: vec![0; UNITS * UNIT_BYTES], valid: vec![true; UNITS], used: 0 };
        STATE.get_or_init(|| Mutex::new(new())).lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn at(offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(base() + offset)
    }

    pub fn overlaps<T>(start: *const T, bytes: usize) -> bool {
        let (first, end) = (start.addr(), start.addr().saturating_add(bytes));
        first < base() + UNITS * UNIT_BYTES && end > base()
    }

    fn bring(state: &mut State, offset: usize, bytes: usize) {
        for unit in offset / UNIT_BYTES..(offset + bytes).div_ceil(UNIT_BYTES) {
            if !std::mem::replace(&mut state.valid[unit], true) {
                let start = unit * UNIT_BYTES;
                // SAFETY: the unit, and its bytes.
                unsafe { at(start).copy_from_nonoverlapping(state.home[start..].as_ptr(), UNIT_BYTES) };
            }
        }
    }

    pub unsafe fn read(out: *mut u8, shared: *const u8, bytes: usize) {
        if overlaps(shared, bytes) {
            bring(&mut state(), shared.addr() - base(), bytes);
        }
        // SAFETY: by this function's contract.
        unsafe { out.copy_from_nonoverlapping(shared, bytes) };
    }

    pub unsafe fn write(shared: *mut u8, from: *const u8, bytes: usize) {
        if overlaps(shared, bytes) {
            let (mut state, offset) = (state(), shared.addr() - base());
            bring(&mut state, offset, bytes);
            // SAFETY: by this function's contract.
            state.home[offset..offset + bytes].copy_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        }
        // SAFETY: by this function's contract.
        unsafe { shared.copy_from_nonoverlapping(from, bytes) };
    }

    pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
        let mut private = vec![0; bytes];
        // SAFETY: by this function's contract.
        unsafe {
            read(private.as_mut_ptr(), from, bytes);
            write(to, private.as_ptr(), bytes);
        }
    }

    pub unsafe fn set(to: *mut u8, byte: u8, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { write(to, vec![byte; bytes].as_ptr(), bytes) };
    }

    /// Part of the memory for one test, with all units invalid, and a page before and behind it.
    pub struct Block {
        offset: usize,
        bytes: usize,
    }

    /// A block with these bytes, which begins `skew` bytes behind a unit's beginning.
    pub fn block(bytes: &[u8], skew: usize) -> Block {
        let mut state = state();
        let offset = state.used + skew;
        state.used = (offset + bytes.len()).next_multiple_of(4096);
        state.home[offset..offset + bytes.len()].copy_from_slice(bytes);
        let block = Block { offset, bytes: bytes.len() };
        for unit in block.units() {
            state.valid[unit] = false;
            for word in 0..UNIT_BYTES / 4 {
                // SAFETY: a word of the unit.
                unsafe { at(unit * UNIT_BYTES + word * 4).cast::<[u8; 4]>().write(MAGIC) };
            }
        }
        block
    }

    impl Block {
        fn units(&self) -> std::ops::Range<usize> {
            self.offset / UNIT_BYTES..(self.offset + self.bytes).div_ceil(UNIT_BYTES)
        }

        /// Where it begins.
        pub fn at<T>(&self) -> *mut T {
            at(self.offset).cast()
        }

        /// What it holds, once it is sure that nothing was stored past the checks.
        pub fn bytes(&self) -> Vec<u8> {
            let state = state();
            for unit in self.units() {
                for index in 0..UNIT_BYTES {
                    let offset = unit * UNIT_BYTES + index;
                    let expected = if state.valid[unit] { state.home[offset] } else { MAGIC[index % 4] };
                    // SAFETY: a byte of the memory.
                    let found = unsafe { at(offset).read() };
                    assert_eq!(found, expected, "byte {index} of unit {unit} was stored directly");
                }
            }
            state.home[self.offset..self.offset + self.bytes].to_vec()
        }

        /// The string that it holds.
        pub fn text(&self) -> String {
            let bytes = self.bytes();
            let end = bytes.iter().position(|byte| *byte == 0).expect("a string ends");
            String::from_utf8(bytes[..end].to_vec()).expect("letters")
        }
    }
}

/// A string of so many letters that crosses units, with `room` bytes of x behind it.
fn long(letters: usize, room: usize) -> (String, Vec<u8>) {
    let text: String = ('a'..='z').cycle().take(letters).collect();
    let bytes = [text.as_bytes(), b"\0", &vec![b'x'; room]].concat();
    (text, bytes)
}

fn c(text: &str) -> std::ffi::CString {
    std::ffi::CString::new(text).unwrap()
}

const SKEWS: [usize; 3] = [0, 37, 63];

#[test]
fn lengths_and_places_in_strings() {
    for (skew, letters) in SKEWS.into_iter().flat_map(|skew| [0, 1, 26, 27, 200, 5000].map(|n| (skew, n))) {
        let (text, bytes) = long(letters, 4);
        let own = c(&text);
        let fresh = || block(&bytes, skew);
        // SAFETY: strings.
        unsafe {
            assert_eq!(__comem_inline_strlen(fresh().at()), letters);
            assert_eq!(__comem_inline_strnlen(fresh().at(), 100), letters.min(100));
            for byte in [b'a', b'z', b'!', 0] {
                let byte = c_int::from(byte);
                let place =
                    |found: *mut c_char, from: *const c_char| (!found.is_null()).then(|| found.addr() - from.addr());
                let block = fresh();
                let expected = place(libc::strchr(own.as_ptr(), byte), own.as_ptr());
                assert_eq!(place(__comem_inline_strchr(block.at(), byte), block.at()), expected, "{letters} {byte}");
                let expected = place(libc::strrchr(own.as_ptr(), byte), own.as_ptr());
                assert_eq!(place(__comem_inline_strrchr(block.at(), byte), block.at()), expected, "{letters} {byte}");
                let found = __comem_inline_strchrnul(block.at(), byte);
                let expected = place(__comem_inline_strchrnul(own.as_ptr(), byte), own.as_ptr());
                assert_eq!(place(found, block.at()), expected);
                let expected = libc::memchr(own.as_ptr().cast(), byte, letters + 1);
                let found = __comem_inline_memchr(block.at(), byte, letters + 1);
                assert_eq!(place(found.cast(), block.at()), place(expected.cast(), own.as_ptr()));
                let expected = libc::memrchr(own.as_ptr().cast(), byte, letters + 1);
                let found = __comem_inline_memrchr(block.at(), byte, letters + 1);
                assert_eq!(place(found.cast(), block.at()), place(expected.cast(), own.as_ptr()));
            }
            let block = fresh();
            let found = __comem_inline_strstr(block.at(), c"xyzab".as_ptr());
            assert_eq!(found.is_null(), letters < 28);
            if letters >= 28 {
                assert_eq!(found.addr() - block.at::<u8>().addr(), 23);
            }
            assert_eq!(__comem_inline_strspn(fresh().at(), c"abcdef".as_ptr()), letters.min(6));
            assert_eq!(
                __comem_inline_strcspn(fresh().at(), c"f".as_ptr()),
                letters.min(if letters > 5 { 5 } else { letters })
            );
            assert_eq!(__comem_inline_strpbrk(fresh().at(), c"fz".as_ptr()).is_null(), letters < 6);
        }
    }
}

#[test]
fn strings_are_compared() {
    let (text, bytes) = long(300, 1);
    let own = c(&text);
    let mut other = text.clone();
    other.replace_range(250..251, "~");
    let other = c(&other);
    // SAFETY: strings.
    unsafe {
        for skew in SKEWS {
            let shared = || block(&bytes, skew);
            assert_eq!(__comem_inline_strcmp(shared().at(), own.as_ptr()), 0);
            assert_eq!(__comem_inline_strcmp(own.as_ptr(), shared().at()), 0);
            assert_eq!(__comem_inline_strcmp(shared().at(), shared().at()), 0);
            assert!(__comem_inline_strcmp(shared().at(), other.as_ptr()) < 0);
            assert!(__comem_inline_strcmp(other.as_ptr(), shared().at()) > 0);
            assert_eq!(__comem_inline_strncmp(shared().at(), other.as_ptr(), 250), 0);
            assert!(__comem_inline_strncmp(shared().at(), other.as_ptr(), 251) < 0);
            let upper = c(&text.to_uppercase());
            assert_eq!(__comem_inline_strcasecmp(shared().at(), upper.as_ptr()), 0);
            assert_eq!(__comem_inline_strncasecmp(upper.as_ptr(), shared().at(), 299), 0);
            assert_eq!(__comem_inline_memcmp(shared().at(), own.as_ptr().cast(), 301), 0);
            assert!(__comem_inline_memcmp(shared().at(), other.as_ptr().cast(), 301) < 0);
            assert!(__comem_inline_memcmp(other.as_ptr().cast(), shared().at(), 301) > 0);
        }
        assert_eq!(__comem_inline_strcmp(c"a".as_ptr(), c"a".as_ptr()), 0, "private strings");
    }
}

#[test]
fn strings_are_copied() {
    let (text, bytes) = long(150, 300);
    let own = c(&text);
    // SAFETY: strings, and room for them.
    unsafe {
        for skew in SKEWS {
            for source in [None, Some(block(&bytes, skew))] {
                let from = source.as_ref().map_or(own.as_ptr(), |source| source.at::<c_char>().cast_const());
                let to = block(&[b'x'; 400], skew);
                assert_eq!(__comem_inline_strcpy(to.at(), from), to.at());
                assert_eq!((to.text(), to.bytes()[151]), (text.clone(), b'x'));
                let end = __comem_inline_stpcpy(to.at(), from);
                assert_eq!(end.addr() - to.at::<u8>().addr(), 150);
                __comem_inline_strcat(to.at(), from);
                assert_eq!(to.text(), text.repeat(2));
                __comem_inline_strncat(to.at(), from, 5);
                assert_eq!(to.text(), format!("{}abcde", text.repeat(2)));
                let to = block(&[b'x'; 400], skew);
                __comem_inline_strncpy(to.at(), from, 100);
                assert_eq!(to.bytes(), [&text.as_bytes()[..100], &[b'x'; 300]].concat());
                __comem_inline_strncpy(to.at(), from, 200);
                assert_eq!(to.bytes(), [text.as_bytes(), &[0; 50], &[b'x'; 200]].concat());
                let copy = __comem_inline_strdup(from);
                assert_eq!(CStr::from_ptr(copy).to_str(), Ok(text.as_str()));
                libc::free(copy.cast());
                let copy = __comem_inline_strndup(from, 70);
                assert_eq!(CStr::from_ptr(copy).to_str(), Ok(&text[..70]));
                libc::free(copy.cast());
                let mut private = [b'x'; 400];
                let end = __comem_inline_mempcpy(private.as_mut_ptr().cast(), from.cast(), 151);
                assert_eq!(end.addr() - private.as_ptr().addr(), 151);
                assert_eq!(&private[..152], [text.as_bytes(), b"\0x"].concat());
                __comem_inline_bcopy(from.cast(), to.at(), 151);
                __comem_inline_bzero(to.at::<u8>().add(100).cast(), 200);
                assert_eq!(to.bytes(), [&text.as_bytes()[..100], &[0; 200], &[b'x'; 100]].concat());
            }
        }
    }
}

#[test]
fn numbers_are_read_from_strings() {
    let long_one = format!("{:>70}", "-123456789012 and more");
    let texts = [
        "42",
        "  -17x",
        "0x1f",
        "1e3,",
        "3.25 4.5",
        "",
        "nan(ab)c",
        "  +inf",
        &long_one,
        "abc",
        "99999999999999999999",
    ];
    for text in texts {
        for skew in SKEWS {
            let bytes = [text.as_bytes(), b"\0"].concat();
            let own = c(text);
            // SAFETY: strings.
            unsafe {
                let offset = |end: *mut c_char, from: *const c_char| end.addr() - from.addr();
                let (shared, mut expected) = (block(&bytes, skew), null_mut());
                let end = block(&[0; 8], 60);
                let number = libc::strtol(own.as_ptr(), &mut expected, 0);
                let expected = offset(expected, own.as_ptr());
                assert_eq!(__comem_inline_strtol(shared.at(), end.at(), 0), number, "{text}");
                let stored = usize::from_le_bytes(end.bytes().try_into().unwrap());
                assert_eq!(stored - shared.at::<u8>().addr(), expected, "{text}");
                let (mut one, mut other) = (null_mut(), null_mut());
                let number = libc::strtod(own.as_ptr(), &mut one);
                assert_eq!(__comem_inline_strtod(shared.at(), &mut other).to_bits(), number.to_bits(), "{text}");
                assert_eq!(offset(other, shared.at()), offset(one, own.as_ptr()), "{text}");
                assert_eq!(
                    __comem_inline_strtof(shared.at(), null_mut()).to_bits(),
                    libc::strtof(own.as_ptr(), null_mut()).to_bits()
                );
                assert_eq!(
                    __comem_inline_strtoul(shared.at(), null_mut(), 16),
                    libc::strtoul(own.as_ptr(), null_mut(), 16)
                );
                assert_eq!(__comem_inline_atoi(shared.at()), libc::atoi(own.as_ptr()));
                assert_eq!(__comem_inline_atol(shared.at()), libc::atol(own.as_ptr()));
                assert_eq!(__comem_inline_atof(shared.at()).to_bits(), libc::atof(own.as_ptr()).to_bits());
            }
        }
    }
}

extern "C-unwind" fn by_value(one: *const c_void, other: *const c_void) -> c_int {
    // SAFETY: numbers, which may be played memory.
    unsafe {
        let value = |at: *const c_void| {
            let mut value = 0_u32;
            played::read((&raw mut value).cast(), at.cast(), 4);
            value
        };
        value(one).cmp(&value(other)) as c_int
    }
}

#[test]
fn arrays_are_sorted_and_searched() {
    let numbers: Vec<u32> = (0..300_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    let raw = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let shared = block(&raw(&numbers), 36);
    let mut private = numbers.clone();
    // SAFETY: arrays of numbers.
    unsafe {
        __comem_inline_qsort(shared.at(), 300, 4, by_value);
        assert_eq!(shared.bytes(), raw(&sorted));
        __comem_inline_qsort(private.as_mut_ptr().cast(), 300, 4, by_value);
        assert_eq!(private, sorted);
        let shared = block(&raw(&sorted), 36);
        for index in [0, 1, 150, 299] {
            let key = &raw const sorted[index];
            let found = __comem_inline_bsearch(key.cast(), shared.at(), 300, 4, by_value);
            assert_eq!(found.addr() - shared.at::<u8>().addr(), index * 4);
            let found = __comem_inline_bsearch(key.cast(), sorted.as_ptr().cast(), 300, 4, by_value);
            assert_eq!(found.addr(), key.addr());
        }
        assert!(__comem_inline_bsearch((&raw const numbers[0]).cast(), shared.at(), 0, 4, by_value).is_null());
        let missing = sorted[299] + 1;
        assert!(__comem_inline_bsearch((&raw const missing).cast(), shared.at(), 300, 4, by_value).is_null());
    }
}

/// The functions as programs call them.
mod variadic {
    use super::*;

    unsafe extern "C" {
        #[link_name = "__comem_inline_snprintf"]
        pub fn snprintf(to: *mut c_char, room: usize, format: *const c_char, ...) -> c_int;
        #[link_name = "__comem_inline_sprintf"]
        pub fn sprintf(to: *mut c_char, format: *const c_char, ...) -> c_int;
        #[link_name = "__comem_inline_fprintf"]
        pub fn fprintf(stream: *mut libc::FILE, format: *const c_char, ...) -> c_int;
        #[link_name = "__comem_inline_sscanf"]
        pub fn sscanf(text: *const c_char, format: *const c_char, ...) -> c_int;
        #[link_name = "__comem_inline_fscanf"]
        pub fn fscanf(stream: *mut libc::FILE, format: *const c_char, ...) -> c_int;
    }
}
use variadic::{fprintf, fscanf, snprintf, sprintf, sscanf};

fn printed(print: impl FnOnce(*mut c_char, usize) -> c_int) -> (String, c_int) {
    let mut private = [0_u8; 1000];
    let bytes = print(private.as_mut_ptr().cast(), private.len());
    (CStr::from_bytes_until_nul(&private).unwrap().to_str().unwrap().to_string(), bytes)
}

#[test]
fn strings_are_printed_wherever_they_are() {
    let (text, bytes) = long(100, 0);
    for skew in SKEWS {
        let shared = block(&bytes, skew);
        let s = shared.at::<c_char>();
        // SAFETY: the arguments are what the formats say.
        unsafe {
            let (out, count) = printed(|to, room| snprintf(to, room, c"<%s>".as_ptr(), s));
            assert_eq!((out, count), (format!("<{text}>"), 102));
            let (out, _) =
                printed(|to, room| snprintf(to, room, c"%5.3s|%-*.*s|%c%%".as_ptr(), s, 7_i32, 4_i32, s, 33_i32));
            assert_eq!(out, "  abc|abcd   |!%");
            let (out, _) = printed(|to, room| {
                let (d, big) = (1.5_f64, 1_u64 << 40);
                snprintf(
                    to,
                    room,
                    c"%d %g %lu %s %f %s %d %g %s".as_ptr(),
                    1_i32,
                    d,
                    big,
                    s,
                    d,
                    c"own".as_ptr(),
                    -2_i32,
                    2.5_f64,
                    s,
                )
            });
            assert_eq!(out, format!("1 1.5 {} {text} 1.500000 own -2 2.5 {text}", 1_u64 << 40));
            let (out, _) = printed(|to, room| {
                let d = [0.5_f64, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5];
                let format = c"%g %g %g %g %g %g %g %g %g %.3s %g %.2s".as_ptr();
                snprintf(to, room, format, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], s, d[9], s)
            });
            assert_eq!(out, "0.5 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5 abc 9.5 ab");
            let (out, _) = printed(|to, room| snprintf(to, room, c"%2$s %1$d %2$.2s".as_ptr(), 7_i32, s));
            assert_eq!(out, format!("{text} 7 ab"));
            let unterminated = block(&[b'y'; 64], skew);
            let (out, _) = printed(|to, room| snprintf(to, room, c"%.10s".as_ptr(), unterminated.at::<c_char>()));
            assert_eq!(out, "yyyyyyyyyy");
            let wide: Vec<u8> =
                "wide".chars().flat_map(|letter| u32::from(letter).to_le_bytes()).chain([0; 4]).collect();
            let (out, _) = printed(|to, room| {
                snprintf(
                    to,
                    room,
                    c"%ls %.2ls".as_ptr(),
                    block(&wide, skew).at::<c_char>(),
                    block(&wide, skew).at::<c_char>(),
                )
            });
            assert_eq!(out, "wide wi");
            let counted = block(&[9; 8], 60);
            let (out, _) =
                printed(|to, room| snprintf(to, room, c"%d%n%d".as_ptr(), 123_i32, counted.at::<c_int>(), 4_i32));
            assert_eq!((out.as_str(), counted.bytes()), ("1234", vec![3, 0, 0, 0, 9, 9, 9, 9]));
            let format = block(b"%d of %s\0", skew);
            let (out, _) = printed(|to, room| snprintf(to, room, format.at(), 3_i32, c"own".as_ptr()));
            assert_eq!(out, "3 of own");
        }
        assert_eq!(shared.bytes(), bytes);
    }
}

#[test]
fn strings_are_printed_to_where_they_belong() {
    let (text, bytes) = long(100, 0);
    for skew in SKEWS {
        let shared = block(&bytes, skew);
        let s = shared.at::<c_char>();
        // SAFETY: the arguments are what the formats say, and there is room.
        unsafe {
            let to = block(&[b'x'; 200], skew);
            assert_eq!(sprintf(to.at(), c"%s/%d".as_ptr(), s, 5_i32), 102);
            assert_eq!((to.text(), to.bytes()[103]), (format!("{text}/5"), b'x'));
            let to = block(&[b'x'; 200], skew);
            assert_eq!(snprintf(to.at(), 70, c"%s".as_ptr(), s), 100);
            assert_eq!((to.text(), to.bytes()[70]), (text[..69].to_string(), b'x'));
            assert_eq!(snprintf(to.at(), 0, c"%s".as_ptr(), s), 100);
            let stream = libc::tmpfile();
            assert_eq!(fprintf(stream, c"%s\n".as_ptr(), s), 101);
            assert!(__comem_inline_fputs(s, stream) >= 0);
            libc::rewind(stream);
            let line = block(&[b'x'; 200], skew);
            assert_eq!(__comem_inline_fgets(line.at(), 70, stream), line.at());
            assert_eq!((line.text(), line.bytes()[70]), (text[..69].to_string(), b'x'));
            __comem_inline_fgets(line.at(), 200, stream);
            assert_eq!(line.text(), format!("{}\n", &text[69..]));
            __comem_inline_fgets(line.at(), 200, stream);
            assert_eq!(line.text(), text);
            assert!(__comem_inline_fgets(line.at(), 200, stream).is_null());
            libc::fclose(stream);
        }
    }
}

#[test]
fn values_are_scanned_into_where_they_belong() {
    for skew in [0, 37, 61, 63] {
        let input = block(b"12 -7 3.5 hello worlds xyz  9 0x1f end\0", skew);
        let at = |bytes: usize| block(&vec![b'x'; bytes], skew);
        let (i, h, d, s, set, two, n, more) = (at(8), at(8), at(8), at(80), at(80), at(8), at(8), at(8));
        let mut own = 0_i32;
        let format = c"%d %hd %lf %s %[a-r] %2c %*d %i%n%d";
        // SAFETY: the arguments are what the format says.
        let got = unsafe {
            sscanf(
                input.at(),
                format.as_ptr(),
                i.at::<u8>(),
                h.at::<u8>(),
                d.at::<u8>(),
                s.at::<u8>(),
                set.at::<u8>(),
                two.at::<u8>(),
                &raw mut own,
                n.at::<u8>(),
                more.at::<u8>(),
            )
        };
        // `world` is not all of the set: it stops at the w.
        assert_eq!(got, 4, "the set matches nothing of worlds");
        assert_eq!(i.bytes(), [12, 0, 0, 0, b'x', b'x', b'x', b'x']);
        assert_eq!(h.bytes(), [249, 255, b'x', b'x', b'x', b'x', b'x', b'x']);
        assert_eq!(d.bytes(), 3.5_f64.to_le_bytes());
        assert_eq!((s.text().as_str(), s.bytes()[6]), ("hello", b'x'));
        assert_eq!((set.bytes(), two.bytes()), (vec![b'x'; 80], vec![b'x'; 8]), "not reached");
        assert_eq!(n.bytes(), [b'x'; 8]);
        // SAFETY: as above.
        let got = unsafe {
            let format = c"%*d %*d %*f %*s %3[v-w]%2s %2c %*d %i%n%d".as_ptr();
            let (set, two) = (set.at::<u8>(), two.at::<u8>());
            sscanf(input.at(), format, set, s.at::<u8>(), two, &raw mut own, n.at::<u8>(), more.at::<u8>())
        };
        assert_eq!(got, 3, "w, or, and two letters of lds; then no number");
        assert_eq!((set.text().as_str(), s.text().as_str()), ("w", "or"));
        assert_eq!((&two.bytes()[..2], n.bytes()), (&b"ld"[..], vec![b'x'; 8]));
        // SAFETY: as above.
        let got = unsafe { sscanf(input.at(), c"%d%n %d".as_ptr(), i.at::<u8>(), n.at::<u8>(), more.at::<u8>()) };
        assert_eq!((got, n.bytes()[0], more.bytes()[..4].to_vec()), (2, 2, (-7_i32).to_le_bytes().to_vec()));
        // SAFETY: as above.
        let got = unsafe { sscanf(c"5 6".as_ptr(), c"%2$d %1$d".as_ptr(), i.at::<u8>(), &raw mut own) };
        assert_eq!((got, own, i.bytes()[0]), (2, 5, 6));
        let mut allocated: *mut c_char = null_mut();
        // SAFETY: as above.
        let got = unsafe { sscanf(input.at(), c"%*d %ms".as_ptr(), &raw mut allocated) };
        assert_eq!(got, 1);
        // SAFETY: the C library's own.
        unsafe { libc::free(allocated.cast()) };
    }
}

#[test]
fn streams_are_read_into_lines_memory() {
    let (_, bytes) = long(150_000, 0);
    // SAFETY: a stream, and room for what is read.
    unsafe {
        let stream = libc::tmpfile();
        let shared = block(&bytes, 37);
        assert_eq!(__comem_inline_fwrite(shared.at(), 150, 1000, stream), 1000);
        libc::rewind(stream);
        let to = block(&[b'x'; 150_100], 63);
        assert_eq!(__comem_inline_fread(to.at(), 1000, 200, stream), 150, "that is all there is");
        assert_eq!(to.bytes(), [&bytes[..150_000], &[b'x'; 100]].concat());
        libc::rewind(stream);
        let word = block(&[b'x'; 100], 60);
        assert_eq!(fscanf(stream, c"%30s".as_ptr(), word.at::<u8>()), 1);
        assert_eq!(word.text(), "abcdefghijklmnopqrstuvwxyzabcd");
        assert_eq!(__comem_inline_fread(null_mut(), 0, 5, stream), 0);
        libc::fclose(stream);
    }
}

#[test]
fn system_calls_get_private_memory() {
    let (_, bytes) = long(10_000, 0);
    let mut ends = [0; 2];
    // SAFETY: descriptors of this test, and buffers of these lengths.
    unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()), 0);
        let (shared, to) = (block(&bytes, 37), block(&[b'x'; 10_100], 63));
        assert_eq!(__comem_inline_send(ends[0], shared.at(), 10_000, 0), 10_000);
        assert_eq!(__comem_inline_recv(ends[1], to.at(), 10_100, 0), 10_000);
        assert_eq!(to.bytes(), [&bytes[..10_000], &[b'x'; 100]].concat());
        assert_eq!(__comem_inline_sys_write(ends[0], shared.at(), 5), 5);
        assert_eq!(__comem_inline_sys_read(ends[1], to.at::<u8>().add(100).cast(), 10), 5);
        assert_eq!(to.bytes()[100..105], bytes[..5]);
        libc::close(ends[1]);
        assert_eq!(__comem_inline_send(ends[0], shared.at(), 5, libc::MSG_NOSIGNAL), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPIPE), "the call's error");
        libc::close(ends[0]);
        let file = libc::fileno(libc::tmpfile());
        assert_eq!(__comem_inline_pwrite(file, shared.at(), 200, 50), 200);
        assert_eq!(__comem_inline_pread(file, to.at(), 300, 100), 150);
        assert_eq!(to.bytes()[..150], bytes[50..200]);
        assert_eq!(__comem_inline_sys_read(-1, to.at(), 10), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}

#[test]
fn results_are_stored_where_they_belong() {
    let place = |bytes: usize| block(&vec![b'x'; bytes], 60);
    let number = |block: &Block| f64::from_le_bytes(block.bytes()[..8].try_into().unwrap());
    // SAFETY: there is room for the results.
    unsafe {
        let (one, other) = (place(8), place(8));
        __comem_inline_sincos(0.5, one.at(), other.at());
        assert!((number(&one) - 0.5_f64.sin()).abs() < 1e-12 && (number(&other) - 0.5_f64.cos()).abs() < 1e-12);
        assert_eq!(__comem_inline_modf(3.25, one.at()), 0.25);
        assert_eq!(number(&one), 3.0);
        let exponent = place(4);
        assert_eq!(__comem_inline_frexp(8.0, exponent.at()), 0.5);
        assert_eq!(exponent.bytes(), [4, 0, 0, 0]);
        let now = place(16);
        assert_eq!(__comem_inline_clock_gettime(libc::CLOCK_MONOTONIC, now.at()), 0);
        assert_ne!(now.bytes(), [b'x'; 16]);
        let now = place(16);
        assert_eq!(__comem_inline_clock_gettime(-12345, now.at()), -1);
        assert_eq!(now.bytes(), [b'x'; 16], "a call that fails stores nothing");
        assert_eq!(__comem_inline_gettimeofday(now.at(), null_mut()), 0);
        assert_ne!(now.bytes(), [b'x'; 16]);
        let seconds = place(8);
        let told = __comem_inline_time(seconds.at());
        assert_eq!(seconds.bytes(), told.to_le_bytes());
        assert!(__comem_inline_time(null_mut()) >= told);
        let used = place(size_of::<libc::rusage>());
        assert_eq!(__comem_inline_getrusage(libc::RUSAGE_SELF, used.at()), 0);
        assert_ne!(used.bytes(), vec![b'x'; size_of::<libc::rusage>()]);
        let used = place(size_of::<libc::tms>());
        assert_ne!(__comem_inline_times(used.at()), -1);
        assert_ne!(used.bytes(), vec![b'x'; size_of::<libc::tms>()]);
    }
}

#[test]
fn files_and_variables_are_named_from_lines_memory() {
    let path = block(b"/dev/null\0", 60);
    // SAFETY: strings.
    unsafe {
        let stream = __comem_inline_fopen(path.at(), block(b"r\0", 63).at());
        assert!(!stream.is_null());
        libc::fclose(stream);
        assert_eq!(__comem_inline_getenv(block(b"PATH\0", 62).at()), libc::getenv(c"PATH".as_ptr()));
        assert!(__comem_inline_fopen(block(b"/nowhere/at all\0", 60).at(), c"r".as_ptr()).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
    }
}

/// What the plug-in puts in place of the C library's functions is what this library has.
#[test]
fn the_table_of_replacements_names_what_there_is() {
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../compiler/wrapped.def")).unwrap();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src/inline");
    let mut text = String::new();
    let mut folders = vec![std::path::PathBuf::from(sources)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if !path.ends_with("tests.rs") => text += &std::fs::read_to_string(path).unwrap(),
                false => {}
            }
        }
    }
    let names = |text: &str| -> std::collections::BTreeSet<String> {
        let pieces = text.split("fn __comem_inline_").skip(1);
        pieces.map(|piece| piece.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
    };
    let there = names(&text);
    let rows =
        table.lines().filter_map(|line| line.strip_prefix("COMEM_WRAPPED(")?.strip_suffix(')')?.split_once(", "));
    let wanted: Vec<(&str, &str)> = rows.collect();
    assert!(wanted.len() > 80, "{}", wanted.len());
    // Those of the checks themselves stand elsewhere.
    let others = ["memcpy", "memmove", "memset", "sigaction", "signal"];
    for (name, replacement) in wanted {
        let known = replacement.strip_prefix("__comem_inline_").expect("our own names");
        assert!(others.contains(&known) || there.contains(known), "{name} has no {replacement}");
    }
}
