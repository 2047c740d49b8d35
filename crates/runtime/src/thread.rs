//! An application thread's side of every operation: accesses that miss, ranges, locks, barriers.

pub(crate) mod deal;
mod guards;
mod messages;
mod object_access;
mod ranges;
mod sync;
mod sync_objects;

pub use guards::{LockGuard, ReadGuard, WriteGuard};

use crate::bind::CpuSet;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::mutex::Mutex;
use crate::node::{Node, ThreadSlot, Waiting};
use crate::shared::fault::stride_prefetch::StridePrefetcher;
use comem_memory::StoreFlag;
use comem_memory::pages::fault::uncancelled;
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Time;
use ranges::Pin;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

/// One application thread of this node, as the thread itself sees it.
///
/// It cannot be sent to another thread: its sockets and its store flag belong to the thread it was made for.
#[derive(Debug)]
pub struct Thread {
    node: Arc<Node>,
    slot: Slot,
    flag: &'static StoreFlag,
    /// Locks that this thread holds.
    locks: Cell<u32>,
    /// Messages to this thread are put aside whenever it waits, however many.
    keeps_messages: Cell<bool>,
    /// The cores that the thread comes back to when it has waited.
    own: Option<CpuSet>,
    /// Behind a box, so that compilers know the rest not to change and keep it in registers.
    state: Box<RefCell<State>>,
    not_send: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct State {
    out: Outbox,
    pins: Vec<Pin>,
    /// Ranges in use under engines that lend copies.
    copies: Vec<Pin>,
    /// The pins are let go while the thread waits.
    soft: bool,
    /// Nanoseconds waited in the operation under way.
    waited_ns: u64,
    /// What the operation under way has waited for last, and since when.
    waits: Option<(Waiting, Time)>,
    /// Messages put aside while the thread waited.
    unread: VecDeque<(NodeId, Vec<u8>)>,
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
        let flag: &'static StoreFlag = node.flag(slot);
        let (locks, keeps_messages, own) = (Cell::new(0), Cell::new(false), node.cores_of(slot));
        let stream = StridePrefetcher::new(node.config.tuning.prefetch);
        let state = Box::new(RefCell::new(State { stream, ..State::default() }));
        Thread { node, slot, flag, locks, keeps_messages, own, state, not_send: PhantomData }
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

    pub(crate) fn has_lock(&self) {
        self.locks.set(self.locks.get() + 1);
    }

    pub(crate) fn has_lock_no_more(&self) {
        self.locks.set(self.locks.get().saturating_sub(1));
    }

    /// Whether this thread holds a lock; reader-writer locks are none.
    pub(crate) fn holds_locks(&self) -> bool {
        self.locks.get() > 0
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
        &self.node.slots[self.slot.index()]
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.node.counters(self.slot)
    }

    /// Runs an operation and books its time: waiting where it was waited, the rest as protocol. Its thread is not
    /// cancelled in the midst of it.
    pub(crate) fn operation<R>(&self, operation: impl FnOnce() -> R) -> R {
        let start = self.node.now();
        self.forget_waits();
        self.node.defer_wakeups(self.slot);
        let gone_before = self.state.borrow().soft;
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
        let waited = self.state.borrow().waited_ns;
        self.counters().protocol_ns.add(span.saturating_sub(waited));
        result
    }

    /// Sleeps until something has happened that may end the wait.
    pub(crate) fn wait(&self, why: Waiting) -> Result<()> {
        self.wait_with(why, |why, since| self.node.wait_some(self.slot, why, since))
    }

    /// As [`Thread::wait`], by other means than this thread's socket: `wait` gets when the wait began.
    pub(crate) fn wait_with<R>(&self, why: Waiting, wait: impl FnOnce(Waiting, Time) -> Result<R>) -> Result<R> {
        if self.keeps_messages.get() {
            self.make_room();
        }
        let before = self.state.borrow().waited_ns;
        let result = self.booked(why, |since| wait(why, since));
        let waited = self.state.borrow().waited_ns;
        if self.own.as_ref().is_some_and(|own| own.come_back(self.node.now())) {
            self.counters().came_back.add(1);
        }
        let result = result?;
        self.ask_host(before, waited).map(|()| result)
    }

    /// Takes a lock that another thread of this node holds for as long as what it does there takes.
    pub(crate) fn locked_out<'m, T>(&self, why: Waiting, lock: &'m Mutex<T>) -> MutexGuard<'m, T> {
        lock.try_lock()
            .unwrap_or_else(|| self.booked(why, |since| self.node.asleep(self.slot, why, since, || lock.lock())))
    }

    /// A part of a wait, which began at the time that `wait` gets: books how long it took.
    fn booked<R>(&self, why: Waiting, wait: impl FnOnce(Time) -> R) -> R {
        let start = self.node.now();
        self.thread_slot().waits.set(Some(start));
        let result = wait(self.waits_since(why, start));
        self.thread_slot().waits.set(None);
        let span = (self.node.now() - start).0;
        self.state.borrow_mut().waited_ns += span;
        why.time(self.counters()).add(span);
        result
    }

    /// What the thread has waited for longer than a moment, without leaving its processor to others. `None` when that
    /// is over.
    pub(crate) fn waits_long_for(&self, why: Option<Waiting>) {
        *self.thread_slot().status.lock() = why.map(|why| (why, self.node.now()));
    }

    fn forget_waits(&self) {
        let mut state = self.state.borrow_mut();
        (state.waited_ns, state.waits) = (0, None);
    }

    /// When the wait began of which a part begins now: a thread wakes now and then, and waits on for the same thing.
    fn waits_since(&self, why: Waiting, now: Time) -> Time {
        let mut state = self.state.borrow_mut();
        let since = state.waits.filter(|(before, _)| *before == why).map_or(now, |(_, since)| since);
        state.waits = Some((why, since));
        since
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

    /// Nanoseconds that this thread has computed, a slowed node's delays included.
    pub(crate) fn busy_ns(&self) -> u64 {
        (self.node.thread_cpu_ns() as f64 * self.node.slow_factor()) as u64
    }

    /// Gives back what it has, and the slot itself.
    pub(crate) fn leave_slot(&self) {
        self.leave_loop();
        self.end_ranges();
        self.leave_messages();
        self.node.sections_are_left(self.slot);
        self.node.slots[self.slot.index()].taken.store(false, std::sync::atomic::Ordering::Release);
    }

    pub(crate) fn begin_life(&self) -> Time {
        self.state.borrow_mut().left = Some(self.node.thread_cpu_ns());
        let now = self.node.now();
        self.thread_slot().lives.set(Some(now));
        now
    }

    /// Books the main thread's life up to now, when its node ends before it does.
    pub(crate) fn end_life_now(&self) {
        crate::end_current_life();
    }

    /// Books the thread's life since then.
    pub(crate) fn end_life(&self, since: Time) {
        let now = self.node.now();
        self.thread_slot().lives.set(None);
        self.counters().lifetime_ns.add((now - since).0);
    }
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
