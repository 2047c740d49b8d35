//! The victim's state machines: units of each engine in plain memory, locks, flags, a barrier, pages that were sent
//! unasked, pages whose diffs stay with their writers.

use super::NODES;
use super::victim_pages::VictimPages;
use comem_protocol::coherence::direct::Entry;
use comem_protocol::coherence::direct::remote::{self, Found, RemoteMemory, UnitAt};
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::coherence::pages::atomic::{Answer, Request};
use comem_protocol::coherence::pages::push::PushBuffer;
use comem_protocol::coherence::pages::wire::{Push, take_unused};
use comem_protocol::coherence::{self, Engine, Misbehaved, Permission, UnitMemory};
use comem_protocol::ids::{FlagId, LockId, NodeId, ObjectId, Slot, UnitId};
use comem_protocol::node::route::{NodeState, Origin};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::deal::Loops;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{Kind, SyncObject, SyncObjects};
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;
use comem_protocol::sync::{self, NoPayload};
use comem_protocol::time::Time;
use comem_protocol::wire::message::{Message, SyncRequest};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Units of each object.
pub const UNITS: u32 = 8;
/// Bytes of a unit.
pub const UNIT_BYTES: usize = 32;

/// A unit's bytes.
struct Bytes(Vec<u8>);

impl UnitMemory for Bytes {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn permit(&mut self, _permission: Permission) {}
    fn revoke(&mut self, _permission: Permission) {}
    fn copy_out(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn install(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.0.len(), "a unit is installed whole");
        self.0.copy_from_slice(bytes);
    }
    fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let part = offset.checked_add(len).and_then(|end| self.0.get(offset..end));
        part.map(|part| out.extend_from_slice(part)).is_some()
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let part = offset.checked_add(bytes.len()).and_then(|end| self.0.get_mut(offset..end));
        part.map(|part| part.copy_from_slice(bytes)).is_some()
    }
}

/// Lines of the only region of lines memory, whose units have two.
const LINES: Range<u64> = 8..24;

/// Lines memory: an entry and a word for each line. What is outside of the region must not be touched.
#[derive(Default)]
struct Lines {
    entries: [Cell<Entry>; 16],
    words: [Cell<u64>; 16],
    wide: Cell<u64>,
    /// Looks for hazards, of which every third finds one.
    looks: Cell<u64>,
}

impl Lines {
    fn at(line: u64) -> usize {
        assert!(LINES.contains(&line), "line {line} belongs to no region");
        (line - LINES.start) as usize
    }
}

impl RemoteMemory for Lines {
    fn find(&self, unit: UnitAt) -> Found {
        let is_one = unit.lines() == 2 && unit.lies_in(&LINES);
        if is_one { Found::Unit } else { Found::Nothing }
    }
    fn nodes(&self) -> usize {
        NODES
    }
    fn fetch_and_set(&self, unit: UnitAt, holder: NodeId) -> Entry {
        let entry = &self.entries[Lines::at(unit.first())];
        entry.replace(entry.get().after_fetch_and_set(holder))
    }
    fn entry(&self, unit: UnitAt) -> Entry {
        self.entries[Lines::at(unit.first())].get()
    }
    fn put_entries(&self, lines: Range<u64>, entry: Entry) {
        assert!(!entry.is_busy(), "no node puts an entry that locks");
        lines.for_each(|line| self.entries[Lines::at(line)].set(entry));
    }
    fn copy_data(&self, unit: UnitAt, out: &mut Vec<u8>) {
        for line in unit.range() {
            out.extend_from_slice(&self.words[Lines::at(line)].get().to_be_bytes().repeat(8));
        }
    }
    fn put_magic(&self, unit: UnitAt) {
        unit.range().for_each(|line| self.words[Lines::at(line)].set(u64::MAX));
    }
    fn wide(&self, unit: UnitAt) -> NodeSet {
        Lines::at(unit.first());
        NodeSet::from_words([self.wide.get()])
    }
    fn put_wide(&self, unit: UnitAt, holders: &NodeSet) {
        Lines::at(unit.first());
        assert!(holders.iter().all(|node| node.index() < NODES), "a holder that the job does not have");
        self.wide.set(holders.words().first().copied().unwrap_or(0));
    }
    fn barrier(&self) {}
    fn has_hazard(&self, unit: UnitAt) -> bool {
        Lines::at(unit.first());
        self.looks.set(self.looks.get() + 1);
        self.looks.get().is_multiple_of(3)
    }
}

