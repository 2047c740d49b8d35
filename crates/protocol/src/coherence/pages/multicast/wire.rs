//! The bodies of messages to sets of nodes.
//!
//! | message | body |
//! |---|---|
//! | diffs asked (free, to a set) | the asked, the told; first page; writers; own u8 (0 or 1), and diffs of the asker
//! if 1 |
//! | diffs told (free, to a set) | of each unit: first page, kind u8, and diffs or a stamp |
//!
//! - *Kinds*: 0 diffs; 1 collected, and up to which stamp; 2 freed, and 3 too long, and the last stamp of the teller,
//!   by which a late message is known.
//! - *Writers*: their number, and of each node, last stamp that the copy has, stamp that it needs.
//! - *A set*: the number of members, then each as its distance from the one before.
//! - *Diffs*: the stamp after which they are all, the stamp up to which they are; the number of runs; of each its
//!   distance from the one before, length and stamp; then the runs' bytes.
//!
//! Writers that are not among the asked have told before, or are to answer somebody else. Numbers take few bytes
//! ([`Put::put_var`]).

use super::unit::Unasked;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::kept_diffs::Stamp;
use crate::coherence::pages::kept_diffs::runs::StampRun;
use crate::coherence::pages::kept_diffs::wire::{put_runs, take_runs, take_stamp};
use crate::ids::{NODES_MAX, NodeId};
use crate::wire::bytes::{Put, Reader, WireError};

/// Most units of which one message tells.
pub const TOLD_UNITS_MAX: usize = 16;

/// What an ask says of one writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskedWriter {
    /// The writer.
    pub node: NodeId,
    /// The asker has its intervals up to this stamp.
    pub since: Stamp,
    /// It needs the interval with this one.
    pub need: Stamp,
}

/// Diffs of one writer, as they come in a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ToldDiffs<'a> {
    /// All that was written after this stamp,
    pub since: Stamp,
    /// up to this one.
    pub through: Stamp,
    /// In order; none overlap.
    pub runs: Vec<StampRun>,
    /// The bytes of all runs, one behind the other.
    pub bytes: &'a [u8],
}

impl ToldDiffs<'_> {
    /// The byte behind the last.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// The same, to be kept, of this writer.
    pub fn unasked(self, writer: NodeId) -> Unasked {
        let covers = std::iter::once((writer, self.through)).collect();
        Unasked { since: self.since, covers, runs: self.runs, bytes: self.bytes.to_vec(), is_carried: false }
    }
}

/// An ask for diffs of one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAsk<'a> {
    /// The writers that are to answer.
    pub asked: NodeSet,
    /// Who else is to hear the answers.
    pub told: NodeSet,
    /// The unit's first page.
    pub page: PageNo,
    /// The writers, those that are asked and others of which the asker knows that their diffs were told, or will be.
    pub writers: Vec<AskedWriter>,
    /// What the asker wrote.
    pub own: Option<ToldDiffs<'a>>,
}

fn put_set(out: &mut Vec<u8>, set: &NodeSet) {
    out.put_var(set.len() as u64);
    let mut next = 0;
    for node in set.iter() {
        out.put_var((node.0 - next).into());
        next = node.0 + 1;
    }
}

fn take_set(r: &mut Reader<'_>) -> Result<NodeSet, WireError> {
    const WRONG: WireError = WireError::BadValue("set of nodes");
    let (count, mut next, mut set) = (r.var()?, 0_u64, NodeSet::new());
    if count > NODES_MAX as u64 {
        return Err(WRONG);
    }
    for _ in 0..count {
        let node = next.checked_add(r.var()?).filter(|node| *node < NODES_MAX as u64).ok_or(WRONG)?;
        set.insert(NodeId(node as u16));
        next = node + 1;
    }
    Ok(set)
}

/// Appends diffs of one writer.
pub fn put_told_diffs<'a>(
    out: &mut Vec<u8>,
    (since, through): (Stamp, Stamp),
    runs: impl Iterator<Item = (StampRun, &'a [u8])> + Clone,
) {
    out.put_var(since);
    out.put_var(through);
    put_runs(out, runs.clone().map(|(run, _)| run));
    runs.for_each(|(_, bytes)| out.put_bytes(bytes));
}

fn take_told_diffs<'a>(r: &mut Reader<'a>) -> Result<ToldDiffs<'a>, WireError> {
    let (since, through) = (take_stamp(r)?, take_stamp(r)?);
    if through <= since {
        return Err(WireError::BadValue("intervals of diffs"));
    }
    let runs = take_runs(r)?;
    let bytes = r.take(runs.iter().map(|run| (run.end - run.start) as usize).sum())?;
    Ok(ToldDiffs { since, through, runs, bytes })
}

