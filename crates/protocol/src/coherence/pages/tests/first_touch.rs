use super::*;

const CLAIMS: PrefetchPlan = PrefetchPlan { claims: true, ..PrefetchPlan::NOTHING };

impl Bench {
    fn placed(home: NodeId, first_touch: FirstTouch) -> Bench {
        Bench::with_shape(home, true, |shape| shape.first_touch = first_touch)
    }

    fn lookup(&mut self, pages: Range<PageNo>, asker: NodeId, claims: bool) -> Vec<(Range<PageNo>, NodeId)> {
        self.step(|table, cx, _| table.lookup(cx, &pages, asker, claims))
    }

    fn fault_with(&mut self, page: PageNo, plan: PrefetchPlan) -> Fault {
        self.step(|table, cx, _| table.fault(cx, Slot::thread(0), page, Access::Write, plan))
    }
}

#[test]
fn an_untouched_page_goes_to_whoever_claims_it_first() {
    let mut bench = Bench::with_shape(ME, true, |shape| shape.first_touch = FirstTouch::Always);
    let claimed = bench.step(|table, cx, _| table.lookup(cx, &(0..2), OTHER, true));
    assert_eq!(claimed, [(0..2, OTHER)]);
    let later = bench.step(|table, cx, _| table.lookup(cx, &(0..1), NodeId(3), true));
    assert_eq!(later, [(0..1, OTHER)]);
    bench.fault(2, Access::Write);
    assert_eq!(bench.step(|table, cx, _| table.lookup(cx, &(2..3), OTHER, true)), [], "touched here first");
}

/// Two nodes took themselves for the home of one page: the claimant, and the node that had granted the claim and then
/// asked the claimant, which did not know yet and named the home from before.
#[test]
fn a_claimant_that_has_not_been_answered_does_not_name_the_asker_as_home() {
    let mut bench = Bench::with_shape(OTHER, true, |shape| shape.first_touch = FirstTouch::Always);
    assert!(matches!(bench.fault(0, Access::Write), Fault::Fetch { claim: true, .. }));
    assert_eq!(bench.step(|table, cx, _| table.lookup(cx, &(0..1), OTHER, true)), [(0..1, ME)], "ask here again");
    assert_eq!(bench.step(|table, cx, _| table.lookup(cx, &(0..1), NodeId(3), true)), [(0..1, OTHER)]);
    bench.step(|table, cx, _| table.on_moved(cx, 0..1, ME));
    assert!(bench.table.unit(0).is_home());
    assert_eq!(bench.step(|table, cx, _| table.lookup(cx, &(0..1), OTHER, true)), []);
}

#[test]
fn claimed_pages_are_mapped_at_once_and_those_that_others_have_are_not() {
    let mut bench = Bench::placed(OTHER, FirstTouch::Late);
    let plan = PrefetchPlan { units: 3, ..CLAIMS };
    assert_eq!(bench.fault_with(0, plan), Fault::Fetch { home: OTHER, runs: vec![0..3], claim: true });
    bench.memory.claims.insert(1, NodeId(3));
    let mut left = Vec::new();
    bench.step(|table, cx, _| table.claim(cx, &(0..3), OTHER, &mut left));
    assert_eq!(
        (left, bench.memory.calls.clone()),
        (vec![], vec!["map_write 0..1".to_string(), "map_write 2..3".into()])
    );
    assert!(bench.table.unit(0).is_home() && bench.table.unit(2).is_home());
    assert_eq!((bench.table.unit(1).home(), bench.table.unit(1).is_fetching()), (NodeId(3), false));
    assert_eq!(bench.fault_with(1, CLAIMS), Fault::Fetch { home: NodeId(3), runs: vec![1..2], claim: false });
}

#[test]
fn what_its_home_has_touched_is_asked_for_and_not_claimed_again() {
    let mut bench = Bench::placed(OTHER, FirstTouch::Late);
    bench.memory.claims.insert(0, OTHER);
    bench.fault_with(0, CLAIMS);
    let mut left = Vec::new();
    bench.step(|table, cx, _| table.claim(cx, &(0..1), OTHER, &mut left));
    assert_eq!(left, [0..1]);
    bench.arrive(0..1);
    bench.invalidate(0..1);
    assert_eq!(bench.fault_with(0, CLAIMS), Fault::Fetch { home: OTHER, runs: vec![0..1], claim: false });
}

