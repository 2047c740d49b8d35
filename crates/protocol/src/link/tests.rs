//! The link as a whole: what it promises, under loss, doubling and reordering.

use super::pair::*;
use super::*;
use crate::auth::{JobKey, Receiver, Sealer};
use crate::ids::{Channel, NodeId, Seq};
use crate::time::Time;
use crate::wire::bytes::WireError;
use crate::wire::header::{Flags, HeaderRepr, MsgType, Packet};
use std::borrow::Cow;

mod acks;
mod far;
mod replies;

const MINUTE: Span = Span::from_ms(60_000);

fn net(nodes: u16, seed: u64, drop: u64) -> Net {
    let faults = Faults { drop, dup: drop / 2, reorder: drop, ..Faults::default() };
    Net::new(nodes, 1, seed, LinkConfig::default(), faults)
}

/// Lets every node post `count` messages to its neighbours, as fast as the link takes them.
fn stream(net: &mut Net, count: u32) {
    let nodes = net.nodes.len() as u16;
    let mut sent = vec![0u32; usize::from(nodes)];
    let wanted = count as usize * usize::from(nodes);
    while sent.iter().any(|&s| s < count) {
        for n in 0..nodes {
            while sent[usize::from(n)] < count {
                let number = sent[usize::from(n)];
                let to = (n + 1 + number as u16 % (nodes - 1)) % nodes;
                match net.try_send(n, 1, to, Class::Post, POST, &number.to_be_bytes()) {
                    Ok(_) => sent[usize::from(n)] += 1,
                    Err(error) => {
                        assert_eq!(error, SendError::WindowFull);
                        break;
                    }
                }
            }
        }
        let before = net.outstanding();
        net.run(MINUTE, |net| net.outstanding() < before);
        assert!(net.kept_bytes() < usize::from(nodes) * 4096 * 300, "{}", net.kept_bytes());
    }
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!(net.nodes.iter().map(|n| n.arrived.len()).sum::<usize>(), wanted);
    assert_eq!(net.nodes.iter().map(|n| n.arrived_again).sum::<usize>(), 0);
}

#[test]
fn streams_between_all_nodes_arrive_exactly_once_in_bounded_memory() {
    for (seed, drop) in [(1, 0), (2, 50), (3, 200)] {
        let mut net = net(4, seed, drop);
        stream(&mut net, 10_000);
    }
}

#[test]
fn letters_that_find_no_room_keep_nothing_else_from_their_receiver() {
    for (seed, drop, letters) in [(1, 0, 200u32), (2, 0, 2048), (3, 100, 500)] {
        let mut net = net(2, seed, drop);
        net.nodes[1].takes_no_letters = true;
        for number in 0..letters {
            net.send(0, 1, 1, Class::Post, LETTER, &number.to_be_bytes());
        }
        net.run(MINUTE, |net| net.now > Time(2_000_000_000));
        if letters == 2048 {
            assert_eq!(net.try_send(0, 1, 1, Class::Post, LETTER, b"more"), Err(SendError::WindowFull));
        }
        for round in 0..5 {
            net.send(0, 1, 1, Class::Post, POST, &[round]);
            net.send(0, 1, 1, Class::Request, ECHO, &[1, round]);
            net.run(Span::from_ms(3_000), |net| {
                net.nodes[0].replies.len() > usize::from(round)
                    && net.nodes[1].arrived.len() > 2 * usize::from(round) + 1
            });
        }
        net.nodes[1].takes_no_letters = false;
        net.run(MINUTE, |net| net.outstanding() == 0);
        assert_eq!((net.nodes[1].arrived.len(), net.nodes[1].arrived_again), (letters as usize + 10, 0));
    }
}

#[test]
fn long_letters_that_wait_for_their_beginning_leave_room_for_other_long_messages() {
    let mut net = net(2, 5, 0);
    // A wide window, in which all of them are on their way at once.
    for number in 0..2000u32 {
        net.send(0, 1, 1, Class::Post, POST, &number.to_be_bytes());
    }
    net.run(MINUTE, |net| net.outstanding() == 0);
    net.nodes[1].arrived.clear();
    net.nodes[1].takes_no_letters = true;
    for number in 0..40 {
        net.send(0, 1, 1, Class::Post, LETTER, &vec![number; 5_000]);
    }
    let later = net.now + Span::from_ms(2_000);
    net.run(MINUTE, |net| net.now > later);
    net.send(0, 1, 1, Class::Post, POST, &vec![77; 5_000]);
    net.send(0, 1, 1, Class::Request, ECHO, &vec![1; 5_000]);
    net.run(Span::from_ms(3_000), |net| net.nodes[0].replies.len() == 1 && net.nodes[1].arrived.len() == 2);
    net.nodes[1].takes_no_letters = false;
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!((net.nodes[1].arrived.len(), net.nodes[1].arrived_again), (42, 0));
}

