//! Pages that are mapped while they are on their way.

use super::*;

impl Bench {
    fn premap(&mut self, page: PageNo) {
        self.step(|table, cx, _| table.premap(cx, &(page..page + 1)));
    }

    /// A unit is being fetched, and mapped already.
    fn early(notes: bool, access: Access) -> Bench {
        let mut bench = Bench::new(OTHER, notes);
        bench.fault(1, access);
        bench.premap(1);
        bench
    }
}

#[test]
fn a_page_is_mapped_as_it_would_be_when_it_has_come_and_not_again_then() {
    let map = |notes, access| match (notes, access) {
        (true, Access::Write) => "map_write 1..2",
        _ => "map_read 1..2",
    };
    for (notes, access) in [(true, Access::Read), (true, Access::Write), (false, Access::Read), (false, Access::Write)]
    {
        let mut bench = Bench::early(notes, access);
        assert_eq!(bench.memory.calls, [map(notes, access)]);
        assert!(bench.table.unit(1).is_fetching() && !bench.table.unit(1).is_here());
        bench.premap(1);
        assert!(bench.memory.calls.is_empty(), "it is mapped already");
        bench.arrive(1..2);
        assert!(bench.memory.calls.iter().any(|call| call.starts_with("install")), "{:?}", bench.memory.calls);
        assert!(!bench.memory.calls.iter().any(|call| call.starts_with("map")), "{:?}", bench.memory.calls);
        assert!(bench.memory.calls.contains(&"regard 1..2".to_string()), "{:?}", bench.memory.calls);
        assert!(bench.table.unit(1).is_here());
        assert_eq!((bench.tally.held, bench.tally.mapped_early, bench.table.units().cached_pages()), (1, 1, 1));
        // The next time it is a page like any other.
        bench.invalidate(1..2);
        bench.fault(1, Access::Read);
        bench.arrive(1..2);
        assert!(bench.memory.calls.contains(&"map_read 1..2".to_string()), "{:?}", bench.memory.calls);
    }
}

#[test]
fn only_what_is_being_fetched_is_mapped_early() {
    let mut bench = Bench::new(OTHER, true);
    bench.premap(1);
    bench.fetch(2..3);
    bench.premap(2);
    assert!(bench.memory.calls.is_empty(), "{:?}", bench.memory.calls);
    assert_eq!(bench.tally.mapped_early, 0);
}

#[test]
fn a_page_whose_bytes_are_not_wanted_any_more_is_unmapped_when_they_come() {
    let mut bench = Bench::early(true, Access::Read);
    bench.invalidate(1..2);
    assert!(bench.table.unit(1).is_fetching());
    bench.arrive(1..2);
    assert_eq!(bench.memory.calls, ["unmap 1..2"]);
    assert!(!bench.table.unit(1).is_here() && !bench.table.unit(1).is_fetching());
    assert!(matches!(bench.fault(1, Access::Read), Fault::Fetch { .. }));
}

#[test]
fn so_is_one_whose_home_turns_out_to_be_elsewhere_or_whose_region_was_freed() {
    let ends: [fn(&mut PageTable, &mut Context<'_>); 2] =
        [|table, cx| table.on_moved(cx, 1..2, NodeId(3)), |table, cx| table.on_freed(cx, &(1..2))];
    for end in ends {
        let mut bench = Bench::early(true, Access::Read);
        bench.step(|table, cx, _| end(table, cx));
        assert_eq!(bench.memory.calls, ["unmap 1..2"]);
        assert!(!bench.table.unit(1).is_here() && !bench.table.unit(1).is_fetching());
    }
    let mut bench = Bench::early(true, Access::Read);
    bench.step(|table, cx, flushed| table.free(cx, flushed));
    assert!(bench.memory.calls.contains(&"unmap 1..2".to_string()), "{:?}", bench.memory.calls);
}

#[test]
fn what_ends_around_it_leaves_it_mapped() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    bench.fetch(2..3);
    bench.fault(1, Access::Read);
    bench.premap(1);
    let ended = [0..1, 2..3];
    bench.step(|table, cx, flushed| table.invalidate(cx, &ended, flushed));
    assert!(bench.memory.calls.contains(&"unmap 0..1".to_string()), "{:?}", bench.memory.calls);
    assert!(bench.memory.calls.contains(&"unmap 2..3".to_string()), "{:?}", bench.memory.calls);
}

/// The notice that voided the fetch was of what came then, or never came.
#[test]
fn a_fetch_that_was_void_and_is_over_voids_no_other() {
    let ends: [fn(&mut PageTable, &mut Context<'_>); 2] =
        [|table, cx| table.on_moved(cx, 1..2, NodeId(3)), |table, cx| table.on_freed(cx, &(1..2))];
    for end in ends {
        let mut bench = Bench::early(true, Access::Read);
        bench.invalidate(1..2);
        bench.step(|table, cx, _| end(table, cx));
        bench.fetch(1..2);
        assert!(bench.table.unit(1).is_here());
    }
}

#[test]
fn a_page_that_is_mapped_already_is_not_filled_as_one_without_memory() {
    for (early, calls) in [(false, vec!["fill 1..2"]), (true, vec!["install 1..2", "make_twin 1..2", "regard 1..2"])] {
        let mut bench = Bench::new(OTHER, true);
        bench.memory.fills = true;
        bench.fault(1, Access::Read);
        if early {
            bench.premap(1);
        }
        bench.arrive(1..2);
        assert_eq!(bench.memory.calls, calls);
    }
}

#[test]
fn what_comes_with_a_page_that_is_stored_to_is_clean() {
    let mut bench = Bench::new(OTHER, true);
    let plan = PrefetchPlan { units: 2, ..PrefetchPlan::NOTHING };
    bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), 0, Access::Write, plan));
    bench.arrive(0..2);
    assert_eq!(bench.memory.calls.last().map(String::as_str), Some("map_read 0..2"));
}
