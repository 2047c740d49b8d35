//! The bodies of the messages about pages.
//!
//! | message | body |
//! |---|---|
//! | fetch (request) | epoch u32, claim and direct u8, needs, runs |
//! | pages (its reply) | direct u8, runs, moved, the runs' bytes unless direct |
//! | push (free) | epoch u32, applied: as needs, runs, the runs' bytes |
//! | unused (free) | runs |
//! | diffs (post) | epoch u32, serial, needs, then parts: first page u32, length u32, the encoded diff |
//! | hints (behind an acquirer's knowledge), pages (behind a release's notices) | see [`piggyback`](super::piggyback) |
//! | notices (in payloads) | see [`Entry`] |
//!
//! Lists begin with their count, u16. Needs are of (node u16, serial), runs of (first page u32, pages u16), moved of
//! (first page u32, pages u16, node u16).
//!
//! A serial is u32, or `u32::MAX` and behind it u64 if it is as large as that.

use super::write_notices::WhichLog;
use super::{CHUNK_PAGES, PAGE_BYTES, PageNo, RunList};
use crate::ids::{NODES_MAX, NodeId};
use crate::wire::bytes::{Put, Reader, WireError};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Most runs in one fetch.
pub const FETCH_RUNS_MAX: usize = 256;
/// Most bytes of diffs in one message.
pub const DIFFS_BYTES: usize = 96 << 10;
/// Most pages that one fetch asks for.
pub const FETCH_PAGES_MAX: u32 = 60;
/// Most pages that a home sends to a node unasked at a barrier.
pub const PUSH_PAGES_MAX: u32 = 60;
/// In place of a serial: it follows in eight bytes.
const LARGE: u32 = u32::MAX;

fn put_node(out: &mut Vec<u8>, node: NodeId) {
    out.put_u16(node.0);
}

fn take_node(r: &mut Reader<'_>) -> Result<NodeId, WireError> {
    node_of(r.u16()?.into())
}

fn take_var_node(r: &mut Reader<'_>) -> Result<NodeId, WireError> {
    node_of(r.var()?)
}

fn node_of(number: u64) -> Result<NodeId, WireError> {
    if number < NODES_MAX as u64 { Ok(NodeId(number as u16)) } else { Err(WireError::BadValue("node")) }
}

fn put_run(out: &mut Vec<u8>, run: &Range<PageNo>) {
    out.put_u32(run.start);
    out.put_u16((run.end - run.start) as u16);
}

pub(super) fn put_runs(out: &mut Vec<u8>, runs: &[Range<PageNo>]) {
    out.put_u16(runs.len() as u16);
    runs.iter().for_each(|run| put_run(out, run));
}

/// Reads runs of at most `most` pages in all.
pub(super) fn take_runs<L: RunList + Default>(r: &mut Reader<'_>, most: u32) -> Result<L, WireError> {
    let count = usize::from(r.u16()?);
    if count > FETCH_RUNS_MAX {
        return Err(WireError::BadValue("number of runs"));
    }
    let (mut runs, mut pages) = (L::default(), 0);
    for _ in 0..count {
        let run = take_run(r)?;
        pages += run.end - run.start;
        if pages > most {
            return Err(WireError::BadValue("number of pages"));
        }
        runs.add_run(run);
    }
    Ok(runs)
}

/// Programs whose locks move every ten microseconds need more than four bytes after half a day.
fn put_serial(out: &mut Vec<u8>, serial: u64) {
    match u32::try_from(serial) {
        Ok(serial) if serial != LARGE => out.put_u32(serial),
        _ => {
            out.put_u32(LARGE);
            out.put_u64(serial);
        }
    }
}

fn take_serial(r: &mut Reader<'_>) -> Result<u64, WireError> {
    match r.u32()? {
        LARGE => Some(r.u64()?).filter(|serial| *serial >= u64::from(LARGE)).ok_or(WireError::BadValue("serial")),
        serial => Ok(serial.into()),
    }
}

