//! Locks that nobody hands over: their words lie in memory that every thread of the job reaches.
//!
//! Under engines that keep memory consistent at every access a release has nothing to tell. So a lock needs no token
//! and no manager that answers: one word, at the node that is its *home*, says everything. A thread takes a free lock
//! by one compare-and-swap and lets it go by another; no other thread takes part.
//!
//! | part of the word | bits | meaning |
//! |---|---|---|
//! | holder | 15 | node and slot of the thread that holds the lock; 0: it is free |
//! | awake | 1 | whoever is next in the queue is awake, and looks at the word once more before it sleeps |
//! | serving | 16 | the ticket of whoever is next in the queue |
//! | tickets | 16 | the ticket of whoever joins the queue next; as `serving`: nobody waits |
//! | bypasses | 8 | how many threads without a ticket took the lock since `serving` changed |
//!
//! A thread that finds the lock held looks again for a while. Then it takes a ticket, and sleeps until it is next and
//! the lock is free. A thread without a ticket may take a free lock before those who wait, since to wait for a
//! sleeper's wake-up at each hand-over would make all of them as slow as wake-ups are. But it may do so
//! `bypasses_max` times in a row only; then the lock goes to whoever is next, and nobody starves.
//!
//! # Why it excludes
//!
//! Every change is a compare-and-swap of the whole word. The holder changes from 0 to a thread only by that thread, and
//! back to 0 only by the same thread. So between the two no other thread takes the lock.
//!
//! # Why no wake-up is lost
//!
//! A sleeper gives what it has *seen* of the word: holder, awake and serving. The system puts it to sleep only while
//! that is so. Whoever is not next sees another `serving` before its turn comes, and until then nobody need wake it;
//! who sees its turn begin and sleeps finds `awake` cleared, since a ticket's use clears it. Whoever is next clears
//! `awake` in the word before it sleeps. A release sets it again and wakes whoever is next if it was clear. It is the
//! sleeper alone that clears it otherwise, so it cannot come to be set, and what was seen come back, between its look
//! and its sleep.
//!
//! Where nobody can be woken, a thread sleeps for a moment instead, and looks at the word then. Sleepers may wake for
//! no reason, so that is nothing new.
//!
//! # Where the words lie
//!
//! A table with open addressing at each home, by the lock's name. A name stays in its place for good, so whoever finds
//! it there uses the word beside it. Locks of neighbouring names lie side by side.

use crate::ids::{Channel, LockId, NodeId, Slot};
use crate::rules::Rule;
use crate::tuning::LockTuning;
use std::fmt;

/// Nodes whose threads a word can name.
pub const NODES_MAX: usize = 1 << (HOLDER_BITS - SLOT_BITS);
/// Places of a table: how many locks may have their home at one node.
pub const PLACES: usize = 1 << 20;
/// Places of locks with neighbouring names lie side by side in blocks of so many.
const BLOCK: u64 = 64;

const SLOT_BITS: u32 = 9;
const HOLDER_BITS: u32 = 15;
const HOLDER_MASK: u64 = (1 << HOLDER_BITS) - 1;
const AWAKE: u64 = 1 << HOLDER_BITS;
const SERVING_AT: u32 = 16;
const TICKETS_AT: u32 = 32;
const BYPASSES_AT: u32 = 48;

/// All there is to know of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LockWord(pub u64);

impl fmt::Debug for LockWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let awake = if self.is_next_awake() { ", next is awake" } else { "" };
        let (serving, tickets, bypasses) = (self.serving(), self.tickets(), self.bypasses());
        write!(f, "LockWord({:?}, {serving}..{tickets}{awake}, {bypasses} bypasses)", self.holder())
    }
}

impl LockWord {
    /// Nobody holds the lock, and nobody waits.
    pub const FREE: LockWord = LockWord(0);

    /// The thread that holds the lock.
    pub fn holder(self) -> Option<Channel> {
        let holder = (self.0 & HOLDER_MASK) as u16;
        let (node, slot) = (NodeId(holder >> SLOT_BITS), Slot(holder & ((1 << SLOT_BITS) - 1)));
        (holder != 0).then_some(Channel { node, slot })
    }

    /// Whether whoever is next looks at the word once more before it sleeps.
    pub fn is_next_awake(self) -> bool {
        self.0 & AWAKE != 0
    }

    /// The ticket of whoever is next.
    pub fn serving(self) -> u16 {
        (self.0 >> SERVING_AT) as u16
    }

    /// How many threads wait with tickets.
    pub fn waiting(self) -> u16 {
        self.tickets().wrapping_sub(self.serving())
    }

    /// What a sleeper compares: the lower half of the word.
    pub fn seen(self) -> u32 {
        let holder = self.0 & HOLDER_MASK;
        (if Rule::SleepersSeeWhoIsNext.on() { self.0 } else { holder }) as u32
    }

    fn tickets(self) -> u16 {
        (self.0 >> TICKETS_AT) as u16
    }

