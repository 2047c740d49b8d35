//! One buffer that a system call reads or fills.
//!
//! | descriptor | how |
//! |---|---|
//! | regular file | in pieces, each touched right before its call (1) |
//! | file or disk opened with `O_DIRECT` | in pieces, each through private memory (2) |
//! | pipe, stream socket, to which more than a page is written | in pieces, each through private memory (3) |
//! | the same otherwise; device that is written | touch all, then one call (4) |
//! | any, where the buffer is lines memory | through private memory; of a file, of a disk, and to a stream in pieces |
//! | socket that keeps messages apart, device, terminal, event, when receiving | through private memory (5) |
//!
//! 1. A buffer may be larger than the cache of copies. Where pages do not stay that long: in smaller pieces, through
//!    private memory.
//! 2. The device reads and writes the pages themselves, also once they are not the buffer's any more.
//! 3. A page that was taken away in the midst of a call would end it early, and programs rely on all having been
//!    written.
//! 4. Two calls might block where one would not.
//! 5. What has been taken there when a call meets EFAULT is lost, and a page may go while it waits.
//!
//! After EFAULT with nothing transferred: touch and try again; after some tries through private memory.

use crate::heap::{self, Way};
use crate::private::Private;
use crate::{errno, real};
use std::cell::Cell;
use std::ffi::c_int;

const PAGE_BYTES: usize = 4096;
/// Most bytes of a file that one call moves from or to shared memory.
pub const PIECE_BYTES: usize = 1 << 20;
/// Most bytes of a piece that takes the way through private memory.
pub const DETOUR_BYTES: usize = 1 << 16;
thread_local! {
    /// So many bytes of a file are moved at a time: fewer, and through private memory, once that many did not stay here
    /// until the call had moved them.
    static STAYS_BYTES: Cell<usize> = const { Cell::new(PIECE_BYTES) };
}
/// How often a page may be taken away between touch and call before the bytes make a detour.
pub const TRIES: usize = 4;

/// What stands behind a descriptor, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A file or disk whose bytes move between the device and the buffer's pages.
    Direct,
    /// A pipe or a stream socket.
    Stream,
    /// A socket that gives each message once, whole or not at all.
    Messages,
    /// A device, a terminal, events, or nothing that is known.
    Other,
}

/// Looks at a descriptor.
pub fn kind_of(fd: c_int) -> Kind {
    errno::preserved(|| {
        // SAFETY: all zero is a value of this structure of numbers.
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is ours.
        if unsafe { real::fstat(fd, &mut about) } != 0 {
            return Kind::Other;
        }
        match about.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFBLK if is_direct(fd) => Kind::Direct,
            libc::S_IFREG => Kind::File,
            libc::S_IFSOCK if keeps_messages_apart(fd) => Kind::Messages,
            libc::S_IFSOCK | libc::S_IFIFO => Kind::Stream,
            _ => Kind::Other,
        }
    })
}

fn is_direct(fd: c_int) -> bool {
    // SAFETY: reads the descriptor's flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags != -1 && flags & libc::O_DIRECT != 0
}

fn keeps_messages_apart(fd: c_int) -> bool {
    let mut ty: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the option is a number, and there is room for one.
    let known = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut ty).cast(), &mut len) } == 0;
    known && ty != libc::SOCK_STREAM
}

/// Makes a call on a buffer that may be shared. `call` gets where, how many bytes, and how many of the buffer were
/// moved before.
///
/// # Safety
/// As for the call: the buffer is memory of the program's.
#[inline]
pub unsafe fn transfer(
    fd: c_int,
    start: *mut u8,
    bytes: usize,
    way: Way,
    mut call: impl FnMut(*mut u8, usize, usize) -> isize,
) -> isize {
    // Without bytes there is nothing to bring, and no buffer has more than an `isize` counts: the kernel says what it
    // makes of these.
    if bytes == 0 || bytes > isize::MAX as usize || !heap::overlaps(start, bytes) {
        return call(start, bytes, 0);
    }
    // SAFETY: by this function's contract.
    unsafe { shared(kind_of(fd), start, bytes, way, &mut call) }
}

/// # Safety
/// As for [`transfer`].
#[cold]
unsafe fn shared(
    kind: Kind,
    start: *mut u8,
    bytes: usize,
    way: Way,
    call: &mut dyn FnMut(*mut u8, usize, usize) -> isize,
) -> isize {
    let is_lines = heap::meets_lines(start, bytes);
    match kind {
        // SAFETY: by this function's contract.
        Kind::File if is_lines => unsafe { in_pieces(Kind::Direct, start, bytes, way, call) },
        // SAFETY: by this function's contract.
        Kind::File | Kind::Direct => unsafe { in_pieces(kind, start, bytes, way, call) },
        Kind::Messages | Kind::Other if way == Way::In && heap::touch(start, bytes, way) => {
            // SAFETY: by this function's contract.
            unsafe { detour(start, bytes, way, &mut |at, n| call(at, n, 0)) }
        }
        // SAFETY: by this function's contract.
        Kind::Stream if way == Way::Out && spans_pages(start, bytes) => unsafe {
            in_pieces(kind, start, bytes, way, call)
        },
        // SAFETY: by this function's contract.
        _ if is_lines => unsafe { detour(start, bytes, way, &mut |at, n| call(at, n, 0)) },
        // SAFETY: by this function's contract.
        _ => unsafe { insist(start, bytes, bytes, way, &mut |at, n| call(at, n, 0)) },
    }
}

