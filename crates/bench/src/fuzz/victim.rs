//! The node that takes whatever comes: the way of a datagram is the runtime's, without sockets.

use super::victim_node::VictimNode;
use super::{JOB, NODES, PROG, SLOTS, datagrams};
use comem_protocol::auth::{JobKey, Receiver, Sealer};
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::link::{
    AckRepr, Arrival, Class, Dest, LinkConfig, PeerChannel, Repeat, Reply, ReplyEncoder, ResendRepr, Sender, acked,
};
use comem_protocol::node::identity::{Identity, Layout};
use comem_protocol::node::message::{StartMessage, types as start_types};
use comem_protocol::node::route::{Origin, dispatch};
use comem_protocol::node::startup::{Config, Mode, Startup};
use comem_protocol::outbox::{Outbox, Target};
use comem_protocol::selective::{self, MESSAGE_BYTES_MAX, Refused, Role, Taken};
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::header::{MsgType, Packet};
use comem_protocol::wire::message::{Message, Ticket, types};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Version of the start-up messages.
const VERSION: u16 = 1;

/// More than all windows full of small messages take; far less than an attacker could make an unbounded victim keep.
const KEPT_BYTES_MAX: usize = 64 << 20;

type Result = std::result::Result<(), Box<dyn Error>>;

/// How many datagrams came how far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Refused.
    pub refused: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Replies to the victim's requests.
    pub replies: u64,
    /// Messages that the link passed on.
    pub messages: u64,
    /// Steps of units, locks, flags and the barrier.
    pub steps: u64,
    /// Messages of start-up that could be read.
    pub starts: u64,
    /// Messages to sets of nodes that were complete.
    pub set_messages: u64,
}

/// Node 0 of a job of [`NODES`] nodes.
pub struct Victim {
    now: Time,
    senders: Vec<Sender>,
    encoder: ReplyEncoder,
    peers: BTreeMap<Channel, PeerChannel>,
    target: VictimNode,
    startup: Startup,
    sets: selective::Receiver,
    sealed: Sealer,
    out: Outbox,
    buffer: Vec<u8>,
    wants: u64,
    seen: Seen,
}

impl Default for Victim {
    fn default() -> Victim {
        Victim::new()
    }
}

impl Victim {
    /// A fresh node in the middle of a job, and one that is just starting.
    pub fn new() -> Victim {
        let config = LinkConfig::default();
        let channel = |slot: usize| Channel { node: NodeId(0), slot: Slot(slot as u16) };
        Victim {
            now: Time(1),
            senders: (0..SLOTS).map(|s| Sender::new(channel(s), PROG, config, Sealer::new(None))).collect(),
            encoder: ReplyEncoder::new(channel(0), PROG, config, Sealer::new(None)),
            peers: BTreeMap::new(),
            target: VictimNode::new(SLOTS - 1),
            startup: start_up(),
            sets: selective::Receiver::new((NodeId(0), PROG, JOB), NODES, Sealer::default()),
            sealed: Sealer::new(Some(JobKey::new([7; 32]))),
            out: Outbox::default(),
            buffer: Vec::new(),
            wants: 0,
            seen: Seen::default(),
        }
    }

    /// How far the datagrams came.
    pub fn seen(&self) -> Seen {
        Seen { steps: self.target.steps, ..self.seen }
    }

    /// Takes an input; now and then an application thread of the victim wants something too.
    ///
    /// # Panics
    /// When something is wrong with Comem: that is what this is for.
    pub fn feed(&mut self, input: &[u8]) {
        self.want();
        for datagram in datagrams(input) {
            self.now = self.now + Span::from_us(50);
            self.check_tags(datagram);
            if self.on_datagram(datagram).is_err() {
                self.seen.refused += 1;
            }
            self.flush(Slot::SERVICE);
            self.timers();
        }
        let kept: usize = self.senders.iter().map(Sender::kept_bytes).sum::<usize>()
            + self.peers.values().map(PeerChannel::kept_bytes).sum::<usize>();
        let kept = kept + self.sets.kept_bytes();
        assert!(kept < KEPT_BYTES_MAX, "{kept} bytes are kept for peers");
    }

