//! The sending side of one channel: keeps every guarded message until it is over, and says what to transmit when.
//!
//! A packet's way (a request's packets count as received as soon as any part of its reply is in):
//!
//! ```text
//! Queued --transmit--> InFlight --acknowledged--> Received
//!                       |    ^ transmit again
//!                       v    |
//!                       Lost (timer, or three later packets have arrived)
//! ```
//!
//! A multicast packet that is not acknowledged by all in time becomes `Scattered`: it goes to each missing node singly.
//!
//! A request all of whose packets were received waits for its reply with a timer of its own: it repeats its last packet
//! after the usual time-out, or slowly once the receiver has noted it; when the reply is half in, it asks the
//! replier for the rest.
//!
//! Memory: `window` packets of bookkeeping, the bodies of the messages they belong to, for each request under way at
//! most one reply half in, for each multicast packet the set of nodes that lack it; and what is known of each node.

mod arrival;
mod peer;
mod receive_in_place;
mod timer;
mod transmit;

pub use arrival::Reply;
pub use receive_in_place::Lent;
pub use transmit::{BATCH_BYTES_MAX, SEGMENTS_MAX, To, Transmit};

use self::peer::Peer;
use super::fragment::{Assembly, Cut};
use super::{Class, DELTA_BYTES, FRAGMENT_BYTES, LinkConfig, Rtt, Spares, WINDOW, lane_of};
use crate::auth::Sealer;
use crate::ids::{Channel, NodeId, Seq, Slot};
use crate::time::Time;
use crate::wire::header::MsgType;
use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dest<'a> {
    /// To one slot of a node; what must be repeated goes to the node's service slot.
    Node(NodeId, Slot),
    /// By multicast to the service slots of these nodes.
    Group(&'a [NodeId]),
}

/// What a message says.
#[derive(Debug)]
pub enum Body<'a> {
    /// Bytes, of which a copy is kept.
    Bytes(&'a [u8]),
    /// A buffer in which it begins somewhere; it is kept as it is, and an empty one left in its place, if the message
    /// is taken.
    Buffer(&'a mut Vec<u8>, usize),
}

impl Body<'_> {
    /// The same once more.
    pub fn reborrow(&mut self) -> Body<'_> {
        match self {
            Body::Bytes(bytes) => Body::Bytes(bytes),
            Body::Buffer(buffer, start) => Body::Buffer(buffer, *start),
        }
    }

    /// A buffer with it, and where in that it begins.
    pub fn into_buffer(self) -> (Vec<u8>, usize) {
        match self {
            Body::Bytes(bytes) => (bytes.to_vec(), 0),
            Body::Buffer(buffer, start) => (std::mem::take(buffer), start),
        }
    }

    fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Buffer(buffer, start) => buffer.len().saturating_sub(*start),
        }
    }
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// Too much is under way: send again when something has been acknowledged or answered.
    #[error("too many packets are under way; wait for an answer to one of them")]
    WindowFull,
    /// The message is too long for its class.
    #[error("a message of {len} bytes is too long; at most {max} bytes go into one")]
    TooLarge {
        /// Its length in bytes.
        len: usize,
        /// What is possible.
        max: usize,
    },
    /// A request has one receiver.
    #[error("a request cannot go to a group; send one to each node")]
    RequestToGroup,
}

/// What a sender has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Messages taken.
    pub messages: u64,
    /// Datagrams handed out for transmission, repetitions included.
    pub datagrams: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Repetitions among them.
    pub retransmissions: u64,
    /// Timers that ran out.
    pub timeouts: u64,
    /// Packets found lost because later ones had arrived.
    pub losses_noticed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Queued,
    InFlight,
    Lost,
    Scattered,
    Received,
}

/// A guarded packet.
#[derive(Debug)]
struct Sent {
    /// The message it belongs to.
    ordinal: u64,
    state: State,
    /// When it was last transmitted.
    at: Time,
    deadline: Time,
    /// The place of that transmission among all to the same node.
    order: u64,
    /// How often it was transmitted.
    times: u8,
}

#[derive(Debug)]
enum Target {
    Node(NodeId, Slot),
    Group(Box<Group>),
}

#[derive(Debug)]
struct Group {
    nodes: Vec<NodeId>,
    /// Fragments and nodes whose acknowledgement is missing.
    missing: BTreeSet<(usize, NodeId)>,
}

impl Group {
    fn lacks(&self, index: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.missing.range((index, NodeId(0))..=(index, NodeId(u16::MAX))).map(|(_, node)| *node)
    }
}

