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
//! nothing. Of few pages even that is too much: their homes compare them with a twin.
//!
//! Where that happens more often than not, the note is taken after all, and it must be found more often that the page
//! is written still before the note is left again. An epoch with a second close has locks in it, each of whose releases
//! would tell of the page again: there no notes are left for a long time.

use super::Predictor;
use crate::rules::Rule;
use crate::tuning::PageTuning;

/// What is known of a copy, or of a home page that was written while others held copies.
#[derive(Clone, Copy, Default, Debug)]
struct WriteHistory {
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
    fn keep_writable(&mut self, tuning: &PageTuning, changed: bool, weight: u8) -> bool {
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
    fn distrust(&mut self, tuning: &PageTuning) {
        self.doubted = (self.doubted * 2 + 2).min(tuning.doubts_max);
        self.doubts = self.doubted;
    }

    /// A note is found; whether that is not the first time, nor one of those when it must be taken.
    fn is_found_again(&mut self, epoch: u8) -> bool {
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
}

/// What a close makes of a note.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Note {
    /// It is taken: the page is protected and clean.
    #[default]
    Take,
    /// It stays, and counts.
    Leave,
    /// It stays and counts, and the home page is compared with a twin from now on.
    LeaveAndCompare,
    /// It does not count: the page is as its twin. (Of others no correct node says this.)
    PassOver,
}

/// A page whose note a close has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// A copy.
    Copy,
    /// A home page that others hold.
    Home {
        /// Others alone have written it of late.
        others_wrote: bool,
    },
    /// A home page with a twin, from which it differs or does not; `None` if nobody looked.
    Compared(Option<bool>),
    /// None of these.
    Other,
}

/// What becomes of a note?
pub struct Found<'a> {
    /// Whose it is, by its place in the table.
    pub unit: usize,
    /// How many units the table has.
    pub units: usize,
    /// What is known of the page.
    pub page: Page,
    /// It was told of in this epoch.
    pub told: bool,
    /// The epoch, as far as 8 bits count.
    pub epoch: u8,
    /// Barriers alone have ordered writes for a long time.
    pub quiet: bool,
    /// Others can copy pages out of this memory by themselves.
    pub one_sided: bool,
    /// A few of the page's words.
    pub sample: &'a mut dyn FnMut() -> u32,
}

/// What has happened to the units of a table.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A close begins: so many of so many pages were written.
    Closes {
        /// Pages with notes.
        written: u32,
        /// Pages of the table.
        pages: u32,
    },
    /// A copy that was noted has been compared with its twin.
    Flushed {
        /// Its place.
        unit: usize,
        /// Whether they differed.
        changed: bool,
    },
    /// The note of the unit at this place was taken, or it has another home.
    NoteTaken(usize),
    /// Another node's diff ends the comparison of the home page at this place.
    Diff(usize),
}

/// Which pages of a table are written again and again.
#[derive(Clone, Default, Debug)]
pub struct WritePredictor {
    /// By unit; empty as long as no note might have been left.
    history: Vec<WriteHistory>,
    /// Whether the close under way has seen notes of many pages.
    many_seen: bool,
}

impl WritePredictor {
    /// Whether the unit's note was left.
    pub fn is_left(&self, unit: usize) -> bool {
        self.history.get(unit).is_some_and(|steady| steady.left)
    }

    /// Whether the unit's note was left, and it is one of few home pages.
    pub fn is_one_of_few(&self, unit: usize) -> bool {
        self.history.get(unit).is_some_and(|steady| steady.left && steady.few)
    }

    /// Whether the unit, a home page that was told of, was probably not written.
    pub fn notice_was_spurious(&self, unit: usize) -> bool {
        self.history.get(unit).is_some_and(|steady| steady.alike && !steady.few)
    }

