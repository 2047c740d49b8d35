//! Calls that read or fill in a small thing: it is copied.

use crate::heap::{self, Way};
use crate::transfer::transfer;
use crate::{errno, real};
use libc::{c_int, c_uint, c_void, clockid_t, pid_t, rusage, size_t, ssize_t, timespec};
use std::mem::MaybeUninit;

/// Calls with a place for a result, or with a private one where it is shared; then it is copied if the call gave 0.
///
/// # Safety
/// As for the call.
#[inline]
pub unsafe fn with_result<T>(to: *mut T, call: impl FnOnce(*mut T) -> c_int) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with_result_if(|status| status == 0, to, call) }
}

/// The same for a call that has filled in its result if `filled` says so of what it gave.
///
/// # Safety
/// As for the call.
#[inline]
unsafe fn with_result_if<T>(
    filled: impl FnOnce(c_int) -> bool,
    to: *mut T,
    call: impl FnOnce(*mut T) -> c_int,
) -> c_int {
    if !heap::overlaps(to, size_of::<T>()) || !heap::touch_if_shared(to, size_of::<T>(), Way::In) {
        return call(to);
    }
    let mut private = MaybeUninit::uninit();
    let status = call(private.as_mut_ptr());
    if filled(status) {
        // SAFETY: the call has filled it in; by this function's contract there is room.
        unsafe { heap::store(private.as_ptr().cast(), to.cast(), size_of::<T>()) };
    }
    status
}

/// Calls with an argument, or with a private copy of it where it is shared.
///
/// # Safety
/// As for the call.
#[inline]
unsafe fn with_argument<T: Copy>(from: *const T, call: impl FnOnce(*const T) -> c_int) -> c_int {
    if !heap::overlaps(from, size_of::<T>()) || !heap::touch_if_shared(from, size_of::<T>(), Way::Out) {
        return call(from);
    }
    let mut copy = MaybeUninit::<T>::uninit();
    // SAFETY: by this function's contract it can be read.
    unsafe { heap::load(from.cast(), copy.as_mut_ptr().cast(), size_of::<T>()) };
    call(copy.as_ptr())
}

/// Waits for any child.
///
/// # Safety
/// As for `wait(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn wait(status: *mut c_int) -> pid_t {
    // SAFETY: by this function's contract.
    unsafe { with_result_if(|pid| pid > 0, status, |status| real::wait(status)) }
}

/// Waits for a child.
///
/// # Safety
/// As for `waitpid(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    // SAFETY: by this function's contract.
    unsafe { with_result_if(|pid| pid > 0, status, |status| real::waitpid(child, status, options)) }
}

/// Makes a pipe.
///
/// # Safety
/// As for `pipe(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: by this function's contract there is room for two.
    unsafe { with_result(ends.cast::<[c_int; 2]>(), |ends| real::pipe(ends.cast())) }
}

/// Makes a pipe.
///
/// # Safety
/// As for `pipe2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: by this function's contract there is room for two.
    unsafe { with_result(ends.cast::<[c_int; 2]>(), |ends| real::pipe2(ends.cast(), flags)) }
}

/// Makes two sockets.
///
/// # Safety
/// As for `socketpair(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socketpair(family: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    let ends = ends.cast::<[c_int; 2]>();
    // SAFETY: by this function's contract there is room for two.
    unsafe { with_result(ends, |ends| real::socketpair(family, kind, protocol, ends.cast())) }
}

/// Sleeps.
///
/// # Safety
/// As for `nanosleep(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    let interrupted = |status| status != 0 && errno::get() == libc::EINTR;
    // SAFETY: by this function's contract.
    unsafe { with_argument(time, |time| with_result_if(interrupted, left, |left| real::nanosleep(time, left))) }
}

/// Reads a clock. The C library reads most of them without a system call, but not those of a process's or thread's
/// processor time.
///
/// # Safety
/// As for `clock_gettime(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn clock_gettime(clock: clockid_t, now: *mut timespec) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with_result(now, |now| real::clock_gettime(clock, now)) }
}

/// Says what was used of processor time and the like.
///
/// # Safety
/// As for `getrusage(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getrusage(who: c_int, used: *mut rusage) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with_result(used, |used| real::getrusage(who, used)) }
}

/// Gives random bytes.
///
/// # Safety
/// As for `getrandom(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getrandom(to: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t {
    // No descriptor: one call, as for a device.
    // SAFETY: the caller's buffer, or private memory of that size.
    unsafe { transfer(-1, to.cast(), bytes, Way::In, |at, n, _| real::getrandom(at.cast(), n, flags)) }
}
