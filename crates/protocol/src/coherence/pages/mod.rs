//! Home-based multiple-writer coherence for pages: what the engines `hlrc` and `scope` share.
//!
//! Every unit (2^k pages) has a *home*, which keeps its newest copy. Other nodes fetch copies, write to them freely,
//! and send *diffs* to the home: the bytes that changed since the *twin* was made. An *interval* of a node ends when a
//! release becomes visible to another node; the pages written in it become *write notices*, which travel with the
//! release, and whoever acquires invalidates its copies of them. (HLRC: section 2.2; Nautilus: section 2.1, after
//! JIAJIA's lock-based protocol.)
//!
//! The two engines differ in which notices an acquire brings, and in that alone ([`write_notices`]): under `hlrc` all
//! that happened before the release (vector timestamps), under `scope` those of the critical sections of the same lock.
//!
//! | part | keeps | guarded by |
//! |---|---|---|
//! | [`page_table`] | the states of 512 pages, with their mappings and twins | a lock for each chunk |
//! | [`intervals`] | intervals, serial numbers of diffs, a [`notice_log`] for each engine | one, at closes, acquires |
//! | [`home_queue`] | at a home: which diffs have been applied, what waits for more | one lock, held briefly |
//! | [`push`] | what was sent to this node unasked | one lock, held briefly |
//! | [`sharing`] | at a home: who wrote where, for the report of false sharing | one lock, held briefly |
//! | [`wire`] | the bytes of all that | |
//!
//! # Versions
//!
//! Each node numbers the diff messages that it sends to each home: their *serial*. The home applies them in this order.
//! A notice says which serial at the page's home holds its bytes; a fetch says which serials must have been applied
//! before the answer, and the home answers when they have. So nobody waits for acknowledgements of diffs.
//!
//! # Offers
//!
//! Where nodes can read each other's memory (shared memory, RDMA), a home *offers* units: who wants one marks it as
//! *taken* and copies it, and nobody at the home is asked or interrupted. That is what a `get` is for DSZOOM (its
//! section 3). The home looks at the marks before it looks for its own writes; decision 0014 says why that is soon
//! enough.
//!
//! # Pushes
//!
//! Where they cannot, a home sends pages that it has written to the nodes that would ask for them, before it arrives at
//! a barrier ([`push`]).
//!
//! Pages of a critical section come with the lock's token from whoever has held it ([`piggyback`]).
//!
//! # Diffs that stay
//!
//! Under `lrc` pages have no homes: diffs stay with their writers, and whoever faults asks for them ([`kept_diffs`]).
//! Under `multicast` they are asked of sets of nodes, and told to sets ([`multicast`]).
//!
//! # Atomic operations
//!
//! An operation on one word is carried out at its home and costs one request and one reply ([`atomic`]).
//!
//! # Epochs
//!
//! A barrier of all threads begins a new *epoch*. Then every node has seen every notice, so they are forgotten, and
//! homes may migrate. What a node in a later epoch asks is answered when the asked node has come as far.

pub mod atomic;
pub mod choice;
pub mod engine;
pub mod fetch_batch;
pub mod home_queue;
pub mod intervals;
pub mod kept_diffs;
pub mod migration;
pub mod multicast;
pub mod node;
pub mod notice_log;
pub mod page_table;
pub mod piggyback;
pub mod policy;
pub mod push;
pub mod region;
mod scope_intervals;
pub mod serve;
pub mod sharing;

pub mod wire;
pub mod write_notices;

use self::atomic::Atomic;
pub use self::engine::{PageEngine, UnknownPageEngine};
use self::kept_diffs::runs::Changes;
use self::policy::sync_phase::SyncPhase;
use crate::coherence::Misbehaved;
use crate::ids::{NodeId, Slot};
use crate::outbox::Outbox;
use std::ops::Range;

/// A page of the shared heap, by its number from the heap's beginning.
pub type PageNo = u32;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages of a chunk: the table's grain.
pub const CHUNK_PAGES: u32 = 512;
/// Most pages of a unit.
pub const UNIT_PAGES_MAX: u32 = 256;
/// A gap of so many pages between two that are looked at for writes costs about as much to be looked at along (4 to 8
/// ns a page) as a call of its own behind it (1.0 to 1.2 us).
pub const GAP_LOOK: u32 = 128;

