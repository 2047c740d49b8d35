//! The page table of one chunk: every transition of a unit's state, with its page table entry and its twin, in one
//! function.
//!
//! | state | in memory | a load | a store |
//! |---|---|---|---|
//! | `Invalid` | unmapped | fetch | fetch |
//! | `Fetching` | unmapped, but see `premap` | wait | wait |
//! | `Valid` | readable, twin where writes are noted | | noted; or fault: twin, writable, `DIRTY` |
//! | `Unclaimed` | unmapped; placed by first touch, untouched as far as known | see `first_touch` | see `first_touch` |
//! | `Home`, not `HAS_COPIES` | writable, nobody is told | | |
//! | `Home`, `HAS_COPIES` | readable, no twin | | noted; or fault: writable, `DIRTY` |
//!
//! Other events:
//!
//! | event | `Valid` | `Fetching` | `Home` |
//! |---|---|---|---|
//! | notice of another's write | unmap, look, diff if written, `Invalid` | void | (the acquirer waits for the diffs) |
//! | interval closes | collect, diff if written, notice | | notice if `HAS_COPIES` and written |
//! | another node fetches | | | protect, copy out, `HAS_COPIES` |
//! | diff arrives | ignored | ignored | apply |
//!
//! Nautilus's write detection (its section 5) is the difference between the two rows of `Home`: a page that nobody else
//! holds stays writable and costs nothing. Where a write to a protected page raises a signal, a home page that its home
//! wrote in the last epoch is presumed to be written again (`HOME_DIRTY_LAST_EPOCH`): it stays writable when it is
//! copied out and counts as written, until a remote write comes. An epoch with a second close has locks in it, each of
//! whose releases would tell of the page again: there the presumption ends.

use super::Access;
use super::wire::Runs;
use super::{ByteMarks, CHUNK_PAGES, Context, PAGE_BYTES, PageEngine, PageNo, push_range};
use crate::ids::{NodeId, Slot};
use crate::rules::Rule;
use crate::tuning::PageTuning;
use batch_protect::{BatchProtection, PROTECTED_WITH_NEIGHBOUR};
use push_predictor::Reader;
use small_lists::SmallLists;
use std::ops::Range;
use write_predictor::WriteHistory;

pub mod atomic;
mod batch_protect;
mod first_touch;
mod freed;
mod home;
mod home_map;
mod home_twin;
pub mod interval_end;
mod invalidate;
mod migration;
mod piggyback;
mod premap;
mod push_predictor;
mod small_lists;
mod untrack_idle;
mod update_in_place;
mod write_predictor;
mod write_prefetch;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Invalid,
    Fetching,
    Valid,
    Unclaimed,
    Home,
}

