//! Desks and locks of a few nodes, with a network that delivers in any order: every order for small programs, random
//! ones for larger. A payload that knows what every release has said checks that acquires hear of it.

use crate::coherence::msi::Unit;
use crate::coherence::{self, Engine};
use crate::faults::Rng;
use crate::ids::{FlagId, LockId, Seq, UnitId};
use crate::node::route::{self, NodeState, dispatch};
use crate::outbox::Outbox;
use crate::sync::barrier::Barrier;
use crate::sync::condition::ConditionId;
use crate::sync::flag::Flags;
use crate::sync::lock::{Acquire, Locks};
use crate::sync::lock_batch::LockBatch;
use crate::sync::objects::*;
use crate::sync::rwlock::RwLockId;
use crate::sync::semaphore::SemaphoreId;
use crate::sync::subset_barrier::SubsetBarrierId;
use crate::sync::{self, IntervalMark, Payload};
use crate::time::Time;
use crate::wire::header::MsgType;
use crate::wire::message::SignalInterest;
use std::collections::{BTreeMap, BTreeSet};

const NODES: usize = 3;

/// What a node has heard of: numbers of releases.
#[derive(Clone, Default)]
pub(super) struct Known(BTreeSet<u64>);

impl Known {
    /// Of one release.
    pub(super) fn of(release: u64) -> Known {
        Known(BTreeSet::from([release]))
    }
}

fn numbers(bytes: &[u8]) -> BTreeSet<u64> {
    bytes.as_chunks::<8>().0.iter().map(|b| u64::from_be_bytes(*b)).collect()
}

fn put(numbers: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    numbers.for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
}

impl Payload for Known {
    fn knowledge(&mut self, _: Scope, out: &mut Vec<u8>) {
        put(self.0.iter().copied(), out);
    }
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(&mut self, _: Scope, _: NodeId, knowledge: &[u8], _: IntervalMark, out: &mut Vec<u8>) {
        put(self.0.difference(&numbers(knowledge)).copied(), out);
    }
    fn on_acquire(&mut self, _: Scope, bytes: &[u8]) {
        self.0.extend(numbers(bytes));
    }
    fn deposit(&mut self, _: Scope, bytes: &[u8], stored: &mut Vec<u8>) {
        let all = &numbers(stored) | &numbers(bytes);
        stored.clear();
        put(all.into_iter(), stored);
    }
    fn withdraw(&mut self, _: Scope, stored: &[u8], knowledge: &[u8], out: &mut Vec<u8>) {
        put(numbers(stored).difference(&numbers(knowledge)).copied(), out);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Do {
    Lock,
    Unlock,
    /// The node wants the token; the thread does not wait for it.
    Want,
    Post,
    /// The same, and the thread waits until it has happened.
    Give,
    Take,
    TryTake,
    Read,
    Write,
    /// Tries to read, or to write; who does not get it does not leave either.
    TryRead,
    TryWrite,
    Leave,
    /// Put a token on the table (under the lock).
    Put,
    /// Take a token from the table, waiting for the condition while there is none (under the lock).
    TakeToken,
    Signal,
    Broadcast,
    /// Come to a meeting of so many threads.
    Come(u32),
}
pub(super) use Do::*;

const SEM: SemaphoreId = SemaphoreId(7);
const COND: ConditionId = ConditionId(7);
const RW: RwLockId = RwLockId(7);
const LOCK: LockId = LockId(7);
const MEETING: SubsetBarrierId = SubsetBarrierId(7);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Begin,
    Asked(SyncRequest),
    Joined,
    Relock,
}

#[derive(Clone)]
pub(super) struct Thread {
    node: usize,
    slot: Slot,
    program: &'static [Do],
    at: usize,
    phase: Phase,
    asleep: bool,
}

#[derive(Clone, Default)]
pub(super) struct Node {
    pub(super) objects: SyncObjects,
    locks: Locks,
    pub(super) known: Known,
}

struct NodeView<'a> {
    me: NodeId,
    node: &'a mut Node,
}

impl NodeView<'_> {
    fn with<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut SyncObjects, &mut Locks, &mut sync::Context<'_>) -> R,
    ) -> R {
        let Node { objects, locks, known } = &mut *self.node;
        f(objects, locks, &mut Context { me: self.me, nodes: NODES, caller, payload: known, out })
    }
}

