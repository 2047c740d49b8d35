//! Threads of Comem's own, beside the program's.
//!
//! The kernel gives a process's signal to any thread that does not block it. A program that blocks one in its threads, to take it by `sigwait` or to
//! keep its handler out for a while, knows nothing of Comem's: so these block all signals but those that tell of a thread's own faults.

use crate::sys;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that runs nothing of the program's and takes none of its signals. Threads that run the program's code are made
/// like any others: they have the mask of the thread that makes them.
///
/// # Errors
/// The system refuses a thread.
pub fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    // The thread has the mask from its first instruction on: it inherits it.
    sys::with_signals_blocked(|| Builder::new().name(name.to_string()).spawn(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_our_own_takes_faults_alone_and_its_maker_keeps_its_mask() {
        let before = sys::blocked_signals();
        let theirs = start("comem-test", sys::blocked_signals).unwrap().join().unwrap();
        assert_eq!(sys::blocked_signals(), before);
        let open: Vec<i32> = (1..32).filter(|signal| !theirs.contains(signal)).collect();
        let mut faults = sys::FAULTS.to_vec();
        faults.extend([libc::SIGKILL, libc::SIGSTOP]);
        faults.sort_unstable();
        assert_eq!(open, faults);
    }
}
