//! A simulated node: the production state machines for pages and synchronisation around a model of memory, joined as
//! the runtime joins them.

mod active;
mod effects;
mod homes;
mod payload;
mod schedule;
mod state;
mod told;

use self::active::Active;
use self::told::Told;
use super::layout::Layout;
use super::memory::{Claims, Memory, PAGE_WORDS, Progress};
use super::thread::Thread;
use crate::carrier::Incoming;
use crate::schedule::Scheduled;
use comem_protocol::coherence::pages::atomic::{Atomic, Kind, Op, Request};
use comem_protocol::coherence::pages::home_queue::HomeQueue;
use comem_protocol::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use comem_protocol::coherence::pages::kept_diffs::{self, Ask, Stamp};
use comem_protocol::coherence::pages::migration::Migration;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_tables};
use comem_protocol::coherence::pages::node::evict::{Which, evict};
use comem_protocol::coherence::pages::node::fault::{Faulted, HomeMemory, fault};
use comem_protocol::coherence::pages::node::invalidate::invalidate_copy;
use comem_protocol::coherence::pages::node::refetch::Refetch;
use comem_protocol::coherence::pages::node::{NodeEffects, each_table};
use comem_protocol::coherence::pages::page_table::atomic::Place;
use comem_protocol::coherence::pages::page_table::{PageTable, PrefetchPlan};
use comem_protocol::coherence::pages::policy::sync_phase::SyncPhase;
use comem_protocol::coherence::pages::push::PushBuffer;
use comem_protocol::coherence::pages::serve;
use comem_protocol::coherence::pages::wire::{self, DiffsHead, RequiredDiff};
use comem_protocol::coherence::pages::{self, Access, PageMemory, PageNo, Tally};
use comem_protocol::faults::Rng;
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::lock_schedule::LockSchedule;
use comem_protocol::node::route::{Origin, dispatch};
use comem_protocol::outbox::{self, Outbox, Target};
use comem_protocol::rules::Rule;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::{self, IntervalMark, LockTail};
use comem_protocol::time::Time;
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::{Message, types};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A message of diffs that has not left.
#[derive(Debug)]
pub(super) struct Diffs {
    pub(super) home: NodeId,
    pub(super) origin: outbox::Origin,
    pub(super) head: DiffsHead,
    pub(super) parts: Vec<u8>,
}

impl Diffs {
    pub(super) fn send(&self, out: &mut Outbox) {
        let mut body = Vec::new();
        self.head.emit(&mut body);
        body.extend_from_slice(&self.parts);
        out.send(Target::Post { node: self.home, origin: self.origin }, &Message::Diffs { body: &body });
    }
}

/// A node's pages.
#[derive(Debug)]
pub struct Pages {
    pub(super) me: NodeId,
    pub(super) layout: Arc<Layout>,
    pub(super) chunks: Vec<PageTable>,
    pub(super) active: Active,
    pub(super) memory: Memory,
    pub(super) intervals: IntervalState,
    /// How many intervals have begun to end.
    closes: u64,
    /// Copies that have ended since the last barrier.
    ended: Vec<Range<PageNo>>,
    sync_phase: SyncPhase,
    pub(super) needs: RequiredDiffs,
    pub(super) home_queue: HomeQueue,
    pub(super) push_buffer: PushBuffer,
    /// What was written up to here is kept by nobody.
    pub(super) floor: Stamp,
    /// Regions that were freed.
    pub(super) freed: Vec<Range<PageNo>>,
    /// Blocks of this node that were freed: their first words, and the stamps of the nodes that freed them.
    pub(super) free_blocks: Vec<(usize, Option<Stamp>)>,
    /// Pages sent unasked, and pages that came so and were used.
    pub(super) pushed: (u64, u64),
    /// Pages sent with tokens, and pages that came so and were used.
    pub(super) carried: (u64, u64),
    migration: Migration,
    pub(super) tally: Tally,
    /// Pages copied out of their home's memory without asking.
    pub(super) taken: u64,
    /// What a thread's fault came to while another thread held the intervals.
    pub(super) faults: Vec<Option<Faulted>>,
    /// The application thread whose step it is.
    pub(super) caller: Option<Slot>,
    /// What leaves before the step's other messages: diffs.
    pub(super) diffs: Vec<Diffs>,
    /// What steps of chunks say.
    pub(super) side: Outbox,
    /// Diffs were applied in this step: who waits for some looks again.
    pub(super) applied: bool,
    pub(super) failure: Option<String>,
    /// The diffs of intervals up to this stamp are in the stores.
    closed_stamp: Stamp,
    /// All nodes have heard of what was written up to here, or will.
    barrier_stamp: Stamp,
    /// What is to be asked for before the barrier that has opened is left.
    to_complete: Vec<(NodeId, Ask)>,
    /// The units of which it was asked for.
    completing: Vec<PageNo>,
    /// Where nodes reach each other's memory.
    queues: Option<Queues>,
    /// When tokens of locks are given away.
    pub(super) schedule: LockSchedule,
    /// When the step under way happens, and when an interval closed last.
    pub(super) now: Time,
    closed: Time,
    rng: Rng,
}

