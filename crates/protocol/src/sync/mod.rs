//! Synchronisation between threads of all nodes: locks, flags, barriers, reductions, semaphores, condition variables,
//! reader-writer locks, meetings (barriers of some threads), and loops whose items are dealt out.
//!
//! It knows no engine. A release may produce an opaque payload and an acquire consumes it; the engines that need
//! write notices fill it in ([`Payload`]), and for those that keep memory consistent at every
//! access it is empty.

pub mod arrival;
pub mod barrier;
pub mod condition;
pub mod deal;
pub mod flag;
mod lazy_acquire;
pub mod lock;
pub mod lock_batch;
pub mod mismatch;
pub mod objects;
pub mod one_sided;
pub mod reduce;
pub mod rwlock;
pub mod semaphore;
mod signal_suppression;
pub mod subset_barrier;

use crate::ids::{FlagId, LockId, NodeId, Slot};
use crate::outbox::Outbox;
use crate::rules::Rule;

/// What a release is of: acquires of the same thing hear of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// A lock.
    Lock(LockId),
    /// A flag.
    Flag(FlagId),
    /// Anything else that a manager keeps: semaphores, condition variables, reader-writer locks, by number.
    Other(u64),
    /// All that a node has written, whatever was released since.
    All,
}

/// A moment in the life of a node, counted by the intervals that have begun to end, from 1: where it is 0, it is before
/// everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IntervalMark(pub u64);

impl IntervalMark {
    /// Now, whenever that is.
    pub const NOW: IntervalMark = IntervalMark(u64::MAX);
    /// The moment at which a node begins.
    pub const FIRST: IntervalMark = IntervalMark(1);

    /// Whether a release at this moment can only be told after an interval has ended, if it is `now`: none has begun to
    /// end since.
    pub fn needs_close(self, now: IntervalMark) -> bool {
        self >= now && Rule::ToldReleasesAreInIntervals.on()
    }
}

/// What a release has to tell to the acquirer.
///
/// A lock's token goes from the releaser to a known acquirer, who said with its request what it has seen. Other
/// releases are *deposited* with a manager, for whoever comes.
pub trait Payload {
    /// Appends what this node has seen; goes with its request, so that the answer can leave that out.
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>);
    /// Behind that, in a request for a lock's token: appends what this node would like to have with it.
    fn prefetch_hint(&mut self, _lock: LockId, _out: &mut Vec<u8>) {}
    /// The moment at which a thread of this node releases something.
    fn mark(&mut self) -> IntervalMark;
    /// Appends what `to` must know when it acquires, and has not seen according to its `knowledge` (empty: nothing).
    /// The thread released at `released` (before everything: none has); if an interval has ended since, that has what
    /// it wrote.
    fn on_release(&mut self, scope: Scope, to: NodeId, knowledge: &[u8], released: IntervalMark, out: &mut Vec<u8>);
    /// Takes in what a release elsewhere said.
    fn on_acquire(&mut self, scope: Scope, bytes: &[u8]);
    /// At a manager: unites what a release said with what is `stored` there for the next acquires.
    fn deposit(&mut self, scope: Scope, bytes: &[u8], stored: &mut Vec<u8>);
    /// At a manager: appends what an acquirer with this `knowledge` must know of what is `stored`.
    fn withdraw(&mut self, scope: Scope, stored: &[u8], knowledge: &[u8], out: &mut Vec<u8>);
    /// Puts `node` behind whoever asked last for a lock, where its manager has published that and this node reaches it:
    /// gives who that was. `None`, and nothing done, where the manager must be asked.
    fn queue_up(&mut self, _lock: LockId, _manager: NodeId, _node: NodeId) -> Option<LockTail> {
        None
    }
    /// At the manager: from now on, who asked last for a lock stands where other nodes may reach it, if there is such a
    /// place.
    fn publish_tail(&mut self, _lock: LockId, _last: NodeId) {}
    /// Whether releases of all locks say the same: all that the acquirer has not seen.
    fn is_alike(&self) -> bool {
        false
    }
    /// The token of a lock has left this node.
    fn token_left(&mut self, _lock: LockId) {}
    /// Whether tokens that come may be published when their locks are released.
    fn publishes_tokens(&mut self) -> bool {
        false
    }
    /// Publishes the token of a lock that this node has released, with what whoever takes it must know. `false` where
    /// it stays as ever: who asked last is not published, or has not been this node, or there is too much to tell.
    fn publish_token(&mut self, _lock: LockId, _manager: NodeId) -> bool {
        false
    }
    /// Takes a token back that this node has published; `false` if another has taken it.
    fn retract_token(&mut self, _lock: LockId, _manager: NodeId) -> bool {
        true
    }
    /// This node has heard ([`Payload::queue_up`]) that a token is published at `from`: takes it, and takes in what it
    /// tells; `false`, and nothing done, if this node does not reach it, or that one has taken it back.
    fn take_published_token(&mut self, _lock: LockId, _from: NodeId) -> bool {
        false
    }
}

/// Who asked last for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockTail {
    /// The node.
    pub node: NodeId,
    /// Whether the token is published there, for whoever asks next.
    pub is_published: bool,
}

/// The payload of engines that need none.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoPayload;

impl Payload for NoPayload {
    fn knowledge(&mut self, _scope: Scope, _out: &mut Vec<u8>) {}
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(
        &mut self,
        _scope: Scope,
        _to: NodeId,
        _knowledge: &[u8],
        _released: IntervalMark,
        _out: &mut Vec<u8>,
    ) {
    }
    fn on_acquire(&mut self, _scope: Scope, _bytes: &[u8]) {}
    fn deposit(&mut self, _scope: Scope, _bytes: &[u8], _stored: &mut Vec<u8>) {}
    fn withdraw(&mut self, _scope: Scope, _stored: &[u8], _knowledge: &[u8], _out: &mut Vec<u8>) {}
}

/// What a step of synchronisation knows besides its own state.
pub struct Context<'a> {
    /// This node.
    pub me: NodeId,
    /// How many nodes the job has.
    pub nodes: usize,
    /// The application thread that takes the step; `None` for the service thread.
    pub caller: Option<Slot>,
    /// What releases tell acquires.
    pub payload: &'a mut dyn Payload,
    /// Where the effects go.
    pub out: &'a mut Outbox,
}

impl Context<'_> {
    fn wake(&mut self, slot: Slot) {
        if self.caller != Some(slot) {
            self.out.wake(slot);
        }
    }
}
