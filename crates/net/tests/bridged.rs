//! Datagrams to sets of nodes between four hosts at a switch, which forwards multicast or does not: see [`hosts`].

mod hosts;
mod job;

use comem_net::network::NetworkOptions;
use comem_net::select::Reach;
use comem_net::{Clock, Datagrams, Network, RECEIVE_BUFFER_BYTES, Received, Wait, counts_as_loss};
use comem_protocol::ids::NodeId;
use comem_protocol::selective::Role;
use hosts::{BridgedHosts, bridged_hosts};
use job::{JobNode, PATIENCE, Plan, Sockets};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const HOSTS: usize = 4;
const ROUNDS: usize = 25;

/// Moves this thread to a host.
fn enter(hosts: &BridgedHosts, host: usize) {
    let file = File::open(format!("/run/netns/{}", hosts.names[host])).unwrap();
    // SAFETY: the call changes only which network this thread's later sockets belong to.
    assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
}

/// What the hosts tell one another outside the network under test.
struct Line {
    addresses: Mutex<Vec<Vec<SocketAddr>>>,
    all: Barrier,
}

impl Line {
    fn new() -> Line {
        Line { addresses: Mutex::new(vec![Vec::new(); HOSTS]), all: Barrier::new(HOSTS) }
    }

    fn swap(&self, host: usize, own: Vec<SocketAddr>) -> Vec<Vec<SocketAddr>> {
        self.addresses.lock().unwrap()[host] = own;
        self.all.wait();
        let all = self.addresses.lock().unwrap().clone();
        self.all.wait();
        all
    }
}

/// Calls all others until each has been heard: the kernel takes its time to switch new cables on.
fn wait_for_cables(network: &Network, line: &Line, host: usize) {
    let endpoint = network.bind().unwrap();
    let others = line.swap(host, vec![endpoint.local_addr()]);
    let mut heard = vec![false; HOSTS];
    heard[host] = true;
    let (mut buffer, start) = (vec![0; RECEIVE_BUFFER_BYTES], Instant::now());
    // A little longer than until all are heard, since the others may not have heard this one.
    let mut calm = 0;
    while calm < 3 {
        assert!(start.elapsed() < PATIENCE, "a cable stays dead: {heard:?}");
        calm += usize::from(heard.iter().all(|one| *one));
        for other in others.iter().flatten().filter(|other| **other != endpoint.local_addr()) {
            let sent = endpoint.send_to(b"hello", 100, *other);
            assert!(sent.as_ref().err().is_none_or(counts_as_loss), "{sent:?}");
        }
        while let Received::Datagrams { from, .. } =
            endpoint.recv(&mut buffer, Some(Duration::from_millis(20)), Wait::Block).unwrap()
        {
            let host = others.iter().position(|addresses| addresses.contains(&from)).unwrap();
            heard[host] = true;
        }
    }
    line.all.wait();
}

/// Runs `work` as a node on each host.
fn on_all(hosts: &BridgedHosts, plan: &Plan, work: impl Fn(usize, &JobNode, &Line) + Sync) {
    let line = Line::new();
    std::thread::scope(|scope| {
        for host in 0..HOSTS {
            let (work, line) = (&work, &line);
            scope.spawn(move || {
                enter(hosts, host);
                let options = NetworkOptions { reach: Reach::Network, ..NetworkOptions::default() };
                let network = Network::open(&options, Clock::system()).unwrap();
                assert_eq!(network.interface().name, "cable");
                wait_for_cables(&network, line, host);
                let sockets = Sockets::bind(network);
                let addresses = line.swap(host, sockets.addresses());
                let node = sockets.open(plan, NodeId(host as u16), addresses);
                line.all.wait();
                work(host, &node, line);
                line.all.wait();
            });
        }
    });
}

/// Each asks the next node and tells the one after that; the last of the four gets nothing.
fn ask_and_tell(host: usize, node: &JobNode, datagrams: usize) {
    let at = |step: usize| ((host + step) % HOSTS) as u16;
    let payload = vec![host as u8; 3_000];
    for _ in 0..ROUNDS {
        assert_eq!(node.send(&[at(1)], &[at(2)], &payload), datagrams);
    }
    let came = node.asked(ROUNDS);
    assert!(came.iter().all(|(from, role, bytes)| from.0 == at(3) && *role == Role::Asked && bytes.len() == 3_000));
    let (told, refused) = node.told_and_refused(ROUNDS);
    assert_eq!((told, refused), (ROUNDS, vec![]));
    assert!(node.is_silent());
    let counts = node.selective.counts();
    // Three fragments for each of two receivers.
    assert_eq!((counts.copies_addressed, counts.copies_received), (6 * ROUNDS as u64, 6 * ROUNDS as u64));
    assert_eq!((counts.datagrams_sent, counts.told_dropped), ((datagrams * ROUNDS) as u64, 0));
}

#[test]
fn one_datagram_reaches_the_hosts_that_it_names_through_a_switch() {
    let Some(hosts) = bridged_hosts("one_datagram_reaches_the_hosts_that_it_names_through_a_switch", HOSTS, true)
    else {
        return;
    };
    let plan = Plan { datagram_bytes: 1_472, ..Plan::new(30) };
    on_all(&hosts, &plan, |host, node, _| ask_and_tell(host, node, 3));
}

#[test]
fn where_the_switch_forwards_no_multicast_the_fan_out_does() {
    let Some(hosts) = bridged_hosts("where_the_switch_forwards_no_multicast_the_fan_out_does", HOSTS, false) else {
        return;
    };
    let plan = Plan { datagram_bytes: 1_472, ..Plan::new(31) };
    on_all(&hosts, &plan, |host, node, line| {
        // Host 0 alone sends: a datagram to the group reaches nobody, and one to a host arrives behind it.
        if host == 0 {
            assert_eq!(node.send(&[1], &[2, 3], b"by multicast"), 1);
        }
        line.all.wait();
        // It gives multicast up, as a sender whose asks have to be repaired does, and is heard.
        if host == 0 {
            assert!((0..64).any(|_| node.selective.note_ask(true)));
            assert_eq!(node.send(&[1], &[2, 3], b"to each"), 3);
        }
        match host {
            0 => {}
            1 => assert_eq!(node.asked(1), [(NodeId(0), Role::Asked, b"to each".to_vec())]),
            _ => assert_eq!(node.told_and_refused(1), (1, vec![])),
        }
        assert_eq!(node.selective.counts().copies_received, u64::from(host != 0), "of the second alone");
    });
    let plan = Plan { group: false, ..plan };
    on_all(&hosts, &plan, |host, node, _| ask_and_tell(host, node, 6));
}
