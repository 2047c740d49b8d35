//! Grains that were freed.

use super::Lines;
use crate::lines::{ENTRY_BYTES, GRAIN_BYTES, GRAIN_LINES};
use crate::pages::PAGE_BYTES;
use crate::pages::sys;
use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl Lines {
    /// Takes grains from the program, and gives their memory back to the system: all is zero again, as it was before
    /// they were opened.
    ///
    /// # Errors
    /// What the system refused.
    pub fn close_grains(&self, grains: Range<usize>) -> io::Result<()> {
        if grains.is_empty() {
            return Ok(());
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        for grain in grains.clone() {
            self.set_unit_lines(grain, 0);
            self.open_word(grain).fetch_and(!(1 << (grain % 64)), Ordering::AcqRel);
        }
        let of_data = grains.start * GRAIN_BYTES..grains.end * GRAIN_BYTES;
        let of_entries = grains.start * PAGE_BYTES..grains.end * PAGE_BYTES;
        for (from, range) in [(self.extent().base, &of_data), (self.entries.start, &of_entries)] {
            let at = std::ptr::with_exposed_provenance_mut(from + range.start);
            // SAFETY: a part of the program's view of memory that the program has freed.
            if unsafe { libc::mprotect(at, range.len(), libc::PROT_NONE) } != 0 {
                return Err(sys::refused("mprotect", &io::Error::last_os_error()));
            }
        }
        let lines = grains.start * GRAIN_LINES..grains.end * GRAIN_LINES;
        let wide_bytes = self.extent().wide_words * size_of::<u64>();
        let extent = self.extent();
        let wide = extent.wide() + lines.start * wide_bytes..extent.wide() + lines.end * wide_bytes;
        let entries = extent.entries() + lines.start * ENTRY_BYTES..extent.entries() + lines.end * ENTRY_BYTES;
        for range in [of_data, entries, wide].into_iter().filter(|range| !range.is_empty()) {
            let at = std::ptr::with_exposed_provenance_mut(self.memory.start() + range.start);
            // SAFETY: a part of this node's memory file that holds nothing any more.
            if unsafe { libc::madvise(at, range.len(), libc::MADV_REMOVE) } != 0 {
                return Err(sys::refused("madvise", &io::Error::last_os_error()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Extent, Table, barrier};
    use comem_protocol::coherence::direct::{Entry, MAGIC};

    #[test]
    fn a_grain_that_was_closed_is_as_it_was_before() {
        let extent = Extent { base: 0x5b00_0000_0000, bytes: 3 * GRAIN_BYTES, wide_words: 1 };
        let lines = Lines::new(extent, barrier::register()).expect("lines memory");
        let magic = u64::from(MAGIC) << 32 | u64::from(MAGIC);
        for grain in 0..3 {
            lines.open_grain(grain, false).expect("it opens");
            lines.set_unit_lines(grain, 8);
        }
        lines.wide(GRAIN_LINES)[0].store(7, Ordering::Relaxed);
        lines.close_grains(1..2).expect("it closes");
        assert_eq!([0, 1, 2].map(|grain| lines.is_open(grain)), [true, false, true]);
        assert_eq!([0, 1, 2].map(|grain| lines.unit_lines(grain)), [8, 0, 8]);
        let found = |grain: usize| {
            let line = grain * GRAIN_LINES;
            (lines.word(grain * GRAIN_BYTES).load(Ordering::Relaxed), Entry(lines.entry(line).load(Ordering::Relaxed)))
        };
        assert_eq!(found(1), (0, Entry::BIASED));
        assert_eq!(lines.wide(GRAIN_LINES)[0].load(Ordering::Relaxed), 0);
        assert_eq!(found(2).0, magic);
        lines.open_grain(1, true).expect("it opens again");
        let entry = Table::entries(extent.base + GRAIN_BYTES..extent.base + GRAIN_BYTES).start;
        // SAFETY: an aligned entry of an open grain.
        assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u16>(entry).read_volatile() }, 0);
    }
}
