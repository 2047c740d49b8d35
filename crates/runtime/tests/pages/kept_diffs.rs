//! Pages under `lrc`, whose diffs stay with their writers: exact numbers of messages, how large stores become,
//! collections, and regions under other engines beside them.

use crate::counts::steps;
use crate::matrix::{counted, detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, PageEngine, RegionOptions};
use comem::{Comem, LockId, NodeId, SemaphoreId};

const LRC: (&str, &str) = ("COMEM_ENGINE", "lrc");
const UDP: (&str, &str) = ("COMEM_BACKBONE", "udp");

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "figure-three" => figure_three(comem),
        "all-to-all" => all_to_all(comem),
        "kept-rounds" => kept_rounds(comem),
        "kept-beside-others" => beside_others(comem),
        _ => return false,
    }
    true
}

/// Brazos, Figure 3: three nodes write words of a page that a fourth has used, and each reads another's word if there
/// are steps.
fn figure_three(comem: &Comem) {
    let slice = pages_of(comem, 1, &RegionOptions { home: Home::On(NodeId(3)), ..RegionOptions::default() });
    comem.parallel(|t| {
        let me = t.node().index();
        if me < 3 {
            slice.set(me, 5 + me as u64);
        } else {
            assert_eq!(slice.get(3), 0);
        }
        t.barrier();
        if me < 3 && steps() > 0 {
            let other = (me + 1) % 3;
            assert_eq!(slice.get(other), 5 + other as u64);
        }
        t.barrier();
    });
}