/// At the home: other nodes may hold copies.
const HAS_COPIES: u32 = 1;
/// Where writes raise faults: written since it was last clean.
const DIRTY: u32 = 2;
/// Flushed in the open interval, and so to be named in its notices.
const NOTICE_PENDING: u32 = 4;
/// A fetch under way will bring what is no longer wanted.
const FETCH_CANCELLED: u32 = 8;
/// At the home: mapped.
const MAPPED: u32 = 16;
/// Told of in this epoch; at the home: and not copied out since.
const NOTICED_THIS_EPOCH: u32 = 32;
/// At the home: written there in the last epoch, and by nobody else since.
const HOME_DIRTY_LAST_EPOCH: u32 = 64;
/// At the home: copied out without protection; counts as written.
const ASSUMED_DIRTY: u32 = 128;
/// At the home: counted as written in this epoch for no other reason than that it was assumed.
const ASSUMPTION_COUNTED: u32 = 512;
/// A copy that was written in several intervals of this epoch, where the kernel notes writes: its note is not taken,
/// and it is compared with its twin at each close.
const LEFT_WRITABLE: u32 = 2048;
/// At the home, where the kernel notes writes: other nodes may copy the unit without asking, and mark it when they do.
const OFFERED: u32 = 4096;
/// At the home, where the kernel notes writes: mapped, protected when the last interval before this epoch was closed,
/// and held by nobody since.
const PROTECTED_AT_BARRIER: u32 = 8192;
/// Not the home, and the unit's memory is in use here, valid or not.
const RESIDENT: u32 = 256;
/// Not valid, but still mapped, and with its twin: see `update_in_place`.
const INVALID_MAPPED: u32 = 1024;
/// A copy that was written while it was here, and was not fetched with others since then: see `write_prefetch`.
const WRITTEN_BEFORE: u32 = 16384;
/// Not the home, and where the home is stands in the layout alone: see `first_touch`.
const HOME_UNKNOWN: u32 = 32768;
/// A copy that is not mapped, and was not written since it was last clean: see `untrack_idle`.
const UNTRACKED: u32 = 1 << 18;
/// Being fetched for a store, where the kernel notes writes: mapped writable, and so as written, when it comes.
const WRITE_FETCH: u32 = 1 << 17;
/// At the home, where the kernel notes writes: shared, mapped, its note was left, and it has a twin: see `home_twin`.
const HAS_HOME_TWIN: u32 = 1 << 19;
/// At the home: another node has written it since the home told of a write of its own.
const REMOTE_DIRTY: u32 = 1 << 20;
/// Being fetched, and mapped already: see `premap`.
const PREMAPPED: u32 = 1 << 21;
/// Not the home: atomic operations of this node have changed the unit at its home in the open interval.
const ATOMIC: u32 = 1 << 22;
const _: () = {
    let all = [
        HAS_COPIES,
        DIRTY,
        NOTICE_PENDING,
        FETCH_CANCELLED,
        MAPPED,
        NOTICED_THIS_EPOCH,
        HOME_DIRTY_LAST_EPOCH,
        ASSUMED_DIRTY,
        ASSUMPTION_COUNTED,
        LEFT_WRITABLE,
        OFFERED,
        PROTECTED_AT_BARRIER,
        RESIDENT,
        INVALID_MAPPED,
        WRITTEN_BEFORE,
        HOME_UNKNOWN,
        PROTECTED_WITH_NEIGHBOUR,
        WRITE_FETCH,
        UNTRACKED,
        HAS_HOME_TWIN,
        REMOTE_DIRTY,
        PREMAPPED,
        ATOMIC,
    ];
    let (mut seen, mut i) = (0, 0);
    while i < all.len() {
        assert!(seen & all[i] == 0, "two flags are one");
        (seen, i) = (seen | all[i], i + 1);
    }
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Unit {
    state: State,
    flags: u32,
    home: NodeId,
    /// How often the unit may still be fetched ahead without being seen in use.
    credit: u8,
    /// How much credit a use earns.
    trust: u8,
    /// The epoch in which it last ended.
    ended: u8,
}

impl Unit {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
    fn set(&mut self, flag: u32, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }
}

/// What a chunk's region says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLayout {
    /// Its first page.
    pub first: PageNo,
    /// How many pages it has, at most [`CHUNK_PAGES`], whole units.
    pub pages: u32,
    /// Pages of a unit.
    pub unit_pages: u32,
    /// Whether untouched units belong to whoever touches them first.
    pub first_touch: FirstTouch,
    /// Whether homes notice their own writes only while others hold copies (write detection on); off: always.
    pub write_detection: bool,
    /// Whether acquires bring all that happened before (`hlrc`) or what was written in the same scope (`scope`).
    pub engine: PageEngine,
}

/// Whether untouched units belong to whoever touches them first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstTouch {
    /// They have their homes.
    Never,
    /// Where a fault says so ([`PrefetchPlan::claims`]), and with what it fetches ahead.
    Late,
    /// From the beginning.
    Always,
}