/// A guarded message.
#[derive(Debug)]
struct Message {
    first: u64,
    class: Class,
    ty: MsgType,
    target: Target,
    cut: Cut,
    /// The body, and what stands before it.
    buffer: Vec<u8>,
    start: usize,
    /// Packets not yet received.
    left: usize,
    /// Whether it is still kept.
    live: bool,
    /// When a request that was received asks for its reply again.
    wait: Option<Time>,
    /// How often it has asked.
    tries: u8,
    /// Whether the receiver has said that it works on it.
    noted: bool,
    /// When something last came back for it, or it was first transmitted.
    answered: Time,
    /// The reply as far as it is in, and who sends it.
    reply: Option<(NodeId, Assembly)>,
}

impl Message {
    /// Whether its packets are acknowledged one by one. A request in one packet is acknowledged by its reply alone.
    fn acknowledged_by_packet(&self) -> bool {
        self.class == Class::Post || self.cut.count > 1
    }

    fn body(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn prefix_bytes(&self) -> usize {
        let delta = if self.class == Class::Request { DELTA_BYTES } else { 0 };
        delta + if self.cut.count > 1 { FRAGMENT_BYTES } else { 0 }
    }
}

/// An unguarded message on its way out.
#[derive(Debug)]
struct FreeMessage {
    seq: Seq,
    to: FreeTarget,
    ty: MsgType,
    /// The header's `frag` field.
    frag: u8,
    /// What follows the header.
    body: Vec<u8>,
}

#[derive(Debug)]
enum FreeTarget {
    Node(NodeId, Slot),
    Group(Vec<NodeId>),
}

/// The sending side of one channel. The module's documentation of [`crate::link`] says when to call what.
#[derive(Debug)]
pub struct Sender {
    me: Channel,
    prog: u16,
    config: LinkConfig,
    sealer: Sealer,
    /// The next guarded counter.
    head: u64,
    /// The packets from the oldest that is kept up to `head`.
    packets: VecDeque<Sent>,
    /// Their messages.
    messages: VecDeque<Message>,
    /// The ordinal of the first of them.
    first_ordinal: u64,
    /// Ordinals of the requests since the oldest that is under way.
    requests: VecDeque<u64>,
    live: usize,
    free: VecDeque<FreeMessage>,
    free_counter: u64,
    peers: Vec<Option<Box<Peer>>>,
    group: Box<Peer>,
    group_members: Vec<NodeId>,
    /// Nodes for which something is queued.
    ready: VecDeque<NodeId>,
    /// No timer runs out before.
    timer: Time,
    /// When the pace lets the next packet go.
    held_until: Option<Time>,
    spares: Spares,
    counters: Counters,
}

impl Sender {
    /// The sender of channel `me` in the job with this `prog`.
    pub fn new(me: Channel, prog: u16, config: LinkConfig, sealer: Sealer) -> Sender {
        let config = LinkConfig { window: config.window.min(WINDOW), ..config };
        Sender {
            me,
            prog,
            config,
            sealer,
            head: 0,
            packets: VecDeque::new(),
            messages: VecDeque::new(),
            first_ordinal: 0,
            requests: VecDeque::new(),
            live: 0,
            free: VecDeque::new(),
            free_counter: 0,
            peers: Vec::new(),
            group: Box::default(),
            group_members: Vec::new(),
            ready: VecDeque::new(),
            timer: Time(u64::MAX),
            held_until: None,
            spares: Spares::default(),
            counters: Counters::default(),
        }
    }

    /// Takes a message to send; [`Sender::poll_transmit`] then says what to transmit. Returns the number that names
    /// the message.
    ///
    /// # Errors
    /// Says why it was not taken; then nothing has changed.
    pub fn send(&mut self, to: Dest<'_>, class: Class, ty: MsgType, body: &[u8]) -> Result<Seq, SendError> {
        if class == Class::Free {
            return self.send_free(to, ty, body);
        }
        self.send_guarded(to, class, ty, Body::Bytes(body))
    }

    /// As [`Sender::send`], for a guarded message whose body need not be copied.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send_guarded(&mut self, to: Dest<'_>, class: Class, ty: MsgType, body: Body<'_>) -> Result<Seq, SendError> {
        let tag_len = self.sealer.tag_len();
        let prefix = if class == Class::Request { DELTA_BYTES } else { 0 };
        let cut = self
            .config
            .cut(body.len(), tag_len, prefix)
            .ok_or_else(|| SendError::TooLarge { len: body.len(), max: self.max_message_bytes() })?;
        // A program's messages, which may lie for long, leave room for what goes before them.
        let window = self.config.window as usize >> lane_of(ty);
        let full = self.packets.len() + cut.count > window;
        let asks = class == Class::Request && self.requests.len() >= self.config.requests_max(self.me.slot);
        if full || asks {
            return Err(SendError::WindowFull);
        }
        let target = match to {
            Dest::Node(node, slot) => Target::Node(node, slot),
            Dest::Group(_) if class == Class::Request => return Err(SendError::RequestToGroup),
            Dest::Group(nodes) => Target::Group(Box::new(Group {
                nodes: nodes.to_vec(),
                missing: (0..cut.count).flat_map(|i| nodes.iter().map(move |n| (i, *n))).collect(),
            })),
        };
        Ok(self.enqueue(target, class, ty, cut, body))
    }

