//! Which stretches of pages were scanned for nothing, and for how long.
//!
//! The end of an interval looks at the kernel's notes of all pages that may have been written and matter, by a call for
//! each stretch of them. Most calls find nothing: they are for pages that were in use once. A stretch of which the
//! looks in a row that found nothing have cost as much as to untrack it and have it back is untracked
//! ([`PageTable::untrack_idle`](crate::coherence::pages::page_table::PageTable::untrack_idle)). One that comes
//! back before that has paid is left alone for twice as long the next time, one that stays away for longer half as
//! long.

use super::Predictor;
use crate::coherence::pages::PageNo;
use crate::tuning::CacheTuning;
use std::ops::Range;

/// Stretches that are followed at a time.
const STRETCHES_FOLLOWED: usize = 1024;

/// Longer stretches are followed in parts, cut at its multiples.
const PART: PageNo = 512;

#[derive(Clone, Copy, Default, Debug)]
struct Stretch {
    pages: (PageNo, PageNo),
    /// What looks in a row that found nothing have cost, in nanoseconds.
    spent: u64,
    /// When that is so many quarters of a return, it is untracked; 0: nothing is followed here.
    quarters: u32,
    /// What a look cost when it was untracked, and the close in which that was; until it is looked at again.
    untracked: Option<(u64, u32)>,
}

impl Stretch {
    fn new(tuning: &CacheTuning, (first, end): (PageNo, PageNo)) -> Stretch {
        Stretch { pages: (first, end), quarters: tuning.quarters, ..Stretch::default() }
    }

    /// In nanoseconds. Pages come back by ones or by sixteens, some of them.
    fn cost_of_return(&self, tuning: &CacheTuning) -> u64 {
        tuning.return_ns + u64::from(self.pages.1 - self.pages.0) * tuning.return_page_ns
    }

    /// The next look is in this close: if it was untracked, that has paid or has not.
    fn is_looked_at(&mut self, tuning: &CacheTuning, close: u32) {
        let Some((cost, untracked)) = self.untracked.take() else { return };
        let paid = cost * u64::from(close.wrapping_sub(untracked)) >= self.cost_of_return(tuning);
        let quarters = if paid { self.quarters / 2 } else { self.quarters.saturating_mul(2) };
        self.quarters = quarters.min(tuning.quarters_max).max(tuning.quarters_min);
    }

    /// A look in this close, which cost so much, has found nothing; says whether it is time to untrack it.
    fn costs_more_than_return(&mut self, tuning: &CacheTuning, cost: u64, close: u32) -> bool {
        self.spent += cost;
        let scan_cost = self.spent * 4 >= self.cost_of_return(tuning) * u64::from(self.quarters);
        if scan_cost {
            (self.spent, self.untracked) = (0, Some((cost, close)));
        }
        scan_cost
    }
}

/// What the ends of intervals have found where.
#[derive(Debug)]
pub struct ScanCost {
    stretches: Box<[Stretch; STRETCHES_FOLLOWED]>,
    tuning: CacheTuning,
}

impl Default for ScanCost {
    fn default() -> ScanCost {
        ScanCost::new(CacheTuning::DEFAULT)
    }
}

impl ScanCost {
    /// Counts by these numbers.
    pub fn new(tuning: CacheTuning) -> ScanCost {
        ScanCost { stretches: Box::new([Stretch::default(); STRETCHES_FOLLOWED]), tuning }
    }

    fn part(&mut self, pages: (PageNo, PageNo), found: bool, cost: u64, close: u32) -> bool {
        let this = &mut self.stretches[(pages.0.wrapping_mul(0x9e37_79b9) >> 16) as usize % STRETCHES_FOLLOWED];
        if this.quarters == 0 || this.pages.0 != pages.0 {
            *this = Stretch::new(&self.tuning, pages);
        }
        this.is_looked_at(&self.tuning, close);
        if found || this.pages != pages {
            (this.pages, this.spent) = (pages, 0);
            return false;
        }
        this.costs_more_than_return(&self.tuning, cost, close)
    }
}

