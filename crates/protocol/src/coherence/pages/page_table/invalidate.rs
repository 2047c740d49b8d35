//! The end of copies: by a notice that another node wrote, or because their memory is wanted. What was written in them
//! is flushed first.

use super::state::{CopyState, UnitState};
use super::units::{Unit, Units};
use super::{DiffSink, PageTable, add_unit, part};
use crate::coherence::pages::policy::reuse;
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Another node wrote these pages: this node's copies of them end. What was written here is flushed first, and
    /// stays to be told.
    pub fn invalidate(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], flush: &mut dyn DiffSink) {
        let mut ended: Vec<Range<usize>> = Vec::new();
        for run in runs {
            for unit in self.units.within(run) {
                if self.units[unit].is_home_written_elsewhere() {
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

    /// Ends valid copies. Runs with nothing mapped between them are ended together: each call that unmaps or scans
    /// interrupts every processor that runs this program.
    pub(super) fn invalidate_copies(
        &mut self,
        cx: &mut Context<'_>,
        mut ended: Vec<Range<usize>>,
        flush: &mut dyn DiffSink,
    ) {
        if ended.is_empty() {
            return;
        }
        ended.sort_by_key(|run| run.start);
        ended.dedup_by(|next, run| {
            let meet = next.start <= run.end;
            run.end = if meet { run.end.max(next.end) } else { run.end };
            meet
        });
        self.invalidate_runs(cx, &ended, flush);
    }

    /// Unmap, then look what was written, then diff, then change state.
    pub(super) fn invalidate_runs(&mut self, cx: &mut Context<'_>, runs: &[Range<usize>], flush: &mut dyn DiffSink) {
        let stretches: Vec<Range<PageNo>> =
            self.units.stretches(runs).into_iter().map(|units| self.units.pages(units)).collect();
        if Rule::UnmapBeforeCollect.on() {
            cx.memory.unmap_all(&stretches);
            self.scan_invalidated(cx, runs);
        } else {
            self.scan_invalidated(cx, runs);
            cx.memory.unmap_all(&stretches);
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if self.units[unit].state.is_dirty() && self.keeps_own_bytes() {
                self.flush_unit(cx, unit, flush);
            }
            cx.memory.drop_twin(self.units.pages_of(unit));
            self.units[unit].state.end_copy();
            self.units.observe_use(unit, reuse::Event::Ended(cx.sync_phase.epoch()));
            cx.tally.invalidations += 1;
        }
        stretches.into_iter().for_each(|pages| cx.memory.untrack(pages));
    }

    /// Marks what was written of copies that are not mapped any more. Their notes need not be taken: when they are
    /// mapped again, they are clean. So what lies between is looked at along, as far as that costs less than another
    /// call.
    fn scan_invalidated(&mut self, cx: &mut Context<'_>, runs: &[Range<usize>]) {
        if !cx.memory.notes_writes() {
            return;
        }
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        let most = self.units.tuning.invalidate_gap_units;
        for near in runs.chunk_by(|run, next| next.start - run.end <= most) {
            if let (Some(first), Some(last)) = (near.first(), near.last()) {
                cx.memory.written(self.units.pages(first.start..last.end), &mut written);
            }
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if !part(&written, &self.units.pages_of(unit)).is_empty() {
                self.units[unit].state.set_dirty(true);
                self.close_state.pending = true;
            }
        }
        self.written = written;
    }

    /// Gives up this node's copies among `pages`, written ones after a flush; gives how many pages that was.
    pub fn evict(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn DiffSink) -> u32 {
        self.evict_those(cx, pages, flush, |_| true)
    }

    /// As [`PageTable::evict`], only of copies that are of no use now: that are invalid or untracked.
    pub fn evict_idle(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn DiffSink) -> u32 {
        self.evict_those(cx, pages, flush, |unit| match unit.state {
            UnitState::Invalid(_) => true,
            UnitState::Valid(copy) | UnitState::Stale(copy) => copy == CopyState::Untracked,
            _ => false,
        })
    }

    fn evict_those(
        &mut self,
        cx: &mut Context<'_>,
        pages: &Range<PageNo>,
        flush: &mut dyn DiffSink,
        goes: impl Fn(&Unit) -> bool,
    ) -> u32 {
        let before = self.units.cached_pages();
        for unit in self.units.within(pages) {
            if !goes(&self.units[unit]) || !self.may_give_back(cx.me, unit) {
                continue;
            }
            if self.units[unit].state.is_valid() {
                self.evict_copy(cx, unit, flush);
            }
            if self.units[unit].state.is_absent() {
                self.give_memory_back(cx, unit);
            }
        }
        before - self.units.cached_pages()
    }

    fn evict_copy(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        self.invalidate_runs(cx, std::slice::from_ref(&(unit..unit + 1)), flush);
        cx.tally.evictions += 1;
        cx.tally.invalidations -= 1;
        self.units.observe_use(unit, reuse::Event::Evicted);
        let this = &mut self.units[unit];
        // What was told of it said that the copy is held.
        if this.notices.are_told() && self.kept.is_none() && Rule::MigrationNeedsValidCopy.on() {
            self.close_state.pending = true;
            this.notices.flush();
        }
    }

    /// Of a unit that is not valid.
    pub(super) fn give_memory_back(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units.give_memory_back(cx, unit) {
            self.kept_copy_is_gone(unit);
        }
    }
}

impl Units {
    /// Of a unit that is not valid; whether there was any.
    pub(super) fn give_memory_back(&mut self, cx: &mut Context<'_>, unit: usize) -> bool {
        let has = self[unit].state.has_memory();
        if has {
            self.drop_stale_mapping(cx, unit);
            cx.memory.discard(self.pages_of(unit));
            self[unit].state.give_back();
            cx.tally.held -= self.held_pages(cx.me, unit);
        }
        has
    }

    /// Stretches with nothing mapped between the runs in them, as they are unmapped together.
    fn stretches(&self, runs: &[Range<usize>]) -> Vec<Range<usize>> {
        let absent = |u: &Unit| u.state.is_unmapped();
        let most = self.tuning.invalidate_gap_units;
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for run in runs {
            match stretches.last_mut() {
                Some(last) if run.start - last.end <= most && self[last.end..run.start].iter().all(absent) => {
                    last.end = run.end;
                }
                _ => stretches.push(run.clone()),
            }
        }
        stretches
    }
}
