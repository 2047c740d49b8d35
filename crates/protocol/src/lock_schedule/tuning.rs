//! Spans of the numbers by which a node schedules its locks.

use crate::time::Span;
use crate::tuning::LockTuning;

impl LockTuning {
    /// How long a token stays that two nodes want all the time.
    pub fn retained(&self) -> Span {
        Span::from_us(self.retained_us)
    }

    /// How long a thread waits for a lock before its node's turn is over.
    pub fn lock_wait(&self) -> Span {
        Span::from_us(self.lock_wait_us)
    }

    /// The longest that a message waits for a clock.
    pub fn longest_deferral(&self) -> Span {
        Span::from_us(self.retained_us.max(self.turn_us))
    }

    pub(super) fn lately(&self) -> Span {
        Span::from_us(self.lately_us)
    }
}
