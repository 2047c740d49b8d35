//! The schedule of a simulated node's locks: the production machine with numbers that a seed draws, and what must hold
//! whatever they are.

use comem_protocol::faults::Rng;
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::lock_schedule::{DeferralInputs, Deferred, LockSchedule, Request, TokenState, Way};
use comem_protocol::node::route::{self, NodeState, Origin, dispatch};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::IntervalMark;
use comem_protocol::sync::lock::Locks;
use comem_protocol::time::{Span, Time};
use comem_protocol::tuning::LockTuning;
use comem_protocol::wire::message::Message;

/// Service threads look at the clock so late at most.
pub(crate) const LOOKS_LATE: Span = Span::from_us(50);
/// A message may wait so much longer than the schedule says, since a thread may be in the way.
const SLACK: Span = Span::from_ms(1);

/// What a thread does that does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// It waits for data, which come whatever others do.
    Data,
    /// It waits for a lock.
    Lock,
    /// It waits for what else other threads do.
    Others,
}

/// Numbers by which nothing waits for a clock. What a release has to close may go bit by bit all the same, tokens are
/// published without a pause, and all that have left may be requested ahead, if the cluster does (`wants`).
pub(crate) fn quiet(wants: bool) -> LockTuning {
    LockTuning {
        defers: wants,
        retained_us: 0,
        soon_us: 0,
        turn_us: 0,
        measured_acquires: u32::MAX,
        expensive_us: 0,
        request_ahead_min: 1,
        pause_min_us: 0,
        pause_max_us: 0,
        long_close_pages: 1,
        long_close_tables: 1,
        closed_lately_us: 0,
        ..LockTuning::DEFAULT
    }
}

/// Numbers at random, nothing and very much among them.
pub(crate) fn drawn(rng: &mut Rng) -> LockTuning {
    let mut one = |from: &[u64]| from[rng.below(from.len() as u64) as usize];
    let pause_min_us = one(&[0, 100, 50_000]);
    LockTuning {
        defers: true,
        retained_us: one(&[0, 50, 250, 2_000, 1_000_000]),
        soon_us: one(&[0, 50, 5_000, 10_000_000]),
        soon_in_a_row: one(&[0, 1, 2]) as u8,
        lately_us: one(&[0, 2_000]),
        turn_us: one(&[0, 100, 32_000, 2_000_000]),
        lock_wait_us: one(&[0, 120, 10_000]),
        measured_acquires: one(&[0, 1, 3]) as u32,
        acquires_every_us: one(&[0, 300, 100_000_000]),
        returns_every_us: one(&[800, 100_000_000]),
        waited_percent: one(&[0, 60]),
        turns_for_us: one(&[100, 100_000, 100_000_000]),
        expensive_us: one(&[0, 4, 1_000]),
        request_ahead_min: one(&[1, 2]) as usize,
        request_ahead_max: one(&[1, 4096]) as usize,
        polling_calls: one(&[1, 4, 64]) as u32,
        polling_every_ns: one(&[0, 3_200, 1_000_000]),
        published_judged: one(&[1, 4, 16]) as u32,
        published_every_us: one(&[0, 150]),
        retracted_one_in: one(&[0, 4]) as u32,
        pause_min_us,
        pause_max_us: 4 * pause_min_us,
        long_close_pages: one(&[0, 1, 2]) as u32,
        long_close_tables: one(&[0, 1, 2]) as usize,
        closed_lately_us: one(&[0, 20, 1_000]),
        local_hands_max: one(&[1, 2, 16]) as u32,
        kept_releases_max: one(&[0, 127]) as u8,
        retention: one(&[0, 1, 1, 1]) == 1,
        turns: one(&[0, 1, 1, 1]) == 1,
        request_ahead: one(&[0, 1, 1, 1]) == 1,
        publishing: one(&[0, 1, 1, 1]) == 1,
        slices: one(&[0, 1, 1, 1]) == 1,
        ..LockTuning::DEFAULT
    }
}

/// A node that runs the schedule, driven as the runtime drives it.
pub(crate) trait Scheduled: NodeState + DeferralInputs + Sized {
    /// This node, and how many threads it has.
    fn who(&self) -> (NodeId, usize);
    /// The machine.
    fn schedule(&mut self) -> &mut LockSchedule;
    /// The node's locks, and the moment at which it is, as releases count them.
    fn locks_now(&self) -> (&Locks, IntervalMark);
    /// What comes next is done by this thread, or the service thread.
    fn acts(&mut self, now: Time, caller: Option<Slot>);
    /// A message was refused.
    fn refuses(&mut self, why: String);
    /// Whether a thread that releases a lock looks at the clock.
    fn looks_at_clock(&mut self) -> bool;
    /// What thread `t` waits for; `None` while it runs.
    fn waits_for(&self, t: usize) -> Option<Waits>;

