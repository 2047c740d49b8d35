//! The end of an interval, and of an epoch: finds what was written in a chunk, flushes it and says what it was.

use super::migration::let_write;
use super::state::{CopyState, Detection, UnitState, Writers};
use super::units::{Unit, Units};
use super::{DiffSink, PageTable, part};
use crate::coherence::pages::policy::Predictor;
use crate::coherence::pages::policy::sync_phase::SyncPhase;
use crate::coherence::pages::policy::write_predictor::{self, Note};
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
    /// For a [`PageTable::close`] by which it leaves the list of active tables, since stores are forbidden.
    pub forbids_writes: bool,
}

impl PendingWork {
    /// [`PendingWork::close`] and [`PendingWork::gets`] among the bits: what a chunk in the midst of a step asks for.
    pub const IN_A_STEP: u8 = PendingWork::CLOSE | PendingWork::GETS;
    const CLOSE: u8 = 1;
    const GETS: u8 = 4;

    /// As bits.
    pub fn bits(self) -> u8 {
        let forbids = u8::from(self.forbids_writes) << 3;
        u8::from(self.close) | (u8::from(self.open) << 1) | (u8::from(self.gets) << 2) | forbids
    }

    /// From [`PendingWork::bits`].
    pub fn of(bits: u8) -> PendingWork {
        let has = |bit| bits & bit != 0;
        let (gets, forbids_writes) = (has(PendingWork::GETS), has(8));
        PendingWork { close: has(PendingWork::CLOSE), open: has(2), gets, forbids_writes }
    }
}

/// What a close, or a barrier that opens, may find in a chunk.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct CloseState {
    /// When all notes of writes were taken the last time, in closes.
    swept: u32,
    /// Whether a unit may be dirty or have notices to be told, where writes are noted.
    pub pending: bool,
    /// The last close found nothing to do and changed nothing: the next one may find something.
    pub passed_over: bool,
    /// All that a close had to scan is untracked now: the next one may leave the chunk out for good.
    pub all_untracked: bool,
    /// Whether a unit may have been told of in this epoch.
    pub may_be_noticed: bool,
    /// When a close has found something here the last time, or stores were allowed, in closes.
    pub touched: u32,
    /// Stores are forbidden: see `forbid_writes`.
    pub forbids_writes: bool,
}

impl CloseState {
    /// The region was freed: the next close leaves the chunk out for good.
    pub(super) fn end(&mut self) {
        *self = CloseState { swept: self.swept, all_untracked: true, ..CloseState::default() };
    }

