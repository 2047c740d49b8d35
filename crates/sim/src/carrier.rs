//! How a node's messages travel: either whole, by a network that only delays and reorders them (and loses those that
//! nobody guards), or as datagrams of the production link, which the network may treat as badly as it likes.

use comem_protocol::auth::{Receiver, Sealer};
use comem_protocol::ids::{Channel, NodeId, Seq, Slot};
use comem_protocol::link::{
    AckRepr, Arrival, Class, Dest, LinkConfig, PeerChannel, Repeat, Reply, ReplyEncoder, ResendRepr, SendError, Sender,
    To, acked,
};
use comem_protocol::node::repeated::RepeatedReplies;
use comem_protocol::outbox::{Origin, Outbox, Send, Target};
use comem_protocol::rules::Rule;
use comem_protocol::time::Time;
use comem_protocol::wire::header::{MsgType, Packet};
use comem_protocol::wire::message::Ticket;
use std::collections::{BTreeMap, VecDeque};

/// What the network carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parcel {
    /// A message, delivered exactly once.
    Message(Incoming),
    /// A message that nobody guards.
    Free(Incoming),
    /// A datagram of the link.
    Datagram(Vec<u8>),
    /// A datagram of the failure detector: its sender, type and body.
    Watch(NodeId, MsgType, Vec<u8>),
}

/// A message that has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Who sent it.
    pub from: Channel,
    /// Its ticket when it is a request.
    pub ticket: Option<Ticket>,
    /// Whose request it answers, when it is a reply; else the slot that received it.
    pub answers: Slot,
    /// Its type.
    pub ty: MsgType,
    /// Its body.
    pub body: Vec<u8>,
}

/// Parcels to be put on the network, with the socket each goes to.
pub type Parcels = Vec<(Channel, Parcel)>;

/// One node's connection to the others.
#[derive(Debug)]
pub enum Carrier {
    /// Whole messages.
    Messages(Messages),
    /// The production link.
    Link(Box<Link>),
}

impl Carrier {
    /// Sends what a step taken by `slot` asked for.
    pub fn flush(&mut self, now: Time, slot: Slot, out: &Outbox, parcels: &mut Parcels) {
        match self {
            Carrier::Messages(messages) => messages.flush(slot, out, parcels),
            Carrier::Link(link) => link.flush(now, slot, out, parcels),
        }
    }

    /// Takes in a parcel; `slot` is the thread that acts. Gives the message that it completes.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn receive(
        &mut self,
        now: Time,
        slot: Slot,
        parcel: Parcel,
        parcels: &mut Parcels,
    ) -> Result<Option<Incoming>, String> {
        match (self, parcel) {
            (Carrier::Messages(_), Parcel::Message(message) | Parcel::Free(message)) => Ok(Some(message)),
            (Carrier::Link(link), Parcel::Datagram(datagram)) => link.on_datagram(now, slot, &datagram, parcels),
            _ => Err("a parcel of the other kind of network".to_string()),
        }
    }

    /// When the slot's timers want to run.
    pub fn next_timeout(&self, slot: Slot) -> Option<Time> {
        match self {
            Carrier::Messages(_) => None,
            Carrier::Link(link) => link.senders[slot.index()].next_timeout(),
        }
    }

    /// Runs the slot's timers.
    pub fn on_timeout(&mut self, now: Time, slot: Slot, parcels: &mut Parcels) {
        if let Carrier::Link(link) = self {
            link.senders[slot.index()].on_timeout(now);
            link.transmit(now, slot, parcels);
        }
    }

    /// Whether everything that was sent has arrived as far as this node can know.
    pub fn is_idle(&self) -> bool {
        match self {
            Carrier::Messages(_) => true,
            Carrier::Link(link) => link.overflow.is_empty() && link.senders.iter().all(|s| s.outstanding() == 0),
        }
    }

    /// What a slot's sender has under way, for people.
    pub fn describe(&self, slot: Slot) -> String {
        match self {
            Carrier::Messages(_) => String::new(),
            Carrier::Link(link) => {
                let sender = &link.senders[slot.index()];
                let timer = sender.next_timeout().map_or("no timer".to_string(), |at| format!("timer at {} ns", at.0));
                format!("; its sender has {} messages under way, {timer}", sender.outstanding())
            }
        }
    }

    /// Nodes that owe an answer to something that was sent no later than `before`, and since when.
    pub fn unanswered(&mut self, now: Time, before: Time) -> Vec<(NodeId, Time)> {
        let Carrier::Link(link) = self else { return Vec::new() };
        let sent = link.senders.iter().flat_map(|sender| sender.unanswered(before));
        sent.chain(link.repeated.unanswered(now, before)).collect()
    }

    /// Nodes whose datagrams came since this was asked last.
    pub fn take_heard(&mut self) -> Vec<NodeId> {
        match self {
            Carrier::Messages(_) => Vec::new(),
            Carrier::Link(link) => std::mem::take(&mut link.heard),
        }
    }

    /// Datagrams sent and, among them, repetitions.
    pub fn counts(&self) -> (u64, u64) {
        match self {
            Carrier::Messages(_) => (0, 0),
            Carrier::Link(link) => link
                .senders
                .iter()
                .fold((0, 0), |(sent, again), s| (sent + s.counters().datagrams, again + s.counters().retransmissions)),
        }
    }
}