/// What a thread will probably touch next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchPlan {
    /// How many units to fetch, the faulting one included.
    pub units: usize,
    /// From each to the next, in units; not 0.
    pub stride: isize,
    /// Up to how many units are fetched when those behind were in use before they became invalid. With a stride: in
    /// all, with those behind each of them that were here before.
    pub known: usize,
    /// Whether units that nobody has touched become this node's ([`FirstTouch::Late`]).
    pub claims: bool,
}

impl PrefetchPlan {
    /// The faulting unit alone.
    pub const NOTHING: PrefetchPlan = PrefetchPlan { units: 1, stride: 1, known: 1, claims: false };
}

/// What a faulting thread does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Try the access again.
    Mapped,
    /// Send a fetch for these pages to the home, then wait.
    Fetch {
        /// The home.
        home: NodeId,
        /// Whole units, the faulting one first; all are in state `Fetching` now.
        runs: Vec<Range<PageNo>>,
        /// Whether untouched units may be claimed.
        claim: bool,
    },
    /// Wait until woken: another thread fetches the unit.
    Wait,
    /// The page was written although the program declared it read-only.
    ReadOnly,
}

/// Where flushed diffs go.
pub trait DiffSink {
    /// The diff of the unit that begins at `page`, for its home.
    fn diff(&mut self, home: NodeId, page: PageNo, diff: &[u8]);
    /// Whether what changed in units of this home may be stored into its memory now
    /// ([`PageMemory::put`](super::PageMemory::put)).
    fn puts(&mut self, _home: NodeId) -> bool {
        false
    }
    /// These bytes of a page were stored into its home's memory.
    fn was_put(&mut self, _home: NodeId, _page: PageNo, _marks: &ByteMarks) {}
}

/// The table of a chunk.
#[derive(Clone, Debug)]
pub struct PageTable {
    layout: ChunkLayout,
    units: Vec<Unit>,
    waiters: Vec<(u16, Slot)>,
    read_only: bool,
    /// Its region was freed: see `freed`.
    freed: bool,
    /// No unit is `Unclaimed`.
    all_claimed: bool,
    written: Vec<Range<PageNo>>,
    bytes: Vec<u8>,
    /// When all notes of writes were taken the last time, in closes.
    swept: u32,
    /// Whether a unit may be `DIRTY` or `NOTICE_PENDING`, where writes are noted.
    pending: bool,
    /// The last close found nothing to do and changed nothing: the next one may find something.
    passed_over: bool,
    /// All that a close had to scan is untracked now: the next one may leave the chunk out for good.
    all_untracked: bool,
    /// Whether a unit may be `NOTICED_THIS_EPOCH`.
    may_be_noticed: bool,
    /// How many units are `OFFERED`.
    offered: usize,
    /// Pages whose home this node became, without those that have another home now.
    gained: i64,
    /// Who reads what is written here, by unit.
    readers: SmallLists<Reader>,
    /// How often units were sent in vain of late.
    unused_pushes: u8,
    /// Home pages whose notes may be left, by unit; empty as long as there was none.
    write_history: Vec<WriteHistory>,
    /// Whether the close under way has seen notes of many pages.
    many_seen: bool,
    /// How many writes to copies that ended have met those that were written before, in epoch `returned_in`.
    returned: u8,
    returned_in: u8,
    /// How many pages are still to come of such.
    grouped: u32,
    group_outcome: write_prefetch::GroupOutcome,
    /// What is protected along with others.
    batch_protection: BatchProtection,
    tuning: PageTuning,
}

