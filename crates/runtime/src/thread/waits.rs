//! What a thread has waited for, and how long.

use crate::node::Waiting;
use comem_protocol::time::{Span, Time};

/// The waits of the operation under way.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waited: Span,
    /// What it has waited for last, and since when.
    last: Option<(Waiting, Time)>,
}

impl Waits {
    /// An operation begins.
    pub(super) fn begin(&mut self) {
        *self = Waits::default();
    }

    /// When the wait began of which a part begins now: a thread wakes now and then, and waits on for the same thing.
    pub(super) fn since(&mut self, why: Waiting, now: Time) -> Time {
        let since = self.last.filter(|(before, _)| *before == why).map_or(now, |(_, since)| since);
        self.last = Some((why, since));
        since
    }

    /// A part of a wait, or a delay, has taken so long.
    pub(super) fn add(&mut self, span: Span) {
        self.waited = Span(self.waited.0 + span.0);
    }

    /// Nanoseconds waited so far.
    pub(super) fn waited_ns(&self) -> u64 {
        self.waited.0
    }
}

/// How many locks a thread holds; reader-writer locks are none.
#[derive(Debug, Default)]
pub(super) struct LocksHeld(std::cell::Cell<u32>);

impl LocksHeld {
    pub(super) fn one_more(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(super) fn one_less(&self) {
        self.0.set(self.0.get().saturating_sub(1));
    }

    pub(super) fn any(&self) -> bool {
        self.0.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one_wait_have_one_beginning() {
        let mut waits = Waits::default();
        assert_eq!([waits.since(Waiting::Diffs, Time(5)), waits.since(Waiting::Diffs, Time(9))], [Time(5); 2]);
        assert_eq!(waits.since(Waiting::Room, Time(11)), Time(11));
        assert_eq!(waits.since(Waiting::Diffs, Time(12)), Time(12), "another wait for the same");
        waits.add(Span(3));
        waits.add(Span(4));
        assert_eq!(waits.waited_ns(), 7);
        waits.begin();
        assert_eq!((waits.waited_ns(), waits.since(Waiting::Diffs, Time(20))), (0, Time(20)));
    }
}
