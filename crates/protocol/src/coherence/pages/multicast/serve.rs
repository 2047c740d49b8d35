//! What a thread sends that has faulted on a unit whose diffs are told to sets, and what a node does with messages to
//! sets.

use super::wire::{SetAsk, ToldUnit, put_told_freed, take_told};
use crate::coherence::Misbehaved;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::kept_diffs::serve::{freed, send_asks as send_direct, table_of};
use crate::coherence::pages::kept_diffs::{Ask, Stamp};
use crate::coherence::pages::page_table::PageTable;
use crate::coherence::pages::serve::{Listing, PageState};
use crate::ids::NodeId;
use crate::outbox::{Audience, Outbox};
use crate::time::Span;
use crate::tuning::MulticastTuning;
use crate::wire::message::Message;

/// What a node needs to know beside its tables.
#[derive(Clone, Copy, Debug)]
pub struct Bystander {
    /// This node.
    pub me: NodeId,
    /// How many nodes the job has.
    pub nodes: usize,
    /// The diffs of all intervals up to this stamp are in the stores.
    pub closed: Stamp,
    /// All nodes have heard, or will as they leave the last barrier, of what was written up to here.
    pub barrier: Stamp,
}

/// What a thread has asked for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Asked {
    /// Requests that will be answered for sure.
    pub requests: usize,
    /// Messages to sets.
    pub to_sets: usize,
    /// Arm the repair timer for these: units by their first pages, and the numbers of their rounds. When it runs out
    /// the thread calls [`repair`] with each.
    pub repairs: Vec<(PageNo, u32)>,
}

/// What a table makes of the asks for one of its units.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ComposedAsks {
    /// An ask of a set, with its body.
    pub to_set: Option<(Audience, Vec<u8>)>,
    /// Asks that go point to point.
    pub direct: Vec<(NodeId, Ask)>,
    /// The number of the round, if the thread is to wait for what may be lost.
    pub waits: Option<u32>,
}

/// Sends what a thread asks for whose fault has come to these asks. It waits then until its units are not being fetched
/// any more.
pub fn send_asks(state: &mut impl PageState, asks: &[(NodeId, Ask)], by: Bystander, out: &mut Outbox) -> Asked {
    let mut pages: Vec<PageNo> = asks.iter().map(|(_, ask)| ask.page).collect();
    pages.dedup();
    let (mut asked, mut direct) = (Asked::default(), Vec::new());
    for page in pages {
        let composed = state.page_table(page, out, |table, _| table.compose_asks(page, by)).unwrap_or_default();
        direct.extend(composed.direct);
        asked.repairs.extend(composed.waits.map(|round| (page, round)));
        if let Some((audience, body)) = composed.to_set {
            let target = out.set_target(audience);
            out.send(target, &Message::DiffsAsked { body: &body });
            asked.to_sets += 1;
        }
    }
    asked.requests = send_direct(&direct, state.home_queue(|queue| queue.epoch()), out);
    asked
}

/// The timer of a thread has run out: asks the writers that have not been heard from point to point. Gives how many
/// requests that is; none if the round is over.
pub fn repair(state: &mut impl PageState, (page, round): (PageNo, u32), out: &mut Outbox) -> usize {
    let asks = state.page_table(page, out, |table, cx| table.repair_asks(cx, page, round)).unwrap_or_default();
    send_direct(&asks, state.home_queue(|queue| queue.epoch()), out)
}

/// A node asks a set for diffs.
///
/// # Errors
/// When no correct node would have asked so: then nothing has happened.
pub fn on_asked(
    state: &mut impl PageState,
    from: NodeId,
    body: &[u8],
    by: Bystander,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let mut ask = SetAsk::parse(body).map_err(|_| Misbehaved("asked a set for diffs in a way that makes no sense"))?;
    let is_stranger = |node: NodeId| node.index() >= by.nodes;
    let named = ask.asked.iter().chain(ask.told.iter()).chain(ask.writers.iter().map(|writer| writer.node));
    if named.into_iter().any(|node| node == from || is_stranger(node)) {
        return Err(Misbehaved("asked a set in which it is itself, or that has members whom the job has not"));
    }
    let is_asked = ask.asked.contains(by.me);
    if !is_asked && !ask.told.contains(by.me) {
        // The network has brought what is for others.
        return Ok(());
    }
    let check = |table: &mut PageTable| table.check_set_ask(&ask, by).map(|()| table.note_ask(ask.page));
    match table_of(state, ask.page, out, |table, _| check(table)) {
        Some(checked) => checked?,
        None if is_asked && state.is_freed(ask.page) => {
            let mut reply = Vec::new();
            put_told_freed(&mut reply, ask.page, by.closed);
            tell(std::iter::once(from).collect(), &reply, out);
            return Ok(());
        }
        // It may have come before the news of its region.
        None => return Ok(()),
    }
    let own = ask.own.take();
    if let Some(own) = own {
        let unasked = own.unasked(from);
        state.listed_chunk((ask.page, Listing::Mapped), out, |table, cx| table.take_unasked(cx, ask.page, unasked));
    }
    let mut reply = Vec::new();
    let set = state.page_table(ask.page, out, |table, cx| table.answer_set_ask(cx, from, &ask, by, &mut reply));
    if let Some(set) = set.flatten() {
        tell(set, &reply, out);
    }
    Ok(())
}

fn tell(told: NodeSet, body: &[u8], out: &mut Outbox) {
    let target = out.set_target(Audience { asked: NodeSet::new(), told });
    out.send(target, &Message::DiffsTold { body });
}

/// A writer tells a set what it wrote.
///
/// # Errors
/// When no correct node would have told so: then nothing has happened.
pub fn on_told(state: &mut impl PageState, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let told = take_told(body).map_err(|_| Misbehaved("told diffs that make no sense"))?;
    for (page, of_unit) in &told {
        let checked = state.page_table(*page, out, |table, cx| match of_unit {
            ToldUnit::Diffs(diffs) => table.check_answer(*page, diffs.end().into(), false),
            ToldUnit::Collected(dropped) => table.check_collected(cx.me, from, *page, *dropped),
            ToldUnit::TooLong(_) | ToldUnit::Freed(_) => table.check_answer(*page, 0, false),
        });
        // What there is no table for yet, or no more, is no mistake: nobody asked this node before telling it.
        checked.unwrap_or(Ok(()))?;
    }
    for (page, of_unit) in told {
        match of_unit {
            ToldUnit::Diffs(diffs) => {
                let unasked = diffs.unasked(from);
                state.listed_chunk((page, Listing::Mapped), out, |table, cx| table.take_unasked(cx, page, unasked));
            }
            ToldUnit::Collected(dropped) => {
                state.page_table(page, out, |table, cx| table.take_told_collected(cx, from, page, dropped));
            }
            ToldUnit::TooLong(closed) => {
                state.page_table(page, out, |table, cx| table.take_too_long(cx, from, page, closed));
            }
            ToldUnit::Freed(closed) => {
                // What was told of a region that had these addresses before is late.
                let is_late = state.page_table(page, out, |table, _| table.was_before(closed));
                if is_late != Some(true) {
                    freed(state, page, out);
                }
            }
        }
    }
    Ok(())
}

/// How long a thread waits for what is told to a set before it asks point to point, where a message and its answer take
/// so long.
pub fn repair_wait(tuning: &MulticastTuning, round_trip: Span) -> Span {
    Span(round_trip.0.saturating_mul(tuning.repair_round_trips)).max(Span::from_us(tuning.repair_min_us))
}
