//! How memory is freed, on whichever node it was allocated, and given out again.

use crate::error::{Error, Result};
use crate::shared::consistency::effects::NodePages;
use crate::shared::consistency::serve::LocalPages;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::alloc::{FreedElsewhere, tell_all};
use crate::shared::heap::table::RegionState;
use comem_protocol::coherence::pages::kept_diffs::Stamp;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_interval};
use comem_protocol::coherence::pages::node::evict::free;
use comem_protocol::coherence::pages::node::kept_diffs::reuse;
use comem_protocol::coherence::pages::region::{Part, Region};
use comem_protocol::coherence::pages::wire;
use comem_protocol::coherence::pages::{PAGE_BYTES, PageEngine, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::wire::message::Message;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl ThreadHeap<'_> {
    /// Frees memory, on whichever node it was allocated.
    pub(crate) fn free(&self, address: usize) -> Result<()> {
        let ThreadHeap { thread, shared } = *self;
        let wrong = |what: &str| Error::NotAllocated { address, sentence: format!("cannot free {address:#x}: {what}") };
        let page = shared.page_of(address).ok_or_else(|| wrong("it is not in the shared heap"))?;
        let offset = (address % PAGE_BYTES) as u32;
        if shared.globals.get().is_some_and(|globals| globals.has(page)) {
            return Err(wrong("it is a global variable of the program"));
        }
        if self.free_packed(address) {
            return Ok(());
        }
        let owner = shared.allocator.lock().owner_of(page);
        let fine = match owner {
            Some(owner) if owner != shared.me => thread.operation(|| {
                thread.releasing(|| self.send_free(owner, (page, offset)));
                thread.await_answer(page).map(|answer| answer == [1])
            })?,
            // What all allocated together is freed by each node for itself.
            _ => {
                self.tell_flushed(page);
                let place = (page, offset);
                thread.stepping(|out| thread.home().node_pages(shared, thread.slot(), out).free_here(place, None))
            }
        };
        if fine { Ok(()) } else { Err(wrong("no allocation begins there, or it was freed already")) }
    }

    /// This node is about to free its part of a region. Diffs of it that have left, and of which nobody has been told,
    /// may come to their home when something else lies there; who is told waits for them at the next barrier.
    pub(in crate::shared) fn tell_flushed(&self, page: PageNo) {
        let ThreadHeap { thread, shared } = *self;
        let whole = |known: &Arc<RegionState>| {
            known.region.first == page && (!known.region.cut_up || known.region.owner.is_none())
        };
        if shared.table.find(page).filter(whole).is_some_and(|known| known.has_flushed()) {
            thread.releasing(|| thread.end_interval(shared, CloseReason::Else));
        }
    }

    /// Asks another node to take its memory back. That is a release: no later diff may bring back what stood in the
    /// memory, whoever wrote it.
    fn send_free(&self, owner: NodeId, (page, offset): (PageNo, u32)) {
        let ThreadHeap { thread, shared } = *self;
        let mut side = Outbox::new();
        let mut intervals = shared.intervals.lock();
        let mut pages = thread.home().node_pages(shared, thread.slot(), &mut side);
        close_interval(&mut pages, &mut intervals, CloseReason::Else);
        let stamp = intervals.last_stamp();
        drop(intervals);
        thread.home().flush(thread.slot(), &mut side);
        let mut needs = Vec::new();
        wire::emit_needs(&thread.home().needs_at(shared, owner), &mut needs);
        thread.home().slots[thread.slot()].expect_answer();
        let target = Target::Request { node: owner, origin: Origin::Caller };
        thread.stepping(|out| out.send(target, &Message::Free { page, offset, stamp, needs: &needs }));
    }

    /// Memory is given out again, and is about to be zeroed. `stamp`: another node has freed it, and had heard of all
    /// up to this one.
    pub(in crate::shared) fn uses_again(&self, engine: PageEngine, memory: Range<usize>, stamp: Option<Stamp>) {
        let ThreadHeap { thread, shared } = *self;
        // Where an acquire brings all that happened before, whoever gets the memory next hears of what this node had
        // heard of when it freed it.
        let must_tell = stamp.is_some() || engine.is_scoped();
        if !engine.keeps_diffs() || !must_tell || shared.views.is_none() {
            return;
        }
        let mut side = Outbox::new();
        let mut intervals = shared.intervals.lock();
        let mut pages = thread.home().node_pages(shared, thread.slot(), &mut side);
        let bytes = memory.start - shared.base..memory.end - shared.base;
        reuse(&mut pages, &mut intervals, bytes, stamp.unwrap_or_default());
        drop(intervals);
        thread.home().flush(thread.slot(), &mut side);
    }
}

impl NodePages<'_> {
    /// Takes back a block or a region of this node; `false` when there is none. Where another node frees it: with what
    /// that knows to have been written to this node's memory.
    pub(in crate::shared) fn free_here(
        &mut self,
        (page, offset): (PageNo, u32),
        elsewhere: Option<FreedElsewhere>,
    ) -> bool {
        let shared = self.local.shared;
        let address = shared.address_of(page) + offset as usize;
        {
            // The epoch is read under the lock, so that it is not older than what is listed before.
            let mut allocator = shared.allocator.lock();
            if allocator.take_back(address, elsewhere, shared.epoch.load(Ordering::Acquire)) {
                return true;
            }
        }
        let Some(known) = shared.table.find(page) else { return false };
        let whole = offset == 0 && known.region.first == page && !known.region.cut_up;
        if !whole || known.freed.load(Ordering::Acquire) {
            return false;
        }
        let epoch = shared.epoch.load(Ordering::Acquire);
        self.drop_region(&known, epoch);
        if known.region.owner == Some(shared.me) && shared.views.is_some() {
            let mut body = Vec::new();
            Region { bytes: 0, label: epoch.to_string(), ..known.region.clone() }.emit(&mut body);
            tell_all(shared, &body, self.side);
        }
        true
    }

    /// A region was freed in this epoch: its memory goes back to the system. Its addresses are not used again as long
    /// as there are others, so that late diffs and late accesses meet nothing but the mark that it was freed.
    pub(in crate::shared) fn drop_region(&mut self, known: &RegionState, epoch: u32) {
        let LocalPages { node, shared, slot, .. } = self.local;
        if !known.begin_freeing() {
            return;
        }
        let Some(views) = &shared.views else {
            if let Some(plain) = &shared.plain {
                let [start, bytes] = [known.region.first, known.region.pages].map(|pages| pages as usize * PAGE_BYTES);
                // SAFETY: the region's pages belong to the plain heap, and the program has freed them.
                unsafe { plain.forget(start, bytes) };
            }
            shared.table.remove(known.region.first);
            shared.allocator.lock().give_back(&known.region);
            return;
        };
        let range: Range<PageNo> = known.region.range();
        shared.table.kept_history.note_freed(known);
        // What all have allocated together was told of before ([`ThreadHeap::tell_flushed`]).
        let untold = known.region.owner.is_some() && known.has_flushed();
        match known.region.part() {
            Part::Lines => shared.close_lines(&range),
            Part::OneCopy => shared.free_one_copy(&known.region),
            Part::Guarded => {
                let from = shared.guarded_from();
                shared.forget_units(known);
                let pages = range.start - from..range.end - from;
                crate::shared::memory::change(&views.guarded, &pages, |p| views.guarded.discard(p));
            }
            Part::Tracked => {
                free(&mut node.node_pages(shared, slot, self.side).of(known), &range);
                crate::shared::memory::change(&views.tracked, &range, |p| views.tracked.discard(p));
            }
        }
        shared.table.retire_region(epoch, range, !untold);
    }
}
