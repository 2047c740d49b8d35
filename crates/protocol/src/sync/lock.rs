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
//! Where nodes reach each other's memory, the manager lays open who asked last ([`Payload::lay_open`](super::Payload)): who asks next puts itself
//! there and asks that node by itself, without the manager's help. Who cannot reach it asks the manager as ever, which uses the same note.
//!
//! There a released token may also *lie out* ([`Payload::lay_out`](super::Payload)), with all that its next holder must know: who asks takes it
//! by itself, and the node where it lay hears nothing of that until it wants the lock again and finds that it is gone. Where nodes have to share cores
//! a token so costs no wake-up. Nodes that want the lock again before others do, lay its token out ever more seldom.
//!
//! A node may also *want* tokens that no thread of it waits for yet ([`Locks::want`]): those that it will need again, many in one message.
//! It stands in the queue like any other asker; the tokens come to the node, not to a thread, and rest there.
//!
//! Threads of one node may pass the lock among themselves [`LOCAL_STREAK`] times while another node waits;
//! then it goes to the other node.

use super::bundle::Bundle;
use super::{Context, Last, Mark, Scope};
use crate::ids::{LockId, NodeId, Slot, manager_of};
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Message, Ticket};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// How often a lock may change hands within a node while another node waits for it.
pub const LOCAL_STREAK: u32 = 16;

/// How an acquire begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// The lock is held now.
    Held,
    /// The lock is held now, and its token has come from another node, where it lay out.
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

/// What becomes of a token that another node wants ([`Locks::want`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// It goes there.
    Goes,
    /// That node asked last: it has to be told.
    HandOn(NodeId),
    /// It goes there later.
    Later,
}
/// Most releases by which a token stays, after it was wanted again where it lay out.
const STAYS_MAX: u8 = 127;

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
    streak: u8,
    /// The token may lie out when the lock is released.
    lays_out: bool,
    /// It does: `token` holds only until that is asked.
    out: bool,
    /// So often the lock is released before its token lies out again, and what that was the last time.
    stays: (u8, u8),
    /// When it was last released here.
    released: Mark,
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

/// Spreads the numbers of locks, many of which are addresses: a lock that is taken again is looked for twice.
#[derive(Clone, Copy, Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // A shard has the numbers whose upper bits are alike when they are multiplied as for `manager_of`, so by another factor here.
        let mixed = (self.0 ^ number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The locks of a node, or one shard of them.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    locks: HashMap<LockId, Lock, BuildHasherDefault<Spread>>,
}

impl Locks {
    /// No locks yet; they come into being when first named.
    pub fn new() -> Locks {
        Locks::default()
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
        self.take_back(cx, id);
        let lock = self.lock(cx, id);
        if lock.token && lock.holder.is_none() && lock.waiting.is_empty() {
            lock.holder = Some(slot);
            return Acquire::Held;
        }
        lock.waiting.push_back(slot);
        if !lock.token && !lock.asked && self.ask(cx, id, Origin::Caller) {
            return Acquire::Taken;
        }
        Acquire::Wait
    }

    /// If the token lies out, it is here again, or another node has it.
    fn take_back(&mut self, cx: &mut Context<'_>, id: LockId) {
        let Some(lock) = self.locks.get_mut(&id).filter(|l| l.out) else { return };
        lock.out = false;
        lock.token = cx.payload.take_back(id, manager_of(id.0, cx.nodes)) || !Rule::TokensThatLieOutAreTakenOnce.on();
        if lock.token {
            let stays = (2 * lock.stays.1 + 1).min(STAYS_MAX);
            lock.stays = (stays, stays);
        } else {
            cx.payload.token_left(id);
        }
    }

    /// Whether the lock's token is here, and nobody is to have it next.
    pub fn is_here(&self, id: LockId) -> bool {
        self.locks.get(&id).is_some_and(|l| l.token && !l.out && l.successor.is_none())
    }

    /// When the lock was last released, if its token rests here, free and with nobody waiting: whoever asks for it gets it at once.
    pub fn rests(&self, id: LockId) -> Option<Mark> {
        let rests = |l: &&Lock| l.token && !l.out && l.holder.is_none() && l.waiting.is_empty();
        self.locks.get(&id).filter(rests).map(|l| l.released)
    }

