//! Where the shared heap is, and how its pages are brought here.
//!
//! Part of it may be *lines memory*, which traps nobody: what is not here reads as other data. There the runtime
//! copies the bytes, and no call ever gets them themselves.

use crate::errno;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The runtime's function that brings memory here: address, bytes, whether it will be written; 0 when all of it was
/// here.
pub type Touch = unsafe extern "C" fn(*const c_void, usize, c_int) -> c_int;

/// The runtime's function that copies between lines memory (the second of them) and private memory: whether it stores
/// to lines memory.
pub type Copy = unsafe extern "C" fn(private: *mut c_void, lines: *mut c_void, bytes: usize, stores: c_int);

/// What a call does with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It reads the buffer: `write`, `send`.
    Out,
    /// It fills the buffer: `read`, `recv`.
    In,
}

static BASE: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// A second range: the program's global variables.
static MORE_BASE: AtomicUsize = AtomicUsize::new(0);
static MORE_END: AtomicUsize = AtomicUsize::new(0);
/// Lines memory, which is part of the heap.
static LINES_BASE: AtomicUsize = AtomicUsize::new(0);
static LINES_END: AtomicUsize = AtomicUsize::new(0);
static COPY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static TOUCH: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Learns of the heap.
pub fn set(base: usize, bytes: usize, touch: Touch) {
    TOUCH.store(touch as *mut c_void, Ordering::Relaxed);
    BASE.store(base, Ordering::Relaxed);
    END.store(base.saturating_add(bytes), Ordering::Release);
}

/// Learns of shared memory outside of the heap; the heap was told of before.
pub fn add(base: usize, bytes: usize) {
    MORE_BASE.store(base, Ordering::Relaxed);
    MORE_END.store(base.saturating_add(bytes), Ordering::Release);
}

/// Learns which part of the heap is lines memory.
pub fn set_lines(base: usize, bytes: usize, copy: Copy) {
    COPY.store(copy as *mut c_void, Ordering::Relaxed);
    LINES_BASE.store(base, Ordering::Relaxed);
    LINES_END.store(base.saturating_add(bytes), Ordering::Release);
}

/// Whether any of these bytes is lines memory.
#[inline]
pub fn meets_lines<T>(start: *const T, bytes: usize) -> bool {
    let (start, end) = (start.addr(), start.addr().saturating_add(bytes));
    start < LINES_END.load(Ordering::Acquire) && end > LINES_BASE.load(Ordering::Relaxed)
}

fn copy(private: *mut u8, lines: *mut u8, bytes: usize, way: Way) {
    // SAFETY: there is lines memory, so `set_lines` has stored such a function.
    let copy = unsafe { std::mem::transmute::<*mut c_void, Copy>(COPY.load(Ordering::Relaxed)) };
    // SAFETY: the runtime gave the function for this purpose.
    errno::preserved(|| unsafe { copy(private.cast(), lines.cast(), bytes, c_int::from(way == Way::In)) });
}

/// Copies from the program's memory of any kind.
///
/// # Safety
/// As for `copy_nonoverlapping`; `to` is private.
pub unsafe fn load(from: *const u8, to: *mut u8, bytes: usize) {
    match meets_lines(from, bytes) {
        true => copy(to, from.cast_mut(), bytes, Way::Out),
        // SAFETY: by this function's contract; loads bring pages here by themselves.
        false => unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) },
    }
}

/// Copies to the program's memory of any kind.
///
/// # Safety
/// As for `copy_nonoverlapping`; `from` is private.
pub unsafe fn store(from: *const u8, to: *mut u8, bytes: usize) {
    match meets_lines(to, bytes) {
        true => copy(from.cast_mut(), to, bytes, Way::In),
        // SAFETY: by this function's contract; stores bring pages here by themselves.
        false => unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) },
    }
}

/// Whether there is a heap at all.
#[inline]
pub fn exists() -> bool {
    END.load(Ordering::Acquire) != 0
}

/// Whether any of these bytes is shared memory. Without a heap none is.
#[inline]
pub fn overlaps<T>(start: *const T, bytes: usize) -> bool {
    let (start, end) = (start.addr(), start.addr().saturating_add(bytes));
    let meets = |base: &AtomicUsize, limit: &AtomicUsize| {
        start < limit.load(Ordering::Acquire) && end > base.load(Ordering::Relaxed)
    };
    meets(&BASE, &END) || meets(&MORE_BASE, &MORE_END)
}

/// Brings memory here. `false`: it is no allocated memory of the heap, or this thread has no place in the job and there
/// is none left; the call is then made as if nobody stood before it.
pub fn touch<T>(start: *const T, bytes: usize, way: Way) -> bool {
    if meets_lines(start, bytes) {
        // It comes when it is copied.
        return true;
    }
    let touch = TOUCH.load(Ordering::Relaxed);
    if touch.is_null() {
        return false;
    }
    // SAFETY: only `set` stores here, and what it stores is such a function.
    let touch = unsafe { std::mem::transmute::<*mut c_void, Touch>(touch) };
    // SAFETY: the runtime gave the function for this purpose, for any address.
    errno::preserved(|| unsafe { touch(start.cast(), bytes, c_int::from(way == Way::In)) } == 0)
}

/// As [`touch`], for memory of which part or all may not be shared: that part needs nothing.
pub fn touch_if_shared<T>(start: *const T, bytes: usize, way: Way) -> bool {
    !overlaps(start, bytes) || touch(start, bytes, way)
}
