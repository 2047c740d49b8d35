//! An application thread's side of every operation: accesses that miss, ranges, locks, barriers.

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::node::{Node, Waiting};
use crate::object::Object;
use comem_memory::StoreFlag;
use comem_protocol::coherence::msi::Begin;
use comem_protocol::coherence::{Engine, UnitMemory, owner};
use comem_protocol::ids::{FlagId, LockId, NodeId, Slot, UnitId};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::lock::Acquire;
use comem_protocol::sync::reduce::{NUMBERS_MAX, Number, Operator, Reduction};
use comem_protocol::time::Time;
use comem_protocol::wire::message::{Collective, Want};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one remote read or write under `owner`: about a datagram.
const OWNER_CHUNK: usize = 1024;
/// Messages that a thread puts aside while it waits to send.
const STASH_MAX: usize = 16 * crate::node::INBOX_MAX;

/// One application thread of this node, as the thread itself sees it.
///
/// It cannot be sent to another thread: its sockets and its store flag belong to the thread it was made for.
#[derive(Debug)]
pub struct Thread {
    node: Arc<Node>,
    slot: Slot,
    flag: &'static StoreFlag,
    /// Behind a box, so that compilers know the rest not to change and keep it in registers.
    state: Box<RefCell<State>>,
    not_send: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct State {
    out: Outbox,
    pins: Vec<Pin>,
    /// The pins are let go while the thread waits.
    soft: bool,
    /// Nanoseconds waited in the operation under way.
    waited_ns: u64,
    /// Messages put aside while the thread waited to send.
    stash: VecDeque<(NodeId, Vec<u8>)>,
    /// When the thread last left Comem, for a node that is made slower.
    left: Option<u64>,
}

/// A range of units that is lent to the program.
#[derive(Clone, Debug)]
struct Pin {
    object: Arc<Object>,
    units: Range<u32>,
    want: Want,
}

impl Pin {
    fn key(&self) -> (u32, u32) {
        (self.object.id.0, self.units.start)
    }

    fn overlaps(&self, other: &Pin) -> bool {
        let (a, b) = (&self.units, &other.units);
        self.object.id == other.object.id && a.start < b.end && b.start < a.end
    }
}

impl Thread {
    pub(crate) fn new(node: Arc<Node>, slot: Slot) -> Thread {
        let flag: &'static StoreFlag = node.flag(slot);
        Thread { node, slot, flag, state: Box::default(), not_send: PhantomData }
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
    pub fn count(&self) -> usize {
        self.node.nodes() * self.node.threads()
    }

    /// The node this thread is part of.
    pub fn node(&self) -> NodeId {
        self.node.me()
    }

    /// This thread's equal share of `total` things: a range of their numbers.
    pub fn share(&self, total: usize) -> Range<usize> {
        share(total, self.id(), self.count())
    }

    #[inline(always)]
    pub(crate) fn flag(&self) -> &'static StoreFlag {
        self.flag
    }

    /// Unwraps a result of an access: misuse is a panic with Comem's words.
    #[track_caller]
    pub(crate) fn must<T>(&self, result: Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{}", self.node.sentence(&error)))
    }

    fn counters(&self) -> &Counters {
        self.node.counters(self.slot)
    }

    /// Runs an operation and books its time: waiting where it was waited, the rest as protocol.
    fn operation<R>(&self, operation: impl FnOnce() -> R) -> R {
        let start = self.node.now();
        self.state.borrow_mut().waited_ns = 0;
        let result = operation();
        let span = (self.node.now() - start).0;
        let waited = self.state.borrow().waited_ns;
        self.counters().protocol_ns.add(span.saturating_sub(waited));
        result
    }

    /// Sleeps until something has happened that may end the wait.
    fn wait(&self, why: Waiting) -> Result<()> {
        let start = self.node.now();
        let result = self.node.wait_some(self.slot, why);
        let span = (self.node.now() - start).0;
        self.state.borrow_mut().waited_ns += span;
        let counters = self.counters();
        match why {
            Waiting::Fetch { .. } | Waiting::Room => counters.fetch_ns.add(span),
            Waiting::Lock(_) | Waiting::Flag(..) | Waiting::Messages => counters.lock_ns.add(span),
            Waiting::Barrier(..) => counters.barrier_ns.add(span),
        }
        result
    }

