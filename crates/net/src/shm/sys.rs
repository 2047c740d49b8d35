//! The system calls of shared memory, each behind one safe function: memory files, mappings, waiting on a word, waiting
//! for descriptors, and handing descriptors over.

use crate::sys::count_call;
use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

fn check(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A memory file of fixed size, which nobody can shorten later: whoever maps it can touch all of it.
pub(super) fn memory_file(name: &CStr, len: usize) -> io::Result<OwnedFd> {
    if crate::sys::soft_limit(libc::RLIMIT_FSIZE) < len as u64 {
        // The kernel would end the process by a signal (SIGXFSZ).
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("files of {len} bytes are forbidden (ulimit -f)"),
        ));
    }
    let usual = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let create = |flags| {
        // SAFETY: the name ends in a zero byte and outlives the call.
        check(unsafe { libc::memfd_create(name.as_ptr(), flags) } as libc::ssize_t)
    };
    // Systems before Linux 6.3 do not know that memory need not be executable.
    let number = create(usual | libc::MFD_NOEXEC_SEAL).or_else(|_| create(usual))?;
    // SAFETY: the call just made opened this descriptor, and nobody else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(number as RawFd) };
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) } as libc::ssize_t)?;
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } as libc::ssize_t)?;
    Ok(file)
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Whether a file that came from elsewhere is one of [`memory_file`] of this size.
fn is_memory_file(file: BorrowedFd<'_>, len: usize) -> bool {
    // SAFETY: the call takes numbers only.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills `status`, whose bytes are integers and zero before.
    let size =
        unsafe { (libc::fstat(file.as_raw_fd(), status.as_mut_ptr()) == 0).then(|| status.assume_init().st_size) };
    seals >= 0 && seals & SEALS == SEALS && size == Some(len as libc::off_t)
}

/// Memory shared with other processes. They may write at any time, so nothing in it is borrowed: words are atomic,
/// bytes are copied.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the mapping until it is dropped, and is used through atomic words and copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a memory file of exactly this size.
    pub(super) fn of(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        if !is_memory_file(file, len) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is not a memory file of the expected size"));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place, so no memory in use is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let start = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => start,
            _ => return Err(io::Error::last_os_error()),
        };
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: the range was mapped just now; the advice keeps it out of children and core files.
            unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
        }
        Ok(Mapping { start, len })
    }

    #[inline]
    fn at<T>(&self, offset: usize) -> NonNull<T> {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + size_of::<T>() <= self.len);
        // SAFETY: the offset lies within the mapping.
        unsafe { self.start.add(offset) }.cast()
    }

    /// The word at an offset that is a multiple of 8.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds, aligned (a mapping begins at a page), mapped as long as `self` lives, and only used
        // atomically.
        unsafe { self.at::<AtomicU64>(offset).as_ref() }
    }

    /// The half word at an offset that is a multiple of 4.
    #[inline]
    pub(super) fn half_word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as for `word`.
        unsafe { self.at::<AtomicU32>(offset).as_ref() }
    }

    /// Copies bytes out.
    #[inline]
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.len && into.len() <= self.len - offset);
        // SAFETY: the source lies within the mapping, the target is borrowed exclusively; should another process break
        // the rules and write meanwhile, the copy holds some bytes or others, and any are values.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.len && from.len() <= self.len - offset);
        // SAFETY: the target lies within the mapping, and nothing in this process borrows it.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(offset), from.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of`, and what it lent out is no longer borrowed.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Sleeps while the word, which may lie in shared memory, has this value: until woken, a signal comes or the time is
/// over.
pub(super) fn wait_on(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    count_call();
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos() as _,
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the limit outlive the call, which only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, limit) };
}

/// Wakes all that sleep on the word, in any process.
pub(super) fn wake_all(word: &AtomicU32) {
    count_call();
    // SAFETY: the kernel uses the word's address alone.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// A counter whose change ends a wait for descriptors.
pub(super) fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let number = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } as libc::ssize_t)?;
    // SAFETY: the call just made opened this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Raises an [`event_counter`].
