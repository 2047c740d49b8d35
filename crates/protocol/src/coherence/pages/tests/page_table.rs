use super::*;
use crate::coherence::pages::page_table::interval_end::PendingWork;
use crate::tuning::PageTuning;

#[test]
fn a_copy_that_ends_is_unmapped_then_scanned_then_compared_and_its_memory_kept_for_the_next() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    bench.memory.written = vec![0];
    bench.invalidate(0..4);
    assert_eq!(bench.memory.calls, ["unmap 0..1", "written 0..1", "diff 0..1", "drop_twin 0..1"]);
    assert_eq!(bench.flushed.0, [(OTHER, 0)]);
    assert!(!bench.table.unit(0).is_here());
}

#[test]
fn a_copy_that_nobody_wrote_ends_without_a_diff() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..3);
    bench.invalidate(0..3);
    let calls = &bench.memory.calls;
    assert_eq!(calls[..2], ["unmap 0..3", "written 0..3"], "one call for the run");
    assert!(!calls.iter().any(|c| c.starts_with("diff")), "{calls:?}");
}

#[test]
fn what_changed_is_put_into_the_homes_memory_where_that_can_be_written_and_sent_elsewhere() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    for (may, can, call) in [(true, true, "put 0..1"), (true, false, "diff 0..1"), (false, true, "diff 0..1")] {
        (bench.flushed.1, bench.memory.puts) = (may.then_some(OTHER), can);
        bench.flushed.2.clear();
        bench.memory.written = vec![0];
        assert_eq!(bench.close(), [(0..1, OTHER, true)], "told of in any case");
        assert_eq!(bench.memory.calls.last().map(String::as_str), Some(call));
        let put = call.starts_with("put");
        assert_eq!((bench.flushed.0.len(), bench.flushed.2.len()), (usize::from(!put), usize::from(put)));
    }
}

#[test]
fn a_copy_that_is_fetched_for_a_store_counts_as_written_from_the_beginning() {
    let mut bench = Bench::new(OTHER, true);
    for (page, access, call) in [(0, Access::Write, "map_write 0..1"), (1, Access::Read, "map_read 1..2")] {
        bench.fault(page, access);
        bench.arrive(page..page + 1);
        assert_eq!(bench.memory.calls.last().map(String::as_str), Some(call));
    }
    bench.invalidate(0..1);
    bench.fault(0, Access::Read);
    bench.arrive(0..1);
    assert_eq!(bench.memory.calls.last().map(String::as_str), Some("map_read 0..1"), "that was the last time");
}

#[test]
fn copies_that_end_in_one_chunk_are_looked_at_in_one_go_without_what_lies_between() {
    let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = 8);
    bench.fetch(0..8);
    bench.memory.written = vec![1, 2];
    bench.step(|table, cx, flushed| table.invalidate(cx, &[0..2, 4..5], flushed));
    let calls = &bench.memory.calls;
    assert_eq!(calls[..3], ["unmap 0..2", "unmap 4..5", "written 0..5"], "unmapped first");
    assert_eq!(bench.flushed.0, [(OTHER, 1)], "page 2 keeps its note");
    assert_eq!(bench.memory.written, [1, 2], "no note is taken");
}

#[test]
fn copies_with_nothing_mapped_between_them_end_together() {
    let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = 8);
    bench.fetch(0..2);
    bench.fetch(4..8);
    bench.memory.written = vec![5];
    bench.step(|table, cx, flushed| table.invalidate(cx, &[0..2, 4..5, 5..6], flushed));
    let calls = [
        "unmap 0..6",
        "written 0..6",
        "drop_twin 0..1",
        "drop_twin 1..2",
        "drop_twin 4..5",
        "diff 5..6",
        "drop_twin 5..6",
    ];
    assert_eq!(bench.memory.calls, calls, "pages 2 and 3 never were here");
    assert!(bench.table.unit(6).is_here());
    bench.fetch(0..6);
    bench.step(|table, cx, flushed| table.invalidate(cx, &[0..2, 4..5], flushed));
    let unmapped = bench.memory.calls.iter().filter(|call| call.starts_with("unmap")).collect::<Vec<_>>();
    assert_eq!(unmapped, ["unmap 0..2", "unmap 4..5"], "pages 2 and 3 are in use");
}

#[test]
fn copies_end_in_whatever_order_they_are_named() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..4);
    bench.step(|table, cx, flushed| table.invalidate(cx, &[2..4, 0..1], flushed));
    assert_eq!([0, 1, 2, 3].map(|page| bench.table.unit(page).is_here()), [false, true, false, false]);
}

