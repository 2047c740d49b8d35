//! Threads of Comem's own, beside the program's.
//!
//! The kernel gives a process's signal to any thread that does not block it. A program that blocks one in its threads,
//! to take it by `sigwait` or to keep its handler out for a while, knows nothing of Comem's: so these block all signals
//! but those that tell of a thread's own faults.

use crate::sys;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

/// How many threads there are that [`start`] has started, in the low half; none is counted before it runs or after it
/// has ended. Above it, how often that has changed.
static OURS: AtomicU64 = AtomicU64::new(0);

const CHANGE: u64 = 1 << 32;

/// Starts a thread that runs nothing of the program's and takes none of its signals. Threads that run the program's
/// code are made like any others: they have the mask of the thread that makes them.
///
/// # Errors
/// The system refuses a thread.
pub fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            OURS.fetch_add(CHANGE - 1, Ordering::AcqRel);
        }
    }
    let counted = move || {
        OURS.fetch_add(CHANGE + 1, Ordering::AcqRel);
        let _until_it_ends = Counted;
        work()
    };
    // The thread has the mask from its first instruction on: it inherits it.
    let started = sys::with_signals_blocked(|| Builder::new().name(name.to_string()).spawn(counted));
    started.map_err(explained)
}

/// Says what keeps the system from giving a thread.
fn explained(why: io::Error) -> io::Error {
    match why.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            why.kind(),
            format!(
                "no thread can be had: {why}; end other processes of this user, or raise their limit (ulimit -u, or \
                 the control group's pids.max)"
            ),
        ),
        _ => why,
    }
}

/// Whether this process has one thread beside those that [`start`] has started. Then that is the calling one, if none
/// of those calls, and there is no other before it makes one. `false` also where the system does not tell. One system
/// call, no allocation.
pub fn is_one_beside_ours() -> bool {
    let ours = OURS.load(Ordering::Acquire);
    // What the system counts are at least ours, if none of those has begun or ended meanwhile.
    count() == Some(ours % CHANGE + 1) && OURS.load(Ordering::Acquire) == ours
}

/// The directory of this process's threads, and which one it is: a program that closes files which are not its own may
/// have another in its place.
static TASKS: OnceLock<Option<(File, (u64, u64))>> = OnceLock::new();

/// How many threads this process has, from the links that the directory of them has; `None` where that does not hold.
fn count() -> Option<u64> {
    const LINKS_OF_ITS_OWN: u64 = 2;
    let (tasks, which) = TASKS.get_or_init(find).as_ref()?;
    let now = tasks.metadata().ok().filter(|now| (now.dev(), now.ino()) == *which)?;
    now.nlink().checked_sub(LINKS_OF_ITS_OWN)
}

/// Opens the directory, if its links and its entries agree.
fn find() -> Option<(File, (u64, u64))> {
    const PATH: &str = "/proc/self/task";
    let tasks = File::open(PATH).ok()?;
    let links = || tasks.metadata().ok().map(|tasks| tasks.nlink());
    // Threads may come and go meanwhile.
    let agrees = |_: &u32| {
        let entries = fs::read_dir(PATH).map(|entries| entries.count() as u64);
        entries.is_ok_and(|entries| links() == Some(entries + 2))
    };
    (0..8).find(agrees)?;
    let which = tasks.metadata().ok().map(|tasks| (tasks.dev(), tasks.ino()))?;
    Some((tasks, which))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A process of its own, in which no other test makes threads.
    #[test]
    fn threads_of_our_own_are_told_from_others() {
        const ALONE: &str = "COMEM_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let me = std::env::current_exe().unwrap();
            let name = "threads::tests::threads_of_our_own_are_told_from_others";
            let run =
                std::process::Command::new(me).args([name, "--exact", "--test-threads=1"]).env(ALONE, "1").status();
            assert!(run.unwrap().success());
            return;
        }
        let (there, ours) = (count().unwrap(), || OURS.load(Ordering::Acquire) % CHANGE);
        assert!(there > 1 && !is_one_beside_ours(), "the test's thread, and the one that waits for it");
        let (end, ends) = mpsc::channel::<()>();
        let other = start("comem-test", move || ends.recv()).unwrap();
        while ours() == 0 {
            std::thread::yield_now();
        }
        assert_eq!((count(), ours()), (Some(there + 1), 1));
        drop(end);
        let _ = other.join().unwrap();
        assert_eq!(ours(), 0);
        let (end, ends) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || ends.recv());
        assert_eq!(ours(), 0);
        drop(end);
        let _ = other.join().unwrap();
    }

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
