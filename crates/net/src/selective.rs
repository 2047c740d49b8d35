//! Datagrams to sets of a job's nodes ([`comem_protocol::selective`]): one to the job's group where IP multicast
//! arrives, and one to each node elsewhere.
//!
//! A node hears its group in two sockets, each behind a filter in the kernel ([`crate::filter`]). What asks it for
//! something wakes its service thread, as requests do. What it is only told lies in the other socket, where nobody
//! waits, until somebody looks ([`Selective::drain_told`]). What names others reaches neither. Without multicast the
//! asked get theirs in the service socket, and the told in a socket of their own ([`Selective::told_address`]).
//!
//! Nothing is acknowledged. What finds no room in a socket is lost and counted.

use crate::multicast::ListenerHandle;
use crate::{Datagrams, Group, Listener, Network, RECEIVE_BUFFER_BYTES, Received, counts_as_loss, datagrams};
use crate::{filter, sys};
use comem_protocol::auth::Sealer;
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use comem_protocol::selective::{Author, Message, Receiver, Refused, RepairHistory, Role, Taken, TooLong, Way, head};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Most receives of one look at what this node is told: more than its socket holds, so that a flood ends it too.
const RECEIVES_MAX: usize = 1 << 14;
/// Sockets that a thread cannot wait for are looked at so often.
const UNSEEN_FOR: Duration = Duration::from_micros(200);
/// A socket with less room than this may have dropped the longest datagrams.
const ROOM_BYTES: usize = 160 << 10;

/// What a node needs to send to sets of nodes and to hear them.
pub struct Parts {
    /// This node.
    pub me: NodeId,
    /// The job's program number.
    pub prog: u16,
    /// The job's number.
    pub job: u64,
    /// The job's sealer ([`Sealer::of_job`]).
    pub sealer: Sealer,
    /// Most bytes of a datagram.
    pub datagram_bytes: usize,
    /// The addresses of each node: first that of its service socket, last that at which it is told.
    pub addresses: Vec<Vec<SocketAddr>>,
    /// This node's socket there.
    pub told: Arc<dyn Datagrams>,
    /// The job's group, if all nodes hear it.
    pub group: Option<Group>,
    /// The listener of that group which the service socket attends already.
    pub asks: Option<ListenerHandle>,
}

/// What has left for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Datagrams.
    pub datagrams: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// What has gone and come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages sent.
    pub multicasts: u64,
    /// Datagrams sent: to the group, or to single nodes in its stead.
    pub datagrams_sent: u64,
    /// How many nodes the datagrams sent have named, each time: so many copies should arrive.
    pub copies_addressed: u64,
    /// Copies that arrived here, of those that name this node.
    pub copies_received: u64,
    /// Of these, those that only told it something.
    pub told_received: u64,
    /// Datagrams refused: without the job's key, of other jobs, replayed, damaged.
    pub refused: u64,
    /// Looks at what this node was told that found the socket full.
    pub told_full: u64,
    /// Datagrams that the kernel dropped while it was full, at most: those for other nodes count too.
    pub told_dropped: u64,
}

#[derive(Default)]
struct Counters {
    multicasts: AtomicU64,
    datagrams_sent: AtomicU64,
    copies_addressed: AtomicU64,
    copies_received: AtomicU64,
    told_received: AtomicU64,
    refused: AtomicU64,
    told_full: AtomicU64,
    told_dropped: AtomicU64,
}

/// One node's way to sets of nodes. Threads may use it at once.
pub struct Selective {
    me: NodeId,
    author: Author,
    /// Numbers are never used twice.
    next: AtomicU64,
    addresses: Vec<Vec<SocketAddr>>,
    group: Option<SocketAddr>,
    gave_up: AtomicBool,
    repairs: AtomicU64,
    receiver: Mutex<Receiver>,
    told: Arc<dyn Datagrams>,
    told_listener: Option<Listener>,
    /// Held by the thread that looks at what this node is told.
    drain: Mutex<Vec<u8>>,
    drops: AtomicU32,
    counters: Counters,
}

/// Whether this host's kernel lets a process filter what its sockets receive: tried on a socket of its own.
///
/// # Errors
/// It does not, and what it says.
pub fn filters_work() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    socket2::SockRef::from(&socket).attach_filter(&filter::program(NodeId(0), (0, 0), Role::Told))
}

