//! What to transmit next: complete, sealed datagrams, as many to one socket as one system call can take.

use super::peer::{self, Repeat};
use super::{FreeTarget, Message, Sender, State, Target};
use crate::auth::Receiver;
use crate::ids::{NodeId, Seq, Slot};
use crate::link::control::ResendRepr;
use crate::link::reply::close;
use crate::link::{Class, DATAGRAM_MAX};
use crate::time::Time;
use crate::wire::bytes::Put;
use crate::wire::header::{Flags, HEADER_BYTES, HeaderRepr, MsgType};

/// Datagrams in one batch, as many as every kernel with `UDP_SEGMENT` takes.
pub const SEGMENTS_MAX: usize = 64;
/// Bytes in one batch.
pub const BATCH_BYTES_MAX: usize = DATAGRAM_MAX;

/// Who gets a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// One node.
    Node(NodeId),
    /// The nodes in [`Sender::group_members`]; by multicast where there is such a group, else to each.
    Group,
}

/// A batch of datagrams, which stand one behind the other in the buffer given to [`Sender::poll_transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Who gets it.
    pub to: To,
    /// In which slot.
    pub slot: Slot,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
}

/// The next thing to transmit to a node.
#[derive(Clone, Copy)]
enum Item {
    Fresh(u64),
    Repeat(Repeat),
}

/// A batch that is being filled.
struct Batch {
    to: To,
    slot: Slot,
    segment: usize,
    count: usize,
    full: bool,
}

impl Batch {
    fn new(to: To) -> Batch {
        Batch { to, slot: Slot::SERVICE, segment: 0, count: 0, full: false }
    }

    /// Whether another datagram fits; if so it counts as in.
    fn take(&mut self, slot: Slot, len: usize, filled: usize) -> bool {
        if self.count == 0 {
            (self.slot, self.segment) = (slot, len);
        } else if self.full || slot != self.slot || len > self.segment || filled + len > BATCH_BYTES_MAX {
            return false;
        }
        self.count += 1;
        self.full = self.count == SEGMENTS_MAX || len < self.segment;
        true
    }

    fn done(self) -> Option<Transmit> {
        (self.count > 0).then_some(Transmit { to: self.to, slot: self.slot, segment: self.segment })
    }
}