/// All state of one node.
pub struct VictimNode {
    /// Objects by number: one for each engine, in the order of [`Engine::ALL`].
    objects: Vec<Vec<(Unit, Bytes)>>,
    locks: Locks,
    flags: Flags,
    sync_objects: SyncObjects,
    /// What application threads have asked managers for.
    asked: BTreeMap<Slot, (SyncRequest, u64)>,
    barrier: Barrier,
    push_buffer: PushBuffer,
    kept_pages: VictimPages,
    loops: Loops,
    lines: Lines,
    remote: remote::Server,
    /// Steps taken.
    pub steps: u64,
}

const ME: NodeId = NodeId(0);

fn home_of(unit: u32) -> NodeId {
    NodeId((unit as usize % NODES) as u16)
}

impl VictimNode {
    /// The fresh state of node 0.
    pub fn new(threads: usize) -> VictimNode {
        let unit = |u: u32| (Unit::new(home_of(u) == ME), Bytes(vec![u as u8; UNIT_BYTES]));
        VictimNode {
            objects: Engine::ALL.iter().map(|_| (0..UNITS).map(unit).collect()).collect(),
            locks: Locks::default(),
            flags: Flags::default(),
            sync_objects: SyncObjects::default(),
            asked: BTreeMap::new(),
            barrier: Barrier::new(ME, NODES, threads),
            push_buffer: PushBuffer::default(),
            kept_pages: VictimPages::new(ME),
            loops: Loops::default(),
            lines: Lines::default(),
            remote: remote::Server::default(),
            steps: 0,
        }
    }

    /// Wants a unit, a lock or a synchronisation object for an application thread, so that answers are expected.
    pub fn want(&mut self, number: u64, caller: Slot, out: &mut Outbox) {
        use comem_protocol::wire::message::Want;
        let id = UnitId { object: ObjectId(2), index: (number / 4) as u32 % UNITS };
        let want = if number.is_multiple_of(2) { Want::Shared } else { Want::Modified };
        if number % 7 == 6 {
            self.want_at_sync_object(number / 7, caller, out);
        } else if number % 7 == 5 {
            self.kept_pages.want(number / 7, caller, out);
        } else if number % 4 < 3 {
            self.unit(id, Engine::Msi, Some(caller), out, |unit, cx| {
                unit.begin(cx, caller, want, false);
                unit.settle(cx);
            });
        } else {
            let lock = LockId(number / 4 % 8);
            self.locks(lock, Some(caller), out, |locks, cx| {
                if !locks.holds(lock, caller) {
                    locks.acquire(cx, lock, caller);
                }
            });
        }
    }
}

impl VictimNode {
    /// Asks for something, or sees whether the answer to what the thread asked before has come.
    fn want_at_sync_object(&mut self, number: u64, caller: Slot, out: &mut Outbox) {
        let mut asked = self.asked.remove(&caller);
        let (semaphore, lock) = (SemaphoreId(number % 9), RwLockId(number % 9));
        self.sync_objects(SyncRequest::SemWait.object(0), Some(caller), out, |sync_objects, cx| match asked.as_mut() {
            Some((wanted, name)) => {
                if let Some(got) = sync_objects.collect(*wanted, *name, caller) {
                    if got && wanted.object(*name).kind == Kind::RwLock {
                        let _ = sync_objects.rw_unlock(cx, RwLockId(*name), caller);
                    }
                    asked = None;
                }
            }
            None => {
                let (wanted, done) = match number % 9 {
                    5 => (SyncRequest::SemGive, sync_objects.sem_give(cx, semaphore, caller)),
                    6 => (SyncRequest::SemReset, sync_objects.sem_reset(cx, semaphore, caller)),
                    0 => (SyncRequest::SemWait, sync_objects.sem_wait(cx, semaphore, caller)),
                    1 => (SyncRequest::SemTryWait, sync_objects.sem_try_wait(cx, semaphore, caller).is_some()),
                    4 => (
                        SyncRequest::SubsetBarrier,
                        sync_objects
                            .subset_barrier(cx, SubsetBarrierId(number % 9), 1 + number as u32 % 3, caller)
                            .is_some(),
                    ),
                    7 => (SyncRequest::TryReadLock, sync_objects.try_rd_lock(cx, lock, caller).is_some()),
                    8 => (SyncRequest::TryWriteLock, sync_objects.try_wr_lock(cx, lock, caller).is_some()),
                    2 => (SyncRequest::ReadLock, sync_objects.rd_lock(cx, lock, caller) != Ok(false)),
                    _ => (SyncRequest::WriteLock, sync_objects.wr_lock(cx, lock, caller) != Ok(false)),
                };
                if done {
                    let _ = sync_objects.rw_unlock(cx, lock, caller);
                    sync_objects.sem_post(cx, semaphore);
                    sync_objects.cond_broadcast(cx, ConditionId(number % 9), number.is_multiple_of(2));
                }
                asked = (!done).then_some((wanted, number % 9));
            }
        });
        self.asked.extend(asked.map(|asked| (caller, asked)));
    }
}