fn put_needs(out: &mut Vec<u8>, needs: &[RequiredDiff]) {
    out.put_u16(needs.len() as u16);
    for need in needs {
        put_node(out, need.writer);
        put_serial(out, need.serial);
    }
}

pub(super) fn take_needs(r: &mut Reader<'_>) -> Result<Vec<RequiredDiff>, WireError> {
    (0..r.u16()?).map(|_| Ok(RequiredDiff { writer: take_node(r)?, serial: take_serial(r)? })).collect()
}

fn take_run(r: &mut Reader<'_>) -> Result<Range<PageNo>, WireError> {
    let (first, count) = (r.u32()?, u32::from(r.u16()?));
    match first.checked_add(count) {
        Some(end) if count > 0 => Ok(first..end),
        _ => Err(WireError::BadValue("run of pages")),
    }
}

/// Which of a writer's diffs a home must have applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequiredDiff {
    /// The writer.
    pub writer: NodeId,
    /// The last of its diff messages to the home that counts.
    pub serial: u64,
}

/// Appends a list of needs, as they stand at the end of a message.
pub fn emit_needs(needs: &[RequiredDiff], out: &mut Vec<u8>) {
    put_needs(out, needs);
}

/// Reads what [`emit_needs`] has written.
///
/// # Errors
/// When no node would have sent it.
pub fn parse_needs(body: &[u8]) -> Result<Vec<RequiredDiff>, WireError> {
    let mut r = Reader::new(body);
    let needs = take_needs(&mut r)?;
    r.finish()?;
    Ok(needs)
}

/// A node wants pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fetch {
    /// The asker's epoch.
    pub epoch: u32,
    /// Whether the asker becomes the home of pages that nobody has touched (placement by first touch).
    pub claim: bool,
    /// Whether the asker can copy the pages out of the home's memory itself.
    pub direct: bool,
    /// What must have been applied.
    pub needs: Vec<RequiredDiff>,
    /// The pages, as whole units.
    pub runs: Runs,
}

impl Fetch {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.epoch);
        out.put_u8(u8::from(self.claim) | u8::from(self.direct) << 1);
        put_needs(out, &self.needs);
        put_runs(out, &self.runs);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &[u8]) -> Result<Fetch, WireError> {
        let mut r = Reader::new(body);
        let (epoch, bits) = (r.u32()?, r.u8()?);
        let (claim, direct, needs) = (bits & 1 != 0, bits & 2 != 0, take_needs(&mut r)?);
        let runs = take_runs(&mut r, CHUNK_PAGES)?;
        r.finish()?;
        Ok(Fetch { epoch, claim, direct, needs, runs })
    }
}

/// The answer to a fetch, without the bytes, which follow it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pages {
    /// Whether the asker is to copy the pages out of the home's memory itself: then no bytes follow.
    pub direct: bool,
    /// The pages whose bytes follow.
    pub runs: Runs,
    /// Pages whose home is another node: ask there. When it is the asker itself, it is their home from now on, and they
    /// are all zero.
    pub moved: Vec<(Range<PageNo>, NodeId)>,
    /// Pages that were freed: there is nothing to fetch any more.
    pub freed: Vec<Range<PageNo>>,
}

impl Pages {
    /// Appends the body up to the pages' bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.direct));
        put_runs(out, &self.runs);
        out.put_u16(self.moved.len() as u16);
        for (run, node) in &self.moved {
            put_run(out, run);
            put_node(out, *node);
        }
        put_runs(out, &self.freed);
    }

    /// As [`Pages::emit`], for runs that are here and all that was asked for, and whose bytes follow.
    pub fn emit_all(runs: &[Range<PageNo>], out: &mut Vec<u8>) {
        out.put_u8(u8::from(false));
        put_runs(out, runs);
        out.put_u16(0);
        out.put_u16(0);
    }

    /// Reads a body; gives the pages' bytes too.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &[u8]) -> Result<(Pages, &[u8]), WireError> {
        let mut r = Reader::new(body);
        let mut pages = Pages { direct: r.u8()? != 0, ..Pages::default() };
        let mut count = 0;
        for _ in 0..r.u16()? {
            let run = take_run(&mut r)?;
            count += (run.end - run.start) as usize;
            pages.runs.push(run);
        }
        for _ in 0..r.u16()? {
            pages.moved.push((take_run(&mut r)?, take_node(&mut r)?));
        }
        for _ in 0..r.u16()? {
            pages.freed.push(take_run(&mut r)?);
        }
        let bytes = r.rest();
        let expected = if pages.direct { 0 } else { count * PAGE_BYTES };
        if bytes.len() == expected { Ok((pages, bytes)) } else { Err(WireError::BadValue("pages")) }
    }
}

