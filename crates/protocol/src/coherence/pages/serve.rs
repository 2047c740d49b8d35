//! What a node does with messages about pages. Runtime and simulator keep page tables and home queue in different
//! places ([`PageState`]), but every message takes the same way.

use super::atomic::{Answer, Request};
use super::home_queue::HomeQueue;
use super::kept_diffs::Stamp;
use super::kept_diffs::serve::tell_bases;
use super::page_table::PageTable;
use super::push::{PushBuffer, PushedPages, Pushes};
use super::wire::{DiffsHead, Fetch, Pages, Push, Runs, parts, put_unused, take_unused};
use super::{Context, PAGE_BYTES, PageNo};
use crate::coherence::Misbehaved;
use crate::ids::{NodeId, Slot};
use crate::outbox::{Outbox, Target};
use crate::rules::Rule;
use crate::tuning::Tuning;
use crate::wire::message::{Message, Ticket};
use std::ops::Range;

/// What becomes of a page table's place in the list of active ones before a step of it. Who ends an interval while the
/// step goes on comes by those in the list, however few tables it looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    /// Nothing. After every step, a table joins the list if something in it may be dirty.
    AsBefore,
    /// The caller has taken it from the list.
    Taken,
    /// It joins the list: the step copies pages out for another node, and some of what threads write meanwhile may be
    /// missing in the copy.
    Shared,
    /// It joins the list: the step takes copies in, and threads may write to them as soon as they are mapped.
    Mapped,
    /// As `Shared`; there is no step where the memory was freed here.
    Live,
    /// The list stays as it is. The caller has taken the table from the list of those with copies that are of no use.
    Idle,
    /// It joins the list if mapping the page may oblige this node to tell of its writes: the step is a fault's.
    Fault,
}