/// Where a message without a link goes.
#[derive(Debug)]
pub struct Messages {
    me: NodeId,
    nodes: usize,
    sent: Vec<u64>,
}

impl Messages {
    /// The connection of a node with so many slots.
    pub fn new(me: NodeId, nodes: usize, slots: usize) -> Messages {
        Messages { me, nodes, sent: vec![0; slots] }
    }

    fn flush(&mut self, slot: Slot, out: &Outbox, parcels: &mut Parcels) {
        for send in out.sends() {
            let (ty, body) = (send.ty, out.body(send).to_vec());
            let mut from = Channel { node: self.me, slot };
            match send.target {
                Target::Request { node, origin } | Target::Post { node, origin } => {
                    if origin == Origin::Service {
                        from.slot = Slot::SERVICE;
                    }
                    let count = &mut self.sent[from.slot.index()];
                    *count += 1;
                    let ticket = Ticket { channel: from, seq: Seq::guarded(from, *count) };
                    let ticket = matches!(send.target, Target::Request { .. }).then_some(ticket);
                    let message = Incoming { from, ticket, answers: Slot::SERVICE, ty, body };
                    parcels.push((Channel::service(node), Parcel::Message(message)));
                }
                Target::Reply(ticket) => {
                    let message = Incoming { from, ticket: None, answers: ticket.channel.slot, ty, body };
                    parcels.push((ticket.channel, Parcel::Message(message)));
                }
                Target::Free { node, slot } => {
                    let message = Incoming { from, ticket: None, answers: slot, ty, body };
                    parcels.push((Channel { node, slot }, Parcel::Free(message)));
                }
                Target::Set(id) => {
                    let message = Incoming { from, ticket: None, answers: Slot::SERVICE, ty, body };
                    for node in out.audience(id).members() {
                        parcels.push((Channel::service(node), Parcel::Free(message.clone())));
                    }
                }
                Target::FreeToAll => {
                    let message = Incoming { from, ticket: None, answers: Slot::SERVICE, ty, body };
                    for node in NodeId::all(self.nodes).filter(|n| *n != self.me) {
                        parcels.push((Channel::service(node), Parcel::Free(message.clone())));
                    }
                }
            }
        }
    }
}

/// A guarded message that found no room; it leaves from its own slot later, because its reply must come back there.
#[derive(Debug)]
struct Overflow {
    from: Slot,
    node: NodeId,
    class: Class,
    ty: MsgType,
    body: Vec<u8>,
}