    /// Takes a step with this thread's outbox and carries out what it asks for.
    fn stepping<R>(&self, step: impl FnOnce(&mut Outbox) -> R) -> R {
        let mut out = std::mem::take(&mut self.state.borrow_mut().out);
        let result = step(&mut out);
        self.node.flush(self.slot, &mut out);
        self.state.borrow_mut().out = out;
        result
    }

    // ---- accesses

    pub(crate) fn read_elements(&self, object: &Arc<Object>, start: usize, out: &mut [u8]) -> Result<()> {
        self.operation(|| {
            self.each_unit(object, start, out.len(), |unit, offset, bytes| match object.engine {
                Engine::Msi => {
                    let part = &mut out[bytes];
                    self.with_unit(object, unit, Want::Shared, |memory| read_part(memory, offset, part))
                }
                Engine::Broadcast => {
                    let part = &mut out[bytes];
                    self.locally(object, unit, |memory| read_part(memory, offset, part))
                }
                Engine::Owner => self.read_at_owner(object, unit, offset, &mut out[bytes]),
            })
        })
    }

    pub(crate) fn write_elements(&self, object: &Arc<Object>, start: usize, values: &[u8]) -> Result<()> {
        self.operation(|| {
            self.each_unit(object, start, values.len(), |unit, offset, bytes| {
                let part = &values[bytes];
                match object.engine {
                    Engine::Msi => self.with_unit(object, unit, Want::Modified, |memory| {
                        memory.write(offset, part);
                    }),
                    Engine::Broadcast => {
                        self.locally(object, unit, |memory| {
                            memory.write(offset, part);
                        })?;
                        self.node.gather(self.slot, object, unit, offset, part);
                        Ok(())
                    }
                    Engine::Owner => self.write_at_owner(object, unit, offset, part),
                }
            })
        })
    }

