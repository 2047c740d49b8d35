//! The bodies of the messages about diffs that stay with their writers.
//!
//! | message | body |
//! |---|---|
//! | fetch diffs (request) | of each unit: first page, last stamp that the copy has, stamp that it needs |
//! | kept diffs (reply) | of each unit: first page, kind u8 (0 diffs, 1 collected, 2 freed), and diffs or last stamp |
//! | fetch base (request) | the asker's epoch; of each unit: first page |
//! | base (reply) | of each unit: first page, kind u8 (0 zeros, 1 bytes, 2 freed), and unless it is freed its version |
//!
//! - *Last stamp*, of what was collected: nothing is kept up to it.
//! - *Diffs*: the stamp up to which they are all; the number of runs; of each its distance from the one before, length
//!   and stamp; then the runs' bytes.
//! - *A version*: the floor; the number of writers, and of each node and stamp; the number of runs, and of each
//!   distance, length and stamp. Where there are bytes, their length and they themselves.
//!
//! Numbers take few bytes ([`Put::put_var`]).

use super::runs::{StampMap, StampRun};
use super::unit::Versions;
use super::{Ask, STAMP_MAX, Stamp, Wants};
use crate::coherence::pages::wire::FETCH_PAGES_MAX;
use crate::coherence::pages::{PAGE_BYTES, PageNo, UNIT_PAGES_MAX};
use crate::ids::{NODES_MAX, NodeId};
use crate::wire::bytes::{Put, Reader, WireError};

/// Most units that one request names.
pub const ASKED_UNITS_MAX: usize = FETCH_PAGES_MAX as usize;
/// Most bytes of a unit.
const UNIT_BYTES_MAX: u64 = UNIT_PAGES_MAX as u64 * PAGE_BYTES as u64;
/// A run of an answer has at least a byte each of distance, length and stamp.
const RUN_BYTES_MIN: usize = 3;

/// What a node lacks of what one writer wrote to one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiffAsk {
    /// The unit's first page.
    pub page: PageNo,
    /// The writer's intervals up to this stamp are in the copy.
    pub since: Stamp,
    /// Its interval with this stamp is needed.
    pub need: Stamp,
}

impl DiffAsk {
    /// What goes to a writer; nothing where a base is wanted.
    pub fn of(ask: &Ask) -> Option<DiffAsk> {
        match ask.wants {
            Wants::Base => None,
            Wants::Diffs { since, need } => Some(DiffAsk { page: ask.page, since, need }),
        }
    }
}

pub(in crate::coherence::pages) fn take_stamp(r: &mut Reader<'_>) -> Result<Stamp, WireError> {
    Some(r.var()?).filter(|stamp| *stamp <= STAMP_MAX).ok_or(WireError::BadValue("stamp"))
}

/// Appends the body of a request for diffs.
pub fn put_diff_asks(out: &mut Vec<u8>, asks: &[DiffAsk]) {
    for ask in asks {
        out.put_var(ask.page.into());
        out.put_var(ask.since);
        out.put_var(ask.need);
    }
}

/// Reads what [`put_diff_asks`] wrote.
///
/// # Errors
/// When no node would have sent it.
pub fn take_diff_asks(body: &[u8]) -> Result<Vec<DiffAsk>, WireError> {
    let (mut r, mut asks) = (Reader::new(body), Vec::new());
    while r.finish().is_err() {
        let ask = DiffAsk { page: r.var32()?, since: take_stamp(&mut r)?, need: take_stamp(&mut r)? };
        if ask.need <= ask.since || asks.len() == ASKED_UNITS_MAX {
            return Err(WireError::BadValue("request for diffs"));
        }
        asks.push(ask);
    }
    Ok(asks)
}

/// Appends the body of a request for bases, by a node that has come to this epoch.
pub fn put_base_asks(out: &mut Vec<u8>, epoch: u32, pages: &[PageNo]) {
    out.put_var(epoch.into());
    pages.iter().for_each(|page| out.put_var((*page).into()));
}