/// Where a node keeps the state of pages. A closure runs while the room is locked.
pub trait PageState {
    /// A step of the chunk with this page; `None` when this node has not heard of such memory.
    fn listed_chunk<R>(
        &mut self,
        at: (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R>;
    /// The same, and the list stays as it is.
    fn page_table<R>(
        &mut self,
        page: PageNo,
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.listed_chunk((page, Listing::AsBefore), out, step)
    }
    /// The pages' bytes will be copied out soon, if they are here at all.
    fn look_ahead(&mut self, _pages: &Range<PageNo>) {}
    /// The node's home queue.
    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R;
    /// What was sent to the node unasked; `None` where nothing is kept of it.
    fn push_buffer<R>(&mut self, _step: impl FnOnce(&mut PushBuffer) -> R) -> Option<R> {
        None
    }
    /// The last stamp up to which all intervals of this node are in its tables' stores, where it keeps diffs.
    fn closed_stamp(&self) -> Stamp {
        0
    }
    /// The job's numbers.
    fn tuning(&self) -> &Tuning;
    /// Another node's memory of pages, where this node can read it; asked for only if this node said so in its fetch.
    fn memory_of(&mut self, _home: NodeId, _pages: &Range<PageNo>) -> Option<&'static [u8]> {
        None
    }
    /// Whether the memory with this page was freed here.
    fn is_freed(&mut self, _page: PageNo) -> bool {
        false
    }
    /// Another node says that memory which this node wanted was freed: the region in which these pages begin.
    fn on_freed_elsewhere(&mut self, _pages: &Range<PageNo>) {}
    /// The diffs of `writer` up to this serial are in; for nodes that look by themselves.
    fn diffs_are_in(&mut self, _writer: NodeId, _serial: u64) {}
    /// The serial up to which `writer` has stored its diffs into this node's memory by itself, where nodes can.
    fn diffs_put(&mut self, _writer: NodeId) -> u64 {
        0
    }
    /// A diff that `writer` made in this epoch was applied to the unit that begins at `page`; for reports.
    fn diff_applied(&mut self, _writer: NodeId, _epoch: u32, _page: PageNo, _diff: &[u8]) {}
}

/// A node wants pages.
///
/// # Errors
/// When no correct node would have asked so.
pub fn on_fetch(state: &mut impl PageState, ticket: Ticket, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let fetch = Fetch::parse(body).map_err(|_| Misbehaved("sent a fetch that makes no sense"))?;
    for need in &fetch.needs {
        collect_puts(state, need.writer);
    }
    if let Some(fetch) = state.home_queue(|queue| queue.take_fetch(ticket, fetch)) {
        answer(state, ticket, fetch, out)?;
    }
    Ok(())
}

/// Answers a fetch of few pages in one look at their chunk, if all is there and at home here. Else nothing has
/// happened.
fn answer_few(state: &mut impl PageState, ticket: Ticket, fetch: &Fetch, out: &mut Outbox) -> bool {
    let [run] = &fetch.runs[..] else { return false };
    if fetch.direct || fetch.claim || run.len() > state.tuning().pages.few_pages as usize {
        return false;
    }
    state.look_ahead(run);
    let (runs, mut none) = (std::slice::from_ref(run), Outbox::new());
    out.try_send_with(Target::Reply(ticket), &Message::Pages { body: &[] }, |body| {
        let shared = state.listed_chunk((run.start, Listing::Live), &mut none, |table, cx| {
            let is_here = table.has_at_home(run);
            if is_here {
                Pages::emit_all(runs, body);
                table.share(cx, runs, Some(body));
                table.note_reader(runs, ticket.channel.node, fetch.epoch);
            }
            is_here
        });
        shared == Some(true)
    })
}

fn answer(state: &mut impl PageState, ticket: Ticket, fetch: Fetch, out: &mut Outbox) -> Result<(), Misbehaved> {
    if answer_few(state, ticket, &fetch, out) {
        return Ok(());
    }
    let asker = ticket.channel.node;
    let mut reply = Pages { direct: fetch.direct, ..Pages::default() };
    // What is sent, in order, each part with the first page of its chunk.
    let mut parts: Vec<(PageNo, Range<PageNo>)> = Vec::new();
    for run in &fetch.runs {
        let mut left = run.clone();
        while !left.is_empty() {
            // Regions may lie side by side, and of what was freed long ago there is no chunk that would say how far it
            // goes.
            if state.is_freed(left.start) {
                super::push_range(&mut reply.freed, left.start..left.start + 1);
                left.start += 1;
                continue;
            }
            let looked = state.page_table(left.start, out, |table, cx| {
                let part = left.start..left.end.min(table.layout().first + table.layout().pages);
                let moved = if table.keeps_diffs() { None } else { Some(table.lookup(cx, &part, asker, fetch.claim)) };
                moved.map(|moved| (moved, part, table.layout().first))
            });
            let Some((moved, part, first)) = looked.flatten().filter(|(_, part, _)| !part.is_empty()) else {
                return Err(Misbehaved("asked for pages that no region has"));
            };
            left.start = part.end;
            if moved.is_empty() {
                parts.push((first, part));
            } else {
                // Rare: a run over units with several homes is answered unit by unit next time.
                let mut rest = Vec::new();
                push_rest(&mut rest, &part, &moved);
                parts.extend(rest.into_iter().map(|part| (first, part)));
                reply.moved.extend(moved);
            }
        }
    }
    parts.iter().for_each(|(_, part)| super::push_range(&mut reply.runs, part.clone()));
    let mut none = Outbox::new();
    out.send_with(Target::Reply(ticket), &Message::Pages { body: &[] }, |body| {
        reply.emit(body);
        if !reply.direct {
            body.reserve(reply.runs.iter().map(|r| (r.end - r.start) as usize * PAGE_BYTES).sum());
        }
        for of_chunk in parts.chunk_by(|a, b| a.0 == b.0) {
            let runs: Vec<Range<PageNo>> = of_chunk.iter().map(|(_, part)| part.clone()).collect();
            state.listed_chunk((runs[0].start, Listing::Shared), &mut none, |table, cx| {
                table.share(cx, &runs, if reply.direct { None } else { Some(&mut *body) });
                if !reply.direct {
                    table.note_reader(&runs, asker, fetch.epoch);
                }
            });
        }
    });
    Ok(())
}

/// Appends what is left of `part` without the pages that have moved.
fn push_rest(runs: &mut Vec<Range<PageNo>>, part: &Range<PageNo>, moved: &[(Range<PageNo>, NodeId)]) {
    let mut at = part.start;
    for (gone, _) in moved {
        super::push_range(runs, at..gone.start.max(at));
        at = gone.end;
    }
    super::push_range(runs, at..part.end.max(at));
}

/// The answer to a fetch.
///
/// # Errors
/// When no correct node would have answered so.
pub fn on_pages(state: &mut impl PageState, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    const UNASKED: Misbehaved = Misbehaved("sent pages that nobody asked for");
    let (pages, mut bytes) = Pages::parse(body).map_err(|_| Misbehaved("sent pages that make no sense"))?;
    for run in &pages.runs {
        if pages.direct {
            bytes = state.memory_of(from, run).ok_or(UNASKED)?;
        }
        bytes = take_in(state, run, bytes, out).ok_or(UNASKED)?;
    }
    for (run, home) in pages.moved {
        state.page_table(run.start, out, |table, cx| table.on_moved(cx, run.clone(), home));
    }
    for run in pages.freed {
        let mut left = run;
        while !left.is_empty() {
            state.on_freed_elsewhere(&left);
            let end = state.page_table(left.start, out, |table, cx| {
                let part = left.start..left.end.min(table.layout().first + table.layout().pages);
                table.on_freed(cx, &part);
                part.end
            });
            left.start = match end {
                Some(end) => end,
                None if state.is_freed(left.start) => left.start + 1,
                None => return Err(UNASKED),
            };
        }
    }
    Ok(())
}

/// The bytes of a run of pages are here, from wherever. Gives the bytes behind them, unless the run is no run of whole
/// units.
pub fn take_in<'a>(
    state: &mut impl PageState,
    run: &Range<PageNo>,
    mut bytes: &'a [u8],
    out: &mut Outbox,
) -> Option<&'a [u8]> {
    let mut left = run.clone();
    while !left.is_empty() {
        let done = state.listed_chunk((left.start, Listing::Mapped), out, |table, cx| {
            let part = left.start..left.end.min(table.layout().first + table.layout().pages);
            let whole = table.units().unit_of(part.start).start == part.start
                && (part.end - part.start).is_multiple_of(table.layout().unit_pages);
            let len = (part.end - part.start) as usize * PAGE_BYTES;
            if whole {
                table.on_pages(cx, part.clone(), &bytes[..len]);
            }
            (part.end, len, whole)
        });
        let Some(done) = done else {
            // Of what was freed long ago there is no chunk; behind it there may be one.
            if !state.is_freed(left.start) {
                return None;
            }
            left.start += 1;
            bytes = bytes.get(PAGE_BYTES..)?;
            continue;
        };
        let (end, len, true) = done else { return None };
        left.start = end;
        bytes = &bytes[len..];
    }
    Some(bytes)
}

