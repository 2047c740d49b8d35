//! An interval ends: what was written on this node since the last one is found, diffs leave for the homes, and the
//! notices join what releases tell.

use super::diffs::DiffBatch;
use super::{Failure, NodeEffects, each_table};
use crate::coherence::pages::PageNo;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::kept_diffs::Stamp;
use crate::coherence::pages::page_table::PageTable;
use crate::coherence::pages::page_table::interval_end::PendingWork;
use crate::coherence::pages::serve::{Listing, PageState};
use crate::coherence::pages::wire::Groups;
use crate::coherence::pages::write_notices::add_notice;
use crate::ids::{LockId, NodeId};
use crate::rules::Rule;
use std::ops::Range;

/// Why an interval ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// This lock's token leaves.
    Lock(LockId),
    /// What was written so far was set-up, and says nothing of who will write.
    Setup,
    /// Anything else.
    Else,
}

/// What was written in an interval, by the engine of its region: pages, their home, and whether this node holds them.
pub type Notices = [Vec<(Range<PageNo>, NodeId, bool)>; 2];

/// Ends the open interval: everything written on this node since the last one.
pub fn close_interval(node: &mut impl NodeEffects, intervals: &mut IntervalState, why: CloseReason) {
    if intervals.may_close() {
        let over = node.begin_close();
        let active = node.take_active();
        close_tables(node, intervals, (&active, true), why);
        intervals.closes_are_over(over);
    }
}

/// Ends an interval of what was written to the page tables that begin at these pages, in order. The caller may have
/// taken them from the active list (`unlisted`).
pub fn close_tables<E: NodeEffects>(
    node: &mut E,
    intervals: &mut IntervalState,
    (firsts, unlisted): (&[PageNo], bool),
    why: CloseReason,
) {
    if firsts.is_empty() {
        return;
    }
    if intervals.is_used_up() {
        return node.fails(Failure::IntervalsUsedUp);
    }
    let sync_phase = node.era(|sync_phase| {
        sync_phase.close();
        *sync_phase
    });
    let before = node.tables_at(firsts);
    collect_remote_gets(node, &before);
    let mut idle = Vec::new();
    let seen = node.writes_seen(&before, Some((sync_phase, &mut idle)));
    // What tables ask for is read behind the kernel's notes: whoever takes notes out of the kernel has asked before.
    let tables = node.tables_at(firsts);
    let (mut batch, mut notices, mut passed_over) = (DiffBatch::default(), Notices::default(), Vec::new());
    let log_of = intervals.log_of_each();
    let mut behind = seen.as_deref().unwrap_or_default();
    let mut keeps = false;
    let listing = if unlisted { Listing::Taken } else { Listing::AsBefore };
    for (table, asks) in tables {
        behind = &behind[behind.iter().take_while(|run| run.end <= table.start).count()..];
        let untouched = seen.is_some() && behind.first().is_none_or(|run| table.end <= run.start);
        if untouched && PageTable::may_be_passed_over(&node.pages().tuning().pages, table.start, asks, sync_phase) {
            passed_over.push(table.start);
            continue;
        }
        node.diff_step((table.start, listing), (&mut batch, intervals), |table, cx, sink| {
            let log = log_of(table.layout().engine);
            let before = notices[log as usize].len();
            table.close(cx, sink, seen.as_deref(), &mut notices[log as usize]);
            keeps |= table.keeps_diffs() && notices[log as usize].len() > before;
        });
        batch.send_full(node, intervals);
        node.between_steps();
    }
    batch.send(node, intervals);
    if unlisted && Rule::PassedOverStayActive.on() {
        node.relist(passed_over);
    }
    let no_room = !node.has_room_for_homes();
    node.has_closed(why, no_room, &notices);
    if why == CloseReason::Setup || no_room {
        // As if the copies were gone: no home moves to who has written them.
        notices.iter_mut().flatten().for_each(|(_, _, held)| *held = false);
    }
    // Behind the stamps of all diffs in it.
    let stamp = if keeps { intervals.take_stamp() } else { 0 };
    intervals.close(notices.map(|notices| groups(node.me(), intervals, stamp, notices)));
    if keeps {
        intervals.has_closed_stamp(stamp);
        node.stamps_closed(stamp);
    }
    each_table(node, idle.iter(), |node, parts| {
        node.step(parts[0].start, |table, cx| parts.iter().for_each(|part| table.untrack_idle(cx, part)));
    });
}

/// What other nodes have copied out of these page tables since the last look is shared from now on: before the kernel's
/// notes are read, or they would be read where they say nothing yet.
pub fn collect_remote_gets(node: &mut impl NodeEffects, tables: &[(Range<PageNo>, PendingWork)]) {
    for (table, _) in tables.iter().filter(|(_, asks)| asks.gets) {
        if node.may_be_taken(table) {
            node.step(table.start, |table, cx| table.collect_remote_gets(cx));
        }
    }
}

/// Whether an interval that ended now might have something in it. The caller holds the [`IntervalState`], so none is
/// just ending: that would have taken the list of active tables, and what is written to them meanwhile is not in it.
pub fn may_have_to_tell<E: NodeEffects>(node: &mut E) -> bool {
    let mut active = node.active();
    active.sort_unstable();
    let tables = node.tables_at(&active);
    collect_remote_gets(node, &tables);
    let asks_for_close = |node: &mut E| {
        // Read behind the kernel's notes here, too.
        let tables = node.tables_at(&active);
        Rule::PendingWorkIsTold.on() && tables.iter().any(|(_, asks)| asks.close)
    };
    match node.writes_seen(&tables, None) {
        Some(seen) => !seen.is_empty() || asks_for_close(node),
        // The kernel has not answered.
        None if node.notes_writes() => !tables.is_empty(),
        None => {
            let mut firsts = tables.iter().map(|(table, _)| table.start);
            firsts.any(|first| node.step(first, |table, _| table.units().has_pending_notices()) == Some(true))
        }
    }
}

/// Notices by home. What this node is named for carries the interval's stamp, if diffs stay here; else 0.
fn groups(me: NodeId, intervals: &IntervalState, stamp: Stamp, notices: Vec<(Range<PageNo>, NodeId, bool)>) -> Groups {
    let mut groups = Groups::new();
    for (pages, home, held) in notices {
        let serial = || if home == me { stamp } else { intervals.last_serial(home) };
        add_notice(&mut groups, home, serial, pages, held);
    }
    groups
}
