//! When a node gives a lock's token away, and when it lets those that ask for it wait.
//!
//! A request for a token is mostly answered at once. Four reasons defer it, and [`LockSchedule::should_defer`] alone
//! decides on them:
//!
//! | reason | holds | ends |
//! |---|---|---|
//! | `Turn` | while the node has a [turn](batching), for all its tokens | with the turn, or when its threads wait |
//! | `Retained` | after a token came that [two nodes want](retention) | after a while, or when its threads wait |
//! | `Barrier` | for what was released beyond the barrier at which the node is | when that has opened |
//! | `Close` | while a [long interval closes](incremental_close) table by table | when all are closed |
//!
//! What is deferred stands in one queue. Whoever runs the machine carries it out when a call hands it back:
//!
//! | event | call |
//! |---|---|
//! | a message of another node | `should_defer`, then [`defer`](LockSchedule::defer) |
//! | a thread asks another node for a token | [`token_requested`](LockSchedule::token_requested) |
//! | that token has come | [`token_arrived`](LockSchedule::token_arrived); a turn may begin |
//! | a token has left | [`token_left`](LockSchedule::token_left) |
//! | a thread releases a lock | [`released`](LockSchedule::released), now and then |
//! | a timer | [`take_due`](LockSchedule::take_due), at [`next_due`](LockSchedule::next_due) |
//! | the node's threads all wait | [`threads_wait`](LockSchedule::threads_wait) |
//! | a barrier has opened | [`barrier_opened`](LockSchedule::barrier_opened) |
//! | the service thread has nothing else to do | [`next_slice`](LockSchedule::next_slice) |
//!
//! Whether a free token is [published](published_tokens) is decided here, too, and how often a lock changes hands
//! within its node while another node waits ([`handover`]). To the protocol of locks
//! ([`sync::lock`](crate::sync::lock)) a deferred message was that long on its way.

pub mod batching;
pub mod handover;
pub mod incremental_close;
pub mod published_tokens;
pub mod retention;
mod tuning;

use self::batching::Batching;
use self::incremental_close::{IncrementalClose, Next};
use self::published_tokens::PublishedTokens;
use self::retention::Retention;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::policy::Predictor;
use crate::ids::LockId;
use crate::node::route::Origin;
use crate::rules::Rule;
use crate::sync::lock_batch;
use crate::time::Time;
use crate::tuning::LockTuning;
use crate::wire::header::MsgType;
use crate::wire::message::Message;

/// Why a message waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeferReason {
    /// The node has a turn, until then at the latest.
    Turn(Time),
    /// The token has only just come; it stays until then at the latest.
    Retained(Time),
    /// It tells of a release beyond the barrier at which the node is.
    Barrier,
    /// The interval that it must tell of is being closed.
    Close,
}

impl DeferReason {
    /// When the message is carried out at the latest, if a clock decides on that.
    pub fn until(self) -> Option<Time> {
        match self {
            DeferReason::Turn(until) | DeferReason::Retained(until) => Some(until),
            DeferReason::Barrier | DeferReason::Close => None,
        }
    }
}

/// A message that waits to be carried out.
#[derive(Clone, Debug)]
pub struct Deferred {
    /// Where it came from.
    pub origin: Origin,
    /// Its type.
    pub ty: MsgType,
    /// Its body.
    pub body: Vec<u8>,
}

/// A deferred message's place in the queue.
#[derive(Clone, Debug)]
struct Entry {
    reason: DeferReason,
    /// The lock whose token it asks for, if it is one.
    lock: Option<LockId>,
    since: Time,
    message: Deferred,
}

/// What a node knows of a token that another node asks for.
#[derive(Clone, Copy, Debug)]
pub struct TokenState {
    /// It is here, and promised to no other node.
    pub is_here: bool,
    /// It rests here, and the interval of its last release is open.
    pub needs_close: bool,
}

