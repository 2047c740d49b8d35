//! The page table of one chunk: what this node has of each of its units, with the page table entries and the twins.
//!
//! `state` has the states of a unit and the table of transitions. The steps here take several units through them, and
//! do to the memory what that asks for. What they presume stands in [`policy`](super::policy). What they keep has
//! owners of its own:
//!
//! | part | keeps |
//! |---|---|
//! | [`units`] | the units: their homes, states, what is to be told of them, how they were used |
//! | `fetch_plan` | nothing: which units a fetch brings |
//! | [`interval_end`] | what a close or a barrier may find here |
//! | `offers` | which units other nodes may take |
//! | `kept_diffs` | where diffs stay with their writers: what this node wrote, and what each copy has and lacks |
//! | `multicast` | where diffs are told to sets: what the next arrival says of copysets |
//! | `first_touch` | how many homes this node has won and lost |

use super::kept_diffs::{Ask, Stamp};
use super::policy::batch_protect::BatchProtect;
use super::policy::push_predictor::PushPredictor;
use super::policy::write_predictor::{self, WritePredictor};
use super::policy::write_prefetch::{self, WritePrefetch};
use super::policy::{Predictor, reuse};
use super::{Access, ByteMarks, CHUNK_PAGES, Context, PAGE_BYTES, PageEngine, PageNo};
use crate::ids::{NodeId, Slot};
use crate::rules::Rule;
use crate::tuning::PageTuning;
use first_touch::GainedHomes;
use interval_end::CloseState;
use kept_diffs::KeptUnits;
use multicast::SetTable;
use offers::Offers;
use premap::map_installed;
use smallvec::SmallVec;
use state::{CopyState, Home, Memory, Target, UnitState};
use std::ops::Range;
use units::{Notices, Unit, Units};

pub mod atomic;
mod fetch_plan;
mod first_touch;
mod forbid_writes;
mod freed;
mod home;
mod home_map;
mod home_twin;
pub mod interval_end;
mod invalidate;
mod kept_diffs;
mod migration;
pub mod multicast;
mod offers;
mod piggyback;
pub mod placement;
mod premap;
mod push;
mod state;
#[cfg(test)]
mod state_tests;
pub mod units;
mod untrack_idle;
mod update_in_place;

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

impl Default for PrefetchPlan {
    fn default() -> PrefetchPlan {
        PrefetchPlan::NOTHING
    }
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
    /// Send these requests for a unit whose diffs stay with their writers, then wait.
    Ask(Vec<(NodeId, Ask)>),
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
    /// ([`OneSidedMemory::put`](super::OneSidedMemory::put)).
    fn puts(&mut self, _home: NodeId) -> bool {
        false
    }
    /// These bytes of a page were stored into its home's memory.
    fn was_put(&mut self, _home: NodeId, _page: PageNo, _marks: &ByteMarks) {}
    /// The stamp of a diff that stays here: later than all before, and no later than that of its interval.
    fn stamp(&mut self) -> Stamp {
        0
    }
}

/// The table of a chunk.
#[derive(Clone, Debug)]
pub struct PageTable {
    units: Units,
    waiters: Waiters,
    read_only: bool,
    /// Its region was freed: see `freed`.
    freed: bool,
    /// No unit is `Unclaimed`.
    all_claimed: bool,
    /// Room for what the kernel notes, and for a diff.
    written: Vec<Range<PageNo>>,
    bytes: Vec<u8>,
    close_state: CloseState,
    offers: Offers,
    gained: GainedHomes,
    push_predictor: PushPredictor,
    write_predictor: WritePredictor,
    write_prefetch: WritePrefetch,
    batch_protect: BatchProtect,
    /// Where diffs stay with their writers: what is kept of each unit.
    kept: Option<Box<KeptUnits>>,
    /// Where they are told to sets.
    sets: Option<Box<SetTable>>,
}