    /// Calls `f(unit, offset in the unit, range of the bytes)` for the parts of a range of elements.
    fn each_unit(
        &self,
        object: &Object,
        start: usize,
        bytes: usize,
        mut f: impl FnMut(u32, usize, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let element = object.segments.element();
        let end = start.saturating_add(bytes / element);
        self.check_range(object, start, end)?;
        let mut at = start;
        while at < end {
            let unit = object.segments.unit_of(at);
            let elements = object.segments.elements_of(unit);
            let stop = elements.end.min(end);
            let part = (at - start) * element..(stop - start) * element;
            f(unit, (at - elements.start) * element, part)?;
            at = stop;
        }
        Ok(())
    }

    fn check_range(&self, object: &Object, start: usize, end: usize) -> Result<()> {
        let len = object.segments.len();
        if start <= end && end <= len {
            return Ok(());
        }
        let what =
            if end == start.saturating_add(1) { format!("index {start}") } else { format!("range {start}..{end}") };
        Err(Error::Misuse(format!("{what} is outside of {}, which has {len} elements; check the index", object.label)))
    }

    /// Runs `f` on a unit's memory under its lock, whatever its state.
    fn locally(&self, object: &Object, unit: u32, f: impl FnOnce(&mut dyn UnitMemory)) -> Result<()> {
        self.stepping(|out| object.step(self.node.guard(), unit, Some(self.slot), out, |_, cx| f(cx.memory)));
        Ok(())
    }

    /// Runs `f` once the unit is here in the state wanted.
    fn with_unit(
        &self,
        object: &Arc<Object>,
        unit: u32,
        want: Want,
        mut f: impl FnMut(&mut dyn UnitMemory),
    ) -> Result<()> {
        let mut missed = false;
        loop {
            if self.try_unit(object, unit, want, false, &mut f) {
                break;
            }
            self.count_miss(&mut missed, want);
            self.let_pins_go();
            self.wait(Waiting::Fetch { object: object.id, unit })?;
        }
        if missed { self.take_pins_back() } else { Ok(()) }
    }

    fn count_miss(&self, missed: &mut bool, want: Want) {
        if !std::mem::replace(missed, true) {
            match want {
                Want::Shared => self.counters().remote_reads.add(1),
                Want::Modified => self.counters().remote_writes.add(1),
            }
        }
    }

    fn try_unit(
        &self,
        object: &Object,
        unit: u32,
        want: Want,
        pin: bool,
        f: &mut dyn FnMut(&mut dyn UnitMemory),
    ) -> bool {
        let slot = self.slot;
        self.stepping(|out| {
            object.step(self.node.guard(), unit, Some(slot), out, |state, cx| {
                if state.begin(cx, slot, want, pin) == Begin::Wait {
                    return false;
                }
                if pin {
                    state.pin();
                }
                f(cx.memory);
                state.settle(cx);
                true
            })
        }) == Some(true)
    }

    fn read_at_owner(&self, object: &Arc<Object>, unit: u32, offset: usize, out: &mut [u8]) -> Result<()> {
        if object.home_of(unit) == self.node.me() {
            return self.locally(object, unit, |memory| read_part(memory, offset, out));
        }
        let step = OWNER_CHUNK.max(object.segments.element());
        let step = step - step % object.segments.element();
        for (i, part) in out.chunks_mut(step).enumerate() {
            self.counters().remote_reads.add(1);
            let (at, len) = ((offset + i * step) as u32, part.len() as u32);
            let id = UnitId { object: object.id, index: unit };
            let answer = self.ask_owner(object, id, |cx| owner::ask_read(cx, at, len))?;
            if answer.len() != part.len() {
                return Err(Error::Misuse("the owner's answer has the wrong size".to_string()));
            }
            part.copy_from_slice(&answer);
            self.node.return_answer(self.slot, answer);
        }
        Ok(())
    }

    fn write_at_owner(&self, object: &Arc<Object>, unit: u32, offset: usize, values: &[u8]) -> Result<()> {
        if object.home_of(unit) == self.node.me() {
            return self.locally(object, unit, |memory| {
                memory.write(offset, values);
            });
        }
        let step = OWNER_CHUNK.max(object.segments.element());
        let step = step - step % object.segments.element();
        for (i, part) in values.chunks(step).enumerate() {
            self.counters().remote_writes.add(1);
            let at = (offset + i * step) as u32;
            let id = UnitId { object: object.id, index: unit };
            let answer = self.ask_owner(object, id, |cx| owner::ask_write(cx, at, part))?;
            self.node.return_answer(self.slot, answer);
        }
        Ok(())
    }

    /// Sends a request to a unit's owner and waits for the answer.
    fn ask_owner(
        &self,
        object: &Object,
        unit: UnitId,
        ask: impl FnOnce(&mut comem_protocol::coherence::Context<'_>),
    ) -> Result<Vec<u8>> {
        self.let_pins_go();
        self.node.expect_answer(self.slot);
        self.stepping(|out| object.step(self.node.guard(), unit.index, Some(self.slot), out, |_, cx| ask(cx)));
        let answer = loop {
            if let Some(answer) = self.node.take_answer(self.slot) {
                break answer;
            }
            self.wait(Waiting::Fetch { object: unit.object, unit: unit.index })?;
        };
        self.take_pins_back()?;
        Ok(answer)
    }

    // ---- ranges

    /// Brings a range here and keeps it: afterwards its memory may be accessed plainly until
    /// [`Thread::range_end`].
    pub(crate) fn range_begin(&self, object: &Arc<Object>, range: Range<usize>, write: bool) -> Result<()> {
        self.check_range(object, range.start, range.end)?;
        if range.is_empty() {
            return Ok(());
        }
        if object.engine == Engine::Msi && self.borrow_at_once(object, &range, write) {
            return Ok(());
        }
        self.operation(|| match object.engine {
            Engine::Msi => self.pin_range(object, &range, if write { Want::Modified } else { Want::Shared }),
            Engine::Broadcast => Ok(()),
            Engine::Owner => self.fetch_range_from_owners(object, &range),
        })
    }

    /// Ends a range access; what was written becomes visible to others.
    pub(crate) fn range_end(&self, object: &Arc<Object>, range: Range<usize>, write: bool) {
        if range.is_empty() {
            return;
        }
        if object.engine == Engine::Msi {
            return self.unpin_range(object, &range);
        }
        let result = self.operation(|| match object.engine {
            Engine::Broadcast if write => self.tell_range(object, &range),
            Engine::Owner if write => self.return_range_to_owners(object, &range),
            _ => Ok(()),
        });
        self.must(result);
    }

    fn units_of(object: &Object, range: &Range<usize>) -> Range<u32> {
        object.segments.unit_of(range.start)..object.segments.unit_of(range.end - 1) + 1
    }

    /// Borrows a range that is not all here: every range of this thread is taken anew in the order of objects and units,
    /// which all threads keep, so that no two wait for each other's.
    fn pin_range(&self, object: &Arc<Object>, range: &Range<usize>, want: Want) -> Result<()> {
        self.let_pins_go();
        let pin = Pin { object: object.clone(), units: Self::units_of(object, range), want };
        self.state.borrow_mut().pins.push(pin);
        self.take_pins_back()
    }

    /// Borrows a range if all of it is here: so short that its time is not booked.
    fn borrow_at_once(&self, object: &Arc<Object>, range: &Range<usize>, write: bool) -> bool {
        let want = if write { Want::Modified } else { Want::Shared };
        let units = Self::units_of(object, range);
        let here = object.try_lend(&units, want);
        if here {
            self.state.borrow_mut().pins.push(Pin { object: object.clone(), units, want });
        }
        here
    }

    fn unpin_range(&self, object: &Arc<Object>, range: &Range<usize>) {
        let units = Self::units_of(object, range);
        let found = {
            let mut state = self.state.borrow_mut();
            let at = state.pins.iter().rposition(|p| p.object.id == object.id && p.units == units);
            at.map(|at| state.pins.remove(at))
        };
        if let Some(pin) = found {
            self.give_back(&pin);
        }
    }

    /// Ends a lending, and serves those who waited for it.
    fn give_back(&self, pin: &Pin) {
        for unit in pin.object.end_lending(&pin.units) {
            self.stepping(|out| {
                pin.object.step(self.node.guard(), unit, Some(self.slot), out, |state, cx| state.settle(cx))
            });
        }
    }

    /// About to wait: a thread that waits is not using its ranges, so others may have them meanwhile.
    fn let_pins_go(&self) {
        let pins = {
            let mut state = self.state.borrow_mut();
            if std::mem::replace(&mut state.soft, true) || state.pins.is_empty() {
                return;
            }
            state.pins.clone()
        };
        pins.iter().for_each(|pin| self.give_back(pin));
    }

    /// The wait is over: every range that the program still uses comes back before it goes on.
    fn take_pins_back(&self) -> Result<()> {
        let mut pins = {
            let mut state = self.state.borrow_mut();
            if !std::mem::take(&mut state.soft) || state.pins.is_empty() {
                return Ok(());
            }
            state.pins.clone()
        };
        pins.sort_by_key(Pin::key);
        for at in 0..pins.len() {
            self.borrow_again(&pins, at)?;
        }
        Ok(())
    }

    /// Borrows range `at` of `pins`, all earlier ones being borrowed. What another range of this thread needs for writing is
    /// asked for writing at once: a unit that is lent cannot be upgraded while somebody else wants it.
    fn borrow_again(&self, pins: &[Pin], at: usize) -> Result<()> {
        let pin = &pins[at];
        let writes = pins.iter().any(|other| other.want == Want::Modified && other.overlaps(pin));
        let want = if writes { Want::Modified } else { pin.want };
        if pin.object.try_lend(&pin.units, want) {
            return Ok(());
        }
        let mut pinned = Vec::new();
        let mine = |unit: u32| pins[..at].iter().any(|p| p.object.id == pin.object.id && p.units.contains(&unit));
        for unit in pin.units.clone().filter(|unit| !mine(*unit)) {
            let mut missed = false;
            while !self.try_unit(&pin.object, unit, want, true, &mut |_| ()) {
                self.count_miss(&mut missed, want);
                self.wait(Waiting::Fetch { object: pin.object.id, unit })?;
            }
            pinned.push(unit);
        }
        pin.object.lend_pinned(&pin.units);
        for unit in pinned {
            self.stepping(|out| {
                pin.object.step(self.node.guard(), unit, Some(self.slot), out, |state, cx| state.unpin(cx))
            });
        }
        Ok(())
    }

    fn fetch_range_from_owners(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let element = object.segments.element();
        for unit in Self::units_of(object, range) {
            if object.home_of(unit) == self.node.me() {
                continue;
            }
            let elements = object.segments.elements_of(unit);
            let part = elements.start.max(range.start)..elements.end.min(range.end);
            let mut bytes = vec![0; part.len() * element];
            let offset = (part.start - elements.start) * element;
            self.read_at_owner(object, unit, offset, &mut bytes)?;
            self.locally(object, unit, |memory| {
                memory.write(offset, &bytes);
            })?;
        }
        Ok(())
    }

    fn return_range_to_owners(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let element = object.segments.element();
        for unit in Self::units_of(object, range) {
            if object.home_of(unit) == self.node.me() {
                continue;
            }
            let elements = object.segments.elements_of(unit);
            let part = elements.start.max(range.start)..elements.end.min(range.end);
            let mut bytes = vec![0; part.len() * element];
            let offset = (part.start - elements.start) * element;
            self.locally(object, unit, |memory| read_part(memory, offset, &mut bytes))?;
            self.write_at_owner(object, unit, offset, &bytes)?;
        }
        Ok(())
    }

    fn tell_range(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let element = object.segments.element();
        let mut bytes = vec![0; range.len() * element];
        self.each_unit(object, range.start, bytes.len(), |unit, offset, part| {
            self.locally(object, unit, |memory| read_part(memory, offset, &mut bytes[part.clone()]))?;
            self.node.gather(self.slot, object, unit, offset, &bytes[part]);
            Ok(())
        })
    }

    // ---- synchronisation

    /// Waits until all threads of all nodes have come here.
    ///
    /// # Panics
    /// When another node makes a different collective call.
    pub fn barrier(&self) {
        self.must(self.try_barrier());
    }

    /// As [`Thread::barrier`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn try_barrier(&self) -> Result<()> {
        self.collective(Collective::BARRIER, &[], |_| ())?;
        self.counters().barriers.add(1);
        Ok(())
    }

    /// Takes part in a collective call and gives its result to `f`.
    pub(crate) fn collective<R>(&self, what: Collective, payload: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.operation(|| {
            self.slow_down();
            self.node.tell_gathered(self.slot, self.slot);
            self.let_pins_go();
            let slot = self.slot;
            let epoch = self.stepping(|out| {
                let now = self.node.now();
                self.node.with_barrier(|b| b.arrive(now, slot, what, payload, out))
            })?;
            while !self.node.with_barrier(|b| b.is_open(epoch))? {
                self.wait(Waiting::Barrier(what, epoch))?;
            }
            let result = self.node.with_barrier(|b| f(b.result()));
            self.take_pins_back()?;
            self.state.borrow_mut().left = Some(self.node.thread_cpu_ns());
            Ok(result)
        })
    }

    /// On a node made slower: sleeps as long as the computation since the last call, times the factor less one.
    fn slow_down(&self) {
        let factor = self.node.slow_factor();
        if factor <= 1.0 {
            return;
        }
        let now = self.node.thread_cpu_ns();
        // From here on counts for the next call: nothing is slept for twice.
        let since = self.state.borrow_mut().left.replace(now).unwrap_or(now);
        std::thread::sleep(std::time::Duration::from_nanos(((now - since) as f64 * (factor - 1.0)) as u64));
    }

    /// Reduces vectors of integers over all threads; each thread's `values` become the result.
    ///
    /// # Panics
    /// As [`Thread::barrier`].
    pub fn reduce_i64(&self, operator: Operator, values: &mut [i64]) {
        self.must(self.try_reduce_i64(operator, values));
    }

    /// As [`Thread::reduce_i64`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn try_reduce_i64(&self, operator: Operator, values: &mut [i64]) -> Result<()> {
        let reduction = Reduction { operator, number: Number::I64 };
        for part in values.chunks_mut(NUMBERS_MAX) {
            let bytes: Vec<u8> = part.iter().flat_map(|v| v.to_be_bytes()).collect();
            self.reduce(reduction, &bytes, |i, word| part[i] = i64::from_be_bytes(word))?;
        }
        Ok(())
    }

