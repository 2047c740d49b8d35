//! The C library's standard output, which is the program's.

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Lets out what the program has printed so far.
pub fn flush() {
    // SAFETY: the C library's own stream, which it opens before any of our code runs.
    unsafe { libc::fflush(stdout) };
}

/// Under a launcher the standard output is a pipe, for which C keeps what is printed until it is much: a crash would
/// lose it, and nothing would appear while the program runs. From now on it goes out line by line, as to a terminal;
/// the program may change that.
pub fn by_lines() {
    flush();
    // SAFETY: as above; the stream keeps its buffer.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0) };
}
