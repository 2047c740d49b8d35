//! A node's own intervals under `scope`, and which intervals of others it has applied.
//!
//! A lock tells of what was written between the coming of its token and its release. Both may be long ago when another
//! node asks: so a node keeps its intervals of the epoch apart, each with the moment at which it ended. A program
//! without barriers would need memory for each of them; so from [`APART_MAX`] on, where they name pages more than twice
//! on average, neighbours are merged until they do not, first those that name the same pages. Intervals that all wrote
//! other pages stay apart, however many they are.

use super::push_range;
use super::wire::{Entry, Group};
use super::write_notices::merge;
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::sync::IntervalMark;
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many runs of pages are kept apart whatever they are.
pub(super) const APART_MAX: usize = 1024;
/// So many of the last intervals are.
const RECENT: usize = 32;

/// How many closes were over when the first interval ended that an entry stands for, and the entry.
type Kept = (IntervalMark, Arc<Entry>);

/// A node's own intervals of an epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct ScopeIntervals {
    /// By the last interval that an entry stands for.
    intervals: BTreeMap<u32, Kept>,
    /// How many runs of pages they name now, and how many were left when they were last looked through.
    runs: usize,
    looked: usize,
}

impl ScopeIntervals {
    /// How many entries are kept.
    pub(super) fn len(&self) -> usize {
        self.intervals.len()
    }

    /// An interval has ended when so many closes were over.
    pub(super) fn close(&mut self, over: IntervalMark, entry: Arc<Entry>) {
        self.runs += runs(&entry);
        self.intervals.insert(entry.interval, (over, entry));
        if self.runs > APART_MAX.max(2 * self.looked) {
            self.thin();
        }
    }

    /// The entries after the interval `after` of what was written before a release at this moment. What was written
    /// before it is in the intervals that ended until one more close was over; others did not begin sooner.
    pub(super) fn between(&self, after: u32, released: IntervalMark) -> impl Iterator<Item = &Arc<Entry>> {
        let before =
            move |over: IntervalMark| over < released || (over == released && Rule::ReleasesTellTheirInterval.on());
        let behind = self.intervals.range(after.saturating_add(1)..).map(|(_, kept)| kept);
        behind.take_while(move |(over, _)| before(*over)).map(|(_, entry)| entry)
    }

    /// Merges neighbours among the older ones as long as they name pages more than twice.
    fn thin(&mut self) {
        let recent = self.intervals.keys().rev().nth(RECENT - 1).copied().unwrap_or_default();
        let recent = self.intervals.split_off(&recent);
        let mut old: Vec<Kept> = std::mem::replace(&mut self.intervals, recent).into_values().collect();
        let most = (APART_MAX / 2).max(2 * pages(old.iter().map(|(_, entry)| &**entry)));
        let are_many = |old: &[Kept]| old.len() > 1 && old.iter().map(|(_, entry)| runs(entry)).sum::<usize>() > most;
        while are_many(&old) {
            old = old.chunk_by(|(_, a), (_, b)| are_alike(a, b)).map(joined).collect();
            if are_many(&old) {
                old = old.chunks(2).map(joined).collect();
            }
        }
        self.intervals.extend(old.into_iter().map(|kept| (kept.1.interval, kept)));
        self.runs = self.intervals.values().map(|(_, entry)| runs(entry)).sum();
        self.looked = self.runs;
    }
}

/// Neighbours as one.
fn joined(neighbours: &[Kept]) -> Kept {
    let (over, first) = &neighbours[0];
    let merged = merge(neighbours.iter().map(|(_, entry)| &**entry));
    // In intervals of this node between them nothing of this log was written.
    let whole = merged.map(|merged| Arc::new(Entry { from: first.from, ..merged }));
    (*over, whole.unwrap_or_else(|| first.clone()))
}

/// Whether two entries name the same pages.
fn are_alike(a: &Entry, b: &Entry) -> bool {
    let of_homes = |(a, b): (&Group, &Group)| a.home == b.home && a.runs == b.runs;
    a.groups.len() == b.groups.len() && a.groups.iter().zip(&b.groups).all(of_homes)
}

fn runs(entry: &Entry) -> usize {
    entry.groups.iter().map(|group| group.runs.len()).sum()
}

/// How many pages entries name, each counted once.
fn pages<'a>(entries: impl Iterator<Item = &'a Entry>) -> usize {
    let mut all: Vec<_> = entries.flat_map(|e| &e.groups).flat_map(|g| &g.runs).map(|(run, _)| run.clone()).collect();
    all.sort_unstable_by_key(|run| run.start);
    let (mut apart, mut end) = (Vec::new(), 0);
    for run in all {
        push_range(&mut apart, run.start.max(end)..run.end.max(end));
        end = end.max(run.end);
    }
    apart.iter().map(ExactSizeIterator::len).sum()
}

