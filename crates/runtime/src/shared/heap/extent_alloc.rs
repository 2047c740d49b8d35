//! A stretch of address space, given out from its beginning; what comes back is given out again.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers of pages from one on; those before `next` that are not free are in use.
#[derive(Debug)]
pub(in crate::shared) struct ExtentAllocator {
    next: u64,
    end: u64,
    /// What is free before `next`, by its first page: no two lie side by side, and none ends at `next`.
    free: BTreeMap<u64, u64>,
    /// The same by size.
    sizes: BTreeSet<(u64, u64)>,
}

impl ExtentAllocator {
    pub(in crate::shared) fn new(start: u64, end: u64) -> ExtentAllocator {
        ExtentAllocator { next: start, end, free: BTreeMap::new(), sizes: BTreeSet::new() }
    }

    /// So many pages, from a multiple of `align` on: the smallest free place that takes them, else what nobody has had.
    pub(in crate::shared) fn take(&mut self, pages: u64, align: u64) -> Option<u64> {
        let place = |(count, first): &(u64, u64)| {
            let at = first.next_multiple_of(align);
            (at + pages <= first + count).then_some((*first, *count, at))
        };
        if let Some((first, count, at)) = self.sizes.range((pages, 0)..).find_map(place) {
            self.remove(first, count);
            self.insert(first, at - first);
            self.insert(at + pages, first + count - at - pages);
            return Some(at);
        }
        let at = self.next.next_multiple_of(align);
        let end = at.checked_add(pages).filter(|end| *end <= self.end)?;
        let before = std::mem::replace(&mut self.next, end);
        self.insert(before, at - before);
        Some(at)
    }

    /// Pages that were taken, and are free now.
    pub(in crate::shared) fn give(&mut self, mut first: u64, mut count: u64) {
        if let Some((before, pages)) = self.free.range(..first).next_back().map(|(at, pages)| (*at, *pages))
            && before + pages == first
        {
            self.remove(before, pages);
            (first, count) = (before, pages + count);
        }
        if let Some(pages) = self.free.get(&(first + count)).copied() {
            self.remove(first + count, pages);
            count += pages;
        }
        if first + count == self.next {
            self.next = first;
        } else {
            self.insert(first, count);
        }
    }

    /// Pages that nobody has had yet.
    pub(in crate::shared) fn unused(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    fn insert(&mut self, first: u64, count: u64) {
        if count > 0 {
            self.free.insert(first, count);
            self.sizes.insert((count, first));
        }
    }

    fn remove(&mut self, first: u64, count: u64) {
        self.free.remove(&first);
        self.sizes.remove(&(count, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::faults::Rng;

    /// Places that were used for small allocations were never one for a larger one: all was free, and there was no
    /// room.
    #[test]
    fn what_is_free_side_by_side_is_one_place() {
        let mut stretch = ExtentAllocator::new(16, 116);
        for pages in 1..=100 {
            let at = stretch.take(pages, 1).unwrap();
            stretch.give(at, pages);
        }
        let three: Vec<u64> = (0..3).map(|_| stretch.take(33, 1).unwrap()).collect();
        assert_eq!((&three[..], stretch.unused(), stretch.take(2, 1)), (&[16, 49, 82][..], 1, None));
        stretch.give(16, 33);
        stretch.give(82, 33);
        stretch.give(49, 33);
        assert_eq!((stretch.unused(), stretch.take(100, 16)), (100, Some(16)));
    }

    #[test]
    fn what_alignment_leaves_out_is_free() {
        let mut stretch = ExtentAllocator::new(1, 64);
        assert_eq!(
            [(8, 32), (4, 4), (1, 1), (20, 1)].map(|(n, align)| stretch.take(n, align)),
            [32, 4, 1, 8].map(Some)
        );
        stretch.give(32, 8);
        assert_eq!(stretch.take(4, 16), Some(32));
    }

    #[test]
    fn no_page_is_given_to_two_and_all_come_back() {
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let mut stretch = ExtentAllocator::new(5, 500);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for _ in 0..400 {
                let (pages, align) = (1 + rng.below(40), 1 << rng.below(5));
                match stretch.take(pages, align) {
                    Some(at) if rng.below(5) > 0 => {
                        let apart = |(first, count): &(u64, u64)| at + pages <= *first || first + count <= at;
                        assert!(at >= 5 && at + pages <= 500 && at.is_multiple_of(align) && taken.iter().all(apart));
                        taken.push((at, pages));
                    }
                    Some(at) => stretch.give(at, pages),
                    None => taken.drain(..taken.len() / 2).for_each(|(first, count)| stretch.give(first, count)),
                }
                let used: u64 = taken.iter().map(|(_, count)| count).sum();
                assert_eq!(used + stretch.unused() + stretch.free.values().sum::<u64>(), 495);
            }
            taken.drain(..).for_each(|(first, count)| stretch.give(first, count));
            assert_eq!((stretch.unused(), stretch.free.len(), stretch.sizes.len()), (495, 0, 0));
        }
    }
}
