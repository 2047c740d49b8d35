//! A small process that outlives us just long enough to end what we started.
//!
//! A launcher can be killed in a way that it cannot answer (SIGKILL, out of memory). Its nodes then die by their
//! parent-death signal, but not the processes that they started. The guardian is forked before anything else
//! happens, knows the process groups, and blocks on a pipe: when the pipe ends, it kills the groups that are left.

use crate::sys::{self, process, signals};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

/// What is written for no group: those before it are gone. Every other number is that of a group's leader.
const ALL_GONE: u64 = 0;

/// Our end of the pipe to the guardian. Dropped, it lets the guardian go.
pub struct Guardian {
    pipe: Option<File>,
    pid: u32,
}

impl Guardian {
    /// Forks the guardian. To be called while the process has one thread.
    pub fn start() -> io::Result<Guardian> {
        let (reader, writer) = io::pipe()?;
        let no_proc = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(e.kind(), format!("/proc/self/task: {e}; is /proc mounted?")),
            _ => e,
        };
        let threads = std::fs::read_dir("/proc/self/task").map_err(no_proc)?.count();
        assert_eq!(threads, 1, "the guardian is forked before any thread starts");
        // SAFETY: the process has one thread (checked above), so the child may use everything that the parent could.
        match sys::check(unsafe { libc::fork() })? {
            0 => {
                drop(writer);
                keep_watch(File::from(std::os::fd::OwnedFd::from(reader)));
            }
            pid => Ok(Guardian { pipe: Some(File::from(std::os::fd::OwnedFd::from(writer))), pid: pid as u32 }),
        }
    }

    /// The descriptor through which a child between fork and exec puts itself under watch; see [`watch_me`].
    pub fn descriptor(&self) -> i32 {
        self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// All groups were sent SIGKILL: there is nothing left to end, and their numbers may soon be those of others.
    pub fn release_all(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            // A guardian that was killed watches no more; the job goes on without it.
            let _ = pipe.write_all(&ALL_GONE.to_ne_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.pipe = None;
        process::reap(self.pid);
    }
}

/// In a child between fork and exec, which leads a group of its own: have the guardian watch over the group. That the
/// child does it leaves no moment in which the launcher could die before it has. Async-signal-safe.
pub fn watch_me(guardian: i32) -> io::Result<()> {
    // SAFETY: the call reads nothing and cannot fail.
    let record = (unsafe { libc::getpid() } as u64).to_ne_bytes();
    // A guardian that was killed watches no more; the node starts without it, and without a SIGPIPE.
    signals::ignore(libc::SIGPIPE);
    // SAFETY: the pointer and the length describe `record`, which outlives the call.
    let written = unsafe { libc::write(guardian, record.as_ptr().cast(), record.len()) };
    let result = if written == record.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) };
    signals::restore_default(libc::SIGPIPE);
    match result {
        Err(e) if e.raw_os_error() == Some(libc::EPIPE) => Ok(()),
        result => result,
    }
}

/// The guardian's whole life.
fn keep_watch(mut pipe: File) -> ! {
    // A group of its own: what ends the launcher by the terminal must not end the guardian.
    // SAFETY: the call takes two numbers and touches no memory.
    unsafe { libc::setpgid(0, 0) };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP] {
        signals::ignore(signal);
    }
    close_all_but(pipe.as_raw_fd());
    let mut groups: Vec<u32> = Vec::new();
    let mut record = [0; 8];
    while pipe.read_exact(&mut record).is_ok() {
        match u64::from_ne_bytes(record) {
            ALL_GONE => groups.clear(),
            leader => groups.push(leader as u32),
        }
    }
    for leader in groups {
        process::kill_group(leader, libc::SIGKILL);
    }
    // SAFETY: ends the process at once; nothing of the parent's may be flushed twice.
    unsafe { libc::_exit(0) }
}

/// Closes every descriptor but `kept`, so that no pipe of the launcher's stays open through the guardian.
fn close_all_but(kept: i32) {
    let kept = kept as libc::c_uint;
    // SAFETY: the guardian owns its copies of the descriptors and uses `kept` alone from here on.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
    }
}
