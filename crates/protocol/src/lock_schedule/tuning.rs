//! The numbers by which a node schedules its locks.

use crate::time::Span;

/// The numbers by which a node schedules its locks. None of them decides on what a program sees: the simulator draws
/// them at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Whether requests for tokens are deferred at all for the sake of the node's own threads.
    pub defers: bool,
    /// How long a token stays that two nodes want all the time.
    pub retained_us: u64,
    /// A node that asks so soon after a token has left wants it all the time: sooner than a hand-over takes.
    pub soon_us: u64,
    /// So often in a row it must have asked soon before the token stays.
    pub soon_in_a_row: u8,
    /// So long after a message was deferred, the service thread looks at the clock now and then.
    pub lately_us: u64,
    /// How long a turn lasts at most.
    pub turn_us: u64,
    /// How long a thread waits for a lock before its node's turn is over.
    pub lock_wait_us: u64,
    /// So many remote acquires say whether nodes take turns; 0: they always do.
    pub measured_acquires: u32,
    /// Turns are taken where remote acquires follow one another as closely as this on average.
    pub acquires_every_us: u64,
    /// The same for tokens that come back and are retained each time.
    pub returns_every_us: u64,
    /// And where threads wait for tokens this part of the time.
    pub waited_percent: u64,
    /// So long turns are taken before it is measured again whether they are worth it.
    pub turns_for_us: u64,
    /// A token that takes longer than this by itself is expensive: together they cost less than 1 us each. 0: all are.
    pub expensive_us: u64,
    /// A node requests the tokens that have left when they are as many as this at least.
    pub request_ahead_min: usize,
    /// So many at most.
    pub request_ahead_max: usize,
    /// A thread polls that does nothing for so many calls in a row but take the same few locks...
    pub polling_calls: u32,
    /// ... at intervals of at most this.
    pub polling_every_ns: u64,
    /// So many published tokens are judged at a time.
    pub published_judged: u32,
    /// Publishing pauses where they followed one another as closely as this on average.
    pub published_every_us: u64,
    /// Or where one of so many was retracted.
    pub retracted_one_in: u32,
    /// How long it pauses at first.
    pub pause_min_us: u64,
    /// And at most: each pause is twice as long as the one before.
    pub pause_max_us: u64,
    /// From so many written pages on, a close is a long one.
    pub long_close_pages: u32,
    /// From so many active page tables on, where the kernel does not say how much was written.
    pub long_close_tables: usize,
    /// So soon after a close, little can have been written, and to look how much costs more than it saves.
    pub closed_lately_us: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            defers: true,
            retained_us: 250,
            soon_us: 50,
            soon_in_a_row: 2,
            lately_us: 2_000,
            turn_us: 32_000,
            lock_wait_us: 120,
            measured_acquires: 16,
            acquires_every_us: 300,
            returns_every_us: 800,
            waited_percent: 60,
            turns_for_us: 100_000,
            expensive_us: 4,
            request_ahead_min: 8,
            request_ahead_max: 4096,
            polling_calls: 64,
            polling_every_ns: 16 * 200,
            published_judged: 16,
            published_every_us: 150,
            retracted_one_in: 4,
            pause_min_us: 50_000,
            pause_max_us: 1_600_000,
            long_close_pages: 256,
            long_close_tables: 4,
            closed_lately_us: 1_000,
        }
    }
}

impl Tuning {
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