impl PageTable {
    /// The table of an untouched chunk; `home_of` gives the home of the unit that begins at a page.
    pub fn new(me: NodeId, layout: ChunkLayout, home_of: impl Fn(PageNo) -> NodeId) -> PageTable {
        debug_assert!(layout.pages <= CHUNK_PAGES && layout.pages.is_multiple_of(layout.unit_pages));
        let units = (0..layout.pages / layout.unit_pages).map(|i| {
            let home = home_of(layout.first + i * layout.unit_pages);
            let first_touch = layout.first_touch != FirstTouch::Never;
            let state = match home == me {
                true if first_touch => State::Unclaimed,
                true => State::Home,
                false => State::Invalid,
            };
            let flags = match state {
                State::Home if !layout.write_detection => HAS_COPIES,
                State::Invalid if first_touch => HOME_UNKNOWN,
                _ => 0,
            };
            Unit { state, flags, home, credit: 0, trust: 0, ended: 0 }
        });
        PageTable {
            layout,
            units: units.collect(),
            waiters: Vec::new(),
            read_only: false,
            freed: false,
            all_claimed: layout.first_touch == FirstTouch::Never,
            written: Vec::new(),
            bytes: Vec::new(),
            swept: 0,
            pending: false,
            passed_over: false,
            all_untracked: false,
            may_be_noticed: false,
            offered: 0,
            gained: 0,
            readers: SmallLists::default(),
            unused_pushes: 0,
            write_history: Vec::new(),
            many_seen: false,
            returned: 0,
            returned_in: 0,
            grouped: 0,
            group_outcome: write_prefetch::GroupOutcome::default(),
            batch_protection: BatchProtection::default(),
            tuning: PageTuning::default(),
        }
    }

    /// The same table with these numbers instead of their defaults.
    #[must_use]
    pub fn tuned(mut self, tuning: PageTuning) -> PageTable {
        self.tuning = tuning;
        self
    }

    /// The chunk's shape.
    pub fn layout(&self) -> ChunkLayout {
        self.layout
    }

    /// Declares the chunk's memory read-only from here on: copies are kept without twins.
    pub fn declare_read_only(&mut self) {
        self.read_only = true;
    }

    fn index(&self, page: PageNo) -> usize {
        ((page - self.layout.first) / self.layout.unit_pages) as usize
    }

    fn pages(&self, units: Range<usize>) -> Range<PageNo> {
        let at = |unit: usize| self.layout.first + unit as u32 * self.layout.unit_pages;
        at(units.start)..at(units.end)
    }

    /// The units that a run of pages touches, as far as they are in this chunk.
    fn units_in(&self, pages: &Range<PageNo>) -> Range<usize> {
        let (low, high) = (self.layout.first, self.layout.first + self.layout.pages);
        let (start, end) = (pages.start.clamp(low, high), pages.end.clamp(low, high));
        if start >= end { 0..0 } else { self.index(start)..self.index(end - 1) + 1 }
    }

    /// The unit around `page`, as pages.
    pub fn unit_of(&self, page: PageNo) -> Range<PageNo> {
        let unit = self.index(page);
        self.pages(unit..unit + 1)
    }

    /// The home of the unit around `page`, as far as this node knows.
    pub fn home_of(&self, page: PageNo) -> NodeId {
        self.units[self.index(page)].home
    }

    /// Whether this node is the home of the unit around `page`.
    pub fn is_home(&self, page: PageNo) -> bool {
        self.units[self.index(page)].state == State::Home
    }

    /// Whether the unit around `page` has its home at another node, as far as is known here.
    pub fn is_elsewhere(&self, page: PageNo) -> bool {
        !matches!(self.units[self.index(page)].state, State::Home | State::Unclaimed)
    }

    /// How many pages have their home at this node.
    pub fn home_pages(&self) -> u32 {
        let homes = self.units.iter().enumerate().filter(|(_, unit)| unit.state == State::Home);
        homes.map(|(unit, _)| self.pages(unit..unit + 1)).map(|pages| pages.end - pages.start).sum()
    }

    /// Whether this node can use the unit around `page` without asking.
    pub fn is_here(&self, page: PageNo) -> bool {
        matches!(self.units[self.index(page)].state, State::Home | State::Valid)
    }

    /// Whether the unit around `page` is being fetched.
    pub fn is_fetching(&self, page: PageNo) -> bool {
        self.units[self.index(page)].state == State::Fetching
    }

