//! The rendezvous in the process that made the id: a thread that listens at the id's address until the job's processes
//! have met.
//!
//! Anybody can connect. Who does not say something with the right tag within a few seconds is sent away, and there are
//! places for a few such at a time.

use crate::error::{Error, Result};
use crate::keys;
use crate::mutex::Mutex;
use comem_net::select::{self, Interface, Reach};
use comem_net::{Clock, threads};
use comem_protocol::ids::NODES_MAX;
use comem_protocol::node::identity::VERSION;
use comem_protocol::node::rendezvous::{
    FRAME_MAX, FromGuest, Gathering, Guest, Nonce, Rejected, SECRET_BYTES, ToGuest, UniqueId,
};
use comem_protocol::time::{Span, Time};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// How many may be here without having said who they are.
const STRANGERS_MAX: usize = 64;
/// For how long.
const STRANGER_LIMIT: Span = Span::from_ms(5_000);
/// How long the thread waits before it tries to accept again, where the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(10);

/// The ids of this process whose job has not started yet.
static MADE: Mutex<Vec<UniqueId>> = Mutex::new(Vec::new());

/// Whether this process made the id, and still listens.
pub(super) fn listens_for(id: &UniqueId) -> bool {
    MADE.lock().contains(id)
}

/// Nobody need listen for an id any more: its job has one process. The thread stays until the process ends.
pub(super) fn forget(id: &UniqueId) {
    MADE.lock().retain(|made| made != id);
}

/// Listens at a free port, and gives the id that leads there.
pub(super) fn listen(secret: [u8; SECRET_BYTES]) -> Result<UniqueId> {
    let interface = interface()?;
    let listener = bind(interface.address).map_err(Error::system("cannot listen for the job's other processes"))?;
    let address = listener.local_addr().map_err(Error::system("cannot find the address of a socket"))?;
    gather(listener, UniqueId::new(secret, address))
}

/// Listens at the port of a given id, on all addresses of this host.
///
/// # Errors
/// The port is taken.
pub(super) fn listen_for(id: UniqueId) -> Result<UniqueId> {
    let port = id.address().port();
    let any: IpAddr = match id.address() {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let listener = TcpListener::bind((any, port)).map_err(|error| {
        Error::Start(format!(
            "cannot listen at port {port}, where the job's processes are to meet: {error}; name another with \
             COMEM_ZERO=HOST:PORT in all of them"
        ))
    })?;
    gather(listener, id)
}

fn gather(listener: TcpListener, id: UniqueId) -> Result<UniqueId> {
    listener.set_nonblocking(true).map_err(Error::system("cannot listen"))?;
    MADE.lock().push(id.clone());
    let rendezvous = Rendezvous::new(listener, id.clone());
    let started = threads::start("comem-meet", move || rendezvous.run());
    started.inspect_err(|_| forget(&id)).map_err(Error::system("cannot gather the job's processes"))?;
    Ok(id)
}

/// The interface to listen at.
fn interface() -> Result<Interface> {
    let wanted = std::env::var("COMEM_IFACE").ok().filter(|iface| !iface.is_empty());
    let chosen = select::choose(wanted.as_deref(), Reach::Network);
    let or_loopback = |error| match wanted {
        None => select::choose(None, Reach::ThisHost).map_err(|_| error),
        Some(_) => Err(error),
    };
    chosen.or_else(or_loopback).map_err(|error| Error::Start(error.to_string()))
}

/// A socket at a free port, of those that `COMEM_PORTS` allows.
fn bind(address: IpAddr) -> io::Result<TcpListener> {
    let allowed = std::env::var("COMEM_PORTS").ok();
    let range = allowed.as_deref().and_then(|text| text.split_once('-'));
    let range = range.and_then(|(low, high)| Some(low.parse::<u16>().ok()?..=high.parse::<u16>().ok()?));
    let Some(range) = range else { return TcpListener::bind((address, 0)) };
    let all: Vec<SocketAddr> = range.map(|port| SocketAddr::new(address, port)).collect();
    TcpListener::bind(&all[..])
}

/// A connection.
struct Visitor {
    guest: Guest,
    stream: TcpStream,
    since: Time,
    /// The nonce that its tags cover.
    ours: Nonce,
    /// The nonce that ours cover, once it has said who it is.
    theirs: Option<Nonce>,
    input: Vec<u8>,
}

impl Visitor {
    /// The next whole frame, without its length; an error if it is too long.
    fn frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((length, rest)) = self.input.split_first_chunk::<2>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if length > FRAME_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.input.drain(..2 + length);
        Ok(Some(frame))
    }

    /// Reads what is there; an error where the connection has ended.
    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; FRAME_MAX];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Sends a message. All that a visitor is ever sent fits the socket's buffer.
    fn tell(&mut self, id: &UniqueId, message: &ToGuest) -> io::Result<()> {
        self.stream.write_all(&message.emit(id, &self.theirs.unwrap_or_default()))
    }
}

