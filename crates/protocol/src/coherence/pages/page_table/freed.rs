//! The end of a chunk whose region was freed.
//!
//! Its memory is gone, and other nodes may not have heard of that yet: a barrier that opens afterwards still speaks of
//! its pages, and diffs, fetches and answers to them are on their way. None of that may give it memory again, which
//! nobody would ever give back, nor bring it to those to whom a close has to come. So no unit keeps a mark by which a
//! close or a barrier would find anything here, and the steps that could set one, or that touch memory, do nothing.

use super::first_touch::GainedHomes;
use super::{DiffSink, PageTable};
use crate::coherence::pages::policy::reuse;
use crate::coherence::pages::{Context, PageNo};
use std::ops::Range;

impl PageTable {
    /// The chunk's region was freed: its copies end, and what is being fetched is not wanted when it comes.
    pub fn free(&mut self, cx: &mut Context<'_>, flush: &mut dyn DiffSink) {
        let evictions = cx.tally.evictions;
        self.kept_ends();
        self.evict(cx, &self.units.all_pages(), flush);
        // No room was made, nor was any copy invalidated.
        cx.tally.evictions = evictions;
        for unit in 0..self.units.len() {
            if self.units[unit].is_fetching() {
                self.units.unmap_premapped(cx, unit);
                self.give_memory_back(cx, unit);
            }
            self.units.drop_home_twin(cx, unit);
            self.units[unit].state.forget();
            self.units.reset(unit, self.units[unit].state);
            // Nor is any of it fetched ahead.
            self.units.observe_use(unit, reuse::Event::Forgotten);
        }
        self.allow_writes(cx);
        self.withdraw_all(cx);
        self.drop_kept(cx);
        self.gained.end(cx);
        self.freed = true;
        self.close_state.end();
    }

    /// The chunk comes into being after its region was freed: a barrier still speaks of its pages.
    pub fn begin_freed(&mut self) {
        self.freed = true;
        self.gained = GainedHomes::of_freed();
    }

    /// The answer to a fetch says that these pages were freed, or they were freed here before it came.
    pub fn on_freed(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>) {
        for unit in self.units.within(pages) {
            self.expect_nothing(unit);
            if self.units[unit].is_fetching() {
                self.units.drop_stale_mapping(cx, unit);
                self.units.unmap_premapped(cx, unit);
                self.units[unit].state.end_fetch();
                self.units.observe_use(unit, reuse::Event::Evicted);
            }
        }
        self.waiters.wake(cx, &self.units.within(pages));
    }
}
