//! What shared memory saves over UDP: messages there and back between two threads, each way of waiting in turn.
//!
//! `cargo run --release -p comem-net --example shm_pingpong [ROUNDS]`
//!
//! Every round measures all ways one after another, so that a busy machine disturbs them alike; the table gives the
//! median over the rounds of each round's median, and its ratio to UDP for the same bytes and way of waiting.

use comem_net::{Datagrams, Endpoint, PortChoice, RECEIVE_BUFFER_BYTES, Received, ShmHost, Wait};
use comem_protocol::time::Span;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const SIZES: [usize; 3] = [64, 4_096, 60_000];
const EXCHANGES: usize = 400;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than any exchange, so that a spinning side never blocks.
const SPIN: Wait = Wait::Spin(Span::from_ms(1_000));
const WAYS: [(&str, Wait); 3] =
    [("spinning", SPIN), ("spin 30 us, then block", Wait::Spin(Span::from_us(30))), ("blocking", Wait::Block)];

type Pair = [Box<dyn Datagrams>; 2];

fn over_udp() -> io::Result<Pair> {
    Ok([Box::new(Endpoint::bind(HOST, PortChoice::Any)?), Box::new(Endpoint::bind(HOST, PortChoice::Any)?)])
}

/// Two endpoints of two hosts, as two processes would have them.
fn over_memory() -> io::Result<Pair> {
    let hosts = [ShmHost::open()?, ShmHost::open()?];
    let ends = [hosts[0].bind(HOST, PortChoice::Any)?, hosts[1].bind(HOST, PortChoice::Any)?];
    let ready =
        hosts[0].connect(&[ends[1].local_addr()], PATIENCE) + hosts[1].connect(&[ends[0].local_addr()], PATIENCE);
    assert_eq!(ready, 2, "lanes in both directions");
    Ok(ends.map(|end| Box::new(end) as Box<dyn Datagrams>))
}

fn receive(end: &dyn Datagrams, buffer: &mut [u8], wait: Wait) -> usize {
    match end.recv(buffer, Some(PATIENCE), wait) {
        Ok(Received::Datagrams { len, .. }) => len,
        other => panic!("{other:?} instead of an answer"),
    }
}

/// The median round trip, in microseconds.
fn exchange([here, there]: &Pair, bytes: usize, wait: Wait) -> f64 {
    let message = vec![1; bytes];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
            for _ in 0..EXCHANGES {
                let len = receive(&**there, &mut buffer, wait);
                there.send_to(&buffer[..len], len, here.local_addr()).expect("there is room");
            }
        });
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        let mut took: Vec<f64> = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            let start = Instant::now();
            here.send_to(&message, bytes, there.local_addr()).expect("there is room");
            assert_eq!(receive(&**here, &mut buffer, wait), bytes);
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        median(took)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).filter(|&n| n > 0).unwrap_or(25usize);
    println!("there and back, {rounds} rounds of {EXCHANGES}, us");
    println!("{:<24} {:>7} {:>9} {:>9} {:>7}", "", "bytes", "udp", "shm", "ratio");
    for (name, wait) in WAYS {
        for bytes in SIZES {
            let mut took = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                took[0].push(exchange(&over_udp()?, bytes, wait));
                took[1].push(exchange(&over_memory()?, bytes, wait));
            }
            let [udp, shm] = took.map(median);
            println!("{name:<24} {bytes:>7} {udp:>9.2} {shm:>9.2} {:>7.2}", shm / udp);
        }
    }
    Ok(())
}
