//! Home pages that are compared: few pages that their home writes again and again, while others hold copies, where the
//! kernel notes writes.
//!
//! Their notes stay, as those of many pages do ([`write_predictor`](super::super::policy::write_predictor)), and so the
//! next write costs no fault and the close no call. But that a page of a few counts as written in an epoch in which it
//! was not is dear: who reads it is sent it in vain, or asks for it again. So the home keeps a *twin* of such a page:
//! what it held when others were last told of it. A close compares the two, tells of the page if they differ, and
//! brings the twin up to date. Boundary rows of a grid, of which each half of an iteration writes every other one, are
//! compared for 0.3 us where a note that is taken costs 2.
//!
//! Others get copies of the twin, not of the page ([`Rule::ComparedPagesGoOutAsTold`]): a thread of the home may be
//! writing, and if what it writes comes to what was there before, nobody would be told of it. So a copy elsewhere is
//! always as the twin was when it was made, and who has the newest one need not be told of a page that is as its twin.
//! That takes a home that is asked: where others copy pages out of its memory by themselves, none is compared.
//!
//! A diff of another node ends it ([`Rule::DiffsEndComparisons`]): the page counts as written then, as one whose note
//! was left.

use super::state::Detection;
use super::units::Units;
use crate::coherence::pages::policy::Predictor;
use crate::coherence::pages::policy::write_predictor::{Event, Found, Note, Page, WritePredictor};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl Units {
    /// A close has found the kernel's note of a copy, or of a home page that others hold: what becomes of the note. A
    /// page that is compared from now on has its twin, and one that is compared no longer has none.
    pub(super) fn judge_note(&mut self, cx: &mut Context<'_>, writes: &mut WritePredictor, unit: usize) -> Note {
        let (this, pages, quiet) = (self[unit], self.pages_of(unit), cx.sync_phase.is_quiet());
        let page = match this.state.home() {
            Some(_) if this.state.has_home_twin() => {
                Page::Compared(quiet.then(|| cx.memory.update_twin(pages.clone())))
            }
            Some(home) => Page::Home { others_wrote: home.writers.others_wrote() },
            None if this.state.is_valid() => Page::Copy,
            None => Page::Other,
        };
        let found = Found {
            unit,
            units: self.len(),
            page,
            told: this.notices.are_told(),
            epoch: cx.sync_phase.epoch(),
            quiet,
            one_sided: cx.memory.can_offer(),
            sample: &mut || cx.memory.sample(pages.clone()),
        };
        let note = writes.predict(&self.tuning, found);
        match note {
            Note::Take => self.drop_home_twin(cx, unit),
            Note::LeaveAndCompare => self.make_home_twin(cx, unit),
            Note::Leave | Note::PassOver => {}
        }
        note
    }

    /// A page of which nobody held a copy, and whose note was left, is copied out for others.
    pub(super) fn renew_home_twin(&mut self, cx: &mut Context<'_>, writes: &WritePredictor, unit: usize) {
        if writes.is_one_of_few(unit) && cx.sync_phase.is_quiet() {
            self.make_home_twin(cx, unit);
        }
    }

    /// A diff is about to be applied to the unit.
    pub(super) fn drop_home_twin_for_diff(&mut self, cx: &mut Context<'_>, writes: &mut WritePredictor, unit: usize) {
        if self[unit].state.has_home_twin() && Rule::DiffsEndComparisons.on() {
            writes.observe(&self.tuning, Event::Diff(unit));
            self.drop_home_twin(cx, unit);
        }
    }

    fn make_home_twin(&mut self, cx: &mut Context<'_>, unit: usize) {
        if let Some(home) = self[unit].state.home_mut() {
            home.detect(Detection::Twin);
            cx.memory.make_twin(self.pages_of(unit), false);
            cx.tally.twins_made += 1;
        }
    }

    /// The page is compared no longer: its note, if that was not taken, counts.
    pub(super) fn drop_home_twin(&mut self, cx: &mut Context<'_>, unit: usize) {
        if let Some(home) = self[unit].state.home_mut().filter(|home| home.detection() == Some(Detection::Twin)) {
            home.detect(Detection::Protected);
            cx.memory.drop_twin(self.pages_of(unit));
        }
    }

    /// Appends the bytes of home pages, as others may see them.
    pub(super) fn copy_released(&self, cx: &mut Context<'_>, pages: Range<PageNo>, out: &mut Vec<u8>) {
        let units = self.within(&pages);
        let has_twins = self[units.clone()].iter().any(|unit| unit.state.has_home_twin());
        if !has_twins || !Rule::ComparedPagesGoOutAsTold.on() {
            return cx.memory.copy_out(pages, out);
        }
        for unit in units {
            let at = self.pages_of(unit);
            if !(self[unit].state.has_home_twin() && cx.memory.copy_twin(at.clone(), out)) {
                cx.memory.copy_out(at, out);
            }
        }
    }
}