/// Threads that wait for units, by the units' places.
#[derive(Clone, Default, Debug)]
struct Waiters(Vec<(u16, Slot)>);

impl Waiters {
    fn add(&mut self, unit: usize, slot: Slot) {
        self.0.push((unit as u16, slot));
    }

    /// As [`Waiters::add`], for a thread that may be among them.
    fn add_once(&mut self, unit: usize, slot: Slot) {
        if !self.0.contains(&(unit as u16, slot)) {
            self.add(unit, slot);
        }
    }

    /// Whether a thread waits for this unit.
    fn has(&self, unit: usize) -> bool {
        self.0.iter().any(|(of, _)| usize::from(*of) == unit)
    }

    fn wake(&mut self, cx: &mut Context<'_>, units: &Range<usize>) {
        for (_, slot) in self.0.extract_if(.., |(unit, _)| units.contains(&usize::from(*unit))) {
            cx.wake(slot);
        }
    }
}

/// Units side by side whose bytes have come.
struct Arrived {
    pages: Range<PageNo>,
    /// All of them are mapped already.
    premapped: bool,
    /// All of them are about to be written.
    for_store: bool,
}

impl Arrived {
    /// Adds units behind others, as part of the last run where they touch.
    fn add_to(self, runs: &mut SmallVec<[Arrived; 2]>) {
        match runs.last_mut() {
            Some(last) if last.pages.end == self.pages.start => {
                last.pages.end = self.pages.end;
                last.premapped &= self.premapped;
                last.for_store &= self.for_store;
            }
            _ => runs.push(self),
        }
    }

    /// Lets threads have pages whose bytes are in place now.
    fn map(self, cx: &mut Context<'_>) {
        match self.premapped {
            // Who shared pages around it has perhaps passed it over, as one that is not mapped.
            true if Rule::PremappedPagesAreTracked.on() => cx.memory.track(self.pages),
            true => {}
            false => map_installed(cx, self.pages, self.for_store),
        }
    }
}

impl PageTable {
    /// The table of an untouched chunk; `home_of` gives the home of the unit that begins at a page.
    pub fn new(me: NodeId, layout: ChunkLayout, home_of: impl Fn(PageNo) -> NodeId) -> PageTable {
        debug_assert!(layout.pages <= CHUNK_PAGES && layout.pages.is_multiple_of(layout.unit_pages));
        let keeps = layout.engine.keeps_diffs();
        // Managers stay where the layout says.
        let layout = if keeps { ChunkLayout { first_touch: FirstTouch::Never, ..layout } } else { layout };
        let first_touch = layout.first_touch != FirstTouch::Never;
        let units = Units::new(layout, |page| {
            let home = home_of(page);
            let state = match home == me && !keeps {
                true if first_touch => UnitState::Unclaimed,
                true => UnitState::Home(Home::new(layout.write_detection, false)),
                false => UnitState::Invalid(if first_touch { Memory::Unheard } else { Memory::None }),
            };
            Unit { state, home, notices: Notices::default(), reuse: reuse::Reuse::default() }
        });
        PageTable {
            units,
            waiters: Waiters::default(),
            read_only: false,
            freed: false,
            all_claimed: !first_touch,
            written: Vec::new(),
            bytes: Vec::new(),
            close_state: CloseState::default(),
            offers: Offers::default(),
            gained: GainedHomes::default(),
            push_predictor: PushPredictor::default(),
            write_predictor: WritePredictor::default(),
            write_prefetch: WritePrefetch::default(),
            batch_protect: BatchProtect::default(),
            kept: keeps.then(|| Box::new(KeptUnits::new((layout.pages / layout.unit_pages) as usize))),
            sets: layout.engine.tells_sets().then(Box::default),
        }
    }

    /// The same table with these numbers instead of their defaults.
    #[must_use]
    pub fn tuned(mut self, tuning: PageTuning) -> PageTable {
        self.units.tuning = tuning;
        self
    }

    /// The chunk's shape.
    pub fn layout(&self) -> ChunkLayout {
        self.units.layout
    }