impl Sender {
    /// Fills `out` with the next batch of datagrams and says where it goes; `None` when there is nothing to transmit
    /// now. Call it until then.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        out.clear();
        self.held_until = None;
        let transmit = self.transmit_free(out).or_else(|| self.transmit_group(now, out)).or_else(|| {
            (0..self.ready.len()).find_map(|_| {
                let node = self.ready.pop_front()?;
                let transmit = self.transmit_to(node, now, out);
                let peer = peer::of(&mut self.peers, node);
                peer.ready = peer.has_queued();
                if peer.ready {
                    self.ready.push_back(node);
                }
                transmit
            })
        });
        self.counters.bytes += out.len() as u64;
        transmit
    }

    /// The receivers of the last batch that went [`To::Group`].
    pub fn group_members(&self) -> &[NodeId] {
        &self.group_members
    }

    fn transmit_free(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (to, slot) = match &self.free.front()?.to {
            FreeTarget::Node(node, slot) => (To::Node(*node), *slot),
            FreeTarget::Group(_) => (To::Group, Slot::SERVICE),
        };
        let mut batch = Batch::new(to);
        while let Some(free) = self.free.front() {
            let same = match &free.to {
                FreeTarget::Node(node, s) => To::Node(*node) == to && *s == slot,
                FreeTarget::Group(_) => to == To::Group && batch.count == 0,
            };
            let len = HEADER_BYTES + free.body.len() + self.sealer.tag_len();
            if !same || !batch.take(slot, len, out.len()) {
                break;
            }
            let Some(free) = self.free.pop_front() else { break };
            let at = out.len();
            let flags = Flags::default();
            let (frag, seq) = (free.frag, free.seq);
            HeaderRepr { prog: self.prog, ty: free.ty, flags, len: 0, retrans: 0, frag, seq }.emit(out);
            out.put_bytes(&free.body);
            let receiver =
                if let FreeTarget::Node(node, _) = free.to { Receiver::Node(node) } else { Receiver::Anybody };
            close(at, &self.sealer, receiver, out);
            self.counters.datagrams += 1;
            self.spares.give(free.body);
            if let FreeTarget::Group(nodes) = free.to {
                self.group_members = nodes;
            }
        }
        batch.done()
    }

    /// Packets of one multicast message.
    fn transmit_group(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        let mut batch = Batch::new(To::Group);
        let mut of_message = None;
        while let Some(&counter) = self.group.lanes[0].fresh.front() {
            let at = counter.checked_sub(self.oldest()).map(|at| at as usize);
            let Some(sent) = at.and_then(|at| self.packets.get_mut(at)).filter(|s| s.state == State::Queued) else {
                self.group.lanes[0].fresh.pop_front();
                continue;
            };
            if self.group.in_flight >= self.group.congestion.window() {
                break;
            }
            if let Some(until) = self.group.congestion.held_until(now, &self.group.rtt) {
                self.held_until = Some(until);
                break;
            }
            let message = &self.messages[(sent.ordinal - self.first_ordinal) as usize];
            let len = datagram_len(message, (counter - message.first) as usize, self.sealer.tag_len());
            if of_message.is_some_and(|first| first != message.first) || !batch.take(Slot::SERVICE, len, out.len()) {
                break;
            }
            if of_message.is_none() {
                of_message = Some(message.first);
                self.group_members.clear();
                if let Target::Group(group) = &message.target {
                    self.group_members.extend_from_slice(&group.nodes);
                }
            }
            self.group.lanes[0].fresh.pop_front();
            self.group.in_flight += 1;
            self.group.congestion.on_sent(now, &self.group.rtt);
            let deadline = now + self.group.rtt.timeout(&self.config);
            (sent.state, sent.at, sent.deadline, sent.times) = (State::InFlight, now, deadline, 1);
            let ordinal = sent.ordinal;
            self.messages[(ordinal - self.first_ordinal) as usize].answered = now;
            self.arm(deadline);
            self.write_packet(counter, 0, Receiver::Anybody, out);
        }
        batch.done()
    }

    fn transmit_to(&mut self, node: NodeId, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        let mut batch = Batch::new(To::Node(node));
        while let Some((lane, item)) = self.next_item(now, node) {
            let (slot, len) = self.shape(item);
            if !batch.take(slot, len, out.len()) {
                break;
            }
            let lane = &mut peer::of(&mut self.peers, node).lanes[lane];
            match item {
                Item::Fresh(_) => drop(lane.fresh.pop_front()),
                Item::Repeat(_) => drop(lane.repeat.pop_front()),
            }
            self.transmit_item(now, node, item, out);
        }
        batch.done()
    }

    /// What to transmit to `node` next, and in which lane it stands; `None` when there is nothing, or window or pace
    /// forbid it. Forgets what need not be transmitted any more.
    fn next_item(&mut self, now: Time, node: NodeId) -> Option<(usize, Item)> {
        let oldest = self.oldest();
        let peer = peer::of(&mut self.peers, node);
        let state = |counter: u64| {
            let sent = self.packets.get(counter.checked_sub(oldest)? as usize)?;
            let message = &self.messages[(sent.ordinal - self.first_ordinal) as usize];
            message.live.then_some((sent.state, message))
        };
        let mut at = 0;
        let item = loop {
            let lane = &mut peer.lanes[at];
            if let Some(&repeat) = lane.repeat.front() {
                let needed = match repeat {
                    Repeat::Packet(counter) => state(counter).is_some_and(|(s, _)| s == State::Lost),
                    Repeat::Copy(counter) => state(counter).is_some_and(|(_, m)| match &m.target {
                        Target::Group(group) => group.missing.contains(&((counter - m.first) as usize, node)),
                        Target::Node(..) => false,
                    }),
                    Repeat::Probe(first) => state(first).is_some(),
                    Repeat::Resend(first) => state(first).is_some_and(|(_, m)| m.reply.is_some()),
                };
                if needed {
                    break Item::Repeat(repeat);
                }
                lane.repeat.pop_front();
            } else if let Some(&counter) = lane.fresh.front() {
                if state(counter).is_some_and(|(s, _)| s == State::Queued) {
                    break Item::Fresh(counter);
                }
                lane.fresh.pop_front();
            } else {
                at += 1;
                if at == peer.lanes.len() {
                    return None;
                }
            }
        };
        let counts = matches!(item, Item::Fresh(_) | Item::Repeat(Repeat::Packet(_)));
        if counts && peer.in_flight >= peer.congestion.window() {
            return None;
        }
        if let Some(until) = peer.congestion.held_until(now, &peer.rtt) {
            self.held_until = Some(self.held_until.map_or(until, |held| held.min(until)));
            return None;
        }
        Some((at, item))
    }

    /// Slot and length of an item's datagram.
    fn shape(&self, item: Item) -> (Slot, usize) {
        let tag_len = self.sealer.tag_len();
        match item {
            Item::Repeat(Repeat::Resend(_)) => (Slot::SERVICE, HEADER_BYTES + RESEND_BYTES + tag_len),
            Item::Repeat(Repeat::Probe(first)) => {
                let message = self.message_of(first);
                (Slot::SERVICE, datagram_len(message, message.cut.count - 1, tag_len))
            }
            Item::Repeat(Repeat::Packet(counter) | Repeat::Copy(counter)) => {
                let message = self.message_of(counter);
                (Slot::SERVICE, datagram_len(message, (counter - message.first) as usize, tag_len))
            }
            Item::Fresh(counter) => {
                let message = self.message_of(counter);
                let slot = match message.target {
                    Target::Node(_, slot) => slot,
                    Target::Group(_) => Slot::SERVICE,
                };
                (slot, datagram_len(message, (counter - message.first) as usize, tag_len))
            }
        }
    }

    fn transmit_item(&mut self, now: Time, node: NodeId, item: Item, out: &mut Vec<u8>) {
        let peer = peer::of(&mut self.peers, node);
        peer.congestion.on_sent(now, &peer.rtt);
        if matches!(item, Item::Repeat(_)) {
            self.counters.retransmissions += 1;
        }
        match item {
            Item::Fresh(counter) | Item::Repeat(Repeat::Packet(counter)) => {
                let times = self.launch(now, node, counter);
                self.write_packet(counter, times - 1, Receiver::Node(node), out);
            }
            Item::Repeat(Repeat::Copy(counter)) => {
                let times = self.packets[(counter - self.oldest()) as usize].times;
                self.write_packet(counter, times.saturating_sub(1), Receiver::Node(node), out);
            }
            Item::Repeat(Repeat::Probe(first)) => {
                let counter = first + self.message_of(first).cut.count as u64 - 1;
                let at = (counter - self.oldest()) as usize;
                self.packets[at].times = self.packets[at].times.saturating_add(1);
                self.write_packet(counter, self.packets[at].times - 1, Receiver::Node(node), out);
            }
            Item::Repeat(Repeat::Resend(first)) => self.write_resend(first, node, out),
        }
    }

    /// The packet is in flight from now on; returns how often it has been transmitted.
    fn launch(&mut self, now: Time, node: NodeId, counter: u64) -> u8 {
        let at = (counter - self.oldest()) as usize;
        let peer = peer::of(&mut self.peers, node);
        let sent = &mut self.packets[at];
        let message = &mut self.messages[(sent.ordinal - self.first_ordinal) as usize];
        if sent.times == 0 && counter == message.first {
            message.answered = now;
        }
        peer.in_flight += 1;
        peer.order += 1;
        // Doubling the time-out spares a node that may be down or busy. One that is heard, and yet lacks a packet which
        // it would acknowledge at once, is neither.
        let heard = sent.times > 0 && peer.last_heard > sent.at && message.acknowledged_by_packet();
        let deadline = now + peer.rtt.timeout_after(&self.config, if heard { 0 } else { sent.times });
        (sent.state, sent.at, sent.deadline, sent.order) = (State::InFlight, now, deadline, peer.order);
        sent.times = sent.times.saturating_add(1);
        if message.acknowledged_by_packet() {
            peer.flight.push_back((peer.order, counter));
        }
        let times = sent.times;
        self.arm(deadline);
        times
    }

    fn message_of(&self, counter: u64) -> &Message {
        let sent = &self.packets[(counter - self.oldest()) as usize];
        &self.messages[(sent.ordinal - self.first_ordinal) as usize]
    }

    fn write_packet(&mut self, counter: u64, retrans: u8, to: Receiver, out: &mut Vec<u8>) {
        let message = self.message_of(counter);
        let index = (counter - message.first) as usize;
        let request = message.class == Class::Request;
        let at = out.len();
        HeaderRepr {
            prog: self.prog,
            ty: message.ty,
            flags: Flags { ack_requested: request, ..Flags::default() },
            len: 0,
            retrans,
            frag: message.cut.frag_field(index),
            seq: Seq::guarded(self.me, counter),
        }
        .emit(out);
        if request {
            out.put_u16((counter - self.oldest()) as u16);
        }
        message.cut.emit(out);
        out.put_bytes(&message.body()[message.cut.range(index)]);
        close(at, &self.sealer, to, out);
        self.counters.datagrams += 1;
    }

    fn write_resend(&mut self, first: u64, to: NodeId, out: &mut Vec<u8>) {
        let Some((_, assembly)) = &self.message_of(first).reply else { return };
        let resend = ResendRepr { seq: Seq::guarded(self.me, first), have: *assembly.have() };
        let seq = self.next_free();
        let at = out.len();
        let flags = Flags::default();
        HeaderRepr { prog: self.prog, ty: MsgType::RESEND, flags, len: 0, retrans: 0, frag: 0, seq }.emit(out);
        resend.emit(out);
        close(at, &self.sealer, Receiver::Node(to), out);
        self.counters.datagrams += 1;
    }
}

/// Payload of a resend: a number and the bitmap of fragments.
const RESEND_BYTES: usize = 8 + 4 * 8;

/// Bytes of the datagram with fragment `index` of `message`.
fn datagram_len(message: &Message, index: usize, tag_len: usize) -> usize {
    HEADER_BYTES + message.prefix_bytes() + message.cut.range(index).len() + tag_len
}
