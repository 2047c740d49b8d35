//! Locks: a token that stays where it was last used.
//!
//! Each lock has a *manager* node, which remembers only who asked last; it hands every request to the
//! previous asker, so that the askers form a queue without anybody holding it whole. The token stays at
//! the node that last held the lock until somebody asks, and taking a lock again there costs no
//! message. The holder's release sends the token straight to the waiting thread's channel.
//!
//! | at a node | acquire | release | request handed on by the manager |
//! |---|---|---|---|
//! | token, free | take it | | send the token |
//! | token, held | queue here | next here, or send the token | remember as successor |
//! | no token | ask the manager, once a node; others queue here | | remember as successor |
//!
//! Where nodes reach each other's memory, the manager publishes who asked last
//! ([`Payload::publish_tail`](super::Payload)): who asks next puts itself there and asks that node by itself, without
//! the manager's help. Who cannot reach it asks the manager as ever, which uses the same note.
//!
//! There a released token may also be *published* ([`Payload::publish_token`](super::Payload)), with all that its next
//! holder must know. A requester takes it with one atomic, and its last holder hears of that only when it wants the
//! lock again. Where nodes share cores this saves a wake-up. A node that wants the lock again before others do
//! publishes its token ever more rarely.
//!
//! A node may also *want* tokens that no thread of it waits for yet ([`Locks::prefetch_token`]): those that it will
//! need again, many in one message. It stands in the queue like any other asker; the tokens come to the node, not to a
//! thread, and rest there.
//!
//! How often threads of one node may pass the lock among themselves while another node waits, and how often a token is
//! published, decides [`handover`](crate::lock_schedule::handover).

use super::lazy_acquire::Behind;
use super::lock_batch::LockBatch;
use super::{Context, IntervalMark, LockTail, Scope};
use crate::hash_map::NumberMap;
use crate::ids::{LockId, NodeId, Slot, manager_of};
use crate::lock_schedule::handover::Handover;
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::tuning::LockTuning;
use crate::wire::message::{Message, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// How an acquire begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// The lock is held now.
    Held,
    /// The lock is held now, and its token has come from another node, which had published it.
    Taken,
    /// Wait until woken or until an answer to this thread's own request was stepped; then ask
    /// [`Locks::holds`].
    Wait,
}

/// Who is to have a token next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// The thread that sent this request.
    Thread(Ticket),
    /// A node, none of whose threads need wait for it.
    Node(NodeId),
}

impl Asker {
    fn node(self) -> NodeId {
        match self {
            Asker::Thread(ticket) => ticket.channel.node,
            Asker::Node(node) => node,
        }
    }
}

/// What becomes of a token that another node wants ([`Locks::prefetch_token`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// It goes there.
    Goes,
    /// That node asked last: it has to be told.
    HandOn(NodeId),
    /// It goes there later.
    Later,
}

/// A thread released a lock that it does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("released a lock that it does not hold")]
pub struct NotHeld;

/// Threads in the order in which they came: mostly none, and then no longer than a pointer.
#[derive(Clone, Debug, Default)]
struct Waiting(Option<Box<Threads>>);

#[derive(Clone, Debug, Default)]
struct Threads {
    queue: VecDeque<Slot>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn push_back(&mut self, slot: Slot) {
        self.0.get_or_insert_default().queue.push_back(slot);
    }

    fn pop_front(&mut self) -> Option<Slot> {
        let first = self.0.as_mut()?.queue.pop_front();
        self.0.take_if(|threads| threads.queue.is_empty());
        first
    }
}

#[derive(Clone, Debug, Default)]
struct Lock {
    token: bool,
    holder: Option<Slot>,
    /// Threads of this node that wait; the first was the one in whose name the token was asked for.
    waiting: Waiting,
    /// A request for the token is on its way.
    asked: bool,
    /// The next node in the queue, once the manager has told us, and what it has seen.
    successor: Option<Box<(Asker, Vec<u8>)>>,
    /// Decides what a release does with the token.
    handover: Handover,
    /// The token is published: `token` holds only until that is asked.
    published: bool,
    /// When it was last released here.
    released: IntervalMark,
    /// At the manager: the node that asked last.
    tail: Option<NodeId>,
}

