//! A node's wires: its sockets, and the link's machines behind their locks. Everything that leaves or enters the node
//! passes here.

mod channels;
mod deferred_socket;
mod receive_in_place;
mod replies;
mod send_queue;
mod user_messages;

use crate::error::Error;
use crate::mutex::Mutex;
use crate::node::{LocalNode, Node};
use comem_memory::pages::fault::uncancelled;
use comem_net::{Datagrams, Received, Wait, datagrams};
use comem_protocol::auth::{Receiver, Sealer};
use comem_protocol::ids::{Channel, NodeId, Seq, Slot};
use comem_protocol::link::{
    AckRepr, Arrival, Body, Class, Dest, LinkConfig, PeerChannel, Repeat, Reply, ReplyEncoder, ResendRepr, SendError,
    Sender, To, Transmit, acked,
};
use comem_protocol::lock_schedule::Deferred;
use comem_protocol::node::route::{self, dispatch};
use comem_protocol::node::startup::DISCOVERY_PROG;
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::time::Time;
use comem_protocol::wire::header::{MsgType, Packet};
use comem_protocol::wire::message::{Message, Ticket, types};
use receive_in_place::{InPlace, LONG_BYTES, POLLS_FOR_FRAGMENT};
use send_queue::SendQueue;
use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;
use std::time::Duration;

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
    INCOMING.with(|_| ());
}

thread_local! {
    /// Where datagrams are put together before they are sent.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
        };
        Wire::new(parts, 1)
    }
}

