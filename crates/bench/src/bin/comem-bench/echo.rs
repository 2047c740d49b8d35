//! The baseline: two processes with a plain UDP socket each, one asking, one answering, with Comem's way of waiting.
//!
//! The answering side also takes part in what is measured: a datagram may ask it to pass barriers or to take a lock.
//! What such a thing takes with plain sockets is measured beside it: a barrier is a datagram each way at the same time,
//! a lock that is waited for a datagram one way.
//! Whole pages, and long runs of them, are asked for and sent as cheaply as plain sockets can ([`bulk`]).

use crate::shared::bulk;
use comem_protocol::tuning::WaitTuning;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes in each datagram: about what a small request of Comem has.
pub const BYTES: usize = 64;

/// How long Comem spins before it blocks, so the baseline spins as long.
const SPIN: Duration = Duration::from_micros(WaitTuning::DEFAULT.spin_us);

/// How long whoever has a token or a lock keeps it, so that the other side waits for it.
pub const HOLD: Duration = Duration::from_micros(120);

/// How long to wait for a datagram: the other side may be long at what it was asked before.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Spin first, then block.
    Spin,
    /// Block at once.
    Block,
}

/// What a datagram asks the answering side to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Send it back.
    Echo,
    /// Send it back, then pass so many barriers.
    Barriers(u32),
    /// Take and release this lock, then send it back.
    Lock(u32),
    /// Write every unit of the objects that are measured, then send it back.
    Take,
    /// Send it back, then take and release a lock so many times, holding it a while each time.
    Queue(u32),
    /// Send it back, then pass so many barriers of plain datagrams.
    Meet(u32),
    /// Send it back, then wait for a token, hold it a while and give it back, so many times.
    Pass(u32),
    /// Send so many pages of other contents than the last.
    Pages(u32),
    /// Send it back, then take part in so many rounds of a measurement, in each of which so many pages change.
    Rounds {
        /// How many rounds.
        count: u16,
        /// How many pages.
        pages: u16,
    },
    /// Send it back and stop.
    Stop,
}

impl Request {
    fn to_bytes(self) -> [u8; BYTES] {
        let (kind, number) = match self {
            Request::Echo => (0, 0),
            Request::Barriers(count) => (1, count),
            Request::Lock(lock) => (2, lock),
            Request::Stop => (3, 0),
            Request::Queue(count) => (4, count),
            Request::Pages(count) => (5, count),
            Request::Take => (7, 0),
            Request::Meet(count) => (8, count),
            Request::Pass(count) => (9, count),
            Request::Rounds { count, pages } => (6, u32::from(count) << 16 | u32::from(pages)),
        };
        let mut bytes = [0; BYTES];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&u32::to_be_bytes(number));
        bytes
    }

    /// What a datagram says; anything unknown is an echo.
    fn from_bytes(bytes: &[u8]) -> Request {
        let number = bytes.get(1..5).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        match bytes.first() {
            Some(1) => Request::Barriers(number),
            Some(2) => Request::Lock(number),
            Some(3) => Request::Stop,
            Some(4) => Request::Queue(number),
            Some(5) => Request::Pages(number),
            Some(6) => Request::Rounds { count: (number >> 16) as u16, pages: number as u16 },
            Some(7) => Request::Take,
            Some(8) => Request::Meet(number),
            Some(9) => Request::Pass(number),
            _ => Request::Echo,
        }
    }
}

/// A plain socket, its way of waiting, and the other side.
#[derive(Debug)]
pub struct Peer {
    socket: UdpSocket,
    wait: Wait,
    /// What is sent where pages are asked for: pages in turn, as a program's pages are not in the cache either.
    pages: Vec<u8>,
    next: AtomicUsize,
}

