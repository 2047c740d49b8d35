//! Notices end copies: at an acquire, at a barrier, and where an atomic operation was carried out at a page's home.

use super::diffs::DiffBatch;
use super::{NodeEffects, each_table};
use crate::coherence::pages::fetch_batch::FetchBatch;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::serve::Listing;
use crate::coherence::pages::wire::Entry;
use crate::coherence::pages::{PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

/// Ends this node's copies of the pages that entries name; `in_place` where no thread of the node goes on before they
/// were fetched again.
pub fn invalidate_copies<'a, E: NodeEffects>(
    node: &mut E,
    intervals: &mut IntervalState,
    entries: impl Iterator<Item = &'a Entry>,
    in_place: bool,
) {
    let (mut batch, mut ended) = (DiffBatch::default(), Vec::new());
    let unmapped = if in_place { node.not_kept() } else { Vec::new() };
    let runs = entries.flat_map(|e| &e.groups).flat_map(|g| &g.runs).map(|(run, _)| run);
    each_table(node, runs, |node, parts| {
        node.diff_step((parts[0].start, Listing::AsBefore), (&mut batch, intervals), |table, cx, sink| {
            parts
                .iter()
                .filter(|part| table.units().has_copies(part))
                .for_each(|part| push_range(&mut ended, part.clone()));
            if in_place && unmapped.is_empty() {
                table.invalidate_in_place(cx, parts, sink);
            } else if in_place {
                let (listed, rest) = split_runs(parts, &unmapped);
                table.invalidate(cx, &listed, sink);
                table.invalidate_in_place(cx, &rest, sink);
            } else {
                table.invalidate(cx, parts, sink);
            }
        });
        node.between_steps();
    });
    batch.send(node, intervals);
    if !ended.is_empty() {
        node.copies_ended(ended);
    }
    let me = node.me();
    if !node.needs(|needs| needs.at(me)).is_empty() {
        node.awaits_diffs();
    }
}

/// Ends this node's copy of a page, and voids a fetch of it that is under way; what was written to the copy goes home
/// first.
pub fn invalidate_copy(node: &mut impl NodeEffects, intervals: &mut IntervalState, page: PageNo) {
    let (mut batch, run) = (DiffBatch::default(), page..page + 1);
    node.diff_step((page, Listing::AsBefore), (&mut batch, intervals), |table, cx, sink| {
        table.invalidate(cx, std::slice::from_ref(&run), sink)
    });
    batch.send(node, intervals);
}

/// Begins to fetch again, of the pages of copies that have ended, what was in use: its units are in state `Fetching`
/// now. Gives what to ask of which home; of each home, `most` says how many pages go into a request.
pub fn fetch_again(node: &mut impl NodeEffects, ended: &[Range<PageNo>], most: impl Fn(NodeId) -> u32) -> FetchBatch {
    let mut requests = FetchBatch::default();
    each_table(node, ended.iter(), |node, parts| {
        let first = parts[0].start;
        let parts = if Rule::KeptCopiesAreAllFetched.on() { parts } else { &parts[1..] };
        node.step(first, |table, _| {
            parts.iter().for_each(|part| table.fetch_ahead(part, |home, unit| requests.add(home, unit, &most)));
        });
    });
    requests
}

/// What of these pages is in the list, which is in order, and what is not.
fn split_runs(runs: &[Range<PageNo>], list: &[PageNo]) -> (Vec<Range<PageNo>>, Vec<Range<PageNo>>) {
    let (mut listed, mut rest) = (Vec::new(), Vec::new());
    for run in runs {
        let mut at = run.start;
        for page in &list[list.partition_point(|page| *page < run.start)..] {
            if *page >= run.end {
                break;
            }
            push_range(&mut rest, at..*page);
            push_range(&mut listed, *page..page + 1);
            at = page + 1;
        }
        push_range(&mut rest, at..run.end);
    }
    (listed, rest)
}
