//! First lazy acquires, step by step.

use super::*;
use crate::ids::{Channel, Seq, Slot};
use crate::outbox::Outbox;
use crate::sync::Payload;
use crate::wire::message::types;

/// What a node has been told, and tells: the scope alone.
#[derive(Default)]
struct Tales {
    heard: Vec<(Scope, Vec<u8>)>,
}

impl Payload for Tales {
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>) {
        out.push(u8::from(scope == Scope::All));
    }
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(&mut self, scope: Scope, to: NodeId, knowledge: &[u8], released: IntervalMark, out: &mut Vec<u8>) {
        assert_eq!((scope, released, knowledge), (Scope::All, IntervalMark::NOW, &[1][..]));
        out.push(to.0 as u8);
    }
    fn on_acquire(&mut self, scope: Scope, bytes: &[u8]) {
        self.heard.push((scope, bytes.to_vec()));
    }
    fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
    fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
}

const NODES: usize = 3;
const ME: NodeId = NodeId(1);
const THREAD: Slot = Slot(1);

#[derive(Default)]
struct Node {
    locks: Locks,
    tales: Tales,
    out: Outbox,
}

impl Node {
    fn step<R>(&mut self, f: impl FnOnce(&mut Locks, &mut Context<'_>) -> R) -> R {
        self.out.clear();
        let (payload, out) = (&mut self.tales, &mut self.out);
        f(&mut self.locks, &mut Context { me: ME, nodes: NODES, caller: Some(THREAD), payload, out })
    }

    /// The only message sent: its type, and to whom if it is a request.
    fn sent(&self) -> Option<(crate::wire::header::MsgType, Option<NodeId>)> {
        let [send] = self.out.sends() else { return None };
        let to = if let Target::Request { node, .. } = send.target { Some(node) } else { None };
        Some((send.ty, to))
    }
}

#[test]
fn the_holder_asks_every_other_node_once_and_takes_in_what_it_has_asked_for_alone() {
    let (mut node, id) = (Node::default(), LockId(7));
    let mut asked = Vec::new();
    while node.step(|l, cx| l.catch_up(cx, id)) {
        let Some((types::CATCH_UP, Some(whom))) = node.sent() else { panic!("{:?}", node.sent()) };
        assert!(node.step(|l, cx| l.catch_up(cx, id)) && node.out.is_empty(), "one after the other");
        node.step(|l, cx| l.on_caught_up(cx, id, ME, b"nobody asked"));
        node.step(|l, cx| l.on_caught_up(cx, LockId(8), whom, b"not of that one"));
        node.step(|l, cx| l.on_caught_up(cx, id, whom, &[whom.0 as u8]));
        node.step(|l, cx| l.on_caught_up(cx, id, whom, b"again"));
        asked.push(whom);
    }
    assert_eq!(asked, [NodeId(2), NodeId(0)]);
    assert_eq!(node.tales.heard, [(Scope::All, vec![2]), (Scope::All, vec![0])]);
    assert!(node.step(|l, cx| l.catch_up(cx, id)) && !node.out.is_empty(), "it can fall behind again");
}

#[test]
fn who_is_asked_tells_of_everything_whatever_it_has_to_do_with_the_lock() {
    let (mut node, id) = (Node::default(), LockId(7));
    let channel = Channel { node: NodeId(2), slot: THREAD };
    let ticket = Ticket { channel, seq: Seq::guarded(channel, 4) };
    node.step(|l, cx| l.on_catch_up(cx, id, ticket, &[1]));
    assert_eq!(node.sent(), Some((types::CAUGHT_UP, None)));
    assert!(node.locks.is_empty(), "nothing is remembered of the lock");
}