pub(super) fn raise(counter: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: the kernel reads the eight bytes of `one`. A counter that is raised already needs no more.
    unsafe { libc::write(counter.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Something to read, an error to report, or the other end gone, once for each change.
pub(super) const CHANGES: u32 = (libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLET) as u32;
/// Something to read, or the other end gone.
pub(super) const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
/// Something to read, once: then [`Watch::again`].
pub(super) const NEXT: u32 = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
/// The other end gone.
pub(super) const GONE: u32 = libc::EPOLLRDHUP as u32;

/// A set of descriptors to wait for, each with a number of the caller's.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> io::Result<Watch> {
        // SAFETY: the call takes numbers only.
        let number = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as libc::ssize_t)?;
        // SAFETY: the call just made opened this descriptor, and nobody else owns it.
        Ok(Watch(unsafe { OwnedFd::from_raw_fd(number as RawFd) }))
    }

    /// Begins to watch a descriptor.
    pub(super) fn add(&self, fd: RawFd, events: u32, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, number)
    }

    /// Goes on watching a descriptor that was to be watched once.
    pub(super) fn again(&self, fd: RawFd, events: u32, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, number)
    }

    fn control(&self, what: i32, fd: RawFd, events: u32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: number };
        // SAFETY: the kernel reads `event`.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &raw mut event) } as libc::ssize_t).map(drop)
    }

    /// Ends it: before the descriptor is closed, because a child may hold a copy.
    pub(super) fn remove(&self, fd: RawFd) {
        // SAFETY: the call takes numbers and an ignored pointer.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
    }

    /// Waits, without a limit for ever; gives the numbers of those that have something.
    pub(super) fn wait<'a>(
        &self,
        room: &'a mut [libc::epoll_event; 16],
        limit: Option<Duration>,
    ) -> impl Iterator<Item = u64> + 'a {
        let limit_ms = limit.map_or(-1, |limit| i32::try_from(limit.as_millis() + 1).unwrap_or(i32::MAX));
        // SAFETY: the kernel fills at most as many entries as `room` has.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), room.as_mut_ptr(), room.len() as i32, limit_ms) };
        room.iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64)
    }
}

/// The user on whose behalf the other end of a local socket was opened.
pub(super) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, the size of `who`.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len) };
    check(result as libc::ssize_t).map(|_| who.uid)
}

/// The user of this process.
pub(super) fn own_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Room for the control message of a hand-over, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// How many descriptors a hand-over carries.
pub(super) const HANDED: usize = 2;
const HANDED_BYTES: u32 = (HANDED * size_of::<RawFd>()) as u32;

/// Sends bytes and descriptors through a local socket, without waiting.
pub(super) fn hand_over(socket: BorrowedFd<'_>, bytes: &[u8], files: [BorrowedFd<'_>; HANDED]) -> io::Result<()> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    // SAFETY: the header points at `vector` and `control`, which outlive the call; `control` has room for, and is
    // aligned for, the one message written into it; sendmsg only reads what `vector` points at.
    let sent = check(unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(HANDED_BYTES) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(HANDED_BYTES) as _;
        let numbers = files.map(|file| file.as_raw_fd());
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<[RawFd; HANDED]>(), numbers);
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
}

/// Takes what [`hand_over`] sent, without waiting. Gives the number of bytes, and the descriptors, if that is what
/// came.
pub(super) fn take_over(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<[OwnedFd; HANDED]>)> {
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    let mut found = Vec::with_capacity(HANDED);
    // SAFETY: the header points at `vector` and `control`, which outlive the call, with their true sizes; the kernel
    // writes within those. Each descriptor lies within its message's `cmsg_len`, was opened by this call for us, and is
    // owned once.
    let len = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let len = check(libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags))?;
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let data_len = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let numbers = libc::CMSG_DATA(message).cast::<RawFd>();
                for index in 0..data_len / size_of::<RawFd>() {
                    found.push(OwnedFd::from_raw_fd(ptr::read_unaligned(numbers.add(index))));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
        len
    };
    Ok((len, found.try_into().ok()))
}
