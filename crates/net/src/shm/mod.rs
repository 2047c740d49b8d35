//! The backbone `shm`: datagrams between the processes of one host through shared memory.
//!
//! An endpoint is named by an address, as with `udp`, and has a UDP socket there, which reserves the name. A process
//! that sends to it gets a *lane* from it: a ring in memory that both map (`lane`), and the endpoint's *bell*
//! (`doorbell`). From then on a datagram is copied into the lane and out of it, and no system call is made unless the
//! receiver sleeps. Until then, and to whoever has no lanes (other hosts, groups, programs that speak `udp`), datagrams
//! take UDP.
//!
//! A lane is memory without a name whose descriptor is handed to a process of the same user alone, so what comes by
//! it needs no tag. The UDP socket is
//! open to every user of the host: what goes that way carries a tag where the endpoints have a key
//! ([`ShmHost::open_sealed`]).
//!
//! As with UDP, datagrams may be lost, when a lane is full, and may overtake each other, when the first went by UDP.
//! [`ShmHost`] says how lanes are handed over, how an end is noticed, and what becomes of everything when a process
//! is killed.

mod doorbell;
mod host;
mod inbox;
mod lane;
mod outside;
mod peers;
mod probe;
mod sys;

pub(crate) use doorbell::LANES_MAX;
pub use host::ShmHost;
pub use probe::probe;

use crate::{BATCH_BYTES_MAX, Datagrams, Interface, Listener, Received, Wait};
use inbox::Inbox;
use peers::{Peer, Sent};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A good size for datagrams in shared memory: large messages stay whole.
pub const DATAGRAM_BYTES: usize = 60 << 10;

/// An endpoint in shared memory.
#[derive(Debug)]
pub struct ShmEndpoint {
    host: Arc<ShmHost>,
    inbox: Arc<Inbox>,
    /// Whom patient sends have left asleep, and how often they had looked by then.
    unheard: Mutex<Vec<(SocketAddr, u32)>>,
    /// Whether there are any.
    owes: AtomicBool,
}

impl ShmEndpoint {
    fn new(host: Arc<ShmHost>, inbox: Arc<Inbox>) -> ShmEndpoint {
        ShmEndpoint { host, inbox, unheard: Mutex::default(), owes: AtomicBool::new(false) }
    }

    /// As [`reach_groups`](crate::Endpoint::reach_groups) of a UDP endpoint: groups are reached by UDP.
    ///
    /// # Errors
    /// What the system says.
    pub fn reach_groups(&self, interface: &Interface) -> io::Result<()> {
        self.inbox.outside.udp.reach_groups(interface)
    }

    fn unheard(&self) -> MutexGuard<'_, Vec<(SocketAddr, u32)>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn settle_each(&self, patient: bool) {
        let mut unheard = self.unheard();
        unheard.retain_mut(|(to, before)| {
            let Some(peer) = self.peer(*to) else { return false };
            let Some(glances) = peer.unheard() else { return false };
            // Somebody has looked since and will look again.
            if patient && std::mem::replace(before, glances) != glances {
                return true;
            }
            peer.rouse();
            false
        });
        self.owes.store(!unheard.is_empty(), Relaxed);
    }

    /// The peer of an address that may have lanes: of this host's own address.
    #[inline]
    fn peer(&self, to: SocketAddr) -> Option<&Peer> {
        if to.ip() == self.inbox.address.ip() { self.host.peer(to) } else { None }
    }

    #[inline]
    fn send_batch(&self, peer: &Peer, batch: &[u8], segment: usize) -> io::Result<()> {
        self.sent(peer, batch, segment, peer.send(batch, segment, self.inbox.address.port()))
    }

    #[inline]
    fn sent(&self, peer: &Peer, batch: &[u8], segment: usize, sent: Sent) -> io::Result<()> {
        match sent {
            Sent::Yes | Sent::Unheard(_) => return Ok(()),
            Sent::NoRoom => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            Sent::NoLane => {}
            Sent::Ask => self.host.ask(peer),
        }
        self.inbox.outside.send_to(batch, segment, peer.address)
    }
}

impl Datagrams for ShmEndpoint {
    fn local_addr(&self) -> SocketAddr {
        self.inbox.address
    }

    fn is_open(&self) -> bool {
        self.inbox.outside.udp.is_open()
    }

    #[inline]
    fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let Some(peer) = self.peer(to) else { return self.inbox.outside.send_to(bytes, segment, to) };
        if bytes.len() <= segment {
            return match bytes.len() <= BATCH_BYTES_MAX {
                true => self.send_batch(peer, bytes, segment),
                false => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
            };
        }
        match segment {
            0 => Err(io::Error::new(io::ErrorKind::InvalidInput, "datagrams of zero bytes each carry nothing")),
            1..=BATCH_BYTES_MAX => {
                let mut batches = bytes.chunks(BATCH_BYTES_MAX / segment * segment);
                batches.try_for_each(|batch| self.send_batch(peer, batch, segment))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        }
    }

    fn recv(&self, buffer: &mut [u8], timeout: Option<Duration>, wait: Wait) -> io::Result<Received> {
        if let Some(received) = self.inbox.take(buffer)? {
            return Ok(received);
        }
        if timeout == Some(Duration::ZERO) {
            return Ok(Received::Timeout);
        }
        // Whoever waits here does not look whether others have looked.
        self.settle(false);
        let start = Instant::now();
        if let Wait::Spin(span) = wait {
            let span = Duration::from_nanos(span.0);
            if let Some(received) = self.inbox.spin(buffer, start, timeout.map_or(span, |t| t.min(span)))? {
                return Ok(received);
            }
        }
        self.inbox.block(buffer, timeout.and_then(|t| start.checked_add(t)))
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        Ok(self.inbox.take(buffer)?.unwrap_or(Received::Timeout))
    }

    fn retire(&self) {
        self.host.retire();
    }

    fn attend(&self, listener: Listener) -> io::Result<()> {
        // The endpoint keeps it, so the number stays its own.
        let fd = listener.as_fd().as_raw_fd();
        self.inbox.outside.udp.attend(listener)?;
        self.host.listen_for(&self.inbox, fd)
    }

    fn kick(&self) -> bool {
        self.inbox.kick();
        true
    }

    #[inline]
    fn glance(&self) -> bool {
        self.inbox.glance()
    }

    fn watch(&self, watching: bool) -> bool {
        self.inbox.watch(watching);
        true
    }

    #[inline]
    fn send_patiently(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let Some(peer) = self.peer(to).filter(|_| bytes.len() <= segment && bytes.len() <= BATCH_BYTES_MAX) else {
            return self.send_to(bytes, segment, to);
        };
        let sent = peer.send_softly(bytes, segment, self.inbox.address.port());
        if let Sent::Unheard(glances) = sent {
            self.unheard().push((to, glances));
            self.owes.store(true, Relaxed);
        }
        self.sent(peer, bytes, segment, sent)
    }

    #[inline]
    fn send_quietly(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let Some(peer) = self.peer(to).filter(|_| bytes.len() <= segment && bytes.len() <= BATCH_BYTES_MAX) else {
            return self.send_to(bytes, segment, to);
        };
        self.sent(peer, bytes, segment, peer.send_softly(bytes, segment, self.inbox.address.port()))
    }

    #[inline]
    fn settle(&self, patient: bool) {
        if self.owes.load(Relaxed) {
            self.settle_each(patient);
        }
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        self.host.close(&self.inbox);
    }
}

#[cfg(test)]
mod tests;
