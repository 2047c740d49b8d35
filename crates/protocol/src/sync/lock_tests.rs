//! Locks, step by step.

use super::*;
use crate::ids::{Channel, Seq};
use crate::outbox::Outbox;
use crate::sync::{NoPayload, Payload};
use crate::tuning::LockTuning;

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
    assert!(!node.locks.reacquire_local(lock, slot), "never named here");
    node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot));
    assert!(!node.locks.reacquire_local(lock, slot), "held");
    assert_eq!((node.locks.holder(lock), node.locks.held().collect()), (Some(slot), vec![(lock, slot)]));
    assert!(!node.locks.release_local(lock, Slot::thread(1), IntervalMark::default), "held by another");
    assert!(node.locks.release_local(lock, slot, IntervalMark::default) && node.locks.reacquire_local(lock, slot));
    node.step(None, |l, cx| l.on_request(cx, lock, ticket(1, 5), &[]));
    assert!(!node.locks.release_local(lock, slot, IntervalMark::default), "another node waits");
    node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
    assert!(!node.locks.reacquire_local(lock, slot), "the token has gone");
}

#[test]
fn a_lock_for_which_a_neighbour_waits_is_not_put_down() {
    let (mut node, lock) = (Node::new(0), lock_of_node_zero());
    let [first, second] = [0, 1].map(Slot::thread);
    node.step(Some(first), |l, cx| l.acquire(cx, lock, first));
    assert_eq!(node.step(Some(second), |l, cx| l.acquire(cx, lock, second)), Acquire::Wait);
    assert!(!node.locks.release_local(lock, first, IntervalMark::default));
    node.step(Some(first), |l, cx| l.release(cx, lock, first)).unwrap();
    assert_eq!(node.out.wakes(), [second]);
    assert!(node.locks.holds(lock, second));
}

#[test]
fn a_token_that_nobody_here_has_asked_for_is_not_taken_in() {
    let (mut node, lock) = (Node::new(1), lock_of_node_zero());
    assert!(!node.step(None, |l, cx| l.on_grant(cx, lock, &[])));
    node.step(None, |l, cx| l.prefetch_token(cx, lock));
    assert!(node.step(None, |l, cx| l.on_grant(cx, lock, &[])));
    node.step(None, |l, cx| l.on_forward(cx, lock, ticket(0, 1), &[]));
    assert!(!node.step(None, |l, cx| l.on_grant(cx, lock, &[])), "nor once more when it has gone on");
    assert!(node.locks.is_empty());
    let mut manager = Node::new(0);
    manager.step(None, |l, cx| l.on_request(cx, lock, ticket(1, 1), &[]));
    assert!(!manager.step(None, |l, cx| l.on_grant(cx, lock, &[])), "nor where the lock is managed");
    assert_eq!(manager.locks.is_idle_here(lock), None);
}

#[test]
fn a_manager_notes_to_whom_it_has_handed_a_request_on() {
    let (mut locks, mut out, mut payload) = (Locks::new(), Outbox::new(), NoPayload);
    let lock = (0..).map(LockId).find(|l| manager_of(l.0, 3) == NodeId(0)).unwrap();
    let mut cx = Context { me: NodeId(0), nodes: 3, caller: None, payload: &mut payload, out: &mut out };
    locks.on_request(&mut cx, lock, ticket(1, 1), &[]);
    assert!(cx.out.handed_on().is_empty(), "the token was here");
    locks.on_request(&mut cx, lock, ticket(2, 1), &[]);
    assert_eq!(cx.out.handed_on(), [(ticket(2, 1), NodeId(1))]);
}

#[test]
fn a_lock_that_leaves_later_says_when_it_was_released() {
    /// Tells the moment of the release.
    struct Clock(u64);
    impl Payload for Clock {
        fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
        fn mark(&mut self) -> IntervalMark {
            IntervalMark(self.0)
        }
        fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], released: IntervalMark, out: &mut Vec<u8>) {
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
    locks.release(&mut cx, lock, slot).unwrap();
    assert_eq!(locks.is_idle_here(lock), Some(IntervalMark(3)));
    assert!(locks.reacquire_local(lock, slot) && locks.release_local(lock, slot, || IntervalMark(5)));
    assert_eq!(locks.is_idle_here(lock), Some(IntervalMark(5)));
    locks.on_request(&mut cx, lock, ticket(1, 5), &[]);
    assert_eq!(out.body(&out.sends()[0]).last(), Some(&5));
    assert!(
        IntervalMark(5).needs_close(IntervalMark(5))
            && !IntervalMark(5).needs_close(IntervalMark(6))
            && IntervalMark::NOW.needs_close(IntervalMark(6))
    );
}

