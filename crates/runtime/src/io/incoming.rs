//! What enters a node: datagrams are received, checked, and taken to the machines that they are for.

use super::receive_in_place::{InPlace, LONG_BYTES, POLLS_FOR_FRAGMENT};
use super::{BoxedError, INCOMING, OUTBOX, caller, with_own};
use crate::error::Error;
use crate::node::{LocalNode, Node};
use crate::watch::is_of_watch;
use comem_net::{Received, Wait, datagrams};
use comem_protocol::auth::Receiver;
use comem_protocol::ids::{Channel, NodeId, Seq, Slot};
use comem_protocol::link::{AckRepr, Arrival, Class, Repeat, Reply, ResendRepr, acked};
use comem_protocol::lock_schedule::Deferred;
use comem_protocol::node::route::{self, dispatch};
use comem_protocol::node::startup::DISCOVERY_PROG;
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Time;
use comem_protocol::wire::header::{MsgType, Packet};
use comem_protocol::wire::message::{Message, Ticket, types};
use std::net::SocketAddr;
use std::time::Duration;

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
                    let is_worth_it = (start - before).0 < self.config.spin().0;
                    self.slots[at].spins.account(&self.config, is_worth_it);
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
        self.sending(as_slot, |from| self.wire.send_owed(from, &drained.owed));
        if drained.kicks > 0 && at != as_slot {
            // It was for a thread that may sleep there still.
            self.wire.kick(at);
            drained.datagrams = drained.datagrams.saturating_sub(drained.kicks);
        }
        drained.datagrams
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
        if let Some(selective) = self.wire.selective()
            && Packet::plain_type_of(datagram) == Some(MsgType::SETS)
        {
            return self.on_set_datagram(selective, slot, (datagram, from), drained.at);
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
        if let Err(why) = self.wire.is_of_job(&packet, from) {
            return self.reject(slot, from, &why);
        }
        self.watch.heard_from(packet.channel.node, drained.at);
        if is_of_watch(packet.header.ty) {
            return self.on_watch_datagram(slot, from, &packet);
        }
        let result = if packet.header.flags.ack && packet.header.ty == MsgType::ACK {
            self.on_ack(&packet)
        } else if packet.header.flags.ack {
            self.on_reply(slot, &packet, drained.at)
        } else if packet.header.ty == MsgType::RESEND {
            ResendRepr::parse(packet.payload)
                .and_then(|resend| Ok((resend.channel()?, resend)))
                .map(|(channel, resend)| self.repeat_reply(slot, channel, &resend))
                .map_err(BoxedError::from)
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
        let slot = self.wire.own_slot(ack.channel())?;
        let now = self.now();
        self.wire.sender(slot).lock().on_ack(now, packet.channel.node, &ack);
        self.transmit(slot);
        self.advance_send_queue(slot);
        Ok(())
    }

    fn on_reply(&self, slot: Slot, packet: &Packet<'_>, now: Time) -> std::result::Result<(), BoxedError> {
        let (channel, _) = acked(packet)?;
        let asker = self.wire.own_slot(channel)?;
        let reply = self.wire.sender(asker).lock().on_reply(now, packet.channel.node, packet)?;
        self.on_answer((slot, asker), packet.channel, reply, now)
    }

    pub(super) fn on_answer(
        &self,
        (slot, asker): (Slot, Slot),
        from: Channel,
        reply: Reply<'_>,
        now: Time,
    ) -> std::result::Result<(), BoxedError> {
        match reply {
            Reply::Complete { ty, body, nack: false, .. } => {
                self.counters(slot).messages_received.add(1);
                let origin = route::Origin { from, ticket: None, caller: caller(slot) };
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
            if !self.inboxes.has_room_for(part) {
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
                let origin = route::Origin { from: channel, ticket, caller: caller(slot) };
                if ty == types::FETCH_BASE {
                    // What writers have told the manager would be lacking in what it answers, and asked of them.
                    self.look_at_told(slot);
                }
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

    /// A request has come once more.
    fn on_repeat(&self, slot: Slot, channel: Channel, seq: Seq, repeat: Repeat) {
        self.counters(slot).duplicates.add(1);
        match repeat {
            Repeat::Reply => self.repeat_reply(slot, channel, &ResendRepr::whole(seq)),
            Repeat::Forwarded(node) => self.sending(slot, |from| self.wire.ask_again(from, node, seq)),
            _ => {}
        }
    }

    fn repeat_reply(&self, slot: Slot, channel: Channel, resend: &ResendRepr) {
        if self.sending(slot, |from| self.wire.repeat_reply(from, channel, resend)) {
            self.watch.note_repeated(self.now(), channel.node, resend.seq);
        }
    }

    /// Takes a message to its room and does what follows from it.
    pub(super) fn act(
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
        if let Message::Invalidate { .. } = message {
            self.counters(slot).invalidations.add(1);
        }
        let mut out = take_outbox();
        let mut local_node = LocalNode { node: self, answers: asker, roused: None, user: None };
        let result = dispatch(&mut local_node, now, origin, message, &mut out);
        let LocalNode { roused, user, .. } = local_node;
        if let Some((from, thread, bytes)) = user {
            self.inboxes.deliver(from, thread, &bytes, &mut out);
        }
        self.flush(slot, &mut out);
        return_outbox(out);
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
        let origin = route::Origin { caller: caller(slot), ..origin };
        match Message::parse(ty, &body) {
            Ok(message) => self.carry_out((slot, slot), origin, message, self.now()),
            Err(error) => {
                self.end_for_violation(origin.from.node, &format!("sent a message that makes no sense: {error}"));
            }
        }
    }

    /// `node` has sent what no correct node sends, and what it was about has not happened: from here on memory may be
    /// wrong, and others wait in vain. A job to which that has happened does not succeed.
    pub(crate) fn end_for_violation(&self, node: NodeId, what: &dyn std::fmt::Display) {
        self.end_with(&Error::harm(format!("{} {what}", self.name_of(node))));
    }
}

/// An outbox for one step; to be given back.
fn take_outbox() -> Outbox {
    with_own(&OUTBOX, std::mem::take)
}

fn return_outbox(out: Outbox) {
    with_own(&OUTBOX, |kept| *kept = out);
}
