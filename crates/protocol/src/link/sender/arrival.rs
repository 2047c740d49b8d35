//! What comes back to a sender: acknowledgements of packets, and replies.

use super::peer::{self, Repeat};
use super::{Sender, State, Target};
use crate::ids::{NODES_MAX, NodeId, Seq};
use crate::link::control::AckRepr;
use crate::link::fragment::{Assembly, Cut};
use crate::link::{Class, lane_of};
use crate::time::Time;
use crate::wire::bytes::{Reader, WireError};
use crate::wire::header::{HeaderRepr, MsgType, Packet};
use std::borrow::Cow;

/// What a reply meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'p> {
    /// The request is answered.
    Complete {
        /// The request's number.
        seq: Seq,
        /// What the reply is about.
        ty: MsgType,
        /// Whether it is a refusal.
        nack: bool,
        /// Its body. Owned when it came in fragments: [`Sender::recycle`] takes it back.
        body: Cow<'p, [u8]>,
    },
    /// More of it is to come.
    Partial,
    /// Nobody waits for it (any more): drop it.
    Late,
}

/// What an acknowledgement has brought.
#[derive(Default)]
struct Gain {
    packets: u32,
    /// It names something that is still kept.
    names_kept: bool,
    /// When the newest packet among those sent once was sent, and its place in order.
    newest: Option<(Time, u64)>,
}

impl Sender {
    /// Takes in an acknowledgement of packets from node `from`.
    pub fn on_ack(&mut self, now: Time, from: NodeId, ack: &AckRepr) {
        if ack.channel() != self.me || from.index() >= NODES_MAX {
            return;
        }
        self.heard(now, from);
        let before = self.peer(from).in_flight;
        let mut gain = Gain::default();
        for counter in ack.counters(self.oldest(), self.head) {
            gain.names_kept = true;
            self.on_packet_received(now, from, counter, &mut gain);
        }
        self.retire();
        if gain.packets > 0 {
            let came_at_once = !self.config.acks_may_lie;
            let peer = self.peer(from);
            if let Some((at, order)) = gain.newest {
                peer.vain_acks = 0;
                if came_at_once {
                    peer.rtt.sample(now, now - at);
                }
                peer.newest_arrived = peer.newest_arrived.max(order);
            }
            peer.congestion.on_arrived(gain.packets, before);
        } else if !gain.names_kept && !self.config.acks_may_lie {
            // What comes a second time is acknowledged again. A network doubles datagrams, too, and a reply may
            // overtake acknowledgements of its request's packets, but not so many in a row.
            let config = self.config;
            let peer = self.peer(from);
            peer.vain_acks = peer.vain_acks.saturating_add(1);
            if peer.vain_acks > 3 {
                peer.rtt.on_late_answer(now, &config);
            }
        }
        self.notice_losses(now, from);
    }

    fn on_packet_received(&mut self, now: Time, from: NodeId, counter: u64, gain: &mut Gain) {
        let at = (counter - self.oldest()) as usize;
        let sent = &mut self.packets[at];
        let ordinal = sent.ordinal;
        let message = &mut self.messages[(ordinal - self.first_ordinal) as usize];
        if !message.live || sent.times == 0 {
            return;
        }
        match &mut message.target {
            Target::Node(node, _) if *node != from => return,
            Target::Node(..) if sent.state == State::Received => {
                message.noted |= message.tries > 0;
                // While a reply is half in, its sender is waited for, and not who was asked.
                if message.reply.as_ref().is_none_or(|(replier, _)| *replier == from) {
                    message.answered = now;
                }
                return;
            }
            Target::Node(..) => {}
            Target::Group(group) => {
                let index = (counter - message.first) as usize;
                if !group.missing.remove(&(index, from)) {
                    return;
                }
                if group.lacks(index).next().is_some() {
                    return;
                }
            }
        }
        if sent.state == State::InFlight {
            match &message.target {
                Target::Node(..) => {
                    peer::of(&mut self.peers, from).in_flight -= 1;
                    gain.packets += 1;
                    if sent.times == 1 {
                        gain.newest = gain.newest.max(Some((sent.at, sent.order)));
                    }
                }
                Target::Group(_) => self.group.on_group_arrived(now, sent.at),
            }
        }
        sent.state = State::Received;
        message.answered = now;
        message.left -= 1;
        if message.left == 0 {
            self.on_message_received(now, ordinal);
        }
    }

    /// All packets of a message have arrived.
    fn on_message_received(&mut self, now: Time, ordinal: u64) {
        let message = &mut self.messages[(ordinal - self.first_ordinal) as usize];
        if message.class == Class::Post {
            self.complete(ordinal);
            return;
        }
        let Target::Node(node, _) = message.target else { return };
        message.noted = message.cut.count == 1;
        let pause = if message.noted {
            self.config.probe_min
        } else {
            peer::of(&mut self.peers, node).rtt.timeout(&self.config)
        };
        message.wait = Some(now + pause);
        self.arm(now + pause);
    }