    /// Takes a lock whose token rests here, free and with nobody waiting: nobody need be told, so nothing else happens.
    pub fn retake(&mut self, id: LockId, slot: Slot) -> bool {
        let free = |l: &&mut Lock| l.token && !l.out && l.holder.is_none() && l.waiting.is_empty();
        let lock = self.locks.get_mut(&id).filter(free);
        lock.map(|l| l.holder = Some(slot)).is_some()
    }

    /// Lets go of a lock that `slot` holds and nobody waits for, and whose token stays; `false`, and nothing done, when it is not so. `now` is only
    /// asked then.
    pub fn put_down(&mut self, id: LockId, slot: Slot, now: impl FnOnce() -> Mark) -> bool {
        let stays = |l: &Lock| !l.lays_out || l.stays.0 > 0;
        let alone = |l: &&mut Lock| l.holder == Some(slot) && l.waiting.is_empty() && l.successor.is_none() && stays(l);
        let lock = self.locks.get_mut(&id).filter(alone);
        lock.map(|l| (l.holder, l.released, l.stays.0) = (None, now(), l.stays.0.saturating_sub(1))).is_some()
    }

    /// Takes the lock only if that needs no waiting.
    pub fn try_acquire(&mut self, cx: &mut Context<'_>, id: LockId, slot: Slot) -> bool {
        self.take_back(cx, id);
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
        (lock.holder, lock.released) = (None, now);
        let to_neighbour =
            !lock.waiting.is_empty() && (lock.successor.is_none() || u32::from(lock.streak) < LOCAL_STREAK);
        if to_neighbour {
            lock.streak = if lock.successor.is_some() { lock.streak + 1 } else { 0 };
            let next = lock.waiting.pop_front();
            lock.holder = next;
            if let Some(next) = next {
                cx.wake(next);
            }
        } else if let Some(next) = lock.successor.take() {
            self.pass(cx, id, next.0, &next.1);
        } else if lock.lays_out && lock.stays.0 == 0 {
            lock.out = cx.payload.lay_out(id, manager_of(id.0, cx.nodes));
            lock.lays_out = lock.out;
        } else {
            lock.stays.0 = lock.stays.0.saturating_sub(1);
        }
        Ok(())
    }

    /// Wants the token, although no thread waits for it, unless it is here or asked for already: gives which node has to be told, and whether
    /// this one stands in the queue behind it already. The message is the caller's affair, with what this node has seen.
    pub fn want(&mut self, cx: &mut Context<'_>, id: LockId) -> Option<(NodeId, bool)> {
        self.take_back(cx, id);
        let lock = self.lock(cx, id);
        if lock.token || lock.asked { None } else { self.join_queue(cx, id) }
    }

    /// Node `of` wants the token; `queued`: it stands in the queue behind this node already. If the token goes there at once, what its releases have to
    /// tell is appended to `said`. The node has seen `seen`, and, if `told` is given, that when it comes to this token: but only if the token goes at
    /// once, since later it might come sooner.
    pub fn on_want(
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
        self.take_back(cx, id);
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
        let Some(Last { node: last, .. }) = self.queue_up(cx, id, asker) else { return };
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
        self.take_back(cx, id);
        let lock = self.lock(cx, id);
        let free = lock.token && lock.holder.is_none() && lock.waiting.is_empty();
        if free || (lock.token && !Rule::TokenLeavesOnlyWhenFree.on()) {
            self.pass(cx, id, Asker::Thread(ticket), knowledge);
        } else {
            lock.successor = Some(Box::new((Asker::Thread(ticket), knowledge.to_vec())));
        }
    }

    /// The token arrives, with what its releases tell that is news. It goes to the thread that has waited longest; if none waits (any more), to the next in
    /// the queue, or it rests. `false`, and nothing done, if this node has not asked for it.
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