    /// Of a copy: what is left will be compared with its twin, which finds nothing if it was not written since.
    fn of_copy(&mut self, numbers: &PageTuning, epoch: u8, unit: usize) -> Note {
        let steady = &mut self.history[unit];
        let may = match steady.left {
            true => steady.doubts == 0,
            false => steady.is_found_soon(numbers, epoch) && steady.has_no_doubts(),
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

    /// Of one of few home pages: from the second time on it is compared. It is told of now in any case.
    fn of_few(&mut self, epoch: u8, unit: usize) -> Note {
        let steady = &mut self.history[unit];
        if !steady.is_found_again(epoch) {
            return Note::Take;
        }
        (steady.left, steady.few) = (true, true);
        Note::LeaveAndCompare
    }

    fn of_many(&mut self, numbers: &PageTuning, found: Found<'_>, others_wrote: bool) -> Note {
        let steady = &mut self.history[found.unit];
        if !steady.left {
            let soon = steady.is_found_soon(numbers, found.epoch);
            if others_wrote && !soon || !steady.has_no_doubts() {
                return Note::Take;
            }
        }
        let now = (found.sample)();
        if steady.left {
            let changed = steady.sample != now;
            steady.alike = !changed;
            if !changed && !Rule::LeftNotesCount.on() {
                return Note::PassOver;
            }
            let weight = if found.one_sided { 1 } else { numbers.unchanged_weight };
            if !steady.keep_writable(numbers, changed, weight) {
                return Note::Take;
            }
        }
        (steady.left, steady.few, steady.sample) = (true, false, now);
        Note::Leave
    }
}

impl Predictor for WritePredictor {
    type Numbers = PageTuning;
    type Event<'a> = Event;
    type Query<'a> = Found<'a>;
    type Prediction = Note;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.write_predictor
    }

    fn learn(&mut self, numbers: &PageTuning, event: Event) {
        match event {
            Event::Closes { written, pages } => self.many_seen = written * numbers.predicted_part >= pages,
            Event::Flushed { unit, changed } => {
                if let Some(steady) = self.history.get_mut(unit).filter(|steady| steady.left && steady.old) {
                    steady.keep_writable(numbers, changed, 1);
                }
            }
            Event::NoteTaken(unit) => {
                if let Some(steady) = self.history.get_mut(unit) {
                    steady.left = false;
                }
            }
            Event::Diff(unit) => {
                if let Some(steady) = self.history.get_mut(unit) {
                    steady.distrust(numbers);
                }
            }
        }
    }

    fn answer(&mut self, numbers: &PageTuning, found: Found<'_>) -> Note {
        let unit = found.unit;
        if let Some(steady) = self.history.get_mut(unit) {
            steady.alike = false;
        }
        if let Page::Compared(changed) = found.page {
            let Some(changed) = changed.filter(|_| found.quiet) else { return Note::Take };
            return match (self.history[unit].keep_writable(numbers, changed, 1), changed) {
                (false, _) => Note::Take,
                (true, true) => Note::Leave,
                (true, false) => Note::PassOver,
            };
        }
        let home = matches!(found.page, Page::Home { .. });
        let counts = found.page != Page::Other && self.many_seen || home && numbers.home_twin && !found.one_sided;
        if !counts || !found.quiet || found.told {
            return Note::Take;
        }
        if self.history.is_empty() {
            self.history.resize(found.units, WriteHistory::default());
        }
        match found.page {
            Page::Copy => self.of_copy(numbers, found.epoch, unit),
            Page::Home { others_wrote } if self.many_seen => self.of_many(numbers, found, others_wrote),
            _ => self.of_few(found.epoch, unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PageTuning = PageTuning::DEFAULT;

    /// A table of eight pages, and what closes find there.
    #[derive(Default)]
    struct Closes {
        writes: WritePredictor,
        epoch: u8,
        /// What a look at the page's words gives.
        sample: u32,
        one_sided: bool,
    }

    impl Closes {
        /// A close in another epoch that finds the note of this page, and of so many in all.
        fn find(&mut self, page: Page, written: u32) -> Note {
            self.epoch += 1;
            self.writes.observe(&NUMBERS, Event::Closes { written, pages: 8 });
            let (epoch, one_sided) = (self.epoch, self.one_sided);
            let mut sample = || self.sample;
            let found =
                Found { unit: 3, units: 8, page, told: false, epoch, quiet: true, one_sided, sample: &mut sample };
            let note = self.writes.predict(&NUMBERS, found);
            if note == Note::Take {
                self.writes.observe(&NUMBERS, Event::NoteTaken(3));
            }
            note
        }

        fn flushed(&mut self, changed: bool) {
            self.writes.observe(&NUMBERS, Event::Flushed { unit: 3, changed });
        }
    }

    const HOME: Page = Page::Home { others_wrote: false };

    #[test]
    fn a_copy_of_many_that_is_written_in_every_epoch_keeps_its_note_until_it_is_found_unchanged_too_often() {
        let mut closes = Closes::default();
        assert_eq!(closes.find(Page::Copy, 8), Note::Take);
        for _ in 0..9 {
            assert_eq!(closes.find(Page::Copy, 8), Note::Leave);
            closes.flushed(true);
        }
        let left = (0..20).take_while(|_| {
            closes.flushed(false);
            closes.find(Page::Copy, 8) == Note::Leave
        });
        assert_eq!(left.count(), usize::from(NUMBERS.unchanged_max));
        let taken = (0..20).take_while(|_| closes.find(Page::Copy, 8) == Note::Take).count();
        assert_eq!(taken, 3, "it is found for the first time in a while, and then it is doubted twice");
    }

    #[test]
    fn a_copy_that_is_written_now_and_then_does_not_keep_its_note() {
        let mut closes = Closes::default();
        for _ in 0..9 {
            closes.epoch += NUMBERS.rewrite_epochs;
            assert_eq!(closes.find(Page::Copy, 8), Note::Take);
        }
    }

    #[test]
    fn a_home_page_of_many_keeps_its_note_while_its_words_change() {
        let mut closes = Closes { one_sided: true, ..Closes::default() };
        for _ in 0..9 {
            closes.sample += 1;
            assert_eq!(closes.find(HOME, 8), Note::Leave);
            assert!(closes.writes.is_left(3) && !closes.writes.notice_was_spurious(3));
        }
        assert_eq!(closes.find(HOME, 8), Note::Leave);
        assert!(closes.writes.notice_was_spurious(3));
        let left = (0..20).take_while(|_| closes.find(HOME, 8) == Note::Leave).count();
        assert_eq!(left + 1, usize::from(NUMBERS.unchanged_max));
        let mut asked = Closes { one_sided: false, ..Closes::default() };
        assert_eq!([(); 3].map(|()| asked.find(HOME, 8)), [Note::Leave, Note::Take, Note::Take], "it weighs more");
    }

    #[test]
    fn one_of_few_home_pages_is_compared_from_the_second_time_on() {
        let mut closes = Closes::default();
        assert_eq!(closes.find(Page::Home { others_wrote: true }, 0), Note::Take);
        assert_eq!(closes.find(HOME, 0), Note::LeaveAndCompare);
        assert!(closes.writes.is_one_of_few(3));
        assert_eq!(closes.find(Page::Compared(Some(true)), 0), Note::Leave);
        assert_eq!(closes.find(Page::Compared(Some(false)), 0), Note::PassOver);
        assert_eq!(closes.find(Page::Compared(None), 0), Note::Take, "nobody looked");
        closes.writes.observe(&NUMBERS, Event::Diff(3));
        assert_eq!(closes.find(HOME, 0), Note::Take, "a diff casts doubt");
        let mut taken_by_others = Closes { one_sided: true, ..Closes::default() };
        assert_eq!([(); 3].map(|()| taken_by_others.find(HOME, 0)), [Note::Take; 3]);
    }
}