/// Every node writes a word of one page, and reads another's.
fn all_to_all(comem: &Comem) {
    let slice = pages_of(comem, 1, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    comem.parallel(|t| {
        slice.set(t.id(), 5 + t.id() as u64);
        t.barrier();
        let other = (t.id() + 1) % t.threads();
        assert_eq!(slice.get(other), 5 + other as u64);
        t.barrier();
    });
}

#[test]
fn figure_three_takes_twelve_messages() {
    let run = |steps| job("figure-three", 4, &[LRC, UDP, ("COMEM_TEST_STEPS", steps)]);
    // What was repeated on a busy machine does not count.
    let least = |steps| {
        let messages = (0..3).map(|_| counted(&run(steps), "messages_sent")).min();
        messages.expect("three runs")
    };
    assert_eq!(least("1") - least("0"), 12);
    for detector in detectors() {
        let outcome = job("figure-three", 4, &[LRC, UDP, ("COMEM_TEST_STEPS", "1"), ("COMEM_DETECTOR", detector)]);
        let [requests, bases] = ["page_requests", "bases_fetched"].map(|name| counted(&outcome, name));
        assert_eq!((requests, bases), (6, 0), "{detector}: each is answered once");
    }
}

#[test]
fn a_round_of_n_writers_and_readers_takes_twice_n_times_n_less_one_messages() {
    for (nodes, requests) in [(2, 2), (4, 12), (8, 56)] {
        let outcome = job("all-to-all", nodes, &[LRC, UDP]);
        assert_eq!(counted(&outcome, "page_requests"), requests, "{nodes} nodes; each is answered once");
    }
}

/// Pages with counters, each under a lock of its own.
const COUNTERS: usize = 4;

/// Rounds of a thread until the other one has its turn.
const TURN: usize = 10;

/// So many rounds in all, each with a lock, and no barrier. With `COMEM_LONG_TESTS` a million.
fn rounds() -> usize {
    if std::env::var_os("COMEM_LONG_TESTS").is_some() { 1_000_000 } else { 3_000 }
}

/// Whole pages are written once, and then counters in them, under locks that go from node to node: each thread waits
/// for its turn.
fn kept_rounds(comem: &Comem) {
    // SAFETY: asks for a signal, no more.
    unsafe { libc::alarm(3600) };
    let slice = pages_of(comem, COUNTERS, &RegionOptions { home: Home::Cyclic(1), ..RegionOptions::default() });
    comem.parallel(|t| {
        if t.id() == 0 {
            (0..slice.len()).for_each(|at| slice.set(at, 1 << 40));
        }
        t.barrier();
        let turn = |id: usize| SemaphoreId(320 + (id % t.threads()) as u64);
        let mine = rounds() / t.threads();
        for round in 0..mine {
            let (begins, ends) = (round % TURN == 0, (round + 1) % TURN == 0);
            if begins && (round > 0 || t.id() > 0) {
                t.sem_wait(turn(t.id()));
            }
            let which = round % COUNTERS;
            let at = which * WORDS + 77;
            t.locked(LockId(300 + which as u64), || slice.set(at, slice.get(at) + 1));
            if ends {
                t.sem_post(turn(t.id() + 1));
            }
        }
        if t.id() == 0 {
            t.sem_wait(turn(0));
        }
        t.barrier();
        let sum: u64 = (0..COUNTERS).map(|which| slice.get(which * WORDS + 77)).sum();
        assert_eq!(sum, ((COUNTERS as u64) << 40) + (mine * t.threads()) as u64);
        t.barrier();
    });
}

#[test]
fn stores_take_no_more_than_a_page_and_a_third_for_each_page_written_however_many_critical_sections() {
    let outcome = job("kept-rounds", 2, &[LRC, UDP]);
    for stats in outcome.stats.values() {
        let kept = stats["pages"]["diff_store_bytes"].as_u64().expect("a number");
        assert!(kept > 0 && kept * 10 <= (13 * COUNTERS * WORDS * 8) as u64, "{kept} bytes");
    }
    let diffs = counted(&outcome, "diffs_sent");
    assert!(diffs > 50 * COUNTERS as u64, "{diffs} diffs; locks have hardly moved");
    assert_eq!(counted(&outcome, "gc_rounds"), 0);
}

/// Regions under every engine of pages: counters under one lock, and words of all threads side by side in pages.
fn beside_others(comem: &Comem) {
    const ROUNDS: u64 = 12;
    let engines = [PageEngine::Lrc, PageEngine::Multicast, PageEngine::Hlrc, PageEngine::Scope, PageEngine::Msi];
    let of = |engine| pages_of(comem, 3, &RegionOptions { engine: Some(engine), ..RegionOptions::default() });
    let regions = engines.map(of);
    comem.parallel(|t| {
        let words = |id: usize| (0..3).map(move |page| page * WORDS + 1 + id);
        for round in 1..=ROUNDS {
            for region in &regions {
                words(t.id()).for_each(|at| region.set(at, round * 100 + t.id() as u64));
            }
            t.locked(LockId(310), || regions.iter().for_each(|region| region.set(0, region.get(0) + 1)));
            t.barrier();
            for (region, engine) in regions.iter().zip(engines) {
                for id in 0..t.threads() {
                    let right = words(id).all(|at| region.get(at) == round * 100 + id as u64);
                    assert!(right, "{engine}, round {round}: words of thread {id}");
                }
                assert_eq!(region.get(0), round * t.threads() as u64, "{engine}, round {round}");
            }
            t.barrier();
        }
    });
    regions.into_iter().for_each(|region| give_back(comem, region));
}

#[test]
fn regions_live_beside_regions_under_other_engines_in_one_job() {
    let engines = ["hlrc", "lrc", "multicast", "scope"].into_iter().zip(["udp", "shm", "udp", "shm"]);
    for ((engine, backbone), detector) in engines.zip(detectors().into_iter().cycle()) {
        let place = [("COMEM_ENGINE", engine), ("COMEM_BACKBONE", backbone), ("COMEM_DETECTOR", detector)];
        for diffs in ["1", "1G"] {
            let more = [("COMEM_THREADS", "2"), ("COMEM_LOCKS", "tokens"), ("COMEM_DIFFS", diffs)];
            let outcome = job("kept-beside-others", 3, &[&place[..], &more].concat());
            assert_eq!(counted(&outcome, "gc_rounds") > 0, diffs == "1", "{engine}");
        }
    }
}

#[test]
fn the_suite_has_its_right_answers_where_diffs_are_collected_at_every_barrier() {
    let shapes = [("lrc", 3, "1", "udp"), ("lrc", 2, "2", "shm"), ("multicast", 3, "1", "udp")];
    for (engine, nodes, threads, backbone) in shapes {
        let place = [("COMEM_THREADS", threads), ("COMEM_BACKBONE", backbone), ("COMEM_LOCKS", "tokens")];
        let kept = [("COMEM_ENGINE", engine), ("COMEM_DIFFS", "1")];
        let outcome = job("suite", nodes, &[&kept[..], &place].concat());
        let [rounds, bases] = ["gc_rounds", "bases_fetched"].map(|name| counted(&outcome, name));
        assert!(rounds > 0 && bases > 0, "{engine}: {rounds} collections, {bases} bases");
    }
}