    fn bypasses(self) -> u8 {
        (self.0 >> BYPASSES_AT) as u8
    }

    fn with(holder: u64, awake: bool, (serving, tickets): (u16, u16), bypasses: u8) -> LockWord {
        let queue = u64::from(serving) << SERVING_AT | u64::from(tickets) << TICKETS_AT;
        LockWord(holder | if awake { AWAKE } else { 0 } | queue | u64::from(bypasses) << BYPASSES_AT)
    }

    /// Whether a thread with this ticket, or without one, may take the lock; without one so often in a row.
    fn admits(self, ticket: Option<u16>, bypasses_max: u8) -> bool {
        if self.holder().is_some() && Rule::HeldLocksAreNotTaken.on() {
            return false;
        }
        match ticket {
            Some(ticket) => self.serving() == ticket,
            None => self.waiting() == 0 || self.bypasses() < bypasses_max || !Rule::BypassesEnd.on(),
        }
    }

    fn taken(self, by: Channel, ticket: Option<u16>) -> LockWord {
        let holder = u64::from(by.node.0) << SLOT_BITS | u64::from(by.slot.0);
        let (serving, tickets) = (self.serving(), self.tickets());
        if ticket.is_some() {
            // Of whoever comes next nothing is known: it may sleep.
            let awake = self.is_next_awake() && !Rule::NextMaySleep.on();
            return LockWord::with(holder, awake, (serving.wrapping_add(1), tickets), 0);
        }
        let bypasses = if self.waiting() == 0 { 0 } else { self.bypasses().saturating_add(1) };
        LockWord::with(holder, self.is_next_awake(), (serving, tickets), bypasses)
    }

    fn queued(self) -> LockWord {
        let awake = self.is_next_awake() || self.waiting() == 0;
        let queue = (self.serving(), self.tickets().wrapping_add(1));
        LockWord::with(self.0 & HOLDER_MASK, awake, queue, self.bypasses())
    }

    fn asleep(self) -> LockWord {
        LockWord(self.0 & !AWAKE)
    }

    fn released(self) -> LockWord {
        if self.waiting() == 0 || !Rule::ReleasesKeepTheQueue.on() {
            return LockWord::FREE;
        }
        LockWord(self.0 & !HOLDER_MASK | AWAKE)
    }
}

/// What the last step brought.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// There was none yet.
    Begin,
    /// What the word is; after a compare-and-swap, what it was before.
    Word(LockWord),
    /// What the word is, and the thread has looked for as long as it may.
    Tired(LockWord),
    /// It is done.
    Done,
    /// The job is lost: nothing more can be done.
    Lost,
}

/// What is to be done next to take a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Store `new` in the word if it is `expected`; the reply says what it was.
    CompareAndSwap {
        /// What it must be.
        expected: LockWord,
        /// What it becomes.
        new: LockWord,
    },
    /// Look at the word again, after a moment.
    Look,
    /// Sleep while [`LockWord::seen`] is this, until somebody wakes the holder of this ticket or for no reason; then
    /// look at the word.
    Sleep {
        /// What the word shows.
        seen: u32,
        /// The thread's ticket.
        ticket: u16,
    },
    /// The lock is held, and its word was this.
    Held(LockWord),
    /// The lock is not free, and this thread does not want to wait.
    Busy,
    /// The thread holds the lock already.
    HeldAlready,
    /// The job is lost.
    Lost,
}

/// A compare-and-swap under way, and what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Pending {
    Take(LockWord, LockWord),
    Queue(LockWord, LockWord),
    Doze(LockWord, LockWord),
}

/// A thread that takes a lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acquire {
    me: Channel,
    waits: bool,
    ticket: Option<u16>,
    /// It has looked for as long as it may.
    tired: bool,
    pending: Option<Pending>,
    bypasses_max: u8,
}

impl Acquire {
    /// Thread `me` takes a lock; unless it `waits`, only if the lock is free.
    pub fn new(me: Channel, waits: bool) -> Acquire {
        debug_assert!(me.node.index() < NODES_MAX && me.slot.0 > 0, "the word can name the thread");
        let bypasses_max = LockTuning::DEFAULT.bypasses_max;
        Acquire { me, waits, ticket: None, tired: false, pending: None, bypasses_max }
    }

    /// The same by these numbers instead of their defaults.
    #[must_use]
    pub fn tuned(self, tuning: &LockTuning) -> Acquire {
        Acquire { bypasses_max: tuning.bypasses_max, ..self }
    }

    /// The thread's place in the queue, once it has one.
    pub fn ticket(&self) -> Option<u16> {
        self.ticket
    }

    /// The next step, after the `reply` to the last one.
    pub fn next(&mut self, reply: Reply) -> Step {
        match reply {
            // Most locks are free, and nobody waits for them.
            Reply::Begin => self.swap(Pending::Take(LockWord::FREE, LockWord::FREE.taken(self.me, None))),
            Reply::Word(word) => match self.pending.take() {
                Some(Pending::Take(before, now)) if before == word => Step::Held(now),
                Some(Pending::Queue(before, now)) if before == word => {
                    self.ticket = Some(before.tickets());
                    self.decide(now)
                }
                Some(Pending::Doze(before, now)) if before == word => self.sleep(now),
                _ => self.decide(word),
            },
            Reply::Tired(word) => {
                self.tired = true;
                self.decide(word)
            }
            Reply::Done | Reply::Lost => Step::Lost,
        }
    }

