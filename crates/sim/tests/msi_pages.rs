//! Pages under `msi` over many seeds, over whole messages and over a network that loses, doubles and reorders.

use comem_protocol::coherence::Engine;
use comem_protocol::faults::FaultSpec;
use comem_sim::cluster::{self, Config};
use comem_sim::msi_pages::program::Kind;
use comem_sim::msi_pages::scenario::Scenario;
use comem_sim::msi_pages::{Paging, Tally};
use comem_sim::program::{Op, Program, Shape};

fn lossy() -> Option<FaultSpec> {
    "drop=20%,dup=10%,reorder=10%".parse().ok()
}

/// Runs seeds on two threads, panics with the first that fails, and gives what happened.
fn pass(scenario: &Scenario, seeds: std::ops::Range<u64>) -> Tally {
    let half = |odd: u64| {
        seeds.clone().filter(|seed| seed % 2 == odd).fold(Tally::default(), |tally, seed| {
            let verdict = scenario.run(seed);
            let kind = verdict.kind.name();
            assert!(verdict.violations.is_empty(), "{kind}, seed {seed}: {:#?}", verdict.violations);
            tally.with(verdict.outcome.tally)
        })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let one = half(0);
        one.with(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[test]
fn racing_programs_see_sequential_consistency_over_whole_messages() {
    pass(&Scenario::default(), 0..2000);
}

#[test]
fn racing_programs_see_sequential_consistency_over_a_network_that_loses_doubles_and_reorders() {
    pass(&Scenario { faults: lossy(), ..Scenario::default() }, 0..2000);
}

/// Two nodes that need the same two pages at once, and threads that wait for each other's stores in loops, come to
/// their ends.
#[test]
fn accesses_across_two_pages_and_threads_that_spin_come_to_their_ends() {
    for kind in [Kind::Spans, Kind::Spins] {
        for faults in [None, lossy()] {
            pass(&Scenario { kind: Some(kind), faults, ..Scenario::default() }, 0..100);
        }
    }
}

/// Pages travel for longer than they are held, and on all nodes for as long.
#[test]
fn accesses_across_two_pages_come_to_their_ends_on_slow_and_even_networks() {
    let tally = pass(&Scenario { kind: Some(Kind::Spans), even: true, ..Scenario::default() }, 0..300);
    assert!(tally.expired > 1000, "{tally:?}");
}

#[test]
fn runs_join_fetches_and_void_them_and_end_holds_and_give_units_back() {
    let tally = pass(&Scenario::default(), 0..300);
    let counts = [tally.asked, tally.joined, tally.ahead, tally.given_back, tally.void, tally.expired, tally.spans];
    assert!(counts.iter().all(|count| *count > 50), "{tally:?}");
}

#[test]
fn two_threads_of_a_node_that_fault_on_one_page_fetch_it_once() {
    let shape = Shape { nodes: 2, elements: 8, width: 8, unit_elements: 4 };
    let faulting = |element| vec![Op::At(1_000_000), Op::Read(element)];
    let threads = vec![vec![Vec::new(), Vec::new()], vec![faulting(0), faulting(1)]];
    let program = Program { shape, threads };
    let mut joined = 0;
    for seed in 0..50 {
        let paging = Paging { page_elements: 4, reclaims: false, units_max: usize::MAX, spare: 0, ahead: 0, seed };
        let outcome = cluster::run(&program, Config { paging: Some(paging), ..Config::new(Engine::Msi, seed) });
        assert_eq!(outcome.failures, Vec::<String>::new());
        assert_eq!(outcome.tally.asked, 1, "seed {seed}: {:?}", outcome.tally);
        joined += outcome.tally.joined;
    }
    assert!(joined > 10, "{joined} of 50 second threads came while the page was on its way");
}

#[test]
fn one_seed_is_one_run() {
    let scenario = Scenario { faults: lossy(), trace: true, ..Scenario::default() };
    for seed in 0..20 {
        let (first, second) = (scenario.run(seed).outcome, scenario.run(seed).outcome);
        assert!(first.trace.len() > 100);
        assert_eq!((first.trace, first.took), (second.trace, second.took), "seed {seed}");
    }
}