    /// The chunk's units.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// The unit around `page`.
    pub fn unit(&self, page: PageNo) -> &Unit {
        &self.units[self.units.index(page)]
    }

    /// Declares the chunk's memory read-only from here on: copies are kept without twins.
    pub fn declare_read_only(&mut self) {
        self.read_only = true;
    }

    // ---- accesses

    /// Whether the unit with this page is being fetched: the end of that wakes the thread.
    pub fn wait_for_fetch(&mut self, slot: Slot, page: PageNo) -> bool {
        let unit = self.units.index(page);
        let fetching = self.units[unit].is_fetching();
        if fetching {
            self.waiters.add_once(unit, slot);
        }
        fetching
    }

    /// An access of thread `slot` found the page unusable. What it will probably touch next may be fetched with it.
    pub fn fault(
        &mut self,
        cx: &mut Context<'_>,
        slot: Slot,
        page: PageNo,
        access: Access,
        plan: PrefetchPlan,
    ) -> Fault {
        let (unit, me) = (self.units.index(page), cx.me);
        if access == Access::Write {
            self.allow_writes(cx);
        }
        self.resolve_first_touch(cx, unit, me);
        match self.units[unit].state {
            // The access finds that the region was freed when it is tried again.
            UnitState::Home(_) if self.freed => Fault::Mapped,
            UnitState::Home(_) => self.home_fault(cx, unit, access, plan),
            UnitState::Valid(copy) => self.valid_fault(cx, (unit, copy), access, plan),
            UnitState::Fetching(_) => {
                self.waiters.add(unit, slot);
                Fault::Wait
            }
            UnitState::Invalid(_) | UnitState::Stale(_) | UnitState::Unclaimed => {
                self.units.observe_use(unit, reuse::Event::Missed(cx.sync_phase.epoch()));
                if self.keeps_diffs() {
                    return self.kept_fault(cx, unit, access);
                }
                if self.is_all_written_again(cx.sync_phase, (unit, access), plan) {
                    return self.begin_fetch_of_written(cx.sync_phase, unit);
                }
                let write = access == Access::Write;
                let units = if write { self.units.units_for_write(unit, plan) } else { plan.units };
                self.units.begin_fetch((unit, write), PrefetchPlan { units, ..plan })
            }
        }
    }

    fn valid_fault(
        &mut self,
        cx: &mut Context<'_>,
        (unit, copy): (usize, CopyState),
        access: Access,
        plan: PrefetchPlan,
    ) -> Fault {
        let pages = self.units.pages_of(unit);
        if self.read_only {
            self.units[unit].state.touch();
            cx.memory.map_read(pages);
            return if access == Access::Write { Fault::ReadOnly } else { Fault::Mapped };
        }
        if copy == CopyState::Untracked {
            self.units.remap(cx, unit, access, plan);
        } else if cx.memory.notes_writes() {
            // The kernel took the page table entry away, and with it perhaps the note of a write.
            let counts = Rule::SpuriousFaultCountsAsWritten.on() && !self.lacks_twin(cx, unit);
            if counts { cx.memory.map_write(pages) } else { cx.memory.map_read(pages) }
        } else if copy == CopyState::Dirty {
            cx.memory.map_write(pages);
        } else if access == Access::Write {
            cx.memory.make_twin(pages.clone(), false);
            cx.tally.twins_made += 1;
            self.units[unit].state.set_dirty(true);
            cx.memory.map_write(pages);
        } else {
            cx.memory.map_read(pages);
        }
        Fault::Mapped
    }

    /// Begins to fetch what a thread will probably touch next, before it does; `None` when it is here or on its way.
    pub fn run_ahead(&mut self, page: PageNo, plan: PrefetchPlan) -> Option<(NodeId, Vec<Range<PageNo>>)> {
        let unit = self.units.index(page);
        if !self.units[unit].state.is_absent() || self.units.claims(unit, plan) || self.keeps_diffs() {
            return None;
        }
        match self.units.begin_fetch((unit, false), plan) {
            Fault::Fetch { home, runs, .. } => Some((home, runs)),
            _ => None,
        }
    }

