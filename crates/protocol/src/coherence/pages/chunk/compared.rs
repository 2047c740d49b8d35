//! Home pages that are compared: few pages that their home writes again and again, while others hold copies, where the kernel notes writes.
//!
//! Their notes stay, as those of many pages do ([`steady`](super::steady)), and so the next write costs no fault and the close no call. But that a page of a few
//! counts as written in an epoch in which it was not is dear: who reads it is sent it in vain, or asks for it again. So the home keeps a
//! *twin* of such a page: what it held when others were last told of it. A close compares the two, tells of the page if they differ, and brings the twin up to
//! date. Boundary rows of a grid, of which each half of an iteration writes every other one, are compared for 0.3 us where a note that is taken costs 2.
//!
//! Others get copies of the twin, not of the page ([`Rule::ComparedPagesGoOutAsTold`]): a thread of the home may be writing, and if what it writes comes to what
//! was there before, nobody would be told of it. So a copy elsewhere is always as the twin was when it was made, and who has the newest one need not be told of
//! a page that is as its twin. That takes a home that is asked: where others copy pages out of its memory by themselves, none is compared.
//!
//! A diff of another node ends it ([`Rule::DiffsEndComparisons`]): the page counts as written then, as one whose note was left.

use super::steady::{Note, Steady};
use super::{COMPARED, Chunk};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl Chunk {
    /// A close has found the note of a home page, one of few, that others hold: from the second time on it is compared. It is told of now in any case.
    pub(super) fn weigh_note_of_few(&mut self, cx: &mut Context<'_>, unit: usize) -> Note {
        let steady = &mut self.steady[unit];
        if !steady.is_found_again(cx.era.epoch()) {
            return Note::Take;
        }
        steady.leave_one_of_few();
        self.begin_comparison(cx, unit);
        Note::Leave
    }

    /// A page of which nobody held a copy, and whose note was left, is copied out for others.
    pub(super) fn compare_again(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.steady.get(unit).is_some_and(Steady::is_one_of_few) && cx.era.is_quiet() {
            self.begin_comparison(cx, unit);
        }
    }

    fn begin_comparison(&mut self, cx: &mut Context<'_>, unit: usize) {
        self.units[unit].set(COMPARED, true);
        cx.memory.make_twin(self.pages(unit..unit + 1), false);
        cx.tally.twins_made += 1;
    }

    /// A close has found the note of a page that is compared.
    pub(super) fn weigh_compared(&mut self, cx: &mut Context<'_>, unit: usize) -> Note {
        if !cx.era.is_quiet() {
            self.end_comparison(cx, unit);
            return Note::Take;
        }
        let changed = cx.memory.update_twin(self.pages(unit..unit + 1));
        match (self.steady[unit].pays(changed, 1), changed) {
            (false, _) => {
                self.end_comparison(cx, unit);
                Note::Take
            }
            (true, true) => Note::Leave,
            (true, false) => Note::PassOver,
        }
    }

    /// The page is compared no longer: its note, if that was not taken, counts.
    pub(super) fn end_comparison(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(COMPARED) {
            self.units[unit].set(COMPARED, false);
            cx.memory.drop_twin(self.pages(unit..unit + 1));
        }
    }

    /// A diff is about to be applied to the unit.
    pub(super) fn end_comparison_for_diff(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(COMPARED) && Rule::DiffsEndComparisons.on() {
            self.steady[unit].distrust();
            self.end_comparison(cx, unit);
        }
    }

    /// Appends the bytes of home pages, as others may see them.
    pub(super) fn copy_told(&self, cx: &mut Context<'_>, pages: Range<PageNo>, out: &mut Vec<u8>) {
        let units = self.units_in(&pages);
        if !self.units[units.clone()].iter().any(|unit| unit.has(COMPARED)) || !Rule::ComparedPagesGoOutAsTold.on() {
            return cx.memory.copy_out(pages, out);
        }
        for unit in units {
            let at = self.pages(unit..unit + 1);
            if !(self.units[unit].has(COMPARED) && cx.memory.copy_twin(at.clone(), out)) {
                cx.memory.copy_out(at, out);
            }
        }
    }
}