/// What a message asks of the schedule.
#[derive(Clone, Copy, Debug)]
enum Subject<'a> {
    /// A lock's token.
    Token(LockId),
    /// Tokens of several locks.
    Wants,
    /// What a token has not brought.
    CatchUp,
    /// It brings tokens, none of which a thread need wait for.
    Tokens(&'a [u8]),
    /// It brings what a release has to tell.
    Release(&'a [u8]),
}

/// How a node carries out a message.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// By its service thread, which may close an interval bit by bit first.
    pub closes_in_slices: bool,
    /// While threads go on beside a collective call. Where all threads take part, none asks for what is told beyond a
    /// barrier: nothing but tokens that were requested ahead comes from there.
    pub beside_calls: bool,
}

/// A message that may be deferred.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    subject: Subject<'a>,
    token_is_here: bool,
    needs_close: bool,
}

impl<'a> Request<'a> {
    /// What a message asks; `None` if it is never deferred. `state` is asked about the locks that it names.
    pub fn of(message: &Message<'a>, way: Way, mut state: impl FnMut(LockId) -> TokenState) -> Option<Request<'a>> {
        let slices = way.closes_in_slices;
        let plain = |subject| Some(Request { subject, token_is_here: false, needs_close: false });
        match *message {
            Message::LockRequest { lock, .. } | Message::LockForward { lock, .. } => {
                let TokenState { is_here, needs_close } = state(lock);
                let needs_close = slices && needs_close;
                Some(Request { subject: Subject::Token(lock), token_is_here: is_here, needs_close })
            }
            Message::LockWants { entries, .. } => {
                let needs_close =
                    slices && lock_batch::entries(entries).flatten().any(|(lock, _)| state(lock).needs_close);
                Some(Request { subject: Subject::Wants, token_is_here: false, needs_close })
            }
            Message::CatchUp { .. } => {
                Some(Request { subject: Subject::CatchUp, token_is_here: false, needs_close: slices })
            }
            Message::LockTokens { entries } => plain(Subject::Tokens(entries)),
            Message::LockGrant { payload, .. }
            | Message::FlagSet { payload, .. }
            | Message::FlagUp { payload, .. }
            | Message::Tell { payload, .. }
            | Message::Answer { payload, .. }
            | Message::Meet { payload, .. }
                if way.beside_calls =>
            {
                plain(Subject::Release(payload))
            }
            _ => None,
        }
    }

    /// Whether it tells of a release beyond the barrier at which this node is.
    pub fn is_beyond_barrier(&self, intervals: &IntervalState) -> bool {
        match self.subject {
            Subject::Tokens(entries) => intervals.are_ahead(entries),
            Subject::Release(payload) => intervals.is_ahead(payload),
            _ => false,
        }
    }
}

/// What the schedule asks of its node, where the answer matters.
pub trait DeferralInputs {
    /// Whether all threads of the node wait for what others do, and none of them for a lock: none takes a lock soon.
    fn is_idle(&mut self) -> bool;
    /// Whether the message tells of a release beyond the barrier at which the node is.
    fn is_beyond_barrier(&mut self, request: &Request<'_>) -> bool;
    /// The page tables with something to close, by their first pages, if to close them takes
    /// [long](incremental_close::is_long).
    fn long_close(&mut self, tuning: &LockTuning) -> Option<Vec<PageNo>>;
}

/// What the service thread does next about a long close.
#[derive(Debug)]
pub enum Slice {
    /// Nothing: no close is under way.
    None,
    /// It closes an interval of the page table with this first page.
    Close(PageNo),
    /// It carries out what waited for the close.
    Over(Vec<Deferred>),
}

/// The schedule of a node's locks.
#[derive(Debug, Default)]
pub struct LockSchedule {
    tuning: LockTuning,
    retention: Retention,
    batching: Batching,
    published: PublishedTokens,
    close: IncrementalClose,
    queue: Vec<Entry>,
    /// When a message was deferred last that a clock lets go on.
    last_deferred: Option<Time>,
}

impl LockSchedule {
    /// A schedule by these numbers, of a node that has no tokens yet.
    pub fn new(tuning: LockTuning) -> LockSchedule {
        LockSchedule { tuning, ..LockSchedule::default() }
    }

