//! Test harness: a few nodes, their senders and receivers, and a network with a virtual clock and seeded faults.

use super::*;
use crate::auth::{JobKey, Receiver, Sealer};
use crate::ids::{Channel, NodeId, Seq};
use crate::time::Time;
use crate::wire::header::{MsgType, Packet};
use crate::wire::message::types;
use std::collections::{BTreeMap, BTreeSet};

pub const POST: MsgType = MsgType(100);
/// The reply is the request's body, as often as its first byte says.
pub const ECHO: MsgType = MsgType(101);
/// Like `ECHO`, but the node in the second byte answers; none times means when the test says so.
pub const VIA: MsgType = MsgType(102);
/// The receiver's hidden word to that node: number of the request, then its body.
pub const FORWARD: MsgType = MsgType(103);
/// Answered when the test says so.
pub const HOLD: MsgType = MsgType(104);

/// What its receiver may leave unseen until it has room.
pub const LETTER: MsgType = types::USER;

/// xorshift64*: chance as an argument.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// How often the network harms a datagram, in 1/1000.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub drop: u64,
    pub dup: u64,
    pub reorder: u64,
    /// Time one datagram occupies the receiver's link, and how many may queue before it; 0 for no limit.
    pub bottleneck: (u64, u64),
}

pub struct Node {
    pub id: NodeId,
    /// By slot: 0 is the service thread.
    pub senders: Vec<Sender>,
    pub remote: BTreeMap<Channel, PeerChannel>,
    encoder: ReplyEncoder,
    ack_at: Option<Time>,
    link_free_at: u64,
    /// Messages received, in order of arrival.
    pub arrived: Vec<(Channel, Seq, Vec<u8>)>,
    names: BTreeSet<Seq>,
    /// Messages received again: none unless a rule is off.
    pub arrived_again: usize,
    /// Replies received.
    pub replies: Vec<(Seq, Vec<u8>)>,
    pub held: Vec<Seq>,
    /// Leaves letters unseen: it has no room for them.
    pub takes_no_letters: bool,
}

struct Datagram {
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

pub struct Net {
    pub now: Time,
    pub nodes: Vec<Node>,
    pub faults: Faults,
    pub rng: Rng,
    pub datagrams: u64,
    pub harmed: u64,
    /// The largest batch seen, in datagrams.
    pub batch_max: usize,
    /// Whether datagrams may be longer than usual.
    pub may_be_long: bool,
    pub dead: Option<NodeId>,
    /// How long a datagram travels at least, in nanoseconds.
    pub one_way: u64,
    sealer: Sealer,
    config: LinkConfig,
    flying: BTreeMap<(Time, u64), Datagram>,
    /// When the last datagram from one node to another arrives: without a fault the order is kept.
    last: BTreeMap<(NodeId, NodeId), u64>,
    tie: u64,
    out: Vec<u8>,
}

const ONE_WAY: u64 = 25_000;

impl Net {
    pub fn new(count: u16, threads: usize, seed: u64, config: LinkConfig, faults: Faults) -> Net {
        let sealer = Sealer::new(Some(JobKey::new([seed as u8; 32])));
        let node = |id: NodeId| Node {
            id,
            senders: (0..=threads)
                .map(|s| Sender::new(Channel { node: id, slot: Slot(s as u16) }, 9, config, sealer.clone()))
                .collect(),
            remote: BTreeMap::new(),
            encoder: ReplyEncoder::new(Channel::service(id), 9, config, sealer.clone()),
            ack_at: None,
            link_free_at: 0,
            arrived: Vec::new(),
            names: BTreeSet::new(),
            arrived_again: 0,
            replies: Vec::new(),
            held: Vec::new(),
            takes_no_letters: false,
        };
        Net {
            now: Time(1_000_000),
            nodes: NodeId::all(usize::from(count)).map(node).collect(),
            faults,
            rng: Rng(seed * 2 + 1),
            datagrams: 0,
            harmed: 0,
            batch_max: 0,
            may_be_long: false,
            dead: None,
            one_way: ONE_WAY,
            sealer,
            config,
            flying: BTreeMap::new(),
            last: BTreeMap::new(),
            tie: 0,
            out: Vec::new(),
        }
    }

    pub fn send(&mut self, from: u16, slot: usize, to: u16, class: Class, ty: MsgType, body: &[u8]) -> Seq {
        self.try_send(from, slot, to, class, ty, body).unwrap()
    }

    pub fn try_send(
        &mut self,
        from: u16,
        slot: usize,
        to: u16,
        class: Class,
        ty: MsgType,
        body: &[u8],
    ) -> Result<Seq, SendError> {
        let dest = Dest::Node(NodeId(to), Slot::SERVICE);
        let sender = &mut self.nodes[usize::from(from)].senders[slot];
        // Every other one in a buffer of its own.
        let result = if class == Class::Free || body.len().is_multiple_of(2) {
            sender.send(dest, class, ty, body)
        } else {
            let mut buffer = [b"before", body].concat();
            let result = sender.send_guarded(dest, class, ty, Body::Buffer(&mut buffer, 6));
            assert_eq!(buffer.is_empty(), result.is_ok(), "it is kept, or left as it was");
            result
        };
        self.flush(usize::from(from));
        result
    }

