//! A node's wires: its sockets, and the link's machines behind their locks. Everything that leaves or enters the node
//! passes here.

mod channels;
mod deferred_socket;
mod incoming;
mod receive_in_place;
mod replies;
mod send_queue;
mod sets;
mod user_messages;

use crate::mutex::Mutex;
use crate::node::{Node, ThreadSlot};
use comem_memory::pages::fault::uncancelled;
use comem_net::clock::Clock;
use comem_net::{Datagrams, Selective};
use comem_protocol::auth::{Receiver, Sealer};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::link::{Body, Class, Dest, LinkConfig, PeerChannel, ReplyEncoder, SendError, Sender, To};
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::selective::Way;
use comem_protocol::time::Time;
use comem_protocol::wire::header::{MsgType, Packet};
use comem_protocol::wire::message::types;
use replies::FromSlot;
use send_queue::SendQueue;
use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;

/// Runs `f` with what the thread has for itself, which it may be using already: then a signal handler of the program
/// has interrupted it there.
fn with_own<T, R>(own: &'static LocalKey<RefCell<T>>, f: impl FnOnce(&mut T) -> R) -> R {
    own.with(|own| match own.try_borrow_mut() {
        Ok(mut own) => f(&mut own),
        Err(_) => comem_memory::pages::fault::end_in_the_middle(),
    })
}

/// What a thread has for itself is destroyed in the reverse of the order in which it was first touched: touched when it
/// gets its place, it is there when it leaves that.
pub(crate) fn touch_own() {
    SCRATCH.with(|_| ());
    OUTBOX.with(|_| ());
    SET_MESSAGE.with(|_| ());
    INCOMING.with(|_| ());
}