/// What a fault was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// Which bytes of a page changed: one bit for each. Bit `b` of word `l` stands for byte `64 l + b`.
pub type ByteMarks = [u64; PAGE_BYTES / 64];

/// How this node's threads see pages, and which of them they have written.
pub trait PageMapping {
    /// Whether the first store to a readable page is noted silently ([`PageMapping::collect`] finds it) instead of
    /// raising a fault. Then every valid copy needs a twin from the beginning.
    fn notes_writes(&self) -> bool;
    /// How many pages a home maps together, as far as others have no copies of them: where each stretch with
    /// permissions of its own costs something that there is too little of.
    fn mapped_together(&self) -> u32 {
        1
    }
    /// Lets threads load; stores are noted or fault. The pages count as clean.
    fn map_read(&mut self, pages: Range<PageNo>);
    /// Lets threads load and store; where writes are noted, the pages count as written.
    fn map_write(&mut self, pages: Range<PageNo>);
    /// Makes mapped pages readable only and clean. When this returns, earlier stores are visible in the service view,
    /// and no later one goes unnoticed.
    fn protect(&mut self, pages: Range<PageNo>);
    /// Takes the pages from the threads. What was written stays noted.
    fn unmap(&mut self, pages: Range<PageNo>);
    /// As [`PageMapping::unmap`], for several runs.
    fn unmap_all(&mut self, runs: &[Range<PageNo>]) {
        runs.iter().for_each(|run| self.unmap(run.clone()));
    }
    /// Where writes are noted: appends the pages that were written since they were last clean, and leaves them so. Of
    /// pages that are not mapped it says all that there is to say until they are mapped again.
    fn written(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>);
    /// Where writes are noted: appends the pages that were written since they were last clean, and makes them clean,
    /// protected if they are mapped.
    fn collect(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>);
    /// What is written to these pages concerns nobody until they are mapped or protected again: who looks where
    /// something was written may leave them out.
    fn untrack(&mut self, _pages: Range<PageNo>) {}
    /// Mapped pages concern somebody again: what was written to them and not collected is found, however long ago that
    /// was.
    fn track(&mut self, _pages: Range<PageNo>) {}
    /// Where writes are noted: no thread stores to these pages from now on, mapped or not, until
    /// [`PageMapping::allow_writes`]; a store faults. What was stored before is noted. `false`, and nothing done, where
    /// that cannot be had.
    fn forbid_writes(&mut self, _pages: Range<PageNo>) -> bool {
        false
    }
    /// Ends [`PageMapping::forbid_writes`], for the same pages.
    fn allow_writes(&mut self, _pages: Range<PageNo>) {}
    /// A few words of the unit, whatever is being written there: if they change, the unit was written.
    fn sample(&mut self, _unit: Range<PageNo>) -> u32 {
        0
    }
}

/// What nodes do in each other's memory without asking, where they can: by default they cannot.
pub trait OneSidedMemory {
    /// Whether other nodes can copy pages out of this memory by themselves, once they are offered.
    fn can_offer(&self) -> bool {
        false
    }
    /// From now on other nodes may copy these pages without asking; where one does, [`OneSidedMemory::was_taken`] says
    /// so.
    fn offer(&mut self, _pages: Range<PageNo>) {}
    /// Who wants these pages must ask again.
    fn withdraw(&mut self, _pages: Range<PageNo>) {}
    /// Whether another node has begun to copy the unit that begins at this page since the last such question. Where the
    /// answer is no, whoever begins later finds every store that was made before.
    fn was_taken(&mut self, _unit: PageNo) -> bool {
        false
    }
    /// `node` claims the unit that begins at this page, of which `home` is the home by its region's layout, in the
    /// table that says who has: gives whose it is. `None` where there is no such table: then `home` alone decides.
    fn claim(&mut self, _home: NodeId, _unit: PageNo, _node: NodeId) -> Option<NodeId> {
        None
    }
    /// Who has claimed the unit that begins at this page, as that table says, if anybody has.
    fn claimant(&mut self, _home: NodeId, _unit: PageNo) -> Option<NodeId> {
        None
    }
    /// Stores what differs from the twin, exact to the byte, into the memory of the unit's home on this host, and
    /// brings the twin up to date; `changed` is told of each page that changed, and where. Gives the number of bytes
    /// changed; `None`, and nothing done, where the home's memory cannot be written.
    fn put(
        &mut self,
        _home: NodeId,
        _unit: Range<PageNo>,
        _changed: &mut dyn FnMut(PageNo, &ByteMarks),
    ) -> Option<usize> {
        None
    }
}