    /// Transmits all that node `n` has to.
    pub fn flush(&mut self, n: usize) {
        let mut out = std::mem::take(&mut self.out);
        for slot in 0..self.nodes[n].senders.len() {
            while let Some(transmit) = self.nodes[n].senders[slot].poll_transmit(self.now, &mut out) {
                assert!(out.len() <= DATAGRAM_MAX && out.len().div_ceil(transmit.segment) <= 64);
                let members = match transmit.to {
                    To::Node(node) => vec![node],
                    To::Group => self.nodes[n].senders[slot].group_members().to_vec(),
                };
                for to in members {
                    self.carry(n, to, &out, transmit.segment);
                }
            }
        }
        self.out = out;
    }

    fn carry(&mut self, from: usize, to: NodeId, bytes: &[u8], segment: usize) {
        self.batch_max = self.batch_max.max(bytes.len().div_ceil(segment));
        let from = self.nodes[from].id;
        for bytes in bytes.chunks(segment) {
            let most = if self.may_be_long { LONG_DATAGRAM_BYTES } else { self.config.datagram_bytes };
            assert!(bytes.len() <= most, "a datagram of {} bytes", bytes.len());
            self.datagrams += 1;
            if self.rng.chance(self.faults.drop) || Some(to) == self.dead || Some(from) == self.dead {
                self.harmed += 1;
                continue;
            }
            for _ in 0..1 + u64::from(self.rng.chance(self.faults.dup)) {
                let extra = if self.rng.chance(self.faults.reorder) { self.rng.below(300_000) } else { 0 };
                let Some(queued) = self.queue(to) else {
                    self.harmed += 1;
                    continue;
                };
                let last = self.last.entry((from, to)).or_default();
                *last = (*last).max(self.now.0 + self.one_way + queued + self.rng.below(3_000));
                let at = Time(*last + extra);
                self.tie += 1;
                self.flying.insert((at, self.tie), Datagram { from, to, bytes: bytes.to_vec() });
            }
        }
    }

    /// How long a datagram waits before the receiver's link; `None` when the queue is full.
    fn queue(&mut self, to: NodeId) -> Option<u64> {
        let (each, room) = self.faults.bottleneck;
        let node = &mut self.nodes[to.index()];
        let start = node.link_free_at.max(self.now.0);
        if each > 0 && start - self.now.0 > each * room {
            return None;
        }
        node.link_free_at = start + each;
        Some(start + each - self.now.0)
    }

    /// Lets things happen until `done`, or fails after `limit` of virtual time.
    pub fn run(&mut self, limit: Span, mut done: impl FnMut(&Net) -> bool) {
        let end = self.now + limit;
        (0..self.nodes.len()).for_each(|n| self.flush(n));
        while !done(self) {
            let next = self.next_event().unwrap_or_else(|| panic!("nothing will ever happen again at {:?}", self.now));
            assert!(next <= end, "not done after {limit:?}");
            self.step(next);
        }
    }

    /// Lets things happen for so long.
    pub fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(next) = self.next_event().filter(|next| *next <= end) {
            self.step(next);
        }
        self.now = end;
    }

    fn step(&mut self, next: Time) {
        self.now = self.now.max(next);
        self.deliver_due();
        for n in 0..self.nodes.len() {
            for sender in &mut self.nodes[n].senders {
                if sender.next_timeout().is_some_and(|t| t <= self.now) {
                    sender.on_timeout(self.now);
                }
            }
            if self.nodes[n].ack_at.is_some_and(|at| at <= self.now) {
                self.send_acks(n);
            }
            self.flush(n);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let timers = self.nodes.iter().flat_map(|n| n.senders.iter().filter_map(Sender::next_timeout).chain(n.ack_at));
        timers.chain(self.flying.keys().next().map(|(at, _)| *at)).min()
    }

    fn deliver_due(&mut self) {
        while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
            let datagram = entry.remove();
            self.receive(&datagram);
        }
    }

    fn receive(&mut self, datagram: &Datagram) {
        let n = datagram.to.index();
        let bytes = self.sealer.open(&datagram.bytes, Receiver::Node(datagram.to)).expect("the network harms no bytes");
        let packet = Packet::new_checked(bytes).unwrap();
        match (packet.header.flags.ack, packet.header.ty) {
            (true, MsgType::ACK) => {
                let ack = AckRepr::parse(packet.payload).unwrap();
                let slot = ack.channel().slot.index();
                self.nodes[n].senders[slot].on_ack(self.now, datagram.from, &ack);
            }
            (true, _) => {
                let (channel, _) = acked(&packet).unwrap();
                let node = &mut self.nodes[n];
                let reply = node.senders[channel.slot.index()].on_reply(self.now, datagram.from, &packet).unwrap();
                if let Reply::Complete { seq, body, .. } = reply {
                    node.replies.push((seq, body.to_vec()));
                    node.senders[channel.slot.index()].recycle(body);
                }
            }
            (false, MsgType::RESEND) => {
                let resend = ResendRepr::parse(packet.payload).unwrap();
                self.resend(n, &resend);
            }
            (false, ty) => self.on_message(n, ty, &packet),
        }
    }

