//! An application thread: goes through its program in steps as small as a processor's, so that anything may
//! happen between two of them.

use crate::history::{Deed, Record, Stamp, ThreadId};
use crate::memory::{decode, encode};
use crate::node::Node;
use crate::program::Op;
use crate::schedule::Scheduled;
use comem_protocol::coherence::msi::Begin;
use comem_protocol::coherence::{Engine, Permission, broadcast, owner};
use comem_protocol::ids::{LockId, Slot};
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::sync::lock::Acquire;
use comem_protocol::sync::reduce::{Number, Operator, Reduction};
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::time::Time;
use comem_protocol::wire::message::{Collective, Message, SyncRequest, Want};
use std::collections::BTreeMap;

/// What a thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Begins the operation.
    Begin,
    /// Was permitted to load, and loads.
    Load,
    /// Its flag is up; checks the permission to store.
    Check,
    /// Was permitted to store, and stores.
    Store,
    /// Lowers its flag.
    Lower,
    /// Is in the runtime with an access that was not permitted; tries, or tries again.
    Slow,
    /// Has asked a unit's owner, or given a unit back.
    Asked,
    /// Pins the range's units; this many are pinned.
    Pin(u32),
    /// Accesses the range; this many elements are done.
    Range(usize),
    /// Waits for a lock, a flag or messages, or sees that it has what it waited for.
    Await,
    /// Has asked a semaphore, condition variable or reader-writer lock for this.
    Requested(SyncRequest),
    /// Has joined a condition's waiters, and is about to let the lock go.
    Joined,
    /// Waits for this barrier.
    Barrier(u32),
    /// Is in an access to pages.
    Paged,
}

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Goes on within the operation.
    Within,
    /// The operation has ended.
    Ended,
    /// Computes for so long.
    Thinks(u64),
    /// Sleeps until woken or answered.
    Sleeps,
    /// Sleeps until woken, and looks again after a while.
    Naps,
    /// The program has ended.
    Done,
}

/// An application thread.
#[derive(Clone, Debug)]
pub struct Thread {
    pub(crate) program: Vec<Op>,
    /// The operation it is at.
    pub(crate) at: usize,
    pub(crate) phase: Phase,
    pub(crate) begun: Stamp,
    pub(crate) register: u64,
    /// What the register held before.
    pub(crate) before: u64,
    /// Sleeps until roused.
    pub(crate) asleep: bool,
    /// Has seen that its program has ended.
    pub(crate) ended: bool,
    /// When it asked another node for a token, if it waits for that.
    pub(crate) asked_for_token: Option<Time>,
    /// How often it has taken a nap.
    pub(crate) naps: u64,
    pub(crate) answer: Option<Vec<u8>>,
    pub(crate) received: usize,
    held: BTreeMap<LockId, Stamp>,
    pub(crate) shared: BTreeMap<RwLockId, (Stamp, bool)>,
}

impl Thread {
    /// A thread at the beginning of its program.
    pub fn new(program: Vec<Op>) -> Thread {
        Thread {
            program,
            at: 0,
            phase: Phase::Begin,
            begun: Stamp(0),
            register: 0,
            before: 0,
            asleep: false,
            ended: false,
            asked_for_token: None,
            naps: 0,
            answer: None,
            received: 0,
            held: BTreeMap::new(),
            shared: BTreeMap::new(),
        }
    }

    /// Whether its program has ended.
    pub fn is_done(&self) -> bool {
        self.at == self.program.len()
    }

    /// Where the thread stands, for people.
    pub fn place(&self) -> String {
        match self.program.get(self.at) {
            Some(op) => format!("operation {} of {}, {op:?} ({:?})", self.at, self.program.len(), self.phase),
            None => "the end".to_string(),
        }
    }
}

impl Node {
    /// Thread `t` takes its next step.
    pub(crate) fn step_thread(&mut self, now: Time, t: usize, out: &mut Outbox) -> Turn {
        let stamp = self.stamp;
        self.now = now;
        let thread = &mut self.threads[t];
        let Some(op) = thread.program.get(thread.at).copied() else { return Turn::Done };
        if thread.phase == Phase::Begin {
            thread.begun = stamp;
        }
        if let Some(turn) = self.step_paged(now, t, op, out) {
            return turn;
        }
        let turn = self.step_op(now, t, op, out);
        if turn == Turn::Sleeps {
            self.let_holds_go(t, out);
        }
        turn
    }

