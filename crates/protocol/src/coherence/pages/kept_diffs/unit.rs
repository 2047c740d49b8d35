//! What a node knows of one unit whose diffs stay with their writers. Memory is not touched here.

use super::Stamp;
use super::runs::{DiffStore, StampMap};
use super::wire::DiffAsk;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::multicast::unit::SetUnit;
use crate::ids::NodeId;
use smallvec::SmallVec;
use std::ops::Range;

/// Of some writers the stamp of an interval.
pub type Versions = SmallVec<[(NodeId, Stamp); 2]>;

/// The stamp of `writer` among these.
pub fn version_of(versions: &Versions, writer: NodeId) -> Stamp {
    versions.iter().find(|(node, _)| *node == writer).map_or(0, |(_, stamp)| *stamp)
}

/// Raises the stamp of `writer`.
pub fn raise_version(versions: &mut Versions, writer: NodeId, stamp: Stamp) {
    match versions.iter_mut().find(|(node, _)| *node == writer) {
        Some((_, known)) => *known = (*known).max(stamp),
        None => versions.push((writer, stamp)),
    }
}

/// One unit.
#[derive(Clone, Default, Debug)]
pub struct KeptUnit {
    /// What this node wrote.
    pub own: DiffStore,
    /// The last stamp of what this node wrote and does not keep any more.
    pub dropped: Stamp,
    /// Whether memory has a copy, valid or not.
    pub has_copy: bool,
    /// When the bytes of the copy were written.
    pub stamps: StampMap,
    /// Up to which of its intervals the writes of each writer are in the copy.
    pub had: Versions,
    /// The last interval of each writer of which a notice was taken in.
    pub needed: Versions,
    /// What had been told of when the collection under way began.
    pub due: Versions,
    /// Writers have dropped what was written here: only the manager, or who has a copy, has it.
    pub collected: bool,
    /// Who was asked, up to which of its intervals, and has not answered. Where a base is awaited: its manager, and the
    /// last stamp.
    pub awaited: Versions,
    /// It was asked for to be complete, and for no access.
    pub quiet: bool,
    /// Bytes of memory that was given out again: they count as written when the next diff is made.
    pub reused: Vec<Range<u32>>,
    /// Under `multicast`: who is told of it, and what came unasked.
    pub sets: SetUnit,
}

impl KeptUnit {
    /// What the copy, which has all that was written up to `floor`, lacks: of each writer the last stamp that it has
    /// and the one that it needs.
    pub fn missing(&self, page: PageNo, floor: Stamp) -> impl Iterator<Item = (NodeId, DiffAsk)> {
        self.needed.iter().filter_map(move |(writer, need)| {
            let since = version_of(&self.had, *writer).max(floor);
            (*need > since).then_some((*writer, DiffAsk { page, since, need: *need }))
        })
    }

    /// Whether the copy has all that notices have told of.
    pub fn is_complete(&self, floor: Stamp) -> bool {
        self.has_copy && self.missing(0, floor).next().is_none()
    }

    /// Whether somebody may have written the unit, as far as is known here.
    pub fn is_written(&self) -> bool {
        self.collected || !self.needed.is_empty()
    }

    /// Whether the copy has all that was due when the collection under way began.
    pub fn has_what_was_due(&self) -> bool {
        self.has_copy && self.due.iter().all(|(writer, stamp)| version_of(&self.had, *writer) >= *stamp)
    }

    /// The copy is gone. What this node wrote stays.
    pub fn drop_copy(&mut self) {
        self.has_copy = false;
        self.stamps = StampMap::default();
        self.had.clear();
        self.sets.copy_is_gone();
    }

    /// All nodes drop their diffs up to `floor`. What is in the copy up to there is older than all that can come; a
    /// copy that lacks some of it is of no use. Gives whether the copy has to go.
    pub fn collect(&mut self, floor: Stamp) -> bool {
        let dropped = self.own.drop_to(floor);
        self.dropped = self.dropped.max(dropped.unwrap_or(0));
        let goes = self.has_copy && !self.has_what_was_due();
        self.collected |= dropped.is_some() || !self.due.is_empty();
        self.needed.retain(|(_, stamp)| *stamp > floor);
        self.due.clear();
        self.sets.collect(self.has_copy);
        if goes {
            self.drop_copy();
        } else {
            self.had.retain(|(_, stamp)| *stamp > floor);
            self.stamps.forget_to(floor);
        }
        goes
    }
}