#[test]
fn where_writes_fault_the_first_one_makes_the_twin_and_the_interval_protects_before_it_compares() {
    let mut bench = Bench::new(OTHER, false);
    bench.fetch(0..1);
    assert_eq!(bench.memory.calls, ["install 0..1", "map_read 0..1"], "no twin for a copy that is only read");
    assert_eq!(bench.fault(0, Access::Write), Fault::Mapped);
    assert_eq!(bench.memory.calls, ["make_twin 0..1", "map_write 0..1"]);
    assert_eq!(bench.close(), [(0..1, OTHER, true)]);
    assert_eq!(bench.memory.calls, ["protect 0..1", "diff 0..1", "drop_twin 0..1"]);
    assert_eq!(bench.close(), [], "what was told once is not told again");
    assert!(bench.memory.calls.is_empty(), "and costs nothing: {:?}", bench.memory.calls);
}

#[test]
fn where_writes_fault_a_written_copy_whose_table_entry_is_lost_keeps_its_twin() {
    let mut bench = Bench::new(OTHER, false);
    bench.fetch(0..1);
    assert!(!bench.table.units().has_pending_notices());
    bench.fault(0, Access::Write);
    assert!(bench.table.units().has_pending_notices());
    for access in [Access::Read, Access::Write] {
        assert_eq!(bench.fault(0, access), Fault::Mapped);
        assert_eq!(bench.memory.calls, ["map_write 0..1"], "a new twin would have what was written in it");
    }
    assert_eq!(bench.close(), [(0..1, OTHER, true)]);
}

#[test]
fn where_writes_are_noted_the_copy_has_a_twin_from_the_beginning_and_keeps_it() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    assert_eq!(bench.memory.calls, ["install 1..2", "make_twin 1..2", "map_read 1..2"]);
    bench.memory.written = vec![1];
    assert_eq!(bench.close(), [(1..2, OTHER, true)]);
    assert_eq!(bench.memory.calls, ["collect 0..2", "diff 1..2"]);
}

#[test]
fn a_close_takes_only_the_notes_that_a_look_has_named() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..4);
    assert_eq!(bench.close_having_seen(&[7..9]), []);
    assert!(bench.memory.calls.is_empty(), "nothing here: {:?}", bench.memory.calls);
    bench.memory.written = vec![1];
    assert_eq!(bench.close_having_seen(&[1..2, 7..9]), [(1..2, OTHER, true)]);
    assert_eq!(bench.memory.calls, ["collect 1..2", "diff 1..2"]);
    bench.memory.written = vec![0, 3];
    assert_eq!(bench.close_having_seen(&[0..1, 3..4]), [(0..1, OTHER, true), (3..4, OTHER, true)]);
    assert_eq!(bench.memory.calls[0], "collect 0..4", "one call for what lies close");
}

#[test]
fn a_copy_that_is_written_in_every_interval_keeps_its_note_and_is_only_compared() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    let told = [(0..1, OTHER, true)];
    for close in 0..4 {
        // From the third close on the note is there whether or not anybody has written again.
        bench.memory.written = vec![0];
        assert_eq!(bench.close_having_seen(&[0..1]), told);
        assert_eq!(bench.memory.calls, if close < 2 { vec!["collect 0..1", "diff 0..1"] } else { vec!["diff 0..1"] });
    }
    bench.open();
    bench.close_having_seen(&[0..1]);
    assert_eq!(bench.memory.calls, ["collect 0..1", "diff 0..1"], "a new epoch: it may be written no more");
}

#[test]
fn what_was_flushed_early_is_told_although_no_look_names_it() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    bench.memory.written = vec![0];
    bench.invalidate(0..1);
    assert_eq!(bench.close_having_seen(&[]), [(0..1, OTHER, false)]);
    assert_eq!(bench.close_having_seen(&[]), []);
}

#[test]
fn a_chunk_with_nothing_to_tell_asks_for_no_close_but_has_its_turn() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    assert_eq!(bench.table.pending_work(), PendingWork::default());
    bench.memory.written = vec![0];
    bench.invalidate(0..1);
    assert_eq!(
        bench.table.pending_work(),
        PendingWork { close: true, ..PendingWork::default() },
        "what was flushed must be told of"
    );
    assert_eq!(bench.close_having_seen(&[]), [(0..1, OTHER, false)]);
    assert_eq!(bench.table.pending_work(), PendingWork { open: true, ..PendingWork::default() });
    bench.open();
    assert_eq!(bench.table.pending_work(), PendingWork::default());
    let turns = (0..256).filter(|_| {
        bench.sync_phase.close();
        !PageTable::may_be_passed_over(&PageTuning::DEFAULT, 512, bench.table.pending_work(), bench.sync_phase)
    });
    assert_eq!(turns.count(), 2);
    assert!((0..8).map(PendingWork::of).all(|asks| PendingWork::of(asks.bits()) == asks));
}