impl Selective {
    /// Opens the way. Where the job has a group, `service` hears from now on what this node is asked.
    ///
    /// # Errors
    /// The system refuses a socket or a filter.
    pub fn open(network: &Network, service: &dyn Datagrams, parts: Parts) -> io::Result<Selective> {
        let (me, job) = (parts.me, (parts.prog, parts.job));
        let told_listener = match &parts.group {
            None => None,
            Some(group) => {
                let asked = match parts.asks {
                    Some(handle) => handle,
                    None => {
                        let listener = network.listen(group)?;
                        let handle = listener.handle()?;
                        service.attend(listener)?;
                        handle
                    }
                };
                asked.filter(&filter::program(me, job, Role::Asked))?;
                let told = network.listen(group)?;
                told.handle()?.filter(&filter::program(me, job, Role::Told))?;
                Some(told)
            }
        };
        let own = (me, parts.prog, parts.job);
        let receiver = Receiver::new(own, parts.addresses.len(), parts.sealer.clone());
        Ok(Selective {
            me,
            author: Author::new(own, parts.sealer, parts.datagram_bytes),
            next: AtomicU64::new(0),
            addresses: parts.addresses,
            group: parts.group.map(|group| group.address()),
            gave_up: AtomicBool::new(false),
            repairs: AtomicU64::new(0),
            receiver: Mutex::new(receiver),
            told: parts.told,
            told_listener,
            drain: Mutex::new(Vec::new()),
            drops: AtomicU32::new(0),
            counters: Counters::default(),
        })
    }

    /// Where this node is told things without multicast.
    pub fn told_address(&self) -> SocketAddr {
        self.told.local_addr()
    }

    /// How this node sends now.
    pub fn way(&self) -> Way {
        if self.group_now().is_some() { Way::Ip } else { Way::FanOut }
    }

    fn group_now(&self) -> Option<SocketAddr> {
        self.group.filter(|_| !self.gave_up.load(Relaxed))
    }

    /// Most bytes of one message.
    pub fn payload_bytes_max(&self) -> usize {
        self.author.payload_bytes_max()
    }

    /// Bytes of a message that fits one datagram: of a longer one all is lost when a part is.
    pub fn payload_bytes_of_one(&self) -> usize {
        self.author.payload_bytes_of_one()
    }

    /// Sends a message to two sets of nodes, through one of this node's own endpoints: it wakes those that are asked.
    /// Who is in both is asked; this node itself is left out. Datagrams are made in `buffer`. `failed` hears of those
    /// that the system refused, other than by losing them.
    ///
    /// # Errors
    /// The payload has more bytes than [`Selective::payload_bytes_max`]; nothing was sent.
    pub fn send(
        &self,
        through: &dyn Datagrams,
        buffer: &mut Vec<u8>,
        (asked, told): (&NodeSet, &NodeSet),
        payload: &[u8],
        failed: &mut dyn FnMut(SocketAddr, io::Error),
    ) -> Result<Sent, TooLong> {
        let each = self.author.datagrams(payload.len())?;
        let (mut asked, mut told) = (asked.clone(), told.clone());
        asked.remove(self.me);
        for node in asked.iter().chain([self.me]) {
            told.remove(node);
        }
        let mut sent = Sent::default();
        let mut first = self.next.fetch_add((each * head::windows(&asked, &told).count()) as u64, Relaxed);
        for named in head::windows(&asked, &told) {
            buffer.clear();
            let segment = self.author.emit(first, named, payload, buffer)?;
            first += each as u64;
            let receivers = (named.0.bits.count_ones() + named.1.bits.count_ones()) as usize;
            self.counters.copies_addressed.fetch_add((receivers * each) as u64, Relaxed);
            let mut put = |to: SocketAddr, result: io::Result<()>| match result {
                Err(error) if !counts_as_loss(&error) => failed(to, error),
                _ => {
                    sent.datagrams += each;
                    sent.bytes += buffer.len();
                }
            };
            if let Some(group) = self.group_now() {
                put(group, through.send_to(buffer, segment, group));
                continue;
            }
            for to in named.0.iter().filter_map(|node| self.addresses_of(node).first().copied()) {
                put(to, through.send_to(buffer, segment, to));
            }
            for to in named.1.iter().filter_map(|node| self.addresses_of(node).last().copied()) {
                put(to, through.send_quietly(buffer, segment, to));
            }
        }
        self.counters.multicasts.fetch_add(1, Relaxed);
        self.counters.datagrams_sent.fetch_add(sent.datagrams as u64, Relaxed);
        Ok(sent)
    }

