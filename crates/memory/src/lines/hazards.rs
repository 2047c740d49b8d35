//! What threads are about to store to: a word for each thread, which other nodes read.
//!
//! A hazard word is `address | lines << 48`. No lines: one store, of at most 64 bytes within one line. Else a strip of
//! stores to so many lines, from the line of the address on. 0: none.

use comem_protocol::coherence::direct::LINE_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads of a node that can have a hazard at the same time.
pub const HAZARD_SLOTS: usize = 4096;
/// Bytes of a thread's slot, of which the first 8 are its word: a cache line of its own.
pub const HAZARD_SLOT_BYTES: usize = 64;

pub(super) const SLOT_WORDS: usize = HAZARD_SLOT_BYTES / size_of::<u64>();
pub(super) const ADDRESS_BITS: u32 = 48;
/// Where in the first slot it stands how many slots were ever in use.
const USED_WORD: usize = 1;

/// The hazards of a node.
#[derive(Clone, Copy)]
pub(super) struct Hazards<'a>(pub(super) &'a [AtomicU64]);

impl<'a> Hazards<'a> {
    fn word(&self, slot: usize) -> &'a AtomicU64 {
        &self.0[slot * SLOT_WORDS]
    }

    pub(super) fn used(&self) -> &'a AtomicU64 {
        &self.0[USED_WORD]
    }

    /// Whether a hazard is for any of these lines of the address space.
    pub(super) fn any_in(&self, lines: Range<usize>) -> bool {
        self.ranges().any(|hazard| hazard.start < lines.end && lines.start < hazard.end)
    }

    /// The first line of the address space of each hazard.
    pub(super) fn lines(self) -> impl Iterator<Item = usize> + 'a {
        self.ranges().filter(|hazard| !hazard.is_empty()).map(|hazard| hazard.start)
    }

    /// The lines of the address space of each thread's hazard.
    fn ranges(self) -> impl Iterator<Item = Range<usize>> + 'a {
        let used = (self.used().load(Ordering::Acquire) as usize).min(HAZARD_SLOTS);
        (0..used).map(move |slot| lines_of(self.word(slot).load(Ordering::Acquire)))
    }
}

/// The lines of the address space for which a hazard word stands.
fn lines_of(word: u64) -> Range<usize> {
    if word == 0 {
        return 0..0;
    }
    let first = (word & ((1 << ADDRESS_BITS) - 1)) as usize / LINE_BYTES;
    first..first + ((word >> ADDRESS_BITS) as usize).max(1)
}

/// Who of this process has which slot.
#[derive(Debug)]
pub struct HazardSlots {
    /// A bit for each slot that is in use.
    taken: [AtomicU64; HAZARD_SLOTS / 64],
}

impl HazardSlots {
    pub(super) fn new() -> HazardSlots {
        HazardSlots { taken: [const { AtomicU64::new(0) }; HAZARD_SLOTS / 64] }
    }

    /// Takes the first free slot.
    pub(super) fn take(&self, hazards: Hazards<'_>) -> Option<usize> {
        for (index, taken) in self.taken.iter().enumerate() {
            let mut now = taken.load(Ordering::Relaxed);
            while now != u64::MAX {
                let bit = now.trailing_ones();
                match taken.compare_exchange_weak(now, now | 1 << bit, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => {
                        let slot = index * 64 + bit as usize;
                        hazards.word(slot).store(0, Ordering::Relaxed);
                        hazards.used().fetch_max(slot as u64 + 1, Ordering::SeqCst);
                        return Some(slot);
                    }
                    Err(other) => now = other,
                }
            }
        }
        None
    }

    /// Gives a slot back.
    pub(super) fn give(&self, hazards: Hazards<'_>, slot: usize) {
        hazards.word(slot).store(0, Ordering::Release);
        self.taken[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::AcqRel);
    }

    /// How many are in use.
    pub fn in_use(&self) -> usize {
        self.taken.iter().map(|taken| taken.load(Ordering::Relaxed).count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hazard_stands_for_the_lines_of_its_stores() {
        let at = 0x7f12_3456_7fff_u64;
        let line = at as usize / 64;
        assert_eq!(lines_of(0), 0..0);
        assert_eq!(lines_of(at), line..line + 1);
        assert_eq!(lines_of(at | 64 << 48), line..line + 64);
    }

    #[test]
    fn slots_are_given_to_one_thread_at_a_time_and_the_first_free_one_first() {
        let words: Vec<_> = (0..HAZARD_SLOTS * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let (slots, hazards) = (HazardSlots::new(), Hazards(&words));
        assert!((0..HAZARD_SLOTS).all(|slot| slots.take(hazards) == Some(slot)));
        assert_eq!((slots.take(hazards), slots.in_use()), (None, HAZARD_SLOTS));
        hazards.word(100).store(0x4000, Ordering::Relaxed);
        assert!(hazards.any_in(0x100..0x101) && !hazards.any_in(0x101..0x200) && !hazards.any_in(0..0x100));
        slots.give(hazards, 100);
        assert!(!hazards.any_in(0x100..0x101));
        assert_eq!((slots.take(hazards), slots.in_use()), (Some(100), HAZARD_SLOTS));
    }
}
