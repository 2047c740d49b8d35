//! All orders of events with few delays, of small programs on pages: right with all rules, and without most of them some order is wrong.

use comem_protocol::rules::{Rule, without};
use comem_sim::pages::explore::{Explored, Ways, cases};

/// The first order that fails, and of which program.
fn first_failure(delays: usize) -> Option<(Ways, &'static str, Explored)> {
    let all = Ways::all().into_iter().flat_map(|ways| cases(ways).into_iter().map(move |case| (ways, case)));
    all.map(|(ways, case)| (ways, case.name, case.explore(0, delays))).find(|(.., e)| e.failure.is_some())
}

#[test]
fn all_orders_with_one_delay_are_right() {
    let mut explored = Explored::default();
    for ways in Ways::all() {
        for case in cases(ways) {
            let new = case.explore(0, 1);
            assert!(new.failure.is_none(), "{ways}, {}: {:#?}", case.name, new.failure);
            explored.runs += new.runs;
            explored.taken += new.taken;
        }
    }
    println!("{} orders", explored.runs);
    assert!(explored.runs > 40_000 && explored.taken > 0, "{explored:?}");
}

/// The others need two delays, or more of a program: `pages_mutants.rs` has all of them.
const FOUND_BY_ONE_DELAY: [Rule; 29] = [
    Rule::ProtectBeforeDiff,
    Rule::ProtectBeforeCopyOut,
    Rule::MappedChunksAreListedFirst,
    Rule::LatePagesAreDropped,
    Rule::HomeWritesMakeNotices,
    Rule::SharedPagesAreRegarded,
    Rule::ToldReleasesAreInIntervals,
    Rule::ReleasesTellTheirInterval,
    Rule::FetchNamesItsNeeds,
    Rule::FetchWaitsForDiffs,
    Rule::HomeAwaitsDiffs,
    Rule::DiffsInOrder,
    Rule::LaterEpochsWait,
    Rule::SpuriousFaultCountsAsWritten,
    Rule::TakenPagesAreShared,
    Rule::TakersLookForTheirNeeds,
    Rule::ClaimsAreHeeded,
    Rule::OnlyFreshPagesAreClaimed,
    Rule::PutsKeepTheirOrder,
    Rule::LaidOpenQueuesAreUsed,
    Rule::TokensThatLieOutAreTakenOnce,
    Rule::BothBooksAreTold,
    Rule::KeptCopiesAreRenewedFirst,
    Rule::PushedPagesMeetNeeds,
    Rule::PushesAreForOneBarrier,
    Rule::NoticesEndPushedPages,
    Rule::PushedPagesAreShared,
    Rule::DiffsFollowWhatTheyNeed,
    Rule::AsideLooksAfterUnmap,
];

#[test]
fn without_most_rules_an_order_with_one_delay_is_wrong() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected
    let missed: Vec<Rule> =
        FOUND_BY_ONE_DELAY.into_iter().filter(|rule| without(*rule, || first_failure(1)).is_none()).collect();
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "no order with one delay misses {missed:?}");
}

/// What voids a fetch has to come while it is under way, and then the fetch has to be late.
#[test]
fn without_the_rule_that_notices_void_fetches_an_order_with_two_delays_is_wrong() {
    let case = |name| cases(Ways::all()[0]).into_iter().find(|case| case.name == name).expect("a small program");
    for rule in [Rule::NoticeVoidsFetch, Rule::UnmapBeforeCollect] {
        let explored = without(rule, || case("two locks").explore(0, 2));
        assert!(explored.failure.is_some(), "{rule:?}: {explored:?}");
    }
}
