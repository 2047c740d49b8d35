//! Which pages have ever been mapped: one bit a page, paid for where it is used.
//!
//! To the kernel a page that was never mapped looks like one that was written and then unmapped: neither has a
//! protected entry. This is the difference; it also spares the scan of stretches where nothing can have been written.

use super::PageNo;
use crate::mapping::Mapping;
use comem_protocol::coherence::pages::GAP_LOOK;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gaps shorter than this (one page table's worth) are scanned along where every note is to be taken.
const GAP_PAGES: u32 = 512;

/// A set of pages, for use by many threads.
#[derive(Debug)]
pub struct PageSet {
    bits: Mapping,
    pages: u32,
}

impl PageSet {
    /// The empty set for an arena of so many pages.
    pub fn new(pages: u32) -> io::Result<PageSet> {
        Ok(PageSet { bits: Mapping::new(pages.div_ceil(64) as usize * 8)?, pages })
    }

    fn word(&self, index: u32) -> &AtomicU64 {
        assert!(index < self.pages.div_ceil(64));
        // SAFETY: the mapping is page-aligned, zero at first, as many words long, and accessed in no other way.
        unsafe { AtomicU64::from_ptr(self.bits.start().cast::<u64>().add(index as usize)) }
    }

    /// Adds pages.
    pub fn insert(&self, pages: Range<PageNo>) {
        for (index, mask) in words(pages) {
            let word = self.word(index);
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Removes pages.
    pub fn remove(&self, pages: Range<PageNo>) {
        for (index, mask) in words(pages) {
            let word = self.word(index);
            if word.load(Ordering::Relaxed) & mask != 0 {
                word.fetch_and(!mask, Ordering::Relaxed);
            }
        }
    }

    /// The first page in the range that is in the set, or is not (`flip` all ones); the range's end if there is none.
    fn find(&self, pages: Range<PageNo>, flip: u64) -> PageNo {
        let end = pages.end;
        words(pages)
            .map(|(index, mask)| (index, (self.word(index).load(Ordering::Relaxed) ^ flip) & mask))
            .find(|(_, found)| *found != 0)
            .map_or(end, |(index, found)| index * 64 + found.trailing_zeros())
    }

    /// The runs of the set within the range.
    pub fn runs(&self, pages: Range<PageNo>) -> impl Iterator<Item = Range<PageNo>> + '_ {
        let mut at = pages.start;
        std::iter::from_fn(move || {
            let start = self.find(at..pages.end, 0);
            at = self.find(start..pages.end, u64::MAX);
            (start < at).then_some(start..at)
        })
    }

    /// The range in stretches that can be scanned each in one go: all of it when it is no longer than a page table, so
    /// that every note in it is taken sooner or later, else without long gaps.
    pub fn hulls(&self, pages: Range<PageNo>) -> impl Iterator<Item = Range<PageNo>> + '_ {
        let short = pages.end - pages.start <= GAP_PAGES;
        let whole = (short && !pages.is_empty()).then(|| pages.clone());
        whole.into_iter().chain(self.stretches(if short { pages.end..pages.end } else { pages }, GAP_PAGES))
    }

    /// As [`PageSet::runs`], but runs so close to each other become one that to leave the gap out would save nothing.
    pub fn spans(&self, pages: Range<PageNo>) -> impl Iterator<Item = Range<PageNo>> + '_ {
        self.stretches(pages, GAP_LOOK)
    }

    /// The runs, joined over gaps shorter than `gap`. It takes as long as there are words in the range, however many
    /// runs are in them.
    fn stretches(&self, pages: Range<PageNo>, gap: u32) -> impl Iterator<Item = Range<PageNo>> + '_ {
        let filled = words(pages)
            .map(|(index, mask)| (index, self.word(index).load(Ordering::Relaxed) & mask))
            .filter(|(_, bits)| *bits != 0)
            .map(|(index, bits)| index * 64 + bits.trailing_zeros()..(index + 1) * 64 - bits.leading_zeros());
        let mut filled = filled.peekable();
        std::iter::from_fn(move || {
            let mut span = filled.next()?;
            while let Some(next) = filled.next_if(|next| next.start - span.end < gap) {
                span.end = next.end;
            }
            Some(span)
        })
    }
}

/// The words that a range touches, with the bits in each.
fn words(pages: Range<PageNo>) -> impl Iterator<Item = (u32, u64)> {
    let indexes = if pages.is_empty() { 0..0 } else { pages.start / 64..(pages.end - 1) / 64 + 1 };
    indexes.map(move |index| {
        let first = if index == pages.start / 64 { pages.start % 64 } else { 0 };
        let last = if index == (pages.end - 1) / 64 { (pages.end - 1) % 64 } else { 63 };
        (index, (u64::MAX << first) & (u64::MAX >> (63 - last)))
    })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of runs, often of one
mod tests {
    use super::*;

    fn set(runs: &[Range<u32>]) -> PageSet {
        let set = PageSet::new(10_000).unwrap();
        runs.iter().for_each(|run| set.insert(run.clone()));
        set
    }

    #[test]
    fn runs_are_what_was_put_in_and_not_taken_out() {
        let set = set(&[3..5, 60..200, 9_999..10_000]);
        set.remove(64..128);
        set.remove(130..131);
        assert_eq!(set.runs(0..10_000).collect::<Vec<_>>(), [3..5, 60..64, 128..130, 131..200, 9_999..10_000]);
        assert_eq!(set.runs(4..62).collect::<Vec<_>>(), [4..5, 60..62]);
        assert_eq!(set.runs(5..60).next(), None);
        assert_eq!(set.runs(70..70).next(), None);
    }

    #[test]
    fn pages_of_which_some_are_in_the_set_all_come_in_and_all_go_out() {
        let set = set(&[3..5, 60..70, 4..8, 0..0]);
        assert_eq!(set.runs(0..10_000).collect::<Vec<_>>(), [3..8, 60..70]);
        set.insert(0..128);
        assert_eq!(set.runs(0..10_000).collect::<Vec<_>>(), [0..128]);
        set.remove(1..64);
        set.remove(0..127);
        assert_eq!((set.runs(0..10_000).collect::<Vec<_>>(), set.runs(0..0).next()), (vec![127..128], None));
    }

    #[test]
    #[should_panic(expected = "index < self.pages")]
    fn there_are_no_pages_behind_the_last_word() {
        PageSet::new(100).unwrap().insert(100..200);
    }

    #[test]
    fn a_short_range_is_one_hull_and_a_long_one_leaves_long_gaps_out() {
        let set = set(&[100..101, 5_000..5_001]);
        assert_eq!(set.hulls(0..512).collect::<Vec<_>>(), [0..512]);
        assert_eq!(set.hulls(512..1_024).collect::<Vec<_>>(), [512..1_024], "where nothing is known, too");
        assert_eq!(set.hulls(0..10_000).collect::<Vec<_>>(), [100..101, 5_000..5_001]);
        assert_eq!(set.hulls(7..7).next(), None);
    }

    #[test]
    fn stretches_join_what_lies_close_and_skip_long_gaps() {
        let set = set(&[0..1, 128..129, 257..258, 769..770, 1_282..1_283]);
        assert_eq!(set.hulls(0..10_000).collect::<Vec<_>>(), [0..770, 1_282..1_283]);
        assert_eq!(set.spans(0..10_000).collect::<Vec<_>>(), [0..129, 257..258, 769..770, 1_282..1_283]);
    }
}