/// Pages that their home sends unasked, without the bytes, which follow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Push {
    /// The epoch that ends for the home with the barrier that it goes to.
    pub epoch: u32,
    /// What had been applied at the home before the pages were copied: of each writer the last message of diffs.
    pub applied: Vec<RequiredDiff>,
    /// The pages.
    pub runs: Runs,
}

impl Push {
    /// Appends the body up to the pages' bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.epoch);
        put_needs(out, &self.applied);
        put_runs(out, &self.runs);
    }

    /// Reads a body; gives the pages' bytes too.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &[u8]) -> Result<(Push, &[u8]), WireError> {
        let mut r = Reader::new(body);
        let push = Push { epoch: r.u32()?, applied: take_needs(&mut r)?, runs: take_runs(&mut r, PUSH_PAGES_MAX)? };
        let (pages, bytes): (usize, _) = (push.runs.iter().map(|run| run.len()).sum(), r.rest());
        if bytes.len() == pages * PAGE_BYTES { Ok((push, bytes)) } else { Err(WireError::BadValue("pages")) }
    }
}

/// Appends the pages that were sent unasked and not used.
pub fn put_unused(out: &mut Vec<u8>, runs: &[Range<PageNo>]) {
    put_runs(out, runs);
}

/// Reads what [`put_unused`] wrote.
///
/// # Errors
/// When no node would have sent it.
pub fn take_unused(body: &[u8]) -> Result<Vec<Range<PageNo>>, WireError> {
    let mut r = Reader::new(body);
    let runs = take_runs(&mut r, PUSH_PAGES_MAX)?;
    r.finish()?;
    Ok(runs)
}

/// The head of a message of diffs; its parts follow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiffsHead {
    /// The sender's epoch when it made them.
    pub epoch: u32,
    /// Their place in the order of what the sender sends to this home, from 1.
    pub serial: u64,
    /// What other nodes' diffs must have been applied before.
    pub needs: Vec<RequiredDiff>,
}

impl DiffsHead {
    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.epoch);
        put_serial(out, self.serial);
        put_needs(out, &self.needs);
    }

    /// Writes it right before the parts, which stand in `message` behind [`DIFFS_HEAD_BYTES`] of room. Gives where it
    /// begins.
    pub fn emit_before(&self, message: &mut Vec<u8>) -> usize {
        let end = message.len();
        self.emit(message);
        let head = message.len() - end;
        let Some(start) = DIFFS_HEAD_BYTES.checked_sub(head) else {
            message[DIFFS_HEAD_BYTES..].rotate_right(head);
            return DIFFS_HEAD_BYTES;
        };
        message.copy_within(end.., start);
        message.truncate(end);
        start
    }

    /// Reads it; gives the parts too.
    ///
    /// # Errors
    /// When the body is too short.
    pub fn parse(body: &[u8]) -> Result<(DiffsHead, &[u8]), WireError> {
        let mut r = Reader::new(body);
        Ok((DiffsHead { epoch: r.u32()?, serial: take_serial(&mut r)?, needs: take_needs(&mut r)? }, r.rest()))
    }
}

/// Room in front of the parts of a message of diffs in which most heads fit.
pub const DIFFS_HEAD_BYTES: usize = 64;

/// Appends a part of a message of diffs: the diff of the unit that begins at `page`.
pub fn put_part(out: &mut Vec<u8>, page: PageNo, diff: &[u8]) {
    out.put_u32(page);
    out.put_u32(diff.len() as u32);
    out.put_bytes(diff);
}