    /// As [`Locks::on_grant`], for one of the tokens of a message. Where all locks tell the same, what came with the one before and was taken in, which is
    /// `known`, is not taken in again.
    pub fn on_token<'a>(&mut self, cx: &mut Context<'_>, id: LockId, payload: &'a [u8], known: &mut Option<&'a [u8]>) {
        let again = *known == Some(payload) && cx.payload.is_alike();
        if self.on_grant(cx, id, if again { &[] } else { payload }) {
            *known = Some(payload);
        }
    }

    /// The token has come: the thread that has waited longest holds the lock.
    fn token_is_here(&mut self, cx: &mut Context<'_>, id: LockId) {
        let lays_out = cx.payload.lays_out();
        let lock = self.lock(cx, id);
        (lock.asked, lock.token, lock.streak, lock.lays_out, lock.stays) = (false, true, 0, lays_out, (0, 0));
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

    /// Asks for the token in the name of the first thread that waits; whether it lay out, and is here.
    fn ask(&mut self, cx: &mut Context<'_>, id: LockId, origin: Origin) -> bool {
        let Some((node, queued)) = self.join_queue(cx, id) else { return self.lock(cx, id).token };
        let payload = &mut *cx.payload;
        let knowledge = |body: &mut Vec<u8>| {
            payload.knowledge(Scope::Lock(id), body);
            payload.wishes(id, body);
        };
        let message = if queued {
            Message::LockForward { lock: id, requester: None, knowledge: &[] }
        } else {
            Message::LockRequest { lock: id, knowledge: &[] }
        };
        cx.out.send_with(Target::Request { node, origin }, &message, knowledge);
        false
    }

    /// This node joins the queue for the token: gives whom to tell, and whether that is the node before it in the queue, or the manager. `None` where
    /// nobody need be told: the token lay out, and is here.
    fn join_queue(&mut self, cx: &mut Context<'_>, id: LockId) -> Option<(NodeId, bool)> {
        let (me, manager) = (cx.me, manager_of(id.0, cx.nodes));
        self.lock(cx, id).asked = true;
        let last = if manager == me { self.queue_up(cx, id, me) } else { cx.payload.queue_up(id, manager, me) };
        if last.is_some_and(|last| last.lies_out && cx.payload.pick_up(id, last.node)) {
            self.token_is_here(cx, id);
            return None;
        }
        match last {
            Some(last) => Some((last.node, true)),
            None => (manager != me).then_some((manager, false)),
        }
    }

    /// At the manager: `node` asks, behind whoever asked last, which is given. The first time this is laid open, if there is a place for it.
    fn queue_up(&mut self, cx: &mut Context<'_>, id: LockId, node: NodeId) -> Option<Last> {
        let open = cx.payload.queue_up(id, cx.me, node).filter(|_| Rule::LaidOpenQueuesAreUsed.on());
        if open.is_some() {
            return open;
        }
        let last = self.lock(cx, id).tail.replace(node);
        cx.payload.lay_open(id, node);
        last.map(|node| Last { node, lies_out: false })
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
                let mut tokens = Bundle::default();
                tokens.add(id, &said);
                let target = Target::Post { node, origin: Origin::Service };
                cx.out.send(target, &Message::LockTokens { entries: tokens.bytes() });
            }
        }
        if self.locks.get(&id).is_some_and(|l| !l.waiting.is_empty()) {
            self.ask(cx, id, Origin::Service);
        } else {
            self.forget_if_idle(id);
        }
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
mod tests {
    use super::*;
    use crate::ids::{Channel, Seq};
    use crate::outbox::Outbox;
    use crate::sync::{NoPayload, Payload};

    struct Node {
        me: NodeId,
        locks: Locks,
        out: Outbox,
    }

    impl Node {
        fn new(me: u16) -> Node {
            Node { me: NodeId(me), locks: Locks::new(), out: Outbox::new() }
        }
        fn step<R>(&mut self, slot: Option<Slot>, f: impl FnOnce(&mut Locks, &mut Context<'_>) -> R) -> R {
            self.out.clear();
            let mut payload = NoPayload;
            let mut cx = Context { me: self.me, nodes: 2, caller: slot, payload: &mut payload, out: &mut self.out };
            f(&mut self.locks, &mut cx)
        }
    }

    /// A lock that node 0 manages when there are two nodes.
    fn lock_of_node_zero() -> LockId {
        (0..).map(LockId).find(|l| manager_of(l.0, 2) == NodeId(0)).unwrap()
    }

    fn ticket(node: u16, count: u64) -> Ticket {
        let channel = Channel { node: NodeId(node), slot: Slot::thread(0) };
        Ticket { channel, seq: Seq::guarded(channel, count) }
    }