#[test]
fn a_lossless_stream_repeats_nothing_and_fills_its_batches() {
    let mut net = net(2, 5, 0);
    stream(&mut net, 20_000);
    let repeated: u64 = net.nodes.iter().map(|n| n.senders[1].counters().retransmissions).sum();
    assert_eq!(repeated, 0);
    assert!(net.batch_max >= 16, "{}", net.batch_max);
    assert!(net.datagrams < 2 * 20_000 * 5 / 4, "acknowledgements are batched: {}", net.datagrams);
}

#[test]
fn loss_costs_repetitions_in_proportion() {
    for (drop, most) in [(50, 16), (200, 60)] {
        let mut net = net(2, 6, drop);
        stream(&mut net, 5_000);
        let c = net.nodes[0].senders[1].counters();
        assert!(c.retransmissions * 100 <= c.messages * most, "{drop}: {c:?}");
        assert!(c.losses_noticed > c.timeouts, "{c:?}");
    }
}

#[test]
fn requests_in_a_row_send_one_datagram_each_way_and_keep_one_reply() {
    let mut net = net(2, 7, 0);
    for i in 0..1000u32 {
        let mut body = vec![1];
        body.extend_from_slice(&i.to_be_bytes());
        let seq = net.send(0, 1, 1, Class::Request, ECHO, &body);
        net.run(MINUTE, |net| net.outstanding() == 0);
        assert_eq!(net.nodes[0].replies.last(), Some(&(seq, body)));
    }
    assert_eq!(net.datagrams, 2000);
    assert!(net.kept_bytes() < 256, "{}", net.kept_bytes());
}

/// 200 requests of `size` bytes with replies of the same size, one after the other: datagrams and virtual time.
fn exchange(drop: u64, size: usize, ty: MsgType) -> (u64, u64) {
    let mut net = net(3, 11, drop);
    let mut body: Vec<u8> = (0..size).map(|i| i as u8).collect();
    (body[0], body[1]) = (1, 2);
    let start = net.now;
    for _ in 0..200 {
        let seq = net.send(0, 1, 1, Class::Request, ty, &body);
        net.run(MINUTE, |net| !net.nodes[0].senders[1].is_outstanding(seq));
        assert_eq!(net.nodes[0].replies.last(), Some(&(seq, body.clone())));
    }
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!(net.nodes[0].replies.len(), 200);
    assert_eq!(net.nodes.iter().map(|n| n.arrived_again).sum::<usize>(), 0);
    (net.datagrams, (net.now - start).as_us() / 200)
}

#[test]
fn what_an_exchange_costs_by_loss_and_size() {
    let table: Vec<_> = [0, 50, 200]
        .into_iter()
        .flat_map(|drop| [64, 4096, 60_000].map(|size| (drop, size, exchange(drop, size, ECHO))))
        .collect();
    // Loss in 1/1000, bytes each way, (datagrams for 200 exchanges, us an exchange). A change here is a change of the
    // protocol's cost: look at it, then write it down.
    let snapshot = [
        (0, 64, (400, 53)),
        (0, 4096, (1400, 54)),
        (0, 60_000, (17_201, 58)),
        (50, 64, (430, 159)),
        (50, 4096, (1557, 285)),
        (50, 60_000, (20_564, 1346)),
        (200, 64, (564, 1151)),
        (200, 4096, (2152, 2329)),
        (200, 60_000, (28_812, 8571)),
    ];
    assert_eq!(table, snapshot);
}

#[test]
fn a_third_node_answers_whatever_is_lost() {
    for (drop, size) in [(0, 64), (200, 64), (200, 20_000)] {
        let (datagrams, _) = exchange(drop, size, VIA);
        if drop == 0 {
            assert_eq!(datagrams, 200 * 4, "request, word to the third node, its acknowledgement, reply");
        }
    }
}

#[test]
fn the_longest_message_passes_both_ways_under_loss() {
    let mut net = net(2, 13, 200);
    net.may_be_long = true;
    let len = net.nodes[0].senders[0].max_message_bytes();
    let mut body: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
    body[0] = 1;
    let seq = net.send(0, 1, 1, Class::Request, ECHO, &body);
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!(net.nodes[0].replies, [(seq, body.clone())]);
    body.push(0);
    let error = net.try_send(0, 1, 1, Class::Post, POST, &body).unwrap_err();
    assert_eq!(error, SendError::TooLarge { len: len + 1, max: len });
}

