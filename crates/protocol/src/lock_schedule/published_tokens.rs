//! Whether a node publishes the tokens of locks that it has released.
//!
//! A token that is published in memory which other nodes map ([`Payload::publish_token`](crate::sync::Payload)) costs
//! the end of an interval at each release. It saves the two messages and the wake-ups of a hand-over. Where threads
//! release locks in short succession that is no gain: when a token is asked for, one interval ends for all locks that
//! were released since the last one, and nodes take [turns](super::batching). So a node that has published some tokens
//! in short succession pauses, and for longer each time that it happens again. So does one that took many of them back.

use crate::coherence::pages::policy::Predictor;
use crate::time::{Span, Time};
use crate::tuning::LockTuning;

/// What a node knows of the tokens that it has published.
#[derive(Clone, Debug, Default)]
pub struct PublishedTokens {
    /// Since when they are counted.
    since: Time,
    count: u32,
    /// So many of them were retracted.
    retracted: u32,
    paused_until: Time,
    /// How long the next pause lasts; 0: as long as the first one.
    pause: Span,
}

/// What has become of a token.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It is published.
    Published(Time),
    /// It was published, and is taken back.
    Retracted,
}

impl Predictor for PublishedTokens {
    type Numbers = LockTuning;
    type Event<'a> = Event;
    /// Does it pay now to publish a token that is released?
    type Query<'a> = Time;
    type Prediction = bool;

    fn is_on(&self, numbers: &LockTuning) -> bool {
        numbers.publishing
    }

    fn learn(&mut self, numbers: &LockTuning, event: Event) {
        let now = match event {
            Event::Published(now) => now,
            Event::Retracted => {
                self.retracted += 1;
                return;
            }
        };
        self.count += 1;
        if self.count < numbers.published_judged {
            return;
        }
        let closely = (now - self.since).0 < u64::from(self.count) * Span::from_us(numbers.published_every_us).0;
        let first = Span::from_us(numbers.pause_min_us);
        if closely || self.retracted.saturating_mul(numbers.retracted_one_in) >= self.count {
            let pause = self.pause.max(first);
            self.paused_until = now + pause;
            self.pause = Span((2 * pause.0).min(Span::from_us(numbers.pause_max_us).0));
        } else {
            self.pause = first;
        }
        (self.since, self.count, self.retracted) = (now.max(self.paused_until), 0, 0);
    }

    fn answer(&mut self, _: &LockTuning, now: Time) -> bool {
        self.paused_until <= now
    }
}

#[cfg(test)]
impl PublishedTokens {
    pub(super) fn pause(&self) -> Span {
        self.pause
    }
}