    /// What has no tag is nothing to anybody; what is sealed opens, for whom it is meant, until a bit of it is changed.
    fn check_tags(&self, datagram: &[u8]) {
        let receivers = [Receiver::Node(NodeId(0)), Receiver::Anybody, Receiver::Port(9000), Receiver::Sets];
        for me in receivers {
            assert!(self.sealed.open(datagram, me).is_none(), "a datagram without the key passed for one with it");
        }
        let mut sealed = datagram.to_vec();
        self.sealed.seal(&mut sealed, 0, receivers[0]);
        assert_eq!(self.sealed.open(&sealed, receivers[0]), Some(datagram));
        assert_eq!(self.sealed.open(&sealed, receivers[2]), None, "it is for somebody else");
        assert_eq!(self.sealed.open(&sealed, receivers[3]), None, "it is for one node");
        let at = self.wants as usize * 31 % (sealed.len() * 8);
        sealed[at / 8] ^= 1 << (at % 8);
        assert_eq!(self.sealed.open(&sealed, receivers[0]), None, "bit {at} was changed");
    }

    fn want(&mut self) {
        self.wants += 1;
        let caller = Slot::thread(self.wants as usize % (SLOTS - 1));
        let mut out = std::mem::take(&mut self.out);
        self.target.want(self.wants, caller, &mut out);
        self.out = out;
        self.flush(caller);
    }

    fn on_datagram(&mut self, datagram: &[u8]) -> Result {
        if Packet::plain_type_of(datagram) == Some(MsgType::SETS) {
            return self.on_sets(datagram);
        }
        let packet = Packet::new_checked(datagram)?;
        if (start_types::JOIN.0..=start_types::LOST.0).contains(&packet.header.ty.0) {
            return self.on_start(&packet);
        }
        if packet.header.prog != PROG || packet.channel.node.index() >= NODES || packet.channel.slot.index() >= SLOTS {
            return Err("a stranger".into());
        }
        match (packet.header.flags.ack, packet.header.ty) {
            (true, MsgType::ACK) => self.on_ack(&packet),
            (true, _) => self.on_reply(&packet),
            (false, MsgType::RESEND) => self.on_resend(&packet),
            (false, _) => self.on_message(&packet),
        }
    }

    fn on_sets(&mut self, datagram: &[u8]) -> Result {
        if let Taken::Whole(message) = self.sets.take(datagram, |_| true)? {
            assert!(message.from != NodeId(0) && message.from.index() < NODES, "from {}", message.from);
            assert!(message.payload.len() <= MESSAGE_BYTES_MAX, "{} bytes", message.payload.len());
            let again = self.sets.take(datagram, |_| true);
            assert_eq!(again.map(|_| ()), Err(Refused::Seen), "a datagram counts twice");
            self.seen.set_messages += 1;
            let (from, payload) = (message.from, message.payload.to_vec());
            let ty = if message.role == Role::Asked { types::DIFFS_ASKED } else { types::DIFFS_TOLD };
            let from = Channel { node: from, slot: Slot::SERVICE };
            return self.act(Origin { from, ticket: None, caller: None }, ty, &payload);
        }
        Ok(())
    }

    fn on_start(&mut self, packet: &Packet<'_>) -> Result {
        let message = StartMessage::parse(packet.header.ty, packet.payload, VERSION)?;
        self.seen.starts += 1;
        if !matches!(message, StartMessage::Foreign { .. }) {
            let again = StartMessage::parse(packet.header.ty, &message.emit(VERSION), VERSION);
            assert_eq!(again.as_ref(), Ok(&message), "a start-up message is read as it was written");
        }
        let from = SocketAddr::from(([127, 0, 0, 1], 9000 + packet.channel.node.0));
        self.startup.on_datagram(self.now, from, packet.header.ty, packet.payload)?;
        self.startup.on_timeout(self.now);
        while self.startup.poll_transmit().is_some() {}
        while self.startup.poll_event().is_some() {}
        if !self.startup.is_running() {
            self.startup = start_up();
        }
        Ok(())
    }

    fn sender(&mut self, channel: Channel) -> std::result::Result<&mut Sender, Box<dyn Error>> {
        let mine = channel.node == NodeId(0);
        self.senders.get_mut(channel.slot.index()).filter(|_| mine).ok_or_else(|| "somebody else's".into())
    }

    fn on_ack(&mut self, packet: &Packet<'_>) -> Result {
        let ack = AckRepr::parse(packet.payload)?;
        let (now, from) = (self.now, packet.channel.node);
        self.sender(ack.channel())?.on_ack(now, from, &ack);
        self.seen.acks += 1;
        Ok(())
    }

    fn on_reply(&mut self, packet: &Packet<'_>) -> Result {
        let (channel, _) = acked(packet)?;
        let (now, from) = (self.now, packet.channel.node);
        if let Reply::Complete { ty, body, nack: false, .. } = self.sender(channel)?.on_reply(now, from, packet)? {
            self.seen.replies += 1;
            let caller = (channel.slot != Slot::SERVICE).then_some(channel.slot);
            return self.act(Origin { from: packet.channel, ticket: None, caller }, ty, &body);
        }
        Ok(())
    }

