//! Locks that two nodes take in turn, again and again: their tokens stay a while.
//!
//! A token that leaves at the first request changes nodes at every release where threads of two nodes want the lock all the time, and
//! each change costs the ending of an interval, a trip and a few page fetches, some hundred times what the critical section takes. So
//! a request that comes soon after the token did waits up to [`STAY`], if this node itself has lately asked for the token
//! soon after it had gone; meanwhile the node's threads take the lock as if nobody wanted it. The protocol knows nothing of it: to it, the
//! message was that long on its way.
//!
//! So it is, for all locks of a node, while it has a turn ([`turns`](crate::turns)). And when its turn begins, it wants all tokens that have left it, in
//! one message, instead of asking for each when a thread needs it; where that costs more than they do together.

use crate::io::PutAside;
use crate::mutex::Mutex;
use crate::node::{House, Node};
use crate::turns::Turns;
use comem_protocol::ids::{LockId, Slot};
use comem_protocol::node::route::{self, Origin};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::bundle;
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::message::{Message, types};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long a token stays.
const STAY: Span = Span::from_us(250);
/// A node that asks so soon after the token has gone wants it all the time: sooner than it takes to hand it over.
const SOON: Span = Span::from_us(50);
/// So often in a row a node must have asked soon.
const OFTEN: u8 = 2;
/// So long after a message was put aside, the service thread looks at the clock now and then.
const LATELY: Span = Span::from_ms(2);
/// While something waits, threads that take and release locks look at the clock once in so many calls.
const CALLS: u32 = 16;
/// A thread that takes the same few locks again and again and does nothing else takes them so often in so short a time...
const POLLED_IN: Span = Span(CALLS as u64 * 200);
/// ... so many times in a row. What it waits for others do, once they have the locks.
const POLLS: u32 = 64;
/// So few they are.
const POLLED: usize = 4;
/// A node wants the tokens that have left when they are as many as this at least.
const MANY: usize = 8;
/// And so many at most.
const MOST: usize = 4096;
/// Locks that are followed at a time.
const FOLLOWED: usize = 16;
/// No time at all.
const NEVER: u64 = u64::MAX;

/// What is known of a lock's comings and goings.
#[derive(Clone, Copy, Debug)]
struct Followed {
    lock: LockId,
    came: Time,
    left: Time,
    /// How often in a row this node has asked soon after the token had gone.
    soon: u8,
}

#[derive(Debug, Default)]
struct Table {
    locks: [Option<Followed>; FOLLOWED],
    turns: Turns,
    waiting: Vec<(Time, PutAside)>,
    /// Locks whose tokens have left since they were last wanted.
    left: Vec<LockId>,
    /// Tokens, and other news, from beyond the barrier at which this node is.
    ahead: Vec<PutAside>,
}

impl Table {
    fn at(&mut self, lock: LockId) -> &mut Option<Followed> {
        &mut self.locks[(lock.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % FOLLOWED]
    }

    fn followed(&mut self, lock: LockId) -> Option<&mut Followed> {
        self.at(lock).as_mut().filter(|f| f.lock == lock)
    }

    /// Until when the token stays although somebody asks for it now.
    fn stays(&mut self, lock: LockId, now: Time) -> Option<Time> {
        self.turns.end(now).or_else(|| {
            let followed = self.followed(lock)?;
            let stays = followed.soon >= OFTEN && (now - followed.came).0 < SOON.0;
            stays.then(|| followed.came + STAY)
        })
    }

    /// A token is asked for, and leaves now or at the next release.
    fn leaves(&mut self, lock: LockId, now: Time) {
        let place = self.at(lock);
        let before = place.filter(|f| f.lock == lock);
        *place = Some(Followed { left: now, ..before.unwrap_or(Followed { lock, came: Time(0), left: now, soon: 0 }) });
    }
}

/// The locks of a node whose tokens may stay.
#[derive(Debug)]
pub(crate) struct Stays {
    table: Mutex<Table>,
    /// When the first message that waits is due, in nanoseconds; [`NEVER`]: none waits.
    due: AtomicU64,
    /// Until when the service thread sleeps at most.
    sleeps: AtomicU64,
    /// When a message was last put aside.
    last: AtomicU64,
    /// Calls of threads at which something waited.
    calls: AtomicU32,
    /// Of which locks the last ones were at which the clock was looked at, when the last one was, and how often in a row there was nothing but those in between.
    polled: [AtomicU64; POLLED],
    polled_at: AtomicU64,
    polls: AtomicU32,
}

impl Default for Stays {
    fn default() -> Stays {
        Stays {
            table: Mutex::default(),
            due: AtomicU64::new(NEVER),
            sleeps: AtomicU64::new(0),
            last: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            polled: [const { AtomicU64::new(0) }; POLLED],
            polled_at: AtomicU64::new(0),
            polls: AtomicU32::new(0),
        }
    }
}

impl Stays {
    /// A thread of this node asks for a token.
    pub(crate) fn asked(&self, lock: LockId, now: Time) {
        if let Some(followed) = self.table.lock().followed(lock) {
            followed.soon = if (now - followed.left).0 < SOON.0 { (followed.soon + 1).min(OFTEN) } else { 0 };
        }
    }

