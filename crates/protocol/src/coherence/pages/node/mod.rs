//! What a node does with all its page tables: at a release, at an acquire, at a barrier.
//!
//! The runtime and the simulator run the same functions; where they keep tables, and how they send, stands behind
//! [`NodeEffects`]. Whoever calls one of these functions holds the [`IntervalState`], so one runs at a time on a node.
//! A page table is locked only within a step, and between two steps other threads of the node go on.
//!
//! | part | what it does |
//! |---|---|
//! | [`diffs`] | gathers diffs into messages, with the serials by which homes apply them |
//! | [`close`] | ends an interval |
//! | [`invalidate`] | ends the copies that notices name, and says what to fetch again |
//! | [`fault`] | what a fault does, and how pages come that are fetched |
//! | [`refetch`] | copies that have ended are fetched again |
//! | [`evict`] | copies make room for others; memory is freed |
//! | [`kept_diffs`] | what notices and barriers do where diffs stay with their writers |
//! | [`multicast`] | copysets at barriers, where diffs are told to sets |
//! | [`sync`] | what releases, acquires and barriers do |

pub mod close;
pub mod diffs;
pub mod evict;
pub mod fault;
pub mod invalidate;
pub mod kept_diffs;
pub mod multicast;
pub mod refetch;
pub mod sync;

use self::close::{CloseReason, Notices};
use self::diffs::DiffBatch;
use self::fault::Came;
use super::intervals::{IntervalState, RequiredDiffs};
use super::kept_diffs::{Ask, Stamp};
use super::page_table::interval_end::PendingWork;
use super::page_table::{DiffSink, PageTable};
use super::policy::sync_phase::SyncPhase;
use super::serve::{Listing, PageState};
use super::wire::{DiffsHead, Entry, RequiredDiff, Runs};
use super::{Context, PageNo};
use crate::ids::NodeId;
use crate::outbox::Outbox;
use crate::sync::IntervalMark;
use crate::wire::bytes::WireError;
use std::ops::Range;

/// Why a node cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The epoch has as many intervals as can be numbered.
    IntervalsUsedUp,
    /// A release of another node said what makes no sense.
    Release(WireError),
    /// A lock came with pages that make no sense.
    Carried(WireError),
    /// A barrier said what makes no sense.
    Notices(WireError),
    /// All nodes have dropped diffs that this one, the manager of this page, lacks.
    DiffsLost(PageNo),
}

