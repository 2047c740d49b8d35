//! Semaphores, condition variables and reader-writer locks: in every order that a network may choose, and one by one.

mod world;

use super::*;
use crate::ids::Seq;
use crate::outbox::Outbox;
use crate::sync;
use crate::sync::condition::ConditionId;
use crate::sync::rwlock::{RwLockId, RwMisuse};
use crate::sync::semaphore::SemaphoreId;
use crate::wire::message::SignalInterest;
use world::*;

const CONSUME: &[Do] = &[Lock, TakeToken, Unlock];
const PRODUCE: &[Do] = &[Lock, Put, Signal, Unlock];
/// The signal comes when the lock is free again: allowed, and the easiest to lose.
const PRODUCE_AND_SIGNAL_LATER: &[Do] = &[Lock, Put, Unlock, Signal];

#[test]
fn no_order_of_messages_loses_a_signal() {
    for producer in [PRODUCE, PRODUCE_AND_SIGNAL_LATER] {
        for programs in [[CONSUME, producer], [producer, CONSUME]] {
            let runs = every_order(&World::new(&programs), 200_000);
            assert!((20..200_000).contains(&runs), "{runs} orders");
        }
    }
}

/// Signals enough for the manager to say that nobody hears them, and then one that somebody waits for.
const SIGNAL_IN_VAIN_AND_PRODUCE: &[Do] = &[Signal, Signal, Lock, Put, Unlock, Signal];

#[test]
fn no_order_of_messages_loses_a_signal_of_one_who_was_told_that_nobody_hears() {
    let (producer, nobody): (_, &[Do]) = (SIGNAL_IN_VAIN_AND_PRODUCE, &[]);
    for programs in [[producer, CONSUME, nobody], [nobody, producer, CONSUME], [CONSUME, nobody, producer]] {
        let runs = every_order(&World::new(&programs), 200_000);
        assert!(runs > 20, "{runs} orders");
    }
    let again: &[Do] =
        &[Broadcast, Signal, Lock, Put, Signal, Unlock, Signal, Broadcast, Signal, Lock, Put, Unlock, Signal];
    let mut hushed = 0;
    for seed in 0..5000 {
        let programs =
            [again, CONSUME, producer, CONSUME, producer, producer, CONSUME, CONSUME, again, CONSUME, CONSUME];
        let world = some_order(World::new(&programs), seed);
        assert!(world.nodes.iter().all(|n| n.objects.is_empty()));
        hushed += world.told_that_nobody_hears;
    }
    assert!(hushed > 1000, "{hushed} times");
}

#[test]
fn tokens_that_nodes_want_ahead_are_never_lost_in_any_order() {
    let waits: &[Do] = &[Want, Lock, Unlock, Want, Lock, Unlock];
    for programs in [[&[Want][..], &[Lock, Unlock], &[Want, Lock, Unlock]], [&[Want, Want], waits, &[Lock, Unlock]]] {
        let runs = every_order(&World::new(&programs), 200_000);
        assert!(runs > 20, "{runs} orders");
    }
    // Two threads a node, and some.
    for seed in 0..3000 {
        let world = World::new(&[
            waits,
            &[Lock, Unlock, Want],
            &[Want],
            waits,
            waits,
            &[Lock, Unlock, Lock, Unlock],
            &[Want, Want],
        ]);
        assert!(some_order(world, seed).nodes.iter().all(|n| n.objects.is_empty()));
    }
}

#[test]
fn signals_wake_as_many_as_they_should_in_any_order() {
    let both: &[Do] = &[Lock, Put, Put, Unlock, Broadcast, Lock, Put, Unlock, Signal];
    for seed in 0..3000 {
        let world = World::new(&[CONSUME, both, CONSUME, CONSUME, PRODUCE_AND_SIGNAL_LATER, PRODUCE, CONSUME, CONSUME]);
        let world = some_order(world, seed);
        assert!(world.nodes.iter().all(|n| n.objects.is_empty()), "conditions without waiters are forgotten");
    }
}

#[test]
fn every_take_matches_a_post_in_every_order() {
    let runs = every_order(&World::new(&[&[Post, Post], &[Take], &[TryTake]]), 200_000);
    assert!((50..200_000).contains(&runs), "{runs} orders");
}

