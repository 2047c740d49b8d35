//! Private memory for bytes on their way: nobody takes its pages away.

use crate::errno;
use std::ptr::null_mut;

/// So many bytes, straight from the kernel, because a signal handler may need them too. Only what is used costs memory.
#[derive(Debug)]
pub struct Private {
    /// Where they begin.
    pub start: *mut u8,
    bytes: usize,
}

impl Private {
    /// Takes them; `None`, with `errno` EFAULT, when there are none.
    pub fn new(bytes: usize) -> Option<Private> {
        let bytes = bytes.max(1); // the kernel maps nothing that is empty
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a fresh mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            errno::set(libc::EFAULT);
            return None;
        }
        Some(Private { start: start.cast(), bytes })
    }

    /// Gives them back, `errno` as it was. (No destructor: a thread may be cancelled in the call between, which may not
    /// meet one.)
    pub fn give_back(self) {
        // SAFETY: the mapping is this value's own and is not used afterwards.
        errno::preserved(|| unsafe { libc::munmap(self.start.cast(), self.bytes) });
    }
}