    #[test]
    fn taking_a_lock_again_where_it_was_last_held_sends_nothing() {
        let (mut node, lock, slot) = (Node::new(0), lock_of_node_zero(), Slot::thread(0));
        for _ in 0..3 {
            assert_eq!(node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot)), Acquire::Held);
            assert!(node.out.is_empty());
            node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
            assert!(node.out.is_empty());
        }
    }

    #[test]
    fn a_lock_is_retaken_and_put_down_only_while_nobody_else_wants_it() {
        let (mut node, lock, slot) = (Node::new(0), lock_of_node_zero(), Slot::thread(0));
        assert!(!node.locks.retake(lock, slot), "never named here");
        node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot));
        assert!(!node.locks.retake(lock, slot), "held");
        assert_eq!((node.locks.holder(lock), node.locks.held().collect()), (Some(slot), vec![(lock, slot)]));
        assert!(!node.locks.put_down(lock, Slot::thread(1), Mark::default), "held by another");
        assert!(node.locks.put_down(lock, slot, Mark::default) && node.locks.retake(lock, slot));
        node.step(None, |l, cx| l.on_request(cx, lock, ticket(1, 5), &[]));
        assert!(!node.locks.put_down(lock, slot, Mark::default), "another node waits");
        node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
        assert!(!node.locks.retake(lock, slot), "the token has gone");
    }

    #[test]
    fn a_lock_that_leaves_later_says_when_it_was_released() {
        /// Tells the moment of the release.
        struct Clock(u64);
        impl Payload for Clock {
            fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
            fn mark(&mut self) -> Mark {
                Mark(self.0)
            }
            fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], released: Mark, out: &mut Vec<u8>) {
                out.push(released.0 as u8);
            }
            fn on_acquire(&mut self, _: Scope, _: &[u8]) {}
            fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
            fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
        }
        let (mut locks, mut out, lock, slot) = (Locks::new(), Outbox::new(), lock_of_node_zero(), Slot::thread(0));
        let mut payload = Clock(3);
        let mut cx = Context { me: NodeId(0), nodes: 2, caller: Some(slot), payload: &mut payload, out: &mut out };
        locks.acquire(&mut cx, lock, slot);
        assert!(locks.put_down(lock, slot, || Mark(5)));
        assert_eq!(locks.rests(lock), Some(Mark(5)));
        locks.on_request(&mut cx, lock, ticket(1, 5), &[]);
        assert_eq!(out.body(&out.sends()[0]).last(), Some(&5));
        assert!(Mark(5).needs_close(Mark(5)) && !Mark(5).needs_close(Mark(6)) && Mark::NOW.needs_close(Mark(6)));
    }

    /// Writes down what the acquirer is said to have seen.
    struct Seen;
    impl Payload for Seen {
        fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
        fn mark(&mut self) -> Mark {
            Mark::NOW
        }
        fn on_release(&mut self, _: Scope, _: NodeId, knowledge: &[u8], _: Mark, out: &mut Vec<u8>) {
            out.extend_from_slice(knowledge);
        }
        fn on_acquire(&mut self, _: Scope, _: &[u8]) {}
        fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
        fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
    }

    #[test]
    fn what_is_told_with_the_tokens_that_go_at_once_does_not_count_for_those_that_go_later() {
        let (mut locks, mut out, slot, lock) = (Locks::new(), Outbox::new(), Slot::thread(0), lock_of_node_zero());
        let mut cx = Context { me: NodeId(0), nodes: 2, caller: Some(slot), payload: &mut Seen, out: &mut out };
        let wants = (NodeId(1), false);
        for (holds, expected) in [(false, b"told"), (true, b"seen")] {
            let mut said = Vec::new();
            if holds {
                locks.acquire(&mut cx, lock, slot);
                locks.on_grant(&mut cx, lock, &[]);
                assert_eq!(locks.on_want(&mut cx, lock, wants, (b"seen", Some(b"told")), &mut said), Wanted::Later);
                locks.release(&mut cx, lock, slot).unwrap();
                let last = cx.out.sends().last().unwrap();
                let Ok(Message::LockTokens { entries }) = Message::parse(last.ty, cx.out.body(last)) else { panic!() };
                said = crate::sync::bundle::entries(entries).next().unwrap().unwrap().1.to_vec();
            } else {
                assert_eq!(locks.on_want(&mut cx, lock, wants, (b"seen", Some(b"told")), &mut said), Wanted::Goes);
            }
            assert_eq!(said, expected);
        }
    }

    /// Writes down what is told with tokens.
    struct Heard {
        alike: bool,
        told: Vec<(Scope, Vec<u8>)>,
    }

    impl Payload for Heard {
        fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
        fn mark(&mut self) -> Mark {
            Mark::NOW
        }
        fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], _: Mark, _: &mut Vec<u8>) {}
        fn on_acquire(&mut self, scope: Scope, bytes: &[u8]) {
            self.told.push((scope, bytes.to_vec()));
        }
        fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
        fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
        fn is_alike(&self) -> bool {
            self.alike
        }
    }

    #[test]
    fn what_is_told_with_several_tokens_is_taken_in_once_where_all_locks_tell_the_same() {
        for (alike, expected) in [(true, vec![0, 2]), (false, vec![0, 1, 2])] {
            let mut of_node_0 = (0..).map(LockId).filter(|l| manager_of(l.0, 2) == NodeId(0));
            let wanted: Vec<LockId> = of_node_0.by_ref().take(4).collect();
            let not_wanted = of_node_0.next().unwrap();
            let (mut locks, mut out, mut payload) = (Locks::new(), Outbox::new(), Heard { alike, told: Vec::new() });
            let mut cx = Context { me: NodeId(1), nodes: 2, caller: None, payload: &mut payload, out: &mut out };
            let said: [&[u8]; 4] = [b"much", b"much", b"more", b""];
            let mut known = None;
            locks.on_token(&mut cx, not_wanted, said[0], &mut known);
            for (lock, said) in wanted.iter().zip(said) {
                locks.want(&mut cx, *lock);
                locks.on_token(&mut cx, *lock, said, &mut known);
            }
            assert!(wanted.iter().all(|lock| locks.rests(*lock).is_some()), "all have come");
            let expected: Vec<_> = expected.into_iter().map(|i| (Scope::Lock(wanted[i]), said[i].to_vec())).collect();
            assert_eq!(payload.told, expected, "alike: {alike}");
        }
    }

    #[test]
    fn a_token_that_no_thread_waits_for_rests_or_goes_to_the_next_node() {
        let (mut node, lock, slot) = (Node::new(1), lock_of_node_zero(), Slot::thread(0));
        assert_eq!(node.step(None, |l, cx| l.want(cx, lock)), Some((NodeId(0), false)), "the manager is told");
        assert_eq!(node.step(None, |l, cx| l.want(cx, lock)), None, "once");
        node.step(None, |l, cx| l.on_grant(cx, lock, &[]));
        assert!(node.locks.rests(lock).is_some() && node.locks.retake(lock, slot));
        node.step(Some(slot), |l, cx| l.on_forward(cx, lock, ticket(0, 1), &[]));
        node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
        node.step(None, |l, cx| l.want(cx, lock));
        node.step(None, |l, cx| l.on_forward(cx, lock, ticket(0, 2), &[]));
        node.step(None, |l, cx| l.on_grant(cx, lock, &[]));
        assert_eq!(node.out.sends()[0].target, Target::Reply(ticket(0, 2)), "somebody else waits for it");
    }

    #[test]
    fn a_held_lock_goes_to_the_remote_waiter_on_release() {
        let (mut node, lock, slot) = (Node::new(0), lock_of_node_zero(), Slot::thread(0));
        node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot));
        node.step(None, |l, cx| l.on_request(cx, lock, ticket(1, 5), &[]));
        assert!(node.out.is_empty());
        node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
        assert_eq!(node.out.sends()[0].target, Target::Reply(ticket(1, 5)));
        assert_eq!(node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot)), Acquire::Wait);
        assert_eq!(node.out.sends().len(), 1, "one request to the node that took it");
    }

    #[test]
    fn threads_of_one_node_cannot_keep_the_lock_from_another_for_ever() {
        let (mut node, lock) = (Node::new(0), lock_of_node_zero());
        let threads = [Slot::thread(0), Slot::thread(1)];
        node.step(Some(threads[0]), |l, cx| l.acquire(cx, lock, threads[0]));
        node.step(None, |l, cx| l.on_request(cx, lock, ticket(1, 1), &[]));
        let mut hands = 0;
        loop {
            let (now, next) = (threads[hands % 2], threads[(hands + 1) % 2]);
            node.step(Some(next), |l, cx| l.acquire(cx, lock, next));
            node.step(Some(now), |l, cx| l.release(cx, lock, now)).unwrap();
            if !node.locks.holds(lock, next) {
                break;
            }
            hands += 1;
        }
        assert_eq!(hands as u32, LOCAL_STREAK);
        assert_eq!(node.out.sends().len(), 2, "the token, and the request to have it back");
    }

    #[test]
    fn a_node_forgets_the_locks_that_it_does_not_manage_and_has_passed_on() {
        let (mut node, lock, slot) = (Node::new(1), lock_of_node_zero(), Slot::thread(0));
        node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot));
        node.step(Some(slot), |l, cx| l.on_grant(cx, lock, &[]));
        node.step(None, |l, cx| l.on_forward(cx, lock, ticket(0, 1), &[]));
        assert_eq!(node.locks.len(), 1);
        node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
        assert!(node.locks.is_empty() && node.out.sends()[0].target == Target::Reply(ticket(0, 1)));
        assert!(size_of::<(LockId, super::Lock)>() <= 56, "what a lock costs where it is in use or managed");
    }

    /// One lock as nodes see it that reach each other's memory.
    struct Open {
        last: NodeId,
        told: Option<NodeId>,
        me: NodeId,
    }

    impl Payload for Open {
        fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
        fn mark(&mut self) -> Mark {
            Mark(0)
        }
        fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], _: Mark, _: &mut Vec<u8>) {}
        fn on_acquire(&mut self, _: Scope, _: &[u8]) {}
        fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
        fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
        fn queue_up(&mut self, _: LockId, _: NodeId, node: NodeId) -> Option<Last> {
            let last = std::mem::replace(&mut self.last, node);
            Some(Last { node: last, lies_out: self.told == Some(last) })
        }
        fn lays_out(&mut self) -> bool {
            true
        }
        fn lay_out(&mut self, _: LockId, _: NodeId) -> bool {
            let may = self.last == self.me;
            self.told = self.told.or(may.then_some(self.me));
            may
        }
        fn take_back(&mut self, _: LockId, _: NodeId) -> bool {
            self.told.take_if(|at| *at == self.me).is_some()
        }
        fn pick_up(&mut self, _: LockId, from: NodeId) -> bool {
            self.told.take_if(|at| *at == from).is_some()
        }
    }

    #[test]
    fn a_token_that_lies_out_costs_no_message_and_is_missed_only_where_it_lay() {
        let (lock, slot) = (lock_of_node_zero(), Slot::thread(0));
        let mut open = Open { last: NodeId(0), told: None, me: NodeId(0) };
        let mut nodes = [Node::new(0), Node::new(1)];
        let mut step = |n: usize, f: &mut dyn FnMut(&mut Locks, &mut Context<'_>)| {
            let Node { me, locks, out } = &mut nodes[n];
            out.clear();
            open.me = *me;
            f(locks, &mut Context { me: *me, nodes: 2, caller: Some(slot), payload: &mut open, out });
            out.sends().len()
        };
        let take =
            |expected| move |l: &mut Locks, cx: &mut Context<'_>| assert_eq!(l.acquire(cx, lock, slot), expected);
        let give = |l: &mut Locks, cx: &mut Context<'_>| {
            assert!(!l.put_down(lock, slot, Mark::default) && l.release(cx, lock, slot) == Ok(()));
        };
        step(0, &mut take(Acquire::Held));
        assert_eq!(step(1, &mut take(Acquire::Wait)), 1, "where it has never been, it does not lie out");
        step(0, &mut |l, cx| l.on_forward(cx, lock, ticket(1, 1), &[]));
        assert_eq!(step(0, &mut |l, cx| l.release(cx, lock, slot).unwrap()), 1);
        step(1, &mut |l, cx| assert!(l.on_grant(cx, lock, &[])));
        for (from, to) in [(1, 0), (0, 1), (1, 0)] {
            assert_eq!(step(from, &mut { give }) + step(to, &mut take(Acquire::Taken)), 0, "no message");
        }
        step(0, &mut { give });
        assert_eq!(step(0, &mut take(Acquire::Held)), 0, "it still lay here");
        step(0, &mut |l, _| assert!(l.put_down(lock, slot, Mark::default), "and stays once"));
        assert_eq!(step(1, &mut take(Acquire::Wait)), 1, "so who asks now sends a message");
    }

    #[test]
    fn only_the_holder_releases() {
        let (mut node, lock) = (Node::new(0), lock_of_node_zero());
        assert_eq!(node.step(None, |l, cx| l.release(cx, lock, Slot::thread(0))), Err(NotHeld));
    }
}
