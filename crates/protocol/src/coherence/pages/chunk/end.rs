//! The end of copies: by a notice that another node wrote, or because their memory is wanted. What was written in them is flushed first.

use super::{Chunk, Flush, HELD, KEPT, NOTED, State, Unit, WRITTEN, WROTE, add_unit};
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
                self.void_fetch(cx, unit, flush);
                if self.units[unit].state == State::Valid {
                    add_unit(&mut ended, unit);
                }
            }
        }
        self.end_copies(cx, ended, flush);
    }

    /// Whether there are copies here that an invalidation of `pages` would end.
    pub fn has_copies(&self, pages: &Range<PageNo>) -> bool {
        self.units[self.units_in(pages)].iter().any(|unit| unit.state == State::Valid)
    }

    /// Ends valid copies. Runs with nothing mapped between them are ended together: each call that unmaps or scans interrupts every processor that
    /// runs this program.
    pub(super) fn end_copies(&mut self, cx: &mut Context<'_>, mut ended: Vec<Range<usize>>, flush: &mut dyn Flush) {
        ended.sort_by_key(|run| run.start);
        ended.dedup_by(|next, run| {
            let meet = next.start <= run.end;
            run.end = if meet { run.end.max(next.end) } else { run.end };
            meet
        });
        let absent = |u: &Unit| matches!(u.state, State::Invalid | State::Fetching) && !u.has(KEPT);
        let mut left = &ended[..];
        while let Some(first) = left.first() {
            let joins = |pair: &&[Range<usize>]| {
                let gap = pair[0].end..pair[1].start;
                gap.len() <= GAP_UNITS && self.units[gap].iter().all(absent)
            };
            let count = 1 + left.windows(2).take_while(joins).count();
            let stretch = first.start..left[count - 1].end;
            self.end_stretch(cx, stretch, &left[..count], flush);
            left = &left[count..];
        }
    }

    /// Unmap, then look what was written, then diff, then change state. What lies between the runs is not mapped.
    fn end_stretch(
        &mut self,
        cx: &mut Context<'_>,
        stretch: Range<usize>,
        runs: &[Range<usize>],
        flush: &mut dyn Flush,
    ) {
        let pages = self.pages(stretch.clone());
        if Rule::UnmapBeforeCollect.on() {
            cx.memory.unmap(pages.clone());
            self.collect(cx, stretch);
        } else {
            self.collect(cx, stretch);
            cx.memory.unmap(pages.clone());
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if self.units[unit].has(WRITTEN) {
                self.flush_unit(cx, unit, flush);
            }
            cx.memory.drop_twin(self.pages(unit..unit + 1));
            self.units[unit].state = State::Invalid;
            self.units[unit].ended = cx.era.epoch();
            cx.tally.invalidations += 1;
        }
        cx.memory.disregard(pages);
    }

    /// A valid copy ends by itself.
    pub(super) fn end_copy(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn Flush) {
        let run = unit..unit + 1;
        self.end_stretch(cx, run.clone(), std::slice::from_ref(&run), flush);
    }

    /// Gives up this node's copies among `pages`, written ones after a flush; gives how many pages that was.
    pub fn evict(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn Flush) -> u32 {
        let before = self.cached_pages();
        for unit in self.units_in(pages) {
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
            if self.units[unit].has(HELD) && self.units[unit].state == State::Invalid {
                self.unkeep(cx, unit);
                cx.memory.discard(self.pages(unit..unit + 1));
                self.units[unit].set(HELD, false);
                cx.tally.held -= i64::from(self.shape.unit_pages);
            }
        }
        before - self.cached_pages()
    }
}