#[test]
fn what_was_given_before_a_meeting_is_there_after_it_and_what_was_posted_may_not_be() {
    let tries: &[Do] = &[Come(3), TryTake];
    let in_vain = |first: &'static [Do]| -> usize {
        let programs = [[first, tries, tries], [tries, first, tries], [tries, tries, first]];
        let worlds = programs.iter().flat_map(|programs| (0..500).map(|seed| (World::new(programs), seed)));
        worlds.map(|(world, seed)| some_order(world, seed).truth.tried_in_vain).sum()
    };
    assert_eq!(in_vain(&[Give, Give, Come(3)]), 0);
    let in_vain = in_vain(&[Post, Post, Come(3)]);
    assert!(in_vain > 10, "{in_vain} tries in vain");
}

#[test]
fn takers_hear_of_as_many_posts_as_were_taken() {
    let mut in_vain = 0;
    for seed in 0..2000 {
        let world =
            World::new(&[&[Post, Post, Take], &[Take, Post], &[TryTake, Post], &[Take], &[Take, Post], &[Post]]);
        in_vain += some_order(world, seed).truth.tried_in_vain;
    }
    assert!(in_vain > 100, "{in_vain} tries in vain");
}

#[test]
fn a_writer_is_alone_and_hears_of_all_before_it_in_every_order() {
    let runs = every_order(&World::new(&[&[Read, Leave], &[Write, Leave], &[Write, Leave]]), 200_000);
    assert!((20..200_000).contains(&runs), "{runs} orders");
}

#[test]
fn who_tries_and_gets_a_reader_writer_lock_is_one_of_its_holders_in_every_order() {
    for programs in [
        [&[TryRead, Leave][..], &[Write, Leave], &[TryWrite, Leave]],
        [&[Read, Leave], &[TryWrite, Leave], &[TryWrite, Leave]],
        [&[TryRead, Leave], &[TryRead, Leave], &[Write, Leave]],
    ] {
        let runs = every_order(&World::new(&programs), 200_000);
        assert!((20..200_000).contains(&runs), "{runs} orders");
    }
    let mut in_vain = 0;
    for seed in 0..1000 {
        let world = World::new(&[&[TryRead, Leave, TryWrite, Leave], &[Write, Leave, Read, Leave], &[TryWrite, Leave]]);
        in_vain += some_order(world, seed).truth.tried_in_vain;
    }
    assert!(in_vain > 100, "{in_vain} tries in vain");
}

#[test]
fn readers_and_writers_of_many_threads_keep_their_promises() {
    let reader: &[Do] = &[Read, Leave, Read, Leave, Write, Leave];
    let writer: &[Do] = &[Write, Leave, Read, Read, Leave, Leave];
    let mut together = 0;
    for seed in 0..2000 {
        let world = World::new(&[reader, &[Read, Leave, Read, Leave], reader, writer, reader]);
        together += usize::from(some_order(world, seed).truth.seen_together > 2);
    }
    assert!(together > 100, "three readers at once in {together} runs");
}

#[test]
fn whoever_leaves_a_meeting_has_heard_of_all_who_came_in_every_order() {
    let runs = every_order(&World::new(&[&[Come(3)], &[Come(3)], &[Come(3)]]), 200_000);
    assert!((20..200_000).contains(&runs), "{runs} orders");
}

#[test]
fn meetings_of_all_threads_follow_each_other() {
    let three: &[Do] = &[Come(5), Come(5), Come(5)];
    for seed in 0..2000 {
        let world = some_order(World::new(&[three; 5]), seed);
        assert!(world.nodes.iter().all(|n| n.objects.is_empty()), "meetings are forgotten when they are over");
        assert_eq!((world.truth.went_on, world.truth.turned_away), (15, 0));
    }
}

#[test]
fn any_threads_may_come_to_a_meeting_of_some() {
    for seed in 0..2000 {
        let world = World::new(&[&[Come(2), Come(2)], &[Come(2)], &[Lock, Unlock, Come(2)], &[Come(2), Come(2)], &[]]);
        // The thread that comes last of all may find nobody left to meet.
        let world = run(world, seed);
        assert!(world.truth.went_on >= 4 && world.truth.turned_away == 0, "{} went on", world.truth.went_on);
    }
}

