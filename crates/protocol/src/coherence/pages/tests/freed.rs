//! What a chunk does once its region was freed.

use super::*;
use crate::coherence::pages::page_table::interval_end::PendingWork;

impl Bench {
    fn free(&mut self) {
        self.step(|table, cx, flushed| table.free(cx, flushed));
    }
}

#[test]
fn what_was_on_its_way_when_its_region_was_freed_is_not_taken_in() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    bench.invalidate(1..2);
    (1..4).for_each(|page| assert!(matches!(bench.fault(page, Access::Read), Fault::Fetch { .. })));
    bench.arrive(3..4);
    bench.step(|table, cx, flushed| table.free(cx, flushed));
    assert_eq!(
        (bench.table.units().cached_pages(), bench.tally.held),
        (0, 0),
        "the one being fetched again had memory"
    );
    assert_eq!(bench.fault(1, Access::Read), Fault::Wait);
    bench.arrive(1..2);
    assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
    bench.step(|table, cx, _| table.on_moved(cx, 2..3, ME));
    assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
    assert_eq!((bench.table.units().cached_pages(), bench.tally.held), (0, 0));
    assert!(
        !(0..4).any(|page| bench.table.unit(page).is_here() || bench.table.unit(page).is_fetching()),
        "who waits goes on"
    );
    assert_eq!(bench.fetch_ahead(0..4), []);
    assert!(!(0..4).any(|page| bench.table.unit(page).is_fetching()), "nor is it asked for again");
}

#[test]
fn copies_that_end_with_their_region_count_neither_as_evicted_nor_as_invalidated() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..4);
    bench.invalidate(3..4);
    let before = bench.tally.invalidations;
    bench.free();
    assert_eq!((bench.table.units().cached_pages(), bench.tally.evictions, bench.tally.invalidations), (0, 0, before));
}

/// A home page that another node holds and its home has written, in a region that was freed since.
fn shared_and_written(notes: bool) -> Bench {
    let mut bench = Bench::new(ME, notes);
    bench.fault(0, Access::Write);
    bench.copy_out(0..1);
    bench.fault(0, Access::Write);
    bench.memory.written.extend(notes.then_some(0));
    bench
}

#[test]
fn home_pages_that_were_freed_are_mapped_no_more_and_nobody_is_told_of_them() {
    for (notes, closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = shared_and_written(notes);
        if closed {
            bench.close();
        }
        bench.free();
        assert!(!bench.table.units().has_pending_notices());
        assert_eq!(bench.close(), [], "{notes} {closed}");
        assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
        bench.open();
        assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
        bench.step(|table, cx, _| table.untrack_idle(cx, &(0..4)));
        assert_eq!(bench.fault(0, Access::Write), Fault::Mapped, "the next fault finds that the region was freed");
        bench.step(|table, cx, _| table.on_diff(cx, 0, &[])).unwrap();
        assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
    }
}

#[test]
fn what_is_copied_out_as_its_region_is_freed_is_not_shared_nor_offered() {
    let mut bench = Bench::new(ME, true);
    bench.memory.offers = true;
    bench.fault(0, Access::Write);
    bench.free();
    let mut bytes = Vec::new();
    bench.step(|table, cx, _| table.share(cx, &[0..1, 2..4], Some(&mut bytes)));
    assert_eq!((bytes.len(), bench.memory.calls.len()), (3 * PAGE_BYTES, 0), "{:?}", bench.memory.calls);
    assert!(!bench.table.may_be_dirty());
}

#[test]
fn a_close_leaves_a_chunk_out_that_was_freed() {
    for (notes, home) in [(false, ME), (true, ME), (false, OTHER), (true, OTHER)] {
        let mut bench = if home == ME { shared_and_written(notes) } else { Bench::new(OTHER, notes) };
        if home == OTHER {
            bench.fetch(0..2);
            bench.fault(0, Access::Write);
            bench.memory.written.extend(notes.then_some(0));
            assert_eq!(bench.close().len(), 1);
            bench.memory.written.extend(notes.then_some(1));
        }
        assert!(bench.table.may_be_dirty());
        bench.free();
        assert!(!bench.table.may_be_dirty(), "{notes} {home}");
        assert!(bench.table.pending_work().close, "the next close comes by, to leave it out for good");
        assert_eq!(bench.close_having_seen(&[]), []);
        assert_eq!(bench.table.pending_work(), PendingWork::default());
        assert!(!bench.table.may_be_dirty());
    }
}

#[test]
fn homes_of_what_was_freed_stay() {
    for home in [ME, OTHER] {
        let mut bench = Bench::new(home, true);
        if home == ME {
            bench.fault(0, Access::Write);
        } else {
            bench.fetch(0..1);
        }
        bench.free();
        bench.step(|table, cx, _| table.migrate(cx, &(0..1), if home == ME { OTHER } else { ME }));
        assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
        assert_eq!((bench.table.units().cached_pages(), bench.tally.held), (0, 0));
    }
}
