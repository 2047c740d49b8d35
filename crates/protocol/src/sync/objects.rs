//! Synchronisation objects: a node gives out in turn what threads of all nodes ask for. An object is named by any
//! number: a semaphore, a condition variable, a reader-writer lock, a barrier of some threads.
//!
//! Each object lives at its *manager*. A thread *asks* there and waits for the *answer*, which comes straight to its
//! own channel; releases *tell* the manager something and wait for nothing. Messages of different channels overtake
//! each other, so no machine relies on their order: what a thread must know to have happened, it asks for, a release of
//! its own among it ([`SyncObjects::sem_give`]). The machines
//! themselves ([`semaphore`](super::semaphore), [`condition`](super::condition), [`rwlock`](super::rwlock),
//! [`subset_barrier`](super::subset_barrier)) say only who gets what; this module carries
//! questions, answers and payloads.
//!
//! A release deposits its payload with the object, and whoever gets the object later withdraws what is new to it. One
//! that is as it was at first, with nothing deposited, is forgotten: a name that nobody uses costs nothing.

use super::condition::Condition;
use super::rwlock::{Hold, RwLock};
use super::semaphore::{Semaphore, SemaphoreId};
use super::signal_suppression::SignalSuppression;
use super::subset_barrier::SubsetBarrier;
use super::{Context, IntervalMark, Scope};
use crate::coherence::Misbehaved;
use crate::ids::{Channel, NodeId, Slot, manager_of};
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::tuning::SyncTuning;
use crate::wire::message::{Message, SyncRequest, SyncUpdate, Ticket};
use std::collections::BTreeMap;

/// Kinds of synchronisation objects. Each kind has names of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A counting semaphore.
    Semaphore,
    /// A condition variable.
    Condition,
    /// A reader-writer lock.
    RwLock,
    /// A barrier of some threads.
    SubsetBarrier,
}

/// One semaphore, condition variable or reader-writer lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SyncObject {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: u64,
}

impl SyncObject {
    /// A number for the object that differs from those of its namesakes of other kinds, so that they do not all live
    /// together.
    pub fn key(self) -> u64 {
        self.name ^ (self.kind as u64 + 1) << 56
    }

    /// The node that manages it among `nodes`.
    pub fn manager(self, nodes: usize) -> NodeId {
        manager_of(self.key(), nodes)
    }

    /// What its releases are of.
    pub fn scope(self) -> Scope {
        let one_scope = self.kind == Kind::Semaphore && SemaphoreId(self.name).is_reserved();
        let name = if one_scope { SemaphoreId::RESERVED } else { self.name };
        Scope::Other(SyncObject { name, ..self }.key())
    }
}

impl SyncRequest {
    /// The thing of that name that is wished for.
    pub fn object(self, name: u64) -> SyncObject {
        let kind = match self {
            SyncRequest::SemWait
            | SyncRequest::SemTryWait
            | SyncRequest::SemPass
            | SyncRequest::SemGive
            | SyncRequest::SemReset => Kind::Semaphore,
            SyncRequest::CondJoin | SyncRequest::CondAwait => Kind::Condition,
            SyncRequest::ReadLock | SyncRequest::WriteLock | SyncRequest::TryReadLock | SyncRequest::TryWriteLock => {
                Kind::RwLock
            }
            SyncRequest::SubsetBarrier => Kind::SubsetBarrier,
        };
        SyncObject { kind, name }
    }

    /// Whether it is for a reader-writer lock, to write.
    fn writes(self) -> bool {
        matches!(self, SyncRequest::WriteLock | SyncRequest::TryWriteLock)
    }
}

impl SyncUpdate {
    /// The thing of that name that is told of.
    pub fn object(self, name: u64) -> SyncObject {
        let kind = match self {
            SyncUpdate::SemPost => Kind::Semaphore,
            SyncUpdate::CondSignal | SyncUpdate::CondBroadcast => Kind::Condition,
            SyncUpdate::ReadUnlock | SyncUpdate::WriteUnlock => Kind::RwLock,
        };
        SyncObject { kind, name }
    }
}

/// Where a waiting thread is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the manager's own node.
    Here,
    /// Elsewhere: the ticket of its request, and what its node has seen.
    There(Ticket, Vec<u8>),
}

/// A thread that asked for something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) request: SyncRequest,
    pub(super) channel: Channel,
    pub(super) place: Place,
}

/// Those who are to be answered, and whether they got what they asked for.
pub(super) type Given = Vec<(Waiter, bool)>;

const NO_NUMBER: Misbehaved = Misbehaved("came to a meeting without saying how many are to come");
const UNKNOWN: Misbehaved = Misbehaved("answered a question that no thread here has asked");