    /// A step of the schedule, which asks the node.
    fn on_schedule<R>(&mut self, step: impl FnOnce(&mut LockSchedule, &mut Self) -> R) -> R {
        let mut schedule = std::mem::take(self.schedule());
        let result = step(&mut schedule, self);
        *self.schedule() = schedule;
        result
    }

    /// Whether a message waits to be carried out later.
    fn defers(&mut self, now: Time, message: &Message<'_>, origin: Origin, body: &[u8]) -> bool {
        let (locks, mark) = self.locks_now();
        let state = |lock| TokenState {
            is_here: locks.is_here(lock),
            needs_close: locks.is_idle_here(lock).is_some_and(|released| released.needs_close(mark)),
        };
        // All threads take part in a barrier.
        let way = Way { closes_in_slices: origin.caller.is_none(), beside_calls: false };
        let Some(request) = Request::of(message, way, state) else { return false };
        self.on_schedule(|schedule, node| {
            let reason = schedule.should_defer(&request, now, node);
            let message = || Deferred { origin, ty: message.ty(), body: body.to_vec() };
            reason.map(|reason| schedule.defer(&request, reason, now, message())).is_some()
        })
    }

    /// Carries out messages that were deferred.
    fn carry_out(&mut self, now: Time, caller: Option<Slot>, messages: Vec<Deferred>, out: &mut Outbox) {
        for Deferred { origin, ty, body } in messages {
            self.acts(now, caller);
            let message = Message::parse(ty, &body).expect("it was read before");
            if let Err(why) = dispatch(self, now, Origin { caller, ..origin }, message, out) {
                self.refuses(format!("{} says that {} {why}", self.who().0, origin.from));
            }
        }
    }

    /// Thread `t` releases a lock: now and then it looks what is due.
    fn end_deferrals(&mut self, now: Time, t: usize, lock: LockId, out: &mut Outbox) {
        if self.schedule().next_due().is_some() && self.looks_at_clock() {
            let ended = self.schedule().released(lock, now);
            self.carry_out(now, Some(Slot::thread(t)), ended, out);
        }
    }

    /// The service thread looks at the clock.
    fn end_due_deferrals(&mut self, now: Time, out: &mut Outbox) {
        let ended = self.schedule().take_due(now);
        self.carry_out(now, None, ended, out);
    }

    /// If all threads wait, the node lets go of what it has deferred for their sake.
    fn end_all_deferrals(&mut self, now: Time, t: usize, out: &mut Outbox) {
        if (0..self.who().1).all(|t| self.waits_for(t).is_some()) {
            let ended = self.schedule().threads_wait(now);
            self.carry_out(now, Some(Slot::thread(t)), ended, out);
        }
    }

    /// The token of a lock has come for which a thread had asked since then.
    fn token_has_come(&mut self, now: Time, t: usize, (lock, asked): (LockId, Time), out: &mut Outbox) {
        let threads = self.who().1 as u64;
        if self.schedule().token_arrived(lock, asked, now, threads) {
            self.request_ahead(Some(Slot::thread(t)), out);
        }
    }

    /// Requests the tokens that have left, if that pays.
    fn request_ahead(&mut self, caller: Option<Slot>, out: &mut Outbox) {
        if let Some(wanted) = self.schedule().tokens_to_request() {
            let me = self.who().0;
            route::prefetch_tokens(self, me, caller, &wanted, out);
        }
    }

    /// Whether all threads wait for others, and none for a lock.
    fn idles(&self) -> bool {
        (0..self.who().1).all(|t| self.waits_for(t) == Some(Waits::Others))
    }

    /// What is wrong with what this node defers.
    fn schedule_unrest(&mut self, now: Time) -> Option<String> {
        let (idle, me) = (self.idles(), self.who().0);
        unrest(self.schedule(), now, idle).map(|what| format!("{me} {what}"))
    }
}

/// What is wrong with what a node defers. A node is idle if all its threads wait for others, and none for a lock.
fn unrest(schedule: &LockSchedule, now: Time, idle: bool) -> Option<String> {
    let longest = schedule.tuning().longest_deferral() + LOOKS_LATE + SLACK;
    schedule.deferred().find_map(|(reason, since)| match reason.until() {
        Some(_) if idle => Some(format!("defers a request ({reason:?}) although its threads all wait")),
        Some(_) if now - since > longest => Some(format!("has deferred a request since {} ns ({reason:?})", since.0)),
        _ => None,
    })
}

/// What a node still defers when all programs have ended.
pub(crate) fn left_over(schedule: &LockSchedule) -> Option<String> {
    schedule
        .deferred()
        .next()
        .map(|(reason, since)| format!("a message waits since {} ns for ever ({reason:?})", since.0))
}