#[test]
fn notes_that_say_nothing_are_taken_after_many_looks_at_them() {
    let mut bench = Bench::new(ME, true);
    (0..4).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
    [0, 3].into_iter().for_each(|page| bench.copy_out(page..page + 1));
    let taken = (0..1_000).filter(|_| {
        bench.close_having_seen(&[]);
        bench.memory.calls == ["collect 1..3"]
    });
    assert_eq!(taken.count(), 1_000 / 129);
}

#[test]
fn a_home_page_is_protected_before_its_first_copy_and_not_again() {
    for notes in [true, false] {
        let mut bench = Bench::new(ME, notes);
        bench.fault(0, Access::Write);
        assert_eq!(bench.memory.calls, ["map_write 0..1"]);
        bench.copy_out(0..1);
        assert_eq!(bench.memory.calls, ["protect 0..1", "copy_out 0..1"]);
        bench.copy_out(0..1);
        assert_eq!(bench.memory.calls, ["copy_out 0..1"]);
    }
}

#[test]
fn a_home_maps_what_others_hold_together_and_protected() {
    for (access, first) in [(Access::Read, "map_read 0..1"), (Access::Write, "map_write 0..1")] {
        let mut bench = Bench::new(ME, true);
        bench.copy_out(0..3);
        assert_eq!(bench.fault(0, access), Fault::Mapped);
        assert_eq!(bench.memory.calls, [first, "map_read 1..3"], "page 3 is nobody's: it may never have been touched");
        assert_eq!(bench.fault(3, Access::Read), Fault::Mapped);
        assert!(bench.memory.calls.contains(&"map_write 3..4".to_string()), "{:?}", bench.memory.calls);
    }
}

#[test]
fn where_mappings_are_scarce_a_home_maps_aligned_stretches_of_what_nobody_else_holds() {
    let mut bench = Bench::with_shape(ME, false, |shape| shape.pages = 24);
    bench.memory.more_together = 7;
    bench.copy_out(10..11);
    for (page, call) in
        [(5, "map_write 0..8"), (14, "map_write 11..16"), (8, "map_write 8..10"), (23, "map_write 16..24")]
    {
        assert_eq!(bench.fault(page, Access::Read), Fault::Mapped);
        assert_eq!(bench.memory.calls, [call]);
    }
    bench.fault(6, Access::Write);
    assert_eq!(bench.memory.calls, ["map_write 0..8"], "also where a mapping was lost");
    bench.copy_out(3..4);
    assert_eq!(bench.memory.calls, ["protect 3..4", "copy_out 3..4"], "what was mapped along is watched like the rest");
    assert_eq!(bench.fault(10, Access::Read), Fault::Mapped);
    assert_eq!(bench.memory.calls[0], "map_read 10..11");
}

#[test]
fn a_home_tells_of_its_own_writes_while_others_hold_copies_and_only_then() {
    let mut bench = Bench::new(ME, true);
    bench.fault(0, Access::Write);
    assert!(!bench.table.may_be_dirty());
    assert_eq!(bench.close(), []);
    bench.copy_out(0..1);
    bench.memory.written = vec![0];
    assert_eq!(bench.close(), [(0..1, ME, false)]);
    bench.open();
    assert!(!bench.table.may_be_dirty(), "everybody's copy ended at the barrier");
}

/// A home's page that another node holds, in a new epoch after so many closes, in each of which it was told of.
fn told_of(closes: usize) -> Bench {
    let mut bench = Bench::new(ME, true);
    bench.fault(0, Access::Write);
    bench.copy_out(0..1);
    for _ in 0..closes {
        bench.memory.written = vec![0];
        assert_eq!(bench.close(), [(0..1, ME, false)]);
    }
    bench.open();
    bench
}

#[test]
fn a_home_page_that_the_barriers_close_has_protected_is_shared_as_it_is() {
    let mut bench = told_of(1);
    assert_eq!(bench.close(), [], "nobody holds it, and the home waits at the next barrier already");
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["regard 0..1", "copy_out 0..1"]);
    bench.memory.written = vec![0];
    assert_eq!(bench.close(), [(0..1, ME, false)]);
}

