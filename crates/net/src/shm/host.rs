//! What the endpoints of one process share: the lanes to others, and the porter.
//!
//! The *porter* is a thread that sleeps until something happens that is not the daily traffic:
//!
//! - A process wants to send to one of our endpoints. Each endpoint has a *door*: a listening local socket whose name,
//!   in the abstract name space, follows from its address, and from the job's key where there is one: nobody else can
//!   take the name beforehand. The porter makes a lane and hands it, and the bell, over. Only the same user is served.
//! - A lane that we asked for is handed over.
//! - The connection of such a hand-over, which both sides keep, ends: the other process is gone. Its lane is closed, or
//!   what we send there takes UDP again, which reports the closed port.
//! - An endpoint's UDP socket, or a listener, has something. A receiver sleeps on its bell and does not hear that, so
//!   the porter sets a mark and rouses it.
//!
//! Memory files without a name and abstract socket names vanish with the processes that hold them, however these
//! end: nothing is left behind.

use super::ShmEndpoint;
use super::doorbell::{DOORBELL_BYTES, Doorbell};
use super::inbox::Inbox;
use super::lane::{self, LANE_BYTES, Producer};
use super::outside::Outside;
use super::peers::{Lane, Peer, Peers};
use super::sys::{self, Watch};
use crate::{Endpoint, PortChoice, threads};
use comem_protocol::auth::{Receiver, Sealer};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many processes may wait at a door.
const DOOR_BACKLOG: i32 = 128;
/// How long a door stays shut when nobody could be let in: mostly the process has no descriptor left.
const SHUT: Duration = Duration::from_millis(100);
/// How often a caller who waits for lanes looks whether one must be asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(5);
const STOP: u64 = 0;

/// What accompanies a lane: enough to refuse one that is laid out otherwise.
fn hand_over_text(lane: usize) -> [u8; 16] {
    let mut text = *b"comem-lane1\0\0\0\0\0";
    text[11] = lane as u8;
    text[12..].copy_from_slice(&(LANE_BYTES as u32).to_ne_bytes());
    text
}

fn door_name(address: SocketAddr, sealer: &Sealer) -> io::Result<SockAddr> {
    let plain = format!("\0comem-shm-{}-{}", address.ip(), address.port());
    let tag = sealer.tag(b"door", Receiver::Port(address.port()));
    SockAddr::unix(tag.map_or(plain.clone(), |tag| format!("{plain}-{:032x}", u128::from_ne_bytes(tag))))
}

fn local_socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking(), None)
}

/// A descriptor that the porter watches.
#[derive(Debug)]
enum Source {
    /// A socket that is read elsewhere.
    Ear {
        inbox: Arc<Inbox>,
        fd: RawFd,
    },
    Door {
        inbox: Arc<Inbox>,
        door: Socket,
    },
    /// The line to the producer of a lane of ours.
    Producer {
        inbox: Arc<Inbox>,
        lane: usize,
        line: Socket,
    },
    /// The line to the owner of a lane that we use, or asked for.
    Owner {
        peer: SocketAddr,
        line: Socket,
    },
}

impl Source {
    fn fd(&self) -> RawFd {
        match self {
            Source::Ear { fd, .. } => *fd,
            Source::Door { door, .. } => door.as_raw_fd(),
            Source::Producer { line, .. } | Source::Owner { line, .. } => line.as_raw_fd(),
        }
    }

    fn inbox(&self) -> Option<&Arc<Inbox>> {
        match self {
            Source::Ear { inbox, .. } | Source::Door { inbox, .. } | Source::Producer { inbox, .. } => Some(inbox),
            Source::Owner { .. } => None,
        }
    }
}

#[derive(Debug, Default)]
struct Sources {
    last: u64,
    all: HashMap<u64, Source>,
}

#[derive(Debug)]
struct Shared {
    watch: Watch,
    stop: OwnedFd,
    sources: Mutex<Sources>,
    /// A lane was handed over or refused.
    settled: Condvar,
    peers: Peers,
    /// Of what takes UDP, and of the doors' names.
    sealer: Sealer,
}

/// The shared memory of one process with the others of its job on this host.
#[derive(Debug)]
pub struct ShmHost {
    shared: Arc<Shared>,
    porter: Option<JoinHandle<()>>,
}

impl ShmHost {
    /// As [`ShmHost::open_sealed`], without a key.
    ///
    /// # Errors
    /// As there.
    pub fn open() -> io::Result<Arc<ShmHost>> {
        ShmHost::open_sealed(&Sealer::default())
    }

