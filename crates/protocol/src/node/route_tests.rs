use super::*;
use crate::ids::{Channel, manager_of};
use crate::sync::lock_batch::LOCK_BATCH_BYTES;
use crate::sync::{IntervalMark, Payload};

/// Says as much of each lock as it is told to; or of all the same, and once.
struct Long {
    bytes: usize,
    alike: bool,
}

impl Payload for Long {
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>) {
        let Scope::Lock(LockId(lock)) = scope else { panic!("of a lock") };
        out.resize(self.bytes, if self.alike { 1 } else { lock as u8 });
    }
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(&mut self, scope: Scope, _: NodeId, knowledge: &[u8], _: IntervalMark, out: &mut Vec<u8>) {
        if !self.alike || knowledge.is_empty() {
            self.knowledge(scope, out);
        }
    }
    fn on_acquire(&mut self, _: Scope, _: &[u8]) {}
    fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
    fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
    fn is_alike(&self) -> bool {
        self.alike
    }
}

/// A node of three that has nothing but locks.
struct TestNode {
    me: NodeId,
    locks: Locks,
    payload: Long,
    /// All units that are asked for were freed long ago.
    freed: bool,
}

impl TestNode {
    fn new(me: u16, bytes: usize, alike: bool) -> TestNode {
        TestNode { me: NodeId(me), locks: Locks::new(), payload: Long { bytes, alike }, freed: false }
    }
}

impl NodeState for TestNode {
    fn unit<R>(
        &mut self,
        _: UnitId,
        _: Engine,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        None
    }
    fn is_freed(&mut self, _: UnitId) -> bool {
        self.freed
    }
    fn locks(
        &mut self,
        _: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        let mut cx = sync::Context { me: self.me, nodes: 3, caller, payload: &mut self.payload, out };
        step(&mut self.locks, &mut cx);
    }
    fn flags(
        &mut self,
        _: FlagId,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        unreachable!("no flags");
    }
    fn sync_objects<R>(
        &mut self,
        _: SyncObject,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        unreachable!("no desk");
    }
    fn barrier(&mut self, _: &mut Outbox, _: impl FnOnce(&mut Barrier, &mut Outbox)) {
        unreachable!("no barrier");
    }
    fn answer(&mut self, _: &[u8]) {}
    fn user(&mut self, _: NodeId, _: u16, _: &[u8]) {}
}

/// An entry of a bundle.
type Said = (LockId, Vec<u8>);

/// The bundles in the messages: to whom each goes, what it says, and whether it wishes.
fn bundles(out: &Outbox) -> Vec<(NodeId, bool, Vec<Said>)> {
    let bundle = |send: &crate::outbox::Send| {
        let Target::Post { node, .. } = send.target else { panic!("{:?}", send.target) };
        let (requests, bytes) = match Message::parse(send.ty, out.body(send)).unwrap() {
            Message::LockWants { entries, .. } => (true, entries),
            Message::LockTokens { entries } => (false, entries),
            other => panic!("{other:?}"),
        };
        let entries: Vec<Said> =
            lock_batch::entries(bytes).map(|e| e.map(|(l, said)| (l, said.to_vec())).unwrap()).collect();
        assert!(
            bytes.len() <= LOCK_BATCH_BYTES || entries.len() == 1,
            "{} locks in {} bytes",
            entries.len(),
            bytes.len()
        );
        (node, requests, entries)
    };
    out.sends().iter().map(bundle).collect()
}

/// Locks whose manager is node 0.
fn locks(count: u64) -> Vec<LockId> {
    (0..).map(LockId).filter(|lock| manager_of(lock.0, 3) == NodeId(0)).take(count as usize).collect()
}

/// Lets node 1 wish for these tokens, and gives what it posts.
fn requests(target: &mut TestNode, locks: &[LockId]) -> Outbox {
    let mut out = Outbox::new();
    prefetch_tokens(target, target.me, None, locks, &mut out);
    out
}

/// Takes these wishes of `from` to node 0.
fn deliver(manager: &mut TestNode, from: u16, requests: &Outbox) -> Outbox {
    let mut out = Outbox::new();
    let from = Channel::service(NodeId(from));
    for send in requests.sends() {
        let message = Message::parse(send.ty, requests.body(send)).unwrap();
        dispatch(manager, Time(0), Origin { from, ticket: None, caller: None }, message, &mut out).unwrap();
    }
    out
}