#[test]
fn where_locks_close_intervals_a_home_page_is_protected_each_time_it_is_shared() {
    let mut bench = told_of(2);
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["protect 0..1", "copy_out 0..1"]);
    let mut bench = told_of(1);
    (0..2).for_each(|_| drop(bench.close()));
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["protect 0..1", "copy_out 0..1"]);
}

#[test]
fn pages_that_are_protected_in_one_go_keep_the_notes_of_what_lies_between() {
    let mut bench = Bench::new(ME, true);
    (0..4).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
    bench.copy_out(1..2);
    bench.memory.written = vec![1, 3];
    bench.step(|table, cx, _| table.share(cx, &[0..1, 2..3], Some(&mut Vec::new())));
    let calls = ["regard 0..3", "collect 0..3", "copy_out 0..1", "copy_out 2..3"];
    assert_eq!(bench.memory.calls, calls, "page 1 was shared before");
    assert!(bench.memory.disregarded.is_empty(), "and concerns others still");
    assert_eq!(bench.close(), [(1..2, ME, false)]);
    bench.memory.written = vec![0, 2];
    assert_eq!(bench.close(), [(0..1, ME, false), (2..3, ME, false)], "what is shared now is regarded");
}

#[test]
fn without_write_detection_a_home_always_looks() {
    let mut bench = Bench::with_shape(ME, true, |shape| shape.write_detection = false);
    bench.fault(0, Access::Write);
    bench.memory.written = vec![0];
    assert_eq!(bench.close(), [(0..1, ME, false)]);
}

/// A home page that others held and its home wrote, as a new epoch begins, where writes raise faults.
fn written_last_epoch() -> Bench {
    let mut bench = Bench::new(ME, false);
    bench.fault(0, Access::Write);
    bench.copy_out(0..1);
    bench.fault(0, Access::Write);
    bench.close();
    bench.open();
    bench
}

#[test]
fn a_page_that_its_home_wrote_last_epoch_is_presumed_written_until_a_remote_write_comes() {
    let mut bench = written_last_epoch();
    assert_eq!(bench.memory.calls, ["map_write 0..1"]);
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["copy_out 0..1"], "no protection");
    assert_eq!(bench.close(), [(0..1, ME, false)], "but a notice without any fault");
    bench.step(|table, cx, _| table.on_diff(cx, 0, &[])).unwrap();
    bench.open();
    bench.step(|table, cx, _| table.on_diff(cx, 0, &[])).unwrap();
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["protect 0..1", "copy_out 0..1"]);
}

#[test]
fn a_presumption_ends_with_the_second_release_of_an_epoch() {
    let mut bench = written_last_epoch();
    bench.copy_out(0..1);
    assert_eq!(bench.close(), [(0..1, ME, false)]);
    assert!(bench.memory.calls.is_empty(), "it stays writable: {:?}", bench.memory.calls);
    assert_eq!(bench.close(), [(0..1, ME, false)], "for it may have been written since");
    assert_eq!(bench.memory.calls, ["protect 0..1"]);
    assert_eq!(bench.close(), [], "now its writes are noticed");
    bench.fault(0, Access::Write);
    assert_eq!(bench.close(), [(0..1, ME, false)]);
}

#[test]
fn a_notice_voids_what_a_fetch_will_bring() {
    let mut bench = Bench::new(OTHER, true);
    bench.fault(0, Access::Read);
    bench.invalidate(0..1);
    bench.arrive(0..1);
    assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
    assert_eq!(bench.tally.void_fetches, 1);
    bench.fetch(0..1);
    assert!(bench.table.unit(0).is_here(), "the next answer counts");
}

#[test]
fn pages_that_nobody_waits_for_never_land_in_a_valid_page() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    bench.arrive(0..1);
    assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
}

#[test]
fn a_second_thread_waits_for_the_first_ones_fetch_and_is_woken_by_the_answer() {
    let mut bench = Bench::new(OTHER, true);
    let second = |bench: &mut Bench, page| {
        bench.step(|table, cx, _| table.fault(cx, Slot::thread(1), page, Access::Read, PrefetchPlan::NOTHING))
    };
    bench.fault(0, Access::Read);
    bench.fault(1, Access::Read);
    assert_eq!(second(&mut bench, 0), Fault::Wait);
    bench.arrive(1..2);
    assert!(bench.out.wakes().is_empty(), "that was another page");
    bench.arrive(0..1);
    assert_eq!(bench.out.wakes(), [Slot::thread(1)]);
}

