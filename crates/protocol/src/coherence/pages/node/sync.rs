//! What releases carry and acquires take in, and what a barrier does with all that was written.

use super::close::{CloseReason, close_interval};
use super::diffs::DiffBatch;
use super::invalidate::invalidate_copies;
use super::kept_diffs::{collect, note_written};
use super::multicast::{attach_diffs, hear_members, note_whole, say_members, take_diffs};
use super::{Failure, NodeEffects, each_table};
use crate::coherence::pages::PageNo;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::kept_diffs::clock;
use crate::coherence::pages::multicast::carry;
use crate::coherence::pages::piggyback;
use crate::coherence::pages::serve::{self, Listing, PageState};
use crate::coherence::pages::wire::Entry;
use crate::rules::Rule;
use crate::sync::{IntervalMark, Scope};

/// A release of `scope` at some moment, of which another node with this knowledge hears now: closes the interval if
/// what was written before it is still in the open one, and appends what the other lacks, with the pages that it wishes
/// for. Gives how many pages go with it.
pub fn release(
    node: &mut impl NodeEffects,
    intervals: &mut IntervalState,
    (scope, released): (Scope, IntervalMark),
    knowledge: &[u8],
    out: &mut Vec<u8>,
) -> u64 {
    // Whoever has locked the intervals knows that none is ending: those that have begun to are over.
    if released.needs_close(node.closes()) {
        let why = if let Scope::Lock(lock) = scope { CloseReason::Lock(lock) } else { CloseReason::Else };
        close_interval(node, intervals, why);
    }
    let ((seen, wishes), at) = (piggyback::split_request(knowledge), out.len());
    intervals.encode_notices((scope, released), seen, out);
    if intervals.carries_diffs() {
        let told = out[at..].to_vec();
        clock::put(out, intervals.last_stamp());
        if matches!(scope, Scope::Lock(_)) && node.has_room_to_carry(out.len()) {
            attach_diffs(node, intervals, &told, out);
        }
    }
    if let Some(wishes) = wishes.filter(|_| node.has_room_to_carry(out.len())) {
        let (me, told) = (node.me(), out[at..].to_vec());
        let needs = node.needs(|needs| needs.at(me));
        let fresh = node.meets(&needs);
        return piggyback::attach(node.pages(), intervals, (wishes, fresh), &told, out);
    }
    0
}

/// An acquire of `scope`: takes in what a release said.
pub fn acquire(node: &mut impl NodeEffects, intervals: &mut IntervalState, scope: Scope, payload: &[u8]) {
    let (told, carried) = piggyback::split_payload(payload);
    let entries = match node.needs(|needs| intervals.apply_notices(scope, told, needs)) {
        Ok(entries) => entries,
        Err(error) => return node.fails(Failure::Release(error)),
    };
    match clock::heard(payload) {
        Ok(stamp) => intervals.hear_clock(stamp.unwrap_or_default()),
        Err(error) => return node.fails(Failure::Release(error)),
    }
    node.pages().push_buffer(|stash| {
        let groups = entries.iter().flat_map(|entry| &entry.groups);
        groups.flat_map(|group| &group.runs).for_each(|(run, _)| stash.void(run));
    });
    if intervals.carries_diffs() {
        note_whole(node, intervals, entries.iter().map(|entry| &**entry));
    }
    note_written(node, entries.iter().map(|entry| &**entry));
    if Rule::AcquiresEndCopies.on() {
        invalidate_copies(node, intervals, entries.iter().map(|entry| &**entry), false);
    }
    // A node that has arrived has said which copies it holds, and a home may migrate to one. The barrier takes the
    // step.
    if !intervals.has_arrived() {
        take_acquire_steps(node, intervals);
    }
    if let Some(Err(error)) = carry::carried(payload).map(|diffs| take_diffs(node, diffs)) {
        node.fails(Failure::Carried(error));
    }
    if let Some(carried) = carried {
        let mut homes = Vec::new();
        let unloaded = piggyback::detach(node.pages(), intervals, |home| homes.push(home), carried);
        node.needs(|needs| homes.into_iter().for_each(|home| needs.note_unconfirmed_home(home)));
        if let Err(error) = unloaded {
            node.fails(Failure::Carried(error));
        }
    }
}