impl NodeState for VictimNode {
    fn unit<R>(
        &mut self,
        id: UnitId,
        engine: Engine,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        let object = id.object.0 as usize;
        Engine::ALL.get(object).filter(|e| **e == engine)?;
        let (unit, memory) = self.objects.get_mut(object)?.get_mut(id.index as usize)?;
        let home = home_of(id.index);
        let mut cx = coherence::Context { me: ME, nodes: NODES, caller, unit: id, home, memory, out };
        self.steps += 1;
        Some(step(unit, &mut cx))
    }

    fn locks(
        &mut self,
        _id: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        self.steps += 1;
        let payload = &mut self.kept_pages;
        step(&mut self.locks, &mut sync::Context { me: ME, nodes: NODES, caller, payload, out });
    }

    fn flags(
        &mut self,
        _id: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        self.steps += 1;
        step(&mut self.flags, &mut sync::Context { me: ME, nodes: NODES, caller, payload: &mut NoPayload, out });
    }

    fn sync_objects<R>(
        &mut self,
        _thing: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.steps += 1;
        step(&mut self.sync_objects, &mut sync::Context { me: ME, nodes: NODES, caller, payload: &mut NoPayload, out })
    }

    fn barrier(&mut self, out: &mut Outbox, step: impl FnOnce(&mut Barrier, &mut Outbox)) {
        self.steps += 1;
        step(&mut self.barrier, out);
    }

    fn loops<R>(&mut self, step: impl FnOnce(&mut Loops, usize) -> R) -> Option<R> {
        self.steps += 1;
        Some(step(&mut self.loops, NODES))
    }

    fn answer(&mut self, _bytes: &[u8]) {}

    fn page(&mut self, origin: Origin, message: Message<'_>, out: &mut Outbox) -> Result<(), Misbehaved> {
        const NONSENSE: Misbehaved = Misbehaved("sent pages that make no sense");
        if let Some(done) = self.kept_pages.on_message((origin.from.node, origin.ticket), &message, out) {
            self.steps += 1;
            return done;
        }
        match message {
            Message::Push { body } => {
                let (push, bytes) = Push::parse(body).map_err(|_| NONSENSE)?;
                let (epoch, wanted) = (push.epoch, push.runs.first().cloned().unwrap_or(0..1));
                self.push_buffer.keep(origin.from.node, push, bytes);
                self.push_buffer.open(epoch.wrapping_add(1), [].into_iter());
                let (mut picked, mut left) = (Vec::new(), Vec::new());
                self.push_buffer.pick(origin.from.node, &[wanted], &mut picked, &mut left);
                assert!(picked.iter().all(|run| !run.bytes().is_empty()), "what is picked has bytes");
            }
            Message::PushUnused { body } => drop(take_unused(body).map_err(|_| NONSENSE)?),
            Message::Atomic { body } => {
                let request = Request::parse(body).map_err(|_| NONSENSE)?;
                request.atomic.apply(request.atomic.expected);
            }
            Message::AtomicDone { body } => drop(Answer::parse(body).map_err(|_| NONSENSE)?),
            _ => return Err(Misbehaved("sent a message about pages, of which this node has none")),
        }
        self.steps += 1;
        Ok(())
    }

    fn remote(&mut self, now: Time, origin: Origin, message: Message<'_>, out: &mut Outbox) -> Result<(), Misbehaved> {
        const NONSENSE: Misbehaved = Misbehaved("answered one-sided operations by what makes no sense");
        match (message, origin.ticket) {
            (Message::Remote { body }, Some(ticket)) => {
                self.remote.on_request(&self.lines, (now, ticket), body, out)?;
            }
            (Message::RemoteDone { body }, _) => {
                let unit = UnitAt::new(LINES.start, 2).expect("an aligned unit");
                let answer = remote::Answer::parse(body).map_err(|_| NONSENSE)?;
                let commands = [remote::Command::FetchAndSet, remote::Command::GetWide, remote::Command::GetData];
                answer.each(unit, &commands, |_| ()).map_err(|_| NONSENSE)?;
            }
            _ => return Err(Misbehaved("sent a request as if it were a reply")),
        }
        self.steps += 1;
        Ok(())
    }

    fn user(&mut self, _from: NodeId, _thread: u16, _bytes: &[u8]) {}
}