#[test]
fn all_threads_that_wait_for_a_page_are_woken() {
    let mut bench = Bench::new(OTHER, true);
    bench.fault(0, Access::Read);
    for thread in [1, 2] {
        let slot = Slot::thread(thread);
        let fault = bench.step(|table, cx, _| table.fault(cx, slot, 0, Access::Read, PrefetchPlan::NOTHING));
        assert_eq!(fault, Fault::Wait);
    }
    bench.arrive(0..1);
    assert_eq!(bench.out.wakes(), [Slot::thread(1), Slot::thread(2)]);
}

#[test]
fn what_is_fetched_together_has_one_home() {
    let mut bench = Bench::new(OTHER, true);
    bench.step(|table, cx, _| table.migrate(cx, &(2..3), NodeId(3)));
    let plan = PrefetchPlan { units: 4, stride: 1, known: 4, claims: false };
    let fault = bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), 0, Access::Read, plan));
    assert_eq!(fault, Fault::Fetch { home: OTHER, runs: vec![0..2], claim: false });
}

#[test]
fn units_ahead_are_fetched_with_the_faulting_one_as_far_as_they_are_missing() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(2..3);
    let plan = PrefetchPlan { units: 4, stride: 1, known: 4, claims: false };
    let fault = bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), 0, Access::Read, plan));
    assert_eq!(fault, Fault::Fetch { home: OTHER, runs: vec![0..2], claim: false });
}

#[test]
fn a_lost_page_table_entry_counts_as_a_write() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    bench.fault(0, Access::Read);
    assert_eq!(bench.memory.calls, ["map_write 0..1"]);
}

#[test]
fn a_flushed_page_stays_to_be_told_and_an_evicted_one_is_told_of_as_gone() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    bench.memory.written = vec![0];
    bench.invalidate(0..1);
    assert_eq!(bench.close(), [(0..1, OTHER, false)]);
    bench.memory.written = vec![1];
    assert_eq!(bench.close(), [(1..2, OTHER, true)]);
    let freed = bench.step(|table, cx, flushed| table.evict(cx, &(0..4), flushed));
    assert_eq!((freed, bench.flushed.0.len()), (2, 0), "one copy, and the memory of one that had ended");
    let discarded = bench.memory.calls.iter().filter(|c| c.starts_with("discard")).count();
    assert_eq!((discarded, bench.table.units().cached_pages()), (2, 0));
    assert_eq!(bench.close(), [(1..2, OTHER, false)], "for it was said to be held");
}

#[test]
fn an_evicted_page_is_told_of_as_gone_although_no_look_names_it() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    bench.memory.written = vec![0];
    assert_eq!(bench.close_having_seen(&[0..1]), [(0..1, OTHER, true)]);
    bench.step(|table, cx, flushed| table.evict(cx, &(0..4), flushed));
    assert!(bench.table.pending_work().close);
    assert_eq!(bench.close_having_seen(&[]), [(0..1, OTHER, false)]);
}

#[test]
fn a_fetch_under_way_when_its_home_moves_brings_nothing() {
    let mut bench = Bench::new(OTHER, true);
    bench.fault(0, Access::Read);
    bench.step(|table, cx, _| table.migrate(cx, &(0..1), NodeId(3)));
    bench.arrive(0..1);
    assert!(!bench.table.unit(0).is_here(), "the new home knows nothing of this copy");
    assert_eq!(bench.fault(0, Access::Read), Fault::Fetch { home: NodeId(3), runs: vec![0..1], claim: false });
}

#[test]
fn copies_that_have_ended_or_lie_aside_are_given_up_before_those_in_use() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..4);
    bench.invalidate(0..1);
    bench.step(|table, cx, _| table.untrack_idle(cx, &(1..3)));
    bench.memory.written = vec![3];
    assert_eq!(bench.step(|table, cx, flushed| table.evict_idle(cx, &(0..2), flushed)), 2);
    assert_eq!((bench.table.units().cached_pages(), bench.tally.evictions), (2, 1), "page 2 is not among those named");
    assert_eq!(bench.step(|table, cx, flushed| table.evict_idle(cx, &(0..4), flushed)), 1);
    assert!(bench.table.unit(3).is_here() && bench.flushed.0.is_empty());
    assert_eq!(bench.step(|table, cx, flushed| table.evict(cx, &(0..4), flushed)), 1);
    assert_eq!((bench.table.units().cached_pages(), bench.flushed.0.len()), (0, 1));
}