/// The parts of a message of diffs; ends early where the bytes make no sense.
pub fn parts(mut bytes: &[u8]) -> impl Iterator<Item = (PageNo, &[u8])> {
    std::iter::from_fn(move || {
        let mut r = Reader::new(bytes);
        let page = r.u32().ok()?;
        let len = r.u32().ok()? as usize;
        let part = r.take(len).ok()?;
        bytes = r.rest();
        Some((page, part))
    })
}

/// The pages of one home that were written in an interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The home.
    pub home: NodeId,
    /// The last message of diffs to this home when the interval ended (0 when the home is the writer).
    pub serial: u64,
    /// The pages, and whether the writer still holds them.
    pub runs: Notices,
}

/// Pages, and whether their writer still holds them.
pub type Notice = (Range<PageNo>, bool);
/// The notices of a group: mostly few, and read by every node at every barrier.
pub type Notices = SmallVec<[Notice; 2]>;
/// The groups of an interval, by home.
pub type Groups = SmallVec<[Group; 1]>;
/// Runs of pages, mostly one or two.
pub type Runs = SmallVec<[Range<PageNo>; 2]>;

/// The write notices of one interval of one node, as numbers of few bytes ([`Put::put_var`]): writer, first interval,
/// interval, groups: count of (home, serial, runs: bytes of (first page behind the end of the run before, twice the
/// pages and one for "no longer held")). Runs that are alike but for their constant distance, as where homes are dealt
/// out in turn, stand there as one: first page, no pages with the same mark, pages, distance, runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Who wrote.
    pub writer: NodeId,
    /// The first of its intervals that the entry stands for: old ones are merged. 0: not all between some earlier one
    /// and the last are among them.
    pub from: u32,
    /// In which of its intervals, from 1; the last one if several are merged.
    pub interval: u32,
    /// What.
    pub groups: Groups,
}

/// Beside twice the pages of a run that its writer does not hold any more.
const GONE: u64 = 1;
/// Memory is got at once for so many groups at most, whatever their number is said to be.
const GROUPS_AT_ONCE: usize = 8;
/// So many runs at a constant distance take more room one by one than as one.
const ROW_MIN: usize = 3;
/// Most runs at constant distances in all that a payload tells, since a few bytes stand for each row of them.
pub const IN_ROWS_MAX: u32 = 1 << 24;
/// Most of them in one blob, of which a payload has one or two of each node: of 1 GiB whose pages are dealt out in
/// turn. More stand one by one.
pub const IN_ROWS_TOLD: u32 = 1 << 18;
/// Most pages of a run in a notice: whole units of any size, where the run begins with one.
const NOTICE_RUN_MAX: u32 = 0x7f00;

impl Entry {
    /// How many pages it names.
    pub fn pages(&self) -> u64 {
        self.groups.iter().flat_map(|g| &g.runs).map(|(run, _)| u64::from(run.end - run.start)).sum()
    }

    /// Appends the entry.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_within(&mut IN_ROWS_TOLD.clone(), out);
    }

    /// As [`Entry::emit`], with so many runs at most in rows; takes off what it uses.
    pub fn emit_within(&self, in_rows: &mut u32, out: &mut Vec<u8>) {
        for number in [self.writer.0.into(), self.from, self.interval, self.groups.len() as u32] {
            out.put_var(number.into());
        }
        for group in &self.groups {
            out.put_var(group.home.0.into());
            out.put_var(group.serial);
            let at = out.len();
            put_notices(out, &group.runs, in_rows);
            put_len_before(out, at);
        }
    }

    /// Reads an entry from the front of what `r` has.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(r: &mut Reader<'_>) -> Result<Entry, WireError> {
        Entry::parse_unless(r, &mut IN_ROWS_MAX.clone(), |_, _| false)?.ok_or(WireError::BadValue("entry"))
    }

    /// As [`Entry::parse`], with so many runs at most in rows, of which it takes off what there are; `None` where this
    /// interval of this writer is `known`: then it is passed over, which takes no memory.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse_unless(
        r: &mut Reader<'_>,
        in_rows: &mut u32,
        known: impl FnOnce(NodeId, u32) -> bool,
    ) -> Result<Option<Entry>, WireError> {
        let (writer, from, interval) = (take_var_node(r)?, r.var32()?, r.var32()?);
        let (known, count) = (known(writer, interval), r.var32()?);
        let mut groups = Groups::with_capacity(if known { 0 } else { (count as usize).min(GROUPS_AT_ONCE) });
        for _ in 0..count {
            let (home, serial, len) = (take_var_node(r)?, r.var()?, r.var32()?);
            let bytes = r.take(len as usize)?;
            if !known {
                groups.push(Group { home, serial, runs: take_notices(bytes, in_rows)? });
            }
        }
        Ok((!known).then_some(Entry { writer, from, interval, groups }))
    }
}

