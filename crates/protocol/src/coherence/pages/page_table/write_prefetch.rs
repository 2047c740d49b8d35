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

use super::units::{Unit, Units};
use super::{Access, Fault, FirstTouch, PrefetchPlan};
use crate::coherence::pages::push_range;
use crate::coherence::pages::sync_phase::SyncPhase;
use crate::coherence::pages::wire::{FETCH_PAGES_MAX, FETCH_RUNS_MAX};

/// Whether copies that were written together are fetched together, and what came of it.
#[derive(Clone, Default, Debug)]
pub(super) struct WritePrefetch {
    /// How many writes to copies that ended have met those that were written before, in epoch `returned_in`.
    returned: u8,
    returned_in: u8,
    /// How many pages are still to come of such.
    grouped: u32,
    /// How many units came together the last time, and how many copies have changed since.
    came: u32,
    changed: u32,
}

impl WritePrefetch {
    /// A copy has changed.
    pub(super) fn count_changed(&mut self) {
        self.changed = self.changed.saturating_add(1);
    }

    /// So many pages have come; gives how many that were fetched together were still to come.
    pub(super) fn count_arrived(&mut self, pages: u32) -> u32 {
        let grouped = self.grouped;
        self.grouped = grouped.saturating_sub(pages);
        grouped
    }

    /// Counts a fault on an invalid unit; tells whether all that was written here before will probably be written
    /// again.
    pub(super) fn predicts(
        &mut self,
        sync_phase: SyncPhase,
        units: &Units,
        (unit, access): (usize, Access),
        plan: PrefetchPlan,
    ) -> bool {
        if self.returned_in != sync_phase.epoch() {
            (self.returned, self.returned_in) = (0, sync_phase.epoch());
        }
        let before = access == Access::Write && units[unit].history.written_before;
        self.returned = if before { self.returned.saturating_add(1) } else { self.returned.saturating_sub(1) };
        let by_itself = plan.units == 1 && plan.known > 1 && units.layout.first_touch != FirstTouch::Always;
        let (tuning, were_mostly_unused) = (&units.tuning, self.changed < self.came);
        let trusted = tuning.write_prefetch_trust && !were_mostly_unused;
        let after = if trusted { 1 } else { tuning.write_prefetch_after };
        tuning.write_prefetch && before && by_itself && sync_phase.has_barriers_alone() && self.returned >= after
    }

    /// Begins to fetch a unit, and with it what else was written here before and has the same home.
    pub(super) fn begin_fetch(&mut self, sync_phase: SyncPhase, units: &mut Units, unit: usize) -> Fault {
        let home = units[unit].home;
        let mut runs = vec![units.pages_of(unit)];
        units[unit].state.begin_fetch(true);
        let mut left = (FETCH_PAGES_MAX / units.layout.unit_pages).saturating_sub(1);
        for other in (unit + 1..units.len()).chain(0..unit) {
            if left == 0 || runs.len() >= FETCH_RUNS_MAX {
                break;
            }
            let long_epochs = units.tuning.long_epochs;
            let this = &mut units[other];
            if this.state.is_absent() && this.home == home && this.history.written_before {
                this.distrust(sync_phase, long_epochs);
                this.state.begin_fetch(true);
                this.history.written_before = false;
                left -= 1;
                push_range(&mut runs, units.pages_of(other));
            }
        }
        self.grouped = runs.iter().map(|run| run.end - run.start).sum();
        (self.came, self.changed) = (self.grouped / units.layout.unit_pages, 0);
        Fault::Fetch { home, runs, claim: false }
    }
}

impl Unit {
    /// The unit is fetched because it is used. If that is long after it ended, it has not earned that barriers fetch it
    /// ahead.
    pub(super) fn distrust(&mut self, sync_phase: SyncPhase, long_epochs: u8) {
        let history = &mut self.history;
        if history.written_before && sync_phase.epoch().wrapping_sub(history.ended) >= long_epochs {
            history.forget();
        }
    }
}