/// The twins of units: what they held when they were last as their homes know them.
pub trait PageTwins {
    /// Makes the unit's twin from what the memory holds now; it is one of `many`.
    fn make_twin(&mut self, unit: Range<PageNo>, many: bool);
    /// Whether the unit has a twin.
    fn has_twin(&self, unit: Range<PageNo>) -> bool;
    /// Appends the unit's twin, if there is one; whether there is.
    fn copy_twin(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> bool;
    /// Drops the unit's twin, if there is one.
    fn drop_twin(&mut self, unit: Range<PageNo>);
    /// Appends what differs from the twin, exact to the byte, and brings the twin up to date; gives the number of bytes
    /// changed.
    fn diff(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> usize;
    /// Brings the unit's twin up to date; whether anything differed.
    fn update_twin(&mut self, unit: Range<PageNo>) -> bool {
        self.diff(unit, &mut Vec::new()) > 0
    }
    /// Brings a copy up to date that stayed mapped: what in `bytes` differs from the unit's twin is stored to the unit
    /// and to the twin, and nothing else. Without a twin, all of `bytes` is stored: nobody else can store to the unit.
    fn renew(&mut self, unit: Range<PageNo>, bytes: &[u8]);
    /// Finds what differs from the twin, exact to the byte, and brings the twin up to date.
    fn changes(&mut self, unit: Range<PageNo>, changes: &mut Changes) {
        let mut is_second = false;
        changes.compare(|state| {
            if std::mem::replace(&mut is_second, true) {
                self.update_twin(unit.clone());
            }
            self.copy_twin(unit.clone(), state);
        });
    }
}

/// This node's memory of pages: its mappings, its twins, what other nodes do in it, and its bytes. Each call is one
/// step of real memory: between two of them other threads load and store. Ranges are whole units of one chunk.
pub trait PageMemory: PageMapping + OneSidedMemory + PageTwins {
    /// Stores bytes at a place of a unit that no thread can see.
    fn patch(&mut self, unit: Range<PageNo>, at: usize, bytes: &[u8]);
    /// Stores the bytes that a diff changed, and no others.
    ///
    /// # Errors
    /// When the diff leaves the unit.
    fn apply(&mut self, unit: Range<PageNo>, diff: &[u8]) -> Result<(), Misbehaved>;
    /// Carries out an atomic operation on the word at `offset` of a page, as one step also for this node's threads;
    /// gives what it held.
    fn atomic(&mut self, page: PageNo, offset: usize, atomic: Atomic) -> u64;
    /// Appends the pages' bytes.
    fn copy_out(&mut self, pages: Range<PageNo>, out: &mut Vec<u8>);
    /// Replaces the pages' bytes; nobody can see them meanwhile.
    fn install(&mut self, pages: Range<PageNo>, bytes: &[u8]);
    /// [`PageMemory::install`] and [`PageTwins::make_twin`] in one, for whole units of so many pages, which may be
    /// `many`.
    fn install_with_twins(&mut self, pages: Range<PageNo>, unit_pages: u32, bytes: &[u8], many: bool) {
        let units = pages.step_by(unit_pages as usize).zip(bytes.chunks(unit_pages as usize * PAGE_BYTES));
        for (first, bytes) in units {
            self.install(first..first + unit_pages, bytes);
            self.make_twin(first..first + unit_pages, many);
        }
    }
    /// Where that is one step: gives pages that have no memory here, whole units of so many pages, these bytes, makes
    /// twins if they are wanted, and does [`PageMapping::map_read`]. They may be among `many`. `false`: nothing was
    /// done.
    fn fill(&mut self, _pages: Range<PageNo>, _unit_pages: u32, _bytes: &[u8], _twins: bool, _many: bool) -> bool {
        false
    }
    /// Gives the pages' memory back: they are unmapped and nobody needs their bytes here any more.
    fn discard(&mut self, pages: Range<PageNo>);
}

/// What a step knows besides the chunk.
pub struct Context<'a> {
    /// This node.
    pub me: NodeId,
    /// The application thread that takes the step; `None` for the service thread.
    pub caller: Option<Slot>,
    /// How this node's intervals have ended lately.
    pub sync_phase: SyncPhase,
    /// The memory here.
    pub memory: &'a mut dyn PageMemory,
    /// Where the effects go.
    pub out: &'a mut Outbox,
    /// What is counted.
    pub tally: &'a mut Tally,
}

impl Context<'_> {
    fn wake(&mut self, slot: Slot) {
        if self.caller != Some(slot) {
            self.out.wake(slot);
        }
    }
}

