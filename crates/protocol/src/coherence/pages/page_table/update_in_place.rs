//! Copies that end at a barrier and are fetched again before any thread of the node goes on: they stay mapped, and keep
//! their twins.
//!
//! Unmapping a page and mapping it again takes calls that interrupt other processors, more than its bytes cost. Here
//! nobody can see that a copy is out of date, as long as all threads of the node are in the barrier. When the bytes
//! come, what differs from the twin is stored and nothing else: whatever a thread that is no part of the barrier writes
//! beside it stays, and stays noted.

use super::state::UnitState;
use super::units::Units;
use super::{DiffSink, PageTable, add_unit};
use crate::coherence::pages::{Context, PageNo};
use std::ops::Range;

impl PageTable {
    /// As [`PageTable::invalidate`], by a barrier that holds this node's threads until what is kept has been fetched
    /// again: by [`PageTable::fetch_ahead`], which takes all of it.
    pub fn invalidate_in_place(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], flush: &mut dyn DiffSink) {
        let may = self.units.tuning.update_in_place && !self.keeps_diffs();
        let keeps = may && cx.memory.notes_writes() && !self.read_only;
        let mut ended = Vec::new();
        for run in runs {
            for unit in self.units.within(run) {
                if self.units[unit].is_home_written_elsewhere() {
                    continue;
                }
                if keeps && self.units.is_used_again(unit) && self.units[unit].state.make_stale() {
                    cx.tally.invalidations += 1;
                }
                if matches!(self.units[unit].state, UnitState::Stale(_)) {
                    continue;
                }
                self.cancel_fetch(cx, unit, flush);
                if self.units[unit].state.is_valid() {
                    add_unit(&mut ended, unit);
                }
            }
        }
        self.invalidate_copies(cx, ended, flush);
    }

    /// A notice of a unit that is being fetched, or waits for that: what comes is not wanted, and what was kept ends.
    pub(super) fn cancel_fetch(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        if let Some(fetch) = self.units[unit].state.fetch_mut() {
            fetch.cancelled = true;
        }
        if self.units[unit].state.stale().is_some() {
            self.invalidate_runs(cx, std::slice::from_ref(&(unit..unit + 1)), flush);
            cx.tally.invalidations -= 1;
        }
    }
}

impl Units {
    /// What was kept of a unit is of no use.
    pub(super) fn drop_stale_mapping(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self[unit].state.stale().is_some() {
            let pages = self.pages_of(unit);
            cx.memory.unmap(pages.clone());
            cx.memory.drop_twin(pages);
            self[unit].state.end_copy();
        }
    }
}