    /// Reduces vectors of numbers over all threads; each thread's `values` become the result, the same bits
    /// everywhere.
    ///
    /// # Panics
    /// As [`Thread::barrier`].
    pub fn reduce_f64(&self, operator: Operator, values: &mut [f64]) {
        self.must(self.try_reduce_f64(operator, values));
    }

    /// As [`Thread::reduce_f64`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn try_reduce_f64(&self, operator: Operator, values: &mut [f64]) -> Result<()> {
        let reduction = Reduction { operator, number: Number::F64 };
        for part in values.chunks_mut(NUMBERS_MAX) {
            let bytes: Vec<u8> = part.iter().flat_map(|v| v.to_be_bytes()).collect();
            self.reduce(reduction, &bytes, |i, word| part[i] = f64::from_be_bytes(word))?;
        }
        Ok(())
    }

    fn reduce(&self, reduction: Reduction, bytes: &[u8], mut set: impl FnMut(usize, [u8; 8])) -> Result<()> {
        self.collective(Collective::reduce(reduction, bytes.len() / 8), bytes, |result| {
            for (i, word) in result.as_chunks::<8>().0.iter().enumerate() {
                set(i, *word);
            }
        })
    }

    /// Acquires a lock (not reentrant).
    ///
    /// # Panics
    /// When this thread holds the lock already.
    pub fn lock(&self, lock: LockId) {
        self.must(self.try_lock_blocking(lock));
    }