#[derive(Clone, Debug)]
enum Machine {
    Semaphore(Semaphore),
    Condition(Box<Condition>),
    RwLock(Box<RwLock>),
    SubsetBarrier(Box<SubsetBarrier>),
}

/// What releases said of a thing.
#[derive(Clone, Debug, Default)]
struct Said {
    stored: Vec<u8>,
    /// Something is stored that this node has not acquired itself.
    unseen: bool,
}

/// A thing at its manager.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    machine: Machine,
    said: Option<Box<Said>>,
}

impl Entry {
    fn new(kind: Kind) -> Entry {
        let machine = match kind {
            Kind::Semaphore => Machine::Semaphore(Semaphore::default()),
            Kind::Condition => Machine::Condition(Box::default()),
            Kind::RwLock => Machine::RwLock(Box::default()),
            Kind::SubsetBarrier => Machine::SubsetBarrier(Box::default()),
        };
        Entry { machine, said: None }
    }

    /// Whether forgetting the thing changes nothing. What signals said is for the threads that wait when they come;
    /// what was said at a meeting, for those who were there.
    fn is_idle(&self) -> bool {
        match &self.machine {
            Machine::Semaphore(semaphore) => semaphore.is_idle() && !self.is_said(),
            Machine::Condition(condition) => condition.is_idle(),
            Machine::RwLock(lock) => lock.is_idle() && !self.is_said(),
            Machine::SubsetBarrier(barrier) => barrier.is_idle(),
        }
    }

    fn is_said(&self) -> bool {
        self.said.is_some() && Rule::SaidIsKept.on()
    }

    fn request(&mut self, waiter: Waiter, given: &mut Given) -> Result<(), Misbehaved> {
        match (&mut self.machine, waiter.request) {
            (Machine::Semaphore(semaphore), _) => semaphore.request(waiter, given),
            (Machine::Condition(condition), SyncRequest::CondJoin) => return condition.join(waiter, given),
            (Machine::Condition(condition), _) => return condition.wait(waiter, given),
            (Machine::RwLock(lock), SyncRequest::WriteLock) => lock.write(waiter, given),
            (Machine::RwLock(lock), SyncRequest::TryReadLock) => lock.try_read(waiter, given),
            (Machine::RwLock(lock), SyncRequest::TryWriteLock) => lock.try_write(waiter, given),
            (Machine::RwLock(lock), _) => lock.read(waiter, given),
            (Machine::SubsetBarrier(_), _) => return Err(NO_NUMBER),
        }
        Ok(())
    }

    fn tell(&mut self, update: SyncUpdate, given: &mut Given) -> Result<(), Misbehaved> {
        match &mut self.machine {
            Machine::Semaphore(semaphore) => semaphore.post(given),
            Machine::Condition(condition) => condition.signal(update == SyncUpdate::CondBroadcast, given),
            Machine::RwLock(lock) => return lock.unlock(update == SyncUpdate::WriteUnlock, given),
            Machine::SubsetBarrier(_) => return Err(NO_NUMBER),
        }
        Ok(())
    }

    pub(super) fn subset_barrier(&mut self) -> Result<&mut SubsetBarrier, Misbehaved> {
        match &mut self.machine {
            Machine::SubsetBarrier(barrier) => Ok(barrier),
            _ => Err(NO_NUMBER),
        }
    }

    pub(super) fn deposit(&mut self, cx: &mut Context<'_>, scope: Scope, payload: &[u8], from_here: bool) {
        if payload.is_empty() {
            return;
        }
        let said = self.said.get_or_insert_default();
        cx.payload.deposit(scope, payload, &mut said.stored);
        // What this node said itself is no news to it.
        said.unseen |= !from_here && Rule::ManagersHear.on();
    }
}

/// A thread of this node that has asked, and its answer once it is there.
#[derive(Clone, Debug)]
struct Question {
    slot: Slot,
    request: SyncRequest,
    name: u64,
    answer: Option<bool>,
}

/// The objects that a node manages, or one shard of them.
#[derive(Clone, Debug, Default)]
pub struct SyncObjects {
    pub(super) objects: BTreeMap<SyncObject, Entry>,
    /// Reader-writer locks that threads of this node hold, wherever they are managed.
    pub(super) holds: BTreeMap<(u64, Slot), Hold>,
    questions: Vec<Question>,
    given: Given,
    /// Who hears signals of conditions.
    pub(super) suppression: SignalSuppression,
    pub(super) tuning: SyncTuning,
}

impl SyncObjects {
    /// No objects; they come into being when first named.
    pub fn new() -> SyncObjects {
        SyncObjects::default()
    }

    /// The same objects with these numbers instead of their defaults.
    #[must_use]
    pub fn tuned(mut self, tuning: SyncTuning) -> SyncObjects {
        self.tuning = tuning;
        self
    }

