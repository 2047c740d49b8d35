//! What a node does with messages about diffs that stay with their writers.

use super::wire::{
    ASKED_UNITS_MAX, Base, DiffAsk, Told, put_base_asks, put_diff_asks, put_freed, take_base_asks, take_bases,
    take_diff_asks, take_told,
};
use super::{Ask, Wants};
use crate::coherence::Misbehaved;
use crate::coherence::pages::page_table::PageTable;
use crate::coherence::pages::serve::{Listing, PageState};
use crate::coherence::pages::{Context, PageNo};
use crate::ids::NodeId;
use crate::outbox::{Origin, Outbox, Target};
use crate::wire::message::{Message, Ticket};
use std::collections::BTreeMap;

const UNASKED: Misbehaved = Misbehaved("answered for pages that nobody asked for");

/// Most pages that one request names, but for a single unit: where each other byte was written in an interval of its
/// own, an answer is four times as long as the pages.
const ASKED_PAGES_MAX: u32 = 12;

/// Sends what a thread asks for, to each node as few messages as may be; gives how many that is.
pub fn send_asks(asks: &[(NodeId, Ask)], epoch: u32, out: &mut Outbox) -> usize {
    let mut by_node: BTreeMap<(NodeId, bool), Vec<Ask>> = BTreeMap::new();
    asks.iter().for_each(|(node, ask)| by_node.entry((*node, ask.wants == Wants::Base)).or_default().push(*ask));
    let mut sent = 0;
    for ((node, bases), asks) in by_node {
        let target = Target::Request { node, origin: Origin::Caller };
        for part in parts(&asks) {
            if bases {
                let pages: Vec<PageNo> = part.iter().map(|ask| ask.page).collect();
                out.send_with(target, &Message::FetchBase { body: &[] }, |body| put_base_asks(body, epoch, &pages));
            } else {
                let asks: Vec<DiffAsk> = part.iter().filter_map(DiffAsk::of).collect();
                out.send_with(target, &Message::FetchDiffs { body: &[] }, |body| put_diff_asks(body, &asks));
            }
            sent += 1;
        }
    }
    sent
}

/// What goes into one request each.
fn parts(asks: &[Ask]) -> impl Iterator<Item = &[Ask]> {
    let mut left = asks;
    std::iter::from_fn(move || {
        let mut pages = 0;
        let fit = |ask: &&Ask| {
            pages += ask.pages;
            pages <= ASKED_PAGES_MAX
        };
        let count = left.iter().take(ASKED_UNITS_MAX).take_while(fit).count().max(1);
        let (part, rest) = left.split_at_checked(count)?;
        left = rest;
        Some(part)
    })
}

/// A node wants what this one wrote.
///
/// # Errors
/// When no correct node would have asked so.
pub fn on_fetch_diffs(
    state: &mut impl PageState,
    ticket: Ticket,
    body: &[u8],
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let closed = state.closed_stamp();
    let asks = take_diff_asks(body).map_err(|_| Misbehaved("asked for diffs in a way that makes no sense"))?;
    let mut reply = Vec::new();
    for ask in asks {
        let told = table_of(state, ask.page, out, |table, _| table.tell_diffs(ask, closed, &mut reply));
        match told {
            Some(told) => told?,
            None if state.is_freed(ask.page) => put_freed(&mut reply, ask.page),
            None => return Err(Misbehaved("asked for diffs of pages that no region has")),
        }
    }
    out.send(Target::Reply(ticket), &Message::KeptDiffs { body: &reply });
    Ok(())
}

/// A node wants copies of what this one manages. One in a later epoch is answered when this node has come as far: until
/// then a base may lack what nobody keeps any more, and the asker would refuse it.
///
/// # Errors
/// When no correct node would have asked so.
pub fn on_fetch_base(
    state: &mut impl PageState,
    ticket: Ticket,
    body: &[u8],
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let (epoch, pages) =
        take_base_asks(body).map_err(|_| Misbehaved("asked for bases in a way that makes no sense"))?;
    match state.home_queue(|queue| queue.take_bases(ticket, epoch, pages)) {
        Some(pages) => tell_bases(state, ticket, pages, out),
        None => Ok(()),
    }
}

