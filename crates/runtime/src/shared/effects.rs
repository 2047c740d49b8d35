//! What the page logic of a node ([`node`](comem_protocol::coherence::pages::node)) acts on here.

use super::Shared;
use super::serve::PageHouse;
use crate::node::Node;
use comem_memory::pages::Offers;
use comem_protocol::coherence::pages::chunk::{Chunk, Flush};
use comem_protocol::coherence::pages::ledger::{Ledger, Needs};
use comem_protocol::coherence::pages::node::diffs::{DiffBatch, DiffEffects};
use comem_protocol::coherence::pages::node::{Departure, NodeEffects};
use comem_protocol::coherence::pages::wire::{DIFFS_HEAD_BYTES, DiffsHead};
use comem_protocol::coherence::pages::{ByteMarks, Context, PageNo};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::{Origin, Outbox};
use comem_protocol::wire::message::types;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// This node's pages, as a step of the page logic acts on them.
pub(crate) struct NodePages<'a> {
    house: PageHouse<'a>,
    /// What leaves before the step's other messages.
    side: &'a mut Outbox,
    /// What leaves in its midst.
    at_once: Outbox,
}

impl Node {
    pub(super) fn node_pages<'a>(&'a self, shared: &'a Shared, slot: Slot, side: &'a mut Outbox) -> NodePages<'a> {
        NodePages { house: self.page_house(shared, slot), side, at_once: Outbox::new() }
    }

    /// A home's table of offers, if this node can write its memory.
    fn offers_of_writable<'a>(&self, shared: &'a Shared, home: NodeId) -> Option<&'a Offers> {
        self.peer_memory(shared, home).filter(|peer| peer.memory.is_writable())?.offers.as_ref()
    }
}

impl DiffEffects for PageHouse<'_> {
    fn numbered(&mut self, home: NodeId, serial: u64) {
        self.shared.needs.lock().raise(home, self.shared.me, serial);
    }

    fn leaves(&mut self, page: PageNo) {
        self.shared.stash.lock().void(&(page..page + 1));
    }

    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        self.node.wire.sender(Slot::SERVICE).lock().spare(bytes)
    }

    fn put_at(&self, home: NodeId) -> Option<u64> {
        Some(self.node.offers_of_writable(self.shared, home)?.diffs_in(self.shared.me.0))
    }

    fn was_put(&mut self, home: NodeId, epoch: u32, page: PageNo, marks: &ByteMarks) {
        if let Some(offers) = self.node.offers_of_writable(self.shared, home) {
            offers.note_writer(self.shared.me.0, epoch, page, marks);
        }
    }
}

impl NodeEffects for NodePages<'_> {
    fn me(&self) -> NodeId {
        self.house.shared.me
    }

    fn needs<R>(&mut self, step: impl FnOnce(&mut Needs) -> R) -> R {
        step(&mut self.house.shared.needs.lock())
    }

    fn step<R>(&mut self, page: PageNo, step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R) -> Option<R> {
        self.house.node.page_step(self.house.slot, page, self.side, step)
    }

    fn diff_step<R>(
        &mut self,
        page: PageNo,
        (batch, ledger): (&mut DiffBatch, &mut Ledger),
        step: impl FnOnce(&mut Chunk, &mut Context<'_>, &mut dyn Flush) -> R,
    ) -> Option<R> {
        let house = self.house;
        self.step(page, |chunk, cx| step(chunk, cx, &mut batch.sink(ledger, house)))
    }

    fn table_around(&mut self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        self.house.shared.table.chunk_around(page)
    }

    fn not_kept(&mut self) -> Vec<PageNo> {
        self.house.shared.sections.lock().pass_over().to_vec()
    }

    fn copies_ended(&mut self, mut pages: Vec<Range<PageNo>>) {
        self.house.shared.invalidated.lock().append(&mut pages);
    }

    fn awaits_diffs(&mut self) {
        self.house.shared.awaiting.store(true, Ordering::Release);
    }

    fn send_diffs(
        &mut self,
        ledger: &Ledger,
        (home, departure): (NodeId, Departure),
        head: &DiffsHead,
        mut message: Vec<u8>,
    ) {
        let PageHouse { node, shared, slot } = self.house;
        if node.put(shared, ledger, (home, head.serial), &message[DIFFS_HEAD_BYTES..], slot) {
            return;
        }
        let start = head.emit_before(&mut message);
        let out = if departure == Departure::Now { &mut self.at_once } else { &mut *self.side };
        // Receipts go to the service thread, which also sends what the window holds back while this thread computes.
        out.post_buffer(home, Origin::Service, types::DIFFS, message, start);
    }

    fn diffs_leave(&mut self) {
        self.house.node.flush(self.house.slot, &mut self.at_once);
    }

    fn puts_are_in(&mut self, home: NodeId, serial: u64) {
        if let Some(offers) = self.house.node.offers_of_writable(self.house.shared, home) {
            offers.diffs_are_in(self.house.shared.me.0, serial);
        }
    }
}
