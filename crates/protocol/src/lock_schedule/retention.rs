//! Tokens that two nodes want in turn, again and again, stay a while.
//!
//! A token that leaves at the first request changes nodes at every release where threads of two nodes want its lock all
//! the time. Each change costs the ending of an interval, a trip and a few page fetches: some hundred times what the
//! critical section takes. So a request that comes soon after the token waits a while, if this node itself has lately
//! asked for the token soon after it had left. Meanwhile the node's threads take the lock as if nobody wanted it.

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

    /// Until when the token stays although somebody asks for it now.
    pub fn until(&mut self, tuning: &LockTuning, lock: LockId, now: Time) -> Option<Time> {
        let followed = self.followed(lock).filter(|_| tuning.retention)?;
        let stays = followed.soon >= tuning.soon_in_a_row && (now - followed.arrived).0 < soon(tuning).0;
        stays.then(|| followed.arrived + tuning.retained())
    }

    /// A token is asked for, and leaves now or at the next release.
    pub fn leaves(&mut self, lock: LockId, now: Time) {
        let place = self.at(lock);
        let before = place.filter(|f| f.lock == lock);
        let fresh = Followed { lock, arrived: Time(0), left: now, soon: 0 };
        *place = Some(Followed { left: now, ..before.unwrap_or(fresh) });
    }

    /// A thread of this node asks for a token.
    pub fn requested(&mut self, tuning: &LockTuning, lock: LockId, now: Time) {
        if let Some(followed) = self.followed(lock) {
            let again = (now - followed.left).0 < soon(tuning).0;
            followed.soon = if again { (followed.soon + 1).min(tuning.soon_in_a_row) } else { 0 };
        }
    }

    /// A token has come that a thread had asked for. Whether it is one of the last few that have left.
    pub fn arrived(&mut self, lock: LockId, now: Time) -> bool {
        self.followed(lock).map(|followed| followed.arrived = now).is_some()
    }
}

fn soon(tuning: &LockTuning) -> Span {
    Span::from_us(tuning.soon_us)
}
