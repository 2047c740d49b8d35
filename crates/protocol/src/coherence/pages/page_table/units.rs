//! The units of one page table: which pages they are, and what is known of each.

use super::ChunkLayout;
use super::state::UnitState;
use crate::coherence::pages::policy::Predictor;
use crate::coherence::pages::policy::reuse::{self, Reuse};
use crate::coherence::pages::{PageNo, RunList, push_range};
use crate::ids::NodeId;
use crate::tuning::PageTuning;
use std::ops::{Deref, DerefMut, Range};

/// A unit of a page table: the pages that share a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unit {
    /// The home, as far as this node knows.
    pub(super) home: NodeId,
    pub(super) state: UnitState,
    pub(super) notices: Notices,
    pub(super) reuse: Reuse,
}

/// What this node has to tell others of a unit, and what it has told them in this epoch.
///
/// A node writes a copy, or carries out an atomic operation at its home: it *owes* a notice. The close pays it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Notices(u8);

impl Notices {
    /// Flushed in the open interval, and so to be named in its notices.
    const FLUSHED: u8 = 1;
    /// Atomic operations of this node have changed the unit at its home in the open interval.
    const ATOMIC: u8 = 2;
    /// Told of in this epoch; at the home: and not copied out since.
    const TOLD: u8 = 4;
    /// A copy that was told of in several intervals of this epoch, where the kernel notes writes: its note is not
    /// taken, and it is compared with its twin at each close. Only with `TOLD`.
    const LEFT_WRITABLE: u8 = 8;

    /// Whether the open interval has to tell of the unit, or will after a look at `ATOMIC`.
    pub fn are_owed(self) -> bool {
        self.0 & (Notices::FLUSHED | Notices::ATOMIC) != 0
    }

    /// Whether something was flushed of which no interval has told.
    pub fn are_flushed(self) -> bool {
        self.0 & Notices::FLUSHED != 0
    }

    /// Something was flushed: the interval's end tells of it.
    pub fn flush(&mut self) {
        self.0 |= Notices::FLUSHED;
    }

    /// An atomic operation has changed the unit at its home.
    pub fn change_at_home(&mut self) {
        self.0 |= Notices::ATOMIC;
    }

    /// The interval ends: whether atomic operations have changed the unit.
    pub fn take_atomics(&mut self) -> bool {
        let were = self.0 & Notices::ATOMIC != 0;
        self.0 &= !Notices::ATOMIC;
        were
    }

    /// The interval ends: whether it tells of the unit.
    pub fn tell(&mut self) -> bool {
        let owed = self.are_flushed();
        if owed {
            self.0 = self.0 & !Notices::FLUSHED | Notices::TOLD;
        }
        owed
    }

    /// The home tells of a write of its own; `now`, or it forgets to (no correct node does).
    pub fn tell_of_home(&mut self, now: bool) {
        self.0 |= if now { Notices::TOLD | Notices::FLUSHED } else { Notices::TOLD };
    }

    /// Whether it was told of in this epoch.
    pub fn are_told(self) -> bool {
        self.0 & Notices::TOLD != 0
    }

    /// The epoch is over, or the unit was copied out.
    pub fn end_epoch(&mut self) -> bool {
        let were = self.are_told();
        self.0 &= !(Notices::TOLD | Notices::LEFT_WRITABLE);
        were
    }

    /// Whether the copy stays writable until the epoch ends.
    pub fn is_left_writable(self) -> bool {
        self.0 & Notices::LEFT_WRITABLE != 0
    }

    /// Whether it does from now on. It must have been told of.
    pub fn set_left_writable(&mut self, on: bool) {
        debug_assert!(self.are_told() || !on, "told of for the first time");
        self.0 = self.0 & !Notices::LEFT_WRITABLE | if on { Notices::LEFT_WRITABLE } else { 0 };
    }
}

impl Unit {
    /// The home, as far as this node knows.
    pub fn home(&self) -> NodeId {
        self.home
    }

    /// Whether this node is the home.
    pub fn is_home(&self) -> bool {
        self.state.is_home()
    }

    /// Whether the home is another node, as far as is known here.
    pub fn is_elsewhere(&self) -> bool {
        !matches!(self.state, UnitState::Home(_) | UnitState::Unclaimed)
    }

    /// Whether this node can use the unit without asking.
    pub fn is_here(&self) -> bool {
        matches!(self.state, UnitState::Home(_) | UnitState::Valid(_))
    }

    /// Whether the unit is being fetched.
    pub fn is_fetching(&self) -> bool {
        self.state.is_fetching()
    }

    /// Whether mapping this unit obliges this node to tell others what it writes to it, or may do so: a copy, or a home
    /// page that others hold.
    pub fn may_need_notices(&self) -> bool {
        match self.state {
            UnitState::Fetching(_) | UnitState::Valid(_) => true,
            UnitState::Home(home) => home.is_shared(),
            UnitState::Invalid(_) | UnitState::Stale(_) | UnitState::Unclaimed => false,
        }
    }

