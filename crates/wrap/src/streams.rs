//! The C library's streams.
//!
//! A stream has a buffer of its own, which is private, and small transfers go through it by ordinary loads and stores,
//! which need nobody's help. Large ones, and all on a stream without a buffer, go straight between the kernel and the
//! caller's memory: a page that is not here then ends the transfer with the stream's error mark set. These functions
//! bring the memory here piece by piece, and take the mark back when it came from EFAULT alone.
//!
//! `fgets`, `getline`, `fscanf` always go through the stream's buffer, and are left alone. (Where a program's own
//! code checks its accesses, it calls other functions than these.)

use crate::errno;
use crate::heap::{self, Way};
use crate::real;
use crate::transfer::{PIECE_BYTES, TRIES};
use libc::{FILE, c_char, c_int, c_void, size_t};

/// The same once pages have been taken away.
const SMALL_PIECE_BYTES: usize = 1 << 16;
/// Most bytes that take the way through private memory at once, where tries do not help.
const DETOUR_BYTES: usize = 4096;

unsafe extern "C" {
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
    fn putc_unlocked(byte: c_int, stream: *mut FILE) -> c_int;
    static stdout: *mut FILE;
}

/// Items of a stream that go to or come from shared memory; gives how many were moved whole.
///
/// # Safety
/// As for `fread` and `fwrite`; `call` is the real one of them, for items of one byte.
#[cold]
unsafe fn items(
    start: *mut u8,
    (size, count): (usize, usize),
    stream: *mut FILE,
    way: Way,
    call: unsafe fn(*mut u8, usize, *mut FILE) -> usize,
) -> usize {
    let Some(bytes) = size.checked_mul(count).filter(|bytes| *bytes > 0) else { return 0 };
    // SAFETY: by this function's contract.
    unsafe { moved(start, bytes, stream, way, call) / size }
}

/// Bytes of a stream that go to or come from shared memory; gives how many were moved.
///
/// # Safety
/// As for [`items`].
pub unsafe fn moved(
    start: *mut u8,
    bytes: usize,
    stream: *mut FILE,
    way: Way,
    call: unsafe fn(*mut u8, usize, *mut FILE) -> usize,
) -> usize {
    // Lines memory is never handed over itself.
    let first_try = if heap::meets_lines(start, bytes) { TRIES } else { 0 };
    let (mut done, mut tries, mut most) = (0, first_try, PIECE_BYTES);
    // SAFETY: the stream is the caller's.
    let marked = unsafe { libc::ferror(stream) } != 0;
    while done < bytes {
        // SAFETY: within the buffer, since `done` is less than its length.
        let at = unsafe { start.add(done) };
        let piece = (bytes - done).min(most);
        if !heap::touch_if_shared(at, piece, way) {
            // SAFETY: by this function's contract.
            return done + unsafe { call(at, bytes - done, stream) };
        }
        let before = errno::get();
        errno::set(0);
        let expected = if tries < TRIES { piece } else { piece.min(DETOUR_BYTES) };
        let now = if tries < TRIES {
            // SAFETY: by this function's contract.
            unsafe { call(at, expected, stream) }
        } else {
            // SAFETY: by this function's contract.
            unsafe { detour(at, expected, stream, way, call) }
        };
        done += now;
        let why = errno::get();
        if now == expected || why == 0 {
            errno::set(before);
        }
        if now == expected {
            tries = first_try;
        } else if why == libc::EFAULT && !marked && tries < TRIES {
            // SAFETY: the stream is the caller's; nothing but this EFAULT has marked it.
            unsafe { libc::clearerr(stream) };
            errno::set(before);
            tries += 1;
            most = SMALL_PIECE_BYTES;
        } else {
            break;
        }
    }
    done
}

/// Makes the call on private memory.
///
/// # Safety
/// As for [`items`], with no more than [`DETOUR_BYTES`] bytes.
unsafe fn detour(
    start: *mut u8,
    bytes: usize,
    stream: *mut FILE,
    way: Way,
    call: unsafe fn(*mut u8, usize, *mut FILE) -> usize,
) -> usize {
    let mut private = [0; DETOUR_BYTES];
    if way == Way::Out {
        // SAFETY: the caller's buffer is that long, and so is ours.
        unsafe { heap::load(start, private.as_mut_ptr(), bytes) };
    }
    // SAFETY: by this function's contract; the private buffer is long enough.
    let now = unsafe { call(private.as_mut_ptr(), bytes, stream) };
    if way == Way::In {
        // SAFETY: as above.
        unsafe { heap::store(private.as_ptr(), start, now) };
    }
    now
}

/// Holds a stream's lock, so that a transfer in pieces stays one.
///
/// # Safety
/// The stream is the caller's.
unsafe fn locked<R>(stream: *mut FILE, body: impl FnOnce() -> R) -> R {
    // SAFETY: by this function's contract; the lock may be taken several times by one thread.
    unsafe { flockfile(stream) };
    let result = body();
    // SAFETY: locked above.
    unsafe { funlockfile(stream) };
    result
}