#[test]
fn a_meeting_of_another_number_is_refused_to_the_one_who_comes_later() {
    let mut manager = Manager::new();
    assert_eq!(manager.come(2, 1), []);
    assert_eq!(manager.come(3, 2), [0], "the first said two");
    assert_eq!(manager.come(2, 3), [1, 3], "who was turned away does not count");
    assert_eq!(manager.come(1, 4), [4], "alone");
    assert_eq!(manager.come(0, 5), [0], "a meeting of nobody");
    assert!(manager.node.objects.is_empty());
}

#[test]
fn to_ask_for_a_meeting_without_a_number_is_misbehaviour() {
    let channel = Channel { node: NodeId(1), slot: Slot(1) };
    let ticket = Ticket { channel, seq: Seq::guarded(channel, 1) };
    let mut manager = Manager::new();
    assert!(manager.with(|objects, cx| objects.on_ask(cx, SyncRequest::SubsetBarrier, 1, ticket, &[])).is_err());
    assert!(manager.node.objects.is_empty());
}

/// A node that manages everything, and a thread elsewhere for each number.
struct Manager {
    node: Node,
    out: Outbox,
}

impl Manager {
    fn new() -> Manager {
        Manager { node: Node::default(), out: Outbox::new() }
    }

    fn with<R>(&mut self, step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R) -> R {
        self.out.clear();
        let Node { objects, known, .. } = &mut self.node;
        step(objects, &mut Context { me: NodeId(0), nodes: 1, caller: None, payload: known, out: &mut self.out })
    }

    fn ask(&mut self, request: SyncRequest, thread: u16) -> Vec<u16> {
        let channel = Channel { node: NodeId(1), slot: Slot(thread) };
        let ticket = Ticket { channel, seq: Seq::guarded(channel, 1) };
        self.with(|objects, cx| objects.on_ask(cx, request, 1, ticket, &[])).unwrap();
        self.answered()
    }

    fn come(&mut self, threads: u32, thread: u16) -> Vec<u16> {
        let channel = Channel { node: NodeId(1), slot: Slot(thread) };
        let ticket = Ticket { channel, seq: Seq::guarded(channel, 1) };
        self.with(|objects, cx| objects.on_meet(cx, (1, threads), ticket, (&[], &[]))).unwrap();
        self.answered()
    }

    fn tell(&mut self, update: SyncUpdate) -> Vec<u16> {
        self.with(|objects, cx| objects.on_tell(cx, NodeId(1), (update, 1), &[])).unwrap();
        self.answered()
    }

    /// Who gets what it asked for by this step.
    fn answered(&self) -> Vec<u16> {
        let sent = self.out.sends().iter().map(|s| Message::parse(s.ty, self.out.body(s)).unwrap());
        let answers = sent.filter_map(|message| match message {
            Message::Answer { slot, yes, .. } => Some(if yes { slot.0 } else { 0 }),
            _ => None,
        });
        answers.collect()
    }
}

#[test]
fn a_semaphore_serves_those_who_wait_in_their_order() {
    let mut manager = Manager::new();
    for thread in [3, 1, 2] {
        assert_eq!(manager.ask(SyncRequest::SemWait, thread), []);
    }
    assert_eq!(manager.ask(SyncRequest::SemTryWait, 4), [0], "told at once that there is none");
    let served: Vec<_> = (0..4).flat_map(|_| manager.tell(SyncUpdate::SemPost)).collect();
    assert_eq!(served, [3, 1, 2]);
    assert_eq!(manager.ask(SyncRequest::SemTryWait, 4), [4], "the fourth post was kept");
    assert!(manager.node.objects.is_empty());
}

