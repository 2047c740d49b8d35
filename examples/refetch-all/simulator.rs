//! `refetch-all` in the simulator: what it costs, exactly, and that programs without races see the last write.

use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_sim::pages::cluster::{self, Config};
use comem_sim::pages::explore::Ways;
use comem_sim::pages::memory::PAGE_WORDS;
use comem_sim::pages::program::Op;
use comem_sim::pages::scenario::Scenario;
use comem_sim::pages::small::cases;
use std::sync::Arc;

const ENGINE: PageEngine = PageEngine::RefetchAll;
const PAGES: usize = 5;
const ROUNDS: u64 = 7;

/// How many pages are fetched where two nodes run these programs. All pages have their home at node 0, and nothing is
/// fetched but at faults.
fn fetches(engine: PageEngine, programs: [Vec<Op>; 2]) -> u64 {
    let ways = Ways { engine, notes: true, takes: false };
    let mut layout = ways.layout(2, 1, PAGES as u32, Homes::On(NodeId(0)));
    (layout.fetches_ahead, layout.pushes) = (false, None);
    let config = Config {
        seed: 1,
        faults: None,
        datagram_bytes: 1472,
        trace: false,
        schedule: None,
        beyond_scope: false,
        races: false,
    };
    let outcome = cluster::run(&Arc::new(layout), programs.map(|program| vec![program]).into(), &config);
    assert_eq!(outcome.violations, [""; 0]);
    outcome.tally[0]
}

fn read_all() -> impl Iterator<Item = Op> {
    (0..PAGES).map(|page| Op::Read(page * PAGE_WORDS))
}

#[test]
fn a_barrier_costs_a_fetch_of_each_page_that_is_used_after_it_though_nobody_wrote_it() {
    let programs = || {
        let waits = (0..ROUNDS).map(|_| Op::Barrier).collect();
        let reads = (0..ROUNDS).flat_map(|_| [Op::Barrier].into_iter().chain(read_all())).collect();
        [waits, reads]
    };
    assert_eq!(fetches(PageEngine::Hlrc, programs()), PAGES as u64);
    assert_eq!(fetches(ENGINE, programs()), PAGES as u64 * ROUNDS);
}

/// The nodes take turns by flags. Node 1 acquires twice a round, by a flag and by a lock whose token comes from node 0.
#[test]
fn each_acquire_costs_a_fetch_of_each_page_that_is_used_after_it() {
    let (begun, over, lock) = (FlagId(1), FlagId(2), LockId(1));
    let programs = || {
        let hands_over =
            |round| [Op::Lock(lock), Op::Unlock(lock), Op::Set(begun, round), Op::Await(over, round)].into_iter();
        let reads = |round| {
            let under_lock = [Op::Lock(lock)].into_iter().chain(read_all()).chain([Op::Unlock(lock)]);
            [Op::Await(begun, round)].into_iter().chain(read_all()).chain(under_lock).chain([Op::Set(over, round)])
        };
        [(1..=ROUNDS).flat_map(hands_over).collect(), (1..=ROUNDS).flat_map(reads).collect()]
    };
    assert_eq!(fetches(PageEngine::Hlrc, programs()), PAGES as u64);
    assert_eq!(fetches(ENGINE, programs()), PAGES as u64 * 2 * ROUNDS);
}

#[test]
fn programs_without_races_see_the_last_write() {
    let lossy = "drop=20%,dup=10%,reorder=10%".parse().ok();
    for (faults, seeds) in [(None, 0..400), (lossy, 400..800)] {
        for seed in seeds {
            let verdict = Scenario { faults, ..Scenario::new(ENGINE) }.run(seed);
            assert!(verdict.violations.is_empty(), "{}, seed {seed}: {:#?}", verdict.kind.name(), verdict.violations);
        }
    }
}

#[test]
fn small_programs_are_right_in_orders_of_events_without_delays() {
    for ways in Ways::under(ENGINE) {
        for case in cases(ways) {
            let explored = case.explore(0, 0);
            assert!(explored.failure.is_none(), "{ways}, {}: {:#?}", case.name, explored.failure);
        }
    }
}
