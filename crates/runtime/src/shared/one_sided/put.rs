//! Diffs stored into their home's memory by the node that made them: a put, where nodes share a host.
//!
//! A message of diffs wakes its home's service thread, which stores them, and whose receipt wakes the sender's; and who
//! fetches the pages next waits for all that. Under `shm` the home's memory is mapped here anyway, so the releaser
//! stores the bytes itself and says in the home's table ([`SharedDirectory`](comem_memory::pages::SharedDirectory))
//! that they are in, before anybody is told of them (decision 0018). The diffs of a node still arrive in their order:
//! what comes behind a message that is on its way is a message too.

use crate::node::Node;
use crate::shared::Shared;
use crate::shared::consistency::serve::LocalPages;
use comem_memory::diff;
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::intervals::IntervalState;
use comem_protocol::coherence::pages::wire::{RequiredDiff, parts};
use comem_protocol::ids::NodeId;
use comem_protocol::rules::Rule;

impl LocalPages<'_> {
    /// Stores a message's diffs into the memory of their home; `false`, and nothing done, where they must be sent. The
    /// caller holds the lock of `IntervalState`, so that no thread of this node is between a diff and its serial.
    pub(in crate::shared) fn put(
        &self,
        intervals: &IntervalState,
        (home, serial): (NodeId, u64),
        diffs: &[u8],
    ) -> bool {
        let LocalPages { node, shared, slot, .. } = *self;
        let Some(peer) = node.peer_memory(shared, home) else { return false };
        let Some(directory) = peer.directory.as_ref().filter(|_| peer.memory.is_writable()) else { return false };
        let in_order = directory.diffs_in(shared.me.0) + 1 == serial || !Rule::PutsKeepTheirOrder.on();
        if !in_order || !intervals.may_close() {
            return false;
        }
        let unit_bytes = |page| shared.table.find(page).map(|known| known.region.unit_pages() as usize * PAGE_BYTES);
        if !parts(diffs).all(|(page, _)| unit_bytes(page).is_some()) {
            return false;
        }
        let epoch = intervals.epoch();
        let mut applied = 0;
        for (page, encoded) in parts(diffs) {
            let Some(len) = unit_bytes(page) else { continue };
            // An empty one stands for atomic operations, which have been carried out.
            if encoded.is_empty() {
                continue;
            }
            if !peer.memory.apply(page as usize * PAGE_BYTES, len, encoded) {
                return false;
            }
            applied += 1;
            diff::marks(encoded, |number, marks| {
                directory.note_writer(shared.me.0, epoch, page + number as u32, marks);
            });
        }
        directory.diffs_are_in(shared.me.0, serial);
        node.counters(slot).diffs_applied.add(applied);
        true
    }
}

impl Node {
    /// What `home` must have applied before it answers or shows anything. Diffs that another thread of this node is
    /// about to put are in when this returns: nobody at the home would look for what waits for them.
    pub(in crate::shared) fn needs_at(&self, shared: &Shared, home: NodeId) -> Vec<RequiredDiff> {
        let needs = shared.needs.lock().at(home);
        let Some(mine) = needs.iter().find(|need| need.writer == shared.me) else { return needs };
        let directory = self.peer_memory(shared, home).and_then(|peer| peer.directory.as_ref());
        if directory.is_some_and(|directory| directory.diffs_in(shared.me.0) < mine.serial) {
            drop(shared.intervals.lock());
        }
        needs
    }
}