#[test]
fn a_post_lets_all_pass_who_leave_it_and_one_who_takes_it() {
    let mut manager = Manager::new();
    for (request, thread) in
        [(SyncRequest::SemPass, 1), (SyncRequest::SemWait, 2), (SyncRequest::SemPass, 3), (SyncRequest::SemWait, 4)]
    {
        assert_eq!(manager.ask(request, thread), []);
    }
    assert_eq!(manager.tell(SyncUpdate::SemPost), [1, 3, 2]);
    assert_eq!(manager.ask(SyncRequest::SemPass, 5), [], "thread 2 took it");
    assert_eq!(manager.tell(SyncUpdate::SemPost), [5, 4]);
    assert_eq!(manager.ask(SyncRequest::SemPass, 6), []);
    assert_eq!(manager.tell(SyncUpdate::SemPost), [6]);
    assert_eq!(manager.ask(SyncRequest::SemPass, 7), [7], "it is still there");
    assert_eq!(manager.ask(SyncRequest::SemTryWait, 8), [8], "and for one to take");
    assert!(manager.node.objects.is_empty());
}

#[test]
fn a_semaphore_that_is_reset_has_none_and_keeps_those_who_wait() {
    let mut manager = Manager::new();
    assert_eq!((manager.ask(SyncRequest::SemGive, 1), manager.ask(SyncRequest::SemGive, 2)), (vec![1], vec![2]));
    assert_eq!(manager.ask(SyncRequest::SemReset, 3), [3]);
    assert_eq!(manager.ask(SyncRequest::SemTryWait, 4), [0], "there is none");
    assert_eq!((manager.ask(SyncRequest::SemWait, 5), manager.ask(SyncRequest::SemPass, 6)), (vec![], vec![]));
    assert_eq!(manager.ask(SyncRequest::SemReset, 3), [3]);
    assert_eq!(manager.ask(SyncRequest::SemGive, 1), [6, 5, 1]);
    assert!(manager.node.objects.is_empty());
}

#[test]
fn a_condition_wakes_in_the_order_of_joining_and_keeps_a_signal_for_who_has_joined() {
    let mut manager = Manager::new();
    assert_eq!(manager.tell(SyncUpdate::CondSignal), [], "forgotten");
    for thread in [3, 1, 2] {
        assert_eq!(manager.ask(SyncRequest::CondJoin, thread), [thread]);
    }
    assert_eq!(manager.ask(SyncRequest::CondAwait, 1), []);
    assert_eq!(manager.tell(SyncUpdate::CondSignal), [], "for thread 3, which has not asked yet");
    assert_eq!(manager.tell(SyncUpdate::CondSignal), [1]);
    assert_eq!(manager.ask(SyncRequest::CondAwait, 3), [3]);
    assert_eq!(manager.ask(SyncRequest::CondAwait, 2), []);
    assert_eq!(manager.tell(SyncUpdate::CondBroadcast), [2]);
    assert!(manager.node.objects.is_empty());
}

impl Manager {
    /// What it says by this step of who hears signals: to which node, under which number.
    fn said(&self) -> Vec<(u16, u32, SignalInterest)> {
        let sends = self.out.sends().iter().map(|s| (s.target, Message::parse(s.ty, self.out.body(s)).unwrap()));
        let said = sends.filter_map(|(target, message)| match (target, message) {
            (Target::Post { node, .. }, Message::Hears { serial, interest, .. }) => Some((node.0, serial, interest)),
            _ => None,
        });
        said.collect()
    }

    fn understood(&mut self, serial: u32) -> Result<Vec<u16>, Misbehaved> {
        self.with(|objects, cx| objects.on_hears(cx, NodeId(1), (1, serial), SignalInterest::Understood))?;
        Ok(self.answered())
    }
}

#[test]
fn who_joins_is_told_so_when_everybody_speaks_who_was_told_that_nobody_hears() {
    let mut manager = Manager::new();
    assert_eq!(manager.tell(SyncUpdate::CondSignal), []);
    assert_eq!(manager.said(), [], "one may come too early");
    manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (SyncUpdate::CondBroadcast, 1), &[])).unwrap();
    assert_eq!(manager.said(), [(1, 1, SignalInterest::Nobody)]);
    manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (SyncUpdate::CondBroadcast, 1), &[])).unwrap();
    assert_eq!(manager.said(), [], "it was under way");

    assert_eq!(manager.ask(SyncRequest::CondJoin, 4), []);
    assert_eq!(manager.said(), [(1, 1, SignalInterest::Somebody)]);
    assert_eq!(manager.ask(SyncRequest::CondJoin, 5), []);
    assert_eq!(manager.said(), [], "it was told so already");
    assert!(manager.understood(2).is_err() && manager.understood(0).is_err(), "it was not told so");
    assert_eq!(manager.understood(1).unwrap(), [4, 5]);
    assert!(manager.understood(1).is_err(), "it speaks already");
    assert_eq!(manager.ask(SyncRequest::CondJoin, 6), [6]);
}