    /// As [`Thread::lock`].
    ///
    /// # Errors
    /// When this thread holds the lock already.
    pub fn try_lock_blocking(&self, lock: LockId) -> Result<()> {
        self.operation(|| {
            let slot = self.slot;
            self.node.tell_gathered(slot, slot);
            self.counters().lock_acquires.add(1);
            if self.node.lock_room(lock).holds(lock, slot) {
                return Err(Error::Misuse(format!(
                    "thread {} acquires lock {:#x}, which it holds already; locks are not reentrant",
                    self.id(),
                    lock.0
                )));
            }
            let (first, asked) = self.stepping(|out| {
                let first = self.node.with_locks(lock, Some(slot), out, |l, cx| l.acquire(cx, lock, slot));
                (first, !out.sends().is_empty())
            });
            if first == Acquire::Held {
                return Ok(());
            }
            if asked {
                self.counters().lock_remote.add(1);
            }
            self.slow_down();
            self.let_pins_go();
            while !self.node.lock_room(lock).holds(lock, slot) {
                self.wait(Waiting::Lock(lock))?;
            }
            self.take_pins_back()
        })
    }

    /// Releases a lock.
    ///
    /// # Panics
    /// When this thread does not hold it.
    pub fn unlock(&self, lock: LockId) {
        self.must(self.try_unlock(lock));
    }