    /// The first page that is being fetched, if there is one.
    pub fn awaited(&self) -> Option<PageNo> {
        let unit = self.units.iter().position(|unit| unit.state == State::Fetching)?;
        Some(self.pages(unit..unit + 1).start)
    }

    /// Appends what of `pages` is being fetched and has no memory here yet.
    pub fn without_memory(&self, pages: &Range<PageNo>, fresh: &mut Vec<Range<PageNo>>) {
        for unit in self.units_in(pages) {
            if self.units[unit].state == State::Fetching && !self.units[unit].has(RESIDENT) {
                push_range(fresh, self.pages(unit..unit + 1));
            }
        }
    }

    /// Pages that hold or held copies here and whose memory was not given back; home pages are none.
    pub fn cached_pages(&self) -> u32 {
        self.units.iter().filter(|u| u.has(RESIDENT)).count() as u32 * self.layout.unit_pages
    }

    /// Whether an interval's close may find something here.
    pub fn may_be_dirty(&self) -> bool {
        let may = NOTICE_PENDING | OFFERED;
        self.passed_over
            || self.pending
            || self.may_be_noticed
            || self.units.iter().any(|u| Self::is_tracked(u) || u.has(may))
    }

    // ---- accesses

    /// An access of thread `slot` found the page unusable. What it will probably touch next may be fetched with it.
    pub fn fault(
        &mut self,
        cx: &mut Context<'_>,
        slot: Slot,
        page: PageNo,
        access: Access,
        plan: PrefetchPlan,
    ) -> Fault {
        let (unit, me) = (self.index(page), cx.me);
        self.resolve_first_touch(cx, unit, me);
        match self.units[unit].state {
            // The access finds that the region was freed when it is tried again.
            State::Home if self.freed => Fault::Mapped,
            State::Home => self.home_fault(cx, unit, access, plan),
            State::Valid => self.valid_fault(cx, unit, access, plan),
            State::Fetching => {
                self.waiters.push((unit as u16, slot));
                Fault::Wait
            }
            State::Invalid | State::Unclaimed => {
                let used = &mut self.units[unit];
                used.credit = used.trust;
                used.trust = (used.trust * 2).clamp(1, self.tuning.trust_max);
                self.distrust(cx, unit);
                self.units[unit].set(WRITE_FETCH, access == Access::Write);
                if self.predicts_group_write(cx, unit, access, plan) {
                    return self.begin_group_fetch(cx, unit);
                }
                let units = if access == Access::Write { self.as_many_as_before(unit, plan) } else { plan.units };
                self.begin_fetch(unit, PrefetchPlan { units, ..plan })
            }
        }
    }

    fn valid_fault(&mut self, cx: &mut Context<'_>, unit: usize, access: Access, plan: PrefetchPlan) -> Fault {
        let pages = self.pages(unit..unit + 1);
        if self.read_only {
            self.units[unit].set(UNTRACKED, false);
            cx.memory.map_read(pages);
            return if access == Access::Write { Fault::ReadOnly } else { Fault::Mapped };
        }
        if self.units[unit].has(UNTRACKED) {
            self.remap(cx, unit, access, plan);
        } else if cx.memory.notes_writes() {
            // The kernel took the page table entry away, and with it perhaps the note of a write.
            if Rule::SpuriousFaultCountsAsWritten.on() { cx.memory.map_write(pages) } else { cx.memory.map_read(pages) }
        } else if self.units[unit].has(DIRTY) {
            cx.memory.map_write(pages);
        } else if access == Access::Write {
            cx.memory.make_twin(pages.clone(), false);
            cx.tally.twins_made += 1;
            self.units[unit].set(DIRTY, true);
            cx.memory.map_write(pages);
        } else {
            cx.memory.map_read(pages);
        }
        Fault::Mapped
    }