unsafe fn read_bytes(at: *mut u8, bytes: usize, stream: *mut FILE) -> usize {
    // SAFETY: the caller's contract is that of `fread_unlocked`.
    unsafe { real::fread_unlocked(at.cast(), 1, bytes, stream) }
}

unsafe fn write_bytes(at: *mut u8, bytes: usize, stream: *mut FILE) -> usize {
    // SAFETY: the caller's contract is that of `fwrite_unlocked`.
    unsafe { real::fwrite_unlocked(at.cast(), 1, bytes, stream) }
}

/// Reads items.
///
/// # Safety
/// As for `fread(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fread(to: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t {
    if !heap::overlaps(to, size.saturating_mul(n)) {
        // SAFETY: by this function's contract.
        return unsafe { real::fread(to, size, n, stream) };
    }
    // SAFETY: by this function's contract.
    unsafe { locked(stream, || items(to.cast(), (size, n), stream, Way::In, read_bytes)) }
}

/// Writes items.
///
/// # Safety
/// As for `fwrite(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fwrite(from: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t {
    if !heap::overlaps(from, size.saturating_mul(n)) {
        // SAFETY: by this function's contract.
        return unsafe { real::fwrite(from, size, n, stream) };
    }
    // SAFETY: by this function's contract.
    unsafe { locked(stream, || items(from.cast_mut().cast(), (size, n), stream, Way::Out, write_bytes)) }
}

/// Reads items; the caller has the stream for itself.
///
/// # Safety
/// As for `fread_unlocked(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fread_unlocked(to: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t {
    if !heap::overlaps(to, size.saturating_mul(n)) {
        // SAFETY: by this function's contract.
        return unsafe { real::fread_unlocked(to, size, n, stream) };
    }
    // SAFETY: by this function's contract.
    unsafe { items(to.cast(), (size, n), stream, Way::In, read_bytes) }
}

/// Writes items; the caller has the stream for itself.
///
/// # Safety
/// As for `fwrite_unlocked(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fwrite_unlocked(
    from: *const c_void,
    size: size_t,
    n: size_t,
    stream: *mut FILE,
) -> size_t {
    if !heap::overlaps(from, size.saturating_mul(n)) {
        // SAFETY: by this function's contract.
        return unsafe { real::fwrite_unlocked(from, size, n, stream) };
    }
    // SAFETY: by this function's contract.
    unsafe { items(from.cast_mut().cast(), (size, n), stream, Way::Out, write_bytes) }
}

/// The length of a string that is shared.
///
/// # Safety
/// A string.
unsafe fn length(text: *const c_char) -> usize {
    if !heap::meets_lines(text, 1) {
        // SAFETY: by this function's contract; loads bring the string's pages.
        return unsafe { libc::strlen(text) };
    }
    let ends = |index: &usize| {
        let mut byte = 0;
        // SAFETY: by this function's contract; the string has not ended before this byte.
        unsafe { heap::load(text.add(*index).cast(), &mut byte, 1) };
        byte == 0
    };
    (0..).find(ends).unwrap_or(0)
}

/// Writes a string that is shared; `None` when not all of it got out, or else how many bytes did.
///
/// # Safety
/// A string, and the stream is locked.
unsafe fn put_string(text: *const c_char, stream: *mut FILE) -> Option<usize> {
    // SAFETY: by this function's contract.
    let bytes = unsafe { length(text) };
    // SAFETY: by this function's contract.
    let moved = unsafe { moved(text.cast_mut().cast(), bytes, stream, Way::Out, write_bytes) };
    (moved == bytes).then_some(bytes)
}

/// Writes a string.
///
/// # Safety
/// As for `fputs(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fputs(text: *const c_char, stream: *mut FILE) -> c_int {
    if !heap::overlaps(text, 1) || !heap::touch(text, 1, Way::Out) {
        // SAFETY: by this function's contract.
        return unsafe { real::fputs(text, stream) };
    }
    // SAFETY: by this function's contract.
    let whole = unsafe { locked(stream, || put_string(text, stream)) };
    if whole.is_some() { 1 } else { libc::EOF }
}

/// Writes a line.
///
/// # Safety
/// As for `puts(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn puts(text: *const c_char) -> c_int {
    if !heap::overlaps(text, 1) || !heap::touch(text, 1, Way::Out) {
        // SAFETY: by this function's contract.
        return unsafe { real::puts(text) };
    }
    // SAFETY: the C library's own stream; by this function's contract a string.
    unsafe {
        let stream = stdout;
        let line_end = || putc_unlocked(c_int::from(b'\n'), stream) != libc::EOF;
        let bytes = locked(stream, || put_string(text, stream).filter(|_| line_end()));
        // What the C library gives: the line's bytes.
        bytes.map_or(libc::EOF, |bytes| c_int::try_from(bytes + 1).unwrap_or(c_int::MAX))
    }
}
