//! Replies of several fragments, sent from where they were made and received where they belong.

use super::*;

/// A reply of three long fragments to a request of node 0's thread, one datagram each, and the sender that asked.
fn long_reply() -> (Sender, Vec<u8>, Vec<Vec<u8>>) {
    let config = LinkConfig { datagram_bytes: 30_000, ..LinkConfig::default() };
    let me = Channel { node: NodeId(0), slot: Slot::thread(0) };
    let mut sender = Sender::new(me, 1, config, Sealer::new(None));
    let to = Dest::Node(NodeId(1), Slot::SERVICE);
    let seq = sender.send(to, Class::Request, MsgType(40), &[1]).unwrap();
    while sender.poll_transmit(Time(0), &mut Vec::new()).is_some() {}
    let body: Vec<u8> = (0..80_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    let (mut out, home) = (Vec::new(), Channel::service(NodeId(1)));
    let segment = ReplyEncoder::new(home, 1, config, Sealer::new(None)).reply(seq, MsgType(41), false, &body, &mut out);
    let datagrams = out.chunks(segment.unwrap()).map(<[u8]>::to_vec).collect();
    (sender, body, datagrams)
}

/// Wishes for the rest of replies are held up by the pace, and then the rest comes by itself.
#[test]
fn when_everything_is_answered_nothing_is_waited_for() {
    let (config, me, home) = (LinkConfig::default(), Channel::service(NodeId(0)), Channel::service(NodeId(1)));
    let mut sender = Sender::new(me, 1, config, Sealer::default());
    let mut encoder = ReplyEncoder::new(home, 1, config, Sealer::default());
    let (mut now, mut out, mut seconds) = (Time(0), Vec::new(), Vec::new());
    let come = |sender: &mut Sender, now, datagram: &[u8]| {
        sender.on_reply(now, NodeId(1), &Packet::new_checked(datagram).unwrap()).map(drop).unwrap()
    };
    for len in std::iter::once(1).chain([2000; 40]) {
        let to = Dest::Node(NodeId(1), Slot::SERVICE);
        let seq = sender.send(to, Class::Request, MsgType(40), &[1]).unwrap();
        while sender.poll_transmit(now, &mut out).is_some() {}
        now = now + Span::from_ms(10);
        let mut reply = Vec::new();
        let segment = encoder.reply(seq, MsgType(41), false, &vec![2; len], &mut reply).unwrap();
        let mut datagrams = reply.chunks(segment);
        come(&mut sender, now, datagrams.next().unwrap());
        seconds.extend(datagrams.map(<[u8]>::to_vec));
    }
    now = now + Span::from_ms(500);
    sender.on_timeout(now);
    while sender.poll_transmit(now, &mut out).is_some() {}
    assert!(sender.next_timeout().is_some());
    seconds.iter().for_each(|datagram| come(&mut sender, now, datagram));
    assert_eq!((sender.outstanding(), sender.next_timeout()), (0, None));
}

/// Nobody acknowledges a request: its answer alone says that the next may leave.
#[test]
fn an_answer_makes_room_for_a_request_that_waits() {
    let (config, me, home) = (LinkConfig::default(), Channel::service(NodeId(0)), Channel::service(NodeId(1)));
    let mut sender = Sender::new(me, 1, config, Sealer::default());
    let (mut out, mut reply) = (Vec::new(), Vec::new());
    let mut seqs = Vec::new();
    while !sender.has_queued() {
        let to = Dest::Node(NodeId(1), Slot::SERVICE);
        seqs.push(sender.send(to, Class::Request, MsgType(40), &[1]).unwrap());
        while sender.poll_transmit(Time(0), &mut out).is_some() {}
    }
    assert!(seqs.len() > 2, "{}", seqs.len());
    let mut encoder = ReplyEncoder::new(home, 1, config, Sealer::default());
    encoder.reply(seqs[0], MsgType(41), false, &[2], &mut reply).unwrap();
    let now = Time(0) + Span::from_ms(1);
    sender.on_reply(now, NodeId(1), &Packet::new_checked(&reply).unwrap()).unwrap();
    assert!(sender.has_queued());
    assert!(sender.poll_transmit(now, &mut out).is_some());
    assert!(!sender.has_queued());
}

fn comes_by_the_buffer(sender: &mut Sender, datagram: &[u8]) -> Option<Vec<u8>> {
    match sender.on_reply(Time(1), NodeId(1), &Packet::new_checked(datagram).unwrap()).unwrap() {
        Reply::Complete { body, .. } => Some(body.into_owned()),
        _ => None,
    }
}

fn comes_in_its_place(sender: &mut Sender, datagram: &[u8]) -> Option<Vec<u8>> {
    let mut lent = sender.lend().unwrap();
    lent.room().copy_from_slice(datagram);
    let packet = Packet::new_checked(lent.received()).unwrap();
    assert!(lent.is_expected(&packet));
    let header = packet.header;
    match sender.on_lent(Time(1), NodeId(1), lent, &header).unwrap() {
        Reply::Complete { body, .. } => Some(body.into_owned()),
        _ => None,
    }
}

#[test]
fn fragments_that_are_received_where_they_belong_make_the_reply() {
    let (mut sender, body, datagrams) = long_reply();
    assert_eq!(datagrams.len(), 3);
    assert!(sender.lend().is_none(), "nothing of it has come");
    assert_eq!(comes_by_the_buffer(&mut sender, &datagrams[0]), None);
    assert_eq!(comes_in_its_place(&mut sender, &datagrams[1]), None);
    assert_eq!(comes_in_its_place(&mut sender, &datagrams[2]), Some(body));
    assert!(sender.lend().is_none() && sender.outstanding() == 0);
}

#[test]
fn what_comes_instead_of_the_fragment_that_is_expected_spoils_nothing() {
    let (mut sender, body, datagrams) = long_reply();
    comes_by_the_buffer(&mut sender, &datagrams[0]);
    let mut lent = sender.lend().unwrap();
    assert!(sender.lend().is_none(), "its place is lent");
    lent.room()[..datagrams[2].len()].copy_from_slice(&datagrams[2]);
    assert!(
        !lent.is_expected(&Packet::new_checked(&datagrams[2]).unwrap())
            && !lent.is_expected(&Packet::new_checked(&datagrams[0]).unwrap())
    );
    assert_eq!(comes_by_the_buffer(&mut sender, &datagrams[1]), None, "dropped");
    assert!(sender.take_back(lent));
    assert_eq!(comes_by_the_buffer(&mut sender, &datagrams[2]), None);
    assert_eq!(comes_in_its_place(&mut sender, &datagrams[1]), Some(body));
}

#[test]
fn a_reply_that_is_sent_from_where_it_was_made_is_the_same() {
    let (mut sender, body, datagrams) = long_reply();
    let packet = Packet::new_checked(&datagrams[0]).unwrap();
    let seq = Seq(u64::from_be_bytes(*packet.payload.first_chunk().unwrap()));
    let config = LinkConfig { datagram_bytes: 30_000, ..LinkConfig::default() };
    let mut encoder = ReplyEncoder::new(Channel::service(NodeId(1)), 1, config, Sealer::new(None));
    let behind_room = |body: &[u8]| [&[0; LEAD][..], body].concat();
    let mut made = behind_room(&body);
    let mut reply = encoder.long_reply(seq, MsgType(41), &mut made).unwrap();
    // All is alike but the datagrams' own numbers, which go on; and twice, so nothing was left behind in the body.
    let rest = |d: &[u8]| [&d[..HEADER_BYTES - 8], &d[HEADER_BYTES..]].concat();
    for _ in 0..2 {
        let mut sent: Vec<Vec<u8>> = Vec::new();
        reply.each_datagram(|datagram| sent.push(datagram.to_vec()));
        assert!(sent.iter().map(|d| rest(d)).eq(datagrams.iter().map(|d| rest(d))));
    }
    // The second fragment is lost, and asked for.
    let mut remote = PeerChannel::new(Channel { node: NodeId(0), slot: Slot::thread(0) }, &config);
    remote.store_long_reply(seq, reply);
    assert!(remote.kept_bytes() > body.len());
    let (mut again, mut have) = (Vec::new(), [0; 4]);
    have[0] = 0b101;
    assert_eq!(remote.stored_reply(&ResendRepr { seq, have }, &mut again), Some(datagrams[0].len()));
    assert_eq!(rest(&again), rest(&datagrams[1]));
    comes_by_the_buffer(&mut sender, &datagrams[0]);
    assert_eq!(comes_in_its_place(&mut sender, &again), None);
    assert_eq!(comes_in_its_place(&mut sender, &datagrams[2]), Some(body.clone()));
    // Short fragments come several at a time.
    let mut short = ReplyEncoder::new(Channel::service(NodeId(1)), 1, LinkConfig::default(), Sealer::new(None));
    for (encoder, body) in [(&mut short, &body[..]), (&mut encoder, &body[..29_000])] {
        let mut made = behind_room(body);
        assert!(encoder.long_reply(seq, MsgType(41), &mut made).is_none());
        assert_eq!(made.len(), LEAD + body.len(), "left as it was");
    }
}

#[test]
fn a_long_reply_that_is_sent_from_where_it_was_made_is_sealed_as_any_other() {
    let sealer = Sealer::new(Some(JobKey::new([7; 32])));
    let config = LinkConfig { datagram_bytes: 30_000, ..LinkConfig::default() };
    let me = Channel { node: NodeId(0), slot: Slot::thread(0) };
    let seq = Seq::guarded(me, 5);
    let body: Vec<u8> = (0..80_000u32).map(|i| (i * 7) as u8).collect();
    let mut encoder = ReplyEncoder::new(Channel::service(NodeId(1)), 1, config, sealer.clone());
    let mut usual = Vec::new();
    let segment = encoder.reply(seq, MsgType(41), false, &body, &mut usual).unwrap();
    let mut made = [&[0; LEAD][..], &body].concat();
    let mut reply = encoder.long_reply(seq, MsgType(41), &mut made).unwrap();
    let open = |datagram: &[u8]| {
        let bytes = sealer.open(datagram, Receiver::Node(NodeId(0))).expect("its tag is right");
        Packet::new_checked(bytes).unwrap().payload.to_vec()
    };
    let expected: Vec<Vec<u8>> = usual.chunks(segment).map(open).collect();
    // Twice, so nothing was left behind in the body.
    for _ in 0..2 {
        let mut sent = Vec::new();
        reply.each_datagram(|datagram| sent.push(datagram.to_vec()));
        assert_eq!(
            sent.iter().map(|d| d.len()).collect::<Vec<_>>(),
            usual.chunks(segment).map(<[u8]>::len).collect::<Vec<_>>()
        );
        assert!(sent.iter().map(|datagram| open(datagram)).eq(expected.iter().cloned()));
    }
    // The last fragment is lost, and asked for.
    let mut remote = PeerChannel::new(me, &config);
    remote.store_long_reply(seq, reply);
    let (mut again, mut have) = (Vec::new(), [0; 4]);
    have[0] = (1 << (expected.len() - 1)) - 1;
    assert_eq!(remote.stored_reply(&ResendRepr { seq, have }, &mut again), Some(segment));
    assert_eq!(open(&again), *expected.last().unwrap());
}

/// A sender that has asked node 1, unless it has not come to that yet, and a reply to that request, or as if to one so
/// much behind it, by this node.
fn asks(len: usize, sends: bool) -> (Sender, impl Fn(&mut Sender, Time, NodeId, u64) -> bool) {
    let (config, me) = (LinkConfig::default(), Channel::service(NodeId(0)));
    let mut sender = Sender::new(me, 1, config, Sealer::default());
    let to = Dest::Node(NodeId(1), Slot::SERVICE);
    let seq = sender.send(to, Class::Request, MsgType(40), &vec![1; len]).unwrap();
    while sends && sender.poll_transmit(Time(0), &mut Vec::new()).is_some() {}
    let comes = move |sender: &mut Sender, now: Time, from: NodeId, behind: u64| {
        let mut reply = Vec::new();
        let mut encoder = ReplyEncoder::new(Channel::service(from), 1, config, Sealer::default());
        encoder.reply(Seq(seq.0 + behind), MsgType(41), false, &[2], &mut reply).unwrap();
        let reply = sender.on_reply(now, from, &Packet::new_checked(&reply).unwrap()).unwrap();
        matches!(reply, Reply::Complete { .. })
    };
    (sender, comes)
}

#[test]
fn only_what_was_asked_is_answered() {
    let (mut sender, comes) = asks(5000, true);
    assert!(!comes(&mut sender, Time(1), NodeId(1), 1), "that is the number of a fragment");
    assert!(comes(&mut sender, Time(1), NodeId(1), 0));
    let (mut sender, comes) = asks(1, false);
    assert!(!comes(&mut sender, Time(1), NodeId(1), 0), "nobody has heard of it yet");
    while sender.poll_transmit(Time(1), &mut Vec::new()).is_some() {}
    assert!(comes(&mut sender, Time(2), NodeId(1), 0));
}

#[test]
fn a_round_trip_is_that_of_a_request_that_was_sent_once_and_answered_by_who_was_asked() {
    for (again, from, sampled) in [(false, 1, true), (true, 1, false), (false, 2, false)] {
        let (mut sender, comes) = asks(1, true);
        let late = sender.next_timeout().unwrap();
        if again {
            sender.on_timeout(late);
            assert!(sender.poll_transmit(late, &mut Vec::new()).is_some());
        }
        assert!(comes(&mut sender, late, NodeId(from), 0));
        assert_eq!(sender.rtt(NodeId(1)).is_some_and(|rtt| rtt.smoothed().is_some()), sampled, "{again} {from}");
    }
}

/// To which nodes the wishes for the rest of a reply go, one after the other.
fn wishes(sender: &mut Sender) -> [To; 4] {
    let mut next = || {
        let late = sender.next_timeout()?;
        sender.on_timeout(late);
        sender.poll_transmit(late, &mut Vec::new())
    };
    std::array::from_fn(|_| (0..3).find_map(|_| next()).unwrap().to)
}

#[test]
fn the_rest_of_a_reply_is_wished_for_from_who_sent_the_last_of_it_and_now_and_then_from_who_was_asked() {
    let [asked, other] = [1, 2].map(|node| To::Node(NodeId(node)));
    let (mut sender, _, datagrams) = long_reply();
    let mut comes = |from: u16, at: usize| {
        sender.on_reply(Time(1), NodeId(from), &Packet::new_checked(&datagrams[at]).unwrap()).map(drop).unwrap();
    };
    comes(1, 0);
    comes(2, 1);
    assert_eq!(wishes(&mut sender), [other, other, other, asked]);
}

/// What claims to be of the same message and is cut otherwise.
#[test]
fn fragments_of_another_cut_are_refused_and_spoil_nothing() {
    let datagrams = |class, len: usize| {
        let mut sender = Sender::new(Channel::service(NodeId(0)), 1, LinkConfig::default(), Sealer::default());
        let (to, mut out, mut all) = (Dest::Node(NodeId(1), Slot::SERVICE), Vec::new(), Vec::new());
        sender.send(to, class, MsgType(40), &vec![7; len]).unwrap();
        while let Some(transmit) = sender.poll_transmit(Time(0), &mut out) {
            all.extend(out.chunks(transmit.segment).map(<[u8]>::to_vec));
        }
        all
    };
    for class in [Class::Post, Class::Request, Class::Free] {
        let (right, wrong) = (datagrams(class, 5000), datagrams(class, 4000));
        let mut remote = PeerChannel::new(Channel::service(NodeId(0)), &LinkConfig::default());
        let mut comes = |datagram: &[u8]| match remote.on_packet(&Packet::new_checked(datagram).unwrap()) {
            Ok(Arrival::Message { body, .. }) => Ok(body.len()),
            other => other.map(|_| 0),
        };
        assert_eq!(comes(&right[0]), Ok(0));
        assert_eq!(comes(&wrong[1]), Err(WireError::BadValue("fragment")));
        let come: Vec<_> = right[1..].iter().map(|datagram| comes(datagram).unwrap()).collect();
        assert_eq!(come, [0, 0, 5000], "{class:?}");
    }
    let (mut sender, body, datagrams) = long_reply();
    assert_eq!(comes_by_the_buffer(&mut sender, &datagrams[0]), None);
    let packet = Packet::new_checked(&datagrams[0]).unwrap();
    let seq = Seq(u64::from_be_bytes(*packet.payload.first_chunk().unwrap()));
    let (config, mut wrong) = (LinkConfig { datagram_bytes: 30_000, ..LinkConfig::default() }, Vec::new());
    let mut encoder = ReplyEncoder::new(Channel::service(NodeId(1)), 1, config, Sealer::new(None));
    let segment = encoder.reply(seq, MsgType(41), false, &body[..79_000], &mut wrong).unwrap();
    let second = Packet::new_checked(&wrong[segment..2 * segment]).unwrap();
    assert!(sender.on_reply(Time(1), NodeId(1), &second).is_err());
    assert_eq!(comes_by_the_buffer(&mut sender, &datagrams[1]), None);
    assert_eq!(comes_by_the_buffer(&mut sender, &datagrams[2]), Some(body));
}

#[test]
fn of_a_stored_reply_what_is_there_is_not_sent_again() {
    let (_, _, datagrams) = long_reply();
    let packet = Packet::new_checked(&datagrams[0]).unwrap();
    let seq = Seq(u64::from_be_bytes(*packet.payload.first_chunk().unwrap()));
    let me = Channel { node: NodeId(0), slot: Slot::thread(0) };
    let mut remote = PeerChannel::new(me, &LinkConfig::default());
    remote.store_reply(seq, datagrams.concat(), datagrams[0].len());
    let (mut again, mut have) = (Vec::new(), [0; 4]);
    have[0] = 0b001;
    assert_eq!(remote.stored_reply(&ResendRepr { seq, have }, &mut again), Some(datagrams[0].len()));
    assert_eq!(again, datagrams[1..].concat());
}
