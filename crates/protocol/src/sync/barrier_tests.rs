//! A little network of barriers that loses what it is told to.

use super::*;
use crate::sync::reduce::Reduction;
use crate::sync::reduce::{Number, Operator};
use crate::wire::message::types;

struct Net {
    barriers: Vec<Barrier>,
    wire: Vec<Sent>,
    now: Time,
    sent: usize,
}

/// A message under way.
#[derive(Clone)]
struct Sent {
    from: NodeId,
    to: (NodeId, Slot),
    ty: crate::wire::header::MsgType,
    body: Vec<u8>,
}

impl Net {
    fn new(nodes: usize, threads: usize) -> Net {
        let barriers = NodeId::all(nodes).map(|n| Barrier::new(n, nodes, threads)).collect();
        Net { barriers, wire: Vec::new(), now: Time(0), sent: 0 }
    }

    fn step<R>(&mut self, node: usize, f: impl FnOnce(&mut Barrier, Time, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let result = f(&mut self.barriers[node], self.now, &mut out);
        for send in out.sends() {
            let (to, slot) = match send.target {
                Target::Free { node, slot } => (node, slot),
                Target::Post { node, .. } if send.ty == types::APART => (node, Slot::SERVICE),
                other => panic!("barriers send free messages, not {other:?}"),
            };
            self.sent += 1;
            let (from, body) = (NodeId(node as u16), out.body(send).to_vec());
            self.wire.push(Sent { from, to: (to, slot), ty: send.ty, body });
        }
        result
    }

    fn arrive(&mut self, node: usize, thread: usize, what: Collective, payload: &[u8]) -> Result<u32, Mismatch> {
        self.step(node, |b, now, out| b.arrive(now, Slot::thread(thread), what, (payload, &[]), out))
    }

    fn deliver(&mut self, mut lost: impl FnMut(NodeId, NodeId) -> bool) {
        while let Some(sent) = self.wire.pop() {
            if !lost(sent.from, sent.to.0) {
                self.take(sent);
            }
        }
    }

    fn take(&mut self, Sent { from, to: (to, _), ty, body }: Sent) {
        self.step(to.index(), |b, now, out| match Message::parse(ty, &body).unwrap() {
            Message::Arrive { epoch, repeated, elsewhere, what, payload, notices } => {
                b.on_arrive(now, None, Heard { from, epoch, repeated, elsewhere, what, payload, notices }, out);
            }
            Message::Noted { epoch } => b.on_noted(now, from, epoch),
            Message::Release { epoch, what, payload, notices } => {
                b.on_release(None, (epoch, what), (payload, notices), out);
            }
            Message::Apart { epoch, apart } => b.on_apart(from, (epoch, apart), None, out),
            other => panic!("{other:?}"),
        });
    }

    fn open(&self, epoch: u32) -> usize {
        self.barriers.iter().filter(|b| b.is_open(Collective::BARRIER, epoch) == Ok(true)).count()
    }
}

#[test]
fn a_barrier_of_few_nodes_costs_one_message_a_pair() {
    let mut net = Net::new(4, 1);
    for node in 0..4 {
        assert_eq!(net.open(0), 0);
        net.arrive(node, 0, Collective::BARRIER, &[]).unwrap();
    }
    net.deliver(|_, _| false);
    assert_eq!((net.open(0), net.sent), (4, 12));
}

#[test]
fn a_barrier_of_many_nodes_climbs_a_tree() {
    let mut net = Net::new(100, 1);
    for node in (0..100).rev() {
        net.arrive(node, 0, Collective::BARRIER, &[]).unwrap();
        net.deliver(|_, _| false);
    }
    assert_eq!((net.open(0), net.sent), (100, 2 * 99));
}

#[test]
fn lost_arrivals_and_releases_are_made_good() {
    for nodes in [3, 40] {
        let mut net = Net::new(nodes, 1);
        let mut count = 0_u64;
        for epoch in 0..20 {
            for node in 0..nodes {
                net.arrive(node, 0, Collective::BARRIER, &[]).unwrap();
            }
            while net.open(epoch) < nodes {
                net.deliver(|_, _| {
                    count = count.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    count >> 33 & 3 == 0
                });
                net.now = net.now + Span::from_ms(300);
                for node in 0..nodes {
                    net.step(node, |b, now, out| b.on_timeout(now, out));
                }
            }
        }
    }
}

#[test]
fn a_sum_counts_every_thread_once_on_every_node() {
    let sum = Collective::reduce(Reduction { operator: Operator::Sum, number: Number::I64 }, 1);
    for nodes in [2, 30] {
        let mut net = Net::new(nodes, 2);
        for node in 0..nodes {
            for thread in 0..2 {
                net.arrive(node, thread, sum, &(1_i64 << thread).to_be_bytes()).unwrap();
            }
        }
        net.deliver(|_, _| false);
        let expected = (3 * nodes as i64).to_be_bytes();
        assert!(net.barriers.iter().all(|b| b.result(sum) == expected));
    }
}

/// Who missed the release is told the result again.
#[test]
fn a_sum_is_the_same_for_a_node_to_which_the_release_was_lost() {
    let sum = Collective::reduce(Reduction { operator: Operator::Sum, number: Number::I64 }, 1);
    let mut net = Net::new(30, 1);
    (0..30).for_each(|node| _ = net.arrive(node, 0, sum, &1_i64.to_be_bytes()).unwrap());
    net.deliver(|from, to| (from, to) == (NodeId(0), NodeId(1)));
    assert!(net.barriers.iter().filter(|b| b.is_open(sum, 0) == Ok(true)).count() < 30);
    net.now = net.now + Span::from_ms(300);
    net.step(1, |b, now, out| b.on_timeout(now, out));
    net.deliver(|_, _| false);
    assert!(net.barriers.iter().all(|b| b.result(sum) == 30_i64.to_be_bytes()));
}

/// A thread of this node waits at the barrier to come when that is told of.
#[test]
fn calls_that_differ_fail_who_waits_for_them_already_when_the_call_before_is_over() {
    let (what, mut out) = (Collective::create(7), Outbox::new());
    let mut net = Net::new(2, 2);
    net.arrive(0, 0, what, &[]).unwrap();
    net.arrive(0, 1, Collective::BARRIER, &[]).unwrap();
    let apart = Apart([(NodeId(1), Collective::RENDEZVOUS), (NodeId(1), Collective::BARRIER)]);
    net.barriers[0].on_apart(NodeId(1), (1, apart), None, &mut out);
    assert_eq!(net.open(0), 0, "that is not yet");
    net.arrive(1, 0, what, &[]).unwrap();
    net.deliver(|_, _| false);
    assert_eq!(net.barriers[0].is_open(what, 0), Ok(true));
    let met = net.barriers[0].is_open(Collective::BARRIER, 0).unwrap_err();
    assert_eq!(met.to_string(), "a barrier here met a rendezvous at node 1");
}

#[test]
fn word_of_another_barrier_changes_nothing() {
    let mut net = Net::new(100, 1);
    (0..100).for_each(|node| _ = net.arrive(node, 0, Collective::BARRIER, &[]).unwrap());
    let next = net.barriers[99].next_timeout();
    assert!(next.is_some());
    net.step(99, |b, now, _| b.on_noted(now, NodeId(12), 7));
    assert_eq!(net.barriers[99].next_timeout(), next);
    net.deliver(|_, _| false);
    let sent = net.sent;
    let heard = Heard {
        from: NodeId(99),
        epoch: 0,
        repeated: true,
        elsewhere: false,
        what: Collective::BARRIER,
        payload: &[],
        notices: &[],
    };
    net.step(3, |b, now, out| b.on_arrive(now, None, heard, out));
    assert_eq!(net.sent, sent, "node 99 is no child of node 3");
}

#[test]
fn different_calls_at_one_barrier_are_an_error_that_names_both() {
    let mut net = Net::new(2, 1);
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap();
    net.arrive(1, 0, Collective::EXIT, &[]).unwrap();
    net.deliver(|_, _| false);
    let mismatch = net.barriers[0].is_open(Collective::BARRIER, 0).unwrap_err();
    assert_eq!(mismatch.to_string(), "a barrier here met the end of the program at node 1");
}

#[test]
fn a_departure_ends_the_wait_at_the_closing_barrier_and_no_other() {
    for (what, ends) in [(Collective::EXIT, true), (Collective::LAST_WRITES, false), (Collective::BARRIER, false)] {
        let mut net = Net::new(2, 1);
        net.arrive(0, 0, what, &[]).unwrap();
        assert_eq!(net.step(0, |b, _, out| b.on_departure(None, out)), ends, "{what:?}");
        assert_eq!(net.barriers[0].is_open(what, 0).unwrap(), ends, "{what:?}");
    }
}

/// In a tree and without one; the leaver inside and at the edge.
#[test]
fn a_call_that_meets_a_node_at_the_end_of_its_part_fails_everywhere_and_all_go_on() {
    let sum = Collective::reduce(Reduction { operator: Operator::Sum, number: Number::I64 }, 1);
    for (nodes, leaver) in [(2, 1), (4, 0), (4, 3), (30, 0), (30, 2), (30, 29)] {
        let mut net = Net::new(nodes, 1);
        for node in 0..nodes {
            let what = if node == leaver { Collective::LEAVE } else { sum };
            net.arrive(node, 0, what, if node == leaver { &[] } else { &[0; 8] }).unwrap();
        }
        net.deliver(|_, _| false);
        assert_eq!(net.open(0), nodes, "{nodes} nodes, of which {leaver} left");
        assert!(net.barriers.iter().all(|b| b.left(sum) == Some(NodeId(leaver as u16))));
        for node in 0..nodes {
            net.arrive(node, 0, Collective::LEAVE, &[]).unwrap();
        }
        net.deliver(|_, _| false);
        assert_eq!(net.open(1), nodes);
        assert!(net.barriers.iter().all(|b| b.left(Collective::LEAVE).is_none()));
    }
}

#[test]
fn what_a_reduction_came_to_outlives_calls_of_one_thread_of_each_node() {
    let sum = Collective::reduce(Reduction { operator: Operator::Sum, number: Number::I64 }, 1);
    for nodes in [1, 2, 30] {
        let mut net = Net::new(nodes, 2);
        for node in 0..nodes {
            for thread in 0..2 {
                net.arrive(node, thread, sum, &1_i64.to_be_bytes()).unwrap();
            }
        }
        net.deliver(|_, _| false);
        // Thread 1 has not looked yet when thread 0 goes on.
        for (what, payload) in [(Collective::create(7), 0_i64), (Collective::PLACE, 5)] {
            let numbers: Vec<u32> =
                (0..nodes).map(|node| net.arrive(node, 0, what, &payload.to_be_bytes()).unwrap()).collect();
            net.deliver(|_, _| false);
            assert!(net.barriers.iter().zip(numbers).all(|(b, number)| b.is_open(what, number) == Ok(true)));
        }
        let expected = (2 * nodes as i64).to_be_bytes();
        assert!(net.barriers.iter().all(|b| b.result(sum) == expected));
        assert!(net.barriers.iter().all(|b| b.result(Collective::PLACE) == 5_i64.to_be_bytes()));
    }
}

/// The others of its node wait at the next barrier meanwhile, before it calls or after.
#[test]
fn one_thread_of_each_node_calls_while_the_others_wait_for_it_at_a_barrier() {
    let what = Collective::create(7);
    for (nodes, first) in [(1, 0), (2, 0), (2, 1), (5, 0), (30, 1)] {
        let mut net = Net::new(nodes, 2);
        for node in 0..nodes {
            // The same order on no two neighbours.
            let calls = if node % 2 == first { [0, 1] } else { [1, 0] };
            for call in calls {
                let what = if call == 0 { what } else { Collective::BARRIER };
                assert_eq!(net.arrive(node, call, what, &[]), Ok(0), "{nodes} nodes");
            }
        }
        net.deliver(|_, _| false);
        assert!(net.barriers.iter().all(|b| b.is_open(what, 0) == Ok(true)), "{nodes} nodes");
        assert_eq!(net.open(0), 0, "thread 0 is not there");
        for node in 0..nodes {
            net.arrive(node, 0, Collective::BARRIER, &[]).unwrap();
        }
        net.deliver(|_, _| false);
        assert_eq!(net.open(0), nodes);
    }
}

#[test]
fn two_threads_of_a_node_cannot_both_call_for_it() {
    let mut net = Net::new(2, 2);
    net.arrive(0, 0, Collective::create(7), &[]).unwrap();
    let mismatch = net.arrive(0, 1, Collective::EXIT, &[]).unwrap_err();
    assert_eq!(
        mismatch.to_string(),
        "the end of the program here met the creation of a shared object or allocation of memory in another thread of \
         this node"
    );
}

/// Who had heard of another call before its own said nothing, and the others waited for it for ever.
#[test]
fn whoever_hears_first_of_calls_that_differ_lets_the_others_hear_of_it() {
    for nodes in [2, 4, 100] {
        let mut net = Net::new(nodes, 1);
        (1..nodes).for_each(|node| assert!(net.arrive(node, 0, Collective::BARRIER, &[]).is_ok()));
        net.deliver(|_, _| false);
        let mismatch = net.arrive(0, 0, Collective::EXIT, &[]).unwrap_err().to_string();
        assert!(mismatch.starts_with("the end of the program here met a barrier at node"), "{mismatch}");
        net.deliver(|_, _| false);
        for barrier in &net.barriers[1..] {
            let mismatch = barrier.is_open(Collective::BARRIER, 0).unwrap_err().to_string();
            assert_eq!(mismatch, "a barrier here met the end of the program at node 0");
        }
    }
}

/// Neither who made one of the calls, nor who only came between them, nor who has not called yet waits for ever; each
/// is told once, by its own call.
#[test]
fn calls_that_differ_deep_in_the_tree_end_those_of_all() {
    for (other, late) in [(99, 50), (12, 99), (3, 40), (60, 0)] {
        let mut net = Net::new(100, 1);
        let call = |node| if node == other { Collective::RENDEZVOUS } else { Collective::BARRIER };
        (0..100).filter(|node| *node != late).for_each(|node| _ = net.arrive(node, 0, call(node), &[]));
        net.deliver(|_, _| false);
        assert_eq!(net.barriers.iter().filter(|b| b.mismatch.is_some()).count(), 99, "{other} {late}");
        let first = net.arrive(late, 0, call(late), &[]);
        net.deliver(|_, _| false);
        let met = first.err().unwrap_or_else(|| net.barriers[late].is_open(call(late), 0).unwrap_err());
        assert_eq!(met.to_string(), format!("a barrier here met a rendezvous at node {other}"));
        for (node, barrier) in net.barriers.iter().enumerate() {
            assert_eq!(barrier.is_open(call(node), 0).map_err(|met| met.earlier), Err(false));
            assert_eq!(barrier.next_timeout(), None);
        }
        assert!(net.arrive(late, 0, Collective::BARRIER, &[]).unwrap_err().earlier);
    }
}

/// A node that has not heard yet that a barrier is open passes it before the calls behind it fail.
#[test]
fn news_of_calls_that_differ_wait_for_the_barrier_before() {
    let mut net = Net::new(10, 1);
    (0..10).for_each(|node| _ = net.arrive(node, 0, Collective::BARRIER, &[]));
    net.deliver(|from, to| from == NodeId(0) && to == NodeId(3));
    assert_eq!(net.open(0), 9);
    net.arrive(1, 0, Collective::BARRIER, &[]).unwrap();
    net.arrive(2, 0, Collective::EXIT, &[]).unwrap();
    net.deliver(|_, _| false);
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap_err();
    net.deliver(|_, _| false);
    assert_eq!(net.barriers[3].is_open(Collective::BARRIER, 0), Ok(false));
    net.now = net.now + Span::from_ms(300);
    net.step(3, |b, now, out| b.on_timeout(now, out));
    net.deliver(|_, _| false);
    assert_eq!(net.barriers[3].is_open(Collective::BARRIER, 0), Ok(true));
    let met = net.arrive(3, 0, Collective::BARRIER, &[]).unwrap_err();
    assert_eq!(met.to_string(), "a barrier here met the end of the program at node 2");
}

/// The calls behind one that failed were compared with what of it had been left lying, and said to be of other threads.
#[test]
fn behind_calls_that_do_not_go_together_there_are_no_others() {
    let mut net = Net::new(2, 1);
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap();
    net.arrive(1, 0, Collective::EXIT, &[]).unwrap();
    net.deliver(|_, _| false);
    let first = net.barriers[0].is_open(Collective::BARRIER, 0).unwrap_err().to_string();
    assert_eq!(first, "a barrier here met the end of the program at node 1");
    for _ in 0..2 {
        let later = net.arrive(0, 0, Collective::BARRIER, &[]).unwrap_err().to_string();
        assert_eq!(later, format!("no collective call works any more since {first}"));
    }
}

/// Where one thread of each node comes to barriers, a second one was counted too, and the node never complete again.
#[test]
fn more_threads_of_a_node_than_take_part_cannot_make_the_same_call() {
    let mut net = Net::new(2, 1);
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap();
    let mismatch = net.arrive(0, 1, Collective::BARRIER, &[]).unwrap_err();
    let said = "two threads of this node call for a barrier at the same time, or with different arguments";
    assert_eq!(mismatch.to_string(), said);
}

#[test]
fn who_repeats_itself_to_one_that_waits_too_is_told_that_it_does() {
    let mut net = Net::new(3, 1);
    (0..2).for_each(|node| _ = net.arrive(node, 0, Collective::BARRIER, &[]).unwrap());
    net.deliver(|from, to| (from, to) == (NodeId(0), NodeId(1)));
    assert_eq!(net.barriers[1].missing().1, [NodeId(0), NodeId(2)]);
    net.now = net.now + Span::from_ms(300);
    net.step(1, |b, now, out| b.on_timeout(now, out));
    net.deliver(|_, _| false);
    assert_eq!(net.barriers[1].missing().1, [NodeId(2)]);
}

#[test]
fn in_the_tree_an_arrival_that_is_repeated_is_not_told_once_more_on_the_way_up() {
    let mut net = Net::new(50, 1);
    let of_node_1 = std::iter::once(1).chain(9..17);
    of_node_1.for_each(|node| _ = net.arrive(node, 0, Collective::BARRIER, &[]).unwrap());
    net.deliver(|_, _| false);
    assert_eq!(net.sent, 9);
    net.now = net.now + Span::from_ms(300);
    net.step(9, |b, now, out| b.on_timeout(now, out));
    net.deliver(|_, _| false);
    assert_eq!(net.sent, 11, "it is noted");
}

#[test]
fn an_arrival_is_repeated_in_time_to_those_of_whom_nothing_was_heard() {
    let mut net = Net::new(3, 1);
    (0..2).for_each(|node| _ = net.arrive(node, 0, Collective::BARRIER, &[]).unwrap());
    net.deliver(|_, _| false);
    let at = net.barriers[0].next_timeout().unwrap();
    for (now, to) in [(Time(at.0 - 1), vec![]), (at, vec![NodeId(2)])] {
        let mut out = Outbox::new();
        net.barriers[0].on_timeout(now, &mut out);
        let sent: Vec<_> = out.sends().iter().map(|send| send.target).collect();
        let expected: Vec<_> = to.into_iter().map(|node| Target::Free { node, slot: Slot::SERVICE }).collect();
        assert_eq!(sent, expected);
    }
}

#[test]
fn notices_that_were_posted_are_not_told_again() {
    for (free, reminders) in [(4, 0), (100, 1)] {
        let (mut barrier, mut out) = (Barrier::new(NodeId(0), 2, 1).for_notices(free), Outbox::new());
        let (what, payload, notices) = (Collective::BARRIER, &[][..], &[2; 10][..]);
        barrier.arrive(Time(0), Slot::thread(0), what, (payload, notices), &mut out).unwrap();
        for repeated in [false, true] {
            out.clear();
            let from = NodeId(1);
            let heard = Heard { from, epoch: 0, repeated, elsewhere: false, what, payload, notices };
            barrier.on_arrive(Time(0), None, heard, &mut out);
            assert_eq!(barrier.is_open(what, 0), Ok(true));
        }
        assert_eq!(out.sends().len(), reminders);
    }
}

/// Two nodes that had both passed once reminded each other of the barrier for ever.
#[test]
fn a_late_copy_of_an_arrival_is_not_answered() {
    let mut net = Net::new(2, 1);
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap();
    net.arrive(1, 0, Collective::BARRIER, &[]).unwrap();
    let copy = net.wire[0].clone();
    net.deliver(|_, _| false);
    assert_eq!((net.open(0), net.sent), (2, 2));
    net.wire.push(copy);
    let mut delivered = 0;
    net.deliver(|_, _| {
        delivered += 1;
        delivered > 10
    });
    assert_eq!(net.sent, 2);
}

/// Nodes that make some calls one after the other, each by any of its threads; what comes to a first thread that is not
/// in a call lies there.
struct Callers {
    net: Net,
    random: u64,
    /// Each node's calls so far, and which thread made the last.
    calls: Vec<(u32, usize)>,
}

impl Callers {
    const CALLS: u32 = 6;
    const WHAT: Collective = Collective { kind: kinds::CREATE, detail: 7 };

