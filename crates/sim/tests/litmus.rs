//! Litmus programs: under `owner` and `msi` no run shows an outcome that sequential consistency forbids, and under
//! `broadcast` runs do. If they did not, the programs would prove nothing.

use comem_protocol::coherence::Engine;
use comem_sim::check::litmus;
use comem_sim::scenario::{Kind, Scenario};

const SEEDS: u64 = 300;

#[test]
fn consistent_engines_show_no_forbidden_outcome() {
    let lossy = Some("drop=20%,dup=10%,reorder=10%".parse().unwrap());
    for (engine, faults) in [(Engine::Owner, None), (Engine::Msi, None), (Engine::Owner, lossy), (Engine::Msi, lossy)] {
        for (index, litmus) in litmus::ALL.iter().enumerate() {
            let scenario = Scenario { kind: Some(Kind::Litmus(index)), faults, ..Scenario::new(engine) };
            for seed in 0..SEEDS {
                let violations = scenario.run(seed).violations;
                assert!(violations.is_empty(), "{} under {engine}, seed {seed}: {violations:#?}", litmus.name);
            }
        }
    }
}

#[test]
fn forbidden_outcomes_are_seen_without_consistency() {
    for (index, litmus) in litmus::ALL.iter().enumerate() {
        let scenario = Scenario { kind: Some(Kind::Litmus(index)), ..Scenario::new(Engine::Broadcast) };
        let seen = (0..SEEDS).filter(|seed| !scenario.run(*seed).forbidden.is_empty()).count();
        println!("{}: {seen} of {SEEDS} seeds", litmus.name);
        assert_eq!(seen > 0, litmus.seen_without_consistency, "{}: {seen} of {SEEDS} seeds", litmus.name);
    }
}
