//! `comem bench net`: how long a message of each size takes, and how many bytes a second pass (HLRC on UDP, figures 1
//! and 2), for each backbone and way of waiting. Bare: no protocol repeats anything or puts anything in order.
//!
//! Two ends in one process exchange messages. *Latency* is half of a round trip with a message of the same size both
//! ways. *Bandwidth* is that of messages sent one after the other, a few on their way, each confirmed by a small one.
//!
//! With `--reply` it is what shared memory by pages does most: a small request, and a reply of the size that the
//! request names, one after the other (Brazos, figure 1). *Latency* is the whole exchange then, and *throughput* the
//! bytes of a reply over that. Both are medians: the paper has means, which one interruption would spoil here.

use super::{curves, median};
use crate::args::NetArgs;
use crate::failure::{Failure, Outcome};
use crate::picture;
use crate::progress::{self, Progress};
use crate::report::write;
use crate::table::{Table, bytes};
use comem_net::network::{Backbone, NetworkOptions};
use comem_net::{Clock, Datagrams, Network, RECEIVE_BUFFER_BYTES, Received, Wait};
use comem_protocol::time::Span;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sizes of messages: 1 byte to 256 KiB.
const SIZES: [usize; 10] = [1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];
/// Sizes of replies: a few bytes to the 64 KiB of the paper's figure, denser about a page.
const REPLY_SIZES: [usize; 12] =
    [4, 16, 64, 256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 48 << 10, 64 << 10];
/// Bytes of a request for a reply, as in the paper.
const REQUEST_BYTES: usize = 20;
/// Messages on their way when bandwidth is measured, as long as they have few bytes together.
const IN_FLIGHT: usize = 4;
/// A message with more bytes than this travels in pieces.
const PIECE_BYTES: usize = 48 << 10;
/// Bytes on their way at most, so that no receive buffer overflows.
const IN_FLIGHT_BYTES: usize = 128 << 10;
/// Longer silence means that something is lost: the exchange does not count.
const LOSS_WAIT: Duration = Duration::from_millis(100);
/// How long spinning goes on before it blocks.
const SPIN: Span = Span::from_us(200);
/// How long the ends may take to find each other.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// How often the far end looks whether it is to end.
const TURN: Duration = Duration::from_millis(50);
/// The first byte of a message says what the far end is to do with it.
const ECHO: u8 = 1;
const CONFIRM: u8 = 2;
/// A request: the bytes of the reply stand behind the first byte.
const REPLY: u8 = 3;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exchange {
    /// Messages of one size both ways.
    Equal,
    /// A small request and a reply.
    Reply,
}

impl Exchange {
    fn sizes(self) -> &'static [usize] {
        match self {
            Exchange::Equal => &SIZES,
            Exchange::Reply => &REPLY_SIZES,
        }
    }
}

/// What was measured of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Bytes of a message.
    pub bytes: usize,
    /// Microseconds of a message on its way, or of a request and its reply; NaN where none arrived.
    pub latency_us: f64,
    /// Megabytes a second.
    pub megabytes_per_s: f64,
    /// Exchanges that did not come to their end.
    pub lost: usize,
}

/// A backbone with a way of waiting.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// The two names.
    pub name: String,
    /// By size.
    pub points: Vec<Point>,
}

/// Runs the command; its exit code.
pub fn main(args: &NetArgs) -> Outcome<i32> {
    args.svg.as_deref().map_or(Ok(()), |path| picture::check_name("--svg", path))?;
    let exchange = if args.reply { Exchange::Reply } else { Exchange::Equal };
    let backbones = if args.backbones.is_empty() { &Backbone::ALL[..] } else { &args.backbones[..] };
    let ways = [("block", Wait::Block), ("spin", Wait::Spin(SPIN))];
    progress::expect(backbones.len() * ways.len());
    let mut curves = Vec::new();
    for backbone in backbones.iter().copied() {
        for (name, wait) in ways {
            let line = Progress::of(|| format!("messages over {backbone}, {name}"));
            let measured = measure(backbone, wait, args.rounds as usize, exchange);
            drop(line);
            match measured {
                Ok(points) => curves.push(Curve { name: format!("{backbone}, {name}"), points }),
                Err(why) => {
                    let what = format!("backbone {backbone} cannot be measured: {why}");
                    if !args.backbones.is_empty() {
                        return Err(Failure::start(what, "choose others with --backbones"));
                    }
                    crate::say(format_args!("comem: {what}"));
                    break;
                }
            }
        }
    }
    crate::show(&show(&curves, exchange))?;
    if let Some(path) = &args.svg {
        let titles = match exchange {
            Exchange::Equal => ["latency, microseconds one way", "bandwidth, MB/s", "bytes of a message"],
            Exchange::Reply => ["request and reply, microseconds", "throughput of replies, MB/s", "bytes of a reply"],
        };
        write(path, &curves::picture(&curves, titles))?;
    }
    Ok(0)
}

