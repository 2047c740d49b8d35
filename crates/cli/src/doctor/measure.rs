//! Round trips and bandwidth over the backbone `udp`, bare: what any remote access is made of.
//!
//! The other end echoes. Every datagram begins with a token, so that it serves nobody else:
//!
//! ```text
//! token (16) | number u32 | answer length u32 | ...        the answer repeats the first 24 bytes and adds
//!                                                          its own time (u64, nanoseconds), then zeros
//! ```
//!
//! Whether long packets get through is tried in both directions: requests are as long as a packet may be then, and
//! answers take several.

use crate::failure::{Failure, Outcome};
use crate::sys;
use comem_net::select::{MTUS, path_mtu, udp_payload_max};
use comem_net::{Datagrams, Endpoint, Group, Interface, PortChoice, RECEIVE_BUFFER_BYTES, Received, Wait, datagrams};
use comem_protocol::time::Span;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The token of a measurement.
pub type Token = [u8; 16];

const HEAD_BYTES: usize = 32;
/// An element of a shared object travels in a datagram of about this size.
const SMALL_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;
/// Answers come in batches of this size when bandwidth is measured; several requests are on their way.
const BULK_BYTES: usize = 48 << 10;
const BULK_REQUESTS: usize = 400;
const BULK_IN_FLIGHT: usize = 3;
/// After so many gaps the line is too bad to be measured further; of round trips, in a row.
const SILENCES_MAX: usize = 5;
const ROUNDS: usize = 1000;
/// A datagram to a group may be lost as any other.
const MULTICAST_TRIES: usize = 3;
/// So many exchanges show whether long packets get through.
const LONG_ROUNDS: usize = 100;
/// Where one in so many answers is lost, nobody can work.
const LOST_ONE_IN: usize = 4;
/// Packets that may get through where larger ones do not: room for what tunnels add, what every way of IPv6 takes, and
/// the least that Comem needs.
const SAFE_MTUS: [usize; 3] = [1400, 1280, *MTUS.start()];
/// A lost datagram is given up after so long.
const LOSS_WAIT: Duration = Duration::from_millis(100);
/// Without any answer for so long, there is no connection.
const GIVE_UP: Duration = Duration::from_secs(3);
/// How long to spin, where spinning is measured.
const SPIN: Span = Span::from_us(200);
/// How often the echo looks whether it is to end.
const ECHO_TURN: Duration = Duration::from_millis(50);

/// What was measured between two ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Round trip of a small datagram, both ends blocking: median, and the slowest of a hundred.
    pub small_us: (f64, f64),
    /// The same with this end spinning; `None` where no core is to spare.
    pub small_spinning_us: Option<f64>,
    /// Round trip with an answer of 4 KiB; no number where none came.
    pub page_us: f64,
    /// Requests and answers in packets as large as the way takes by what this host knows: lost and tried.
    pub long_lost: (usize, usize),
    /// The largest of these packets.
    pub packet_bytes: usize,
    /// Smaller packets that got through, where too many of these were lost.
    pub safe_mtu: Option<usize>,
    /// Bytes a second in one direction, in MB.
    pub megabytes_per_s: f64,
    /// Datagrams that got no answer, of all sent.
    pub lost: (usize, usize),
    /// The other end's clock less ours.
    pub clock_offset_ns: i64,
    /// The most bytes of a datagram on the way.
    pub datagram_bytes: usize,
    /// Whether a datagram to a group reached the other end; `None` where that has not been tried.
    #[serde(default)]
    pub multicast: Option<bool>,
}

