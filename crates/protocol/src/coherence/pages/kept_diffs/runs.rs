//! Runs of bytes with the stamps of their last writes.

use super::Stamp;
use crate::wire::bytes::{Put, Reader};
use std::ops::Range;

/// Bytes of a unit, one behind the other, that were written last in intervals with the same stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StampRun {
    /// The first byte, from the unit's beginning.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
    /// When they were written.
    pub stamp: Stamp,
}

/// Where a piece of the result of [`overlay`] comes from: a run before, or one of the new ones, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Old(usize),
    New(usize),
}

/// Lays `new` runs over `old` ones, both in order. Tells `emit` of the pieces of the result, in order, with the run
/// that each is part of. Where both have a byte the new run `wins` by the two stamps, or the old one stays.
fn overlay(
    old: &[StampRun],
    new: &[StampRun],
    wins: impl Fn(Stamp, Stamp) -> bool,
    mut emit: impl FnMut(StampRun, Source),
) {
    let mut place = 0;
    let mut left = old.first().copied();
    let next = |place: &mut usize| {
        *place += 1;
        old.get(*place).copied()
    };
    for (number, run) in new.iter().enumerate() {
        let mut at = run.start;
        while let Some(before) = left.as_mut() {
            if before.end <= at {
                emit(*before, Source::Old(place));
                left = next(&mut place);
                continue;
            }
            if at >= run.end || before.start >= run.end {
                break;
            }
            if before.start < at {
                emit(StampRun { end: at, ..*before }, Source::Old(place));
                before.start = at;
            }
            if before.start > at {
                emit(StampRun { start: at, end: before.start, ..*run }, Source::New(number));
                at = before.start;
            }
            let end = before.end.min(run.end);
            if wins(run.stamp, before.stamp) {
                emit(StampRun { start: at, end, ..*run }, Source::New(number));
            } else {
                emit(StampRun { start: at, end, ..*before }, Source::Old(place));
            }
            at = end;
            before.start = end;
            if before.start == before.end {
                left = next(&mut place);
            }
        }
        if at < run.end {
            emit(StampRun { start: at, ..*run }, Source::New(number));
        }
    }
    while let Some(before) = left {
        emit(before, Source::Old(place));
        left = next(&mut place);
    }
}

/// Appends a run, as part of the last one where they touch and are of one stamp.
fn push_joined(runs: &mut Vec<StampRun>, run: StampRun) {
    match runs.last_mut() {
        Some(last) if last.end == run.start && last.stamp == run.stamp => last.end = run.end,
        _ => runs.push(run),
    }
}

/// Which byte of a copy was written when. Bytes in no run are older than all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StampMap {
    runs: Vec<StampRun>,
}

impl StampMap {
    /// Made of runs in order, none of which overlap.
    pub fn of(runs: Vec<StampRun>) -> StampMap {
        StampMap { runs }
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[StampRun] {
        &self.runs
    }

    /// Bytes come with stamps, as runs in order: those that are newer than what the map has are in it from now on, and
    /// `takes` is told of them, each piece with the place of its run.
    pub fn raise(&mut self, new: &[StampRun], mut takes: impl FnMut(Range<u32>, usize)) {
        self.lay(new, |new, old| new > old, &mut takes);
    }

    /// As [`StampMap::raise`], and bytes that are as new as those of the map are taken, too.
    pub fn repeat(&mut self, new: &[StampRun], mut takes: impl FnMut(Range<u32>, usize)) {
        self.lay(new, |new, old| new >= old, &mut takes);
    }

    /// As [`StampMap::raise`], of bytes that are taken whatever the map has.
    pub fn replace(&mut self, new: &[StampRun], mut takes: impl FnMut(Range<u32>, usize)) {
        self.lay(new, |_, _| true, &mut takes);
    }

    fn lay(
        &mut self,
        new: &[StampRun],
        wins: impl Fn(Stamp, Stamp) -> bool,
        takes: &mut impl FnMut(Range<u32>, usize),
    ) {
        let old = std::mem::take(&mut self.runs);
        self.runs.reserve(old.len() + new.len());
        overlay(&old, new, wins, |piece, source| {
            if let Source::New(number) = source {
                takes(piece.start..piece.end, number);
            }
            push_joined(&mut self.runs, piece);
        });
    }

    /// Bytes of this stamp and earlier ones are older than all that can come.
    pub fn forget_to(&mut self, floor: Stamp) {
        self.runs.retain(|run| run.stamp > floor);
    }
}

/// What changed in a unit, as runs of bytes in order. Its buffers are used again.
#[derive(Clone, Default, Debug)]
pub struct Changes {
    runs: Vec<Range<u32>>,
    bytes: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Changes {
    /// Finds the bytes in which two states of a unit differ. `state` appends the first one when it is called, and the
    /// second when it is called again.
    pub fn compare(&mut self, mut state: impl FnMut(&mut Vec<u8>)) {
        self.clear();
        let (mut before, mut after) = (std::mem::take(&mut self.before), std::mem::take(&mut self.after));
        for bytes in [&mut before, &mut after] {
            bytes.clear();
            state(bytes);
        }
        const WORD: usize = 8;
        for (word, (old, new)) in before.chunks(WORD).zip(after.chunks(WORD)).enumerate() {
            if old == new {
                continue;
            }
            let differs = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
            differs.for_each(|(at, (_, new))| self.push((word * WORD + at) as u32, &[*new]));
        }
        (self.before, self.after) = (before, after);
    }

    /// Nothing changed.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.bytes.clear();
    }