    /// Begins to fetch ahead: units in `pages` that are invalid, and that were used while they were here. Tells `ask`
    /// of each, with its home.
    pub fn fetch_ahead(&mut self, pages: &Range<PageNo>, mut ask: impl FnMut(NodeId, Range<PageNo>)) {
        if self.keeps_diffs() {
            return;
        }
        for unit in self.units.within(pages) {
            if self.units[unit].state.is_absent() && self.units.is_used_again(unit) {
                self.units.observe_use(unit, reuse::Event::FetchedAhead);
                let this = &mut self.units[unit];
                this.state.begin_fetch(false);
                let home = this.home;
                ask(home, self.units.pages_of(unit));
            }
        }
    }

    /// The bytes of `pages` have come (whole units of this chunk). What is not being fetched keeps its state: a
    /// late answer never lands in a valid page.
    pub fn on_pages(&mut self, cx: &mut Context<'_>, pages: Range<PageNo>, bytes: &[u8]) {
        if self.freed {
            return self.on_freed(cx, &pages);
        }
        if self.keeps_diffs() {
            return;
        }
        let bytes_of = |run: &Range<PageNo>| {
            let at = |page: PageNo| (page - pages.start) as usize * PAGE_BYTES;
            &bytes[at(run.start)..at(run.end)]
        };
        if cx.memory.notes_writes() {
            self.forbid_writes_of_copies(cx, pages.end - pages.start);
        }
        let grouped = self.write_prefetch.under_way();
        self.write_prefetch.observe(&self.units.tuning, write_prefetch::Event::Arrived(pages.end - pages.start));
        // Twins of pages that come in longer runs are not looked at soon.
        let few = self.units.tuning.few_pages;
        let many = pages.end - pages.start > few || grouped > few;
        // What never was here, and what has memory here already.
        let (mut fresh, mut held) = (SmallVec::new(), SmallVec::new());
        let units = self.units.within(&pages);
        for unit in units.clone() {
            let before = self.units[unit].state;
            if !self.becomes_valid(cx, unit) {
                continue;
            }
            let at = self.units.pages_of(unit);
            if before.stale().is_some() {
                cx.memory.renew(at.clone(), bytes_of(&at));
                continue;
            }
            let fetch = before.fetch();
            let premapped = fetch.is_some_and(|fetch| matches!(fetch.into, Target::Premapped(_)));
            // What counts as written has a twin.
            let for_store = fetch.is_some_and(|fetch| fetch.for_store) && !self.read_only && !self.forbids_writes();
            let has_memory = before.has_memory();
            let runs = if has_memory || premapped { &mut held } else { &mut fresh };
            Arrived { pages: at, premapped, for_store }.add_to(runs);
            if !has_memory {
                cx.tally.held += i64::from(self.units.layout.unit_pages);
            }
        }
        let twins = cx.memory.notes_writes() && !self.read_only && !self.forbids_writes();
        let unit_pages = self.units.layout.unit_pages;
        let twins_of = |run: &Range<PageNo>| u64::from(if twins { (run.end - run.start) / unit_pages } else { 0 });
        for run in fresh {
            let at = run.pages.clone();
            if cx.memory.fill(at.clone(), unit_pages, bytes_of(&at), twins, many) {
                cx.tally.twins_made += twins_of(&at);
            } else {
                run.add_to(&mut held);
            }
        }
        for run in held.iter().map(|run| &run.pages) {
            match twins {
                true => cx.memory.install_with_twins(run.clone(), unit_pages, bytes_of(run), many),
                false => cx.memory.install(run.clone(), bytes_of(run)),
            }
            cx.tally.twins_made += twins_of(run);
        }
        held.into_iter().for_each(|run| run.map(cx));
        self.waiters.wake(cx, &units);
    }

