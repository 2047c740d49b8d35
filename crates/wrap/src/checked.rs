//! The names that programs compiled with `_FORTIFY_SOURCE` call: the same functions, told how much room there is. What
//! does not fit goes to the C library, which ends the program.

use crate::{files, heap, paths, real, sockets, streams};
use libc::{FILE, c_char, c_int, c_void, off_t, size_t, sockaddr, socklen_t, ssize_t};

macro_rules! checked {
    ($(
        $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = ($to:ident, $bytes:expr, $room:ident) $ours:expr,
            else $real:ident;
    )*) => { $(
        /// The checked call of this name.
        ///
        /// # Safety
        /// As for the unchecked one.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            let bytes: usize = $bytes;
            if bytes <= $room && heap::overlaps($to, bytes) {
                // SAFETY: by this function's contract.
                return unsafe { $ours };
            }
            // SAFETY: by this function's contract.
            unsafe { real::$real($($arg),*) }
        }
    )* };
}

checked! {
    __read_chk(fd: c_int, to: *mut c_void, n: size_t, room: size_t) -> ssize_t
        = (to, n, room) files::read(fd, to, n), else read_chk;
    __pread_chk(fd: c_int, to: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t
        = (to, n, room) files::pread(fd, to, n, at), else pread_chk;
    __pread64_chk(fd: c_int, to: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t
        = (to, n, room) files::pread(fd, to, n, at), else pread_chk;
    __recv_chk(fd: c_int, to: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t
        = (to, n, room) sockets::recv(fd, to, n, flags), else recv_chk;
    __recvfrom_chk(
        fd: c_int, to: *mut c_void, n: size_t, room: size_t, flags: c_int, name: *mut sockaddr, len: *mut socklen_t
    ) -> ssize_t
        = (to, n, room) sockets::recvfrom(fd, to, n, flags, name, len), else recvfrom_chk;
    __fread_chk(to: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t
        = (to, size.saturating_mul(n), room) streams::fread(to, size, n, stream), else fread_chk;
    __fread_unlocked_chk(to: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t
        = (to, size.saturating_mul(n), room) streams::fread_unlocked(to, size, n, stream), else fread_unlocked_chk;
    __readlink_chk(path: *const c_char, to: *mut c_char, n: size_t, room: size_t) -> ssize_t
        = (to, n, room) paths::readlink(path, to, n), else readlink_chk;
    __getcwd_chk(to: *mut c_char, n: size_t, room: size_t) -> *mut c_char
        = (to, n, room) paths::getcwd(to, n), else getcwd_chk;
}
