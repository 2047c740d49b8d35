//! Stores, stamps and messages against simple models, and what hostile bytes come to.

use super::runs::{Changes, DiffStore, StampMap, StampRun};
use super::unit::{KeptUnit, raise_version};
use super::wire::*;
use super::{STAMP_MAX, Stamp};
use crate::coherence::pages::PAGE_BYTES;
use crate::faults::Rng;
use crate::ids::NodeId;
use crate::wire::bytes::{Put, WireError};
use std::collections::BTreeMap;

/// Bytes by their places, with the stamps of their writes.
type Model = BTreeMap<u32, (Stamp, u8)>;

/// Some runs in order within 64 bytes.
fn changes(rng: &mut Rng) -> Changes {
    let (mut changes, mut at) = (Changes::default(), rng.below(20) as u32);
    while at < 64 {
        let bytes: Vec<u8> = (0..rng.between(1, 9)).map(|_| rng.below(256) as u8).collect();
        let bytes = &bytes[..bytes.len().min(64 - at as usize)];
        changes.push(at, bytes);
        at += bytes.len() as u32 + rng.below(16) as u32;
    }
    changes
}

/// Runs and bytes, as they come in a message.
fn told(changes: &Changes, stamp: Stamp) -> (Vec<StampRun>, Vec<u8>) {
    let mut store = DiffStore::default();
    store.add(changes, stamp);
    let (runs, bytes): (Vec<_>, Vec<&[u8]>) = store.after(0).unzip();
    (runs, bytes.concat())
}

fn each_byte<'a>(runs: impl Iterator<Item = (StampRun, &'a [u8])>) -> Model {
    runs.flat_map(|(run, bytes)| (run.start..run.end).zip(bytes).map(move |(at, byte)| (at, (run.stamp, *byte))))
        .collect()
}

fn are_in_order(runs: &[StampRun]) -> bool {
    let apart = |pair: &[StampRun]| {
        pair[0].end < pair[1].start || pair[0].end == pair[1].start && pair[0].stamp != pair[1].stamp
    };
    runs.iter().all(|run| run.start < run.end) && runs.windows(2).all(apart)
}

#[test]
fn a_store_keeps_each_byte_as_it_was_last() {
    let mut rng = Rng::new(0x57a3);
    for _ in 0..200 {
        let (mut store, mut model, mut stamp) = (DiffStore::default(), Model::new(), 0);
        for _ in 0..20 {
            // An interval may add twice, as a copy that ends before its interval does.
            stamp += rng.below(3) + u64::from(stamp == 0);
            let (runs, bytes) = told(&changes(&mut rng), stamp);
            let mut again = Changes::default();
            let mut left = &bytes[..];
            for run in &runs {
                let (of_run, rest) = left.split_at((run.end - run.start) as usize);
                again.push(run.start, of_run);
                model.extend((run.start..run.end).zip(of_run).map(|(at, byte)| (at, (stamp, *byte))));
                left = rest;
            }
            store.add(&again, stamp);
            assert_eq!(each_byte(store.after(0)), model);
            let runs: Vec<StampRun> = store.after(0).map(|(run, _)| run).collect();
            assert!(are_in_order(&runs), "{runs:?}");
            let since = rng.below(stamp + 1);
            let later = model.iter().filter(|(_, (stamp, _))| *stamp > since).map(|(at, of)| (*at, *of));
            assert_eq!(each_byte(store.after(since)), later.collect::<Model>());
        }
        let floor = rng.below(stamp + 1);
        let dropped = store.drop_to(floor);
        assert_eq!(dropped, model.values().map(|(stamp, _)| *stamp).filter(|stamp| *stamp <= floor).max());
        model.retain(|_, (stamp, _)| *stamp > floor);
        assert_eq!(each_byte(store.after(0)), model);
    }
}

