//! Page tables to which stores are forbidden.

use super::*;
use crate::coherence::pages::page_table::interval_end::PendingWork;
use crate::tuning::PageTuning;

/// A page table of 32 pages whose home is `home`, in a memory that can forbid stores.
fn bench(home: NodeId) -> Bench {
    let mut bench = Bench::with_shape(home, true, |shape| shape.pages = 32);
    bench.memory.forbids = true;
    bench
}

/// So many intervals end in which nothing was written here.
fn closes_in_vain(bench: &mut Bench, closes: u32) {
    (0..closes).for_each(|_| assert_eq!(bench.close_having_seen(&[]), []));
}

fn idles(bench: &mut Bench) -> Vec<String> {
    bench.step(|table, cx, _| table.untrack_idle(cx, &(0..32)));
    bench.memory.calls.clone()
}

/// One that was found idle after nobody had written it for long enough.
fn quiet() -> Bench {
    let mut b = bench(OTHER);
    b.fetch(0..4);
    closes_in_vain(&mut b, PageTuning::DEFAULT.quiet_closes);
    assert_eq!(idles(&mut b), ["forbid_writes 0..32"]);
    b
}

#[test]
fn a_quiet_table_leaves_the_list_after_one_more_look_and_its_pages_stay_mapped() {
    let mut b = quiet();
    assert!(b.table.may_be_dirty(), "what was stored up to now is still to be found");
    let asks = b.table.pending_work();
    assert_eq!(asks, PendingWork { forbids_writes: true, ..PendingWork::default() });
    assert_eq!(PendingWork::of(asks.bits()), asks);
    assert!(!PageTable::may_be_passed_over(&PageTuning::DEFAULT, 0, asks, b.sync_phase));
    assert_eq!(b.close_having_seen(&[]), []);
    assert!(b.memory.calls.is_empty() && !b.table.may_be_dirty(), "{:?}", b.memory.calls);
    assert!((0..4).all(|page| b.table.unit(page).is_here()));
}

#[test]
fn what_was_stored_before_they_were_forbidden_is_told() {
    let mut b = quiet();
    b.memory.written = vec![2];
    assert_eq!(b.close_having_seen(&[2..3]), [(2..3, OTHER, true)]);
    b.open();
    assert!(!b.table.may_be_dirty());
}

#[test]
fn the_first_store_lets_all_of_the_table_be_stored_to() {
    let mut b = quiet();
    closes_in_vain(&mut b, 1);
    assert!(b.table.may_need_notices(30), "the table is listed before, whichever page is stored to");
    assert_eq!(b.fault(1, Access::Write), Fault::Mapped);
    assert_eq!(b.memory.calls, ["allow_writes 0..32", "map_write 1..2"]);
    assert!(b.table.may_be_dirty() && !b.table.forbids_writes());
    b.memory.written = vec![1];
    assert_eq!(b.close_having_seen(&[1..2]), [(1..2, OTHER, true)]);
    assert_eq!(idles(&mut b)[0], "unmap 0..4", "it is not quiet now");
}

#[test]
fn a_table_that_is_written_or_cannot_be_protected_is_untracked_as_before() {
    let mut b = bench(OTHER);
    b.fetch(0..4);
    b.memory.written = vec![3];
    b.close_having_seen(&[3..4]);
    closes_in_vain(&mut b, PageTuning::DEFAULT.quiet_closes - 1);
    assert_eq!(idles(&mut b), ["unmap 0..4", "written 0..4"], "written too lately");
    let mut b = bench(OTHER);
    b.memory.forbids = false;
    b.fetch(0..4);
    closes_in_vain(&mut b, PageTuning::DEFAULT.quiet_closes);
    assert_eq!(idles(&mut b), ["forbid_writes 0..32", "unmap 0..4", "written 0..4"]);
    assert!(!b.table.forbids_writes());
}

#[test]
fn what_is_freed_may_be_stored_to_by_who_has_its_addresses_next() {
    let mut b = quiet();
    b.step(|table, cx, flushed| table.free(cx, flushed));
    assert_eq!(b.memory.calls.last().map(String::as_str), Some("allow_writes 0..32"));
    assert!(!b.table.forbids_writes());
}

