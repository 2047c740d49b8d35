//! A wrapper that harms what is sent, by seed, so that any job can be run on a bad network (`--faults`).
//!
//! What is to happen is decided by `comem_protocol::faults`; here it is done. All endpoints of a node share one
//! [`Faults`]: its decisions, its line (`rate`), and, only when the specification holds datagrams back (`delay`,
//! `reorder`, `rate`), one background thread that sends them when they are due. Everything else is done by the sender
//! at once. A batch is decided about datagram by datagram; what stays unharmed still leaves in batches, and what is
//! only late does so too, within [`COALESCING`], as a network card that announces several datagrams at a time would
//! hand it over.
//!
//! What goes to a group is harmed where it is heard, by each listener for itself ([`BadReception`]): on a network one
//! receiver loses what another one gets.

use crate::clock::Clock;
use crate::{Datagrams, Listener, Received, Wait, datagrams, sys, threads};
use comem_protocol::faults::{Decision, FaultPlan, FaultSpec};
use comem_protocol::ids::NodeId;
use comem_protocol::time::{Span, Time};
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The most bytes held back at a time; what comes on top is lost, as in a network.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// Datagrams to one node that are only late, and by nearly the same time, leave together when the last of them is due.
pub const COALESCING: Span = Span::from_us(20);

/// One node's bad network.
pub struct Faults {
    plan: Mutex<FaultPlan>,
    /// The number of this sender, and how many listeners have a plan of their own.
    stream: u64,
    listeners: AtomicU64,
    clock: Clock,
    holder: Option<Holder>,
    /// Whose address is whose, where ways between nodes are cut.
    ways: OnceLock<Ways>,
}

/// The nodes of a job, as one of them sees their addresses.
struct Ways {
    spec: FaultSpec,
    began: Time,
    me: NodeId,
    nodes: HashMap<SocketAddr, NodeId>,
}

impl Ways {
    fn are_cut(&self, now: Time, to: SocketAddr) -> bool {
        let node = self.nodes.get(&to);
        node.is_some_and(|node| self.spec.cuts_off(now - self.began, self.me, *node))
    }

    fn are_cut_from(&self, now: Time, from: SocketAddr) -> bool {
        let node = self.nodes.get(&from);
        node.is_some_and(|node| self.spec.cuts_off(now - self.began, *node, self.me))
    }
}

impl Faults {
    /// The network of sender `stream` (a node's number).
    ///
    /// # Errors
    /// The thread that holds datagrams back cannot be started.
    pub fn new(spec: &FaultSpec, stream: u64, clock: Clock) -> io::Result<Arc<Faults>> {
        let holder = if spec.holds_datagrams() { Some(Holder::start(clock)?) } else { None };
        let plan = Mutex::new(FaultPlan::new(spec, stream));
        Ok(Arc::new(Faults { plan, stream, listeners: AtomicU64::new(0), clock, holder, ways: OnceLock::new() }))
    }

    /// From now on ways between nodes are cut as the specification says: this is the job's start. Gives the addresses
    /// of each node.
    pub fn begin(&self, me: NodeId, addresses: &[Vec<SocketAddr>]) {
        let spec = *lock(&self.plan).spec();
        if spec.has_cuts() {
            let numbered = addresses.iter().zip(NodeId::all(addresses.len()));
            let nodes = numbered.flat_map(|(addresses, node)| addresses.iter().map(move |address| (*address, node)));
            let _ = self.ways.set(Ways { spec, began: self.clock.now(), me, nodes: nodes.collect() });
        }
    }

    fn decide(&self, now: Time, len: usize) -> Decision {
        lock(&self.plan).decide(now, len)
    }

    /// What a further listener of this node suffers: the same faults, drawn by itself.
    pub(crate) fn reception(faults: &Arc<Faults>) -> BadReception {
        let number = faults.listeners.fetch_add(1, Relaxed) + 1;
        let plan = FaultPlan::new(lock(&faults.plan).spec(), faults.stream | number << LISTENER_SHIFT);
        let heard = Mutex::new(Heard { plan, held: BinaryHeap::new(), bytes: 0, taken: 0 });
        BadReception { faults: Arc::clone(faults), heard }
    }
}

/// Streams of listeners stand above those of senders, which are nodes' numbers.
const LISTENER_SHIFT: u32 = 32;

