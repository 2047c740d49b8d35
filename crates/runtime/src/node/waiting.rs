//! What a thread waits for.

use crate::counters::{Count, Counters};
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::ids::{FlagId, LockId, NodeId, ObjectId};
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::time::Time;
use comem_protocol::wire::message::{Collective, SyncRequest};

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// A unit.
    Fetch {
        /// Of which object.
        object: ObjectId,
        /// Which one.
        unit: u32,
    },
    /// A lock.
    Lock(LockId),
    /// A flag, to reach a value.
    Flag(FlagId, u64),
    /// The answer of a semaphore, condition variable or reader-writer lock of this name.
    Answer(SyncRequest, u64),
    /// A page of the shared heap.
    Page(PageNo),
    /// A page of which it has asked a set of nodes for what they wrote, until this moment at most.
    Told(PageNo, Option<Time>),
    /// Diffs for pages whose home is here.
    Diffs,
    /// A collective call, with its number.
    Barrier(Collective, u32),
    /// Other threads of this node, to let go of their locks before this one comes to a collective call.
    Sections,
    /// The end of a collective call that another thread of this node makes.
    Opening,
    /// One-sided operations, which a node carries out for this one.
    Operations(NodeId),
    /// Items of the loop with this number, from its manager.
    Loop(u64),
    /// Room to send.
    Room,
    /// Messages from other threads.
    Messages,
}

impl Waiting {
    /// Whether the thread waits for what other threads do, and not for data.
    pub(crate) fn is_for_others(self) -> bool {
        matches!(
            self,
            Waiting::Lock(_)
                | Waiting::Flag(..)
                | Waiting::Answer(..)
                | Waiting::Barrier(..)
                | Waiting::Sections
                | Waiting::Opening
                | Waiting::Messages
        )
    }

    /// Whether the thread is between two pieces of work, or waits for one to end: that may take as long as it likes.
    pub(crate) fn is_for_work(self) -> bool {
        matches!(self, Waiting::Answer(SyncRequest::SemWait, name) if SemaphoreId(name).is_reserved())
    }

    /// The counter to which the time of such waits goes.
    pub(crate) fn time(self, counters: &Counters) -> &Count {
        match self {
            Waiting::Fetch { .. }
            | Waiting::Page(_)
            | Waiting::Told(..)
            | Waiting::Diffs
            | Waiting::Room
            | Waiting::Operations(_)
            | Waiting::Loop(_) => &counters.fetch_ns,
            Waiting::Barrier(..)
            | Waiting::Sections
            | Waiting::Opening
            | Waiting::Answer(SyncRequest::SubsetBarrier, _) => &counters.barrier_ns,
            Waiting::Lock(_) | Waiting::Flag(..) | Waiting::Answer(..) | Waiting::Messages => &counters.lock_ns,
        }
    }
}
