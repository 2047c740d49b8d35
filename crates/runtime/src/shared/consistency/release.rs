//! Releases and acquires: what the engines `hlrc` and `scope` put into the payloads of synchronisation.
//!
//! What a node does then is decided in [`node`](comem_protocol::coherence::pages::node); here stand the steps of page
//! tables, with what they count, and the threads' side of barriers and acquires. A release by which a lock stays on its
//! node comes nowhere near this file.

use crate::collective_gate::Call;
use crate::counters::Counters;
use crate::error::Error;
use crate::mutex::Mutex;
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::shared::consistency::effects::NodePages;
use crate::shared::consistency::serve::{LocalPages, written_though_read_only};
use crate::shared::fault::acquire_prefetch::AcquirePrefetch;
use crate::shared::heap::table::{Costs, ListMembership, RegionState};
use crate::shared::memory::ChunkMemory;
use crate::thread::Thread;
use comem_protocol::coherence::pages::intervals::IntervalState;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_interval, may_have_to_tell};
use comem_protocol::coherence::pages::node::sync::{Opening, arrive, home_is_fresh};
use comem_protocol::coherence::pages::page_table::PageTable;
use comem_protocol::coherence::pages::page_table::interval_end::PendingWork;
use comem_protocol::coherence::pages::policy::Predictor;
use comem_protocol::coherence::pages::policy::stride_prefetch::Event;
use comem_protocol::coherence::pages::serve::Listing;
use comem_protocol::coherence::pages::{CHUNK_PAGES, Context, PAGE_BYTES, PageNo, Tally, push_range, serve};
use comem_protocol::ids::{LockId, Slot};
use comem_protocol::outbox::{Outbox, Target};
use comem_protocol::sync::IntervalMark;
use comem_protocol::wire::message::Collective;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads that acquire locks look whether their handlers of faults are still in front after so many that came from
/// other nodes.
const LOOK_FOR_HANDLERS: u64 = 32;

/// Mostly what a node says at a barrier has room in so many bytes.
const NOTICES_BYTES: usize = 256;

impl Shared {
    /// How many intervals have begun to end. What this thread wrote before it asked is in the interval that ends next.
    pub(crate) fn mark(&self) -> IntervalMark {
        if cfg!(target_arch = "x86_64") {
            // Whoever asks has just taken the lock's room, by an operation that also writes: the thread's stores have
            // left it before.
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
            IntervalMark(self.closes.load(Ordering::SeqCst))
        } else {
            IntervalMark(self.closes.fetch_add(0, Ordering::SeqCst))
        }
    }

    /// Reads the kernel's notes of writes in these chunks (in order): mostly few of many chunks were written, and to
    /// see that in one walk costs less than to take the notes chunk by chunk. `None` where the kernel makes none.
    /// `looked` is told of each stretch that was looked at, and what was found in it.
    pub(crate) fn writes_seen(
        &self,
        chunks: &[(Range<PageNo>, PendingWork)],
        mut looked: impl FnMut(Range<PageNo>, &[Range<PageNo>]),
    ) -> Option<Vec<Range<PageNo>>> {
        let arena = self.views.as_ref().map(|views| &views.tracked).filter(|arena| arena.notes_writes())?;
        let mut seen = Vec::new();
        let mut chunks = chunks.iter().map(|(chunk, _)| chunk.clone()).peekable();
        while let Some(mut walk) = chunks.next() {
            while let Some(next) = chunks.next_if(|next| next.start - walk.end <= CHUNK_PAGES) {
                walk.end = next.end;
            }
            // Without an answer, everything is looked at.
            arena.peek(walk, &mut seen, &mut looked).ok()?;
        }
        Some(seen)
    }
}

impl Counters {
    /// What a step of a page table did.
    fn account_pages(&self, tally: &Tally) {
        self.pages_fetched.add(tally.pages_fetched);
        self.twins_made.add(tally.twins_made);
        self.diffs_sent.add(tally.diffs_made);
        self.diff_bytes.add(tally.diff_bytes);
        self.diffs_applied.add(tally.diffs_applied);
        self.bases_fetched.add(tally.bases_fetched);
        self.diffs_indirect.add(tally.diffs_indirect);
        self.diffs_indirect_used.add(tally.diffs_indirect_used);
        self.diffs_repaired.add(tally.diffs_repaired);
        self.copysets_left.add(tally.copysets_left);
        self.managers_moved.add(tally.managers_moved);
        self.pages_homed.add(tally.pages_homed);
        self.page_invalidations.add(tally.invalidations);
        self.write_notices.add(tally.notices);
        self.home_notices.add(tally.home_notices);
        self.migrations.add(tally.migrations);
        self.claimed.add(tally.claimed);
        self.evictions.add(tally.evictions);
        self.laid_aside.add(tally.laid_aside);
        self.mapped_early.add(tally.mapped_early);
    }
}

