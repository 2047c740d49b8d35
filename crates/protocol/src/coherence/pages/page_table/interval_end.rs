//! The end of an interval, and of an epoch: finds what was written in a chunk, flushes it and says what it was.

use super::write_predictor::Note;
use super::{
    ASSUMED_DIRTY, ASSUMPTION_COUNTED, ATOMIC, DIRTY, DiffSink, HAS_COPIES, HOME_DIRTY_LAST_EPOCH, INVALID_MAPPED,
    LEFT_WRITABLE, MAPPED, NOTICE_PENDING, NOTICED_THIS_EPOCH, PROTECTED_AT_BARRIER, PageTable, REMOTE_DIRTY, RESIDENT,
    State, Unit,
};
use crate::coherence::pages::sync_phase::SyncPhase;
use crate::coherence::pages::{CHUNK_PAGES, Context, GAP_LOOK, PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::tuning::PageTuning;
use std::ops::Range;

/// What a chunk has to be asked for by those who go through all chunks, where the kernel notes writes. It changes in
/// steps of the chunk alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PendingWork {
    /// For a [`PageTable::close`], also if no write was seen.
    pub close: bool,
    /// For [`PageTable::open`] and [`PageTable::pushes`] at a barrier.
    pub open: bool,
    /// For [`PageTable::collect_remote_gets`].
    pub gets: bool,
}

impl PendingWork {
    /// [`PendingWork::close`] and [`PendingWork::gets`] among the bits: what a chunk in the midst of a step asks for.
    pub const IN_A_STEP: u8 = PendingWork::CLOSE | PendingWork::GETS;
    const CLOSE: u8 = 1;
    const GETS: u8 = 4;

    /// As bits.
    pub fn bits(self) -> u8 {
        u8::from(self.close) | (u8::from(self.open) << 1) | (u8::from(self.gets) << 2)
    }

    /// From [`PendingWork::bits`].
    pub fn of(bits: u8) -> PendingWork {
        PendingWork { close: bits & PendingWork::CLOSE != 0, open: bits & 2 != 0, gets: bits & PendingWork::GETS != 0 }
    }
}

impl PageTable {
    /// The interval closes: flushes what was written here and appends what was, as (pages, home, still held), to
    /// `notices`.
    ///
    /// Where the kernel's notes were read at the beginning of the close, `seen` has the pages that they name, in order,
    /// and perhaps more: what was written before that and counts is among them. `None`: look everywhere.
    pub fn close(
        &mut self,
        cx: &mut Context<'_>,
        flush: &mut dyn DiffSink,
        seen: Option<&[Range<PageNo>]>,
        notices: &mut Vec<(Range<PageNo>, NodeId, bool)>,
    ) {
        if self.freed {
            self.all_untracked = false;
            return;
        }
        let here = seen.map(|seen| Self::part(seen, &self.pages(0..self.units.len())));
        self.count_written(here.unwrap_or_default());
        let nothing_seen = here.is_some_and(|here| here.is_empty());
        if nothing_seen && !(self.pending && Rule::PassedOverHasNothingToTell.on()) && !self.sweeps(cx.sync_phase) {
            self.passed_over = !std::mem::take(&mut self.all_untracked);
            return;
        }
        self.passed_over = false;
        self.scan_for_writes(cx, seen);
        let mut left = false;
        for unit in 0..self.units.len() {
            let this = self.units[unit];
            // Mostly few were written of many that are here.
            if !this.has(DIRTY | NOTICE_PENDING | ASSUMED_DIRTY | ATOMIC) {
                continue;
            }
            match this.state {
                State::Valid if this.has(DIRTY) => {
                    if Rule::ProtectBeforeDiff.on() && !cx.memory.notes_writes() {
                        cx.memory.protect(self.pages(unit..unit + 1));
                    }
                    self.flush_unit(cx, unit, flush);
                    // To take the note and have the page protected again costs its close and its next writer some
                    // microseconds, a comparison that finds nothing a tenth of one.
                    let loose = self.tuning.leave_writable
                        && this.has(NOTICED_THIS_EPOCH)
                        && self.units[unit].has(NOTICE_PENDING);
                    self.units[unit].set(LEFT_WRITABLE, loose && cx.memory.notes_writes());
                    if !cx.memory.notes_writes() {
                        cx.memory.drop_twin(self.pages(unit..unit + 1));
                        if !Rule::ProtectBeforeDiff.on() {
                            cx.memory.protect(self.pages(unit..unit + 1));
                        }
                    }
                    if !Rule::FlushedPagesStayNoted.on() {
                        self.units[unit].set(NOTICE_PENDING, true);
                    }
                }
                State::Home if this.has(HAS_COPIES) && (this.has(DIRTY) || this.has(ASSUMED_DIRTY)) => {
                    self.close_home(cx, unit);
                }
                _ => left |= this.has(INVALID_MAPPED) && this.has(DIRTY),
            }
            self.notice_atomics(unit, flush);
            if self.units[unit].has(NOTICE_PENDING) {
                let this = &mut self.units[unit];
                this.set(NOTICE_PENDING, false);
                this.set(NOTICED_THIS_EPOCH, true);
                self.may_be_noticed = true;
                let held = matches!(this.state, State::Valid);
                cx.tally.notices += u64::from(self.layout.unit_pages);
                notices.push((self.pages(unit..unit + 1), self.units[unit].home, held));
            }
        }
        self.pending = left;
    }

