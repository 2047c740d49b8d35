//! One suite under everything: each scenario has one right answer, whatever the engine, the detector, the number of
//! nodes and threads, and the network.

use crate::launcher::{Outcome, start};
use crate::{blocks, globals, order, pages, placement, sharing, stress};
use comem::Comem;
use comem_memory::pages::Detector;
use std::sync::OnceLock;

/// How accesses are noticed: the detectors that work here; the others are named once.
pub fn detectors() -> Vec<&'static str> {
    static WORKING: OnceLock<Vec<&str>> = OnceLock::new();
    let works = |detector: &Detector| match detector.probe() {
        Ok(()) => true,
        Err(reason) => {
            println!("SKIP: the detector {detector} on shared pages: {reason}");
            false
        }
    };
    WORKING.get_or_init(|| Detector::ALL.into_iter().filter(works).map(Detector::name).collect()).clone()
}
/// Nodes and threads in each.
const SHAPES: [(usize, &str); 3] = [(2, "2"), (3, "1"), (4, "2")];
/// Pages of a unit where nothing else is said, beside the usual one.
const UNITS: [&str; 3] = ["16", "4", "2"];
const FAULTS: &str = "COMEM_FAULTS";
const BAD_NETWORK: &str = "drop=5%,dup=5%,reorder=5%,seed=17";

/// Whether a detector works here that a test needs; else the test says that it is left out.
pub fn works(detector: &str, test: &str) -> bool {
    let works = detectors().contains(&detector);
    if !works {
        println!("SKIP: {test}: {detector} does not work here");
    }
    works
}

type Scenario = (&'static str, fn(&Comem));

const SCENARIOS: [Scenario; 35] = [
    ("every placement", placement::every_placement),
    ("homes that move", placement::writers_that_change),
    ("first touch", placement::first_touch),
    ("locks", order::locks),
    ("conditions", order::conditions),
    ("readers and writers", order::readers_and_writers),
    ("reductions", order::reductions),
    ("reductions into shared memory", order::reductions_into_shared_memory),
    ("allocations beside others", order::allocations_beside_others),
    ("flags", order::flags),
    ("many locks", order::many_locks),
    ("semaphores", order::semaphores),
    ("publication through a second lock", order::a_second_lock),
    ("both engines in one program", order::both_engines_in_one_program),
    ("chains beside scope", order::chains_beside_scope),
    ("false sharing", sharing::neighbours_in_a_page),
    ("migratory data", sharing::a_counter_that_travels),
    ("producer and consumer", sharing::producers_and_consumers),
    ("blocks that others free", blocks::blocks_that_others_free),
    ("small blocks used again", blocks::small_blocks_used_again),
    ("small blocks of all nodes", blocks::small_blocks_of_all),
    ("blocks freed unread", blocks::blocks_freed_unread),
    ("pieces that others free", blocks::pieces_that_others_free),
    ("blocks beside read-only ones", blocks::blocks_beside_read_only_ones),
    ("memory of every size and alignment", blocks::every_size_and_alignment),
    ("lists across nodes", blocks::a_list_across_nodes),
    ("read-only memory", pages::declared_read_only),
    ("pages that nobody uses for long", pages::idle_for_long),
    ("rendezvous", pages::a_rendezvous_holds_everybody),
    ("places of other threads", pages::places_of_other_threads),
    ("accesses that span two pages", pages::accesses_that_span_two_pages),
    ("msi beside the job's engine", pages::one_writer_regions_beside_others),
    ("racing programs", pages::racing_programs),
    ("global variables", globals::variables_of_all),
    ("stress", stress::words_of_all_in_every_page),
];

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    if role == "many barriers" {
        order::many_barriers(comem);
        return true;
    }
    if role != "suite" {
        return false;
    }
    let only = std::env::var("COMEM_TEST_ONLY").unwrap_or_default();
    for (name, scenario) in SCENARIOS.iter().filter(|(name, _)| name.contains(&only)) {
        let begun = std::time::Instant::now();
        scenario(comem);
        eprintln!("done: {name}, {} ms", begun.elapsed().as_millis());
    }
    true
}

/// Whether the engine orders accesses by flags, semaphores and chains of locks.
pub fn orders_everything(comem: &Comem) -> bool {
    !comem.page_engine().is_scoped()
}

