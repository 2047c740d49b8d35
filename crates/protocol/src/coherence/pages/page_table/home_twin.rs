//! Home pages that are compared: few pages that their home writes again and again, while others hold copies, where the
//! kernel notes writes.
//!
//! Their notes stay, as those of many pages do ([`write_predictor`](super::write_predictor)), and so the next write
//! costs no fault and the close no call. But that a page of a few counts as written in an epoch in which it was not is
//! dear: who reads it is sent it in vain, or asks for it again. So the home keeps a *twin* of such a page: what it held
//! when others were last told of it. A close compares the two, tells of the page if they differ, and brings the twin up
//! to date. Boundary rows of a grid, of which each half of an iteration writes every other one, are compared for 0.3 us
//! where a note that is taken costs 2.
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
use super::write_predictor::{Note, WriteHistory, WritePredictor};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl WritePredictor {
    /// A close has found the note of a home page, one of few, that others hold: from the second time on it is compared.
    /// It is told of now in any case.
    pub(super) fn predict_rewrite_of_few(&mut self, cx: &mut Context<'_>, units: &mut Units, unit: usize) -> Note {
        let steady = &mut self.history[unit];
        if !steady.is_found_again(cx.sync_phase.epoch()) {
            return Note::Take;
        }
        steady.leave_one_of_few();
        units.make_home_twin(cx, unit);
        Note::Leave
    }

    /// A page of which nobody held a copy, and whose note was left, is copied out for others.
    pub(super) fn renew_home_twin(&self, cx: &mut Context<'_>, units: &mut Units, unit: usize) {
        if self.history.get(unit).is_some_and(WriteHistory::is_one_of_few) && cx.sync_phase.is_quiet() {
            units.make_home_twin(cx, unit);
        }
    }

    /// A close has found the note of a page that is compared.
    pub(super) fn predict_from_home_twin(&mut self, cx: &mut Context<'_>, units: &mut Units, unit: usize) -> Note {
        if !cx.sync_phase.is_quiet() {
            units.drop_home_twin(cx, unit);
            return Note::Take;
        }
        let changed = cx.memory.update_twin(units.pages_of(unit));
        match (self.history[unit].keep_writable(&units.tuning, changed, 1), changed) {
            (false, _) => {
                units.drop_home_twin(cx, unit);
                Note::Take
            }
            (true, true) => Note::Leave,
            (true, false) => Note::PassOver,
        }
    }

    /// A diff is about to be applied to the unit.
    pub(super) fn drop_home_twin_for_diff(&mut self, cx: &mut Context<'_>, units: &mut Units, unit: usize) {
        if units[unit].state.has_home_twin() && Rule::DiffsEndComparisons.on() {
            self.history[unit].distrust(&units.tuning);
            units.drop_home_twin(cx, unit);
        }
    }
}

impl Units {
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