#[test]
fn a_node_is_told_that_nobody_hears_ever_more_seldom_where_somebody_does() {
    let mut manager = Manager::new();
    let mut vain = Vec::new();
    for serial in 1..=8 {
        let signal = |manager: &mut Manager| {
            manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (SyncUpdate::CondSignal, 1), &[])).unwrap();
            manager.said() == [(1, serial, SignalInterest::Nobody)]
        };
        vain.push(1 + (0..).take_while(|_| !signal(&mut manager)).count());
        assert_eq!(manager.ask(SyncRequest::CondJoin, 3), []);
        assert_eq!(manager.understood(serial).unwrap(), [3]);
        manager.tell(SyncUpdate::CondSignal);
        assert_eq!(manager.ask(SyncRequest::CondAwait, 3), [3]);
    }
    assert_eq!(vain, [2, 8, 32, 128, 512, 2048, 8192, 8192]);
}

#[test]
fn a_node_speaks_again_whatever_overtakes_what() {
    // Node 1 manages this one.
    let name = (0..).find(|name| SyncObject { kind: Kind::Condition, name: *name }.manager(2) == NodeId(1)).unwrap();
    let mut node = Node::default();
    let mut out = Outbox::new();
    let mut hears = |serial, interest| {
        out.clear();
        let mut cx = Context { me: NodeId(0), nodes: 2, caller: None, payload: &mut node.known, out: &mut out };
        let result = node.objects.on_hears(&mut cx, NodeId(1), (name, serial), interest);
        let answers = out.sends().len();
        (result.is_ok(), answers, node.objects.cond_is_unheard(ConditionId(name), NodeId(0), 2))
    };
    assert_eq!(hears(1, SignalInterest::Nobody), (true, 0, true));
    assert_eq!(hears(1, SignalInterest::Somebody), (true, 1, false));
    assert_eq!(hears(1, SignalInterest::Nobody), (true, 0, false), "a second one, late");
    assert_eq!(hears(2, SignalInterest::Somebody), (true, 1, false), "before that to which it belongs");
    assert_eq!(hears(2, SignalInterest::Nobody), (true, 0, false));
    assert_eq!(hears(3, SignalInterest::Nobody), (true, 0, true));
    assert_eq!(hears(2, SignalInterest::Somebody), (true, 1, true), "once more, late");
    assert_eq!(hears(3, SignalInterest::Somebody), (true, 1, false));
    assert_eq!(hears(1, SignalInterest::Somebody), (true, 1, false));
    assert_eq!(hears(3, SignalInterest::Nobody), (true, 0, false), "what was said first of two stays over");
    assert_eq!(hears(4, SignalInterest::Nobody), (true, 0, true));
    assert_eq!(hears(4, SignalInterest::Understood), (false, 0, true), "it has told nobody");
    let other = (0..).find(|name| SyncObject { kind: Kind::Condition, name: *name }.manager(2) == NodeId(0)).unwrap();
    let mut cx = Context { me: NodeId(0), nodes: 2, caller: None, payload: &mut node.known, out: &mut out };
    assert!(node.objects.on_hears(&mut cx, NodeId(1), (other, 5), SignalInterest::Nobody).is_err(), "not its manager");
}

