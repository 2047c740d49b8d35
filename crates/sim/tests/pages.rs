//! The engines for pages over many seeds: each engine and both in one job, both kinds of memory, over whole messages
//! and over a network that loses, doubles and reorders.

use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::faults::FaultSpec;
use comem_sim::pages::program::Kind;
use comem_sim::pages::scenario::Scenario;

const ENGINES: [PageEngine; 2] = [PageEngine::Hlrc, PageEngine::Scope];

fn lossy() -> Option<FaultSpec> {
    "drop=20%,dup=10%,reorder=10%".parse().ok()
}

/// No seed fails; gives how many reads were stale and rightly so.
fn pass(scenario: &Scenario, seeds: std::ops::Range<u64>) -> u64 {
    let mut stale = 0;
    for seed in seeds {
        let verdict = scenario.run(seed);
        let (kind, engine) = (verdict.kind.name(), scenario.engine);
        let engine = if scenario.mixed { format!("both engines in a job under {engine}") } else { engine.to_string() };
        assert!(verdict.violations.is_empty(), "{kind} under {engine}, seed {seed}: {:#?}", verdict.violations);
        stale += verdict.outcome.stale;
    }
    stale
}

#[test]
fn programs_without_races_see_the_last_write_over_whole_messages() {
    for engine in ENGINES {
        for notes_writes in [true, false] {
            pass(&Scenario { notes_writes: Some(notes_writes), ..Scenario::new(engine) }, 0..1000);
        }
    }
}

#[test]
fn programs_without_races_see_the_last_write_over_a_network_that_loses_doubles_and_reorders() {
    for engine in ENGINES {
        pass(&Scenario { faults: lossy(), ..Scenario::new(engine) }, 0..2000);
    }
}

#[test]
fn regions_under_both_engines_in_one_job_keep_what_each_promises() {
    for engine in ENGINES {
        for notes_writes in [true, false] {
            pass(&Scenario { notes_writes: Some(notes_writes), ..Scenario::mixed(engine) }, 0..400);
        }
        pass(&Scenario { faults: lossy(), ..Scenario::mixed(engine) }, 0..200);
    }
}

/// Atomic additions are lost by nobody, found by each once, and seen by plain reads behind barriers and flags.
#[test]
fn atomic_operations_at_a_words_home_are_made_once_and_seen_where_synchronisation_orders_them() {
    for engine in ENGINES {
        for notes_writes in [true, false] {
            let atomics =
                Scenario { kind: Some(Kind::Atomics), notes_writes: Some(notes_writes), ..Scenario::new(engine) };
            pass(&atomics, 0..400);
            pass(&Scenario { faults: lossy(), ..atomics }, 0..200);
        }
        pass(&Scenario { kind: Some(Kind::Atomics), ..Scenario::mixed(engine) }, 0..200);
    }
}

/// A node's only thread maps the page that it waits for before it comes.
#[test]
fn nodes_of_one_thread_see_the_last_write_too() {
    for engine in ENGINES {
        for scenario in [Scenario::new(engine), Scenario::mixed(engine)] {
            pass(&Scenario { lone: true, ..scenario.clone() }, 0..300);
            pass(&Scenario { lone: true, faults: lossy(), ..scenario }, 0..100);
        }
    }
}

/// A home shared pages around one that its only thread was waiting for, had it passed over as one that is not mapped,
/// and what the thread wrote there was told of too late.
#[test]
fn what_is_written_to_a_page_that_was_mapped_early_is_told_of_although_pages_around_it_were_shared_meanwhile() {
    for engine in ENGINES {
        pass(&Scenario { notes_writes: Some(true), ..Scenario::mixed(engine) }, 0x3cb1b..0x3cb1c);
    }
    pass(
        &Scenario { notes_writes: Some(true), lone: true, kind: Some(Kind::Sor), ..Scenario::new(PageEngine::Hlrc) },
        1272..1273,
    );
}

/// The judge lets reads of regions under `scope` be stale where they may, and no others.
#[test]
fn in_one_job_publication_through_a_second_lock_holds_for_hlrc_regions_and_fails_for_scope_regions() {
    for engine in ENGINES {
        for kind in [Kind::SecondLock, Kind::LockWrc, Kind::Chain, Kind::Relay] {
            let both = Scenario { kind: Some(kind), ..Scenario::mixed(engine) };
            let stale = pass(&both, 0..300);
            assert!(stale > 0 || kind == Kind::Chain, "{}: no seed shows what scope consistency allows", kind.name());
        }
        for kind in Kind::WIDE {
            pass(&Scenario { kind: Some(kind), ..Scenario::mixed(engine) }, 0..200);
        }
    }
}