    /// A token has come that a thread, one of `threads`, had asked for. Whether the node's turn begins.
    pub(crate) fn came(&self, lock: LockId, asked: Time, now: Time, threads: usize) -> bool {
        let mut table = self.table.lock();
        let same = table.followed(lock).map(|followed| followed.came = now).is_some();
        table.turns.came(asked, now, same, threads as u64)
    }

    /// The token of a lock has left.
    pub(crate) fn left(&self, lock: LockId) {
        let mut table = self.table.lock();
        if table.left.len() < MOST {
            table.left.push(lock);
        }
    }

    fn put_aside(&self, until: Time, message: PutAside) {
        let mut table = self.table.lock();
        table.waiting.push((until, message));
        self.due.fetch_min(until.0, Ordering::SeqCst);
    }

    /// For who has put something aside until then: whether the service thread sleeps longer. If it is about to, it sees what is due.
    fn oversleeps(&self, until: Time) -> bool {
        self.sleeps.load(Ordering::SeqCst) > (until + STAY).0
    }

    /// The service thread is about to sleep until then: gives how long it may, where something waits.
    fn goes_to_sleep(&self, until: Time) -> Time {
        let due = || Time(self.due.load(Ordering::SeqCst));
        let until = until.min(due());
        self.sleeps.store(until.0, Ordering::SeqCst);
        // Who has put something aside since the first look may have found it asleep for shorter, and has not roused it.
        until.min(due())
    }

    /// A thread releases this lock, and it or another of a few it released some calls ago, if it does nothing else. Whether it polls. Two threads at a time may pass for
    /// one that does not.
    fn polls(&self, lock: LockId, now: Time) -> bool {
        let since = Time(self.polled_at.swap(now.0, Ordering::Relaxed));
        let before = self.polled.iter().any(|polled| polled.load(Ordering::Relaxed) == lock.0);
        if before && (now - since).0 < POLLED_IN.0 {
            return self.polls.fetch_add(1, Ordering::Relaxed) + 1 >= POLLS;
        }
        if !before {
            // The one of longest ago goes.
            self.polled.iter().fold(lock.0, |lock, polled| polled.swap(lock, Ordering::Relaxed));
        }
        self.polls.store(0, Ordering::Relaxed);
        false
    }

    /// What is due, or (`all`) all that waits.
    fn take(&self, now: Time, all: bool) -> Vec<PutAside> {
        let mut table = self.table.lock();
        let due = table.waiting.extract_if(.., |(until, _)| all || *until <= now).map(|(_, message)| message).collect();
        let next = table.waiting.iter().map(|(until, _)| until.0).min();
        self.due.store(next.unwrap_or(NEVER), Ordering::Release);
        due
    }
}

impl Node {
    /// A token has come that `slot`'s thread has asked for since `asked`.
    pub(crate) fn token_came(&self, slot: Slot, lock: LockId, asked: Time) {
        if self.config.lock_turns && self.stays.came(lock, asked, self.now(), self.threads()) {
            self.counters(slot).lock_turns.add(1);
            self.want_ahead(slot);
        }
    }

    /// Whether this node has a turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.config.lock_turns && self.stays.table.lock().turns.end(self.now()).is_some()
    }

    /// Whether a request for a lock waits a while, because the token has only just come.
    pub(crate) fn lets_stay(&self, slot: Slot, message: &Message<'_>, origin: Origin, body: &[u8]) -> bool {
        if !self.config.lock_turns {
            return false;
        }
        let now = self.now();
        let stays = match message {
            Message::LockRequest { lock, .. } | Message::LockForward { lock, .. } => {
                let here = self.lock_room(*lock).is_here(*lock);
                let mut table = self.stays.table.lock();
                let stays = table.stays(*lock, now).filter(|_| here && !self.is_at_rest());
                if stays.is_none() {
                    table.leaves(*lock, now);
                }
                stays
            }
            Message::LockWants { .. } => self.stays.table.lock().turns.end(now),
            Message::LockTokens { entries } => return self.keeps_ahead(slot, entries, origin, body),
            _ => None,
        };
        let Some(until) = stays else { return false };
        self.counters(slot).lock_kept.add(1);
        self.stays.put_aside(until, PutAside { origin, ty: message.ty(), body: body.to_vec() });
        self.stays.last.store(now.0, Ordering::Relaxed);
        // Nobody but the service thread may look at the clock in time.
        if self.stays.oversleeps(until) {
            self.rouse_service();
        }
        true
    }

