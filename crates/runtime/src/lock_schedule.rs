//! The schedule of a node's locks at work: the mutex around it, clocks, messages, and who looks after them.
//!
//! Which messages wait, and how long, [`LockSchedule`] decides. What it hands back is carried out by the service thread
//! at its time, by a thread that releases a lock and looks at the clock now and then, or by one that falls asleep.
//!
//! Order of locks: a room of locks, then the schedule, then the intervals or the list of active page tables.

use crate::io::caller;
use crate::mutex::Mutex;
use crate::node::{LocalNode, Node, Waiting};
use crate::path_counts;
use crate::shared::Shared;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_tables};
use comem_protocol::ids::{LockId, Slot};
use comem_protocol::lock_schedule::{
    DeferralInputs, Deferred, LockSchedule, Request, Slice, TokenState, Way, incremental_close,
};
use comem_protocol::node::route::{self, Origin};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::lock_batch;
use comem_protocol::time::Time;
use comem_protocol::tuning::LockTuning;
use comem_protocol::wire::message::Message;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No time at all.
const NEVER: u64 = u64::MAX;

/// A node's schedule, shared by its threads.
///
/// Its mutex is taken behind the shard of a lock, and before the intervals or the list of active page tables. What it
/// hands back is carried out without it.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) tuning: LockTuning,
    machine: Mutex<LockSchedule>,
    /// When the first message that waits for a clock is due, in nanoseconds; [`NEVER`]: none waits.
    due: AtomicU64,
    /// Until when the service thread sleeps at most.
    sleeps: AtomicU64,
    /// Calls of threads at which something waited: a look at the clock costs half as much as a lock. Two threads may
    /// count as one: it does not matter.
    calls: AtomicU32,
}

impl Schedule {
    pub(crate) fn new(tuning: LockTuning) -> Schedule {
        Schedule {
            tuning,
            machine: Mutex::new(LockSchedule::new(tuning)),
            due: AtomicU64::new(NEVER),
            sleeps: AtomicU64::new(0),
            calls: AtomicU32::new(0),
        }
    }

    /// A step of the machine.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut LockSchedule) -> R) -> R {
        step(&mut self.machine.lock())
    }

    /// When a thread that falls asleep now no longer keeps from others what they have asked its node for.
    pub(crate) fn lets_go_at(&self, why: Waiting, now: Time) -> Option<Time> {
        let for_lock = matches!(why, Waiting::Lock(_));
        why.is_for_others().then_some(if for_lock { now + self.tuning.lock_wait() } else { now })
    }

    /// Whether nothing waits for a clock, as far as is known here.
    #[inline]
    fn is_idle(&self) -> bool {
        self.due.load(Ordering::Relaxed) == NEVER
    }

    /// Whether a call of `slot`'s thread, at which something waits, is one that looks at the clock.
    fn looks_at_clock(&self, slot: Slot) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        slot == Slot::SERVICE || calls.is_multiple_of(self.tuning.calls_between_looks)
    }

    /// What has waited long enough; of a thread that releases `lock`, also what waited for that.
    fn take_ended(&self, lock: Option<LockId>, now: Time) -> Vec<Deferred> {
        match lock {
            Some(lock) => self.take(|machine| machine.released(lock, now)),
            None if self.due.load(Ordering::Acquire) > now.0 => Vec::new(),
            None => self.take(|machine| machine.take_due(now)),
        }
    }

    /// The node's threads all wait: all that waited for them, and the node's turn with them.
    pub(crate) fn threads_wait(&self, now: Time) -> Vec<Deferred> {
        self.take(|machine| machine.threads_wait(now))
    }

    /// A barrier has opened: what came from beyond it.
    pub(crate) fn barrier_opened(&self) -> Vec<Deferred> {
        self.take(LockSchedule::barrier_opened)
    }

    /// Whether a close of the open interval would take long.
    pub(crate) fn close_is_long(&self, shared: &Shared, now: Time) -> bool {
        let closed = Time(shared.last_close.load(Ordering::Relaxed));
        incremental_close::is_long(&self.tuning, closed, now, || {
            let mut active = shared.active.lock().clone();
            active.sort_unstable();
            let seen = shared.writes_seen(&shared.table.chunks_at(&active), |_, _| ());
            (seen.map(|seen| seen.iter().map(|run| run.end - run.start).sum()), active.len())
        })
    }

    /// A step that takes out what waits no longer.
    fn take(&self, step: impl FnOnce(&mut LockSchedule) -> Vec<Deferred>) -> Vec<Deferred> {
        self.step(|machine| {
            let taken = step(machine);
            self.due.store(machine.next_due().map_or(NEVER, |due| due.0), Ordering::Release);
            taken
        })
    }

    /// For who has deferred something until then: whether the service thread sleeps longer. If it is about to, it sees
    /// what is due.
    fn oversleeps(&self, until: Time) -> bool {
        self.sleeps.load(Ordering::SeqCst) > (until + self.tuning.retained()).0
    }

    /// The service thread is about to sleep until then: gives how long it may, where something waits.
    fn goes_to_sleep(&self, until: Time) -> Time {
        let due = || Time(self.due.load(Ordering::SeqCst));
        let until = until.min(due());
        self.sleeps.store(until.0, Ordering::SeqCst);
        // Who has deferred something since the first look may have found it asleep for shorter, and has not roused it.
        until.min(due())
    }
}