/// What nodes lay open of locks to each other.
#[derive(Debug, Default)]
pub(super) struct PublishedTails {
    /// Who asked last, and whether the token is published there.
    last: BTreeMap<LockId, LockTail>,
    /// What a published token tells, at a node.
    told: BTreeMap<(LockId, NodeId), Vec<u8>>,
}

/// What all nodes see, where they reach each other's memory.
#[derive(Clone, Default, Debug)]
pub(super) struct Open {
    queues: Queues,
    claims: Claims,
}

type Queues = Arc<Mutex<PublishedTails>>;

impl Pages {
    fn new(me: NodeId, layout: &Arc<Layout>, open: &Open, seed: u64) -> Pages {
        let mut intervals = IntervalState::new(me, layout.engine);
        layout.regions.iter().for_each(|(region, _)| intervals.on_region(region.engine));
        let chunks = layout.chunks(me);
        Pages {
            me,
            layout: layout.clone(),
            active: Active::new(chunks.len()),
            chunks,
            memory: Memory::new(layout.pages(), layout.threads, layout.memory, seed)
                .with_claims(layout.takes.then(|| open.claims.clone()))
                .with_all_found(layout.all_found),
            intervals,
            closes: IntervalMark::FIRST.0,
            ended: Vec::new(),
            sync_phase: SyncPhase::new(&layout.tuning.notices),
            needs: RequiredDiffs::default(),
            home_queue: HomeQueue::new(),
            push_buffer: PushBuffer::new(layout.tuning.notices),
            floor: 0,
            freed: Vec::new(),
            free_blocks: Vec::new(),
            pushed: (0, 0),
            carried: (0, 0),
            migration: Migration::new(layout.tuning.homes),
            tally: Tally::default(),
            taken: 0,
            faults: vec![None; layout.threads],
            caller: None,
            diffs: Vec::new(),
            side: Outbox::new(),
            applied: false,
            failure: None,
            closed_stamp: 0,
            barrier_stamp: 0,
            to_complete: Vec::new(),
            completing: Vec::new(),
            queues: layout.takes.then(|| open.queues.clone()),
            schedule: LockSchedule::new(layout.tuning.locks),
            now: Time(0),
            closed: Time(0),
            rng: Rng::new(!seed),
        }
    }

    fn chunk_of(&self, page: PageNo) -> Option<usize> {
        let within = |c: &PageTable| (c.layout().first..c.layout().first + c.layout().pages).contains(&page);
        self.chunks.iter().position(within)
    }