    /// Where writes raise faults: whether a close would find anything here.
    pub fn has_pending_notices(&self) -> bool {
        self.units.iter().any(|this| match this.state {
            _ if this.has(NOTICE_PENDING | ATOMIC) => true,
            State::Valid => this.has(DIRTY),
            State::Home => this.has(HAS_COPIES) && this.has(DIRTY | ASSUMED_DIRTY),
            _ => this.has(INVALID_MAPPED) && this.has(DIRTY),
        })
    }

    /// Whether a close in which no write to this chunk was seen may leave it out: it would find nothing. Now and then
    /// it is this chunk's turn all the same.
    pub fn may_be_passed_over(tuning: &PageTuning, first: PageNo, asks: PendingWork, sync_phase: SyncPhase) -> bool {
        let turn = (first / CHUNK_PAGES).wrapping_add(sync_phase.total());
        let turn = turn.is_multiple_of(tuning.scans_before_collect);
        !asks.close && !turn
    }

    /// What the chunk has to be asked for.
    pub fn pending_work(&self) -> PendingWork {
        PendingWork { close: self.pending || self.all_untracked, open: self.may_be_noticed, gets: self.offered > 0 }
    }

    fn close_home(&mut self, cx: &mut Context<'_>, unit: usize) {
        let this = self.units[unit];
        let (presumed, again) = (
            this.has(ASSUMED_DIRTY) && !this.has(ASSUMPTION_COUNTED),
            this.has(ASSUMED_DIRTY) && this.has(ASSUMPTION_COUNTED),
        );
        if !cx.memory.notes_writes() && !presumed {
            cx.memory.protect(self.pages(unit..unit + 1));
        }
        let this = &mut self.units[unit];
        this.set(DIRTY | REMOTE_DIRTY, false);
        this.set(NOTICED_THIS_EPOCH, true);
        if again {
            this.set(ASSUMED_DIRTY | HOME_DIRTY_LAST_EPOCH, false);
        }
        this.set(ASSUMPTION_COUNTED, presumed);
        self.may_be_noticed = true;
        if Rule::HomeWritesMakeNotices.on() {
            this.set(NOTICE_PENDING, true);
            cx.tally.home_notices += u64::from(self.layout.unit_pages);
        }
    }

    /// Looks where something can have been written: copies, and home pages that others hold.
    fn scan_for_writes(&mut self, cx: &mut Context<'_>, seen: Option<&[Range<PageNo>]>) {
        if !cx.memory.notes_writes() {
            return;
        }
        // What is not mapped has nothing to be collected, so one look goes over it.
        let absent = |u: &Unit| matches!(u.state, State::Invalid | State::Fetching);
        let mut look: Option<Range<usize>> = None;
        let mut at = 0;
        while let Some(unit) = self.next_to_scan(at, seen) {
            at = unit + 1;
            let this = &mut self.units[unit];
            if seen.is_some() && this.state == State::Valid && this.has(LEFT_WRITABLE) {
                this.set(DIRTY, true);
                continue;
            }
            let note = if seen.is_some() { self.predict_rewrite(cx, unit) } else { Note::Take };
            if note != Note::Take {
                self.units[unit].set(DIRTY, note == Note::Leave);
                continue;
            }
            let joins = |i: usize| absent(&self.units[i]) || (Self::is_tracked(&self.units[i]) && !self.is_left(i));
            let joined = look.as_ref().is_some_and(|look| (look.end..unit).all(joins));
            match look.as_mut().filter(|_| joined) {
                Some(look) => look.end = unit + 1,
                None => {
                    if let Some(before) = look.replace(unit..unit + 1) {
                        self.collect(cx, before);
                    }
                }
            }
        }
        if let Some(last) = look {
            self.collect(cx, last);
        }
        if seen.is_some() {
            self.sweep(cx);
        }
    }

