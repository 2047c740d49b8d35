//! What was written before and is fetched together when it is written again.

use super::*;

/// Every other one is used: no sequence leads from one to the next.
const PAGES: PageNo = 16;
/// A fault that continues no sequence.
const ALONE: Ahead = Ahead { units: 1, stride: 1, known: 30, claims: false };

/// The pages that a store to this one fetches, all of which come.
fn store(bench: &mut Bench, page: PageNo, ahead: Ahead) -> Vec<PageNo> {
    let fault = bench.step(|chunk, cx, _| chunk.fault(cx, Slot::thread(0), page, Access::Write, ahead));
    let runs = match fault {
        Fault::Fetch { runs, .. } => runs,
        _ => Vec::new(),
    };
    runs.iter().for_each(|run| bench.arrive(run.clone()));
    let mut pages: Vec<PageNo> = runs.into_iter().flatten().collect();
    pages.sort_unstable();
    pages
}

/// An epoch in which these pages are written, numbered without those between, in this order; after it all copies end. How many pages each store fetched.
fn epoch(bench: &mut Bench, written: &[PageNo], ahead: Ahead) -> Vec<usize> {
    let written: Vec<PageNo> = written.iter().map(|page| 2 * page).collect();
    let fetched = written.iter().map(|page| store(bench, *page, ahead).len()).collect();
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
    assert_eq!(epoch(&mut bench, &all, Ahead::NOTHING), [1; 8]);
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
fn where_some_of_it_was_not_written_the_rest_waits_for_the_third_store() {
    let mut bench = bench();
    assert_eq!(epoch(&mut bench, &[5, 1, 3, 0, 2], ALONE), [8, 0, 0, 0, 0]);
    assert_eq!(epoch(&mut bench, &[0, 1, 2, 3, 5], ALONE), [1, 1, 3, 0, 0], "nor does what was not written come");
    assert_eq!(epoch(&mut bench, &[0, 1, 2, 3, 5], ALONE), [5, 0, 0, 0, 0]);
}