impl Costs {
    /// The same, for the region.
    fn account(&self, tally: &Tally) {
        let add = |to: &AtomicU64, n: u64| {
            if n > 0 {
                to.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(&self.pages_fetched, tally.pages_fetched);
        add(&self.diff_bytes, tally.diff_bytes);
        add(&self.invalidations, tally.invalidations);
    }
}

impl Shared {
    /// Books that so many pages of other homes came here, or went.
    fn count_held(&self, held: i64) {
        if held != 0 {
            let before = self.cached_pages.fetch_add(held as u64, Ordering::Relaxed);
            // Each of these pages may have a twin again.
            self.twins.keep(before.wrapping_add(held as u64) as usize * PAGE_BYTES);
        }
    }

    /// Puts a chunk into the list of active ones; its lock is held.
    fn list(&self, chunk: &PageTable, marks: &mut ListMembership) {
        if !std::mem::replace(&mut marks.active, true) {
            self.active.lock().push(chunk.layout().first);
        }
    }
}

impl LocalPages<'_> {
    /// A step of the page table with this page, with what becomes of its place in the list of active ones; `None` when
    /// no region with several writers has it.
    pub(in crate::shared) fn table_step<R>(
        &self,
        (page, listing): (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let LocalPages { node, shared, slot, .. } = *self;
        let views = shared.views.as_ref()?;
        let found;
        let known = match self.known_at(page) {
            Some(known) => known,
            None => {
                found = shared.table.find(page).filter(|known| known.region.engine.has_several_writers())?;
                &*found
            }
        };
        known.step(views, page, |known, chunk, memory, marks| {
            match listing {
                Listing::AsBefore => {}
                Listing::Idle => marks.idle = false,
                Listing::Taken => marks.active = false,
                Listing::Live if known.is_freed() => return None,
                Listing::Fault if !chunk.may_need_notices(page) => {}
                Listing::Shared | Listing::Mapped | Listing::Live | Listing::Fault => shared.list(chunk, marks),
            }
            Some(node.step_listed(slot, shared, known, (chunk, memory, marks), out, step))
        })
    }
}

impl Node {
    /// Runs a step on the chunk with this page; `None` when no region with several writers has it.
    pub(crate) fn page_step<R>(
        &self,
        slot: Slot,
        page: PageNo,
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.local_pages(self.shared()?, slot).table_step((page, Listing::AsBefore), out, step)
    }

    /// A step of a chunk whose lock is held, and what follows from it; the chunk comes to the list of active ones if
    /// something may be dirty, and to those of copies.
    pub(in crate::shared) fn step_listed<R>(
        &self,
        slot: Slot,
        shared: &Shared,
        known: &RegionState,
        (chunk, memory, marks): (&mut PageTable, &mut ChunkMemory<'_>, &mut ListMembership),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> R {
        let mut tally = Tally::default();
        let caller = (slot != Slot::SERVICE).then_some(slot);
        let sync_phase = *shared.sync_phase.lock();
        let mut cx = Context { me: shared.me, caller, sync_phase, memory, out, tally: &mut tally };
        known.request_close(chunk.layout().first);
        let result = step(chunk, &mut cx);
        known.note_pending_work(chunk.layout().first, chunk.pending_work());
        if !marks.active && chunk.may_be_dirty() {
            shared.list(chunk, marks);
        }
        for waiter in caller.iter().chain(out.wakes()) {
            shared.has_stepped(*waiter, chunk);
        }
        shared.page_cache.account(chunk.layout().first, marks, &tally);
        self.counters(slot).account_pages(&tally);
        known.costs.account(&tally);
        shared.count_gained(tally.gained);
        shared.count_held(tally.held);
        if tally.diffs_kept != 0 {
            shared.kept_diffs.grew(tally.diffs_kept);
        }
        if tally.read_only_writes > 0 {
            // The caller holds locks: the service thread ends the node soon, and [`finish`](crate::boot::finish) does
            // at the latest.
            self.life.note_misuse(|| written_though_read_only(known));
        }
        result
    }

    /// The moment at which a thread lets go of something.
    pub(crate) fn mark(&self) -> IntervalMark {
        self.shared().map_or(IntervalMark::NOW, Shared::mark)
    }

    /// Whether diffs that were announced for this node's own home pages are not in yet.
    #[inline]
    pub(crate) fn awaits_diffs(&self) -> bool {
        self.shared().is_some_and(|shared| shared.awaiting.load(Ordering::Acquire))
    }

    /// This node's intervals, under their lock; `None` where nodes share no pages.
    pub(crate) fn intervals(&self) -> Option<MutexGuard<'_, IntervalState>> {
        self.shared().filter(|shared| shared.views.is_some()).map(|shared| shared.intervals.lock())
    }

    /// Whether an interval that ended now might have something in it. Waits for one that is just ending.
    pub(crate) fn may_have_to_tell(&self, slot: Slot) -> bool {
        let Some(shared) = self.shared().filter(|shared| shared.views.is_some()) else { return false };
        let intervals = shared.intervals.lock();
        let mut side = Outbox::new();
        let may = may_have_to_tell(&mut self.node_pages(shared, slot, &mut side));
        drop(intervals);
        self.flush(slot, &mut side);
        may
    }
}

impl NodePages<'_> {
    /// A barrier of all threads has opened: applies what all nodes said, once a node.
    fn open_epoch(&mut self, notices: &[u8], in_place: bool) {
        let LocalPages { node, shared, .. } = self.local;
        let mut intervals = shared.intervals.lock();
        shared.sharing.note_putters(shared.directory());
        let mut opening = Opening::begin(self, &mut intervals, notices, in_place);
        while opening != Opening::Open {
            opening = opening.next(self, &mut intervals);
        }
        let epoch = intervals.epoch();
        shared.epoch.store(epoch, Ordering::Release);
        shared.home_queue.lock().open(epoch);
        // What lies side by side goes at once: each run costs two system calls, and programs free regions by the
        // hundred thousand.
        for gone in side_by_side(shared.table.forget_freed(epoch)) {
            shared.sharing.forget(&gone);
            if let (Some(directory), Some(free)) = (shared.directory(), shared.table.forgotten_around(gone.start)) {
                directory.give_back(&gone, &free);
            }
        }
        drop(intervals);
        if let Err(misbehaved) = serve::rerun(&mut self.local, self.side) {
            node.end_with(&Error::harm(format!("another node {misbehaved}")));
        }
    }
}

/// Ranges as runs that do not touch, in order.
fn side_by_side(mut ranges: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut runs = Vec::new();
    ranges.into_iter().for_each(|range| push_range(&mut runs, range));
    runs
}

/// Counts the threads of a node that have come to a call in which all of them take part.
#[derive(Debug, Default)]
pub(crate) struct CallCount(AtomicUsize);

impl CallCount {
    /// Another thread comes to a collective call: whether it is the last one, of so many where all take part.
    pub(crate) fn all_came(&self, what: Collective, callers: usize) -> bool {
        if !what.by_threads() {
            return true;
        }
        let last = self.0.fetch_add(1, Ordering::AcqRel) + 1 == callers;
        if last {
            self.0.store(0, Ordering::Release);
        }
        last
    }
}

/// Where a node's threads come together around a coherent barrier.
#[derive(Debug, Default)]
pub(crate) struct BarrierGate {
    arrived: CallCount,
    /// Barriers whose notices were applied here. The node's first thread behind a barrier holds the lock while it
    /// applies and fetches what all its others wait for. It is taken before all other locks.
    opened: Mutex<u64>,
}

impl Thread {
    /// Before the arrival at a coherent barrier: the node's last thread closes the interval and says what was written.
    pub(crate) fn before_barrier(&self, what: Collective, call: Option<&Call<'_>>) -> (Vec<u8>, u64) {
        let mut notices = Vec::new();
        let Some(shared) = self.home().shared().filter(|s| s.views.is_some()) else { return (notices, 0) };
        let gate = *shared.gate.opened.lock();
        if shared.gate.arrived.all_came(what, crate::host::callers(&self.home().config)) {
            notices.reserve(NOTICES_BYTES);
            // What is of no use here until now says that this node may leave copysets.
            self.home().look_at_told(self.slot());
            self.stepping(|side| {
                let mut intervals = shared.intervals.lock();
                let mut pages = self.home().node_pages(shared, self.slot(), side);
                arrive(&mut pages, &mut intervals, call.is_some_and(|call| call.beside), &mut notices);
                let early = side.sends().iter().filter(|send| matches!(send.target, Target::Set(_))).count();
                self.counters().diffs_told_early.add(early as u64);
            });
        }
        (notices, gate)
    }