/// A bad network in front of one listener. Nothing runs by itself: what is late waits here until somebody looks, and
/// whoever waits for it asks when that is.
pub(crate) struct BadReception {
    faults: Arc<Faults>,
    heard: Mutex<Heard>,
}

struct Heard {
    plan: FaultPlan,
    held: BinaryHeap<Late>,
    bytes: usize,
    taken: u64,
}

/// A datagram that has come and cannot be received yet.
#[derive(PartialEq, Eq)]
struct Late {
    due: Time,
    number: u64,
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl Ord for Late {
    /// The heap gives its greatest first, so earlier is greater.
    fn cmp(&self, other: &Late) -> std::cmp::Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}
impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Late) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for BadReception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BadReception")
    }
}

impl BadReception {
    /// Takes in what has come.
    pub(crate) fn hear(&self, from: SocketAddr, bytes: &[u8], segment: usize) {
        let now = self.faults.clock.now();
        if self.faults.ways.get().is_some_and(|ways| ways.are_cut_from(now, from)) {
            return;
        }
        let mut heard = lock(&self.heard);
        for datagram in datagrams(bytes, segment) {
            for delivery in heard.plan.decide(now, datagram.len()).deliveries() {
                let bytes = delivery.apply(datagram);
                // One that is cut to nothing is lost.
                if bytes.is_empty() || heard.bytes + bytes.len() > HELD_BYTES_MAX {
                    continue;
                }
                heard.bytes += bytes.len();
                heard.taken += 1;
                let late = Late { due: now + delivery.delay, number: heard.taken, from, bytes };
                heard.held.push(late);
            }
        }
    }

    /// Takes the next datagram that is due.
    pub(crate) fn take_due(&self, buffer: &mut [u8]) -> Option<Received> {
        let now = self.faults.clock.now();
        let mut heard = lock(&self.heard);
        heard.held.peek().filter(|next| next.due <= now)?;
        let late = heard.held.pop()?;
        heard.bytes -= late.bytes.len();
        let len = late.bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&late.bytes[..len]);
        Some(Received::Datagrams { from: late.from, len, segment: len })
    }

    /// In how long the next one is.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let next = lock(&self.heard).held.peek()?.due;
        Some(Duration::from_nanos(next.0.saturating_sub(self.faults.clock.now().0)))
    }
}

/// A panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint on a bad network.
pub struct Faulty {
    inner: Arc<dyn Datagrams>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// Puts `inner` on the network `faults`.
    pub fn new(inner: Arc<dyn Datagrams>, faults: Arc<Faults>) -> Faulty {
        Faulty { inner, faults }
    }

    fn deliver(&self, now: Time, datagram: &[u8], decision: &Decision, to: SocketAddr) -> io::Result<()> {
        for delivery in decision.deliveries() {
            let bytes = delivery.apply(datagram);
            match &self.faults.holder {
                Some(holder) if delivery.delay.0 > 0 => {
                    let segment = bytes.len();
                    holder.hold(now + delivery.delay, bytes, segment, to, Arc::clone(&self.inner));
                }
                _ => self.inner.send_to(&bytes, bytes.len(), to)?,
            }
        }
        Ok(())
    }

    /// Sends a run of datagrams that all fare alike.
    fn send_run(&self, run: &Run, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let bytes = &bytes[run.range.clone()];
        match (&self.faults.holder, run.due) {
            _ if bytes.is_empty() => Ok(()),
            (Some(holder), Some((_, due))) => {
                holder.hold(due, bytes.to_vec(), segment, to, Arc::clone(&self.inner));
                Ok(())
            }
            _ => self.inner.send_to(bytes, segment, to),
        }
    }
}

/// Neighbours in a batch that leave together.
struct Run {
    range: Range<usize>,
    /// When the first and the last of them would leave alone; `None`: at once.
    due: Option<(Time, Time)>,
}

impl Run {
    /// Takes the next datagram in, if it leaves with the others.
    fn takes(&mut self, due: Option<Time>, end: usize) -> bool {
        let fits = match (self.due, due) {
            _ if self.range.is_empty() => true,
            (None, None) => true,
            (Some((first, last)), Some(due)) => due >= last && due - first <= COALESCING,
            _ => false,
        };
        if fits {
            let first = self.due.filter(|_| !self.range.is_empty()).map(|(first, _)| first);
            self.due = due.map(|due| (first.unwrap_or(due), due));
            self.range.end = end;
        }
        fits
    }
}

