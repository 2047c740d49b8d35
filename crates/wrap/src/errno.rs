//! The calling thread's `errno`.

use std::ffi::c_int;

/// Its value.
pub fn get() -> c_int {
    // SAFETY: the C library gives each thread a valid address.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Runs something that is no business of the program's, and leaves `errno` as it was.
pub fn preserved<R>(body: impl FnOnce() -> R) -> R {
    let before = get();
    let result = body();
    set(before);
    result
}
