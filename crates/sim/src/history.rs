//! What happened, as the threads saw it: the checkers' only witness.

use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;

/// A moment in the order of all steps of a run; no two steps share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stamp(pub u64);

/// A thread of the whole job: node and thread within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub NodeId, pub u16);

impl std::fmt::Display for ThreadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0.0, self.1)
    }
}

/// What a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the fields carry the names of what they are
pub enum Deed {
    Read {
        element: usize,
        value: u64,
    },
    Write {
        element: usize,
        value: u64,
    },
    /// A wide element whose words came from different stores.
    Torn {
        element: usize,
    },
    /// Held a lock; the record lasts from the acquire's end to the release's beginning.
    Held {
        lock: LockId,
    },
    /// Held a reader-writer lock; lasts like `Held`.
    Shared {
        lock: RwLockId,
        writes: bool,
    },
    Posted {
        semaphore: SemaphoreId,
    },
    Took {
        semaphore: SemaphoreId,
    },
    Barrier {
        brought: i64,
        result: i64,
    },
    Set {
        flag: FlagId,
        value: u64,
    },
    Awaited {
        flag: FlagId,
        value: u64,
        got: u64,
    },
    Sent {
        to: ThreadId,
        value: u64,
    },
    Received {
        from: NodeId,
        value: u64,
    },
}

/// A deed with its beginning and end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Who did it.
    pub thread: ThreadId,
    /// When it began.
    pub begun: Stamp,
    /// When it had ended.
    pub ended: Stamp,
    /// What it was.
    pub deed: Deed,
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>8}-{:<8} thread {}: {:?}", self.begun.0, self.ended.0, self.thread, self.deed)
    }
}
