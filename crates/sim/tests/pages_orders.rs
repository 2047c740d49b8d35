//! All orders of events with few delays, of small programs on pages: right with all rules, and without most of them
//! some order is wrong.

use comem_protocol::rules::{Rule, without};
use comem_sim::pages::explore::{Explored, Ways};
use comem_sim::pages::small::{cases, in_turn};

/// The first order of this program that fails, however nodes treat memory.
fn first_failure(name: &str, delays: usize) -> Option<(Ways, Explored)> {
    let all = Ways::all().into_iter().flat_map(|ways| cases(ways).into_iter().map(move |case| (ways, case)));
    all.filter(|(_, case)| case.name == name)
        .flat_map(|(ways, case)| (0..16).map(move |seed| (ways, case.explore(seed, delays))))
        .find(|(_, explored)| explored.failure.is_some())
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
    assert!(explored.runs > 60_000 && explored.taken > 0, "{explored:?}");
}

/// Programs of which some order with one delay is wrong without the rule. The others need two delays, or more of a
/// program: `pages_mutants.rs` has all of them.
const FOUND_BY_ONE_DELAY: [(Rule, &str); 60] = [
    (Rule::ProtectBeforeDiff, "counter"),
    (Rule::ProtectBeforeCopyOut, "counter"),
    (Rule::MappedChunksAreListedFirst, "two locks"),
    (Rule::LatePagesAreDropped, "counter of three"),
    (Rule::HomeWritesMakeNotices, "counter"),
    (Rule::FlushedPagesStayNoted, "flushed under a lock"),
    (Rule::PassedOverHasNothingToTell, "flushed under a lock"),
    (Rule::SharedPagesAreRegarded, "counter"),
    (Rule::ToldReleasesAreInIntervals, "counter"),
    (Rule::ReleasesTellTheirInterval, "both engines"),
    (Rule::FetchNamesItsNeeds, "counter"),
    (Rule::FetchWaitsForDiffs, "counter of three"),
    (Rule::HomeAwaitsDiffs, "counter"),
    (Rule::RestingTokensAwaitDiffs, "counter of three, tokens wanted"),
    (Rule::DiffsInOrder, "counter of three"),
    (Rule::LaterEpochsWait, "writer without a copy"),
    (Rule::SpuriousFaultCountsAsWritten, "two locks"),
    (Rule::MigrationNeedsValidCopy, "writer without a copy"),
    (Rule::TakenPagesAreShared, "two threads beside one"),
    (Rule::MarkBeforeTaking, "two threads beside one"),
    (Rule::TakersLookForTheirNeeds, "counter of three"),
    (Rule::ClaimsAreHeeded, "first touch"),
    (Rule::OnlyFreshPagesAreClaimed, "first touch"),
    (Rule::PutsKeepTheirOrder, "counter of three"),
    (Rule::LaidOpenQueuesAreUsed, "counter"),
    (Rule::PublishedTokensAreTakenOnce, "counter"),
    (Rule::NoticesKeepTheirLog, "from lock to lock"),
    (Rule::BothLogsAreTold, "both engines"),
    (Rule::LogsAreMergedApart, "flags of two logs"),
    (Rule::PostersAreUnited, "two that raise one flag"),
    (Rule::KeptCopiesAreRenewedFirst, "two threads beside one"),
    (Rule::CarriedPagesHaveOwnBytes, "two locks of three"),
    (Rule::DiffsFollowWhatTheyNeed, "sent at barriers"),
    (Rule::UntrackingScansAfterUnmap, "laid aside"),
    (Rule::QuietTablesAreLookedAtOnceMore, "stores forbidden"),
    (Rule::AllowedTablesAreListedFirst, "stores forbidden"),
    (Rule::TwinsBeforeStores, "stores forbidden"),
    (Rule::LeftNotesCount, "written again and again"),
    (Rule::LeftNotesCount, "copy written again and again"),
    (Rule::ComparedPagesGoOutAsTold, "compared"),
    (Rule::LoneThreadsMapEarly, "two threads beside one"),
    (Rule::UnwantedPagesAreTakenBack, "first touch"),
    (Rule::PremappedPagesAreTracked, "between pages that are shared"),
    (Rule::LazyAcquiresCatchUp, "acquired lazily"),
    (Rule::NarrowTokensAreMarked, "acquired lazily"),
    (Rule::NotesOutliveMappings, "two locks"),
    (Rule::PostsTell, "posted"),
    (Rule::GivesTell, "posted"),
    (Rule::SignalsTell, "signalled"),
    (Rule::SubsetBarriersCarryNotices, "met"),
    (Rule::ReadersTell, "read and written"),
    (Rule::GivenThingsAreToldOf, "posted"),
    (Rule::ManagersHear, "handed on by a semaphore"),
    (Rule::SaidIsKept, "read and written"),
    (Rule::ReductionsTell, "reduced"),
    (Rule::ToldReleasesAreInIntervals, "posted"),
    (Rule::PostersAreUnited, "read and written"),
    (Rule::HomeAwaitsDiffs, "posted"),
    (Rule::WaiterRegistersBeforeRelease, "signalled"),
    (Rule::WriterWaitsForReaders, "read and written"),
];

#[test]
fn without_most_rules_an_order_with_one_delay_is_wrong() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected
    let is_missed = |(rule, program): &(Rule, &str)| without(*rule, || first_failure(program, 1)).is_none();
    let missed: Vec<(Rule, &str)> = FOUND_BY_ONE_DELAY.into_iter().filter(is_missed).collect();
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "no order with one delay misses {missed:?}");
}

#[test]
fn without_the_rule_that_streaks_end_a_node_keeps_a_lock_that_another_waits_for() {
    for ways in Ways::all() {
        let violations = || (0..20).flat_map(|seed| in_turn(ways).run_by(seed).violations).collect::<Vec<_>>();
        assert_eq!(violations(), [""; 0], "{ways}");
        let without = without(Rule::StreaksEnd, violations);
        assert!(without.iter().any(|violation| violation.contains("waits while others")), "{ways}: {without:?}");
    }
}

/// What voids a fetch has to come while it is under way, and then the fetch has to be late.
#[test]
fn without_the_rule_that_notices_void_fetches_an_order_with_two_delays_is_wrong() {
    for rule in [Rule::NoticeVoidsFetch, Rule::UnmapBeforeCollect] {
        assert!(without(rule, || first_failure("two locks", 2)).is_some(), "{rule:?}");
    }
}
