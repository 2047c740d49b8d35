//! One-sided locks whose words are reached by UCX.
//!
//! The operations on a word go through the library, also on this node's own ([`crate::direct::ucx`] says why). A
//! thread that waits cannot sleep on a word of another host, and nobody wakes it: it rests, and looks at the word ever
//! more seldom. To the state machine that is a thread which sleeps and wakes for no reason.

use crate::biased_mutex::BiasedMutex;
use crate::error::Error;
use crate::node::Node;
use comem_memory::pages::LockTable;
use comem_net::ucx::{Peer, Worker};
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::sync::one_sided::LockWord;
use comem_protocol::tuning::WaitTuning;
use std::io;
use std::time::Duration;

/// Places that a thread remembers.
const PLACES_KNOWN: usize = 1 << 12;

/// Another node's table of locks, or this node's own as its adapter sees it.
pub(super) struct FarTable<'a> {
    node: &'a Node,
    worker: &'a Worker,
    peer: &'a Peer,
}

impl<'a> FarTable<'a> {
    /// The table at a home, where operations go by UCX.
    #[inline]
    pub(super) fn of(node: &'a Node, home: NodeId) -> Option<FarTable<'a>> {
        let (worker, peer) = node.reach.ucx()?.locks_of(home)?;
        Some(FarTable { node, worker, peer })
    }

    /// Adapters promise for atomic operations alone that they see what such operations have stored: this one adds
    /// nothing.
    fn read(&self, offset: u64) -> io::Result<u64> {
        self.worker.fetch_add(self.peer, offset, 0, &|| self.node.life.goes_on().is_err())
    }

    fn replace(&self, offset: u64, expected: u64, new: u64) -> io::Result<u64> {
        self.worker.compare_and_swap(self.peer, offset, (expected, new), &|| self.node.life.goes_on().is_err())
    }

    pub(super) fn name(&self, at: usize) -> io::Result<u64> {
        self.read(LockTable::name_offset(at))
    }

    pub(super) fn claim(&self, at: usize, name: u64) -> io::Result<u64> {
        self.replace(LockTable::name_offset(at), 0, name)
    }

    pub(super) fn word(&self, at: usize) -> io::Result<LockWord> {
        self.read(LockTable::word_offset(at)).map(LockWord)
    }

    pub(super) fn swap(&self, at: usize, expected: LockWord, new: LockWord) -> io::Result<LockWord> {
        self.replace(LockTable::word_offset(at), expected.0, new.0).map(LockWord)
    }
}

/// How long a thread sleeps until it looks again.
#[derive(Debug)]
pub(super) struct Rest {
    first: Duration,
    most: Duration,
    next: Duration,
    /// Whether the thread was the next to have the lock when it last slept.
    was_next: bool,
}

impl Rest {
    pub(super) fn new(tuning: &WaitTuning) -> Rest {
        let first = Duration::from_micros(tuning.far_sleep_us);
        Rest { first, most: Duration::from_micros(tuning.far_sleep_max_us), next: first, was_next: false }
    }

    /// Sleeps, each time for longer. The lock may wait for whoever is next: that thread begins anew.
    pub(super) fn sleep(&mut self, seen: u32, ticket: u16) {
        let is_next = LockWord(u64::from(seen)).serving() == ticket;
        if is_next && !self.was_next {
            self.next = self.first;
        }
        self.was_next = is_next;
        std::thread::sleep(self.next);
        self.next = (2 * self.next).min(self.most);
    }
}

/// Where a lock's place is remembered.
fn index_of(lock: LockId) -> usize {
    (lock.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES_KNOWN
}

/// Where a thread has found the words of locks: names stay where they are.
///
/// The thread alone takes the mutex, for one look or one note.
#[derive(Debug, Default)]
pub(crate) struct LockPlaces(BiasedMutex<Vec<Option<(LockId, u32)>>>);

impl LockPlaces {
    pub(super) fn found(&self, lock: LockId) -> Option<usize> {
        let places = self.0.lock();
        let (_, at) = (*places.get(index_of(lock))?).filter(|(found, _)| *found == lock)?;
        Some(at as usize)
    }

    pub(super) fn note(&self, lock: LockId, at: usize) {
        let mut places = self.0.lock();
        if places.is_empty() {
            places.resize(PLACES_KNOWN, None);
        }
        places[index_of(lock)] = Some((lock, at as u32));
    }
}

/// What to say when the words of a home's locks cannot be reached any more.
#[cold]
pub(super) fn lost_locks_of(node: &Node, home: NodeId, error: io::Error) -> Error {
    let what = format!("cannot reach the locks of {} (start the job with --locks tokens)", node.name_of(home));
    // Where that node has ended, this will be told soon, and says more.
    node.life.loss_or(Error::system(what)(error))
}
