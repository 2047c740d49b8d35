//! What a chunk's home does for others: says who has a page, shares its pages, takes diffs in.

use super::{
    ASSUMED_DIRTY, ChunkLayout, FirstTouch, HAS_COPIES, HOME_DIRTY_LAST_EPOCH, MAPPED, NOTICED_THIS_EPOCH, OFFERED,
    PROTECTED_AT_BARRIER, PROTECTED_WITH_NEIGHBOUR, PageTable, REMOTE_DIRTY, State, Unit, add_unit,
};
use crate::coherence::Misbehaved;
use crate::coherence::pages::{Context, PAGE_BYTES, PageNo};
use crate::rules::Rule;
use smallvec::SmallVec;
use std::ops::Range;

impl PageTable {
    /// Whether all of these pages lie in this chunk, are at home here, and can be shared as they are.
    pub fn has_at_home(&self, pages: &Range<PageNo>) -> bool {
        let ChunkLayout { first, pages: all, first_touch, .. } = self.layout;
        let is_here = first <= pages.start && pages.end <= first + all && !self.freed;
        // While others are to be settled with it, it is not enough that one is ([`PageTable::lookup`]).
        is_here
            && (self.all_claimed || first_touch != FirstTouch::Late)
            && self.units[self.units_in(pages)].iter().all(|unit| unit.state == State::Home)
    }

