//! Groups and discovery on the loopback: one send that several endpoints hear.

use comem_net::multicast::DISCOVERY_PORT;
use comem_net::network::NetworkOptions;
use comem_net::select::{Reach, choose};
use comem_net::{
    Clock, Datagrams, Endpoint, Group, Network, PortChoice, RECEIVE_BUFFER_BYTES, Received, Wait, datagrams,
};
use comem_protocol::time::Span;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn network() -> Network {
    Network::open(&NetworkOptions::default(), Clock::system()).unwrap()
}

/// A job's number that no other test run on this host has.
fn own_job(salt: u64) -> u64 {
    u64::from(std::process::id()) << 8 | salt
}

fn collect(endpoint: &dyn Datagrams, count: usize, wait: Wait) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let mut all = Vec::new();
    while all.len() < count {
        match endpoint.recv(&mut buffer, PATIENCE, wait).unwrap() {
            Received::Datagrams { from, len, segment } => {
                all.extend(datagrams(&buffer[..len], segment).map(|d| (from, d.to_vec())));
            }
            other => panic!("{other:?} after {} of {count} datagrams", all.len()),
        }
    }
    all
}

#[test]
fn every_member_of_a_group_hears_it_and_its_own_socket_too() {
    let network = network();
    let group = network.group_of_job(own_job(1));
    let members: Vec<Arc<dyn Datagrams>> = (0..3).map(|_| network.bind().unwrap()).collect();
    for member in &members {
        network.join(&**member, &group).unwrap();
    }
    let sender = &members[0];
    for wait in [Wait::Block, Wait::Spin(Span::from_ms(10_000)), Wait::Spin(Span::from_us(50))] {
        let sent: Vec<u8> = (0..100).collect();
        sender.send_to(&sent, 30, group.address()).unwrap();
        for member in &members {
            let wanted: Vec<_> = sent.chunks(30).map(|d| (sender.local_addr(), d.to_vec())).collect();
            assert_eq!(collect(&**member, 4, wait), wanted, "{wait:?}");
            sender.send_to(b"to you alone", 100, member.local_addr()).unwrap();
            assert_eq!(collect(&**member, 1, wait)[0].1, b"to you alone");
        }
    }
}

#[test]
fn a_listener_is_heard_under_load_on_the_endpoints_own_socket() {
    let network = network();
    let group = network.group_of_job(own_job(2));
    let (sender, member) = (network.bind().unwrap(), network.bind().unwrap());
    network.join(&*member, &group).unwrap();
    sender.send_to(b"group", 100, group.address()).unwrap();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let heard = (0..1_000).find(|_| {
        sender.send_to(b"load", 100, member.local_addr()).unwrap();
        matches!(member.try_recv(&mut buffer).unwrap(), Received::Datagrams { len: 5, .. })
    });
    assert!(heard.is_some(), "a thousand datagrams passed, and the group's was never taken");
}

#[test]
fn a_closed_port_is_reported_to_an_endpoint_with_a_listener() {
    let network = network();
    let group = network.group_of_job(own_job(3));
    let member = network.bind().unwrap();
    network.join(&*member, &group).unwrap();
    let gone = network.bind().unwrap().local_addr();
    member.send_to(b"anybody?", 100, gone).unwrap();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    assert_eq!(member.recv(&mut buffer, PATIENCE, Wait::Block).unwrap(), Received::Unreachable(gone));
}

#[test]
fn several_processes_of_a_host_hear_a_broadcast() {
    let network = network();
    // A port of this test's own: a daemon may be using the well-known one.
    let port = 27_500 + (std::process::id() % 2_000) as u16;
    assert!(port != DISCOVERY_PORT);
    let place = Group::discovery(network.interface(), port).unwrap();
    assert_eq!(place.address(), SocketAddr::from(([127, 255, 255, 255], port)));
    let seeker = network.bind().unwrap();
    let others: Vec<Arc<dyn Datagrams>> = (0..2).map(|_| network.bind().unwrap()).collect();
    for other in &others {
        network.join(&**other, &place).unwrap();
    }
    seeker.send_to(b"JOIN", 100, place.address()).unwrap();
    for other in &others {
        assert_eq!(collect(&**other, 1, Wait::Block), [(seeker.local_addr(), b"JOIN".to_vec())]);
        other.send_to(b"come in", 100, seeker.local_addr()).unwrap();
        assert_eq!(collect(&*seeker, 1, Wait::Block), [(other.local_addr(), b"come in".to_vec())]);
    }
}

#[test]
fn jobs_have_groups_of_their_own_within_the_ports_they_were_given() {
    let loopback = choose(None, Reach::ThisHost).unwrap();
    let of = |job, ports| Group::of_job(job, &loopback, ports).address();
    assert_eq!(of(7, PortChoice::Any), of(7, PortChoice::Any));
    let mut all: Vec<SocketAddr> = (0..1_000).map(|job| of(job, PortChoice::Any)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 1_000);
    for job in 0..1_000 {
        let address = of(job, PortChoice::Range(5_000, 5_002));
        assert!((5_000..=5_002).contains(&address.port()) && address.to_string().starts_with("239.19"), "{address}");
        assert_eq!(of(job, PortChoice::Exact(5_001)).port(), 5_001);
    }
}

#[test]
fn an_endpoint_attends_three_listeners_and_refuses_a_fourth() {
    let loopback = choose(None, Reach::ThisHost).unwrap();
    let endpoint = Endpoint::bind(loopback.address, PortChoice::Any).unwrap();
    let attend =
        |salt| endpoint.attend(Group::of_job(own_job(salt), &loopback, PortChoice::Any).listen(&loopback).unwrap());
    attend(10).unwrap();
    attend(11).unwrap();
    attend(12).unwrap();
    assert!(attend(13).unwrap_err().to_string().contains("at most 3"));
}

#[test]
fn a_network_is_put_together_as_ordered_and_says_so() {
    let path = std::env::temp_dir().join(format!("comem-network-{}.pcap", std::process::id()));
    let options = NetworkOptions {
        iface: Some("127.0.0.0/8".to_string()),
        faults: Some("dup=100%".parse().unwrap()),
        capture: Some(path.clone()),
        ..NetworkOptions::default()
    };
    let network = Network::open(&options, Clock::system()).unwrap();
    let said = network.to_string();
    assert!(said.starts_with("lo (127.0.0.1/8, MTU ") && said.contains("any ports, faults dup=100%"), "{said}");
    let (a, b) = (network.bind().unwrap(), network.bind().unwrap());
    a.send_to(b"twice", 100, b.local_addr()).unwrap();
    assert_eq!(
        collect(&*b, 2, Wait::Block),
        [(a.local_addr(), b"twice".to_vec()), (a.local_addr(), b"twice".to_vec())]
    );
    let captured = std::fs::metadata(&path).unwrap().len();
    std::fs::remove_file(&path).unwrap();
    // Both copies, sent and received: four records of 16 + 28 + 5 bytes after the header.
    assert_eq!(captured, 24 + 4 * (16 + 28 + 5));
}
