//! Tokens that two nodes want in turn, again and again, stay a while.
//!
//! A token that leaves at the first request changes nodes at every release where threads of two nodes want its lock all
//! the time. Each change costs the ending of an interval, a trip and a few page fetches: some hundred times what the
//! critical section takes. So a request that comes soon after the token waits a while, if this node itself has lately
//! asked for the token soon after it had left. Meanwhile the node's threads take the lock as if nobody wanted it.

use crate::coherence::pages::policy::Predictor;
use crate::ids::LockId;
use crate::time::{Span, Time};
use crate::tuning::LockTuning;

/// Locks that are followed at a time.
const FOLLOWED: usize = 16;

/// What is known of a token's comings and goings.
#[derive(Clone, Copy, Debug)]
struct Followed {
    lock: LockId,
    arrived: Time,
    left: Time,
    /// How often in a row this node has asked soon after the token had left.
    soon: u8,
}

/// The locks whose tokens left this node lately.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    locks: [Option<Followed>; FOLLOWED],
}

impl Retention {
    fn at(&mut self, lock: LockId) -> &mut Option<Followed> {
        &mut self.locks[(lock.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % FOLLOWED]
    }

    fn followed(&mut self, lock: LockId) -> Option<&mut Followed> {
        self.at(lock).as_mut().filter(|f| f.lock == lock)
    }

    /// Whether the token is one of the last few that have left.
    pub fn has_left_lately(&mut self, lock: LockId) -> bool {
        self.followed(lock).is_some()
    }
}

/// What has become of a lock's token.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It is asked for, and leaves now or at the next release.
    Leaves(LockId, Time),
    /// A thread of this node asks for it.
    Requested(LockId, Time),
    /// It has come, and a thread had asked for it.
    Arrived(LockId, Time),
}

impl Predictor for Retention {
    type Numbers = LockTuning;
    type Event<'a> = Event;
    /// Until when does the token stay, although somebody asks for it now?
    type Query<'a> = (LockId, Time);
    type Prediction = Option<Time>;

    fn is_on(&self, numbers: &LockTuning) -> bool {
        numbers.retention
    }

    fn learn(&mut self, numbers: &LockTuning, event: Event) {
        match event {
            Event::Leaves(lock, now) => {
                let place = self.at(lock);
                let before = place.filter(|f| f.lock == lock);
                let fresh = Followed { lock, arrived: Time(0), left: now, soon: 0 };
                *place = Some(Followed { left: now, ..before.unwrap_or(fresh) });
            }
            Event::Requested(lock, now) => {
                if let Some(followed) = self.followed(lock) {
                    let again = (now - followed.left).0 < soon(numbers).0;
                    followed.soon = if again { (followed.soon + 1).min(numbers.soon_in_a_row) } else { 0 };
                }
            }
            Event::Arrived(lock, now) => {
                if let Some(followed) = self.followed(lock) {
                    followed.arrived = now;
                }
            }
        }
    }

    fn answer(&mut self, numbers: &LockTuning, (lock, now): (LockId, Time)) -> Option<Time> {
        let followed = self.followed(lock)?;
        let stays = followed.soon >= numbers.soon_in_a_row && (now - followed.arrived).0 < soon(numbers).0;
        stays.then(|| followed.arrived + numbers.retained())
    }
}

fn soon(numbers: &LockTuning) -> Span {
    Span::from_us(numbers.soon_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: LockId = LockId(7);

    fn at(us: u64) -> Time {
        Time(1_000_000_000 + us * 1_000)
    }

    /// A token that comes and goes, and is asked for again so long after it has left; until when it stays then.
    fn stays(numbers: &LockTuning, times: u64, again_after: u64) -> Option<Time> {
        let (mut retention, mut now) = (Retention::default(), 0);
        for _ in 0..times {
            retention.observe(numbers, Event::Leaves(LOCK, at(now)));
            retention.observe(numbers, Event::Requested(LOCK, at(now + again_after)));
            now += again_after + 20;
            retention.observe(numbers, Event::Arrived(LOCK, at(now)));
        }
        retention
            .predict(numbers, (LOCK, at(now + 1)))
            .inspect(|until| assert_eq!(*until, at(now) + numbers.retained()))
    }

    #[test]
    fn a_token_stays_that_is_asked_for_soon_again_and_again() {
        let numbers = LockTuning::DEFAULT;
        let enough = u64::from(numbers.soon_in_a_row);
        assert_eq!(stays(&numbers, enough - 1, 10), None);
        assert!(stays(&numbers, enough, 10).is_some());
        assert_eq!(stays(&numbers, 9, numbers.soon_us), None, "not soon");
        assert_eq!(stays(&LockTuning { retention: false, ..numbers }, 9, 10), None);
    }
}