/// This node arrives at a barrier and has told of what it wrote in these chunks: sends it to the nodes that would ask
/// for it, at most `most` pages each. Gives how many pages that was.
pub fn push(state: &mut impl PageState, epoch: u32, chunks: &[PageNo], most: u32, out: &mut Outbox) -> u64 {
    let mut pushes = Pushes::new(most);
    for first in chunks {
        if !state.is_freed(*first) {
            state.page_table(*first, out, |table, cx| table.pushes(cx, epoch, &mut pushes));
        }
    }
    let mut sent = 0;
    for (node, parts) in pushes.into_messages() {
        // Read before the pages are: they have at least that.
        let mut message = Push { epoch, applied: state.home_queue(|queue| queue.all_applied()), runs: Runs::new() };
        parts.iter().flat_map(|(_, runs)| runs).for_each(|run| super::push_range(&mut message.runs, run.clone()));
        sent += message.runs.iter().map(|run| run.len() as u64).sum::<u64>();
        let mut none = Outbox::new();
        let target = Target::Free { node, slot: Slot::thread(0) };
        out.send_with(target, &Message::Push { body: &[] }, |body| {
            message.emit(body);
            for (first, runs) in &parts {
                state.listed_chunk((*first, Listing::Shared), &mut none, |table, cx| match Rule::PushedPagesAreShared
                    .on()
                {
                    true => table.share(cx, runs, Some(&mut *body)),
                    false => runs.iter().for_each(|run| cx.memory.copy_out(run.clone(), body)),
                });
            }
        });
    }
    sent
}