fn measure(backbone: Backbone, wait: Wait, rounds: usize, exchange: Exchange) -> Result<Vec<Point>, String> {
    let (near, far, segment) = endpoints(backbone)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = std::thread::Builder::new().spawn_scoped(scope, || answer(&*far, wait, segment, &stop));
        let answering = answering.map_err(|why| format!("cannot start a thread: {why}"))?;
        let prober = Prober { endpoint: &*near, to: far.local_addr(), wait, segment };
        let point = |bytes: &usize| match exchange {
            Exchange::Equal => prober.point(*bytes, rounds),
            Exchange::Reply => prober.reply(*bytes, rounds),
        };
        let points = exchange.sizes().iter().map(point).collect();
        stop.store(true, Ordering::Relaxed);
        answering.join().map_err(|_| "the far end failed".to_string())?;
        points
    })
}

type Ends = (Arc<dyn Datagrams>, Arc<dyn Datagrams>, usize);

/// Two ends on this host, and the most bytes of a datagram between them.
fn endpoints(backbone: Backbone) -> Result<Ends, String> {
    let options = NetworkOptions::default();
    let open = || Network::open_over(backbone, &options, Clock::new()).map_err(|e| e.to_string());
    // One network each, as two processes would have.
    let networks = (open()?, open()?);
    let bind = |network: &Network| network.bind().map_err(|e| e.to_string());
    let (near, far) = (bind(&networks.0)?, bind(&networks.1)?);
    networks.0.connect(&[far.local_addr()], CONNECT_WAIT);
    networks.1.connect(&[near.local_addr()], CONNECT_WAIT);
    Ok((near, far, networks.0.datagram_bytes_max().min(PIECE_BYTES)))
}

/// Sends a message's first byte and as many others; in pieces when it is long.
fn send(endpoint: &dyn Datagrams, to: SocketAddr, message: &[u8], segment: usize) -> io::Result<()> {
    message.chunks(PIECE_BYTES).try_for_each(|piece| endpoint.send_to(piece, segment, to))
}

/// The far end. A message's length stands in its first datagram, behind what is to be done with it.
fn answer(endpoint: &dyn Datagrams, wait: Wait, piece: usize, stop: &AtomicBool) {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let reply = vec![REPLY; REPLY_SIZES[REPLY_SIZES.len() - 1]];
    while !stop.load(Ordering::Relaxed) {
        let Ok(Received::Datagrams { from, len, segment }) = endpoint.recv(&mut buffer, Some(TURN), wait) else {
            continue;
        };
        // A lost answer is the near end's to notice.
        let _ = match buffer[0] {
            CONFIRM => endpoint.send_to(&(len as u32).to_be_bytes(), 4, from),
            REPLY => send(endpoint, from, &reply[..wanted_bytes(&buffer[..len]).min(reply.len())], piece),
            _ => endpoint.send_to(&buffer[..len], segment, from),
        };
    }
}

/// A request for a reply of so many bytes.
fn request(bytes: usize) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[0] = REPLY;
    request[1..5].copy_from_slice(&(bytes as u32).to_be_bytes());
    request
}

/// The bytes of the reply that a request wants; 0 where it does not say.
fn wanted_bytes(request: &[u8]) -> usize {
    request.get(1..5).and_then(|bytes| bytes.try_into().ok()).map_or(0, |bytes| u32::from_be_bytes(bytes) as usize)
}

