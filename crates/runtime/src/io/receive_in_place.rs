//! Fragments of long replies that are received where they belong.
//!
//! The sender that waits for a reply lends the place of its next fragment for the receive call. What comes instead of
//! that fragment goes on in the buffer, and is taken in as ever.

use super::{BoxedError, Node, Wire};
use comem_net::Received;
use comem_protocol::auth::Receiver;
use comem_protocol::ids::{Channel, Slot};
use comem_protocol::link::{Lent, Reply};
use comem_protocol::wire::header::{HeaderRepr, Packet};
use std::net::SocketAddr;

/// How often a thread that spins looks for the next fragment of a long reply before it waits for anything.
pub(super) const POLLS_FOR_FRAGMENT: usize = 32;

/// Shorter datagrams are no parts of replies whose rest is received in place.
pub(super) const LONG_BYTES: usize = 16 << 10;

/// What came of a look for the fragment that is expected next.
pub(super) enum InPlace {
    /// It was there, and is taken in.
    Taken {
        /// Whether another fragment of the same reply is still to come.
        more: bool,
    },
    /// Something else was there, and lies in the buffer.
    Other(Received),
    /// Nothing was there.
    Nothing,
    /// None is expected, or the socket must be asked in the usual way.
    Unknown,
}

impl Node {
    /// Receives the next fragment of a long reply where it belongs, if a thread expects one in its own socket. What
    /// else comes then lies in the buffer.
    pub(super) fn receive_in_place(&self, at: Slot, as_slot: Slot, buffer: &mut [u8], looks: usize) -> InPlace {
        let endpoint = self.wire.endpoint(at);
        if at != as_slot || !endpoint.receives_in_two() {
            return InPlace::Unknown;
        }
        let sender = self.wire.sender(at);
        let Some(mut lent) = sender.lock().lend() else { return InPlace::Unknown };
        let room = lent.room().len();
        let mut received = Ok(None);
        for _ in 0..looks {
            received = endpoint.try_recv_in_two(lent.room(), &mut buffer[room..]);
            if !matches!(received, Ok(None)) {
                break;
            }
        }
        let Ok(Some(Received::Datagrams { from, len, segment })) = received else {
            sender.lock().take_back(lent);
            return if matches!(received, Ok(None)) { InPlace::Nothing } else { InPlace::Unknown };
        };
        let whole = room + self.wire.sealer.tag_len();
        if (len, segment) == (whole, whole)
            && let Some((node, header)) = self.wire.is_expected(&lent, &buffer[room..whole], from)
        {
            self.counters(as_slot).bytes_received.add(len as u64);
            let now = self.now();
            self.watch.heard_from(node.node, now);
            let reply = sender.lock().on_lent(now, node.node, lent, &header);
            let more = matches!(reply, Ok(Reply::Partial));
            let result =
                reply.map_err(BoxedError::from).and_then(|reply| self.on_answer((as_slot, at), node, reply, now));
            if let Err(error) = result {
                self.on_bad_packet(as_slot, node.node, from, &error);
            }
            return InPlace::Taken { more };
        }
        let first = room.min(len);
        buffer[..first].copy_from_slice(&lent.received()[..first]);
        sender.lock().take_back(lent);
        InPlace::Other(Received::Datagrams { from, len, segment })
    }
}

impl Wire {
    /// The sender of the fragment in its place, and its header, if it is the one that was expected there.
    fn is_expected(&self, lent: &Lent, tag: &[u8], from: SocketAddr) -> Option<(Channel, HeaderRepr)> {
        if !self.sealer.accepts(lent.received(), tag, Receiver::Node(self.me)) {
            return None;
        }
        let packet = Packet::new_checked(lent.received()).ok()?;
        let is_it = self.is_of_job(&packet, from).is_ok() && lent.is_expected(&packet);
        is_it.then_some((packet.channel, packet.header))
    }
}