/// The page tables take the step that their engine has at acquires, if it has one.
fn take_acquire_steps(node: &mut impl NodeEffects, intervals: &mut IntervalState) {
    if !intervals.has_acquire_step() {
        return;
    }
    let mut batch = DiffBatch::default();
    each_table(node, std::iter::once(&(0..PageNo::MAX)), |node, parts| {
        node.diff_step((parts[0].start, Listing::AsBefore), (&mut batch, intervals), |table, cx, flush| {
            if let Some(step) = table.layout().engine.at_acquire() {
                step(table, cx, flush);
            }
        });
        node.between_steps();
    });
    batch.send(node, intervals);
}

/// After an acquire: whether the diffs are in that were announced for this node's own home pages.
pub fn home_is_fresh(node: &mut impl NodeEffects) -> bool {
    let me = node.me();
    let needs = node.needs(|needs| needs.at(me));
    if Rule::HomeAwaitsDiffs.on() && !node.meets(&needs) {
        return false;
    }
    node.home_has(&needs);
    true
}

/// The node's last thread arrives at a barrier: ends the interval and appends what was written. `homes_stay` where
/// threads of this node go on until the barrier opens.
pub fn arrive(node: &mut impl NodeEffects, intervals: &mut IntervalState, homes_stay: bool, notices: &mut Vec<u8>) {
    close_interval(node, intervals, CloseReason::Else);
    intervals.arrive(notices);
    if homes_stay {
        intervals.keep_homes(notices);
    }
    if node.wants_collection() {
        intervals.announce_collection(notices);
    }
    say_members(node, intervals, notices);
    node.push(intervals.epoch());
}

/// How far a node has come with a barrier that has opened. No other thread of it uses the intervals from the first step
/// to the last; between two steps others serve what does not need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The notices of all nodes are taken in. Next, homes migrate.
    Learned(Vec<(Entry, bool)>),
    /// Next, what was written in the epoch is forgotten.
    Migrated,
    /// What came from nodes that were here before can be done.
    Open,
}

impl Opening {
    /// Takes in what all nodes said; `in_place` where no thread of the node goes on before what ends was fetched again.
    pub fn begin(
        node: &mut impl NodeEffects,
        intervals: &mut IntervalState,
        notices: &[u8],
        in_place: bool,
    ) -> Opening {
        let entries = match node.needs(|needs| intervals.open(notices, needs)) {
            Ok(entries) => entries,
            Err(error) => {
                // Nobody knows any more which copies are out of date.
                node.fails(Failure::Notices(error));
                return Opening::Migrated;
            }
        };
        let (epoch, all) = (intervals.epoch(), entries.iter().map(|(entry, _)| entry));
        let unused = node.pages().push_buffer(|stash| stash.open(epoch, all));
        serve::tell_unused(unused.unwrap_or_default(), node.side());
        let fresh = || entries.iter().filter(|(_, fresh)| *fresh).map(|(entry, _)| entry);
        hear_members(node, intervals, &entries);
        note_written(node, fresh());
        invalidate_copies(node, intervals, fresh(), in_place);
        collect(node, intervals);
        Opening::Learned(entries)
    }

    /// The next step.
    pub fn next(self, node: &mut impl NodeEffects, intervals: &mut IntervalState) -> Opening {
        match self {
            Opening::Learned(entries) => {
                let moves = node.decide_moves(intervals.epoch(), &entries);
                for (run, writer) in moves.into_iter().filter(|_| !intervals.homes_stay()) {
                    let mut at = run.start;
                    while let Some((table, _)) = node.tables_at(&[at]).pop().filter(|_| at < run.end) {
                        let part = at..table.end.min(run.end);
                        at = part.end;
                        node.step(part.start, |table, cx| table.migrate(cx, &part, writer));
                    }
                }
                Opening::Migrated
            }
            Opening::Migrated | Opening::Open => {
                node.era(|sync_phase| sync_phase.open());
                let active = node.active();
                for (table, _) in node.tables_at(&active).into_iter().filter(|(_, asks)| asks.open) {
                    node.step(table.start, |table, cx| table.open(cx));
                }
                take_acquire_steps(node, intervals);
                Opening::Open
            }
        }
    }
}
