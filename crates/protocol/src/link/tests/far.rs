//! Nodes that are far away, and nodes that are not there any more.

use super::*;

/// Of a round trip of 400 ms.
const FAR_ONE_WAY: u64 = 200_000_000;

fn net_with(nodes: u16, one_way: u64) -> Net {
    let mut net = net(nodes, 5, 0);
    net.one_way = one_way;
    net
}

fn far_net(nodes: u16) -> Net {
    net_with(nodes, FAR_ONE_WAY)
}

fn repetitions(net: &Net) -> u64 {
    net.nodes.iter().flat_map(|n| &n.senders).map(|sender| sender.counters().retransmissions).sum()
}

/// Sends so many messages, each when the one before is over; gives after how many repetitions each was.
fn one_after_another(net: &mut Net, class: Class, ty: MsgType, body: &[u8], count: usize) -> Vec<u64> {
    let one = |net: &mut Net| {
        let seq = net.send(0, 1, 1, class, ty, body);
        net.run(MINUTE, |net| !net.nodes[0].senders[1].is_outstanding(seq));
        repetitions(net)
    };
    (0..count).map(|_| one(net)).collect()
}

/// The first guess of 5 ms is doubled from message to message until one is answered that was sent once: 6 repetitions,
/// then one, then none.
#[test]
fn a_far_node_costs_a_few_repetitions_and_then_none() {
    let wanted = |few: [u64; 2], count: usize| [&few[..], &vec![few[1]; count - 2]].concat();
    for (class, ty, body) in [
        (Class::Request, ECHO, vec![1; 64]),
        (Class::Post, POST, vec![1; 64]),
        // Node 2 answers.
        (Class::Request, VIA, vec![1, 2, 3]),
    ] {
        let mut net = far_net(3);
        let sent = one_after_another(&mut net, class, ty, &body, 50);
        // What node 1 tells node 2 is far, too.
        let few = if ty == VIA { [14, 15] } else { [6, 7] };
        assert_eq!(sent, wanted(few, 50), "{ty:?}");
    }
}

#[test]
fn long_messages_to_a_far_node_are_sent_once_as_well() {
    let mut net = far_net(2);
    let sent = one_after_another(&mut net, Class::Request, ECHO, &[1; 60_000], 50);
    assert_eq!(sent[49], sent[5], "{sent:?}");
}

#[test]
fn a_way_that_becomes_long_is_found_so() {
    for (class, ty) in [(Class::Request, ECHO), (Class::Post, POST)] {
        let mut net = net(2, 5, 0);
        assert_eq!(one_after_another(&mut net, class, ty, &[1; 64], 200)[199], 0);
        net.one_way = FAR_ONE_WAY;
        let sent = one_after_another(&mut net, class, ty, &[1; 64], 50);
        assert_eq!(sent[49], sent[3], "{sent:?}");
        assert!(sent[3] <= 24, "{sent:?}");
        net.one_way = 25_000;
        one_after_another(&mut net, class, ty, &[1; 64], 200);
        assert_eq!(repetitions(&net), sent[49], "and short again");
    }
}

fn waits_for(net: &Net, span: Span) -> Vec<(NodeId, u64)> {
    let since = net.nodes[0].senders[1].unanswered(Time(net.now.0.saturating_sub(span.0)));
    since.map(|(node, since)| (node, (net.now - since).as_us() / 1_000_000)).collect()
}

const SECOND: Span = Span::from_ms(1_000);

#[test]
fn who_says_nothing_is_known_with_the_time_since_when() {
    for (class, ty) in [(Class::Request, ECHO), (Class::Request, HOLD), (Class::Post, POST), (Class::Post, LETTER)] {
        let mut net = net(3, 4, 0);
        assert_eq!(one_after_another(&mut net, Class::Request, ECHO, &[1; 64], 3)[2], 0);
        net.dead = Some(NodeId(1));
        net.send(0, 1, 1, class, ty, &[1; 64]);
        net.send(0, 1, 2, class, ty, &[1; 3000]);
        net.wait(Span(SECOND.0 / 2));
        assert_eq!(waits_for(&net, SECOND), []);
        net.wait(Span(9 * SECOND.0));
        assert_eq!(waits_for(&net, SECOND), [(NodeId(1), 9)], "{ty:?}: node 2 answers, or says that it is at it");
    }
}

#[test]
fn a_reply_of_which_no_more_comes_is_waited_for_from_its_sender() {
    let mut net = net_with(3, 20_000_000);
    net.faults.drop = 700;
    net.send(0, 1, 1, Class::Request, VIA, &[&[200, 2][..], &[7; 600]].concat());
    net.run(MINUTE, |net| net.nodes[0].senders[1].kept_bytes() > 100_000);
    (net.dead, net.faults.drop) = (Some(NodeId(2)), 0);
    net.wait(Span(5 * SECOND.0));
    assert_eq!(waits_for(&net, SECOND), [(NodeId(2), 4)]);
}
