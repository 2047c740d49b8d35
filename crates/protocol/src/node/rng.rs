//! Chance as an argument: a small generator (splitmix64) that gives the same numbers for the same seed for ever.

use crate::time::Span;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `span`, made up to a fifth shorter or longer, so that nodes that started together do not stay in step.
    pub(super) fn about(&mut self, span: Span) -> Span {
        let percent = 80 + self.next() % 41;
        Span(span.0.saturating_mul(percent) / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut chance = Rng::new(0);
        assert_eq!([chance.next(), chance.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn about_stays_within_a_fifth() {
        let mut chance = Rng::new(7);
        for _ in 0..1000 {
            let span = chance.about(Span(1000)).0;
            assert!((800..=1200).contains(&span), "{span}");
        }
    }
}