#[test]
fn what_a_node_confirms_of_a_unit_that_was_freed_long_ago_is_nobodys_mistake() {
    let mut target = TestNode::new(0, 0, false);
    let unit = UnitId { object: crate::ids::ObjectId(7), index: 3 };
    let mut hear = |freed, message| {
        target.freed = freed;
        let origin = Origin { from: Channel::service(NodeId(1)), ticket: None, caller: None };
        dispatch(&mut target, Time(0), origin, message, &mut Outbox::new())
    };
    for message in
        [Message::ForwardDone { unit }, Message::Data { unit, grant: crate::wire::message::Want::Shared, bytes: &[] }]
    {
        assert_eq!([true, false].map(|freed| hear(freed, message).is_ok()), [true, false], "{message:?}");
    }
}

/// It may not have heard of the free yet, and waits for the answer.
#[test]
fn a_copy_that_is_given_back_of_a_unit_that_was_freed_long_ago_is_taken() {
    let unit = UnitId { object: crate::ids::ObjectId(7), index: 3 };
    let mut target = TestNode { freed: true, ..TestNode::new(0, 0, false) };
    let mut ask = |message| {
        let (from, mut out) = (Channel { node: NodeId(1), slot: Slot::thread(0) }, Outbox::new());
        let ticket = Ticket { channel: from, seq: crate::ids::Seq(5) };
        let heard =
            dispatch(&mut target, Time(0), Origin { from, ticket: Some(ticket), caller: None }, message, &mut out);
        let answers = out.sends().iter().map(|send| (send.target, send.ty)).collect::<Vec<_>>();
        (heard.is_ok(), answers == [(Target::Reply(ticket), Message::GiveBackDone { unit }.ty())])
    };
    assert_eq!(ask(Message::GiveBack { unit, bytes: &[1; 8] }), (true, true));
    // A fetch ahead that took longer than two barriers: nobody waits for it.
    assert_eq!(ask(Message::Get { unit, want: crate::wire::message::Want::Shared }), (true, false));
}

#[test]
fn many_tokens_of_which_there_is_much_to_tell_go_in_several_messages() {
    let all = locks(1000);
    let (mut manager, mut asker) = (TestNode::new(0, 1000, false), TestNode::new(1, 300, false));
    let asked = requests(&mut asker, &all);
    assert_eq!(bundles(&asked).len(), 1000_usize.div_ceil(LOCK_BATCH_BYTES / 312));
    let given = deliver(&mut manager, 1, &asked);
    let given = bundles(&given);
    assert!(given.len() > 1000 * 1000 / LOCK_BATCH_BYTES);
    assert!(given.iter().all(|(node, requests, _)| (*node, *requests) == (NodeId(1), false)));
    let told: Vec<Said> = given.into_iter().flat_map(|(_, _, entries)| entries).collect();
    assert_eq!(told, all.iter().map(|lock| (*lock, vec![lock.0 as u8; 1000])).collect::<Vec<_>>());
}

#[test]
fn wishes_that_are_handed_on_go_in_several_messages_too() {
    let all = locks(1000);
    let (mut manager, mut asker) = (TestNode::new(0, 0, false), TestNode::new(1, 0, false));
    drop(deliver(&mut manager, 1, &requests(&mut asker, &all)));
    let mut next = TestNode::new(2, 1000, false);
    let handed = bundles(&deliver(&mut manager, 2, &requests(&mut next, &all)));
    assert!(handed.len() > 1000 * 1000 / LOCK_BATCH_BYTES);
    assert!(handed.iter().all(|(node, requests, _)| (*node, *requests) == (NodeId(1), true)));
    assert_eq!(handed.iter().map(|(_, _, entries)| entries.len()).sum::<usize>(), 1000);
}

/// However long it is: a token whose message does not say it would come without what its lock protects.
#[test]
fn what_is_told_once_for_all_tokens_goes_with_all_of_them() {
    let all = locks(1000);
    let (mut manager, mut asker) = (TestNode::new(0, LOCK_BATCH_BYTES - 200, true), TestNode::new(1, 0, true));
    let given = deliver(&mut manager, 1, &requests(&mut asker, &all));
    let entries: Vec<Said> = given
        .sends()
        .iter()
        .flat_map(|send| {
            let Ok(Message::LockTokens { entries }) = Message::parse(send.ty, given.body(send)) else { panic!() };
            lock_batch::entries(entries).map(|e| e.map(|(l, said)| (l, said.to_vec())).unwrap()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!((given.sends().len(), entries.len()), (1, 1000));
    assert_eq!(entries[0].1.len(), LOCK_BATCH_BYTES - 200);
    assert!(entries[1..].iter().all(|(_, said)| said.is_empty()));
}