    fn swap(&mut self, pending: Pending) -> Step {
        self.pending = Some(pending);
        let (Pending::Take(expected, new) | Pending::Queue(expected, new) | Pending::Doze(expected, new)) = pending;
        Step::CompareAndSwap { expected, new }
    }

    fn sleep(&mut self, word: LockWord) -> Step {
        // Whoever has slept looks for a while before it sleeps again.
        self.tired = false;
        Step::Sleep { seen: word.seen(), ticket: self.ticket.unwrap_or_default() }
    }

    fn decide(&mut self, word: LockWord) -> Step {
        if word.holder() == Some(self.me) {
            return Step::HeldAlready;
        }
        if word.admits(self.ticket, self.bypasses_max) {
            return self.swap(Pending::Take(word, word.taken(self.me, self.ticket)));
        }
        match self.ticket {
            _ if !self.waits => Step::Busy,
            _ if !self.tired => Step::Look,
            None => self.swap(Pending::Queue(word, word.queued())),
            Some(ticket) if word.serving() == ticket && word.is_next_awake() && Rule::SleepersSaySo.on() => {
                self.swap(Pending::Doze(word, word.asleep()))
            }
            Some(_) => self.sleep(word),
        }
    }
}

/// What is to be done next to let a lock go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReleaseStep {
    /// As [`Step::CompareAndSwap`].
    CompareAndSwap {
        /// What the word must be.
        expected: LockWord,
        /// What it becomes.
        new: LockWord,
    },
    /// Wake the thread that sleeps with this ticket, if it does.
    Wake {
        /// The ticket.
        ticket: u16,
    },
    /// The lock is released.
    Released,
    /// The thread does not hold it.
    NotHeld,
}

/// A thread that lets a lock go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Release {
    me: Channel,
    expected: LockWord,
}

impl Release {
    /// Thread `me` lets the lock go whose word was `held` when it took it.
    pub fn new(me: Channel, held: LockWord) -> Release {
        Release { me, expected: held }
    }

    /// The next step, after the `reply` to the last one.
    pub fn next(&mut self, reply: Reply) -> ReleaseStep {
        match reply {
            Reply::Begin => {}
            Reply::Word(word) | Reply::Tired(word) if word == self.expected => {
                let sleeps = word.waiting() > 0 && !word.is_next_awake();
                return match sleeps {
                    true => ReleaseStep::Wake { ticket: word.serving() },
                    false => ReleaseStep::Released,
                };
            }
            Reply::Word(word) | Reply::Tired(word) => self.expected = word,
            Reply::Done | Reply::Lost => return ReleaseStep::Released,
        }
        if self.expected.holder() != Some(self.me) {
            return ReleaseStep::NotHeld;
        }
        ReleaseStep::CompareAndSwap { expected: self.expected, new: self.expected.released() }
    }
}

/// What is to be done next to find a lock's place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FindStep {
    /// Read the name at this place.
    Get(usize),
    /// Store this name at this place if there is none (0); the reply is what was there.
    Claim(usize, u64),
    /// The lock's word is at this place.
    Found(usize),
    /// All places have other names.
    Full,
}

/// Looks for the place of a lock in the table at its home, and gives it one if it has none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Find {
    name: u64,
    at: usize,
    places: usize,
    looked: usize,
    claims: bool,
}

impl Find {
    /// Begins to look for `lock` in a table of so many places, a power of two.
    pub fn new(lock: LockId, places: usize) -> Find {
        // No lock's name is 0, but for one: that has the last place to itself.
        let name = lock.0.wrapping_add(1);
        let last = places - 1;
        let block = (name / BLOCK).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = (block.wrapping_mul(BLOCK) + name % BLOCK) as usize % last;
        Find { name, at: if name == 0 { last } else { at }, places, looked: 0, claims: false }
    }

    /// The next step, after the name that the last one brought.
    pub fn next(&mut self, name: Option<u64>) -> FindStep {
        let claimed = self.claims && (name == Some(0) || !Rule::NamesStay.on());
        if self.name == 0 || name == Some(self.name) || claimed {
            return FindStep::Found(self.at);
        }
        let free = name == Some(0);
        if free {
            self.claims = true;
            return FindStep::Claim(self.at, self.name);
        }
        if name.is_some() {
            (self.at, self.claims, self.looked) = ((self.at + 1) % (self.places - 1), false, self.looked + 1);
        }
        if self.looked == self.places - 1 { FindStep::Full } else { FindStep::Get(self.at) }
    }
}

#[cfg(test)]
#[path = "one_sided_tests.rs"]
mod tests;