    /// A step of one chunk.
    pub(super) fn with<R>(&mut self, at: usize, step: impl FnOnce(&mut PageTable, &mut pages::Context<'_>) -> R) -> R {
        let Pages { me, caller, sync_phase, memory, side, tally, chunks, active, .. } = self;
        active.step_begins(*caller, at);
        let mut cx = pages::Context { me: *me, caller: *caller, sync_phase: *sync_phase, memory, out: side, tally };
        let result = step(&mut chunks[at], &mut cx);
        if chunks[at].may_be_dirty() {
            active.step_ends(*caller, at);
        }
        result
    }

    /// A step of whoever has locked the intervals.
    pub(super) fn with_intervals<R>(&mut self, step: impl FnOnce(&mut Pages, &mut IntervalState) -> R) -> R {
        let mut intervals = std::mem::replace(&mut self.intervals, IntervalState::new(self.me, self.layout.engine));
        let result = step(self, &mut intervals);
        self.active.goes_on(self.caller);
        self.intervals = intervals;
        result
    }

    /// Another node stores its diffs into this one's memory by itself; `false`, and nothing done, where it must send
    /// them.
    pub(super) fn put(&mut self, writer: NodeId, serial: u64, diffs: &[u8]) -> bool {
        let before = RequiredDiff { writer, serial: serial - 1 };
        let in_order = before.serial == 0 || self.home_queue.meets(&[before]);
        if !in_order && Rule::PutsKeepTheirOrder.on() {
            return false;
        }
        for (page, diff) in wire::parts(diffs) {
            let unit = self.chunk_of(page).map(|at| self.chunks[at].units().unit_of(page));
            if unit.is_none_or(|unit| unit.start != page || self.memory.apply(unit, diff).is_err()) {
                self.failure = Some(format!("{writer} put what is no diff of page {page}"));
            }
        }
        self.home_queue.applied(writer, serial);
        true
    }

    /// Whether thread `t` can use the page of its access as soon as it looks.
    pub(super) fn is_fetching(&self, page: PageNo) -> bool {
        self.chunk_of(page).is_some_and(|at| self.chunks[at].unit(page).is_fetching())
    }

    /// Pages come that came before.
    pub(super) fn take_late(&mut self, body: &[u8], out: &mut Outbox) {
        let pages = wire::Pages::parse(body).map(|(pages, _)| pages).unwrap_or_default();
        let mut runs = pages.runs.iter().chain(pages.moved.iter().map(|(run, _)| run));
        if !runs.any(|run| run.clone().any(|page| self.is_fetching(page))) {
            self.caller = None;
            self.failure = serve::on_pages(self, NodeId(0), body, out).err().map(|e| e.to_string());
        }
    }

    /// The fault of thread `t`, if its access has come to one.
    pub(super) fn fault(&mut self, t: usize) -> Option<Faulted> {
        let access = (*self.memory.access(t)).filter(|a| a.progress == Progress::Faulted)?;
        self.chunk_of(access.page)?;
        let kind = if access.store.is_some() { Access::Write } else { Access::Read };
        let caller = self.caller.replace(Slot::thread(t));
        // Some faults claim and some do not; in regions of one kind none.
        let claims = self.rng.below(2) == 0 && self.layout.has_claims(access.page) && self.has_room_for_homes();
        let ahead = PrefetchPlan { claims, ..self.layout.ahead };
        let faulted = fault(self, (Slot::thread(t), access.page, kind), |_| ahead);
        self.caller = caller;
        if let Some(access) = self.memory.access(t) {
            access.progress = Progress::Told;
        }
        faulted
    }

    /// Between two chunks of a long step other threads go on; they cannot take the lock of the intervals.
    fn others_act(&mut self) {
        for t in 0..self.faults.len() {
            if self.caller == Some(Slot::thread(t)) || self.rng.below(2) == 0 {
                continue;
            }
            self.memory.advance(t);
            match self.fault(t) {
                // A thread that has to wait asks again itself, or it could miss being woken.
                Some(Faulted::Mapped | Faulted::Wait) => self.retry(t),
                faulted => self.faults[t] = faulted.or(self.faults[t].take()),
            }
        }
    }

    /// Thread `t` tries its access again.
    pub(super) fn retry(&mut self, t: usize) {
        if let Some(access) = self.memory.access(t) {
            access.progress = Progress::Wanted;
        }
    }

    /// Where the layout says so, ends an interval of what was written to one chunk, now and then: as if the token of
    /// another lock had left. What was written before a critical section is then in an interval of its own.
    fn may_close_early(&mut self) {
        let chunks = self.active.chunks();
        if self.layout.closes_early && !chunks.is_empty() {
            let chunk = chunks[self.rng.below(chunks.len() as u64) as usize];
            self.close_chunk(chunk);
        }
    }

    /// Ends an interval of what was written to one chunk, where no barrier is under way.
    fn close_chunk(&mut self, chunk: usize) {
        if self.intervals.may_close() {
            let first = [self.chunks[chunk].layout().first];
            self.with_intervals(|pages, intervals| close_tables(pages, intervals, (&first, false), CloseReason::Else));
        }
    }

    /// Another thread that closes an interval untracks what is around this page, now and then.
    pub(super) fn untrack_idle(&mut self, page: PageNo) {
        if self.layout.forbids && self.rng.below(3) == 0 {
            let at = self.rng.below(u64::from(self.layout.pages())) as PageNo;
            let at = if self.rng.below(2) == 0 { at } else { page };
            self.step(at, |table, cx| table.untrack_idle(cx, &(at..at)));
        }
        if self.layout.idles && self.rng.below(8) == 0 {
            let run = page.saturating_sub(self.rng.below(3) as u32)..page + 1 + self.rng.below(3) as u32;
            each_table(self, [run].iter(), |pages, parts| {
                pages.step(parts[0].start, |c, cx| c.untrack_idle(cx, &parts[0]));
            });
        }
    }

    /// Where an atomic operation on this page has to be carried out.
    pub(super) fn place_of_atomic(&mut self, page: PageNo) -> Place {
        let at = self.chunk_of(page).expect("programs use pages that there are");
        self.chunks[at].unit(page).place_of_atomic()
    }

    /// This node's copy of a page ends, and a fetch of it is void.
    pub(super) fn invalidate_copy(&mut self, page: PageNo) {
        self.with_intervals(|pages, intervals| invalidate_copy(pages, intervals, page));
    }

    /// Asks a word's home to add to it.
    pub(super) fn ask_to_add(
        &mut self,
        home: NodeId,
        needs: &[RequiredDiff],
        (word, number): (usize, u64),
        out: &mut Outbox,
    ) {
        let atomic = Atomic { kind: Kind::U64, op: Op::Add, operand: number, expected: 0 };
        let (page, offset) = ((word / PAGE_WORDS) as PageNo, (word % PAGE_WORDS * 8) as u16);
        let request = Request { epoch: self.intervals.epoch(), page, offset, atomic, needs: needs.to_vec() };
        let mut body = Vec::new();
        request.emit(&mut body);
        out.send(Target::Request { node: home, origin: outbox::Origin::Caller }, &Message::Atomic { body: &body });
    }

    /// An atomic operation of this node on the page was carried out at its home.
    pub(super) fn atomic_is_done(&mut self, page: PageNo) {
        let Some(at) = self.chunk_of(page) else { return };
        self.push_buffer.void(&(page..page + 1));
        if self.with(at, |c, _| c.atomic_done(page)) {
            self.invalidate_copy(page);
        }
    }

    /// Gives up copies when there are too many.
    pub(super) fn evict(&mut self) {
        let cached: u32 = self.chunks.iter().map(|table| table.units().cached_pages()).sum();
        if cached < self.layout.cache_pages {
            return;
        }
        let first = self.rng.below(u64::from(self.layout.pages())) as u32;
        let run = first..(first + 1 + self.rng.below(4) as u32).min(self.layout.pages());
        let spared: Vec<PageNo> = (0..self.layout.pages()).filter(|page| !run.contains(page)).collect();
        let which = if self.rng.below(4) == 0 { Which::Idle } else { Which::All };
        let firsts: Vec<PageNo> = self.chunks.iter().map(|chunk| chunk.layout().first).collect();
        self.with_intervals(|pages, intervals| {
            for first in firsts {
                evict(pages, intervals, (first, which), &spared);
            }
        });
    }

    /// Begins to fetch again what acquires and a barrier ended the copies of.
    pub(super) fn begin_refetch(&mut self) -> Refetch {
        let ended = std::mem::take(&mut self.ended);
        Refetch::begin(self, &ended, |_| 6)
    }

    /// Asks for what the collection under way demands; gives the number of requests.
    pub(super) fn complete_copies(&mut self, out: &mut Outbox) -> usize {
        let asks = std::mem::take(&mut self.to_complete);
        self.completing = asks.iter().map(|(_, ask)| ask.page).collect();
        kept_diffs::serve::send_asks(&asks, self.intervals.epoch(), out)
    }

    /// Whether all of that has come. An answer may be one to an earlier request, for which nobody waits any more.
    pub(super) fn has_completed(&self) -> bool {
        !self.completing.iter().any(|page| self.is_fetching(*page))
    }

    /// An answer about diffs that stay with their writers comes that came before.
    pub(super) fn take_repeated(&mut self, message: &Incoming, out: &mut Outbox) {
        self.caller = None;
        let (from, body) = (message.from.node, &message.body[..]);
        let taken = match message.ty {
            types::BASE => kept_diffs::serve::on_base(self, from, body, out),
            _ => kept_diffs::serve::on_kept_diffs(self, from, body, out),
        };
        self.failure = taken.err().map(|e| e.to_string());
    }
}

/// A node's memory, as another node sees it.
pub(super) struct SeenMemory<'a>(pub(super) &'a mut Pages);

