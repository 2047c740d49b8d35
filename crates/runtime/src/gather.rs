//! Engine `broadcast`: neighbouring writes of a thread go out in one datagram.
//!
//! Nobody is promised when another node's write is seen, so a write may wait for its neighbours: until the datagram is full,
//! until the thread writes elsewhere or synchronises, or until the service thread's next tick.

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
pub(crate) struct Gathered {
    object: Option<Arc<Object>>,
    unit: u32,
    offset: usize,
    bytes: Vec<u8>,
}

impl Gathered {
    fn continues(&self, object: &Object, unit: u32, offset: usize, len: usize) -> bool {
        let same = self.object.as_ref().is_some_and(|o| o.id == object.id) && self.unit == unit;
        same && self.offset + self.bytes.len() == offset && self.bytes.len() + len <= UPDATE_BYTES
    }
}

impl Node {
    /// Notes that `slot`'s thread wrote `bytes`; tells the others what does not go with it.
    pub(crate) fn gather(&self, slot: Slot, object: &Arc<Object>, unit: u32, offset: usize, bytes: &[u8]) {
        let element = object.segments.element();
        let chunk = (UPDATE_BYTES / element).max(1) * element;
        for (i, part) in bytes.chunks(chunk).enumerate() {
            let offset = offset + i * chunk;
            let seat = &self.seats[slot.index()];
            let mut gathered = seat.gathered.lock();
            seat.gathers.store(true, Ordering::Relaxed);
            if !gathered.continues(object, unit, offset, part.len()) {
                self.tell(slot, &mut gathered);
                gathered.object = Some(object.clone());
                (gathered.unit, gathered.offset) = (unit, offset);
            }
            gathered.bytes.extend_from_slice(part);
        }
    }

    /// Tells the others what thread `of` has written, from `slot`'s socket.
    #[inline]
    pub(crate) fn tell_gathered(&self, of: Slot, slot: Slot) {
        let seat = &self.seats[of.index()];
        if seat.gathers.load(Ordering::Acquire) {
            let mut gathered = seat.gathered.lock();
            self.tell(slot, &mut gathered);
            // Not before: the thread itself goes on only when its writes have left.
            seat.gathers.store(false, Ordering::Release);
        }
    }

    /// Tells the others what all threads have written.
    pub(crate) fn tell_all_gathered(&self) {
        for index in 1..self.seats.len() {
            self.tell_gathered(Slot(index as u16), Slot::SERVICE);
        }
    }

    fn tell(&self, slot: Slot, gathered: &mut Gathered) {
        let Some(object) = gathered.object.take() else { return };
        let mut out = Outbox::new();
        let (offset, bytes) = (gathered.offset as u32, &gathered.bytes);
        object.step(self.guard(), gathered.unit, None, &mut out, |_, cx| broadcast::tell(cx, offset, bytes));
        self.flush(slot, &mut out);
        gathered.bytes.clear();
    }
}
