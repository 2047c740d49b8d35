//! Between two hosts: see [`hosts`].

mod hosts;

use comem_net::network::NetworkOptions;
use comem_net::select::{Reach, path_mtu};
use comem_net::{Clock, Datagrams, Group, Network, RECEIVE_BUFFER_BYTES, Received, Wait, counts_as_loss, datagrams};
use hosts::{TwoHosts, two_hosts};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Moves this thread to a host.
fn enter(hosts: &TwoHosts, host: usize) -> io::Result<()> {
    let file = File::open(format!("/run/netns/{}", hosts.names[host]))?;
    // SAFETY: the call changes only which network this thread's later sockets belong to.
    match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What one host tells the other, outside the network under test.
struct Line {
    tell: Sender<SocketAddr>,
    hear: Receiver<SocketAddr>,
}

impl Line {
    fn pair() -> (Line, Line) {
        let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
        (Line { tell: to_b, hear: from_b }, Line { tell: to_a, hear: from_a })
    }
    /// Tells one's own address and hears the other's; both know then that both got here.
    fn swap(&self, own: SocketAddr) -> SocketAddr {
        self.tell.send(own).unwrap();
        self.hear.recv_timeout(PATIENCE.unwrap()).unwrap()
    }
}

/// Runs `work` on both hosts at once.
fn on_both(hosts: &TwoHosts, work: impl Fn(usize, Network, Line) + Sync) {
    let (a, b) = Line::pair();
    std::thread::scope(|scope| {
        for (host, line) in [(0, a), (1, b)] {
            let work = &work;
            scope.spawn(move || {
                enter(hosts, host).unwrap();
                let options = NetworkOptions { reach: Reach::Network, ..NetworkOptions::default() };
                let network = Network::open(&options, Clock::system()).unwrap();
                wait_for_cable(&network, &line);
                work(host, network, line);
            });
        }
    });
}

/// Calls across the cable until both hosts have heard the other: the kernel takes its time to switch a new one on, and
/// loses what is sent before.
fn wait_for_cable(network: &Network, line: &Line) {
    let endpoint = network.bind().unwrap();
    let other = line.swap(endpoint.local_addr());
    let mut buffer = [0; 100];
    let (mut heard, mut was_heard) = (false, false);
    let start = Instant::now();
    while !(heard && was_heard) {
        assert!(start.elapsed() < PATIENCE.unwrap(), "the cable stays dead");
        let sent = endpoint.send_to(b"hello", 100, other);
        assert!(sent.as_ref().err().is_none_or(counts_as_loss), "{sent:?}");
        let received = endpoint.recv(&mut buffer, Some(Duration::from_millis(20)), Wait::Block).unwrap();
        if matches!(received, Received::Datagrams { .. }) && !heard {
            heard = true;
            line.tell.send(other).unwrap();
        }
        was_heard |= line.hear.try_recv().is_ok();
    }
    // Only now may one of the sockets close.
    line.swap(other);
}

fn collect(endpoint: &dyn Datagrams, count: usize) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let mut all = Vec::new();
    while all.len() < count {
        match endpoint.recv(&mut buffer, PATIENCE, Wait::Block).unwrap() {
            Received::Datagrams { len, segment, .. } => {
                all.extend(datagrams(&buffer[..len], segment).map(<[u8]>::to_vec));
            }
            other => panic!("{other:?} after {} of {count} datagrams", all.len()),
        }
    }
    all
}

#[test]
fn the_cable_is_chosen_filled_and_never_overfilled() {
    let Some(hosts) = two_hosts("the_cable_is_chosen_filled_and_never_overfilled") else { return };
    on_both(&hosts, |host, network, line| {
        let interface = network.interface();
        assert_eq!((interface.name.as_str(), interface.mtu, interface.loopback), ("cable", 1_500, false));
        let full = interface.datagram_bytes_max();
        assert_eq!(full, 1_472);
        let endpoint = network.bind().unwrap();
        let other = line.swap(endpoint.local_addr());
        assert!(interface.is_neighbour(other.ip()));
        assert_eq!(path_mtu(endpoint.local_addr().ip(), other).unwrap(), 1_500);
        let batch: Vec<u8> = (0..40 * full + 5).map(|i| (i * 31 / 7) as u8).collect();
        if host == 0 {
            endpoint.send_to(&batch, full, other).unwrap();
            let error = endpoint.send_to(&batch[..full + 1], full + 1, other).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE), "longer datagrams are refused, not fragmented");
            assert!(!counts_as_loss(&error));
            let told = endpoint.recv(&mut [0; 2_000], PATIENCE, Wait::Block).unwrap();
            assert_eq!(told, Received::PathMtu { to: other.ip(), mtu: 1_500 });
            endpoint.send_to(b"the end", 100, other).unwrap();
        } else {
            let received = collect(&*endpoint, 42);
            assert_eq!(received[..41], batch.chunks(full).collect::<Vec<_>>());
            assert_eq!(received[41], b"the end");
        }
        line.swap(endpoint.local_addr());
    });
}