impl HomeMemory for SeenMemory<'_> {
    fn has_applied(&mut self, needs: &[RequiredDiff]) -> bool {
        self.0.home_queue.meets(needs)
    }

    fn mark(&mut self, unit: PageNo) -> bool {
        self.0.memory.take(unit)
    }

    fn is_offered(&mut self, unit: PageNo) -> bool {
        self.0.memory.is_offered(unit)
    }

    fn with_bytes<R>(&mut self, pages: &Range<PageNo>, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut bytes = Vec::new();
        self.0.memory.copy_out(pages.clone(), &mut bytes);
        Some(f(&bytes))
    }
}

/// A node of the cluster.
#[derive(Debug)]
pub struct Node {
    pub(super) pages: Pages,
    pub(super) threads: Vec<Thread>,
    pub(super) locks: Locks,
    pub(super) flags: Flags,
    pub(super) objects: sync::objects::SyncObjects,
    pub(super) barrier: Barrier,
    /// Threads of this node at the barrier.
    pub(super) at_barrier: usize,
    /// Whether a thread is opening the barrier for its node, and holds the intervals meanwhile.
    pub(super) opening: bool,
    /// Whether copies that stayed mapped are out of date, so that no thread may leave the barrier.
    pub(super) renewing: bool,
    /// Whose request the reply under way answers.
    answers: Slot,
    /// What it was told and has not read.
    pub(super) told: Told,
}

