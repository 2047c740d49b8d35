//! What the page logic of a node ([`node`](comem_protocol::coherence::pages::node)) acts on here.

use crate::error::Error;
use crate::node::Node;
use crate::shared::Shared;
use crate::shared::consistency::kept_diffs::diffs_lost;
use crate::shared::consistency::serve::LocalPages;
use crate::shared::heap::table::RegionState;
use comem_protocol::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use comem_protocol::coherence::pages::kept_diffs::{Ask, Stamp};
use comem_protocol::coherence::pages::node::close::{CloseReason, Notices};
use comem_protocol::coherence::pages::node::diffs::{DiffBatch, DiffEffects};
use comem_protocol::coherence::pages::node::fault::Came;
use comem_protocol::coherence::pages::node::{Failure, NodeEffects};
use comem_protocol::coherence::pages::page_table::interval_end::PendingWork;
use comem_protocol::coherence::pages::page_table::{DiffSink, PageTable};
use comem_protocol::coherence::pages::piggyback::PIGGYBACK_PAGES_MAX;
use comem_protocol::coherence::pages::policy::Predictor;
use comem_protocol::coherence::pages::policy::lock_working_set::Event;
use comem_protocol::coherence::pages::policy::scan_cost::Look;
use comem_protocol::coherence::pages::policy::sync_phase::SyncPhase;
use comem_protocol::coherence::pages::serve::{self, Listing};
use comem_protocol::coherence::pages::wire::{DIFFS_HEAD_BYTES, DiffsHead, Entry, PUSH_PAGES_MAX, RequiredDiff};
use comem_protocol::coherence::pages::{ByteMarks, Context, PAGE_BYTES, PageNo};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::{Origin, Outbox};
use comem_protocol::sync::IntervalMark;
use comem_protocol::wire::message::types;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The node's last words after so many locks.
const TOO_LONG_AN_EPOCH: &str = "this node has ended 4294967295 intervals (mostly by locks that changed nodes) \
    since the last barrier of all threads, and has no number for another; let all threads pass a barrier now and then";

/// This node's pages, as a step of the page logic acts on them.
pub(crate) struct NodePages<'a> {
    pub(in crate::shared) local: LocalPages<'a>,
    /// What leaves before the step's other messages.
    pub(in crate::shared) side: &'a mut Outbox,
}

impl<'a> NodePages<'a> {
    /// The same, where the steps are about this region.
    pub(crate) fn of(self, known: &'a RegionState) -> NodePages<'a> {
        NodePages { local: self.local.of(known), ..self }
    }
}

impl Node {
    pub(crate) fn node_pages<'a>(&'a self, shared: &'a Shared, slot: Slot, side: &'a mut Outbox) -> NodePages<'a> {
        NodePages { local: self.local_pages(shared, slot), side }
    }
}

impl DiffEffects for LocalPages<'_> {
    fn numbered(&mut self, home: NodeId, serial: u64) {
        self.shared.needs.lock().raise(home, self.shared.me, serial);
    }

    fn leaves(&mut self, page: PageNo) {
        self.shared.push_buffer.lock().void(&(page..page + 1));
    }

    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        self.node.wire.sender(Slot::SERVICE).lock().spare(bytes)
    }

    fn put_at(&self, home: NodeId) -> Option<u64> {
        Some(self.writable_directory(home)?.diffs_in(self.shared.me.0))
    }

    fn was_put(&mut self, home: NodeId, epoch: u32, page: PageNo, marks: &ByteMarks) {
        if let Some(directory) = self.writable_directory(home) {
            directory.note_writer(self.shared.me.0, epoch, page, marks);
        }
    }
}

impl<'a> NodeEffects for NodePages<'a> {
    type Pages = LocalPages<'a>;