    fn on_message(&mut self, n: usize, ty: MsgType, packet: &Packet<'_>) {
        let (from, config) = (packet.channel, self.config);
        let node = &mut self.nodes[n];
        if ty == LETTER && node.takes_no_letters {
            let known = node.remote.get(&from).map(|remote| remote.part_of(packet).unwrap());
            // The rest of a long one is taken where it comes before the beginning: there seemed to be room.
            let ahead = packet.header.frag > 1;
            if !ahead && known != Some(Part::Following) {
                return;
            }
        }
        let remote = node.remote.entry(from).or_insert_with(|| PeerChannel::new(from, &config));
        let arrival = remote.on_packet(packet).unwrap();
        if remote.owes_ack() && node.ack_at.is_none() {
            node.ack_at = Some(self.now + Span::from_us(10));
        }
        match arrival {
            Arrival::Message { seq, body, .. } => {
                let body = body.into_owned();
                if node.names.insert(seq) {
                    node.arrived.push((from, seq, body.clone()));
                } else {
                    node.arrived_again += 1;
                }
                self.handle(n, ty, seq, &body);
            }
            Arrival::Duplicate(Repeat::Reply) => self.resend(n, &ResendRepr::whole(packet_name(packet))),
            Arrival::Duplicate(Repeat::Forwarded(node)) => {
                let mut out = Vec::new();
                self.nodes[n].encoder.resend(node, &ResendRepr::whole(packet_name(packet)), &mut out);
                let len = out.len();
                self.carry(n, node, &out, len);
            }
            Arrival::Duplicate(Repeat::Pending | Repeat::Post) | Arrival::Incomplete | Arrival::Stale => {}
        }
    }

    fn handle(&mut self, n: usize, ty: MsgType, seq: Seq, body: &[u8]) {
        match ty {
            ECHO => self.reply(n, seq, &body.repeat(usize::from(body[0]))),
            VIA => {
                let third = u16::from(body[1]);
                let channel = seq.channel().unwrap();
                self.nodes[n].remote.get_mut(&channel).unwrap().mark_forwarded(seq, NodeId(third));
                let mut word = seq.0.to_be_bytes().to_vec();
                word.extend_from_slice(body);
                self.send(n as u16, 0, third, Class::Post, FORWARD, &word);
            }
            FORWARD => {
                let (seq, body) = body.split_at(8);
                let seq = Seq(u64::from_be_bytes(seq.try_into().unwrap()));
                if body[0] == 0 {
                    return self.nodes[n].held.push(seq);
                }
                self.reply(n, seq, &body.repeat(usize::from(body[0])));
            }
            HOLD => self.nodes[n].held.push(seq),
            _ => {}
        }
    }

    pub fn reply(&mut self, n: usize, seq: Seq, body: &[u8]) {
        let (mut out, config) = (Vec::new(), self.config);
        let channel = seq.channel().unwrap();
        let node = &mut self.nodes[n];
        let segment = node.encoder.reply(seq, MsgType(200), false, body, &mut out).unwrap();
        let remote = node.remote.entry(channel).or_insert_with(|| PeerChannel::new(channel, &config));
        remote.store_reply(seq, out.clone(), segment);
        self.carry(n, channel.node, &out, segment);
    }

    fn resend(&mut self, n: usize, resend: &ResendRepr) {
        let mut out = Vec::new();
        let channel = resend.channel().unwrap();
        let Some(remote) = self.nodes[n].remote.get(&channel) else { return };
        let Some(segment) = remote.stored_reply(resend, &mut out) else { return };
        self.carry(n, channel.node, &out, segment);
    }

    fn send_acks(&mut self, n: usize) {
        self.nodes[n].ack_at = None;
        let channels: Vec<_> = self.nodes[n].remote.keys().copied().collect();
        let mut out = Vec::new();
        for channel in channels {
            while let Some(ack) = self.nodes[n].remote.get_mut(&channel).and_then(PeerChannel::owed_ack) {
                out.clear();
                self.nodes[n].encoder.ack(&ack, &mut out);
                assert!(out.len() <= DATAGRAM_MIN);
                let len = out.len();
                self.carry(n, channel.node, &out, len);
            }
        }
    }

    /// Messages and packets that any node still keeps for repetition.
    pub fn outstanding(&self) -> usize {
        self.nodes.iter().flat_map(|n| &n.senders).map(Sender::outstanding).sum()
    }

    pub fn kept_bytes(&self) -> usize {
        let senders = self.nodes.iter().flat_map(|n| &n.senders).map(Sender::kept_bytes);
        let remote = self.nodes.iter().flat_map(|n| n.remote.values()).map(PeerChannel::kept_bytes);
        senders.chain(remote).sum()
    }
}

/// The name of the message that a guarded packet belongs to.
pub fn packet_name(packet: &Packet<'_>) -> Seq {
    Seq(packet.header.seq.0 - u64::from(packet.header.frag.saturating_sub(1)))
}