    /// Whether it is time to take the notes that say nothing. In a chunk that a close has nothing to do with, it is
    /// done when the close comes to it: so [`PageTable::may_be_passed_over`] has a few of many chunks looked at in
    /// each.
    fn sweeps(self, tuning: &PageTuning, sync_phase: SyncPhase) -> bool {
        sync_phase.total().wrapping_sub(self.swept) >= tuning.scans_before_collect
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
        let is_skipped = self.forbids_writes() && !Rule::QuietTablesAreLookedAtOnceMore.on();
        if self.freed || is_skipped {
            self.close_state.all_untracked = false;
            return;
        }
        let here = seen.map(|seen| part(seen, &self.units.all_pages()));
        let all = self.units.all_pages();
        let inside = |run: &Range<PageNo>| run.end.min(all.end) - run.start.max(all.start);
        let written = here.unwrap_or_default().iter().map(inside).sum();
        let closes = write_predictor::Event::Closes { written, pages: all.end - all.start };
        self.write_predictor.observe(&self.units.tuning, closes);
        let nothing_seen = here.is_some_and(|here| here.is_empty());
        let state = &mut self.close_state;
        if nothing_seen
            && !(state.pending && Rule::PassedOverHasNothingToTell.on())
            && !state.sweeps(&self.units.tuning, cx.sync_phase)
        {
            state.passed_over = !std::mem::take(&mut state.all_untracked) && !state.forbids_writes;
            return;
        }
        state.passed_over = false;
        if !nothing_seen {
            state.touched = cx.sync_phase.total();
        }
        self.scan_for_writes(cx, seen);
        let mut left = false;
        for unit in 0..self.units.len() {
            let this = self.units[unit];
            // Mostly few were written of many that are here.
            if !this.has_work() {
                continue;
            }
            match this.state {
                UnitState::Valid(CopyState::Dirty) => {
                    if Rule::ProtectBeforeDiff.on() && !cx.memory.notes_writes() {
                        cx.memory.protect(self.units.pages_of(unit));
                    }
                    self.flush_unit(cx, unit, flush);
                    // To take the note and have the page protected again costs its close and its next writer some
                    // microseconds, a comparison that finds nothing a tenth of one.
                    let leaves = self.units.tuning.leave_writable;
                    let notices = &mut self.units[unit].notices;
                    let loose = leaves && notices.are_told() && notices.are_flushed();
                    notices.set_left_writable(loose && cx.memory.notes_writes());
                    if !cx.memory.notes_writes() {
                        cx.memory.drop_twin(self.units.pages_of(unit));
                        if !Rule::ProtectBeforeDiff.on() {
                            cx.memory.protect(self.units.pages_of(unit));
                        }
                    }
                    if !Rule::FlushedPagesStayNoted.on() {
                        self.units[unit].notices.flush();
                    }
                }
                UnitState::Home(_) if this.state.is_dirty() || this.state.is_assumed_dirty() => {
                    self.close_home(cx, unit);
                }
                _ => left |= this.state.is_dirty(),
            }
            self.units.notice_atomics(unit, flush);
            if self.units[unit].notices.tell() {
                self.close_state.may_be_noticed = true;
                let held = self.units[unit].state.is_valid();
                cx.tally.notices += u64::from(self.units.layout.unit_pages);
                notices.push((self.units.pages_of(unit), self.noticed_home(cx.me, unit), held));
            }
        }
        self.close_state.pending = left;
    }

    /// Whether an interval's close may find something here.
    pub fn may_be_dirty(&self) -> bool {
        let CloseState { passed_over, pending, may_be_noticed, forbids_writes, .. } = self.close_state;
        let may_store = |unit: &Unit| !forbids_writes && (unit.state.is_tracked() || unit.state.is_offered());
        let may = |unit: &Unit| may_store(unit) || unit.notices.are_flushed();
        passed_over || pending || may_be_noticed || self.units.iter().any(may)
    }

    /// Whether a close in which no write to this chunk was seen may leave it out: it would find nothing. Now and then
    /// it is this chunk's turn all the same.
    pub fn may_be_passed_over(tuning: &PageTuning, first: PageNo, asks: PendingWork, sync_phase: SyncPhase) -> bool {
        let turn = (first / CHUNK_PAGES).wrapping_add(sync_phase.total());
        let turn = turn.is_multiple_of(tuning.scans_before_collect);
        !asks.close && !asks.forbids_writes && !turn
    }

    /// What the chunk has to be asked for.
    pub fn pending_work(&self) -> PendingWork {
        let CloseState { pending, all_untracked, may_be_noticed, forbids_writes, .. } = self.close_state;
        let (close, gets) = (pending || all_untracked, !self.offers.is_empty());
        PendingWork { close, open: may_be_noticed, gets, forbids_writes }
    }

    fn close_home(&mut self, cx: &mut Context<'_>, unit: usize) {
        let pages = self.units.pages_of(unit);
        let this = &mut self.units[unit];
        this.state.set_dirty(false);
        let Some(home) = this.state.home_mut() else { return };
        let assumed = home.detection() == Some(Detection::Assumed);
        if !cx.memory.notes_writes() && !assumed {
            cx.memory.protect(pages);
        }
        home.writers.home_tells();
        if assumed {
            home.detect(Detection::Counted);
        } else if home.detection() == Some(Detection::Counted) {
            home.detect(Detection::Protected);
            home.writers = Writers::Nobody;
        }
        let tells = Rule::HomeWritesMakeNotices.on();
        this.notices.tell_of_home(tells);
        self.close_state.may_be_noticed = true;
        cx.tally.home_notices += u64::from(if tells { self.units.layout.unit_pages } else { 0 });
    }