    fn enqueue(&mut self, target: Target, class: Class, ty: MsgType, cut: Cut, body: Body<'_>) -> Seq {
        let first = self.head;
        let ordinal = self.first_ordinal + self.messages.len() as u64;
        for counter in first..first + cut.count as u64 {
            let (at, deadline) = (Time(0), Time(0));
            self.packets.push_back(Sent { ordinal, state: State::Queued, at, deadline, order: 0, times: 0 });
            match &target {
                Target::Node(node, _) => self.peer(*node).lanes[lane_of(ty)].fresh.push_back(counter),
                Target::Group(_) => self.group.lanes[0].fresh.push_back(counter),
            }
        }
        self.head += cut.count as u64;
        if let Target::Node(node, _) = &target {
            self.make_ready(*node);
        }
        if class == Class::Request {
            self.requests.push_back(ordinal);
        }
        let nobody = matches!(&target, Target::Group(group) if group.nodes.is_empty());
        let (buffer, start) = match body {
            Body::Bytes(bytes) => (self.spares.copy(bytes), 0),
            Body::Buffer(buffer, start) => (std::mem::take(buffer), start),
        };
        self.messages.push_back(Message {
            first,
            class,
            ty,
            target,
            cut,
            buffer,
            start,
            left: cut.count,
            live: true,
            wait: None,
            tries: 0,
            noted: false,
            answered: Time(0),
            reply: None,
        });
        self.live += 1;
        self.counters.messages += 1;
        if nobody {
            self.settle(self.messages.len() - 1);
            self.complete(ordinal);
            self.retire();
        }
        Seq::guarded(self.me, first)
    }

    fn send_free(&mut self, to: Dest<'_>, ty: MsgType, body: &[u8]) -> Result<Seq, SendError> {
        let tag_len = self.sealer.tag_len();
        let whole = self.config.max_free_bytes(tag_len);
        let max = if matches!(to, Dest::Node(..)) { self.config.usual_message_bytes(tag_len) } else { whole };
        let cut = Cut::new(body.len(), whole, whole - FRAGMENT_BYTES, 0)
            .filter(|_| body.len() <= max)
            .ok_or(SendError::TooLarge { len: body.len(), max })?;
        if (self.free.len() + cut.count) as u64 > self.config.window {
            return Err(SendError::WindowFull);
        }
        let first = self.free_counter;
        for index in 0..cut.count {
            let to = match to {
                Dest::Node(node, slot) => FreeTarget::Node(node, slot),
                Dest::Group(nodes) => FreeTarget::Group(nodes.to_vec()),
            };
            let mut payload = self.spares.take(FRAGMENT_BYTES + cut.range(index).len());
            payload.clear();
            cut.emit(&mut payload);
            payload.extend_from_slice(&body[cut.range(index)]);
            let seq = self.next_free();
            self.free.push_back(FreeMessage { seq, to, ty, frag: cut.frag_field(index), body: payload });
        }
        self.counters.messages += 1;
        Ok(Seq::free(self.me, first))
    }

    fn next_free(&mut self) -> Seq {
        self.free_counter += 1;
        Seq::free(self.me, self.free_counter - 1)
    }

    /// The message is over; its buffers are free again.
    fn complete(&mut self, ordinal: u64) {
        let message = &mut self.messages[(ordinal - self.first_ordinal) as usize];
        message.live = false;
        self.live -= 1;
        self.spares.give(std::mem::take(&mut message.buffer));
        if let Some((_, assembly)) = message.reply.take() {
            self.spares.give(assembly.into_bytes());
        }
    }

    /// Lets go of messages at the old end that are over.
    fn retire(&mut self) {
        while let Some(count) = self.messages.front().filter(|m| !m.live).map(|m| m.cut.count) {
            self.messages.pop_front();
            self.packets.drain(..count);
            self.first_ordinal += 1;
        }
        while let Some(&ordinal) = self.requests.front() {
            if ordinal.checked_sub(self.first_ordinal).is_some_and(|at| self.messages[at as usize].live) {
                break;
            }
            self.requests.pop_front();
        }
        if self.live == 0 {
            // What the pace holds up belongs to messages that are over.
            (self.timer, self.held_until) = (Time(u64::MAX), None);
        }
    }