    /// Another node takes copies: from now on this home notices its own writes, then the pages are copied in this
    /// order, here or (without `out`) by the other node.
    pub fn share(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], mut out: Option<&mut Vec<u8>>) {
        if self.freed {
            let bytes = runs.iter().map(|run| run.len() * PAGE_BYTES).sum::<usize>();
            return out.into_iter().for_each(|out| out.resize(out.len() + bytes, 0));
        }
        let units: SmallVec<[Range<usize>; 2]> = runs.iter().map(|run| self.units_in(run)).collect();
        if let Some(out) = out.as_deref_mut().filter(|_| !Rule::ProtectBeforeCopyOut.on()) {
            units.iter().for_each(|run| self.copy_released(cx, self.pages(run.clone()), out));
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
        let offers = if cx.memory.can_offer() { self.units_to_offer(&units) } else { Vec::new() };
        let asked = |unit: &usize| units.iter().any(|run| run.contains(unit));
        for unit in
            offers.iter().filter(|i| self.units[**i].has(MAPPED) && !self.units[**i].has(HAS_COPIES) && !asked(i))
        {
            unprotected.push(*unit..unit + 1);
        }
        let mut neighbours = 0..0;
        if let [run] = &mut unprotected[..]
            && alone
            && noted
            && self.tuning.batch_protect
            && offers.is_empty()
            && cx.sync_phase.is_calm()
        {
            neighbours = self.batch_neighbours(cx.sync_phase, run.start);
            *run = neighbours.clone();
        }
        if noted {
            self.protect_with_gaps(cx, unprotected);
        } else {
            unprotected.into_iter().for_each(|run| cx.memory.protect(self.pages(run)));
        }
        if !Rule::SharedPagesAreRegarded.on() {
            units.iter().for_each(|run| cx.memory.untrack(self.pages(run.clone())));
        }
        units.iter().flat_map(Range::clone).for_each(|unit| self.units[unit].set(HAS_COPIES, true));
        for unit in neighbours.filter(|unit| !asked(unit)) {
            self.units[unit].set(PROTECTED_WITH_NEIGHBOUR, true);
            cx.memory.untrack(self.pages(unit..unit + 1));
        }
        self.offer(cx, &offers);
        if let Some(out) = out.filter(|_| Rule::ProtectBeforeCopyOut.on()) {
            units.into_iter().for_each(|run| self.copy_released(cx, self.pages(run), out));
        }
    }

    /// A unit is about to be copied, by itself (`alone`) or with others: whether it has to be protected first, so that
    /// what is written afterwards is noticed.
    fn needs_protection(&mut self, cx: &mut Context<'_>, unit: usize, alone: bool) -> bool {
        self.units[unit].set(NOTICED_THIS_EPOCH, false);
        let this = self.units[unit];
        if this.has(HAS_COPIES) {
            return false;
        }
        if (this.has(OFFERED) && Rule::OfferedPagesKeepTheirNotes.on()) || (this.has(MAPPED) && self.is_left(unit)) {
            // Somebody may have taken a copy meanwhile: what was written since must not be forgotten. Or nothing need
            // be: it counts as written, or is compared with what is copied now.
            self.begin_sharing(cx, unit);
            self.renew_home_twin(cx, unit);
            return false;
        }
        let by_itself = alone && !this.has(OFFERED) && cx.sync_phase.is_calm();
        let protected = by_itself && (this.has(PROTECTED_AT_BARRIER) || self.was_batch_protected(cx.sync_phase, unit));
        self.units[unit].set(PROTECTED_AT_BARRIER | PROTECTED_WITH_NEIGHBOUR, false);
        if protected {
            // The kernel notes what is written since then; more than that nobody who copies now can have to hear of.
            self.begin_sharing(cx, unit);
            return false;
        }
        let presume = self.tuning.assume_dirty
            && !cx.memory.notes_writes()
            && this.has(HOME_DIRTY_LAST_EPOCH)
            && this.has(MAPPED);
        self.units[unit].set(ASSUMED_DIRTY, presume);
        this.has(MAPPED) && !presume
    }

    /// Protects units that are not shared yet. Runs with little between them are taken together, since each call
    /// interrupts every processor that runs this program; what lies between costs its next writer a note in the kernel.
    /// What of it was shared before, or is a copy, may have been written: so the notes are taken along, and kept here.
    fn protect_with_gaps(&mut self, cx: &mut Context<'_>, mut runs: Vec<Range<usize>>) {
        runs.sort_by_key(|run| run.start);
        let (mut gaps, most): (Vec<Range<usize>>, usize) = (Vec::new(), self.tuning.protect_gap_units);
        runs.dedup_by(|next, run| {
            let joins = next.start - run.end <= most;
            if joins && next.start > run.end {
                gaps.push(run.end..next.start);
            }
            run.end = if joins { next.end } else { run.end };
            joins
        });
        for run in runs {
            let noted = if Rule::OfferedPagesKeepTheirNotes.on() { HAS_COPIES | OFFERED } else { HAS_COPIES };
            let plain = |u: &Unit| u.state == State::Home && u.has(MAPPED) && !u.has(noted);
            let alone = self.units[run.clone()].iter().all(plain);
            if alone {
                cx.memory.protect(self.pages(run));
            } else {
                cx.memory.track(self.pages(run.clone()));
                self.collect(cx, run);
            }
        }
        // What is written between concerns nobody, unless it did before.
        for unit in gaps.into_iter().flatten().filter(|unit| !Self::is_tracked(&self.units[*unit])) {
            cx.memory.untrack(self.pages(unit..unit + 1));
        }
    }

    /// Which units are offered when these were asked for: they themselves, and what follows in proportion to what was
    /// offered here before. Whoever asks often is soon spared the trouble; what is offered in vain costs its next
    /// writer a note in the kernel.
    fn units_to_offer(&self, asked: &[Range<usize>]) -> Vec<usize> {
        let new = |i: &usize| self.units[*i].state == State::Home && !self.units[*i].has(OFFERED);
        let mut offers: Vec<usize> = asked.iter().flat_map(Range::clone).filter(new).collect();
        let most = self.tuning.offer_growth * (offers.len() + self.offered);
        // They need not stand in order.
        let end = asked.iter().map(|run| run.end).max().unwrap_or_default();
        let (behind, before) = (end..self.units.len(), 0..end);
        let asked_for = |i: &usize| asked.iter().any(|run| run.contains(i));
        let plain = |i: &usize| new(i) && !self.units[*i].has(HAS_COPIES) && !asked_for(i);
        offers.extend(behind.chain(before).filter(plain).take(most));
        offers
    }

    /// From now on other nodes may take these units, which are protected where they are mapped.
    fn offer(&mut self, cx: &mut Context<'_>, units: &[usize]) {
        for unit in units {
            let pages = self.pages(*unit..unit + 1);
            if self.units[*unit].has(OFFERED) {
                continue;
            }
            self.offered += 1;
            if !self.units[*unit].has(HAS_COPIES) {
                cx.memory.untrack(pages.clone());
            }
            self.units[*unit].set(OFFERED, true);
            cx.memory.offer(pages);
        }
    }

    /// Units that other nodes have taken since this was last called are shared. To be called before a look at what was
    /// written here.
    pub fn collect_remote_gets(&mut self, cx: &mut Context<'_>) {
        self.collect_gets(cx, 0..self.units.len());
    }

    pub(super) fn collect_gets(&mut self, cx: &mut Context<'_>, units: Range<usize>) {
        if self.offered == 0 || !Rule::TakenPagesAreShared.on() {
            return;
        }
        for unit in units {
            let pages = self.pages(unit..unit + 1);
            if self.units[unit].has(OFFERED) && cx.memory.was_taken(pages.start) {
                let this = &mut self.units[unit];
                this.set(NOTICED_THIS_EPOCH, false);
                if !this.has(HAS_COPIES) {
                    self.begin_sharing(cx, unit);
                }
            }
        }
    }

    /// An offered unit is shared from now on. Where it is mapped, its writes concern others, also those since it was
    /// offered; what is not mapped concerns others when it is.
    fn begin_sharing(&mut self, cx: &mut Context<'_>, unit: usize) {
        self.units[unit].set(HAS_COPIES, true);
        if self.units[unit].has(MAPPED) {
            cx.memory.track(self.pages(unit..unit + 1));
        }
    }

    /// The memory is freed: nobody may take what is in it.
    pub fn withdraw_all(&mut self, cx: &mut Context<'_>) {
        self.readers.clear();
        if std::mem::take(&mut self.offered) > 0 {
            self.units.iter_mut().for_each(|unit| unit.set(OFFERED, false));
            cx.memory.withdraw(self.pages(0..self.units.len()));
        }
    }

    /// A diff of the unit that begins at `page`; ignored unless this node is its home.
    ///
    /// # Errors
    /// When the diff makes no sense.
    pub fn on_diff(&mut self, cx: &mut Context<'_>, page: PageNo, diff: &[u8]) -> Result<bool, Misbehaved> {
        let unit = self.index(page);
        let pages = self.pages(unit..unit + 1);
        if pages.start != page {
            return Err(Misbehaved("sent a diff that does not begin with a unit"));
        }
        if self.units[unit].state != State::Home || self.freed {
            return Ok(false);
        }
        self.drop_home_twin_for_diff(cx, unit);
        // An empty one stands for atomic operations, which have been carried out.
        if !diff.is_empty() {
            cx.memory.apply(pages, diff)?;
        }
        cx.tally.diffs_applied += 1;
        self.forget_readers(unit);
        let this = &mut self.units[unit];
        this.set(HOME_DIRTY_LAST_EPOCH, false);
        this.set(REMOTE_DIRTY, true);
        Ok(true)
    }
}
