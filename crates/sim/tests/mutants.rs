//! The checkers checked: without any one of the ordering rules, some seed fails; with all of them, the same seeds pass.
//!
//! A panic counts as a failure, and so does a thread that waits for ever.

use comem_protocol::coherence::Engine;
use comem_protocol::rules::{Rule, without};
use comem_sim::scenario::{Kind, Scenario};

const SEEDS_MAX: u64 = 2_000;

/// The scenario under which a rule is missed.
fn scenario(rule: Rule) -> Scenario {
    let msi = Scenario::new(Engine::Msi);
    let lossy = Some("drop=20%,dup=10%,reorder=10%".parse().unwrap());
    match rule {
        Rule::PinnedUnitsStay => Scenario { kind: Some(Kind::Ranges), ..msi },
        Rule::LeavingUnitsAreNotUsed | Rule::LeavingUnitsStillServe | Rule::OnlyHoldersGiveBack => {
            Scenario { kind: Some(Kind::Evictions), ..msi }
        }
        Rule::LateDataIsDropped => Scenario { kind: Some(Kind::Hot), faults: lossy, ..msi },
        Rule::AtMostOnce => Scenario { kind: Some(Kind::Messages), faults: lossy, ..msi },
        Rule::FragmentsAllIn | Rule::RepliesAreStored => Scenario { kind: Some(Kind::Mixed), faults: lossy, ..msi },
        Rule::TokenLeavesOnlyWhenFree => Scenario { kind: Some(Kind::Counters), ..msi },
        Rule::WaiterRegistersBeforeRelease | Rule::WaitersAreHeardOf => Scenario { kind: Some(Kind::Buffer), ..msi },
        Rule::WriterWaitsForReaders => Scenario { kind: Some(Kind::Readers), ..msi },
        Rule::BarrierWaitsForAll => Scenario { kind: Some(Kind::Barriers), ..msi },
        _ => Scenario { kind: Some(Kind::Hot), ..msi },
    }
}

/// The first seed that fails without the rule, and what it shows.
fn first_failure(rule: Rule) -> Option<(u64, String)> {
    let scenario = scenario(rule);
    without(rule, || (0..SEEDS_MAX).find_map(|seed| scenario.run(seed).violations.first().map(|v| (seed, v.clone()))))
}

#[test]
fn no_rule_is_superfluous() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected, and many
    let mut missed_by_nobody = Vec::new();
    let mut report = String::new();
    for rule in Rule::ALL {
        match first_failure(rule) {
            Some((seed, violation)) => {
                report += &format!("{rule:?}: seed {seed}: {violation}\n");
                let passes = (0..=seed).all(|seed| scenario(rule).run(seed).violations.is_empty());
                if !passes {
                    missed_by_nobody.push(format!("{rule:?}: its seeds fail with all rules on"));
                }
            }
            None => missed_by_nobody.push(format!("{rule:?}: no seed below {SEEDS_MAX} misses it")),
        }
    }
    let _ = std::panic::take_hook();
    println!("{report}");
    assert!(missed_by_nobody.is_empty(), "{missed_by_nobody:#?}\n{report}");
}
