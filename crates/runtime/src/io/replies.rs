//! Replies: sent once, and kept in case they get lost.

use super::receive_in_place::LONG_BYTES;
use super::{Node, SCRATCH, with_own};
use comem_protocol::ids::{Channel, Slot};
use comem_protocol::link::ResendRepr;
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::Ticket;

impl Node {
    /// Answers a request, and keeps the answer in case it gets lost.
    pub(super) fn reply(&self, slot: Slot, ticket: Ticket, ty: MsgType, body: &[u8]) {
        let (Some(peer), Some(address)) = (self.wire.peer(ticket.channel), self.wire.address(ticket.channel)) else {
            return;
        };
        let mut datagrams = peer.lock().spare(body.len() + body.len() / 32 + 128);
        match self.wire.encoder(slot).lock().reply(ticket.seq, ty, false, body, &mut datagrams) {
            Ok(segment) => {
                // Sent first: what is repeated before it is stored finds the request pending, and comes again.
                self.put_on_wire(slot, &datagrams, segment, address);
                peer.lock().store_reply(ticket.seq, datagrams, segment);
            }
            Err(error) => self.end_unsent((ty, error)),
        }
    }

    /// As [`Node::reply`], for a reply in long fragments: it is sent from where it was made, and kept as it is.
    pub(super) fn reply_at_length(&self, slot: Slot, out: &mut Outbox) {
        let Some((ticket, ty, bytes)) = out.only_reply().filter(|(_, _, bytes)| bytes.len() >= LONG_BYTES) else {
            return;
        };
        let (Some(peer), Some(address)) = (self.wire.peer(ticket.channel), self.wire.address(ticket.channel)) else {
            return;
        };
        let len = bytes.len();
        let Some(mut reply) = self.wire.encoder(slot).lock().long_reply(ticket.seq, ty, bytes) else { return };
        *bytes = peer.lock().spare(len);
        out.is_sent();
        self.counters(slot).messages_sent.add(1);
        reply.each_datagram(|datagram| self.put_on_wire(slot, datagram, datagram.len(), address));
        peer.lock().store_long_reply(ticket.seq, reply);
    }

    pub(super) fn repeat_reply(&self, slot: Slot, channel: Channel, resend: &ResendRepr) {
        let (Some(peer), Some(address)) = (self.wire.peer(channel), self.wire.address(channel)) else { return };
        with_own(&SCRATCH, |buffer| {
            buffer.clear();
            let segment = peer.lock().stored_reply(resend, buffer);
            if let Some(segment) = segment.filter(|_| !buffer.is_empty()) {
                self.counters(slot).retransmissions.add(1);
                self.watch.note_repeated(self.now(), channel.node, resend.seq);
                self.put_on_wire(slot, buffer, segment, address);
            }
        });
    }
}