/// What the schedule asks of this node.
struct State<'a> {
    node: &'a Node,
    shared: Option<&'a Shared>,
}

impl DeferralInputs for State<'_> {
    fn is_idle(&mut self) -> bool {
        self.node.slots.are_at_rest()
    }

    fn is_beyond_barrier(&mut self, request: &Request<'_>) -> bool {
        self.shared.is_some_and(|shared| request.is_beyond_barrier(&shared.intervals.lock()))
    }

    fn long_close(&mut self, _: &LockTuning) -> Option<Vec<PageNo>> {
        self.shared
            .filter(|shared| self.node.schedule.close_is_long(shared, self.node.now()))
            .map(|shared| shared.active.lock().clone())
    }
}

impl Node {
    /// Whether a message waits to be carried out later. Counts requests for pages between slices of a long close.
    pub(crate) fn defers(&self, slot: Slot, message: &Message<'_>, origin: Origin, body: &[u8]) -> bool {
        let shared = self.shared().filter(|shared| shared.views.is_some());
        let slices = slot == Slot::SERVICE && shared.is_some();
        if let (Message::Fetch { .. }, true) = (message, slices) {
            if self.schedule.step(|machine| machine.is_closing()) {
                self.counters(slot).between_slices.add(1);
            }
            return false;
        }
        let state = |lock| {
            let room = self.sync.lock_shard(lock);
            let rests_unclosed =
                |shared: &Shared| room.is_idle_here(lock).is_some_and(|released| released.needs_close(shared.mark()));
            TokenState { is_here: room.is_here(lock), needs_close: shared.is_some_and(rests_unclosed) }
        };
        let way = Way { closes_in_slices: slices, beside_calls: self.gate.is_some() };
        let Some(request) = Request::of(message, way, state) else { return false };
        if let Message::LockTokens { entries } = message {
            self.counters(slot).lock_ahead.add(lock_batch::entries(entries).count() as u64);
        }
        let now = self.now();
        path_counts::count(path_counts::Step::ShouldDefer);
        let mut machine = self.schedule.machine.lock();
        let Some(reason) = machine.should_defer(&request, now, &mut State { node: self, shared }) else { return false };
        machine.defer(&request, reason, now, Deferred { origin, ty: message.ty(), body: body.to_vec() });
        if let Some(until) = reason.until() {
            self.schedule.due.fetch_min(until.0, Ordering::SeqCst);
        }
        drop(machine);
        if let Some(until) = reason.until() {
            self.counters(slot).lock_kept.add(1);
            // Nobody but the service thread may look at the clock in time.
            if self.schedule.oversleeps(until) {
                self.wake_service();
            }
        }
        true
    }

    /// A token has come that `slot`'s thread has asked for since `asked`. If a turn begins, the node requests those
    /// that have left.
    pub(crate) fn token_arrived(&self, slot: Slot, lock: LockId, asked: Time) {
        let (now, threads) = (self.now(), self.threads() as u64);
        let wanted = self.schedule.step(|machine| {
            machine.token_arrived(lock, asked, now, threads).then(|| machine.tokens_to_request().unwrap_or_default())
        });
        let Some(wanted) = wanted else { return };
        self.counters(slot).lock_turns.add(1);
        if !wanted.is_empty() {
            self.request_tokens(slot, &wanted);
        }
    }

