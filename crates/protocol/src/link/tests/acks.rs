//! Acknowledgements that lie unread because nobody is woken for them.

use super::*;

struct Side {
    sender: Sender,
    remote: PeerChannel,
    encoder: ReplyEncoder,
    /// What was acknowledged without pressing.
    lying: Vec<AckRepr>,
    pressed: usize,
}

const NOW: Time = Time(1_000_000);

fn side(config: LinkConfig) -> Side {
    let (me, home) = (Channel::service(NodeId(0)), Channel::service(NodeId(1)));
    Side {
        sender: Sender::new(me, 1, config, Sealer::new(None)),
        remote: PeerChannel::new(me, &config),
        encoder: ReplyEncoder::new(home, 1, config, Sealer::new(None)),
        lying: Vec::new(),
        pressed: 0,
    }
}

impl Side {
    fn post(&mut self) {
        self.sender.send(Dest::Node(NodeId(1), Slot::SERVICE), Class::Post, MsgType(40), &[1]).unwrap();
    }

    /// What may leave comes, each by itself, and is acknowledged; gives how many.
    fn carry(&mut self) -> usize {
        let (mut out, mut count) = (Vec::new(), 0);
        while let Some(transmit) = self.sender.poll_transmit(NOW, &mut out) {
            for datagram in out.chunks(transmit.segment) {
                count += 1;
                self.remote.on_packet(&Packet::new_checked(datagram).unwrap()).unwrap();
                let presses = self.remote.ack_presses();
                self.lying.extend(self.remote.owed_ack());
                if presses {
                    self.pressed += 1;
                    self.read(NOW);
                }
            }
        }
        count
    }

    /// The sender looks.
    fn read(&mut self, now: Time) {
        for ack in self.lying.drain(..) {
            let mut bytes = Vec::new();
            self.encoder.ack(&ack, &mut bytes);
            let ack = AckRepr::parse(Packet::new_checked(&bytes).unwrap().payload).unwrap();
            self.sender.on_ack(now, NodeId(1), &ack);
        }
    }
}

#[test]
fn who_is_woken_for_those_that_press_never_waits_for_the_others() {
    for at_once in [1, 3, 7, 40] {
        let mut side = side(LinkConfig { acks_may_lie: true, ..LinkConfig::default() });
        let mut came = 0;
        for _ in 0..500 / at_once {
            (0..at_once).for_each(|_| side.post());
            came += side.carry();
        }
        assert_eq!(came, 500 / at_once * at_once, "nothing stays behind, {at_once} at a time");
        assert_eq!(side.pressed, came / 8, "every eighth packet's presses, {at_once} at a time");
    }
}

#[test]
fn what_comes_again_is_acknowledged_at_once() {
    let mut side = side(LinkConfig { acks_may_lie: true, ..LinkConfig::default() });
    side.post();
    assert_eq!((side.carry(), side.pressed), (1, 0));
    let late = side.sender.next_timeout().unwrap();
    side.sender.on_timeout(late);
    let mut out = Vec::new();
    side.sender.poll_transmit(late, &mut out).unwrap();
    let arrival = side.remote.on_packet(&Packet::new_checked(&out).unwrap()).unwrap();
    assert!(matches!(arrival, Arrival::Duplicate(Repeat::Post)) && side.remote.ack_presses());
}

#[test]
fn how_long_one_lay_unread_is_not_taken_for_a_round_trip() {
    for (acks_may_lie, sampled) in [(false, true), (true, false)] {
        let config = LinkConfig { acks_may_lie, ..LinkConfig::default() };
        let mut side = side(config);
        side.post();
        side.carry();
        side.read(NOW + Span::from_ms(100));
        assert_eq!(side.sender.outstanding(), 0);
        assert_eq!(side.sender.rtt(NodeId(1)).is_some_and(|rtt| rtt.smoothed().is_some()), sampled);
    }
}

impl Side {
    /// All that may leave now, by datagrams.
    fn leaves(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (mut out, mut datagrams) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.sender.poll_transmit(now, &mut out) {
            datagrams.extend(out.chunks(transmit.segment).map(<[u8]>::to_vec));
        }
        datagrams
    }

