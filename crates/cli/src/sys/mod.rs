//! The system calls that the standard library does not offer, one safe wrapper each.
//!
//! | module | |
//! |---|---|
//! | [`poll`] | waiting for many descriptors at once |
//! | [`signals`] | signals as something to wait for |
//! | [`process`] | how a process ends, process groups, strays |
//! | [`spawn`] | starting a program without a copy of this process |
//! | [`host`] | names and limits of this host |
//! | [`outputs`] | a standard output that was closed |

pub mod host;
pub mod outputs;
pub mod poll;
pub mod process;
pub mod signals;
pub mod spawn;

use crate::failure::{Failure, Outcome};
pub use comem::keys::random;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// Turns the C convention (-1 and errno) into a result.
pub fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Takes variables out of this process's environment.
///
/// # Safety
/// No other thread reads or writes the environment meanwhile.
pub unsafe fn remove_variables(names: &[std::ffi::OsString]) {
    // SAFETY: by this function's contract.
    names.iter().for_each(|name| unsafe { std::env::remove_var(name) });
}

/// Starts a thread of ours.
///
/// # Errors
/// The system refuses one.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Outcome<JoinHandle<T>> {
    comem_net::threads::start(name, work).map_err(|why| Failure::system("cannot start a thread", why))
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: reading the flags of an open descriptor touches no memory.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: setting the flags of an open descriptor touches no memory.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// What a read that does not wait brought.
#[derive(PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// So many bytes.
    Bytes(usize),
    /// None for the moment.
    NothingYet,
    /// None any more.
    End,
}

/// Has the system end a TCP connection whose other end is out of reach for `limit`: with data on the way, and without
/// any, by asking from time to time whether it is still there.
///
/// # Errors
/// What the system says.
pub fn limit_silence(stream: &impl AsFd, limit: Duration) -> io::Result<()> {
    const QUESTIONS: libc::c_int = 5;
    let seconds = limit.as_secs() as libc::c_int;
    let every = seconds / (QUESTIONS + 1);
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, every),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, every),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, QUESTIONS),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds * 1000),
    ];
    for (level, name, value) in options {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let fd = stream.as_fd().as_raw_fd();
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) })?;
    }
    Ok(())
}

/// Reads what is there.
pub fn read_some(fd: &impl AsFd, buffer: &mut [u8]) -> ReadOutcome {
    loop {
        // SAFETY: the pointer and the length describe `buffer`, which outlives the call.
        let got = unsafe { libc::read(fd.as_fd().as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match got {
            0 => return ReadOutcome::End,
            got if got > 0 => return ReadOutcome::Bytes(got as usize),
            _ => match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return ReadOutcome::NothingYet,
                // A terminal that is gone, a reset connection: nothing more will come.
                _ => return ReadOutcome::End,
            },
        }
    }
}

/// Writes what the other side takes; `Ok(0)` when it takes nothing for the moment. Raises no SIGPIPE, which Rust
/// programs ignore.
pub fn write_some(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the pointer and the length describe `bytes`, which outlives the call.
        let put = unsafe { libc::write(fd.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if put >= 0 {
            return Ok(put as usize);
        }
        let why = io::Error::last_os_error();
        match why.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(0),
            _ => return Err(why),
        }
    }
}

/// Takes an exclusive lock on an open file without waiting; `false` when another process holds it.
pub fn try_lock(file: &std::fs::File) -> io::Result<bool> {
    // SAFETY: locking an open descriptor touches no memory.
    match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes an exclusive lock on an open file, and waits for it.
pub fn wait_for_lock(file: &std::fs::File) -> io::Result<()> {
    loop {
        // SAFETY: locking an open descriptor touches no memory.
        match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether two paths lead to one file.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let which = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    which(one).is_some_and(|one| which(other) == Some(one))
}

/// Who is at the other end of a Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process that connected, or that began to listen.
    pub pid: u32,
    /// The user whom it acted as.
    pub user: u32,
}

/// Who is at the other end of a connected Unix socket.
pub fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = stream.as_raw_fd();
    // SAFETY: the pointer and the length describe `found`, which outlives the call.
    check(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut length)
    })?;
    Ok(Peer { pid: found.pid as u32, user: found.uid })
}

/// Connects to a Unix socket; fails where its listener cannot take this one in at once. Reads and writes do not wait.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: an all-zero address is a valid value to be filled in.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    // The path ends with a zero byte.
    if bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes three numbers and touches no memory.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `address`, which outlives the call.
    check(unsafe { libc::connect(fd, (&raw const address).cast(), length) })?;
    Ok(stream)
}

/// The user this process acts as.
pub fn user_id() -> u32 {
    // SAFETY: the call reads nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// A file in memory that programs started from here inherit, for what must not stand in an environment.
pub fn inherited_memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; no flag is given, so the descriptor stays open in the next program.
    let fd = check(unsafe { libc::memfd_create(c"comem-job".as_ptr(), 0) })?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut rest = content;
    while !rest.is_empty() {
        rest = &rest[write_some(&file, rest)?..];
    }
    Ok(file)
}

/// Whether this process may execute a file.
pub fn may_execute(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a string with an end that outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}