#[test]
fn publication_through_a_second_lock_holds_under_hlrc_and_fails_under_scope() {
    for kind in [Kind::SecondLock, Kind::LockWrc, Kind::Chain, Kind::Relay] {
        pass(&Scenario { kind: Some(kind), ..Scenario::new(PageEngine::Hlrc) }, 0..100);
    }
    for kind in [Kind::SecondLock, Kind::LockWrc, Kind::Relay] {
        let scope = Scenario { kind: Some(kind), ..Scenario::new(PageEngine::Scope) };
        let stale = (0..400).any(|seed| scope.run(seed).outcome.stale > 0);
        assert!(stale, "{}: no seed shows what scope consistency allows", kind.name());
    }
}

#[test]
fn publication_through_a_wide_lock_holds_under_both() {
    for engine in ENGINES {
        for kind in Kind::WIDE {
            pass(&Scenario { kind: Some(kind), ..Scenario::new(engine) }, 0..200);
            pass(&Scenario { kind: Some(kind), faults: lossy(), ..Scenario::new(engine) }, 0..200);
        }
    }
}

#[test]
fn runs_fetch_and_diff_and_migrate_and_evict_and_void_fetches() {
    let mut sums = [0; 5];
    for seed in 0..200 {
        let tally = Scenario::new(PageEngine::Hlrc).run(seed).outcome.tally;
        sums.iter_mut().zip(tally).for_each(|(sum, new)| *sum += new);
    }
    assert!(sums.iter().all(|sum| *sum > 20), "{sums:?}");
}

#[test]
fn pages_are_sent_unasked_and_many_of_them_are_used() {
    let (mut pushed, mut carried) = ((0, 0), (0, 0));
    for faults in [None, lossy()] {
        for seed in 0..200 {
            let outcome = Scenario { faults, tunes: false, ..Scenario::new(PageEngine::Hlrc) }.run(seed).outcome;
            pushed = (pushed.0 + outcome.pushed.0, pushed.1 + outcome.pushed.1);
            carried = (carried.0 + outcome.carried.0, carried.1 + outcome.carried.1);
        }
    }
    assert!(pushed.0 > 500 && pushed.1 > 200, "at barriers {pushed:?}: sent, used");
    assert!(carried.0 > 500 && carried.1 > 100, "with tokens {carried:?}: sent, used");
}

#[test]
fn one_seed_is_one_run() {
    for engine in ENGINES {
        let scenario = Scenario { faults: lossy(), trace: true, ..Scenario::new(engine) };
        for seed in 0..10 {
            let (first, second) = (scenario.run(seed).outcome, scenario.run(seed).outcome);
            assert!(first.trace.len() > 100);
            assert_eq!((first.trace, first.took), (second.trace, second.took), "seed {seed} under {engine}");
        }
    }
}

/// What is under way when a region is freed comes to nothing, and nothing of the region is left.
#[test]
fn a_region_can_be_freed_while_the_nodes_go_on() {
    for engine in ENGINES {
        for notes_writes in [true, false] {
            pass(&Scenario { notes_writes: Some(notes_writes), frees: true, ..Scenario::new(engine) }, 0..500);
        }
        pass(&Scenario { faults: lossy(), frees: true, ..Scenario::mixed(engine) }, 0..300);
    }
}

/// Releases that are neither of locks nor of flags nor of barriers.
#[test]
fn semaphores_reader_writer_locks_conditions_reductions_and_meetings_tell() {
    for engine in ENGINES {
        for kind in Kind::SYNC_OBJECTS {
            let alone = (!engine.is_scoped() || kind.is_scoped()).then(|| Scenario::new(engine));
            for scenario in alone.into_iter().chain([Scenario::mixed(engine)]) {
                let scenario = Scenario { kind: Some(kind), ..scenario };
                pass(&scenario, 0..100);
                pass(&Scenario { lone: true, ..scenario.clone() }, 100..140);
                pass(&Scenario { faults: lossy(), ..scenario }, 0..40);
            }
        }
    }
}
