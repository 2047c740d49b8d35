//! Regions that were freed.
//!
//! Their addresses are not used again, so that whoever still touches them meets the mark that they were freed, and so does what is still on its way: diffs,
//! fetches, the news of the free itself. What is known of a region takes a kilobyte and more, and programs free millions. So when many lie here, and
//! two barriers of all threads have passed since the last of them was freed, the oldest *fall*: of these no more is known than that they
//! were freed, and where they lay side by side that is one entry for all.

use comem_protocol::coherence::pages::{CHUNK_PAGES, PageNo};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// As many chunks of freed regions are remembered with all that they cost, for reports and messages.
const KEPT_CHUNKS: u32 = 1024;
/// What was under way at a free is over after so many barriers.
const BARRIERS: u32 = 2;

/// The freed regions of a node.
#[derive(Debug, Default)]
pub(super) struct Graves {
    /// With the epoch in which they were freed, the oldest first.
    kept: VecDeque<(u32, Range<PageNo>)>,
    chunks: u32,
    /// Runs that have fallen, by their first pages.
    fallen: BTreeMap<PageNo, PageNo>,
}

fn chunks_of(pages: &Range<PageNo>) -> u32 {
    (pages.end - pages.start).div_ceil(CHUNK_PAGES)
}

impl Graves {
    /// A region was freed.
    pub(super) fn add(&mut self, epoch: u32, pages: Range<PageNo>) {
        self.chunks += chunks_of(&pages);
        self.kept.push_back((epoch, pages));
    }

    /// An epoch has begun: appends the first pages of the regions that fall.
    pub(super) fn fall(&mut self, epoch: u32, first_pages: &mut Vec<PageNo>) {
        while let Some((freed, pages)) = self.kept.front().filter(|_| self.chunks > KEPT_CHUNKS).cloned() {
            if epoch.wrapping_sub(freed) < BARRIERS {
                return;
            }
            self.kept.pop_front();
            self.chunks -= chunks_of(&pages);
            first_pages.push(pages.start);
            self.unite(pages);
        }
    }

    fn unite(&mut self, mut pages: Range<PageNo>) {
        if let Some((start, end)) = self.fallen.range(..pages.start).next_back().map(|(s, e)| (*s, *e))
            && end == pages.start
        {
            pages.start = start;
        }
        if let Some(end) = self.fallen.remove(&pages.end) {
            pages.end = end;
        }
        self.fallen.insert(pages.start, pages.end);
    }

    /// Whether a region with this page was freed and has fallen.
    pub(super) fn has_fallen(&self, page: PageNo) -> bool {
        self.fallen.range(..=page).next_back().is_some_and(|(_, end)| page < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_fall_when_there_are_many_and_two_barriers_have_passed() {
        let mut graves = Graves::default();
        let fall = |graves: &mut Graves, epoch| {
            let mut fallen = Vec::new();
            graves.fall(epoch, &mut fallen);
            fallen
        };
        (0..KEPT_CHUNKS + 3).for_each(|n| graves.add(7 + u32::from(n == 2), n * 10..n * 10 + 5));
        assert!(fall(&mut graves, 8).is_empty());
        assert_eq!(fall(&mut graves, 9), [0, 10], "the third was freed an epoch later");
        assert_eq!(fall(&mut graves, 10), [20]);
        assert!(fall(&mut graves, 90).is_empty(), "so many stay");
        let fallen: Vec<PageNo> = (0..40).filter(|page| graves.has_fallen(*page)).collect();
        assert_eq!(fallen, (0..5).chain(10..15).chain(20..25).collect::<Vec<_>>());
    }

    #[test]
    fn those_that_lay_side_by_side_are_one_entry() {
        let mut graves = Graves::default();
        for at in [3, 1, 2, 5, 4, 9] {
            graves.unite(at * 512..(at + 1) * 512);
        }
        assert_eq!(graves.fallen, BTreeMap::from([(512, 6 * 512), (9 * 512, 10 * 512)]));
    }

    #[test]
    fn a_large_region_counts_by_its_chunks() {
        let mut graves = Graves::default();
        graves.add(0, 0..(KEPT_CHUNKS + 1) * CHUNK_PAGES);
        let mut fallen = Vec::new();
        graves.fall(2, &mut fallen);
        assert_eq!(fallen, [0]);
    }
}