impl Lock {
    /// Whether forgetting the lock changes nothing, because this node neither manages it nor has to do with it.
    fn is_as_unnamed(&self) -> bool {
        let idle = !self.token && self.holder.is_none() && self.waiting.is_empty() && !self.asked;
        idle && self.successor.is_none() && self.tail.is_none()
    }
}

/// The locks of a node, or one shard of them.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    locks: NumberMap<LockId, Lock>,
    /// Those whose holders ask other nodes for what the token did not bring.
    pub(super) behind: BTreeMap<LockId, Behind>,
    tuning: LockTuning,
}

impl Locks {
    /// No locks yet; they come into being when first named.
    pub fn new() -> Locks {
        Locks::default()
    }

    /// The same locks with these numbers instead of their defaults.
    #[must_use]
    pub fn tuned(mut self, tuning: LockTuning) -> Locks {
        self.tuning = tuning;
        self
    }

    fn lock(&mut self, cx: &Context<'_>, id: LockId) -> &mut Lock {
        let manager = manager_of(id.0, cx.nodes);
        self.locks.entry(id).or_insert_with(|| Lock {
            token: manager == cx.me,
            tail: (manager == cx.me).then_some(cx.me),
            ..Lock::default()
        })
    }

    /// Whether `slot` holds the lock.
    pub fn holds(&self, id: LockId, slot: Slot) -> bool {
        self.locks.get(&id).is_some_and(|l| l.holder == Some(slot))
    }

    /// The thread of this node that holds the lock.
    pub fn holder(&self, id: LockId) -> Option<Slot> {
        self.locks.get(&id)?.holder
    }

    /// The locks that threads of this node hold.
    pub fn held(&self) -> impl Iterator<Item = (LockId, Slot)> {
        self.locks.iter().filter_map(|(id, lock)| Some((*id, lock.holder?)))
    }

    /// Begins to acquire the lock for thread `slot`. The lock is not reentrant.
    pub fn acquire(&mut self, cx: &mut Context<'_>, id: LockId, slot: Slot) -> Acquire {
        self.retract_token(cx, id);
        let lock = self.lock(cx, id);
        if lock.token && lock.holder.is_none() && lock.waiting.is_empty() {
            lock.holder = Some(slot);
            return Acquire::Held;
        }
        lock.waiting.push_back(slot);
        if !lock.token && !lock.asked && self.ask(cx, id) {
            return Acquire::Taken;
        }
        Acquire::Wait
    }

    /// If the token is published, it is here again, or another node has it.
    fn retract_token(&mut self, cx: &mut Context<'_>, id: LockId) {
        let tuning = self.tuning;
        let Some(lock) = self.locks.get_mut(&id).filter(|l| l.published) else { return };
        lock.published = false;
        lock.token =
            cx.payload.retract_token(id, manager_of(id.0, cx.nodes)) || !Rule::PublishedTokensAreTakenOnce.on();
        if lock.token {
            lock.handover.retracted(&tuning);
        } else {
            cx.payload.token_left(id);
        }
    }

    /// Whether the lock's token is here, and nobody is to have it next.
    pub fn is_here(&self, id: LockId) -> bool {
        self.locks.get(&id).is_some_and(|l| l.token && !l.published && l.successor.is_none())
    }

    /// When the lock was last released, if its token rests here, free and with nobody waiting: whoever asks for it gets
    /// it at once.
    pub fn is_idle_here(&self, id: LockId) -> Option<IntervalMark> {
        let rests = |l: &&Lock| l.token && !l.published && l.holder.is_none() && l.waiting.is_empty();
        self.locks.get(&id).filter(rests).map(|l| l.released)
    }

    /// Takes a lock whose token rests here, free and with nobody waiting: nobody need be told, so nothing else happens.
    pub fn reacquire_local(&mut self, id: LockId, slot: Slot) -> bool {
        let free = |l: &&mut Lock| l.token && !l.published && l.holder.is_none() && l.waiting.is_empty();
        let lock = self.locks.get_mut(&id).filter(free);
        lock.map(|l| l.holder = Some(slot)).is_some()
    }

