//! Anonymous memory, zero at first and paid for page by page as it is touched.

use std::io;
use std::ptr::NonNull;

/// A private anonymous mapping.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory; who may touch it when is up to its users.
unsafe impl Send for Mapping {}
// SAFETY: as above: the mapping itself has no state besides its address and size.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes (at least one page).
    ///
    /// # Errors
    /// What the system says when there is no room.
    pub fn new(bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.max(1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping touches no memory that is in use.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, bytes })
    }

    /// Where the mapping begins; page-aligned.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours since `new`, and nobody can name it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
