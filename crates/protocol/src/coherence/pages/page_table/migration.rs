//! Homes that move: a page's only writer of an epoch becomes its home.

use super::{
    FETCH_CANCELLED, HAS_COPIES, HOME_DIRTY_LAST_EPOCH, HOME_UNKNOWN, INVALID_MAPPED, MAPPED, OFFERED, PageTable,
    RESIDENT, State, UNTRACKED,
};
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// A barrier has opened, and in the epoch before `writer` alone wrote these pages and holds them: it is their home
    /// now.
    pub fn migrate(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, writer: NodeId) {
        if self.freed {
            return;
        }
        let mut gone: Vec<Range<PageNo>> = Vec::new();
        let mut mine: Vec<Range<PageNo>> = Vec::new();
        for unit in self.units_in(pages) {
            let at = self.pages(unit..unit + 1);
            if self.units[unit].has(INVALID_MAPPED) {
                self.drop_stale_mapping(cx, unit);
            }
            self.forget_readers(unit);
            self.forget_note(unit);
            let this = &mut self.units[unit];
            this.set(HOME_UNKNOWN, false);
            let was_home = this.state == State::Home;
            if this.has(OFFERED) {
                this.set(OFFERED, false);
                self.offered -= 1;
                if Rule::MovedPagesAreWithdrawn.on() {
                    cx.memory.withdraw(at.clone());
                }
            }
            this.home = writer;
            if writer == cx.me {
                this.state = State::Home;
                if this.has(RESIDENT) {
                    cx.tally.held -= i64::from(self.layout.unit_pages);
                }
                let mapped = if this.has(UNTRACKED) { 0 } else { MAPPED };
                this.flags = mapped | HOME_DIRTY_LAST_EPOCH | if self.layout.write_detection { 0 } else { HAS_COPIES };
                cx.memory.drop_twin(at.clone());
                cx.tally.migrations += 1;
                if self.layout.write_detection {
                    push_range(&mut mine, at);
                }
                if !was_home {
                    self.home_gained(cx);
                }
            } else if was_home || this.state == State::Valid {
                // A copy that was fetched after the writer's notice had come is up to date, but its new home does not
                // know of it.
                this.state = State::Invalid;
                this.flags &= RESIDENT;
                cx.memory.drop_twin(at.clone());
                push_range(&mut gone, at);
                if was_home {
                    self.home_lost(cx);
                }
            } else if this.state == State::Fetching {
                this.set(FETCH_CANCELLED, true);
            } else if this.state == State::Unclaimed {
                // Another node had claimed it and this one has not heard of it.
                this.state = State::Invalid;
                self.home_lost(cx);
            }
        }
        mine.into_iter().for_each(|run| Self::let_write(cx, run));
        gone.into_iter().for_each(|run| self.leave_memory(cx, run));
    }

    /// Nobody holds copies of these mapped home pages any more: they may be written without anybody being told.
    pub(super) fn let_write(cx: &mut Context<'_>, pages: Range<PageNo>) {
        if !cx.memory.notes_writes() {
            cx.memory.map_write(pages.clone());
        }
        cx.memory.untrack(pages);
    }

    /// Pages of which this node has nothing any more. Their memory is given back in long runs; a few pages keep theirs
    /// for the next fetch, as copies that end do.
    fn leave_memory(&mut self, cx: &mut Context<'_>, run: Range<PageNo>) {
        cx.memory.unmap(run.clone());
        cx.memory.untrack(run.clone());
        let keep = run.end - run.start <= self.tuning.keep_memory_pages;
        for unit in self.units_in(&run) {
            let this = &mut self.units[unit];
            if this.has(RESIDENT) != keep {
                let pages = i64::from(self.layout.unit_pages);
                cx.tally.held += if keep { pages } else { -pages };
                this.set(RESIDENT, keep);
            }
        }
        if !keep {
            cx.memory.discard(run);
        }
    }
}
