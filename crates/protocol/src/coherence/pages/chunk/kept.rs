//! Copies that end at a barrier and are fetched again before any thread of the node goes on: they stay mapped, and keep their twins.
//!
//! Unmapping a page and mapping it again takes calls that interrupt other processors, more than its bytes cost. Here nobody can see that a copy is
//! out of date, as long as all threads of the node are in the barrier. When the bytes come, what differs from the twin is stored and nothing
//! else: whatever a thread that is no part of the barrier writes beside it stays, and stays noted.

use super::{Chunk, Flush, KEPT, State, VOID, WRITTEN};
use crate::coherence::pages::{Context, PageNo};
use std::ops::Range;

impl Chunk {
    /// As [`Chunk::invalidate`], by a barrier that holds this node's threads until what is kept has been fetched again: by
    /// [`Chunk::fetch_ahead`], which takes all of it.
    pub fn invalidate_in_place(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn Flush) {
        if cx.memory.notes_writes() && !self.read_only {
            for unit in self.units_in(pages) {
                let this = &mut self.units[unit];
                if this.state == State::Valid && this.credit > 0 && !this.has(WRITTEN) {
                    this.state = State::Invalid;
                    this.set(KEPT, true);
                    cx.tally.invalidations += 1;
                }
            }
        }
        self.invalidate_others(cx, pages, flush);
    }

    /// What is not kept ends as it always does.
    fn invalidate_others(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn Flush) {
        let units = self.units_in(pages);
        let mut at = units.start;
        while at < units.end {
            let kept = self.units[at].has(KEPT) && self.units[at].state == State::Invalid;
            let end = (at..units.end)
                .find(|i| (self.units[*i].has(KEPT) && self.units[*i].state == State::Invalid) != kept)
                .unwrap_or(units.end);
            if !kept {
                self.invalidate(cx, &self.pages(at..end), flush);
            }
            at = end;
        }
    }

    /// A notice of a unit that is being fetched, or waits for that: what comes is not wanted, and what was kept ends.
    pub(super) fn void_fetch(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn Flush) {
        let this = &mut self.units[unit];
        let fetching = this.state == State::Fetching;
        this.set(VOID, fetching || this.has(VOID));
        if this.has(KEPT) {
            this.set(KEPT, false);
            this.state = State::Valid;
            self.end_run(cx, unit..unit + 1, flush);
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
            self.units[unit].set(KEPT | WRITTEN, false);
        }
    }
}
