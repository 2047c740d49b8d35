//! The end of a chunk whose region was freed.
//!
//! Its memory is gone, and other nodes may not have heard of that yet: a barrier that opens afterwards still speaks of
//! its pages, and diffs, fetches and answers to them are on their way. None of that may give it memory again, which
//! nobody would ever give back, nor bring it to those to whom a close has to come. So no unit keeps a mark by which a
//! close or a barrier would find anything here, and the steps that could set one, or that touch memory, do nothing.

use super::{DiffSink, FETCH_CANCELLED, NOTICE_PENDING, PageTable, State};
use crate::coherence::pages::{Context, PageNo};
use std::ops::Range;

impl PageTable {
    /// Whether something was flushed of which no interval has told yet. If the region is freed now, none ever will.
    pub fn has_flushed(&self) -> bool {
        self.units.iter().any(|unit| unit.has(NOTICE_PENDING))
    }

    /// The chunk's region was freed: its copies end, and what is being fetched is not wanted when it comes.
    pub fn free(&mut self, cx: &mut Context<'_>, flush: &mut dyn DiffSink) {
        let evictions = cx.tally.evictions;
        self.evict(cx, &self.pages(0..self.units.len()), flush);
        // No room was made, nor was any copy invalidated.
        cx.tally.evictions = evictions;
        for unit in 0..self.units.len() {
            if self.units[unit].state == State::Fetching {
                self.unmap_premapped(cx, unit);
                self.give_memory_back(cx, unit);
            }
            self.drop_home_twin(cx, unit);
            let this = &mut self.units[unit];
            this.flags = 0;
            // Nor is any of it fetched ahead.
            (this.credit, this.trust) = (0, 0);
        }
        self.withdraw_all(cx);
        cx.tally.gained -= std::mem::take(&mut self.gained);
        self.freed = true;
        (self.pending, self.may_be_noticed, self.passed_over) = (false, false, false);
        // The next close leaves the chunk out for good.
        self.all_untracked = true;
    }

    /// The chunk comes into being after its region was freed: a barrier still speaks of its pages.
    pub fn begin_freed(&mut self) {
        self.freed = true;
    }

    /// The answer to a fetch says that these pages were freed, or they were freed here before it came.
    pub fn on_freed(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>) {
        for unit in self.units_in(pages) {
            if self.units[unit].state == State::Fetching {
                self.drop_stale_mapping(cx, unit);
                self.unmap_premapped(cx, unit);
                let this = &mut self.units[unit];
                this.set(FETCH_CANCELLED, false);
                (this.state, this.credit) = (State::Invalid, 0);
            }
        }
        self.wake_waiters(cx, pages);
    }
}
