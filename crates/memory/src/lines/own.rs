//! This node's own lines memory, with the view that the program has of it.

mod close;

use super::hazards::HazardSlots;
use super::table::Table;
use super::{Extent, GRAIN_BYTES, GRAIN_LINES, LinesMemory, barrier, peer};
use crate::mapping::Mapping;
use crate::pages::sys::{self, View};
use crate::pages::{TooManyRanges, fault, map_count_limit, map_zeros};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// This node's lines memory.
///
/// The program's view of the data is at [`Extent::base`], that of the entries in the [`Table`]. Both are closed at
/// first: a touch is a fault ([`fault::install`]), and [`Lines::grain_at`] tells what was touched.
#[derive(Debug)]
pub struct Lines {
    memory: LinesMemory,
    app: View,
    /// The entries in the table; not unmapped with it.
    entries: Range<usize>,
    /// A bit for each grain that is open.
    open: Mapping,
    /// Lines of a unit of each grain, where that is known.
    unit_lines: Mapping,
    opening: Mutex<()>,
    slots: HazardSlots,
    has_barrier: bool,
    /// How other processes find it.
    _file: OwnedFd,
}

impl Lines {
    /// Makes lines memory with its address and size; the table is mapped if it is not yet. `has_barrier` says whether
    /// units may be biased: [`barrier::register`] was successful in every process that reaches this memory.
    ///
    /// # Errors
    /// `InvalidInput` for a base or a size that is not whole grains; `AlreadyExists` when something is mapped there;
    /// else what the system refused.
    pub fn new(extent: Extent, has_barrier: bool) -> io::Result<Lines> {
        let end = extent.base.checked_add(extent.bytes).filter(|end| *end <= 1 << 47);
        let is_whole = |bytes: usize| bytes > 0 && bytes.is_multiple_of(GRAIN_BYTES);
        let Some(end) = end.filter(|_| is_whole(extent.base) && is_whole(extent.bytes)) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "lines memory is whole grains, at least one"));
        };
        Table::map().map_err(io::Error::other)?;
        let file = sys::memory_file(peer::KIND, extent.file_bytes())?;
        let view = View::new(None, extent.file_bytes(), sys::BOTH, Some(file.as_fd()))?;
        let memory = LinesMemory::new(extent, view);
        let app = View::new(Some(extent.base), extent.bytes, libc::PROT_NONE, Some(file.as_fd()))?;
        app.advise(0, extent.bytes, libc::MADV_DONTFORK)?;
        let entries = Table::entries(extent.base..end);
        let in_file = Some((file.as_fd(), extent.entries()));
        // SAFETY: this part of the table stands for addresses that were free until now, so nobody needs its zeros.
        let table = unsafe { View::over(entries.start, entries.len(), libc::PROT_NONE, in_file, true) }?;
        table.wish();
        std::mem::forget(table);
        let open = Mapping::new((extent.bytes / GRAIN_BYTES).div_ceil(64) * size_of::<u64>())?;
        let unit_lines = Mapping::new(extent.bytes / GRAIN_BYTES)?;
        fault::remember(extent.base..end, memory.start())?;
        fault::remember(entries.clone(), memory.start() + extent.entries())?;
        let (opening, slots) = (Mutex::new(()), HazardSlots::new());
        Ok(Lines { memory, app, entries, open, unit_lines, opening, slots, has_barrier, _file: file })
    }

    /// Whether units can be biased, since all that reach this memory have barriers on other processors' threads.
    pub fn has_barrier(&self) -> bool {
        self.has_barrier
    }

    /// The grain that a touch at this address is about: a byte of the program's view, or an entry in the table.
    pub fn grain_at(&self, address: usize) -> Option<usize> {
        let byte = if self.entries.contains(&address) { Table::line_of(address)? } else { address };
        let offset = byte.checked_sub(self.extent().base).filter(|offset| *offset < self.extent().bytes)?;
        Some(offset / GRAIN_BYTES)
    }

    /// Whether anything is mapped at an address: false where the program has unmapped it.
    pub fn is_mapped(address: usize) -> bool {
        let page = address / crate::pages::PAGE_BYTES * crate::pages::PAGE_BYTES;
        let mut residence = 0_u8;
        // SAFETY: asks about one page, and the answer is one byte.
        let asked = unsafe { libc::mincore(page as *mut libc::c_void, crate::pages::PAGE_BYTES, &raw mut residence) };
        asked == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
    }

    /// Whether the program can load and store in this grain.
    #[inline]
    pub fn is_open(&self, grain: usize) -> bool {
        self.open_word(grain).load(Ordering::Acquire) & (1 << (grain % 64)) != 0
    }

    /// Lines of the units of this grain, as far as somebody has said ([`Lines::set_unit_lines`]); else 0.
    #[inline]
    pub fn unit_lines(&self, grain: usize) -> usize {
        self.unit_lines_of(grain).load(Ordering::Relaxed).into()
    }

    /// Says how many lines the units of an open grain have, at most 255. It is forgotten when the grain is closed.
    pub fn set_unit_lines(&self, grain: usize, lines: usize) {
        self.unit_lines_of(grain).store(lines as u8, Ordering::Relaxed);
    }

    fn unit_lines_of(&self, grain: usize) -> &AtomicU8 {
        assert!(grain < self.extent().bytes / GRAIN_BYTES);
        // SAFETY: a byte of the mapping, which has one for each grain; all use it atomically.
        unsafe { AtomicU8::from_ptr(self.unit_lines.start().add(grain)) }
    }

    fn open_word(&self, grain: usize) -> &AtomicU64 {
        assert!(grain < self.extent().bytes / GRAIN_BYTES);
        // SAFETY: an aligned word of the mapping, which has a bit for each grain; all use it atomically.
        unsafe { AtomicU64::from_ptr(self.open.start().cast::<u64>().add(grain / 64)) }
    }

    /// Lets the program into a grain: at its home its bytes are zeros and it is exclusive; elsewhere no byte is valid.
    /// Nothing happens if it is open. No thread of this node may have missed in it before.
    ///
    /// # Errors
    /// [`TooManyRanges`] where the process has too many mappings; else what the system refused.
    pub fn open_grain(&self, grain: usize, is_home: bool) -> io::Result<()> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_open(grain) {
            return Ok(());
        }
        let lines = grain * GRAIN_LINES..(grain + 1) * GRAIN_LINES;
        if !is_home {
            self.memory.fill_magic(grain * GRAIN_BYTES, GRAIN_BYTES);
            self.memory.put_entries(lines, Entry::not_exclusive(!self.has_barrier));
        } else if !self.has_barrier {
            // Other nodes may have changed some of them already, and leave them locked.
            for line in lines {
                let entry = self.memory.entry(line);
                let (biased, locked) = (Entry::BIASED.0, Entry::LOCKED.0);
                let _ = entry.compare_exchange(biased, locked, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        let first = grain * GRAIN_BYTES;
        self.protect(self.extent().base + first..self.extent().base + first + GRAIN_BYTES)?;
        let entries = self.entries.start + grain * crate::pages::PAGE_BYTES;
        self.protect(entries..entries + crate::pages::PAGE_BYTES)?;
        self.open_word(grain).fetch_or(1 << (grain % 64), Ordering::Release);
        Ok(())
    }

    /// Makes a part of the program's view readable and writable.
    fn protect(&self, range: Range<usize>) -> io::Result<()> {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: a part of the program's view of this memory, which only grows more permissive.
        if unsafe { libc::mprotect(start, range.len(), sys::BOTH) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(match error.raw_os_error() {
            Some(libc::ENOMEM) => io::Error::other(TooManyRanges { limit: map_count_limit() }),
            _ => sys::refused("mprotect", &error),
        })
    }

    /// The word of a free hazard slot, 64 bytes from its neighbours; `None` where [`super::HAZARD_SLOTS`] threads have
    /// one. It stays mapped for as long as this lives. Takes no lock and makes no system call.
    pub fn take_hazard_slot(&self) -> Option<&AtomicU64> {
        let hazards = self.memory.hazards();
        self.slots.take(hazards).map(|slot| self.slot_word(slot))
    }

    /// Gives a slot back; its hazard is lowered.
    ///
    /// # Panics
    /// Where it is none of [`Lines::take_hazard_slot`].
    pub fn give_hazard_slot(&self, slot: &AtomicU64) {
        let addresses = self.memory.hazard_addresses();
        let address = std::ptr::from_ref(slot).addr();
        assert!(addresses.contains(&address), "a hazard slot of this node");
        self.slots.give(self.memory.hazards(), (address - addresses.start) / super::HAZARD_SLOT_BYTES);
    }

    fn slot_word(&self, slot: usize) -> &AtomicU64 {
        let at = self.memory.hazard_addresses().start + slot * super::HAZARD_SLOT_BYTES;
        // SAFETY: an aligned word within the view, which stays mapped; everybody uses it atomically.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
    }

    /// Hazard slots in use.
    pub fn hazard_slots_in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// A barrier on all of this process's threads, then whether one of them has a hazard for these lines. If so, ask
    /// [`LinesMemory::has_hazard`] again until it is gone.
    ///
    /// # Errors
    /// What the system refused.
    pub fn begin_quiesce_own(&self, lines: Range<usize>) -> io::Result<bool> {
        if self.has_barrier {
            barrier::own_threads()?;
        }
        Ok(self.memory.has_hazard(lines))
    }

    /// The line at an address of the program's view.
    pub fn line_at(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.extent().base).filter(|offset| *offset < self.extent().bytes)?;
        Some(offset / LINE_BYTES)
    }
}

impl Deref for Lines {
    type Target = LinesMemory;

    fn deref(&self) -> &LinesMemory {
        &self.memory
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        fault::forget(self.app.start());
        fault::forget(self.entries.start);
        // SAFETY: nobody has addresses for which these entries stand any more. A failure leaves them as they are.
        let _ = unsafe { map_zeros(self.entries.clone()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{GRAIN_BYTES, PeerLines};
    use comem_protocol::coherence::direct::MAGIC;
    use comem_protocol::ids::NodeId;

    const GRAINS: usize = 5;

    fn extent(number: usize) -> Extent {
        Extent { base: 0x3a00_0000_0000 + (number << 32), bytes: (GRAINS + number) * GRAIN_BYTES, wide_words: 1 }
    }

    /// Whether the program may load from there: the system copies from it as a program's load would.
    fn is_readable(address: usize) -> bool {
        let mut into = [0_u8; 8];
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: 8 };
        let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: 8 };
        // SAFETY: the call copies 8 bytes into the array, or refuses.
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) == 8 }
    }

    fn entry_address(lines: &Lines, line: usize) -> usize {
        let address = lines.extent().base + line * LINE_BYTES;
        Table::entries(address..address).start
    }

    #[test]
    fn a_grain_is_filled_before_the_program_gets_into_it() {
        let lines = Lines::new(extent(0), barrier::register()).expect("lines memory");
        let (byte, entry) = (lines.extent().base + 2 * GRAIN_BYTES + 200, entry_address(&lines, 2 * GRAIN_LINES + 3));
        assert_eq!((lines.grain_at(byte), lines.grain_at(entry)), (Some(2), Some(2)));
        let outside = [lines.extent().base - 1, lines.extent().base + lines.extent().bytes, 0x1000];
        assert!(outside.iter().all(|address| lines.grain_at(*address).is_none()));
        assert!(!lines.is_open(2) && !is_readable(byte) && !is_readable(entry));
        lines.open_grain(2, false).unwrap();
        assert!(lines.is_open(2) && !lines.is_open(1) && !is_readable(byte - GRAIN_BYTES));
        // SAFETY: the grain is open.
        let (value, tag) = unsafe {
            let value = std::ptr::with_exposed_provenance::<u32>(byte).read_volatile();
            (value, std::ptr::with_exposed_provenance::<u16>(entry).read_volatile())
        };
        assert_eq!((value, Entry(tag)), (MAGIC, Entry::not_exclusive(!lines.has_barrier())));
        // At the home the zeros are right.
        lines.open_grain(0, true).unwrap();
        assert_eq!(lines.word(64).load(Ordering::Relaxed), 0);
        assert_eq!(Entry(lines.entry(GRAIN_LINES - 1).load(Ordering::Relaxed)), Entry::exclusive(!lines.has_barrier()));
        // A second time changes nothing.
        lines.word(64).store(5, Ordering::Relaxed);
        lines.open_grain(0, false).unwrap();
        assert_eq!(lines.word(64).load(Ordering::Relaxed), 5);
        // The last grain of all.
        lines.open_grain(GRAINS - 1, false).unwrap();
        assert!(is_readable(lines.extent().base + GRAINS * GRAIN_BYTES - 8));
    }

    #[test]
    fn another_node_reads_and_writes_what_the_program_sees() {
        let lines = Lines::new(extent(1), barrier::register()).expect("lines memory");
        let peer = PeerLines::open(std::process::id(), extent(1)).expect("a process sees its own files");
        lines.open_grain(0, true).unwrap();
        let at = 5 * LINE_BYTES;
        let word = std::ptr::with_exposed_provenance_mut::<u64>(lines.extent().base + at);
        // SAFETY: the grain is open, and only this test uses it.
        unsafe { word.write_volatile(77) };
        assert_eq!(peer.word(at).load(Ordering::Relaxed), 77);
        assert_eq!(peer.fetch_and_set(5, NodeId(3)), Entry::exclusive(!lines.has_barrier()));
        let entry = std::ptr::with_exposed_provenance::<u16>(entry_address(&lines, 5));
        // SAFETY: as above.
        let tag = || Entry(unsafe { entry.read_volatile() });
        assert_eq!(tag().holder(), Some(NodeId(3)));
        assert_eq!(lines.fetch_and_set(5, NodeId(1)).holder(), Some(NodeId(3)), "who was first");
        peer.put_entries(5..7, Entry::not_exclusive(true));
        assert_eq!(tag(), Entry::not_exclusive(true));
        peer.fill_magic(at, LINE_BYTES);
        // SAFETY: as above.
        assert_eq!(unsafe { word.cast::<u32>().add(15).read_volatile() }, MAGIC);
        peer.write(at, &[9; 16]);
        let mut back = [0; 24];
        lines.read(at, &mut back);
        assert_eq!((&back[..16], &back[16..20]), (&[9; 16][..], &MAGIC.to_le_bytes()[..]));
        peer.wide(GRAINS * GRAIN_LINES)[0].store(6, Ordering::Relaxed);
        assert_eq!(lines.wide(GRAINS * GRAIN_LINES)[0].load(Ordering::Relaxed), 6);
        assert!(PeerLines::open(std::process::id(), extent(7)).is_err(), "of another size");
    }

    #[test]
    fn other_nodes_see_the_hazards_of_this_ones_threads() {
        let lines = Lines::new(extent(2), barrier::register()).expect("lines memory");
        let peer = PeerLines::open(std::process::id(), extent(2)).expect("a process sees its own files");
        let slot = lines.take_hazard_slot().expect("a slot");
        let other = lines.take_hazard_slot().expect("a slot");
        assert_eq!(lines.hazard_slots_in_use(), 2);
        other.store((lines.extent().base + 10 * LINE_BYTES + 8) as u64 | 3 << 48, Ordering::Relaxed);
        assert!(peer.has_hazard(12..13) && lines.begin_quiesce_own(0..11).unwrap());
        assert!(!peer.has_hazard(13..20) && !peer.has_hazard(0..10));
        lines.give_hazard_slot(other);
        assert!(!peer.has_hazard(12..13));
        lines.give_hazard_slot(slot);
        assert_eq!(lines.hazard_slots_in_use(), 0);
    }

    #[test]
    fn lines_memory_is_whole_grains_at_a_free_place() {
        for wrong in
            [Extent { bytes: 5000, ..extent(3) }, Extent { base: 4096, ..extent(3) }, Extent { bytes: 0, ..extent(3) }]
        {
            assert_eq!(Lines::new(wrong, barrier::register()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let first = Lines::new(extent(3), barrier::register()).unwrap();
        assert_eq!(Lines::new(extent(3), barrier::register()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let entry = entry_address(&first, 0);
        assert!(!is_readable(entry));
        drop(first);
        assert!(is_readable(entry), "the table is whole again");
        Lines::new(extent(3), barrier::register()).unwrap();
    }
}