    /// These come, and are acknowledged together.
    fn come(&mut self, now: Time, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            self.remote.on_packet(&Packet::new_checked(datagram).unwrap()).unwrap();
        }
        self.lying.extend(self.remote.owed_ack());
        self.read(now);
    }
}

#[test]
fn what_another_node_acknowledges_is_still_under_way() {
    let mut side = side(LinkConfig::default());
    side.post();
    side.carry();
    let ack = side.lying.pop().unwrap();
    side.sender.on_ack(NOW, NodeId(2), &ack);
    assert_eq!(side.sender.outstanding(), 1);
    side.sender.on_ack(NOW, NodeId(1), &ack);
    assert_eq!(side.sender.outstanding(), 0);
}

#[test]
fn a_packet_is_lost_when_three_that_were_sent_later_have_come_and_not_before() {
    let mut side = side(LinkConfig::default());
    (0..4).for_each(|_| side.post());
    let datagrams = side.leaves(NOW);
    assert_eq!(datagrams.len(), 4);
    for (come, lost) in [(1, 0), (2, 0), (3, 1)] {
        side.come(NOW, &datagrams[come..come + 1]);
        assert_eq!(side.sender.counters().losses_noticed, lost);
    }
}

#[test]
fn as_many_requests_are_remembered_as_may_be_under_way() {
    let mut side = side(LinkConfig { requests_per_service: 6, ..LinkConfig::default() });
    let to = Dest::Node(NodeId(1), Slot::SERVICE);
    while side.sender.send(to, Class::Request, MsgType(40), &[1]).is_ok() {}
    let datagrams = side.leaves(NOW);
    assert_eq!(datagrams.len(), 6);
    for arrival in [None, Some(Arrival::Duplicate(Repeat::Pending))] {
        for datagram in &datagrams {
            let came = side.remote.on_packet(&Packet::new_checked(datagram).unwrap()).unwrap();
            assert!(arrival.as_ref().is_none_or(|expected| came == *expected), "{came:?}");
        }
    }
}

#[test]
fn a_message_that_finds_no_room_to_be_half_in_is_left_unseen_until_there_is_some() {
    const LONG: usize = 2000;
    let mut side = side(LinkConfig::default());
    let (mut sent, mut now) = (Vec::new(), NOW);
    for _ in 0..=receiver::ASSEMBLIES_MAX {
        let to = Dest::Node(NodeId(1), Slot::SERVICE);
        side.sender.send(to, Class::Post, MsgType(40), &[1; LONG]).unwrap();
        let datagrams = side.leaves(now);
        assert_eq!(datagrams.len(), 2);
        side.come(now, &datagrams);
        sent.push(datagrams);
        now = now + Span::from_ms(1);
    }
    let mut remote = PeerChannel::new(Channel::service(NodeId(0)), &LinkConfig::default());
    let mut comes = |message: usize, fragment: usize| {
        let packet = Packet::new_checked(&sent[message][fragment]).unwrap();
        let is_whole = remote.on_packet(&packet).unwrap() != Arrival::Incomplete;
        (is_whole, remote.kept_bytes())
    };
    for message in 0..receiver::ASSEMBLIES_MAX {
        assert_eq!(comes(message, 0), (false, (message + 1) * LONG));
    }
    let (full, last) = (receiver::ASSEMBLIES_MAX * LONG, receiver::ASSEMBLIES_MAX);
    assert_eq!(comes(last, 0), (false, full));
    assert_eq!(comes(0, 1), (true, full - LONG));
    assert_eq!(comes(last, 1), (false, full), "there is room, and the other fragment was not seen");
    assert_eq!(comes(last, 0), (true, full - LONG));
}

/// A post, or a fragment of one, with this number of node 0's service channel.
fn numbered(counter: u64, frag: u8, body: &[u8]) -> Vec<u8> {
    let (seq, mut out) = (Seq::guarded(Channel::service(NodeId(0)), counter), Vec::new());
    let (ty, flags, len) = (MsgType(40), Flags::default(), body.len() as u16);
    HeaderRepr { prog: 1, ty, flags, len, retrans: 0, frag, seq }.emit(&mut out);
    out.extend_from_slice(body);
    out
}

