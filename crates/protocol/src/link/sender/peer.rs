//! What a sender knows of one node: round trip, window, and what is queued for it.

use super::super::{Congestion, Rtt};
use crate::ids::NodeId;
use crate::time::Time;
use std::collections::VecDeque;

/// So many packets sent later must have arrived before one counts as lost (RFC 9002's packet threshold).
pub(super) const LATER_ARRIVALS: u64 = 3;

/// Something to transmit once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repeat {
    /// A lost packet.
    Packet(u64),
    /// A multicast packet, to this node alone.
    Copy(u64),
    /// The last packet of the request with this first counter, to ask for its reply.
    Probe(u64),
    /// "Send the rest of your reply" to the request with this first counter.
    Resend(u64),
}

/// What waits to be transmitted.
#[derive(Default, Debug)]
pub(super) struct Lane {
    /// Counters of packets never transmitted.
    pub fresh: VecDeque<u64>,
    pub repeat: VecDeque<Repeat>,
}

#[derive(Default, Debug)]
pub(super) struct Peer {
    pub rtt: Rtt,
    pub congestion: Congestion,
    /// The second is served when nothing is left in the first.
    pub lanes: [Lane; 2],
    /// Transmissions that will be acknowledged one by one, in order; also some that are over.
    pub flight: VecDeque<(u64, u64)>,
    /// The place of the last transmission in order.
    pub order: u64,
    /// The newest transmission known to have arrived.
    pub newest_arrived: u64,
    pub in_flight: u32,
    pub last_heard: Time,
    /// Acknowledgements that said nothing new, since something was answered that was sent once.
    pub vain_acks: u8,
    /// Whether it stands in the sender's list of nodes to serve.
    pub ready: bool,
}

impl Peer {
    pub fn has_queued(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.fresh.is_empty() || !lane.repeat.is_empty())
    }

    /// All nodes of a group have a packet that was multicast at `sent`.
    pub fn on_group_arrived(&mut self, now: Time, sent: Time) {
        self.rtt.sample(now, now - sent);
        self.congestion.on_arrived(1, self.in_flight);
        self.in_flight -= 1;
        self.last_heard = now;
    }
}

/// The entry of `node`, made when there is none.
pub(super) fn of(peers: &mut Vec<Option<Box<Peer>>>, node: NodeId) -> &mut Peer {
    if peers.len() <= node.index() {
        peers.resize_with(node.index() + 1, || None);
    }
    peers[node.index()].get_or_insert_with(Box::default)
}