/// Puts before what stands from `at` on how many bytes it has.
fn put_len_before(out: &mut Vec<u8>, at: usize) {
    let end = out.len();
    out.put_var((end - at) as u64);
    let bytes = out.len() - end;
    out[at..].rotate_right(bytes);
}

/// Appends the runs of a group, so many of them at most in rows.
fn put_notices(out: &mut Vec<u8>, mut runs: &[Notice], in_rows: &mut u32) {
    let mut end = 0;
    while let [first, rest @ ..] = runs {
        let row = row(first, rest).min(*in_rows as usize);
        if row < ROW_MIN {
            put_notice(out, end, first);
            runs = rest;
            end = first.0.end;
        } else {
            put_row(out, end, first, rest[0].0.start - first.0.start, row);
            *in_rows -= row as u32;
            end = runs[row - 1].0.end;
            runs = &runs[row..];
        }
    }
}

/// How many runs there are from `first` on that are alike but for their distance, which is constant.
fn row((first, held): &Notice, rest: &[Notice]) -> usize {
    let len = first.end.saturating_sub(first.start);
    let stride = rest.first().map_or(0, |(next, _)| next.start.saturating_sub(first.start));
    if len == 0 || len > NOTICE_RUN_MAX || stride < len {
        return 1;
    }
    let places = (1..).map_while(|at| stride.checked_mul(at)?.checked_add(first.start));
    let is_next = |((run, h), start): &(&Notice, u32)| (run.start, *h) == (*start, *held) && run.end - run.start == len;
    1 + rest.iter().zip(places).take_while(|(notice, start)| is_next(&(*notice, *start))).count()
}

/// Appends where a run begins, as seen from the end of the one before, and how many pages it has.
fn put_run_behind(out: &mut Vec<u8>, end: PageNo, first: PageNo, pages: u32, held: bool) {
    out.put_var(first.wrapping_sub(end).into());
    out.put_var(u64::from(pages) << 1 | if held { 0 } else { GONE });
}

fn put_notice(out: &mut Vec<u8>, mut end: PageNo, (run, held): &Notice) {
    let mut first = run.start;
    while first < run.end {
        let pages = (run.end - first).min(NOTICE_RUN_MAX);
        put_run_behind(out, end, first, pages, *held);
        first += pages;
        end = first;
    }
}

fn put_row(out: &mut Vec<u8>, end: PageNo, (first, held): &Notice, stride: u32, runs: usize) {
    put_run_behind(out, end, first.start, 0, *held);
    out.put_var((first.end - first.start).into());
    out.put_var(stride.into());
    out.put_var(runs as u64);
}

/// Reads what [`put_notices`] wrote, with at most so many runs at constant distances.
fn take_notices(bytes: &[u8], in_rows: &mut u32) -> Result<Notices, WireError> {
    let mut r = Reader::new(bytes);
    let (mut runs, mut end) = (Notices::new(), 0);
    while r.finish().is_err() {
        let (first, word) = (r.var32()?.wrapping_add(end), r.var32()?);
        let (pages, held) = (word >> 1, u64::from(word) & GONE == 0);
        match pages {
            0 => take_row(&mut r, (first, held), in_rows, &mut runs)?,
            1..=NOTICE_RUN_MAX => {
                runs.push((first..first.checked_add(pages).ok_or(WireError::BadValue("notice"))?, held));
            }
            _ => return Err(WireError::BadValue("notice")),
        }
        end = runs.last().map_or(end, |(run, _)| run.end);
    }
    Ok(runs)
}