    fn begin_fetch(&mut self, unit: usize, plan: PrefetchPlan) -> Fault {
        if plan.stride != 1 {
            return self.begin_strided_fetch(unit, plan);
        }
        let (home, claim) = (self.units[unit].home, self.claims(unit, plan));
        let mut end = unit;
        for count in 0..plan.units.max(plan.known).max(1) {
            // Whether or not the thread seems to go that way, it did last time.
            let guessed = count < plan.units.max(1);
            let wanted = |u: &Unit| u.state == State::Invalid && u.home == home && (guessed || u.credit > 0);
            if !self.units.get(end).is_some_and(wanted) || self.claims(end, plan) != claim {
                break;
            }
            let this = &mut self.units[end];
            this.state = State::Fetching;
            if !guessed {
                this.credit -= 1;
            }
            end += 1;
        }
        Fault::Fetch { home, runs: vec![self.pages(unit..end)], claim }
    }

    /// Units with a stride, and what lies between them as far as it was here before: a thread that goes through a
    /// matrix by columns comes back for the next ones.
    fn begin_strided_fetch(&mut self, unit: usize, plan: PrefetchPlan) -> Fault {
        let (home, claim) = (self.units[unit].home, self.claims(unit, plan));
        let most = plan.units.max(plan.known).max(1);
        let (mut runs, mut fetched, mut at) = (Vec::new(), 0, Some(unit));
        for _ in 0..plan.units.max(1) {
            let wanted = |u: &Unit| u.state == State::Invalid && u.home == home;
            let here = |i: &usize| self.units.get(*i).is_some_and(wanted) && self.claims(*i, plan) == claim;
            let Some(next) = at.filter(|i| fetched < most && here(i)) else { break };
            let between = (next + 1..self.units.len()).take(plan.stride.unsigned_abs() - 1);
            let here_before = |i: &usize| here(i) && self.units[*i].has(RESIDENT);
            let end = next + 1 + between.take(most - fetched - 1).take_while(here_before).count();
            self.units[next..end].iter_mut().for_each(|u| u.state = State::Fetching);
            fetched += end - next;
            push_range(&mut runs, self.pages(next..end));
            at = next.checked_add_signed(plan.stride);
        }
        Fault::Fetch { home, runs, claim }
    }

    /// How many units to fetch for a write, the faulting one included: where a thread writes to more places in turn
    /// than its memory of streams holds (a sort by digits), as many again as are in use before it.
    fn as_many_as_before(&self, unit: usize, plan: PrefetchPlan) -> usize {
        if !self.tuning.extend_writes
            || plan.units > 1
            || plan.known == 1
            || self.layout.first_touch == FirstTouch::Always
        {
            return plan.units;
        }
        let claims = self.claims(unit, plan);
        let here = |u: &&Unit| matches!(u.state, State::Valid | State::Fetching) || (claims && u.has(MAPPED));
        let before = self.units[..unit].iter().rev().take(self.tuning.extend_writes_units_max);
        1 + before.take_while(here).count()
    }

    /// Begins to fetch what a thread will probably touch next, before it does; `None` when it is here or on its way.
    pub fn run_ahead(&mut self, page: PageNo, plan: PrefetchPlan) -> Option<(NodeId, Vec<Range<PageNo>>)> {
        let unit = self.index(page);
        if self.units[unit].state != State::Invalid || self.claims(unit, plan) {
            return None;
        }
        match self.begin_fetch(unit, plan) {
            Fault::Fetch { home, runs, .. } => Some((home, runs)),
            _ => None,
        }
    }

    /// Begins to fetch ahead: units in `pages` that are invalid, and that were used while they were here. Tells `ask`
    /// of each, with its home.
    pub fn fetch_ahead(&mut self, pages: &Range<PageNo>, mut ask: impl FnMut(NodeId, Range<PageNo>)) {
        for unit in self.units_in(pages) {
            let this = &mut self.units[unit];
            if this.state == State::Invalid && this.credit > 0 {
                this.credit -= 1;
                this.state = State::Fetching;
                let home = this.home;
                ask(home, self.pages(unit..unit + 1));
            }
        }
    }

