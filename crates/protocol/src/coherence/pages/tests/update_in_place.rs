//! Copies that stay mapped at a barrier until they are renewed.

use super::page_table::first_in_use;
use super::*;

/// Page 0 of [`first_in_use`] is kept.
fn kept() -> Bench {
    let mut bench = first_in_use();
    bench.step(|table, cx, flushed| table.invalidate_in_place(cx, std::slice::from_ref(&(0..1)), flushed));
    assert!(!bench.table.unit(0).is_here() && bench.memory.calls.is_empty());
    bench
}

#[test]
fn what_is_written_to_a_kept_copy_stays_noted_and_is_told_when_it_has_been_renewed() {
    let mut bench = kept();
    bench.memory.written = vec![0];
    assert_eq!(bench.close_having_seen(&[0..1]), [], "it is not whole");
    assert!(bench.memory.written.is_empty(), "the note is taken");
    assert!(bench.table.may_be_dirty() && bench.table.pending_work().close, "and kept here");
    bench.fetch_ahead(0..1);
    bench.arrive(0..1);
    assert_eq!(bench.close_having_seen(&[]), [(0..1, OTHER, true)]);
}

#[test]
fn a_kept_copy_is_no_idle_one_and_is_unmapped_when_it_must_go() {
    let mut bench = kept();
    assert_eq!(bench.step(|table, cx, flushed| table.evict_idle(cx, &(0..1), flushed)), 0);
    assert_eq!(bench.step(|table, cx, flushed| table.evict(cx, &(0..1), flushed)), 1);
    assert_eq!(bench.memory.calls, ["unmap 0..1", "drop_twin 0..1", "discard 0..1"]);
}

#[test]
fn copies_that_end_around_a_kept_one_leave_it_mapped() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..4);
    bench.invalidate(1..2);
    bench.fetch(1..2);
    bench.step(|table, cx, flushed| table.invalidate_in_place(cx, &[0..3], flushed));
    let unmapped: Vec<&String> = bench.memory.calls.iter().filter(|call| call.starts_with("unmap")).collect();
    assert_eq!(unmapped, ["unmap 0..1", "unmap 2..3"]);
}

#[test]
fn a_kept_copy_is_not_mapped_early_nor_left_when_its_home_is_elsewhere() {
    let mut bench = kept();
    bench.fetch_ahead(0..1);
    bench.step(|table, cx, _| table.premap(cx, &(0..1)));
    assert!(bench.memory.calls.is_empty(), "it is mapped, with the notes of its writes");
    bench.step(|table, cx, _| table.on_moved(cx, 0..1, NodeId(3)));
    assert_eq!(bench.memory.calls, ["unmap 0..1", "drop_twin 0..1"]);
}

#[test]
fn a_kept_copy_that_lay_aside_does_so_no_more_when_its_home_is_elsewhere() {
    let mut bench = first_in_use();
    bench.step(|table, cx, _| table.untrack_idle(cx, &(0..1)));
    bench.step(|table, cx, flushed| table.invalidate_in_place(cx, &[0..1], flushed));
    bench.step(|table, cx, _| table.migrate(cx, &(0..1), NodeId(3)));
    bench.fetch(0..1);
    bench.memory.written = vec![0];
    assert_eq!(bench.close(), [(0..1, NodeId(3), true)]);
}
