//! Which units a fetch brings.

use super::state::UnitState;
use super::units::{Unit, Units};
use super::{Access, Fault, FirstTouch, PageTable, PrefetchPlan};
use crate::coherence::pages::policy::claims::{Claims, Touch};
use crate::coherence::pages::policy::extent::{Before, ExtendWrites};
use crate::coherence::pages::policy::sync_phase::SyncPhase;
use crate::coherence::pages::policy::write_prefetch::{Event, Miss};
use crate::coherence::pages::policy::{Predictor, reuse};
use crate::coherence::pages::push_range;
use crate::coherence::pages::wire::{FETCH_PAGES_MAX, FETCH_RUNS_MAX};
use crate::rules::Rule;

impl PageTable {
    /// A fault found the unit missing: whether all that was written here before will probably be written again.
    pub(super) fn is_all_written_again(
        &mut self,
        sync_phase: SyncPhase,
        (unit, access): (usize, Access),
        plan: PrefetchPlan,
    ) -> bool {
        let units = &self.units;
        let miss = Miss {
            epoch: sync_phase.epoch(),
            barriers_alone: sync_phase.has_barriers_alone(),
            again: access == Access::Write && units[unit].reuse.written_before(),
            by_itself: units.is_by_itself(plan),
        };
        self.write_prefetch.predict(&units.tuning, miss)
    }

    /// Begins to fetch a unit, and with it what else was written here before and has the same home: as many as one
    /// message carries.
    pub(super) fn begin_fetch_of_written(&mut self, sync_phase: SyncPhase, unit: usize) -> Fault {
        let units = &mut self.units;
        let home = units[unit].home;
        let mut runs = vec![units.pages_of(unit)];
        units[unit].state.begin_fetch(true);
        let mut left = (FETCH_PAGES_MAX / units.layout.unit_pages).saturating_sub(1);
        for other in (unit + 1..units.len()).chain(0..unit) {
            if left == 0 || runs.len() >= FETCH_RUNS_MAX {
                break;
            }
            let this = &units[other];
            if this.state.is_absent() && this.home == home && this.reuse.written_before() {
                units.observe_use(other, reuse::Event::FetchedWithOthers(sync_phase.epoch()));
                units[other].state.begin_fetch(true);
                left -= 1;
                push_range(&mut runs, units.pages_of(other));
            }
        }
        let pages = runs.iter().map(|run| run.end - run.start).sum::<u32>();
        let fetched = Event::Fetched { pages, units: pages / units.layout.unit_pages };
        self.write_prefetch.observe(&units.tuning, fetched);
        Fault::Fetch { home, runs, claim: false }
    }
}

impl Units {
    /// Whether a fault on the invalid unit claims it.
    pub(super) fn claims(&self, unit: usize, plan: PrefetchPlan) -> bool {
        Claims.predict(&self.layout.first_touch, Touch { may: plan.claims }) && self.is_home_unknown(unit)
    }

    /// Whether where the unit's home is stands in the layout alone.
    pub(super) fn is_home_unknown(&self, unit: usize) -> bool {
        self[unit].state.is_unheard() || !Rule::OnlyFreshPagesAreClaimed.on()
    }

    /// Begins to fetch the unit, perhaps for a store, with what the plan says.
    pub(super) fn begin_fetch(&mut self, (unit, for_store): (usize, bool), plan: PrefetchPlan) -> Fault {
        if plan.stride != 1 {
            return self.begin_strided_fetch((unit, for_store), plan);
        }
        let (home, claim) = (self[unit].home, self.claims(unit, plan));
        let mut end = unit;
        for count in 0..plan.units.max(plan.known).max(1) {
            // Whether or not the thread seems to go that way, it did last time.
            let guessed = count < plan.units.max(1);
            let fits = |u: &Unit| u.state.is_absent() && u.home == home;
            let wanted = self.get(end).is_some_and(fits) && (guessed || self.is_used_again(end));
            if !wanted || self.claims(end, plan) != claim {
                break;
            }
            self[end].state.begin_fetch(for_store && end == unit);
            if !guessed {
                self.observe_use(end, reuse::Event::FetchedAhead);
            }
            end += 1;
        }
        Fault::Fetch { home, runs: vec![self.pages(unit..end)], claim }
    }

    /// Units with a stride, and what lies between them as far as it was here before: a thread that goes through a
    /// matrix by columns comes back for the next ones.
    fn begin_strided_fetch(&mut self, (unit, for_store): (usize, bool), plan: PrefetchPlan) -> Fault {
        let (home, claim) = (self[unit].home, self.claims(unit, plan));
        let most = plan.units.max(plan.known).max(1);
        let (mut runs, mut fetched, mut at) = (Vec::new(), 0, Some(unit));
        for _ in 0..plan.units.max(1) {
            let wanted = |u: &Unit| u.state.is_absent() && u.home == home;
            let here = |i: &usize| self.get(*i).is_some_and(wanted) && self.claims(*i, plan) == claim;
            let Some(next) = at.filter(|i| fetched < most && here(i)) else { break };
            let between = (next + 1..self.len()).take(plan.stride.unsigned_abs() - 1);
            let here_before = |i: &usize| here(i) && self[*i].state.has_memory();
            let end = next + 1 + between.take(most - fetched - 1).take_while(here_before).count();
            for i in next..end {
                self[i].state.begin_fetch(for_store && i == unit);
            }
            fetched += end - next;
            push_range(&mut runs, self.pages(next..end));
            at = next.checked_add_signed(plan.stride);
        }
        Fault::Fetch { home, runs, claim }
    }

    /// Whether a fault with this plan continues no sequence, and what follows it may be fetched.
    fn is_by_itself(&self, plan: PrefetchPlan) -> bool {
        plan.units == 1 && plan.known > 1 && self.layout.first_touch != FirstTouch::Always
    }

    /// How many units to fetch for a write, the faulting one included.
    pub(super) fn units_for_write(&self, unit: usize, plan: PrefetchPlan) -> usize {
        if !self.is_by_itself(plan) {
            return plan.units;
        }
        let claims = self.claims(unit, plan);
        let in_use = |back: usize| match unit.checked_sub(back).map(|at| self[at].state) {
            Some(UnitState::Valid(_) | UnitState::Fetching(_)) => true,
            Some(UnitState::Home(home)) => claims && home.is_mapped(),
            _ => false,
        };
        ExtendWrites.predict(&self.tuning, Before { in_use: &in_use })
    }
}