    /// The bytes of `pages` have come (whole units of this chunk). What is not being fetched keeps its state: a
    /// late answer never lands in a valid page.
    pub fn on_pages(&mut self, cx: &mut Context<'_>, pages: Range<PageNo>, bytes: &[u8]) {
        if self.freed {
            return self.on_freed(cx, &pages);
        }
        let bytes_of = |run: &Range<PageNo>| {
            let at = |page: PageNo| (page - pages.start) as usize * PAGE_BYTES;
            &bytes[at(run.start)..at(run.end)]
        };
        // Twins of pages that come in longer runs are not looked at soon.
        let few = self.tuning.few_pages;
        let many = pages.end - pages.start > few || self.grouped > few;
        self.grouped = self.grouped.saturating_sub(pages.end - pages.start);
        // What never was here, and what has memory here already.
        let (mut fresh, mut held) = (Runs::new(), Runs::new());
        for unit in self.units_in(&pages) {
            if !self.becomes_valid(cx, unit) {
                continue;
            }
            let at = self.pages(unit..unit + 1);
            if self.units[unit].has(INVALID_MAPPED) {
                cx.memory.renew(at.clone(), bytes_of(&at));
                self.units[unit].set(INVALID_MAPPED, false);
                continue;
            }
            let has_memory = self.units[unit].has(RESIDENT | PREMAPPED);
            push_range(if has_memory { &mut held } else { &mut fresh }, at);
            if !self.units[unit].has(RESIDENT) {
                self.units[unit].set(RESIDENT, true);
                cx.tally.held += i64::from(self.layout.unit_pages);
            }
        }
        let (unit_pages, twins) = (self.layout.unit_pages, cx.memory.notes_writes() && !self.read_only);
        let twins_of = |run: &Range<PageNo>| u64::from(if twins { (run.end - run.start) / unit_pages } else { 0 });
        for run in fresh {
            if cx.memory.fill(run.clone(), unit_pages, bytes_of(&run), twins, many) {
                cx.tally.twins_made += twins_of(&run);
            } else {
                push_range(&mut held, run);
            }
        }
        for run in &held {
            match twins {
                true => cx.memory.install_with_twins(run.clone(), unit_pages, bytes_of(run), many),
                false => cx.memory.install(run.clone(), bytes_of(run)),
            }
            cx.tally.twins_made += twins_of(run);
        }
        held.into_iter().for_each(|run| self.map_arrived(cx, run));
        let units = self.units_in(&pages);
        self.units[units].iter_mut().for_each(|unit| unit.set(WRITE_FETCH | PREMAPPED, false));
        self.wake_waiters(cx, &pages);
    }

    /// The bytes of a unit have come: whether they are wanted. Then it is valid from now on.
    fn becomes_valid(&mut self, cx: &mut Context<'_>, unit: usize) -> bool {
        let this = &mut self.units[unit];
        if this.state != State::Fetching && Rule::LatePagesAreDropped.on() {
            return false;
        }
        let void = this.has(FETCH_CANCELLED) && Rule::NoticeVoidsFetch.on();
        this.set(FETCH_CANCELLED, false);
        if void {
            self.unmap_premapped(cx, unit);
            self.units[unit].state = State::Invalid;
            cx.tally.void_fetches += 1;
            return false;
        }
        this.state = State::Valid;
        this.set(HOME_UNKNOWN, false);
        cx.tally.pages_fetched += u64::from(self.layout.unit_pages);
        true
    }

    /// Lets threads have pages whose bytes are in place now.
    fn map_arrived(&mut self, cx: &mut Context<'_>, run: Range<PageNo>) {
        match self.units[self.units_in(&run)].iter().all(|unit| unit.has(PREMAPPED)) {
            // Who shared pages around it has perhaps passed it over, as one that is not mapped.
            true if Rule::PremappedPagesAreTracked.on() => cx.memory.track(run),
            true => {}
            false => self.map_installed(cx, run),
        }
    }