    /// Counts those packets of a message as received for which nobody's acknowledgement is awaited any more: of a
    /// message to one node, all of them.
    fn settle(&mut self, at: usize) {
        let oldest = self.oldest();
        let message = &mut self.messages[at];
        let start = (message.first - oldest) as usize;
        for (index, sent) in self.packets.range_mut(start..start + message.cut.count).enumerate() {
            let in_flight = match &message.target {
                Target::Node(node, _) => &mut peer::of(&mut self.peers, *node).in_flight,
                Target::Group(group) if group.lacks(index).next().is_none() => &mut self.group.in_flight,
                Target::Group(_) => continue,
            };
            if sent.state == State::InFlight {
                *in_flight -= 1;
            }
            if sent.state != State::Received {
                sent.state = State::Received;
                message.left -= 1;
            }
        }
    }

    /// Messages under way.
    pub fn outstanding(&self) -> usize {
        self.live
    }

    /// Nodes from which nothing has come since `before` for a message that was transmitted to them, each with the time
    /// since when; a node may occur several times. A receiver that has no room for a program's message, or works on a
    /// request, is among them only if it says nothing at all.
    pub fn unanswered(&self, before: Time) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        let old = self.messages.iter().filter(move |m| m.live && m.answered <= before && self.is_transmitted(m));
        old.flat_map(|message| {
            let (one, several) = match (&message.target, &message.reply) {
                (_, Some((replier, _))) => (Some(*replier), None),
                (Target::Node(node, _), None) => (Some(*node), None),
                (Target::Group(group), None) => (None, Some(group.missing.iter().map(|(_, node)| *node))),
            };
            one.into_iter().chain(several.into_iter().flatten()).map(|node| (node, message.answered))
        })
    }

    fn is_transmitted(&self, message: &Message) -> bool {
        self.packets[(message.first - self.oldest()) as usize].times > 0
    }

    /// Whether messages wait until their nodes' windows let them go: an answer may have made room for them.
    pub fn has_queued(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Those of them that nobody here waits for: what was told and not asked.
    pub fn posts(&self) -> usize {
        self.messages.iter().filter(|m| m.live && m.class == Class::Post).count()
    }

    /// Whether the guarded message with this number is still under way.
    #[cfg(test)]
    pub fn is_outstanding(&self, seq: Seq) -> bool {
        let at = seq.counter().checked_sub(self.oldest());
        let sent = at.and_then(|at| self.packets.get(usize::try_from(at).ok()?));
        let message = sent.map(|sent| &self.messages[(sent.ordinal - self.first_ordinal) as usize]);
        let mine = !seq.is_free() && seq.channel() == Some(self.me);
        mine && message.is_some_and(|m| m.live && m.first == seq.counter())
    }

    /// The round trip to `node` as estimated; `None` when nothing was sent there.
    pub fn rtt(&self, node: NodeId) -> Option<&Rtt> {
        Some(&self.peers.get(node.index())?.as_ref()?.rtt)
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// An empty buffer for about `len` bytes, from those that earlier messages left.
    pub fn spare(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spares.take(len);
        buffer.clear();
        buffer
    }

    /// Takes back the buffer of a reply that came in fragments.
    pub fn recycle(&mut self, body: Cow<'_, [u8]>) {
        if let Cow::Owned(buffer) = body {
            self.spares.give(buffer);
        }
    }

    /// The longest message that a request or post may be, and a reply to it.
    pub fn max_message_bytes(&self) -> usize {
        self.config.max_message_bytes(self.sealer.tag_len())
    }

    /// The longest free message.
    pub fn max_free_bytes(&self) -> usize {
        self.config.max_free_bytes(self.sealer.tag_len())
    }

    /// Bytes of packets, messages and replies half in that are kept.
    pub fn kept_bytes(&self) -> usize {
        let messages = self.messages.iter().map(|m| {
            let reply = m.reply.as_ref().map_or(0, |(_, assembly)| assembly.cut().total);
            size_of::<Message>() + m.buffer.len() + reply
        });
        messages.sum::<usize>() + self.packets.len() * size_of::<Sent>()
    }

    /// The counter of the oldest packet that is kept.
    fn oldest(&self) -> u64 {
        self.head - self.packets.len() as u64
    }

    fn peer(&mut self, node: NodeId) -> &mut Peer {
        peer::of(&mut self.peers, node)
    }

    fn heard(&mut self, now: Time, node: NodeId) {
        if let Some(Some(peer)) = self.peers.get_mut(node.index()) {
            peer.last_heard = now;
        }
    }

    fn make_ready(&mut self, node: NodeId) {
        let peer = peer::of(&mut self.peers, node);
        if !peer.ready && peer.has_queued() {
            peer.ready = true;
            self.ready.push_back(node);
        }
    }

    fn arm(&mut self, at: Time) {
        self.timer = self.timer.min(at);
    }
}