    /// Whether these tokens wait until the barrier has opened at which this node is.
    fn keeps_ahead(&self, slot: Slot, entries: &[u8], origin: Origin, body: &[u8]) -> bool {
        self.counters(slot).lock_ahead.add(bundle::entries(entries).count() as u64);
        let Some(shared) = self.shared().filter(|s| s.views.is_some()) else { return false };
        // Whoever opens the barrier looks here afterwards.
        let mut table = self.stays.table.lock();
        let ahead = shared.ledger.lock().are_ahead(entries);
        if ahead {
            table.ahead.push(PutAside { origin, ty: types::LOCK_TOKENS, body: body.to_vec() });
        }
        ahead
    }

    /// Where threads of this node are at work while one is in a collective call: whether what a release beyond the barrier said waits until that
    /// has opened here. Of an epoch that has not begun here, it could not be taken in.
    pub(crate) fn keeps_for_opening(&self, message: &Message<'_>, origin: Origin, body: &[u8]) -> bool {
        if self.sections.is_none() {
            return false;
        }
        let (Message::LockGrant { payload, .. }
        | Message::FlagSet { payload, .. }
        | Message::FlagUp { payload, .. }
        | Message::Tell { payload, .. }
        | Message::Answer { payload, .. }
        | Message::Meet { payload, .. }) = message
        else {
            return false;
        };
        let Some(shared) = self.shared().filter(|s| s.views.is_some()) else { return false };
        // Whoever opens the barrier looks here afterwards.
        let mut table = self.stays.table.lock();
        let ahead = shared.ledger.lock().is_ahead(payload);
        if ahead {
            table.ahead.push(PutAside { origin, ty: message.ty(), body: body.to_vec() });
        }
        ahead
    }

    /// A barrier has opened: takes in what came from beyond it.
    pub(crate) fn take_kept(&self, slot: Slot) {
        let kept = std::mem::take(&mut self.stays.table.lock().ahead);
        kept.into_iter().for_each(|message| self.carry_out_late(slot, message));
    }

    /// This node's turn begins: it wants the tokens that have left, if that costs less than to ask for each when a thread needs it.
    fn want_ahead(&self, slot: Slot) {
        let wanted = {
            let mut table = self.stays.table.lock();
            if table.left.len() < MANY || !table.turns.tokens_are_dear() {
                return;
            }
            std::mem::take(&mut table.left)
        };
        let mut house = House { node: self, answers: slot, roused: None, user: None };
        let mut out = Outbox::new();
        route::want(&mut house, self.me(), Self::caller(slot), &wanted, &mut out);
        self.flush(slot, &mut out);
    }

    /// Carries out the requests that have waited long enough. A thread calls this when it releases `lock`.
    #[inline]
    pub(crate) fn end_stays(&self, slot: Slot, lock: Option<LockId>) {
        if self.stays.due.load(Ordering::Relaxed) == NEVER {
            return;
        }
        // A look at the clock costs half as much as a lock. Two threads may count as one: it does not matter.
        let calls = self.stays.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.stays.calls.store(calls, Ordering::Relaxed);
        if slot == Slot::SERVICE || calls.is_multiple_of(CALLS) {
            let now = self.now();
            let polls = lock.is_some_and(|lock| self.stays.polls(lock, now));
            if polls {
                self.stays.table.lock().turns.give_up(now);
            }
            self.end_due_stays(slot, polls, now);
        }
    }

    /// As [`Node::end_stays`], when the node's threads all wait: all of them, and the node's turn with them.
    pub(crate) fn end_all_stays(&self, slot: Slot) {
        let now = self.now();
        self.stays.table.lock().turns.give_up(now);
        if self.stays.due.load(Ordering::Relaxed) != NEVER {
            self.end_due_stays(slot, true, now);
        }
    }