impl Peer {
    /// Binds a socket on this machine.
    pub fn bind(wait: Wait) -> io::Result<Peer> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        bulk::prepare(&socket)?;
        Ok(Peer { socket, wait, pages: Vec::new(), next: AtomicUsize::new(0) })
    }

    /// Sends from so many pages where pages are asked for.
    pub fn with_pages(self, count: usize) -> Peer {
        Peer { pages: vec![0x5a; count * bulk::PAGE_BYTES], ..self }
    }

    /// The socket's port.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Talks to this port from now on.
    pub fn connect(&self, port: u16) -> io::Result<()> {
        self.socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    fn receive(&self, wait: Wait, bytes: &mut [u8]) -> io::Result<usize> {
        if wait == Wait::Spin {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                match self.receive_at_once(bytes) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                    result => return result,
                }
            }
        }
        self.socket.recv(bytes)
    }

    /// Receives what is there: one system call, and none to change the socket.
    fn receive_at_once(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let (socket, place) = (self.socket.as_raw_fd(), bytes.as_mut_ptr().cast());
        // SAFETY: the call writes to the bytes alone, at most as many as there are.
        let got = unsafe { libc::recv(socket, place, bytes.len(), libc::MSG_DONTWAIT) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Sends a request and waits for its echo.
    pub fn ask(&self, request: Request) -> io::Result<()> {
        let mut bytes = request.to_bytes();
        self.socket.send(&bytes)?;
        self.receive(self.wait, &mut bytes).map(drop)
    }

    /// Passes a barrier of plain datagrams: each side tells the other, and waits for the other.
    pub fn meet(&self) -> io::Result<()> {
        self.socket.send(&Request::Echo.to_bytes())?;
        self.receive(self.wait, &mut [0; BYTES]).map(drop)
    }

    /// Gives the other side the token, after a while; tells when.
    fn give(&self) -> io::Result<()> {
        let begin = host_ns();
        while host_ns() - begin < HOLD.as_nanos() as u64 {
            std::hint::spin_loop();
        }
        let mut bytes = Request::Echo.to_bytes();
        bytes[8..16].copy_from_slice(&host_ns().to_be_bytes());
        self.socket.send(&bytes).map(drop)
    }

    /// Waits for the token; gives the microseconds since the other side gave it.
    fn take(&self) -> io::Result<f64> {
        let mut bytes = [0; BYTES];
        self.receive(self.wait, &mut bytes)?;
        let given = bytes[8..16].try_into().map_or(0, u64::from_be_bytes);
        Ok(host_ns().saturating_sub(given) as f64 / 1e3)
    }

    /// Hands a token over to the other side, which was asked to [`Request::Pass`] it, and back, so many times; gives
    /// how long each way back took, in microseconds.
    pub fn pass(&self, rounds: usize) -> io::Result<Vec<f64>> {
        (0..rounds).map(|_| self.give().and_then(|()| self.take())).collect()
    }

    /// Asks for a page and waits for it.
    pub fn fetch_page(&self, page: &mut [u8]) -> io::Result<()> {
        self.socket.send(&Request::Pages(1).to_bytes())?;
        match self.receive(self.wait, page)? {
            bulk::PAGE_BYTES => Ok(()),
            other => Err(io::Error::other(format!("{other} bytes came instead of a page"))),
        }
    }

    /// Asks for as many pages as `into` holds, in runs, two of them on their way at a time.
    pub fn fetch_stream(&self, into: &mut [u8]) -> io::Result<()> {
        let (mut asked, mut got) = (0, 0);
        while got < into.len() {
            while asked < into.len() && asked - got <= bulk::RUN_BYTES {
                let run = bulk::RUN_BYTES.min(into.len() - asked);
                self.socket.send(&Request::Pages((run / bulk::PAGE_BYTES) as u32).to_bytes())?;
                asked += run;
            }
            got += self.receive(self.wait, &mut into[got..])?;
        }
        Ok(())
    }

    fn send_pages(&self, count: usize) -> io::Result<()> {
        let bytes = (count * bulk::PAGE_BYTES).min(self.pages.len());
        let next = self.next.load(Ordering::Relaxed);
        let start = if next + bytes > self.pages.len() { 0 } else { next };
        self.next.store(start + bytes, Ordering::Relaxed);
        bulk::send(&self.socket, &self.pages[start..start + bytes])
    }

    /// Answers requests until it is told to stop; `act` does what those besides echoes ask for.
    pub fn serve(&self, act: impl Fn(Request)) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        let mut wait = self.wait;
        loop {
            match self.receive(wait, &mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                result => result?,
            };
            let request = Request::from_bytes(&bytes);
            // After a lock the service thread of this node works on this core: out of its way.
            wait = if matches!(request, Request::Lock(_)) { Wait::Block } else { self.wait };
            if matches!(request, Request::Lock(_) | Request::Take) {
                act(request);
            }
            if let Request::Pages(count) = request {
                self.send_pages(count as usize)?;
                continue;
            }
            self.socket.send(&bytes)?;
            match request {
                Request::Barriers(_) | Request::Queue(_) | Request::Rounds { .. } => act(request),
                Request::Meet(count) => (0..count).try_for_each(|_| self.meet())?,
                Request::Pass(count) => (0..count).try_for_each(|_| self.take().and_then(|_| self.give()))?,
                Request::Stop => return Ok(()),
                Request::Echo | Request::Lock(_) | Request::Take | Request::Pages(_) => {}
            }
        }
    }
}