/// Pages have come that this node did not ask for.
///
/// # Errors
/// When no correct node would have sent them.
pub fn on_push(state: &mut impl PageState, from: NodeId, body: &[u8]) -> Result<(), Misbehaved> {
    let (push, bytes) = Push::parse(body).map_err(|_| Misbehaved("sent pages unasked that make no sense"))?;
    state.push_buffer(|buffer| buffer.keep(from, push, bytes));
    Ok(())
}

/// Takes what was sent unasked of these pages, which are whole units in state `Fetching`, to be given to
/// [`install_pushed`]; gives what must be asked for too.
pub fn pick(
    state: &mut impl PageState,
    home: NodeId,
    runs: Vec<Range<PageNo>>,
) -> (Vec<PushedPages>, Vec<Range<PageNo>>) {
    if state.push_buffer(|buffer| runs.iter().any(|run| buffer.has(run))) != Some(true) {
        return (Vec::new(), runs);
    }
    let (mut units, mut none) = (Vec::new(), Outbox::new());
    for run in &runs {
        let mut left = run.clone();
        while !left.is_empty() {
            let of_chunk = state.page_table(left.start, &mut none, |table, _| {
                let shape = table.layout();
                (left.end.min(shape.first + shape.pages), shape.unit_pages)
            });
            let (end, unit) = of_chunk.unwrap_or((left.end, left.end - left.start));
            units.extend((left.start..end).step_by(unit as usize).map(|first| first..first + unit));
            left.start = end;
        }
    }
    let (mut pushed, mut left) = (Vec::new(), Vec::new());
    state.push_buffer(|buffer| buffer.pick(home, &units, &mut pushed, &mut left));
    (pushed, left)
}

/// Installs what was pushed; gives how many pages that was.
pub fn install_pushed(state: &mut impl PageState, pushed: &[PushedPages], out: &mut Outbox) -> u64 {
    for run in pushed {
        take_in(state, &run.pages, run.bytes(), out);
    }
    pushed.iter().map(|run| run.pages.len() as u64).sum()
}

/// Tells homes which pages they sent in vain.
pub fn tell_unused(unused: Vec<(NodeId, Vec<Range<PageNo>>)>, out: &mut Outbox) {
    for (home, runs) in unused {
        let target = Target::Free { node: home, slot: Slot::thread(0) };
        out.send_with(target, &Message::PushUnused { body: &[] }, |body| put_unused(body, &runs));
    }
}

/// A node says that pages were sent to it in vain.
///
/// # Errors
/// When no correct node would have said so.
pub fn on_unused(state: &mut impl PageState, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let runs = take_unused(body).map_err(|_| Misbehaved("said that pages were of no use that make no sense"))?;
    for mut left in runs {
        while !left.is_empty() {
            let end = state.page_table(left.start, out, |table, _| {
                table.on_unused(&left, from);
                table.layout().first + table.layout().pages
            });
            // Memory that was freed meanwhile.
            let Some(end) = end else { break };
            left.start = end.min(left.end);
        }
    }
    Ok(())
}

