//! The end of copies: by a notice that another node wrote, or because their memory is wanted. What was written in them is flushed first.

use super::{ASIDE, Chunk, EARLY, FOREIGN, Flush, HELD, KEPT, NOTED, State, Unit, WRITTEN, WROTE, add_unit};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

/// Most units that were ended before between two runs of copies that end together: to go over one costs a few nanoseconds.
const GAP_UNITS: usize = 128;

impl Chunk {
    /// Another node wrote these pages: this node's copies of them end. What was written here is flushed first, and stays to be told.
    pub fn invalidate(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], flush: &mut dyn Flush) {
        let mut ended: Vec<Range<usize>> = Vec::new();
        for run in runs {
            for unit in self.units_in(run) {
                if self.is_home_written_elsewhere(unit) {
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

    /// Another node has written the unit; whether its home is here, where nothing ends.
    pub(super) fn is_home_written_elsewhere(&mut self, unit: usize) -> bool {
        let this = &mut self.units[unit];
        let home = this.state == State::Home;
        this.set(FOREIGN, home || this.has(FOREIGN));
        home
    }

    /// Whether there are copies here that an invalidation of `pages` would end.
    pub fn has_copies(&self, pages: &Range<PageNo>) -> bool {
        self.units[self.units_in(pages)].iter().any(|unit| unit.state == State::Valid)
    }

    /// Ends valid copies. Runs with nothing mapped between them are ended together: each call that unmaps or scans interrupts every processor that
    /// runs this program.
    pub(super) fn end_copies(&mut self, cx: &mut Context<'_>, mut ended: Vec<Range<usize>>, flush: &mut dyn Flush) {
        if ended.is_empty() {
            return;
        }
        ended.sort_by_key(|run| run.start);
        ended.dedup_by(|next, run| {
            let meet = next.start <= run.end;
            run.end = if meet { run.end.max(next.end) } else { run.end };
            meet
        });
        self.end_runs(cx, &ended, flush);
    }

    /// Stretches with nothing mapped between the runs in them, as they are unmapped together.
    fn stretches(&self, runs: &[Range<usize>]) -> Vec<Range<usize>> {
        let absent = |u: &Unit| matches!(u.state, State::Invalid | State::Fetching) && !u.has(KEPT | EARLY);
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for run in runs {
            match stretches.last_mut() {
                Some(last)
                    if run.start - last.end <= GAP_UNITS && self.units[last.end..run.start].iter().all(absent) =>
                {
                    last.end = run.end;
                }
                _ => stretches.push(run.clone()),
            }
        }
        stretches
    }

    /// Unmap, then look what was written, then diff, then change state.
    fn end_runs(&mut self, cx: &mut Context<'_>, runs: &[Range<usize>], flush: &mut dyn Flush) {
        let stretches: Vec<Range<PageNo>> = self.stretches(runs).into_iter().map(|units| self.pages(units)).collect();
        if Rule::UnmapBeforeCollect.on() {
            cx.memory.unmap_all(&stretches);
            self.look_at_ended(cx, runs);
        } else {
            self.look_at_ended(cx, runs);
            cx.memory.unmap_all(&stretches);
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if self.units[unit].has(WRITTEN) {
                self.flush_unit(cx, unit, flush);
            }
            cx.memory.drop_twin(self.pages(unit..unit + 1));
            self.units[unit].state = State::Invalid;
            self.units[unit].set(ASIDE, false);
            self.units[unit].ended = cx.era.epoch();
            cx.tally.invalidations += 1;
        }
        stretches.into_iter().for_each(|pages| cx.memory.disregard(pages));
    }

    /// Marks what was written of copies that are not mapped any more. Their notes need not be taken: when they are mapped again, they are clean. So what lies
    /// between is looked at along, as far as that costs less than another call.
    fn look_at_ended(&mut self, cx: &mut Context<'_>, runs: &[Range<usize>]) {
        if !cx.memory.notes_writes() {
            return;
        }
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        for near in runs.chunk_by(|run, next| next.start - run.end <= GAP_UNITS) {
            if let (Some(first), Some(last)) = (near.first(), near.last()) {
                cx.memory.written(self.pages(first.start..last.end), &mut written);
            }
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if !Self::part(&written, &self.pages(unit..unit + 1)).is_empty() {
                self.units[unit].set(WRITTEN, true);
                self.pending = true;
            }
        }
        self.written = written;
    }

    /// A valid copy ends by itself.
    pub(super) fn end_copy(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn Flush) {
        let run = unit..unit + 1;
        self.end_runs(cx, std::slice::from_ref(&run), flush);
    }

    /// Gives up this node's copies among `pages`, written ones after a flush; gives how many pages that was.
    pub fn evict(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn Flush) -> u32 {
        self.evict_those(cx, pages, flush, |_| true)
    }

    /// As [`Chunk::evict`], only of copies that are of no use now: that have ended, or lie aside.
    pub fn evict_idle(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn Flush) -> u32 {
        let ended = |unit: &Unit| unit.state == State::Invalid && !unit.has(KEPT);
        self.evict_those(cx, pages, flush, |unit| ended(unit) || unit.has(ASIDE))
    }

    fn evict_those(
        &mut self,
        cx: &mut Context<'_>,
        pages: &Range<PageNo>,
        flush: &mut dyn Flush,
        goes: impl Fn(&Unit) -> bool,
    ) -> u32 {
        let before = self.cached_pages();
        for unit in self.units_in(pages) {
            if goes(&self.units[unit]) {
                self.evict_unit(cx, unit, flush);
            }
        }
        before - self.cached_pages()
    }

    fn evict_unit(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn Flush) {
        if self.units[unit].state == State::Valid {
            self.end_copy(cx, unit, flush);
            cx.tally.evictions += 1;
            cx.tally.invalidations -= 1;
            let this = &mut self.units[unit];
            this.credit = 0;
            // What was told of it said that the copy is held.
            if this.has(WROTE) && Rule::MigrationNeedsValidCopy.on() {
                self.pending = true;
                this.set(NOTED, true);
            }
        }
        if self.units[unit].state == State::Invalid {
            self.give_memory_back(cx, unit);
        }
    }

    /// Of a unit that is not valid.
    pub(super) fn give_memory_back(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(HELD) {
            self.unkeep(cx, unit);
            cx.memory.discard(self.pages(unit..unit + 1));
            self.units[unit].set(HELD, false);
            cx.tally.held -= i64::from(self.shape.unit_pages);
        }
    }
}