/// Datagrams of 512 bytes would have to be more than 255.
#[test]
fn what_fits_no_number_of_usual_datagrams_goes_in_longer_ones() {
    let config = LinkConfig { datagram_bytes: 512, ..LinkConfig::default() };
    let usual = config.usual_message_bytes(crate::auth::TAG_BYTES);
    assert!(usual < 255 * 512 && usual > 255 * 460, "{usual}");
    // A post has room for its number more than a reply has.
    let most = usual + 255 * 8;
    for (len, long) in [(usual, false), (most, false), (most + 1, true), (3 * usual, true)] {
        let mut net = Net::new(2, 1, 3, config, Faults::default());
        net.may_be_long = long;
        let body: Vec<u8> = (0..len).map(|i| (i / 5) as u8).collect();
        net.send(0, 1, 1, Class::Post, POST, &body);
        net.run(MINUTE, |net| net.outstanding() == 0);
        assert_eq!(net.nodes[1].arrived.len(), 1, "{len}");
        assert_eq!(net.nodes[1].arrived[0].2, body);
        net.may_be_long |= len > usual;
        let echoed = net.send(0, 1, 1, Class::Request, ECHO, &vec![1; len]);
        net.run(MINUTE, |net| net.outstanding() == 0);
        assert_eq!(net.nodes[0].replies, [(echoed, vec![1; len])]);
    }
}

#[test]
fn a_request_that_waits_is_noted_and_repeated_slowly() {
    let mut net = net(2, 17, 0);
    net.send(0, 1, 1, Class::Request, HOLD, b"lock");
    let end = net.now + Span::from_ms(10_000);
    net.run(MINUTE, |net| net.now > end);
    assert_eq!((net.nodes[1].held.len(), net.nodes[1].arrived_again), (1, 0));
    assert!((40..60).contains(&net.datagrams), "{}", net.datagrams);
    let seq = net.nodes[1].held[0];
    net.reply(1, seq, b"granted");
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!(net.nodes[0].replies, [(seq, b"granted".to_vec())]);
}

#[test]
fn a_forwarded_request_that_waits_is_noted_by_the_node_that_forwarded_it() {
    let mut net = net(3, 17, 0);
    net.send(0, 1, 1, Class::Request, VIA, &[0, 2]);
    let end = net.now + Span::from_ms(10_000);
    net.run(MINUTE, |net| net.now > end);
    assert!((60..90).contains(&net.datagrams), "{}", net.datagrams);
    let seq = net.nodes[2].held[0];
    net.faults.drop = 1000;
    net.reply(2, seq, b"lost on its way");
    net.faults.drop = 0;
    net.run(Span::from_ms(600), |net| net.outstanding() == 0);
    assert_eq!(net.nodes[0].replies, [(seq, b"lost on its way".to_vec())]);
    assert_eq!(net.nodes[2].arrived.len(), 1);
}

#[test]
fn many_requests_under_way_are_answered_out_of_order_under_loss() {
    let mut net = net(2, 19, 200);
    for i in 0..64u8 {
        net.send(0, 1, 1, Class::Request, HOLD, &[i]);
    }
    assert_eq!(net.try_send(0, 1, 1, Class::Request, HOLD, b"one too many"), Err(SendError::WindowFull));
    net.run(MINUTE, |net| net.nodes[1].held.len() == 64);
    for seq in net.nodes[1].held.clone().into_iter().rev() {
        net.reply(1, seq, &seq.0.to_be_bytes());
    }
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!(net.nodes[0].replies.len(), 64);
    assert!(net.nodes[0].replies.iter().all(|(seq, body)| body[..] == seq.0.to_be_bytes()));
}

#[test]
fn one_waiting_request_does_not_make_replies_to_others_pile_up() {
    let mut net = net(2, 23, 50);
    net.send(0, 1, 1, Class::Request, HOLD, b"waits");
    for _ in 0..63 {
        net.send(0, 1, 1, Class::Request, ECHO, &[200; 100]);
    }
    net.run(MINUTE, |net| net.outstanding() == 1);
    net.send(0, 1, 1, Class::Post, POST, b"told");
    assert_eq!((net.outstanding(), net.nodes[0].senders[1].posts()), (2, 1));
    net.run(MINUTE, |net| net.outstanding() == 1);
    assert_eq!(net.nodes[0].senders[1].posts(), 0, "it is a request");
    assert_eq!(net.try_send(0, 1, 1, Class::Request, ECHO, b"\x01"), Err(SendError::WindowFull));
    assert!(net.kept_bytes() < 64 * 21_000, "{}", net.kept_bytes());
    let seq = net.nodes[1].held[0];
    net.reply(1, seq, b"now");
    net.run(MINUTE, |net| net.outstanding() == 0);
    net.send(0, 1, 1, Class::Request, ECHO, b"\x01");
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert!(net.kept_bytes() < 300, "{}", net.kept_bytes());
}

