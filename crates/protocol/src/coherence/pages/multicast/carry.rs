//! Diffs that travel with a lock's token.
//!
//! Behind what the token tells stands what its giver's copy has of the pages of which it tells, as far as it was
//! written since the last barrier. For the acquirer these diffs come unasked, as those told to a set do. They count for
//! a writer if the copy here has all that it wrote before: if it was complete before the token's notices were taken in,
//! for then it has all up to the barrier ([`Rule::CarriedDiffsLeaveNoGap`](crate::rules::Rule)). Of a page that nobody
//! had written up to the barrier zeros are a complete copy.
//!
//! What the giver's threads have stored since its last release is not among them
//! ([`Rule::CarriedDiffsAreReleased`](crate::rules::Rule)). Flags, semaphores and barriers carry notices alone.
//!
//! The bytes: a mark u32; then in numbers of few bytes ([`Put::put_var`]) the stamp after which the diffs are; and of
//! each unit its first page, the number of writers, and of each node and stamp, runs as in a base, and the runs' bytes.

use super::unit::Unasked;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::kept_diffs::Stamp;
use crate::coherence::pages::kept_diffs::clock::{CLOCK_BYTES, CLOCK_MARK};
use crate::coherence::pages::kept_diffs::runs::StampRun;
use crate::coherence::pages::kept_diffs::unit::Versions;
use crate::coherence::pages::kept_diffs::wire::{put_runs, take_runs, take_stamp, take_versions};
use crate::coherence::pages::write_notices;
use crate::wire::bytes::{Put, Reader, WireError};
use std::ops::Range;

/// Where a blob would begin: none is so long.
pub const DIFFS_MARK: u32 = 0x7fff_fffe;

/// Most units of which a token carries diffs.
pub const CARRIED_UNITS_MAX: usize = 256;

/// Begins what a token carries.
pub fn begin(out: &mut Vec<u8>, since: Stamp) {
    out.put_u32(DIFFS_MARK);
    out.put_var(since);
}

/// Appends what a copy has of a unit.
pub fn put_unit<'a>(
    out: &mut Vec<u8>,
    page: PageNo,
    covers: &Versions,
    runs: impl Iterator<Item = (StampRun, &'a [u8])> + Clone,
) {
    out.put_var(page.into());
    out.put_var(covers.len() as u64);
    for (writer, stamp) in covers {
        out.put_var(writer.0.into());
        out.put_var(*stamp);
    }
    put_runs(out, runs.clone().map(|(run, _)| run));
    runs.for_each(|(_, bytes)| out.put_bytes(bytes));
}

/// What a token carries, if anything, of what came with it.
pub fn carried(payload: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    while let Some(head) = payload.get(at..at + 4) {
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        if word == DIFFS_MARK {
            return Some(&payload[at + 4..]);
        }
        let behind = if word == CLOCK_MARK { CLOCK_BYTES } else { 4 + write_notices::blob_bytes(word) };
        at = at.saturating_add(behind);
    }
    None
}

/// Reads what a token carries.
///
/// # Errors
/// When no node would have sent it.
pub fn parse(carried: &[u8]) -> Result<Vec<(PageNo, Unasked)>, WireError> {
    let mut r = Reader::new(carried);
    let (since, mut units) = (take_stamp(&mut r)?, Vec::new());
    while r.finish().is_err() {
        if units.len() == CARRIED_UNITS_MAX {
            return Err(WireError::BadValue("number of units"));
        }
        let (page, covers, runs) = (r.var32()?, take_versions(&mut r)?, take_runs(&mut r)?);
        let bytes = r.take(runs.iter().map(|run| (run.end - run.start) as usize).sum())?.to_vec();
        units.push((page, Unasked { since, covers, runs, bytes, is_carried: true }));
    }
    Ok(units)
}

/// The pages that are told of, as runs, of which their writers keep the diffs.
pub fn kept_pages(told: &[u8]) -> Vec<Range<PageNo>> {
    let blobs = write_notices::blobs(told).flatten().filter_map(|(_, blob)| write_notices::open(blob).ok());
    let mut runs: Vec<Range<PageNo>> = Vec::new();
    for entry in blobs.flat_map(|blob| blob.entries) {
        let groups = entry.groups.iter().filter(|group| group.home == entry.writer && group.serial > 0);
        runs.extend(groups.flat_map(|group| &group.runs).map(|(run, _)| run.clone()));
    }
    runs.sort_unstable_by_key(|run| (run.start, run.end));
    runs.dedup_by(|next, run| {
        let meet = next.start <= run.end;
        run.end = if meet { run.end.max(next.end) } else { run.end };
        meet
    });
    runs
}
