//! Copysets at barriers, and what lock tokens bring, for page tables whose diffs are told to sets.
//! [`multicast`](crate::coherence::pages::multicast) has the idea.

use super::NodeEffects;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::wire::Entry;
use crate::ids::NodeId;
use std::ops::Range;

/// Behind what a node says at a barrier: the copysets that it joins, and those that it leaves.
pub fn say_members(node: &mut impl NodeEffects, intervals: &IntervalState, notices: &mut Vec<u8>) {
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    for first in node.kept_tables() {
        node.step(first, |table, cx| table.change_members(cx, &mut joins, &mut leaves));
    }
    if !joins.is_empty() || !leaves.is_empty() {
        intervals.announce_members(&joins, &leaves, notices);
    }
}

/// A barrier has opened: takes in what all nodes said of copysets. Writers that hold copies are members; then some join,
/// and then some leave, in the same order on each node.
pub fn hear_members(node: &mut impl NodeEffects, intervals: &mut IntervalState, entries: &[(Entry, bool)]) {
    let mut said = intervals.take_members();
    node.barrier_stamp(intervals.barrier_stamp());
    for (entry, _) in entries {
        for group in entry.groups.iter().filter(|group| group.home == entry.writer && group.serial > 0) {
            group.runs.iter().filter(|(_, held)| *held).for_each(|(run, _)| note(node, run, entry.writer, true));
        }
    }
    said.sort_by_key(|entry| entry.writer);
    for joins in [true, false] {
        for entry in &said {
            let runs = entry.groups.iter().flat_map(|group| &group.runs).filter(|(_, held)| *held == joins);
            runs.for_each(|(run, _)| note(node, run, entry.writer, joins));
        }
    }
}

fn note(node: &mut impl NodeEffects, run: &Range<PageNo>, member: NodeId, joins: bool) {
    let mut at = run.start;
    while at < run.end {
        match node.kept_table_around(at) {
            Ok(table) => {
                let part = at..table.end.min(run.end);
                node.step(at, |table, cx| table.note_member(cx.me, &part, member, joins));
                at = part.end;
            }
            Err(next) => at = next.unwrap_or(run.end),
        }
    }
}