impl Node {
    /// A node with these threads.
    pub(super) fn new(me: NodeId, layout: &Arc<Layout>, threads: Vec<Thread>, open: &Open, seed: u64) -> Node {
        let free_bytes = if layout.posts_arrivals { 60 } else { usize::MAX };
        Node {
            pages: Pages::new(me, layout, open, seed),
            locks: Locks::new().tuned(layout.tuning.locks),
            flags: Flags::new(),
            objects: sync::objects::SyncObjects::new().tuned(layout.tuning.sync),
            barrier: Barrier::new(me, layout.nodes, threads.len()).tuned(layout.tuning.sync).for_notices(free_bytes),
            threads,
            at_barrier: 0,
            opening: false,
            renewing: false,
            answers: Slot::SERVICE,
            told: Told::default(),
        }
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
        let me = self.pages.me;
        let message = Message::parse(ty, body).map_err(|e| format!("{me} got bytes it cannot read: {e}"))?;
        self.answers = answers;
        (self.pages.caller, self.pages.now) = (origin.caller, now);
        self.pages.active.goes_on(origin.caller);
        if let Message::LockRequest { .. } | Message::LockForward { .. } = message {
            self.pages.may_close_early();
        }
        if self.defers(now, &message, origin, body) {
            return Ok(());
        }
        dispatch(self, now, origin, message, out).map_err(|e| format!("{me} says that {} {e}", origin.from))?;
        self.may_request_ahead(origin.caller, out);
        Ok(())
    }

    /// What lies around although everything has ended.
    pub fn unrest(&self) -> Option<String> {
        if let Some(left) = crate::schedule::left_over(&self.pages.schedule) {
            return Some(format!("{}: {left}", self.pages.me));
        }
        let kept = self.pages.home_queue.kept();
        (kept > 0).then(|| format!("{}: {kept} messages still wait in the home's queue", self.pages.me))
    }

    pub(super) fn on_locks<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>) -> R,
    ) -> R {
        let (me, nodes) = (self.pages.me, self.pages.layout.nodes);
        let mut cx = sync::Context { me, nodes, caller, payload: &mut self.pages, out };
        step(&mut self.locks, &mut cx)
    }

    pub(super) fn on_flags<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>) -> R,
    ) -> R {
        let (me, nodes) = (self.pages.me, self.pages.layout.nodes);
        let mut cx = sync::Context { me, nodes, caller, payload: &mut self.pages, out };
        step(&mut self.flags, &mut cx)
    }

    pub(super) fn on_sync_objects<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut sync::objects::SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        let (me, nodes) = (self.pages.me, self.pages.layout.nodes);
        let mut cx = sync::Context { me, nodes, caller, payload: &mut self.pages, out };
        step(&mut self.objects, &mut cx)
    }
}