impl NodeState for NodeView<'_> {
    fn unit<R>(
        &mut self,
        _: UnitId,
        _: Engine,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        None
    }
    fn locks(
        &mut self,
        _: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        self.with(caller, out, |_, locks, cx| step(locks, cx));
    }
    fn flags(
        &mut self,
        _: FlagId,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
    }
    fn sync_objects<R>(
        &mut self,
        _: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.with(caller, out, |objects, _, cx| step(objects, cx))
    }
    fn barrier(&mut self, _: &mut Outbox, _: impl FnOnce(&mut Barrier, &mut Outbox)) {}
    fn answer(&mut self, _: &[u8]) {}
    fn user(&mut self, _: NodeId, _: u16, _: &[u8]) {}
}

/// A message on its way.
#[derive(Clone)]
struct Flight {
    to: Channel,
    origin: route::Origin,
    ty: MsgType,
    body: Vec<u8>,
}

/// What must be so, seen from above.
#[derive(Clone, Default)]
pub(super) struct Truth {
    releases: u64,
    lock_holders: u32,
    unlocked: BTreeSet<u64>,
    posts: BTreeSet<u64>,
    taken: usize,
    /// Of how many posts each taker has heard.
    heard_by_takers: Vec<usize>,
    pub(super) tried_in_vain: usize,
    readers: u32,
    writers: u32,
    reads_ended: BTreeSet<u64>,
    writes_ended: BTreeSet<u64>,
    tokens: u32,
    pub(super) seen_together: u32,
    /// Who has come to meetings, by how often they have: the releases by that.
    came: BTreeMap<usize, BTreeSet<u64>>,
    pub(super) went_on: usize,
    pub(super) turned_away: usize,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    threads: Vec<Thread>,
    flights: Vec<Flight>,
    count: u64,
    pub(super) truth: Truth,
    pub(super) told_that_nobody_hears: usize,
}