#[test]
fn a_group_message_is_complete_when_every_node_has_it() {
    for (seed, drop, size) in [(1, 0, 8), (2, 200, 8), (3, 200, 30_000)] {
        let mut net = net(9, seed, drop);
        let members: Vec<_> = NodeId::all(9).skip(1).collect();
        for i in 0..50u8 {
            let body = vec![i; size];
            net.nodes[0].senders[0].send(Dest::Group(&members), Class::Post, POST, &body).unwrap();
            net.run(MINUTE, |net| net.outstanding() == 0);
            assert!(net.nodes[1..].iter().all(|n| n.arrived.last().is_some_and(|a| a.2 == body)));
        }
        assert!(net.nodes[1..].iter().all(|n| n.arrived.len() == 50 && n.arrived_again == 0));
        let sender = &net.nodes[0].senders[0];
        if drop == 0 {
            assert_eq!((sender.counters().datagrams, sender.counters().retransmissions), (50, 0));
        }
    }
}

#[test]
fn free_messages_arrive_at_most_once_and_are_never_repeated() {
    let mut net = net(3, 29, 200);
    for i in 0..500u32 {
        net.send(0, 1, 1, Class::Free, POST, &i.to_be_bytes());
        let members = [NodeId(1), NodeId(2)];
        net.nodes[0].senders[1].send(Dest::Group(&members), Class::Free, POST, &[9; 40]).unwrap();
        net.send(0, 0, 1, Class::Request, ECHO, b"\x01");
        net.run(MINUTE, |net| net.outstanding() == 0);
    }
    let got = |n: usize| net.nodes[n].arrived.iter().filter(|(_, seq, _)| seq.is_free()).count();
    assert!((700..900).contains(&got(1)) && (330..470).contains(&got(2)), "{} {}", got(1), got(2));
    assert_eq!(net.nodes[1].arrived_again + net.nodes[2].arrived_again, 0);
    assert_eq!(net.nodes[0].senders[1].counters().retransmissions, 0);
}

#[test]
fn free_messages_longer_than_a_datagram_arrive_whole_or_not_at_all() {
    let mut net = net(2, 31, 30);
    for i in 0..300u32 {
        let length = [100, 1500, 9000, 60_000][i as usize % 4];
        net.send(0, 1, 1, Class::Free, POST, &vec![i as u8; length]);
        net.send(0, 0, 1, Class::Request, ECHO, b"\x01");
        net.run(MINUTE, |net| net.outstanding() == 0);
    }
    let arrived: Vec<_> = net.nodes[1].arrived.iter().filter(|(_, seq, _)| seq.is_free()).collect();
    let long = arrived.iter().filter(|(_, _, body)| body.len() > 1472).count();
    assert!(long > 20, "{long} of {} long ones arrived", arrived.len());
    assert!(arrived.iter().all(|(_, _, body)| {
        let length = [100, 1500, 9000, 60_000][usize::from(body[0]) % 4];
        body.len() == length && body.iter().all(|byte| *byte == body[0])
    }));
    assert_eq!(net.nodes[1].arrived_again, 0);
    assert_eq!(net.nodes[0].senders[1].counters().retransmissions, 0);
    assert!(net.kept_bytes() <= 2 * 60_000 + (1 << 20), "what never becomes whole is given up: {}", net.kept_bytes());
    let group = [NodeId(1)];
    let refused = net.nodes[0].senders[1].send(Dest::Group(&group), Class::Free, POST, &[0; 1500]);
    assert!(matches!(refused, Err(SendError::TooLarge { .. })));
}

#[test]
fn senders_share_a_bottleneck_without_drowning_it() {
    // Three nodes post to one whose link takes a datagram of 1 KiB every 8 us (1 Gbit/s) and queues 100 of them.
    let faults = Faults { bottleneck: (8_000, 100), ..Faults::default() };
    let mut net = Net::new(4, 1, 37, LinkConfig::default(), faults);
    let start = net.now;
    for i in 0..9000u32 {
        net.send((i % 3) as u16, 1, 3, Class::Post, POST, &[i as u8; 1000]);
    }
    net.run(MINUTE, |net| net.outstanding() == 0);
    assert_eq!(net.nodes[3].arrived.len(), 9000);
    assert!(net.harmed * 100 < net.datagrams * 12, "{} of {} dropped", net.harmed, net.datagrams);
    let ideal = 9000 * 8;
    let took = (net.now - start).as_us();
    assert!(took < ideal * 3 / 2, "{took} us, ideal {ideal}");
}

