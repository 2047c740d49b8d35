//! One-sided operations over a network that has none: the target's service thread does them (*emulated*).
//!
//! A miss asks for batches of operations ([`Op`](super::Op)). [`split`] sorts a batch by target: operations on one node
//! go there in one message, in their order, and what comes between them stays a step of the thread itself. The target
//! runs a message's operations one after the other ([`Server`]) on its memory ([`RemoteMemory`]) and replies with what
//! they brought. The reply is the flush: it leaves when the last operation is done.
//!
//! | message | body |
//! |---|---|
//! | [`Request`] | serial u16, first line (a *variable number*), the unit's lines u8 as a power of two, then commands |
//! | [`Answer`] | serial u16, state u8, then what each command brought |
//!
//! [`put_var`](crate::wire::bytes::Put::put_var) writes variable numbers.
//!
//! | command | bytes behind its number | brings |
//! |---|---|---|
//! | fetch and set | | the entry, u16 |
//! | get the data | | the unit's bytes |
//! | put MAGIC | | |
//! | put mirrors, put the entry | the entry, u16 | |
//! | get wide words | | their number u8, then u64 each |
//! | put wide words | their number u8, then u64 each | |
//! | quiesce | | |
//! | pause | at most so many microseconds, u16 | |
//!
//! # What the target checks
//!
//! A request is read whole and its unit looked up before its first operation. So a request that no node sends has no
//! effect: it names an unknown command, puts an entry that locks, or a unit that no region has. Its sender has violated
//! the protocol.
//!
//! # What the target waits for
//!
//! [`Command::Quiesce`] ends when no hazard in the unit is up, [`Command::Pause`] when the unit's entry is unlocked, or
//! after its time. The service thread waits for neither: it puts the request aside and looks again ([`Server::look`]).
//! The link knows the request as pending meanwhile, so a repetition of it is not carried out a second time.

mod message;
mod serve;
mod split;

#[cfg(test)]
mod tests;

pub use message::{Answer, Brought, COMMANDS_MAX, Command, Request};
pub use serve::{LOOK_EVERY, Server};
pub use split::{Step, split};

use super::entry::Entry;
use super::{LINE_BYTES, UNIT_BYTES};
use crate::coherence::node_set::NodeSet;
use crate::ids::NodeId;
use crate::wire::bytes::WireError;
use std::ops::Range;

/// Where a unit is: its lines, counted from the beginning of lines memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitAt {
    first: u64,
    lines: u16,
}

impl UnitAt {
    /// The unit of `lines` lines that begins with line `first`; `None` where no unit does.
    pub fn new(first: u64, lines: u16) -> Option<UnitAt> {
        let bytes = usize::from(lines) * LINE_BYTES;
        let fits = UNIT_BYTES.contains(&bytes) && first.is_multiple_of(lines.into());
        let has_bytes = first.checked_add(lines.into())?.checked_mul(LINE_BYTES as u64).is_some();
        (fits && has_bytes).then_some(UnitAt { first, lines })
    }

    /// The number of its first line.
    pub fn first(self) -> u64 {
        self.first
    }

    /// All its lines.
    pub fn range(self) -> Range<u64> {
        self.first..self.first + u64::from(self.lines)
    }

    /// How many lines it has: a power of two.
    pub fn lines(self) -> u16 {
        self.lines
    }

    /// Whether it lies within these lines.
    pub fn lies_in(self, lines: &Range<u64>) -> bool {
        lines.start <= self.first && self.range().end <= lines.end
    }

    /// Bytes from the beginning of lines memory to its first.
    pub fn offset(self) -> u64 {
        self.first * LINE_BYTES as u64
    }

    /// How many bytes it has.
    pub fn bytes(self) -> usize {
        usize::from(self.lines) * LINE_BYTES
    }
}

/// What is where a unit should be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Found {
    /// A unit of this size of an allocated region.
    Unit,
    /// It was one, and the region was freed.
    Freed,
    /// No region has such a unit.
    Nothing,
}

/// A node's memory of lines, as operations of other nodes act on it. [`Server`] calls all but [`RemoteMemory::find`]
/// with units that were found alone.
pub trait RemoteMemory {
    /// What is at this place.
    fn find(&self, unit: UnitAt) -> Found;
    /// How many nodes the job has.
    fn nodes(&self) -> usize;
    /// Locks the unit's first entry for `holder` unless it is locked, in one step for all threads of the node; gives
    /// what it was ([`Entry::after_fetch_and_set`]).
    fn fetch_and_set(&self, unit: UnitAt, holder: NodeId) -> Entry;
    /// The unit's first entry, by a plain load.
    fn entry(&self, unit: UnitAt) -> Entry;
    /// Replaces the entries of some lines of a unit, the first one last.
    fn put_entries(&self, lines: Range<u64>, entry: Entry);
    /// Appends the unit's bytes; each aligned word of 8 is read in one step.
    fn copy_data(&self, unit: UnitAt, out: &mut Vec<u8>);
    /// Fills the unit with [`MAGIC`](super::MAGIC); each aligned word of 8 bytes is written in one step.
    fn put_magic(&self, unit: UnitAt);
    /// The unit's wide words.
    fn wide(&self, unit: UnitAt) -> NodeSet;
    /// Replaces the unit's wide words.
    fn put_wide(&self, unit: UnitAt, holders: &NodeSet);
    /// Makes every store in memory that a thread of this node has made before, and every later load of such a thread
    /// find what is in memory now: an asymmetric barrier for the node's own threads.
    fn barrier(&self);
    /// Whether a thread of this node has raised a hazard in the unit.
    fn has_hazard(&self, unit: UnitAt) -> bool;
}

/// Why a message cannot be read.
fn bad(what: &'static str) -> WireError {
    WireError::BadValue(what)
}