/// How often to do something on this network; on a bad one less often, for each time takes longer.
pub fn times(times: usize) -> usize {
    if std::env::var_os(FAULTS).is_some() { times / 3 } else { times }
}

/// All nodes ended well.
#[track_caller]
pub fn all_well(what: &str, outcome: &Outcome) {
    if outcome.statuses.iter().all(|s| *s == Some(0)) {
        return;
    }
    let mut text = format!("{what}: {:?} {:?}\n", outcome.statuses, outcome.failures);
    for (node, (printed, errors)) in outcome.outputs.iter().zip(&outcome.errors).enumerate() {
        let last: Vec<&str> = errors.lines().rev().take(12).collect();
        text += &format!("node {node}: {}\n", last.into_iter().rev().collect::<Vec<_>>().join("\n  "));
        let panics = printed.lines().filter(|l| l.contains("panicked"));
        text += &panics.collect::<Vec<_>>().join("\n");
    }
    panic!("{text}");
}

/// The sum over all nodes of a counter of pages.
pub fn counted(outcome: &Outcome, name: &str) -> u64 {
    let of_node = |stats: &serde_json::Value| {
        let found = stats["pages"].get(name).or_else(|| stats.get(name));
        found.and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    };
    outcome.stats.values().map(of_node).sum()
}

/// A job with these settings, which all its nodes must end well.
#[track_caller]
pub fn job(role: &str, nodes: usize, settings: &[(&str, &str)]) -> Outcome {
    let outcome = start(role, nodes, settings, &[]).finish();
    all_well(&format!("{role}, {nodes} nodes, {settings:?}"), &outcome);
    outcome
}

/// Some of the scenarios have regions whose locks tell what was written.
const TOKENS: (&str, &str) = ("COMEM_LOCKS", "tokens");

/// Every detector with every shape, over both backbones; on a bad network every detector and every shape once. Where
/// writers meet in a unit, every detector with larger ones too, and every size of those.
fn suite(engine: &str) {
    let run = |detector, (nodes, threads): (usize, _), backbone, more: &[_]| {
        let place = [("COMEM_DETECTOR", detector), ("COMEM_THREADS", threads), ("COMEM_BACKBONE", backbone), TOKENS];
        job("suite", nodes, &[&[("COMEM_ENGINE", engine)][..], &place, more].concat());
    };
    // Jobs on a bad network mostly wait: they have time beside the others.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (detector, shape) in detectors().into_iter().cycle().zip(SHAPES) {
                run(detector, shape, "udp", &[(FAULTS, BAD_NETWORK)]);
            }
        });
        scope.spawn(|| run(detectors()[0], SHAPES[0], "shm", &[(FAULTS, BAD_NETWORK)]));
        for detector in detectors() {
            for (shape, backbone) in SHAPES.into_iter().zip(["udp", "shm", "udp"]) {
                run(detector, shape, backbone, &[]);
            }
        }
        let larger = if engine == "msi" { &[][..] } else { &UNITS };
        for ((detector, shape), unit) in detectors().into_iter().cycle().zip(SHAPES).zip(larger) {
            run(detector, shape, if *unit == "4" { "shm" } else { "udp" }, &[("COMEM_UNIT_PAGES", unit)]);
        }
    });
}

#[test]
fn the_suite_has_its_right_answers_under_hlrc() {
    suite("hlrc");
}

#[test]
fn the_suite_has_its_right_answers_under_scope() {
    suite("scope");
}

#[test]
fn the_suite_has_its_right_answers_under_lrc() {
    suite("lrc");
}

#[test]
fn the_suite_has_its_right_answers_under_multicast() {
    suite("multicast");
}

#[test]
fn the_suite_has_its_right_answers_under_msi() {
    suite("msi");
}

#[test]
fn the_suite_has_its_right_answers_in_a_job_of_one_node() {
    for engine in ["hlrc", "scope", "lrc", "multicast", "msi"] {
        job("suite", 1, &[("COMEM_ENGINE", engine), ("COMEM_THREADS", "3")]);
    }
}

/// Threads look into the socket of their node's first thread, for pages that come with barriers; what is to wake that
/// thread lies there too. Each barrier that it slept through took a second.
#[test]
fn a_thread_that_is_roused_in_its_socket_wakes() {
    for threads in ["2", "3"] {
        job("many barriers", 2, &[("COMEM_BACKBONE", "udp"), ("COMEM_THREADS", threads)]);
    }
}
