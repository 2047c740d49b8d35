//! Copies that end at a barrier and are fetched again before any thread of the node goes on: they stay mapped, and keep their twins.
//!
//! Unmapping a page and mapping it again takes calls that interrupt other processors, more than its bytes cost. Here nobody can see that a copy is
//! out of date, as long as all threads of the node are in the barrier. When the bytes come, what differs from the twin is stored and nothing
//! else: whatever a thread that is no part of the barrier writes beside it stays, and stays noted.

use super::{ASIDE, Chunk, Flush, KEPT, State, VOID, WRITTEN, add_unit};
use crate::coherence::pages::{Context, PageNo};
use std::ops::Range;

impl Chunk {
    /// As [`Chunk::invalidate`], by a barrier that holds this node's threads until what is kept has been fetched again: by
    /// [`Chunk::fetch_ahead`], which takes all of it.
    pub fn invalidate_in_place(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], flush: &mut dyn Flush) {
        let keeps = cx.memory.notes_writes() && !self.read_only;
        let mut ended = Vec::new();
        for run in runs {
            for unit in self.units_in(run) {
                if self.is_home_written_elsewhere(unit) {
                    continue;
                }
                let this = &mut self.units[unit];
                if keeps && this.state == State::Valid && this.credit > 0 && !this.has(WRITTEN) {
                    this.state = State::Invalid;
                    this.set(KEPT, true);
                    cx.tally.invalidations += 1;
                }
                if this.state == State::Invalid && this.has(KEPT) {
                    continue;
                }
                self.void_fetch(cx, unit, flush);
                if self.units[unit].state == State::Valid {
                    add_unit(&mut ended, unit);
                }
            }
        }
        self.end_copies(cx, ended, flush);
    }

    /// A notice of a unit that is being fetched, or waits for that: what comes is not wanted, and what was kept ends.
    pub(super) fn void_fetch(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn Flush) {
        let this = &mut self.units[unit];
        let fetching = this.state == State::Fetching;
        this.set(VOID, fetching || this.has(VOID));
        if this.has(KEPT) {
            this.set(KEPT, false);
            this.state = State::Valid;
            self.end_copy(cx, unit, flush);
            cx.tally.invalidations -= 1;
            if fetching {
                self.units[unit].state = State::Fetching;
            }
        }
    }

    /// What was kept of a unit is of no use.
    pub(super) fn unkeep(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(KEPT) {
            let pages = self.pages(unit..unit + 1);
            cx.memory.unmap(pages.clone());
            cx.memory.drop_twin(pages);
            self.units[unit].set(KEPT | WRITTEN | ASIDE, false);
        }
    }
}