    fn on_resend(&mut self, packet: &Packet<'_>) -> Result {
        let resend = ResendRepr::parse(packet.payload)?;
        let channel = resend.channel()?;
        self.buffer.clear();
        if let Some(peer) = self.peers.get(&channel) {
            peer.stored_reply(&resend, &mut self.buffer);
        }
        Ok(())
    }

    fn on_message(&mut self, packet: &Packet<'_>) -> Result {
        let channel = packet.channel;
        let mut peer = self.peers.remove(&channel).unwrap_or_else(|| PeerChannel::new(channel, &LinkConfig::default()));
        let arrival = peer.on_packet(packet);
        while let Some(ack) = peer.owed_ack() {
            self.buffer.clear();
            self.encoder.ack(&ack, &mut self.buffer);
        }
        if let Ok(Arrival::Duplicate(Repeat::Reply)) = &arrival {
            self.buffer.clear();
            peer.stored_reply(&ResendRepr::whole(packet.header.seq), &mut self.buffer);
        }
        self.peers.insert(channel, peer);
        if let Arrival::Message { seq, class, ty, body } = arrival? {
            self.seen.messages += 1;
            let ticket = (class == Class::Request).then_some(Ticket { channel, seq });
            return self.act(Origin { from: channel, ticket, caller: None }, ty, &body);
        }
        Ok(())
    }

    fn act(&mut self, origin: Origin, ty: MsgType, body: &[u8]) -> Result {
        let message = Message::parse(ty, body)?;
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        assert_eq!(Message::parse(ty, &bytes), Ok(message), "a message is read as it was written");
        let mut out = std::mem::take(&mut self.out);
        let result = dispatch(&mut self.target, self.now, origin, message, &mut out);
        self.out = out;
        Ok(result?)
    }

    /// Sends what a step asked for; the network swallows it.
    fn flush(&mut self, slot: Slot) {
        let mut out = std::mem::take(&mut self.out);
        for send in out.sends() {
            let body = out.body(send);
            match send.target {
                Target::Reply(ticket) => {
                    self.buffer.clear();
                    if let Ok(segment) = self.encoder.reply(ticket.seq, send.ty, false, body, &mut self.buffer)
                        && let Some(peer) = self.peers.get_mut(&ticket.channel)
                    {
                        peer.store_reply(ticket.seq, self.buffer.clone(), segment);
                    }
                }
                Target::Request { node, .. } => self.send(slot, node, Class::Request, send.ty, body),
                Target::Post { node, .. } => self.send(slot, node, Class::Post, send.ty, body),
                Target::Free { node, .. } => self.send(slot, node, Class::Free, send.ty, body),
                Target::FreeToAll | Target::Set(_) => {}
            }
        }
        out.clear();
        self.out = out;
    }

    fn send(&mut self, slot: Slot, node: NodeId, class: Class, ty: MsgType, body: &[u8]) {
        assert!(node.index() < NODES, "a message leaves for {node}, which the job does not have");
        let sender = &mut self.senders[slot.index()];
        // A full window is what a flood of requests without answers comes to.
        let _ = sender.send(Dest::Node(node, Slot::SERVICE), class, ty, body);
        while sender.poll_transmit(self.now, &mut self.buffer).is_some() {}
    }

    fn timers(&mut self) {
        for sender in &mut self.senders {
            if sender.next_timeout().is_some_and(|at| at <= self.now) {
                sender.on_timeout(self.now);
            }
            while sender.poll_transmit(self.now, &mut self.buffer).is_some() {}
        }
    }
}

/// A node zero that waits for three others.
fn start_up() -> Startup {
    let identity = Identity {
        version: VERSION,
        job_name: "fuzz".to_string(),
        program: "fuzz".to_string(),
        hash: [1; 32],
        layout: Layout::of_this_process(4096),
        nodes: NODES as u16,
        threads: (SLOTS - 1) as u16,
        options: String::new(),
    };
    let config = Config {
        mode: Mode::Serve,
        identity,
        arguments: Vec::new(),
        pid: 1,
        host: "here".to_string(),
        ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        ports: vec![9000, 9001, 9002],
        job: Some(1),
        prog: Some(PROG),
        introduces: true,
        multicast: false,
        deadline: None,
    };
    Startup::new(config, Time(1), 1).expect("the configuration is right")
}