    fn end_due_stays(&self, slot: Slot, all: bool, now: Time) {
        if !all && self.stays.due.load(Ordering::Acquire) > now.0 {
            return;
        }
        for message in self.stays.take(now, all) {
            if let Ok(Message::LockRequest { lock, .. } | Message::LockForward { lock, .. }) =
                Message::parse(message.ty, &message.body)
            {
                self.stays.table.lock().leaves(lock, now);
            }
            self.carry_out_late(slot, message);
        }
    }

    /// For the service thread before it sleeps: when it must look at the clock next.
    pub(crate) fn next_stay(&self, until: Time) -> Time {
        let now = self.now();
        let lately = (now - Time(self.stays.last.load(Ordering::Relaxed))).0 < LATELY.0;
        // Where one message was put aside, more will be: to look now and then costs less than to be woken each time.
        let until = if lately { until.min(now + STAY) } else { until };
        self.stays.goes_to_sleep(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::wire::header::MsgType;

    const LOCK: LockId = LockId(7);

    fn at(us: u64) -> Time {
        Time(1_000_000 + us * 1_000)
    }

    /// A node that asks `after` the token has left, and gets it 20 us later, each time.
    fn after_turns(turns: u64, after: u64) -> (Stays, u64) {
        let stays = Stays::default();
        let mut now = 0;
        for _ in 0..turns {
            stays.table.lock().leaves(LOCK, at(now));
            now += after;
            stays.asked(LOCK, at(now));
            now += 20;
            stays.came(LOCK, at(now - 20), at(now), 1);
        }
        (stays, now)
    }

    #[test]
    fn a_token_stays_where_both_nodes_want_it_all_the_time() {
        let (stays, came) = after_turns(2, 5);
        assert_eq!(stays.table.lock().stays(LOCK, at(came + 10)), Some(at(came) + STAY));
    }

    #[test]
    fn a_token_leaves_at_once_where_either_node_wants_it_now_and_then() {
        let (stays, came) = after_turns(1, 5);
        assert_eq!(stays.table.lock().stays(LOCK, at(came + 10)), None, "it was asked for again but once");
        let (stays, came) = after_turns(5, 60);
        assert_eq!(stays.table.lock().stays(LOCK, at(came + 10)), None, "this node can do without it");
        let (stays, came) = after_turns(5, 5);
        assert_eq!(stays.table.lock().stays(LOCK, at(came + 60)), None, "the other can");
        assert_eq!(stays.table.lock().stays(LockId(8), at(came + 10)), None, "another lock");
    }

    #[test]
    fn turns_are_taken_at_wider_intervals_where_a_lock_comes_back_that_has_left() {
        for left in [true, false] {
            let (stays, mut came) = (Stays::default(), 0);
            for _ in 0..40 {
                if left {
                    stays.table.lock().leaves(LOCK, at(came));
                }
                stays.came(LOCK, at(came + 200), at(came + 550), 1);
                came += 550;
            }
            assert_eq!(stays.table.lock().turns.end(at(came)).is_some(), left);
        }
    }

    #[test]
    fn a_thread_polls_that_does_nothing_but_take_a_few_locks_again_and_again() {
        let polls = |locks: u64, every: u64| {
            let stays = Stays::default();
            let ns = |call: u64| Time(1_000_000_000 + call * u64::from(CALLS) * every);
            (1..10_000).find(|call| stays.polls(LockId(1 + call % locks), ns(*call)))
        };
        assert_eq!(polls(1, 50), Some(u64::from(POLLS) + 1));
        assert!(polls(3, 50).is_some());
        assert_eq!((polls(1, 1_000), polls(3, 1_000)), (None, None), "it works in between");
        assert_eq!(polls(7, 50), None, "it takes others, too");
    }

    #[test]
    fn what_waits_is_due_in_its_turn_and_all_of_it_when_the_node_waits() {
        let stays = Stays::default();
        let from = comem_protocol::ids::Channel::service(comem_protocol::ids::NodeId(1));
        let message =
            |ty| PutAside { origin: Origin { from, ticket: None, caller: None }, ty: MsgType(ty), body: Vec::new() };
        let types = |taken: Vec<PutAside>| taken.into_iter().map(|m| m.ty.0).collect::<Vec<_>>();
        stays.put_aside(at(30), message(3));
        stays.put_aside(at(20), message(2));
        assert_eq!(stays.due.load(Ordering::Relaxed), at(20).0);
        assert!(types(stays.take(at(10), false)).is_empty());
        assert_eq!(types(stays.take(at(25), false)), [2]);
        assert_eq!(stays.due.load(Ordering::Relaxed), at(30).0);
        assert_eq!(types(stays.take(at(25), true)), [3]);
        assert_eq!(stays.due.load(Ordering::Relaxed), NEVER);
    }
}
