//! Which units migrate at a barrier: one that a single node wrote in the epoch, and still holds, gets that node for its
//! home.
//!
//! The writer's copy is the newest then: it was whole when it was fetched, nobody else wrote since, and the notices of
//! the barrier end no copy of a page that its holder alone wrote. So nothing is sent: every node has the notices of all
//! and decides alike. (JIAJIA's home migration; Nautilus: section 4.)
//!
//! A unit that several nodes wrote in an epoch stays, and for a while goes to its *keeper* alone
//! ([`keepers`](super::policy::keepers)).

use super::policy::Predictor;
use super::policy::keepers::{Event, Keepers, Move};
use super::wire::Entry;
use super::{PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::tuning::HomeTuning;
use smallvec::SmallVec;
use std::ops::Range;

/// One entry's word about one unit. Sorted, all that is said of a unit stands together, the last word of its last
/// writer at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    page: PageNo,
    writer: NodeId,
    interval: u32,
    pages: u32,
    home: NodeId,
    held: bool,
}

/// Decides at every barrier. All nodes' copies of it know the same, since all have the notices of all.
#[derive(Clone, Debug, Default)]
pub struct Migration {
    keepers: Keepers,
    tuning: HomeTuning,
}

impl Migration {
    /// Decides by these numbers.
    pub fn new(tuning: HomeTuning) -> Migration {
        Migration { tuning, ..Migration::default() }
    }

    /// From the entries of all nodes at the barrier that ends `epoch`: which pages (whole units) migrate, and the node
    /// that becomes their home. `unit_of` gives the unit around a page, `None` where homes stay.
    pub fn decide(
        &mut self,
        epoch: u32,
        entries: &[(Entry, bool)],
        mut unit_of: impl FnMut(PageNo) -> Option<Range<PageNo>>,
    ) -> Vec<(Range<PageNo>, NodeId)> {
        let mut written: Vec<Written> = Vec::new();
        for (entry, _) in entries {
            list(entry, &mut unit_of, &mut written);
        }
        // Each entry's are mostly in order, and so merged rather than sorted.
        written.sort();
        let mut moves: Vec<(Range<PageNo>, NodeId)> = Vec::new();
        for unit in written.chunk_by(|a, b| a.page == b.page) {
            let (Some(first), Some(last)) = (unit.first(), unit.last()) else { continue };
            if first.writer != last.writer {
                let writers: SmallVec<[NodeId; 8]> =
                    unit.chunk_by(|a, b| a.writer == b.writer).map(|words| words[0].writer).collect();
                self.keepers.observe(&self.tuning, Event::Contested { page: last.page, writers: &writers, epoch });
                continue;
            }
            let held = last.held || !Rule::MigrationNeedsValidCopy.on();
            let may_have = Move { page: last.page, writer: last.writer, epoch };
            if last.writer == last.home || !held || !self.keepers.predict(&self.tuning, may_have) {
                continue;
            }
            let pages = last.page..last.page + last.pages;
            match moves.last_mut() {
                Some((run, writer)) if *writer == last.writer && run.end == pages.start => run.end = pages.end,
                _ => moves.push((pages, last.writer)),
            }
        }
        self.keepers.observe(&self.tuning, Event::Over { epoch });
        moves
    }
}

/// Appends what an entry says, unit by unit. Where regions lie side by side a run goes over several, and may have been
/// cut in the midst of a unit on its way ([`wire`](super::wire)); then its entry has two words about that unit, which
/// are alike.
fn list(entry: &Entry, mut unit_of: impl FnMut(PageNo) -> Option<Range<PageNo>>, written: &mut Vec<Written>) {
    let (writer, interval) = (entry.writer, entry.interval);
    for group in &entry.groups {
        for (run, held) in &group.runs {
            let mut at = run.start;
            while at < run.end {
                let unit = unit_of(at);
                if let Some(unit) = &unit {
                    let (page, pages) = (unit.start, unit.end - unit.start);
                    written.push(Written { page, writer, interval, pages, home: group.home, held: *held });
                }
                at = unit.map_or(0, |unit| unit.end).max(at.saturating_add(1));
            }
        }
    }
}

/// The pages that migrate to `node`.
pub fn gained(moves: &[(Range<PageNo>, NodeId)], node: NodeId) -> Vec<Range<PageNo>> {
    let mut all = Vec::new();
    moves.iter().filter(|(_, to)| *to == node).for_each(|(run, _)| push_range(&mut all, run.clone()));
    all
}

#[cfg(test)]
mod tests {
    use super::super::wire::Group;
    use super::*;
    use crate::wire::bytes::Reader;
    use smallvec::smallvec;

    fn entry(writer: u16, interval: u32, home: u16, runs: &[(Range<PageNo>, bool)]) -> (Entry, bool) {
        let group = Group { home: NodeId(home), serial: 1, runs: runs.into() };
        (Entry { writer: NodeId(writer), from: interval, interval, groups: smallvec![group] }, true)
    }