/// Those that are not longer than the endpoints were told are refused as ever.
#[test]
fn datagrams_longer_than_usual_cross_the_cable_in_pieces() {
    let Some(hosts) = two_hosts("datagrams_longer_than_usual_cross_the_cable_in_pieces") else { return };
    on_both(&hosts, |host, mut network, line| {
        let usual = 3_000;
        network.cut_beyond(usual);
        let endpoint = network.bind().unwrap();
        let other = line.swap(endpoint.local_addr());
        let sizes = [61_440, usual + 1, 20_000];
        let batch: Vec<u8> = (0..2 * 61_440 + 5_000).map(|i| (i * 31 / 7) as u8).collect();
        if host == 0 {
            for size in sizes {
                endpoint.send_to(&batch[..2 * size + 5], size, other).unwrap();
            }
            for bytes in [&batch[..usual], &batch[..2 * usual]] {
                let error = endpoint.send_to(bytes, usual, other).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE), "{} bytes", bytes.len());
            }
        } else {
            let received = collect(&*endpoint, 9);
            for (three, size) in received.chunks(3).zip(sizes) {
                assert!(*three == batch[..2 * size + 5].chunks(size).collect::<Vec<_>>(), "of {size} bytes");
            }
        }
        line.swap(endpoint.local_addr());
    });
}

#[test]
fn a_group_and_a_broadcast_cross_the_cable() {
    let Some(hosts) = two_hosts("a_group_and_a_broadcast_cross_the_cable") else { return };
    on_both(&hosts, |host, network, line| {
        let endpoint = network.bind().unwrap();
        let group = network.group_of_job(99);
        let place = Group::discovery(network.interface(), 27_499).unwrap();
        assert_eq!(place.address(), "10.77.0.255:27499".parse().unwrap());
        network.join(&*endpoint, &group).unwrap();
        network.join(&*endpoint, &place).unwrap();
        line.swap(endpoint.local_addr());
        if host == 0 {
            endpoint.send_to(&[7; 3 * 1_472], 1_472, group.address()).unwrap();
            endpoint.send_to(b"JOIN", 100, place.address()).unwrap();
        }
        let mut heard = collect(&*endpoint, 4);
        heard.sort_by_key(Vec::len);
        assert_eq!(heard[0], b"JOIN");
        assert!(heard[1..].iter().all(|d| *d == [7; 1_472]));
        line.swap(endpoint.local_addr());
    });
}

#[test]
fn a_closed_port_on_the_other_host_is_reported() {
    let Some(hosts) = two_hosts("a_closed_port_on_the_other_host_is_reported") else { return };
    on_both(&hosts, |host, network, line| {
        let endpoint: Arc<dyn Datagrams> = network.bind().unwrap();
        let other = line.swap(endpoint.local_addr());
        if host == 0 {
            line.hear.recv_timeout(PATIENCE.unwrap()).unwrap();
            // Asked again and again, as a program does: a process that another test was just starting may have held the
            // port open a little longer, and the kernel limits how many reports it sends.
            let start = Instant::now();
            let told = loop {
                assert!(start.elapsed() < PATIENCE.unwrap(), "no report of the closed port");
                let sent = endpoint.send_to(b"anybody?", 100, other);
                assert!(sent.as_ref().err().is_none_or(counts_as_loss), "{sent:?}");
                match endpoint.recv(&mut [0; 2_000], Some(Duration::from_millis(100)), Wait::Block).unwrap() {
                    Received::Timeout => (),
                    told => break told,
                }
            };
            assert_eq!(told, Received::Unreachable(other));
        } else {
            let own = endpoint.local_addr();
            drop(endpoint);
            line.tell.send(own).unwrap();
        }
    });
}
