//! The end of copies: by a notice that another node wrote, or because their memory is wanted. What was written in them
//! is flushed first.

use super::{
    DIRTY, DiffSink, INVALID_MAPPED, NOTICE_PENDING, NOTICED_THIS_EPOCH, PREMAPPED, PageTable, REMOTE_DIRTY, RESIDENT,
    State, UNTRACKED, Unit, add_unit,
};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Another node wrote these pages: this node's copies of them end. What was written here is flushed first, and
    /// stays to be told.
    pub fn invalidate(&mut self, cx: &mut Context<'_>, runs: &[Range<PageNo>], flush: &mut dyn DiffSink) {
        let mut ended: Vec<Range<usize>> = Vec::new();
        for run in runs {
            for unit in self.units_in(run) {
                if self.is_home_written_elsewhere(unit) {
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

    /// Another node has written the unit; whether its home is here, where nothing ends.
    pub(super) fn is_home_written_elsewhere(&mut self, unit: usize) -> bool {
        let this = &mut self.units[unit];
        let home = this.state == State::Home;
        this.set(REMOTE_DIRTY, home || this.has(REMOTE_DIRTY));
        home
    }

    /// Whether there are copies here that an invalidation of `pages` would end.
    pub fn has_copies(&self, pages: &Range<PageNo>) -> bool {
        self.units[self.units_in(pages)].iter().any(|unit| unit.state == State::Valid)
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

    /// Stretches with nothing mapped between the runs in them, as they are unmapped together.
    fn stretches(&self, runs: &[Range<usize>]) -> Vec<Range<usize>> {
        let absent =
            |u: &Unit| matches!(u.state, State::Invalid | State::Fetching) && !u.has(INVALID_MAPPED | PREMAPPED);
        let most = self.tuning.invalidate_gap_units;
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for run in runs {
            match stretches.last_mut() {
                Some(last) if run.start - last.end <= most && self.units[last.end..run.start].iter().all(absent) => {
                    last.end = run.end;
                }
                _ => stretches.push(run.clone()),
            }
        }
        stretches
    }

    /// Unmap, then look what was written, then diff, then change state.
    fn invalidate_runs(&mut self, cx: &mut Context<'_>, runs: &[Range<usize>], flush: &mut dyn DiffSink) {
        let stretches: Vec<Range<PageNo>> = self.stretches(runs).into_iter().map(|units| self.pages(units)).collect();
        if Rule::UnmapBeforeCollect.on() {
            cx.memory.unmap_all(&stretches);
            self.scan_invalidated(cx, runs);
        } else {
            self.scan_invalidated(cx, runs);
            cx.memory.unmap_all(&stretches);
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if self.units[unit].has(DIRTY) {
                self.flush_unit(cx, unit, flush);
            }
            cx.memory.drop_twin(self.pages(unit..unit + 1));
            self.units[unit].state = State::Invalid;
            self.units[unit].set(UNTRACKED, false);
            self.units[unit].ended = cx.sync_phase.epoch();
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
        let most = self.tuning.invalidate_gap_units;
        for near in runs.chunk_by(|run, next| next.start - run.end <= most) {
            if let (Some(first), Some(last)) = (near.first(), near.last()) {
                cx.memory.written(self.pages(first.start..last.end), &mut written);
            }
        }
        for unit in runs.iter().flat_map(Range::clone) {
            if !Self::part(&written, &self.pages(unit..unit + 1)).is_empty() {
                self.units[unit].set(DIRTY, true);
                self.pending = true;
            }
        }
        self.written = written;
    }

    /// A valid copy ends by itself.
    pub(super) fn invalidate_copy(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        let run = unit..unit + 1;
        self.invalidate_runs(cx, std::slice::from_ref(&run), flush);
    }

    /// Gives up this node's copies among `pages`, written ones after a flush; gives how many pages that was.
    pub fn evict(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn DiffSink) -> u32 {
        self.evict_those(cx, pages, flush, |_| true)
    }

    /// As [`PageTable::evict`], only of copies that are of no use now: that are invalid or untracked.
    pub fn evict_idle(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, flush: &mut dyn DiffSink) -> u32 {
        let ended = |unit: &Unit| unit.state == State::Invalid && !unit.has(INVALID_MAPPED);
        self.evict_those(cx, pages, flush, |unit| ended(unit) || unit.has(UNTRACKED))
    }

    fn evict_those(
        &mut self,
        cx: &mut Context<'_>,
        pages: &Range<PageNo>,
        flush: &mut dyn DiffSink,
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

    fn evict_unit(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) {
        if self.units[unit].state == State::Valid {
            self.invalidate_copy(cx, unit, flush);
            cx.tally.evictions += 1;
            cx.tally.invalidations -= 1;
            let this = &mut self.units[unit];
            this.credit = 0;
            // What was told of it said that the copy is held.
            if this.has(NOTICED_THIS_EPOCH) && Rule::MigrationNeedsValidCopy.on() {
                self.pending = true;
                this.set(NOTICE_PENDING, true);
            }
        }
        if self.units[unit].state == State::Invalid {
            self.give_memory_back(cx, unit);
        }
    }

    /// Of a unit that is not valid.
    pub(super) fn give_memory_back(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(RESIDENT) {
            self.drop_stale_mapping(cx, unit);
            cx.memory.discard(self.pages(unit..unit + 1));
            self.units[unit].set(RESIDENT, false);
            cx.tally.held -= i64::from(self.layout.unit_pages);
        }
    }
}
