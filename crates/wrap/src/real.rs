//! The functions that ours stand before: what the next library in the search order (mostly the C library) calls by the
//! same name.
//!
//! All are looked up when this library is loaded, since looking up is nothing for a signal handler to do; a call that
//! comes even earlier looks up its own.

use crate::errno;
use libc::{
    FILE, c_char, c_int, c_uint, c_void, clockid_t, iovec, mode_t, msghdr, off_t, pid_t, rusage, size_t, sockaddr,
    socklen_t, ssize_t, stat, timespec,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a function gives when it is missing, with `errno` ENOSYS.
trait Missing {
    const VALUE: Self;
}
impl Missing for c_int {
    const VALUE: c_int = -1;
}
impl Missing for ssize_t {
    const VALUE: ssize_t = -1;
}
impl Missing for size_t {
    const VALUE: size_t = 0;
}
impl<T> Missing for *mut T {
    const VALUE: *mut T = std::ptr::null_mut();
}

/// Finds a function, once.
fn find(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = known.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is a string; RTLD_NEXT means the libraries after this one.
    let found = errno::preserved(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) });
    known.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($symbol:literal $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        /// Where each function was found.
        mod known {
            use super::*;
            $(
                #[allow(non_upper_case_globals, reason = "named after the function")]
                pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            )*
        }

        $(
            /// The real function of this name.
            ///
            /// # Safety
            /// As for that function.
            pub unsafe fn $name($($arg: $ty),*) -> $ret {
                let found = find(&known::$name, $symbol);
                if found.is_null() {
                    errno::set(libc::ENOSYS);
                    return <$ret as Missing>::VALUE;
                }
                // SAFETY: the symbol of this name has this signature.
                let call = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(found)
                };
                // SAFETY: by this function's contract.
                unsafe { call($($arg),*) }
            }
        )*

        extern "C" fn find_all() {
            $( find(&known::$name, $symbol); )*
        }
    };
}

// The optional last argument of open() and openat() is passed like any other on the processors that Comem runs on.
real! {
    c"read" read(fd: c_int, to: *mut c_void, n: size_t) -> ssize_t;
    c"write" write(fd: c_int, from: *const c_void, n: size_t) -> ssize_t;
    c"pread" pread(fd: c_int, to: *mut c_void, n: size_t, at: off_t) -> ssize_t;
    c"pwrite" pwrite(fd: c_int, from: *const c_void, n: size_t, at: off_t) -> ssize_t;
    c"readv" readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    c"writev" writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    c"preadv" preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    c"pwritev" pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    c"preadv2" preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    c"pwritev2" pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    c"send" send(fd: c_int, from: *const c_void, n: size_t, flags: c_int) -> ssize_t;
    c"sendto" sendto(
        fd: c_int, from: *const c_void, n: size_t, flags: c_int, name: *const sockaddr, len: socklen_t
    ) -> ssize_t;
    c"sendmsg" sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    c"recv" recv(fd: c_int, to: *mut c_void, n: size_t, flags: c_int) -> ssize_t;
    c"recvfrom" recvfrom(
        fd: c_int, to: *mut c_void, n: size_t, flags: c_int, name: *mut sockaddr, len: *mut socklen_t
    ) -> ssize_t;
    c"recvmsg" recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    c"fread" fread(to: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t;
    c"fwrite" fwrite(from: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t;
    c"fread_unlocked" fread_unlocked(to: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t;
    c"fwrite_unlocked" fwrite_unlocked(from: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t;
    c"fputs" fputs(text: *const c_char, stream: *mut FILE) -> c_int;
    c"puts" puts(text: *const c_char) -> c_int;
    c"open" open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    c"open64" open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    c"openat" openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    c"openat64" openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    c"creat" creat(path: *const c_char, mode: mode_t) -> c_int;
    c"creat64" creat64(path: *const c_char, mode: mode_t) -> c_int;
    c"fopen" fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    c"fopen64" fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    c"stat" stat_(path: *const c_char, to: *mut stat) -> c_int;
    c"lstat" lstat(path: *const c_char, to: *mut stat) -> c_int;
    c"fstat" fstat(fd: c_int, to: *mut stat) -> c_int;
    c"fstatat" fstatat(dir: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int;
    c"access" access(path: *const c_char, mode: c_int) -> c_int;
    c"mkdir" mkdir(path: *const c_char, mode: mode_t) -> c_int;
    c"unlink" unlink(path: *const c_char) -> c_int;
    c"chdir" chdir(path: *const c_char) -> c_int;
    c"rmdir" rmdir(path: *const c_char) -> c_int;
    c"rename" rename(from: *const c_char, to: *const c_char) -> c_int;
    c"readlink" readlink(path: *const c_char, to: *mut c_char, n: size_t) -> ssize_t;
    c"getcwd" getcwd(to: *mut c_char, n: size_t) -> *mut c_char;
    c"wait" wait(status: *mut c_int) -> pid_t;
    c"waitpid" waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    c"pipe" pipe(ends: *mut c_int) -> c_int;
    c"pipe2" pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    c"socketpair" socketpair(family: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    c"nanosleep" nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    c"clock_gettime" clock_gettime(clock: clockid_t, now: *mut timespec) -> c_int;
    c"getrusage" getrusage(who: c_int, used: *mut rusage) -> c_int;
    c"getrandom" getrandom(to: *mut c_void, n: size_t, flags: c_uint) -> ssize_t;
    c"__read_chk" read_chk(fd: c_int, to: *mut c_void, n: size_t, room: size_t) -> ssize_t;
    c"__pread_chk" pread_chk(fd: c_int, to: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t;
    c"__recv_chk" recv_chk(fd: c_int, to: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t;
    c"__recvfrom_chk" recvfrom_chk(
        fd: c_int, to: *mut c_void, n: size_t, room: size_t, flags: c_int, name: *mut sockaddr, len: *mut socklen_t
    ) -> ssize_t;
    c"__fread_chk" fread_chk(to: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t;
    c"__fread_unlocked_chk" fread_unlocked_chk(
        to: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE
    ) -> size_t;
    c"__readlink_chk" readlink_chk(path: *const c_char, to: *mut c_char, n: size_t, room: size_t) -> ssize_t;
    c"__getcwd_chk" getcwd_chk(to: *mut c_char, n: size_t, room: size_t) -> *mut c_char;
    c"__open_2" open_2(path: *const c_char, flags: c_int) -> c_int;
    c"__open64_2" open64_2(path: *const c_char, flags: c_int) -> c_int;
    c"__openat_2" openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    c"__openat64_2" openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
}

/// The loader calls what stands in this section when it loads the library.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code))]
static AT_LOAD: extern "C" fn() = find_all;