    /// After a coherent barrier has opened: the first thread of the node applies what was said, the others wait for
    /// that.
    pub(crate) fn after_barrier(&self, gate: u64, call: Option<&Call<'_>>) -> crate::Result<()> {
        let Some(shared) = self.home().shared().filter(|s| s.views.is_some()) else { return Ok(()) };
        self.stream(|s| s.observe(&(), Event::Synchronised));
        let mut opened = self.locked_out(Waiting::Opening, &shared.gate.opened);
        let first = *opened == gate;
        if first {
            self.look_for_pushed();
            let notices = self.home().sync.with_barrier(|b| b.notices().to_vec());
            // Others that go on meanwhile must not find copies that are out of date.
            let in_place = self.home().config.refetches() && !call.is_some_and(|call| call.beside);
            self.stepping(|side| self.home().node_pages(shared, self.slot(), side).open_epoch(&notices, in_place));
            call.into_iter().for_each(Call::is_over);
            let deferred = self.home().schedule.barrier_opened();
            self.home().carry_out_deferred(self.slot(), deferred);
            // What stayed mapped must be up to date before anybody goes on.
            self.after_acquire(None)?;
            shared.kept_diffs.complete_copies(self, shared)?;
            *opened += 1;
            return Ok(());
        }
        drop(opened);
        self.after_acquire(None)
    }