impl Measured {
    /// The numbers as a table.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let (lost, sent) = self.lost;
        let mut lines = vec![
            ("round trip, 64 B", format!("{:.1} us (99 %: {:.1} us)", self.small_us.0, self.small_us.1)),
            ("round trip, 4 KiB", self.page()),
            ("bandwidth", format!("{:.0} MB/s", self.megabytes_per_s)),
            ("datagrams", format!("up to {} bytes; {lost} of {sent} lost", self.datagram_bytes)),
            ("clock offset", format!("{:.3} ms", self.clock_offset_ns as f64 / 1e6)),
        ];
        if let Some(spinning) = self.small_spinning_us {
            lines.insert(1, ("  while spinning", format!("{spinning:.1} us")));
        }
        let multicast = match self.multicast {
            Some(true) => "arrives: one datagram reaches many nodes",
            Some(false) => "does not arrive: what is for many nodes goes to each",
            None => "was not tried",
        };
        lines.push(("multicast", multicast.to_string()));
        lines.push(("a remote access", self.cost()));
        lines
    }

    fn page(&self) -> String {
        if self.page_us.is_nan() { "no answer".to_string() } else { format!("{:.1} us", self.page_us) }
    }

    /// Why no job can work like this.
    pub fn obstacle(&self) -> Option<String> {
        let (lost, tried) = self.long_lost;
        let (packet, least) = (self.packet_bytes, MTUS.start());
        match self.safe_mtu {
            Some(mtu) => Some(format!(
                "packets of {packet} bytes do not get there and back ({lost} of {tried} were lost), those of {mtu} \
                 do: start jobs with --mtu {mtu}, or mend the MTU on the way"
            )),
            None if too_many(self.long_lost) => Some(format!(
                "packets of {packet} bytes do not get there and back ({lost} of {tried} were lost), nor do those of \
                 {least}: let UDP pass on the way"
            )),
            None => {
                let (lost, sent) = self.lost;
                too_many(self.lost).then(|| format!("{lost} of {sent} datagrams were lost: look for what drops them"))
            }
        }
    }

    /// What it means for a program.
    fn cost(&self) -> String {
        let fetch = self.small_us.0;
        let per_second = 1e6 / fetch;
        let one = format!("about {fetch:.0} us ({per_second:.0} a second and thread)");
        if self.page_us.is_nan() {
            return one;
        }
        let page_elements = PAGE_BYTES as f64 / 8.0;
        format!("{one}; 4 KiB at a time {:.2} us an 8-byte element", self.page_us / page_elements)
    }
}

/// The other end.
pub struct Echo {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it answers to.
    pub token: Token,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// The thread that answers what comes to the token's group, where it can hear that.
    group: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts one in a thread of this process.
    pub fn start_here(interface: &Interface, ports: PortChoice) -> Outcome<Echo> {
        Echo::start(interface, ports, sys::random())
    }

    /// Starts one with a given token. It answers what comes to the token's group too, where it can hear that.
    pub fn start(interface: &Interface, ports: PortChoice, token: Token) -> Outcome<Echo> {
        let endpoint = bind(interface.address, ports)?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let address = endpoint.local_addr();
        let thread = sys::start_thread("comem-echo", move || echo(&endpoint, &token, &seen))?;
        let mut started = Echo { address, token, stop, thread, group: None };
        started.group = started.hear_group(interface, ports).ok();
        Ok(started)
    }

    /// Answers what comes to the token's group, in a thread and a socket of their own: the other one is measured.
    fn hear_group(&self, interface: &Interface, ports: PortChoice) -> Outcome<JoinHandle<()>> {
        let (token, seen) = (self.token, Arc::clone(&self.stop));
        // The range may have no port left.
        let endpoint = bind(interface.address, ports).or_else(|_| bind(interface.address, PortChoice::Any))?;
        let heard = group(&token, interface, ports).listen(interface).and_then(|listener| endpoint.attend(listener));
        heard.map_err(|e| Failure::start(format!("cannot hear a group: {e}"), ""))?;
        sys::start_thread("comem-echo-group", move || echo(&endpoint, &token, &seen))
    }

    /// Ends it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        let _ = self.group.map(JoinHandle::join);
    }
}

/// The group by which a measurement finds out whether multicast arrives.
fn group(token: &Token, interface: &Interface, ports: PortChoice) -> Group {
    let number = token.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    Group::of_job(number, interface, ports)
}

fn bind(address: IpAddr, ports: PortChoice) -> Outcome<Endpoint> {
    Endpoint::bind(address, ports).map_err(|e| Failure::start(format!("cannot measure: {e}"), ""))
}

fn echo(endpoint: &Endpoint, token: &Token, stop: &AtomicBool) {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let mut answer = vec![0; BULK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let Ok(Received::Datagrams { from, len, segment }) = endpoint.recv(&mut buffer, Some(ECHO_TURN), Wait::Block)
        else {
            continue;
        };
        for datagram in datagrams(&buffer[..len], segment) {
            let Some((head, wanted)) = parse(datagram, token) else { continue };
            answer[..24].copy_from_slice(head);
            answer[24..HEAD_BYTES].copy_from_slice(&wall_ns().to_be_bytes());
            let wanted = (wanted as usize).clamp(HEAD_BYTES, BULK_BYTES);
            // The datagram's size on this way stands after the head of a request.
            let piece =
                datagram.get(24..28).map_or(SMALL_BYTES, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize);
            let _ = endpoint.send_to(&answer[..wanted], piece.clamp(SMALL_BYTES, BULK_BYTES), from);
        }
    }
}