/// Reads what [`put_base_asks`] wrote.
///
/// # Errors
/// When no node would have sent it.
pub fn take_base_asks(body: &[u8]) -> Result<(u32, Vec<PageNo>), WireError> {
    let (mut r, mut pages) = (Reader::new(body), Vec::new());
    let epoch = r.var32()?;
    while r.finish().is_err() {
        if pages.len() == ASKED_UNITS_MAX {
            return Err(WireError::BadValue("request for bases"));
        }
        pages.push(r.var32()?);
    }
    Ok((epoch, pages))
}

const DIFFS: u8 = 0;
const COLLECTED: u8 = 1;
const ZEROS: u8 = 0;
const BYTES: u8 = 1;
const FREED: u8 = 2;

/// What a writer says of one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told<'a> {
    /// What it wrote.
    Diffs(Diffs<'a>),
    /// It does not keep any more what it wrote up to this stamp.
    Collected(Stamp),
    /// The region was freed.
    Freed,
}

/// Bytes that one writer wrote to one unit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diffs<'a> {
    /// They are all that were asked for up to this stamp.
    pub through: Stamp,
    /// In order; none overlap.
    pub runs: Vec<StampRun>,
    /// The bytes of all runs, one behind the other.
    pub bytes: &'a [u8],
}

impl Diffs<'_> {
    /// The byte behind the last.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end)
    }
}

/// Appends a unit's diffs to an answer.
pub fn put_diffs<'a>(
    out: &mut Vec<u8>,
    page: PageNo,
    through: Stamp,
    runs: impl Iterator<Item = (StampRun, &'a [u8])> + Clone,
) {
    out.put_var(page.into());
    out.put_u8(DIFFS);
    out.put_var(through);
    put_runs(out, runs.clone().map(|(run, _)| run));
    runs.for_each(|(_, bytes)| out.put_bytes(bytes));
}

/// Appends that not all that a node asked for is kept any more, and up to which stamp nothing is.
pub fn put_collected(out: &mut Vec<u8>, page: PageNo, dropped: Stamp) {
    out.put_var(page.into());
    out.put_u8(COLLECTED);
    out.put_var(dropped);
}

/// Appends to an answer of either kind that a unit was freed.
pub fn put_freed(out: &mut Vec<u8>, page: PageNo) {
    out.put_var(page.into());
    out.put_u8(FREED);
}

pub(in crate::coherence::pages) fn put_runs(out: &mut Vec<u8>, runs: impl Iterator<Item = StampRun> + Clone) {
    out.put_var(runs.clone().count() as u64);
    let mut end = 0;
    for run in runs {
        out.put_var((run.start - end).into());
        out.put_var((run.end - run.start).into());
        out.put_var(run.stamp);
        end = run.end;
    }
}

pub(in crate::coherence::pages) fn take_runs(r: &mut Reader<'_>) -> Result<Vec<StampRun>, WireError> {
    const WRONG: WireError = WireError::BadValue("runs of bytes");
    let (count, left) = (r.var()?, r.clone().rest().len());
    if count > (left / RUN_BYTES_MIN) as u64 {
        return Err(WRONG);
    }
    let (mut runs, mut end) = (Vec::with_capacity(count as usize), 0_u64);
    for _ in 0..count {
        let start = end.checked_add(r.var()?).ok_or(WRONG)?;
        end = start.checked_add(r.var()?).ok_or(WRONG)?;
        let stamp = take_stamp(r)?;
        if end > UNIT_BYTES_MAX || end == start || stamp == 0 {
            return Err(WRONG);
        }
        runs.push(StampRun { start: start as u32, end: end as u32, stamp });
    }
    Ok(runs)
}

