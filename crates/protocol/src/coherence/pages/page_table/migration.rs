//! Homes that move: a page's only writer of an epoch becomes its home.

use super::PageTable;
use super::state::{CopyState, Memory, UnitState, Writers};
use super::units::Units;
use crate::coherence::pages::policy::{Predictor, push_predictor, write_predictor};
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::ids::NodeId;
use std::ops::Range;

impl PageTable {
    /// A barrier has opened, and in the epoch before `writer` alone wrote these pages and holds them: it is their home
    /// now.
    pub fn migrate(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, writer: NodeId) {
        if self.freed || self.keeps_diffs() {
            return;
        }
        let mut gone: Vec<Range<PageNo>> = Vec::new();
        let mut mine: Vec<Range<PageNo>> = Vec::new();
        for unit in self.units.within(pages) {
            let at = self.units.pages_of(unit);
            self.units.drop_stale_mapping(cx, unit);
            self.push_predictor.observe(&self.units.tuning, push_predictor::Event::Forgotten(unit));
            self.write_predictor.observe(&self.units.tuning, write_predictor::Event::NoteTaken(unit));
            self.offers.end(cx, &mut self.units, unit);
            let (layout, this) = (self.units.layout, &mut self.units[unit]);
            this.home = writer;
            this.state.hear_of_home();
            let was_home = this.is_home();
            match &mut this.state {
                _ if writer == cx.me => {
                    self.units.become_home_of_written(cx, unit);
                    cx.tally.migrations += 1;
                    if layout.write_detection {
                        push_range(&mut mine, at);
                    }
                    if !was_home {
                        self.gained.add(cx, layout, 1);
                    }
                }
                UnitState::Home(_) | UnitState::Valid(_) => {
                    // A copy that was fetched after the writer's notice had come is up to date, but its new home does
                    // not know of it.
                    let memory = if was_home { Memory::None } else { Memory::Kept };
                    self.units.reset(unit, UnitState::Invalid(memory));
                    cx.memory.drop_twin(at.clone());
                    push_range(&mut gone, at);
                    if was_home {
                        self.gained.add(cx, layout, -1);
                    }
                }
                UnitState::Fetching(fetch) => fetch.cancelled = true,
                UnitState::Unclaimed => {
                    // Another node had claimed it and this one has not heard of it.
                    this.state.settle(false, layout.write_detection);
                    self.gained.add(cx, layout, -1);
                }
                UnitState::Invalid(_) | UnitState::Stale(_) => {}
            }
        }
        mine.into_iter().for_each(|run| let_write(cx, run));
        gone.into_iter().for_each(|run| self.units.leave_memory(cx, run));
    }
}

impl Units {
    /// This node alone has written the unit, and holds it: it is the home from now on.
    fn become_home_of_written(&mut self, cx: &mut Context<'_>, unit: usize) {
        let mapped = self[unit].state != UnitState::Valid(CopyState::Untracked);
        self.become_home(cx, unit, mapped);
        self.reset(unit, self[unit].state);
        if let Some(home) = self[unit].state.home_mut() {
            home.writers = Writers::Home;
        }
        cx.memory.drop_twin(self.pages_of(unit));
    }

    /// Pages of which this node has nothing any more. Their memory is given back in long runs; a few pages keep theirs
    /// for the next fetch, as copies that end do.
    fn leave_memory(&mut self, cx: &mut Context<'_>, run: Range<PageNo>) {
        cx.memory.unmap(run.clone());
        cx.memory.untrack(run.clone());
        let keep = run.end - run.start <= self.tuning.keep_memory_pages;
        for unit in self.within(&run) {
            let (pages, this) = (i64::from(self.layout.unit_pages), &mut self[unit]);
            if this.state.has_memory() != keep {
                cx.tally.held += if keep { pages } else { -pages };
            }
            this.state = UnitState::Invalid(if keep { Memory::Kept } else { Memory::None });
        }
        if !keep {
            cx.memory.discard(run);
        }
    }
}

/// Nobody holds copies of these mapped home pages any more: they may be written without anybody being told.
pub(super) fn let_write(cx: &mut Context<'_>, pages: Range<PageNo>) {
    if !cx.memory.notes_writes() {
        cx.memory.map_write(pages.clone());
    }
    cx.memory.untrack(pages);
}
