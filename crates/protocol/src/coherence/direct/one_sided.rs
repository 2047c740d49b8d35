//! Operations on another node's memory in which no thread of that node takes part.
//!
//! [`OneSided`] is what a backbone offers; [`Op`] is what the protocol asks for. A backbone that has no such operations
//! may have them done by the target's service thread, and then they are *emulated*.
//!
//! # Order
//!
//! Operations of one thread on one node take effect in the order in which they were begun (the paper, section 2.2).
//! Between two nodes there is no order: [`OneSided::flush`] waits until all earlier puts of the thread have taken
//! effect.
//! A put or a get of more than 8 bytes is not atomic; each aligned word of 8 bytes is.

use super::entry::Entry;
use crate::coherence::node_set::NodeSet;
use crate::ids::NodeId;
use smallvec::SmallVec;

/// What part of a node's memory an operation is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Segment {
    /// The bytes of the heap.
    Data,
    /// An [`Entry`] of 2 bytes for each line of the heap.
    Entries,
    /// What the node's threads are about to store to.
    Hazards,
    /// The wide words of the directory.
    Wide,
    /// Who has claimed which untouched memory.
    Claims,
    /// The table of locks.
    Locks,
}

/// A place in a node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Whose memory.
    pub node: NodeId,
    /// Which part of it.
    pub segment: Segment,
    /// Bytes from the segment's begin.
    pub offset: u64,
}

/// One-sided operations of one thread. Every operation is checked against what is allocated at the target; one outside
/// has no effect and is an error.
pub trait OneSided {
    /// The target is gone, or refuses.
    type Error;
    /// Copies bytes from there.
    fn get(&mut self, from: Place, into: &mut [u8]) -> Result<(), Self::Error>;
    /// Stores bytes there, some time before the next [`OneSided::flush`] ends.
    fn put(&mut self, to: Place, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Locks the entry at an even offset of [`Segment::Entries`] for `holder` unless it is locked: returns what it was
    /// and leaves [`Entry::after_fetch_and_set`].
    fn fetch_and_set(&mut self, at: Place, holder: NodeId) -> Result<Entry, Self::Error>;
    /// Adds to the aligned word of 8 bytes, modulo 2^64, and returns what it was.
    fn fetch_add(&mut self, at: Place, summand: u64) -> Result<u64, Self::Error>;
    /// Stores `new` in the aligned word of 8 bytes if it is `expected`; returns what it was.
    fn compare_and_swap(&mut self, at: Place, expected: u64, new: u64) -> Result<u64, Self::Error>;
    /// Waits until all earlier puts have taken effect.
    fn flush(&mut self) -> Result<(), Self::Error>;
    /// Waits until no thread of `node` is between the check and the store of a store to these bytes of
    /// [`Segment::Data`]; all such stores are in memory then. Stores whose check comes later find the entry as it is
    /// now.
    fn quiesce(&mut self, node: NodeId, offset: u64, bytes: u64) -> Result<(), Self::Error>;
    /// The same for several places: node, offset and bytes of each. One barrier may serve them all.
    fn quiesce_all(&mut self, places: &[(NodeId, u64, u64)]) -> Result<(), Self::Error> {
        places.iter().try_for_each(|&(node, offset, bytes)| self.quiesce(node, offset, bytes))
    }
}

/// One step of a miss. `at`, `from` and `to` may be the node of the thread itself; the step is an ordinary access then.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Lock the unit's entry: [`OneSided::fetch_and_set`].
    FetchAndSet {
        /// Whose entry.
        at: NodeId,
    },
    /// Look at the unit's wide words.
    GetWide {
        /// Whose: the unit's home.
        at: NodeId,
    },
    /// Copy the unit's bytes into this node's memory.
    GetData {
        /// Who holds the unit.
        from: NodeId,
    },
    /// Fill the unit with [`super::MAGIC`].
    PutMagic {
        /// In whose memory.
        to: NodeId,
    },
    /// Replace the entries of the unit's lines but the first, which many units do not have.
    PutMirrors {
        /// In whose memory.
        to: NodeId,
        /// What they become.
        entry: Entry,
    },
    /// Replace the entries of all lines of the unit, the first one last. This unlocks the unit's entry.
    PutEntry {
        /// In whose memory.
        to: NodeId,
        /// What they become.
        entry: Entry,
    },
    /// Replace the unit's wide words.
    PutWide {
        /// Whose: the unit's home.
        to: NodeId,
        /// Who holds the unit.
        holders: NodeSet,
    },
    /// Wait until all puts of this thread have taken effect.
    Flush,
    /// Wait until no thread of that node is between check and store of a store to the unit.
    Quiesce {
        /// Whose threads.
        at: NodeId,
    },
    /// Load the value again for which the thread has missed, and see whether it is MAGIC.
    Peek,
    /// Make the access for which the thread has missed, on this node's memory.
    Access,
    /// Wait until a plain load finds the unit's entry unlocked, or for a while that grows each time in a row. The
    /// reply is
    /// [`Reply::Lost`] if the job is lost.
    Pause {
        /// Whose entry.
        at: NodeId,
    },
}

impl Op {
    /// The other node that the operation needs; `None` where this thread is enough, as for what is done to the memory
    /// of its own node `me`.
    pub fn target(&self, me: NodeId) -> Option<NodeId> {
        let node = match *self {
            Op::FetchAndSet { at } | Op::GetWide { at } | Op::Quiesce { at } | Op::Pause { at } => at,
            Op::GetData { from } => from,
            Op::PutMagic { to } | Op::PutMirrors { to, .. } | Op::PutEntry { to, .. } | Op::PutWide { to, .. } => to,
            Op::Flush | Op::Peek | Op::Access => return None,
        };
        (node != me).then_some(node)
    }
}

/// Operations to be done one after the other. Nothing is decided between them, so a backbone may send them together.
pub type Batch = SmallVec<[Op; 8]>;

/// What the last operation of a batch brought.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// The entry, before a fetch-and-set.
    Entry(Entry),
    /// The wide words.
    Wide(NodeSet),
    /// Whether the value is still MAGIC. If not, the load is made.
    Peeked {
        /// Whether it is.
        is_magic: bool,
    },
    /// The job is lost: nothing more can be done.
    Lost,
}
