//! The head of a datagram to sets of nodes.
//!
//! ```text
//! 0            16      20           22          24           32          40
//! | header …   | job   | asked base | told base | asked bits | told bits | payload … | tag |
//! ```
//!
//! The first 16 bytes are the header of every datagram. Its type is [`MsgType::SETS`], its sequence number is a free
//! one of the sender's service channel, and `retransNum` says how many fragments the message has. `job` is the lower
//! half of the job's number: two jobs may meet in one group with the same program number. Bit `i` of a bitmap stands
//! for node `base + i`. The tag covers all of it, under [`crate::auth::Receiver::Sets`].
//!
//! One datagram names 64 neighbouring numbers in each set. Sets that reach further go in several datagrams
//! ([`windows`]).

use crate::coherence::node_set::NodeSet;
use crate::ids::NodeId;
use crate::wire::bytes::{Put, Reader, WireError};
use crate::wire::header::HEADER_BYTES;
use smallvec::SmallVec;

/// Bytes before the payload, the header's among them.
pub const HEAD_BYTES: usize = HEADER_BYTES + 24;
/// Where the program number stands (2 bytes).
pub const PROG_AT: usize = 0;
/// Where type and flags stand (2 bytes).
pub const TYPE_AT: usize = 2;
/// Where the job's number stands (4 bytes).
pub const JOB_AT: usize = HEADER_BYTES;
/// Where the base of those that are asked stands (2 bytes).
pub const ASKED_BASE_AT: usize = HEADER_BYTES + 4;
/// Where the base of those that are told stands (2 bytes).
pub const TOLD_BASE_AT: usize = HEADER_BYTES + 6;
/// Where the bitmap of those that are asked stands (8 bytes).
pub const ASKED_BITS_AT: usize = HEADER_BYTES + 8;
/// Where the bitmap of those that are told stands (8 bytes).
pub const TOLD_BITS_AT: usize = HEADER_BYTES + 16;

/// Nodes that one bitmap can name.
pub const WINDOW_NODES: u16 = 64;

/// Nodes within [`WINDOW_NODES`] neighbouring numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Members {
    /// The number that bit 0 stands for.
    pub base: u16,
    /// Which of the nodes from there on are members.
    pub bits: u64,
}

impl Members {
    /// Whether the node is one of them.
    pub fn contains(self, node: NodeId) -> bool {
        node.0.checked_sub(self.base).is_some_and(|at| at < WINDOW_NODES && self.bits >> at & 1 == 1)
    }

    /// The highest number among them, which may be of no node.
    pub fn last(self) -> Option<u32> {
        self.bits.checked_ilog2().map(|bit| u32::from(self.base) + bit)
    }

    /// The members in order. Numbers that no node can have are left out.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let number = move |bit: u16| self.base.checked_add(bit).map(NodeId);
        (0..WINDOW_NODES).filter(move |bit| self.bits >> bit & 1 == 1).filter_map(number)
    }
}

/// Whom one datagram is for: asked, told.
pub type Named = (Members, Members);

/// What the datagrams that reach both sets name, one after the other: as few as can be. None for two empty sets.
pub fn windows(asked: &NodeSet, told: &NodeSet) -> impl Iterator<Item = Named> + use<> {
    let (asked, told) = (windows_of(asked), windows_of(told));
    let one = |all: &SmallVec<[Members; 2]>, at: usize| all.get(at).copied().unwrap_or_default();
    (0..asked.len().max(told.len())).map(move |at| (one(&asked, at), one(&told, at)))
}

fn windows_of(set: &NodeSet) -> SmallVec<[Members; 2]> {
    let mut all: SmallVec<[Members; 2]> = SmallVec::new();
    for node in set.iter() {
        match all.last_mut().filter(|last| node.0 - last.base < WINDOW_NODES) {
            Some(last) => last.bits |= 1 << (node.0 - last.base),
            None => all.push(Members { base: node.0, bits: 1 }),
        }
    }
    all
}

/// What stands between header and payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetsRepr {
    /// The lower half of the job's number.
    pub job: u32,
    /// Whose service thread shall hear it.
    pub asked: Members,
    /// Who may find it of use later.
    pub told: Members,
}

impl SetsRepr {
    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.job);
        out.put_u16(self.asked.base);
        out.put_u16(self.told.base);
        out.put_u64(self.asked.bits);
        out.put_u64(self.told.bits);
    }

    /// Reads it from the front of what stands behind the header; what is left is the payload.
    ///
    /// # Errors
    /// There are too few bytes.
    pub fn parse(body: &[u8]) -> Result<(SetsRepr, &[u8]), WireError> {
        let mut r = Reader::new(body);
        let (job, asked, told) = (r.u32()?, r.u16()?, r.u16()?);
        let (asked, told) = (Members { base: asked, bits: r.u64()? }, Members { base: told, bits: r.u64()? });
        Ok((SetsRepr { job, asked, told }, r.rest()))
    }
}
