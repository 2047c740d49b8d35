//! The backbone `shm` between real processes, some of which are killed.
//!
//! The other process of each test is this test program again, told to run the ignored test `the_other_process` alone.

use comem_net::{Datagrams, PortChoice, RECEIVE_BUFFER_BYTES, Received, ShmEndpoint, ShmHost, Wait, datagrams};
use comem_protocol::time::Span;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(20);
const SPIN: Wait = Wait::Spin(Span::from_us(40));
const ROLE: &str = "COMEM_TEST_ROLE";
const PARENT: &str = "COMEM_TEST_PARENT";
const FLOOD_BYTES: usize = 20_000;

/// Another process; killed when it is no longer needed.
struct Other {
    child: Child,
    address: SocketAddr,
}

impl Other {
    fn start(role: &str, parent: SocketAddr) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(PARENT, parent.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().rsplit_once("here: ")?.1.parse().ok());
        Other { child, address: address.expect("the other process says where it is") }
    }

    fn kill(&mut self) {
        // SIGKILL: nothing in the process gets a chance to clean up.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
#[ignore = "the other process of the tests below"]
fn the_other_process() {
    let (Ok(role), Ok(parent)) = (std::env::var(ROLE), std::env::var(PARENT)) else { return };
    let parent = parent.parse().unwrap();
    let host = ShmHost::open().unwrap();
    let endpoint = host.bind(HOST, PortChoice::Any).unwrap();
    assert_eq!(host.connect(&[parent], PATIENCE), 1);
    println!("here: {}", endpoint.local_addr());
    match role.as_str() {
        "echo" => echo(&endpoint),
        "flood" => flood(&endpoint, parent),
        other => panic!("no such role: {other}"),
    }
}

/// Sends back what comes, batch by batch.
fn echo(endpoint: &ShmEndpoint) {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    loop {
        if let Received::Datagrams { from, len, segment } = endpoint.recv(&mut buffer, None, SPIN).unwrap() {
            endpoint.send_to(&buffer[..len], segment, from).unwrap();
        }
    }
}

/// Sends without end; each datagram consists of one byte over and over, and another than its neighbour.
fn flood(endpoint: &ShmEndpoint, to: SocketAddr) {
    let bytes: Vec<u8> = (0..=255u8).flat_map(|byte| [byte; FLOOD_BYTES]).collect();
    loop {
        for datagram in bytes.chunks(FLOOD_BYTES) {
            drop(endpoint.send_to(datagram, FLOOD_BYTES, to));
        }
    }
}

fn endpoint() -> (std::sync::Arc<ShmHost>, ShmEndpoint) {
    let host = ShmHost::open().unwrap();
    let endpoint = host.bind(HOST, PortChoice::Any).unwrap();
    (host, endpoint)
}

#[test]
fn two_processes_exchange_batches_spinning_and_blocking() {
    let (host, endpoint) = endpoint();
    let other = Other::start("echo", endpoint.local_addr());
    assert_eq!(host.connect(&[other.address], PATIENCE), 1);
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    for wait in [SPIN, Wait::Block] {
        for round in 0..500usize {
            let sent: Vec<u8> = (0..1 + round * 131).map(|i| (i * 7 + round) as u8).collect();
            endpoint.send_to(&sent, 1_000, other.address).unwrap();
            let mut got: Vec<Vec<u8>> = Vec::new();
            while got.iter().map(Vec::len).sum::<usize>() < sent.len() {
                match endpoint.recv(&mut buffer, Some(PATIENCE), wait).unwrap() {
                    Received::Datagrams { from, len, segment } => {
                        assert_eq!(from, other.address);
                        got.extend(datagrams(&buffer[..len], segment).map(<[u8]>::to_vec));
                    }
                    other => panic!("{other:?} in round {round}"),
                }
            }
            assert!(got.iter().map(Vec::as_slice).eq(sent.chunks(1_000)), "round {round}");
        }
    }
}

/// Twice as many processes die as an endpoint has lanes, in the midst of sending; every second one after it has filled
/// its lane. A last one finds everything in order.
#[test]
fn killed_producers_leave_whole_datagrams_and_free_their_lanes() {
    let (host, endpoint) = endpoint();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    for round in 0..140u64 {
        let mut other = Other::start("flood", endpoint.local_addr());
        let start = Instant::now();
        let mut seen = 0;
        while seen < 20 || start.elapsed() < Duration::from_micros(round * 17) {
            match endpoint.recv(&mut buffer, Some(PATIENCE), SPIN).unwrap() {
                Received::Datagrams { from, len, .. } => {
                    assert_eq!(len, FLOOD_BYTES);
                    assert!(buffer[..len].iter().all(|byte| *byte == buffer[0]), "a datagram is not whole");
                    seen += u64::from(from == other.address);
                }
                other => panic!("{other:?} in round {round}"),
            }
        }
        if round.is_multiple_of(2) {
            std::thread::sleep(Duration::from_millis(4));
        }
        other.kill();
    }
    let last = Other::start("echo", endpoint.local_addr());
    assert_eq!(host.connect(&[last.address], PATIENCE), 1);
    endpoint.send_to(b"still there?", 100, last.address).unwrap();
    loop {
        match endpoint.recv(&mut buffer, Some(PATIENCE), Wait::Block).unwrap() {
            Received::Datagrams { from, len, .. } if from == last.address => {
                break assert_eq!(&buffer[..len], b"still there?");
            }
            Received::Datagrams { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_killed_process_is_reported_and_leaves_nothing_behind() {
    let (host, endpoint) = endpoint();
    let mut other = Other::start("echo", endpoint.local_addr());
    assert_eq!(host.connect(&[other.address], PATIENCE), 1);
    let door = format!("@comem-shm-{}-{}", HOST, other.address.port());
    assert!(listed_in("/proc/net/unix", &door), "{door} is open while the process lives");
    let memory = format!("/proc/{}/maps", other.child.id());
    assert!(listed_in(&memory, "memfd:comem-lane") && listed_in(&memory, "memfd:comem-bell"));
    other.kill();
    assert!(!listed_in("/proc/net/unix", &door));
    let is_ours = |name: String| ["lane", "bell", "shm"].iter().any(|what| name.contains(&format!("comem-{what}")));
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten();
    let mut left = files.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    assert!(!left.any(is_ours), "files in /dev/shm");
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "the end was never reported");
        drop(endpoint.send_to(b"anybody there?", 100, other.address));
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        match endpoint.recv(&mut buffer, Some(Duration::from_millis(5)), Wait::Block).unwrap() {
            Received::Timeout => {}
            Received::Unreachable(address) => break assert_eq!(address, other.address),
            other => panic!("{other:?}"),
        }
    }
}

fn listed_in(path: &str, what: &str) -> bool {
    std::fs::read_to_string(path).unwrap().contains(what)
}
