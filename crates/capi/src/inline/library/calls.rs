//! System calls, and other functions that store a result where they are told.
//!
//! The kernel reads an invalid unit as data and meets no error. So its buffers in lines memory are always private
//! copies.

use super::memory::{give, keeping_errno, overlaps, read, with_result, write};
use libc::{c_int, c_void, clock_t, clockid_t, off_t, rusage, ssize_t, time_t, timespec, timeval, timezone, tms};
use std::ffi::{c_double, c_float};

/// The buffer that a call fills, and what it has filled of it.
///
/// # Safety
/// As for `read`.
unsafe fn filled(to: *mut c_void, bytes: usize, call: impl FnOnce(*mut c_void) -> ssize_t) -> ssize_t {
    if !overlaps(to, bytes) {
        return call(to);
    }
    let Some(mut private) = buffer(bytes) else { return -1 };
    let moved = call(private.as_mut_ptr().cast());
    if let Ok(moved) = usize::try_from(moved) {
        // A datagram that was cut may tell a length beyond the buffer's.
        // SAFETY: by this function's contract, and the call has filled so many bytes.
        keeping_errno(|| unsafe { write(to.cast(), private.as_ptr(), moved.min(bytes)) });
    }
    keeping_errno(|| drop(private));
    moved
}

/// The buffer that a call reads.
///
/// # Safety
/// As for `write`.
unsafe fn given(from: *const c_void, bytes: usize, call: impl FnOnce(*const c_void) -> ssize_t) -> ssize_t {
    if !overlaps(from, bytes) {
        return call(from);
    }
    let Some(mut private) = buffer(bytes) else { return -1 };
    // SAFETY: by this function's contract, and the buffer has room.
    unsafe { read(private.as_mut_ptr(), from.cast(), bytes) };
    let moved = call(private.as_ptr().cast());
    keeping_errno(|| drop(private));
    moved
}

/// Private memory for so many bytes; else `errno` says that there is none.
fn buffer(bytes: usize) -> Option<Vec<u8>> {
    let mut private = Vec::new();
    if private.try_reserve_exact(bytes).is_err() {
        // SAFETY: the C library gives each thread a valid address.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return None;
    }
    Some(private)
}

unsafe extern "C" {
    fn frexp(x: c_double, exponent: *mut c_int) -> c_double;
    fn frexpf(x: c_float, exponent: *mut c_int) -> c_float;
    fn modf(x: c_double, whole: *mut c_double) -> c_double;
    fn modff(x: c_float, whole: *mut c_float) -> c_float;
    fn sincos(x: c_double, sine: *mut c_double, cosine: *mut c_double);
    fn sincosf(x: c_float, sine: *mut c_float, cosine: *mut c_float);
}

library! {
    /// `read`.
    fn __comem_inline_sys_read(fd: c_int, to: *mut c_void, bytes: usize) -> ssize_t {
        filled(to, bytes, |to| libc::read(fd, to, bytes))
    }

    /// `write`.
    fn __comem_inline_sys_write(fd: c_int, from: *const c_void, bytes: usize) -> ssize_t {
        given(from, bytes, |from| libc::write(fd, from, bytes))
    }

    /// `pread`.
    fn __comem_inline_pread(fd: c_int, to: *mut c_void, bytes: usize, at: off_t) -> ssize_t {
        filled(to, bytes, |to| libc::pread(fd, to, bytes, at))
    }

    /// `pwrite`.
    fn __comem_inline_pwrite(fd: c_int, from: *const c_void, bytes: usize, at: off_t) -> ssize_t {
        given(from, bytes, |from| libc::pwrite(fd, from, bytes, at))
    }

    /// `recv`.
    fn __comem_inline_recv(fd: c_int, to: *mut c_void, bytes: usize, flags: c_int) -> ssize_t {
        filled(to, bytes, |to| libc::recv(fd, to, bytes, flags))
    }

    /// `send`.
    fn __comem_inline_send(fd: c_int, from: *const c_void, bytes: usize, flags: c_int) -> ssize_t {
        given(from, bytes, |from| libc::send(fd, from, bytes, flags))
    }

    /// `gettimeofday`.
    fn __comem_inline_gettimeofday(now: *mut timeval, zone: *mut timezone) -> c_int {
        let worked = |status: c_int| status == 0;
        with_result(now, worked, |now| with_result(zone, worked, |zone| libc::gettimeofday(now, zone.cast())))
    }

    /// `clock_gettime`.
    fn __comem_inline_clock_gettime(clock: clockid_t, now: *mut timespec) -> c_int {
        with_result(now, |status: c_int| status == 0, |now| libc::clock_gettime(clock, now))
    }

    /// `time`.
    fn __comem_inline_time(now: *mut time_t) -> time_t {
        with_result(now, |status: time_t| status != -1, |now| libc::time(now))
    }

    /// `times`.
    fn __comem_inline_times(used: *mut tms) -> clock_t {
        with_result(used, |status: clock_t| status != -1, |used| libc::times(used))
    }

    /// `getrusage`.
    fn __comem_inline_getrusage(who: c_int, used: *mut rusage) -> c_int {
        // The C library's headers and this one's agree on the number's type but for its sign.
        with_result(used, |status: c_int| status == 0, |used| libc::getrusage(who as _, used))
    }

    /// `frexp`.
    fn __comem_inline_frexp(x: c_double, exponent: *mut c_int) -> c_double {
        with_result(exponent, |_: c_double| true, |exponent| frexp(x, exponent))
    }

    /// `frexpf`.
    fn __comem_inline_frexpf(x: c_float, exponent: *mut c_int) -> c_float {
        with_result(exponent, |_: c_float| true, |exponent| frexpf(x, exponent))
    }

    /// `modf`.
    fn __comem_inline_modf(x: c_double, whole: *mut c_double) -> c_double {
        with_result(whole, |_: c_double| true, |whole| modf(x, whole))
    }

    /// `modff`.
    fn __comem_inline_modff(x: c_float, whole: *mut c_float) -> c_float {
        with_result(whole, |_: c_float| true, |whole| modff(x, whole))
    }

    /// `sincos`.
    fn __comem_inline_sincos(x: c_double, sine: *mut c_double, cosine: *mut c_double) {
        let (mut own_sine, mut own_cosine) = (0.0, 0.0);
        sincos(x, &mut own_sine, &mut own_cosine);
        give(sine, own_sine);
        give(cosine, own_cosine);
    }

    /// `sincosf`.
    fn __comem_inline_sincosf(x: c_float, sine: *mut c_float, cosine: *mut c_float) {
        let (mut own_sine, mut own_cosine) = (0.0, 0.0);
        sincosf(x, &mut own_sine, &mut own_cosine);
        give(sine, own_sine);
        give(cosine, own_cosine);
    }
}
