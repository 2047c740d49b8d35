//! Pages that come with a lock's token.
//!
//! Who takes a lock after another node mostly touches at once what that node has written under it: the token has barely
//! come when the pages are asked for at their home, a round trip more. Whoever gives the token has them as the acquirer
//! must see them. So the acquirer says with its request which pages it would fetch again (a *hint*), and what the giver
//! holds of them travels with the token (lazy hybrid: Dwarkadas, Keleher, Cox and Zwaenepoel, ISCA 1993, there with
//! diffs). For the acquirer this is a hint, kept in the [`PushBuffer`](super::push::PushBuffer) like a push.
//!
//! A copy that is valid has all in it that its node knows of: a notice ends it. So what the acquirer gets is as good as
//! what it would fetch
//!
//! - if the giver knew of every write to the page that the acquirer knows of: it says how far it had seen
//!   ([`Rule::CarriedPagesHaveAllThatIsKnown`]);
//! - if the acquirer's own bytes are in it too: none have left for the home in an interval that is still open
//!   ([`Rule::CarriedPagesHaveOwnBytes`]);
//! - if it has nothing in it that the giver's threads have stored since their last release: a byte that becomes again
//!   what it was makes no diff, and nobody is told. So it is the copy's twin that travels
//!   ([`Rule::CarriedCopiesAreReleased`]); a copy without one has not been written;
//! - if the giver is the page's home, when all diffs are in of which it has heard ([`Rule::HomesCarryWhatIsApplied`]).
//!
//! The home has not answered for it, so it may still lack what the page had in it when the acquirer's own diff comes.
//! That diff names what must be applied before it ([`Rule::DiffsFollowWhatTheyNeed`]).
//!
//! Only where there is one log, of `hlrc`: under `scope` a node's copies have more in them than its releases tell.
//!
//! The hint stands behind what the acquirer has seen: a mark u16, then lacking pages and pages whose copies end if the
//! token tells of them, each as runs: count u16 of (first page u32, pages u16). What is attached stands behind what the
//! release tells: a mark u32, epoch u32, the vector of intervals seen, runs, the runs' bytes.

use super::intervals::IntervalState;
use super::kept_diffs::clock::CLOCK_MARK;
use super::multicast::carry::DIFFS_MARK;
use super::serve::PageState;
use super::wire::{put_runs, put_vector, take_runs, take_vector};
use super::write_notices::{self, VectorTime};
use super::{PAGE_BYTES, PageNo, push_range};
use crate::ids::NodeId;
use crate::outbox::Outbox;
use crate::rules::Rule;
use crate::wire::bytes::{Put, Reader, WireError};
use std::ops::Range;
use std::sync::Arc;

/// Most pages that can come with a token.
pub const PIGGYBACK_PAGES_MAX: u32 = 8;

/// Where a vector would begin: no vector has so many numbers.
const HINT_MARK: u16 = 0xffff;
/// Where a blob would begin: none is so long.
const PAGES_MARK: u32 = 0x7fff_ffff;
/// In the count of a vector: it is of the other log.
const OTHER_LOG: u16 = 0x8000;
/// What a number in a vector takes.
const NUMBER_BYTES: usize = 6;

/// Pages that an acquirer would fetch again, whole units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrefetchHint {
    /// It has no valid copies of these.
    pub lacking: Vec<Range<PageNo>>,
    /// Its copies of these end if the token tells of them.
    pub ending: Vec<Range<PageNo>>,
}

impl PrefetchHint {
    /// How many pages they name.
    pub fn pages(&self) -> u32 {
        self.lacking.iter().chain(&self.ending).map(|run| run.end - run.start).sum()
    }

    /// Appends them to what the acquirer has seen; nothing if there are none.
    pub fn emit(&self, out: &mut Vec<u8>) {
        if self.pages() > 0 {
            out.put_u16(HINT_MARK);
            put_runs(out, &self.lacking);
            put_runs(out, &self.ending);
        }
    }

    fn parse(bytes: &[u8]) -> Result<PrefetchHint, WireError> {
        let mut r = Reader::new(bytes);
        let lacking = take_runs(&mut r, PIGGYBACK_PAGES_MAX)?;
        let ending = take_runs(&mut r, PIGGYBACK_PAGES_MAX)?;
        r.finish()?;
        Ok(PrefetchHint { lacking, ending })
    }
}

/// What came with a request: what the acquirer has seen, and its hint if it has one.
pub fn split_request(knowledge: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut at = 4;
    while let Some(head) = knowledge.get(at..at + 2) {
        let count = u16::from_be_bytes([head[0], head[1]]);
        if count == HINT_MARK {
            return (&knowledge[..at], Some(&knowledge[at + 2..]));
        }
        at += 2 + usize::from(count & !OTHER_LOG) * NUMBER_BYTES;
    }
    (knowledge, None)
}

/// What came with a token: what the release tells, and the pages that are attached if any are. What else is attached
/// ([`carry`](super::multicast::carry), [`clock`](super::kept_diffs::clock)) is in neither.
pub fn split_payload(payload: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut at = 0;
    while let Some(head) = payload.get(at..at + 4) {
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        if word == PAGES_MARK {
            return (&payload[..at], Some(&payload[at + 4..]));
        }
        if word == DIFFS_MARK || word == CLOCK_MARK {
            return (&payload[..at], None);
        }
        at = at.saturating_add(4 + write_notices::blob_bytes(word));
    }
    (payload, None)
}