    /// The numbers by which it decides.
    pub fn tuning(&self) -> &LockTuning {
        &self.tuning
    }

    /// Whether a message of another node waits, and for what. The caller defers it then, before anything else happens
    /// here.
    pub fn should_defer(
        &mut self,
        request: &Request<'_>,
        now: Time,
        node: &mut impl DeferralInputs,
    ) -> Option<DeferReason> {
        if let Some(reason) = self.keeps_token(request, now, node) {
            return Some(reason);
        }
        if matches!(request.subject, Subject::Tokens(_) | Subject::Release(_)) && node.is_beyond_barrier(request) {
            return Some(DeferReason::Barrier);
        }
        let closes =
            self.tuning.slices && request.needs_close && self.close.joins_or_begins(|| node.long_close(&self.tuning));
        closes.then_some(DeferReason::Close)
    }

    /// Whether a token stays here although another node asks for it.
    fn keeps_token(&mut self, request: &Request<'_>, now: Time, node: &mut impl DeferralInputs) -> Option<DeferReason> {
        if !self.tuning.defers {
            return None;
        }
        let bounded = |until| if Rule::DeferralsAreBounded.on() { until } else { Time(u64::MAX) };
        let turn = self.batching.predict(&self.tuning, now).map(|until| DeferReason::Turn(bounded(until)));
        match request.subject {
            Subject::Wants => turn,
            Subject::Token(lock) => {
                let retained = || {
                    let until = self.retention.predict(&self.tuning, (lock, now));
                    until.map(|until| DeferReason::Retained(bounded(until)))
                };
                let keeps = turn
                    .or_else(retained)
                    .filter(|_| request.token_is_here && !(Rule::IdleNodesDeferNothing.on() && node.is_idle()));
                if keeps.is_none() {
                    self.retention.observe(&self.tuning, retention::Event::Leaves(lock, now));
                }
                keeps
            }
            _ => None,
        }
    }

    /// Puts a message aside for a reason that [`LockSchedule::should_defer`] has just given.
    pub fn defer(&mut self, request: &Request<'_>, reason: DeferReason, now: Time, message: Deferred) {
        let lock = if let Subject::Token(lock) = request.subject { Some(lock) } else { None };
        if reason.until().is_some() {
            self.last_deferred = Some(now);
        }
        self.queue.push(Entry { reason, lock, since: now, message });
    }

    /// The first moment at which a clock ends the wait of a message.
    pub fn next_due(&self) -> Option<Time> {
        self.queue.iter().filter_map(|entry| entry.reason.until()).min()
    }

    /// When whoever looks after the clock has to look next, if nothing else lets it look before `until`.
    pub fn next_look(&self, until: Time, now: Time) -> Time {
        // Where one message was deferred, more will be: to look now and then costs less than to be woken each time.
        let lately = self.last_deferred.is_some_and(|last| (now - last).0 < self.tuning.lately().0);
        let until = if lately { until.min(now + self.tuning.retained()) } else { until };
        until.min(self.next_due().unwrap_or(until))
    }

    /// The messages whose time is over.
    pub fn take_due(&mut self, now: Time) -> Vec<Deferred> {
        self.take(Some(now), |reason| reason.until().is_some_and(|until| until <= now))
    }

    /// All threads of the node wait: its turn is over, and with it the wait of all messages that a clock would let go
    /// on. For a lock that they wait for they may be left [so long](LockTuning::lock_wait) before this.
    pub fn threads_wait(&mut self, now: Time) -> Vec<Deferred> {
        if !Rule::WaitingThreadsEndDeferrals.on() {
            return Vec::new();
        }
        self.batching.observe(&self.tuning, batching::Event::Waits(now));
        self.take(Some(now), |reason| reason.until().is_some())
    }

