//! A simulated node: the production state machines, a model of memory, and the node's side of every message.

use crate::history::{Deed, Record, Stamp, ThreadId};
use crate::memory::{Memory, UnitView};
use crate::msi_pages::{Paged, Paging};
use crate::program::{Op, Shape};
use crate::schedule::{Scheduled, Waits, quiet};
use crate::thread::{Phase, Thread};
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::{self, Engine, Permission, UnitMemory};
use comem_protocol::ids::{FlagId, LockId, NodeId, ObjectId, Slot, UnitId};
use comem_protocol::lock_schedule::{DeferralInputs, LockSchedule, Request};
use comem_protocol::node::route::{NodeState, Origin, dispatch};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{SyncObject, SyncObjects};
use comem_protocol::sync::{self, IntervalMark, NoPayload};
use comem_protocol::time::Time;
use comem_protocol::tuning::{LockTuning, MsiTuning, SyncTuning};
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::Message;

/// A node of the cluster.
#[derive(Debug)]
pub struct Node {
    pub(crate) me: NodeId,
    pub(crate) shape: Shape,
    pub(crate) engine: Engine,
    pub(crate) units: Vec<Unit>,
    pub(crate) memory: Memory,
    /// Where the units are of pages: their memory, and what goes with it.
    pub(crate) paged: Option<Paged>,
    pub(crate) locks: Locks,
    pub(crate) flags: Flags,
    pub(crate) sync_objects: SyncObjects,
    pub(crate) barrier: Barrier,
    pub(crate) threads: Vec<Thread>,
    /// What the threads did.
    pub(crate) records: Vec<Record>,
    /// The step under way.
    pub(crate) stamp: Stamp,
    /// Whose request the reply under way answers.
    pub(crate) answers: Slot,
    /// When the step under way happens.
    pub(crate) now: Time,
    /// When tokens of locks are given away.
    pub(crate) schedule: LockSchedule,
    /// A thread that the step rouses besides those in the outbox.
    pub(crate) roused: Option<Slot>,
}

impl Node {
    /// A node with a program for each of its threads.
    pub fn new(me: NodeId, shape: Shape, engine: Engine, threads: Vec<Thread>) -> Node {
        let mut node = Node {
            me,
            shape,
            engine,
            units: (0..shape.units() as u32).map(|u| Unit::new(shape.home_of(u) == me)).collect(),
            memory: Memory::new(shape),
            paged: None,
            locks: Locks::new(),
            flags: Flags::new(),
            sync_objects: SyncObjects::new(),
            barrier: Barrier::new(me, shape.nodes, threads.len()),
            threads,
            records: Vec::new(),
            stamp: Stamp(0),
            answers: Slot::SERVICE,
            now: Time(0),
            schedule: LockSchedule::new(quiet(false)),
            roused: None,
        };
        for unit in 0..shape.units() as u32 {
            let here = shape.home_of(unit) == me;
            let permission = match engine {
                Engine::Owner if here => Permission::Write,
                Engine::Owner => Permission::None,
                Engine::Broadcast => Permission::Read,
                Engine::Msi => Unit::first_permission(here),
                Engine::Direct => unreachable!("it has a simulator of its own"),
            };
            UnitView { memory: &mut node.memory, unit }.permit(permission);
        }
        node
    }

    /// The same with barriers and synchronisation objects by these numbers.
    pub(crate) fn with_sync(mut self, tuning: SyncTuning) -> Node {
        self.barrier = self.barrier.tuned(tuning);
        self.sync_objects = self.sync_objects.tuned(tuning);
        self
    }

    /// The same with units of pages, none of which is mapped; the engine is `msi`, by these numbers.
    pub(crate) fn with_paging(mut self, paging: Option<Paging>, tuning: MsiTuning) -> Node {
        let (shape, threads, me) = (self.shape, self.threads.len(), self.me.index() as u64);
        self.paged = paging.map(|paging| Paged::new(shape, (paging, tuning), threads, paging.seed << 8 | me));
        self
    }

    /// The same with locks that are scheduled by these numbers.
    pub(crate) fn with_schedule(mut self, tuning: Option<LockTuning>) -> Node {
        let tuning = tuning.unwrap_or_else(|| quiet(false));
        self.schedule = LockSchedule::new(tuning);
        self.locks = Locks::new().tuned(tuning);
        self
    }

