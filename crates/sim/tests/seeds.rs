//! Many seeds for each engine, over whole messages and over the production link with a network that loses, doubles and
//! reorders.

use comem_protocol::coherence::Engine;
use comem_sim::scenario::{Kind, Scenario};

/// Runs seeds on two threads and panics with the first that fails.
fn pass(scenario: &Scenario, seeds: std::ops::Range<u64>) {
    let half = |odd: u64| {
        for seed in seeds.clone().filter(|s| s % 2 == odd) {
            let verdict = scenario.run(seed);
            assert!(
                verdict.violations.is_empty(),
                "{} under {}, seed {seed}: {:#?}",
                verdict.kind.name(),
                scenario.engine,
                verdict.violations
            );
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(0);
        if let Err(panic) = other.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn every_engine_keeps_its_promise_over_whole_messages() {
    for engine in Engine::ALL {
        pass(&Scenario::new(engine), 0..1000);
    }
}

#[test]
fn every_engine_keeps_its_promise_over_a_network_that_loses_doubles_and_reorders() {
    let faults = Some("drop=20%,dup=10%,reorder=10%".parse().unwrap());
    for engine in Engine::ALL {
        pass(&Scenario { faults, ..Scenario::new(engine) }, 0..1000);
    }
}

/// A request that found no room in its thread's window was once sent from the service channel; its answer came back
/// there, and the thread waited for ever. Half of all seeds have windows so small that this happens all the time.
#[test]
fn a_request_that_found_no_room_is_answered_to_the_thread_that_made_it() {
    let faults = Some("drop=20%,dup=10%,reorder=10%".parse().unwrap());
    pass(&Scenario { faults, kind: Some(Kind::Mixed), ..Scenario::new(Engine::Owner) }, 0..100);
}

#[test]
fn one_seed_is_one_run() {
    let faults = Some("drop=20%,dup=10%,reorder=10%,corrupt=1%".parse().unwrap());
    for engine in Engine::ALL {
        let scenario = Scenario { faults, trace: true, ..Scenario::new(engine) };
        for seed in 0..20 {
            let (first, second) = (scenario.run(seed).outcome, scenario.run(seed).outcome);
            assert!(!first.trace.is_empty());
            assert_eq!((first.trace, first.took), (second.trace, second.took), "seed {seed} under {engine}");
        }
    }
}