    /// The reader-writer locks that threads of this node hold: which, who, and whether for writing.
    pub fn held(&self) -> impl Iterator<Item = (u64, Slot, bool)> + '_ {
        self.holds.iter().map(|((name, slot), hold)| (*name, *slot, hold.writes()))
    }

    /// How many things this node remembers as their manager.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it remembers none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Notes that thread `slot` asks for something. A thread asks for one thing at a time.
    pub(super) fn question(&mut self, slot: Slot, request: SyncRequest, name: u64) {
        self.questions.push(Question { slot, request, name, answer: None });
    }

    /// Thread `slot` asks for something; gives the answer when it is there at once. Otherwise wait until woken or
    /// answered, and ask [`SyncObjects::collect`]. A thread asks for one thing at a time.
    pub(super) fn ask(&mut self, cx: &mut Context<'_>, request: SyncRequest, name: u64, slot: Slot) -> Option<bool> {
        let object = request.object(name);
        let manager = object.manager(cx.nodes);
        self.question(slot, request, name);
        if manager == cx.me {
            let mut told = Vec::new();
            if releases(request) {
                cx.payload.on_release(object.scope(), cx.me, &[], IntervalMark::NOW, &mut told);
            }
            let channel = Channel { node: cx.me, slot };
            let waiter = Waiter { request, channel, place: Place::Here };
            let served = self.request(cx, name, waiter, &told);
            debug_assert!(served.is_ok(), "a thread of this node asks only what makes sense");
            return self.collect(request, name, slot);
        }
        let payload = &mut *cx.payload;
        let target = Target::Request { node: manager, origin: Origin::Caller };
        cx.out.send_with(target, &Message::Ask { request, name, knowledge: &[] }, |body| {
            if releases(request) {
                payload.on_release(object.scope(), manager, &[], IntervalMark::NOW, body);
            } else if acquires(request, true) {
                payload.knowledge(object.scope(), body);
            }
        });
        None
    }

    /// At the manager: a thread requests something, and its node tells this with it.
    fn request(&mut self, cx: &mut Context<'_>, name: u64, waiter: Waiter, told: &[u8]) -> Result<(), Misbehaved> {
        let object = waiter.request.object(name);
        let from_here = waiter.place == Place::Here;
        self.step(cx, object, |entry, cx, given| {
            entry.request(waiter, given)?;
            entry.deposit(cx, object.scope(), told, from_here);
            Ok(())
        })
    }

    /// Takes the answer to what thread `slot` has asked, once it is there: whether the thread got it.
    pub fn collect(&mut self, request: SyncRequest, name: u64, slot: Slot) -> Option<bool> {
        let asked = |q: &Question| (q.slot, q.request, q.name) == (slot, request, name);
        let index = self.questions.iter().position(|q| asked(q) && q.answer.is_some())?;
        let answer = self.questions.swap_remove(index).answer;
        if answer == Some(true) && request.object(name).kind == Kind::RwLock {
            self.holds.insert((name, slot), Hold::new(request.writes()));
        }
        answer
    }

    /// A thread of this node tells a thing's manager something: a release, unless it says otherwise.
    pub(super) fn tell(&mut self, cx: &mut Context<'_>, update: SyncUpdate, name: u64, releases: bool) {
        let object = update.object(name);
        if self.is_unheard(object, cx.me, cx.nodes) {
            return;
        }
        let manager = object.manager(cx.nodes);
        if manager == cx.me {
            let mut payload = Vec::new();
            if releases {
                cx.payload.on_release(object.scope(), cx.me, &[], IntervalMark::NOW, &mut payload);
            }
            // Refused only when a peer has released in this thread's place; that was reported then.
            let _ = self.take_in(cx, update, name, &payload, true);
            return;
        }
        let payload = &mut *cx.payload;
        // Receipts go to the service thread: this one may be at work, or gone, before they come.
        let target = Target::Post { node: manager, origin: Origin::Service };
        cx.out.send_with(target, &Message::Tell { update, name, payload: &[] }, |body| {
            if releases {
                payload.on_release(object.scope(), manager, &[], IntervalMark::NOW, body);
            }
        });
    }

    /// At the manager: a thread elsewhere asks.
    ///
    /// # Errors
    /// When no correct peer would have asked.
    pub fn on_ask(
        &mut self,
        cx: &mut Context<'_>,
        request: SyncRequest,
        name: u64,
        ticket: Ticket,
        knowledge: &[u8],
    ) -> Result<(), Misbehaved> {
        let (seen, told) = if releases(request) { (&[][..], knowledge) } else { (knowledge, &[][..]) };
        let place = Place::There(ticket, seen.to_vec());
        self.request(cx, name, Waiter { request, channel: ticket.channel, place }, told)
    }

    /// At the manager: a thread elsewhere tells something.
    ///
    /// # Errors
    /// When no correct peer would have told it.
    pub fn on_tell(
        &mut self,
        cx: &mut Context<'_>,
        from: NodeId,
        (update, name): (SyncUpdate, u64),
        payload: &[u8],
    ) -> Result<(), Misbehaved> {
        let object = update.object(name);
        if object.kind == Kind::Condition && !self.objects.contains_key(&object) {
            self.signalled_in_vain(cx, from, name);
            return Ok(());
        }
        self.take_in(cx, update, name, payload, false)
    }

    /// The answer to a question of thread `slot` here.
    ///
    /// # Errors
    /// When the thread has not asked.
    pub fn on_answer(
        &mut self,
        cx: &mut Context<'_>,
        (request, name): (SyncRequest, u64),
        slot: Slot,
        yes: bool,
        payload: &[u8],
    ) -> Result<(), Misbehaved> {
        if !self.note_answer(request, name, slot, yes) {
            return Err(UNKNOWN);
        }
        // Signals may have said nothing.
        let said = request != SyncRequest::CondAwait || !payload.is_empty();
        if acquires(request, yes) && said {
            cx.payload.on_acquire(request.object(name).scope(), payload);
        }
        cx.wake(slot);
        Ok(())
    }

    fn note_answer(&mut self, request: SyncRequest, name: u64, slot: Slot, yes: bool) -> bool {
        let asked = |q: &&mut Question| (q.slot, q.request, q.name, q.answer) == (slot, request, name, None);
        self.questions.iter_mut().find(asked).map(|q| q.answer = Some(yes)).is_some()
    }

    fn take_in(
        &mut self,
        cx: &mut Context<'_>,
        update: SyncUpdate,
        name: u64,
        payload: &[u8],
        from_here: bool,
    ) -> Result<(), Misbehaved> {
        let object = update.object(name);
        self.step(cx, object, |entry, cx, given| {
            entry.tell(update, given)?;
            entry.deposit(cx, object.scope(), payload, from_here);
            Ok(())
        })
    }

    /// Takes a step of a thing's machine and answers those to whom it gives something.
    pub(super) fn step(
        &mut self,
        cx: &mut Context<'_>,
        object: SyncObject,
        step: impl FnOnce(&mut Entry, &mut Context<'_>, &mut Given) -> Result<(), Misbehaved>,
    ) -> Result<(), Misbehaved> {
        let mut given = std::mem::take(&mut self.given);
        let entry = self.objects.entry(object).or_insert_with(|| Entry::new(object.kind));
        let result = step(entry, cx, &mut given);
        for (waiter, yes) in given.drain(..) {
            let now =
                if waiter.request == SyncRequest::CondJoin { self.joins(cx, object, waiter) } else { Some(waiter) };
            if let Some(waiter) = now {
                self.answer(cx, object, waiter, yes);
            }
        }
        self.given = given;
        if self.objects.get(&object).is_some_and(Entry::is_idle) {
            self.objects.remove(&object);
        }
        result
    }

    pub(super) fn answer(&mut self, cx: &mut Context<'_>, object: SyncObject, waiter: Waiter, yes: bool) {
        let Waiter { request, channel, place } = waiter;
        let said = self.objects.get_mut(&object).and_then(|e| e.said.as_mut()).filter(|_| acquires(request, yes));
        match place {
            Place::Here => {
                if let Some(said) = said
                    && std::mem::take(&mut said.unseen)
                {
                    cx.payload.on_acquire(object.scope(), &said.stored);
                }
                self.note_answer(request, object.name, channel.slot, yes);
                cx.wake(channel.slot);
            }
            Place::There(ticket, knowledge) => {
                let payload = &mut *cx.payload;
                let answer = Message::Answer { request, name: object.name, slot: channel.slot, yes, payload: &[] };
                cx.out.send_with(Target::Reply(ticket), &answer, |body| {
                    if let Some(said) = said {
                        payload.withdraw(object.scope(), &said.stored, &knowledge, body);
                    }
                });
            }
        }
    }
}

/// Whether this answer makes the thread's node acquire what releases have said. To be heard by the manager is not yet
/// to be woken, or to be given anything.
fn acquires(request: SyncRequest, yes: bool) -> bool {
    let gets = yes && !matches!(request, SyncRequest::CondJoin | SyncRequest::SemGive | SyncRequest::SemReset);
    gets && Rule::GivenThingsAreToldOf.on()
}

/// Whether a question is a release, too.
fn releases(request: SyncRequest) -> bool {
    request == SyncRequest::SemGive && Rule::GivesTell.on()
}

#[cfg(test)]
#[path = "objects_tests/mod.rs"]
mod tests;