thread_local! {
    /// Where datagrams are put together before they are sent.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// A message to sets of nodes, before it is made datagrams.
    static SET_MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// What a message just received asks for.
    static OUTBOX: RefCell<Outbox> = RefCell::default();
    /// Where datagrams are received.
    static INCOMING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Sockets and link machines of a node.
pub(crate) struct Wire {
    me: NodeId,
    prog: u16,
    /// Of what the nodes of this job say to each other.
    sealer: Sealer,
    /// Of start-up.
    start_sealer: Sealer,
    /// The datagram that rouses a thread of this node: too short to be anything else, and nobody else can make it.
    kick: Vec<u8>,
    link: LinkConfig,
    started: Time,
    /// By slot; behind them there may be one of its own for what may wait.
    endpoints: Vec<Arc<dyn Datagrams>>,
    /// Addresses by node and slot, and over networks where to send what may wait.
    addresses: Vec<Vec<SocketAddr>>,
    /// Hosts and process numbers by node.
    members: Vec<(String, u32)>,
    group: Option<SocketAddr>,
    /// How the job sends to many nodes.
    way: Way,
    /// To sets of nodes, where the job's engine has them.
    selective: Option<Selective>,
    senders: Vec<Mutex<Sender>>,
    encoders: Vec<Mutex<ReplyEncoder>>,
    peers: Vec<OnceLock<Box<Mutex<PeerChannel>>>>,
    /// What found no room in the senders, by slot.
    send_queues: Vec<SendQueue>,
    /// A socket of its own to rouse threads that sleep in theirs.
    kicker: Option<UdpSocket>,
}

/// What a node's wires are made of.
pub(crate) struct Parts {
    pub(crate) me: NodeId,
    pub(crate) prog: u16,
    pub(crate) job: u64,
    pub(crate) sealer: Sealer,
    /// Whether the endpoints let in nobody who is not of this job, or this user's: then what comes by them needs no
    /// tag.
    pub(crate) guarded: bool,
    pub(crate) link: LinkConfig,
    pub(crate) started: Time,
    pub(crate) endpoints: Vec<Arc<dyn Datagrams>>,
    pub(crate) addresses: Vec<Vec<SocketAddr>>,
    pub(crate) members: Vec<(String, u32)>,
    pub(crate) group: Option<SocketAddr>,
    pub(crate) way: Way,
    pub(crate) selective: Option<Selective>,
}

#[cfg(test)]
impl Wire {
    /// The wire of node 0 with one thread, for tests of what needs no more than sockets and addresses.
    fn bare(endpoints: Vec<Arc<dyn Datagrams>>, addresses: Vec<Vec<SocketAddr>>) -> Wire {
        let parts = Parts {
            me: NodeId(0),
            prog: 1,
            job: 1,
            sealer: Sealer::new(None),
            guarded: false,
            link: LinkConfig::default(),
            started: Time(0),
            endpoints,
            addresses,
            members: Vec::new(),
            group: None,
            way: Way::Off,
            selective: None,
        };
        Wire::new(parts, 1)
    }
}

impl Wire {
    pub(crate) fn new(parts: Parts, threads: usize) -> Wire {
        let Parts { me, prog, job, sealer: start_sealer, guarded, link, started, endpoints, addresses, .. } = parts;
        let of_job = start_sealer.of_job(job);
        let kick = of_job.tag(b"kick", Receiver::Node(me)).map_or(vec![0], |tag| tag.to_vec());
        let sealer = if guarded { Sealer::default() } else { of_job };
        let channel = |slot: usize| Channel { node: me, slot: Slot(slot as u16) };
        let slots = threads + 1;
        Wire {
            senders: (0..slots).map(|s| Mutex::new(Sender::new(channel(s), prog, link, sealer.clone()))).collect(),
            encoders: (0..slots)
                .map(|s| Mutex::new(ReplyEncoder::new(channel(s), prog, link, sealer.clone())))
                .collect(),
            peers: (0..addresses.len() * slots).map(|_| OnceLock::new()).collect(),
            send_queues: (0..slots).map(|_| SendQueue::default()).collect(),
            kicker: endpoints.get(1).and_then(|e| UdpSocket::bind((e.local_addr().ip(), 0)).ok()),
            me,
            prog,
            sealer,
            start_sealer,
            kick,
            link,
            started,
            endpoints,
            addresses,
            members: parts.members,
            group: parts.group,
            way: parts.way,
            selective: parts.selective,
        }
    }

    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    pub(crate) fn nodes(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn started(&self) -> Time {
        self.started
    }

    pub(crate) fn authenticated(&self) -> bool {
        self.start_sealer.tag_len() > 0
    }

    /// How this node sends to many nodes now.
    pub(crate) fn way(&self) -> Way {
        self.selective.as_ref().filter(|_| self.way == Way::Ip).map_or(self.way, Selective::way)
    }

    /// This node's way to sets of nodes, where the job's engine has them.
    pub(crate) fn selective(&self) -> Option<&Selective> {
        self.selective.as_ref()
    }

    pub(crate) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Host and process number of a node.
    pub(crate) fn member(&self, node: NodeId) -> Option<(&str, u32)> {
        self.members.get(node.index()).map(|(host, pid)| (host.as_str(), *pid))
    }

    /// A node's name in messages: number, host and process.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        match self.member(node) {
            Some((host, pid)) => format!("node {} (host {host}, pid {pid})", node.0),
            None => node.to_string(),
        }
    }

    /// The most bytes of one datagram.
    pub(crate) fn datagram_bytes(&self) -> usize {
        self.link.datagram_bytes
    }

    /// About how many bytes of data one datagram takes.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.link.datagram_bytes.min(1472) - 96
    }

    /// Most bytes of notices in a message that is not acknowledged: they fit one datagram. An acknowledged one goes to
    /// the service thread, which has to rouse the thread that waits, and its receipt wakes the sender's.
    pub(crate) fn free_notices_bytes(&self) -> usize {
        (self.link.datagram_bytes - 96) / 2
    }

    /// The longest message with data in it: its datagrams are no longer than usual.
    pub(crate) fn message_bytes(&self) -> usize {
        self.link.usual_message_bytes(self.sealer.tag_len())
    }

    pub(crate) fn endpoint(&self, slot: Slot) -> &dyn Datagrams {
        &*self.endpoints[slot.index()]
    }

    /// Nothing is sent or received any more.
    pub(crate) fn retire(&self) {
        self.endpoints.iter().for_each(|endpoint| endpoint.retire());
    }

    /// Ends a thread's sleep in its socket by a datagram that says nothing; it takes no part in injected faults.
    fn kick(&self, slot: Slot) {
        if self.endpoint(slot).kick() {
            return;
        }
        let Some(address) = self.address(Channel { node: self.me, slot }) else { return };
        if let Some(kicker) = &self.kicker {
            let _ = kicker.send_to(&self.kick, address);
        }
    }

    pub(crate) fn prog(&self) -> u16 {
        self.prog
    }

    pub(crate) fn start_sealer(&self) -> &Sealer {
        &self.start_sealer
    }

    pub(crate) fn address(&self, channel: Channel) -> Option<SocketAddr> {
        self.addresses.get(channel.node.index())?.get(channel.slot.index()).copied()
    }

    /// Whether `from` is an address of the channel's node. Mostly it is the channel's own, but a stored reply may be
    /// sent again by another thread than the one that made it.
    fn is_of(&self, channel: Channel, from: SocketAddr) -> bool {
        self.address(channel) == Some(from)
            || self.addresses.get(channel.node.index()).is_some_and(|a| a.contains(&from))
    }

    pub(crate) fn sender(&self, slot: Slot) -> &Mutex<Sender> {
        &self.senders[slot.index()]
    }

    fn peer(&self, channel: Channel) -> Option<&Mutex<PeerChannel>> {
        let slots = self.senders.len();
        if channel.slot.index() >= slots {
            return None;
        }
        let cell = self.peers.get(channel.node.index() * slots + channel.slot.index())?;
        Some(cell.get_or_init(|| Box::new(Mutex::new(PeerChannel::new(channel, &self.link)))))
    }

    fn encoder(&self, slot: Slot) -> &Mutex<ReplyEncoder> {
        &self.encoders[slot.index()]
    }

    /// The slot of this node that an answer to a message of this channel is for.
    fn own_slot(&self, channel: Channel) -> std::result::Result<Slot, BoxedError> {
        if channel.node == self.me && channel.slot.index() < self.senders.len() {
            Ok(channel.slot)
        } else {
            Err("an answer to somebody else's request".into())
        }
    }

    /// Whether a packet that has come from that address is of this job; if not, why.
    fn is_of_job(&self, packet: &Packet<'_>, from: SocketAddr) -> std::result::Result<(), &'static str> {
        if packet.header.prog != self.prog {
            return Err("it belongs to another program");
        }
        if packet.channel.node == self.me || !self.is_of(packet.channel, from) {
            return Err("its sender is not part of this job");
        }
        Ok(())
    }

    /// Sends whatever a slot's sender wants sent now.
    fn send_what_is_due(&self, from: &FromSlot<'_>, clock: &Clock) {
        let FromSlot { slot, mine, refused } = *from;
        with_own(&SCRATCH, |buffer| {
            loop {
                let (transmit, members) = {
                    let mut sender = self.sender(slot).lock();
                    let Some(transmit) = sender.poll_transmit(clock.now(), buffer) else { return };
                    let group = matches!(transmit.to, To::Group) && self.group.is_none();
                    (transmit, if group { sender.group_members().to_vec() } else { Vec::new() })
                };
                let put = |node: NodeId| {
                    let Some(to) = self.address(Channel { node, slot: transmit.slot }) else { return };
                    // Threads look after their node's service socket, if at all, and after no other.
                    let patiently = transmit.slot == Slot::SERVICE && mine.is_patient();
                    let put = self.put(slot, mine, (buffer, transmit.segment), to, patiently);
                    put.unwrap_or_else(|error| refused(to, error));
                };
                match (transmit.to, self.group) {
                    (To::Node(node), _) => put(node),
                    (To::Group, Some(group)) => {
                        mine.counters.multicasts.add(1);
                        let put = self.put(slot, mine, (buffer, transmit.segment), group, false);
                        put.unwrap_or_else(|error| refused(group, error));
                    }
                    (To::Group, None) => members.iter().for_each(|node| put(*node)),
                }
            }
        });
    }

    /// Puts datagrams on the wire, and counts their bytes for `mine`. Patiently: whoever sleeps there gets a moment to
    /// look before it is roused.
    fn put(
        &self,
        slot: Slot,
        mine: &ThreadSlot,
        (bytes, segment): (&[u8], usize),
        to: SocketAddr,
        patiently: bool,
    ) -> io::Result<()> {
        mine.counters.bytes_sent.add(bytes.len() as u64);
        let endpoint = self.endpoint(slot);
        if patiently { endpoint.send_patiently(bytes, segment, to) } else { endpoint.send_to(bytes, segment, to) }
    }
}

