//! Copies that end at a barrier and are fetched again before any thread of the node goes on: they stay mapped, and keep
//! their twins.
//!
//! Unmapping a page and mapping it again takes calls that interrupt other processors, more than its bytes cost. Here
//! nobody can see that a copy is out of date, as long as all threads of the node are in the barrier. When the bytes
//! come, what differs from the twin is stored and nothing else: whatever a thread that is no part of the barrier writes
//! beside it stays, and stays noted.

use super::{DIRTY, DiffSink, FETCH_CANCELLED, INVALID_MAPPED, PageTable, State, UNTRACKED, add_unit};
use crate::coherence::pages::{Context, PageNo};
use std::ops::Range;

impl PageTable {
    /// As [`PageTable::invalidate`], by a barrier that holds this node's threads until what is kept has been fetched
    /// again: by [`PageTable::fetch_ahead`], which takes all of it.
    pub fn invalidate_in_place(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], flush: &mut dyn DiffSink) {
        let keeps = self.tuning.update_in_place && cx.memory.notes_writes() && !self.read_only;
        let mut ended = Vec::new();
        for run in runs {
            for unit in self.units_in(run) {
                if self.is_home_written_elsewhere(unit) {
                    continue;
                }
                let this = &mut self.units[unit];
                if keeps && this.state == State::Valid && this.credit > 0 && !this.has(DIRTY) {
                    this.state = State::Invalid;
                    this.set(INVALID_MAPPED, true);
                    cx.tally.invalidations += 1;
                }
                if this.state == State::Invalid && this.has(INVALID_MAPPED) {
                    continue;
                }
                self.cancel_fetch(cx, unit, flush);
                if self.units[unit].state == State::Valid {
                    add_unit(&mut ended, unit);
                }
            }
        }
        self.invalidate_copies(cx, ended, flush);
    }

    /// A notice of a unit that is being fetched, or waits for that: what comes is not wanted, and what was kept ends.
    pub(super) fn cancel_fetch(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        let this = &mut self.units[unit];
        let fetching = this.state == State::Fetching;
        this.set(FETCH_CANCELLED, fetching || this.has(FETCH_CANCELLED));
        if this.has(INVALID_MAPPED) {
            this.set(INVALID_MAPPED, false);
            this.state = State::Valid;
            self.invalidate_copy(cx, unit, flush);
            cx.tally.invalidations -= 1;
            if fetching {
                self.units[unit].state = State::Fetching;
            }
        }
    }

    /// What was kept of a unit is of no use.
    pub(super) fn drop_stale_mapping(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(INVALID_MAPPED) {
            let pages = self.pages(unit..unit + 1);
            cx.memory.unmap(pages.clone());
            cx.memory.drop_twin(pages);
            self.units[unit].set(INVALID_MAPPED | DIRTY | UNTRACKED, false);
        }
    }
}