    /// Looks where something can have been written: copies, and home pages that others hold.
    fn scan_for_writes(&mut self, cx: &mut Context<'_>, seen: Option<&[Range<PageNo>]>) {
        if !cx.memory.notes_writes() {
            return;
        }
        // What is not mapped has nothing to be collected, so one look goes over it.
        let absent = |unit: &Unit| unit.state.is_absent() || unit.is_fetching();
        let mut look: Option<Range<usize>> = None;
        let mut at = 0;
        while let Some(unit) = self.units.next_to_scan(at, seen) {
            at = unit + 1;
            let this = &mut self.units[unit];
            if seen.is_some() && this.state.is_valid() && this.notices.is_left_writable() {
                this.state.set_dirty(true);
                continue;
            }
            let (units, writes) = (&mut self.units, &mut self.write_predictor);
            let note = if seen.is_some() { units.judge_note(cx, writes, unit) } else { Note::Take };
            if note != Note::Take {
                units[unit].state.set_dirty(note != Note::PassOver);
                continue;
            }
            let joins = |i: usize| absent(&units[i]) || (units[i].state.is_tracked() && !writes.is_left(i));
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

    /// Whoever reads the kernel's notes meets those too that say nothing: of home pages that nobody else holds, and of
    /// pages that are not mapped. They are there at every look at what lies around them, until they are taken, which
    /// costs the page's next writer as much as some hundred looks cost those who close intervals: a look costs 5 to 8
    /// ns a page, the next write to a protected page 1.1 us. So they are taken after as many looks
    /// (`scans_before_collect`).
    fn sweep(&mut self, cx: &mut Context<'_>) {
        if !self.close_state.sweeps(&self.units.tuning, cx.sync_phase) {
            return;
        }
        self.close_state.swept = cx.sync_phase.total();
        let most = (GAP_LOOK / self.units.layout.unit_pages) as usize;
        let mut at = 0;
        while at < self.units.len() {
            let untracked = self.units[at..].iter().take_while(|unit| !unit.state.is_tracked()).count();
            let run = at..at + untracked;
            let is_used = |unit: &Unit| unit.state.is_mapped_home() || unit.state.has_memory();
            if untracked < most && self.units[run.clone()].iter().any(is_used) {
                self.collect(cx, run.clone());
            }
            at = run.end + self.units[run.end..].iter().take_while(|unit| unit.state.is_tracked()).count();
        }
    }

    /// A barrier has opened and every node knows every notice: nobody holds a copy of what was written here.
    pub fn open(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.close_state.may_be_noticed) {
            return;
        }
        // Copies taken since the last close are as good as those that were asked for since.
        self.collect_remote_gets(cx);
        let mut writable: Vec<Range<PageNo>> = Vec::new();
        for unit in 0..self.units.len() {
            let this = &mut self.units[unit];
            if let Some(home) = this.state.home_mut().filter(|home| home.detection() == Some(Detection::Counted)) {
                home.detect(Detection::Assumed);
            }
            if !this.notices.end_epoch() {
                continue;
            }
            let Some(home) = this.state.home_mut() else { continue };
            home.writers = Writers::Home;
            if self.units.layout.write_detection {
                self.units.drop_home_twin(cx, unit);
                let pages = self.units.pages_of(unit);
                let Some(home) = self.units[unit].state.home_mut() else { continue };
                // As this was shared, the close has taken its note and protected it, or found it protected.
                home.unshare(cx.memory.notes_writes());
                if home.is_mapped() {
                    push_range(&mut writable, pages);
                }
            }
        }
        writable.into_iter().for_each(|run| let_write(cx, run));
    }
}

impl Units {
    /// The first unit from `at` on whose notes count, among those that `seen` (in order) names if it is given.
    fn next_to_scan(&self, at: usize, seen: Option<&[Range<PageNo>]>) -> Option<usize> {
        let tracked = |units: Range<usize>| units.into_iter().find(|i| self[*i].state.is_tracked());
        let Some(seen) = seen else { return tracked(at..self.len()) };
        part(seen, &self.pages(at..self.len())).iter().find_map(|run| {
            let units = self.within(run);
            tracked(units.start.max(at)..units.end)
        })
    }
}
