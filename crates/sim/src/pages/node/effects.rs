//! What the page logic of a node acts on here.

use super::{Diffs, Pages};
use comem_protocol::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use comem_protocol::coherence::pages::kept_diffs::{Ask, Stamp};
use comem_protocol::coherence::pages::node::diffs::{DiffBatch, DiffEffects};
use comem_protocol::coherence::pages::node::fault::Came;
use comem_protocol::coherence::pages::node::{Failure, NodeEffects};
use comem_protocol::coherence::pages::page_table::interval_end::PendingWork;
use comem_protocol::coherence::pages::page_table::{DiffSink, PageTable};
use comem_protocol::coherence::pages::policy::sync_phase::SyncPhase;
use comem_protocol::coherence::pages::push::PushBuffer;
use comem_protocol::coherence::pages::serve::{self, Listing, PageState};
use comem_protocol::coherence::pages::wire::{DIFFS_HEAD_BYTES, DiffsHead, Entry, RequiredDiff};
use comem_protocol::coherence::pages::{Context, PageMapping, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::outbox::{self, Outbox};
use comem_protocol::sync::IntervalMark;
use std::ops::Range;

/// What a batch of diffs acts on in the midst of a chunk's step.
struct DiffRoom<'a> {
    me: NodeId,
    needs: &'a mut RequiredDiffs,
    push_buffer: &'a mut PushBuffer,
    diffs_bytes: usize,
}

impl DiffEffects for DiffRoom<'_> {
    fn numbered(&mut self, home: NodeId, serial: u64) {
        self.needs.raise(home, self.me, serial);
    }

    fn leaves(&mut self, page: PageNo) {
        self.push_buffer.void(&(page..page + 1));
    }

    fn diffs_bytes(&self) -> usize {
        DIFFS_HEAD_BYTES + self.diffs_bytes
    }
}

impl NodeEffects for Pages {
    type Pages = Pages;

    fn pages(&mut self) -> &mut Pages {
        self
    }

    fn side(&mut self) -> &mut Outbox {
        &mut self.side
    }

    fn me(&self) -> NodeId {
        self.me
    }

    fn needs<R>(&mut self, step: impl FnOnce(&mut RequiredDiffs) -> R) -> R {
        step(&mut self.needs)
    }

    fn epoch(&self) -> u32 {
        self.intervals.epoch()
    }

    fn listed_step<R>(
        &mut self,
        at: (PageNo, Listing),
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.listed_chunk(at, &mut Outbox::new(), step)
    }

    fn diff_step<R>(
        &mut self,
        (page, listing): (PageNo, Listing),
        (batch, intervals): (&mut DiffBatch, &mut IntervalState),
        step: impl FnOnce(&mut PageTable, &mut Context<'_>, &mut dyn DiffSink) -> R,
    ) -> Option<R> {
        let (mut needs, mut push_buffer) = (std::mem::take(&mut self.needs), std::mem::take(&mut self.push_buffer));
        let room = DiffRoom {
            me: self.me,
            needs: &mut needs,
            push_buffer: &mut push_buffer,
            diffs_bytes: self.layout.diffs_bytes,
        };
        let mut sink = batch.sink(intervals, room);
        let step = |chunk: &mut PageTable, cx: &mut Context<'_>| step(chunk, cx, &mut sink);
        let result = self.listed_chunk((page, listing), &mut Outbox::new(), step);
        (self.needs, self.push_buffer) = (needs, push_buffer);
        result
    }

    fn between_steps(&mut self) {
        self.others_act();
    }

    fn table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        let shape = self.chunk_of(page).map(|at| self.chunks[at].layout());
        let next = || self.chunks.iter().map(|chunk| chunk.layout().first).filter(|first| *first > page).min();
        shape.map(|shape| shape.first..shape.first + shape.pages).ok_or_else(next)
    }

    fn tables_at(&mut self, firsts: &[PageNo]) -> Vec<(Range<PageNo>, PendingWork)> {
        let chunk = |first: &PageNo| self.chunk_of(*first).map(|at| (*first, &self.chunks[at]));
        let end = |chunk: &PageTable| chunk.layout().first + chunk.layout().pages;
        firsts.iter().filter_map(chunk).map(|(first, chunk)| (first..end(chunk), chunk.pending_work())).collect()
    }