/// Reads an answer to a request for diffs.
///
/// # Errors
/// When no node would have sent it.
pub fn take_told(body: &[u8]) -> Result<Vec<(PageNo, Told<'_>)>, WireError> {
    let (mut r, mut told) = (Reader::new(body), Vec::new());
    while r.finish().is_err() {
        if told.len() == ASKED_UNITS_MAX {
            return Err(WireError::BadValue("number of units"));
        }
        let page = r.var32()?;
        let of_unit = match r.u8()? {
            DIFFS => {
                let (through, runs) = (take_stamp(&mut r)?, take_runs(&mut r)?);
                let bytes = r.take(runs.iter().map(|run| (run.end - run.start) as usize).sum())?;
                Told::Diffs(Diffs { through, runs, bytes })
            }
            COLLECTED => Told::Collected(take_stamp(&mut r)?),
            FREED => Told::Freed,
            _ => return Err(WireError::BadValue("answer of a writer")),
        };
        told.push((page, of_unit));
    }
    Ok(told)
}

/// What a manager says of one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Base<'a> {
    /// Its copy.
    Copy(BaseCopy<'a>),
    /// The region was freed.
    Freed,
}

/// A manager's copy of a unit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BaseCopy<'a> {
    /// It has all that was written up to here.
    pub floor: Stamp,
    /// And the writes of these writers up to these intervals.
    pub had: Versions,
    /// When the bytes were written, as far as that is after the floor.
    pub stamps: StampMap,
    /// The bytes; `None`: all zero.
    pub bytes: Option<&'a [u8]>,
}

/// Appends a unit's base to an answer, but for the bytes, for which `bytes` says how many follow.
pub fn put_base(
    out: &mut Vec<u8>,
    page: PageNo,
    floor: Stamp,
    (had, stamps): (&Versions, &StampMap),
    bytes: Option<usize>,
) {
    out.put_var(page.into());
    out.put_u8(if bytes.is_some() { BYTES } else { ZEROS });
    out.put_var(floor);
    out.put_var(had.len() as u64);
    for (writer, stamp) in had {
        out.put_var(writer.0.into());
        out.put_var(*stamp);
    }
    put_runs(out, stamps.runs().iter().copied());
    if let Some(bytes) = bytes {
        out.put_var(bytes as u64);
    }
}

pub(in crate::coherence::pages) fn take_versions(r: &mut Reader<'_>) -> Result<Versions, WireError> {
    const WRONG: WireError = WireError::BadValue("intervals of writers");
    let count = r.var()?;
    if count > NODES_MAX as u64 {
        return Err(WRONG);
    }
    let version = |r: &mut Reader<'_>| match (r.var()?, take_stamp(r)?) {
        (node, stamp) if node < NODES_MAX as u64 => Ok((NodeId(node as u16), stamp)),
        _ => Err(WRONG),
    };
    (0..count).map(|_| version(r)).collect()
}

/// Reads an answer to a request for bases.
///
/// # Errors
/// When no node would have sent it.
pub fn take_bases(body: &[u8]) -> Result<Vec<(PageNo, Base<'_>)>, WireError> {
    let (mut r, mut bases) = (Reader::new(body), Vec::new());
    while r.finish().is_err() {
        if bases.len() == ASKED_UNITS_MAX {
            return Err(WireError::BadValue("number of units"));
        }
        let (page, kind) = (r.var32()?, r.u8()?);
        if kind > FREED {
            return Err(WireError::BadValue("answer of a manager"));
        }
        if kind == FREED {
            bases.push((page, Base::Freed));
            continue;
        }
        let (floor, had, runs) = (take_stamp(&mut r)?, take_versions(&mut r)?, take_runs(&mut r)?);
        let bytes = match kind {
            BYTES => {
                let len = r.var()?;
                if len > UNIT_BYTES_MAX {
                    return Err(WireError::BadValue("length of a base"));
                }
                Some(r.take(len as usize)?)
            }
            _ => None,
        };
        bases.push((page, Base::Copy(BaseCopy { floor, had, stamps: StampMap::of(runs), bytes })));
    }
    Ok(bases)
}
