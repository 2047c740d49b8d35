//! Engine `broadcast`: neighbouring writes of a thread go out in one datagram.
//!
//! Nobody is promised when another node's write is seen, so a write may wait for its neighbours: until the datagram is
//! full, until the thread writes elsewhere or synchronises, or until the service thread's next tick.

use crate::mutex::Mutex;
use crate::node::Node;
use crate::object::Object;
use comem_memory::StoreGuard;
use comem_protocol::coherence::broadcast;
use comem_protocol::ids::Slot;
use comem_protocol::outbox::Outbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one update: about a datagram.
const UPDATE_BYTES: usize = 1024;

/// Writes of one thread that stand side by side and have not been told yet.
#[derive(Debug, Default)]
struct CombinedWrites {
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

    /// Puts what others are to be told into an outbox, which `send` sends.
    fn tell(&mut self, guard: &StoreGuard, send: &mut impl FnMut(&mut Outbox)) {
        let Some(object) = self.object.take() else { return };
        let mut out = Outbox::new();
        let (offset, bytes) = (self.offset as u32, &self.bytes);
        object.step(guard, self.unit, None, &mut out, |_, cx| broadcast::tell(cx, offset, bytes));
        send(&mut out);
        self.bytes.clear();
    }
}

/// A thread's writes that wait for their neighbours.
///
/// The mutex is held while they are sent, so that what the thread writes next is told behind them.
#[derive(Debug, Default)]
pub(crate) struct WriteCombiner {
    writes: Mutex<CombinedWrites>,
    /// Whether any may be there.
    is_used: AtomicBool,
}

impl WriteCombiner {
    /// Notes that the thread wrote `bytes`; what does not go with what it wrote before is sent.
    pub(crate) fn write(
        &self,
        guard: &StoreGuard,
        object: &Arc<Object>,
        (unit, offset): (u32, usize),
        bytes: &[u8],
        mut send: impl FnMut(&mut Outbox),
    ) {
        let element = object.segments.element();
        let chunk = (UPDATE_BYTES / element).max(1) * element;
        for (i, part) in bytes.chunks(chunk).enumerate() {
            let offset = offset + i * chunk;
            let mut writes = self.writes.lock();
            self.is_used.store(true, Ordering::Relaxed);
            if !writes.continues(object, unit, offset, part.len()) {
                writes.tell(guard, &mut send);
                writes.object = Some(object.clone());
                (writes.unit, writes.offset) = (unit, offset);
            }
            writes.bytes.extend_from_slice(part);
        }
    }

    /// Sends what is there.
    #[inline]
    pub(crate) fn send(&self, guard: &StoreGuard, mut send: impl FnMut(&mut Outbox)) {
        if self.is_used.load(Ordering::Acquire) {
            let mut writes = self.writes.lock();
            writes.tell(guard, &mut send);
            // Not before: the thread itself goes on only when its writes have left.
            self.is_used.store(false, Ordering::Release);
        }
    }
}

impl Node {
    /// Notes that `slot`'s thread wrote `bytes`; tells the others what does not go with it.
    pub(crate) fn combine_write(&self, slot: Slot, object: &Arc<Object>, place: (u32, usize), bytes: &[u8]) {
        let send = |out: &mut Outbox| self.flush(slot, out);
        self.slots[slot].combined_writes.write(self.objects.guard(), object, place, bytes, send);
    }

    /// Tells the others what thread `of` has written, from `slot`'s socket.
    #[inline]
    pub(crate) fn send_combined_of(&self, of: Slot, slot: Slot) {
        self.slots[of].combined_writes.send(self.objects.guard(), |out| self.flush(slot, out));
    }
}