/// Intervals of other nodes that were applied in this epoch: of each node, by the first, those in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct AppliedIntervals {
    rows: BTreeMap<NodeId, BTreeMap<u32, u32>>,
}

impl AppliedIntervals {
    /// These have been applied from now on; whether any had not been before.
    pub(super) fn add(&mut self, writer: NodeId, from: u32, last: u32) -> bool {
        let rows = self.rows.entry(writer).or_default();
        if from > last || rows.range(..=from).next_back().is_some_and(|(_, end)| *end >= last) {
            return false;
        }
        let (mut first, mut end) = (from, last);
        while let Some((start, stop)) = rows.range(..=end.saturating_add(1)).next_back().map(|(s, e)| (*s, *e))
            && stop >= first.saturating_sub(1)
        {
            (first, end) = (first.min(start), end.max(stop));
            rows.remove(&start);
        }
        rows.insert(first, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use std::collections::BTreeSet;

    /// Intervals, the first of which is 1, that ended after one close each and in which these pages were written.
    fn own(pages: impl Iterator<Item = u32>) -> ScopeIntervals {
        let mut own = ScopeIntervals::default();
        for (interval, page) in (1..).zip(pages) {
            let groups =
                smallvec![Group { home: NodeId(3), serial: interval.into(), runs: smallvec![(page..page + 1, true)] }];
            let entry = Entry { writer: NodeId(0), from: interval, interval, groups };
            own.close(IntervalMark(u64::from(interval)), Arc::new(entry));
        }
        own
    }

    fn told(own: &ScopeIntervals, after: u32, released: u64) -> Vec<u32> {
        let entries = own.between(after, IntervalMark(released)).flat_map(|e| &e.groups).flat_map(|g| &g.runs);
        let pages: BTreeSet<u32> = entries.flat_map(|(run, _)| run.clone()).collect();
        pages.into_iter().collect()
    }

    #[test]
    fn a_release_tells_of_the_intervals_until_its_own_ended() {
        let own = own(100..110);
        assert_eq!(told(&own, 3, 5), [103, 104]);
        assert_eq!(told(&own, 0, 2), [100, 101]);
        assert_eq!(told(&own, 5, 5), [], "nothing was written meanwhile");
        assert_eq!(told(&own, 0, 0), [], "nobody has released");
        assert_eq!(told(&own, 7, u64::MAX), [107, 108, 109]);
    }

    #[test]
    fn intervals_that_wrote_other_pages_stay_apart_however_many_they_are() {
        let own = own((0..20_000).map(|n| 7 * n));
        assert_eq!(own.len(), 20_000);
        assert!((0..20_000).all(|n| told(&own, n, u64::from(n) + 1) == [7 * n]));
    }

    #[test]
    fn intervals_that_write_the_same_pages_again_are_merged_and_none_is_left_out() {
        for pages in [10, 3_000] {
            let own = own((0..100_000).map(|n| n % pages));
            let most = 2 * APART_MAX.max(2 * pages as usize) + RECENT;
            assert!(own.len() <= most, "{} for {pages} pages", own.len());
            assert!((0..100_000).step_by(997).all(|n| told(&own, n, u64::from(n) + 1).contains(&(n % pages))));
            assert_eq!(told(&own, 0, u64::MAX).len(), pages as usize);
            assert_eq!(told(&own, 99_990, 99_993).len(), 3, "the last ones are apart");
        }
    }

    #[test]
    fn intervals_that_write_the_same_pages_in_stretches_are_merged_where_they_do() {
        let own = own((0..100_000).map(|n| n / 500));
        assert!(own.len() <= 2 * APART_MAX + RECENT, "{}", own.len());
        assert!((0..100_000).step_by(997).all(|n| told(&own, n, u64::from(n) + 1).len() <= 2));
    }

    #[test]
    fn what_is_applied_is_known_and_rows_that_touch_are_one() {
        let mut applied = AppliedIntervals::default();
        let node = NodeId(4);
        assert!(applied.add(node, 5, 9) && !applied.add(node, 5, 9) && !applied.add(node, 6, 8));
        assert!(applied.add(NodeId(5), 6, 8), "another's");
        assert!(applied.add(node, 20, 20) && applied.add(node, 1, 2) && applied.add(node, 8, 12));
        assert_eq!(applied.rows[&node], BTreeMap::from([(1, 2), (5, 12), (20, 20)]));
        assert!(applied.add(node, 3, 4) && applied.add(node, 13, 19));
        assert_eq!(applied.rows[&node], BTreeMap::from([(1, 20)]));
        assert!(!applied.add(node, 4, 3), "no interval");
        assert!(applied.add(node, u32::MAX, u32::MAX) && applied.add(node, 0, u32::MAX) && !applied.add(node, 0, 5));
        assert_eq!(applied.rows[&node].len(), 1);
    }
}