/// Appends an ask up to where the asker's own diffs stand, if it says that there are some ([`put_told_diffs`]).
pub fn put_set_ask(
    out: &mut Vec<u8>,
    (asked, told): (&NodeSet, &NodeSet),
    page: PageNo,
    writers: &[AskedWriter],
    has_own: bool,
) {
    put_set(out, asked);
    put_set(out, told);
    out.put_var(page.into());
    out.put_var(writers.len() as u64);
    for writer in writers {
        out.put_var(writer.node.0.into());
        out.put_var(writer.since);
        out.put_var(writer.need);
    }
    out.put_u8(u8::from(has_own));
}

impl<'a> SetAsk<'a> {
    /// Reads what [`put_set_ask`] and [`put_told_diffs`] wrote.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &'a [u8]) -> Result<SetAsk<'a>, WireError> {
        const WRONG: WireError = WireError::BadValue("ask for diffs");
        let mut r = Reader::new(body);
        let (asked, told, page, count) = (take_set(&mut r)?, take_set(&mut r)?, r.var32()?, r.var()?);
        if count > NODES_MAX as u64 {
            return Err(WRONG);
        }
        let (mut writers, mut seen) = (Vec::new(), NodeSet::new());
        for _ in 0..count {
            let (node, since, need) = (r.var()?, take_stamp(&mut r)?, take_stamp(&mut r)?);
            if node >= NODES_MAX as u64 || need <= since || !seen.insert(NodeId(node as u16)) {
                return Err(WRONG);
            }
            writers.push(AskedWriter { node: NodeId(node as u16), since, need });
        }
        let own = match r.u8()? {
            0 => None,
            1 => Some(take_told_diffs(&mut r)?),
            _ => return Err(WRONG),
        };
        r.finish()?;
        if asked.is_empty() || asked.iter().any(|node| told.contains(node) || !seen.contains(node)) {
            return Err(WRONG);
        }
        Ok(SetAsk { asked, told, page, writers, own })
    }
}

const DIFFS: u8 = 0;
const COLLECTED: u8 = 1;
const FREED: u8 = 2;
const TOO_LONG: u8 = 3;

/// What a writer tells of one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToldUnit<'a> {
    /// What it wrote.
    Diffs(ToldDiffs<'a>),
    /// It does not keep any more what it wrote up to this stamp.
    Collected(Stamp),
    /// The region was freed, said the teller behind its interval with this stamp.
    Freed(Stamp),
    /// It is too long for a datagram, behind the interval with this stamp: whoever needs it asks point to point.
    TooLong(Stamp),
}

/// Appends what a writer wrote to a unit.
pub fn put_told<'a>(
    out: &mut Vec<u8>,
    page: PageNo,
    stamps: (Stamp, Stamp),
    runs: impl Iterator<Item = (StampRun, &'a [u8])> + Clone,
) {
    out.put_var(page.into());
    out.put_u8(DIFFS);
    put_told_diffs(out, stamps, runs);
}

fn put_bare(out: &mut Vec<u8>, page: PageNo, kind: u8, stamp: Stamp) {
    out.put_var(page.into());
    out.put_u8(kind);
    out.put_var(stamp);
}

/// Appends that not all that a node asked for is kept any more, and up to which stamp nothing is.
pub fn put_told_collected(out: &mut Vec<u8>, page: PageNo, dropped: Stamp) {
    put_bare(out, page, COLLECTED, dropped);
}

/// Appends that a unit was freed, behind this node's interval with a stamp.
pub fn put_told_freed(out: &mut Vec<u8>, page: PageNo, closed: Stamp) {
    put_bare(out, page, FREED, closed);
}

/// Appends that what a writer wrote to a unit, up to its interval with a stamp, is too long for a datagram.
pub fn put_too_long(out: &mut Vec<u8>, page: PageNo, closed: Stamp) {
    put_bare(out, page, TOO_LONG, closed);
}

/// Reads what a writer tells.
///
/// # Errors
/// When no node would have sent it.
pub fn take_told(body: &[u8]) -> Result<Vec<(PageNo, ToldUnit<'_>)>, WireError> {
    let (mut r, mut told) = (Reader::new(body), Vec::new());
    while r.finish().is_err() {
        if told.len() == TOLD_UNITS_MAX {
            return Err(WireError::BadValue("number of units"));
        }
        let page = r.var32()?;
        let of_unit = match r.u8()? {
            DIFFS => ToldUnit::Diffs(take_told_diffs(&mut r)?),
            COLLECTED => ToldUnit::Collected(take_stamp(&mut r)?),
            FREED => ToldUnit::Freed(take_stamp(&mut r)?),
            TOO_LONG => ToldUnit::TooLong(take_stamp(&mut r)?),
            _ => return Err(WireError::BadValue("what a writer tells")),
        };
        told.push((page, of_unit));
    }
    Ok(told)
}

/// Who is asked by a message: what decides whether it interrupts its receiver, where no head of the datagram does.
///
/// # Errors
/// When no node would have sent it.
pub fn asked_of(body: &[u8]) -> Result<NodeSet, WireError> {
    take_set(&mut Reader::new(body))
}