struct Rendezvous {
    listener: TcpListener,
    id: UniqueId,
    clock: Clock,
    gathering: Gathering,
    visitors: Vec<Visitor>,
    next: u32,
}

impl Rendezvous {
    fn new(listener: TcpListener, id: UniqueId) -> Rendezvous {
        let gathering = Gathering::new();
        Rendezvous { listener, id, clock: Clock::system(), gathering, visitors: Vec::new(), next: 0 }
    }

    fn run(mut self) {
        while !self.gathering.is_over() {
            self.wait();
            self.accept();
            for index in (0..self.visitors.len()).rev() {
                if self.attend(index).is_err() {
                    let gone = self.visitors.swap_remove(index);
                    self.gathering.on_closed(gone.guest);
                }
            }
            self.gathering.on_timeout(self.clock.now());
            self.send_away_strangers();
            self.send();
        }
        forget(&self.id);
    }

    /// Waits until there is something to do.
    fn wait(&self) {
        let poll = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let visitors = self.visitors.iter().map(|visitor| poll(visitor.stream.as_raw_fd()));
        let mut all: Vec<libc::pollfd> = std::iter::once(poll(self.listener.as_raw_fd())).chain(visitors).collect();
        let strangers = self.strangers().map(|visitor| visitor.since + STRANGER_LIMIT);
        let due = self.gathering.next_timeout().into_iter().chain(strangers).min();
        let timeout_ms = due.map_or(-1, |at| (at - self.clock.now()).0.div_ceil(1_000_000).min(60_000) as i32);
        // SAFETY: the pointer and the length describe `all`, which outlives the call.
        unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, timeout_ms) };
    }

    fn strangers(&self) -> impl Iterator<Item = &Visitor> {
        self.visitors.iter().filter(|visitor| visitor.theirs.is_none())
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let is_full = self.strangers().count() >= STRANGERS_MAX;
                    if !is_full && self.visitors.len() < NODES_MAX + STRANGERS_MAX {
                        self.greet(stream);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return std::thread::sleep(PAUSE),
            }
        }
    }

    fn greet(&mut self, stream: TcpStream) {
        self.next += 1;
        let (guest, since, ours) = (Guest(self.next), self.clock.now(), keys::random());
        let mut visitor = Visitor { guest, stream, since, ours, theirs: None, input: Vec::new() };
        let ready = visitor.stream.set_nonblocking(true).and_then(|()| visitor.stream.set_nodelay(true));
        if ready.and_then(|()| visitor.tell(&self.id, &ToGuest::Hello { version: VERSION, nonce: ours })).is_ok() {
            self.visitors.push(visitor);
        }
    }

    /// Hears a visitor; an error where it is to go.
    fn attend(&mut self, index: usize) -> io::Result<()> {
        let (visitor, now) = (&mut self.visitors[index], self.clock.now());
        let ended = visitor.fill();
        while let Some(frame) = visitor.frame()? {
            match FromGuest::parse(&frame, &self.id, &visitor.ours) {
                Ok(FromGuest::Arrival(arrival)) if visitor.theirs.is_none() => {
                    visitor.theirs = Some(arrival.nonce);
                    self.gathering.on_arrival(now, visitor.guest, arrival);
                }
                Ok(FromGuest::Address(address)) => self.gathering.on_address(visitor.guest, address),
                Ok(FromGuest::Arrival(_)) | Err(Rejected::Wire(_)) => return Err(io::ErrorKind::InvalidData.into()),
                Err(Rejected::Tag) => {
                    visitor.tell(&self.id, &ToGuest::WrongKey)?;
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
            }
        }
        ended
    }

    fn send_away_strangers(&mut self) {
        let now = self.clock.now();
        self.visitors.retain(|visitor| visitor.theirs.is_some() || visitor.since + STRANGER_LIMIT > now);
    }

    fn send(&mut self) {
        while let Some((guest, message)) = self.gathering.poll_reply() {
            // Whoever cannot be told is gone, which the next look at its connection shows.
            if let Some(visitor) = self.visitors.iter_mut().find(|visitor| visitor.guest == guest) {
                let _ = visitor.tell(&self.id, &message);
            }
        }
    }
}