/// Diffs for pages whose home is here.
///
/// # Errors
/// When no correct node would have sent them.
pub fn on_diffs(state: &mut impl PageState, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let (head, rest) = DiffsHead::parse(body).map_err(|_| Misbehaved("sent diffs that make no sense"))?;
    collect_puts(state, from);
    let stamp = (head.epoch, head.serial);
    if state.home_queue(|queue| queue.take_diffs(from, head, rest)) {
        apply(state, from, stamp, rest, out)?;
        rerun(state, out)?;
    }
    Ok(())
}

/// What a node has put is told of afterwards, so it is soon enough to tell the queue later.
fn collect_puts(state: &mut impl PageState, writer: NodeId) {
    let put = state.diffs_put(writer);
    if put > 0 {
        state.home_queue(|queue| queue.applied(writer, put));
    }
}

fn apply(
    state: &mut impl PageState,
    from: NodeId,
    (epoch, serial): (u32, u64),
    rest: &[u8],
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    for (page, diff) in parts(rest) {
        match state.page_table(page, out, |table, cx| table.on_diff(cx, page, diff)) {
            Some(result) => {
                if result? {
                    state.diff_applied(from, epoch, page, diff);
                }
            }
            None if state.is_freed(page) => {}
            None => return Err(Misbehaved("sent diffs of pages that no region has")),
        }
    }
    state.home_queue(|queue| queue.applied(from, serial));
    state.diffs_are_in(from, serial);
    Ok(())
}

/// Does what waits in the queue, as far as it can be done now: after diffs were applied, after an epoch has begun.
///
/// # Errors
/// When what lay there makes no sense.
pub fn rerun(state: &mut impl PageState, out: &mut Outbox) -> Result<(), Misbehaved> {
    while let Some((from, head, rest)) = state.home_queue(HomeQueue::next_diffs) {
        apply(state, from, (head.epoch, head.serial), &rest, out)?;
    }
    while let Some((ticket, fetch)) = state.home_queue(HomeQueue::next_fetch) {
        answer(state, ticket, fetch, out)?;
    }
    while let Some((ticket, pages)) = state.home_queue(HomeQueue::next_bases) {
        tell_bases(state, ticket, pages, out)?;
    }
    while let Some((ticket, request)) = state.home_queue(HomeQueue::next_atomic) {
        carry_out(state, ticket, &request, out)?;
    }
    Ok(())
}

/// A node wants an operation carried out on a word whose home is here.
///
/// # Errors
/// When no correct node would have asked so: then nothing has happened.
pub fn on_atomic(state: &mut impl PageState, ticket: Ticket, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let request = Request::parse(body).map_err(|_| Misbehaved("asked for an atomic operation that makes no sense"))?;
    for need in &request.needs {
        collect_puts(state, need.writer);
    }
    match state.home_queue(|queue| queue.take_atomic(ticket, request)) {
        Some(request) => carry_out(state, ticket, &request, out),
        None => Ok(()),
    }
}

fn carry_out(
    state: &mut impl PageState,
    ticket: Ticket,
    request: &Request,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let (page, offset) = (request.page, usize::from(request.offset));
    let answer = if state.is_freed(page) {
        Answer::Freed
    } else {
        let step = |table: &mut PageTable, cx: &mut Context<'_>| table.on_atomic(cx, (page, offset), request.atomic);
        let done = state.page_table(page, out, step);
        let done = done.ok_or(Misbehaved("asked for an atomic operation on a page that no region has"))?;
        done.map_or(Answer::Elsewhere, Answer::Done)
    };
    out.send_with(Target::Reply(ticket), &Message::AtomicDone { body: &[] }, |body| answer.emit(body));
    Ok(())
}