    /// A message arrives at one of the node's sockets.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn on_message(
        &mut self,
        now: Time,
        origin: Origin,
        answers: Slot,
        (ty, body): (MsgType, &[u8]),
        out: &mut Outbox,
    ) -> Result<(), String> {
        let message = Message::parse(ty, body).map_err(|e| format!("{} got bytes it cannot read: {e}", self.me))?;
        self.now = now;
        if self.defers(now, &message, origin, body) {
            return Ok(());
        }
        self.answers = answers;
        if let (true, Some(t)) = (is_of_units(&message), answers.index().checked_sub(1)) {
            self.answered(t);
        }
        dispatch(self, now, origin, message, out)
            .map_err(|e| format!("{} says that {} {e}: {message:?}", self.me, origin.from))
    }

    /// Whether the node's machines have come to rest; tells which has not.
    pub fn unrest(&self) -> Option<String> {
        let busy = self.units.iter().position(|u| !u.is_quiet());
        busy.map(|u| format!("{}: unit {u} is not at rest: {:?}", self.me, self.units[u]))
    }

    pub(crate) fn on_unit<R>(
        &mut self,
        unit: u32,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> R {
        let (me, nodes, home) = (self.me, self.shape.nodes, self.shape.home_of(unit));
        let Node { units, memory, paged, stamp, .. } = self;
        let state = &mut units[unit as usize];
        let id = UnitId { object: ObjectId(0), index: unit };
        let Some(paged) = paged else {
            let mut memory = UnitView { memory, unit };
            let mut cx = coherence::Context { me, nodes, caller, unit: id, home, memory: &mut memory, out };
            return step(state, &mut cx);
        };
        paged.memory.now = *stamp;
        let before = state.is_stored();
        let mut memory = paged.memory.frame(unit);
        let mut cx = coherence::Context { me, nodes, caller, unit: id, home, memory: &mut memory, out };
        let result = step(state, &mut cx);
        paged.stepped(unit, before, state);
        result
    }

    pub(crate) fn on_locks<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>) -> R,
    ) -> R {
        let mut payload = NoPayload;
        let mut cx = sync::Context { me: self.me, nodes: self.shape.nodes, caller, payload: &mut payload, out };
        step(&mut self.locks, &mut cx)
    }

    pub(crate) fn on_sync_objects<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        let mut payload = NoPayload;
        let mut cx = sync::Context { me: self.me, nodes: self.shape.nodes, caller, payload: &mut payload, out };
        step(&mut self.sync_objects, &mut cx)
    }

    pub(crate) fn on_flags<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>) -> R,
    ) -> R {
        let mut payload = NoPayload;
        let mut cx = sync::Context { me: self.me, nodes: self.shape.nodes, caller, payload: &mut payload, out };
        step(&mut self.flags, &mut cx)
    }
}

impl DeferralInputs for Node {
    fn is_idle(&mut self) -> bool {
        self.idles()
    }

    fn is_beyond_barrier(&mut self, _: &Request<'_>) -> bool {
        false
    }

    fn long_close(&mut self, _: &LockTuning) -> Option<Vec<PageNo>> {
        None
    }
}

impl Scheduled for Node {
    fn who(&self) -> (NodeId, usize) {
        (self.me, self.threads.len())
    }

    fn schedule(&mut self) -> &mut LockSchedule {
        &mut self.schedule
    }

    fn locks_now(&self) -> (&Locks, IntervalMark) {
        (&self.locks, IntervalMark::NOW)
    }

    fn acts(&mut self, _: Time, caller: Option<Slot>) {
        self.answers = caller.unwrap_or(Slot::SERVICE);
    }

    fn refuses(&mut self, why: String) {
        panic!("{why}");
    }

    fn looks_at_clock(&mut self) -> bool {
        self.stamp.0.is_multiple_of(2)
    }

    fn waits_for(&self, t: usize) -> Option<Waits> {
        let thread = &self.threads[t];
        let op = thread.program.get(thread.at);
        match thread.phase {
            _ if thread.ended => Some(Waits::Others),
            _ if !thread.asleep => None,
            Phase::Await if matches!(op, Some(Op::Lock(_) | Op::AwaitWhile(..))) => Some(Waits::Lock),
            Phase::Await | Phase::Requested(_) | Phase::Joined | Phase::Barrier(_) => Some(Waits::Others),
            _ => Some(Waits::Data),
        }
    }
}

/// Whether a message answers a request about a unit.
fn is_of_units(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::Data { .. }
            | Message::Grant { .. }
            | Message::ForwardDone { .. }
            | Message::InvalidateDone { .. }
            | Message::GiveBackDone { .. }
    )
}

impl NodeState for Node {
    fn unit<R>(
        &mut self,
        id: UnitId,
        engine: Engine,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        let exists = id.object == ObjectId(0) && (id.index as usize) < self.units.len();
        (exists && engine == self.engine).then(|| self.on_unit(id.index, caller, out, step))
    }

    fn locks(
        &mut self,
        _: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        self.on_locks(caller, out, step);
    }

    fn flags(
        &mut self,
        _: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        self.on_flags(caller, out, step);
    }

    fn sync_objects<R>(
        &mut self,
        _: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.on_sync_objects(caller, out, step)
    }

    fn barrier(&mut self, out: &mut Outbox, step: impl FnOnce(&mut Barrier, &mut Outbox)) {
        step(&mut self.barrier, out);
    }

    fn answer(&mut self, bytes: &[u8]) {
        if let Some(thread) = self.answers.index().checked_sub(1).and_then(|t| self.threads.get_mut(t)) {
            thread.answer = Some(bytes.to_vec());
        }
    }

    fn user(&mut self, from: NodeId, thread: u16, bytes: &[u8]) {
        let Ok(value) = bytes.try_into().map(u64::from_be_bytes) else { return };
        let Some(receiver) = self.threads.get_mut(usize::from(thread)) else { return };
        receiver.received += 1;
        self.roused = Some(Slot::thread(usize::from(thread)));
        let thread = ThreadId(self.me, thread);
        self.records.push(Record {
            thread,
            begun: self.stamp,
            ended: self.stamp,
            deed: Deed::Received { from, value },
        });
    }
}