impl Wire {
    pub(crate) fn new(parts: Parts, threads: usize) -> Wire {
        let Parts { me, prog, job, sealer: start_sealer, guarded, link, started, endpoints, addresses, members, group } =
            parts;
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
            members,
            group,
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

    pub(crate) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Host and process number of a node.
    pub(crate) fn member(&self, node: NodeId) -> Option<(&str, u32)> {
        self.members.get(node.index()).map(|(host, pid)| (host.as_str(), *pid))
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
}

/// What came of a drained socket.
#[derive(Default)]
pub(crate) struct Drained {
    /// Datagrams that were acted upon.
    pub(crate) datagrams: usize,
    /// When the datagram that is being taken in had come.
    at: Time,
    /// Remote channels that acknowledgements are owed to.
    owed: Vec<Channel>,
    /// Datagrams that were to rouse whose socket it is.
    kicks: usize,
}

impl Node {
    /// Sends and wakes what a step asked for, and empties the outbox.
    pub(crate) fn flush(&self, slot: Slot, out: &mut Outbox) {
        // To tell a peer that its repeated arrival at a barrier was noted is what a node does while nothing happens.
        let still_waiting = out.wakes().is_empty() && out.sends().iter().all(|send| send.ty == types::NOTED);
        if !still_waiting {
            self.note_progress();
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
        self.reply_at_length(slot, out);
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
                Target::Reply(ticket) => self.reply(slot, ticket, send.ty, out.body(send)),
                Target::Free { node, slot: to } => {
                    mine = true;
                    self.send_free(slot, node, self.wire.free_slot(send.ty, to), send.ty, out.body(send));
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
        self.counters(slot).bytes_sent.add(bytes.len() as u64);
        if let Err(error) = self.wire.endpoint(slot).send_to(bytes, segment, to) {
            self.on_send_error(to, &error);
        }
    }

    /// Sends whatever a slot's sender wants sent now.
    pub(crate) fn transmit(&self, slot: Slot) {
        // Outside of operations too: an object's writes are told, and tokens given away, by who only passes by.
        uncancelled(|| self.send_what_is_due(slot));
    }

    fn send_what_is_due(&self, slot: Slot) {
        with_own(&SCRATCH, |buffer| {
            loop {
                let (transmit, members) = {
                    let mut sender = self.wire.sender(slot).lock();
                    let Some(transmit) = sender.poll_transmit(self.now(), buffer) else { return };
                    let group = matches!(transmit.to, To::Group) && self.wire.group.is_none();
                    (transmit, if group { sender.group_members().to_vec() } else { Vec::new() })
                };
                match (transmit.to, self.wire.group) {
                    (To::Node(node), _) => self.put_on_way(slot, buffer, &transmit, node),
                    (To::Group, Some(group)) => self.put_on_wire(slot, buffer, transmit.segment, group),
                    (To::Group, None) => members.iter().for_each(|n| self.put_on_way(slot, buffer, &transmit, *n)),
                }
            }
        });
    }

    fn put_on_way(&self, slot: Slot, bytes: &[u8], transmit: &Transmit, node: NodeId) {
        let Some(address) = self.wire.address(Channel { node, slot: transmit.slot }) else { return };
        // Threads look after their node's service socket, if at all, and after no other.
        if transmit.slot != Slot::SERVICE || !self.slots[slot.index()].patient.load(Ordering::Relaxed) {
            return self.put_on_wire(slot, bytes, transmit.segment, address);
        }
        self.counters(slot).bytes_sent.add(bytes.len() as u64);
        if let Err(error) = self.wire.endpoint(slot).send_patiently(bytes, transmit.segment, address) {
            self.on_send_error(address, &error);
        }
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

    /// Receives at a slot's socket, waiting as long as `timeout` says; goes on as long as more is there and
    /// acknowledgements can be gathered, or, in a thread that spins, while the rest of a long reply comes. `as_slot` is
    /// the thread that acts: the slot's own, or the service thread in its stead. Gives how many receives brought
    /// something.
    pub(crate) fn receive(&self, at: Slot, as_slot: Slot, timeout: Option<Duration>, wait: Wait) -> usize {
        let mut drained = Drained::default();
        with_own(&INCOMING, |buffer| {
            buffer.resize(comem_net::RECEIVE_BUFFER_BYTES, 0);
            let mut timeout = timeout;
            let looks = if wait == Wait::Block || timeout == Some(Duration::ZERO) { 1 } else { POLLS_FOR_FRAGMENT };
            // The rest of a long reply may be about to come: nothing else is waited for here.
            let mut follows = false;
            for _ in 0..64 {
                let before = self.now();
                let received = match self.receive_in_place(at, as_slot, buffer, looks) {
                    InPlace::Taken { more } => {
                        drained.datagrams += 1;
                        if !more {
                            break;
                        }
                        follows = true;
                        continue;
                    }
                    InPlace::Other(received) => Ok(received),
                    InPlace::Nothing | InPlace::Unknown if follows => break,
                    InPlace::Nothing if timeout == Some(Duration::ZERO) => Ok(Received::Timeout),
                    InPlace::Nothing | InPlace::Unknown => self.wire.endpoint(at).recv(buffer, timeout, wait),
                };
                let start = self.now();
                if wait != Wait::Block {
                    self.account_spin(at, (start - before).0 < self.spin().0);
                }
                match &received {
                    Ok(Received::Datagrams { from, len, segment }) => {
                        for (index, datagram) in datagrams(&buffer[..*len], *segment).enumerate() {
                            drained.at = if index == 0 { start } else { self.now() };
                            self.counters(as_slot).bytes_received.add(datagram.len() as u64);
                            self.on_datagram(as_slot, datagram, *from, &mut drained);
                        }
                        drained.datagrams += 1;
                        if as_slot == Slot::SERVICE {
                            self.counters(as_slot).service_ns.add((self.now() - start).0);
                        }
                    }
                    Ok(Received::Timeout) => break,
                    Ok(Received::Unreachable(address)) => self.on_unreachable(*address),
                    Ok(Received::PathMtu { to, mtu }) => self.on_path_mtu(*to, *mtu),
                    Err(error) => {
                        self.on_socket_error("cannot receive", error);
                        break;
                    }
                }
                follows = drained.owed.is_empty();
                let may_go_on =
                    looks > 1 && matches!(received, Ok(Received::Datagrams { len, .. }) if len >= LONG_BYTES);
                if follows && !may_go_on {
                    break;
                }
                timeout = Some(Duration::ZERO);
            }
        });
        self.send_owed(as_slot, &drained.owed);
        if drained.kicks > 0 && at != as_slot {
            // It was for a thread that may sleep there still.
            self.wire.kick(at);
            drained.datagrams = drained.datagrams.saturating_sub(drained.kicks);
        }
        drained.datagrams
    }

    fn send_owed(&self, slot: Slot, owed: &[Channel]) {
        for channel in owed {
            let (Some(peer), Some(address)) = (self.wire.peer(*channel), self.wire.address(*channel)) else { continue };
            loop {
                // One lock at a time: replies take the encoder's first.
                let (presses, owed) = {
                    let mut peer = peer.lock();
                    (peer.ack_presses(), peer.owed_ack())
                };
                let Some(ack) = owed else { break };
                self.counters(slot).acks_sent.add(1);
                with_own(&SCRATCH, |buffer| {
                    buffer.clear();
                    self.wire.encoder(slot).lock().ack(&ack, buffer);
                    // A thread may wait until what it has sent has come; a service thread goes on to do other things.
                    if presses || channel.slot != Slot::SERVICE {
                        return self.put_on_wire(slot, buffer, buffer.len(), address);
                    }
                    self.counters(slot).bytes_sent.add(buffer.len() as u64);
                    if let Err(error) = self.wire.endpoint(slot).send_quietly(buffer, buffer.len(), address) {
                        self.on_send_error(address, &error);
                    }
                });
            }
        }
    }

    pub(crate) fn reject(&self, slot: Slot, from: SocketAddr, why: &dyn std::fmt::Display) {
        let count = &self.counters(slot).rejected;
        count.add(1);
        if self.config.verbose && count.get().is_power_of_two() {
            crate::error::say(format_args!(
                "comem: {}: refused a datagram from {from}: {why} ({} so far)",
                self.name_of(self.me()),
                count.get()
            ));
        }
    }

    /// Takes in one datagram.
    fn on_datagram(&self, slot: Slot, datagram: &[u8], from: SocketAddr, drained: &mut Drained) {
        if *datagram == self.wire.kick[..] && from.ip() == self.wire.endpoint(slot).local_addr().ip() {
            drained.kicks += 1;
            return;
        }
        let is_start = Packet::prog_of(datagram) == Some(DISCOVERY_PROG);
        let sealer = if is_start { &self.wire.start_sealer } else { &self.wire.sealer };
        let Some(bytes) = sealer.open(datagram, Receiver::Node(self.me())) else {
            return self.reject(slot, from, &"it does not carry the job's key");
        };
        let packet = match Packet::new_checked(bytes) {
            Ok(packet) => packet,
            Err(error) => return self.reject(slot, from, &error),
        };
        if is_start {
            return self.on_start_datagram(slot, from, &packet);
        }
        if packet.header.prog != self.wire.prog {
            return self.reject(slot, from, &"it belongs to another program");
        }
        if packet.channel.node == self.me() || !self.wire.is_of(packet.channel, from) {
            return self.reject(slot, from, &"its sender is not part of this job");
        }
        self.heard_from(packet.channel.node, drained.at);
        if Self::is_of_watch(packet.header.ty) {
            return self.on_watch_datagram(slot, from, &packet);
        }
        let result = if packet.header.flags.ack && packet.header.ty == MsgType::ACK {
            self.on_ack(&packet)
        } else if packet.header.flags.ack {
            self.on_reply(slot, &packet, drained.at)
        } else if packet.header.ty == MsgType::RESEND {
            self.on_resend(slot, &packet)
        } else {
            self.on_message(slot, &packet, drained)
        };
        if let Err(error) = result {
            self.on_bad_packet(slot, packet.channel.node, from, &error);
        }
    }

    /// What a node has sent cannot be. Where others could have sent it in its name, it counts for nothing.
    pub(crate) fn on_bad_packet(&self, slot: Slot, node: NodeId, from: SocketAddr, error: &BoxedError) {
        self.reject(slot, from, error);
        if self.wire.authenticated() {
            self.end_for_violation(node, &format!("sent a packet that cannot be: {error}"));
        }
    }

    fn on_ack(&self, packet: &Packet<'_>) -> std::result::Result<(), BoxedError> {
        let ack = AckRepr::parse(packet.payload)?;
        let slot = self.my_slot(ack.channel())?;
        let now = self.now();
        self.wire.sender(slot).lock().on_ack(now, packet.channel.node, &ack);
        self.transmit(slot);
        self.advance_send_queue(slot);
        Ok(())
    }

    fn my_slot(&self, channel: Channel) -> std::result::Result<Slot, BoxedError> {
        if channel.node == self.me() && channel.slot.index() < self.slots.len() {
            Ok(channel.slot)
        } else {
            Err("an answer to somebody else's request".into())
        }
    }

    fn on_reply(&self, slot: Slot, packet: &Packet<'_>, now: Time) -> std::result::Result<(), BoxedError> {
        let (channel, _) = acked(packet)?;
        let asker = self.my_slot(channel)?;
        let reply = self.wire.sender(asker).lock().on_reply(now, packet.channel.node, packet)?;
        self.on_answer((slot, asker), packet.channel, reply, now)
    }

    fn on_answer(
        &self,
        (slot, asker): (Slot, Slot),
        from: Channel,
        reply: Reply<'_>,
        now: Time,
    ) -> std::result::Result<(), BoxedError> {
        match reply {
            Reply::Complete { ty, body, nack: false, .. } => {
                self.counters(slot).messages_received.add(1);
                let origin = route::Origin { from, ticket: None, caller: Self::caller(slot) };
                self.act((slot, asker), origin, ty, &body, now)?;
                let more = {
                    let mut sender = self.wire.sender(asker).lock();
                    sender.recycle(body);
                    sender.has_queued()
                };
                if more {
                    self.transmit(asker);
                }
                self.advance_send_queue(asker);
            }
            Reply::Complete { seq, .. } => return Err(format!("request {} was refused", seq.0).into()),
            Reply::Partial => self.transmit(asker),
            Reply::Late => self.counters(slot).duplicates.add(1),
        }
        Ok(())
    }

    pub(crate) fn caller(slot: Slot) -> Option<Slot> {
        (slot != Slot::SERVICE).then_some(slot)
    }

    fn on_resend(&self, slot: Slot, packet: &Packet<'_>) -> std::result::Result<(), BoxedError> {
        let resend = ResendRepr::parse(packet.payload)?;
        self.repeat_reply(slot, resend.channel()?, &resend);
        Ok(())
    }

    fn on_message(
        &self,
        slot: Slot,
        packet: &Packet<'_>,
        drained: &mut Drained,
    ) -> std::result::Result<(), BoxedError> {
        let channel = packet.channel;
        let peer = self.wire.peer(channel).ok_or("a sender that this job does not have")?;
        if packet.header.ty == types::USER {
            let part = peer.lock().part_of(packet)?;
            if !self.has_room_for(part) {
                return Ok(()); // not acknowledged: the sender will repeat it when there may be room
            }
        }
        let arrival = {
            let mut peer = peer.lock();
            let arrival = peer.on_packet(packet)?;
            if peer.owes_ack() && !drained.owed.contains(&channel) {
                drained.owed.push(channel);
            }
            arrival
        };
        match arrival {
            Arrival::Message { seq, class, ty, body } => {
                self.counters(slot).messages_received.add(1);
                let ticket = (class == Class::Request).then_some(Ticket { channel, seq });
                let origin = route::Origin { from: channel, ticket, caller: Self::caller(slot) };
                let result = self.act((slot, slot), origin, ty, &body, drained.at);
                peer.lock().recycle(body);
                result?;
            }
            Arrival::Duplicate(repeat) => {
                // A message is named by its first packet.
                let before = u64::from(packet.header.frag.saturating_sub(1));
                let counter = packet.header.seq.counter().saturating_sub(before);
                self.on_repeat(slot, channel, Seq::guarded(channel, counter), repeat);
            }
            Arrival::Incomplete | Arrival::Stale => {}
        }
        Ok(())
    }

    fn on_repeat(&self, slot: Slot, channel: Channel, seq: Seq, repeat: Repeat) {
        self.counters(slot).duplicates.add(1);
        match repeat {
            Repeat::Reply => self.repeat_reply(slot, channel, &ResendRepr::whole(seq)),
            Repeat::Forwarded(node) => {
                if let Some(address) = self.wire.address(Channel::service(node)) {
                    with_own(&SCRATCH, |buffer| {
                        buffer.clear();
                        self.wire.encoder(slot).lock().resend(node, &ResendRepr::whole(seq), buffer);
                        self.put_on_wire(slot, buffer, buffer.len(), address);
                    });
                }
            }
            _ => {}
        }
    }

    /// Takes a message to its room and does what follows from it.
    fn act(
        &self,
        (slot, asker): (Slot, Slot),
        origin: route::Origin,
        ty: MsgType,
        body: &[u8],
        now: Time,
    ) -> std::result::Result<(), BoxedError> {
        let message = match Message::parse(ty, body) {
            Ok(message) => message,
            Err(error) => {
                self.end_for_violation(origin.from.node, &format!("sent a message that makes no sense: {error}"));
                return Ok(());
            }
        };
        if !self.defers(slot, &message, origin, body) {
            self.carry_out((slot, asker), origin, message, now);
        }
        Ok(())
    }

    /// As [`Node::act`], now.
    fn carry_out(&self, (slot, asker): (Slot, Slot), origin: route::Origin, message: Message<'_>, now: Time) {
        self.count(slot, &message);
        let mut out = Self::take_outbox();
        let mut local_node = LocalNode { node: self, answers: asker, roused: None, user: None };
        let result = dispatch(&mut local_node, now, origin, message, &mut out);
        let LocalNode { roused, user, .. } = local_node;
        if let Some((from, thread, bytes)) = user {
            self.deliver_user(from, thread, &bytes, &mut out);
        }
        self.flush(slot, &mut out);
        Self::return_outbox(out);
        if asker != slot && asker != Slot::SERVICE {
            self.wake_thread(asker);
        }
        if let Some(roused) = roused.filter(|r| *r != slot) {
            self.wake_thread(roused);
        }
        if let Err(misbehaved) = result {
            self.end_for_violation(origin.from.node, &misbehaved);
        }
    }

    /// Carries out a message that was deferred. Who executes it need not be who received it.
    pub(crate) fn carry_out_late(&self, slot: Slot, message: Deferred) {
        let Deferred { origin, ty, body } = message;
        let origin = route::Origin { caller: Self::caller(slot), ..origin };
        match Message::parse(ty, &body) {
            Ok(message) => self.carry_out((slot, slot), origin, message, self.now()),
            Err(error) => {
                self.end_for_violation(origin.from.node, &format!("sent a message that makes no sense: {error}"));
            }
        }
    }

    fn count(&self, slot: Slot, message: &Message<'_>) {
        if let Message::Invalidate { .. } = message {
            self.counters(slot).invalidations.add(1);
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ended.get().is_some()
    }

    /// `node` has sent what no correct node sends, and what it was about has not happened: from here on memory may be
    /// wrong, and others wait in vain. A job to which that has happened does not succeed.
    pub(crate) fn end_for_violation(&self, node: NodeId, what: &dyn std::fmt::Display) {
        self.end_for_harm(&format!("{} {what}", self.name_of(node)));
    }

    /// The same, where it is not known who has sent it.
    pub(crate) fn end_for_harm(&self, what: &str) {
        self.end_with(&Self::harm(what.to_string()));
    }

    /// The error with which a thread ends its node to which `node` has sent such a thing.
    pub(crate) fn violation(&self, node: NodeId, what: &str) -> Error {
        Self::harm(format!("{} {what}", self.name_of(node)))
    }

    fn harm(what: String) -> Error {
        let advice = std::io::Error::other("shared memory may be wrong, so this node ends; please report this");
        Error::System { what, source: advice }
    }

    /// An outbox for one step; to be given back.
    fn take_outbox() -> Outbox {
        with_own(&OUTBOX, std::mem::take)
    }

    fn return_outbox(out: Outbox) {
        with_own(&OUTBOX, |kept| *kept = out);
    }
}

/// Why a datagram was refused.
pub(crate) type BoxedError = Box<dyn std::error::Error>;
