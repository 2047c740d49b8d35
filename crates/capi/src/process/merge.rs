//! Variables that `main` has changed between two CREATEs, and workers of the node meanwhile.
//!
//! Threads would see what `main` writes at once, and write the same variables. So what differs between two versions
//! goes into the node's variables under its workers' eyes: every half of a word (four bytes) that they have left as it
//! was handed out. What they have changed stays, as it would if they had written it a moment later.

use super::globals::PAGE;
use libc::{c_int, c_void, dl_iterate_phdr, dl_phdr_info};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = PAGE / 8;

/// A page, by words.
pub type Page = [u64; WORDS];
/// A page that threads use meanwhile.
pub type Now = [AtomicU64; WORDS];

/// Whether two pages hold the same. AddressSanitizer would not let the C library's comparison pass over the gaps
/// between variables.
pub fn same(one: &Page, other: &Page) -> bool {
    const LINE: usize = 64;
    let differ = |(a, b): (&[u64], &[u64])| a.iter().zip(b).fold(0, |bits, (a, b)| bits | a ^ b) != 0;
    !one.chunks_exact(LINE).zip(other.chunks_exact(LINE)).any(differ)
}

/// What becomes of a word that was `old`, is `new` for `main`, and `now` for the workers.
fn merged(old: u64, new: u64, now: u64) -> u64 {
    let halves = [0xffff_ffff_u64, 0xffff_ffff << 32];
    let unchanged = halves.into_iter().filter(|half| (old ^ now) & half == 0).sum::<u64>();
    now & !unchanged | new & unchanged
}

/// Brings what is different between two contents of a page.
pub fn change(now: &Now, old: &Page, new: &Page) {
    for ((word, old), new) in now.iter().zip(old).zip(new).filter(|((_, old), new)| old != new) {
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            Some(merged(*old, *new, now)).filter(|merged| *merged != now)
        });
    }
}

/// Where the first values of variables stand in the program's file: their part of a segment (System V ABI, "Program
/// Header").
#[derive(Clone, Copy, Default, Debug)]
pub struct FilePart {
    /// An address in the segment.
    inside: usize,
    /// What to add to an address for its place in the file; may be a negative number.
    offset: usize,
    /// Pages from here on are in no file, and zero at first. (0: nothing is known of the segment.)
    end: usize,
}

impl FilePart {
    /// The part of the segment around an address.
    pub fn of(inside: usize) -> FilePart {
        let mut part = FilePart { inside, ..FilePart::default() };
        // SAFETY: the callback gets back the part, which lives during the call.
        unsafe { dl_iterate_phdr(Some(look_at_program), (&raw mut part).cast()) };
        part
    }

    /// Whether the page at an address is zero before anybody writes to it.
    pub fn is_zero_at_first(&self, address: usize) -> bool {
        self.end != 0 && address >= self.end
    }

    /// What the page at an address holds before anybody writes to it.
    pub fn first_content(&self, address: usize) -> std::io::Result<Page> {
        if address >= self.end {
            return Ok([0; WORDS]);
        }
        let mut bytes = [0; PAGE];
        let file = std::fs::File::open("/proc/self/exe")?;
        file.read_exact_at(&mut bytes, address.wrapping_add(self.offset) as u64)?;
        let words = bytes.as_chunks::<8>().0;
        Ok(std::array::from_fn(|index| u64::from_ne_bytes(words[index])))
    }
}

/// The first object is the program.
unsafe extern "C" fn look_at_program(info: *mut dl_phdr_info, _size: usize, part: *mut c_void) -> c_int {
    // SAFETY: the linker gives a description of a loaded object; [`FilePart::of`] gives a part.
    let (info, part) = unsafe { (&*info, &mut *part.cast::<FilePart>()) };
    // SAFETY: the description says that there are so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let around = |header: &&libc::Elf64_Phdr| {
        let start = base + header.p_vaddr as usize;
        header.p_type == libc::PT_LOAD && (start..start + header.p_memsz as usize).contains(&part.inside)
    };
    if let Some(header) = headers.iter().find(around) {
        let start = base + header.p_vaddr as usize;
        part.offset = (header.p_offset as usize).wrapping_sub(start);
        part.end = (start + header.p_filesz as usize).next_multiple_of(PAGE);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    static FIRST: [u32; 3000] = [7; 3000];

    #[test]
    fn what_workers_have_changed_stays_and_the_rest_comes() {
        let (low, high) = (5, 9 << 32);
        assert_eq!(merged(0, low | high, 0), low | high);
        assert_eq!(merged(0, low, high), low | high, "a neighbour");
        assert_eq!(merged(0, low | high, 6), 6 | high, "the worker's half stays");
        assert_eq!(merged(low, 0, low), 0);
    }

    #[test]
    fn pages_are_compared_to_their_last_word() {
        let mut page = [3; WORDS];
        assert!(same(&page, &[3; WORDS]));
        page[WORDS - 1] = 4;
        assert!(!same(&page, &[3; WORDS]));
    }

    #[test]
    fn a_page_takes_what_is_different_between_two_versions() {
        let now: Now = std::array::from_fn(|index| AtomicU64::new(index as u64));
        now[3].store(1000, Ordering::Relaxed);
        let old: Page = std::array::from_fn(|index| index as u64);
        let mut new = old;
        (new[2], new[3], new[511]) = (20, 30, 0);
        change(&now, &old, &new);
        let now: Vec<u64> = now.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!((now[2], now[3], now[4], now[511]), (20, 1000, 4, 0));
    }

    #[test]
    fn the_program_s_file_says_what_stood_in_a_page_at_first() {
        let address = (&raw const FIRST).addr().next_multiple_of(PAGE);
        let part = FilePart::of(address);
        assert!(!part.is_zero_at_first(address), "{part:?}");
        let page = part.first_content(address).unwrap();
        assert!(page.iter().all(|word| *word == 7 << 32 | 7), "{page:?}");
    }
}