    /// A thread releases this lock: what is due; and all that waits for a clock if threads only
    /// [poll](batching::Polling).
    pub fn released(&mut self, lock: LockId, now: Time) -> Vec<Deferred> {
        if self.batching.polls(&self.tuning, lock, now) { self.threads_wait(now) } else { self.take_due(now) }
    }

    /// The barrier at which the node was has opened.
    pub fn barrier_opened(&mut self) -> Vec<Deferred> {
        self.take(None, |reason| reason == DeferReason::Barrier && Rule::OpenedBarriersEndDeferrals.on())
    }

    /// What is to be done about a long close.
    pub fn next_slice(&mut self) -> Slice {
        match self.close.advance() {
            Next::Nothing => Slice::None,
            Next::Close(table) => Slice::Close(table),
            Next::Over => {
                Slice::Over(self.take(None, |reason| reason == DeferReason::Close && Rule::ClosesEndDeferrals.on()))
            }
        }
    }

    /// Whether a long close is under way.
    pub fn is_closing(&self) -> bool {
        self.close.is_under_way()
    }

    /// Takes out what waits no longer. Tokens that were kept leave now, if that is given.
    fn take(&mut self, now: Option<Time>, ended: impl Fn(DeferReason) -> bool) -> Vec<Deferred> {
        if !Rule::DeferredMessagesRunOnce.on() {
            return self.queue.iter().filter(|entry| ended(entry.reason)).map(|entry| entry.message.clone()).collect();
        }
        let LockSchedule { queue, retention, tuning, .. } = self;
        let taken = queue.extract_if(.., |entry| ended(entry.reason)).map(|entry| {
            if let (Some(lock), Some(now)) = (entry.lock, now) {
                retention.observe(tuning, retention::Event::Leaves(lock, now));
            }
            entry.message
        });
        taken.collect()
    }

    /// What waits, since when.
    pub fn deferred(&self) -> impl Iterator<Item = (DeferReason, Time)> {
        self.queue.iter().map(|entry| (entry.reason, entry.since))
    }

    /// A thread of this node asks another for a token.
    pub fn token_requested(&mut self, lock: LockId, now: Time) {
        self.retention.observe(&self.tuning, retention::Event::Requested(lock, now));
    }

    /// A token has come that a thread, one of `threads`, had asked for since `asked`. Whether a turn begins.
    pub fn token_arrived(&mut self, lock: LockId, asked: Time, now: Time, threads: u64) -> bool {
        if !self.tuning.defers {
            return false;
        }
        let comes_back = self.retention.has_left_lately(lock);
        self.retention.observe(&self.tuning, retention::Event::Arrived(lock, now));
        self.batching.observe(&self.tuning, batching::Event::Arrived { asked, now, comes_back, threads });
        self.batching.has_begun()
    }

    /// The token of a lock has left.
    pub fn token_left(&mut self, lock: LockId) {
        if self.tuning.defers {
            self.batching.observe(&self.tuning, batching::Event::Left(lock));
        }
    }

    /// A turn begins: the locks whose tokens have left, if it costs less to request them all than each when a thread
    /// needs it.
    pub fn tokens_to_request(&mut self) -> Option<Vec<LockId>> {
        self.batching.tokens_to_request(&self.tuning)
    }

    /// Whether tokens may be published once they are released: no pause is on.
    pub fn publishes(&mut self, now: Time) -> bool {
        self.published.predict(&self.tuning, now)
    }

    /// Whether a free token is published now: not in a turn, in which its node wants it again.
    pub fn may_publish(&mut self, now: Time) -> bool {
        self.publishes(now) && !(self.tuning.defers && self.batching.predict(&self.tuning, now).is_some())
    }

    /// A token is published.
    pub fn token_published(&mut self, now: Time) {
        self.published.observe(&self.tuning, published_tokens::Event::Published(now));
    }

    /// This node has taken a token back that it had published.
    pub fn token_retracted(&mut self) {
        self.published.observe(&self.tuning, published_tokens::Event::Retracted);
    }
}

#[cfg(test)]
mod tests;