impl Datagrams for Faulty {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        if to.ip().is_multicast() {
            return self.inner.send_to(bytes, segment, to);
        }
        let now = self.faults.clock.now();
        if self.faults.ways.get().is_some_and(|ways| ways.are_cut(now, to)) {
            return Ok(());
        }
        let mut run = Run { range: 0..0, due: None };
        let mut position = 0;
        for datagram in datagrams(bytes, segment) {
            let decision = self.faults.decide(now, datagram.len());
            let end = position + datagram.len();
            let whole = decision.delay_if_whole(datagram);
            let due = whole.filter(|delay| delay.0 > 0).map(|delay| now + delay);
            if whole.is_none() || !run.takes(due, end) {
                self.send_run(&run, bytes, segment, to)?;
                run = Run { range: position..position, due: None };
                if whole.is_none() {
                    self.deliver(now, datagram, &decision, to)?;
                    run.range = end..end;
                } else {
                    run.takes(due, end);
                }
            }
            position = end;
        }
        self.send_run(&run, bytes, segment, to)
    }

    fn recv(&self, buffer: &mut [u8], timeout: Option<Duration>, wait: Wait) -> io::Result<Received> {
        self.inner.recv(buffer, timeout, wait)
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.inner.try_recv(buffer)
    }

    fn attend(&self, listener: Listener) -> io::Result<()> {
        self.inner.attend(listener)
    }

    fn retire(&self) {
        if let Some(holder) = &self.faults.holder {
            holder.close();
        }
        self.inner.retire();
    }

    fn kick(&self) -> bool {
        self.inner.kick()
    }

    fn glance(&self) -> bool {
        self.inner.glance()
    }

    fn watch(&self, watching: bool) -> bool {
        self.inner.watch(watching)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

/// Keeps datagrams until they are due; a thread of its own sends them.
struct Holder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    held: BinaryHeap<Held>,
    bytes: usize,
    taken: u64,
    closing: bool,
}

struct Held {
    due: Time,
    /// Those due at the same time leave in the order in which they came.
    number: u64,
    bytes: Vec<u8>,
    /// Bytes of each datagram but the last.
    segment: usize,
    to: SocketAddr,
    through: Arc<dyn Datagrams>,
}

impl Ord for Held {
    /// The heap gives its greatest first, so earlier is greater.
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.number == other.number
    }
}
impl Eq for Held {}

impl Holder {
    fn start(clock: Clock) -> io::Result<Holder> {
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::default()), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = threads::start("comem-faults", move || theirs.send_when_due(clock))?;
        Ok(Holder { shared, thread: Some(thread) })
    }

    fn hold(&self, due: Time, bytes: Vec<u8>, segment: usize, to: SocketAddr, through: Arc<dyn Datagrams>) {
        let mut queue = lock(&self.shared.queue);
        if queue.bytes + bytes.len() > HELD_BYTES_MAX {
            return;
        }
        queue.bytes += bytes.len();
        queue.taken += 1;
        let held = Held { due, number: queue.taken, bytes, segment, to, through };
        let is_next = queue.held.peek().is_none_or(|next| held > *next);
        queue.held.push(held);
        drop(queue);
        if is_next {
            self.shared.changed.notify_one();
        }
    }

    /// What is still held back leaves at once: a job's last words must not wait for a network that is going away.
    fn close(&self) {
        lock(&self.shared.queue).closing = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            // It ends only by returning; a panic in it was told on standard error and must not become ours.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn send_when_due(&self, clock: Clock) {
        sys::exact_timers();
        let mut queue = lock(&self.queue);
        loop {
            let now = clock.now();
            let due_in = queue.held.peek().map(|next| next.due - now);
            match due_in {
                None if queue.closing => return,
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.0 > 0 && !queue.closing => {
                    let left = Duration::from_nanos(left.0);
                    queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    let Some(held) = queue.held.pop() else { continue };
                    queue.bytes -= held.bytes.len();
                    drop(queue);
                    // A failed send is one more lost datagram.
                    drop(held.through.send_to(&held.bytes, held.segment, held.to));
                    drop(held);
                    queue = lock(&self.queue);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