    /// The first unit from `at` on whose notes count, among those that `seen` (in order) names if it is given.
    fn next_to_scan(&self, at: usize, seen: Option<&[Range<PageNo>]>) -> Option<usize> {
        let tracked = |units: Range<usize>| units.into_iter().find(|i| Self::is_tracked(&self.units[*i]));
        let Some(seen) = seen else { return tracked(at..self.units.len()) };
        Self::part(seen, &self.pages(at..self.units.len())).iter().find_map(|run| {
            let units = self.units_in(run);
            tracked(units.start.max(at)..units.end)
        })
    }

    /// Whoever reads the kernel's notes meets those too that say nothing: of home pages that nobody else holds, and of
    /// pages that are not mapped. They are there at every look at what lies around them, until they are taken, which
    /// costs the page's next writer as much as some hundred looks cost those who close intervals: a look costs 5 to 8
    /// ns a page, the next write to a protected page 1.1 us. So they are taken after as many looks
    /// (`scans_before_collect`).
    fn sweep(&mut self, cx: &mut Context<'_>) {
        if !self.sweeps(cx.sync_phase) {
            return;
        }
        self.swept = cx.sync_phase.total();
        let most = (GAP_LOOK / self.layout.unit_pages) as usize;
        let mut at = 0;
        while at < self.units.len() {
            let untracked = self.units[at..].iter().take_while(|u| !Self::is_tracked(u)).count();
            let run = at..at + untracked;
            if untracked < most && self.units[run.clone()].iter().any(|u| u.has(MAPPED | RESIDENT)) {
                self.collect(cx, run.clone());
            }
            at = run.end + self.units[run.end..].iter().take_while(|u| Self::is_tracked(u)).count();
        }
    }

    /// Whether it is time for that. In a chunk that a close has nothing to do with, it is done when the close comes to
    /// it: so [`PageTable::may_be_passed_over`] has a few of many chunks looked at in each.
    fn sweeps(&self, sync_phase: SyncPhase) -> bool {
        sync_phase.total().wrapping_sub(self.swept) >= self.tuning.scans_before_collect
    }

    /// The runs among `seen` (in order) that touch `pages`.
    pub(super) fn part<'a>(seen: &'a [Range<PageNo>], pages: &Range<PageNo>) -> &'a [Range<PageNo>] {
        let here = &seen[seen.partition_point(|run| run.end <= pages.start)..];
        &here[..here.partition_point(|run| run.start < pages.end)]
    }

    /// A barrier has opened and every node knows every notice: nobody holds a copy of what was written here.
    pub fn open(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.may_be_noticed) {
            return;
        }
        // Copies taken since the last close are as good as those that were asked for since.
        self.collect_remote_gets(cx);
        let mut writable: Vec<Range<PageNo>> = Vec::new();
        for unit in 0..self.units.len() {
            let pages = self.pages(unit..unit + 1);
            let this = &mut self.units[unit];
            this.set(ASSUMPTION_COUNTED, false);
            if !this.has(NOTICED_THIS_EPOCH) {
                continue;
            }
            this.set(NOTICED_THIS_EPOCH | ASSUMED_DIRTY | LEFT_WRITABLE, false);
            if this.state != State::Home {
                continue;
            }
            this.set(HOME_DIRTY_LAST_EPOCH, true);
            this.set(REMOTE_DIRTY, false);
            if self.layout.write_detection {
                // As this was shared, the close has taken its note and protected it, or found it protected.
                this.set(PROTECTED_AT_BARRIER, this.has(HAS_COPIES) && this.has(MAPPED) && cx.memory.notes_writes());
                this.set(HAS_COPIES, false);
                if this.has(MAPPED) {
                    push_range(&mut writable, pages);
                }
                self.drop_home_twin(cx, unit);
            }
        }
        writable.into_iter().for_each(|run| Self::let_write(cx, run));
    }
}
