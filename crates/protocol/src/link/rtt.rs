//! How long an answer from one node takes, and how long to wait before a packet counts as lost.
//!
//! The estimate is RFC 6298's (smoothed round trip plus four mean deviations) in nanoseconds. Samples come only from
//! packets that were sent once (Karn's rule), so an answer is never taken for that to another transmission; a reply in
//! fragments answers with the first of them. A reply that is late because its request waits for a lock makes no bad
//! sample either: such a request was repeated before.
//!
//! Where answers take longer than the first guess, everything would be sent more than once, and nothing would ever be a
//! sample. So a wait that was in vain while nothing is known of the node stays doubled for what is sent later, until
//! something is answered that was sent once (RFC 6298, section 5.5 to 5.7). Where something is known, it stays doubled
//! only when an answer shows that what was sent again had arrived before.
//!
//! Limits: a round trip takes 7 to 50 us on the hosts measured, but a receiver that shares its core with a computing
//! thread answers after 3 ms and more. Repeating then is harmless and useless, and it costs the busy host an interrupt:
//! hence a floor of 1 ms and a first guess of 5 ms. Repetitions follow at most 200 ms after one another, or twice a
//! round trip where that is longer; 2 s where it is not known.

use super::LinkConfig;
use crate::time::{Span, Time};

/// How long a smallest round trip is believed in; two of these spans are remembered.
const MINIMUM_AGES_AFTER: Span = Span::from_ms(5_000);

/// Packets that overtake each other arrive this close together at least.
const REORDERING_MIN: Span = Span::from_us(100);

/// The wait is doubled for later requests so often at most: the least one up to the longest.
const PATIENCE_MAX: u8 = 11;

/// The estimate for one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    smoothed: Option<Span>,
    deviation: Span,
    minimum: [Option<Span>; 2],
    minimum_since: Time,
    /// The samples are of answers by other nodes, to which this one had handed the requests on.
    is_of_others: bool,
    /// How often the wait is doubled until there is a sample again.
    patience: u8,
    /// It grows no more before.
    patient_from: Time,
}

impl Rtt {
    /// Takes in a measured round trip.
    pub fn sample(&mut self, now: Time, rtt: Span) {
        if std::mem::take(&mut self.is_of_others) {
            self.smoothed = None;
        }
        self.take_in(now, rtt);
    }

    /// Takes in how long another node's answer to a request took that was handed on to it. It counts only where waits
    /// turned out to be short and nothing better is known: some of these requests wait for a lock.
    pub fn sample_of_other(&mut self, now: Time, rtt: Span) {
        if self.is_of_others || (self.smoothed.is_none() && self.patience > 0) {
            self.is_of_others = true;
            self.take_in(now, rtt);
        }
    }

    fn take_in(&mut self, now: Time, rtt: Span) {
        self.patience = 0;
        self.smoothed = Some(match self.smoothed {
            None => {
                self.deviation = Span(rtt.0 / 2);
                rtt
            }
            Some(smoothed) => {
                let error = smoothed.0.abs_diff(rtt.0);
                self.deviation = Span(self.deviation.0 - self.deviation.0 / 4 + error / 4);
                Span(smoothed.0 - smoothed.0 / 8 + rtt.0 / 8)
            }
        });
        if now - self.minimum_since > MINIMUM_AGES_AFTER {
            self.minimum = [self.minimum[1], None];
            self.minimum_since = now;
        }
        self.minimum[1] = Some(self.minimum[1].map_or(rtt, |old| old.min(rtt)));
    }

    /// The smoothed round trip; `None` before the first sample.
    pub fn smoothed(&self) -> Option<Span> {
        self.smoothed
    }

    /// The smallest round trip of the last seconds.
    pub fn minimum(&self) -> Option<Span> {
        self.minimum.iter().flatten().min().copied()
    }

    /// How much later than its followers a packet may come without being lost.
    pub fn reordering(&self) -> Span {
        self.smoothed.map_or(REORDERING_MIN, |s| REORDERING_MIN.max(Span(s.0 / 2)))
    }

    /// What was sent has waited in vain, after so many repetitions. That says something of the round trip only while
    /// nothing is known of it.
    pub fn on_vain_wait(&mut self, now: Time, repeats: u8, config: &LinkConfig) {
        if self.smoothed.is_some() {
            return;
        }
        if repeats >= self.patience {
            self.patience = (repeats + 1).min(PATIENCE_MAX);
        } else {
            self.wait_longer(now, config);
        }
    }

    /// Something came a second time, so it was asked for again without need. What follows waits twice as long from the
    /// beginning, until an answer to something that was sent once shows how long answers take (RFC 6298, section 5.7):
    /// where a queue makes them slow, nothing would ever be sent only once otherwise, and the estimate would never
    /// learn of the queue. Loss alone leaves no such trace.
    pub fn on_late_answer(&mut self, now: Time, config: &LinkConfig) {
        self.wait_longer(now, config);
    }

