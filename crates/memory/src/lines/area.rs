//! The hazards of threads that store before there is lines memory, and at the same addresses afterwards.
//!
//! Checked code publishes hazards from the program's first store on, and a thread keeps the address of its word. So
//! the words lie in private memory at first; when lines memory is made, its hazards are mapped there too.

use super::Lines;
use super::hazards::{HAZARD_SLOT_BYTES, HAZARD_SLOTS, HazardSlots, Hazards, SLOT_WORDS};
use crate::pages::map_zeros;
use crate::pages::sys::{self, View};
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const AREA_BYTES: usize = HAZARD_SLOTS * HAZARD_SLOT_BYTES;

/// The hazard words of this process.
#[derive(Debug)]
pub struct HazardArea {
    /// Stays mapped for good.
    start: usize,
    slots: HazardSlots,
}

static AREA: OnceLock<HazardArea> = OnceLock::new();

impl HazardArea {
    /// The process's area, which is mapped if it is not yet.
    ///
    /// # Errors
    /// What the system refused.
    pub fn of_process() -> io::Result<&'static HazardArea> {
        if let Some(area) = AREA.get() {
            return Ok(area);
        }
        let view = View::new(None, AREA_BYTES, sys::BOTH, None)?;
        let start = view.start();
        std::mem::forget(view);
        Ok(AREA.get_or_init(|| HazardArea { start, slots: HazardSlots::new() }))
    }

    /// The process's area, if it is mapped. Takes no lock.
    pub fn if_mapped() -> Option<&'static HazardArea> {
        AREA.get()
    }

    fn addresses(&self) -> Range<usize> {
        self.start..self.start + AREA_BYTES
    }

    fn hazards(&self) -> Hazards<'_> {
        let words = std::ptr::with_exposed_provenance(self.start);
        // SAFETY: aligned words of the area, which stays mapped; everybody uses them atomically.
        Hazards(unsafe { std::slice::from_raw_parts(words, HAZARD_SLOTS * SLOT_WORDS) })
    }

    /// The word of a free slot; `None` where all are in use. Takes no lock and makes no system call.
    pub fn take(&self) -> Option<&AtomicU64> {
        let slot = self.slots.take(self.hazards())?;
        Some(&self.hazards().0[slot * SLOT_WORDS])
    }

    /// Gives a slot back; its hazard is lowered.
    ///
    /// # Panics
    /// Where the word is none of [`HazardArea::take`].
    pub fn give(&self, word: &AtomicU64) {
        let address = std::ptr::from_ref(word).addr();
        assert!(self.addresses().contains(&address), "a hazard slot of this process");
        self.slots.give(self.hazards(), (address - self.start) / HAZARD_SLOT_BYTES);
    }

    /// From now on these words are the hazards of `lines`, which others read.
    ///
    /// # Errors
    /// What the system refused.
    pub fn join(&self, lines: &Lines) -> io::Result<()> {
        let used = self.hazards().used().load(Ordering::Acquire);
        let from: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(lines.hazard_addresses().start);
        let to: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(self.start);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: an old size of 0 maps the shared memory a second time. What lay at the new place were hazards of
        // private memory, for which nobody asks.
        if unsafe { libc::mremap(from, 0, AREA_BYTES, flags, to) } == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.hazards().used().fetch_max(used, Ordering::SeqCst);
        // SAFETY: the function lives for ever, and maps memory.
        unsafe { libc::pthread_atfork(None, None, Some(leave_to_parent)) };
        Ok(())
    }
}

/// In a child made by `fork` hazards concern nobody, and those of the parent are not to be touched.
extern "C" fn leave_to_parent() {
    if let Some(area) = AREA.get() {
        // SAFETY: the child has one thread, which stores hazards there and needs none of the parent's.
        let _ = unsafe { map_zeros(area.addresses()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Extent, GRAIN_BYTES, barrier};

    #[test]
    fn a_word_from_before_lines_memory_tells_of_hazards_in_it() {
        let area = HazardArea::of_process().expect("an area");
        let word = area.take().expect("a slot");
        word.store(0x40, Ordering::Relaxed);
        word.store(0, Ordering::Relaxed);
        let extent = Extent { base: 0x5a00_0000_0000, bytes: GRAIN_BYTES, wide_words: 0 };
        let lines = Lines::new(extent, barrier::register()).expect("lines memory");
        area.join(&lines).expect("it is mapped there too");
        word.store(extent.base as u64 + 64, Ordering::SeqCst);
        assert!(lines.has_hazard(1..2) && !lines.has_hazard(0..1));
        area.give(word);
        assert!(!lines.has_hazard(1..2));
    }
}
