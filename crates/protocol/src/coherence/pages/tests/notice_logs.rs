//! Regions under `hlrc` and under `scope` in one job.

use super::intervals::{LOCK, LOCK_2, barrier, blob, intervals, moves, wide};
use crate::coherence::pages::PageEngine::{self, Hlrc, Msi, Scope};
use crate::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use crate::coherence::pages::wire::{Group, Groups, RequiredDiff};
use crate::coherence::pages::write_notices::{self, Knowledge, WhichLog};
use crate::ids::NodeId;
use crate::sync::IntervalMark;
use smallvec::smallvec;
use std::ops::Range;

/// The job's engine: the logs are the main and the other one, or the other way round.
const JOBS: [PageEngine; 3] = [Hlrc, Scope, Msi];
/// The home of all pages, which takes no part.
const HOME: NodeId = NodeId(9);

/// Ends an interval in which these pages of regions under `hlrc` and under `scope` were written.
fn close(intervals: &mut IntervalState, hlrc: Range<u32>, scope: Range<u32>) {
    let mut groups = [Groups::new(), Groups::new()];
    for (engine, pages) in [(Hlrc, hlrc), (Scope, scope)] {
        if !pages.is_empty() {
            let serial = intervals.next_serial(HOME);
            groups[intervals.which(engine) as usize].push(Group { home: HOME, serial, runs: smallvec![(pages, true)] });
        }
    }
    intervals.close(groups);
}

fn ledgers<const N: usize>(job: PageEngine) -> [IntervalState; N] {
    std::array::from_fn(|node| intervals(node as u16, job))
}

fn sorted(mut runs: Vec<Range<u32>>) -> Vec<Range<u32>> {
    runs.sort_by_key(|run| run.start);
    runs
}

#[test]
fn a_lock_brings_all_writes_to_hlrc_regions_and_to_scope_regions_those_made_under_it() {
    for job in JOBS {
        let [mut a, mut b, mut c] = ledgers(job);
        close(&mut a, 0..1, 10..11);
        assert_eq!(sorted(moves(&mut b, &mut a, LOCK)), [], "{job}");
        close(&mut a, 1..2, 11..12);
        assert_eq!(sorted(moves(&mut a, &mut b, LOCK)), [0..1, 1..2, 11..12], "{job}");
        assert_eq!(sorted(moves(&mut b, &mut c, LOCK_2)), [0..1, 1..2], "{job}: handed on through another lock");
        assert_eq!(sorted(moves(&mut c, &mut b, LOCK)), [], "{job}: nothing twice");
    }
}

#[test]
fn a_node_without_such_regions_hands_on_what_others_wrote_there() {
    for job in JOBS {
        let [mut a, mut b, mut c] = ledgers(job);
        close(&mut a, 0..1, 0..0);
        moves(&mut a, &mut b, LOCK);
        assert_eq!(moves(&mut b, &mut c, LOCK_2), vec![0..1], "{job}");
        let [mut a, mut b, mut c] = ledgers(job);
        close(&mut a, 0..0, 10..11);
        moves(&mut a, &mut b, LOCK);
        assert_eq!(moves(&mut b, &mut c, LOCK), vec![10..11], "{job}");
    }
}

#[test]
fn a_barrier_brings_everything_and_then_both_books_are_empty() {
    for job in JOBS {
        let mut all: [IntervalState; 3] = ledgers(job);
        close(&mut all[0], 0..1, 10..11);
        let [a, b, _] = &mut all;
        moves(a, b, LOCK);
        close(&mut all[1], 3..4, 13..14);
        let heard: Vec<_> = barrier(&mut all).into_iter().map(sorted).collect();
        assert_eq!(heard, [vec![3..4, 13..14], vec![], vec![0..1, 3..4, 10..11, 13..14]], "{job}");
        assert!(all.iter().all(|l| l.entries() == 0 && l.epoch() == 1));
        assert_eq!(barrier(&mut all), [vec![], vec![], vec![]]);
    }
}

