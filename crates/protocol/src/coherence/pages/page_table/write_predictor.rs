//! Pages that are written again and again, where the kernel notes writes: their notes stay when they are told of.
//!
//! To take a note costs a call, and the page's next writer a fault in the kernel, 0.75 us. Where pages are written in
//! every epoch or every other one, and barriers alone order them, that buys nothing. So the note is left, and the page
//! stays writable. The note says from then on that the page was written since it was told of, or perhaps that it was
//! not: so the page counts as written at the next close. Nothing that was written is ever missed.
//!
//! Of a *copy* what may be lost is a comparison with its twin that finds nothing: 0.3 to 0.7 us, and 1 to 2 where
//! neither is in the caches. So a note is left where the one before it was taken an epoch or two before, and no other:
//! what is written now and then is compared once for each time.
//!
//! A *home page* counts as written at the next close at which others hold copies: whoever copies it will have to copy
//! it again. What may be lost is that a copy ends for nothing and is renewed. That is held down: a few words of the
//! page are remembered at each close that leaves the note, and if they are the same at the next, the page was probably
//! not written. They say nothing where others write the page: so the note of a page that others alone have written of
//! late is left only where it is found as soon again as that of a copy must be.
//!
//! A page that is written in every other epoch may stay writable (`unchanged_max`): where copies and home pages lie in
//! turn, to take a note costs a call for each page, and with its next writer's fault 2.2 us. But a home page that is
//! found unchanged weighs more where others cannot take pages by themselves: who copied it asks for it once more.
//!
//! Notes are left where a large part of a chunk was written (`predicted_part`): of few pages there is little to gain,
//! and who reads few pages again and again fetches them ahead, so that copies which end for nothing are fetched for
//! nothing. Of few pages even that is too much: they are [`home_twin`](super::home_twin).
//!
//! Where that happens more often than not, the note is taken after all, and it must be found more often that the page
//! is written still before the note is left again. An epoch with a second close has locks in it, each of whose releases
//! would tell of the page again: there no notes are left for a long time.

use super::units::Units;
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use crate::tuning::PageTuning;
use std::ops::Range;

/// What is known of a copy, or of a home page that was written while others held copies.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WriteHistory {
    /// The note was left: that the page is noted says nothing new.
    left: bool,
    /// How much more often the page had not changed when it was found again than it had, by weight.
    unchanged: u8,
    /// So often the note must be taken before it may be left.
    doubts: u8,
    /// How often it had to be taken the last time.
    doubted: u8,
    /// In which epoch a note of it was found the last time that was not one left before.
    found: Option<u8>,
    /// The note of a copy that is compared now was left before.
    old: bool,
    /// The note of one of few home pages was left.
    few: bool,
    /// When a close found the note of a home page of many the last time, the page looked as it did before.
    alike: bool,
    /// What stood in a few of the page's words when the note was left.
    sample: u32,
}

impl WriteHistory {
    /// A note that had been left is found again, and the page has changed since or has not, which weighs so much; says
    /// whether it may be left once more.
    pub(super) fn keep_writable(&mut self, tuning: &PageTuning, changed: bool, weight: u8) -> bool {
        self.unchanged = if changed { self.unchanged.saturating_sub(1) } else { self.unchanged.saturating_add(weight) };
        let pays = self.unchanged <= tuning.unchanged_max;
        if !pays {
            self.distrust(tuning);
            // The next find in vain is one too many again, but for changes before it.
            self.unchanged = tuning.unchanged_max;
        }
        pays
    }

    /// The note will be taken some times, twice as often as the last time.
    pub(super) fn distrust(&mut self, tuning: &PageTuning) {
        self.doubted = (self.doubted * 2 + 2).min(tuning.doubts_max);
        self.doubts = self.doubted;
    }

    /// A note is found; whether that is not the first time, nor one of those when it must be taken.
    pub(super) fn is_found_again(&mut self, epoch: u8) -> bool {
        self.found.replace(epoch).is_some() && self.has_no_doubts()
    }

    /// A note is found that was not left before; whether the one before it was found soon before.
    fn is_found_soon(&mut self, tuning: &PageTuning, epoch: u8) -> bool {
        self.found.replace(epoch).is_some_and(|before| epoch.wrapping_sub(before) <= tuning.rewrite_epochs)
    }

    /// Whether the note need not be taken this time.
    fn has_no_doubts(&mut self) -> bool {
        let none = self.doubts == 0;
        self.doubts = self.doubts.saturating_sub(1);
        none
    }

    /// The note is left, of one of few home pages.
    pub(super) fn leave_one_of_few(&mut self) {
        (self.left, self.few) = (true, true);
    }

    /// The note was left, of one of few home pages.
    pub(super) fn is_one_of_few(&self) -> bool {
        self.left && self.few
    }
}