    fn step_op(&mut self, now: Time, t: usize, op: Op, out: &mut Outbox) -> Turn {
        match op {
            Op::Read(element) => self.read(t, element, out),
            Op::Write(element, value) => self.write(t, element, value, out),
            Op::GiveBack(element) => {
                let (unit, slot) = (self.shape.unit_of(element), Some(Self::slot(t)));
                let asked = self.threads[t].phase == Phase::Asked;
                if self.engine == Engine::Msi && !asked {
                    self.on_unit(unit, slot, out, |state, cx| state.give_back(cx));
                }
                if self.units[unit as usize].leaving() == slot { self.sleeps_in(t, Phase::Asked) } else { self.ends(t) }
            }
            Op::WriteNext(element) => {
                let next = self.threads[t].register + 1;
                self.write(t, element, next, out)
            }
            Op::ReadRange(first, count) => self.range(t, first, count, None, out),
            Op::WriteRange(first, count, value) => self.range(t, first, count, Some(value), out),
            Op::Lock(lock) => self.lock(t, lock, out),
            Op::Unlock(lock) => self.unlock(t, lock, out),
            Op::Barrier(number) => self.pass_barrier(now, t, Some(number), out),
            Op::Exit => self.pass_barrier(now, t, None, out),
            Op::Think(ns) => {
                self.threads[t].at += 1;
                Turn::Thinks(ns)
            }
            Op::At(ns) => {
                self.threads[t].at += 1;
                Turn::Thinks((Time(ns) - now).0)
            }
            Op::Post(_)
            | Op::Take(_)
            | Op::TryTake(_)
            | Op::AwaitWhile(..)
            | Op::Signal(_)
            | Op::Broadcast(_)
            | Op::ReadLock(_)
            | Op::WriteLock(_)
            | Op::RwUnlock(_) => self.at_sync_object(t, op, out),
            Op::ReadSpan(_) | Op::WriteSpan(..) | Op::Until(..) => panic!("no objects span pages"),
            Op::Set(..) | Op::Await(..) | Op::Send(..) | Op::Receive(_) => self.signal(t, op, out),
        }
    }

    pub(crate) fn slot(t: usize) -> Slot {
        Slot::thread(t)
    }

    pub(crate) fn goes_to(&mut self, t: usize, phase: Phase) -> Turn {
        self.threads[t].phase = phase;
        Turn::Within
    }

    pub(crate) fn sleeps_in(&mut self, t: usize, phase: Phase) -> Turn {
        self.threads[t].phase = phase;
        Turn::Sleeps
    }

    pub(crate) fn record(&mut self, t: usize, deed: Deed) {
        let (begun, thread) = (self.threads[t].begun, ThreadId(self.me, t as u16));
        self.records.push(Record { thread, begun, ended: self.stamp, deed });
    }

    pub(crate) fn ends(&mut self, t: usize) -> Turn {
        let thread = &mut self.threads[t];
        thread.phase = Phase::Begin;
        thread.at += 1;
        Turn::Ended
    }

    pub(crate) fn ends_with(&mut self, t: usize, deed: Deed) -> Turn {
        self.record(t, deed);
        self.ends(t)
    }

    fn has_read(&mut self, t: usize, element: usize, value: Option<u64>) -> Turn {
        self.threads[t].before = self.threads[t].register;
        self.threads[t].register = value.unwrap_or(0);
        let deed = value.map_or(Deed::Torn { element }, |value| Deed::Read { element, value });
        self.ends_with(t, deed)
    }

    fn read(&mut self, t: usize, element: usize, out: &mut Outbox) -> Turn {
        let unit = self.shape.unit_of(element);
        match self.threads[t].phase {
            Phase::Begin if self.memory.permission(element) >= Permission::Read => self.goes_to(t, Phase::Load),
            Phase::Load => {
                let value = self.memory.load(element);
                self.has_read(t, element, value)
            }
            Phase::Asked => match self.threads[t].answer.take() {
                Some(bytes) => self.has_read(t, element, decode(&bytes)),
                None => self.sleeps_in(t, Phase::Asked),
            },
            _ if self.engine == Engine::Owner && self.shape.home_of(unit) != self.me => {
                let (offset, len) = (self.shape.offset_of(element) as u32, self.shape.width as u32);
                self.threads[t].answer = None;
                self.on_unit(unit, Some(Self::slot(t)), out, |_, cx| owner::ask_read(cx, offset, len));
                self.sleeps_in(t, Phase::Asked)
            }
            _ => {
                let mut bytes = Vec::new();
                let (offset, len) = (self.shape.offset_of(element), self.shape.width);
                let hit = self.under_lock(t, unit, Want::Shared, out, |cx| {
                    cx.memory.read(offset, len, &mut bytes);
                });
                if hit { self.has_read(t, element, decode(&bytes)) } else { self.sleeps_in(t, Phase::Slow) }
            }
        }
    }