#[test]
fn large_replies_that_queue_are_not_asked_for_again_and_again() {
    // Twelve replies of 60 KB at a time share a link that takes a datagram every 20 us: the last answer comes after ten
    // times the least time-out.
    let faults = Faults { bottleneck: (20_000, 10_000), ..Faults::default() };
    let mut net = Net::new(4, 1, 41, LinkConfig::default(), faults);
    let mut body = vec![7; 240];
    // Small ones before let the sender expect answers soon.
    for i in 0..60 {
        net.send(0, 1, 1 + i % 3, Class::Request, ECHO, &[1]);
        net.run(MINUTE, |net| net.outstanding() == 0);
    }
    (body[0], net.datagrams) = (250, 0);
    for _ in 0..50 {
        for i in 0..12 {
            net.send(0, 1, 1 + i % 3, Class::Request, ECHO, &body);
        }
        net.run(MINUTE, |net| net.outstanding() == 0);
    }
    assert_eq!(net.nodes[0].replies.len(), 660);
    let needed = 600 * (1 + 60_000 / 1400);
    assert!(net.datagrams < needed * 5 / 4, "{} datagrams where {needed} do", net.datagrams);
}

#[test]
fn a_datagram_fits_the_size_asked_for_and_not_a_byte_is_wasted() {
    for tag in [0, 16] {
        let config = LinkConfig { datagram_bytes: 600, ..LinkConfig::default() };
        let sealer = Sealer::new((tag > 0).then(|| crate::auth::JobKey::new([1; 32])));
        let mut sender = Sender::new(Channel::service(NodeId(0)), 1, config, sealer);
        let (dest, mut out) = (Dest::Node(NodeId(1), Slot::thread(3)), Vec::new());
        for (class, prefix) in [(Class::Request, 2), (Class::Post, 0), (Class::Free, 0)] {
            sender.send(dest, class, POST, &vec![0; 600 - 16 - tag - prefix]).unwrap();
            let transmit = sender.poll_transmit(Time(0), &mut out).unwrap();
            assert_eq!((out.len(), transmit.segment, transmit.slot), (600, 600, Slot::thread(3)));
            sender.send(dest, class, POST, &vec![0; 600 - 16 - tag - prefix + 1]).unwrap();
            sender.poll_transmit(Time(0), &mut out).unwrap();
            assert!(out.len() > 600);
        }
    }
}

#[test]
fn old_packets_replayed_by_a_stranger_have_no_effect() {
    let mut sender = Sender::new(Channel::service(NodeId(0)), 1, LinkConfig::default(), Sealer::default());
    let mut remote = PeerChannel::new(Channel::service(NodeId(0)), &LinkConfig::default());
    let (dest, mut out, mut recorded) = (Dest::Node(NodeId(1), Slot::SERVICE), Vec::new(), Vec::new());
    let mut encoder = ReplyEncoder::new(Channel::service(NodeId(1)), 1, LinkConfig::default(), Sealer::default());
    for i in 0..10_000u32 {
        let class = [Class::Request, Class::Free][i as usize % 2];
        sender.send(dest, class, POST, &i.to_be_bytes()).unwrap();
        sender.poll_transmit(Time(0), &mut out).unwrap();
        let packet = Packet::new_checked(&out).unwrap();
        assert!(matches!(remote.on_packet(&packet), Ok(Arrival::Message { .. })));
        recorded.push(out.clone());
        if class == Class::Request {
            let mut reply = Vec::new();
            let segment = encoder.reply(packet.header.seq, POST, false, b"yes", &mut reply).unwrap();
            remote.store_reply(packet.header.seq, reply.clone(), segment);
            let packet = Packet::new_checked(&reply).unwrap();
            assert!(matches!(sender.on_reply(Time(1), NodeId(1), &packet), Ok(Reply::Complete { .. })));
            assert_eq!(sender.on_reply(Time(1), NodeId(1), &packet), Ok(Reply::Late));
        }
    }
    for datagram in &recorded {
        let again = remote.on_packet(&Packet::new_checked(datagram).unwrap()).unwrap();
        assert!(matches!(again, Arrival::Stale | Arrival::Duplicate(Repeat::Post | Repeat::Reply)));
    }
}