/// What a close makes of a note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Note {
    /// It is taken: the page is protected and clean.
    Take,
    /// It stays, and counts.
    Leave,
    /// It does not count. (No correct node does this.)
    PassOver,
}

/// Which pages of a chunk are written again and again.
#[derive(Clone, Default, Debug)]
pub(super) struct WritePredictor {
    /// By unit; empty as long as no note might have been left.
    pub history: Vec<WriteHistory>,
    /// Whether the close under way has seen notes of many pages.
    many_seen: bool,
}

impl WritePredictor {
    /// An interval ends: how much of `all` was written.
    pub(super) fn count_written(&mut self, tuning: &PageTuning, here: &[Range<PageNo>], all: Range<PageNo>) {
        let pages = here.iter().map(|run| run.end.min(all.end) - run.start.max(all.start)).sum::<PageNo>();
        self.many_seen = pages * tuning.predicted_part >= all.end - all.start;
    }

    /// A close has found the kernel's note of a copy, or of a home page that others hold.
    pub(super) fn predict_rewrite(&mut self, cx: &mut Context<'_>, units: &mut Units, unit: usize) -> Note {
        let (this, tuning) = (units[unit], units.tuning);
        if !tuning.write_predictor {
            return Note::Take;
        }
        if let Some(steady) = self.history.get_mut(unit) {
            steady.alike = false;
        }
        if this.state.has_home_twin() {
            return self.predict_from_home_twin(cx, units, unit);
        }
        let (copy, home) = (this.state.is_valid(), this.state.is_home());
        let counts = (copy || home) && self.many_seen || home && tuning.home_twin && !cx.memory.can_offer();
        if !counts || !cx.sync_phase.is_quiet() || this.notices.are_told() {
            return Note::Take;
        }
        if self.history.is_empty() {
            self.history.resize(units.len(), WriteHistory::default());
        }
        if copy {
            return self.predict_rewrite_of_copy(&tuning, cx.sync_phase.epoch(), unit);
        }
        if !self.many_seen {
            return self.predict_rewrite_of_few(cx, units, unit);
        }
        let steady = &mut self.history[unit];
        if !steady.left {
            let soon = steady.is_found_soon(&tuning, cx.sync_phase.epoch());
            let others_wrote = this.state.home().is_some_and(|home| home.writers.others_wrote());
            if others_wrote && !soon || !steady.has_no_doubts() {
                return Note::Take;
            }
        }
        let now = cx.memory.sample(units.pages_of(unit));
        let steady = &mut self.history[unit];
        if steady.left {
            let changed = steady.sample != now;
            steady.alike = !changed;
            if !changed && !Rule::LeftNotesCount.on() {
                return Note::PassOver;
            }
            let weight = if cx.memory.can_offer() { 1 } else { tuning.unchanged_weight };
            if !steady.keep_writable(&tuning, changed, weight) {
                return Note::Take;
            }
        }
        (steady.left, steady.few, steady.sample) = (true, false, now);
        Note::Leave
    }

    /// As [`WritePredictor::predict_rewrite`], of a copy: what is left will be compared with its twin, which finds
    /// nothing if it was not written since.
    fn predict_rewrite_of_copy(&mut self, tuning: &PageTuning, epoch: u8, unit: usize) -> Note {
        let steady = &mut self.history[unit];
        let may = match steady.left {
            true => steady.doubts == 0,
            false => steady.is_found_soon(tuning, epoch) && steady.has_no_doubts(),
        };
        if !may {
            return Note::Take;
        }
        if steady.left && !Rule::LeftNotesCount.on() {
            return Note::PassOver;
        }
        steady.old = std::mem::replace(&mut steady.left, true);
        Note::Leave
    }

    /// A copy that was noted has been compared with its twin.
    pub(super) fn record_outcome(&mut self, tuning: &PageTuning, unit: usize, changed: bool) {
        if let Some(steady) = self.history.get_mut(unit).filter(|steady| steady.left && steady.old) {
            steady.keep_writable(tuning, changed, 1);
        }
    }

    /// Whether the unit's note was left.
    pub(super) fn is_left(&self, unit: usize) -> bool {
        self.history.get(unit).is_some_and(|steady| steady.left)
    }

    /// Whether the unit, a home page that was told of, was probably not written.
    pub(super) fn notice_was_spurious(&self, unit: usize) -> bool {
        self.history.get(unit).is_some_and(|steady| steady.alike && !steady.few)
    }

    /// The unit's note was taken, or the unit has another home.
    pub(super) fn forget_note(&mut self, unit: usize) {
        if let Some(steady) = self.history.get_mut(unit) {
            steady.left = false;
        }
    }
}
