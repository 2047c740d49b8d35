//! The rules of the engine `direct`: without any one of them some seed fails; with all of them, the same seeds pass.
//!
//! A panic counts as a failure, and so do a thread that waits for ever and a run without an end.

use comem_protocol::rules::{Rule, without};
use comem_sim::direct::program::Fabric;
use comem_sim::direct::scenario::{Kind, Scenario};

const SEEDS_MAX: u64 = 5_000;

/// The scenario under which a rule is missed.
fn scenario(rule: Rule) -> Scenario {
    let any = Scenario::default();
    match rule {
        Rule::MagicFlushedBeforeStore | Rule::MagicFlushedBeforeRelease => {
            Scenario { fabric: Some(Fabric::Network), ..any }
        }
        Rule::HazardsRecheckedAfterMiss | Rule::HazardLoweredBeforeWaiting => {
            Scenario { kind: Some(Kind::Strips), ..any }
        }
        Rule::GroupsWaitForNoEntry | Rule::GivenUpEntriesAreUnlocked | Rule::EveryMemberQuiesces => {
            Scenario { kind: Some(Kind::Groups), ..any }
        }
        Rule::MirrorsRevoked => Scenario { lines: Some(2), ..any },
        Rule::FillBeforeMap => Scenario { is_untouched: Some(true), ..any },
        Rule::GenuineMagicIsAsked => Scenario { kind: Some(Kind::Mixed), ..any },
        Rule::SpinnersHearOfLoss => Scenario { crash_at: Some(20), ..any },
        _ => any,
    }
}

/// The first seed that fails without the rule, and what it shows.
fn first_failure(rule: Rule) -> Option<(u64, String)> {
    let scenario = scenario(rule);
    without(rule, || (0..SEEDS_MAX).find_map(|seed| Some((seed, scenario.run(seed).violation?))))
}

#[test]
fn no_rule_of_direct_is_superfluous() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected, and many
    let mut complaints = Vec::new();
    let mut report = String::new();
    for rule in Rule::DIRECT {
        match first_failure(rule) {
            Some((seed, violation)) => {
                report += &format!("{rule:?}: seed {seed}: {violation}\n");
                if (0..=seed).any(|seed| scenario(rule).run(seed).violation.is_some()) {
                    complaints.push(format!("{rule:?}: its seeds fail with all rules on"));
                }
            }
            None => complaints.push(format!("{rule:?}: no seed below {SEEDS_MAX} misses it")),
        }
    }
    let _ = std::panic::take_hook();
    println!("{report}");
    assert!(complaints.is_empty(), "{complaints:#?}\n{report}");
}
