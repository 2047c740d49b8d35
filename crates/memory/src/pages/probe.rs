//! Trying a detector by using it.
//!
//! The accesses are made by the kernel on our behalf, through a pipe: where a program would get a signal, a system call
//! fails with EFAULT. So a probe needs no signal handler and cannot kill the process.

use super::{Arena, Detector, PAGE_BYTES, Tracking};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Uses everything that an arena does, on four pages, in both kinds of tracking.
pub fn probe(detector: Detector) -> Result<(), String> {
    for tracking in [Tracking::Tracked, Tracking::Guarded] {
        let arena = Arena::anywhere(4 * PAGE_BYTES, tracking, detector).map_err(|error| error.to_string())?;
        let pipe = Pipe::new().map_err(|error| format!("pipe: {error}"))?;
        walk(&arena, &pipe)?;
    }
    Ok(())
}

fn walk(arena: &Arena, pipe: &Pipe) -> Result<(), String> {
    let page = arena.base() + PAGE_BYTES;
    // SAFETY: page 1 of the four that the service view has.
    unsafe { arena.service().add(PAGE_BYTES).write_volatile(7) };
    expect(pipe.load(page).is_none(), "an unmapped page could be read")?;
    step("mapping for reading", arena.map_read(0..2))?;
    expect(pipe.load(page) == Some(7), "a page mapped for reading could not be read")?;
    expect(pipe.load(arena.base()) == Some(0), "a page that nobody wrote is not zero")?;
    let noted = arena.notes_writes();
    expect(pipe.store(page) == noted, "a write to a readable page was not handled as asked")?;
    expect_written(arena, noted, "a write to a readable page was not noted exactly")?;
    expect_written(arena, false, "a page without a write was noted as written")?;
    step("mapping for writing", arena.map_write(1..2))?;
    expect(pipe.store(page), "a page mapped for writing could not be written")?;
    step("protecting", arena.protect(1..2))?;
    expect_written(arena, false, "a protected page was noted as written")?;
    expect(pipe.store(page) == noted, "a write to a protected page was not handled as asked")?;
    step("unmapping", arena.unmap(0..2))?;
    expect(pipe.load(page).is_none(), "an unmapped page could still be read")?;
    expect_written(arena, noted, "a write before the unmapping was not noted exactly")
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn step(what: &str, result: io::Result<()>) -> Result<(), String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Collects, and expects page 1 or nothing.
fn expect_written(arena: &Arena, page_1: bool, otherwise: &str) -> Result<(), String> {
    let mut written = Vec::new();
    step("collecting writes", arena.collect(0..4, &mut written))?;
    let right = if page_1 { written.len() == 1 && written[0] == (1..2) } else { written.is_empty() };
    expect(right, otherwise)
}

/// A pipe, through which the kernel loads and stores single bytes for us.
pub(super) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    pub(super) fn new() -> io::Result<Pipe> {
        let mut fds = [-1; 2];
        // SAFETY: the call writes two descriptors into the array.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 has just given us both descriptors.
        let [reader, writer] = unsafe { fds.map(|fd| OwnedFd::from_raw_fd(fd)) };
        Ok(Pipe { reader, writer })
    }

    /// The byte at an address, unless reading it faults.
    pub(super) fn load(&self, address: usize) -> Option<u8> {
        let mut byte = 0_u8;
        let from = std::ptr::with_exposed_provenance(address);
        // SAFETY: the kernel reads one byte of an arena or fails with EFAULT.
        let sent = unsafe { libc::write(self.writer.as_raw_fd(), from, 1) };
        // SAFETY: the kernel writes one byte of ours.
        let got = unsafe { libc::read(self.reader.as_raw_fd(), (&raw mut byte).cast(), 1) };
        (sent == 1 && got == 1).then_some(byte)
    }

    /// Stores a byte at an address; whether that worked.
    fn store(&self, address: usize) -> bool {
        let byte = 9_u8;
        let mut left = 0_u8;
        // SAFETY: the kernel reads one byte of ours.
        let sent = unsafe { libc::write(self.writer.as_raw_fd(), (&raw const byte).cast(), 1) };
        let to = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the kernel writes one byte of an arena that holds nobody's data, or fails with EFAULT.
        let got = unsafe { libc::read(self.reader.as_raw_fd(), to, 1) };
        if got != 1 {
            // SAFETY: the kernel writes one byte of ours: the one that is still in the pipe.
            unsafe { libc::read(self.reader.as_raw_fd(), (&raw mut left).cast(), 1) };
        }
        sent == 1 && got == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a probe fails the tests of its detector are skipped. So what fails must be the system's refusal, not the
    /// arena.
    #[test]
    fn what_the_system_grants_works() {
        for detector in Detector::ALL {
            for tracking in [Tracking::Tracked, Tracking::Guarded] {
                let Ok(arena) = Arena::anywhere(4 * PAGE_BYTES, tracking, detector) else { continue };
                assert_eq!(walk(&arena, &Pipe::new().unwrap()), Ok(()), "{detector}, {tracking:?}");
            }
        }
    }
}