    /// Asks for tokens that no thread waits for; they rest here when they have come.
    pub(crate) fn request_tokens(&self, slot: Slot, locks: &[LockId]) {
        let mut local = LocalNode { node: self, answers: slot, roused: None, user: None };
        let mut out = Outbox::new();
        route::prefetch_tokens(&mut local, self.me(), caller(slot), locks, &mut out);
        self.flush(slot, &mut out);
    }

    /// Carries out what has waited long enough. A thread calls this when it releases `lock`.
    #[inline]
    pub(crate) fn end_deferrals(&self, slot: Slot, lock: Option<LockId>) {
        if !self.schedule.is_idle() && self.schedule.looks_at_clock(slot) {
            self.carry_out_deferred(slot, self.schedule.take_ended(lock, self.now()));
        }
    }

    pub(crate) fn carry_out_deferred(&self, slot: Slot, messages: Vec<Deferred>) {
        messages.into_iter().for_each(|message| self.carry_out_late(slot, message));
    }

    /// For the service thread before it sleeps until then: closes the next slice of a long close, or carries out what
    /// waited for its end. When it must look at the clock next; `None`: at once.
    pub(crate) fn follow_schedule(&self, until: Time) -> Option<Time> {
        let now = self.now();
        let (until, slice) = self.schedule.step(|machine| (machine.next_look(until, now), machine.next_slice()));
        let until = self.schedule.goes_to_sleep(until);
        match slice {
            Slice::None => Some(until),
            Slice::Close(table) => {
                self.close_part(table);
                None
            }
            Slice::Over(waited) => {
                self.carry_out_deferred(Slot::SERVICE, waited);
                Some(until)
            }
        }
    }

    fn close_part(&self, table: PageNo) {
        let Some(shared) = self.shared() else { return };
        let mut side = Outbox::new();
        let mut intervals = shared.intervals.lock();
        if intervals.may_close() {
            let mut pages = self.node_pages(shared, Slot::SERVICE, &mut side);
            close_tables(&mut pages, &mut intervals, (&[table], false), CloseReason::Else);
            self.counters(Slot::SERVICE).slices.add(1);
        }
        drop(intervals);
        self.flush(Slot::SERVICE, &mut side);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::ids::{Channel, NodeId};
    use comem_protocol::lock_schedule::DeferReason;

    #[test]
    fn what_is_deferred_while_the_service_thread_falls_asleep_is_seen_by_it_or_rouses_it() {
        let (schedule, at) = (Schedule::new(LockTuning::DEFAULT), |us: u64| Time(us * 1_000));
        assert_eq!(schedule.goes_to_sleep(at(50_000)), at(50_000));
        assert!(schedule.oversleeps(at(1_000)), "it has to be roused");
        schedule.due.fetch_min(at(1_000).0, Ordering::SeqCst);
        assert_eq!(schedule.goes_to_sleep(at(50_000)), at(1_000));
        assert!(!schedule.oversleeps(at(1_000)), "it wakes by itself");
    }

    #[test]
    fn the_first_due_time_follows_what_waits() {
        let (schedule, at) = (Schedule::new(LockTuning::DEFAULT), |us: u64| Time(us * 1_000));
        let from = Channel::service(NodeId(1));
        let request = Message::LockRequest { lock: LockId(1), knowledge: &[] };
        let way = Way { closes_in_slices: false, beside_calls: false };
        let asks = Request::of(&request, way, |_| TokenState { is_here: true, needs_close: false }).unwrap();
        for until in [30, 20] {
            let origin = Origin { from, ticket: None, caller: None };
            let message = Deferred { origin, ty: request.ty(), body: Vec::new() };
            schedule.step(|machine| machine.defer(&asks, DeferReason::Turn(at(until)), at(0), message));
        }
        let take = |now| schedule.take(|machine| machine.take_due(at(now))).len();
        assert_eq!((take(10), schedule.due.load(Ordering::Relaxed)), (0, at(20).0));
        assert_eq!((take(25), schedule.due.load(Ordering::Relaxed)), (1, at(30).0));
        assert_eq!((take(30), schedule.due.load(Ordering::Relaxed)), (1, NEVER));
    }
}