impl Node {
    /// Sends and wakes what a step asked for, and empties the outbox.
    pub(crate) fn flush(&self, slot: Slot, out: &mut Outbox) {
        // To tell a peer that its repeated arrival at a barrier was noted is what a node does while nothing happens.
        let still_waiting = out.wakes().is_empty() && out.sends().iter().all(|send| send.ty == types::NOTED);
        if !still_waiting {
            self.life.note_progress();
        }
        self.flush_repeats(slot, out);
    }

    /// As [`Node::flush`], for what is only said again: no progress.
    pub(crate) fn flush_repeats(&self, slot: Slot, out: &mut Outbox) {
        if out.is_empty() {
            return;
        }
        let (mut mine, mut service) = (false, false);
        for (ticket, node) in out.handed_on() {
            if let Some(peer) = self.wire.peer(ticket.channel) {
                peer.lock().mark_forwarded(ticket.seq, *node);
            }
        }
        self.sending(slot, |from| self.wire.reply_at_length(from, out));
        let mut buffers = out.take_buffers();
        for send in out.sends() {
            self.counters(slot).messages_sent.add(1);
            match send.target {
                Target::Request { node, origin } | Target::Post { node, origin } => {
                    let class =
                        if matches!(send.target, Target::Request { .. }) { Class::Request } else { Class::Post };
                    let from = if origin == Origin::Caller { slot } else { Slot::SERVICE };
                    mine |= from == slot;
                    service |= from != slot;
                    let mut own = buffers.take(send);
                    let body = match &mut own {
                        Some((buffer, start)) => Body::Buffer(buffer, *start),
                        None => Body::Bytes(out.body(send)),
                    };
                    self.send_guarded(from, node, (class, send.ty), body);
                }
                Target::Reply(ticket) => {
                    let reply = |from: &FromSlot<'_>| self.wire.reply(from, ticket, send.ty, out.body(send));
                    self.sending(slot, reply).unwrap_or_else(|error| self.end_unsent((send.ty, error)));
                }
                Target::Free { node, slot: to } => {
                    mine = true;
                    self.send_free(slot, node, self.wire.free_slot(send.ty, to), send.ty, out.body(send));
                }
                Target::Set(id) => {
                    mine = true;
                    let audience = out.audience(id);
                    let messages = self.send_to_sets(slot, &audience.asked, &audience.told, send.ty, out.body(send));
                    let counters = self.counters(slot);
                    // One was counted above.
                    counters.messages_sent.add(messages.saturating_sub(1) as u64);
                    match send.ty {
                        types::DIFFS_ASKED => counters.diffs_asked.add(1),
                        types::DIFFS_TOLD => counters.diffs_told.add(1),
                        _ => {}
                    }
                }
                Target::FreeToAll => {
                    mine = true;
                    self.send_to_all(slot, send.ty, out.body(send));
                }
            }
        }
        if mine {
            self.transmit(slot);
        }
        if service {
            self.transmit(Slot::SERVICE);
        }
        for wake in out.wakes() {
            self.wake_thread(*wake);
        }
        out.clear();
    }

