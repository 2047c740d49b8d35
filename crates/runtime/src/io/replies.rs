//! Replies, sent once and kept in case they get lost, and acknowledgements.

use super::receive_in_place::LONG_BYTES;
use super::{SCRATCH, Wire, with_own};
use crate::node::ThreadSlot;
use comem_protocol::ids::{Channel, NodeId, Seq, Slot};
use comem_protocol::link::{ResendRepr, SendError};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::Ticket;
use std::io;
use std::net::SocketAddr;

/// A thread that sends from its slot.
pub(super) struct FromSlot<'a> {
    pub(super) slot: Slot,
    pub(super) mine: &'a ThreadSlot,
    /// Is told what the system does not take.
    pub(super) refused: &'a dyn Fn(SocketAddr, io::Error),
}

impl FromSlot<'_> {
    fn put(&self, wire: &Wire, bytes: &[u8], segment: usize, to: SocketAddr) {
        let put = wire.put(self.slot, self.mine, (bytes, segment), to, false);
        put.unwrap_or_else(|error| (self.refused)(to, error));
    }
}

impl Wire {
    /// Answers a request, and keeps the answer in case it gets lost.
    ///
    /// # Errors
    /// When no answer of that kind can be sent.
    pub(super) fn reply(&self, from: &FromSlot<'_>, ticket: Ticket, ty: MsgType, body: &[u8]) -> Result<(), SendError> {
        let (Some(peer), Some(address)) = (self.peer(ticket.channel), self.address(ticket.channel)) else {
            return Ok(());
        };
        let mut datagrams = peer.lock().spare(body.len() + body.len() / 32 + 128);
        let segment = self.encoder(from.slot).lock().reply(ticket.seq, ty, false, body, &mut datagrams)?;
        // Sent first: what is repeated before it is stored finds the request pending, and comes again.
        from.put(self, &datagrams, segment, address);
        peer.lock().store_reply(ticket.seq, datagrams, segment);
        Ok(())
    }

    /// As [`Wire::reply`], for a reply in long fragments: it is sent from where it was made, and kept as it is.
    pub(super) fn reply_at_length(&self, from: &FromSlot<'_>, out: &mut Outbox) {
        let Some((ticket, ty, bytes)) = out.only_reply().filter(|(_, _, bytes)| bytes.len() >= LONG_BYTES) else {
            return;
        };
        let (Some(peer), Some(address)) = (self.peer(ticket.channel), self.address(ticket.channel)) else {
            return;
        };
        let len = bytes.len();
        let Some(mut reply) = self.encoder(from.slot).lock().long_reply(ticket.seq, ty, bytes) else { return };
        *bytes = peer.lock().spare(len);
        out.is_sent();
        from.mine.counters.messages_sent.add(1);
        reply.each_datagram(|datagram| from.put(self, datagram, datagram.len(), address));
        peer.lock().store_long_reply(ticket.seq, reply);
    }

    /// Sends an answer again that is kept; whether it is.
    pub(super) fn repeat_reply(&self, from: &FromSlot<'_>, channel: Channel, resend: &ResendRepr) -> bool {
        let (Some(peer), Some(address)) = (self.peer(channel), self.address(channel)) else { return false };
        with_own(&SCRATCH, |buffer| {
            buffer.clear();
            let segment = peer.lock().stored_reply(resend, buffer);
            let Some(segment) = segment.filter(|_| !buffer.is_empty()) else { return false };
            from.mine.counters.retransmissions.add(1);
            from.put(self, buffer, segment, address);
            true
        })
    }

    /// Asks the node to which a request was forwarded to send its answer again.
    pub(super) fn ask_again(&self, from: &FromSlot<'_>, node: NodeId, seq: Seq) {
        let Some(address) = self.address(Channel::service(node)) else { return };
        with_own(&SCRATCH, |buffer| {
            buffer.clear();
            self.encoder(from.slot).lock().resend(node, &ResendRepr::whole(seq), buffer);
            from.put(self, buffer, buffer.len(), address);
        });
    }

    /// Sends the acknowledgements that are owed to these channels.
    pub(super) fn send_owed(&self, from: &FromSlot<'_>, owed: &[Channel]) {
        for channel in owed {
            let (Some(peer), Some(address)) = (self.peer(*channel), self.address(*channel)) else { continue };
            loop {
                // One lock at a time: replies take the encoder's first.
                let (presses, owed) = {
                    let mut peer = peer.lock();
                    (peer.ack_presses(), peer.owed_ack())
                };
                let Some(ack) = owed else { break };
                let counters = &from.mine.counters;
                counters.acks_sent.add(1);
                with_own(&SCRATCH, |buffer| {
                    buffer.clear();
                    self.encoder(from.slot).lock().ack(&ack, buffer);
                    // A thread may wait until what it has sent has come; a service thread goes on to do other things.
                    if presses || channel.slot != Slot::SERVICE {
                        return from.put(self, buffer, buffer.len(), address);
                    }
                    counters.bytes_sent.add(buffer.len() as u64);
                    let sent = self.endpoint(from.slot).send_quietly(buffer, buffer.len(), address);
                    sent.unwrap_or_else(|error| (from.refused)(address, error));
                });
            }
        }
    }
}
