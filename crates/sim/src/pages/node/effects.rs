//! What the page logic of a node acts on here.

use super::{Diffs, Pages};
use comem_protocol::coherence::pages::chunk::close::Asks;
use comem_protocol::coherence::pages::chunk::{Chunk, Flush};
use comem_protocol::coherence::pages::era::Era;
use comem_protocol::coherence::pages::ledger::{Ledger, Needs};
use comem_protocol::coherence::pages::node::diffs::{DiffBatch, DiffEffects};
use comem_protocol::coherence::pages::node::{Failure, NodeEffects};
use comem_protocol::coherence::pages::push::Stash;
use comem_protocol::coherence::pages::serve::{self, Listing, PageRooms};
use comem_protocol::coherence::pages::wire::{DIFFS_HEAD_BYTES, DiffsHead, Entry, Need};
use comem_protocol::coherence::pages::{Context, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::outbox::{self, Outbox};
use comem_protocol::sync::Mark;
use std::ops::Range;

/// What a batch of diffs acts on in the midst of a chunk's step.
struct DiffRoom<'a> {
    me: NodeId,
    needs: &'a mut Needs,
    stash: &'a mut Stash,
    diffs_bytes: usize,
}

impl DiffEffects for DiffRoom<'_> {
    fn numbered(&mut self, home: NodeId, serial: u64) {
        self.needs.raise(home, self.me, serial);
    }

    fn leaves(&mut self, page: PageNo) {
        self.stash.void(&(page..page + 1));
    }

    fn diffs_bytes(&self) -> usize {
        DIFFS_HEAD_BYTES + self.diffs_bytes
    }
}

impl NodeEffects for Pages {
    type Rooms = Pages;

    fn rooms(&mut self) -> &mut Pages {
        self
    }

    fn side(&mut self) -> &mut Outbox {
        &mut self.side
    }

    fn me(&self) -> NodeId {
        self.me
    }

    fn needs<R>(&mut self, step: impl FnOnce(&mut Needs) -> R) -> R {
        step(&mut self.needs)
    }

    fn step<R>(&mut self, page: PageNo, step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R) -> Option<R> {
        self.chunk_of(page).map(|at| self.with(at, step))
    }

    fn diff_step<R>(
        &mut self,
        (page, listing): (PageNo, Listing),
        (batch, ledger): (&mut DiffBatch, &mut Ledger),
        step: impl FnOnce(&mut Chunk, &mut Context<'_>, &mut dyn Flush) -> R,
    ) -> Option<R> {
        let (mut needs, mut stash) = (std::mem::take(&mut self.needs), std::mem::take(&mut self.stash));
        let room = DiffRoom { me: self.me, needs: &mut needs, stash: &mut stash, diffs_bytes: self.layout.diffs_bytes };
        let mut sink = batch.sink(ledger, room);
        let step = |chunk: &mut Chunk, cx: &mut Context<'_>| step(chunk, cx, &mut sink);
        let result = self.listed_chunk((page, listing), &mut Outbox::new(), step);
        (self.needs, self.stash) = (needs, stash);
        result
    }

    fn between_steps(&mut self) {
        self.others_act();
    }

    fn table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        let shape = self.chunk_of(page).map(|at| self.chunks[at].shape());
        shape.map(|shape| shape.first..shape.first + shape.pages).ok_or(None)
    }

    fn tables_at(&mut self, firsts: &[PageNo]) -> Vec<(Range<PageNo>, Asks)> {
        let chunk = |first: &PageNo| self.chunk_of(*first).map(|at| (*first, &self.chunks[at]));
        let end = |chunk: &Chunk| chunk.shape().first + chunk.shape().pages;
        firsts.iter().filter_map(chunk).map(|(first, chunk)| (first..end(chunk), chunk.asks())).collect()
    }

    fn active(&mut self) -> Vec<PageNo> {
        self.active.chunks().iter().map(|at| self.chunks[*at].shape().first).collect()
    }

    fn take_active(&mut self) -> Vec<PageNo> {
        self.active.goes_on(self.caller);
        self.active.take().into_iter().map(|at| self.chunks[at].shape().first).collect()
    }

    fn relist(&mut self, firsts: Vec<PageNo>) {
        let chunks = firsts.into_iter().filter_map(|first| self.chunk_of(first)).collect();
        self.active.give_back(chunks);
    }

    fn closes(&mut self) -> Mark {
        Mark(self.closes)
    }

    fn begin_close(&mut self) -> Mark {
        self.closes += 1;
        self.closed = self.now;
        Mark(self.closes)
    }

    fn era<R>(&mut self, step: impl FnOnce(&mut Era) -> R) -> R {
        step(&mut self.era)
    }

    fn writes_seen(
        &mut self,
        _: &[(Range<PageNo>, Asks)],
        _: Era,
        _: &mut Vec<Range<PageNo>>,
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

    fn meets(&mut self, needs: &[Need]) -> bool {
        self.desk.meets(needs)
    }

    fn home_has(&mut self, needs: &[Need]) {
        self.needs.confirm(self.me, needs);
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

    fn send_diffs(&mut self, _: &Ledger, home: NodeId, head: &DiffsHead, message: Vec<u8>) {
        let origin = if self.caller.is_some() { outbox::Origin::Caller } else { outbox::Origin::Service };
        let parts = message[DIFFS_HEAD_BYTES..].to_vec();
        self.diffs.push(Diffs { home, origin, head: head.clone(), parts });
    }
}