/// The production link of one node, driven as the runtime drives it.
#[derive(Debug)]
pub struct Link {
    me: NodeId,
    nodes: usize,
    prog: u16,
    config: LinkConfig,
    sealer: Sealer,
    senders: Vec<Sender>,
    encoders: Vec<ReplyEncoder>,
    peers: BTreeMap<Channel, PeerChannel>,
    overflow: VecDeque<Overflow>,
    buffer: Vec<u8>,
    /// Replies that do not arrive.
    repeated: RepeatedReplies,
    heard: Vec<NodeId>,
}

impl Link {
    /// The link of a node with so many slots.
    pub fn new(me: NodeId, nodes: usize, slots: usize, config: LinkConfig, sealer: &Sealer) -> Link {
        let prog = 1;
        let channel = |index| Channel { node: me, slot: Slot(index as u16) };
        Link {
            me,
            nodes,
            prog,
            config,
            sealer: sealer.clone(),
            senders: (0..slots).map(|s| Sender::new(channel(s), prog, config, sealer.clone())).collect(),
            encoders: (0..slots).map(|s| ReplyEncoder::new(channel(s), prog, config, sealer.clone())).collect(),
            peers: BTreeMap::new(),
            overflow: VecDeque::new(),
            buffer: Vec::new(),
            repeated: RepeatedReplies::default(),
            heard: Vec::new(),
        }
    }

    fn peer(&mut self, channel: Channel) -> &mut PeerChannel {
        let config = self.config;
        self.peers.entry(channel).or_insert_with(|| PeerChannel::new(channel, &config))
    }

    fn flush(&mut self, now: Time, slot: Slot, out: &Outbox, parcels: &mut Parcels) {
        for (ticket, node) in out.handed_on() {
            self.peer(ticket.channel).mark_forwarded(ticket.seq, *node);
        }
        for send in out.sends() {
            if let Target::Set(id) = send.target {
                for node in out.audience(id).members() {
                    self.free(slot, Channel::service(node), send.ty, out.body(send));
                    self.transmit(now, slot, parcels);
                }
                continue;
            }
            self.send(slot, send, out.body(send), parcels);
        }
        self.transmit(now, slot, parcels);
        if slot != Slot::SERVICE {
            self.transmit(now, Slot::SERVICE, parcels);
        }
    }