    /// Lets go of a lock that `slot` holds and nobody waits for, and whose token stays; `false`, and nothing done, when
    /// it is not so. `now` is only asked then.
    pub fn release_local(&mut self, id: LockId, slot: Slot, now: impl FnOnce() -> IntervalMark) -> bool {
        let alone = |l: &&mut Lock| l.holder == Some(slot) && l.waiting.is_empty() && l.successor.is_none();
        let Some(lock) = self.locks.get_mut(&id).filter(|l| alone(l) && l.handover.rests()) else { return false };
        (lock.holder, lock.released) = (None, now());
        lock.handover.has_rested();
        true
    }

    /// Takes the lock only if that needs no waiting.
    pub fn try_acquire(&mut self, cx: &mut Context<'_>, id: LockId, slot: Slot) -> bool {
        self.retract_token(cx, id);
        let lock = self.lock(cx, id);
        let free = lock.token && lock.holder.is_none() && lock.waiting.is_empty();
        if free {
            lock.holder = Some(slot);
        }
        free
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// [`NotHeld`] when `slot` does not hold it.
    pub fn release(&mut self, cx: &mut Context<'_>, id: LockId, slot: Slot) -> Result<(), NotHeld> {
        let now = cx.payload.mark();
        let lock = self.lock(cx, id);
        if lock.holder != Some(slot) {
            return Err(NotHeld);
        }
        lock.released = now;
        self.let_next(cx, id);
        Ok(())
    }

    /// Thread `slot`, which has just got the lock, cannot use it now: it goes to whoever is next. As nothing was done
    /// under it, there is nothing more to tell than when it came.
    pub fn hand_back(&mut self, cx: &mut Context<'_>, id: LockId, slot: Slot) {
        if self.holds(id, slot) {
            self.let_next(cx, id);
        }
    }

    /// The lock's holder has let it go.
    fn let_next(&mut self, cx: &mut Context<'_>, id: LockId) {
        let tuning = self.tuning;
        let lock = self.lock(cx, id);
        lock.holder = None;
        if !lock.waiting.is_empty() && lock.handover.goes_to_neighbour(&tuning, lock.successor.is_some()) {
            let next = lock.waiting.pop_front();
            lock.holder = next;
            if let Some(next) = next {
                cx.wake(next);
            }
        } else if let Some(next) = lock.successor.take() {
            self.pass(cx, id, next.0, &next.1);
        } else if lock.handover.rests() {
            lock.handover.has_rested();
        } else {
            lock.published = cx.payload.publish_token(id, manager_of(id.0, cx.nodes));
            lock.handover.published(lock.published);
        }
    }

    /// Wants the token, although no thread waits for it, unless it is here or asked for already: gives which node has
    /// to be told, and whether this one stands in the queue behind it already. The message is the caller's affair, with
    /// what this node has seen.
    pub fn prefetch_token(&mut self, cx: &mut Context<'_>, id: LockId) -> Option<(NodeId, bool)> {
        self.retract_token(cx, id);
        let lock = self.lock(cx, id);
        if lock.token || lock.asked { None } else { self.join_queue(cx, id) }
    }

    /// Node `of` wants the token; `queued`: it stands in the queue behind this node already. If the token goes there at
    /// once, what its releases have to tell is appended to `said`. The node has seen `seen`, and, if `told` is given,
    /// that when it comes to this token: but only if the token goes at once, since later it might come sooner.
    pub fn on_token_prefetch(
        &mut self,
        cx: &mut Context<'_>,
        id: LockId,
        (of, queued): (NodeId, bool),
        (seen, told): (&[u8], Option<&[u8]>),
        said: &mut Vec<u8>,
    ) -> Wanted {
        if of == cx.me || of.index() >= cx.nodes {
            return Wanted::Later;
        }
        if !queued {
            match self.queue_up(cx, id, of) {
                Some(last) if last.node == cx.me => {}
                Some(last) => return Wanted::HandOn(last.node),
                None => return Wanted::Later,
            }
        }
        self.retract_token(cx, id);
        let lock = self.lock(cx, id);
        if !lock.token || lock.holder.is_some() || !lock.waiting.is_empty() {
            lock.successor = Some(Box::new((Asker::Node(of), seen.to_vec())));
            return Wanted::Later;
        }
        self.let_go(cx, id, of, told.unwrap_or(seen), said);
        self.forget_if_idle(id);
        Wanted::Goes
    }

    /// At the manager: a node elsewhere asks.
    pub fn on_request(&mut self, cx: &mut Context<'_>, id: LockId, ticket: Ticket, knowledge: &[u8]) {
        let (me, asker) = (cx.me, ticket.channel.node);
        let Some(LockTail { node: last, .. }) = self.queue_up(cx, id, asker) else { return };
        if last == me {
            self.on_forward(cx, id, ticket, knowledge);
        } else {
            cx.out.hand_on(ticket, last);
            let target = Target::Post { node: last, origin: Origin::Service };
            cx.out.send(target, &Message::LockForward { lock: id, requester: Some(ticket), knowledge });
        }
    }

    /// The manager hands on a request: its ticket is next after this node.
    pub fn on_forward(&mut self, cx: &mut Context<'_>, id: LockId, ticket: Ticket, knowledge: &[u8]) {
        // Whoever asks by a message has not taken it.
        self.retract_token(cx, id);
        let lock = self.lock(cx, id);
        let free = lock.token && lock.holder.is_none() && lock.waiting.is_empty();
        if free || (lock.token && !Rule::TokenLeavesOnlyWhenFree.on()) {
            self.pass(cx, id, Asker::Thread(ticket), knowledge);
        } else {
            lock.successor = Some(Box::new((Asker::Thread(ticket), knowledge.to_vec())));
        }
    }

    /// The token arrives, with what its releases tell that is news. It goes to the thread that has waited longest; if
    /// none waits (any more), to the next in the queue, or it rests. `false`, and nothing done, if this node has not
    /// asked for it.
    pub fn on_grant(&mut self, cx: &mut Context<'_>, id: LockId, payload: &[u8]) -> bool {
        if self.locks.get(&id).is_none_or(|lock| !lock.asked) {
            return false;
        }
        self.token_is_here(cx, id);
        if !payload.is_empty() {
            cx.payload.on_acquire(Scope::Lock(id), payload);
        }
        let lock = self.lock(cx, id);
        if let Some(next) = lock.successor.take_if(|_| lock.holder.is_none()) {
            self.pass(cx, id, next.0, &next.1);
        }
        true
    }

    /// As [`Locks::on_grant`], for one of the tokens of a message. Where all locks tell the same, what came with the
    /// one before and was taken in, which is `known`, is not taken in again.
    pub fn on_token<'a>(&mut self, cx: &mut Context<'_>, id: LockId, payload: &'a [u8], known: &mut Option<&'a [u8]>) {
        let again = *known == Some(payload) && cx.payload.is_alike();
        if self.on_grant(cx, id, if again { &[] } else { payload }) {
            *known = Some(payload);
        }
    }