#[test]
fn a_post_tells_of_what_was_written_and_a_signal_leaves_that_to_the_lock_that_its_sender_holds() {
    let elsewhere =
        |kind| (0..).find(|name| SyncObject { kind, name: *name }.manager(2) == NodeId(1)).unwrap_or_default();
    let payload_of = |tell: &dyn Fn(&mut SyncObjects, &mut Context<'_>)| {
        let (mut objects, mut known, mut out) = (SyncObjects::new(), Known::of(7), Outbox::new());
        tell(&mut objects, &mut Context { me: NodeId(0), nodes: 2, caller: None, payload: &mut known, out: &mut out });
        match Message::parse(out.sends()[0].ty, out.body(&out.sends()[0])) {
            Ok(Message::Tell { payload, .. } | Message::Ask { knowledge: payload, .. }) => payload.len(),
            other => panic!("{other:?}"),
        }
    };
    let (semaphore, condition) = (SemaphoreId(elsewhere(Kind::Semaphore)), ConditionId(elsewhere(Kind::Condition)));
    assert!(payload_of(&|objects, cx| objects.sem_post(cx, semaphore)) > 0);
    let given = payload_of(&|objects, cx| assert!(!objects.sem_give(cx, semaphore, Slot::thread(0))));
    assert_eq!(given, payload_of(&|objects, cx| objects.sem_post(cx, semaphore)));
    for (under_lock, tells) in [(false, true), (true, false)] {
        assert_eq!(payload_of(&|objects, cx| objects.cond_signal(cx, condition, under_lock)) > 0, tells);
        assert_eq!(payload_of(&|objects, cx| objects.cond_broadcast(cx, condition, under_lock)) > 0, tells);
    }
}

#[test]
fn readers_and_writers_take_turns() {
    let mut manager = Manager::new();
    assert_eq!((manager.ask(SyncRequest::ReadLock, 1), manager.ask(SyncRequest::ReadLock, 2)), (vec![1], vec![2]));
    assert_eq!(manager.ask(SyncRequest::WriteLock, 3), []);
    assert_eq!(manager.ask(SyncRequest::ReadLock, 4), [], "a writer that waits keeps new readers out");
    assert_eq!(manager.ask(SyncRequest::WriteLock, 5), []);
    assert_eq!(manager.ask(SyncRequest::ReadLock, 6), []);
    assert_eq!((manager.tell(SyncUpdate::ReadUnlock), manager.tell(SyncUpdate::ReadUnlock)), (vec![], vec![3]));
    assert_eq!(manager.tell(SyncUpdate::WriteUnlock), [4, 6], "all readers, before the next writer");
    assert_eq!((manager.tell(SyncUpdate::ReadUnlock), manager.tell(SyncUpdate::ReadUnlock)), (vec![], vec![5]));
    assert_eq!(manager.tell(SyncUpdate::WriteUnlock), []);
    assert!(manager.node.objects.is_empty());
}

#[test]
fn who_tries_a_reader_writer_lock_is_answered_at_once_and_queues_nowhere() {
    let mut manager = Manager::new();
    assert_eq!(
        (manager.ask(SyncRequest::TryReadLock, 1), manager.ask(SyncRequest::TryReadLock, 2)),
        (vec![1], vec![2])
    );
    assert_eq!(manager.ask(SyncRequest::TryWriteLock, 3), [0], "others read");
    assert_eq!(manager.ask(SyncRequest::WriteLock, 4), []);
    assert_eq!(manager.ask(SyncRequest::TryReadLock, 5), [0], "a writer that waits keeps new readers out");
    assert_eq!((manager.tell(SyncUpdate::ReadUnlock), manager.tell(SyncUpdate::ReadUnlock)), (vec![], vec![4]));
    assert_eq!(
        (manager.ask(SyncRequest::TryReadLock, 6), manager.ask(SyncRequest::TryWriteLock, 6)),
        (vec![0], vec![0])
    );
    assert_eq!(manager.tell(SyncUpdate::WriteUnlock), []);
    assert_eq!(manager.ask(SyncRequest::TryWriteLock, 7), [7]);
    assert_eq!(manager.ask(SyncRequest::ReadLock, 8), []);
    assert_eq!(manager.tell(SyncUpdate::WriteUnlock), [8]);
    assert_eq!(manager.tell(SyncUpdate::ReadUnlock), []);
    assert!(manager.node.objects.is_empty());
}