#[test]
fn the_writer_of_a_migrated_page_keeps_it_and_all_others_let_go() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..2);
    bench.step(|table, cx, _| {
        table.migrate(cx, &(0..1), ME);
        table.migrate(cx, &(1..2), NodeId(0));
    });
    assert_eq!(bench.memory.calls, ["drop_twin 0..1", "drop_twin 1..2", "unmap 1..2"]);
    assert!(bench.table.unit(0).is_home() && !bench.table.unit(1).is_here());
    assert_eq!(bench.table.unit(1).home(), NodeId(0));
    assert!(bench.out.is_empty(), "nothing is sent");
}

#[test]
fn a_home_that_goes_elsewhere_leaves_the_memory_of_a_few_pages_and_gives_that_of_many_back() {
    for (pages, kept) in [(16, 16), (17, 0)] {
        let mut bench = Bench::with_shape(ME, true, |shape| shape.pages = 32);
        (0..pages).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
        bench.step(|table, cx, _| table.migrate(cx, &(0..pages), OTHER));
        let discards = bench.memory.calls.iter().filter(|c| c.starts_with("discard"));
        assert_eq!(discards.count(), usize::from(kept == 0), "in one call: {:?}", bench.memory.calls);
        assert_eq!((bench.table.units().cached_pages(), bench.tally.held), (kept, i64::from(kept)));
    }
}

#[test]
fn what_is_used_is_fetched_ahead_and_what_is_not_soon_is_no_longer() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    let plan = |bench: &mut Bench| {
        bench.invalidate(0..4);
        let runs = bench.fetch_ahead(0..4);
        runs.iter().cloned().for_each(|run| bench.arrive(run));
        runs
    };
    assert_eq!(plan(&mut bench), [], "one use may be the only one");
    bench.fetch(0..1);
    assert_eq!(plan(&mut bench), vec![0..1], "and page 1 was never here");
    let rounds = (0..100).take_while(|_| !plan(&mut bench).is_empty()).count();
    assert!(rounds < 70, "credit that nothing renews is used up");
}

/// Four copies of another node's pages, of which the first was in use again and again.
pub(super) fn first_in_use() -> Bench {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..4);
    bench.invalidate(0..1);
    bench.fetch(0..1);
    bench
}

#[test]
fn a_copy_that_was_in_use_stays_mapped_at_a_barrier_and_is_renewed() {
    let mut bench = first_in_use();
    bench.step(|table, cx, flushed| table.invalidate_in_place(cx, std::slice::from_ref(&(0..2)), flushed));
    assert_eq!(
        bench.memory.calls,
        ["unmap 1..2", "written 1..2", "drop_twin 1..2"],
        "of page 1 nobody knows a second use"
    );
    assert!(!bench.table.unit(0).is_here());
    assert_eq!(bench.fetch_ahead(0..2), [0..1]);
    bench.arrive(0..1);
    assert_eq!(bench.memory.calls, ["renew 0..1"]);
    assert!(bench.table.unit(0).is_here());
    bench.step(|table, cx, _| table.migrate(cx, &(0..1), ME));
    assert_eq!(bench.memory.calls, ["drop_twin 0..1"], "it is a copy like any other now, and stays mapped");
}

#[test]
fn a_kept_copy_of_which_another_notice_tells_ends_as_copies_do() {
    let mut bench = first_in_use();
    bench.step(|table, cx, flushed| table.invalidate_in_place(cx, std::slice::from_ref(&(0..1)), flushed));
    assert_eq!(bench.fetch_ahead(0..1), [0..1]);
    bench.memory.written = vec![0];
    bench.invalidate(0..1);
    assert_eq!(bench.memory.calls, ["unmap 0..1", "written 0..1", "diff 0..1", "drop_twin 0..1"]);
    assert!(bench.table.unit(0).is_fetching(), "what is on its way comes still");
    bench.arrive(0..1);
    assert!(bench.memory.calls.is_empty() && !bench.table.unit(0).is_here(), "what comes is void");
}

#[test]
fn a_kept_copy_whose_home_goes_elsewhere_is_unmapped() {
    let mut bench = first_in_use();
    bench.step(|table, cx, flushed| table.invalidate_in_place(cx, std::slice::from_ref(&(0..1)), flushed));
    bench.step(|table, cx, _| table.migrate(cx, &(0..1), NodeId(3)));
    assert_eq!(bench.memory.calls, ["unmap 0..1", "drop_twin 0..1"]);
}

