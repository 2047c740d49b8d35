//! What an `Endpoint` costs over bare UDP: 64 bytes there and back between two threads, each way of waiting in turn.
//!
//! `cargo run --release -p comem-net --example pingpong [ROUNDS]`
//!
//! Every round measures all ways one after another, so that a busy machine disturbs them alike; the table gives the
//! median over the rounds of each round's median, and its ratio to bare UDP under the same way of waiting.

use comem_net::{Datagrams, Endpoint, PortChoice, RECEIVE_BUFFER_BYTES, Received, Wait};
use comem_protocol::time::Span;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 64;
const EXCHANGES: usize = 400;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(5);
/// Short enough for the endpoint to wait in `ppoll`, where timeouts are exact.
const SHORT: Duration = Duration::from_millis(5);
/// Longer than any exchange, so that a spinning side never blocks.
const SPIN: Span = Span::from_ms(1_000);

/// One side: something that sends to an address and waits for the next message.
trait Side: Send {
    fn address(&self) -> SocketAddr;
    fn send(&self, to: SocketAddr);
    /// Waits for a message; `None` when none came for a long time.
    fn receive(&mut self) -> Option<SocketAddr>;
}

struct Bare {
    socket: UdpSocket,
    spins: bool,
}

impl Bare {
    fn new(spins: bool, timeout: Option<Duration>) -> io::Result<Bare> {
        let socket = UdpSocket::bind((HOST, 0))?;
        socket.set_nonblocking(spins)?;
        socket.set_read_timeout(timeout)?;
        Ok(Bare { socket, spins })
    }
}

impl Side for Bare {
    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket has an address")
    }
    fn send(&self, to: SocketAddr) {
        self.socket.send_to(&[1; MESSAGE_BYTES], to).expect("the loopback takes datagrams");
    }
    fn receive(&mut self) -> Option<SocketAddr> {
        let mut buffer = [0; 2_048];
        let start = Instant::now();
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((_, from)) => return Some(from),
                Err(_) if self.spins && start.elapsed() < PATIENCE => std::hint::spin_loop(),
                Err(_) => return None,
            }
        }
    }
}

struct Ours {
    endpoint: Endpoint,
    wait: Wait,
    timeout: Option<Duration>,
    buffer: Vec<u8>,
}

impl Ours {
    fn new(wait: Wait, timeout: Option<Duration>) -> io::Result<Ours> {
        let endpoint = Endpoint::bind(HOST, PortChoice::Any)?;
        Ok(Ours { endpoint, wait, timeout, buffer: vec![0; RECEIVE_BUFFER_BYTES] })
    }
}

impl Side for Ours {
    fn address(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }
    fn send(&self, to: SocketAddr) {
        self.endpoint.send_to(&[1; MESSAGE_BYTES], MESSAGE_BYTES, to).expect("the loopback takes datagrams");
    }
    fn receive(&mut self) -> Option<SocketAddr> {
        let start = Instant::now();
        loop {
            match self.endpoint.recv(&mut self.buffer, self.timeout, self.wait) {
                Ok(Received::Datagrams { from, .. }) => return Some(from),
                Ok(Received::Timeout) if start.elapsed() < PATIENCE => {}
                _ => return None,
            }
        }
    }
}

/// The median round trip of `EXCHANGES`, in microseconds.
fn exchange(here: &mut dyn Side, mut there: Box<dyn Side>) -> f64 {
    let to = there.address();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..EXCHANGES {
                match there.receive() {
                    Some(from) => there.send(from),
                    None => return,
                }
            }
        });
        let mut took: Vec<f64> = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            let start = Instant::now();
            here.send(to);
            here.receive().expect("an answer on the loopback");
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        median(took)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Make = fn() -> io::Result<Box<dyn Side>>;

/// A way of waiting: its name, which way it is compared with, and how a side is made.
const WAYS: [(&str, usize, Make); 7] = [
    ("blocking: bare UDP", 0, || Ok(Box::new(Bare::new(false, None)?))),
    ("blocking: bare UDP, SO_RCVTIMEO", 0, || Ok(Box::new(Bare::new(false, Some(PATIENCE))?))),
    ("blocking: Endpoint, 5 s", 0, || Ok(Box::new(Ours::new(Wait::Block, Some(PATIENCE))?))),
    ("blocking: Endpoint, 5 ms (ppoll)", 0, || Ok(Box::new(Ours::new(Wait::Block, Some(SHORT))?))),
    ("spinning: bare UDP", 4, || Ok(Box::new(Bare::new(true, None)?))),
    ("spinning: Endpoint, timeout", 4, || Ok(Box::new(Ours::new(Wait::Spin(SPIN), Some(PATIENCE))?))),
    ("spin 30 us, then block: Endpoint", 4, || Ok(Box::new(Ours::new(Wait::Spin(Span::from_us(30)), Some(PATIENCE))?))),
];

fn main() -> io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).filter(|&n| n > 0).unwrap_or(25usize);
    let mut took = vec![Vec::with_capacity(rounds); WAYS.len()];
    for _ in 0..rounds {
        for ((_, _, make), took) in WAYS.iter().zip(&mut took) {
            took.push(exchange(&mut *make()?, make()?));
        }
    }
    let medians: Vec<f64> = took.into_iter().map(median).collect();
    println!("{MESSAGE_BYTES} bytes there and back, {rounds} rounds of {EXCHANGES}");
    println!("{:<36} {:>8} {:>7}", "", "us", "ratio");
    for ((name, base, _), us) in WAYS.iter().zip(&medians) {
        println!("{name:<36} {us:>8.2} {:>7.2}", us / medians[*base]);
    }
    Ok(())
}