    /// The token has come: the thread that has waited longest holds the lock.
    fn token_is_here(&mut self, cx: &mut Context<'_>, id: LockId) {
        let lays_out = cx.payload.publishes_tokens();
        let lock = self.lock(cx, id);
        (lock.asked, lock.token) = (false, true);
        lock.handover.token_arrived(lays_out);
        lock.holder = lock.waiting.pop_front();
        if let Some(next) = lock.holder {
            cx.wake(next);
        }
    }

    /// How many locks are remembered here.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Asks for the token in the name of the thread that begins to wait; whether it was published, and is here.
    fn ask(&mut self, cx: &mut Context<'_>, id: LockId) -> bool {
        let Some((node, queued)) = self.join_queue(cx, id) else { return self.lock(cx, id).token };
        let payload = &mut *cx.payload;
        let knowledge = |body: &mut Vec<u8>| {
            payload.knowledge(Scope::Lock(id), body);
            payload.prefetch_hint(id, body);
        };
        let message = if queued {
            Message::LockForward { lock: id, requester: None, knowledge: &[] }
        } else {
            Message::LockRequest { lock: id, knowledge: &[] }
        };
        cx.out.send_with(Target::Request { node, origin: Origin::Caller }, &message, knowledge);
        false
    }

    /// This node joins the queue for the token: gives whom to tell, and whether that is the node before it in the
    /// queue, or the manager. `None` where nobody need be told: the token was published, and is here.
    fn join_queue(&mut self, cx: &mut Context<'_>, id: LockId) -> Option<(NodeId, bool)> {
        let (me, manager) = (cx.me, manager_of(id.0, cx.nodes));
        self.lock(cx, id).asked = true;
        let last = if manager == me { self.queue_up(cx, id, me) } else { cx.payload.queue_up(id, manager, me) };
        if last.is_some_and(|last| last.is_published && cx.payload.take_published_token(id, last.node)) {
            self.token_is_here(cx, id);
            return None;
        }
        match last {
            Some(last) => Some((last.node, true)),
            None => (manager != me).then_some((manager, false)),
        }
    }

