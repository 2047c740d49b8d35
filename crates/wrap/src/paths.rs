//! Calls with a path, which is copied.

use crate::heap::{self, Way};
use crate::real;
use crate::small::with_result;
use libc::{FILE, c_char, c_int, mode_t, size_t, ssize_t, stat};

/// Bytes of the longest path, its end included.
const PATH_BYTES: usize = libc::PATH_MAX as usize;
const PAGE_BYTES: usize = 4096;

/// Calls with the path, or with a private copy of it where it is shared.
///
/// # Safety
/// As for the call.
#[inline]
unsafe fn with_path<R>(path: *const c_char, call: impl FnOnce(*const c_char) -> R) -> R {
    if !heap::overlaps(path, 1) {
        return call(path);
    }
    // One byte more than any path has, so that too long a path stays too long.
    let mut copy = [0; PATH_BYTES + 1];
    // SAFETY: by this function's contract a string.
    let copied = unsafe { copy_string(path, &mut copy[..PATH_BYTES]) };
    call(if copied { copy.as_ptr() } else { path })
}

/// Copies a string up to its end or the room's; `false` when its memory cannot be brought here.
///
/// # Safety
/// A string.
unsafe fn copy_string(from: *const c_char, to: &mut [c_char]) -> bool {
    for (index, byte) in to.iter_mut().enumerate() {
        // SAFETY: the string has not ended before this byte.
        let at = unsafe { from.add(index) };
        if (index == 0 || at.addr().is_multiple_of(PAGE_BYTES)) && !heap::touch_if_shared(at, 1, Way::Out) {
            return false;
        }
        // SAFETY: as above.
        unsafe { heap::load(at.cast(), (&raw mut *byte).cast(), 1) };
        if *byte == 0 {
            return true;
        }
    }
    true
}

macro_rules! with_a_path {
    ($($name:ident($($before:ident: $bt:ty,)* @path $(, $after:ident: $at:ty)*) -> $ret:ty = $real:ident;)*) => { $(
        /// The call of this name.
        ///
        /// # Safety
        /// As for that call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($before: $bt,)* path: *const c_char $(, $after: $at)*) -> $ret {
            // SAFETY: by this function's contract; a copy says the same.
            unsafe { with_path(path, |path| real::$real($($before,)* path $(, $after)*)) }
        }
    )* };
}

with_a_path! {
    open(@path, flags: c_int, mode: mode_t) -> c_int = open;
    open64(@path, flags: c_int, mode: mode_t) -> c_int = open64;
    openat(dir: c_int, @path, flags: c_int, mode: mode_t) -> c_int = openat;
    openat64(dir: c_int, @path, flags: c_int, mode: mode_t) -> c_int = openat64;
    creat(@path, mode: mode_t) -> c_int = creat;
    creat64(@path, mode: mode_t) -> c_int = creat64;
    fopen(@path, mode: *const c_char) -> *mut FILE = fopen;
    fopen64(@path, mode: *const c_char) -> *mut FILE = fopen64;
    access(@path, mode: c_int) -> c_int = access;
    mkdir(@path, mode: mode_t) -> c_int = mkdir;
    unlink(@path) -> c_int = unlink;
    chdir(@path) -> c_int = chdir;
    rmdir(@path) -> c_int = rmdir;
    __open_2(@path, flags: c_int) -> c_int = open_2;
    __open64_2(@path, flags: c_int) -> c_int = open64_2;
    __openat_2(dir: c_int, @path, flags: c_int) -> c_int = openat_2;
    __openat64_2(dir: c_int, @path, flags: c_int) -> c_int = openat64_2;
}

/// Renames.
///
/// # Safety
/// As for `rename(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: by this function's contract; copies say the same.
    unsafe { with_path(from, |from| with_path(to, |to| real::rename(from, to))) }
}

// The structure is the same with and without large files on 64-bit machines.
macro_rules! about_a_file {
    ($($name:ident = $real:ident;)*) => { $(
        /// Tells about a file.
        ///
        /// # Safety
        /// As for `stat(2)`.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, to: *mut stat) -> c_int {
            // SAFETY: by this function's contract.
            unsafe { with_path(path, |path| with_result(to, |to| real::$real(path, to))) }
        }
    )* };
}

mod names {
    use super::*;
    about_a_file! {
        stat = stat_;
        stat64 = stat_;
        lstat = lstat;
        lstat64 = lstat;
    }
}

macro_rules! about_an_open_file {
    ($($name:ident $at:ident;)*) => { $(
        /// Tells about an open file.
        ///
        /// # Safety
        /// As for `fstat(2)`.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, to: *mut stat) -> c_int {
            // SAFETY: by this function's contract.
            unsafe { with_result(to, |to| real::fstat(fd, to)) }
        }

        /// Tells about a file below a directory.
        ///
        /// # Safety
        /// As for `fstatat(2)`.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $at(dir: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int {
            // SAFETY: by this function's contract.
            unsafe { with_path(path, |path| with_result(to, |to| real::fstatat(dir, path, to, flags))) }
        }
    )* };
}

about_an_open_file! {
    fstat fstatat;
    fstat64 fstatat64;
}

/// Reads a symbolic link.
///
/// # Safety
/// As for `readlink(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readlink(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    if !heap::overlaps(path, 1) && !heap::overlaps(to, room) {
        // SAFETY: by this function's contract.
        return unsafe { real::readlink(path, to, room) };
    }
    if !heap::touch_if_shared(to, room, Way::In) {
        // SAFETY: by this function's contract.
        return unsafe { with_path(path, |path| real::readlink(path, to, room)) };
    }
    let mut private = [0; PATH_BYTES];
    // SAFETY: by this function's contract; the private buffer is as long as we say.
    let bytes = unsafe { with_path(path, |path| real::readlink(path, private.as_mut_ptr(), room.min(PATH_BYTES))) };
    if bytes > 0 {
        // SAFETY: no more than the caller has room for.
        unsafe { heap::store(private.as_ptr().cast(), to.cast(), bytes as usize) };
    }
    bytes
}

/// Tells the working directory.
///
/// # Safety
/// As for `getcwd(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getcwd(to: *mut c_char, room: size_t) -> *mut c_char {
    if !heap::overlaps(to, room) || !heap::touch(to, 1, Way::In) {
        // SAFETY: by this function's contract.
        return unsafe { real::getcwd(to, room) };
    }
    let mut private = [0; PATH_BYTES];
    // SAFETY: the private buffer is as long as we say.
    if unsafe { real::getcwd(private.as_mut_ptr(), room.min(PATH_BYTES)) }.is_null() {
        return std::ptr::null_mut();
    }
    let bytes = private.iter().position(|byte| *byte == 0).map_or(PATH_BYTES, |end| end + 1);
    // SAFETY: no more than the caller has room for, since the call kept to it.
    unsafe { heap::store(private.as_ptr().cast(), to.cast(), bytes) };
    to
}
