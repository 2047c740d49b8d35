//! Regions that were freed.
//!
//! Their addresses are not used again as long as there are others, so that whoever still touches them meets the mark
//! that they were freed, and so does what is still on its way: diffs, fetches and their answers, the news of the free
//! itself. What is known of a region takes a kilobyte and more, and programs free millions. So when many lie here, two
//! barriers of all threads have passed since the last of them was freed, and nothing of them is being fetched, the
//! oldest *fall*: of these no more is known than that they were freed, and where they lay side by side that is one
//! entry for all.
//!
//! Who finds no other room, all nodes together or one for itself, takes what has fallen on every node and what
//! nobody's tables say anything of any more ([`crate::shared::heap::address_reuse`]).

use comem_protocol::coherence::pages::kept_diffs::Stamp;
use comem_protocol::coherence::pages::{CHUNK_PAGES, PageNo};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// As many chunks of freed regions are remembered with all that they cost, for reports and messages.
const KEPT_CHUNKS: u32 = 1024;
/// What was under way at a free is over after so many barriers.
const BARRIERS: u32 = 2;

/// The freed regions of a node.
#[derive(Debug, Default)]
pub(in crate::shared) struct FreedRegions {
    /// With the epoch in which they were freed, the oldest first, and whether their addresses may be used again.
    kept: VecDeque<(u32, Range<PageNo>, bool)>,
    chunks: u32,
    /// Runs that have fallen.
    fallen: Runs,
    /// Those among them whose addresses may be used again.
    again: Runs,
}

/// Runs of pages that do not touch, by their first pages.
#[derive(PartialEq, Eq, Debug, Default)]
struct Runs(BTreeMap<PageNo, PageNo>);

impl Runs {
    fn add(&mut self, mut pages: Range<PageNo>) {
        if let Some((start, end)) = self.0.range(..pages.start).next_back().map(|(s, e)| (*s, *e))
            && end == pages.start
        {
            pages.start = start;
        }
        if let Some(end) = self.0.remove(&pages.end) {
            pages.end = end;
        }
        self.0.insert(pages.start, pages.end);
    }

    /// The run with this page.
    fn around(&self, page: PageNo) -> Option<Range<PageNo>> {
        self.0.range(..=page).next_back().map(|(start, end)| *start..*end).filter(|run| run.contains(&page))
    }

    /// Takes out pages of one run.
    fn remove(&mut self, pages: &Range<PageNo>) {
        let Some(run) = self.around(pages.start) else { return };
        self.0.remove(&run.start);
        for left in [run.start..pages.start, pages.end..run.end] {
            if !left.is_empty() {
                self.0.insert(left.start, left.end);
            }
        }
    }

    /// The parts of runs within a range.
    fn parts(&self, within: &Range<PageNo>) -> impl Iterator<Item = Range<PageNo>> {
        let before = self.around(within.start).into_iter();
        let behind = self.0.range(within.start.saturating_add(1)..within.end.max(within.start.saturating_add(1)));
        let (start, end) = (within.start, within.end);
        before.chain(behind.map(|(start, end)| *start..*end)).map(move |run| run.start.max(start)..run.end.min(end))
    }

    /// Where the first so many pages lie within a range that begin at a multiple of `align`.
    fn place(&self, within: &Range<PageNo>, pages: u64, align: u64) -> Option<PageNo> {
        let first = |run: &Range<PageNo>| u64::from(run.start).next_multiple_of(align);
        let mut fitting = self.parts(within).filter(|run| first(run) + pages <= u64::from(run.end));
        fitting.next().map(|run| first(&run) as PageNo)
    }
}

/// Places that are about to be used again, by their first pages, with their ends and the stamps up to which what is
/// said of them is about what was there before.
#[derive(Debug, Default)]
pub(in crate::shared) struct Births(BTreeMap<PageNo, (PageNo, Stamp)>);

impl Births {
    /// These pages are used again.
    pub(in crate::shared) fn add(&mut self, pages: Range<PageNo>, stamp: Stamp) {
        self.0.insert(pages.start, (pages.end, stamp));
    }

    /// A region with these pages comes into being: the stamp, 0 where its place is new.
    pub(in crate::shared) fn take(&mut self, pages: &Range<PageNo>) -> Stamp {
        let within = |(start, (end, _)): (&PageNo, &(PageNo, Stamp))| (*end > pages.start).then_some(*start);
        let met: Vec<PageNo> = self.0.range(..pages.end).filter_map(within).collect();
        met.iter().filter_map(|start| self.0.remove(start)).map(|(_, stamp)| stamp).max().unwrap_or(0)
    }
}

fn chunks_of(pages: &Range<PageNo>) -> u32 {
    (pages.end - pages.start).div_ceil(CHUNK_PAGES)
}

