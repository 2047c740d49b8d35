//! Messages to sets of nodes (`comem_net::selective`). What a node is asked comes to its service socket and is done
//! there, as any request is. What it is told lies where it wakes nobody, until a thread that waits looks there, or one
//! that has passed a barrier.

use super::{SCRATCH, SET_MESSAGE, caller, with_own};
use crate::error::Error;
use crate::node::Node;
use comem_net::{Selective, Wait};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::node::route;
use comem_protocol::selective::{Message, Refused, Way};
use comem_protocol::time::Time;
use comem_protocol::wire::header::MsgType;
use std::net::SocketAddr;
use std::time::Duration;

/// The message's type stands in front of its body.
const TYPE_BYTES: usize = 2;

impl Node {
    /// Sends a message that nobody acknowledges to two sets of nodes: those that are asked act on it at once, those
    /// that are told when they look. Where the job has no such way, each gets a free message, and acts on it at once:
    /// no thread would know where to look. Gives how many messages that is.
    pub(super) fn send_to_sets(&self, from: Slot, asked: &NodeSet, told: &NodeSet, ty: MsgType, body: &[u8]) -> usize {
        let others = || told.iter().filter(|node| !asked.contains(*node)).chain(asked.iter());
        let members = || others().filter(|node| *node != self.me());
        let Some(selective) = self.wire.selective() else {
            members().for_each(|node| self.send_free(from, node, Slot::SERVICE, ty, body));
            return members().count();
        };
        let messages = if selective.way() == Way::Ip { 1 } else { members().count() };
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
        messages
    }

