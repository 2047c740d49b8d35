//! Messages to sets of nodes (`comem_net::selective`). What a node is asked comes to its service socket and is done
//! there, as any request is. What it is told lies where it wakes nobody, until a thread that waits looks there, or one
//! that has passed a barrier.

use super::{SCRATCH, SET_MESSAGE, caller, with_own};
use crate::error::Error;
use crate::node::Node;
use comem_net::Selective;
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::node::route;
use comem_protocol::selective::{Message, Refused};
use comem_protocol::time::Time;
use comem_protocol::wire::header::MsgType;
use std::net::SocketAddr;

/// The message's type stands in front of its body.
const TYPE_BYTES: usize = 2;

impl Node {
    /// Sends a message that nobody acknowledges to two sets of nodes: those that are asked act on it at once, those that
    /// are told when they look. Where the job has no such way, each gets a free message.
    pub(super) fn send_to_sets(&self, from: Slot, asked: &NodeSet, told: &NodeSet, ty: MsgType, body: &[u8]) {
        let Some(selective) = self.wire.selective() else {
            for node in asked.iter().filter(|node| *node != self.me()) {
                self.send_free(from, node, Slot::SERVICE, ty, body);
            }
            for node in told.iter().filter(|node| *node != self.me() && !asked.contains(*node)) {
                self.send_free(from, node, Slot::thread(0), ty, body);
            }
            return;
        };
        let sent = with_own(&SET_MESSAGE, |message| {
            message.clear();
            message.extend_from_slice(&ty.0.to_be_bytes());
            message.extend_from_slice(body);
            let through = self.wire.endpoint(from);
            let mut failed = |to, error| self.on_send_error(to, &error);
            with_own(&SCRATCH, |buffer| selective.send(through, buffer, (asked, told), message, &mut failed))
        });
        match sent {
            Ok(sent) => {
                let counters = self.counters(from);
                counters.multicasts.add(1);
                counters.bytes_sent.add(sent.bytes as u64);
            }
            Err(too_long) => self.end_with(&Error::TooLarge(too_long.to_string())),
        }
    }

    /// Takes in a datagram to sets of nodes that has come to one of this node's sockets.
    pub(super) fn on_set_datagram(
        &self,
        selective: &Selective,
        slot: Slot,
        (datagram, from): (&[u8], SocketAddr),
        now: Time,
    ) {
        let mut deliver = |message: Message<'_>| self.on_set_message(slot, message.from, &message.payload, now);
        if let Err(why) = selective.on_datagram(datagram, from, &mut deliver) {
            self.on_refused_set(slot, from, why);
        }
    }

    /// Looks at what this node was told meanwhile. Gives how many messages there were.
    pub(crate) fn look_at_told(&self, slot: Slot) -> usize {
        let Some(selective) = self.wire.selective() else { return 0 };
        let now = self.now();
        selective.drain_told(&mut |from, payload| self.on_set_message(slot, from, payload, now), &mut |from, why| {
            self.on_refused_set(slot, from, why);
        })
    }

    fn on_set_message(&self, slot: Slot, from: NodeId, payload: &[u8], now: Time) {
        self.watch.heard_from(from, now);
        let counters = self.counters(slot);
        counters.messages_received.add(1);
        counters.bytes_received.add(payload.len() as u64);
        let Some((ty, body)) = payload.split_first_chunk::<TYPE_BYTES>() else {
            return self.end_for_violation(from, &"sent a message to sets of nodes that has no type");
        };
        let origin = route::Origin { from: Channel::service(from), ticket: None, caller: caller(slot) };
        if let Err(error) = self.act((slot, slot), origin, MsgType(u16::from_be_bytes(*ty)), body, now) {
            self.end_for_violation(from, &format!("sent a packet that cannot be: {error}"));
        }
    }

    fn on_refused_set(&self, slot: Slot, from: SocketAddr, why: Refused) {
        self.reject(slot, from, &why);
        // The tag was right: a node of this job has made it.
        if why.is_violation() && self.wire.authenticated() {
            self.end_with(&Error::harm(format!("a datagram from {from} cannot be: {why}")));
        }
    }
}
