//! The sending side: for each address the way there, a lane once it was handed over, and UDP until then.

use super::doorbell::Doorbell;
use super::lane::Producer;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How many addresses are kept; what goes to others takes UDP.
const PEERS_MAX: usize = 1 << 10;
/// How many places are tried for an address.
const PROBES: usize = 32;
/// How long an address that has no lane is left alone, at first and at most.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a sender tries for room in a lane that is full.
const ROOM_WAIT: Duration = Duration::from_micros(20);

/// The way to an address.
#[derive(Debug)]
enum Way {
    /// No lane; to be asked for from this moment on.
    Udp { ask_from: Option<Instant> },
    /// A lane was asked for.
    Asked,
    /// A lane.
    Lane(Lane),
}

/// A lane of somebody's inbox, and the bell that belongs to it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) producer: Producer,
    pub(super) bell: Doorbell,
    pub(super) index: usize,
}

/// What came of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// It lies in the lane.
    Yes,
    /// It lies in the lane of one who sleeps and has looked so often before.
    Unheard(u32),
    /// The lane is full.
    NoRoom,
    /// There is no lane yet.
    NoLane,
    /// There is no lane, and the caller must ask for one now.
    Ask,
}

/// An address that something was sent to.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    way: Way,
    /// How long to leave the address alone after the next refusal.
    pause: Duration,
}

impl Peer {
    fn new(address: SocketAddr) -> Peer {
        let state = State { way: Way::Udp { ask_from: None }, pause: PAUSE_FIRST };
        Peer { address, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a record, if there is a lane.
    #[inline]
    pub(super) fn send(&self, bytes: &[u8], segment: usize, port: u16) -> Sent {
        let sent = self.send_softly(bytes, segment, port);
        if matches!(sent, Sent::Unheard(_)) {
            self.rouse();
            return Sent::Yes;
        }
        sent
    }

    /// As [`Peer::send`], but rouses nobody: [`Sent::Unheard`] says that the caller must see to it.
    #[inline]
    pub(super) fn send_softly(&self, bytes: &[u8], segment: usize, port: u16) -> Sent {
        let mut state = self.lock();
        match &mut state.way {
            Way::Lane(lane) => lane.send(bytes, segment, port),
            _ => state.ask(),
        }
    }

    /// Rouses whoever sleeps there.
    #[cold]
    pub(super) fn rouse(&self) {
        if let Way::Lane(lane) = &self.lock().way {
            lane.bell.rouse();
        }
    }

    /// Whether what was sent last lies there unheard while somebody sleeps, and how often somebody has looked.
    pub(super) fn unheard(&self) -> Option<u32> {
        match &self.lock().way {
            Way::Lane(lane) if lane.bell.is_unheard(lane.index) => Some(lane.bell.glances()),
            _ => None,
        }
    }

    /// Whether a lane is to be asked for now: then the caller does so.
    pub(super) fn wants_asking(&self) -> bool {
        self.lock().ask() == Sent::Ask
    }

    /// A lane was handed over.
    pub(super) fn open(&self, lane: Lane) {
        let mut state = self.lock();
        state.way = Way::Lane(lane);
        state.pause = PAUSE_FIRST;
    }

    /// There is no lane, or no longer.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.way = Way::Udp { ask_from: Some(Instant::now() + state.pause) };
        state.pause = (state.pause * 2).min(PAUSE_MAX);
    }

    pub(super) fn has_lane(&self) -> bool {
        matches!(self.lock().way, Way::Lane(_))
    }
}

impl State {
    fn ask(&mut self) -> Sent {
        match self.way {
            Way::Udp { ask_from } if ask_from.is_none_or(|at| Instant::now() >= at) => {
                self.way = Way::Asked;
                Sent::Ask
            }
            _ => Sent::NoLane,
        }
    }
}

impl Lane {
    #[inline]
    fn send(&mut self, bytes: &[u8], segment: usize, port: u16) -> Sent {
        if !self.producer.push(bytes, segment, port) && !self.push_later(bytes, segment, port) {
            return Sent::NoRoom;
        }
        let glances = self.bell.glances();
        if self.bell.ring_softly(self.index) { Sent::Unheard(glances) } else { Sent::Yes }
    }

    /// Tries for a short time. The bell makes the receiver look, and set right a position that somebody damaged.
    #[cold]
    fn push_later(&mut self, bytes: &[u8], segment: usize, port: u16) -> bool {
        let start = Instant::now();
        self.bell.ring(self.index);
        while start.elapsed() < ROOM_WAIT {
            std::thread::yield_now();
            if self.producer.push(bytes, segment, port) {
                return true;
            }
        }
        false
    }
}

/// All peers of a process. An address keeps its place for ever, so finding it takes no lock.
#[derive(Debug)]
pub(super) struct Peers {
    places: Box<[OnceLock<Box<Peer>>]>,
}

impl Peers {
    pub(super) fn new() -> Peers {
        Peers { places: (0..PEERS_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// The peer of an address; `None` when there is no place for another one.
    #[inline]
    pub(super) fn of(&self, address: SocketAddr) -> Option<&Peer> {
        let first = usize::from(address.port());
        (first..first + PROBES)
            .map(|place| self.places[place % PEERS_MAX].get_or_init(|| Box::new(Peer::new(address))))
            .find(|peer| peer.address == address)
            .map(Box::as_ref)
    }
}
