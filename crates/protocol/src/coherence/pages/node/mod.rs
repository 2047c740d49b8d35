//! What a node does with all its page tables: at a release, at an acquire, at a barrier.
//!
//! The runtime and the simulator run the same functions; where they keep tables, and how they send, stands behind
//! [`NodeEffects`]. Whoever calls one of these functions holds the [`Ledger`], so one runs at a time on a node. A page table
//! is locked only within a step, and between two steps other threads of the node go on.
//!
//! | part | what it does |
//! |---|---|
//! | [`diffs`] | gathers diffs into messages, with the serials by which homes apply them |
//! | [`invalidate`] | ends the copies that notices name |

pub mod diffs;
pub mod invalidate;

use self::diffs::DiffBatch;
use super::chunk::{Chunk, Flush};
use super::ledger::{Ledger, Needs};
use super::wire::{DiffsHead, Runs};
use super::{Context, PageNo};
use crate::ids::NodeId;
use std::ops::Range;

/// When a message of diffs leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// In the midst of the step.
    Now,
    /// At its end, before its other messages.
    AtEnd,
}

/// What the page logic of a node acts on.
pub trait NodeEffects {
    /// This node.
    fn me(&self) -> NodeId;
    /// Which diffs each home must have applied.
    fn needs<R>(&mut self, step: impl FnOnce(&mut Needs) -> R) -> R;
    /// A step of the page table with this page; `None` when no region with several writers has it.
    fn step<R>(&mut self, page: PageNo, step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R) -> Option<R>;
    /// As [`NodeEffects::step`], for one that may flush diffs.
    fn diff_step<R>(
        &mut self,
        page: PageNo,
        to: (&mut DiffBatch, &mut Ledger),
        step: impl FnOnce(&mut Chunk, &mut Context<'_>, &mut dyn Flush) -> R,
    ) -> Option<R>;
    /// Between two steps of a long one; no table is locked.
    fn between_steps(&mut self) {}
    /// The pages of the table with this page, if there is one here; else the next page, if any, where there may be one.
    fn table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>>;
    /// Pages, in order, that a barrier leaves unmapped where it keeps others mapped until they are fetched again.
    fn not_kept(&mut self) -> Vec<PageNo> {
        Vec::new()
    }
    /// Copies of these pages have ended: they may be fetched again.
    fn copies_ended(&mut self, pages: Vec<Range<PageNo>>);
    /// Diffs were announced for this node's own home pages: who has acquired waits for them.
    fn awaits_diffs(&mut self) {}
    /// Stores a message's diffs into their home's memory, or sends them before the step's other messages. They stand behind
    /// [`DIFFS_HEAD_BYTES`](super::wire::DIFFS_HEAD_BYTES) of room.
    fn send_diffs(&mut self, ledger: &Ledger, to: (NodeId, Departure), head: &DiffsHead, message: Vec<u8>);
    /// Those that were sent [`Departure::Now`] leave.
    fn diffs_leave(&mut self) {}
    /// What was put into a home's memory is in, up to this serial.
    fn puts_are_in(&mut self, _home: NodeId, _serial: u64) {}
}

/// Calls `f` with the parts of these runs that follow each other in one page table, for the tables that exist here.
pub fn each_table<'a, E: NodeEffects>(
    node: &mut E,
    runs: impl Iterator<Item = &'a Range<PageNo>>,
    mut f: impl FnMut(&mut E, &[Range<PageNo>]),
) {
    let (mut table, mut parts) = (0..0, Runs::new());
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            if !table.contains(&at) {
                if !parts.is_empty() {
                    f(node, &parts);
                    parts.clear();
                }
                match node.table_around(at) {
                    Ok(found) => table = found,
                    Err(next) => {
                        at = next.unwrap_or(run.end);
                        continue;
                    }
                }
            }
            let end = table.end.min(run.end);
            parts.push(at..end);
            at = end;
        }
    }
    if !parts.is_empty() {
        f(node, &parts);
    }
}