/// Whether a buffer lies in more than one page: a call on what lies in one moves all of it or meets EFAULT.
fn spans_pages(start: *const u8, bytes: usize) -> bool {
    start.addr() / PAGE_BYTES != (start.addr() + (bytes - 1)) / PAGE_BYTES
}

/// Moves piece after piece until nothing more comes. (A piece is moved in part when a page of it was taken away
/// meanwhile.)
///
/// # Safety
/// As for [`transfer`].
unsafe fn in_pieces(
    kind: Kind,
    start: *mut u8,
    bytes: usize,
    way: Way,
    call: &mut dyn FnMut(*mut u8, usize, usize) -> isize,
) -> isize {
    let (mut done, mut cut_short) = (0, false);
    // What pieces go through is kept for the next.
    let mut private: Option<Private> = None;
    let result = loop {
        if done == bytes {
            break done as isize;
        }
        let most = if kind == Kind::Stream { DETOUR_BYTES } else { STAYS_BYTES.get() };
        let detours = kind != Kind::File || most == DETOUR_BYTES;
        let piece = (bytes - done).min(most);
        // SAFETY: within the buffer, since `done` is less than its length.
        let at = unsafe { start.add(done) };
        let mut call = |at, n| call(at, n, done);
        let moved = if detours && heap::touch_if_shared(at, piece, way) {
            private = private.or_else(|| Private::new(piece));
            match &private {
                // SAFETY: by this function's contract; no piece is longer than the first.
                Some(private) => unsafe { through(private, at, piece, way, &mut call) },
                None => -1,
            }
        } else {
            // SAFETY: by this function's contract.
            unsafe { insist(at, piece, piece.min(DETOUR_BYTES), way, &mut call) }
        };
        if moved <= 0 {
            break if done > 0 { done as isize } else { moved };
        }
        done += moved as usize;
        if (moved as usize) < piece && kind == Kind::Stream {
            // A signal has come, or the reader is slow and nobody wants to wait.
            break done as isize;
        }
        // The pages did not stay here that long, since this was not the file's end.
        if cut_short {
            STAYS_BYTES.set(DETOUR_BYTES);
        }
        cut_short = (moved as usize) < piece;
    };
    private.into_iter().for_each(Private::give_back);
    result
}

/// Touches and calls until the call does something else than meet EFAULT; then makes a detour with the first
/// `detour_bytes`.
///
/// # Safety
/// As for [`transfer`].
unsafe fn insist(
    start: *mut u8,
    bytes: usize,
    detour_bytes: usize,
    way: Way,
    call: &mut dyn FnMut(*mut u8, usize) -> isize,
) -> isize {
    let mut most = bytes;
    for _ in 0..TRIES {
        if !heap::touch_if_shared(start, most, way) {
            return call(start, most);
        }
        let moved = call(start, most);
        if moved != -1 || errno::get() != libc::EFAULT {
            return moved;
        }
        if detour_bytes < bytes {
            // So much does not stay here.
            most = detour_bytes;
            STAYS_BYTES.set(DETOUR_BYTES);
        }
    }
    // SAFETY: by this function's contract.
    unsafe { detour(start, detour_bytes, way, call) }
}

/// Makes the call on private memory, and copies with ordinary loads and stores, which bring pages here by themselves.
///
/// # Safety
/// As for [`transfer`].
unsafe fn detour(start: *mut u8, bytes: usize, way: Way, call: &mut dyn FnMut(*mut u8, usize) -> isize) -> isize {
    let Some(private) = Private::new(bytes) else { return -1 };
    // SAFETY: by this function's contract.
    let moved = unsafe { through(&private, start, bytes, way, call) };
    private.give_back();
    moved
}

/// # Safety
/// As for [`transfer`]; the private memory is that long at least.
unsafe fn through(
    private: &Private,
    start: *mut u8,
    bytes: usize,
    way: Way,
    call: &mut dyn FnMut(*mut u8, usize) -> isize,
) -> isize {
    if way == Way::Out {
        // SAFETY: both are that long, and private memory overlaps nothing.
        unsafe { heap::load(start, private.start, bytes) };
    }
    let moved = call(private.start, bytes);
    if way == Way::In && moved > 0 {
        // A cut message may tell a length beyond the buffer's.
        // SAFETY: as above.
        unsafe { heap::store(private.start, start, bytes.min(moved as usize)) };
    }
    moved
}
