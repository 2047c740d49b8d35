//! Whether a node publishes the tokens of locks that it has released.
//!
//! A token that is published in memory which other nodes map ([`Payload::publish_token`](crate::sync::Payload)) costs
//! the end of an interval at each release. It saves the two messages and the wake-ups of a hand-over. Where threads
//! release locks in short succession that is no gain: when a token is asked for, one interval ends for all locks that
//! were released since the last one, and nodes take [turns](super::batching). So a node that has published some tokens
//! in short succession pauses, and for longer each time that it happens again. So does one that took many of them back.

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

impl PublishedTokens {
    /// Whether no pause is on.
    pub fn may(&self, now: Time) -> bool {
        self.paused_until <= now
    }

    /// A token is published.
    pub fn count(&mut self, tuning: &LockTuning, now: Time) {
        self.count += 1;
        if self.count < tuning.published_judged {
            return;
        }
        let closely = (now - self.since).0 < u64::from(self.count) * Span::from_us(tuning.published_every_us).0;
        let first = Span::from_us(tuning.pause_min_us);
        if closely || self.retracted.saturating_mul(tuning.retracted_one_in) >= self.count {
            let pause = self.pause.max(first);
            self.paused_until = now + pause;
            self.pause = Span((2 * pause.0).min(Span::from_us(tuning.pause_max_us).0));
        } else {
            self.pause = first;
        }
        (self.since, self.count, self.retracted) = (now.max(self.paused_until), 0, 0);
    }

    /// One was taken back.
    pub fn count_retracted(&mut self) {
        self.retracted += 1;
    }

    #[cfg(test)]
    pub(super) fn pause(&self) -> Span {
        self.pause
    }
}