fn take_row(
    r: &mut Reader<'_>,
    (first, held): (PageNo, bool),
    in_rows: &mut u32,
    runs: &mut Notices,
) -> Result<(), WireError> {
    let (pages, stride, count) = (r.var32()?, r.var32()?, r.var32()?);
    let last = stride.checked_mul(count.saturating_sub(1)).and_then(|far| far.checked_add(first)?.checked_add(pages));
    if !(1..=NOTICE_RUN_MAX).contains(&pages) || stride < pages || last.is_none() || count > *in_rows {
        return Err(WireError::BadValue("row of notices"));
    }
    *in_rows -= count;
    runs.extend((0..count).map(|at| first + at * stride).map(|first| (first..first + pages, held)));
    Ok(())
}

/// A sparse vector of numbers by node, within a blob: count of (node, number), in numbers of few bytes.
pub(super) fn put_seen<'a>(out: &mut Vec<u8>, seen: impl ExactSizeIterator<Item = (&'a NodeId, &'a u32)>) {
    out.put_var(seen.len() as u64);
    for (node, number) in seen {
        out.put_var(node.0.into());
        out.put_var((*number).into());
    }
}

/// Reads what [`put_seen`] wrote.
///
/// # Errors
/// When no node would have sent it.
pub(super) fn take_seen(r: &mut Reader<'_>) -> Result<BTreeMap<NodeId, u32>, WireError> {
    (0..r.var32()?).map(|_| Ok((take_var_node(r)?, r.var32()?))).collect()
}

/// Passes over what [`put_seen`] wrote.
///
/// # Errors
/// When no node would have sent it.
pub(super) fn skip_seen(r: &mut Reader<'_>) -> Result<(), WireError> {
    for _ in 0..r.var32()? {
        take_var_node(r)?;
        r.var32()?;
    }
    Ok(())
}

/// In the count of a vector of the other log.
const OTHER_LOG: u16 = 0x8000;

/// A sparse vector of numbers by node: count u16, its top bit set for the other log, of (node u16, number u32).
pub fn put_vector(out: &mut Vec<u8>, vector: &BTreeMap<NodeId, u32>, which: WhichLog) {
    out.put_u16(vector.len() as u16 | if which == WhichLog::Other { OTHER_LOG } else { 0 });
    for (node, number) in vector {
        put_node(out, *node);
        out.put_u32(*number);
    }
}

/// Whether what comes next is what [`put_vector`] writes of this vector of the main log.
pub fn is_vector(r: &mut Reader<'_>, vector: &BTreeMap<NodeId, u32>) -> bool {
    r.u16() == Ok(vector.len() as u16)
        && vector.iter().all(|(node, number)| take_node(r) == Ok(*node) && r.u32() == Ok(*number))
}

/// Reads what [`put_vector`] wrote, of the main log.
///
/// # Errors
/// When no node would have sent it.
pub fn take_vector(r: &mut Reader<'_>) -> Result<BTreeMap<NodeId, u32>, WireError> {
    match r.u16()? {
        count if count & OTHER_LOG == 0 => take_numbers(r, count),
        _ => Err(WireError::BadValue("vector")),
    }
}

/// Reads what [`put_vector`] wrote, of either log.
///
/// # Errors
/// When no node would have sent it.
pub fn take_vector_of(r: &mut Reader<'_>) -> Result<(WhichLog, BTreeMap<NodeId, u32>), WireError> {
    let word = r.u16()?;
    let which = if word & OTHER_LOG == 0 { WhichLog::Main } else { WhichLog::Other };
    Ok((which, take_numbers(r, word & !OTHER_LOG)?))
}

fn take_numbers(r: &mut Reader<'_>, count: u16) -> Result<BTreeMap<NodeId, u32>, WireError> {
    (0..count).map(|_| Ok((take_node(r)?, r.u32()?))).collect()
}
