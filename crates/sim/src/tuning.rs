//! The numbers by which simulated nodes tune themselves, drawn by seed: nothing that a program sees hangs on one.

use comem_protocol::faults::Rng;
use comem_protocol::tuning::{Number, Tuning};

/// Subjects that are drawn here; those of locks' schedules are drawn by [`schedule`](crate::schedule).
const DRAWN: [&str; 5] = ["pages", "homes", "notices", "multicast", "sync"];

/// The numbers of `base`, some of them drawn within their ranges.
pub(crate) fn drawn(rng: &mut Rng, base: Tuning) -> Tuning {
    let mut tuning = base;
    // In some seeds few numbers differ, in others most do.
    let each = rng.between(2, 12);
    for number in Tuning::NUMBERS.iter().filter(|number| DRAWN.contains(&number.subject())) {
        if rng.below(each) == 0 {
            (number.set)(&mut tuning, value(rng, number));
        }
    }
    tuning
}

/// A value within a number's range: an end of it, a little more than the least, or one of any size.
fn value(rng: &mut Rng, number: &Number) -> u64 {
    let (low, high) = number.range;
    match rng.below(4) {
        0 => low,
        1 => high,
        2 => low + rng.below(3).min(high - low),
        _ => {
            let bits = u64::from(64 - (high - low).leading_zeros());
            let below = 1 << rng.below(bits + 1);
            low + rng.below(below).min(high - low)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule;
    use std::collections::BTreeSet;

    #[test]
    fn all_that_is_drawn_lies_within_its_range_and_every_number_is_drawn() {
        let mut changed = BTreeSet::new();
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let mut tuning = drawn(&mut rng, Tuning::DEFAULT);
            tuning.locks = if seed % 2 == 0 { schedule::drawn(&mut rng) } else { schedule::quiet(seed % 4 == 1) };
            for number in Tuning::NUMBERS {
                let (value, (low, high)) = ((number.get)(&tuning), number.range);
                assert!((low..=high).contains(&value), "seed {seed}: {} is {value}", number.name);
                if value != number.default {
                    changed.insert(number.name);
                }
            }
        }
        let all = Tuning::NUMBERS.iter().filter(|number| DRAWN.contains(&number.subject()));
        let never: Vec<_> = all.filter(|number| !changed.contains(number.name)).map(|number| number.name).collect();
        assert!(never.is_empty(), "{never:?}");
    }
}
