//! What was written before and is fetched together when it is written again.

use super::*;

/// Every other one is used: no sequence leads from one to the next.
const PAGES: PageNo = 16;
/// A fault that continues no sequence.
const ALONE: PrefetchPlan = PrefetchPlan { units: 1, stride: 1, known: 30, claims: false };

/// The runs that a store to this page fetches, all of which come; none where it is here.
fn store(bench: &mut Bench, page: PageNo, plan: PrefetchPlan) -> Vec<Range<PageNo>> {
    let fault = bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), page, Access::Write, plan));
    let Fault::Fetch { runs, .. } = fault else { return Vec::new() };
    runs.iter().for_each(|run| bench.arrive(run.clone()));
    runs
}

/// An epoch in which these pages are written, numbered without those between, in this order; after it all copies end.
/// How many pages each store fetched.
fn epoch(bench: &mut Bench, written: &[PageNo], plan: PrefetchPlan) -> Vec<usize> {
    let written: Vec<PageNo> = written.iter().map(|page| 2 * page).collect();
    let fetched = written.iter().map(|page| store(bench, *page, plan).into_iter().flatten().count()).collect();
    // What was not written is found as it was.
    bench.memory.written = written.clone();
    bench.memory.unchanged_but = Some(written);
    bench.close_having_seen(&[0..PAGES]);
    bench.memory.unchanged_but = Some(Vec::new());
    bench.open();
    bench.invalidate(0..PAGES);
    fetched
}

fn bench() -> Bench {
    let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = PAGES);
    let all: Vec<PageNo> = (0..8).collect();
    assert_eq!(epoch(&mut bench, &all, PrefetchPlan::NOTHING), [1; 8]);
    bench
}

#[test]
fn a_store_to_what_was_written_before_brings_the_rest_as_long_as_all_of_it_is_written() {
    let mut bench = bench();
    for _ in 0..4 {
        assert_eq!(epoch(&mut bench, &[4, 1, 3, 0, 2, 5, 6, 7], ALONE), [8, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn the_rest_is_what_has_the_same_home() {
    let mut bench = bench();
    bench.step(|table, cx, _| table.migrate(cx, &(6..7), NodeId(3)));
    let fetched: Vec<PageNo> = store(&mut bench, 8, ALONE).into_iter().flatten().collect();
    assert_eq!(fetched.len(), 7);
    assert!(!fetched.contains(&6));
}

#[test]
fn where_some_of_it_was_not_written_the_rest_waits_for_the_third_store() {
    let mut bench = bench();
    assert_eq!(epoch(&mut bench, &[5, 1, 3, 0, 2], ALONE), [8, 0, 0, 0, 0]);
    assert_eq!(epoch(&mut bench, &[0, 1, 2, 3, 5], ALONE), [1, 1, 3, 0, 0], "nor does what was not written come");
    assert_eq!(epoch(&mut bench, &[0, 1, 2, 3, 5], ALONE), [5, 0, 0, 0, 0]);
}

/// Pages that were written together, so often, in epochs without locks or with.
fn written_together(epochs: u32, closes: u32) -> Bench {
    let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = 16);
    let pages = [1, 4, 7, 10, 13];
    for _ in 0..epochs {
        for page in pages {
            bench.fetch(page..page + 1);
        }
        bench.memory.written = pages.to_vec();
        for _ in 0..closes {
            bench.close();
        }
        bench.open();
        bench.invalidate(0..16);
    }
    bench
}

fn runs_of_a_write(bench: &mut Bench, page: PageNo) -> Vec<Range<PageNo>> {
    let runs = store(bench, page, ALONE);
    assert!(!runs.is_empty());
    runs
}

#[test]
fn what_was_written_together_is_fetched_together_when_it_is_written_again() {
    let mut bench = written_together(1, 1);
    assert_eq!(runs_of_a_write(&mut bench, 10), [10..11, 13..14, 1..2, 4..5, 7..8]);
    bench.open();
    bench.invalidate(0..16);
    let mut write = |page| runs_of_a_write(&mut bench, page);
    assert_eq!([write(10), write(1), write(7)], [[10..11], [1..2], [7..8]], "the others came for nothing");
}

#[test]
fn what_is_written_under_locks_is_not_fetched_together() {
    let mut bench = written_together(1, 2);
    let mut write = |page| runs_of_a_write(&mut bench, page);
    assert_eq!([write(10), write(1), write(7)], [[10..11], [1..2], [7..8]]);
}

#[test]
fn a_copy_that_is_used_long_after_it_ended_is_not_fetched_ahead_when_it_ends() {
    let fetched_ahead = |epochs_between: u32| {
        let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = 16);
        for _ in 0..2 {
            runs_of_a_write(&mut bench, 3);
            bench.memory.written = vec![3];
            bench.close();
            bench.invalidate(0..16);
            (0..epochs_between).for_each(|_| bench.open());
        }
        bench.fetch_ahead(0..16)
    };
    assert_eq!([fetched_ahead(1), fetched_ahead(6)], [vec![3..4], vec![]]);
}