    /// The bytes of a unit have come: whether they are wanted. Then it is valid from now on.
    fn becomes_valid(&mut self, cx: &mut Context<'_>, unit: usize) -> bool {
        let fetch = self.units[unit].state.fetch();
        if fetch.is_none() && Rule::LatePagesAreDropped.on() {
            return false;
        }
        if fetch.is_some_and(|fetch| fetch.cancelled) && Rule::NoticeVoidsFetch.on() {
            self.units.unmap_premapped(cx, unit);
            self.units[unit].state.end_fetch();
            cx.tally.void_fetches += 1;
            return false;
        }
        if !self.units[unit].state.arrive() {
            self.units[unit].state = UnitState::Valid(CopyState::Clean);
        }
        cx.tally.pages_fetched += u64::from(self.units.layout.unit_pages);
        true
    }

    // ---- releases

    /// Finds what was written in `units` and marks it; what is mapped is protected and clean afterwards.
    fn collect(&mut self, cx: &mut Context<'_>, units: Range<usize>) {
        if !cx.memory.notes_writes() {
            return;
        }
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        cx.memory.collect(self.units.pages(units), &mut written);
        for pages in &written {
            let units = self.units.within(pages);
            // Notes of pages that concern nobody are taken too. Who took such a page before that may have missed what
            // they tell of.
            self.offers.collect(cx, &mut self.units, units.clone());
            for unit in units.clone() {
                self.write_predictor.observe(&self.units.tuning, write_predictor::Event::NoteTaken(unit));
                self.units.drop_home_twin(cx, unit);
            }
            for tracked in self.units[units].iter_mut().filter(|unit| unit.state.is_tracked()) {
                tracked.state.set_dirty(true);
                self.close_state.pending = true;
            }
        }
        self.written = written;
    }

    /// Sends what changed in a written copy to its home. The unit is no longer dirty, and stays to be told.
    fn flush_unit(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        let mut changed = 0;
        if self.read_only {
            // A note of before may have been left, but then there is a twin.
            let pages = self.units.pages_of(unit);
            let is_write = !cx.memory.has_twin(pages.clone()) || cx.memory.update_twin(pages);
            cx.tally.read_only_writes += u64::from(is_write);
        } else {
            changed = self.flush_to_home(cx, unit, flush);
        }
        self.units[unit].state.set_dirty(false);
        let outcome = write_predictor::Event::Flushed { unit, changed: changed > 0 };
        self.write_predictor.observe(&self.units.tuning, outcome);
        if changed > 0 {
            self.write_prefetch.observe(&self.units.tuning, write_prefetch::Event::Changed);
            cx.tally.diffs_made += 1;
            cx.tally.diff_bytes += changed as u64;
            self.units.observe_use(unit, reuse::Event::Written);
            if Rule::FlushedPagesStayNoted.on() {
                self.close_state.pending = true;
                self.units[unit].notices.flush();
            }
        }
    }

    /// What changed in a copy goes to its home, at once or as a diff; gives the number of bytes.
    fn flush_to_home(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) -> usize {
        if self.keeps_diffs() {
            return self.keep_changes(cx, unit, flush);
        }
        let (home, pages) = (self.units[unit].home, self.units.pages_of(unit));
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
}

/// Adds a unit behind others, as part of the last run where they touch.
fn add_unit(runs: &mut Vec<Range<usize>>, unit: usize) {
    match runs.last_mut() {
        Some(last) if last.end == unit => last.end += 1,
        _ => runs.push(unit..unit + 1),
    }
}

/// The runs among `seen` (in order) that touch `pages`.
fn part<'a>(seen: &'a [Range<PageNo>], pages: &Range<PageNo>) -> &'a [Range<PageNo>] {
    let here = &seen[seen.partition_point(|run| run.end <= pages.start)..];
    &here[..here.partition_point(|run| run.start < pages.end)]
}
