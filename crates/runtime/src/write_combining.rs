//! Engine `broadcast`: neighbouring writes of a thread go out in one datagram.
//!
//! Nobody is promised when another node's write is seen, so a write may wait for its neighbours: until the datagram is
//! full, until the thread writes elsewhere or synchronises, or until the service thread's next tick.

use crate::node::Node;
use crate::object::Object;
use comem_protocol::coherence::broadcast;
use comem_protocol::ids::Slot;
use comem_protocol::outbox::Outbox;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of one update: about a datagram.
const UPDATE_BYTES: usize = 1024;

/// Writes of one thread that stand side by side and have not been told yet.
#[derive(Debug, Default)]
pub(crate) struct CombinedWrites {
    object: Option<Arc<Object>>,
    unit: u32,
    offset: usize,
    bytes: Vec<u8>,
}

impl CombinedWrites {
    fn continues(&self, object: &Object, unit: u32, offset: usize, len: usize) -> bool {
        let same = self.object.as_ref().is_some_and(|o| o.id == object.id) && self.unit == unit;
        same && self.offset + self.bytes.len() == offset && self.bytes.len() + len <= UPDATE_BYTES
    }
}

impl Node {
    /// Notes that `slot`'s thread wrote `bytes`; tells the others what does not go with it.
    pub(crate) fn combine_write(&self, slot: Slot, object: &Arc<Object>, unit: u32, offset: usize, bytes: &[u8]) {
        let element = object.segments.element();
        let chunk = (UPDATE_BYTES / element).max(1) * element;
        for (i, part) in bytes.chunks(chunk).enumerate() {
            let offset = offset + i * chunk;
            let thread_slot = &self.slots[slot.index()];
            let mut writes = thread_slot.combined_writes.lock();
            thread_slot.combines_writes.store(true, Ordering::Relaxed);
            if !writes.continues(object, unit, offset, part.len()) {
                self.send_combined(slot, &mut writes);
                writes.object = Some(object.clone());
                (writes.unit, writes.offset) = (unit, offset);
            }
            writes.bytes.extend_from_slice(part);
        }
    }

    /// Tells the others what thread `of` has written, from `slot`'s socket.
    #[inline]
    pub(crate) fn send_combined_of(&self, of: Slot, slot: Slot) {
        let thread_slot = &self.slots[of.index()];
        if thread_slot.combines_writes.load(Ordering::Acquire) {
            let mut writes = thread_slot.combined_writes.lock();
            self.send_combined(slot, &mut writes);
            // Not before: the thread itself goes on only when its writes have left.
            thread_slot.combines_writes.store(false, Ordering::Release);
        }
    }

    /// Tells the others what all threads have written.
    pub(crate) fn send_all_combined(&self) {
        for index in 1..self.slots.len() {
            self.send_combined_of(Slot(index as u16), Slot::SERVICE);
        }
    }

    fn send_combined(&self, slot: Slot, writes: &mut CombinedWrites) {
        let Some(object) = writes.object.take() else { return };
        let mut out = Outbox::new();
        let (offset, bytes) = (writes.offset as u32, &writes.bytes);
        object.step(self.guard(), writes.unit, None, &mut out, |_, cx| broadcast::tell(cx, offset, bytes));
        self.flush(slot, &mut out);
        writes.bytes.clear();
    }
}