    fn pages(&mut self) -> &mut LocalPages<'a> {
        &mut self.local
    }

    fn side(&mut self) -> &mut Outbox {
        self.side
    }

    fn me(&self) -> NodeId {
        self.local.shared.me
    }

    fn needs<R>(&mut self, step: impl FnOnce(&mut RequiredDiffs) -> R) -> R {
        step(&mut self.local.shared.needs.lock())
    }

    fn needs_at(&mut self, home: NodeId) -> Vec<RequiredDiff> {
        self.local.node.needs_at(self.local.shared, home)
    }

    fn epoch(&self) -> u32 {
        self.local.shared.epoch.load(Ordering::Acquire)
    }

    fn listed_step<R>(
        &mut self,
        at: (PageNo, Listing),
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.local.table_step(at, self.side, step)
    }

    fn diff_step<R>(
        &mut self,
        at: (PageNo, Listing),
        (batch, intervals): (&mut DiffBatch, &mut IntervalState),
        step: impl FnOnce(&mut PageTable, &mut Context<'_>, &mut dyn DiffSink) -> R,
    ) -> Option<R> {
        let local = self.local;
        let step = |chunk: &mut PageTable, cx: &mut Context<'_>| step(chunk, cx, &mut batch.sink(intervals, local));
        local.table_step(at, self.side, step)
    }

    fn table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        match self.local.known_at(page) {
            Some(known) => known.chunk_around(page),
            None => self.local.shared.table.chunk_around(page),
        }
    }

    fn tables_at(&mut self, firsts: &[PageNo]) -> Vec<(Range<PageNo>, PendingWork)> {
        self.local.shared.table.chunks_at(firsts)
    }

    fn active(&mut self) -> Vec<PageNo> {
        self.local.shared.active.lock().clone()
    }

    fn take_active(&mut self) -> Vec<PageNo> {
        let mut active = {
            let mut list = self.local.shared.active.lock();
            let most = list.len();
            std::mem::replace(&mut *list, Vec::with_capacity(most))
        };
        active.sort_unstable();
        active
    }

    fn relist(&mut self, mut firsts: Vec<PageNo>) {
        self.local.shared.active.lock().append(&mut firsts);
    }

    fn closes(&mut self) -> IntervalMark {
        self.local.shared.mark()
    }

    fn begin_close(&mut self) -> IntervalMark {
        IntervalMark(self.local.shared.closes.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn era<R>(&mut self, step: impl FnOnce(&mut SyncPhase) -> R) -> R {
        step(&mut self.local.shared.sync_phase.lock())
    }

    fn may_be_taken(&mut self, table: &Range<PageNo>) -> bool {
        self.local.shared.directory().is_some_and(|directory| directory.any_taken(table.clone()))
    }

    fn notes_writes(&self) -> bool {
        self.local.shared.views.as_ref().is_some_and(|views| views.tracked.notes_writes())
    }

    fn writes_seen(
        &mut self,
        tables: &[(Range<PageNo>, PendingWork)],
        scan: Option<(SyncPhase, &mut Vec<Range<PageNo>>)>,
    ) -> Option<Vec<Range<PageNo>>> {
        let shared = self.local.shared;
        let Some((sync_phase, idle)) = scan else { return shared.writes_seen(tables, |_, _| ()) };
        let mut scan_cost = shared.scan_cost.lock();
        shared.writes_seen(tables, |pages, found| {
            scan_cost.predict(&(), Look { pages: &pages, found, close: sync_phase.total(), untracked: idle });
        })
    }

    fn has_room_for_homes(&mut self) -> bool {
        self.finds_room_for_homes()
    }

    fn has_closed(&mut self, why: CloseReason, no_room: bool, notices: &Notices) {
        let LocalPages { node, shared, slot, .. } = self.local;
        if notices.iter().flatten().any(|(_, home, _)| *home == shared.me) {
            // The home's writes are noted beside those of others.
            shared.sharing.note_putters(shared.directory());
        }
        let mut away = 0;
        for (pages, home, held) in notices.iter().flatten() {
            if *home == shared.me {
                shared.sharing.note_home(shared.epoch.load(Ordering::Relaxed), shared.me, pages.clone());
            } else if no_room && *held && node.config.migration {
                away += shared.would_come(pages, *home);
            }
        }
        node.counters(slot).no_room.add(away);
        if let CloseReason::Lock(lock) = why {
            let mut working_sets = shared.working_sets.lock();
            for (pages, _, _) in notices.iter().flatten() {
                working_sets.observe(&(), Event::Written { lock, pages: pages.clone() });
            }
        }
        shared.last_close.store(node.now().0, Ordering::Relaxed);
    }

    fn fails(&mut self, why: Failure) {
        let node = self.local.node;
        match why {
            Failure::IntervalsUsedUp => node.end_with(&Error::TooLarge(TOO_LONG_AN_EPOCH.to_string())),
            Failure::Release(error) => {
                node.end_with(&Error::harm(format!("a release of another node said what makes no sense ({error})")));
            }
            Failure::Carried(error) => {
                node.end_with(&Error::harm(format!("a lock came with what makes no sense ({error})")))
            }
            Failure::Notices(error) => {
                let why = std::io::Error::other(format!("{error}; please report this"));
                node.end_with(&Error::system("a barrier said what makes no sense")(why));
            }
            Failure::DiffsLost(page) => node.end_with(&Error::harm(diffs_lost(self.local.shared, page))),
        }
    }

    fn not_kept(&mut self) -> Vec<PageNo> {
        let mut working_sets = self.local.shared.working_sets.lock();
        working_sets.observe(&(), Event::BarrierEnds);
        working_sets.passed_over().to_vec()
    }

    fn copies_ended(&mut self, mut pages: Vec<Range<PageNo>>) {
        self.local.shared.invalidated.lock().append(&mut pages);
    }

    fn meets(&mut self, needs: &[RequiredDiff]) -> bool {
        self.local.shared.meets(needs)
    }

    fn home_has(&mut self, needs: &[RequiredDiff]) {
        let mut all = self.local.shared.needs.lock();
        all.confirm(self.local.shared.me, needs);
        if all.at(self.local.shared.me).is_empty() {
            self.local.shared.awaiting.store(false, Ordering::Release);
        }
    }

    fn has_room_to_carry(&mut self, bytes: usize) -> bool {
        bytes + (PIGGYBACK_PAGES_MAX as usize + 1) * PAGE_BYTES <= self.local.node.wire.message_bytes()
    }

    fn push(&mut self, epoch: u32) {
        let LocalPages { node, slot, .. } = self.local;
        if node.config.sends_unasked() {
            let chunks = self.active();
            // No message may be longer.
            let most = (node.wire.message_bytes() / PAGE_BYTES).saturating_sub(1).min(PUSH_PAGES_MAX as usize);
            let pages = serve::push(&mut self.local, epoch, &chunks, most as u32, self.side);
            node.counters(slot).pages_pushed.add(pages);
        }
    }

    fn decide_moves(&mut self, epoch: u32, entries: &[(Entry, bool)]) -> Vec<(Range<PageNo>, NodeId)> {
        let shared = self.local.shared;
        if !self.local.node.config.migration {
            return Vec::new();
        }
        let mut last: Option<Arc<RegionState>> = None;
        shared.migration.lock().decide(epoch, entries, |page| {
            if last.as_ref().is_none_or(|known| !known.region.range().contains(&page)) {
                last = shared.table.find(page);
            }
            last.as_ref().filter(|known| known.migrates()).map(|known| known.region.unit_of(page))
        })
    }

    fn reads_memory_of(&mut self, home: NodeId) -> bool {
        self.local.node.peer_memory(self.local.shared, home).is_some()
    }

    fn units_from(&mut self, page: PageNo) -> Option<(PageNo, u32)> {
        let of = |known: &RegionState| (known.region.range().end, known.region.unit_pages());
        match self.local.known_at(page) {
            Some(known) => Some(of(known)),
            None => self.local.shared.table.find(page).map(|known| of(&known)),
        }
    }

    fn is_fetching(&mut self, page: PageNo) -> bool {
        let look = |views| self.local.shared.table.step(views, page, |_, table, _, _| table.unit(page).is_fetching());
        self.local.shared.views.as_ref().and_then(look) == Some(true)
    }

    fn pages_came(&mut self, how: Came, pages: u64) {
        let LocalPages { node, slot, .. } = self.local;
        node.life.note_progress();
        match how {
            Came::Taken => node.counters(slot).pages_taken.add(pages),
            Came::Pushed | Came::Carried => node.counters(slot).pages_pushed_used.add(pages),
        }
    }

    fn awaits_diffs(&mut self) {
        self.local.shared.awaiting.store(true, Ordering::Release);
    }

    fn send_diffs(&mut self, intervals: &IntervalState, home: NodeId, head: &DiffsHead, mut message: Vec<u8>) {
        if self.local.put(intervals, (home, head.serial), &message[DIFFS_HEAD_BYTES..]) {
            return;
        }
        let start = head.emit_before(&mut message);
        // Receipts go to the service thread, which also sends what the window holds back while this thread computes.
        self.side.post_buffer(home, Origin::Service, types::DIFFS, message, start);
    }

    fn side_leaves(&mut self) {
        self.local.node.flush(self.local.slot, self.side);
    }

    fn kept_table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        self.local.shared.table.kept_chunk_around(page)
    }

    fn kept_tables(&mut self) -> Vec<PageNo> {
        self.local.shared.table.kept_chunks()
    }

    fn stamps_closed(&mut self, stamp: Stamp) {
        self.local.shared.kept_diffs.has_closed(stamp);
    }

    fn barrier_stamp(&mut self, stamp: Stamp) {
        self.local.shared.kept_diffs.has_passed(stamp);
    }

    fn wants_collection(&mut self) -> bool {
        self.local.shared.kept_diffs.wants_collection()
    }

    fn must_complete(&mut self, asks: Vec<(NodeId, Ask)>) {
        self.local.shared.kept_diffs.must_complete(asks);
    }

    fn collected(&mut self, floor: Stamp) {
        self.local.shared.table.was_collected(floor);
        self.local.node.counters(self.local.slot).gc_rounds.add(1);
    }

    fn puts_are_in(&mut self, home: NodeId, serial: u64) {
        if let Some(directory) = self.local.writable_directory(home) {
            directory.diffs_are_in(self.local.shared.me.0, serial);
        }
    }
}
