//! Whether tokens of locks lie out at this node.
//!
//! A token that lies out ([`Payload::lay_out`](comem_protocol::sync::Payload)) costs the end of an interval at each release, and saves the two messages and
//! the wake-ups of a hand-over. Where threads release locks in short succession that is no gain: when a token is asked for, one interval ends for
//! all locks that were released since the last one, and nodes take [`turns`](crate::turns). So a node that has laid out [`COUNTED`] tokens in short
//! succession lays out none for a while, and for longer each time that it happens again.

use comem_protocol::time::{Span, Time};

/// So many tokens are counted.
const COUNTED: u32 = 16;
/// And this is short for one of them.
const CLOSELY: Span = Span::from_us(150);
/// If one of so many was taken back, they lay out in vain.
const ONE_IN: u32 = 4;
/// How long none lies out then at first, and at most.
const PAUSE: Span = Span::from_ms(50);
const PAUSE_MAX: Span = Span::from_ms(1600);

/// What a node knows of its tokens that lay out.
#[derive(Debug)]
pub(crate) struct Lying {
    /// Since when they are counted.
    since: Time,
    count: u32,
    /// So many of them were taken back.
    vain: u32,
    paused_until: Time,
    pause: Span,
}

impl Default for Lying {
    fn default() -> Lying {
        Lying { since: Time(0), count: 0, vain: 0, paused_until: Time(0), pause: PAUSE }
    }
}

impl Lying {
    /// Whether tokens lie out.
    pub(crate) fn may(&self, now: Time) -> bool {
        self.paused_until <= now
    }

    /// One does.
    pub(crate) fn count(&mut self, now: Time) {
        self.count += 1;
        if self.count < COUNTED {
            return;
        }
        let closely = (now - self.since).0 < u64::from(COUNTED) * CLOSELY.0;
        if closely || self.vain * ONE_IN >= COUNTED {
            self.paused_until = now + self.pause;
            self.pause = Span((2 * self.pause.0).min(PAUSE_MAX.0));
        } else {
            self.pause = PAUSE;
        }
        (self.since, self.count, self.vain) = (now.max(self.paused_until), 0, 0);
    }

    /// One was taken back.
    pub(crate) fn count_vain(&mut self) {
        self.vain += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time(1_000_000_000 + us * 1_000)
    }

    /// Releases a lock so many times, every so many us, and lays its token out where that may be; the node wants it again (`back`), or another does.
    /// Gives how often it lay out.
    fn laid_out(lying: &mut Lying, times: u64, every: u64, back: bool) -> u64 {
        let mut count = 0;
        for now in (1..=times).map(|n| at(n * every)) {
            if lying.may(now) {
                lying.count(now);
                count += 1;
                if back {
                    lying.count_vain();
                }
            }
        }
        count
    }

    #[test]
    fn tokens_lie_out_where_they_are_released_now_and_then() {
        assert_eq!(laid_out(&mut Lying::default(), 200, 500, false), 200);
    }

    #[test]
    fn tokens_that_are_released_in_short_succession_or_taken_back_lie_out_ever_more_seldom() {
        for (times, every, back) in [(100_000, 10, false), (1_000, 1_000, true)] {
            let few = laid_out(&mut Lying::default(), times, every, back);
            assert!((48..=128).contains(&few), "{few} of {times}");
        }
    }

    #[test]
    fn a_pause_is_short_again_after_tokens_that_others_took() {
        let mut lying = Lying::default();
        laid_out(&mut lying, 40_000, 10, false);
        assert!(lying.pause.0 > PAUSE.0);
        (1..=2 * u64::from(COUNTED)).for_each(|n| lying.count(at(10_000_000 + n * 1_000)));
        assert_eq!(lying.pause.0, PAUSE.0);
    }
}