    fn new(nodes: usize, notices: bool, seed: u64) -> Callers {
        let mut net = Net::new(nodes, 2);
        if notices {
            net.barriers = net.barriers.into_iter().map(|b| b.for_notices(256)).collect();
        }
        Callers { net, random: seed, calls: vec![(0, 0); nodes] }
    }

    fn any(&mut self, of: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % of
    }

    fn is_through(&self, node: usize) -> bool {
        let calls = self.calls[node].0;
        calls == 0 || self.net.barriers[node].is_open(Self::WHAT, calls - 1) == Ok(true)
    }

    fn is_attended(&self, sent: &Sent) -> bool {
        let (node, slot) = (sent.to.0.index(), sent.to.1);
        slot == Slot::SERVICE || (self.calls[node].1 == 0 && !self.is_through(node))
    }

    /// Somebody calls, or a message comes; `false` when nothing is left to be done.
    fn go_on(&mut self, loses: bool) -> bool {
        let nodes = (0..self.calls.len()).filter(|n| self.calls[*n].0 < Self::CALLS && self.is_through(*n));
        let nodes: Vec<usize> = nodes.collect();
        let sent: Vec<usize> = (0..self.net.wire.len()).filter(|i| self.is_attended(&self.net.wire[*i])).collect();
        if nodes.is_empty() && sent.is_empty() {
            return false;
        }
        let choice = self.any(nodes.len() + sent.len());
        if let Some(node) = nodes.get(choice) {
            let thread = self.any(2);
            self.calls[*node] = (self.calls[*node].0 + 1, thread);
            self.net.arrive(*node, thread, Self::WHAT, &[]).expect("all make the same call");
            return true;
        }
        let sent = self.net.wire.swap_remove(sent[choice - nodes.len()]);
        if !loses || self.any(4) > 0 {
            self.net.take(sent);
        }
        true
    }