    /// As [`Thread::unlock`].
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn try_unlock(&self, lock: LockId) -> Result<()> {
        self.operation(|| {
            let slot = self.slot;
            self.node.tell_gathered(slot, slot);
            self.stepping(|out| self.node.with_locks(lock, Some(slot), out, |l, cx| l.release(cx, lock, slot))).map_err(
                |_| {
                    Error::Misuse(format!(
                        "thread {} releases lock {:#x}, which it does not hold; acquire it first",
                        self.id(),
                        lock.0
                    ))
                },
            )
        })
    }

    /// Runs `f` while holding a lock.
    pub fn locked<R>(&self, lock: LockId, f: impl FnOnce() -> R) -> R {
        self.lock(lock);
        let result = f();
        self.unlock(lock);
        result
    }

    /// Raises a flag to `value`, unless it is that high already.
    pub fn flag_set(&self, flag: FlagId, value: u64) {
        self.operation(|| {
            self.node.tell_gathered(self.slot, self.slot);
            self.stepping(|out| self.node.with_flags(flag, Some(self.slot), out, |f, cx| f.set(cx, flag, value)));
        });
    }

    /// Waits until a flag has reached `value`; gives what it has reached.
    pub fn flag_wait(&self, flag: FlagId, value: u64) -> u64 {
        self.must(self.try_flag_wait(flag, value))
    }

