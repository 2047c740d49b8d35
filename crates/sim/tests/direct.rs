//! The engine `direct` by seeds: programs of loads, stores, atomic operations and strips, with and without a crash.

use comem_sim::direct::program::Fabric;
use comem_sim::direct::scenario::{Kind, Scenario};

fn all_pass(scenario: Scenario, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let verdict = scenario.run(seed);
        assert_eq!(verdict.violation, None, "seed {seed} of {scenario:?}");
    }
}

#[test]
fn random_programs_are_coherent() {
    for kind in Kind::ALL {
        for fabric in Fabric::ALL {
            all_pass(Scenario { kind: Some(kind), fabric: Some(fabric), ..Scenario::default() }, 0..2_000);
        }
    }
}

#[test]
fn directories_of_many_nodes_are_coherent() {
    for nodes in [8, 9, 64, 300, 1024] {
        all_pass(Scenario { nodes: Some(nodes), ..Scenario::default() }, 0..100);
        all_pass(Scenario { nodes: Some(nodes), kind: Some(Kind::Groups), ..Scenario::default() }, 0..100);
    }
}

/// Whoever crashes, and at whatever step, the others come to an end and find no wrong value.
#[test]
fn a_node_may_crash_at_every_step() {
    for (kind, seeds) in [(None, 60), (Some(Kind::Groups), 10)] {
        for seed in 0..seeds {
            let scenario = Scenario { kind, ..Scenario::default() };
            for step in 0..scenario.run(seed).steps {
                let verdict = Scenario { crash_at: Some(step), ..scenario }.run(seed);
                assert_eq!(verdict.violation, None, "seed {seed} of {kind:?}, crash at step {step}");
            }
        }
    }
}