    /// Adds bytes behind the others.
    pub fn push(&mut self, at: u32, bytes: &[u8]) {
        let end = at + bytes.len() as u32;
        match self.runs.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => self.runs.push(at..end),
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds bytes that count as changed though they may be as they were. `ranges` are in any order, and `state` has all
    /// bytes of the unit, which are no newer than those that changed.
    pub fn cover(&mut self, mut ranges: Vec<Range<u32>>, state: &[u8]) {
        ranges.sort_by_key(|range| range.start);
        let mut covered = Changes::default();
        for range in ranges {
            let start = covered.runs.last().map_or(0, |last| last.end).max(range.start);
            if start < range.end {
                covered.push(start, &state[start as usize..range.end as usize]);
            }
        }
        let mut all = DiffStore::default();
        [&covered, self].into_iter().for_each(|changes| all.add(changes, 0));
        self.runs = all.runs().map(|run| run.start..run.end).collect();
        self.bytes = all.bytes.into_vec();
    }

    /// How many bytes changed.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// What one node wrote to one unit: each byte once, as it was last, with the stamp of that write.
#[derive(Clone, Default, Debug)]
pub struct DiffStore {
    /// The runs, packed ([`pack`]): where single bytes of many words were written, plain ones would take most of the
    /// memory.
    runs: Box<[u8]>,
    /// The bytes of all runs, one behind the other.
    bytes: Box<[u8]>,
}

/// Packs runs in order: of each the distance from the one before and twice its length. One is added to that where the
/// stamp is another than before; the difference follows, with its sign in the lowest bit.
fn pack(runs: &[StampRun]) -> Box<[u8]> {
    let (mut packed, mut last) = (Vec::with_capacity(2 * runs.len()), StampRun { start: 0, end: 0, stamp: 0 });
    for run in runs {
        packed.put_var((run.start - last.end).into());
        packed.put_var(u64::from(run.end - run.start) << 1 | u64::from(run.stamp != last.stamp));
        if run.stamp != last.stamp {
            let later = run.stamp.wrapping_sub(last.stamp).cast_signed();
            packed.put_var((later << 1 ^ later >> 63).cast_unsigned());
        }
        last = *run;
    }
    packed.into()
}

impl DiffStore {
    /// The runs, in order.
    fn runs(&self) -> impl Iterator<Item = StampRun> + Clone {
        let (mut packed, mut last) = (Reader::new(&self.runs), StampRun { start: 0, end: 0, stamp: 0 });
        std::iter::from_fn(move || {
            let start = last.end + packed.var32().ok()?;
            let length = packed.var32().ok()?;
            if length & 1 == 1 {
                let later = packed.var().ok()?;
                last.stamp = last.stamp.wrapping_add(later >> 1 ^ (later & 1).wrapping_neg());
            }
            last = StampRun { start, end: start + (length >> 1), stamp: last.stamp };
            Some(last)
        })
    }

    /// What changed in an interval with this stamp, which is no earlier than any before, takes the place of what was
    /// written to these bytes before.
    pub fn add(&mut self, changes: &Changes, stamp: Stamp) {
        let (old, new): (Vec<StampRun>, Vec<StampRun>) = (self.runs().collect(), stamped(changes, stamp).collect());
        let places = [Self::places(&old), Self::places(&new)];
        let mut runs = Vec::with_capacity(old.len() + new.len());
        let mut bytes = Vec::with_capacity(self.bytes.len() + changes.bytes.len());
        overlay(
            &old,
            &new,
            |_, _| true,
            |piece, source| {
                let (run, place, from) = match source {
                    Source::Old(number) => (old[number], places[0][number], &self.bytes[..]),
                    Source::New(number) => (new[number], places[1][number], &changes.bytes[..]),
                };
                let at = place + (piece.start - run.start) as usize;
                bytes.extend_from_slice(&from[at..at + (piece.end - piece.start) as usize]);
                push_joined(&mut runs, piece);
            },
        );
        *self = DiffStore { runs: pack(&runs), bytes: bytes.into() };
    }

    /// Where the bytes of each run begin.
    fn places(runs: &[StampRun]) -> Vec<usize> {
        let ends = runs.iter().scan(0, |end, run| {
            let start = *end;
            *end += (run.end - run.start) as usize;
            Some(start)
        });
        ends.collect()
    }

    /// The runs that were written after this stamp, with their bytes.
    pub fn after(&self, since: Stamp) -> impl Iterator<Item = (StampRun, &[u8])> + Clone {
        let with_bytes = self.runs().scan(&self.bytes[..], |left, run| {
            let (bytes, rest) = left.split_at((run.end - run.start) as usize);
            *left = rest;
            Some((run, bytes))
        });
        with_bytes.filter(move |(run, _)| run.stamp > since)
    }

    /// Drops what was written up to this stamp; gives the last stamp dropped, if any.
    pub fn drop_to(&mut self, floor: Stamp) -> Option<Stamp> {
        let dropped = self.runs().map(|run| run.stamp).filter(|stamp| *stamp <= floor).max()?;
        let (runs, bytes): (Vec<StampRun>, Vec<&[u8]>) = self.after(floor).unzip();
        *self = DiffStore { runs: pack(&runs), bytes: bytes.concat().into() };
        Some(dropped)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.runs.len()
    }
}

/// The runs of `changes` with one stamp.
pub fn stamped(changes: &Changes, stamp: Stamp) -> impl Iterator<Item = StampRun> + '_ {
    changes.runs.iter().map(move |run| StampRun { start: run.start, end: run.end, stamp })
}
