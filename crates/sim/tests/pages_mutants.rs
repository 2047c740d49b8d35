//! The rules for pages: without any one of them some seed fails; with all of them, the same seeds pass.
//!
//! A panic counts as a failure, and so does a thread that waits for ever.

use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::rules::{Rule, without};
use comem_sim::pages::program::Kind;
use comem_sim::pages::scenario::Scenario;

const SEEDS_MAX: u64 = 8_000;

/// It shows in one of some thousand seeds, and in one order with one delay: `pages_orders.rs` has that.
const SHOWN_BY_ORDERS: Rule = Rule::AllowedTablesAreListedFirst;

/// Each engine alone, and both in one job; for what shows rarely, the family in which it does.
fn scenarios(rule: Rule) -> Vec<Scenario> {
    let (hlrc, scope) = (PageEngine::Hlrc, PageEngine::Scope);
    let family = |kind| vec![Scenario { kind: Some(kind), notes_writes: Some(true), ..Scenario::new(hlrc) }];
    match rule {
        // It shows in so few seeds that all of them keep the default numbers.
        Rule::CarriedCopiesAreReleased => {
            family(Kind::Wavering).into_iter().map(|scenario| Scenario { tunes: false, ..scenario }).collect()
        }
        Rule::OfferedPagesKeepTheirNotes | Rule::ComparedPagesGoOutAsTold => family(Kind::Sor),
        Rule::PremappedPagesAreTracked => {
            family(Kind::Sor).into_iter().map(|scenario| Scenario { lone: true, ..scenario }).collect()
        }
        Rule::LazyAcquiresCatchUp | Rule::NarrowTokensAreMarked => {
            vec![Scenario { kind: Some(Kind::WideAcquire), lone: true, ..Scenario::mixed(hlrc) }]
        }
        Rule::AtomicsAreTold | Rule::AtomicsEndCopies => family(Kind::Atomics),
        Rule::PostsTell | Rule::GivesTell => family(Kind::Semaphores),
        Rule::SignalsTell => family(Kind::Conditions),
        Rule::SubsetBarriersCarryNotices => family(Kind::Meetings),
        Rule::ReadersTell | Rule::ManagersHear | Rule::SaidIsKept => family(Kind::Readers),
        Rule::ReductionsTell => family(Kind::Reductions),
        Rule::QuietTablesAreLookedAtOnceMore | Rule::TwinsBeforeStores => {
            vec![Scenario { forbids: true, notes_writes: Some(true), ..Scenario::new(hlrc) }]
        }
        _ => vec![Scenario::new(hlrc), Scenario::new(scope), Scenario::mixed(hlrc), Scenario::mixed(scope)],
    }
}

/// The first seed and scenario that fail without the rule, and what they show.
fn first_failure(rule: Rule) -> Option<(u64, Scenario, String)> {
    without(rule, || {
        (0..SEEDS_MAX).find_map(|seed| {
            scenarios(rule).into_iter().find_map(|scenario| {
                let violations = scenario.run(seed).violations;
                violations.into_iter().next().map(|violation| (seed, scenario, violation))
            })
        })
    })
}

#[test]
fn no_rule_for_pages_is_superfluous() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected
    let mut complaints = Vec::new();
    let mut report = String::new();
    for rule in Rule::PAGES.into_iter().filter(|rule| *rule != SHOWN_BY_ORDERS) {
        match first_failure(rule) {
            Some((seed, scenario, violation)) => {
                let engines = if scenario.mixed { "both engines in a job under" } else { "" };
                report += &format!("{rule:?}: {engines} {}, seed {seed}: {violation}\n", scenario.engine);
                if !scenario.run(seed).violations.is_empty() {
                    complaints.push(format!("{rule:?}: seed {seed} fails with all rules on"));
                }
            }
            None => complaints.push(format!("{rule:?}: no seed below {SEEDS_MAX} misses it")),
        }
    }
    let _ = std::panic::take_hook();
    println!("{report}");
    assert!(complaints.is_empty(), "{complaints:#?}\n{report}");
}