    fn wake_waiters(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>) {
        let units = self.units_in(pages);
        for (_, slot) in self.waiters.extract_if(.., |(unit, _)| units.contains(&usize::from(*unit))) {
            cx.wake(slot);
        }
    }

    // ---- releases

    /// Finds what was written in `units` and marks it; what is mapped is protected and clean afterwards.
    fn collect(&mut self, cx: &mut Context<'_>, units: Range<usize>) {
        if !cx.memory.notes_writes() {
            return;
        }
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        cx.memory.collect(self.pages(units), &mut written);
        for pages in &written {
            let units = self.units_in(pages);
            // Notes of pages that concern nobody are taken too. Who took such a page before that may have missed what
            // they tell of.
            self.collect_gets(cx, units.clone());
            for unit in units.clone() {
                self.forget_note(unit);
                self.drop_home_twin(cx, unit);
            }
            for tracked in self.units[units].iter_mut().filter(|u| Self::is_tracked(u)) {
                tracked.set(DIRTY, true);
                self.pending = true;
            }
        }
        self.written = written;
    }

    /// Sends what changed in a written copy to its home. The unit is no longer dirty, and stays to be told.
    fn flush_unit(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        if self.read_only && self.was_changed(cx, unit) {
            cx.tally.read_only_writes += 1;
        }
        let changed = if self.read_only { 0 } else { self.flush_to_home(cx, unit, flush) };
        self.units[unit].set(DIRTY, false);
        self.record_outcome(unit, changed > 0);
        if changed > 0 {
            self.group_outcome.count();
            cx.tally.diffs_made += 1;
            cx.tally.diff_bytes += changed as u64;
            // Whoever writes a copy uses it, and after the second time will probably do so again.
            let this = &mut self.units[unit];
            this.credit = this.credit.max(this.trust);
            this.trust = this.trust.max(1);
            this.set(WRITTEN_BEFORE, true);
            if Rule::FlushedPagesStayNoted.on() {
                self.pending = true;
                self.units[unit].set(NOTICE_PENDING, true);
            }
        }
    }

    /// Whether the kernel's note tells of a change, in memory declared read-only: one of before may have been left, but
    /// then there is a twin.
    fn was_changed(&self, cx: &mut Context<'_>, unit: usize) -> bool {
        let pages = self.pages(unit..unit + 1);
        !cx.memory.has_twin(pages.clone()) || cx.memory.update_twin(pages)
    }

    /// What changed in a copy goes to its home, at once or as a diff; gives the number of bytes.
    fn flush_to_home(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) -> usize {
        let (home, pages) = (self.units[unit].home, self.pages(unit..unit + 1));
        if flush.puts(home) {
            let put = cx.memory.put(home, pages.clone(), &mut |page, marks| flush.was_put(home, page, marks));
            if let Some(changed) = put {
                cx.tally.diffs_applied += u64::from(changed > 0);
                return changed;
            }
        }
        self.bytes.clear();
        let changed = cx.memory.diff(pages.clone(), &mut self.bytes);
        if changed > 0 {
            flush.diff(home, pages.start, &self.bytes);
        }
        changed
    }

    /// Whether the kernel's notes about the unit count: a copy, or a home page that others hold.
    fn is_tracked(unit: &Unit) -> bool {
        (unit.state == State::Valid && !unit.has(UNTRACKED))
            || unit.has(INVALID_MAPPED)
            || (unit.state == State::Home && unit.has(HAS_COPIES) && unit.has(MAPPED))
    }
}

/// Adds a unit behind others, as part of the last run where they touch.
fn add_unit(runs: &mut Vec<Range<usize>>, unit: usize) {
    match runs.last_mut() {
        Some(last) if last.end == unit => last.end += 1,
        _ => runs.push(unit..unit + 1),
    }
}