    /// Units of two pages everywhere.
    fn pairs(page: PageNo) -> Option<Range<PageNo>> {
        Some(page / 2 * 2..page / 2 * 2 + 2)
    }

    fn decided(entries: &[(Entry, bool)]) -> Vec<(Range<PageNo>, u16)> {
        decided_at(&mut Migration::default(), 1, entries)
    }

    fn decided_at(migration: &mut Migration, epoch: u32, entries: &[(Entry, bool)]) -> Vec<(Range<PageNo>, u16)> {
        migration.decide(epoch, entries, pairs).into_iter().map(|(run, node)| (run, node.0)).collect()
    }

    #[test]
    fn what_one_node_wrote_migrates_to_it_and_what_two_wrote_stays() {
        let entries = [entry(1, 1, 0, &[(0..6, true)]), entry(2, 4, 0, &[(2..4, true)])];
        assert_eq!(decided(&entries), [(0..2, 1), (4..6, 1)]);
    }

    #[test]
    fn what_its_home_wrote_stays() {
        assert_eq!(decided(&[entry(1, 1, 1, &[(0..2, false)])]), []);
    }

    #[test]
    fn the_last_word_says_whether_the_writer_holds_its_copy_in_whatever_order_the_words_come() {
        let (kept, gone) = (entry(1, 3, 0, &[(0..2, true)]), entry(1, 4, 0, &[(0..2, false)]));
        assert_eq!(decided(&[gone.clone(), kept.clone()]), []);
        assert_eq!(decided(&[kept, gone]), []);
        let (gone, kept) = (entry(1, 3, 0, &[(0..2, false)]), entry(1, 4, 0, &[(0..2, true)]));
        assert_eq!(decided(&[kept, gone]), [(0..2, 1)]);
    }

    #[test]
    fn regions_that_do_not_migrate_keep_their_homes() {
        let entries = [entry(1, 1, 0, &[(0..8, true)])];
        let moves = Migration::default().decide(1, &entries, |page| pairs(page).filter(|_| page >= 4));
        assert_eq!(moves, [(4..8, NodeId(1))]);
    }

    #[test]
    fn a_run_over_two_regions_that_was_cut_in_the_midst_of_a_unit_tells_of_that_unit() {
        let mut bytes = Vec::new();
        entry(1, 1, 0, &[(1..40_000, true)]).0.emit(&mut bytes);
        let parsed = Entry::parse(&mut Reader::new(&bytes)).unwrap();
        let cut = parsed.groups[0].runs[1].0.start;
        assert_eq!(cut % 4, 1, "{:?}", parsed.groups);
        // The second region, of units of four pages, begins at page 8.
        let unit = |page: PageNo| Some(if page < 8 { page..page + 1 } else { page / 4 * 4..page / 4 * 4 + 4 });
        for other in [cut - 1, cut + 3] {
            let entries = [(parsed.clone(), true), entry(2, 1, 0, &[(other..other + 4, true)])];
            let moves = Migration::default().decide(1, &entries, unit);
            assert_eq!(moves, [(1..other, NodeId(1)), (other + 4..40_000, NodeId(1))]);
        }
    }

    #[test]
    fn what_several_nodes_wrote_goes_to_none_but_its_keeper_for_some_epochs() {
        let both = [entry(1, 1, 0, &[(0..2, true)]), entry(2, 1, 0, &[(0..2, true)])];
        let one = |writer| [entry(writer, 2, 0, &[(0..4, true)])];
        let epochs = HomeTuning::default().contested_epochs;
        for first in [1, u32::MAX - epochs - 1, u32::MAX - 1, u32::MAX] {
            let (mut migration, at) = (Migration::default(), |later| first.wrapping_add(later));
            assert_eq!(decided_at(&mut migration, first, &both), []);
            let keeper = (1..3).find(|node| decided_at(&mut migration.clone(), at(1), &one(*node)) == [(0..4, *node)]);
            let other = 3 - keeper.expect("a keeper among the writers");
            assert_eq!(decided_at(&mut migration, at(1), &one(other)), [(2..4, other)]);
            assert_eq!(decided_at(&mut migration, at(epochs), &one(other)), [(2..4, other)]);
            assert_eq!(decided_at(&mut migration, at(epochs + 1), &one(other)), [(0..4, other)]);
        }
    }

    #[test]
    fn keepers_share_what_they_wrote_however_far_its_rows_are_apart() {
        for stride in [2, 16, 32, 64, 128, 512] {
            let mut migration = Migration::default();
            let rows: Vec<_> = (0..256).map(|row| (row * stride..row * stride + 2, true)).collect();
            decided_at(&mut migration, 1, &[entry(1, 1, 0, &rows), entry(2, 1, 0, &rows)]);
            let moved = gained(&migration.decide(2, &[entry(1, 2, 0, &rows)], pairs), NodeId(1));
            let rows: u32 = moved.iter().map(|run| run.end.div_ceil(stride) - run.start / stride).sum();
            assert!((64..=192).contains(&rows), "{rows} of 256 rows, {stride} pages apart");
        }
    }
}