/// What a node does with its pages stands once, and runs here as it does in production: each of these breaks one of its
/// functions.
#[test]
fn mutants_of_fetches_claims_refetches_evictions_and_frees_are_found() {
    let functions = [
        ("take", Rule::MarkBeforeTaking),
        ("take", Rule::TakersLookForTheirNeeds),
        ("claim", Rule::FirstClaimsCount),
        ("fetch again", Rule::KeptCopiesAreAllFetched),
        ("fetch again", Rule::RefetchesAreAwaited),
        ("evict", Rule::EvictedCopiesAreFlushed),
        ("free", Rule::FreedTablesAreMarked),
        ("may have to tell", Rule::PendingWorkIsTold),
    ];
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected
    let found = functions.map(|(function, rule)| (function, rule, first_failure(rule)));
    let _ = std::panic::take_hook();
    let unfound: Vec<_> = found.iter().filter(|(.., failure)| failure.is_none()).collect();
    for (function, rule, failure) in &found {
        let found = failure.as_ref().map(|(seed, scenario, why)| format!("{} seed {seed}: {why}", scenario.engine));
        println!("{function}, {rule:?}: {found:?}");
    }
    assert!(unfound.is_empty(), "no seed below {SEEDS_MAX} misses {unfound:?}");
}

/// The families around synchronisation objects go the ways of all releases and acquires: they miss what those around
/// locks, flags and barriers do, too.
#[test]
fn rules_of_all_releases_are_missed_around_synchronisation_objects() {
    let common = [
        Rule::HomeWritesMakeNotices,
        Rule::FlushedPagesStayNoted,
        Rule::ToldReleasesAreInIntervals,
        Rule::FetchNamesItsNeeds,
        Rule::FetchWaitsForDiffs,
        Rule::HomeAwaitsDiffs,
        Rule::BothLogsAreTold,
    ];
    let own = [
        (Rule::PostersAreUnited, Kind::Semaphores),
        (Rule::LogsAreMergedApart, Kind::Semaphores),
        (Rule::KnowledgeIsOfOneLog, Kind::Semaphores),
        (Rule::PostersAreUnited, Kind::Readers),
        (Rule::LogsAreMergedApart, Kind::Readers),
        (Rule::WriterWaitsForReaders, Kind::Readers),
        (Rule::WaiterRegistersBeforeRelease, Kind::Conditions),
        (Rule::WaitersAreHeardOf, Kind::Conditions),
        (Rule::GivenThingsAreToldOf, Kind::Semaphores),
        (Rule::GivenThingsAreToldOf, Kind::Readers),
        (Rule::GivenThingsAreToldOf, Kind::Conditions),
        (Rule::GivenThingsAreToldOf, Kind::Meetings),
        (Rule::ManagersHear, Kind::Semaphores),
        (Rule::ManagersHear, Kind::Conditions),
        (Rule::ManagersHear, Kind::Meetings),
        (Rule::PostersAreUnited, Kind::Meetings),
        (Rule::KeptCopiesAreRenewedFirst, Kind::Reductions),
        (Rule::PushedPagesMeetNeeds, Kind::Reductions),
        (Rule::MigrationNeedsValidCopy, Kind::Reductions),
    ];
    let all = Kind::SYNC_OBJECTS.into_iter().flat_map(|kind| common.map(|rule| (rule, kind)));
    std::panic::set_hook(Box::new(|_| ())); // as above
    let is_found = |(rule, kind): &(Rule, Kind)| {
        let scenario = Scenario { kind: Some(*kind), tunes: false, ..Scenario::mixed(PageEngine::Hlrc) };
        without(*rule, || (0..3_000).any(|seed| !scenario.run(seed).violations.is_empty()))
    };
    let unfound: Vec<_> = all.chain(own).filter(|pair| !is_found(pair)).collect();
    let _ = std::panic::take_hook();
    assert!(unfound.is_empty(), "no seed of the family misses {unfound:?}");
}
