//! Which units a fetch brings.

use super::state::UnitState;
use super::units::{Unit, Units};
use super::{Fault, FirstTouch, PrefetchPlan};
use crate::coherence::pages::push_range;
use crate::rules::Rule;

impl Units {
    /// Whether a fault on the invalid unit claims it.
    pub(super) fn claims(&self, unit: usize, plan: PrefetchPlan) -> bool {
        let may = match self.layout.first_touch {
            FirstTouch::Never => false,
            FirstTouch::Late => plan.claims,
            FirstTouch::Always => true,
        };
        may && self.is_home_unknown(unit)
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
            let wanted = |u: &Unit| u.state.is_absent() && u.home == home && (guessed || u.history.credit > 0);
            if !self.get(end).is_some_and(wanted) || self.claims(end, plan) != claim {
                break;
            }
            let this = &mut self[end];
            this.state.begin_fetch(for_store && end == unit);
            if !guessed {
                this.history.spend();
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

    /// How many units to fetch for a write, the faulting one included: where a thread writes to more places in turn
    /// than its memory of streams holds (a sort by digits), as many again as are in use before it.
    pub(super) fn as_many_as_before(&self, unit: usize, plan: PrefetchPlan) -> usize {
        if !self.tuning.extend_writes
            || plan.units > 1
            || plan.known == 1
            || self.layout.first_touch == FirstTouch::Always
        {
            return plan.units;
        }
        let claims = self.claims(unit, plan);
        let here = |u: &&Unit| match u.state {
            UnitState::Valid(_) | UnitState::Fetching(_) => true,
            UnitState::Home(home) => claims && home.is_mapped(),
            _ => false,
        };
        1 + self[..unit].iter().rev().take(self.tuning.extend_writes_units_max).take_while(here).count()
    }
}