    fn try_flag_wait(&self, flag: FlagId, value: u64) -> Result<u64> {
        self.operation(|| {
            let slot = self.slot;
            let now =
                self.stepping(|out| self.node.with_flags(flag, Some(slot), out, |f, cx| f.wait(cx, flag, slot, value)));
            if let Some(now) = now {
                return Ok(now);
            }
            self.let_pins_go();
            let reached = loop {
                if let Some(reached) = self.node.flag_room(flag).arrived(flag, value) {
                    break reached;
                }
                self.wait(Waiting::Flag(flag, value))?;
            };
            self.take_pins_back()?;
            Ok(reached)
        })
    }

    // ---- messages between threads

    /// Waits until every message that this node has posted has arrived.
    pub(crate) fn flush_posts(&self) -> Result<()> {
        while self.node.unsent() > 0 {
            self.node.sleep_a_little(self.slot)?;
        }
        Ok(())
    }

    /// Sends `bytes` to thread `to` of the job: guaranteed, exactly once, in no particular order. Waits while
    /// too much is under way.
    ///
    /// # Errors
    /// When there is no such thread or the message is too large.
    pub fn post(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.operation(|| {
            if to >= self.count() {
                return Err(Error::Misuse(format!("there is no thread {to}; the job has {} threads", self.count())));
            }
            while !self.node.post_user(self.slot, to, bytes)? {
                self.make_room();
                self.wait(Waiting::Room)?;
            }
            Ok(())
        })
    }

    /// Takes the next message sent to this thread, if one is there: the sender's node and the bytes.
    pub fn try_receive(&self) -> Option<(NodeId, Vec<u8>)> {
        let stashed = self.state.borrow_mut().stash.pop_front();
        stashed.or_else(|| self.node.take_user(self.slot))
    }

    /// Puts messages to this thread aside while it waits to send: threads that send to each other in a circle, all
    /// with full inboxes, would wait for ever.
    fn make_room(&self) {
        while self.state.borrow().stash.len() < STASH_MAX {
            let Some(message) = self.node.take_user(self.slot) else { return };
            self.state.borrow_mut().stash.push_back(message);
        }
    }

    /// Waits for a message to this thread.
    pub fn receive(&self) -> (NodeId, Vec<u8>) {
        self.must(self.operation(|| {
            loop {
                if let Some(message) = self.try_receive() {
                    return Ok(message);
                }
                self.wait(Waiting::Messages)?;
            }
        }))
    }

    /// Nanoseconds that this thread has computed, a slowed node's delays included.
    pub(crate) fn busy_ns(&self) -> u64 {
        (self.node.thread_cpu_ns() as f64 * self.node.slow_factor()) as u64
    }

    pub(crate) fn leave_seat(&self) {
        self.node.seats[self.slot.index()].taken.store(false, std::sync::atomic::Ordering::Release);
    }

    pub(crate) fn begin_life(&self) -> Time {
        self.state.borrow_mut().left = Some(self.node.thread_cpu_ns());
        self.node.now()
    }

    /// Books the main thread's life up to now, when its node ends before it does.
    pub(crate) fn end_life_now(&self) {
        crate::end_current_life();
    }

    pub(crate) fn end_life(&self, since: Time) {
        self.counters().lifetime_ns.add((self.node.now() - since).0);
    }
}

/// Part `index` of `parts` equal shares of `total`: a range, the earlier ones longer by one where it does not come out
/// even.
pub fn share(total: usize, index: usize, parts: usize) -> Range<usize> {
    let (base, more) = (total / parts, total % parts);
    let start = index * base + index.min(more);
    start..start + base + usize::from(index < more)
}

fn read_part(memory: &mut dyn UnitMemory, offset: usize, part: &mut [u8]) {
    let mut bytes = Vec::with_capacity(part.len());
    if memory.read(offset, part.len(), &mut bytes) {
        part.copy_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (total, parts) in [(10, 3), (2, 5), (0, 4), (128, 8)] {
            let ranges: Vec<_> = (0..parts).map(|i| share(total, i, parts)).collect();
            assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), total);
            assert!(ranges.windows(2).all(|w| w[0].end == w[1].start));
        }
    }
}