#[test]
fn older_bytes_never_take_the_place_of_newer_ones_in_whatever_order_they_come() {
    let mut rng = Rng::new(0x0b5e);
    for _ in 0..200 {
        let (mut stamps, mut copy, mut model) = (StampMap::default(), [0_u8; 64], Model::new());
        for _ in 0..12 {
            let (runs, bytes) = told(&changes(&mut rng), rng.between(1, 8));
            let places: Vec<usize> =
                (0..runs.len()).map(|run| runs[..run].iter().map(|run| (run.end - run.start) as usize).sum()).collect();
            stamps.raise(&runs, |piece, run| {
                let at = places[run] + (piece.start - runs[run].start) as usize;
                copy[piece.start as usize..piece.end as usize].copy_from_slice(&bytes[at..at + piece.len()]);
            });
            let mut left = bytes.iter();
            for run in &runs {
                for at in run.start..run.end {
                    let byte = *left.next().unwrap();
                    if model.get(&at).is_none_or(|(stamp, _)| run.stamp > *stamp) {
                        model.insert(at, (run.stamp, byte));
                    }
                }
            }
            assert!(are_in_order(stamps.runs()), "{stamps:?}");
            let known = stamps.runs().iter().flat_map(|run| (run.start..run.end).map(|at| (at, run.stamp)));
            assert!(known.eq(model.iter().map(|(at, (stamp, _))| (*at, *stamp))));
            assert!((0..64).all(|at| copy[at as usize] == model.get(&at).map_or(0, |(_, byte)| *byte)));
        }
    }
}

/// Learning interval 7 by one lock and then 5 by another must not restore stale bytes.
#[test]
fn interval_five_after_interval_seven_restores_nothing() {
    let mut stamps = StampMap::default();
    let run = |stamp| [StampRun { start: 8, end: 16, stamp }];
    let mut taken = Vec::new();
    stamps.raise(&run(7), |piece, _| taken.push((7, piece)));
    stamps.raise(&run(5), |piece, _| taken.push((5, piece)));
    stamps.raise(&run(7), |piece, _| taken.push((7, piece)));
    assert_eq!(taken, [(7, 8..16)]);
}

#[test]
fn a_million_intervals_of_a_page_take_no_more_than_a_page_and_a_third() {
    let (mut store, mut page) = (DiffStore::default(), Changes::default());
    page.push(0, &[1; PAGE_BYTES]);
    store.add(&page, 1);
    let mut counter = Changes::default();
    counter.push(512, &[3; 8]);
    (2..1_000_000).for_each(|stamp| store.add(&counter, stamp));
    assert!(store.memory_bytes() * 10 <= 13 * PAGE_BYTES, "{} bytes", store.memory_bytes());
}

/// Of an array of small numbers the lower half of each changes.
#[test]
fn a_page_of_which_some_bytes_of_each_word_were_written_takes_no_more_than_a_page_and_a_third() {
    let (mut store, mut halves) = (DiffStore::default(), Changes::default());
    (0..PAGE_BYTES as u32).step_by(4).for_each(|at| halves.push(at, &[7, 9]));
    store.add(&halves, 1 << 40);
    assert!(store.memory_bytes() * 10 <= 13 * PAGE_BYTES, "{} bytes", store.memory_bytes());
    assert_eq!(store.after(0).count(), PAGE_BYTES / 4);
    assert!(store.after(0).all(|(run, bytes)| (run.stamp, bytes) == (1 << 40, &[7, 9][..])));
}

#[test]
fn stamps_come_back_as_they_were_kept_whichever_is_later() {
    for stamps in [[1, STAMP_MAX], [STAMP_MAX, 1], [5, 4], [5, 5]] {
        let mut store = DiffStore::default();
        for (at, stamp) in [40, 4].into_iter().zip(stamps) {
            let mut change = Changes::default();
            change.push(at, b"x");
            store.add(&change, stamp);
        }
        let kept: Vec<_> = store.after(0).map(|(run, _)| (run.start, run.end, run.stamp)).collect();
        assert_eq!(kept, [(4, 5, stamps[1]), (40, 41, stamps[0])]);
    }
}