#[test]
fn a_wide_lock_tells_of_everything_whichever_engine_is_the_jobs() {
    for job in JOBS {
        for lazily in [false, true] {
            let [mut a, mut b, mut c] = ledgers(job);
            // A lazy acquirer must know that there is anything to ask for.
            b.on_region(Scope);
            close(&mut a, 0..1, 10..11);
            moves(&mut c, &mut a, LOCK);
            if lazily { &mut b } else { &mut a }.require_full_notices(wide(LOCK));
            assert_eq!(sorted(moves(&mut a, &mut b, LOCK)), [0..1, 10..11], "{job}, lazily: {lazily}");
            assert_eq!(sorted(moves(&mut b, &mut c, LOCK)), [0..1, 10..11], "{job}: it stays wide");
        }
    }
}

#[test]
fn needs_are_of_the_home_whichever_book_named_them() {
    let [mut a, mut b] = ledgers(Hlrc);
    close(&mut a, 0..1, 10..11);
    let (mut payload, mut needs) = (Vec::new(), RequiredDiffs::default());
    a.encode_notices((LOCK, IntervalMark::NOW), &[], &mut payload);
    assert_eq!(b.apply_notices(LOCK, &payload, &mut needs).unwrap().len(), 2);
    assert_eq!(needs.at(HOME), [RequiredDiff { writer: NodeId(0), serial: 2 }]);
}

/// All that nodes say while a lock travels and at a barrier.
fn said(ledgers: &mut [IntervalState; 2], engine: PageEngine) -> Vec<Vec<u8>> {
    let [a, b] = ledgers;
    let mut said = Vec::new();
    for page in 0..3 {
        let pages = |of| if of == engine { page..page + 1 } else { 0..0 };
        close(a, pages(Hlrc), pages(Scope));
        let (mut knowledge, mut payload) = (Vec::new(), Vec::new());
        b.knowledge(LOCK, &mut knowledge);
        a.encode_notices((LOCK, IntervalMark::NOW), &knowledge, &mut payload);
        b.apply_notices(LOCK, &payload, &mut RequiredDiffs::default()).unwrap();
        said.extend([knowledge, payload]);
    }
    let mut notices = Vec::new();
    a.arrive(&mut notices);
    said.push(notices);
    said
}

#[test]
fn where_one_engine_is_in_use_nothing_is_said_of_the_other() {
    for engine in [Hlrc, Scope] {
        let (mut alone, mut beside): ([IntervalState; 2], [IntervalState; 2]) = (ledgers(engine), ledgers(engine));
        beside.iter_mut().for_each(|l| [Hlrc, Scope].into_iter().for_each(|e| l.on_region(e)));
        let said_alone = said(&mut alone, engine);
        assert_eq!(said_alone, said(&mut beside, engine), "{engine}");
        let books = said_alone[1..].iter().step_by(2).flat_map(|payload| write_notices::blobs(payload));
        assert!(books.flatten().all(|(which, _)| which == WhichLog::Main));
    }
}

#[test]
fn at_a_manager_the_books_are_kept_and_handed_out_apart() {
    let (of_one, of_other) = (blob(WhichLog::Main, &[(0, 1)]), blob(WhichLog::Other, &[(0, 1), (0, 2)]));
    let mut stored = Vec::new();
    write_notices::unite(&of_one, &mut stored);
    write_notices::unite(&of_other, &mut stored);
    assert_eq!(stored, [of_one.clone(), of_other.clone()].concat(), "neither covers the other");
    write_notices::unite(&of_other, &mut stored);
    assert_eq!(stored, [of_one, of_other.clone()].concat(), "and each covers itself");
    let mut all = Vec::new();
    write_notices::hand_out(&stored, &Knowledge::default(), &mut all);
    let mut intervals = intervals(1, Hlrc);
    assert_eq!(intervals.apply_notices(LOCK, &all, &mut RequiredDiffs::default()).unwrap().len(), 3);
    let (mut knowledge, mut rest) = (Vec::new(), Vec::new());
    intervals.knowledge(LOCK, &mut knowledge);
    write_notices::hand_out(&stored, &Knowledge::parse(&knowledge), &mut rest);
    let books: Vec<WhichLog> = write_notices::blobs(&rest).map(|b| b.unwrap().0).collect();
    assert_eq!(books, [WhichLog::Main], "the main log's blob has nothing new, the other's is left out");
}
