//! Stores to *locked* units that this node holds alone: the tag is locked by one instruction, and nothing is looked up.
//!
//! A unit is locked from its first revocation on ([`comem_protocol::coherence::direct`]), and each store to it comes
//! here. A store in a thousand misses that other nodes have caused is no matter; in a unit that nobody else wants any
//! more every store is. So now and then the thread that has locked the tag leaves the unit *biased*: its stores need no
//! call from then on, and the next revocation makes a barrier again.

use super::engine::{is_in_a_miss, set_in_a_miss};
use crate::counters::Counters;
use crate::inline::hazards;
use comem_memory::lines::{GRAIN_BYTES, Lines};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES};
use comem_protocol::ids::NodeId;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// One in so many of a thread's stores to locked units leaves its unit biased. A revocation's barrier takes the time of
/// about so many of these stores.
const BIASED_EACH: u32 = 128;

thread_local! {
    /// The thread's stores to locked units that are not counted yet.
    static STORES: Cell<u32> = const { Cell::new(0) };
}

/// Makes `access` on bytes of the program's view of lines memory, if they lie in one locked unit that this node holds
/// alone. `false`, and nothing is done, where they do not, or another thread has locked the tag just now.
#[inline]
pub(crate) fn access(
    lines: &Lines,
    me: NodeId,
    address: usize,
    bytes: usize,
    counters: impl FnOnce(&dyn Fn(&Counters)),
    access: impl FnOnce(*mut u8),
) -> bool {
    let Some(offset) = address.checked_sub(lines.extent().base).filter(|at| *at < lines.extent().bytes) else {
        return false;
    };
    let unit_lines = lines.unit_lines(offset / GRAIN_BYTES);
    let unit_bytes = unit_lines * LINE_BYTES;
    if unit_lines == 0 || offset % unit_bytes + bytes > unit_bytes || is_in_a_miss() {
        return false;
    }
    let first = offset / LINE_BYTES / unit_lines * unit_lines;
    let entry = lines.entry(first);
    // A plain look first: elsewhere the unit is missing mostly.
    if entry.load(Ordering::Relaxed) != Entry::LOCKED.0 {
        return false;
    }
    // Who looks after this thread's death finds by its hazard what it may have locked.
    let hazard = hazards::own_word();
    hazard.store(address as u64, Ordering::Relaxed);
    set_in_a_miss(true);
    let busy = Entry::LOCKED.after_fetch_and_set(me).0;
    let is_locked = entry.compare_exchange(Entry::LOCKED.0, busy, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if is_locked {
        access(lines.data(offset, bytes));
        let is_counted = STORES.replace(STORES.get() + 1) + 1 == BIASED_EACH;
        let after = Entry::LOCKED.after_store(is_counted && lines.has_barrier());
        // The others stay as they are where the first one does.
        let changed = if after == Entry::LOCKED { 1 } else { unit_lines };
        lines.put_entries(first..first + changed, after);
        if is_counted {
            STORES.set(0);
            counters(&|counters| counters.locked_stores.add(BIASED_EACH.into()));
        }
    }
    set_in_a_miss(false);
    hazard.store(0, Ordering::Release);
    is_locked
}