#[test]
fn a_home_that_touches_a_page_hears_who_has_claimed_it() {
    let mut bench = Bench::placed(ME, FirstTouch::Late);
    bench.memory.claims.insert(2, OTHER);
    assert_eq!(bench.fault_with(2, CLAIMS), Fault::Fetch { home: OTHER, runs: vec![2..3], claim: false });
    assert_eq!(bench.fault_with(1, CLAIMS), Fault::Mapped);
    assert_eq!(bench.memory.claims.get(&1), Some(&ME));
}

#[test]
fn what_is_fetched_without_a_claim_makes_the_pages_beside_it_their_homes_own() {
    let mut bench = Bench::placed(ME, FirstTouch::Late);
    bench.memory.claims.insert(3, OTHER);
    assert_eq!(bench.lookup(0..1, OTHER, false), []);
    assert_eq!([0, 1, 2, 3].map(|page| bench.table.unit(page).is_home()), [true, true, true, false]);
}

#[test]
fn before_workers_begin_nothing_is_claimed_and_runs_are_fetched_whatever_is_known() {
    let mut bench = Bench::placed(OTHER, FirstTouch::Late);
    bench.fetch(1..2);
    bench.invalidate(1..2);
    let plan = PrefetchPlan { units: 4, ..PrefetchPlan::NOTHING };
    assert_eq!(bench.fault_with(0, plan), Fault::Fetch { home: OTHER, runs: vec![0..4], claim: false });
}

#[test]
fn runs_that_are_claimed_end_where_the_home_is_known() {
    let mut bench = Bench::placed(OTHER, FirstTouch::Late);
    bench.fetch(1..2);
    bench.invalidate(1..2);
    let run = |stride, known| PrefetchPlan { units: 4, stride, known, claims: true };
    assert_eq!(bench.fault_with(0, run(1, 4)), Fault::Fetch { home: OTHER, runs: vec![0..1], claim: true });
    bench.step(|table, cx, _| table.on_moved(cx, 0..1, NodeId(3)));
    assert_eq!(bench.fault_with(2, run(-1, 4)), Fault::Fetch { home: OTHER, runs: vec![2..3], claim: true });
}

#[test]
fn a_page_that_migrates_is_claimed_no_more() {
    for home in [ME, OTHER] {
        let mut bench = Bench::placed(home, FirstTouch::Late);
        bench.step(|table, cx, _| table.migrate(cx, &(0..1), NodeId(3)));
        assert_eq!(bench.fault_with(0, CLAIMS), Fault::Fetch { home: NodeId(3), runs: vec![0..1], claim: false });
    }
}

#[test]
fn a_home_maps_its_own_pages_ahead_of_a_thread_that_goes_through_them_with_a_stride() {
    for (stride, from, mapped) in
        [(2, 0, vec!["map_write 0..1", "map_write 2..3"]), (-1, 1, vec!["map_write 1..2", "map_write 0..1"])]
    {
        let mut bench = Bench::placed(ME, FirstTouch::Late);
        bench.memory.claims.insert(3, OTHER);
        assert_eq!(bench.fault_with(from, PrefetchPlan { units: 8, stride, ..CLAIMS }), Fault::Mapped);
        assert_eq!(bench.memory.calls, mapped);
    }
    let mut bench = Bench::placed(ME, FirstTouch::Late);
    bench.memory.claims.insert(2, OTHER);
    bench.fault_with(0, PrefetchPlan { units: 8, stride: 2, ..CLAIMS });
    assert_eq!(bench.memory.calls, ["map_write 0..1"], "another node has claimed the next one");
}

#[test]
fn homes_that_come_and_go_are_counted_until_the_memory_is_freed() {
    // By the layout this node is the home of nothing: it claims a unit and gains another at a barrier.
    let mut bench = Bench::placed(OTHER, FirstTouch::Late);
    let mut left = Vec::new();
    assert!(matches!(bench.fault_with(0, CLAIMS), Fault::Fetch { claim: true, .. }));
    bench.memory.claims.insert(9, ME);
    bench.step(|table, cx, _| table.claim(cx, &(0..1), OTHER, &mut left));
    assert_eq!((bench.tally.gained, left.len()), (1, 0));
    bench.fetch(1..2);
    bench.step(|table, cx, _| table.migrate(cx, &(1..2), ME));
    assert_eq!(bench.tally.gained, 2);
    bench.step(|table, cx, _| table.migrate(cx, &(0..1), NodeId(3)));
    assert_eq!(bench.tally.gained, 1);
    bench.step(|table, cx, flushed| table.free(cx, flushed));
    assert_eq!(bench.tally.gained, 0);
    bench.step(|table, cx, _| table.migrate(cx, &(2..3), ME));
    assert_eq!(bench.tally.gained, 0, "freed");
    // By the layout this one is the home of all: others claim two units, and a third goes at a barrier.
    let mut bench = Bench::placed(ME, FirstTouch::Late);
    assert_eq!(bench.lookup(0..2, OTHER, true), [(0..2, OTHER)]);
    assert_eq!(bench.tally.gained, -2);
    bench.step(|table, cx, _| table.migrate(cx, &(2..3), OTHER));
    assert_eq!(bench.tally.gained, -3);
    bench.step(|table, cx, flushed| table.free(cx, flushed));
    assert_eq!(bench.tally.gained, 0);
    bench.memory.claims.insert(3, OTHER);
    bench.fault(3, Access::Write);
    assert_eq!((bench.table.unit(3).is_elsewhere(), bench.tally.gained), (true, 0), "freed");
    // What is placed by first touch stays where it was touched, however much that is.
    let mut bench = Bench::placed(OTHER, FirstTouch::Always);
    assert!(matches!(bench.fault(0, Access::Write), Fault::Fetch { claim: true, .. }));
    bench.step(|table, cx, _| table.on_moved(cx, 0..1, ME));
    assert_eq!((bench.table.unit(0).is_home(), bench.tally.gained, bench.tally.claimed), (true, 0, 1));
}