    /// Once for all that was under way.
    fn wait_longer(&mut self, now: Time, config: &LinkConfig) {
        if now >= self.patient_from {
            self.patience = (self.patience + 1).min(PATIENCE_MAX);
            self.patient_from = now + self.timeout(config);
        }
    }

    /// How long to wait for the answer to a packet's first transmission.
    pub fn timeout(&self, config: &LinkConfig) -> Span {
        self.timeout_after(config, 0)
    }

    /// How long to wait after `repeats` repetitions: twice as long each time.
    pub fn timeout_after(&self, config: &LinkConfig, repeats: u8) -> Span {
        let estimate = self.smoothed.map_or(config.rto_initial, |s| Span(s.0 + (4 * self.deviation.0).max(s.0 / 8)));
        let timeout = Span(estimate.0.clamp(config.rto_min.0, config.rto_far.0));
        // Of a node whose answers were measured only evidence raises the limit, and no number of repetitions.
        let first = doubled(timeout, self.patience, config.rto_far);
        let ceiling = if self.smoothed.is_some() { config.rto_max.0.max(2 * first.0) } else { config.rto_far.0 };
        doubled(timeout, repeats.max(self.patience), Span(ceiling.min(config.rto_far.0)))
    }
}

/// `span` doubled `times` times, at most `ceiling`.
pub(super) fn doubled(span: Span, times: u8, ceiling: Span) -> Span {
    Span(span.0.saturating_mul(1 << times.min(16)).min(ceiling.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_samples_within_its_limits() {
        let config = LinkConfig::default();
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(&config), config.rto_initial);
        for i in 0..100 {
            rtt.sample(Time(i * 1_000_000), Span::from_us(50));
        }
        assert_eq!(rtt.smoothed().map(Span::as_us), Some(50));
        assert_eq!(rtt.timeout(&config), config.rto_min);
        for i in 100..200 {
            rtt.sample(Time(i * 1_000_000), Span::from_ms(20));
        }
        assert!(rtt.timeout(&config) >= Span::from_ms(19));
        assert_eq!(rtt.minimum(), Some(Span::from_us(50)));
        assert_eq!(rtt.timeout_after(&config, 255), config.rto_max);
        rtt.sample(Time(0), Span(u64::MAX / 8));
        assert_eq!(rtt.timeout(&config), config.rto_far);
        assert_eq!(rtt.timeout_after(&config, 255), config.rto_far);
    }

    #[test]
    fn a_wait_in_vain_counts_while_nothing_is_known() {
        let config = LinkConfig::default();
        let mut rtt = Rtt::default();
        (0..3).for_each(|repeats| rtt.on_vain_wait(Time(0), repeats, &config));
        assert_eq!(rtt.timeout(&config), Span(8 * config.rto_initial.0));
        (0..16).for_each(|_| rtt.on_vain_wait(Time(1), 0, &config));
        assert_eq!(rtt.timeout(&config), Span(16 * config.rto_initial.0), "once for all that was under way");
        (0..200).for_each(|repeats| rtt.on_vain_wait(Time(0), repeats, &config));
        assert_eq!(rtt.timeout(&config), config.rto_far);
        rtt.sample(Time(0), Span::from_ms(2));
        assert_eq!(rtt.timeout(&config), Span::from_ms(6));
        rtt.on_vain_wait(Time(1 << 40), 5, &config);
        assert_eq!(rtt.timeout(&config), Span::from_ms(6), "what is known is not forgotten for a loss");
    }

    #[test]
    fn answers_of_others_count_only_where_nothing_better_is_known() {
        let config = LinkConfig::default();
        let mut rtt = Rtt::default();
        rtt.sample_of_other(Time(0), Span::from_ms(2));
        assert_eq!(rtt.smoothed(), None, "the first guess was long enough");
        rtt.on_vain_wait(Time(0), 8, &config);
        rtt.sample_of_other(Time(0), Span::from_ms(400));
        assert_eq!(rtt.timeout(&config), Span::from_ms(1_200));
        rtt.sample(Time(0), Span::from_ms(3));
        rtt.sample_of_other(Time(0), Span::from_ms(400));
        assert_eq!(rtt.smoothed(), Some(Span::from_ms(3)));
    }

    #[test]
    fn an_old_minimum_is_forgotten() {
        let mut rtt = Rtt::default();
        rtt.sample(Time(1), Span::from_us(10));
        for second in 0..20 {
            rtt.sample(Time(second * 1_000_000_000), Span::from_us(90));
        }
        assert_eq!(rtt.minimum(), Some(Span::from_us(90)));
    }
}