    /// Starts the porter. What takes UDP carries a tag under a key that follows from the sealer's.
    ///
    /// # Errors
    /// The system refuses a thread or a descriptor.
    pub fn open_sealed(sealer: &Sealer) -> io::Result<Arc<ShmHost>> {
        let (watch, stop) = (Watch::new()?, sys::event_counter()?);
        watch.add(stop.as_raw_fd(), sys::READABLE, STOP)?;
        let (sources, settled, peers) = (Mutex::default(), Condvar::new(), Peers::new());
        let sealer = sealer.derive("comem 2026 datagrams beside shared memory");
        let shared = Arc::new(Shared { watch, stop, sources, settled, peers, sealer });
        let theirs = Arc::clone(&shared);
        let porter = threads::start("comem-porter", move || theirs.attend())?;
        Ok(Arc::new(ShmHost { shared, porter: Some(porter) }))
    }

    /// Opens an endpoint; its UDP socket, which reserves the port, is bound as [`Endpoint::bind`] does.
    ///
    /// # Errors
    /// As [`Endpoint::bind`], or the system refuses shared memory; the text says what to do.
    pub fn bind(self: &Arc<Self>, address: IpAddr, port: PortChoice) -> io::Result<ShmEndpoint> {
        self.adopt(Endpoint::bind(address, port)?)
    }

    /// Makes an endpoint of a UDP endpoint.
    ///
    /// # Errors
    /// The system refuses shared memory; the text says what to do.
    pub fn adopt(self: &Arc<Self>, udp: Endpoint) -> io::Result<ShmEndpoint> {
        let address = crate::Datagrams::local_addr(&udp);
        let explain = |what: &str, e: io::Error| {
            let text = format!("{what} for {address}: {e}; use the backbone udp instead");
            io::Error::new(e.kind(), text)
        };
        let bell = sys::memory_file(c"comem-bell", DOORBELL_BYTES).map_err(|e| explain("no shared memory", e))?;
        let door = open_door(address, &self.shared.sealer).map_err(|e| explain("no local socket", e))?;
        let udp_fd = udp.as_fd().as_raw_fd();
        let inbox = Arc::new(Inbox::new(Outside::new(udp, self.shared.sealer.clone()), address, bell)?);
        let endpoint = ShmEndpoint::new(Arc::clone(self), Arc::clone(&inbox));
        self.listen_for(&inbox, udp_fd)?;
        self.shared.add(Source::Door { inbox, door }, sys::NEXT)?;
        Ok(endpoint)
    }

    /// Lets an inbox hear of a socket that is received from elsewhere; for as long as the endpoint lives.
    pub(super) fn listen_for(&self, inbox: &Arc<Inbox>, fd: RawFd) -> io::Result<()> {
        self.shared.add(Source::Ear { inbox: Arc::clone(inbox), fd }, sys::CHANGES)
    }

    /// Closes an endpoint's door and lines.
    pub(super) fn close(&self, inbox: &Arc<Inbox>) {
        let mut sources = self.shared.lock();
        let ours = |source: &Source| source.inbox().is_some_and(|other| Arc::ptr_eq(other, inbox));
        for (_, source) in sources.all.extract_if(|_, source| ours(source)) {
            self.shared.watch.remove(source.fd());
        }
    }

    /// The peer of an address; `None` when there is no place for another one.
    #[inline]
    pub(super) fn peer(&self, address: SocketAddr) -> Option<&Peer> {
        self.shared.peers.of(address)
    }

    /// Lets the porter end.
    pub(super) fn retire(&self) {
        sys::raise(self.shared.stop.as_fd());
    }

    /// Asks for a lane, without waiting for it.
    #[cold]
    pub(super) fn ask(&self, peer: &Peer) {
        if self.shared.ask(peer).is_err() {
            peer.close();
        }
    }

    /// Asks for lanes to all these addresses and waits until they are there, for so long at most. Sending asks by
    /// itself, so this only saves the first datagrams the way by UDP. Gives how many are there.
    pub fn connect(&self, addresses: &[SocketAddr], timeout: Duration) -> usize {
        let start = Instant::now();
        loop {
            let peers = || addresses.iter().filter_map(|address| self.peer(*address));
            peers().filter(|peer| peer.wants_asking()).for_each(|peer| self.ask(peer));
            let sources = self.shared.lock();
            let open = peers().filter(|peer| peer.has_lane()).count();
            if open == addresses.len() || start.elapsed() >= timeout {
                return open;
            }
            drop(self.shared.settled.wait_timeout(sources, ASK_AGAIN));
        }
    }
}

impl Drop for ShmHost {
    fn drop(&mut self) {
        self.retire();
        if let Some(porter) = self.porter.take() {
            // It ends only by returning; a panic in it was told on standard error and must not become ours.
            drop(porter.join());
        }
    }
}

fn open_door(address: SocketAddr, sealer: &Sealer) -> io::Result<Socket> {
    let door = local_socket()?;
    door.bind(&door_name(address, sealer)?)?;
    door.listen(DOOR_BACKLOG)?;
    Ok(door)
}