#[test]
fn who_holds_a_reader_writer_lock_gets_no_more_of_it_by_trying_than_by_asking() {
    let mut manager = Manager::new();
    let (lock, slot) = (RwLockId(1), Slot(1));
    let tries = |manager: &mut Manager, writes: bool| {
        manager.with(|objects, cx| match writes {
            true => objects.try_wr_lock(cx, lock, slot),
            false => objects.try_rd_lock(cx, lock, slot),
        })
    };
    let ends = |manager: &mut Manager| manager.with(|objects, cx| objects.rw_unlock(cx, lock, slot));
    assert_eq!([false, false, true].map(|writes| tries(&mut manager, writes)), [Some(true), Some(true), Some(false)]);
    assert_eq!([(); 3].map(|()| ends(&mut manager)), [Ok(()), Ok(()), Err(RwMisuse::NotHeld)]);
    assert_eq!([true, true, false].map(|writes| tries(&mut manager, writes)), [Some(true), Some(false), Some(false)]);
    assert_eq!(ends(&mut manager), Ok(()));
}

#[test]
fn what_no_correct_peer_sends_changes_nothing() {
    let mut manager = Manager::new();
    for update in [SyncUpdate::ReadUnlock, SyncUpdate::WriteUnlock] {
        assert!(manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (update, 1), b"12345678")).is_err());
    }
    let request = (SyncRequest::SemWait, 1);
    assert!(manager.with(|objects, cx| objects.on_answer(cx, request, Slot(1), true, &[])).is_err());
    let channel = Channel { node: NodeId(1), slot: Slot(1) };
    let ticket = Ticket { channel, seq: Seq::guarded(channel, 1) };
    assert!(manager.with(|objects, cx| objects.on_ask(cx, SyncRequest::CondAwait, 1, ticket, &[])).is_err());
    assert!(manager.node.objects.is_empty() && manager.out.is_empty());
}

#[test]
fn a_reader_writer_lock_that_is_handed_back_is_free_again_and_was_not_released() {
    let (mut manager, lock, slot) = (Manager::new(), RwLockId(1), Slot::thread(0));
    for write in [true, false] {
        let take = |objects: &mut SyncObjects, cx: &mut sync::Context<'_>| match write {
            true => objects.wr_lock(cx, lock, slot),
            false => objects.rd_lock(cx, lock, slot),
        };
        assert_eq!(manager.with(take), Ok(true));
        manager.with(|objects, cx| objects.rw_hand_back(cx, lock, slot));
        assert!(manager.with(|objects, _| objects.is_empty()), "nothing is told and nobody holds it");
        let unlocked = manager.with(|objects, cx| objects.rw_unlock(cx, lock, slot));
        assert_eq!(unlocked, Err(crate::sync::rwlock::RwMisuse::NotHeld));
    }
}

#[test]
fn a_thread_that_would_wait_for_itself_is_told_so() {
    let (mut manager, slot) = (Manager::new(), Slot::thread(0));
    assert_eq!(
        manager.with(|objects, cx| objects.rw_unlock(cx, RwLockId(1), slot)),
        Err(crate::sync::rwlock::RwMisuse::NotHeld)
    );
    for _ in 0..2 {
        assert_eq!(
            manager.with(|objects, cx| objects.rd_lock(cx, RwLockId(1), slot)),
            Ok(true),
            "a reader may enter again"
        );
    }
    assert_eq!(
        manager.with(|objects, cx| objects.wr_lock(cx, RwLockId(1), slot)),
        Err(crate::sync::rwlock::RwMisuse::WaitsForItself)
    );
    for _ in 0..2 {
        assert_eq!(manager.with(|objects, cx| objects.rw_unlock(cx, RwLockId(1), slot)), Ok(()));
    }
    assert_eq!(manager.with(|objects, cx| objects.wr_lock(cx, RwLockId(1), slot)), Ok(true));
    assert_eq!(
        manager.with(|objects, cx| objects.rd_lock(cx, RwLockId(1), slot)),
        Err(crate::sync::rwlock::RwMisuse::WaitsForItself)
    );
    assert_eq!(manager.with(|objects, cx| objects.rw_unlock(cx, RwLockId(1), slot)), Ok(()));
    assert_eq!(
        manager.with(|objects, cx| objects.rw_unlock(cx, RwLockId(1), slot)),
        Err(crate::sync::rwlock::RwMisuse::NotHeld)
    );
}