    fn write(&mut self, t: usize, element: usize, value: u64, out: &mut Outbox) -> Turn {
        let (unit, slot, phase) = (self.shape.unit_of(element), Self::slot(t), self.threads[t].phase);
        match phase {
            Phase::Begin if self.shape.is_word() => self.goes_to(t, Phase::Check),
            Phase::Check if self.memory.check_store(slot, element, value) => self.goes_to(t, Phase::Store),
            Phase::Check => self.goes_to(t, Phase::Slow),
            Phase::Store => {
                self.memory.make_store(slot);
                self.goes_to(t, Phase::Lower)
            }
            Phase::Lower => self.ends_with(t, Deed::Write { element, value }),
            Phase::Asked if self.threads[t].answer.take().is_some() => {
                self.ends_with(t, Deed::Write { element, value })
            }
            Phase::Asked => self.sleeps_in(t, Phase::Asked),
            _ => self.write_slowly(t, unit, element, value, out),
        }
    }

    fn write_slowly(&mut self, t: usize, unit: u32, element: usize, value: u64, out: &mut Outbox) -> Turn {
        let slot = Some(Self::slot(t));
        let offset = self.shape.offset_of(element);
        let mut bytes = vec![0; self.shape.width];
        encode(value, &mut bytes);
        if self.engine == Engine::Owner && self.shape.home_of(unit) != self.me {
            self.threads[t].answer = None;
            self.on_unit(unit, slot, out, |_, cx| owner::ask_write(cx, offset as u32, &bytes));
            return self.sleeps_in(t, Phase::Asked);
        }
        if self.engine == Engine::Broadcast {
            self.on_unit(unit, slot, out, |_, cx| broadcast::write(cx, offset as u32, &bytes));
            return self.ends_with(t, Deed::Write { element, value });
        }
        let hit = self.under_lock(t, unit, Want::Modified, out, |cx| {
            cx.memory.write(offset, &bytes);
        });
        if hit { self.ends_with(t, Deed::Write { element, value }) } else { self.sleeps_in(t, Phase::Slow) }
    }