impl FreedRegions {
    /// A region was freed. May its addresses be used again?
    pub(in crate::shared) fn add(&mut self, epoch: u32, pages: Range<PageNo>, again: bool) {
        self.chunks += chunks_of(&pages);
        self.kept.push_back((epoch, pages, again));
    }

    /// In this epoch, which has just begun: appends the first pages of the regions that fall. A region stays, and later
    /// ones with it, as long as something of it is awaited.
    pub(in crate::shared) fn fall(
        &mut self,
        epoch: u32,
        is_awaited: impl Fn(PageNo) -> bool,
        first_pages: &mut Vec<PageNo>,
    ) {
        self.fall_but(KEPT_CHUNKS, epoch, is_awaited, first_pages);
    }

    /// As [`FreedRegions::fall`], of all that may.
    pub(in crate::shared) fn all_fall(
        &mut self,
        epoch: u32,
        is_awaited: impl Fn(PageNo) -> bool,
        first_pages: &mut Vec<PageNo>,
    ) {
        self.fall_but(0, epoch, is_awaited, first_pages);
    }

    fn fall_but(
        &mut self,
        chunks: u32,
        epoch: u32,
        is_awaited: impl Fn(PageNo) -> bool,
        first_pages: &mut Vec<PageNo>,
    ) {
        while let Some((freed, pages, again)) = self.kept.front().filter(|_| self.chunks > chunks).cloned() {
            if epoch.wrapping_sub(freed) < BARRIERS || is_awaited(pages.start) {
                return;
            }
            self.kept.pop_front();
            self.chunks -= chunks_of(&pages);
            first_pages.push(pages.start);
            if again {
                self.again.add(pages.clone());
            }
            self.fallen.add(pages);
        }
    }

    /// The first pages of the regions that have not fallen.
    pub(in crate::shared) fn kept(&self) -> impl Iterator<Item = PageNo> {
        self.kept.iter().map(|(_, pages, _)| pages.start)
    }

    /// Whether a region with this page was freed and has fallen.
    pub(in crate::shared) fn has_fallen(&self, page: PageNo) -> bool {
        self.fallen_around(page).is_some()
    }

    /// All pages in a row around this one of regions that have fallen.
    pub(in crate::shared) fn fallen_around(&self, page: PageNo) -> Option<Range<PageNo>> {
        self.fallen.around(page)
    }

    /// Where so many pages could be used again: the first place within a range.
    pub(in crate::shared) fn place(&self, within: &Range<PageNo>, pages: u64, align: u64) -> Option<PageNo> {
        self.again.place(within, pages, align)
    }

    /// As [`FreedRegions::place`]; the place is no other's until it is used or put back.
    pub(in crate::shared) fn take_place(&mut self, within: &Range<PageNo>, pages: u64, align: u64) -> Option<PageNo> {
        let place = self.place(within, pages, align)?;
        self.again.remove(&(place..place + pages as PageNo));
        Some(place)
    }

    /// A place that was taken is not used after all.
    pub(in crate::shared) fn put_back(&mut self, pages: Range<PageNo>) {
        self.again.add(pages);
    }

    /// Whether all of these pages that were freed and have fallen may be used again.
    pub(in crate::shared) fn may_be_used(&self, pages: &Range<PageNo>) -> bool {
        let within_again = |part: Range<PageNo>| self.again.around(part.start).is_some_and(|run| part.end <= run.end);
        self.fallen.parts(pages).filter(|part| !part.is_empty()).all(within_again)
    }

