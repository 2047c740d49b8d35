//! Home pages that are protected along with one that another node has asked for by itself.
//!
//! To protect a page takes a call, 1.2 to 2 us of the time in which the asker waits; a page more in the same call 0.1.
//! Where pages of a chunk are asked for one by one and in no order, their neighbours will be too, and then are
//! protected already: what the kernel has noted since is at least what who copies them then has to hear of, as with
//! those that a close has protected (`ProtectedAtBarrier`). Nobody is told of them before. In the epoch after, their
//! home may write them, and a note from before the copy would end the copy for nothing, so this holds for an epoch; and
//! what is protected in vain costs its next writer a note in the kernel, so as many are as have turned out to be of
//! use. No update can be lost by it: a page that is not protected counts as written.

use super::Predictor;
use crate::tuning::PageTuning;

/// What came of it in an epoch, as far as 8 bits count those.
#[derive(Clone, Copy, Default, Debug)]
pub struct BatchProtect {
    epoch: u8,
    /// How often a unit had to be protected by itself.
    calls: usize,
    /// How often one was protected already.
    hits: usize,
}

/// What has happened to units of this home.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// One that is asked for was protected along with another in this epoch.
    Hit,
    /// One has to be protected, in this epoch.
    Protects(u8),
}

impl BatchProtect {
    /// Whether it is about this epoch: what was protected along in another one counts no more.
    pub fn is_of(&self, epoch: u8) -> bool {
        self.epoch == epoch
    }
}

impl Predictor for BatchProtect {
    type Numbers = PageTuning;
    type Event<'a> = Event;
    /// How many units are protected on each side of the one that has to be.
    type Query<'a> = ();
    type Prediction = usize;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.batch_protect
    }

    fn learn(&mut self, _: &PageTuning, event: Event) {
        match event {
            Event::Hit => self.hits += 1,
            Event::Protects(epoch) if self.epoch == epoch => self.calls += 1,
            Event::Protects(epoch) => *self = BatchProtect { epoch, calls: 1, hits: 0 },
        }
    }

    fn answer(&mut self, numbers: &PageTuning, (): ()) -> usize {
        (self.calls / 2 + self.hits).min(numbers.batch_protect_units_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PageTuning = PageTuning::DEFAULT;

    #[test]
    fn it_reaches_as_far_as_it_turned_out_to_be_of_use_in_this_epoch() {
        let mut batch = BatchProtect::default();
        let mut protect = |hits: usize, epoch| {
            (0..hits).for_each(|_| batch.observe(&NUMBERS, Event::Hit));
            batch.observe(&NUMBERS, Event::Protects(epoch));
            (batch.is_of(epoch), batch.predict(&NUMBERS, ()))
        };
        assert_eq!(
            [(0, 1), (0, 1), (0, 1), (2, 1), (9, 1), (9, 1)].map(|(hits, epoch)| protect(hits, epoch).1),
            [0, 1, 1, 4, 13, 16]
        );
        assert_eq!(protect(0, 2), (true, 0), "another epoch");
    }
}