/// What the page logic of a node acts on.
pub trait NodeEffects {
    /// Where the node keeps the state of pages.
    type Pages: PageState;
    /// Where the node keeps the state of pages.
    fn pages(&mut self) -> &mut Self::Pages;
    /// What leaves before the step's other messages.
    fn side(&mut self) -> &mut Outbox;
    /// This node.
    fn me(&self) -> NodeId;
    /// Which diffs each home must have applied.
    fn needs<R>(&mut self, step: impl FnOnce(&mut RequiredDiffs) -> R) -> R;
    /// What a home must have applied before it says or shows anything; this node's own diffs have left.
    fn needs_at(&mut self, home: NodeId) -> Vec<RequiredDiff> {
        self.needs(|needs| needs.at(home))
    }
    /// This node's epoch.
    fn epoch(&self) -> u32;
    /// A step of the page table with this page; `None` when no region with several writers has it.
    fn step<R>(&mut self, page: PageNo, step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R) -> Option<R> {
        self.listed_step((page, Listing::AsBefore), step)
    }
    /// The same, with what becomes of the table's place in the list of active ones.
    fn listed_step<R>(
        &mut self,
        at: (PageNo, Listing),
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R>;
    /// As [`NodeEffects::step`], for one that may flush diffs.
    fn diff_step<R>(
        &mut self,
        at: (PageNo, Listing),
        to: (&mut DiffBatch, &mut IntervalState),
        step: impl FnOnce(&mut PageTable, &mut Context<'_>, &mut dyn DiffSink) -> R,
    ) -> Option<R>;
    /// Between two steps of a long one; no table is locked.
    fn between_steps(&mut self) {}
    /// The pages of the table with this page, if there is one here; else the next page, if any, where there may be one.
    fn table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>>;
    /// The page tables from these pages on, as far as regions have them, each with what it has to be asked for.
    fn tables_at(&mut self, firsts: &[PageNo]) -> Vec<(Range<PageNo>, PendingWork)>;
    /// The page tables that may be dirty, in any order.
    fn active(&mut self) -> Vec<PageNo>;
    /// Takes the list of these, in order.
    fn take_active(&mut self) -> Vec<PageNo>;
    /// These come back into the list, although no step has come by them.
    fn relist(&mut self, firsts: Vec<PageNo>);
    /// How many intervals have begun to end.
    fn closes(&mut self) -> IntervalMark;
    /// An interval begins to end: gives how many have, this one included.
    fn begin_close(&mut self) -> IntervalMark;
    /// How this node's intervals have ended lately.
    fn era<R>(&mut self, step: impl FnOnce(&mut SyncPhase) -> R) -> R;
    /// Whether another node may have copied something out of this page table by itself since the last look.
    fn may_be_taken(&mut self, _table: &Range<PageNo>) -> bool {
        true
    }
    /// Whether the kernel notes what is written.
    fn notes_writes(&self) -> bool;
    /// The pages of these tables, in order, that the kernel notes as written, and perhaps more; `None` where it notes
    /// none or has not answered. Where the question ends an interval (`scan`), appends what was looked at so often in
    /// vain that it is laid aside.
    fn writes_seen(
        &mut self,
        tables: &[(Range<PageNo>, PendingWork)],
        scan: Option<(SyncPhase, &mut Vec<Range<PageNo>>)>,
    ) -> Option<Vec<Range<PageNo>>>;
    /// Whether more pages may have their home here than by the layout of their regions.
    fn has_room_for_homes(&mut self) -> bool;
    /// An interval has ended with these notices, and there may be no room for what is held here of them to come from
    /// its home; for reports and prefetching.
    fn has_closed(&mut self, _why: CloseReason, _no_room: bool, _notices: &Notices) {}
    /// The node cannot go on.
    fn fails(&mut self, why: Failure);
    /// Pages, in order, that a barrier leaves unmapped where it keeps others mapped until they are fetched again.
    fn not_kept(&mut self) -> Vec<PageNo> {
        Vec::new()
    }
    /// Copies of these pages have ended: they may be fetched again.
    fn copies_ended(&mut self, pages: Vec<Range<PageNo>>);
    /// Whether all these diffs have been applied here.
    fn meets(&mut self, needs: &[RequiredDiff]) -> bool;
    /// They have been.
    fn home_has(&mut self, needs: &[RequiredDiff]);
    /// Whether a token's message, which has so many bytes, has room for the pages that it may carry.
    fn has_room_to_carry(&mut self, _bytes: usize) -> bool {
        true
    }
    /// This node has told of what it wrote in this epoch: sends that to those that would ask for it.
    fn push(&mut self, epoch: u32);
    /// Which homes move to whom at a barrier, by what all nodes have written.
    fn decide_moves(&mut self, epoch: u32, entries: &[(Entry, bool)]) -> Vec<(Range<PageNo>, NodeId)>;
    /// Whether this node copies pages out of this home's memory itself, once the home says that it may.
    fn reads_memory_of(&mut self, _home: NodeId) -> bool {
        false
    }
    /// How far units go on as they are from this page, and how many pages each has; `None` where no region has it.
    fn units_from(&mut self, page: PageNo) -> Option<(PageNo, u32)>;
    /// Whether the page is being fetched.
    fn is_fetching(&mut self, page: PageNo) -> bool {
        self.step(page, |table, _| table.unit(page).is_fetching()) == Some(true)
    }
    /// So many pages came for which no home was asked.
    fn pages_came(&mut self, _how: Came, _pages: u64) {}
    /// Diffs were announced for this node's own home pages: who has acquired waits for them.
    fn awaits_diffs(&mut self) {}
    /// Stores a message's diffs into their home's memory, or sends them before the step's other messages. They stand
    /// behind [`DIFFS_HEAD_BYTES`](super::wire::DIFFS_HEAD_BYTES) of room.
    fn send_diffs(&mut self, intervals: &IntervalState, home: NodeId, head: &DiffsHead, message: Vec<u8>);
    /// What stands in [`NodeEffects::side`] leaves at once.
    fn side_leaves(&mut self) {}
    /// What was put into a home's memory is in, up to this serial.
    fn puts_are_in(&mut self, _home: NodeId, _serial: u64) {}
    /// As [`NodeEffects::table_around`], where notices have to be kept of what has no table yet: one comes into being.
    fn kept_table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        self.table_around(page)
    }
    /// The first pages of all tables whose diffs stay with their writers.
    fn kept_tables(&mut self) -> Vec<PageNo> {
        Vec::new()
    }
    /// The diffs of all intervals up to this stamp are in the page tables' stores.
    fn stamps_closed(&mut self, _stamp: Stamp) {}
    /// All nodes have heard of what was written up to this stamp, or will as they leave the barrier that has opened.
    fn barrier_stamp(&mut self, _stamp: Stamp) {}
    /// Whether the stores have grown so far that a collection is to be announced at the barrier to which this node
    /// comes.
    fn wants_collection(&mut self) -> bool {
        false
    }
    /// These requests are to be answered before this node's threads leave the barrier that has opened.
    fn must_complete(&mut self, _asks: Vec<(NodeId, Ask)>) {}
    /// A collection ends: what was written up to this stamp is kept by nobody. It is the floor of tables to come.
    fn collected(&mut self, _floor: Stamp) {}
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
