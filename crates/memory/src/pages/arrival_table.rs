//! The words of a job's arrivals at barriers: a memory file that the host's other nodes map.
//!
//! Each node stores its own word, and reads those of all others ([`comem_protocol::sync::arrival`]). Threads of every
//! process sleep on the eventcount beside them.

use super::PAGE_BYTES;
use super::futex;
use super::peer::memory_file_of;
use super::sys::{self, View};
use comem_protocol::ids::NodeId;
use comem_protocol::sync::arrival::{ArrivalWord, NODES_MAX};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// What has a cache line for itself.
#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Words {
    words: [Line<AtomicU64>; NODES_MAX],
    events: Line<AtomicU32>,
    sleepers: Line<AtomicU32>,
}

const BYTES: usize = size_of::<Words>().next_multiple_of(PAGE_BYTES);

/// In the name of the memory file, which tells it from those of earlier jobs of the same process.
fn kind(job: u64) -> String {
    format!("arrivals-{job:x}")
}

/// The words of all nodes' arrivals: this process's own memory, or a view of another's.
#[derive(Debug)]
pub struct ArrivalTable {
    view: View,
    /// Keeps the file's name where others look for it; `None` in a view of another process's table.
    _file: Option<OwnedFd>,
}

impl ArrivalTable {
    /// A table for this job in which no node has arrived.
    ///
    /// # Errors
    /// What the system refused.
    pub fn new(job: u64) -> io::Result<ArrivalTable> {
        let file = sys::memory_file(&kind(job), BYTES)?;
        let view = View::new(None, BYTES, sys::BOTH, Some(file.as_fd()))?;
        Ok(ArrivalTable { view, _file: Some(file) })
    }

    /// The table that process `pid` has made for this job.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process write to it (another user, another container).
    pub fn of(pid: u32, job: u64) -> io::Result<ArrivalTable> {
        let file = memory_file_of(pid, &kind(job), BYTES, true)?;
        let view = View::new(None, BYTES, sys::BOTH, Some(file.as_fd()))?;
        Ok(ArrivalTable { view, _file: None })
    }

    fn words(&self) -> &Words {
        // SAFETY: the view has so many bytes, lives as long as this table, and begins with a page, so it is aligned;
        // any bytes will do, and all who share them use atomic instructions.
        unsafe { &*std::ptr::with_exposed_provenance::<Words>(self.view.start()) }
    }

    /// Stores a node's word; only that node does so. Others see it at [`ArrivalTable::fence`] at the latest.
    pub fn store(&self, node: NodeId, word: ArrivalWord) {
        self.words().words[node.index()].0.store(word.0, Ordering::Release);
    }

    /// Returns when all others can see what this thread has stored. Fences have one order for all.
    pub fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    /// A node's word.
    pub fn word(&self, node: NodeId) -> ArrivalWord {
        ArrivalWord(self.words().words[node.index()].0.load(Ordering::Acquire))
    }

    /// The eventcount.
    pub fn events(&self) -> u32 {
        self.words().events.0.load(Ordering::Acquire)
    }

    /// Adds one to the eventcount.
    pub fn advance(&self) {
        self.words().events.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How many threads sleep, or are about to.
    pub fn sleepers(&self) -> u32 {
        self.words().sleepers.0.load(Ordering::SeqCst)
    }

    /// This thread is about to sleep.
    pub fn add_sleeper(&self) {
        self.words().sleepers.0.fetch_add(1, Ordering::SeqCst);
    }

    /// This thread has slept.
    pub fn remove_sleeper(&self) {
        self.words().sleepers.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps while the eventcount is `events`, until somebody wakes all sleepers, for `most` at most, or for no
    /// reason.
    pub fn sleep(&self, events: u32, most: Duration) {
        futex::sleep(&raw const self.words().events.0, events, futex::ANY, most);
    }

    /// Wakes all who sleep.
    pub fn wake(&self) {
        futex::wake(&raw const self.words().events.0, futex::ANY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_views_are_one_table_and_a_sleeper_in_one_is_woken_through_the_other() {
        let own = ArrivalTable::new(7).unwrap();
        assert!(ArrivalTable::of(std::process::id(), 8).is_err(), "another job's table");
        let other = ArrivalTable::of(std::process::id(), 7).unwrap();
        let (last, word) = (NodeId(NODES_MAX as u16 - 1), ArrivalWord(9 << 32));
        own.store(last, word);
        own.fence();
        assert_eq!((other.word(last), other.word(NodeId(0))), (word, ArrivalWord::default()));
        // The eventcount is another already.
        own.sleep(1, Duration::from_secs(600));
        own.sleep(0, Duration::from_millis(1));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                own.add_sleeper();
                own.sleep(0, Duration::from_secs(600));
                own.remove_sleeper();
            });
            while other.sleepers() == 0 {
                std::thread::yield_now();
            }
            other.advance();
            // It reads the eventcount after it has counted itself, or sleeps by now.
            other.wake();
            sleeper.join().unwrap();
        });
        assert_eq!((own.events(), own.sleepers()), (1, 0));
    }
}