/// Who looks before it takes a packet in leaves those unseen that it has no room for, and is sent them again.
#[test]
fn a_packet_tells_whether_its_message_begins_with_it_or_has_begun() {
    let mut sender = Sender::new(Channel::service(NodeId(0)), 1, LinkConfig::default(), Sealer::default());
    let mut remote = PeerChannel::new(Channel::service(NodeId(0)), &LinkConfig::default());
    let body: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    sender.send(Dest::Node(NodeId(1), Slot::SERVICE), Class::Post, POST, &body).unwrap();
    let (mut out, mut datagrams) = (Vec::new(), Vec::<Vec<u8>>::new());
    while let Some(transmit) = sender.poll_transmit(Time(0), &mut out) {
        datagrams.extend(out.chunks(transmit.segment).map(<[u8]>::to_vec));
    }
    let packets: Vec<Packet<'_>> = datagrams.iter().map(|d| Packet::new_checked(d).unwrap()).collect();
    let [first, second, third, ..] = packets[..] else { panic!("{} fragments", packets.len()) };
    for _ in 0..2 {
        assert!(matches!(remote.part_of(&first), Ok(Part::Beginning(bytes)) if body.starts_with(bytes)));
        assert_eq!(remote.part_of(&second), Ok(Part::Ahead), "to look changes nothing");
    }
    assert_eq!(remote.on_packet(&second), Ok(Arrival::Incomplete));
    assert_eq!((remote.part_of(&second), remote.part_of(&third)), (Ok(Part::Following), Ok(Part::Ahead)));
    assert_eq!(remote.on_packet(&first), Ok(Arrival::Incomplete));
    assert_eq!((remote.part_of(&first), remote.part_of(&third)), (Ok(Part::Following), Ok(Part::Following)));
    sender.send(Dest::Node(NodeId(1), Slot::SERVICE), Class::Free, POST, b"free").unwrap();
    sender.poll_transmit(Time(0), &mut out).unwrap();
    assert!(remote.part_of(&Packet::new_checked(&out).unwrap()).is_err(), "only what is sent again may be left unseen");
}

#[test]
fn a_refusal_is_told_apart_from_an_answer() {
    let mut sender = Sender::new(Channel::service(NodeId(0)), 1, LinkConfig::default(), Sealer::default());
    let mut encoder = ReplyEncoder::new(Channel::service(NodeId(1)), 1, LinkConfig::default(), Sealer::default());
    let seq = sender.send(Dest::Node(NodeId(1), Slot::SERVICE), Class::Request, POST, b"please").unwrap();
    let mut out = Vec::new();
    sender.poll_transmit(Time(0), &mut out).unwrap();
    out.clear();
    encoder.reply(seq, MsgType(7), true, b"no", &mut out).unwrap();
    let reply = sender.on_reply(Time(1), NodeId(1), &Packet::new_checked(&out).unwrap()).unwrap();
    assert_eq!(reply, Reply::Complete { seq, ty: MsgType(7), nack: true, body: Cow::Borrowed(&b"no"[..]) });
}

/// One random thing that a node may send, with what its reply must be; `None` when no reply is expected.
fn random_message(net: &mut Net, nodes: u64) -> Option<(Seq, Vec<u8>)> {
    let from = net.rng.below(nodes) as u16;
    let to = (u64::from(from) + 1 + net.rng.below(nodes - 1)) % nodes;
    let slot = net.rng.below(2) as usize;
    let size = if net.rng.chance(700) { 2 + net.rng.below(100) } else { 2 + net.rng.below(30_000) };
    let mut body = vec![net.rng.next() as u8; size as usize];
    (body[0], body[1]) = (1 + net.rng.below(3) as u8, net.rng.below(nodes) as u8);
    let ty = [POST, ECHO, VIA, HOLD, POST, ECHO][net.rng.below(6) as usize];
    if ty == VIA && u64::from(body[1]) == to {
        return None;
    }
    let class = if ty == POST { Class::Post } else { Class::Request };
    if ty == POST && net.rng.chance(100) {
        let others: Vec<_> = NodeId::all(nodes as usize).filter(|n| n.0 != from).collect();
        let _ = net.nodes[usize::from(from)].senders[slot].send(Dest::Group(&others), class, ty, &body);
        return None;
    }
    let seq = net.try_send(from, slot, to as u16, class, ty, &body).ok()?;
    (class == Class::Request)
        .then(|| (seq, if ty == HOLD { b"released".to_vec() } else { body.repeat(body[0].into()) }))
}

