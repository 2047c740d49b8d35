//! What becomes of a lock whose token is here when its holder lets it go.
//!
//! | who waits | the lock |
//! |---|---|
//! | threads of this node | goes to the first of them |
//! | another node | its token leaves |
//! | both | goes to threads of this node `local_hands_max` times while the other waits; then its token leaves |
//! | nobody | rests here; where nodes reach each other's memory its token may be published |
//!
//! A published token that its own node wanted again before others did was published for nothing. So after each such
//! time the lock is released more often, twice as often and once more, before its token is published again. A token
//! that comes from another node begins anew.

use crate::rules::Rule;
use crate::tuning::LockTuning;

/// What one lock's releases have come to since its token came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handover {
    /// How often the lock has changed hands here while another node waited.
    streak: u8,
    /// The token may be published when nobody waits for it.
    may_publish: bool,
    /// Before that the lock is released so often.
    unpublished: u8,
    /// What that number was the last time.
    unpublished_before: u8,
}

impl Handover {
    /// The token has come, and may be published when nobody waits for it.
    pub fn token_arrived(&mut self, may_publish: bool) {
        *self = Handover { may_publish, ..Handover::default() };
    }

    /// The holder lets the lock go, and a thread of this node waits: whether it goes to that thread. `wanted`: another
    /// node waits, too.
    pub fn goes_to_neighbour(&mut self, tuning: &LockTuning, wanted: bool) -> bool {
        let goes_on = u32::from(self.streak) < tuning.local_hands_max || !Rule::StreaksEnd.on();
        if wanted && !goes_on {
            return false;
        }
        self.streak = if wanted { self.streak.saturating_add(1) } else { 0 };
        true
    }

    /// Whether nothing is to be decided when the lock is let go and nobody waits: its token rests here.
    pub fn rests(&self) -> bool {
        !self.may_publish || self.unpublished > 0
    }

    /// The lock was let go, and its token rests here.
    pub fn has_rested(&mut self) {
        self.unpublished = self.unpublished.saturating_sub(1);
    }

    /// The token is published now, or could not be: then it is not tried again before it has left and come back.
    pub fn published(&mut self, was: bool) {
        self.may_publish = was;
    }

    /// The published token is wanted again here, and nobody else has taken it.
    pub fn retracted(&mut self, tuning: &LockTuning) {
        let most = u16::from(tuning.kept_releases_max);
        self.unpublished_before = (2 * u16::from(self.unpublished_before) + 1).min(most) as u8;
        self.unpublished = self.unpublished_before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_wanted_again_where_it_was_published_rests_ever_longer() {
        let mut handover = Handover::default();
        handover.token_arrived(true);
        let mut rested = Vec::new();
        for _ in 0..9 {
            let mut releases = 0;
            while handover.rests() {
                handover.has_rested();
                releases += 1;
            }
            rested.push(releases);
            handover.published(true);
            handover.retracted(&LockTuning::DEFAULT);
        }
        assert_eq!(rested, [0, 1, 3, 7, 15, 31, 63, 127, 127]);
        handover.token_arrived(true);
        assert!(!handover.rests(), "a token that comes back begins anew");
        handover.published(false);
        assert!(handover.rests(), "what could not be published is not tried again");
    }

    #[test]
    fn neighbours_hand_a_lock_on_without_end_only_while_no_other_node_waits() {
        let mut handover = Handover::default();
        assert!((0..1000).all(|_| handover.goes_to_neighbour(&LockTuning::DEFAULT, false)));
        let streak = (0..1000).take_while(|_| handover.goes_to_neighbour(&LockTuning::DEFAULT, true)).count();
        assert_eq!(streak as u32, LockTuning::DEFAULT.local_hands_max);
    }
}