    fn send(&mut self, slot: Slot, send: &Send, body: &[u8], parcels: &mut Parcels) {
        match send.target {
            Target::Request { node, origin } => self.guarded(slot, origin, node, Class::Request, send.ty, body),
            Target::Post { node, origin } => self.guarded(slot, origin, node, Class::Post, send.ty, body),
            Target::Reply(ticket) => self.reply(slot, ticket, send.ty, body, parcels),
            Target::Free { node, slot: to } => self.free(slot, Channel { node, slot: to }, send.ty, body),
            Target::Set(_) => {}
            Target::FreeToAll => {
                let me = self.me;
                for node in NodeId::all(self.nodes).filter(|n| *n != me) {
                    self.free(slot, Channel::service(node), send.ty, body);
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // a message's whole address
    fn guarded(&mut self, slot: Slot, origin: Origin, node: NodeId, class: Class, ty: MsgType, body: &[u8]) {
        let from = if origin == Origin::Caller { slot } else { Slot::SERVICE };
        match self.senders[from.index()].send(Dest::Node(node, Slot::SERVICE), class, ty, body) {
            Ok(_) => {}
            Err(SendError::WindowFull) => {
                self.overflow.push_back(Overflow { from, node, class, ty, body: body.to_vec() });
            }
            Err(error) => panic!("{}: a message of type {} cannot be sent: {error}", self.me, ty.0),
        }
    }

    fn free(&mut self, slot: Slot, to: Channel, ty: MsgType, body: &[u8]) {
        let dest = Dest::Node(to.node, to.slot);
        if let Err(error) = self.senders[slot.index()].send(dest, Class::Free, ty, body) {
            panic!("{}: a message of type {} cannot be sent: {error}", self.me, ty.0);
        }
    }

    fn reply(&mut self, slot: Slot, ticket: Ticket, ty: MsgType, body: &[u8], parcels: &mut Parcels) {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        match self.encoders[slot.index()].reply(ticket.seq, ty, false, body, &mut bytes) {
            Ok(segment) => {
                self.peer(ticket.channel).store_reply(ticket.seq, bytes.clone(), segment);
                put(ticket.channel, &bytes, segment, parcels);
            }
            Err(error) => panic!("{}: a reply of type {} cannot be sent: {error}", self.me, ty.0),
        }
        self.buffer = bytes;
    }

    fn transmit(&mut self, now: Time, slot: Slot, parcels: &mut Parcels) {
        let mut bytes = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.senders[slot.index()].poll_transmit(now, &mut bytes) {
            match transmit.to {
                To::Node(node) => put(Channel { node, slot: transmit.slot }, &bytes, transmit.segment, parcels),
                To::Group => {
                    for node in self.senders[slot.index()].group_members().to_vec() {
                        put(Channel::service(node), &bytes, transmit.segment, parcels);
                    }
                }
            }
        }
        self.buffer = bytes;
    }

    fn retry_overflow(&mut self, now: Time, parcels: &mut Parcels) {
        for _ in 0..self.overflow.len() {
            let Some(first) = self.overflow.pop_front() else { break };
            let (sender, dest) = (&mut self.senders[first.from.index()], Dest::Node(first.node, Slot::SERVICE));
            if sender.send(dest, first.class, first.ty, &first.body).is_ok() {
                self.transmit(now, first.from, parcels);
            } else {
                self.overflow.push_back(first);
            }
        }
    }

    fn on_datagram(
        &mut self,
        now: Time,
        slot: Slot,
        datagram: &[u8],
        parcels: &mut Parcels,
    ) -> Result<Option<Incoming>, String> {
        let refused = |error: &dyn std::fmt::Display| format!("refused a datagram: {error}");
        let sealer = self.sealer.clone();
        let bytes = sealer.open(datagram, Receiver::Node(self.me)).ok_or_else(|| refused(&"wrong tag"))?;
        let packet = Packet::new_checked(bytes).map_err(|e| refused(&e))?;
        let (acks, ty) = (packet.header.flags.ack, packet.header.ty);
        if packet.header.prog != self.prog || packet.channel.node.index() >= self.nodes {
            return Err(refused(&"a stranger's"));
        }
        if self.heard.last() != Some(&packet.channel.node) {
            self.heard.push(packet.channel.node);
        }
        if acks && ty == MsgType::ACK {
            let ack = AckRepr::parse(packet.payload).map_err(|e| refused(&e))?;
            let asker = self.mine(ack.channel())?;
            self.senders[asker.index()].on_ack(now, packet.channel.node, &ack);
            self.transmit(now, asker, parcels);
            self.retry_overflow(now, parcels);
            Ok(None)
        } else if acks {
            self.on_reply(now, &packet, parcels)
        } else if ty == MsgType::RESEND {
            let resend = ResendRepr::parse(packet.payload).map_err(|e| refused(&e))?;
            let channel = resend.channel().map_err(|e| refused(&e))?;
            self.repeat_reply(now, channel, &resend, parcels);
            Ok(None)
        } else {
            self.on_packet(now, slot, &packet, parcels)
        }
    }

    fn mine(&self, channel: Channel) -> Result<Slot, String> {
        let mine = channel.node == self.me && channel.slot.index() < self.senders.len();
        mine.then_some(channel.slot).ok_or_else(|| "an answer to somebody else's request".to_string())
    }

    fn on_reply(&mut self, now: Time, packet: &Packet<'_>, parcels: &mut Parcels) -> Result<Option<Incoming>, String> {
        let (channel, _) = acked(packet).map_err(|e| e.to_string())?;
        let asker = self.mine(channel)?;
        let sender = &mut self.senders[asker.index()];
        let reply = sender.on_reply(now, packet.channel.node, packet).map_err(|e| e.to_string())?;
        let incoming = match reply {
            Reply::Complete { ty, body, nack: false, .. } => {
                let message = Incoming { from: packet.channel, ticket: None, answers: asker, ty, body: body.to_vec() };
                sender.recycle(body);
                Some(message)
            }
            Reply::Complete { seq, .. } => return Err(format!("request {} was refused", seq.0)),
            Reply::Late if !Rule::LateDataIsDropped.on() => late(packet, asker),
            Reply::Partial | Reply::Late => None,
        };
        self.transmit(now, asker, parcels);
        self.retry_overflow(now, parcels);
        Ok(incoming)
    }

    fn repeat_reply(&mut self, now: Time, channel: Channel, resend: &ResendRepr, parcels: &mut Parcels) {
        let mut bytes = Vec::new();
        if let Some(segment) = self.peer(channel).stored_reply(resend, &mut bytes) {
            self.repeated.note(now, channel.node, resend.seq);
            put(channel, &bytes, segment, parcels);
        }
    }

    fn on_packet(
        &mut self,
        now: Time,
        slot: Slot,
        packet: &Packet<'_>,
        parcels: &mut Parcels,
    ) -> Result<Option<Incoming>, String> {
        let channel = packet.channel;
        let peer = self.peer(channel);
        let arrival = peer.on_packet(packet).map_err(|e| format!("refused a packet: {e}"))?;
        let incoming = match arrival {
            Arrival::Message { seq, class, ty, body } => {
                let ticket = (class == Class::Request).then_some(Ticket { channel, seq });
                let message = Incoming { from: channel, ticket, answers: slot, ty, body: body.to_vec() };
                peer.recycle(body);
                Some(message)
            }
            Arrival::Duplicate(Repeat::Reply) => {
                self.repeat_reply(now, channel, &ResendRepr::whole(first_of(packet)), parcels);
                None
            }
            Arrival::Duplicate(Repeat::Forwarded(node)) => {
                let mut bytes = Vec::new();
                self.encoders[slot.index()].resend(node, &ResendRepr::whole(first_of(packet)), &mut bytes);
                put(Channel::service(node), &bytes, bytes.len(), parcels);
                None
            }
            Arrival::Duplicate(Repeat::Pending | Repeat::Post) | Arrival::Incomplete | Arrival::Stale => None,
        };
        self.send_owed(channel, slot, parcels);
        self.transmit(now, slot, parcels);
        Ok(incoming)
    }

    fn send_owed(&mut self, channel: Channel, slot: Slot, parcels: &mut Parcels) {
        while let Some(ack) = self.peer(channel).owed_ack() {
            let mut bytes = Vec::new();
            self.encoders[slot.index()].ack(&ack, &mut bytes);
            put(channel, &bytes, bytes.len(), parcels);
        }
    }
}

/// A reply that nobody waits for any more, taken for a message all the same.
fn late(packet: &Packet<'_>, asker: Slot) -> Option<Incoming> {
    let body = packet.payload.get(size_of::<Seq>()..).filter(|_| packet.header.frag == 0)?.to_vec();
    Some(Incoming { from: packet.channel, ticket: None, answers: asker, ty: packet.header.ty, body })
}

/// The number of the first packet of a packet's message, which names the message.
fn first_of(packet: &Packet<'_>) -> Seq {
    Seq(packet.header.seq.0 - u64::from(packet.header.frag.saturating_sub(1)))
}

/// Puts a batch on the network, datagram by datagram.
fn put(to: Channel, bytes: &[u8], segment: usize, parcels: &mut Parcels) {
    for datagram in bytes.chunks(segment.max(1)) {
        parcels.push((to, Parcel::Datagram(datagram.to_vec())));
    }
}