    /// Whether it is at home here, unmapped, and nobody has a copy.
    pub(super) fn is_plain(&self) -> bool {
        self.state.is_private() && !self.state.is_mapped_home()
    }

    /// Another node has written the unit; whether its home is here, where nothing ends.
    pub(super) fn is_home_written_elsewhere(&mut self) -> bool {
        let home = self.state.home_mut();
        home.map(|home| home.writers.others_write()).is_some()
    }

    /// Whether a close would find something here without a look at the kernel's notes.
    pub(super) fn has_work(&self) -> bool {
        self.notices.are_owed() || self.state.is_dirty() || self.state.is_assumed_dirty()
    }
}

/// The units of one page table, by their place in it.
#[derive(Clone, Debug)]
pub struct Units {
    pub(super) layout: ChunkLayout,
    pub(super) tuning: PageTuning,
    units: Vec<Unit>,
}

impl Deref for Units {
    type Target = [Unit];
    fn deref(&self) -> &[Unit] {
        &self.units
    }
}

impl DerefMut for Units {
    fn deref_mut(&mut self) -> &mut [Unit] {
        &mut self.units
    }
}

impl Units {
    pub(super) fn new(layout: ChunkLayout, unit: impl FnMut(PageNo) -> Unit) -> Units {
        let firsts = (0..layout.pages / layout.unit_pages).map(|i| layout.first + i * layout.unit_pages);
        Units { layout, tuning: PageTuning::DEFAULT, units: firsts.map(unit).collect() }
    }

    /// Something has happened to a unit that says whether it will be used again.
    pub(super) fn observe_use(&mut self, unit: usize, event: reuse::Event) {
        self.units[unit].reuse.observe(&self.tuning, event);
    }

    /// Whether a unit that is not here will probably be used soon.
    pub(super) fn is_used_again(&self, unit: usize) -> bool {
        let mut reuse = self.units[unit].reuse;
        reuse.predict(&self.tuning, ())
    }

    /// A unit of which this node has a copy or is the home, and is neither any more: what was to be told of it is void.
    pub(super) fn reset(&mut self, unit: usize, state: UnitState) {
        self.observe_use(unit, reuse::Event::Replaced);
        let this = &mut self.units[unit];
        (this.state, this.notices) = (state, Notices::default());
    }

    pub(super) fn index(&self, page: PageNo) -> usize {
        ((page - self.layout.first) / self.layout.unit_pages) as usize
    }

    pub(super) fn pages(&self, units: Range<usize>) -> Range<PageNo> {
        let at = |unit: usize| self.layout.first + unit as u32 * self.layout.unit_pages;
        at(units.start)..at(units.end)
    }

    pub(super) fn pages_of(&self, unit: usize) -> Range<PageNo> {
        self.pages(unit..unit + 1)
    }

    /// All pages of the table.
    pub(super) fn all_pages(&self) -> Range<PageNo> {
        self.layout.first..self.layout.first + self.layout.pages
    }

    /// The units that a run of pages touches, as far as they are in this table.
    pub(super) fn within(&self, pages: &Range<PageNo>) -> Range<usize> {
        let all = self.all_pages();
        let (start, end) = (pages.start.clamp(all.start, all.end), pages.end.clamp(all.start, all.end));
        if start >= end { 0..0 } else { self.index(start)..self.index(end - 1) + 1 }
    }

    /// The unit around `page`, as pages.
    pub fn unit_of(&self, page: PageNo) -> Range<PageNo> {
        self.pages_of(self.index(page))
    }

    /// How many pages have their home at this node.
    pub fn home_pages(&self) -> u32 {
        self.iter().filter(|unit| unit.is_home()).count() as u32 * self.layout.unit_pages
    }

    /// Pages that hold or held copies here and whose memory was not given back; home pages are none.
    pub fn cached_pages(&self) -> u32 {
        self.iter().filter(|unit| unit.state.has_memory()).count() as u32 * self.layout.unit_pages
    }

    /// The first page that is being fetched, if there is one.
    pub fn awaited(&self) -> Option<PageNo> {
        let unit = self.iter().position(Unit::is_fetching)?;
        Some(self.pages_of(unit).start)
    }

    /// Appends what of `pages` is being fetched and has no memory here yet.
    pub fn without_memory(&self, pages: &Range<PageNo>, fresh: &mut impl RunList) {
        for unit in self.within(pages).filter(|unit| self[*unit].is_fetching()) {
            if !self[unit].state.has_memory() {
                push_range(fresh, self.pages_of(unit));
            }
        }
    }

    /// Whether something was flushed of which no interval has told yet. If the region is freed now, none ever will.
    pub fn has_flushed(&self) -> bool {
        self.iter().any(|unit| unit.notices.are_flushed())
    }

    /// Whether there are copies here that an invalidation of `pages` would end.
    pub fn has_copies(&self, pages: &Range<PageNo>) -> bool {
        self[self.within(pages)].iter().any(|unit| unit.state.is_valid())
    }

    /// Where writes raise faults: whether a close would find anything here.
    pub fn has_pending_notices(&self) -> bool {
        self.iter().any(Unit::has_work)
    }
}