/// The near end.
struct Prober<'a> {
    endpoint: &'a dyn Datagrams,
    to: SocketAddr,
    wait: Wait,
    segment: usize,
}

impl Prober<'_> {
    fn point(&self, bytes: usize, rounds: usize) -> Result<Point, String> {
        // Long messages need fewer exchanges.
        let rounds = (rounds * PIECE_BYTES / bytes.max(PIECE_BYTES)).max(10);
        let (mut times, mut lost) = (Vec::with_capacity(rounds), 0);
        let (mut message, mut buffer) = (vec![ECHO; bytes], vec![0; RECEIVE_BUFFER_BYTES]);
        // The first exchanges warm up and do not count.
        for round in 0..rounds + rounds / 10 {
            let start = Instant::now();
            send(self.endpoint, self.to, &message, self.segment).map_err(|e| e.to_string())?;
            match self.receive(bytes, &mut buffer, |len| len) {
                true if round >= rounds / 10 => times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0),
                true => {}
                false => lost += 1,
            }
        }
        message.fill(CONFIRM);
        let (megabytes_per_s, silences) = self.stream(&message, rounds, &mut buffer)?;
        Ok(Point { bytes, latency_us: median(&mut times), megabytes_per_s, lost: lost + silences })
    }

    /// Requests with replies of so many bytes, one after the other.
    fn reply(&self, bytes: usize, rounds: usize) -> Result<Point, String> {
        let (mut times, mut lost) = (Vec::with_capacity(rounds), 0);
        let (request, mut buffer) = (request(bytes), vec![0; RECEIVE_BUFFER_BYTES]);
        for round in 0..rounds + rounds / 10 {
            let start = Instant::now();
            send(self.endpoint, self.to, &request, self.segment).map_err(|e| e.to_string())?;
            match self.receive(bytes, &mut buffer, |len| len) {
                true if round >= rounds / 10 => times.push(start.elapsed().as_secs_f64() * 1e6),
                true => {}
                false => lost += 1,
            }
        }
        let latency_us = median(&mut times);
        Ok(Point { bytes, latency_us, megabytes_per_s: bytes as f64 / latency_us, lost })
    }

    /// Takes in datagrams until `bytes` bytes are there; `count` says how many a filled buffer stands for.
    fn receive(&self, bytes: usize, buffer: &mut [u8], count: impl Fn(usize) -> usize) -> bool {
        let mut got = 0;
        while got < bytes {
            match self.endpoint.recv(buffer, Some(LOSS_WAIT), self.wait) {
                Ok(Received::Datagrams { len, .. }) => got += count(len),
                _ => return false,
            }
        }
        true
    }

    /// Sends messages one after the other, a few on their way; megabytes a second, and how often it fell silent.
    fn stream(&self, message: &[u8], rounds: usize, buffer: &mut [u8]) -> Result<(f64, usize), String> {
        let ahead = (IN_FLIGHT_BYTES / message.len()).clamp(1, IN_FLIGHT) * message.len();
        let (mut sent, mut confirmed, mut given_up, mut silences) = (0, 0, 0, 0);
        let start = Instant::now();
        while sent < rounds * message.len() || confirmed + given_up < sent {
            let on_their_way = sent - (confirmed + given_up).min(sent);
            if sent < rounds * message.len() && on_their_way + message.len() <= ahead {
                send(self.endpoint, self.to, message, self.segment).map_err(|e| e.to_string())?;
                sent += message.len();
                continue;
            }
            match self.endpoint.recv(buffer, Some(LOSS_WAIT), self.wait) {
                Ok(Received::Datagrams { len, segment, .. }) => confirmed += confirmations(&buffer[..len], segment),
                _ => {
                    silences += 1;
                    given_up += on_their_way;
                }
            }
        }
        Ok((confirmed as f64 / 1e6 / start.elapsed().as_secs_f64(), silences))
    }
}

/// The bytes that confirmations stand for.
fn confirmations(filled: &[u8], segment: usize) -> usize {
    let numbers = comem_net::datagrams(filled, segment).filter_map(|d| d.try_into().ok());
    numbers.map(|bytes| u32::from_be_bytes(bytes) as usize).sum()
}

