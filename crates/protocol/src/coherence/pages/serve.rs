//! What a node does with messages about pages. Runtime and simulator keep chunks and desk in different houses ([`PageRooms`]), but every
//! message takes the same way.

use super::atomic::{Answer, Request};
use super::chunk::{Chunk, FEW_PAGES};
use super::desk::Desk;
use super::push::{Picked, Pushes, Stash};
use super::wire::{DiffsHead, Fetch, Pages, Push, Runs, parts, put_unused, take_unused};
use super::{Context, PAGE_BYTES, PageNo};
use crate::coherence::Misbehaved;
use crate::ids::{NodeId, Slot};
use crate::outbox::{Outbox, Target};
use crate::rules::Rule;
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
}

/// Where a node keeps the state of pages. A closure runs while the room is locked.
pub trait PageRooms {
    /// A step of the chunk with this page; `None` when this node has not heard of such memory.
    fn listed_chunk<R>(
        &mut self,
        at: (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R,
    ) -> Option<R>;
    /// The same, and the list stays as it is.
    fn chunk<R>(
        &mut self,
        page: PageNo,
        out: &mut Outbox,
        step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.listed_chunk((page, Listing::AsBefore), out, step)
    }
    /// The pages' bytes will be copied out soon, if they are here at all.
    fn look_ahead(&mut self, _pages: &Range<PageNo>) {}
    /// The node's desk.
    fn page_desk<R>(&mut self, step: impl FnOnce(&mut Desk) -> R) -> R;
    /// What was sent to the node unasked; `None` where nothing is kept of it.
    fn stash<R>(&mut self, _step: impl FnOnce(&mut Stash) -> R) -> Option<R> {
        None
    }
    /// Another node's memory of pages, where this node can read it; asked for only if this node said so in its fetch.
    fn memory_of(&mut self, _home: NodeId, _pages: &Range<PageNo>) -> Option<&'static [u8]> {
        None
    }
    /// Whether the memory with this page was freed here.
    fn is_freed(&mut self, _page: PageNo) -> bool {
        false
    }
    /// Another node says that memory which this node wanted was freed: the region in which these pages begin.
    fn hear_of_freed(&mut self, _pages: &Range<PageNo>) {}
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
pub fn on_fetch(rooms: &mut impl PageRooms, ticket: Ticket, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let fetch = Fetch::parse(body).map_err(|_| Misbehaved("sent a fetch that makes no sense"))?;
    for need in &fetch.needs {
        hear_of_puts(rooms, need.writer);
    }
    if let Some(fetch) = rooms.page_desk(|desk| desk.take_fetch(ticket, fetch)) {
        answer(rooms, ticket, fetch, out)?;
    }
    Ok(())
}

/// Answers a fetch of few pages in one look at their chunk, if all is there and at home here. Else nothing has happened.
fn answer_few(rooms: &mut impl PageRooms, ticket: Ticket, fetch: &Fetch, out: &mut Outbox) -> bool {
    let [run] = &fetch.runs[..] else { return false };
    if fetch.direct || fetch.claim || run.len() > FEW_PAGES as usize {
        return false;
    }
    rooms.look_ahead(run);
    let (runs, mut none) = (std::slice::from_ref(run), Outbox::new());
    out.try_send_with(Target::Reply(ticket), &Message::Pages { body: &[] }, |body| {
        let shared = rooms.listed_chunk((run.start, Listing::Live), &mut none, |chunk, cx| {
            let is_here = chunk.has_at_home(run);
            if is_here {
                Pages::emit_all(runs, body);
                chunk.share(cx, runs, Some(body));
                chunk.note_reader(runs, ticket.channel.node, fetch.epoch);
            }
            is_here
        });
        shared == Some(true)
    })
}

fn answer(rooms: &mut impl PageRooms, ticket: Ticket, fetch: Fetch, out: &mut Outbox) -> Result<(), Misbehaved> {
    if answer_few(rooms, ticket, &fetch, out) {
        return Ok(());
    }
    let asker = ticket.channel.node;
    let mut reply = Pages { direct: fetch.direct, ..Pages::default() };
    // What is sent, in order, each part with the first page of its chunk.
    let mut parts: Vec<(PageNo, Range<PageNo>)> = Vec::new();
    for run in &fetch.runs {
        let mut left = run.clone();
        while !left.is_empty() {
            // Regions may lie side by side, and of what was freed long ago there is no chunk that would say how far it goes.
            if rooms.is_freed(left.start) {
                super::push_range(&mut reply.freed, left.start..left.start + 1);
                left.start += 1;
                continue;
            }
            let looked = rooms.chunk(left.start, out, |chunk, cx| {
                let part = left.start..left.end.min(chunk.shape().first + chunk.shape().pages);
                (chunk.lookup(cx, &part, asker, fetch.claim), part, chunk.shape().first)
            });
            let Some((moved, part, first)) = looked.filter(|(_, part, _)| !part.is_empty()) else {
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
            rooms.listed_chunk((runs[0].start, Listing::Shared), &mut none, |chunk, cx| {
                chunk.share(cx, &runs, if reply.direct { None } else { Some(&mut *body) });
                if !reply.direct {
                    chunk.note_reader(&runs, asker, fetch.epoch);
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
pub fn on_pages(rooms: &mut impl PageRooms, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    const UNASKED: Misbehaved = Misbehaved("sent pages that nobody asked for");
    let (pages, mut bytes) = Pages::parse(body).map_err(|_| Misbehaved("sent pages that make no sense"))?;
    for run in &pages.runs {
        if pages.direct {
            bytes = rooms.memory_of(from, run).ok_or(UNASKED)?;
        }
        bytes = take_in(rooms, run, bytes, out).ok_or(UNASKED)?;
    }
    for (run, home) in pages.moved {
        rooms.chunk(run.start, out, |chunk, cx| chunk.on_moved(cx, run.clone(), home));
    }
    for run in pages.freed {
        let mut left = run;
        while !left.is_empty() {
            rooms.hear_of_freed(&left);
            let end = rooms.chunk(left.start, out, |chunk, cx| {
                let part = left.start..left.end.min(chunk.shape().first + chunk.shape().pages);
                chunk.on_freed(cx, &part);
                part.end
            });
            left.start = match end {
                Some(end) => end,
                None if rooms.is_freed(left.start) => left.start + 1,
                None => return Err(UNASKED),
            };
        }
    }
    Ok(())
}

/// The bytes of a run of pages are here, from wherever. Gives the bytes behind them, unless the run is no run of whole units.
pub fn take_in<'a>(
    rooms: &mut impl PageRooms,
    run: &Range<PageNo>,
    mut bytes: &'a [u8],
    out: &mut Outbox,
) -> Option<&'a [u8]> {
    let mut left = run.clone();
    while !left.is_empty() {
        let done = rooms.listed_chunk((left.start, Listing::Mapped), out, |chunk, cx| {
            let part = left.start..left.end.min(chunk.shape().first + chunk.shape().pages);
            let whole = chunk.unit_of(part.start).start == part.start
                && (part.end - part.start).is_multiple_of(chunk.shape().unit_pages);
            let len = (part.end - part.start) as usize * PAGE_BYTES;
            if whole {
                chunk.on_pages(cx, part.clone(), &bytes[..len]);
            }
            (part.end, len, whole)
        });
        let Some(done) = done else {
            // Of what was freed long ago there is no chunk; behind it there may be one.
            if !rooms.is_freed(left.start) {
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

/// This node arrives at a barrier and has told of what it wrote in these chunks: sends it to the nodes that would ask for it, at most `most` pages
/// each. Gives how many pages that was.
pub fn push(rooms: &mut impl PageRooms, epoch: u32, chunks: &[PageNo], most: u32, out: &mut Outbox) -> u64 {
    let mut pushes = Pushes::new(most);
    for first in chunks {
        if !rooms.is_freed(*first) {
            rooms.chunk(*first, out, |chunk, cx| chunk.pushes(cx, epoch, &mut pushes));
        }
    }
    let mut sent = 0;
    for (node, parts) in pushes.into_messages() {
        // Read before the pages are: they have at least that.
        let mut message = Push { epoch, applied: rooms.page_desk(|desk| desk.all_applied()), runs: Runs::new() };
        parts.iter().flat_map(|(_, runs)| runs).for_each(|run| super::push_range(&mut message.runs, run.clone()));
        sent += message.runs.iter().map(|run| run.len() as u64).sum::<u64>();
        let mut none = Outbox::new();
        let target = Target::Free { node, slot: Slot::thread(0) };
        out.send_with(target, &Message::Push { body: &[] }, |body| {
            message.emit(body);
            for (first, runs) in &parts {
                rooms.listed_chunk((*first, Listing::Shared), &mut none, |chunk, cx| match Rule::PushedPagesAreShared
                    .on()
                {
                    true => chunk.share(cx, runs, Some(&mut *body)),
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
pub fn on_push(rooms: &mut impl PageRooms, from: NodeId, body: &[u8]) -> Result<(), Misbehaved> {
    let (push, bytes) = Push::parse(body).map_err(|_| Misbehaved("sent pages unasked that make no sense"))?;
    rooms.stash(|stash| stash.keep(from, push, bytes));
    Ok(())
}

/// Takes what was sent unasked of these pages, which are whole units in state `Fetching`, to be given to [`take_picked`]; gives what must be asked for too.
pub fn pick(rooms: &mut impl PageRooms, home: NodeId, runs: Vec<Range<PageNo>>) -> (Vec<Picked>, Vec<Range<PageNo>>) {
    if rooms.stash(|stash| runs.iter().any(|run| stash.has(run))) != Some(true) {
        return (Vec::new(), runs);
    }
    let (mut units, mut none) = (Vec::new(), Outbox::new());
    for run in &runs {
        let mut left = run.clone();
        while !left.is_empty() {
            let of_chunk = rooms.chunk(left.start, &mut none, |chunk, _| {
                let shape = chunk.shape();
                (left.end.min(shape.first + shape.pages), shape.unit_pages)
            });
            let (end, unit) = of_chunk.unwrap_or((left.end, left.end - left.start));
            units.extend((left.start..end).step_by(unit as usize).map(|first| first..first + unit));
            left.start = end;
        }
    }
    let (mut picked, mut left) = (Vec::new(), Vec::new());
    rooms.stash(|stash| stash.pick(home, &units, &mut picked, &mut left));
    (picked, left)
}

/// Installs what was picked; gives how many pages that was.
pub fn take_picked(rooms: &mut impl PageRooms, picked: &[Picked], out: &mut Outbox) -> u64 {
    for run in picked {
        take_in(rooms, &run.pages, run.bytes(), out);
    }
    picked.iter().map(|run| run.pages.len() as u64).sum()
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
pub fn on_unused(rooms: &mut impl PageRooms, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let runs = take_unused(body).map_err(|_| Misbehaved("said that pages were of no use that make no sense"))?;
    for mut left in runs {
        while !left.is_empty() {
            let end = rooms.chunk(left.start, out, |chunk, _| {
                chunk.on_unused(&left, from);
                chunk.shape().first + chunk.shape().pages
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
pub fn on_diffs(rooms: &mut impl PageRooms, from: NodeId, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let (head, rest) = DiffsHead::parse(body).map_err(|_| Misbehaved("sent diffs that make no sense"))?;
    hear_of_puts(rooms, from);
    let stamp = (head.epoch, head.serial);
    if rooms.page_desk(|desk| desk.take_diffs(from, head, rest)) {
        apply(rooms, from, stamp, rest, out)?;
        rerun(rooms, out)?;
    }
    Ok(())
}

/// What a node has put is told of afterwards, so whoever tells the desk of it later tells it soon enough.
fn hear_of_puts(rooms: &mut impl PageRooms, writer: NodeId) {
    let put = rooms.diffs_put(writer);
    if put > 0 {
        rooms.page_desk(|desk| desk.applied(writer, put));
    }
}

fn apply(
    rooms: &mut impl PageRooms,
    from: NodeId,
    (epoch, serial): (u32, u64),
    rest: &[u8],
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    for (page, diff) in parts(rest) {
        match rooms.chunk(page, out, |chunk, cx| chunk.on_diff(cx, page, diff)) {
            Some(result) => {
                if result? {
                    rooms.diff_applied(from, epoch, page, diff);
                }
            }
            None if rooms.is_freed(page) => {}
            None => return Err(Misbehaved("sent diffs of pages that no region has")),
        }
    }
    rooms.page_desk(|desk| desk.applied(from, serial));
    rooms.diffs_are_in(from, serial);
    Ok(())
}

/// Does what lay on the desk, as far as it can be done now: after diffs were applied, after an epoch has begun.
///
/// # Errors
/// When what lay there makes no sense.
pub fn rerun(rooms: &mut impl PageRooms, out: &mut Outbox) -> Result<(), Misbehaved> {
    while let Some((from, head, rest)) = rooms.page_desk(Desk::next_diffs) {
        apply(rooms, from, (head.epoch, head.serial), &rest, out)?;
    }
    while let Some((ticket, fetch)) = rooms.page_desk(Desk::next_fetch) {
        answer(rooms, ticket, fetch, out)?;
    }
    while let Some((ticket, request)) = rooms.page_desk(Desk::next_atomic) {
        carry_out(rooms, ticket, &request, out)?;
    }
    Ok(())
}

/// A node wants an operation carried out on a word whose home is here.
///
/// # Errors
/// When no correct node would have asked so: then nothing has happened.
pub fn on_atomic(rooms: &mut impl PageRooms, ticket: Ticket, body: &[u8], out: &mut Outbox) -> Result<(), Misbehaved> {
    let request = Request::parse(body).map_err(|_| Misbehaved("asked for an atomic operation that makes no sense"))?;
    for need in &request.needs {
        hear_of_puts(rooms, need.writer);
    }
    match rooms.page_desk(|desk| desk.take_atomic(ticket, request)) {
        Some(request) => carry_out(rooms, ticket, &request, out),
        None => Ok(()),
    }
}

fn carry_out(
    rooms: &mut impl PageRooms,
    ticket: Ticket,
    request: &Request,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let (page, offset) = (request.page, usize::from(request.offset));
    let answer = if rooms.is_freed(page) {
        Answer::Freed
    } else {
        let step = |chunk: &mut Chunk, cx: &mut Context<'_>| chunk.on_atomic(cx, (page, offset), request.atomic);
        let done = rooms.chunk(page, out, step);
        let done = done.ok_or(Misbehaved("asked for an atomic operation on a page that no region has"))?;
        done.map_or(Answer::Elsewhere, Answer::Done)
    };
    out.send_with(Target::Reply(ticket), &Message::AtomicDone { body: &[] }, |body| answer.emit(body));
    Ok(())
}