#[test]
fn a_name_costs_little_while_it_is_used_and_nothing_when_not() {
    assert!(size_of::<(SyncObject, Entry)>() <= 48, "{} bytes", size_of::<(SyncObject, Entry)>());
    let mut manager = Manager::new();
    for name in 0..1000 {
        manager.with(|objects, cx| objects.sem_post(cx, SemaphoreId(name)));
        manager.with(|objects, cx| objects.cond_broadcast(cx, ConditionId(name), false));
        assert!(manager.with(|objects, cx| objects.wr_lock(cx, RwLockId(name), Slot(1))).unwrap());
        manager.with(|objects, cx| objects.rw_unlock(cx, RwLockId(name), Slot(1))).unwrap();
    }
    assert_eq!(manager.node.objects.len(), 1000, "the semaphores, which are not as they were at first");
}

#[test]
fn an_answer_wakes_the_thread_that_asked_for_it() {
    let name = (0..).find(|name| SyncObject { kind: Kind::Semaphore, name: *name }.manager(2) == NodeId(1)).unwrap();
    let (mut objects, mut known, mut out, slot) = (SyncObjects::new(), Known::of(7), Outbox::new(), Slot::thread(0));
    let mut cx = Context { me: NodeId(0), nodes: 2, caller: None, payload: &mut known, out: &mut out };
    assert_eq!(objects.sem_try_wait(&mut cx, SemaphoreId(name), slot), None);
    objects.on_answer(&mut cx, (SyncRequest::SemTryWait, name), slot, false, &[]).unwrap();
    assert_eq!(cx.out.wakes(), [slot]);
    assert_eq!(objects.collect(SyncRequest::SemTryWait, name, slot), Some(false));
}

#[test]
fn a_node_that_signals_one_condition_in_vain_is_heard_while_anybody_waits_for_another() {
    let mut manager = Manager::new();
    assert_eq!(manager.ask(SyncRequest::CondJoin, 3), [3]);
    for _ in 0..10 {
        manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (SyncUpdate::CondSignal, 2), &[])).unwrap();
        assert_eq!(manager.said(), []);
    }
}

#[test]
fn who_joins_waits_for_the_last_of_those_who_are_to_speak() {
    let mut manager = Manager::new();
    for node in [1, 2] {
        for _ in 0..2 {
            manager.with(|objects, cx| objects.on_tell(cx, NodeId(node), (SyncUpdate::CondSignal, 1), &[])).unwrap();
        }
    }
    assert_eq!(manager.ask(SyncRequest::CondJoin, 4), []);
    assert_eq!(manager.said(), [(1, 1, SignalInterest::Somebody), (2, 1, SignalInterest::Somebody)]);
    assert_eq!(manager.understood(1).unwrap(), [], "node 2 has not answered");
    manager.with(|objects, cx| objects.on_hears(cx, NodeId(2), (1, 1), SignalInterest::Understood)).unwrap();
    assert_eq!(manager.answered(), [4]);
}

#[test]
fn whoever_passes_a_semaphore_hears_of_what_was_posted_and_who_is_told_that_there_is_none_hears_nothing() {
    let mut manager = Manager::new();
    let heard = |manager: &Manager| match Message::parse(
        manager.out.sends()[0].ty,
        manager.out.body(&manager.out.sends()[0]),
    ) {
        Ok(Message::Answer { payload, .. }) => payload.len(),
        other => panic!("{other:?}"),
    };
    manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (SyncUpdate::SemPost, 1), &7_u64.to_be_bytes())).unwrap();
    assert_eq!(manager.ask(SyncRequest::SemPass, 1), [1]);
    assert_eq!(heard(&manager), 8);
    manager.with(|objects, cx| objects.on_tell(cx, NodeId(1), (SyncUpdate::SemPost, 1), &8_u64.to_be_bytes())).unwrap();
    assert_eq!(manager.ask(SyncRequest::SemReset, 2), [2]);
    assert_eq!(manager.ask(SyncRequest::SemTryWait, 3), [0]);
    assert_eq!(heard(&manager), 0);
}
