//! An application thread's side of every operation: accesses that miss, ranges, locks, barriers.

pub(crate) mod deal;
mod guards;
mod locks;
mod messages;
pub(crate) mod misuse;
mod object_access;
mod ranges;
mod sync;
mod sync_objects;
mod waits;

pub use guards::{LockGuard, ReadGuard, WriteGuard};

use crate::bind::CpuSet;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::mutex::Mutex;
use crate::node::{Node, ThreadSlot, Waiting};
use comem_memory::StoreFlag;
use comem_memory::pages::fault::uncancelled;
use comem_protocol::coherence::pages::policy::stride_prefetch::StridePrefetcher;
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Time;
use messages::Mailbox;
use ranges::Ranges;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use waits::{LocksHeld, Waits};

/// One application thread of this node, as the thread itself sees it.
///
/// It cannot be sent to another thread: its sockets and its store flag belong to the thread it was made for.
#[derive(Debug)]
pub struct Thread {
    node: Arc<Node>,
    slot: Slot,
    flag: &'static StoreFlag,
    /// Locks that this thread holds.
    locks: LocksHeld,
    mail: Mailbox,
    /// The cores that the thread comes back to when it has waited.
    own: Option<CpuSet>,
    /// Behind a box, so that compilers know the rest not to change and keep it in registers.
    state: Box<RefCell<State>>,
    not_send: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct State {
    out: Outbox,
    ranges: Ranges,
    /// The waits of the operation under way.
    waits: Waits,
    /// When the thread last left Comem, for a node that is made slower.
    left: Option<u64>,
    /// What this thread's page faults look like.
    stream: StridePrefetcher,
    /// A lock was fetched since this thread last waited for anything else.
    under_locks: bool,
    /// The loop whose items are dealt out that the thread is in.
    in_loop: Option<Arc<deal::Part>>,
}

impl Thread {
    pub(crate) fn new(node: Arc<Node>, slot: Slot) -> Thread {
        let flag: &'static StoreFlag = node.objects.flag(slot);
        let (locks, mail, own) = (LocksHeld::default(), Mailbox::default(), node.cores.of(slot));
        let stream = StridePrefetcher::new(node.config.tuning.prefetch);
        let state = Box::new(RefCell::new(State { stream, ..State::default() }));
        Thread { node, slot, flag, locks, mail, own, state, not_send: PhantomData }
    }

    /// This thread's number among all threads of the job.
    pub fn id(&self) -> usize {
        self.node.me().index() * self.node.threads() + self.local_id()
    }

    /// This thread's number within its node.
    pub fn local_id(&self) -> usize {
        self.slot.index() - 1
    }

    /// How many threads the job has.
    pub fn threads(&self) -> usize {
        self.node.nodes() * self.node.threads()
    }

    /// The node this thread is part of.
    pub fn node(&self) -> NodeId {
        self.node.me()
    }

    /// This thread's equal share of `total` things: a range of their numbers.
    pub fn split(&self, total: usize) -> Range<usize> {
        split(total, self.id(), self.threads())
    }

    pub(crate) fn home(&self) -> &Node {
        &self.node
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// An acquire, of this lock if it is one.
    pub(crate) fn note_acquire(&self, lock: Option<LockId>) {
        self.state.borrow_mut().under_locks = lock.is_some();
    }

    /// Whether a lock was fetched since this thread last waited for anything else.
    pub(crate) fn is_under_locks(&self) -> bool {
        self.state.borrow().under_locks
    }

    pub(crate) fn stream<R>(&self, step: impl FnOnce(&mut StridePrefetcher) -> R) -> R {
        step(&mut self.state.borrow_mut().stream)
    }

    #[inline(always)]
    pub(crate) fn flag(&self) -> &'static StoreFlag {
        self.flag
    }

    /// Unwraps a call's result: trouble ends the node, whose other threads may wait for this one. With a host it is a
    /// panic.
    #[track_caller]
    pub(crate) fn must<T>(&self, result: Result<T>) -> T {
        result.unwrap_or_else(|error| match crate::host::host() {
            Some(_) => panic!("{}", self.node.sentence(&error)),
            None => self.node.end_for(&error),
        })
    }

    fn thread_slot(&self) -> &ThreadSlot {
        &self.node.slots[self.slot]
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.node.counters(self.slot)
    }

    /// Runs an operation and books its time: waiting where it was waited, the rest as protocol. Its thread is not
    /// cancelled in the midst of it.
    pub(crate) fn operation<R>(&self, operation: impl FnOnce() -> R) -> R {
        let start = self.node.now();
        self.state.borrow_mut().waits.begin();
        // From here on, who is sent something gets a moment to look by itself.
        self.thread_slot().set_patient(true);
        let gone_before = self.state.borrow().ranges.are_let_go();
        let result = uncancelled(|| {
            let result = operation();
            if !gone_before {
                // After an error too the program goes on with its ranges. Where the job has ended, the next operation
                // tells.
                let _ = self.take_pins_back();
            }
            self.node.flush_wakeups(self.slot);
            result
        });
        let span = (self.node.now() - start).0;
        let waited = self.state.borrow().waits.waited_ns();
        self.counters().protocol_ns.add(span.saturating_sub(waited));
        result
    }