/// The host's monotonic clock: all its processes see the same.
pub fn host_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn requests_survive_the_way() {
        use Request::*;
        let rounds = Rounds { count: 40_000, pages: 3 };
        for request in [Echo, Barriers(77), Lock(u32::MAX), Queue(1), Meet(2), Pass(9), Pages(60), rounds, Take, Stop] {
            assert_eq!(Request::from_bytes(&request.to_bytes()), request);
        }
        assert_eq!(Request::from_bytes(&[]), Request::Echo);
    }

    #[test]
    fn the_other_side_does_what_it_is_asked() {
        for wait in [Wait::Spin, Wait::Block] {
            let (here, there) = (Peer::bind(wait).unwrap(), Peer::bind(wait).unwrap());
            here.connect(there.port().unwrap()).unwrap();
            there.connect(here.port().unwrap()).unwrap();
            let sum = AtomicU32::new(0);
            let act = |request| match request {
                Request::Barriers(n) | Request::Lock(n) | Request::Queue(n) => drop(sum.fetch_add(n, Ordering::SeqCst)),
                _ => panic!("nothing to do"),
            };
            std::thread::scope(|scope| {
                scope.spawn(|| there.serve(act).unwrap());
                let lock = Request::Lock(3);
                for request in [Request::Echo, lock, Request::Barriers(20), lock, Request::Queue(100), Request::Stop] {
                    here.ask(request).unwrap();
                }
            });
            assert_eq!(sum.into_inner(), 126);
        }
    }

    #[test]
    fn both_sides_meet_and_hand_a_token_over() {
        for wait in [Wait::Spin, Wait::Block] {
            let (here, there) = (Peer::bind(wait).unwrap(), Peer::bind(wait).unwrap());
            here.connect(there.port().unwrap()).unwrap();
            there.connect(here.port().unwrap()).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| there.serve(|_| ()).unwrap());
                here.ask(Request::Meet(30)).unwrap();
                (0..30).for_each(|_| here.meet().unwrap());
                here.ask(Request::Pass(5)).unwrap();
                let times = here.pass(5).unwrap();
                assert_eq!(times.len(), 5);
                assert!(times.iter().all(|us| (0.0..1e6 * PATIENCE.as_secs_f64()).contains(us)), "{times:?}");
                here.ask(Request::Stop).unwrap();
            });
        }
    }

    #[test]
    fn pages_come_one_by_one_and_in_a_stream() {
        let (here, there) = (Peer::bind(Wait::Block).unwrap(), Peer::bind(Wait::Block).unwrap().with_pages(130));
        here.connect(there.port().unwrap()).unwrap();
        there.connect(here.port().unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| there.serve(|_| ()).unwrap());
            let (mut page, mut many) = (vec![0; bulk::PAGE_BYTES], vec![0; 130 * bulk::PAGE_BYTES]);
            here.fetch_page(&mut page).unwrap();
            here.fetch_stream(&mut many).unwrap();
            here.ask(Request::Stop).unwrap();
            assert!(page.iter().chain(&many).all(|byte| *byte == 0x5a));
        });
    }
}
