//! Page tables whose diffs stay with their writers: what notices say of them, and their collection at barriers.
//! [`kept_diffs`](crate::coherence::pages::kept_diffs) has the idea.

use super::{Failure, NodeEffects};
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::kept_diffs::{Ask, Stamp};
use crate::coherence::pages::wire::Entry;
use crate::coherence::pages::{PAGE_BYTES, PageNo};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

/// Takes note of what entries say of such pages. To be called before copies end: a thread that fetches one again must
/// find what it needs.
pub fn note_written<'a, E: NodeEffects>(node: &mut E, entries: impl Iterator<Item = &'a Entry>) {
    let me = node.me();
    for entry in entries.filter(|entry| entry.writer != me) {
        for group in entry.groups.iter().filter(|group| group.home == entry.writer && group.serial > 0) {
            for (run, _) in &group.runs {
                note_run(node, run, (entry.writer, group.serial));
            }
        }
    }
}

fn note_run(node: &mut impl NodeEffects, run: &Range<PageNo>, (writer, stamp): (NodeId, Stamp)) {
    let mut at = run.start;
    while at < run.end {
        match node.kept_table_around(at) {
            Ok(table) => {
                let part = at..table.end.min(run.end);
                node.step(at, |table, _| table.note_written(&part, writer, stamp));
                at = part.end;
            }
            Err(next) => at = next.unwrap_or(run.end),
        }
    }
}

/// A barrier has opened, and its notices are taken in: ends the collection that was announced at the one before, and
/// begins the one that was announced at this.
pub fn collect(node: &mut impl NodeEffects, intervals: &mut IntervalState) {
    let (floor, begins) = intervals.collections();
    if floor.is_none() && begins.is_none() {
        return;
    }
    // Tables that come into being meanwhile know of it, too.
    if let Some(floor) = floor {
        node.collected(floor);
    }
    let mut asks: Vec<(NodeId, Ask)> = Vec::new();
    for first in node.kept_tables() {
        let done = node.step(first, |table, cx| {
            let mut done = floor.map_or(Ok(()), |floor| table.finish_collection(cx, floor));
            if begins.is_some() {
                table.begin_collection(cx, &mut asks);
            }
            if let Some(at_once) = begins.filter(|_| !Rule::DiffsOutliveReaders.on()) {
                done = done.and(table.finish_collection(cx, at_once));
            }
            done
        });
        if let Some(Err(page)) = done {
            return node.fails(Failure::DiffsLost(page));
        }
        node.between_steps();
    }
    if !asks.is_empty() {
        node.must_complete(asks);
    }
}

/// Memory of pages whose diffs stay with their writers is given out again, and is about to be zeroed: these bytes,
/// counted from page 0. Another node that had heard of all up to `stamp` has freed it, or this node (0).
///
/// The free is no acquire: the owner may not have heard of who wrote there last, and has no notice to hand on to who
/// gets the memory next. So what it stores counts as written whatever its own copy has, with a later stamp than all
/// that the freer had heard of.
pub fn reuse(node: &mut impl NodeEffects, intervals: &mut IntervalState, bytes: Range<usize>, stamp: Stamp) {
    intervals.hear_of_free(stamp);
    let mut at = bytes.start;
    while at < bytes.end {
        let page = (at / PAGE_BYTES) as PageNo;
        let Ok(table) = node.kept_table_around(page) else { return };
        let [start, end] = [table.start, table.end].map(|page| page as usize * PAGE_BYTES);
        let part = at - start..end.min(bytes.end) - start;
        at = start + part.end;
        node.step(page, |table, _| table.note_reused(part));
    }
}