impl World {
    /// A thread for each program, on one node after the other.
    pub(super) fn new(programs: &[&'static [Do]]) -> World {
        let thread = |(index, program): (usize, &&'static [Do])| Thread {
            node: index % NODES,
            slot: Slot::thread(index / NODES),
            program,
            at: 0,
            phase: Phase::Begin,
            asleep: false,
        };
        World {
            nodes: vec![Node::default(); NODES],
            threads: programs.iter().enumerate().map(thread).collect(),
            flights: Vec::new(),
            count: 0,
            truth: Truth::default(),
            told_that_nobody_hears: 0,
        }
    }

    /// How many things may happen next.
    fn choices(&self) -> usize {
        self.ready().count() + self.flights.len()
    }

    fn ready(&self) -> impl Iterator<Item = usize> {
        self.threads.iter().enumerate().filter(|(_, t)| !t.asleep && t.at < t.program.len()).map(|(i, _)| i)
    }

    fn choose(&mut self, choice: usize) {
        let ready = self.ready().nth(choice);
        match ready {
            Some(thread) => self.step(thread),
            None => self.deliver(choice - self.ready().count()),
        }
    }

    fn deliver(&mut self, index: usize) {
        let Flight { to, origin, ty, body } = self.flights.swap_remove(index);
        let mut out = Outbox::new();
        let message = Message::parse(ty, &body).unwrap();
        self.told_that_nobody_hears +=
            usize::from(matches!(message, Message::Hears { interest: SignalInterest::Nobody, .. }));
        let mut view = NodeView { me: to.node, node: &mut self.nodes[to.node.index()] };
        dispatch(&mut view, Time(0), origin, message, &mut out).unwrap();
        self.effects(to.node, to.slot, out);
        self.rouse(to.node, to.slot);
    }

    fn rouse(&mut self, node: NodeId, slot: Slot) {
        for thread in self.threads.iter_mut().filter(|t| t.node == node.index() && t.slot == slot) {
            thread.asleep = false;
        }
    }

    fn effects(&mut self, me: NodeId, slot: Slot, out: Outbox) {
        for send in out.sends() {
            let mut from = Channel { node: me, slot };
            let (to, ticket) = match send.target {
                Target::Request { node, origin } | Target::Post { node, origin } => {
                    from.slot = if origin == Origin::Caller { slot } else { Slot::SERVICE };
                    self.count += 1;
                    let request = matches!(send.target, Target::Request { .. });
                    let ticket = Ticket { channel: from, seq: Seq::guarded(from, self.count) };
                    (Channel::service(node), request.then_some(ticket))
                }
                Target::Reply(ticket) => (ticket.channel, None),
                other => panic!("{other:?}"),
            };
            let caller = (to.slot != Slot::SERVICE).then_some(to.slot);
            let origin = route::Origin { from, ticket, caller };
            self.flights.push(Flight { to, origin, ty: send.ty, body: out.body(send).to_vec() });
        }
        out.wakes().iter().for_each(|slot| self.rouse(me, *slot));
    }

    /// Thread `t` takes its next step: goes on as far as it can without waiting, within one operation.
    fn step(&mut self, t: usize) {
        let (node, slot) = (self.threads[t].node, self.threads[t].slot);
        let (what, phase) = (self.threads[t].program[self.threads[t].at], self.threads[t].phase);
        let me = NodeId(node as u16);
        self.before(t, what, phase);
        let mut out = Outbox::new();
        let mut view = NodeView { me, node: &mut self.nodes[node] };
        let tokens = self.truth.tokens;
        let next =
            view.with(Some(slot), &mut out, |objects, locks, cx| act(objects, locks, cx, slot, what, phase, tokens));
        self.effects(me, slot, out);
        match next {
            Next::Ended(got) => {
                self.after(t, what, got);
                self.threads[t].phase = Phase::Begin;
                self.threads[t].at += if matches!(what, TryRead | TryWrite) && !got { 2 } else { 1 };
            }
            Next::Again(phase) => self.threads[t].phase = phase,
            Next::Relocked => {
                self.after(t, Lock, true);
                self.threads[t].phase = Phase::Begin;
            }
            Next::Waits(phase) => {
                self.threads[t].phase = phase;
                self.threads[t].asleep = true;
            }
        }
    }

    /// What is true from the moment a release begins.
    fn before(&mut self, t: usize, what: Do, phase: Phase) {
        let (node, nth) = (self.threads[t].node, self.comings(t));
        let truth = &mut self.truth;
        let unlocks = matches!(what, Unlock) || phase == Phase::Joined;
        let comes = matches!(what, Come(_)) && phase == Phase::Begin;
        let gives = matches!(what, Give) && phase == Phase::Begin;
        if matches!(what, Post | Leave | Signal | Broadcast) || unlocks || comes || gives {
            truth.releases += 1;
            self.nodes[node].known.0.insert(truth.releases);
        }
        match what {
            _ if unlocks => {
                truth.lock_holders -= 1;
                truth.unlocked.insert(truth.releases);
            }
            Come(_) if comes => drop(truth.came.entry(nth).or_default().insert(truth.releases)),
            Post => drop(truth.posts.insert(truth.releases)),
            Give if gives => drop(truth.posts.insert(truth.releases)),
            Leave if truth.writers > 0 => {
                truth.writers -= 1;
                truth.writes_ended.insert(truth.releases);
            }
            Leave => {
                truth.readers -= 1;
                truth.reads_ended.insert(truth.releases);
            }
            _ => {}
        }
    }

    /// What must be true when an operation has ended.
    fn after(&mut self, t: usize, what: Do, got: bool) {
        let (nth, fixed) = (self.comings(t), self.same_come_always());
        let (truth, known) = (&mut self.truth, &self.nodes[self.threads[t].node].known.0);
        match what {
            Lock => {
                truth.lock_holders += 1;
                assert!(truth.lock_holders == 1 && known.is_superset(&truth.unlocked));
            }
            Take | TryTake if got => {
                truth.taken += 1;
                assert!(truth.taken <= truth.posts.len(), "more was taken than posted");
                truth.heard_by_takers.push(known.intersection(&truth.posts).count());
            }
            TryRead | TryWrite | TryTake if !got => truth.tried_in_vain += 1,
            Read | TryRead => {
                truth.readers += 1;
                truth.seen_together = truth.seen_together.max(truth.readers);
                assert!(truth.writers == 0, "a reader beside a writer");
                assert!(known.is_superset(&truth.writes_ended), "a reader has not heard of a writer before it");
            }
            Write | TryWrite => {
                truth.writers += 1;
                assert!(truth.writers == 1 && truth.readers == 0, "a writer is not alone");
                assert!(
                    known.is_superset(&(&truth.reads_ended | &truth.writes_ended)),
                    "a writer has not heard of all"
                );
            }
            Come(_) if !got => truth.turned_away += 1,
            Come(threads) => {
                truth.went_on += 1;
                let all: usize = truth.came.values().map(BTreeSet::len).sum();
                let full = all / threads as usize * threads as usize;
                assert!(truth.went_on <= full, "{} went on when {all} had come", truth.went_on);
                if fixed {
                    let came = &truth.came[&nth];
                    assert_eq!(came.len(), threads as usize, "went on before all had come");
                    assert!(known.is_superset(came), "went on without having heard of all who came");
                }
            }
            Put => truth.tokens += 1,
            TakeToken => truth.tokens -= 1,
            _ => {}
        }
    }

    /// How often a thread has come to meetings before.
    fn comings(&self, t: usize) -> usize {
        let thread = &self.threads[t];
        thread.program[..thread.at].iter().filter(|what| matches!(what, Come(_))).count()
    }

    /// Whether all threads come to every meeting.
    fn same_come_always(&self) -> bool {
        let all = self.threads.len() as u32;
        self.threads.iter().flat_map(|t| t.program).all(|what| !matches!(what, Come(n) if *n != all))
    }

    fn must_have_ended(&self) {
        // Whoever was served as the nth has heard of n posts; takers may have gone on in another order.
        let mut heard = self.truth.heard_by_takers.clone();
        heard.sort();
        assert!(
            heard.iter().zip(1..).all(|(heard, nth)| *heard >= nth),
            "a post was taken and not heard of: {heard:?}"
        );
        for thread in &self.threads {
            let at = (thread.at, thread.phase);
            assert!(thread.at == thread.program.len(), "node {} {:?} still waits: {at:?}", thread.node, thread.slot);
        }
        for node in &self.nodes {
            assert!(node.objects.questions.is_empty() && node.objects.holds.is_empty());
        }
    }
}

enum Next {
    Ended(bool),
    Again(Phase),
    Relocked,
    Waits(Phase),
}

fn wait_for(done: bool, request: SyncRequest) -> Next {
    if done { Next::Ended(true) } else { Next::Waits(Phase::Asked(request)) }
}

/// The thread's side of one step of an operation.
fn act(
    objects: &mut SyncObjects,
    locks: &mut Locks,
    cx: &mut sync::Context<'_>,
    slot: Slot,
    what: Do,
    phase: Phase,
    tokens: u32,
) -> Next {
    match (what, phase) {
        (Lock, Phase::Begin) if locks.acquire(cx, LOCK, slot) == Acquire::Held => Next::Ended(true),
        (Lock, _) => relocked(locks, slot),
        (Unlock, _) => Next::Ended(locks.release(cx, LOCK, slot).is_ok()),
        (Want, _) => {
            if let Some((node, queued)) = locks.prefetch_token(cx, LOCK) {
                let (mut request, mut seen) = (LockBatch::default(), Vec::new());
                cx.payload.knowledge(Scope::Lock(LOCK), &mut seen);
                request.add(LOCK, &seen);
                let wants = Message::LockWants { of: cx.me, queued, entries: request.bytes() };
                cx.out.send(Target::Post { node, origin: Origin::Service }, &wants);
            }
            Next::Ended(true)
        }
        (Post, _) => {
            objects.sem_post(cx, SEM);
            Next::Ended(true)
        }
        (Give, Phase::Begin) => wait_for(objects.sem_give(cx, SEM, slot), SyncRequest::SemGive),
        (Take, Phase::Begin) => wait_for(objects.sem_wait(cx, SEM, slot), SyncRequest::SemWait),
        (TryTake, Phase::Begin) => match objects.sem_try_wait(cx, SEM, slot) {
            Some(got) => Next::Ended(got),
            None => Next::Waits(Phase::Asked(SyncRequest::SemTryWait)),
        },
        (Read, Phase::Begin) => wait_for(objects.rd_lock(cx, RW, slot).unwrap(), SyncRequest::ReadLock),
        (Write, Phase::Begin) => wait_for(objects.wr_lock(cx, RW, slot).unwrap(), SyncRequest::WriteLock),
        (TryRead, Phase::Begin) => match objects.try_rd_lock(cx, RW, slot) {
            Some(got) => Next::Ended(got),
            None => Next::Waits(Phase::Asked(SyncRequest::TryReadLock)),
        },
        (TryWrite, Phase::Begin) => match objects.try_wr_lock(cx, RW, slot) {
            Some(got) => Next::Ended(got),
            None => Next::Waits(Phase::Asked(SyncRequest::TryWriteLock)),
        },
        (Leave, _) => {
            objects.rw_unlock(cx, RW, slot).unwrap();
            Next::Ended(true)
        }
        (Put, _) => Next::Ended(true),
        (Signal, _) => {
            objects.cond_signal(cx, COND, false);
            Next::Ended(true)
        }
        (Broadcast, _) => {
            objects.cond_broadcast(cx, COND, false);
            Next::Ended(true)
        }
        (Come(threads), Phase::Begin) => match objects.subset_barrier(cx, MEETING, threads, slot) {
            Some(got) => Next::Ended(got),
            None => Next::Waits(Phase::Asked(SyncRequest::SubsetBarrier)),
        },
        (TakeToken, _) => take_token(objects, locks, cx, slot, phase, tokens),
        (_, Phase::Asked(request)) => {
            let name = match request {
                SyncRequest::SemWait | SyncRequest::SemTryWait | SyncRequest::SemGive => SEM.0,
                SyncRequest::SubsetBarrier => MEETING.0,
                _ => RW.0,
            };
            objects.collect(request, name, slot).map_or(Next::Waits(phase), Next::Ended)
        }
        (_, Phase::Joined | Phase::Relock) => unreachable!(),
    }
}

fn relocked(locks: &Locks, slot: Slot) -> Next {
    if locks.holds(LOCK, slot) { Next::Ended(true) } else { Next::Waits(Phase::Relock) }
}

fn take_token(
    objects: &mut SyncObjects,
    locks: &mut Locks,
    cx: &mut sync::Context<'_>,
    slot: Slot,
    phase: Phase,
    tokens: u32,
) -> Next {
    match phase {
        Phase::Begin if tokens > 0 => Next::Ended(true),
        Phase::Begin if objects.cond_join(cx, COND, slot) => Next::Again(Phase::Joined),
        Phase::Begin => Next::Waits(Phase::Asked(SyncRequest::CondJoin)),
        Phase::Joined => {
            locks.release(cx, LOCK, slot).unwrap();
            match objects.cond_await(cx, COND, slot) {
                true => lock_again(locks, cx, slot),
                false => Next::Waits(Phase::Asked(SyncRequest::CondAwait)),
            }
        }
        Phase::Asked(request) => match objects.collect(request, COND.0, slot) {
            Some(_) if request == SyncRequest::CondJoin => Next::Again(Phase::Joined),
            Some(_) => lock_again(locks, cx, slot),
            None => Next::Waits(phase),
        },
        Phase::Relock if locks.holds(LOCK, slot) => Next::Relocked,
        Phase::Relock => Next::Waits(phase),
    }
}

fn lock_again(locks: &mut Locks, cx: &mut sync::Context<'_>, slot: Slot) -> Next {
    match locks.acquire(cx, LOCK, slot) {
        Acquire::Held | Acquire::Taken => Next::Relocked,
        Acquire::Wait => Next::Waits(Phase::Relock),
    }
}

/// Tries every order in which threads and messages can go, up to `limit` runs; gives how many there were.
pub(super) fn every_order(world: &World, limit: usize) -> usize {
    let (mut runs, mut open) = (0, vec![world.clone()]);
    while let Some(world) = open.pop() {
        let choices = world.choices();
        if choices == 0 {
            world.must_have_ended();
            runs += 1;
            if runs == limit {
                break;
            }
        }
        for choice in 0..choices {
            let mut next = world.clone();
            next.choose(choice);
            open.push(next);
        }
    }
    runs
}

/// Runs once, in an order by seed.
pub(super) fn some_order(world: World, seed: u64) -> World {
    let world = run(world, seed);
    world.must_have_ended();
    world
}

/// As [`some_order`], but some threads may wait for ever.
pub(super) fn run(mut world: World, seed: u64) -> World {
    let mut rng = Rng::new(seed);
    loop {
        match world.choices() {
            0 => break,
            choices => world.choose(rng.below(choices as u64) as usize),
        }
    }
    world
}
