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