    /// Rouses a thread, wherever it sleeps.
    pub(crate) fn wake_thread(&self, slot: Slot) {
        let Some(thread_slot) = self.slots.get(slot.index()) else { return };
        if thread_slot.waiter.rouse() {
            self.wire.kick(slot);
        }
    }

    /// Rouses the service thread, to look at the clock.
    pub(crate) fn wake_service(&self) {
        self.wire.kick(Slot::SERVICE);
    }

    fn send_free(&self, from: Slot, node: NodeId, to: Slot, ty: MsgType, body: &[u8]) {
        let send = || self.wire.sender(from).lock().send(Dest::Node(node, to), Class::Free, ty, body);
        let mut result = send();
        if matches!(result, Err(SendError::WindowFull)) {
            // Nobody acknowledges what is queued: it makes room by leaving.
            self.transmit(from);
            result = send();
        }
        if let Err(error) = result {
            self.end_unsent((ty, error));
        }
    }

    fn send_to_all(&self, from: Slot, ty: MsgType, body: &[u8]) {
        if self.wire.selective().is_some() {
            let all: NodeSet = NodeId::all(self.nodes()).collect();
            self.send_to_sets(from, &all, &NodeSet::new(), ty, body);
            return;
        }
        if self.wire.group.is_some() {
            let others: Vec<NodeId> = NodeId::all(self.nodes()).filter(|n| *n != self.me()).collect();
            let result = self.wire.sender(from).lock().send(Dest::Group(&others), Class::Free, ty, body);
            if result.is_ok() {
                return;
            }
        }
        for node in NodeId::all(self.nodes()).filter(|n| *n != self.me()) {
            self.send_free(from, node, Slot::SERVICE, ty, body);
        }
    }