/// Random messages of all kinds between four nodes over a bad network: all is answered, rightly and once.
fn mixture(seed: u64) {
    let mut net = net(4, seed, 150);
    let mut expected = Vec::new();
    for _ in 0..300 {
        expected.extend(random_message(&mut net, 4));
        let until = net.now + Span(net.rng.below(200_000));
        net.run(MINUTE, |net| net.now >= until || net.outstanding() == 0);
        for n in 0..4 {
            if net.rng.chance(100) {
                for seq in std::mem::take(&mut net.nodes[n].held) {
                    net.reply(n, seq, b"released");
                }
            }
        }
    }
    while net.outstanding() > 0 {
        for n in 0..4 {
            for seq in std::mem::take(&mut net.nodes[n].held) {
                net.reply(n, seq, b"released");
            }
        }
        net.run(MINUTE, |net| net.outstanding() == 0 || net.nodes.iter().any(|n| !n.held.is_empty()));
    }
    let mut replies: Vec<_> = net.nodes.iter().flat_map(|n| n.replies.clone()).collect();
    replies.sort();
    expected.sort();
    assert!(replies == expected, "seed {seed}: {} replies, {} expected", replies.len(), expected.len());
    assert_eq!(net.nodes.iter().map(|n| n.arrived_again).sum::<usize>(), 0, "seed {seed}");
}

