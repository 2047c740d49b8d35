//! Stores to *locked* units that this node holds alone: the tag is locked by one instruction, and nothing is looked up.
//!
//! A unit is locked from its first revocation on ([`comem_protocol::coherence::direct`]), and each store to it comes
//! here. A store in a thousand misses that other nodes have caused is no matter; in a unit that nobody else wants any
//! more every store is. So now and then the thread that has locked the tag leaves the unit *biased*: its stores need no
//! call from then on, and the next revocation makes a barrier again.

use crate::counters::Counters;
use crate::inline::hazards;
use comem_memory::lines::{GRAIN_BYTES, Lines};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES};
use comem_protocol::ids::NodeId;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// One in so many of a thread's stores to locked units leaves its unit biased. A revocation's barrier takes the time of
/// about so many of these stores.
const BIASED_EACH: u32 = 128;

thread_local! {
    /// The thread's stores to locked units that are not counted yet.
    static STORES: Cell<u32> = const { Cell::new(0) };
}

/// The unit around an address of the program's view of lines memory, if it is locked and this node holds it alone: its
/// lines.
#[inline]
fn held(lines: &Lines, address: usize) -> Option<Range<usize>> {
    let offset = address.checked_sub(lines.extent().base).filter(|at| *at < lines.extent().bytes)?;
    // A power of two, where it is known.
    let unit_lines = lines.unit_lines(offset / GRAIN_BYTES);
    let first = (offset / LINE_BYTES) & !unit_lines.checked_sub(1)?;
    let is_held = lines.entry(first).load(Ordering::Relaxed) == Entry::LOCKED.0;
    is_held.then_some(first..first + unit_lines)
}

/// Makes `access` on bytes of the program's view of lines memory, if they lie in one locked unit that this node holds
/// alone. `false`, and nothing is done, where they do not, or another thread has locked the tag just now. `counters`
/// hands out the thread's.
#[inline]
pub(crate) fn access(
    lines: &Lines,
    me: NodeId,
    address: usize,
    bytes: usize,
    counters: impl FnOnce(&dyn Fn(&Counters)),
    access: impl FnOnce(*mut u8),
) -> bool {
    let Some(unit) = held(lines, address) else { return false };
    let offset = address - lines.extent().base;
    if offset + bytes > unit.end * LINE_BYTES {
        return false;
    }
    // Who looks after this thread's death finds by its hazard what it may have locked.
    let hazard = hazards::own_word();
    hazard.store(address as u64, Ordering::Relaxed);
    let (entry, busy) = (lines.entry(unit.start), Entry::LOCKED.after_fetch_and_set(me).0);
    let is_locked = entry.compare_exchange(Entry::LOCKED.0, busy, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if is_locked {
        access(lines.data(offset, bytes));
        let stores = STORES.get() + 1;
        let is_last = stores == BIASED_EACH;
        STORES.set(if is_last { 0 } else { stores });
        match Entry::LOCKED.after_store(is_last && lines.has_barrier()) {
            // The unit's other entries stay as they are too.
            Entry::LOCKED => entry.store(Entry::LOCKED.0, Ordering::Release),
            biased => lines.put_entries(unit, biased),
        }
        if is_last {
            counters(&|counters| counters.locked_stores.add(BIASED_EACH.into()));
        }
    }
    hazard.store(0, Ordering::Release);
    is_locked
}