    /// These pages, which could be, are used again.
    pub(in crate::shared) fn reuse(&mut self, pages: &Range<PageNo>) {
        self.again.remove(pages);
        self.fallen.remove(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_fall_when_there_are_many_and_two_barriers_have_passed() {
        let mut regions = FreedRegions::default();
        let fall = |regions: &mut FreedRegions, epoch| {
            let mut fallen = Vec::new();
            regions.fall(epoch, |_| false, &mut fallen);
            fallen
        };
        (0..KEPT_CHUNKS + 3).for_each(|n| regions.add(7 + u32::from(n == 2), n * 10..n * 10 + 5, false));
        assert!(fall(&mut regions, 8).is_empty());
        assert_eq!(fall(&mut regions, 9), [0, 10], "the third was freed an epoch later");
        assert_eq!(fall(&mut regions, 10), [20]);
        assert!(fall(&mut regions, 90).is_empty(), "so many stay");
        let fallen: Vec<PageNo> = (0..40).filter(|page| regions.has_fallen(*page)).collect();
        assert_eq!(fallen, (0..5).chain(10..15).chain(20..25).collect::<Vec<_>>());
    }

    #[test]
    fn those_that_lay_side_by_side_are_one_entry() {
        let mut runs = Runs::default();
        for at in [3, 1, 2, 5, 4, 9] {
            runs.add(at * 512..(at + 1) * 512);
        }
        assert_eq!(runs, Runs(BTreeMap::from([(512, 6 * 512), (9 * 512, 10 * 512)])));
    }

    #[test]
    fn a_large_region_counts_by_its_chunks() {
        let mut regions = FreedRegions::default();
        regions.add(0, 0..(KEPT_CHUNKS + 1) * CHUNK_PAGES, false);
        let mut fallen = Vec::new();
        regions.fall(2, |_| false, &mut fallen);
        assert_eq!(fallen, [0]);
    }

    #[test]
    fn what_is_awaited_stays_and_what_was_freed_later_with_it() {
        let (mut regions, mut fallen) = (FreedRegions::default(), Vec::new());
        (1..4).for_each(|n| regions.add(n, n * 10..n * 10 + 5, true));
        regions.all_fall(9, |page| page == 20, &mut fallen);
        assert_eq!((fallen.clone(), regions.place(&(11..99), 5, 1)), (vec![10], None));
        regions.all_fall(9, |_| false, &mut fallen);
        assert_eq!((fallen, regions.place(&(11..99), 5, 1)), (vec![10, 20, 30], Some(20)));
    }

    #[test]
    fn what_has_fallen_and_may_be_used_again_is_found_by_its_place_and_is_freed_no_more_when_it_is() {
        let mut regions = FreedRegions::default();
        let mut fallen = Vec::new();
        for (first, again) in [(100, true), (110, true), (120, false), (130, true), (200, true)] {
            regions.add(first / 200, first..first + 10, again);
        }
        assert_eq!(regions.place(&(0..999), 1, 1), None, "nothing has fallen");
        regions.all_fall(2, |_| false, &mut fallen);
        assert_eq!(fallen, [100, 110, 120, 130], "the last was freed an epoch later");
        let place = |regions: &FreedRegions, from, pages, align| regions.place(&(from..999), pages, align);
        assert_eq!(place(&regions, 0, 20, 1), Some(100), "over two that lie side by side");
        assert_eq!(place(&regions, 0, 21, 1), None);
        assert_eq!((place(&regions, 0, 16, 8), place(&regions, 0, 17, 8)), (Some(104), None));
        assert_eq!((place(&regions, 105, 15, 1), place(&regions, 106, 15, 1)), (Some(105), None));
        assert_eq!((place(&regions, 121, 10, 1), place(&regions, 131, 10, 1)), (Some(130), None));
        regions.reuse(&(104..106));
        let freed: Vec<PageNo> = (95..145).filter(|page| regions.has_fallen(*page)).collect();
        assert_eq!(freed, (100..104).chain(106..140).collect::<Vec<_>>());
        assert_eq!((place(&regions, 0, 5, 1), place(&regions, 0, 4, 1)), (Some(106), Some(100)));
        regions.reuse(&(106..120));
        assert_eq!(place(&regions, 101, 3, 1), Some(101));
        assert_eq!(place(&regions, 102, 3, 1), Some(130));
        assert_eq!([109, 110].map(|end| regions.place(&(99..end), 4, 1)), [Some(100); 2], "within a range");
        assert_eq!([132, 133].map(|end| regions.place(&(120..end), 3, 1)), [None, Some(130)]);
    }

    #[test]
    fn a_region_where_another_was_is_born_at_the_last_barrier_before_it() {
        let mut births = Births::default();
        [(100..110, 7), (110..120, 9), (200..210, 3)].into_iter().for_each(|(pages, stamp)| births.add(pages, stamp));
        assert_eq!([90..100, 120..200].map(|pages| births.take(&pages)), [0, 0], "new places");
        assert_eq!([100..120, 100..120].map(|pages| births.take(&pages)), [9, 0], "each once");
        births.add(200..205, 8);
        assert_eq!(births.take(&(200..201)), 8);
    }

    #[test]
    fn a_place_is_taken_by_one_and_may_be_used_where_all_that_fell_may() {
        let mut regions = FreedRegions::default();
        [(100, true), (110, false), (120, true)].into_iter().for_each(|(at, again)| regions.add(0, at..at + 10, again));
        regions.all_fall(2, |_| false, &mut Vec::new());
        let used = [90..100, 100..110, 95..105, 105..115, 110..120, 120..140, 200..210];
        let may = used.map(|pages| regions.may_be_used(&pages));
        assert_eq!(may, [true, true, true, false, false, true, true]);
        assert_eq!([1, 2].map(|_| regions.take_place(&(0..110), 6, 1)), [Some(100), None]);
        assert!(!regions.may_be_used(&(100..106)) && regions.has_fallen(100), "another thread is about to use it");
        regions.put_back(100..106);
        assert_eq!(regions.take_place(&(0..110), 10, 1), Some(100));
    }
}