    /// Receives at a thread's socket, and takes in what this node is told, waiting for either as long as `timeout`
    /// says. Gives how much came.
    pub(crate) fn receive_or_hear(&self, selective: &Selective, slot: Slot, timeout: Duration) -> usize {
        if let Err(error) = selective.wait_beside(self.wire.endpoint(slot), timeout) {
            self.on_socket_error("cannot wait for messages to sets of nodes", &error);
        }
        let came = self.receive(slot, slot, Some(Duration::ZERO), Wait::Block) + self.look_at_told(slot);
        if came == 0 {
            // Another thread may be taking out what lies there: it needs a core.
            std::thread::yield_now();
        }
        came
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::io::{Parts, Wire};
    use comem_net::network::NetworkOptions;
    use comem_net::{Clock, Datagrams, Network, selective};
    use comem_protocol::auth::{JobKey, Sealer};
    use comem_protocol::link::LinkConfig;
    use comem_protocol::wire::message::{Message, types};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Three nodes of one thread on the loopback.
    fn nodes(with_group: bool) -> Vec<Node> {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        let job = u64::from(std::process::id()) << 8 | JOBS.fetch_add(1, Relaxed);
        let key = Sealer::new(Some(JobKey::new([5; 32])));
        let networks: Vec<Network> =
            (0..3).map(|_| Network::open(&NetworkOptions::default(), Clock::system()).expect("the loopback")).collect();
        let sockets: Vec<Vec<Arc<dyn Datagrams>>> =
            networks.iter().map(|network| (0..3).map(|_| network.bind().expect("a socket")).collect()).collect();
        let addresses: Vec<Vec<SocketAddr>> =
            sockets.iter().map(|own| own.iter().map(|socket| socket.local_addr()).collect()).collect();
        let open = |((me, network), mut own): ((NodeId, &Network), Vec<Arc<dyn Datagrams>>)| {
            let told = own.pop().expect("three sockets");
            let group = with_group.then(|| network.group_of_job(job));
            let parts = selective::Parts {
                me,
                prog: 9,
                job,
                sealer: key.of_job(job),
                datagram_bytes: 1472,
                addresses: addresses.clone(),
                told,
                group,
                asks: None,
            };
            let parts = Parts {
                me,
                prog: 9,
                job,
                sealer: key.clone(),
                guarded: false,
                link: LinkConfig::default(),
                started: Time(0),
                selective: Some(Selective::open(network, &*own[0], parts).expect("sockets and filters")),
                endpoints: own,
                addresses: addresses.clone(),
                members: vec![("here".to_string(), 1); 3],
                group: None,
                way: if with_group { Way::Ip } else { Way::FanOut },
            };
            let mut config = Config::from_env().expect("no settings");
            config.nodes = 3;
            Node::new(config, Arc::new(Clock::new()), Wire::new(parts, 1), None, None)
        };
        NodeId::all(3).zip(&networks).zip(sockets).map(open).collect()
    }

    fn body(bytes: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        Message::User { thread: 0, bytes }.emit(&mut body);
        body
    }

    fn serve(node: &Node, timeout: Duration) -> usize {
        node.receive(Slot::SERVICE, Slot::SERVICE, Some(timeout), Wait::Block)
    }

    fn delivered(node: &Node) -> Option<(NodeId, Vec<u8>)> {
        node.inboxes.take(Slot::thread(0)).map(|(message, _)| message)
    }

    #[test]
    fn the_asked_act_when_it_comes_and_the_told_when_they_look() {
        for (with_group, way) in [(true, "ip"), (false, "fanout")] {
            let nodes = nodes(with_group);
            let one = |node: u16| -> NodeSet { [NodeId(node)].into_iter().collect() };
            nodes[0].send_to_sets(Slot::thread(0), &one(1), &one(2), types::USER, &body(b"hello"));
            assert!(serve(&nodes[1], PATIENCE) > 0);
            let hello = Some((NodeId(0), b"hello".to_vec()));
            assert_eq!(delivered(&nodes[1]), hello);
            assert_eq!(serve(&nodes[2], Duration::ZERO), 0, "its service socket has nothing");
            let start = Instant::now();
            while nodes[2].look_at_told(Slot::thread(0)) == 0 {
                assert!(start.elapsed() < PATIENCE);
            }
            assert_eq!((delivered(&nodes[2]), nodes[2].look_at_told(Slot::thread(0))), (hello, 0));
            assert_eq!(nodes[0].counters(Slot::thread(0)).multicasts.get(), 1);
            assert_eq!((nodes[0].wire.way().name(), nodes[1].look_at_told(Slot::thread(0))), (way, 0));
            let stats = crate::report::stats(&nodes[0], None);
            assert_eq!((&stats["multicast"], &stats["sets"]["copies_addressed"]), (&way.into(), &2.into()));
        }
    }

    #[test]
    fn who_waits_hears_what_it_is_told_and_what_comes_to_its_own_socket() {
        for (with_group, messages) in [(true, 1), (false, 2)] {
            let nodes = nodes(with_group);
            let (first, hears) = (Slot::thread(0), |node: &Node| {
                let selective = node.wire.selective().expect("there is a way to sets");
                let start = Instant::now();
                while node.receive_or_hear(selective, Slot::thread(0), PATIENCE) == 0 {
                    assert!(start.elapsed() < PATIENCE);
                }
            });
            let told: NodeSet = [NodeId(1), NodeId(2)].into_iter().collect();
            let sent = nodes[0].send_to_sets(first, &NodeSet::new(), &told, types::USER, &body(b"told"));
            assert_eq!(sent, messages);
            for node in &nodes[1..] {
                hears(node);
                assert_eq!(delivered(node), Some((NodeId(0), b"told".to_vec())));
                node.wire.kick(first);
                hears(node);
            }
        }
    }

    #[test]
    fn what_goes_to_all_asks_all_and_what_is_forged_is_counted() {
        let nodes = nodes(true);
        nodes[0].send_to_all(Slot::SERVICE, types::USER, &body(b"all"));
        for node in &nodes[1..] {
            assert!(serve(node, PATIENCE) > 0);
            assert_eq!(delivered(node), Some((NodeId(0), b"all".to_vec())));
        }
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut forged = vec![0; 100];
        forged[3] = MsgType::SETS.0 as u8;
        let to = nodes[1].wire.endpoint(Slot::SERVICE).local_addr();
        stranger.send_to(&forged, to).expect("it can be sent");
        assert!(serve(&nodes[1], PATIENCE) > 0);
        assert_eq!(nodes[1].counters(Slot::SERVICE).rejected.get(), 1);
        assert_eq!(delivered(&nodes[1]), None);
    }
}