/// Answers a request for bases.
///
/// # Errors
/// When no correct node would have asked so.
pub(in crate::coherence::pages) fn tell_bases(
    state: &mut impl PageState,
    ticket: Ticket,
    pages: Vec<PageNo>,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let (closed, mut reply) = (state.closed_stamp(), Vec::new());
    for page in pages {
        match table_of(state, page, out, |table, cx| table.tell_base(cx, page, closed, &mut reply)) {
            Some(told) => told?,
            None if state.is_freed(page) => put_freed(&mut reply, page),
            None => return Err(Misbehaved("asked for bases of pages that no region has")),
        }
    }
    out.send(Target::Reply(ticket), &Message::Base { body: &reply });
    Ok(())
}

/// A step of the table with a page, if that was not freed.
pub(in crate::coherence::pages) fn table_of<R>(
    state: &mut impl PageState,
    page: PageNo,
    out: &mut Outbox,
    step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
) -> Option<R> {
    if state.is_freed(page) { None } else { state.page_table(page, out, step) }
}

/// A writer has answered.
///
/// # Errors
/// When no correct node would have answered so: then nothing has happened.
pub fn on_kept_diffs(
    state: &mut impl PageState,
    from: NodeId,
    body: &[u8],
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let told = take_told(body).map_err(|_| Misbehaved("sent diffs that make no sense"))?;
    for (page, of_unit) in &told {
        match of_unit {
            Told::Diffs(diffs) => {
                check(state, *page, out, |table, _| table.check_answer(*page, diffs.end().into(), false))?
            }
            Told::Collected(dropped) => {
                check(state, *page, out, |table, me| table.check_collected(me, from, *page, *dropped))?
            }
            Told::Freed => check(state, *page, out, |table, _| table.check_answer(*page, 0, false))?,
        }
    }
    for (page, of_unit) in told {
        match of_unit {
            Told::Diffs(diffs) => {
                state.listed_chunk((page, Listing::Mapped), out, |table, cx| table.take_diffs(cx, from, page, &diffs));
            }
            Told::Collected(dropped) => {
                state.page_table(page, out, |table, cx| table.take_collected(cx, from, page, dropped));
            }
            Told::Freed => freed(state, page, out),
        }
    }
    Ok(())
}

/// A manager has answered.
///
/// # Errors
/// When no correct node would have answered so: then nothing has happened.
pub fn on_base(state: &mut impl PageState, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let bases = take_bases(body).map_err(|_| Misbehaved("sent bases that make no sense"))?;
    for (page, base) in &bases {
        match base {
            Base::Copy(copy) => {
                let end = copy.stamps.runs().last().map_or(0, |run| run.end.into());
                check(state, *page, out, |table, _| table.check_answer(*page, end, false))?;
                if let Some(bytes) = copy.bytes {
                    check(state, *page, out, |table, _| table.check_answer(*page, bytes.len() as u64, true))?;
                }
            }
            Base::Freed => check(state, *page, out, |table, _| table.check_answer(*page, 0, false))?,
        }
    }
    for (page, base) in bases {
        match base {
            Base::Copy(copy) => {
                state.listed_chunk((page, Listing::Mapped), out, |table, cx| table.take_base(cx, from, page, copy));
            }
            Base::Freed => freed(state, page, out),
        }
    }
    Ok(())
}

/// Whether an answer about a unit may be true; of freed memory any may.
fn check(
    state: &mut impl PageState,
    page: PageNo,
    out: &mut Outbox,
    checked: impl FnOnce(&PageTable, NodeId) -> Result<(), Misbehaved>,
) -> Result<(), Misbehaved> {
    match state.page_table(page, out, |table, cx| checked(table, cx.me)) {
        Some(checked) => checked,
        None if state.is_freed(page) => Ok(()),
        None => Err(UNASKED),
    }
}

pub(in crate::coherence::pages) fn freed(state: &mut impl PageState, page: PageNo, out: &mut Outbox) {
    state.on_freed_elsewhere(&(page..page + 1));
    state.page_table(page, out, |table, cx| {
        let unit = table.units().unit_of(page);
        table.on_freed(cx, &unit);
    });
}
