//! Nodes that want one another's locks all the time take turns.
//!
//! Where threads of two nodes take the same few, or few thousand, locks in short succession, tokens go to and fro, and
//! nearly every one that leaves ends an interval: pages are looked through, diffs travel, copies end. The node that
//! gave it is slowed down by that, the one that waits does nothing meanwhile, and after a few microseconds of work it
//! is the other way round. Then it is faster that one node works at a time. What others ask of it waits until its
//! *turn* is over, and an interval ends once in a turn. A node whose turn it is not mostly waits, and who waits gives
//! tokens away at once. These cost little, since their intervals are ended.
//!
//! - Turns are taken for a while when a node has spent most of the time of its last remote acquires waiting. Then it is
//!   measured again.
//! - A turn begins with a token that came. It ends after a time, or when the node's threads wait for others: at once
//!   for anything but a lock, and a little later for a lock; or when a thread polls. A token comes sooner than that
//!   unless its node has a turn of its own.
//! - Where single tokens are expensive, a node whose turn begins requests all those that have left since its last one.

use crate::coherence::pages::policy::Predictor;
use crate::ids::LockId;
use crate::time::{Span, Time};
use crate::tuning::LockTuning;

/// So few locks are those that a thread polls.
const POLLED: usize = 4;

/// A node's turns, and the tokens that have left between them.
#[derive(Clone, Debug, Default)]
pub struct Batching {
    /// Until when turns are taken.
    taken_until: Time,
    /// When this node's turn ends, or has ended.
    ends: Time,
    /// Since when remote acquires are measured.
    since: Time,
    /// How long threads have waited for them since then, and how many there were.
    waited: Span,
    acquires: u32,
    /// How long all of them may have taken.
    allowed: Span,
    /// How many more of the tokens that came in turns were expensive than were not, of the last ones.
    expensive: i32,
    /// Locks whose tokens have left since they were last requested ahead.
    left: Vec<LockId>,
    /// The last token began a turn.
    begins: bool,
    polling: Polling,
}

/// What has happened to this node's tokens.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// One has come that a thread had asked another node for.
    Arrived {
        /// Since when.
        asked: Time,
        /// The time.
        now: Time,
        /// It is one of the last few that have left.
        comes_back: bool,
        /// How many threads the node has.
        threads: u64,
    },
    /// That of this lock has left.
    Left(LockId),
    /// Threads of this node wait for others: its turn is over.
    Waits(Time),
}

impl Predictor for Batching {
    type Numbers = LockTuning;
    type Event<'a> = Event;
    /// When does this node's turn end, if it has one now?
    type Query<'a> = Time;
    type Prediction = Option<Time>;

    fn is_on(&self, numbers: &LockTuning) -> bool {
        numbers.turns
    }

    fn learn(&mut self, numbers: &LockTuning, event: Event) {
        match event {
            Event::Arrived { asked, now, comes_back, threads } => {
                self.begins = self.arrived(numbers, asked, now, (comes_back, threads));
            }
            Event::Left(lock) => {
                if numbers.request_ahead && self.left.len() < numbers.request_ahead_max {
                    self.left.push(lock);
                }
            }
            Event::Waits(now) => self.ends = self.ends.min(now),
        }
    }

    fn answer(&mut self, _: &LockTuning, now: Time) -> Option<Time> {
        (now < self.taken_until && now < self.ends).then_some(self.ends)
    }
}

impl Batching {
    /// Whether the token that came last began a turn.
    pub fn has_begun(&self) -> bool {
        self.begins
    }

    /// [`Event::Arrived`]; whether a turn begins.
    fn arrived(&mut self, tuning: &LockTuning, asked: Time, now: Time, (comes_back, threads): (bool, u64)) -> bool {
        if tuning.measured_acquires == 0 {
            self.taken_until = Time(u64::MAX);
        }
        if now < self.taken_until {
            self.measure_from(now);
            let begins = self.ends <= now;
            if begins {
                self.ends = now + Span::from_us(tuning.turn_us);
            } else {
                let step = if (now - asked).0 > Span::from_us(tuning.expensive_us).0 { 1 } else { -1 };
                let most = tuning.expensive_in_a_row as i32;
                self.expensive = (self.expensive + step).clamp(-most, most);
            }
            return begins;
        }
        let allowed = if comes_back { tuning.returns_every_us } else { tuning.acquires_every_us };
        self.waited = Span(self.waited.0 + (now - asked).0);
        self.allowed = Span(self.allowed.0.saturating_add(Span::from_us(allowed).0));
        self.acquires += 1;
        if self.acquires >= tuning.measured_acquires {
            let time = (now - self.since).0;
            let closely = time < self.allowed.0;
            if closely && self.waited.0 * 100 >= time * threads * tuning.waited_percent {
                self.taken_until = now + Span::from_us(tuning.turns_for_us);
            }
            self.measure_from(now);
        }
        false
    }

    #[cfg(test)]
    pub(super) fn turn_ends_for_test(&mut self, ends: Time) {
        (self.taken_until, self.ends) = (Time(u64::MAX), ends);
    }

    fn measure_from(&mut self, now: Time) {
        (self.since, self.waited, self.acquires, self.allowed) = (now, Span(0), 0, Span(0));
    }

    /// The locks whose tokens have left since the last turn, if there are enough of them and single ones are expensive.
    pub fn tokens_to_request(&mut self, tuning: &LockTuning) -> Option<Vec<LockId>> {
        let pays = self.left.len() >= tuning.request_ahead_min && self.tokens_are_expensive(tuning);
        pays.then(|| std::mem::take(&mut self.left))
    }

    /// Whether tokens that come one by one in this node's turn cost more than those that come together.
    pub fn tokens_are_expensive(&self, tuning: &LockTuning) -> bool {
        self.expensive > 0 || tuning.expensive_us == 0
    }

    /// A thread releases this lock. Whether it polls.
    pub fn polls(&mut self, tuning: &LockTuning, lock: LockId, now: Time) -> bool {
        self.polling.released(tuning, lock, now)
    }
}

/// Finds threads that take the same few locks again and again and do nothing else. What they wait for others do, once
/// they have the locks. Two threads at a time may pass for one that does not.
#[derive(Clone, Debug, Default)]
pub struct Polling {
    /// The last locks at whose releases it was looked, the latest first.
    locks: [LockId; POLLED],
    at: Time,
    /// How often in a row there was nothing but those.
    calls: u32,
}

impl Polling {
    /// A thread releases this lock. Whether it polls: it released it some calls ago, too, and nothing but a few others
    /// since.
    fn released(&mut self, tuning: &LockTuning, lock: LockId, now: Time) -> bool {
        let since = std::mem::replace(&mut self.at, now);
        let before = self.locks.contains(&lock);
        if before && (now - since).0 < tuning.polling_every_ns {
            self.calls = self.calls.saturating_add(1);
            return self.calls >= tuning.polling_calls;
        }
        if !before {
            // The one of longest ago goes.
            self.locks.rotate_right(1);
            self.locks[0] = lock;
        }
        self.calls = 0;
        false
    }
}