#[test]
fn a_copy_that_is_written_again_is_in_use() {
    let mut bench = Bench::new(OTHER, true);
    let plan = PrefetchPlan { units: 4, stride: 1, known: 1, claims: false };
    bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), 0, Access::Read, plan));
    bench.arrive(0..4);
    let mut again = || {
        bench.memory.written = vec![2];
        bench.close();
        bench.invalidate(0..4);
        let runs = bench.fetch_ahead(0..4);
        if runs.is_empty() {
            bench.fault(2, Access::Write);
        }
        bench.arrive(2..3);
        runs
    };
    assert_eq!([again(), again()], [vec![], vec![2..3]]);
}

#[test]
fn a_fault_brings_along_what_was_in_use_behind_it() {
    let mut bench = Bench::new(OTHER, true);
    for page in [0, 1, 2, 0, 1, 2] {
        bench.invalidate(page..page + 1);
        bench.fetch(page..page + 1);
    }
    bench.invalidate(0..4);
    let plan = PrefetchPlan { units: 1, stride: 1, known: 30, claims: false };
    let fault = bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), 0, Access::Read, plan));
    assert_eq!(fault, Fault::Fetch { home: OTHER, runs: vec![0..3], claim: false }, "page 3 was never here");
}

#[test]
fn a_strided_fetch_brings_along_what_was_here_between_its_pages() {
    let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = 16);
    for page in [0, 1, 3, 4, 5, 8, 9, 12] {
        bench.fetch(page..page + 1);
    }
    bench.invalidate(0..16);
    let plan = |known| PrefetchPlan { units: 4, stride: 4, known, claims: false };
    let mut fetched = |known| {
        let fault = bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), 0, Access::Read, plan(known)));
        bench.arrive(0..16);
        bench.invalidate(0..16);
        fault
    };
    let runs = |runs: &[Range<PageNo>]| Fault::Fetch { home: OTHER, runs: runs.to_vec(), claim: false };
    assert_eq!(fetched(60), runs(&[0..2, 4..6, 8..10, 12..13]), "page 3 lies behind one that was never here");
    assert_eq!(fetched(5), runs(&[0..2, 4..6, 8..9]), "but five at most");
    assert_eq!(fetched(1), runs(&[0..2, 4..6]), "but as many as steps");
}

#[test]
fn a_write_brings_along_as_many_pages_behind_it_as_are_in_use_before_it() {
    let fetched = |before: Range<PageNo>, access, known| {
        let mut bench = Bench::with_shape(OTHER, true, |shape| shape.pages = 16);
        let page = before.end;
        bench.fetch(before);
        let plan = PrefetchPlan { units: 1, stride: 1, known, claims: false };
        match bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), page, access, plan)) {
            Fault::Fetch { runs, .. } => runs,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fetched(0..1, Access::Write, 30), [1..3]);
    assert_eq!(fetched(0..2, Access::Write, 30), [2..5]);
    assert_eq!(fetched(0..6, Access::Write, 30), [6..10], "but four at most");
    assert_eq!(fetched(0..2, Access::Read, 30), [2..3], "reads in a row are seen by themselves");
    assert_eq!(fetched(0..2, Access::Write, 1), [2..3], "nothing is fetched ahead where that is switched off");
}

#[test]
fn a_diff_from_the_middle_of_a_unit_is_refused() {
    let mut bench = Bench::with_shape(ME, true, |shape| shape.unit_pages = 2);
    assert!(bench.step(|table, cx, _| table.on_diff(cx, 1, &[])).is_err());
    assert_eq!(bench.step(|table, cx, _| table.on_diff(cx, 2, &[])), Ok(true));
}

#[test]
fn read_only_memory_is_kept_without_twins_and_a_write_to_it_is_reported() {
    let mut bench = Bench::new(OTHER, true);
    bench.table.declare_read_only();
    bench.fetch(0..1);
    assert_eq!(bench.memory.calls, ["install 0..1", "map_read 0..1"]);
    assert_eq!(bench.fault(0, Access::Write), Fault::ReadOnly);
}

/// A home that wrote its pages and offers them, of which nobody holds a copy.
fn offering() -> Bench {
    let mut bench = Bench::new(ME, true);
    bench.memory.offers = true;
    (0..4).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
    bench.copy_out(0..1);
    bench
}

