//! What a chunk's home does for others: says who has a page, shares its pages, takes diffs in.

use super::state::{Detection, Home, Private, Sharing, UnitState, Writers};
use super::units::Unit;
use super::{FirstTouch, PageTable, add_unit};
use crate::coherence::Misbehaved;
use crate::coherence::pages::policy::{Predictor, batch_protect, push_predictor};
use crate::coherence::pages::{Context, PAGE_BYTES, PageNo};
use crate::rules::Rule;
use smallvec::SmallVec;
use std::ops::Range;

impl PageTable {
    /// Whether all of these pages lie in this chunk, are at home here, and can be shared as they are.
    pub fn has_at_home(&self, pages: &Range<PageNo>) -> bool {
        let (all, first_touch) = (self.units.all_pages(), self.units.layout.first_touch);
        let is_here = all.start <= pages.start && pages.end <= all.end && !self.freed;
        // While others are to be settled with it, it is not enough that one is ([`PageTable::lookup`]).
        is_here
            && (self.all_claimed || first_touch != FirstTouch::Late)
            && self.units[self.units.within(pages)].iter().all(Unit::is_home)
    }

    /// Another node takes copies: from now on this home notices its own writes, then the pages are copied in this
    /// order, here or (without `out`) by the other node.
    pub fn share(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], mut out: Option<&mut Vec<u8>>) {
        if self.freed {
            let bytes = runs.iter().map(|run| run.len() * PAGE_BYTES).sum::<usize>();
            return out.into_iter().for_each(|out| out.resize(out.len() + bytes, 0));
        }
        let units: SmallVec<[Range<usize>; 2]> = runs.iter().map(|run| self.units.within(run)).collect();
        if let Some(out) = out.as_deref_mut().filter(|_| !Rule::ProtectBeforeCopyOut.on()) {
            units.iter().for_each(|run| self.units.copy_released(cx, self.units.pages(run.clone()), out));
        }
        let noted = cx.memory.notes_writes();
        // In runs a call protects many, and a copy that ends for nothing costs more than its part of that.
        let alone = units.iter().map(ExactSizeIterator::len).sum::<usize>() == 1;
        let mut unprotected: Vec<Range<usize>> = Vec::new();
        for unit in units.iter().flat_map(Range::clone) {
            if self.needs_protection(cx, unit, alone) {
                add_unit(&mut unprotected, unit);
            }
        }
        let offers = if cx.memory.can_offer() { self.offers.choose(&self.units, &units) } else { Vec::new() };
        let asked = |unit: &usize| units.iter().any(|run| run.contains(unit));
        let unshared = |unit: &&usize| self.units[**unit].state.is_mapped_private() && !asked(unit);
        unprotected.extend(offers.iter().filter(unshared).map(|unit| *unit..unit + 1));
        let mut neighbours = 0..0;
        if let [run] = &mut unprotected[..]
            && alone
            && noted
            && offers.is_empty()
            && cx.sync_phase.is_calm()
        {
            neighbours = self.batch_neighbours(cx.sync_phase.epoch(), run.start);
            *run = neighbours.clone();
        }
        if noted {
            self.protect_with_gaps(cx, unprotected);
        } else {
            unprotected.into_iter().for_each(|run| cx.memory.protect(self.units.pages(run)));
        }
        if !Rule::SharedPagesAreRegarded.on() {
            units.iter().for_each(|run| cx.memory.untrack(self.units.pages(run.clone())));
        }
        for unit in units.iter().flat_map(Range::clone) {
            if let Some(home) = self.units[unit].state.home_mut() {
                home.share(Detection::Protected);
            }
        }
        for unit in neighbours.filter(|unit| !asked(unit)) {
            if let Some(home) = self.units[unit].state.home_mut() {
                home.sharing = Sharing::Private(Private::ProtectedWithNeighbour);
            }
            cx.memory.untrack(self.units.pages_of(unit));
        }
        self.offers.offer(cx, &mut self.units, &offers);
        if let Some(out) = out.filter(|_| Rule::ProtectBeforeCopyOut.on()) {
            units.into_iter().for_each(|run| self.units.copy_released(cx, self.units.pages(run), out));
        }
    }

    /// A unit is about to be copied, by itself (`alone`) or with others: whether it has to be protected first, so that
    /// what is written afterwards is noticed.
    fn needs_protection(&mut self, cx: &mut Context<'_>, unit: usize, alone: bool) -> bool {
        self.units[unit].notices.end_epoch();
        let Some(home) = self.units[unit].state.home().copied().filter(|home| !home.is_shared()) else { return false };
        let kept = home.offered && Rule::OfferedPagesKeepTheirNotes.on();
        if kept || home.is_mapped() && self.write_predictor.is_left(unit) {
            // Somebody may have taken a copy meanwhile: what was written since must not be forgotten. Or nothing need
            // be: it counts as written, or is compared with what is copied now.
            self.units.begin_sharing(cx, unit);
            self.units.renew_home_twin(cx, &self.write_predictor, unit);
            return false;
        }
        let by_itself = alone && !home.offered && cx.sync_phase.is_calm();
        let at_barrier = home.sharing == Sharing::Private(Private::ProtectedAtBarrier);
        if by_itself && (at_barrier || self.was_protected_with_neighbour(cx.sync_phase.epoch(), home)) {
            // The kernel notes what is written since then; more than that nobody who copies now can have to hear of.
            self.units.begin_sharing(cx, unit);
            return false;
        }
        let assumed = self.units.tuning.assume_dirty
            && !cx.memory.notes_writes()
            && home.writers.home_wrote_last_epoch()
            && home.is_mapped();
        if let Some(home) = self.units[unit].state.home_mut().filter(|_| assumed) {
            home.share(Detection::Assumed);
        }
        home.is_mapped() && !assumed
    }

    /// Whether a unit, which is asked for by itself, was protected along with another in this epoch.
    fn was_protected_with_neighbour(&mut self, epoch: u8, home: Home) -> bool {
        let with_neighbour = home.sharing == Sharing::Private(Private::ProtectedWithNeighbour);
        let was = with_neighbour && self.batch_protect.is_of(epoch);
        if was {
            self.batch_protect.observe(&self.units.tuning, batch_protect::Event::Hit);
        }
        was
    }

    /// The units around one that has to be protected, itself included, that are protected with it.
    fn batch_neighbours(&mut self, epoch: u8, unit: usize) -> Range<usize> {
        if !self.batch_protect.is_of(epoch) {
            for home in self.units.iter_mut().filter_map(|unit| unit.state.home_mut()) {
                if home.sharing == Sharing::Private(Private::ProtectedWithNeighbour) {
                    home.sharing = Sharing::Private(Private::Writable);
                }
            }
        }
        let (units, writes) = (&self.units, &self.write_predictor);
        self.batch_protect.observe(&units.tuning, batch_protect::Event::Protects(epoch));
        let reach = self.batch_protect.predict(&units.tuning, ());
        let plain = |at: &usize| {
            let writable = Sharing::Private(Private::Writable);
            let UnitState::Home(Home { sharing, offered, .. }) = units[*at].state else { return false };
            sharing == writable && !offered && !writes.is_left(*at)
        };
        let before = (0..unit).rev().take(reach).take_while(plain).count();
        let behind = (unit + 1..units.len()).take(reach).take_while(plain).count();
        unit - before..unit + 1 + behind
    }

    /// Protects units that are not shared yet. Runs with little between them are taken together, since each call
    /// interrupts every processor that runs this program; what lies between costs its next writer a note in the kernel.
    /// What of it was shared before, or is a copy, may have been written: so the notes are taken along, and kept here.
    fn protect_with_gaps(&mut self, cx: &mut Context<'_>, mut runs: Vec<Range<usize>>) {
        runs.sort_by_key(|run| run.start);
        let (mut gaps, most): (Vec<Range<usize>>, usize) = (Vec::new(), self.units.tuning.protect_gap_units);
        runs.dedup_by(|next, run| {
            let joins = next.start - run.end <= most;
            if joins && next.start > run.end {
                gaps.push(run.end..next.start);
            }
            run.end = if joins { next.end } else { run.end };
            joins
        });
        for run in runs {
            let offers_are_noted = Rule::OfferedPagesKeepTheirNotes.on();
            let plain = |unit: &Unit| unit.state.is_mapped_private() && !(offers_are_noted && unit.state.is_offered());
            let alone = self.units[run.clone()].iter().all(plain);
            if alone {
                cx.memory.protect(self.units.pages(run));
            } else {
                cx.memory.track(self.units.pages(run.clone()));
                self.collect(cx, run);
            }
        }
        // What is written between concerns nobody, unless it did before.
        for unit in gaps.into_iter().flatten().filter(|unit| !self.units[*unit].state.is_tracked()) {
            cx.memory.untrack(self.units.pages_of(unit));
        }
    }

    /// Units that other nodes have taken since this was last called are shared. To be called before a look at what was
    /// written here.
    pub fn collect_remote_gets(&mut self, cx: &mut Context<'_>) {
        let all = 0..self.units.len();
        self.offers.collect(cx, &mut self.units, all);
    }

    /// The memory is freed: nobody may take what is in it.
    pub fn withdraw_all(&mut self, cx: &mut Context<'_>) {
        self.push_predictor.observe(&self.units.tuning, push_predictor::Event::Freed);
        self.offers.withdraw_all(cx, &mut self.units);
    }

    /// A diff of the unit that begins at `page`; ignored unless this node is its home.
    ///
    /// # Errors
    /// When the diff makes no sense.
    pub fn on_diff(&mut self, cx: &mut Context<'_>, page: PageNo, diff: &[u8]) -> Result<bool, Misbehaved> {
        let unit = self.units.index(page);
        let pages = self.units.pages_of(unit);
        if pages.start != page {
            return Err(Misbehaved("sent a diff that does not begin with a unit"));
        }
        if !self.units[unit].is_home() || self.freed {
            return Ok(false);
        }
        self.note_remote_write(cx, unit);
        // An empty one stands for atomic operations, which have been carried out.
        if !diff.is_empty() {
            cx.memory.apply(pages, diff)?;
        }
        cx.tally.diffs_applied += 1;
        Ok(true)
    }

    /// Another node writes the unit, whose home is here: what is compared next, and who gets it unasked, must not miss
    /// that.
    pub(super) fn note_remote_write(&mut self, cx: &mut Context<'_>, unit: usize) {
        self.units.drop_home_twin_for_diff(cx, &mut self.write_predictor, unit);
        self.push_predictor.observe(&self.units.tuning, push_predictor::Event::Forgotten(unit));
        if let Some(home) = self.units[unit].state.home_mut() {
            home.writers = Writers::Others;
        }
    }
}