    /// Packets are lost when three that were sent later to the same node have arrived.
    fn notice_losses(&mut self, now: Time, node: NodeId) {
        let oldest = self.oldest();
        let peer = peer::of(&mut self.peers, node);
        while let Some(&(order, counter)) = peer.flight.front() {
            let sent = counter.checked_sub(oldest).and_then(|at| self.packets.get_mut(at as usize));
            let sent = sent.filter(|s| s.state == State::InFlight && s.order == order);
            if sent.is_some() && order + peer::LATER_ARRIVALS > peer.newest_arrived {
                break;
            }
            peer.flight.pop_front();
            if let Some(sent) = sent {
                sent.state = State::Lost;
                peer.in_flight -= 1;
                peer.congestion.on_lost(now, sent.at, &peer.rtt);
                let ty = self.messages[(sent.ordinal - self.first_ordinal) as usize].ty;
                peer.lanes[lane_of(ty)].repeat.push_back(Repeat::Packet(counter));
                self.counters.losses_noticed += 1;
            }
        }
        self.make_ready(node);
    }

    /// Takes in a reply, which need not come from the node that was asked.
    ///
    /// # Errors
    /// Says what is wrong with the packet, which then has had no effect.
    pub fn on_reply<'p>(&mut self, now: Time, from: NodeId, packet: &Packet<'p>) -> Result<Reply<'p>, WireError> {
        let mut r = Reader::new(packet.payload);
        let seq = Seq(r.u64()?);
        if !packet.header.flags.ack || from.index() >= NODES_MAX {
            return Err(WireError::BadValue("flags"));
        }
        let (cut, index, bytes) = Cut::parse(packet.header.frag, &mut r)?;
        self.heard(now, from);
        let Some(ordinal) = self.request(seq) else {
            peer::of(&mut self.peers, from).rtt.on_late_answer(now, &self.config);
            return Ok(Reply::Late);
        };
        let body = if cut.count == 1 {
            Cow::Borrowed(bytes)
        } else {
            match self.on_reply_fragment(now, from, ordinal, cut, index, Some(bytes))? {
                Some(body) => Cow::Owned(body),
                None => return Ok(Reply::Partial),
            }
        };
        Ok(self.answered(now, from, ordinal, (seq, &packet.header), body))
    }

    /// The reply is in.
    pub(super) fn answered<'p>(
        &mut self,
        now: Time,
        from: NodeId,
        ordinal: u64,
        (seq, header): (Seq, &HeaderRepr),
        body: Cow<'p, [u8]>,
    ) -> Reply<'p> {
        self.accept(now, from, ordinal);
        self.complete(ordinal);
        self.retire();
        Reply::Complete { seq, ty: header.ty, nack: header.flags.nack, body }
    }

    /// The ordinal of the request with this number, when its reply is still awaited.
    pub(super) fn request(&self, seq: Seq) -> Option<u64> {
        if seq.is_free() || seq.channel() != Some(self.me) {
            return None;
        }
        let at = seq.counter().checked_sub(self.oldest())?;
        let sent = self.packets.get(usize::try_from(at).ok()?)?;
        let message = &self.messages[(sent.ordinal - self.first_ordinal) as usize];
        let waits = message.live && message.class == Class::Request && message.first == seq.counter();
        (waits && sent.times > 0).then_some(sent.ordinal)
    }

    /// A fragment has come: its bytes, or `None` when they are where they belong.
    pub(super) fn on_reply_fragment(
        &mut self,
        now: Time,
        from: NodeId,
        ordinal: u64,
        cut: Cut,
        index: usize,
        bytes: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let message = &mut self.messages[(ordinal - self.first_ordinal) as usize];
        if message.reply.as_ref().is_some_and(|(_, assembly)| assembly.cut() != cut) {
            return Err(WireError::BadValue("fragment"));
        }
        let spares = &mut self.spares;
        let (replier, assembly) = message.reply.get_or_insert_with(|| (from, Assembly::new(cut, spares)));
        *replier = from;
        let is_new = match bytes {
            Some(bytes) => assembly.insert(index, bytes),
            None => assembly.note(index),
        };
        if is_new {
            message.tries = 0;
            message.answered = now;
        }
        if assembly.is_complete() {
            return Ok(message.reply.take().map(|(_, assembly)| assembly.into_bytes()));
        }
        let more_to_come = assembly.lacks_beyond(index);
        self.accept(now, from, ordinal);
        let rtt = &peer::of(&mut self.peers, from).rtt;
        // Fragments come in order: when none can follow, those that are missing are lost or late by a little.
        let at = now + if more_to_come { rtt.timeout(&self.config) } else { rtt.reordering() };
        self.messages[(ordinal - self.first_ordinal) as usize].wait = Some(at);
        self.arm(at);
        Ok(None)
    }

    /// Every packet of the request has evidently arrived. Its round trip is measured when the node asked is the one
    /// that answers at once.
    fn accept(&mut self, now: Time, replier: NodeId, ordinal: u64) {
        let oldest = self.oldest();
        let message = &mut self.messages[(ordinal - self.first_ordinal) as usize];
        let Target::Node(node, _) = message.target else { return };
        let peer = peer::of(&mut self.peers, node);
        let start = (message.first - oldest) as usize;
        let (before, mut arrived, mut repeated) = (peer.in_flight, 0, false);
        for sent in self.packets.range_mut(start..start + message.cut.count) {
            if sent.state == State::InFlight {
                peer.in_flight -= 1;
                arrived += 1;
                if message.cut.count == 1 && sent.times == 1 {
                    let took = now - sent.at;
                    if replier == node { peer.rtt.sample(now, took) } else { peer.rtt.sample_of_other(now, took) }
                }
            }
            repeated |= sent.times > 1;
            sent.state = State::Received;
        }
        message.left = 0;
        if !repeated {
            peer.vain_acks = 0;
        }
        if arrived > 0 {
            peer.congestion.on_arrived(arrived, before);
        }
        self.make_ready(node);
    }
}
