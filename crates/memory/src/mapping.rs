//! Anonymous memory, zero at first and paid for page by page as it is touched.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// A private anonymous mapping.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory; who may touch it when is up to its users.
unsafe impl Send for Mapping {}
// SAFETY: as above: the mapping itself has no state besides its address and size.
unsafe impl Sync for Mapping {}

/// Gives the memory of private pages back; whether the system does that. Their bytes are zero then.
///
/// # Safety
/// Whole pages of a private anonymous mapping, whose contents nobody needs.
pub(crate) unsafe fn give_back(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: by this function's contract.
    let gone = |advice| unsafe { libc::madvise(start.cast(), bytes, advice) == 0 };
    // Pages that the program has locked into memory stay there without the second advice, which Linux knows from 5.18
    // on.
    gone(libc::MADV_DONTNEED) || gone(DONTNEED_LOCKED)
}

/// As `MADV_DONTNEED`, also for pages that are locked (linux/mman.h).
pub(crate) const DONTNEED_LOCKED: i32 = 24;

/// What of a range of addresses lies in none of these parts, which do not overlap.
pub(crate) fn gaps(whole: &Range<usize>, parts: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut parts: Vec<_> = parts.iter().filter(|part| whole.contains(&part.start)).cloned().collect();
    parts.sort_by_key(|part| part.start);
    let starts = std::iter::once(whole.start).chain(parts.iter().map(|part| part.end));
    let ends = parts.iter().map(|part| part.start).chain([whole.end]);
    starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()).collect()
}

impl Mapping {
    /// Maps `bytes` bytes (at least one page).
    ///
    /// # Errors
    /// What the system says when there is no room.
    pub fn new(bytes: usize) -> io::Result<Mapping> {
        Mapping::near(0, bytes)
    }

    /// As [`Mapping::new`], at this address (a multiple of the page's size) if nothing is there.
    ///
    /// # Errors
    /// As there.
    pub fn near(address: usize, bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.max(1);
        let wish = std::ptr::without_provenance_mut(address);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping touches no memory that is in use.
        let start = unsafe { libc::mmap(wish, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, bytes })
    }

    /// Whether a part of it belongs into a core dump: a dump looks at each page, used or not. A wish: its failure costs
    /// nothing.
    pub fn dump(&self, offset: usize, bytes: usize, wanted: bool) {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            let advice = if wanted { libc::MADV_DODUMP } else { libc::MADV_DONTDUMP };
            // SAFETY: within the mapping; the advice changes no byte.
            unsafe { libc::madvise(self.start().add(offset).cast(), bytes, advice) };
        }
    }

    /// Gives the memory of a part back; its bytes are zero afterwards.
    ///
    /// # Safety
    /// Whole pages of the mapping, whose contents nobody needs.
    pub unsafe fn forget(&self, offset: usize, bytes: usize) {
        debug_assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        // SAFETY: by this function's contract.
        unsafe {
            let start = self.start().add(offset);
            if !give_back(start, bytes) {
                start.write_bytes(0, bytes);
            }
        }
    }

    /// Leaves no more of it than these parts, whole pages that do not overlap: all other addresses are free for
    /// something else.
    ///
    /// # Safety
    /// Nobody uses anything else of it any more, and it is never dropped.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn shrink_to(&self, keep: &[Range<usize>]) -> io::Result<()> {
        let start = self.start().addr();
        // SAFETY: the gaps lie within the mapping, and nobody uses them by this function's contract.
        gaps(&(start..start + self.bytes), keep).into_iter().try_for_each(|gap| unsafe { self.unmap(gap) })
    }

    /// Gives back a part of it, addresses and memory.
    ///
    /// # Safety
    /// Whole pages of the mapping that nobody uses any more, and it is never dropped.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn unmap(&self, part: Range<usize>) -> io::Result<()> {
        let start = self.start().wrapping_add(part.start - self.start().addr());
        // SAFETY: by this function's contract.
        match unsafe { libc::munmap(start.cast(), part.len()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where the mapping begins; page-aligned.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours since `new`, and nobody can name it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping with this address, as /proc has them.
    fn flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut within = false;
        for line in maps.lines() {
            if let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
                let bound = |text| usize::from_str_radix(text, 16);
                if let (Ok(start), Ok(end)) = (bound(start), bound(end)) {
                    within = (start..end).contains(&address);
                }
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| within) {
                return format!("{flags} ");
            }
        }
        String::new()
    }

    #[test]
    fn what_was_locked_is_zero_after_it_was_given_back() {
        let mapping = Mapping::new(1 << 16).unwrap();
        // SAFETY: within the mapping, whose contents nobody needs.
        unsafe {
            mapping.start().add(5000).write(7);
            assert_eq!(libc::mlock(mapping.start().cast(), 8192), 0, "{}", io::Error::last_os_error());
            mapping.forget(4096, 4096);
            assert_eq!(mapping.start().add(5000).read(), 0);
        }
    }

    #[test]
    fn a_mapping_is_where_it_was_wished_if_nothing_is_there_and_gone_with_its_owner() {
        const PLACE: usize = 0x2345_0000_0000;
        let new = || Mapping::near(PLACE, 1 << 16).unwrap();
        let (first, second) = (new(), new());
        assert!(first.start().addr() == PLACE && second.start().addr() != PLACE);
        drop(first);
        assert_eq!(new().start().addr(), PLACE);
        assert!(Mapping::new(0).is_ok_and(|none| none.bytes() == 1), "at least a page");
    }

    #[test]
    fn what_lies_between_parts_is_unmapped() {
        let pages = |range: Range<usize>| range.start << 12..range.end << 12;
        assert_eq!(gaps(&(0..9), &[6..7, 1..3, 3..4, 12..13]), [0..1, 4..6, 7..9]);
        assert_eq!(gaps(&(0..9), &[5..9, 0..5]), []);
        // Where other tests' threads map nothing into the gaps.
        const PLACE: usize = 0x3b00_0000_0000;
        let mapping = std::mem::ManuallyDrop::new(Mapping::near(PLACE, 9 << 12).unwrap());
        let at = mapping.start().addr();
        let keep = [pages(1..3), pages(6..7)].map(|part| at + part.start..at + part.end);
        let is_mapped = |page: usize| !flags(at + (page << 12)).is_empty();
        // SAFETY: nobody uses the mapping, and it is not dropped.
        unsafe {
            mapping.shrink_to(&keep).unwrap();
            assert_eq!((0..9).filter(|page| is_mapped(*page)).collect::<Vec<_>>(), [1, 2, 6]);
            mapping.unmap(keep[0].clone()).unwrap();
        }
        assert_eq!((0..9).filter(|page| is_mapped(*page)).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn what_belongs_into_a_core_dump_is_chosen() {
        let mapping = Mapping::new(1 << 20).unwrap();
        mapping.dump(0, 1 << 20, false);
        mapping.dump(4096, 8192, true);
        let left_out = || [0, 4096, 12288].map(|at| flags(mapping.start().addr() + at).contains(" dd "));
        assert_eq!(left_out(), [true, false, true]);
        mapping.dump(8192, 1 << 20, true);
        mapping.dump(4096, usize::MAX, true);
        assert_eq!(left_out(), [true, false, true], "beyond the end");
    }
}