#[test]
fn what_changed_is_found_to_the_byte() {
    let (before, mut after) = (vec![7; 100], vec![7; 100]);
    [0, 7, 8, 9, 98].iter().for_each(|at| after[*at] = 1);
    let (mut changes, mut states) = (Changes::default(), [before, after].into_iter());
    changes.compare(|state| *state = states.next().unwrap());
    let runs: Vec<_> = told(&changes, 1).0.iter().map(|run| run.start..run.end).collect();
    assert_eq!(runs, [0..1, 7..10, 98..99]);
    assert_eq!(changes.bytes(), 5);
}

#[test]
fn bytes_that_are_as_they_were_join_those_that_changed() {
    let state: Vec<u8> = (0..64).collect();
    let mut changes = Changes::default();
    changes.push(6, &[91, 92, 93]);
    changes.push(40, &[94]);
    changes.cover(vec![8..12, 30..32, 0..4, 10..14], &state);
    let (runs, bytes) = told(&changes, 5);
    let runs: Vec<_> = runs.iter().map(|run| run.start..run.end).collect();
    assert_eq!(runs, [0..4, 6..14, 30..32, 40..41]);
    assert_eq!(bytes, [0, 1, 2, 3, 91, 92, 93, 9, 10, 11, 12, 13, 30, 31, 94]);
    assert_eq!(changes.bytes(), bytes.len());
}

#[test]
fn a_copy_that_lacks_what_is_dropped_goes_and_others_forget_old_stamps() {
    let (writer, other) = (NodeId(3), NodeId(4));
    let mut unit = KeptUnit { has_copy: true, ..KeptUnit::default() };
    raise_version(&mut unit.needed, writer, 5);
    raise_version(&mut unit.needed, other, 6);
    raise_version(&mut unit.had, writer, 5);
    unit.due = unit.needed.clone();
    assert_eq!(unit.missing(9, 0).map(|(node, ask)| (node, ask.since, ask.need)).collect::<Vec<_>>(), [(other, 0, 6)]);
    let mut whole = unit.clone();
    assert!(unit.collect(6) && !unit.has_copy && unit.collected && unit.needed.is_empty());
    raise_version(&mut whole.had, other, 6);
    raise_version(&mut whole.needed, writer, 9);
    assert!(!whole.collect(6) && whole.has_copy && whole.had.is_empty());
    assert_eq!(whole.missing(9, 6).map(|(_, ask)| (ask.since, ask.need)).collect::<Vec<_>>(), [(6, 9)]);
}

fn reply() -> (Vec<u8>, Vec<u8>) {
    let (runs, bytes) = told(&changes(&mut Rng::new(9)), 300);
    let mut diffs = Vec::new();
    let parts = runs.iter().scan(&bytes[..], |left, run| {
        let (of_run, rest) = left.split_at((run.end - run.start) as usize);
        *left = rest;
        Some((*run, of_run))
    });
    put_diffs(&mut diffs, 7, 301, parts);
    put_collected(&mut diffs, 8, 6);
    put_freed(&mut diffs, 9);
    let mut bases = Vec::new();
    put_base(&mut bases, 7, 4, (&[(NodeId(1), 9)].into_iter().collect(), &StampMap::of(runs)), Some(3));
    bases.put_bytes(b"abc");
    put_base(&mut bases, 8, 0, (&Default::default(), &StampMap::default()), None);
    put_freed(&mut bases, 9);
    (diffs, bases)
}