    /// Accesses a unit under its lock, if it is here (`msi`) or always is (the other engines, at the owner).
    fn under_lock(
        &mut self,
        t: usize,
        unit: u32,
        want: Want,
        out: &mut Outbox,
        access: impl FnOnce(&mut comem_protocol::coherence::Context<'_>),
    ) -> bool {
        let (slot, msi) = (Self::slot(t), self.engine == Engine::Msi);
        self.on_unit(unit, Some(slot), out, |state, cx| {
            let hit = !msi || state.begin(cx, slot, want, false) == Begin::Hit;
            if hit {
                access(cx);
            }
            if hit && msi {
                state.settle(cx);
            }
            hit
        })
    }

    fn range(&mut self, t: usize, first: usize, count: usize, value: Option<u64>, out: &mut Outbox) -> Turn {
        let slot = Self::slot(t);
        let units = self.shape.unit_of(first)..self.shape.unit_of(first + count - 1) + 1;
        match self.threads[t].phase {
            Phase::Begin => self.goes_to(t, Phase::Pin(0)),
            Phase::Pin(pinned) if pinned == units.len() as u32 => self.goes_to(t, Phase::Range(0)),
            Phase::Pin(pinned) => {
                let want = if value.is_some() { Want::Modified } else { Want::Shared };
                let hit = self.on_unit(units.start + pinned, Some(slot), out, |state, cx| {
                    let hit = state.begin(cx, slot, want, true) == Begin::Hit;
                    if hit {
                        state.pin();
                    }
                    hit
                });
                if hit { self.goes_to(t, Phase::Pin(pinned + 1)) } else { self.sleeps_in(t, Phase::Pin(pinned)) }
            }
            Phase::Range(done) if done < count => {
                self.access_in_range(t, first + done, value.map(|v| v + done as u64));
                self.goes_to(t, Phase::Range(done + 1))
            }
            _ => {
                for unit in units {
                    self.on_unit(unit, Some(slot), out, |state, cx| state.unpin(cx));
                }
                self.ends(t)
            }
        }
    }

    fn access_in_range(&mut self, t: usize, element: usize, value: Option<u64>) {
        let deed = match (value, self.memory.load(element)) {
            (Some(value), _) => {
                self.memory.store(element, value);
                Deed::Write { element, value }
            }
            (None, Some(value)) => Deed::Read { element, value },
            (None, None) => Deed::Torn { element },
        };
        self.record(t, deed);
    }

    fn lock(&mut self, t: usize, lock: LockId, out: &mut Outbox) -> Turn {
        if self.acquires(t, lock, out) { self.ends(t) } else { self.sleeps_in(t, Phase::Await) }
    }

    /// Begins to acquire a lock, or sees whether it is acquired.
    pub(crate) fn acquires(&mut self, t: usize, lock: LockId, out: &mut Outbox) -> bool {
        let (slot, before) = (Self::slot(t), out.sends().len());
        let held = match self.threads[t].phase {
            Phase::Await => self.locks.holds(lock, slot),
            _ => self.on_locks(Some(slot), out, |l, cx| l.acquire(cx, lock, slot)) == Acquire::Held,
        };
        if !held && out.sends().len() > before {
            self.schedule.token_requested(lock, self.now);
            self.threads[t].asked_for_token = Some(self.now);
        }
        if held {
            if let Some(asked) = self.threads[t].asked_for_token.take() {
                self.token_has_come(self.now, t, (lock, asked), out);
            }
            let stamp = self.stamp;
            self.threads[t].held.insert(lock, stamp);
        }
        held
    }

    fn unlock(&mut self, t: usize, lock: LockId, out: &mut Outbox) -> Turn {
        self.releases(t, lock, out);
        self.ends(t)
    }

    pub(crate) fn releases(&mut self, t: usize, lock: LockId, out: &mut Outbox) {
        let slot = Self::slot(t);
        if let Some(begun) = self.threads[t].held.remove(&lock) {
            self.threads[t].begun = begun;
            self.record(t, Deed::Held { lock });
        }
        self.end_deferrals(self.now, t, lock, out);
        // A release that is refused shows as two threads in one critical section.
        let _ = self.on_locks(Some(slot), out, |l, cx| l.release(cx, lock, slot));
    }

    /// Passes a barrier that adds up what the threads bring, or the one that ends the program.
    fn pass_barrier(&mut self, now: Time, t: usize, number: Option<i64>, out: &mut Outbox) -> Turn {
        let sum = Reduction { operator: Operator::Sum, number: Number::I64 };
        let what = if number.is_some() { Collective::reduce(sum, 1) } else { Collective::EXIT };
        let passed = match self.threads[t].phase {
            Phase::Barrier(passed) => Ok(passed),
            _ => {
                let payload = number.map(i64::to_be_bytes);
                self.barrier.arrive(now, Self::slot(t), what, (payload.as_ref().map_or(&[], |p| &p[..]), &[]), out)
            }
        };
        let Ok(passed) = passed else { return Turn::Sleeps };
        if self.barrier.is_open(what, passed) != Ok(true) {
            return self.sleeps_in(t, Phase::Barrier(passed));
        }
        let Some(brought) = number else { return self.ends(t) };
        let result = self.barrier.result(what).try_into().map_or(i64::MIN, i64::from_be_bytes);
        self.ends_with(t, Deed::Barrier { brought, result })
    }

    fn signal(&mut self, t: usize, op: Op, out: &mut Outbox) -> Turn {
        let (slot, caller) = (Self::slot(t), Some(Self::slot(t)));
        match op {
            Op::Set(flag, value) => {
                self.on_flags(caller, out, |f, cx| f.set(cx, flag, value));
                self.ends_with(t, Deed::Set { flag, value })
            }
            Op::Await(flag, value) => {
                let got = match self.threads[t].phase {
                    Phase::Begin => self.on_flags(caller, out, |f, cx| f.wait(cx, flag, slot, value)),
                    _ => self.flags.arrived(flag, value),
                };
                match got {
                    Some(got) => self.ends_with(t, Deed::Awaited { flag, value, got }),
                    None => self.sleeps_in(t, Phase::Await),
                }
            }
            Op::Send(node, thread, value) => {
                let bytes = value.to_be_bytes();
                let message = Message::User { thread, bytes: &bytes };
                out.send(Target::Post { node, origin: Origin::Caller }, &message);
                self.ends_with(t, Deed::Sent { to: ThreadId(node, thread), value })
            }
            Op::Receive(count) if self.threads[t].received < count => self.sleeps_in(t, Phase::Await),
            _ => self.ends(t),
        }
    }
}
