//! Copysets at barriers, and what lock tokens bring, for page tables whose diffs are told to sets.
//! [`multicast`](crate::coherence::pages::multicast) has the idea.

use super::NodeEffects;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::intervals::{EARLY, IntervalState, MEMBERS};
use crate::coherence::pages::multicast::carry;
use crate::coherence::pages::multicast::placement::Uses;
use crate::coherence::pages::page_table::multicast::{EarlyTells, MemberChanges};
use crate::coherence::pages::serve::{Listing, PageState};
use crate::coherence::pages::wire::Entry;
use crate::ids::NodeId;
use crate::outbox::Audience;
use crate::rules::Rule;
use crate::wire::bytes::WireError;
use crate::wire::message::Message;
use std::ops::Range;

/// Behind what a node says at a barrier: the copysets that it joins, and those that it leaves. What it wrote to pages
/// that are told early leaves, too.
pub fn say_members(node: &mut impl NodeEffects, intervals: &IntervalState, notices: &mut Vec<u8>) {
    if !intervals.carries_diffs() {
        return;
    }
    let (mut changes, mut early) = (MemberChanges::default(), Vec::new());
    let closed = intervals.closed_stamp();
    let window = node.pages().tuning().multicast.window_epochs;
    let window_ends = intervals.epoch().wrapping_add(1).is_multiple_of(window);
    for first in node.kept_tables() {
        node.step(first, |table, cx| {
            table.change_members(cx, &mut changes);
            if window_ends {
                table.say_uses(&mut changes);
            }
            table.tell_early(cx.me, closed, &mut early);
        });
    }
    intervals.announce_members(&changes, notices);
    for EarlyTells { told, body, .. } in early {
        let target = node.side().set_target(Audience { asked: NodeSet::new(), told });
        node.side().send(target, &Message::DiffsTold { body: &body });
    }
}

/// A barrier has opened: takes in what all nodes said of copysets. Writers that hold copies are members; then some
/// join, and then some leave, in the same order on each node.
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
            let groups = entry.groups.iter().filter(|group| group.serial == MEMBERS);
            let runs = groups.flat_map(|group| &group.runs).filter(|(_, held)| *held == joins);
            runs.for_each(|(run, _)| note(node, run, entry.writer, joins));
        }
    }
    hear_uses(node, intervals, &said);
    for group in said.iter().flat_map(|entry| &entry.groups).filter(|group| group.serial == EARLY) {
        for (run, _) in &group.runs {
            each_part(node, run, |node, part| {
                node.step(part.start, |table, _| table.note_early(part));
            });
        }
    }
}

/// How nodes used units, and where these are managed from now on. Managers stay as a collection ends: they alone have
/// been made to have everything. They stay, too, where threads of a node go on beside the barrier, which may have asked
/// one for a base.
fn hear_uses<E: NodeEffects>(node: &mut E, intervals: &IntervalState, said: &[Entry]) {
    let mut is_said = false;
    for (entry, group) in said.iter().flat_map(|entry| entry.groups.iter().map(move |group| (entry, group))) {
        let Some(uses) = Uses::of_number(group.serial) else { continue };
        is_said = true;
        for (run, _) in &group.runs {
            each_part(node, run, |node, part| {
                node.step(part.start, |table, _| table.note_uses(part, entry.writer, uses));
            });
        }
    }
    if is_said {
        let ends = intervals.collection_ends() && Rule::ManagersStayAsDiffsAreDropped.on();
        let managers_stay = ends || intervals.homes_stay();
        for first in node.kept_tables() {
            node.step(first, |table, cx| table.decide_placement(cx, managers_stay));
        }
    }
}

fn note(node: &mut impl NodeEffects, run: &Range<PageNo>, member: NodeId, joins: bool) {
    each_part(node, run, |node, part| {
        node.step(part.start, |table, cx| table.note_member(cx.me, part, member, joins));
    });
}

/// Calls `f` with the parts of a run in each table, of which those come into being that do not exist.
fn each_part<E: NodeEffects>(node: &mut E, run: &Range<PageNo>, mut f: impl FnMut(&mut E, &Range<PageNo>)) {
    let mut at = run.start;
    while at < run.end {
        match node.kept_table_around(at) {
            Ok(table) => {
                let part = at..table.end.min(run.end);
                f(node, &part);
                at = part.end;
            }
            Err(next) => at = next.unwrap_or(run.end),
        }
    }
}

/// A lock's token leaves with these notices: appends the diffs of what they tell of.
pub fn attach_diffs(node: &mut impl NodeEffects, intervals: &IntervalState, told: &[u8], out: &mut Vec<u8>) {
    let most = node.pages().tuning().multicast.carried_bytes_max;
    let runs = if most > 0 { carry::kept_pages(told) } else { Vec::new() };
    if runs.is_empty() {
        return;
    }
    let (since, start) = (intervals.barrier_stamp(), out.len());
    carry::begin(out, since);
    let (empty, mut units) = (out.len(), 0);
    for run in &runs {
        each_part(node, run, |node, part| {
            let Some((_, unit_pages)) = node.units_from(part.start) else { return };
            let closed = intervals.closed_stamp();
            node.step(part.start, |table, cx| {
                for page in part.clone().step_by(unit_pages as usize).take(carry::CARRIED_UNITS_MAX - units) {
                    let left = most.saturating_sub(out.len() - start);
                    table.carry(cx, page, (since, closed), left, out);
                    units += 1;
                }
            });
        });
    }
    if out.len() == empty {
        out.truncate(start);
    }
}

/// A lock's token has come: copies of what these entries name, if they are complete, have all up to the last barrier.
/// To be called before the entries are taken note of.
pub fn note_whole<'a, E: NodeEffects>(
    node: &mut E,
    intervals: &IntervalState,
    entries: impl Iterator<Item = &'a Entry>,
) {
    let (me, barrier) = (node.me(), intervals.barrier_stamp());
    for entry in entries.filter(|entry| entry.writer != me) {
        for group in entry.groups.iter().filter(|group| group.home == entry.writer && group.serial > 0) {
            for (run, _) in &group.runs {
                each_part(node, run, |node, part| {
                    node.step(part.start, |table, _| table.note_whole(part, barrier));
                });
            }
        }
    }
}

/// Takes in what a token carries, behind its notices.
///
/// # Errors
/// When no node would have sent it: then nothing has happened.
pub fn take_diffs(node: &mut impl NodeEffects, carried: &[u8]) -> Result<(), WireError> {
    const WRONG: WireError = WireError::BadValue("diffs with a token");
    let units = carry::parse(carried)?;
    for (page, diffs) in &units {
        let end = diffs.runs.last().map_or(0, |run| run.end.into());
        let checked = node.step(*page, |table, _| table.check_answer(*page, end, false));
        checked.unwrap_or(Ok(())).map_err(|_| WRONG)?;
    }
    for (page, diffs) in units {
        node.listed_step((page, Listing::Mapped), |table, cx| table.take_unasked(cx, page, diffs));
    }
    Ok(())
}
