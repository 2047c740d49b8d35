//! The rules for pages under `msi`: without any one of them some seed fails; with all of them, the same seeds pass.
//!
//! A panic counts as a failure, and so does a thread that waits for ever or an access that faults again and again.

use comem_protocol::rules::{Rule, without};
use comem_sim::msi_pages::program::Kind;
use comem_sim::msi_pages::scenario::Scenario;

const SEEDS_MAX: u64 = 2_000;

/// The scenario under which a rule is missed.
fn scenario(rule: Rule) -> Scenario {
    let lossy = Some("drop=20%,dup=10%,reorder=10%".parse().unwrap());
    let kind = match rule {
        Rule::RevokeBeforeGivingBack
        | Rule::LeavingUnitsAreNotUsed
        | Rule::LeavingUnitsStillServe
        | Rule::OnlyHoldersGiveBack => Kind::Evictions,
        Rule::GrantedPagesAreHeld | Rule::SpanningAccessesHoldBoth | Rule::HoldsGrow => Kind::Spans,
        Rule::HoldsAreShort | Rule::ListedHoldsAreLookedAtAgain => Kind::Spins,
        _ => Kind::Hot,
    };
    let faults = if matches!(rule, Rule::LateDataIsDropped | Rule::AtMostOnce) { lossy } else { None };
    Scenario { kind: Some(kind), faults, even: rule == Rule::HoldsGrow, ..Scenario::default() }
}

/// The first seed that fails without the rule, and what it shows.
fn first_failure(rule: Rule) -> Option<(u64, String)> {
    let scenario = scenario(rule);
    without(rule, || (0..SEEDS_MAX).find_map(|seed| scenario.run(seed).violations.first().map(|v| (seed, v.clone()))))
}

#[test]
fn no_rule_for_pages_under_msi_is_superfluous() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected, and many
    let mut complaints = Vec::new();
    let mut report = String::new();
    for rule in Rule::SINGLE {
        match first_failure(rule) {
            Some((seed, violation)) => {
                report += &format!("{rule:?}: seed {seed}: {violation}\n");
                if !(0..=seed).all(|seed| scenario(rule).run(seed).violations.is_empty()) {
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
