//! One node's lines memory, in a view where nothing faults.

use super::hazards::{self, HAZARD_SLOTS, Hazards};
use super::{ENTRY_BYTES, Extent, THREAD_SLOT_BYTES, THREAD_SLOTS_MAX};
use crate::pages::sys::View;
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, MAGIC};
use comem_protocol::ids::NodeId;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Bytes that a copy between nodes moves in one piece.
const WORD_BYTES: usize = size_of::<u64>();
const MAGIC_WORD: u64 = (MAGIC as u64) << 32 | MAGIC as u64;

/// A view of the memory file of a node's lines memory.
///
/// Threads of all nodes load and store here at the same time. Offsets are bytes from the begin of the data, lines
/// count from there as well.
#[derive(Debug)]
pub struct LinesMemory {
    extent: Extent,
    view: View,
}

/// In a word that names lines, where their number begins.
const UNDER_WAY_SHIFT: u32 = 48;

impl LinesMemory {
    /// `view` is of the whole file.
    pub(super) fn new(extent: Extent, view: View) -> LinesMemory {
        assert!(view.bytes() >= extent.file_bytes());
        LinesMemory { extent, view }
    }

    /// Where the program sees the data, and how large all parts are.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// `bytes` bytes of the data. Others may load and store there at any time.
    ///
    /// # Panics
    /// Where the range is not within the data.
    #[inline]
    pub fn data(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.extent.bytes && bytes <= self.extent.bytes - offset);
        self.at(offset)
    }

    /// The entry of a line.
    ///
    /// # Panics
    /// Where there is no such line.
    #[inline]
    pub fn entry(&self, line: usize) -> &AtomicU16 {
        assert!(line < self.extent.lines());
        let at = self.at(self.extent.entries() + line * ENTRY_BYTES);
        // SAFETY: an aligned entry within the view, which stays mapped; everybody uses entries atomically.
        unsafe { AtomicU16::from_ptr(at.cast()) }
    }

    /// Locks a line's entry for a thread of `holder`, unless it is locked; gives what it was
    /// ([`Entry::after_fetch_and_set`]).
    #[inline]
    pub fn fetch_and_set(&self, line: usize, holder: NodeId) -> Entry {
        let entry = self.entry(line);
        let mut old = Entry(entry.load(Ordering::Acquire));
        while !old.is_busy() {
            let new = old.after_fetch_and_set(holder);
            match entry.compare_exchange_weak(old.0, new.0, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => old = Entry(now),
            }
        }
        old
    }

    /// Replaces the entries of some lines, the first of them last.
    #[inline]
    pub fn put_entries(&self, lines: Range<usize>, entry: Entry) {
        for line in lines.rev() {
            self.entry(line).store(entry.0, Ordering::Release);
        }
    }

    /// The wide words of the unit that begins at `line`; none in jobs of up to 8 nodes.
    pub fn wide(&self, line: usize) -> &[AtomicU64] {
        assert!(line < self.extent.lines());
        let words = self.extent.wide_words;
        let at = self.at(self.extent.wide() + line * words * size_of::<u64>());
        // SAFETY: aligned words within the view, which stays mapped; everybody uses them atomically.
        unsafe { std::slice::from_raw_parts(at.cast(), words) }
    }

    /// The aligned word of 8 bytes at an offset of the data.
    ///
    /// # Panics
    /// Where the offset is not a multiple of 8, or not within the data.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD_BYTES) && offset < self.extent.bytes);
        // SAFETY: an aligned word within the view, which stays mapped. The program's own accesses are machine
        // instructions that race with it as they would between threads; no Rust reference to the bytes exists.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// Copies a unit from another node's memory, word by word. The offset and the length are multiples of 8.
    #[inline]
    pub fn copy_from(&self, other: &LinesMemory, offset: usize, bytes: usize) {
        for at in (offset..offset + bytes).step_by(WORD_BYTES) {
            self.word(at).store(other.word(at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Copies a unit into private memory, word by word.
    ///
    /// # Panics
    /// Where the offset or the length is not a multiple of 8, or the range not within the data.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(into.len().is_multiple_of(WORD_BYTES));
        for (word, at) in into.chunks_exact_mut(WORD_BYTES).zip((offset..).step_by(WORD_BYTES)) {
            word.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
        }
    }

    /// Overwrites a unit from private memory, word by word.
    ///
    /// # Panics
    /// As for [`LinesMemory::read`].
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(from.len().is_multiple_of(WORD_BYTES));
        for (word, at) in from.chunks_exact(WORD_BYTES).zip((offset..).step_by(WORD_BYTES)) {
            let word = word.try_into().expect("a chunk is a word");
            self.word(at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Fills a unit with [`MAGIC`]. The offset and the length are multiples of 8.
    #[inline]
    pub fn fill_magic(&self, offset: usize, bytes: usize) {
        for at in (offset..offset + bytes).step_by(WORD_BYTES) {
            self.word(at).store(MAGIC_WORD, Ordering::Relaxed);
        }
    }

    /// Whether a thread of the node has published a hazard for any of these lines. Who asks after a barrier on the
    /// node's threads ([`super::barrier`]) hears of all that were published before it.
    pub fn has_hazard(&self, lines: Range<usize>) -> bool {
        let first = self.extent.base / LINE_BYTES;
        self.hazards().any_in(first + lines.start..first + lines.end)
    }

    /// Where the thread in a seat of the node says which units it is about to lock: [`LinesMemory::under_way`], or 0
    /// for none. Who looks after the thread's death finds what it may have locked. `None` beyond [`THREAD_SLOTS_MAX`].
    #[inline]
    pub fn miss_of(&self, thread_slot: usize) -> Option<&AtomicU64> {
        let at = (thread_slot < THREAD_SLOTS_MAX)
            .then(|| self.at(self.extent.misses() + thread_slot * THREAD_SLOT_BYTES))?;
        // SAFETY: an aligned word within the view, which stays mapped; everybody uses it atomically.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The word for units with these lines.
    pub fn under_way(lines: Range<usize>) -> u64 {
        (lines.len() as u64) << UNDER_WAY_SHIFT | (lines.start as u64 + 1)
    }

    /// The lines that threads of the node have said to be about to lock, or have locked: of misses all, of stores to
    /// units that are here those of their hazards.
    pub fn about_to_lock(&self) -> impl Iterator<Item = usize> + '_ {
        let words = (0..THREAD_SLOTS_MAX).filter_map(|thread_slot| self.miss_of(thread_slot));
        let misses = words.flat_map(|word| {
            let word = word.load(Ordering::Acquire);
            let (lines, line) = (word >> UNDER_WAY_SHIFT, word & ((1 << UNDER_WAY_SHIFT) - 1));
            line.checked_sub(1).into_iter().flat_map(move |line| line as usize..(line + lines) as usize)
        });
        let first = self.extent.base / LINE_BYTES;
        let stores = self.hazards().lines().filter_map(move |line| line.checked_sub(first));
        misses.chain(stores).filter(|line| *line < self.extent.lines())
    }

    pub(super) fn hazards(&self) -> Hazards<'_> {
        let words = HAZARD_SLOTS * hazards::SLOT_WORDS;
        // SAFETY: aligned words within the view, which stays mapped; everybody uses them atomically.
        Hazards(unsafe { std::slice::from_raw_parts(self.at(self.extent.hazards()).cast(), words) })
    }

    /// The part of the view that holds the hazards, as addresses.
    pub(super) fn hazard_addresses(&self) -> Range<usize> {
        let start = self.view.start() + self.extent.hazards();
        start..start + HAZARD_SLOTS * hazards::HAZARD_SLOT_BYTES
    }

    /// The whole view, for an adapter that reads and writes it: where it begins, and its bytes.
    pub fn whole(&self) -> (*mut u8, usize) {
        (self.at(0), self.extent.file_bytes())
    }

    pub(super) fn start(&self) -> usize {
        self.view.start()
    }

    fn at(&self, in_file: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.view.start() + in_file)
    }
}