    /// Sleeps until something has happened that may end the wait.
    pub(crate) fn wait(&self, why: Waiting) -> Result<()> {
        self.wait_with(why, |why, since| self.node.wait_some(self.slot, why, since))
    }

    /// As [`Thread::wait`], by other means than this thread's socket: `wait` gets when the wait began.
    pub(crate) fn wait_with<R>(&self, why: Waiting, wait: impl FnOnce(Waiting, Time) -> Result<R>) -> Result<R> {
        if self.mail.keeps_all() {
            self.mail.make_room(&self.node, self.slot);
        }
        let before = self.state.borrow().waits.waited_ns();
        let result = self.booked(why, |since| wait(why, since));
        let waited = self.state.borrow().waits.waited_ns();
        if self.own.as_ref().is_some_and(|own| own.come_back(self.node.now())) {
            self.counters().came_back.add(1);
        }
        let result = result?;
        self.ask_host(before, waited).map(|()| result)
    }

    /// Takes a lock that another thread of this node holds for as long as what it does there takes.
    pub(crate) fn locked_out<'m, T>(&self, why: Waiting, lock: &'m Mutex<T>) -> MutexGuard<'m, T> {
        lock.try_lock()
            .unwrap_or_else(|| self.booked(why, |since| self.node.slots.asleep(self.slot, why, since, || lock.lock())))
    }

    /// A part of a wait, which began at the time that `wait` gets: books how long it took.
    fn booked<R>(&self, why: Waiting, wait: impl FnOnce(Time) -> R) -> R {
        let start = self.node.now();
        self.thread_slot().waits.set(Some(start));
        let since = self.state.borrow_mut().waits.since(why, start);
        let result = wait(since);
        self.thread_slot().waits.set(None);
        let span = self.node.now() - start;
        self.state.borrow_mut().waits.add(span);
        why.time(self.counters()).add(span.0);
        result
    }

    /// What the thread has waited for longer than a moment, without leaving its processor to others. `None` when that
    /// is over.
    pub(crate) fn waits_long_for(&self, why: Option<Waiting>) {
        self.thread_slot().set_waits_for(why.map(|why| (why, self.node.now())));
    }

    /// Asks the host, if there is one, at the end of each slice of a wait whether it shall go on.
    fn ask_host(&self, before: u64, waited: u64) -> Result<()> {
        const SLICE_NS: u64 = crate::host::SLICE.as_nanos() as u64;
        let Some(host) = crate::host::host().filter(|_| before / SLICE_NS != waited / SLICE_NS) else { return Ok(()) };
        let ends = if comem_memory::pages::fault::is_handling() { host.ends_fault() } else { host.ends_wait() };
        if !ends {
            return Ok(());
        }
        // What was asked for is still under way, and nobody will be there to take it.
        self.node.outlive(host, &Error::Interrupted);
        Err(Error::Interrupted)
    }

    /// Takes a step with this thread's outbox and carries out what it asks for.
    pub(crate) fn stepping<R>(&self, step: impl FnOnce(&mut Outbox) -> R) -> R {
        let mut out = std::mem::take(&mut self.state.borrow_mut().out);
        let result = step(&mut out);
        self.node.flush(self.slot, &mut out);
        self.state.borrow_mut().out = out;
        result
    }

    /// Gives back what it has, and the slot itself.
    pub(crate) fn leave_slot(&self) {
        self.leave_loop();
        self.end_ranges();
        self.mail.leave(&self.node, self.slot);
        if let Some(roused) = self.node.gate.as_ref().and_then(|sections| sections.forget(self.slot)) {
            self.node.wake_thread(roused);
        }
        self.thread_slot().leave_place();
    }

    pub(crate) fn begin_life(&self) -> Time {
        self.state.borrow_mut().left = Some(cpu_ns());
        let now = self.node.now();
        self.thread_slot().lives.set(Some(now));
        now
    }

    /// Books the thread's life since then.
    pub(crate) fn end_life(&self, since: Time) {
        let now = self.node.now();
        self.thread_slot().lives.set(None);
        self.counters().lifetime_ns.add((now - since).0);
    }
}

/// The processor time that the calling thread has used.
pub(crate) fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Part `index` of `parts` equal shares of `total`: a range, the earlier ones longer by one where it does not come out
/// even.
pub fn split(total: usize, index: usize, parts: usize) -> Range<usize> {
    let (base, more) = (total / parts, total % parts);
    let start = index * base + index.min(more);
    start..start + base + usize::from(index < more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (total, parts) in [(10, 3), (2, 5), (0, 4), (128, 8)] {
            let ranges: Vec<_> = (0..parts).map(|i| split(total, i, parts)).collect();
            assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), total);
            assert!(ranges.windows(2).all(|w| w[0].end == w[1].start));
        }
    }
}
