//! Where a node finds what may wait until it looks: pages that nobody asked for are of use behind a barrier, and not
//! before (decision 0046).
//!
//! Over networks nodes say at the start where they want that to go. Nobody sleeps in a socket of its own for it, so it
//! wakes nobody.

use super::Wire;
use comem_protocol::ids::Slot;
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::types;

impl Wire {
    /// Stands behind the slots of a node.
    fn deferred_socket(&self) -> Slot {
        Slot(self.senders.len() as u16)
    }

    /// This node's own socket for what may wait, if it has one; else that comes to its first thread's.
    pub(crate) fn own_deferred_socket(&self) -> Option<Slot> {
        (self.endpoints.len() > self.senders.len()).then(|| self.deferred_socket())
    }

    /// Where a free message for a slot goes.
    pub(super) fn free_slot(&self, ty: MsgType, to: Slot) -> Slot {
        if ty == types::PUSH { self.deferred_socket() } else { to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_net::{Datagrams, Endpoint, PortChoice};
    use comem_protocol::ids::{Channel, NodeId};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    /// The wire of a node of one thread with so many sockets, in a job of nodes with these ports.
    fn wire(sockets: usize, ports: &[&[u16]]) -> Wire {
        let localhost = Ipv4Addr::LOCALHOST.into();
        let endpoint =
            |_| Arc::new(Endpoint::bind(localhost, PortChoice::Any).expect("a socket")) as Arc<dyn Datagrams>;
        let addresses = |ports: &&[u16]| ports.iter().map(|port| SocketAddr::new(localhost, *port)).collect();
        Wire::bare((0..sockets).map(endpoint).collect(), ports.iter().map(addresses).collect())
    }

    #[test]
    fn what_may_wait_goes_where_its_receiver_wants_it_and_nothing_else_does() {
        // Node 0 sleeps when it waits, node 1 does not.
        let wire = wire(3, &[&[10, 11, 12], &[20, 21, 21]]);
        let first = Slot::thread(0);
        let port = |node: u16, ty| {
            let slot = wire.free_slot(ty, first);
            wire.address(Channel { node: NodeId(node), slot }).map(|address| address.port())
        };
        assert_eq!([port(0, types::PUSH), port(1, types::PUSH)], [Some(12), Some(21)]);
        assert_eq!([port(0, types::PUSH_UNUSED), port(1, types::ARRIVE)], [Some(11), Some(21)]);
    }

    #[test]
    fn a_node_without_a_socket_for_it_looks_into_its_first_threads() {
        assert_eq!(wire(3, &[]).own_deferred_socket(), Some(Slot(2)));
        assert_eq!(wire(2, &[]).own_deferred_socket(), None);
    }
}
