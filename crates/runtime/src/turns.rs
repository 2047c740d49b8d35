//! Nodes that want one another's locks all the time take turns.
//!
//! Where threads of two nodes take the same few, or few thousand, locks in short succession, tokens go to and fro, and nearly every
//! one that leaves ends an interval: pages are looked through, diffs travel, copies end. The node that gave it is slowed down by that, the
//! one that waits does nothing meanwhile, and after a few microseconds of work it is the other way round. Then it is faster that
//! one node works at a time: what others ask of it waits until its *turn* is over, and an interval ends once in a turn. A node
//! whose turn it is not mostly waits, and who waits gives tokens away at once; these cost little, since their intervals are ended.
//!
//! - Turns are taken for [`ERA`] when a node has spent most of the time of its last [`MEASURED`] remote acquires waiting; then it is measured again.
//! - A turn begins with a token that came, and ends after [`TURN`], or when the node's threads wait for others: at once if
//!   for anything but a lock, and after [`BRIEF`] if for a lock; or when a thread polls ([`stays`](crate::stays)). A token comes sooner than that unless its node has a turn of its own.
//!
//! The protocol knows nothing of it: to it, a request was that long on its way (see [`stays`](crate::stays)).

use comem_protocol::time::{Span, Time};

/// How long a turn lasts at most.
const TURN: Span = Span::from_ms(32);
/// How long a thread waits for a token before its node's turn is over.
pub(crate) const BRIEF: Span = Span::from_us(120);
/// So many remote acquires are measured at a time.
const MEASURED: u32 = 16;
/// They must follow one another as closely as this on average.
const CLOSELY: Span = Span::from_us(300);
/// Where it is the same few locks again and again, whose tokens stay a while each time: as closely as this.
const CLOSELY_THE_SAME: Span = Span::from_us(800);
/// And threads must have waited for them this part of the time, in hundredths.
const WAITED: u64 = 60;
/// Tokens that come together cost less than 1 us each, and some will not be used. One that takes longer than this by itself is dear.
const DEAR: Span = Span::from_us(4);
/// So many in a row say whether the others are.
const DEAR_MOST: i32 = 64;
/// So long turns are taken before it is measured again whether they are worth it.
const ERA: Span = Span::from_ms(100);

/// A node's turns.
#[derive(Debug, Default)]
pub(crate) struct Turns {
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
    /// How many more of the tokens that came in turns were dear than were not, of the last ones.
    dear: i32,
}

impl Turns {
    /// Whether turns are taken.
    pub(crate) fn are_taken(&self, now: Time) -> bool {
        now < self.taken_until
    }

    /// When this node's turn ends, if it has one.
    pub(crate) fn end(&self, now: Time) -> Option<Time> {
        (self.are_taken(now) && now < self.ends).then_some(self.ends)
    }

    /// A token has come that a thread, one of `threads`, had asked another node for; `same`: it is one of the last few that have left. Whether a turn begins.
    pub(crate) fn came(&mut self, asked: Time, now: Time, same: bool, threads: u64) -> bool {
        if self.are_taken(now) {
            self.measure_from(now);
            let begins = self.ends <= now;
            if begins {
                self.ends = now + TURN;
            } else {
                let step = if (now - asked).0 > DEAR.0 { 1 } else { -1 };
                self.dear = (self.dear + step).clamp(-DEAR_MOST, DEAR_MOST);
            }
            return begins;
        }
        self.waited = Span(self.waited.0 + (now - asked).0);
        self.allowed = Span(self.allowed.0 + if same { CLOSELY_THE_SAME.0 } else { CLOSELY.0 });
        self.acquires += 1;
        if self.acquires == MEASURED {
            let time = (now - self.since).0;
            let closely = time < self.allowed.0;
            if closely && self.waited.0 * 100 >= time * threads * WAITED {
                self.taken_until = now + ERA;
            }
            self.measure_from(now);
        }
        false
    }

