//! The numbers by which simulated nodes tune themselves, drawn by seed: nothing that a program sees hangs on one.

use comem_protocol::faults::Rng;
use comem_protocol::link::LinkConfig;
use comem_protocol::tuning::{LinkTuning, Number, Tuning};

/// Subjects of pages. Those of locks' schedules are drawn by [`schedule`](crate::schedule), where a simulator runs one.
pub(crate) const PAGES: [&str; 6] = ["pages", "homes", "notices", "multicast", "sync", "link"];

/// The link by these numbers: where some were drawn, in half of the seeds as on a host whose threads block.
pub(crate) fn link(seed: u64, tuning: &LinkTuning) -> LinkConfig {
    LinkConfig::tuned(tuning, *tuning != LinkTuning::DEFAULT && seed % 4 < 2)
}

/// In half of the seeds some of the numbers of these subjects are drawn.
pub(crate) fn drawn_in_half(seed: u64, subjects: &[&str], base: Tuning) -> Tuning {
    let mut rng = Rng::new(seed ^ 0x7u64.rotate_right(8));
    if rng.below(2) == 0 { drawn_of(&mut rng, subjects, base) } else { base }
}

/// The numbers of `base`, some of those of these subjects drawn within their ranges.
fn drawn_of(rng: &mut Rng, subjects: &[&str], base: Tuning) -> Tuning {
    let mut tuning = base;
    // In some seeds few numbers differ, in others most do.
    let each = rng.between(2, 12);
    for number in Tuning::NUMBERS.iter().filter(|number| subjects.contains(&number.subject())) {
        if rng.below(each) == 0 {
            (number.set)(&mut tuning, value(rng, number));
        }
    }
    tuning
}

/// A value within a number's range: an end of it, a little more than the least, or one of any size.
///
/// Longer times would be right as well, but they do not fit what a run may take: a thread that loops until another has
/// stored makes a step each microsecond.
fn value(rng: &mut Rng, number: &Number) -> u64 {
    let (low, high) = number.range;
    let high = match number.name {
        "msi.residency_us" => high.min(4 * number.default),
        _ if number.subject() == "link" => high.min(20 * number.default),
        _ => high,
    };
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

    /// Every subject that some simulator draws.
    const DRAWN: [&str; 7] = ["pages", "homes", "notices", "sync", "link", "msi", "locks"];

    #[test]
    fn all_that_is_drawn_lies_within_its_range_and_every_number_is_drawn() {
        let mut changed = BTreeSet::new();
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let mut tuning = drawn_of(&mut rng, &DRAWN, Tuning::DEFAULT);
            match seed % 4 {
                0 => tuning.locks = schedule::drawn(&mut rng),
                1 => tuning.locks = schedule::quiet(seed % 8 == 1),
                _ => {}
            }
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