    fn are_through(&self) -> bool {
        (0..self.calls.len()).all(|node| self.calls[node].0 == Self::CALLS && self.is_through(node))
    }
}

/// The others' arrivals lay at the first thread for ever, or until it came.
#[test]
fn whichever_thread_calls_for_its_node_is_reached_without_a_repetition() {
    for (nodes, notices) in [(2, true), (3, false), (3, true), (5, false), (30, true)] {
        for seed in 0..300 {
            let mut callers = Callers::new(nodes, notices, seed);
            while callers.go_on(false) {}
            assert!(callers.are_through(), "{nodes} nodes, seed {seed}: {:?}", callers.calls);
        }
    }
}

#[test]
fn whichever_thread_calls_for_its_node_is_reached_although_messages_are_lost() {
    for (nodes, notices) in [(2, true), (3, false), (3, true), (5, false), (30, true)] {
        for seed in 0..100 {
            let mut callers = Callers::new(nodes, notices, seed);
            for _ in 0..1000 {
                while callers.go_on(true) {}
                callers.net.now = callers.net.now + Span::from_ms(300);
                (0..nodes).for_each(|node| callers.net.step(node, |b, now, out| b.on_timeout(now, out)));
            }
            assert!(callers.are_through(), "{nodes} nodes, seed {seed}: {:?}", callers.calls);
        }
    }
}

/// Each time both nodes have arrived, and the second one only after so long; nothing is lost. Gives how often the first
/// one repeated itself.
fn repetitions_of_one_that_waits(net: &mut Net, round_trip: Span, waits: Span) -> u32 {
    let (mut repetitions, mut noted): (u32, Vec<Time>) = (0, Vec::new());
    let epoch = net.barriers[0].epoch();
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap();
    net.wire.clear();
    let end = net.now + waits;
    loop {
        let timer = net.barriers[0].next_timeout().expect("it waits");
        let next = noted.iter().copied().chain([timer]).min().expect("a timer");
        if next > end {
            break;
        }
        net.now = next;
        if next == timer {
            net.step(0, |b, now, out| b.on_timeout(now, out));
            repetitions += 1;
            noted.push(net.now + round_trip);
            net.wire.clear();
        } else {
            noted.retain(|at| *at != next);
            net.step(0, |b, now, _| b.on_noted(now, NodeId(1), epoch));
        }
    }
    net.now = end;
    net.arrive(1, 0, Collective::BARRIER, &[]).unwrap();
    // The second one's arrival, and that of the first, which it has missed here.
    net.deliver(|_, _| false);
    let from = Heard {
        from: NodeId(0),
        epoch,
        repeated: false,
        elsewhere: false,
        what: Collective::BARRIER,
        payload: &[],
        notices: &[],
    };
    net.step(1, |b, now, out| b.on_arrive(now, None, from, out));
    net.deliver(|_, _| false);
    assert_eq!(net.barriers[0].epoch(), epoch + 1);
    repetitions
}

#[test]
fn an_arrival_at_a_far_node_is_soon_repeated_no_more_than_once_before_an_answer_can_be_there() {
    let (far, near) = (Span::from_ms(400), Span::from_us(50));
    let mut net = Net::new(2, 1);
    let far_ones: Vec<u32> =
        (0..8).map(|_| repetitions_of_one_that_waits(&mut net, far, Span::from_ms(1_200))).collect();
    assert!(far_ones[0] >= 5, "the first guess is short: {far_ones:?}");
    assert_eq!(
        far_ones[5..],
        [1, 1, 1],
        "the wait grows until one repetition is answered before the next: {far_ones:?}"
    );
    let near_ones: Vec<u32> =
        (0..3).map(|_| repetitions_of_one_that_waits(&mut net, near, Span::from_ms(600))).collect();
    assert_eq!(near_ones[0], 1, "{near_ones:?}");
    assert!(near_ones[1] > 3, "and is short again: {near_ones:?}");
}

#[test]
fn whom_a_waiting_node_repeats_itself_to_without_an_answer_is_known() {
    let mut net = Net::new(2, 1);
    net.arrive(0, 0, Collective::BARRIER, &[]).unwrap();
    net.wire.clear();
    let start = net.now;
    let waits_for = |net: &Net, before: Time| net.barriers[0].unanswered(before).collect::<Vec<_>>();
    assert_eq!(waits_for(&net, start), [(NodeId(1), start)]);
    net.now = start + Span::from_ms(700);
    net.step(0, |b, now, _| b.on_noted(now, NodeId(1), 0));
    assert_eq!(waits_for(&net, start + Span::from_ms(600)), [], "it has said that it knows");
    assert_eq!(waits_for(&net, start + Span::from_ms(800)), [(NodeId(1), start + Span::from_ms(700))]);
    net.arrive(1, 0, Collective::BARRIER, &[]).unwrap();
    net.deliver(|_, _| false);
    assert_eq!(waits_for(&net, Time(u64::MAX)), [], "it is open");
}
