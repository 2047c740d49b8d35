//! Standard output that was closed before this process began (`comem run ... >&-`).
//!
//! Rust opens `/dev/null` in such a place before `main`, and takes writing to a descriptor that is not for writing for
//! success. Output would be lost without a word. So the place is filled earlier, with something that takes no output.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The loader calls this before Rust looks at the standard descriptors.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code))]
static AT_LOAD: extern "C" fn() = fill_closed_output;

/// Opens a file for reading alone as standard output where that is closed. One that nobody can write to either, where
/// a path such as `/dev/stdout` leads to it.
extern "C" fn fill_closed_output() {
    const OUTPUT: libc::c_int = libc::STDOUT_FILENO;
    // SAFETY: system calls with constants; nothing else runs yet, so that the descriptors are this function's.
    unsafe {
        if libc::fcntl(OUTPUT, libc::F_GETFD) >= 0 {
            return;
        }
        let opened = [c"/dev/full", c"/dev/null"].map(|path| path.as_ptr()).into_iter();
        let opened = opened.map(|path| libc::open(path, libc::O_RDONLY)).find(|opened| *opened >= 0);
        // The lowest free number: standard output, or standard input where that is closed too, which then reads this.
        if opened == Some(libc::STDIN_FILENO) {
            libc::dup2(libc::STDIN_FILENO, OUTPUT);
            libc::close(libc::STDIN_FILENO);
        }
    }
}

/// Whether a descriptor is open for writing at all. Rust's own outputs do not say so.
///
/// # Errors
/// What the system would say to a write.
pub fn check_writable(output: &impl AsFd) -> io::Result<()> {
    // SAFETY: reading the flags of an open descriptor touches no memory.
    let flags = check(unsafe { libc::fcntl(output.as_fd().as_raw_fd(), libc::F_GETFL) })?;
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Err(io::Error::from_raw_os_error(libc::EBADF)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_is_open_for_reading_alone_takes_no_output() {
        let reader = File::open("/dev/null").unwrap();
        assert_eq!(check_writable(&reader).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(check_writable(&File::options().write(true).open("/dev/null").unwrap()).is_ok());
        assert!(check_writable(&File::options().read(true).write(true).open("/dev/null").unwrap()).is_ok());
    }
}