    /// Whether tokens that come one by one in this node's turn cost more than those that come together.
    pub(crate) fn tokens_are_dear(&self) -> bool {
        self.dear > 0
    }

    /// Threads of this node wait for others: its turn is over.
    pub(crate) fn give_up(&mut self, now: Time) {
        self.ends = self.ends.min(now);
    }

    fn measure_from(&mut self, now: Time) {
        (self.since, self.waited, self.acquires, self.allowed) = (now, Span(0), 0, Span(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time(1_000_000_000 + us * 1_000)
    }

    /// A node that waits `waits` for each of so many tokens, and then computes for `computes`, all in us. Gives the time.
    fn acquire(turns: &mut Turns, times: u32, waits: u64, computes: u64) -> u64 {
        acquire_of(turns, times, waits, computes, false)
    }

    fn acquire_of(turns: &mut Turns, times: u32, waits: u64, computes: u64, same: bool) -> u64 {
        (0..times).fold(0, |now, _| {
            turns.came(at(now), at(now + waits), same, 1);
            now + waits + computes
        })
    }

    #[test]
    fn turns_are_taken_where_threads_mostly_wait_for_tokens() {
        let mut turns = Turns::default();
        let now = acquire(&mut turns, 2 * MEASURED + 1, 40, 10);
        assert_eq!(turns.end(at(now)), Some(at(now - 10) + TURN), "it began when the token came");
        assert_eq!(turns.end(at(now) + TURN), None);
    }

    #[test]
    fn no_turns_are_taken_where_threads_mostly_compute() {
        let mut turns = Turns::default();
        let now = acquire(&mut turns, 10 * MEASURED, 40, 60);
        assert_eq!(turns.end(at(now)), None);
    }

    #[test]
    fn no_turns_are_taken_where_locks_seldom_move() {
        let mut turns = Turns::default();
        let now = acquire(&mut turns, 10 * MEASURED, 390, 10);
        assert_eq!(turns.end(at(now)), None);
    }

    #[test]
    fn turns_are_taken_where_one_lock_goes_to_and_fro_whose_token_stays_at_either_node() {
        for (same, taken) in [(true, true), (false, false)] {
            let mut turns = Turns::default();
            let now = acquire_of(&mut turns, 2 * MEASURED + 1, 350, 200, same);
            assert_eq!(turns.end(at(now)).is_some(), taken);
        }
    }

    #[test]
    fn a_turn_is_over_when_threads_wait_and_another_begins_with_the_next_token() {
        let mut turns = Turns::default();
        let now = acquire(&mut turns, 2 * MEASURED + 1, 40, 10);
        turns.give_up(at(now));
        assert_eq!(turns.end(at(now)), None);
        turns.came(at(now), at(now + 500), false, 1);
        assert_eq!(turns.end(at(now + 500)), Some(at(now + 500) + TURN));
    }

    #[test]
    fn tokens_are_dear_where_most_that_came_in_turns_took_long() {
        let mut turns = Turns::default();
        let now = acquire(&mut turns, 2 * MEASURED + 1, 40, 10);
        assert!(!turns.tokens_are_dear(), "only those in turns count");
        let ten_came = |turns: &mut Turns, waits: u64| {
            for _ in 0..10 {
                turns.came(at(now), at(now + waits), false, 1);
            }
        };
        ten_came(&mut turns, 12);
        assert!(turns.tokens_are_dear());
        ten_came(&mut turns, 3);
        assert!(!turns.tokens_are_dear());
    }

    #[test]
    fn turns_are_measured_again_after_an_era() {
        let mut turns = Turns::default();
        let now = acquire(&mut turns, 2 * MEASURED + 1, 40, 10);
        let later = now + ERA.0 / 1_000;
        turns.came(at(later), at(later + 40), false, 1);
        assert_eq!(turns.end(at(later + 40)), None);
    }
}