/// The head of a request and the length of the answer that it wants.
fn parse<'a>(datagram: &'a [u8], token: &Token) -> Option<(&'a [u8], u32)> {
    let head = datagram.get(..24).filter(|head| head[..16] == *token)?;
    Some((head, u32::from_be_bytes([head[20], head[21], head[22], head[23]])))
}

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// One end of a measurement.
struct Prober {
    endpoint: Endpoint,
    to: SocketAddr,
    token: Token,
    datagram_bytes: usize,
    number: u32,
    sent: usize,
    lost: usize,
    buffer: Vec<u8>,
}

/// Measures between this host and the echo at `to`.
pub fn measure(local: &Interface, ports: PortChoice, to: SocketAddr, token: Token) -> Outcome<Measured> {
    let mtu = path_mtu(local.address, to).unwrap_or(local.mtu);
    let datagram_bytes = udp_payload_max(mtu, local.address).min(BULK_BYTES);
    let endpoint = bind(local.address, ports)?;
    let mut prober = Prober {
        endpoint,
        to,
        token,
        datagram_bytes,
        number: 0,
        sent: 0,
        lost: 0,
        buffer: vec![0; RECEIVE_BUFFER_BYTES],
    };
    prober.wait_for_peer()?;
    let multicast = prober.endpoint.reach_groups(local).is_ok() && prober.multicast(group(&token, local, ports));
    let clock_offset_ns = prober.clock_offset();
    let small = prober.round_trips(SMALL_BYTES, Wait::Block);
    let long_lost = prober.long_exchanges();
    let safe_mtu = if too_many(long_lost) { prober.shorten(local.address) } else { None };
    let page = prober.round_trips(PAGE_BYTES, Wait::Block);
    let spare_core = comem::capacity::cores() > 1;
    let spinning = spare_core.then(|| prober.round_trips(SMALL_BYTES, Wait::Spin(SPIN)));
    let megabytes_per_s = prober.bandwidth();
    Ok(Measured {
        small_us: (percentile(&small, 50), percentile(&small, 99)),
        small_spinning_us: spinning.map(|times| percentile(&times, 50)),
        page_us: percentile(&page, 50),
        long_lost,
        packet_bytes: mtu.min(PAGE_BYTES + mtu - udp_payload_max(mtu, local.address)),
        safe_mtu,
        megabytes_per_s,
        lost: (prober.lost, prober.sent),
        clock_offset_ns,
        datagram_bytes: prober.datagram_bytes,
        multicast: Some(multicast),
    })
}

fn too_many((lost, of): (usize, usize)) -> bool {
    lost * LOST_ONE_IN > of
}