fn same_user(line: &Socket) -> io::Result<()> {
    match sys::peer_user(line.as_fd())? == sys::own_user() {
        true => Ok(()),
        false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, source: Source, events: u32) -> io::Result<()> {
        self.add_to(&mut self.lock(), source, events)
    }

    fn add_to(&self, sources: &mut Sources, source: Source, events: u32) -> io::Result<()> {
        sources.last += 1;
        self.watch.add(source.fd(), events, sources.last)?;
        sources.all.insert(sources.last, source);
        Ok(())
    }

    fn ask(&self, peer: &Peer) -> io::Result<()> {
        let line = local_socket()?;
        line.connect(&door_name(peer.address, &self.sealer)?)?;
        same_user(&line)?;
        self.add(Source::Owner { peer: peer.address, line }, sys::READABLE)
    }

    /// The porter's work.
    fn attend(&self) {
        let mut room = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let mut shut: VecDeque<(Instant, u64)> = VecDeque::new();
        loop {
            let limit = shut.front().map(|(until, _)| until.saturating_duration_since(Instant::now()));
            for number in self.watch.wait(&mut room, limit) {
                if number == STOP {
                    return;
                }
                if !self.on_event(number) {
                    shut.push_back((Instant::now() + SHUT, number));
                }
            }
            while let Some((_, number)) = shut.front().copied().filter(|(until, _)| *until <= Instant::now()) {
                shut.pop_front();
                self.open_again(&self.lock(), number);
            }
        }
    }

    /// False if this is a door that must stay shut for a while.
    fn on_event(&self, number: u64) -> bool {
        let mut sources = self.lock();
        // Removed meanwhile, if it is not there.
        match sources.all.get(&number) {
            Some(Source::Ear { inbox, .. }) => inbox.hear_udp(),
            Some(Source::Door { inbox, door }) => {
                let Ok((line, _)) = door.accept() else { return false };
                let inbox = Arc::clone(inbox);
                self.open_again(&sources, number);
                // Who cannot be served sees the line end, and uses UDP.
                drop(self.serve(&mut sources, inbox, line));
            }
            Some(Source::Producer { inbox, lane, .. }) => {
                inbox.close_lane(*lane);
                self.forget(&mut sources, number);
            }
            Some(Source::Owner { peer, line }) => {
                let Some(peer) = self.peers.of(*peer) else { return true };
                let lane = if peer.has_lane() { None } else { receive_lane(line) };
                match lane {
                    Some(lane) => peer.open(lane),
                    None => {
                        peer.close();
                        self.forget(&mut sources, number);
                    }
                }
                self.settled.notify_all();
            }
            None => {}
        }
        true
    }

    /// Lets the next one come to a door, if it is still there.
    fn open_again(&self, sources: &Sources, number: u64) {
        if let Some(source) = sources.all.get(&number) {
            // It is watched, and changing that takes nothing.
            drop(self.watch.again(source.fd(), sys::NEXT, number));
        }
    }

    fn forget(&self, sources: &mut Sources, number: u64) {
        if let Some(source) = sources.all.remove(&number) {
            self.watch.remove(source.fd());
        }
    }

    /// Hands a new lane to a process that came to an inbox's door.
    fn serve(&self, sources: &mut Sources, inbox: Arc<Inbox>, line: Socket) -> io::Result<()> {
        same_user(&line)?;
        let file = sys::memory_file(c"comem-lane", LANE_BYTES)?;
        let lane = inbox
            .add_lane(lane::Consumer::new(file.as_fd())?)
            .ok_or_else(|| io::Error::from(io::ErrorKind::QuotaExceeded))?;
        let handed = sys::hand_over(line.as_fd(), &hand_over_text(lane), [inbox.bell_file(), file.as_fd()]);
        let watched = handed.and_then(|()| {
            let source = Source::Producer { inbox: Arc::clone(&inbox), lane, line };
            self.add_to(sources, source, sys::GONE)
        });
        if watched.is_err() {
            inbox.close_lane(lane);
        }
        watched
    }
}

/// Takes the lane that was asked for; `None` when the line has ended, or something else came.
fn receive_lane(line: &Socket) -> Option<Lane> {
    let mut text = [0; 16];
    let (len, files) = sys::take_over(line.as_fd(), &mut text).ok()?;
    let [bell, lane] = files?;
    let index = usize::from(text[11]);
    if len != text.len() || text != hand_over_text(index) || index >= super::doorbell::LANES_MAX {
        return None;
    }
    let (bell, producer) = (Doorbell::new(bell.as_fd()).ok()?, Producer::new(lane.as_fd()).ok()?);
    Some(Lane { producer, bell, index })
}
