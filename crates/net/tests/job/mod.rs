//! The nodes of a job that send to sets of nodes, all in this process.

use comem_net::selective::{Parts, Selective};
use comem_net::{Datagrams, Group, Network, RECEIVE_BUFFER_BYTES, Received, Wait, datagrams};
use comem_protocol::auth::{JobKey, Sealer};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use comem_protocol::selective::{Message, Refused, Role};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const PROG: u16 = 77;

/// A job's number that no other test run on this host has.
pub fn own_job(salt: u64) -> u64 {
    u64::from(std::process::id()) << 16 | salt
}

pub fn sealer(job: u64) -> Sealer {
    Sealer::new(Some(JobKey::new([7; 32]))).of_job(job)
}

pub fn set(nodes: &[u16]) -> NodeSet {
    nodes.iter().copied().map(NodeId).collect()
}

/// A message that came: who sent it, what its receiver was to it, what it said.
pub type Came = (NodeId, Role, Vec<u8>);

/// What a job is like.
#[allow(dead_code, reason = "not every test injects faults")]
#[derive(Clone, Copy)]
pub struct Plan {
    pub nodes: usize,
    /// Their numbers, where they are not the first ones.
    pub numbers: Option<[u16; 4]>,
    pub group: bool,
    pub datagram_bytes: usize,
    pub faults: Option<&'static str>,
    pub salt: u64,
}

impl Plan {
    pub fn new(salt: u64) -> Plan {
        Plan { nodes: 4, numbers: None, group: true, datagram_bytes: 65_507, faults: None, salt }
    }

    pub fn number(&self, index: usize) -> NodeId {
        NodeId(self.numbers.map_or(index as u16, |numbers| numbers[index]))
    }
}

#[allow(dead_code, reason = "each test takes what it needs")]
pub struct JobNode {
    pub network: Network,
    pub service: Arc<dyn Datagrams>,
    pub thread: Arc<dyn Datagrams>,
    pub selective: Selective,
    pub group: Option<Group>,
}

/// A node's sockets, before the others know them.
pub struct Sockets {
    pub network: Network,
    service: Arc<dyn Datagrams>,
    thread: Arc<dyn Datagrams>,
    told: Arc<dyn Datagrams>,
}

impl Sockets {
    pub fn bind(network: Network) -> Sockets {
        let bind = || network.bind().unwrap();
        Sockets { service: bind(), thread: bind(), told: bind(), network }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        [&self.service, &self.thread, &self.told].iter().map(|endpoint| endpoint.local_addr()).collect()
    }

    /// The node with this number among those with these addresses.
    pub fn open(self, plan: &Plan, me: NodeId, addresses: Vec<Vec<SocketAddr>>) -> JobNode {
        let job = own_job(plan.salt);
        let group = plan.group.then(|| self.network.group_of_job(job));
        let parts = Parts {
            me,
            prog: PROG,
            job,
            sealer: sealer(job),
            datagram_bytes: plan.datagram_bytes,
            addresses,
            told: self.told,
            group,
            asks: None,
        };
        let selective = Selective::open(&self.network, &*self.service, parts).unwrap();
        JobNode { network: self.network, service: self.service, thread: self.thread, selective, group }
    }
}

/// Opens all nodes of a job. Numbers between theirs are of nodes that are nowhere.
#[allow(dead_code, reason = "not every test has all nodes in one network")]
pub fn open(plan: &Plan, networks: Vec<Network>) -> Vec<JobNode> {
    let sockets: Vec<Sockets> = networks.into_iter().map(Sockets::bind).collect();
    let mut addresses = vec![Vec::new(); plan.number(plan.nodes - 1).index() + 1];
    for (index, sockets) in sockets.iter().enumerate() {
        addresses[plan.number(index).index()] = sockets.addresses();
    }
    let nodes = sockets.into_iter().enumerate();
    nodes.map(|(index, sockets)| sockets.open(plan, plan.number(index), addresses.clone())).collect()
}

#[allow(dead_code, reason = "each test takes what it needs")]
impl JobNode {
    pub fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.service.local_addr(), self.thread.local_addr(), self.selective.told_address()]
    }

    /// Sends a message, and gives how many datagrams have left.
    pub fn send(&self, asked: &[u16], told: &[u16], payload: &[u8]) -> usize {
        let (mut buffer, to) = (Vec::new(), (&set(asked), &set(told)));
        let mut failed = |to, error| panic!("cannot send to {to}: {error}");
        self.selective.send(&*self.service, &mut buffer, to, payload, &mut failed).unwrap().datagrams
    }

    /// Waits in the service socket until so many messages have come.
    pub fn asked(&self, count: usize) -> Vec<Came> {
        let (messages, refused) = self.receive(count);
        assert!(refused.is_empty(), "{refused:?}");
        messages
    }

    /// How many messages came there, and what was refused until the last did.
    pub fn asked_and_refused(&self, count: usize) -> (usize, Vec<Refused>) {
        let (messages, refused) = self.receive(count);
        (messages.len(), refused)
    }

    fn receive(&self, count: usize) -> (Vec<Came>, Vec<Refused>) {
        let (mut messages, mut refused) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        while messages.len() < count {
            match self.service.recv(&mut buffer, Some(PATIENCE), Wait::Block).unwrap() {
                Received::Datagrams { from, len, segment } => {
                    for datagram in datagrams(&buffer[..len], segment) {
                        let mut take = |m: Message<'_>| messages.push((m.from, m.role, m.payload.into_owned()));
                        refused.extend(self.selective.on_datagram(datagram, from, &mut take).err());
                    }
                }
                other => panic!("{other:?} after {} of {count} messages", messages.len()),
            }
        }
        (messages, refused)
    }

    /// The same of what this node is told.
    pub fn told_and_refused(&self, count: usize) -> (usize, Vec<Refused>) {
        let (mut messages, mut refused, start) = (0, Vec::new(), std::time::Instant::now());
        while messages < count && start.elapsed() < PATIENCE {
            messages += self.selective.drain_told(&mut |_, _| (), &mut |_, why| refused.push(why));
        }
        (messages, refused)
    }

    /// Whether nothing lies in the service socket.
    pub fn is_silent(&self) -> bool {
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        let look = |wait| self.service.recv(&mut buffer, Some(Duration::from_micros(10)), wait).unwrap();
        [Wait::Block].map(look) == [Received::Timeout]
    }
}