/// A run of pages comes for a fault on its first.
fn fetch_run(b: &mut Bench, pages: Range<PageNo>, access: Access) -> Vec<String> {
    let plan = PrefetchPlan { units: pages.len(), ..PrefetchPlan::NOTHING };
    let fault = b.step(|table, cx, _| table.fault(cx, Slot::thread(0), pages.start, access, plan));
    assert!(matches!(fault, Fault::Fetch { .. }), "{fault:?}");
    b.arrive(pages);
    b.memory.calls.clone()
}

#[test]
fn a_long_run_into_an_untouched_table_has_no_twins_until_the_table_is_stored_to() {
    let mut b = bench(OTHER);
    assert_eq!(fetch_run(&mut b, 0..16, Access::Read), ["forbid_writes 0..32", "install 0..16", "map_read 0..16"]);
    assert_eq!(fetch_run(&mut b, 16..18, Access::Read), ["install 16..18", "map_read 16..18"]);
    assert_eq!(b.tally.twins_made, 0);
    b.fault(17, Access::Write);
    let twins: Vec<String> = (0..18).map(|page| format!("make_twin {page}..{}", page + 1)).collect();
    assert_eq!(b.memory.calls[..18], twins);
    assert_eq!(b.memory.calls[18..], ["allow_writes 0..32", "map_write 17..18"]);
    assert_eq!(b.tally.twins_made, 18);
    b.memory.written = vec![17];
    assert_eq!(b.close_having_seen(&[17..18]), [(17..18, OTHER, true)]);
    assert_eq!(b.flushed.0, [(OTHER, 17)]);
    // From here on twins are made as copies come.
    assert_eq!(b.tally.twins_made, 18);
    fetch_run(&mut b, 18..32, Access::Read);
    assert_eq!(b.tally.twins_made, 32);
}

#[test]
fn short_runs_and_tables_of_which_something_is_mapped_have_twins() {
    let mut b = bench(OTHER);
    fetch_run(&mut b, 0..15, Access::Read);
    assert_eq!(b.tally.twins_made, 15);
    fetch_run(&mut b, 15..32, Access::Read);
    assert_eq!(b.tally.twins_made, 32);
    assert!(!b.table.forbids_writes());
}

#[test]
fn a_run_that_is_fetched_for_a_store_is_mapped_as_clean_while_stores_are_forbidden() {
    let mut b = bench(OTHER);
    let calls = fetch_run(&mut b, 0..16, Access::Write);
    assert_eq!(calls, ["forbid_writes 0..32", "install 0..16", "map_read 0..16"], "nothing counts as written");
    assert_eq!(b.close_having_seen(&[]), []);
    b.fault(0, Access::Write);
    assert_eq!(b.memory.calls[16..], ["allow_writes 0..32", "map_write 0..1"]);
}

#[test]
fn a_copy_without_a_twin_whose_entry_the_kernel_took_does_not_count_as_written() {
    let mut b = bench(OTHER);
    fetch_run(&mut b, 0..16, Access::Read);
    assert_eq!(b.fault(3, Access::Read), Fault::Mapped);
    assert_eq!(b.memory.calls, ["map_read 3..4"]);
}

#[test]
fn a_table_that_was_stored_to_is_left_alone_for_a_while() {
    let mut b = bench(OTHER);
    fetch_run(&mut b, 0..32, Access::Read);
    b.fault(5, Access::Write);
    b.memory.written = vec![5];
    b.close_having_seen(&[5..6]);
    b.open();
    b.invalidate(0..32);
    fetch_run(&mut b, 0..32, Access::Read);
    assert!(!b.table.forbids_writes());
    closes_in_vain(&mut b, PageTuning::DEFAULT.twinless_closes);
    b.invalidate(0..32);
    fetch_run(&mut b, 0..32, Access::Read);
    assert!(b.table.forbids_writes());
}