#[test]
fn a_message_may_be_half_in_as_long_as_what_is_missing_may_come() {
    for (newest, comes) in [(WINDOW, true), (WINDOW + 1, false)] {
        let mut remote = PeerChannel::new(Channel::service(NodeId(0)), &LinkConfig::default());
        let fragments = [numbered(0, 1, &[2, 0, 0, 4, 1, 2]), numbered(1, 2, &[2, 0, 0, 4, 3, 4])];
        let [first, second] = fragments.each_ref().map(|bytes| Packet::new_checked(bytes).unwrap());
        assert_eq!(remote.on_packet(&first), Ok(Arrival::Incomplete));
        remote.on_packet(&Packet::new_checked(&numbered(newest, 0, &[9])).unwrap()).unwrap();
        match remote.on_packet(&second).unwrap() {
            Arrival::Message { body, .. } => assert!(comes && body[..] == [1, 2, 3, 4]),
            other => assert!(!comes && other == Arrival::Stale, "{other:?}"),
        }
    }
}

#[test]
fn an_acknowledgement_repeats_what_was_acknowledged_shortly_before() {
    let mut side = side(LinkConfig::default());
    let mut last = None;
    for counter in 0..100 {
        side.remote.on_packet(&Packet::new_checked(&numbered(counter, 0, &[1])).unwrap()).unwrap();
        last = side.remote.owed_ack();
    }
    assert!(last.unwrap().counters(0, 200).eq(0..100), "had all before it been lost");
}

#[test]
fn what_no_correct_sender_sends_is_refused() {
    let mut remote = PeerChannel::new(Channel::service(NodeId(0)), &LinkConfig::default());
    let packet = |seq: Seq, flags: Flags, frag: u8, body: &[u8]| {
        let (mut out, ty) = (Vec::new(), MsgType(40));
        HeaderRepr { prog: 1, ty, flags, len: body.len() as u16, retrans: 0, frag, seq }.emit(&mut out);
        out.extend_from_slice(body);
        out
    };
    let (me, other, plain) = (Channel::service(NodeId(0)), Channel::service(NodeId(2)), Flags::default());
    let request = Flags { ack_requested: true, ..plain };
    let far = (WINDOW as u16 + 1).to_be_bytes();
    for (what, bytes) in [
        ("of another channel", packet(Seq::guarded(other, 5), plain, 0, &[1])),
        ("a reply", packet(Seq::guarded(me, 5), Flags { ack: true, ..plain }, 0, &[1])),
        ("a free request", packet(Seq::free(me, 5), request, 0, &[1])),
        // 600,000 bytes in 255 fragments.
        (
            "longer than a free message",
            packet(Seq::free(me, 0), plain, 1, &[&[255, 9, 39, 192][..], &[0; 2353]].concat()),
        ),
        ("what is waited for lies beyond the window", packet(Seq::guarded(me, 9000), request, 0, &far)),
    ] {
        assert!(remote.on_packet(&Packet::new_checked(&bytes).unwrap()).is_err(), "{what}");
    }
    assert_eq!(remote.kept_bytes(), 0);
    let mut side = side(LinkConfig::default());
    side.sender.send(Dest::Node(NodeId(1), Slot::SERVICE), Class::Request, MsgType(40), &[1]).unwrap();
    side.leaves(NOW);
    let body = [&Seq::guarded(me, 0).0.to_be_bytes()[..], &[2]].concat();
    let reply = packet(Seq::free(Channel::service(NodeId(1)), 0), plain, 0, &body);
    assert!(side.sender.on_reply(NOW, NodeId(1), &Packet::new_checked(&reply).unwrap()).is_err(), "not marked as one");
    side.post();
    side.leaves(NOW);
    let mut ack = AckRepr::new(other, 0);
    ack.push(u64::MAX);
    side.sender.on_ack(NOW, NodeId(1), &ack);
    assert_eq!(side.sender.outstanding(), 2, "of another channel's packets");
}