    pub(crate) fn put_on_wire(&self, slot: Slot, bytes: &[u8], segment: usize, to: SocketAddr) {
        if let Err(error) = self.wire.put(slot, &self.slots[slot], (bytes, segment), to, false) {
            self.on_send_error(to, &error);
        }
    }

    /// Sends whatever a slot's sender wants sent now.
    pub(crate) fn transmit(&self, slot: Slot) {
        // Outside of operations too: an object's writes are told, and tokens given away, by who only passes by.
        uncancelled(|| self.sending(slot, |from| self.wire.send_what_is_due(from, &self.clock)));
    }

    /// What leaves from a slot.
    fn sending<R>(&self, slot: Slot, send: impl FnOnce(&FromSlot<'_>) -> R) -> R {
        let refused = |to, error: io::Error| self.on_send_error(to, &error);
        send(&FromSlot { slot, mine: &self.slots[slot], refused: &refused })
    }

    /// Runs a slot's timers and gives the time of the next one.
    pub(crate) fn run_timers(&self, slot: Slot) -> Option<Time> {
        let next = {
            let mut sender = self.wire.sender(slot).lock();
            let now = self.now();
            if sender.next_timeout().is_some_and(|at| at <= now) {
                sender.on_timeout(now);
            }
            sender.outstanding()
        };
        if next > 0 {
            self.transmit(slot);
        }
        self.wire.sender(slot).lock().next_timeout()
    }
}

/// The thread for whom a step is made in this slot, unless it is the service thread.
pub(crate) fn caller(slot: Slot) -> Option<Slot> {
    (slot != Slot::SERVICE).then_some(slot)
}

/// Why a datagram was refused.
pub(crate) type BoxedError = Box<dyn std::error::Error>;