fn show(curves: &[Curve], exchange: Exchange) -> String {
    let first = if exchange == Exchange::Reply { "reply bytes" } else { "bytes" };
    let mut heads = vec![first.to_string()];
    for curve in curves {
        heads.extend([format!("{}: us", curve.name), "MB/s".to_string()]);
    }
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (index, size) in exchange.sizes().iter().enumerate() {
        let mut cells = vec![bytes(*size as u64)];
        for point in curves.iter().filter_map(|curve| curve.points.get(index)) {
            cells.extend([format!("{:.1}", point.latency_us), format!("{:.1}", point.megabytes_per_s)]);
        }
        table.row(cells);
    }
    let lost: usize = curves.iter().flat_map(|curve| &curve.points).map(|point| point.lost).sum();
    let note = if lost > 0 { format!("{lost} exchanges lost a datagram and do not count\n") } else { String::new() };
    let legend = match exchange {
        Exchange::Equal => {
            "us: one way, half of a round trip of the same size; MB/s: one way, in 10^6 bytes\n".to_string()
        }
        Exchange::Reply => curves.iter().map(half_of_the_best).fold(
            format!(
                "us: a request of {REQUEST_BYTES} bytes and its reply, one after the other, the median; MB/s: a \
                 reply's bytes over that time, in 10^6 bytes\n"
            ),
            |text, line| text + &line,
        ),
    };
    table.text(0) + &legend + &note
}

/// From which size on replies come at half of the best throughput: in the paper, beyond a page.
fn half_of_the_best(curve: &Curve) -> String {
    let best = curve.points.iter().map(|point| point.megabytes_per_s).fold(0.0, f64::max);
    let from = curve.points.iter().find(|point| point.megabytes_per_s * 2.0 >= best);
    let from = from.map_or("no size".to_string(), |point| bytes(point.bytes as u64));
    format!("{}: half of the best throughput from {from} on (the paper's two systems: above 4 KiB)\n", curve.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_through_under_both_ways_of_waiting() {
        for backbone in Backbone::ALL {
            for wait in [Wait::Block, Wait::Spin(SPIN)] {
                for exchange in [Exchange::Equal, Exchange::Reply] {
                    let points = measure(backbone, wait, 10, exchange).unwrap();
                    assert!(points.iter().map(|point| point.bytes).eq(exchange.sizes().iter().copied()));
                    for point in points {
                        assert!(point.latency_us > 0.0 && point.megabytes_per_s > 0.0, "{backbone}: {point:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_request_says_how_long_its_reply_is() {
        for bytes in REPLY_SIZES {
            let request = request(bytes);
            assert_eq!((request.len(), request[0], wanted_bytes(&request)), (20, REPLY, bytes));
        }
        assert_eq!(wanted_bytes(&[REPLY, 0, 0]), 0);
    }

    #[test]
    fn a_table_of_replies_says_where_half_of_the_throughput_is() {
        let rates = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 49.9, 50.0, 80.0, 100.0, 90.0];
        let point = |(bytes, megabytes_per_s): (&usize, f64)| Point {
            bytes: *bytes,
            latency_us: 2.5,
            megabytes_per_s,
            lost: 0,
        };
        let points: Vec<Point> = REPLY_SIZES.iter().zip(rates).map(point).collect();
        let curve = Curve { name: "udp, spin".to_string(), points };
        let text = show(&[curve], Exchange::Reply);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].trim_start().starts_with("reply bytes  udp, spin: us"), "{text}");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["4", "B", "2.5", "1.0"], "{text}");
        assert_eq!(lines.len(), 1 + 12 + 2, "{text}");
        assert!(lines[13].contains("a request of 20 bytes"), "{text}");
        assert!(lines[14].contains("from 16.0 KiB on"), "{text}");
    }

    #[test]
    fn confirmations_of_a_batch_add_up() {
        assert_eq!(confirmations(&[0, 0, 1, 0, 0, 0, 0, 5], 4), 261);
        assert_eq!(confirmations(&[9; 3], 4), 0);
    }
}