    /// At the manager: `node` asks, behind whoever asked last, which is given. The first time this is published, if
    /// there is a place for it.
    fn queue_up(&mut self, cx: &mut Context<'_>, id: LockId, node: NodeId) -> Option<LockTail> {
        let open = cx.payload.queue_up(id, cx.me, node).filter(|_| Rule::LaidOpenQueuesAreUsed.on());
        if open.is_some() {
            return open;
        }
        let last = self.lock(cx, id).tail.replace(node);
        cx.payload.publish_tail(id, node);
        last.map(|node| LockTail { node, is_published: false })
    }

    /// Sends the token away; if threads here still wait, asks to have it back.
    fn pass(&mut self, cx: &mut Context<'_>, id: LockId, next: Asker, knowledge: &[u8]) {
        let mut said = Vec::new();
        self.let_go(cx, id, next.node(), knowledge, &mut said);
        match next {
            Asker::Thread(ticket) => {
                cx.out.send(Target::Reply(ticket), &Message::LockGrant { lock: id, payload: &said })
            }
            Asker::Node(node) => {
                let mut tokens = LockBatch::default();
                tokens.add(id, &said);
                let target = Target::Post { node, origin: Origin::Service };
                cx.out.send(target, &Message::LockTokens { entries: tokens.bytes() });
            }
        }
        if self.locks.get(&id).is_some_and(|l| !l.waiting.is_empty()) {
            self.request_token_back(cx, id);
        } else {
            self.forget_if_idle(id);
        }
    }

    /// Wants the token back for the threads that wait. A request of the service thread's would be under way until the
    /// token comes, however long that takes, and meanwhile its window would not move on: so this is a post.
    fn request_token_back(&mut self, cx: &mut Context<'_>, id: LockId) {
        let Some((node, queued)) = self.join_queue(cx, id) else { return };
        let (mut seen, mut hint) = (Vec::new(), LockBatch::default());
        cx.payload.knowledge(Scope::Lock(id), &mut seen);
        hint.add(id, &seen);
        let target = Target::Post { node, origin: Origin::Service };
        cx.out.send(target, &Message::LockWants { of: cx.me, queued, entries: hint.bytes() });
    }

    /// The token is no longer here; appends what its releases have to tell.
    fn let_go(&mut self, cx: &mut Context<'_>, id: LockId, to: NodeId, knowledge: &[u8], said: &mut Vec<u8>) {
        let lock = self.lock(cx, id);
        lock.token = false;
        let released = lock.released;
        cx.payload.on_release(Scope::Lock(id), to, knowledge, released, said);
        cx.payload.token_left(id);
    }

    fn forget_if_idle(&mut self, id: LockId) {
        if self.locks.get(&id).is_some_and(Lock::is_as_unnamed) {
            self.locks.remove(&id);
        }
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
