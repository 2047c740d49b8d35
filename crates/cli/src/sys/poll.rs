//! Waiting for many descriptors at once.

use super::check;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// The descriptors to wait for, and afterwards the ready ones among them. Filled anew before each wait.
#[derive(Default)]
pub struct PollSet {
    polled: Vec<libc::pollfd>,
    ready: HashMap<RawFd, i16>,
}

impl PollSet {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.polled.clear();
        self.ready.clear();
    }
    /// Waits for bytes to read, or the end.
    pub fn readable(&mut self, fd: &impl AsFd) {
        self.add(fd.as_fd().as_raw_fd(), libc::POLLIN);
    }
    /// Waits for room to write, or the end.
    pub fn writable(&mut self, fd: &impl AsFd) {
        self.add(fd.as_fd().as_raw_fd(), libc::POLLOUT);
    }
    fn add(&mut self, fd: RawFd, events: i16) {
        self.polled.push(libc::pollfd { fd, events, revents: 0 });
    }

    /// Blocks until a descriptor is ready or `deadline` has come.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            let timeout = deadline.map_or(-1, |at| milliseconds(at.saturating_duration_since(Instant::now())));
            // SAFETY: the pointer and the count describe `self.polled`, which outlives the call.
            let count =
                check(unsafe { libc::poll(self.polled.as_mut_ptr(), self.polled.len() as libc::nfds_t, timeout) });
            match count {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(_) => break,
            }
        }
        for polled in self.polled.iter().filter(|p| p.revents != 0) {
            *self.ready.entry(polled.fd).or_default() |= polled.revents;
        }
        Ok(())
    }

    /// Whether a read of `fd` would return at once.
    pub fn can_read(&self, fd: &impl AsFd) -> bool {
        self.has(fd, libc::POLLIN | libc::POLLHUP | libc::POLLERR)
    }
    /// Whether a write to `fd` would return at once.
    pub fn can_write(&self, fd: &impl AsFd) -> bool {
        self.has(fd, libc::POLLOUT | libc::POLLHUP | libc::POLLERR)
    }
    fn has(&self, fd: &impl AsFd, events: i16) -> bool {
        self.ready.get(&fd.as_fd().as_raw_fd()).is_some_and(|ready| ready & events != 0)
    }
}

/// Rounded up, so that a wait never ends just before its deadline and spins.
fn milliseconds(span: Duration) -> libc::c_int {
    span.as_millis().saturating_add(u128::from(!span.subsec_nanos().is_multiple_of(1_000_000))).min(1 << 30)
        as libc::c_int
}

/// The earlier of two deadlines, where `None` is never.
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
