//! Which units migrate at a barrier: one that a single node wrote in the epoch, and still holds, gets that node for its home.
//!
//! The writer's copy is the newest then: it was whole when it was fetched, nobody else wrote since, and the notices of the barrier
//! end no copy of a page that its holder alone wrote. So nothing is sent: every node has the notices of all and decides alike.
//! (JIAJIA's home migration; Nautilus: section 4.)
//!
//! A unit that several nodes wrote keeps its home for a while, whoever writes it then: in programs whose nodes have rows or blocks of their own in
//! one page, some epochs see but one of them write, and in the next the old home would have to fetch what it had.

use super::wire::Entry;
use super::{PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// For so many epochs after several nodes wrote a unit its home stays.
const STAYS: u32 = 8;
/// When so many units are remembered, those are forgotten whose time is over.
const MANY: usize = 1 << 16;

/// One entry's word about one unit. Sorted, all that is said of a unit stands together, the last word of its last writer at the end.
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
    /// Units that several nodes wrote, by their first page, and the last epoch in which they stay for that.
    contested: BTreeMap<PageNo, u32>,
}

impl Migration {
    /// From the entries of all nodes at the barrier that ends `epoch`: which pages (whole units) migrate, and the node that becomes their home.
    /// `unit_pages_of` gives the pages of the unit that begins at a page, `None` where homes stay.
    pub fn decide(
        &mut self,
        epoch: u32,
        entries: &[(Arc<Entry>, bool)],
        unit_pages_of: impl Fn(PageNo) -> Option<u32>,
    ) -> Vec<(Range<PageNo>, NodeId)> {
        let mut written: Vec<Written> = Vec::new();
        for (entry, _) in entries {
            list(entry, &unit_pages_of, &mut written);
        }
        written.sort_unstable();
        let mut moves: Vec<(Range<PageNo>, NodeId)> = Vec::new();
        for unit in written.chunk_by(|a, b| a.page == b.page) {
            let (Some(first), Some(last)) = (unit.first(), unit.last()) else { continue };
            if first.writer != last.writer {
                self.contested.insert(last.page, epoch.saturating_add(STAYS));
                continue;
            }
            let held = last.held || !Rule::MigrationNeedsValidCopy.on();
            if last.writer == last.home || !held || self.stays(last.page, epoch) {
                continue;
            }
            let pages = last.page..last.page + last.pages;
            match moves.last_mut() {
                Some((run, writer)) if *writer == last.writer && run.end == pages.start => run.end = pages.end,
                _ => moves.push((pages, last.writer)),
            }
        }
        if self.contested.len() > MANY {
            self.contested.retain(|_, until| *until > epoch);
        }
        moves
    }

    fn stays(&self, page: PageNo, epoch: u32) -> bool {
        self.contested.get(&page).is_some_and(|until| epoch <= *until)
    }
}

/// Appends what an entry says, unit by unit.
fn list(entry: &Entry, unit_pages_of: impl Fn(PageNo) -> Option<u32>, written: &mut Vec<Written>) {
    let (writer, interval) = (entry.writer, entry.interval);
    for group in &entry.groups {
        for (run, held) in &group.runs {
            let mut page = run.start;
            while page < run.end {
                let pages = unit_pages_of(page);
                if let Some(pages) = pages {
                    written.push(Written { page, writer, interval, pages, home: group.home, held: *held });
                }
                page = page.saturating_add(pages.unwrap_or(1).max(1));
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

    fn entry(writer: u16, interval: u32, home: u16, runs: &[(Range<PageNo>, bool)]) -> (Arc<Entry>, bool) {
        let group = Group { home: NodeId(home), serial: 1, runs: runs.to_vec() };
        (Arc::new(Entry { writer: NodeId(writer), from: interval, interval, groups: vec![group] }), true)
    }

    fn decided(entries: &[(Arc<Entry>, bool)]) -> Vec<(Range<PageNo>, u16)> {
        decided_at(&mut Migration::default(), 1, entries)
    }

    fn decided_at(migration: &mut Migration, epoch: u32, entries: &[(Arc<Entry>, bool)]) -> Vec<(Range<PageNo>, u16)> {
        migration.decide(epoch, entries, |_| Some(2)).into_iter().map(|(run, node)| (run, node.0)).collect()
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
        let moves = Migration::default().decide(1, &entries, |page| (page >= 4).then_some(2));
        assert_eq!(moves, [(4..8, NodeId(1))]);
    }

    #[test]
    fn what_several_nodes_wrote_keeps_its_home_for_some_epochs() {
        let mut migration = Migration::default();
        let both = [entry(1, 1, 0, &[(0..2, true)]), entry(2, 1, 0, &[(0..2, true)])];
        let one = [entry(1, 2, 0, &[(0..4, true)])];
        assert_eq!(decided_at(&mut migration, 1, &both), []);
        assert_eq!(decided_at(&mut migration, 2, &one), [(2..4, 1)]);
        assert_eq!(decided_at(&mut migration, 1 + STAYS, &one), [(2..4, 1)]);
        assert_eq!(decided_at(&mut migration, 2 + STAYS, &one), [(0..4, 1)]);
    }
}
