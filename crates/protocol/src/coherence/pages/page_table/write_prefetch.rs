//! Copies that were written together, and ended together, are fetched together when they are written again.
//!
//! A thread that writes to many places in turn (a sort by digits) faults on each of them: no two faults follow each
//! other. But where each pass writes what an earlier one did, a write to a copy that ended and was written while it was
//! here says that the others will follow. So such a fault brings all of them that this chunk has, as many as one
//! message carries. What comes so and is not written before it ends does not come so again; and in a chunk in which not
//! all that came so the last time was written, the third such fault in an epoch does.
//!
//! A copy that is used long after it ended has not earned that the barrier at which it ends fetches it ahead: it would
//! end again before it is used. It comes with the others when it is written.
//!
//! Nothing of the former holds where intervals close for locks: what belongs to other locks would end before it is
//! used.

use super::{Access, Fault, FirstTouch, PageTable, PrefetchPlan, State, WRITE_FETCH, WRITTEN_BEFORE};
use crate::coherence::pages::wire::{FETCH_PAGES_MAX, FETCH_RUNS_MAX};
use crate::coherence::pages::{Context, push_range};

/// How many units came together the last time, and how many copies have changed since.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct GroupOutcome {
    came: u32,
    changed: u32,
}

impl GroupOutcome {
    /// A copy has changed.
    pub(super) fn count(&mut self) {
        self.changed = self.changed.saturating_add(1);
    }

    fn were_mostly_unused(self) -> bool {
        self.changed < self.came
    }
}

impl PageTable {
    /// Counts a fault on an invalid unit; tells whether all that was written here before will probably be written
    /// again.
    pub(super) fn predicts_group_write(
        &mut self,
        cx: &Context<'_>,
        unit: usize,
        access: Access,
        plan: PrefetchPlan,
    ) -> bool {
        if self.returned_in != cx.sync_phase.epoch() {
            (self.returned, self.returned_in) = (0, cx.sync_phase.epoch());
        }
        let before = access == Access::Write && self.units[unit].has(WRITTEN_BEFORE);
        self.returned = if before { self.returned.saturating_add(1) } else { self.returned.saturating_sub(1) };
        let by_itself = plan.units == 1 && plan.known > 1 && self.layout.first_touch != FirstTouch::Always;
        let (tuning, outcome) = (&self.tuning, self.group_outcome);
        let trusted = tuning.write_prefetch_trust && !outcome.were_mostly_unused();
        let after = if trusted { 1 } else { tuning.write_prefetch_after };
        tuning.write_prefetch && before && by_itself && cx.sync_phase.has_barriers_alone() && self.returned >= after
    }

    /// The unit is fetched because it is used. If that is long after it ended, it has not earned that barriers fetch it
    /// ahead.
    pub(super) fn distrust(&mut self, cx: &Context<'_>, unit: usize) {
        let (this, long) = (&mut self.units[unit], self.tuning.long_epochs);
        if this.has(WRITTEN_BEFORE) && cx.sync_phase.epoch().wrapping_sub(this.ended) >= long {
            (this.credit, this.trust) = (0, 0);
        }
    }

    /// Begins to fetch a unit, and with it what else was written here before and has the same home.
    pub(super) fn begin_group_fetch(&mut self, cx: &Context<'_>, unit: usize) -> Fault {
        let home = self.units[unit].home;
        let mut runs = vec![self.pages(unit..unit + 1)];
        self.units[unit].state = State::Fetching;
        let mut left = (FETCH_PAGES_MAX / self.layout.unit_pages).saturating_sub(1);
        for other in (unit + 1..self.units.len()).chain(0..unit) {
            if left == 0 || runs.len() >= FETCH_RUNS_MAX {
                break;
            }
            let this = self.units[other];
            if this.state == State::Invalid && this.home == home && this.has(WRITTEN_BEFORE) {
                self.distrust(cx, other);
                let this = &mut self.units[other];
                this.state = State::Fetching;
                this.set(WRITTEN_BEFORE, false);
                this.set(WRITE_FETCH, true);
                left -= 1;
                push_range(&mut runs, self.pages(other..other + 1));
            }
        }
        self.grouped = runs.iter().map(|run| run.end - run.start).sum();
        self.group_outcome = GroupOutcome { came: self.grouped / self.layout.unit_pages, changed: 0 };
        Fault::Fetch { home, runs, claim: false }
    }
}
