//! What a node knows of one unit whose diffs are told to sets. Memory is not touched here.

use super::placement::Uses;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::kept_diffs::Stamp;
use crate::coherence::pages::kept_diffs::runs::StampRun;
use crate::coherence::pages::kept_diffs::unit::Versions;
use crate::coherence::pages::page_table::placement::Window;
use crate::ids::NodeId;
use crate::rules::Rule;
use smallvec::SmallVec;

/// Diffs that came before a fault needed them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Unasked {
    /// They are all for a copy that has what was written up to here.
    pub since: Stamp,
    /// Of these writers they have all from there up to these intervals.
    pub covers: Versions,
    /// In order; none overlap.
    pub runs: Vec<StampRun>,
    /// The bytes of all runs, one behind the other.
    pub bytes: Vec<u8>,
    /// They came with a lock's token.
    pub is_carried: bool,
}

impl Unasked {
    /// The memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.runs.len() * size_of::<StampRun>()
    }

    /// Leaves out what was written up to this stamp.
    pub fn drop_to(&mut self, floor: Stamp) {
        if self.runs.iter().all(|run| run.stamp > floor) {
            return;
        }
        let (mut left, mut bytes) = (&self.bytes[..], Vec::new());
        self.runs.retain(|run| {
            let (of_run, rest) = left.split_at((run.end - run.start) as usize);
            left = rest;
            if run.stamp > floor {
                bytes.extend_from_slice(of_run);
            }
            run.stamp > floor
        });
        self.bytes = bytes;
    }
}

/// What one node was told of this node's writes: all after one stamp, up to another.
#[derive(Clone, Copy, Debug)]
struct ToldTo {
    node: NodeId,
    since: Stamp,
    through: Stamp,
}

/// One unit.
#[derive(Clone, Default, Debug)]
pub struct SetUnit {
    /// The copyset, as of the last barrier.
    pub members: NodeSet,
    /// What came and no fault has used.
    pub unasked: Vec<Unasked>,
    told: SmallVec<[ToldTo; 2]>,
    /// Of writers that were asked by others, or have told others: the intervals that are on their way here.
    pub expected: Versions,
    /// Up to which of its intervals each writer has told a set with this node in it.
    pub heard: Versions,
    /// Who was asked point to point in the round under way.
    pub certain: SmallVec<[NodeId; 2]>,
    /// The number of that round.
    pub round: u32,
    /// What came unasked was dropped, or is too long: writers are asked point to point.
    pub is_direct: bool,
    /// The copy has all that was written up to here, whatever its writers' last intervals in it are. Where there is
    /// none, nobody had written the unit up to here, so zeros are one.
    pub whole_to: Option<Stamp>,
    /// In so many epochs in a row something came that was of no use.
    pub unused: u8,
    /// Something came since the last arrival, and no fault has come since.
    pub came: bool,
    /// A fault has come since the last arrival.
    pub used: bool,
    /// Another node asked for it while this one did.
    pub met: bool,
    /// What is written to it is told before each arrival at a barrier.
    pub is_early: bool,
    /// The next arrival looks at it.
    pub is_listed: bool,
    /// Diffs were made here since the last arrival.
    pub wrote: bool,
    /// How this node uses it.
    pub window: Window,
    /// How nodes used it, as the barrier says that is opening.
    pub said: SmallVec<[(NodeId, Uses); 2]>,
    /// In how many epochs nodes used it, as barriers have said, with half of what earlier runs of the program had.
    pub epochs: u32,
    /// Its diffs go to its manager alone.
    pub is_homed: bool,
}

impl SetUnit {
    /// These nodes are told what this node wrote after `since`, up to its interval `through`.
    pub fn mark_told(&mut self, nodes: impl Iterator<Item = NodeId>, since: Stamp, through: Stamp) {
        for node in nodes {
            match self.told.iter_mut().find(|told| told.node == node) {
                Some(told) if since <= told.through && told.since <= through => {
                    (told.since, told.through) = (told.since.min(since), told.through.max(through));
                }
                Some(told) => *told = ToldTo { node, since, through },
                None => self.told.push(ToldTo { node, since, through }),
            }
        }
    }

    /// Whether a node was told what it asks for.
    pub fn has_told(&self, node: NodeId, since: Stamp, need: Stamp) -> bool {
        let is = |told: &ToldTo| told.node == node && told.since <= since && told.through >= need;
        self.told.iter().any(is)
    }

    /// Whether anybody was told of an interval.
    pub fn has_told_anybody(&self, need: Stamp) -> bool {
        self.told.iter().any(|told| told.through >= need)
    }

    /// Up to which interval all of these have been told that were told anything; `None` if none was.
    pub fn told_since(&self, nodes: &NodeSet) -> Option<Stamp> {
        self.told.iter().filter(|told| nodes.contains(told.node)).map(|told| told.through).min()
    }

    /// The memory that what came unasked takes.
    pub fn unasked_bytes(&self) -> usize {
        self.unasked.iter().map(Unasked::memory_bytes).sum()
    }

    /// What came unasked is not kept any longer: it will not come again, so writers are asked point to point for it.
    pub fn drop_unasked(&mut self) {
        self.is_direct |= !self.unasked.is_empty();
        self.unasked.clear();
    }

    /// The copy is gone, and with it what writers have told this node.
    pub fn copy_is_gone(&mut self) {
        self.drop_unasked();
        self.is_direct = true;
        self.whole_to = None;
    }

    /// All nodes drop their diffs of before, and what they know of whom they have told them. Zeros are no copy any
    /// more.
    pub fn collect(&mut self, has_copy: bool) {
        self.whole_to = self.whole_to.filter(|_| has_copy);
        self.drop_unasked();
        self.told.clear();
        self.expected.clear();
        self.heard.clear();
    }

    /// A thread has faulted, and `reads` what others wrote: the node uses the unit.
    pub fn note_fault(&mut self, reads: bool) {
        (self.unused, self.came, self.used) = (0, false, true);
        self.window.reads |= reads;
    }

    /// The copy begins to be completed, for a thread that has faulted or not; `reads` what others wrote.
    pub fn begin_round(&mut self, faulted: bool, reads: bool) {
        self.round = self.round.wrapping_add(1);
        self.certain.clear();
        if faulted {
            self.note_fault(reads);
        }
    }

    /// The copy is complete.
    pub fn is_complete(&mut self) {
        self.is_direct = false;
    }

    /// The manager's copy takes the place of this one, and may have less: what writers have told this node they will
    /// not tell it again.
    pub fn begin_base(&mut self) {
        self.is_direct |= Rule::IncompleteBasesAskWriters.on();
        if Rule::BasesAreNotWhole.on() {
            self.whole_to = None;
        }
    }
}