#[test]
fn who_asks_for_a_page_is_offered_it_and_what_follows() {
    let bench = offering();
    let offers = ["protect 0..4", "offer 0..1", "offer 1..2", "offer 2..3", "offer 3..4", "copy_out 0..1"];
    assert_eq!(bench.memory.calls, offers, "protected in one call");
    assert_eq!(bench.memory.disregarded, [1..2, 2..3, 3..4], "who asked for the first holds it");
    let mut wide = Bench::with_shape(ME, true, |shape| shape.pages = 64);
    wide.memory.offers = true;
    let offered = |bench: &Bench| bench.memory.calls.iter().filter(|c| c.starts_with("offer")).count();
    let counts = [0, 10, 30].map(|page| {
        wide.copy_out(page..page + 1);
        offered(&wide)
    });
    assert_eq!(counts, [5, 25, 34], "more and more of them, as far as there are some");
}

#[test]
fn pages_that_are_asked_for_in_falling_order_are_offered_once_each() {
    let mut bench = Bench::with_shape(ME, true, |shape| shape.pages = 32);
    bench.memory.offers = true;
    (0..32).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
    bench.step(|table, cx, _| table.share(cx, &[20..21, 12..13, 4..5], Some(&mut Vec::new())));
    let calls = &bench.memory.calls;
    let mut offered: Vec<&String> = calls.iter().filter(|c| c.starts_with("offer")).collect();
    assert_eq!(offered.len(), 3 + 12, "{calls:?}");
    offered.sort_unstable();
    offered.dedup();
    assert_eq!(offered.len(), 3 + 12, "{calls:?}");
}

#[test]
fn a_home_tells_of_writes_to_what_was_taken_and_of_no_others() {
    let mut bench = offering();
    assert!(bench.table.pending_work().gets);
    bench.memory.written = vec![1, 2];
    assert_eq!(bench.close_and_heed(), [], "pages 1 and 2 are offered, and nobody took them");
    bench.memory.taken = vec![1];
    bench.memory.written = vec![1, 2];
    assert_eq!(bench.close_and_heed(), [(1..2, ME, false)]);
    assert_eq!(bench.close_and_heed(), [], "once");
}

#[test]
fn what_is_taken_after_it_was_told_of_stays_shared_in_the_next_epoch() {
    for again in [true, false] {
        let mut bench = offering();
        bench.memory.taken = vec![1];
        bench.memory.written = vec![1];
        assert_eq!(bench.close_and_heed(), [(1..2, ME, false)]);
        bench.memory.taken.extend(again.then_some(1));
        bench.open();
        bench.memory.written = vec![1];
        assert_eq!(bench.close_and_heed().len(), usize::from(again));
    }
}

#[test]
fn an_offered_page_that_is_asked_for_is_not_protected_again() {
    let mut bench = offering();
    bench.copy_out(2..3);
    assert_eq!(bench.memory.calls, ["regard 2..3", "copy_out 2..3"]);
    bench.memory.written = vec![2];
    assert_eq!(bench.close_and_heed(), [(2..3, ME, false)]);
}

#[test]
fn notes_of_a_page_that_concerns_nobody_are_not_lost_when_somebody_takes_it_meanwhile() {
    let mut bench = offering();
    // Like an epoch with locks, in which no notes are left.
    bench.close();
    for look in 0..1_000 {
        bench.step(|table, cx, _| table.collect_remote_gets(cx));
        // Somebody takes page 3 after that, and then it is written.
        (bench.memory.taken, bench.memory.written) = (vec![3], vec![3]);
        let told = bench.close_having_seen(&[0..1]);
        if !told.is_empty() {
            assert_eq!(told, [(3..4, ME, false)]);
            return;
        }
        // The notes stay, and the next look finds that the page was taken; here it shall not.
        (bench.memory.taken, bench.memory.written) = (Vec::new(), Vec::new());
        assert!(look < 500, "the notes are taken at some look");
    }
}

#[test]
fn a_home_that_goes_elsewhere_or_is_freed_takes_its_offers_back() {
    let mut bench = offering();
    bench.step(|table, cx, _| table.migrate(cx, &(1..2), OTHER));
    assert!(bench.memory.calls.contains(&"withdraw 1..2".to_string()), "{:?}", bench.memory.calls);
    assert!(bench.table.pending_work().gets);
    bench.step(|table, cx, _| table.withdraw_all(cx));
    assert_eq!(bench.memory.calls, ["withdraw 0..4"]);
    let mut other = offering();
    other.step(|table, cx, _| table.migrate(cx, &(0..4), OTHER));
    assert!(!other.table.pending_work().gets, "nothing is offered any more");
    bench.step(|table, cx, _| table.withdraw_all(cx));
    assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
}
