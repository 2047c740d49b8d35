//! Which units other nodes may copy without asking.

use super::state::Detection;
use super::units::Units;
use crate::coherence::pages::Context;
use crate::coherence::pages::policy::Predictor;
use crate::coherence::pages::policy::extent::{OfferAhead, Offered};
use crate::rules::Rule;
use std::ops::Range;

/// How many units of a chunk are offered.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Offers(usize);

impl Offers {
    /// Whether nothing is offered.
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Which units are offered when these were asked for: they themselves, and some of what follows.
    pub(super) fn choose(self, units: &Units, asked: &[Range<usize>]) -> Vec<usize> {
        let new = |unit: &usize| units[*unit].is_home() && !units[*unit].state.is_offered();
        let mut offers: Vec<usize> = asked.iter().flat_map(Range::clone).filter(new).collect();
        let most = OfferAhead.predict(&units.tuning, Offered { asked: offers.len(), before: self.0 });
        // They need not stand in order.
        let end = asked.iter().map(|run| run.end).max().unwrap_or_default();
        let (behind, before) = (end..units.len(), 0..end);
        let asked_for = |unit: &usize| asked.iter().any(|run| run.contains(unit));
        let plain = |unit: &usize| new(unit) && units[*unit].state.is_private() && !asked_for(unit);
        offers.extend(behind.chain(before).filter(plain).take(most));
        offers
    }

    /// From now on other nodes may take these units, which are protected where they are mapped.
    pub(super) fn offer(&mut self, cx: &mut Context<'_>, units: &mut Units, chosen: &[usize]) {
        for unit in chosen {
            let pages = units.pages_of(*unit);
            let Some(home) = units[*unit].state.home_mut().filter(|home| !home.offered) else { continue };
            home.offered = true;
            self.0 += 1;
            if !home.is_shared() {
                cx.memory.untrack(pages.clone());
            }
            cx.memory.offer(pages);
        }
    }

    /// Those of `among` that other nodes have taken since this was last called are shared.
    pub(super) fn collect(self, cx: &mut Context<'_>, units: &mut Units, among: Range<usize>) {
        if self.is_empty() || !Rule::TakenPagesAreShared.on() {
            return;
        }
        for unit in among {
            let first = units.pages_of(unit).start;
            if units[unit].state.is_offered() && cx.memory.was_taken(first) {
                units[unit].notices.end_epoch();
                units.begin_sharing(cx, unit);
            }
        }
    }

    /// The unit has another home, or counts as new here.
    pub(super) fn end(&mut self, cx: &mut Context<'_>, units: &mut Units, unit: usize) {
        if let Some(home) = units[unit].state.home_mut().filter(|home| home.offered) {
            home.offered = false;
            self.0 -= 1;
            if Rule::MovedPagesAreWithdrawn.on() {
                cx.memory.withdraw(units.pages_of(unit));
            }
        }
    }

    /// Nobody may take anything any more.
    pub(super) fn withdraw_all(&mut self, cx: &mut Context<'_>, units: &mut Units) {
        if std::mem::take(&mut self.0) > 0 {
            units.iter_mut().filter_map(|unit| unit.state.home_mut()).for_each(|home| home.offered = false);
            cx.memory.withdraw(units.all_pages());
        }
    }
}

impl Units {
    /// A unit is shared from now on. Where it is mapped, its writes concern others, also those since it was offered;
    /// what is not mapped concerns others when it is.
    pub(super) fn begin_sharing(&mut self, cx: &mut Context<'_>, unit: usize) {
        let Some(home) = self[unit].state.home_mut().filter(|home| !home.is_shared()) else { return };
        home.share(Detection::Protected);
        if home.is_mapped() {
            cx.memory.track(self.pages_of(unit));
        }
    }
}