#[test]
fn a_lock_that_is_handed_back_goes_to_the_next_and_was_not_released() {
    let (mut node, lock, slot) = (Node::new(0), lock_of_node_zero(), Slot::thread(0));
    node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot));
    assert!(node.locks.release_local(lock, slot, || IntervalMark(5)) && node.locks.reacquire_local(lock, slot));
    node.step(Some(slot), |l, cx| l.hand_back(cx, lock, Slot::thread(1)));
    assert!(node.locks.holds(lock, slot), "who does not hold it changes nothing");
    node.step(Some(slot), |l, cx| l.hand_back(cx, lock, slot));
    assert_eq!(node.locks.is_idle_here(lock), Some(IntervalMark(5)));
    assert!(node.locks.reacquire_local(lock, slot));
    node.step(None, |l, cx| l.on_request(cx, lock, ticket(1, 5), &[]));
    node.step(Some(slot), |l, cx| l.hand_back(cx, lock, slot));
    assert_eq!(node.out.sends()[0].target, Target::Reply(ticket(1, 5)));
}

/// Writes down what the acquirer is said to have seen.
struct Seen;
impl Payload for Seen {
    fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(&mut self, _: Scope, _: NodeId, knowledge: &[u8], _: IntervalMark, out: &mut Vec<u8>) {
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
            assert_eq!(
                locks.on_token_prefetch(&mut cx, lock, wants, (b"seen", Some(b"told")), &mut said),
                Wanted::Later
            );
            locks.release(&mut cx, lock, slot).unwrap();
            let last = cx.out.sends().last().unwrap();
            let Ok(Message::LockTokens { entries }) = Message::parse(last.ty, cx.out.body(last)) else { panic!() };
            said = crate::sync::lock_batch::entries(entries).next().unwrap().unwrap().1.to_vec();
        } else {
            assert_eq!(
                locks.on_token_prefetch(&mut cx, lock, wants, (b"seen", Some(b"told")), &mut said),
                Wanted::Goes
            );
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
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], _: IntervalMark, _: &mut Vec<u8>) {}
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
            locks.prefetch_token(&mut cx, *lock);
            locks.on_token(&mut cx, *lock, said, &mut known);
        }
        assert!(wanted.iter().all(|lock| locks.is_idle_here(*lock).is_some()), "all have come");
        let expected: Vec<_> = expected.into_iter().map(|i| (Scope::Lock(wanted[i]), said[i].to_vec())).collect();
        assert_eq!(payload.told, expected, "alike: {alike}");
    }
}

#[test]
fn a_token_that_no_thread_waits_for_rests_or_goes_to_the_next_node() {
    let (mut node, lock, slot) = (Node::new(1), lock_of_node_zero(), Slot::thread(0));
    assert_eq!(node.step(None, |l, cx| l.prefetch_token(cx, lock)), Some((NodeId(0), false)), "the manager is told");
    assert_eq!(node.step(None, |l, cx| l.prefetch_token(cx, lock)), None, "once");
    node.step(None, |l, cx| l.on_grant(cx, lock, &[]));
    assert!(node.locks.is_idle_here(lock).is_some() && node.locks.reacquire_local(lock, slot));
    node.step(Some(slot), |l, cx| l.on_forward(cx, lock, ticket(0, 1), &[]));
    node.step(Some(slot), |l, cx| l.release(cx, lock, slot)).unwrap();
    node.step(None, |l, cx| l.prefetch_token(cx, lock));
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
    let mut turn = 0;
    for round in 1..=2 {
        node.step(None, |l, cx| l.on_request(cx, lock, ticket(1, round), &[]));
        let mut hands = 0;
        loop {
            let (now, next) = (threads[turn % 2], threads[(turn + 1) % 2]);
            turn += 1;
            node.step(Some(next), |l, cx| l.acquire(cx, lock, next));
            node.step(Some(now), |l, cx| l.release(cx, lock, now)).unwrap();
            if !node.locks.holds(lock, next) {
                break;
            }
            hands += 1;
        }
        assert_eq!(hands, LockTuning::DEFAULT.local_hands_max, "each time that the token is here");
        assert_eq!(node.out.sends().len(), 2, "the token, and the request to have it back");
        node.step(None, |l, cx| l.on_grant(cx, lock, &[]));
    }
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
    /// How often a token has left a node.
    left: usize,
}

impl Payload for Open {
    fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
    fn mark(&mut self) -> IntervalMark {
        IntervalMark(0)
    }
    fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], _: IntervalMark, _: &mut Vec<u8>) {}
    fn on_acquire(&mut self, _: Scope, _: &[u8]) {}
    fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
    fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
    fn queue_up(&mut self, _: LockId, _: NodeId, node: NodeId) -> Option<LockTail> {
        let last = std::mem::replace(&mut self.last, node);
        Some(LockTail { node: last, is_published: self.told == Some(last) })
    }
    fn publishes_tokens(&mut self) -> bool {
        true
    }
    fn publish_token(&mut self, _: LockId, _: NodeId) -> bool {
        let may = self.last == self.me;
        self.told = self.told.or(may.then_some(self.me));
        may
    }
    fn token_left(&mut self, _: LockId) {
        self.left += 1;
    }
    fn retract_token(&mut self, _: LockId, _: NodeId) -> bool {
        self.told.take_if(|at| *at == self.me).is_some()
    }
    fn take_published_token(&mut self, _: LockId, from: NodeId) -> bool {
        self.told.take_if(|at| *at == from).is_some()
    }
}

