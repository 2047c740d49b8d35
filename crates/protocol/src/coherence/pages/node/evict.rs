//! Copies whose memory is wanted for others, and memory that was freed.

use super::diffs::DiffBatch;
use super::{NodeEffects, each_table};
use crate::coherence::pages::PageNo;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::page_table::{DiffSink, PageTable};
use crate::coherence::pages::serve::Listing;
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

/// Which copies of a page table go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Those that are of no use now. The caller has taken the table from the list of such.
    Idle,
    /// All.
    All,
}

/// Gives up copies of the page table that begins at `first`, written ones after a flush, but for the units with the
/// pages `spared`, which are in order. Whether there is such a table.
pub fn evict(
    node: &mut impl NodeEffects,
    intervals: &mut IntervalState,
    (first, which): (PageNo, Which),
    spared: &[PageNo],
) -> bool {
    let mut batch = DiffBatch::default();
    let listing = if which == Which::Idle { Listing::Idle } else { Listing::AsBefore };
    let done = node.diff_step((first, listing), (&mut batch, intervals), |table, cx, sink| {
        for pages in others(table, spared) {
            match which {
                Which::Idle => table.evict_idle(cx, &pages, sink),
                Which::All => table.evict(cx, &pages, sink),
            };
        }
    });
    if Rule::EvictedCopiesAreFlushed.on() {
        batch.send(node, intervals);
    }
    done.is_some()
}

/// The table's pages without the units around these, which are in order.
fn others(table: &PageTable, spared: &[PageNo]) -> Vec<Range<PageNo>> {
    let shape = table.layout();
    let (mut at, end) = (shape.first, shape.first + shape.pages);
    let mut runs = Vec::new();
    let here = shape.first..end;
    for page in spared.iter().filter(|page| here.contains(page)) {
        let unit = table.units().unit_of(*page);
        if at < unit.start {
            runs.push(at..unit.start);
        }
        at = at.max(unit.end);
    }
    if at < end {
        runs.push(at..end);
    }
    runs
}

/// A bin for diffs that cannot come up.
struct NoFlush;

impl DiffSink for NoFlush {
    fn diff(&mut self, _: NodeId, _: PageNo, _: &[u8]) {}
}

/// The region with these pages was freed: its copies end, and nothing of them is flushed.
pub fn free(node: &mut impl NodeEffects, pages: &Range<PageNo>) {
    each_table(node, std::iter::once(pages), |node, parts| {
        node.step(parts[0].start, |table, cx| match Rule::FreedTablesAreMarked.on() {
            true => table.free(cx, &mut NoFlush),
            false => _ = table.evict(cx, &parts[0], &mut NoFlush),
        });
    });
}
