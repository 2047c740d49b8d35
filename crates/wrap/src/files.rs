//! Reading and writing through descriptors.

use crate::heap::Way;
use crate::real;
use crate::transfer::transfer;
use crate::vectors;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// Reads.
///
/// # Safety
/// As for `read(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the caller's buffer, or part of it, or private memory of that size.
    unsafe { transfer(fd, to.cast(), bytes, Way::In, |at, n, _| real::read(fd, at.cast(), n)) }
}

/// Writes.
///
/// # Safety
/// As for `write(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    // SAFETY: as for `read`.
    unsafe { transfer(fd, from.cast_mut().cast(), bytes, Way::Out, |at, n, _| real::write(fd, at.cast(), n)) }
}

/// Reads at a place.
///
/// # Safety
/// As for `pread(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pread(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t {
    let call = |to: *mut u8, n, done| {
        // SAFETY: as for `read`.
        unsafe { real::pread(fd, to.cast(), n, at.saturating_add(done as off_t)) }
    };
    // SAFETY: by this function's contract.
    unsafe { transfer(fd, to.cast(), bytes, Way::In, call) }
}

/// Writes at a place.
///
/// # Safety
/// As for `pwrite(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwrite(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t {
    let call = |from: *mut u8, n, done| {
        // SAFETY: as for `read`.
        unsafe { real::pwrite(fd, from.cast(), n, at.saturating_add(done as off_t)) }
    };
    // SAFETY: by this function's contract.
    unsafe { transfer(fd, from.cast_mut().cast(), bytes, Way::Out, call) }
}

/// Reads into several buffers.
///
/// # Safety
/// As for `readv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's buffers, or private memory of their size.
    unsafe {
        let one = |start: *mut u8, n, _| real::read(fd, start.cast(), n);
        vectors::transfer_all(fd, parts, count, Way::In, |parts, count| real::readv(fd, parts, count), one)
    }
}

/// Writes from several buffers.
///
/// # Safety
/// As for `writev(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as for `readv`.
    unsafe {
        let one = |start: *mut u8, n, _| real::write(fd, start.cast(), n);
        vectors::transfer_all(fd, parts, count, Way::Out, |parts, count| real::writev(fd, parts, count), one)
    }
}

/// Reads at a place, into several buffers.
///
/// # Safety
/// As for `preadv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: as for `readv`.
    unsafe {
        let one = |start: *mut u8, n, done: usize| real::pread(fd, start.cast(), n, at + done as off_t);
        vectors::transfer_all(fd, parts, count, Way::In, |parts, count| real::preadv(fd, parts, count, at), one)
    }
}

/// Writes at a place, from several buffers.
///
/// # Safety
/// As for `pwritev(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: as for `readv`.
    unsafe {
        let one = |start: *mut u8, n, done: usize| real::pwrite(fd, start.cast(), n, at + done as off_t);
        vectors::transfer_all(fd, parts, count, Way::Out, |parts, count| real::pwritev(fd, parts, count, at), one)
    }
}

/// Reads at a place, into several buffers; -1 stands for the file's own place.
///
/// # Safety
/// As for `preadv2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: by this function's contract.
    unsafe { with_flags(Way::In, real::preadv2, (fd, parts, count), at, flags) }
}

/// Writes at a place, from several buffers; -1 stands for the file's own place.
///
/// # Safety
/// As for `pwritev2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: by this function's contract.
    unsafe { with_flags(Way::Out, real::pwritev2, (fd, parts, count), at, flags) }
}

type WithFlags = unsafe fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;

/// # Safety
/// As for `real`.
unsafe fn with_flags(
    way: Way,
    real: WithFlags,
    (fd, parts, count): (c_int, *const iovec, c_int),
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as for `readv`.
    unsafe {
        let one = |start: *mut u8, n, done: usize| {
            let part = iovec { iov_base: start.cast(), iov_len: n };
            real(fd, &part, 1, if at == -1 { at } else { at + done as off_t }, flags)
        };
        vectors::transfer_all(fd, parts, count, way, |parts, count| real(fd, parts, count, at, flags), one)
    }
}

/// Defines the names for large files: on 64-bit machines offsets are large anyway, so they are the same functions.
macro_rules! large_file {
    ($($large:ident = $name:ident($($arg:ident: $ty:ty),*);)*) => { $(
        /// The same with another name.
        ///
        /// # Safety
        /// As for the function of the shorter name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $large($($arg: $ty),*) -> ssize_t {
            // SAFETY: by this function's contract.
            unsafe { $name($($arg),*) }
        }
    )* };
}

large_file! {
    pread64 = pread(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t);
    pwrite64 = pwrite(fd: c_int, from: *const c_void, bytes: size_t, at: off_t);
    preadv64 = preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t);
    pwritev64 = pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t);
    preadv64v2 = preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int);
    pwritev64v2 = pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int);
}