    /// After any acquire, of this lock if it is one: sees to it that faults come here, waits until the diffs for this
    /// node's own home pages are in, and fetches what was in use.
    pub(crate) fn after_acquire(&self, lock: Option<LockId>) -> crate::Result<()> {
        let Some(shared) = self.home().shared().filter(|s| s.views.is_some()) else { return Ok(()) };
        // A library may have installed a handler of its own meanwhile: two system calls, which a token that comes in 3
        // us need not pay.
        if lock.is_none() || self.counters().lock_remote.get().is_multiple_of(LOOK_FOR_HANDLERS) {
            comem_memory::pages::fault::ensure_installed();
        }
        self.stream(|s| s.observe(&(), Event::Synchronised));
        let prefetch = AcquirePrefetch::begin(self, shared, lock);
        if shared.awaiting.load(Ordering::Acquire) {
            shared.await_diffs(self)?;
        }
        prefetch.end()
    }

    /// What this node has written so far was set-up, for others who begin now: it says nothing of who will write, so no
    /// home moves because of it. For a moment at which no other thread of the job is at work.
    pub fn end_setup(&self) {
        let Some(shared) = self.home().shared().filter(|s| s.views.is_some()) else { return };
        shared.claims.store(true, Ordering::Relaxed);
        self.end_interval(shared, CloseReason::Setup);
    }

    /// Ends the open interval for this reason, whoever waits for that.
    pub(crate) fn end_interval(&self, shared: &Shared, why: CloseReason) {
        self.stepping(|side| {
            let mut intervals = shared.intervals.lock();
            close_interval(&mut self.home().node_pages(shared, self.slot(), side), &mut intervals, why);
        });
    }

    /// What nobody has touched yet, of memory that is placed so ([`Home::Claimed`](crate::heap::Home::Claimed)),
    /// belongs from now on to the node that touches it first. To be called on each node when its workers begin;
    /// [`Thread::end_setup`] does it, too.
    pub fn begin_work(&self) {
        if let Some(shared) = self.home().shared() {
            shared.claims.store(true, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Has a thread wait until the diffs for this node's own home pages are in.
    fn await_diffs(&self, thread: &Thread) -> crate::Result<()> {
        loop {
            if home_is_fresh(&mut thread.home().node_pages(self, thread.slot(), &mut Outbox::new())) {
                self.diff_waiters.lock().retain(|s| *s != thread.slot());
                return Ok(());
            }
            {
                let mut waiters = self.diff_waiters.lock();
                if !waiters.contains(&thread.slot()) {
                    waiters.push(thread.slot());
                }
            }
            let needs = self.needs.lock().at(self.me);
            // They may have come between the look and the registration.
            if !self.meets(&needs) {
                thread.wait(Waiting::Diffs)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each region that was freed cost two system calls at the next barrier: 24 s for these.
    #[test]
    fn freed_regions_that_lie_side_by_side_go_as_one_run_however_many_they_are() {
        let freed = (0..400_000).rev().map(|n| 2 * n..2 * n + 2).collect();
        assert_eq!(side_by_side(freed), std::slice::from_ref(&(0..800_000)));
        assert_eq!(side_by_side(vec![8..9, 1..3, 3..4, 6..8]), [1..4, 6..9]);
    }
}