/// The bound of homes that come was out of balance by all of these pages, for good.
#[test]
fn a_chunk_that_is_first_met_after_its_region_was_freed_counts_nothing() {
    let mut bench = Bench::placed(ME, FirstTouch::Late);
    bench.table.begin_freed();
    bench.step(|table, cx, _| table.migrate(cx, &(0..2), OTHER));
    bench.memory.claims.insert(3, OTHER);
    bench.step(|table, cx, _| table.collect_remote_claims(cx));
    assert_eq!(
        (bench.tally.gained, bench.table.pending_work()),
        (0, crate::coherence::pages::page_table::interval_end::PendingWork::default())
    );
}

#[test]
fn what_others_claim_without_a_word_is_taken_off_once_it_is_looked_for() {
    let mut bench = Bench::placed(ME, FirstTouch::Late);
    bench.memory.claims.extend([(0, ME), (1, OTHER), (2, NodeId(3))]);
    assert_eq!(bench.fault_with(0, CLAIMS), Fault::Mapped);
    assert_eq!(bench.tally.gained, 0);
    for _ in 0..2 {
        bench.step(|table, cx, _| table.collect_remote_claims(cx));
        assert_eq!(bench.tally.gained, -2, "once");
    }
    assert_eq!((bench.table.unit(1).home(), bench.table.unit(2).home()), (OTHER, NodeId(3)));
    assert_eq!(bench.lookup(1..2, NodeId(3), true), [(1..2, OTHER)]);
    bench.step(|table, cx, _| table.migrate(cx, &(1..2), NodeId(3)));
    assert_eq!(bench.tally.gained, -2, "it was another node's before");
}

#[test]
fn what_would_be_claimed_is_not_fetched_before_it_is_touched() {
    let mut bench = Bench::placed(OTHER, FirstTouch::Late);
    assert_eq!(bench.table.run_ahead(1, CLAIMS), None);
    assert_eq!(bench.table.run_ahead(1, PrefetchPlan::NOTHING), Some((OTHER, vec![1..2])), "what claims nothing");
}

#[test]
fn a_home_that_goes_ahead_with_a_stride_maps_nothing_that_others_hold() {
    let mut bench = Bench::new(ME, true);
    bench.copy_out(2..3);
    assert_eq!(bench.fault_with(0, PrefetchPlan { units: 2, stride: 2, ..PrefetchPlan::NOTHING }), Fault::Mapped);
    assert_eq!(bench.memory.calls, ["map_write 0..1"]);
}

/// However a unit comes to this node.
#[test]
fn without_write_detection_a_new_home_tells_of_its_writes_from_the_beginning() {
    type Come = fn(&mut Bench);
    let ways: [(NodeId, Come); 3] = [
        (ME, |bench| drop(bench.fault(0, Access::Write))),
        (OTHER, |bench| {
            bench.fault(0, Access::Write);
            bench.step(|table, cx, _| table.on_moved(cx, 0..1, ME));
            bench.fault(0, Access::Write);
        }),
        (OTHER, |bench| bench.step(|table, cx, _| table.migrate(cx, &(0..1), ME))),
    ];
    for (layout, come) in ways {
        let mut bench = Bench::with_shape(layout, true, |shape| {
            (shape.first_touch, shape.write_detection) = (FirstTouch::Always, false);
        });
        come(&mut bench);
        assert!(bench.table.unit(0).is_home());
        bench.memory.written = vec![0];
        assert_eq!(bench.close(), [(0..1, ME, false)]);
    }
}