#[test]
fn a_token_that_lies_out_costs_no_message_and_is_missed_only_where_it_lay() {
    let (lock, slot) = (lock_of_node_zero(), Slot::thread(0));
    let mut open = Open { last: NodeId(0), told: None, me: NodeId(0), left: 0 };
    let mut nodes = [Node::new(0), Node::new(1)];
    let mut step = |n: usize, f: &mut dyn FnMut(&mut Locks, &mut Context<'_>)| {
        let Node { me, locks, out } = &mut nodes[n];
        out.clear();
        open.me = *me;
        f(locks, &mut Context { me: *me, nodes: 2, caller: Some(slot), payload: &mut open, out });
        out.sends().len()
    };
    let take = |expected| move |l: &mut Locks, cx: &mut Context<'_>| assert_eq!(l.acquire(cx, lock, slot), expected);
    let give = |l: &mut Locks, cx: &mut Context<'_>| {
        assert!(!l.release_local(lock, slot, IntervalMark::default) && l.release(cx, lock, slot) == Ok(()));
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
    step(0, &mut |l, _| assert!(l.release_local(lock, slot, IntervalMark::default), "and stays once"));
    assert_eq!(step(1, &mut take(Acquire::Wait)), 1, "so who asks now sends a message");
}

#[test]
fn a_token_that_lies_out_goes_one_way_only() {
    let (lock, slot) = (lock_of_node_zero(), Slot::thread(0));
    for (taken, wanted) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut open = Open { last: NodeId(0), told: None, me: NodeId(1), left: 0 };
        let (mut locks, mut out, mut said) = (Locks::new(), Outbox::new(), Vec::new());
        let mut cx = Context { me: NodeId(1), nodes: 2, caller: Some(slot), payload: &mut open, out: &mut out };
        assert_eq!(locks.acquire(&mut cx, lock, slot), Acquire::Wait);
        assert!(locks.on_grant(&mut cx, lock, &[]));
        locks.release(&mut cx, lock, slot).unwrap();
        assert_eq!(
            (locks.is_idle_here(lock), locks.reacquire_local(lock, slot)),
            (None, false),
            "another may take it at any time"
        );
        out.clear();
        assert_eq!(open.told.take_if(|_| taken), taken.then_some(NodeId(1)), "it lay out");
        let mut cx = Context { me: NodeId(1), nodes: 2, caller: None, payload: &mut open, out: &mut out };
        let goes = if wanted {
            let seen = (&[][..], None);
            locks.on_token_prefetch(&mut cx, lock, (NodeId(0), true), seen, &mut said) == Wanted::Goes
        } else {
            locks.on_forward(&mut cx, lock, ticket(0, 9), &[]);
            !out.is_empty()
        };
        assert_eq!((goes, open.told, open.left), (!taken, None, 1));
    }
}

#[test]
fn whoever_needs_a_token_again_that_lies_out_looks_whether_it_still_does() {
    let (lock, slot) = (lock_of_node_zero(), Slot::thread(0));
    for (taken, wanted) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut open = Open { last: NodeId(0), told: None, me: NodeId(1), left: 0 };
        let (mut locks, mut out) = (Locks::new(), Outbox::new());
        let mut cx = Context { me: NodeId(1), nodes: 2, caller: Some(slot), payload: &mut open, out: &mut out };
        locks.acquire(&mut cx, lock, slot);
        assert!(locks.on_grant(&mut cx, lock, &[]) && locks.is_here(lock));
        locks.release(&mut cx, lock, slot).unwrap();
        assert!(!locks.is_here(lock), "who knows");
        open.told.take_if(|_| taken);
        let mut cx = Context { me: NodeId(1), nodes: 2, caller: Some(slot), payload: &mut open, out: &mut out };
        if wanted {
            assert_eq!(locks.prefetch_token(&mut cx, lock).is_some(), taken, "what is here need not be asked for");
        } else {
            assert_eq!(locks.try_acquire(&mut cx, lock, slot), !taken);
        }
        assert_eq!((locks.is_here(lock), open.told), (!taken, None));
    }
}

#[test]
fn no_token_goes_to_a_node_that_is_none_or_is_this_one() {
    let (mut node, lock) = (Node::new(0), lock_of_node_zero());
    for of in [0, 2] {
        let wanted =
            node.step(None, |l, cx| l.on_token_prefetch(cx, lock, (NodeId(of), false), (&[], None), &mut Vec::new()));
        assert_eq!((wanted, node.out.is_empty()), (Wanted::Later, true));
    }
    let slot = Slot::thread(0);
    assert_eq!(node.step(Some(slot), |l, cx| l.acquire(cx, lock, slot)), Acquire::Held);
}

#[test]
fn only_the_holder_releases() {
    let (mut node, lock) = (Node::new(0), lock_of_node_zero());
    assert_eq!(node.step(None, |l, cx| l.release(cx, lock, Slot::thread(0))), Err(NotHeld));
}
