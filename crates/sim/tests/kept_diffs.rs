//! Pages whose diffs stay with their writers (engine `lrc`): over many seeds, in all orders of small programs, with
//! exact numbers of messages, and without each of their rules.

use comem_protocol::coherence::pages::{PAGE_BYTES, PageEngine};
use comem_protocol::faults::FaultSpec;
use comem_protocol::rules::{Rule, without};
use comem_sim::pages::explore::{Explored, Ways};
use comem_sim::pages::program::Kind;
use comem_sim::pages::scenario::Scenario;
use comem_sim::pages::small::kept_diffs::{all_to_all, figure_three, kept_cases, migrating};

const LRC: PageEngine = PageEngine::Lrc;

/// The seeds of each family, with all rules on and without one of them.
const FAMILY_SEEDS: u64 = 150;

fn lossy() -> Option<FaultSpec> {
    "drop=20%,dup=10%,reorder=10%".parse().ok()
}

fn pass(scenario: &Scenario, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let verdict = scenario.run(seed);
        assert!(verdict.violations.is_empty(), "{}, seed {seed}: {:#?}", verdict.kind.name(), verdict.violations);
    }
}

#[test]
fn programs_without_races_see_the_last_write_over_whole_messages() {
    for notes_writes in [true, false] {
        pass(&Scenario { notes_writes: Some(notes_writes), ..Scenario::new(LRC) }, 0..1000);
    }
}

#[test]
fn programs_without_races_see_the_last_write_over_a_network_that_loses_doubles_and_reorders() {
    pass(&Scenario { faults: lossy(), ..Scenario::new(LRC) }, 0..2000);
}

#[test]
fn every_family_is_right() {
    let sync_objects = Kind::SYNC_OBJECTS.into_iter().chain([Kind::Wavering]);
    let others = [Kind::Migratory, Kind::Mixed].into_iter().chain(Kind::WIDE).chain(sync_objects);
    for kind in Kind::KEPT.into_iter().chain(others) {
        let scenario = Scenario { kind: Some(kind), ..Scenario::new(LRC) };
        pass(&scenario, 0..FAMILY_SEEDS);
        pass(&Scenario { faults: lossy(), ..scenario }, 0..40);
    }
}

#[test]
fn regions_live_beside_regions_under_other_engines_in_one_job() {
    for notes_writes in [true, false] {
        pass(&Scenario { notes_writes: Some(notes_writes), ..Scenario::mixed(LRC) }, 0..300);
    }
    pass(&Scenario { faults: lossy(), ..Scenario::mixed(LRC) }, 0..100);
}

#[test]
fn a_region_can_be_freed_while_the_nodes_go_on() {
    for notes_writes in [true, false] {
        pass(&Scenario { notes_writes: Some(notes_writes), frees: true, ..Scenario::new(LRC) }, 0..200);
    }
}

/// Brazos, Figure 3: each of three nodes asks two writers. The fourth, which has a copy and does not use it, takes no
/// part.
#[test]
fn figure_three_takes_twelve_messages() {
    for ways in Ways::kept() {
        for seed in 0..200 {
            let outcome = figure_three(ways).run_by(seed);
            assert_eq!((outcome.violations, outcome.kept_messages), (Vec::new(), 12), "{ways}, seed {seed}");
        }
    }
}

#[test]
fn a_round_of_n_writers_and_readers_takes_twice_n_times_n_less_one_messages() {
    for ways in Ways::kept() {
        for (nodes, messages) in [(2, 4), (4, 24), (8, 112)] {
            let outcome = all_to_all(ways, nodes).run_by(7);
            assert_eq!((outcome.violations, outcome.kept_messages), (Vec::new(), messages), "{ways}, {nodes} nodes");
        }
    }
}

/// A counter's page has one word that all write: however often the lock moves, a node keeps it once.
#[test]
fn stores_do_not_grow_with_the_number_of_critical_sections() {
    let kept = [20, 200].map(|rounds| migrating(Ways::kept()[0], 3, rounds).run_by(5));
    for outcome in &kept {
        assert_eq!(outcome.violations, [""; 0]);
        assert!(outcome.kept_bytes > 0 && outcome.kept_bytes <= 3 * 32, "{} bytes", outcome.kept_bytes);
    }
    assert!(kept[1].kept_bytes * 10 <= 3 * 13 * PAGE_BYTES as u64);
}

#[test]
fn all_orders_with_one_delay_are_right() {
    let mut explored = Explored::default();
    for ways in Ways::kept() {
        for case in kept_cases(ways) {
            let new = case.explore(0, 1);
            assert!(new.failure.is_none(), "{ways}, {}: {:#?}", case.name, new.failure);
            explored.runs += new.runs;
        }
    }
    println!("{} orders", explored.runs);
    assert!(explored.runs > 5_000, "{explored:?}");
}

/// Where each rule is missed: in some order of a small program, or by some seed of a family.
fn first_failure(rule: Rule) -> Option<String> {
    let families: &[Kind] = match rule {
        Rule::BasesAreReleased => &[Kind::Wavering],
        Rule::ManagersAreComplete | Rule::DiffsOutliveReaders => &[Kind::Absent, Kind::FalseSharing],
        Rule::FreesBringTheirStamp | Rule::ReusedMemoryIsWritten => &[Kind::Blocks],
        _ => &[Kind::FalseSharing, Kind::Migratory, Kind::Mixed, Kind::Absent],
    };
    without(rule, || {
        let small = Ways::kept().into_iter().flat_map(kept_cases).find_map(|case| {
            let failure = case.explore(0, 0).failure.or_else(|| case.explore(0, 1).failure)?;
            Some(format!("{}: {:?}", case.name, failure.1.first()))
        });
        small.or_else(|| {
            (0..FAMILY_SEEDS).find_map(|seed| {
                let verdicts = families.iter().map(|kind| (kind, Scenario { kind: Some(*kind), ..Scenario::new(LRC) }));
                verdicts.into_iter().find_map(|(kind, scenario)| {
                    let violation = scenario.run(seed).violations.into_iter().next()?;
                    Some(format!("{}, seed {seed}: {violation}", kind.name()))
                })
            })
        })
    })
}

#[test]
fn no_rule_is_superfluous() {
    std::panic::set_hook(Box::new(|_| ())); // panics of crippled protocols are expected
    // What fails passes with all rules on, as the tests above show: these are their orders and seeds.
    let found = Rule::KEPT_DIFFS.map(|rule| (rule, first_failure(rule)));
    let _ = std::panic::take_hook();
    found.iter().for_each(|(rule, failure)| println!("{rule:?}: {failure:?}"));
    let unfound: Vec<_> = found.iter().filter(|(_, failure)| failure.is_none()).map(|(rule, _)| rule).collect();
    assert!(unfound.is_empty(), "nothing misses {unfound:?}");
}