/// What the steps of pages count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // the names say it
pub struct Tally {
    pub pages_fetched: u64,
    pub twins_made: u64,
    pub diffs_made: u64,
    pub diff_bytes: u64,
    pub diffs_applied: u64,
    pub invalidations: u64,
    pub notices: u64,
    pub home_notices: u64,
    pub migrations: u64,
    pub evictions: u64,
    pub void_fetches: u64,
    pub laid_aside: u64,
    pub mapped_early: u64,
    pub claimed: u64,
    pub read_only_writes: u64,
    pub bases_fetched: u64,
    /// Diffs that came before this node asked for them, and those of them that were used.
    pub diffs_indirect: u64,
    pub diffs_indirect_used: u64,
    /// Requests to writers whose diffs, told to a set, did not come in time.
    pub diffs_repaired: u64,
    /// Copysets that this node left.
    pub copysets_left: u64,
    /// Units whose manager this node became.
    pub managers_moved: u64,
    /// Pages of units that it manages and whose diffs began to go to it alone.
    pub pages_homed: u64,
    /// By how much the diffs grew that stay here, in bytes.
    pub diffs_kept: i64,
    /// By how much the memory in use for copies grew, in pages.
    pub held: i64,
    /// Pages whose home this node became, without those that have another home now.
    pub gained: i64,
}

/// How far apart epochs are at most that meet while a message is on its way.
const EPOCHS_NEAR: u32 = 1 << 16;

/// Whether an epoch comes soon after another. They are counted in 32 bits, which barriers alone use up in half a day;
/// and what is kept may be of any age, so an epoch that is far from another is no later one.
fn is_later(epoch: u32, other: u32) -> bool {
    (1..=EPOCHS_NEAR).contains(&epoch.wrapping_sub(other))
}

/// Whether an epoch is over for who is in epoch `now`.
fn is_over(epoch: u32, now: u32) -> bool {
    epoch != now && !is_later(epoch, now)
}

/// Appends `pages` to a list of ranges, joined with the last one where they touch.
pub fn push_range<L: RunList>(list: &mut L, pages: Range<PageNo>) {
    match list.last_run() {
        Some(last) if last.end == pages.start => last.end = pages.end,
        _ if pages.is_empty() => {}
        _ => list.add_run(pages),
    }
}

/// A list of runs of pages.
pub trait RunList {
    /// The last of them.
    fn last_run(&mut self) -> Option<&mut Range<PageNo>>;
    /// Adds one behind it.
    fn add_run(&mut self, pages: Range<PageNo>);
}

impl RunList for Vec<Range<PageNo>> {
    fn last_run(&mut self) -> Option<&mut Range<PageNo>> {
        self.last_mut()
    }
    fn add_run(&mut self, pages: Range<PageNo>) {
        self.push(pages);
    }
}

impl RunList for wire::Runs {
    fn last_run(&mut self) -> Option<&mut Range<PageNo>> {
        self.last_mut()
    }
    fn add_run(&mut self, pages: Range<PageNo>) {
        self.push(pages);
    }
}

#[cfg(test)]
mod tests;