    fn active(&mut self) -> Vec<PageNo> {
        self.active.chunks().iter().map(|at| self.chunks[*at].layout().first).collect()
    }

    fn take_active(&mut self) -> Vec<PageNo> {
        self.active.goes_on(self.caller);
        self.active.take().into_iter().map(|at| self.chunks[at].layout().first).collect()
    }

    fn relist(&mut self, firsts: Vec<PageNo>) {
        let chunks = firsts.into_iter().filter_map(|first| self.chunk_of(first)).collect();
        self.active.give_back(chunks);
    }

    fn closes(&mut self) -> IntervalMark {
        IntervalMark(self.closes)
    }

    fn begin_close(&mut self) -> IntervalMark {
        self.closes += 1;
        self.closed = self.now;
        IntervalMark(self.closes)
    }

    fn era<R>(&mut self, step: impl FnOnce(&mut SyncPhase) -> R) -> R {
        step(&mut self.sync_phase)
    }

    fn notes_writes(&self) -> bool {
        self.memory.notes_writes()
    }

    fn writes_seen(
        &mut self,
        _: &[(Range<PageNo>, PendingWork)],
        _: Option<(SyncPhase, &mut Vec<Range<PageNo>>)>,
    ) -> Option<Vec<Range<PageNo>>> {
        self.others_act();
        let seen = self.memory.peek();
        self.others_act();
        seen
    }

    fn has_room_for_homes(&mut self) -> bool {
        self.has_room_for_homes()
    }

    fn fails(&mut self, why: Failure) {
        self.failure = Some(format!("{}: {why:?}", self.me));
    }

    fn copies_ended(&mut self, mut pages: Vec<Range<PageNo>>) {
        self.ended.append(&mut pages);
    }

    fn meets(&mut self, needs: &[RequiredDiff]) -> bool {
        self.home_queue.meets(needs)
    }

    fn home_has(&mut self, needs: &[RequiredDiff]) {
        self.needs.confirm(self.me, needs);
    }

    fn units_from(&mut self, page: PageNo) -> Option<(PageNo, u32)> {
        let shape = self.chunk_of(page).map(|at| self.chunks[at].layout());
        shape.map(|shape| (shape.first + shape.pages, shape.unit_pages))
    }

    fn pages_came(&mut self, how: Came, pages: u64) {
        match how {
            Came::Taken => self.taken += pages,
            Came::Pushed => self.pushed.1 += pages,
            Came::Carried => self.carried.1 += pages,
        }
    }

    fn push(&mut self, epoch: u32) {
        if self.layout.pushes.is_some() {
            let (chunks, mut out) = (self.active(), std::mem::take(&mut self.side));
            self.pushed.0 += serve::push(self, epoch, &chunks, 6, &mut out);
            self.side = out;
        }
    }

    fn decide_moves(&mut self, epoch: u32, entries: &[(Entry, bool)]) -> Vec<(Range<PageNo>, NodeId)> {
        self.migration.decide(epoch, entries, |page| self.layout.migrating_unit(page))
    }

    fn kept_tables(&mut self) -> Vec<PageNo> {
        let kept = self.chunks.iter().filter(|chunk| chunk.keeps_diffs());
        kept.map(|chunk| chunk.layout().first).collect()
    }

    fn stamps_closed(&mut self, stamp: Stamp) {
        self.closed_stamp = stamp;
    }

    fn barrier_stamp(&mut self, stamp: Stamp) {
        self.barrier_stamp = stamp;
    }

    fn wants_collection(&mut self) -> bool {
        self.tally.diffs_kept > self.layout.diffs_kept_max
    }

    fn collected(&mut self, floor: Stamp) {
        self.floor = floor;
    }

    fn must_complete(&mut self, mut asks: Vec<(NodeId, Ask)>) {
        self.to_complete.append(&mut asks);
    }

    fn send_diffs(&mut self, _: &IntervalState, home: NodeId, head: &DiffsHead, message: Vec<u8>) {
        let origin = if self.caller.is_some() { outbox::Origin::Caller } else { outbox::Origin::Service };
        let parts = message[DIFFS_HEAD_BYTES..].to_vec();
        self.diffs.push(Diffs { home, origin, head: head.clone(), parts });
    }
}
