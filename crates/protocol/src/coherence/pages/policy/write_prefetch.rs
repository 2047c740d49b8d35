//! Copies that were written together, and ended together, are fetched together when they are written again.
//!
//! A thread that writes to many places in turn (a sort by digits) faults on each of them: no two faults follow each
//! other. But where each pass writes what an earlier one did, a write to a copy that ended and was written while it was
//! here says that the others will follow. So such a fault brings all of them that this chunk has, as many as one
//! message carries. What comes so and is not written before it ends does not come so again; and in a chunk in which not
//! all that came so the last time was written, the third such fault in an epoch does.
//!
//! A copy that is used long after it ended has not earned that the barrier at which it ends fetches it ahead: it would
//! end again before it is used. It comes with the others when it is written.
//!
//! Nothing of the former holds where intervals close for locks: what belongs to other locks would end before it is
//! used.

use super::Predictor;
use crate::tuning::PageTuning;

/// Whether copies that were written together are fetched together, and what came of it.
#[derive(Clone, Copy, Default, Debug)]
pub struct WritePrefetch {
    /// How many writes to copies that ended have met those that were written before, in epoch `returned_in`.
    returned: u8,
    returned_in: u8,
    /// How many pages are still to come of such.
    grouped: u32,
    /// How many units came together the last time, and how many copies have changed since.
    came: u32,
    changed: u32,
}

/// What has happened to copies.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// One has changed.
    Changed,
    /// So many pages have come.
    Arrived(u32),
    /// Those that were written together are fetched: so many.
    Fetched {
        /// Pages.
        pages: u32,
        /// Units.
        units: u32,
    },
}

/// A fault on an invalid unit.
#[derive(Clone, Copy, Debug)]
pub struct Miss {
    /// The epoch, as far as 8 bits count.
    pub epoch: u8,
    /// No interval has ended in this epoch, nor any but the barrier's in the last.
    pub barriers_alone: bool,
    /// It is a write, to a copy that was written before it ended.
    pub again: bool,
    /// It continues no sequence of faults, and claims nothing.
    pub by_itself: bool,
}

impl WritePrefetch {
    /// How many pages that are fetched together are still to come.
    pub fn under_way(&self) -> u32 {
        self.grouped
    }
}

impl Predictor for WritePrefetch {
    type Numbers = PageTuning;
    type Event<'a> = Event;
    /// Will all that was written here before probably be written again?
    type Query<'a> = Miss;
    type Prediction = bool;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.write_prefetch
    }

    fn learn(&mut self, _: &PageTuning, event: Event) {
        match event {
            Event::Changed => self.changed = self.changed.saturating_add(1),
            Event::Arrived(pages) => self.grouped = self.grouped.saturating_sub(pages),
            Event::Fetched { pages, units } => (self.grouped, self.came, self.changed) = (pages, units, 0),
        }
    }

    fn answer(&mut self, numbers: &PageTuning, miss: Miss) -> bool {
        if self.returned_in != miss.epoch {
            (self.returned, self.returned_in) = (0, miss.epoch);
        }
        self.returned = if miss.again { self.returned.saturating_add(1) } else { self.returned.saturating_sub(1) };
        let were_mostly_unused = self.changed < self.came;
        let trusted = numbers.write_prefetch_trust && !were_mostly_unused;
        let after = if trusted { 1 } else { numbers.write_prefetch_after };
        miss.again && miss.by_itself && miss.barriers_alone && self.returned >= after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PageTuning = PageTuning::DEFAULT;
    const AGAIN: Miss = Miss { epoch: 1, barriers_alone: true, again: true, by_itself: true };

    #[test]
    fn the_first_write_is_enough_unless_some_of_the_last_group_was_of_no_use() {
        let mut writes = WritePrefetch::default();
        assert!(writes.predict(&NUMBERS, AGAIN));
        writes.observe(&NUMBERS, Event::Fetched { pages: 8, units: 4 });
        (0..3).for_each(|_| writes.observe(&NUMBERS, Event::Changed));
        let next =
            |writes: &mut WritePrefetch, epoch| [(); 3].map(|()| writes.predict(&NUMBERS, Miss { epoch, ..AGAIN }));
        assert_eq!(next(&mut writes, 2), [false, false, true]);
        writes.observe(&NUMBERS, Event::Changed);
        assert_eq!(next(&mut writes, 3), [true; 3], "all of it was written");
    }

    #[test]
    fn nothing_is_fetched_together_for_locks_or_sequences_or_other_accesses() {
        let misses = [
            Miss { barriers_alone: false, ..AGAIN },
            Miss { by_itself: false, ..AGAIN },
            Miss { again: false, ..AGAIN },
        ];
        misses.into_iter().for_each(|miss| assert!(!WritePrefetch::default().predict(&NUMBERS, miss), "{miss:?}"));
    }

    #[test]
    fn it_knows_what_is_under_way() {
        let mut writes = WritePrefetch::default();
        writes.observe(&NUMBERS, Event::Fetched { pages: 8, units: 4 });
        writes.observe(&NUMBERS, Event::Arrived(3));
        assert_eq!(writes.under_way(), 5);
        writes.observe(&NUMBERS, Event::Arrived(9));
        assert_eq!(writes.under_way(), 0);
    }
}
