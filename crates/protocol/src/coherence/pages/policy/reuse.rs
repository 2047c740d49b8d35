//! Which copies are used again soon after they ended: those that acquires and barriers fetch again at once.
//!
//! A fault shows that a unit is used, and earns it *credit*: so often it may be fetched ahead without being seen in
//! use. Each fault that finds it missing earns twice as much as the one before. A copy that is used long after it ended
//! has not earned that the barrier at which it ends fetches it ahead: it would end again before it is used.
//!
//! This is kept for each unit, and travels with it.

use super::Predictor;
use crate::tuning::PageTuning;

/// How a unit was used while it was here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Reuse {
    /// How often the unit may still be fetched ahead without being seen in use.
    credit: u8,
    /// How much credit a use earns.
    trust: u8,
    /// The epoch in which it last ended.
    ended: u8,
    /// It was written while it was here, and was not fetched with others since then.
    written_before: bool,
}

/// What has happened to a unit. Epochs are counted as far as 8 bits do.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A fault in this epoch found it missing.
    Missed(u8),
    /// It is fetched in this epoch because others are that were written with it.
    FetchedWithOthers(u8),
    /// It is fetched ahead.
    FetchedAhead,
    /// The copy has changed.
    Written,
    /// The copy has ended in this epoch.
    Ended(u8),
    /// The copy's memory was wanted for others.
    Evicted,
    /// It is another unit's now: another home's, or another node's.
    Replaced,
    /// It will not be fetched ahead before it has earned that anew.
    Forgotten,
}

impl Reuse {
    /// Whether the copy that ended was written while it was here, and was not fetched with others since then.
    pub fn written_before(&self) -> bool {
        self.written_before
    }

    fn was_used_late(&self, numbers: &PageTuning, epoch: u8) -> bool {
        self.written_before && epoch.wrapping_sub(self.ended) >= numbers.long_epochs
    }
}

impl Predictor for Reuse {
    type Numbers = PageTuning;
    type Event<'a> = Event;
    /// Whether the unit will be used soon.
    type Query<'a> = ();
    type Prediction = bool;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.reuse
    }

    fn learn(&mut self, numbers: &PageTuning, event: Event) {
        match event {
            Event::Missed(epoch) => {
                self.credit = self.trust;
                self.trust = (self.trust * 2).clamp(1, numbers.trust_max);
                if self.was_used_late(numbers, epoch) {
                    (self.credit, self.trust) = (0, 0);
                }
            }
            Event::FetchedWithOthers(epoch) => {
                if self.was_used_late(numbers, epoch) {
                    (self.credit, self.trust) = (0, 0);
                }
                self.written_before = false;
            }
            Event::FetchedAhead => self.credit = self.credit.saturating_sub(1),
            // Whoever writes a copy uses it, and after the second time will probably do so again.
            Event::Written => {
                self.credit = self.credit.max(self.trust);
                self.trust = self.trust.max(1);
                self.written_before = true;
            }
            Event::Ended(epoch) => self.ended = epoch,
            Event::Evicted => self.credit = 0,
            Event::Replaced => self.written_before = false,
            Event::Forgotten => (self.credit, self.trust) = (0, 0),
        }
    }

    fn answer(&mut self, _: &PageTuning, (): ()) -> bool {
        self.credit > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PageTuning = PageTuning::DEFAULT;

    /// How often in a row the unit may be fetched ahead.
    fn credit(mut reuse: Reuse) -> usize {
        let ahead = |_: &u32| {
            let may = reuse.predict(&NUMBERS, ());
            reuse.observe(&NUMBERS, Event::FetchedAhead);
            may
        };
        (0..1000).take_while(ahead).count()
    }

    #[test]
    fn each_miss_earns_twice_as_much_as_the_one_before() {
        let mut reuse = Reuse::default();
        let earned = [(); 9].map(|()| {
            reuse.observe(&NUMBERS, Event::Missed(0));
            credit(reuse)
        });
        assert_eq!(earned, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
        reuse.observe(&NUMBERS, Event::Evicted);
        assert_eq!(credit(reuse), 0);
        reuse.observe(&NUMBERS, Event::Missed(0));
        assert_eq!(credit(reuse), 64, "the trust stays");
        reuse.observe(&NUMBERS, Event::Forgotten);
        reuse.observe(&NUMBERS, Event::Missed(0));
        assert_eq!(credit(reuse), 0);
    }

    #[test]
    fn what_is_written_is_used_and_what_is_used_late_is_not_fetched_ahead() {
        let mut written = Reuse::default();
        [Event::Written, Event::Written].into_iter().for_each(|event| written.observe(&NUMBERS, event));
        assert!(written.written_before() && written.predict(&NUMBERS, ()));
        written.observe(&NUMBERS, Event::Ended(254));
        let used_after = |epochs: u8, event: fn(u8) -> Event| {
            let mut reuse = written;
            reuse.observe(&NUMBERS, event(254u8.wrapping_add(epochs)));
            credit(reuse)
        };
        let long = NUMBERS.long_epochs;
        assert_eq!([1, long - 1, long].map(|epochs| used_after(epochs, Event::Missed)), [1, 1, 0]);
        let with_others = |epochs| used_after(epochs, Event::FetchedWithOthers);
        assert_eq!([1, long - 1, long].map(with_others), [1, 1, 0]);
    }
}