    fn addresses_of(&self, node: NodeId) -> &[SocketAddr] {
        self.addresses.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// Takes in a datagram that came to this node's service socket, or to another one of its. `deliver` gets the
    /// message that is complete with it.
    ///
    /// # Errors
    /// It counts for nothing, and why.
    pub fn on_datagram(
        &self,
        datagram: &[u8],
        from: SocketAddr,
        deliver: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Refused> {
        let is_from = |node: NodeId| self.addresses_of(node).contains(&from);
        // Whoever acts on it may send, and look at what else was told: without the lock.
        let taken = lock(&self.receiver).take(datagram, is_from);
        let role = match &taken {
            Ok(Taken::Others) => return Ok(()),
            Ok(Taken::Part(role) | Taken::Whole(Message { role, .. })) => *role,
            Err(why) => {
                self.counters.refused.fetch_add(1, Relaxed);
                return Err(*why);
            }
        };
        self.counters.copies_received.fetch_add(1, Relaxed);
        self.counters.told_received.fetch_add(u64::from(role == Role::Told), Relaxed);
        if let Ok(Taken::Whole(message)) = taken {
            deliver(message);
        }
        Ok(())
    }

    /// Takes what this node was told meanwhile, without waiting; `refused` hears of what counts for nothing. Gives how
    /// many messages there were. A thread that comes while another one looks finds nothing.
    pub fn drain_told(
        &self,
        deliver: &mut dyn FnMut(NodeId, &[u8]),
        refused: &mut dyn FnMut(SocketAddr, Refused),
    ) -> usize {
        let mut buffer = match self.drain.try_lock() {
            Ok(buffer) => buffer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        buffer.resize(RECEIVE_BUFFER_BYTES, 0);
        self.count_dropped();
        let mut messages = 0;
        for _ in 0..RECEIVES_MAX {
            let received = match self.told_listener.as_ref().map(|listener| listener.take(&mut buffer)) {
                Some(Ok(Some(received))) => received,
                _ => match self.told.try_recv(&mut buffer) {
                    Ok(received) => received,
                    Err(_) => break,
                },
            };
            let (from, len, segment) = match received {
                Received::Datagrams { from, len, segment } => (from, len, segment),
                Received::Timeout => break,
                Received::Unreachable(_) | Received::PathMtu { .. } => continue,
            };
            for datagram in datagrams(&buffer[..len], segment) {
                let mut count = |message: Message<'_>| {
                    messages += 1;
                    deliver(message.from, &message.payload);
                };
                if let Err(why) = self.on_datagram(datagram, from, &mut count) {
                    refused(from, why);
                }
            }
        }
        messages
    }

    /// Waits until something may have come to `own`, one of this node's endpoints without listeners, or this node may
    /// have been told something, for so long at most. It takes nothing.
    ///
    /// # Errors
    /// What the system says when a socket no longer works.
    pub fn wait_beside(&self, own: &dyn Datagrams, timeout: Duration) -> io::Result<()> {
        let listener = self.told_listener.as_ref();
        let ways = [own.descriptor(), self.told.descriptor(), listener.map(Listener::as_fd)];
        // What cannot be waited for has to be looked at.
        let is_seen = ways[..2].iter().all(Option::is_some);
        let due = listener.and_then(Listener::due_in).into_iter().chain((!is_seen).then_some(UNSEEN_FOR));
        let timeout = due.chain([timeout]).min();
        let mut sockets = ways.into_iter().flatten();
        let Some(first) = sockets.next() else {
            std::thread::sleep(UNSEEN_FOR);
            return Ok(());
        };
        let mut all = [first; 3];
        let mut count = 1;
        for socket in sockets {
            all[count] = socket;
            count += 1;
        }
        sys::wait(&all[..count], sys::Readiness::Read, timeout).map(drop)
    }

    /// Before a look: what the kernel had no room for since the last one.
    fn count_dropped(&self) {
        let Some(memory) = self.told_listener.as_ref().and_then(|l| sys::receive_memory(l.as_fd()).ok()) else {
            return;
        };
        let dropped = memory.drops.wrapping_sub(self.drops.swap(memory.drops, Relaxed));
        if dropped > 0 && memory.used_bytes + ROOM_BYTES > memory.max_bytes {
            self.counters.told_full.fetch_add(1, Relaxed);
            self.counters.told_dropped.fetch_add(dropped.into(), Relaxed);
        }
    }

    /// Notes whether an ask had to be repaired. `true`: this was one too many, and from now on this node sends to each
    /// node alone.
    pub fn note_ask(&self, repaired: bool) -> bool {
        let note = |past| Some(RepairHistory(past).with(repaired).0);
        let past = self.repairs.fetch_update(Relaxed, Relaxed, note).unwrap_or_default();
        let gives_up = RepairHistory(past).with(repaired).gives_up() && self.group.is_some();
        gives_up && !self.gave_up.swap(true, Relaxed)
    }

    /// Whether this node gave the group up, because too much of what it asked there had to be repaired.
    pub fn has_given_up(&self) -> bool {
        self.gave_up.load(Relaxed)
    }

    /// What has gone and come until now.
    pub fn counts(&self) -> Counts {
        let c = &self.counters;
        Counts {
            multicasts: c.multicasts.load(Relaxed),
            datagrams_sent: c.datagrams_sent.load(Relaxed),
            copies_addressed: c.copies_addressed.load(Relaxed),
            copies_received: c.copies_received.load(Relaxed),
            told_received: c.told_received.load(Relaxed),
            refused: c.refused.load(Relaxed),
            told_full: c.told_full.load(Relaxed),
            told_dropped: c.told_dropped.load(Relaxed),
        }
    }
}

/// A panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