/// The giver, whose interval has ended and whose release tells `told`, appends what it holds of the hint to `out`;
/// gives how many pages. `fresh`: every diff of which it has heard is in. To be called with the intervals locked, so
/// that no copy ends meanwhile.
pub fn attach(
    state: &mut impl PageState,
    intervals: &IntervalState,
    (hint, fresh): (&[u8], bool),
    told: &[u8],
    out: &mut Vec<u8>,
) -> u64 {
    // In a new epoch homes may still be about to migrate.
    let settled = intervals.is_alike() && state.home_queue(|queue| queue.epoch()) == intervals.epoch();
    let Some(PrefetchHint { mut lacking, ending }) = PrefetchHint::parse(hint).ok().filter(|_| settled) else {
        return 0;
    };
    if !ending.is_empty() {
        let told = noticed_pages(told);
        let meets = |pages: &Range<PageNo>| told.iter().any(|run| run.start < pages.end && pages.start < run.end);
        lacking.extend(ending.into_iter().filter(meets));
    }
    let fresh = fresh || !Rule::HomesCarryWhatIsApplied.on();
    let (mut runs, mut bytes, mut none) = (Vec::new(), Vec::new(), Outbox::new());
    for run in lacking {
        let mut at = if state.is_freed(run.start) { run.end } else { run.start };
        while at < run.end {
            let next = state.page_table(at, &mut none, |table, cx| {
                let unit = table.units().unit_of(at);
                let whole = unit.start == at && unit.end <= run.end;
                if whole && table.copy_for_token(cx, &unit, fresh, &mut bytes) {
                    runs.push(unit.clone());
                }
                unit.end
            });
            at = next.unwrap_or(run.end);
        }
    }
    if !runs.is_empty() {
        out.put_u32(PAGES_MARK);
        out.put_u32(intervals.epoch());
        put_vector(out, intervals.seen(), write_notices::WhichLog::Main);
        put_runs(out, &runs);
        out.put_bytes(&bytes);
    }
    (bytes.len() / PAGE_BYTES) as u64
}

/// The pages that a release tells of.
fn noticed_pages(told: &[u8]) -> Vec<Range<PageNo>> {
    let mut pages = Vec::new();
    for blob in write_notices::blobs(told).flatten().filter_map(|(_, blob)| write_notices::open(blob).ok()) {
        let groups = blob.entries.iter().flat_map(|entry| &entry.groups);
        pages.extend(groups.flat_map(|group| &group.runs).map(|(run, _)| run.clone()));
    }
    pages
}

/// The acquirer, which has taken in what the release told and ended the copies of that, keeps what was attached and can
/// be used. To be called with the intervals locked.
///
/// # Errors
/// When no node would have sent it.
pub fn detach(
    state: &mut impl PageState,
    intervals: &IntervalState,
    mut pass_by: impl FnMut(NodeId),
    attached: &[u8],
) -> Result<(), WireError> {
    let mut r = Reader::new(attached);
    let (epoch, seen): (u32, VectorTime) = (r.u32()?, take_vector(&mut r)?);
    let runs: Vec<Range<PageNo>> = take_runs(&mut r, 2 * PIGGYBACK_PAGES_MAX)?;
    let bytes = r.rest();
    if bytes.len() != runs.iter().map(|run| run.len() * PAGE_BYTES).sum::<usize>() {
        return Err(WireError::BadValue("carried pages"));
    }
    if epoch != intervals.epoch() || !intervals.is_alike() {
        return Ok(());
    }
    let mut newer: Vec<Range<PageNo>> = Vec::new();
    if Rule::CarriedPagesHaveAllThatIsKnown.on() {
        let groups = intervals.beyond(&seen).flat_map(|entry| &entry.groups);
        newer.extend(groups.flat_map(|g| &g.runs).map(|(run, _)| run.clone()));
    }
    let bytes = Arc::new(bytes.to_vec());
    let (mut at, mut none) = (0, Outbox::new());
    for run in runs {
        let here = at;
        at += run.len() * PAGE_BYTES;
        if newer.iter().any(|newer| newer.start < run.end && run.start < newer.end) {
            continue;
        }
        let home = state.page_table(run.start, &mut none, |table, _| table.units().can_use_piggybacked(&run));
        if let Some(home) = home.flatten() {
            pass_by(home);
            state.push_buffer(|buffer| buffer.put(home, &run, &bytes, here));
        }
    }
    Ok(())
}

/// The pages that an acquirer would fetch again, of those of a critical section, and has not got: as many whole units
/// as a token may carry.
pub fn prefetch_hint(state: &mut impl PageState, section: &[Range<PageNo>]) -> PrefetchHint {
    let (mut hint, mut none) = (PrefetchHint::default(), Outbox::new());
    let tuning = state.tuning().notices;
    let most = if tuning.piggyback { tuning.piggyback_pages_max.min(PIGGYBACK_PAGES_MAX) } else { 0 };
    if most == 0 {
        return hint;
    }
    for run in section {
        let mut at = run.start;
        while at < run.end {
            let looked = state.page_table(at, &mut none, |table, _| (table.units().unit_of(at), table.would_fetch(at)));
            let Some((unit, valid)) = looked else { break };
            at = unit.end;
            if hint.pages() + (unit.end - unit.start) > most {
                return hint;
            }
            // What another node holds of new memory may be of what was there before.
            let (has, new) = state.push_buffer(|s| (s.has(&unit), s.is_new(&unit))).unwrap_or_default();
            let Some(valid) = valid.filter(|_| !new) else { continue };
            push_range(if valid || has { &mut hint.ending } else { &mut hint.lacking }, unit);
        }
    }
    hint
}