#[test]
fn a_mixture_of_all_kinds_of_messages_is_answered_rightly_and_once() {
    let seeds: u64 = std::env::var("COMEM_LINK_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    (1..=seeds).for_each(mixture);
}

/// A packet that is mostly right in its header and its prefixes, and random behind them.
fn random_packet(rng: &mut Rng, channels: &[Channel], near: u64) -> Vec<u8> {
    let channel = channels[rng.below(channels.len() as u64) as usize];
    let counter = if rng.chance(999) { rng.below(near) } else { rng.next() >> 21 };
    let (ack, ack_requested) = (rng.chance(400), rng.chance(200));
    let seq = if rng.chance(700) { Seq::guarded(channel, counter) } else { Seq::free(channel, counter) };
    let mut body = Vec::new();
    if ack && rng.chance(900) {
        body.extend_from_slice(&Seq::guarded(channels[0], rng.below(near)).0.to_be_bytes());
    } else if ack_requested && rng.chance(900) {
        body.extend_from_slice(&[0, rng.below(4) as u8]);
    }
    let frag = if rng.chance(500) { 0 } else { rng.below(4) as u8 };
    if frag > 0 && rng.chance(800) {
        body.extend_from_slice(&[3, 0, 0, 60]);
        body.extend_from_slice(&[rng.next() as u8; 20]);
    } else {
        (0..rng.below(200)).for_each(|_| body.push(rng.next() as u8));
    }
    let flags = Flags { ack, ack_requested, nack: ack && rng.chance(100) };
    let (ty, retrans) = (MsgType(rng.below(4) as u16), rng.next() as u8);
    let mut out = Vec::new();
    HeaderRepr { prog: 1, ty, flags, len: body.len() as u16, retrans, frag, seq }.emit(&mut out);
    out.extend_from_slice(&body);
    if rng.chance(100) {
        let at = rng.below(out.len() as u64) as usize;
        out[at] ^= rng.next() as u8;
    }
    out
}

/// How often random packets got how far.
#[derive(Default, Debug)]
struct Reach {
    acks: u32,
    partial: u32,
    complete: u32,
    message: u32,
    incomplete: u32,
    duplicate: u32,
}

impl Reach {
    fn of_reply(&mut self, reply: Result<Reply<'_>, WireError>) {
        match reply {
            Ok(Reply::Partial) => self.partial += 1,
            Ok(Reply::Complete { .. }) => self.complete += 1,
            Ok(Reply::Late) | Err(_) => {}
        }
    }
    fn of_arrival(&mut self, arrival: Result<Arrival<'_>, WireError>) {
        match arrival {
            Ok(Arrival::Message { .. }) => self.message += 1,
            Ok(Arrival::Incomplete) => self.incomplete += 1,
            Ok(Arrival::Duplicate(_)) => self.duplicate += 1,
            Ok(Arrival::Stale) | Err(_) => {}
        }
    }
}

fn send_something(sender: &mut Sender, now: Time, rng: &mut Rng) {
    let (group, mut out) = ([NodeId(1), NodeId(3)], Vec::new());
    let class = [Class::Request, Class::Post][rng.below(2) as usize];
    let dest = if class == Class::Post && rng.chance(200) {
        Dest::Group(&group)
    } else {
        Dest::Node(NodeId(rng.below(3) as u16), Slot::thread(1))
    };
    let _ = sender.send(dest, class, POST, &vec![0; rng.below(5000) as usize]);
    while sender.poll_transmit(now, &mut out).is_some() {}
}

#[test]
fn no_bytes_from_the_network_make_it_panic() {
    let (config, mut rng, mut reach) = (LinkConfig::default(), Rng(41), Reach::default());
    let (me, other) = (Channel::service(NodeId(0)), Channel { node: NodeId(1), slot: Slot::thread(0) });
    for round in 0..60u64 {
        let mut sender = Sender::new(me, 1, config, Sealer::default());
        let mut remote = PeerChannel::new(other, &config);
        let mut now = Time(1);
        for _ in 0..2000 {
            now = now + Span(rng.below(400_000));
            send_something(&mut sender, now, &mut rng);
            let bytes = random_packet(&mut rng, &[me, other], 40 + round * 20);
            let Ok(packet) = Packet::new_checked(&bytes) else { continue };
            let from = NodeId(rng.below(4) as u16);
            if let Ok(ack) = AckRepr::parse(packet.payload) {
                sender.on_ack(now, from, &ack);
                reach.acks += 1;
            }
            let _ = acked(&packet);
            reach.of_reply(sender.on_reply(now, from, &packet));
            let _ = remote.part_of(&packet);
            reach.of_arrival(remote.on_packet(&packet));
            if let Ok(resend) = ResendRepr::parse(packet.payload) {
                let _ = remote.stored_reply(&resend, &mut Vec::new());
            }
            while remote.owed_ack().is_some() {}
            if rng.chance(300) {
                remote.store_reply(Seq::guarded(other, rng.below(300)), vec![7; 50], rng.below(30) as usize);
            }
            sender.on_timeout(now);
        }
        assert!(remote.kept_bytes() < 64 * 200 + 16 * (1 << 24));
    }
    let Reach { acks, partial, complete, message, incomplete, duplicate } = reach;
    assert!([acks, partial, complete, message, incomplete, duplicate].iter().all(|&n| n > 50), "{reach:?}");
}

/// Without a key nobody knows that this number was damaged on its way.
#[test]
fn a_number_far_ahead_is_acknowledged_without_all_those_between() {
    let other = Channel { node: NodeId(1), slot: Slot::thread(0) };
    let mut remote = PeerChannel::new(other, &LinkConfig::default());
    for counter in [5, 1 << 42] {
        let (seq, flags) = (Seq::guarded(other, counter), Flags::default());
        let mut bytes = Vec::new();
        HeaderRepr { prog: 1, ty: POST, flags, len: 0, retrans: 0, frag: 0, seq }.emit(&mut bytes);
        remote.on_packet(&Packet::new_checked(&bytes).unwrap()).unwrap();
    }
    let acks: Vec<_> = std::iter::from_fn(|| remote.owed_ack()).take(10).collect();
    let counters = |ack: &AckRepr| ack.counters(0, u64::MAX).collect::<Vec<_>>();
    assert!(acks.len() < 10);
    assert_eq!(acks.iter().flat_map(counters).collect::<Vec<_>>(), [1 << 42]);
}

/// Each rule the link stands for, left out: the test that misses it must notice.
#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use crate::rules::{Rule, without};

    fn lossy_requests() -> Net {
        let mut net = net(2, 43, 200);
        for i in 0..200u8 {
            net.send(0, 1, 1, Class::Request, ECHO, &vec![1 + i % 2; 3000]);
            net.send(0, 1, 1, Class::Request, ECHO, &[1, i]);
            net.run(MINUTE, |net| net.outstanding() == 0);
        }
        net
    }

    fn damaged(net: &Net) -> usize {
        let whole = |body: &[u8]| body.len() == 2 || body.iter().all(|b| *b == body[0]);
        net.nodes.iter().flat_map(|n| &n.arrived).filter(|(_, _, body)| !whole(body)).count()
    }

    #[test]
    fn with_all_rules_nothing_comes_twice_or_in_part() {
        let net = lossy_requests();
        assert_eq!((net.nodes[1].arrived_again, damaged(&net)), (0, 0));
    }

    #[test]
    fn without_at_most_once_messages_come_twice() {
        assert!(without(Rule::AtMostOnce, || lossy_requests().nodes[1].arrived_again) > 0);
    }

    #[test]
    fn without_stored_replies_requests_are_executed_again() {
        assert!(without(Rule::RepliesAreStored, || lossy_requests().nodes[1].arrived_again) > 0);
    }

    #[test]
    fn without_all_fragments_messages_have_holes() {
        assert!(without(Rule::FragmentsAllIn, || damaged(&lossy_requests())) > 0);
    }
}
