//! The schedule of locks: with numbers that seeds draw nothing is lost, and nothing waits longer than it may.

use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::faults::FaultSpec;
use comem_protocol::rules::{Rule, without};
use comem_sim::pages::scenario::Scenario;
use comem_sim::partition::crash;

/// Without a rule, one of so many seeds fails.
const SEEDS_MAX: u64 = 2_000;

fn scheduled(engine: PageEngine) -> Scenario {
    Scenario { schedules: true, ..Scenario::mixed(engine) }
}

fn pass(scenario: &Scenario, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let verdict = scenario.run(seed);
        assert_eq!(verdict.violations, [""; 0], "{} under {}, seed {seed}", verdict.kind.name(), scenario.engine);
    }
}

#[test]
fn deferred_requests_are_answered_whatever_the_numbers_are() {
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        pass(&scheduled(engine), 0..400);
        pass(&Scenario { lone: true, ..scheduled(engine) }, 0..200);
    }
}

#[test]
fn deferred_requests_are_answered_over_a_network_that_loses_doubles_and_reorders() {
    let faults: Option<FaultSpec> = "drop=20%,dup=10%,reorder=10%".parse().ok();
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        pass(&Scenario { faults, ..scheduled(engine) }, 0..300);
    }
}

/// A node may crash with requests of others deferred, and while others defer its own.
#[test]
fn a_node_that_crashes_is_missed_in_time_although_requests_are_deferred() {
    for seed in 0..24 {
        for dies in [true, false] {
            assert_eq!(crash(2 + seed as usize % 3, dies, seed), [""; 0], "seed {seed}, dies: {dies}");
        }
    }
}

/// The rules, and the first seed that fails without each.
const MISSED_BY: [(Rule, u64); 6] = [
    (Rule::DeferralsAreBounded, 38),
    (Rule::IdleNodesDeferNothing, 8),
    (Rule::WaitingThreadsEndDeferrals, 1),
    (Rule::OpenedBarriersEndDeferrals, 135),
    (Rule::ClosesEndDeferrals, 3),
    (Rule::DeferredMessagesRunOnce, 1),
];

#[test]
fn no_rule_of_the_schedule_is_superfluous() {
    assert_eq!(MISSED_BY.map(|(rule, _)| rule), Rule::LOCK_SCHEDULE);
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected
    let scenario = scheduled(PageEngine::Hlrc);
    let fails = |seed: &u64| !scenario.run(*seed).violations.is_empty();
    let mut complaints = Vec::new();
    for (rule, first) in MISSED_BY {
        // Where the simulator has changed since, another seed may be the first.
        let found = without(rule, || std::iter::once(first).chain(0..SEEDS_MAX).find(fails));
        match found {
            Some(seed) => {
                let why = without(rule, || scenario.run(seed).violations);
                println!("{rule:?}: seed {seed}: {}", why[0]);
                if fails(&seed) {
                    complaints.push(format!("{rule:?}: seed {seed} fails with all rules on"));
                }
            }
            None => complaints.push(format!("{rule:?}: no seed below {SEEDS_MAX} misses it")),
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(complaints, [""; 0]);
}