fn percentile(sorted_us: &[f64], percent: usize) -> f64 {
    sorted_us.get((sorted_us.len() * percent / 100).min(sorted_us.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

impl Prober {
    fn wait_for_peer(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + GIVE_UP;
        while Instant::now() < deadline {
            if self.round_trip(SMALL_BYTES, SMALL_BYTES, Wait::Block).is_some() {
                return Ok(());
            }
        }
        let what = format!("no datagram comes back from {}", self.to);
        Err(Failure::unreachable(what, "let UDP pass the firewalls, or choose --iface and --ports that they let pass"))
    }

    /// Whether the other end answers what is sent to a group. That says nothing of how good the line is, and is not
    /// counted.
    fn multicast(&mut self, group: Group) -> bool {
        (0..MULTICAST_TRIES).any(|_| {
            self.number = self.number.wrapping_add(1);
            let request = self.request_bytes(SMALL_BYTES);
            self.endpoint.send_to(&request[..SMALL_BYTES], SMALL_BYTES, group.address()).is_ok() && self.is_answered()
        })
    }

    /// Whether the answer to the last request comes. Late ones to others are passed over.
    fn is_answered(&mut self) -> bool {
        let expected = [&self.token[..], &self.number.to_be_bytes()].concat();
        while let Ok(Received::Datagrams { len, .. }) =
            self.endpoint.recv(&mut self.buffer, Some(LOSS_WAIT), Wait::Block)
        {
            if self.buffer[..len].starts_with(&expected) {
                return true;
            }
        }
        false
    }

    /// A request, as long as one can be.
    fn request_bytes(&self, wanted: usize) -> [u8; PAGE_BYTES] {
        let mut request = [0; PAGE_BYTES];
        request[..16].copy_from_slice(&self.token);
        request[16..20].copy_from_slice(&self.number.to_be_bytes());
        request[20..24].copy_from_slice(&(wanted as u32).to_be_bytes());
        request[24..28].copy_from_slice(&(self.datagram_bytes as u32).to_be_bytes());
        request
    }

    /// Sends a request of at most [`PAGE_BYTES`] bytes.
    fn request(&mut self, bytes: usize, wanted: usize) -> bool {
        self.number = self.number.wrapping_add(1);
        self.sent += 1;
        let request = self.request_bytes(wanted);
        self.endpoint.send_to(&request[..bytes], bytes, self.to).is_ok()
    }

    /// Receives something from the peer; how many bytes.
    fn receive(&mut self, wait: Wait) -> Option<usize> {
        match self.endpoint.recv(&mut self.buffer, Some(LOSS_WAIT), wait) {
            Ok(Received::Datagrams { from, len, .. }) => Some(if from == self.to { len } else { 0 }),
            _ => None,
        }
    }

    /// One request and its whole answer.
    fn round_trip(&mut self, bytes: usize, wanted: usize, wait: Wait) -> Option<Duration> {
        let start = Instant::now();
        let mut got = 0;
        if self.request(bytes, wanted) {
            while got < wanted {
                match self.receive(wait) {
                    // An answer that is late is none to this question.
                    Some(_) if got == 0 && self.buffer[16..20] != self.number.to_be_bytes() => {}
                    Some(len) => got += len,
                    None => break,
                }
            }
        }
        if got < wanted {
            self.lost += 1;
            // What is still to come of the answer would be taken for the next one's.
            while self.receive(Wait::Block).is_some() {}
            return None;
        }
        Some(start.elapsed())
    }

    /// The times of many round trips with short requests, in order of length.
    fn round_trips(&mut self, wanted: usize, wait: Wait) -> Vec<f64> {
        let mut times = self.rounds(ROUNDS, SMALL_BYTES, wanted, wait);
        times.sort_by(f64::total_cmp);
        times
    }

    /// The times of up to so many round trips; they end early where nothing comes back any more.
    fn rounds(&mut self, most: usize, bytes: usize, wanted: usize, wait: Wait) -> Vec<f64> {
        let (mut times, mut silences) = (Vec::new(), 0);
        for _ in 0..most {
            match self.round_trip(bytes, wanted, wait) {
                Some(time) => {
                    times.push(time.as_nanos() as f64 / 1e3);
                    silences = 0;
                }
                None if silences + 1 == SILENCES_MAX => break,
                None => silences += 1,
            }
        }
        times
    }

    /// Tries packets as long as they may be in both directions; how many exchanges were lost, and of how many.
    fn long_exchanges(&mut self) -> (usize, usize) {
        let (lost, sent) = (self.lost, self.sent);
        self.rounds(LONG_ROUNDS, self.datagram_bytes.min(PAGE_BYTES), PAGE_BYTES, Wait::Block);
        (self.lost - lost, self.sent - sent)
    }

    /// Goes over to the largest of the shorter packets that get through, if any do.
    fn shorten(&mut self, local: IpAddr) -> Option<usize> {
        let usual = self.datagram_bytes;
        for mtu in SAFE_MTUS.into_iter().filter(|mtu| udp_payload_max(*mtu, local) < usual) {
            self.datagram_bytes = udp_payload_max(mtu, local);
            if !too_many(self.long_exchanges()) {
                return Some(mtu);
            }
        }
        self.datagram_bytes = usual;
        None
    }

    /// The peer's clock less ours, by the quickest of some exchanges.
    fn clock_offset(&mut self) -> i64 {
        let mut best = (Duration::MAX, 0);
        for _ in 0..50 {
            let before = wall_ns();
            let Some(trip) = self.round_trip(SMALL_BYTES, SMALL_BYTES, Wait::Block) else { continue };
            let mut theirs = [0; 8];
            theirs.copy_from_slice(&self.buffer[24..HEAD_BYTES]);
            let middle = before + trip.as_nanos() as u64 / 2;
            if trip < best.0 {
                best = (trip, u64::from_be_bytes(theirs).wrapping_sub(middle) as i64);
            }
        }
        best.1
    }

    /// Megabytes a second that come in while a few requests are always on their way.
    fn bandwidth(&mut self) -> f64 {
        let start = Instant::now();
        let (mut asked, mut got, mut given_up, mut silences) = (0, 0, 0, 0);
        while silences < SILENCES_MAX {
            let outstanding = (asked * BULK_BYTES).saturating_sub(got + given_up);
            if asked < BULK_REQUESTS && outstanding <= (BULK_IN_FLIGHT - 1) * BULK_BYTES {
                asked += 1;
                self.request(SMALL_BYTES, BULK_BYTES);
            } else if outstanding == 0 {
                break;
            } else if let Some(len) = self.receive(Wait::Block) {
                got += len;
            } else {
                // What was on its way is lost in part.
                self.lost += 1;
                silences += 1;
                given_up += outstanding;
            }
        }
        got as f64 / 1e6 / start.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_net::select::{Reach, choose};

    #[test]
    fn two_ends_on_one_host_measure_each_other() {
        let lo = choose(None, Reach::ThisHost).unwrap();
        let echo = Echo::start_here(&lo, PortChoice::Any).unwrap();
        let measured = measure(&lo, PortChoice::Any, echo.address, echo.token).unwrap();
        echo.stop();
        assert!(measured.small_us.0 > 0.0 && measured.small_us.0 <= measured.small_us.1, "{measured:?}");
        assert!(measured.page_us > 0.0 && measured.megabytes_per_s > 0.0, "{measured:?}");
        assert!(measured.clock_offset_ns.abs() < 1_000_000_000, "one host has one clock: {measured:?}");
        assert!(measured.lines().iter().any(|(label, _)| *label == "a remote access"));
        assert_eq!(measured.multicast, Some(true), "the loopback carries it");
        assert_eq!(measured.obstacle(), None, "{measured:?}");
    }

    /// What is measured between two ends, where packets of more than so many bytes are dropped on the way there, and on
    /// the way back.
    fn measured_through(there_max: usize, back_max: usize) -> Measured {
        let lo = choose(None, Reach::ThisHost).unwrap();
        let socket = std::net::UdpSocket::bind((lo.address, 0)).unwrap();
        let (address, token) = (socket.local_addr().unwrap(), [5; 16]);
        let serve = move || {
            let mut buffer = [0; 4096];
            while let Ok((len @ 1.., from)) = socket.recv_from(&mut buffer) {
                let Some((head, wanted)) = parse(&buffer[..len], &token).filter(|_| len + 28 <= there_max) else {
                    continue;
                };
                let mut answer = vec![0; wanted as usize];
                answer[..24].copy_from_slice(head);
                let piece = u32::from_be_bytes(buffer[24..28].try_into().unwrap()) as usize;
                for datagram in answer.chunks(piece).filter(|datagram| datagram.len() + 28 <= back_max) {
                    let _ = socket.send_to(datagram, from);
                }
            }
        };
        let server = std::thread::spawn(serve);
        let measured = measure(&lo, PortChoice::Any, address, token).unwrap();
        // An empty datagram ends it.
        std::net::UdpSocket::bind((lo.address, 0)).unwrap().send_to(&[], address).unwrap();
        server.join().unwrap();
        measured
    }

    #[test]
    fn packets_that_do_not_get_through_are_an_obstacle_with_its_remedy() {
        let whole = usize::MAX;
        for (there, back, mtu) in
            [(whole, 1500, 1400), (1500, whole, 1400), (whole, 1300, 1280), (600, whole, 576), (1450, 700, 576)]
        {
            let measured = measured_through(there, back);
            let obstacle = measured.obstacle().unwrap();
            let wanted = format!("those of {mtu} do: start jobs with --mtu {mtu}, or mend");
            assert!(
                obstacle.starts_with("packets of 4124 bytes do not get there and back (5 of 5 were lost)"),
                "{obstacle}"
            );
            assert!(obstacle.contains(&wanted), "{there}, {back}: {obstacle}");
            assert!(measured.page_us > 0.0, "measured with smaller ones: {measured:?}");
        }
    }

    #[test]
    fn where_no_long_packet_comes_the_end_is_near_and_said() {
        for (there, back) in [(usize::MAX, 200), (200, usize::MAX)] {
            let measured = measured_through(there, back);
            assert_eq!(measured.long_lost, (SILENCES_MAX, SILENCES_MAX));
            let obstacle = measured.obstacle().unwrap();
            assert!(obstacle.contains("5 of 5 were lost") && obstacle.contains("nor do those of 576"), "{obstacle}");
            assert!(!obstacle.contains("--mtu"), "{obstacle}");
            assert!(measured.lines().iter().all(|(_, value)| !value.contains("NaN")), "{:?}", measured.lines());
        }
    }

    #[test]
    fn a_stranger_without_the_token_gets_no_answer() {
        let token = [3; 16];
        assert!(parse(&[3; 24], &token).is_some());
        assert!(parse(&[4; 24], &token).is_none());
        assert!(parse(&[3; 23], &token).is_none());
    }
}