/// A look of a close at a stretch.
#[derive(Debug)]
pub struct Look<'a> {
    /// The stretch.
    pub pages: &'a Range<PageNo>,
    /// What was found in it.
    pub found: &'a [Range<PageNo>],
    /// The close, as they are counted.
    pub close: u32,
    /// What it is time to untrack goes here.
    pub untracked: &'a mut Vec<Range<PageNo>>,
}

impl Predictor for ScanCost {
    type Numbers = ();
    /// It learns from what it is asked.
    type Event<'a> = ();
    type Query<'a> = Look<'a>;
    type Prediction = ();

    fn is_on(&self, (): &()) -> bool {
        self.tuning.scan_cost
    }

    fn answer(&mut self, (): &(), Look { pages, found, close, untracked }: Look<'_>) {
        let (mut first, mut call) = (pages.start, self.tuning.look_ns);
        while first < pages.end {
            let long = pages.end - pages.start > PART;
            let end = if long { pages.end.min((first / PART + 1) * PART) } else { pages.end };
            let found = found.iter().any(|run| run.start < end && first < run.end);
            let cost = std::mem::take(&mut call) + u64::from(end - first) * self.tuning.look_page_ns;
            if self.part((first, end), found, cost, close) {
                untracked.push(first..end);
            }
            first = end;
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of runs, often of one
mod tests {
    use super::*;

    /// Looks at the closes after each other, none of which finds anything.
    struct Looks {
        scan_cost: ScanCost,
        close: u32,
    }

    impl Looks {
        fn new() -> Looks {
            Looks { scan_cost: ScanCost::default(), close: 0 }
        }

        fn look(&mut self, pages: &Range<PageNo>, found: &[Range<PageNo>]) -> Vec<Range<PageNo>> {
            let mut untracked = Vec::new();
            let look = Look { pages, found, close: self.close, untracked: &mut untracked };
            self.scan_cost.predict(&(), look);
            self.close += 1;
            untracked
        }

        /// How many it takes until something is untracked, and what.
        fn until_untracked(&mut self, pages: &Range<PageNo>) -> (u32, Vec<Range<PageNo>>) {
            let begin = self.close;
            loop {
                let untracked = self.look(pages, &[]);
                assert!(self.close - begin < 100_000);
                if !untracked.is_empty() {
                    return (self.close - begin, untracked);
                }
            }
        }
    }

    #[test]
    fn a_stretch_that_comes_back_at_once_is_left_alone_for_twice_as_long() {
        let (mut looks, pages) = (Looks::new(), 7..8);
        assert_eq!(looks.until_untracked(&pages).0, 11);
        assert_eq!(looks.until_untracked(&pages).0, 21);
        assert_eq!(looks.until_untracked(&(1_000..1_064)).0, 15, "more of it would come back");
        assert_eq!((0..20).map(|_| looks.until_untracked(&pages).0).last(), Some(2_586));
    }

    #[test]
    fn one_that_has_stayed_away_for_long_is_untracked_sooner() {
        let (mut looks, pages) = (Looks::new(), 7..8);
        for so_many in [11, 6, 3, 3] {
            assert_eq!(looks.until_untracked(&pages), (so_many, vec![pages.clone()]));
            looks.close += 100;
        }
    }

    #[test]
    fn of_a_long_stretch_the_parts_that_are_not_written_are_untracked() {
        let mut looks = Looks::new();
        let (pages, written) = (5_000..6_300, 5_200..5_201);
        let mut untracked = Vec::new();
        for _ in 0..50 {
            untracked.append(&mut looks.look(&pages, std::slice::from_ref(&written)));
        }
        assert_eq!(untracked, [5_000..5_120, 5_632..6_144, 6_144..6_300]);
    }

    #[test]
    fn what_was_written_or_has_grown_is_looked_at_from_the_beginning() {
        let mut looks = Looks::new();
        assert!((0..10).all(|_| looks.look(&(7..8), &[]).is_empty()));
        assert!(looks.look(&(7..8), &[7..8]).is_empty());
        assert!((0..10).all(|_| looks.look(&(7..8), &[]).is_empty()));
        assert!(looks.look(&(7..9), &[]).is_empty(), "another stretch");
        assert_eq!(looks.until_untracked(&(7..9)).0, 11);
    }
}