#[test]
fn messages_survive_the_wire() {
    let asks = [DiffAsk { page: 1, since: 0, need: 3 }, DiffAsk { page: 1 << 31, since: 1 << 40, need: STAMP_MAX }];
    let mut body = Vec::new();
    put_diff_asks(&mut body, &asks);
    assert_eq!(take_diff_asks(&body), Ok(asks.to_vec()));
    body.clear();
    put_base_asks(&mut body, 7, &[4, 9]);
    assert_eq!(take_base_asks(&body), Ok((7, vec![4, 9])));
    let (diffs, bases) = reply();
    let units = take_told(&diffs).unwrap();
    let Told::Diffs(first) = &units[0].1 else { panic!("{units:?}") };
    assert_eq!((first.through, first.bytes), (301, &told(&changes(&mut Rng::new(9)), 300).1[..]));
    assert_eq!(units[1..], [(8, Told::Collected(6)), (9, Told::Freed)]);
    let units = take_bases(&bases).unwrap();
    let Base::Copy(first) = &units[0].1 else { panic!("{units:?}") };
    assert_eq!((first.floor, &first.had[..], first.bytes), (4, &[(NodeId(1), 9)][..], Some(&b"abc"[..])));
    assert_eq!(units[1..], [(8, Base::Copy(BaseCopy::default())), (9, Base::Freed)]);
}

#[test]
fn harmed_messages_are_refused_or_read_and_never_panic() {
    let (diffs, bases) = reply();
    let mut rng = Rng::new(0xf422);
    for body in [diffs, bases] {
        for len in 0..body.len() {
            let (_, _) = (take_told(&body[..len]), take_bases(&body[..len]));
        }
        for _ in 0..20_000 {
            let mut harmed = body.clone();
            (0..rng.between(1, 4)).for_each(|_| {
                let at = rng.below(harmed.len() as u64) as usize;
                harmed[at] = rng.below(256) as u8;
            });
            let _ = (take_told(&harmed), take_bases(&harmed), take_diff_asks(&harmed), take_base_asks(&harmed));
        }
    }
}

#[test]
fn what_no_node_would_send_is_refused() {
    let wrong = |body: &[u64], kind: u8| {
        let mut out = Vec::new();
        out.put_var(7);
        out.put_u8(kind);
        body.iter().for_each(|number| out.put_var(*number));
        out.extend([0; 16]);
        take_told(&out).err()
    };
    let bad = |what| Some(WireError::BadValue(what));
    assert_eq!(wrong(&[STAMP_MAX + 1], 0), bad("stamp"), "a stamp beyond the last");
    assert_eq!(wrong(&[9, 1_000_000], 0), bad("runs of bytes"), "more runs than there are bytes for");
    assert_eq!(wrong(&[9, 1, 0, 0, 9], 0), bad("runs of bytes"), "an empty run");
    assert_eq!(wrong(&[9, 1, 0, 4, 0], 0), bad("runs of bytes"), "a stamp before all");
    assert_eq!(wrong(&[9, 1, 1 << 20, 1, 9], 0), bad("runs of bytes"), "beyond the largest unit");
    assert_eq!(wrong(&[9, 1, u64::MAX, 2, 9], 0), bad("runs of bytes"), "beyond all numbers");
    assert_eq!(wrong(&[9, 1, 0, 1 << 19, 9], 0), Some(WireError::Short), "fewer bytes than runs say");
    assert_eq!(wrong(&[], 3), bad("answer of a writer"));
    let mut asks = Vec::new();
    put_diff_asks(&mut asks, &[DiffAsk { page: 1, since: 3, need: 3 }]);
    assert_eq!(take_diff_asks(&asks), Err(WireError::BadValue("request for diffs")), "nothing is asked for");
    asks.clear();
    put_diff_asks(&mut asks, &[DiffAsk { page: 1, since: 0, need: 1 }; ASKED_UNITS_MAX + 1]);
    assert_eq!(take_diff_asks(&asks), Err(WireError::BadValue("request for diffs")), "too many units");
    asks.clear();
    put_base_asks(&mut asks, 0, &[1; ASKED_UNITS_MAX + 1]);
    assert_eq!(take_base_asks(&asks), Err(WireError::BadValue("request for bases")));
}
