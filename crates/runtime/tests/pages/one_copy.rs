//! The engine `hardware`: the suite of the other engines, that nothing is noticed or sent for its pages, and what only
//! it has: one memory for all nodes of a host.

use crate::launcher::start;
use crate::matrix::{all_well, counted, job};
use crate::placement::{WORDS, give_back, pages_of};
use crate::wrong::{dies, ends};
use comem::heap::{PageEngine, PageSlice, RegionOptions};
use comem::{Comem, FlagId, LockId, NodeId};
use std::sync::atomic::{AtomicU64, Ordering};

const HARDWARE: (&str, &str) = ("COMEM_ENGINE", "hardware");
/// Some roles have regions whose locks tell what was written.
const TOKENS: (&str, &str) = ("COMEM_LOCKS", "tokens");
const PAGES: usize = 40;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "one-copy-of-all" => one_copy_of_all(comem),
        "atomics-of-the-processor" => atomics_of_the_processor(comem),
        "freed-one-after-the-other" => freed_one_after_the_other(comem),
        "one-copy-beside-hlrc" => beside_hlrc(comem),
        "one-copy-refused" => refused(comem),
        "one-copy-instead-of-hlrc" => instead_of_hlrc(comem),
        _ => return false,
    }
    true
}

/// What programs do with shared memory: parts written and read by others behind barriers, locks and flags; small
/// blocks; a region that is freed.
fn one_copy_of_all(comem: &Comem) {
    let slice = pages_of(comem, PAGES, &RegionOptions::default());
    let block = comem.page_slice::<u64>(8, &RegionOptions::default()).expect("there is room");
    comem.parallel(|t| {
        for round in 1..=5 {
            let next = (t.id() + 1) % t.threads();
            (0..PAGES).for_each(|page| slice.set(page * WORDS + t.id(), round + t.id() as u64));
            t.barrier();
            (0..PAGES).for_each(|page| assert_eq!(slice.get(page * WORDS + next), round + next as u64));
            t.barrier();
            t.locked(LockId(1), || block.set(3, block.get(3) + 1));
        }
        if t.id() == 0 {
            slice.set(WORDS - 1, 77);
            t.flag_set(FlagId(3), 1);
        }
        t.flag_wait(FlagId(3), 1);
        assert_eq!(slice.get(WORDS - 1), 77);
        t.barrier();
        assert_eq!(block.get(3), 5 * t.threads() as u64);
        t.barrier();
    });
    give_back(comem, slice);
}

fn word(slice: &PageSlice<u64>, index: usize) -> &AtomicU64 {
    assert!(index < slice.len());
    // SAFETY: an aligned word of the slice, which these tests use by atomic instructions alone.
    unsafe { AtomicU64::from_ptr(slice.as_ptr().add(index)) }
}

/// The processor's own instructions act between nodes: counters, and a lock that spins on a plain word.
fn atomics_of_the_processor(comem: &Comem) {
    const ADDS: u64 = 20_000;
    let slice = pages_of(comem, 1, &RegionOptions::default());
    comem.parallel(|t| {
        (0..ADDS).for_each(|_| _ = word(&slice, 0).fetch_add(1, Ordering::Relaxed));
        for _ in 0..200 {
            while word(&slice, 1).swap(1, Ordering::Acquire) != 0 {
                std::thread::yield_now();
            }
            let held = word(&slice, 2).load(Ordering::Relaxed);
            word(&slice, 2).store(held + 1, Ordering::Relaxed);
            word(&slice, 1).store(0, Ordering::Release);
        }
        slice.fetch_add_relaxed(t, 3, 2);
        // Each waits for all others on a plain word.
        word(&slice, 4).fetch_add(1, Ordering::AcqRel);
        while word(&slice, 4).load(Ordering::Acquire) < t.threads() as u64 {
            std::thread::yield_now();
        }
        let all = t.threads() as u64;
        let found = [0, 2, 3].map(|index| word(&slice, index).load(Ordering::Relaxed));
        assert_eq!(found, [all * ADDS, all * 200, all * 2]);
        t.barrier();
    });
    give_back(comem, slice);
}

/// What all have allocated is there for each until it frees it itself, and new when it is allocated again.
fn freed_one_after_the_other(comem: &Comem) {
    let nodes = comem.nodes();
    for round in 0..3 {
        let slice = pages_of(comem, PAGES, &RegionOptions::default());
        comem.parallel(|t| {
            t.split(slice.len()).for_each(|index| {
                assert_eq!(slice.get(index), 0, "new memory is zero");
                slice.set(index, index as u64 + round);
            });
            t.barrier();
        });
        for turn in 0..nodes {
            if comem.node() == turn {
                (0..slice.len()).for_each(|index| assert_eq!(slice.get(index), index as u64 + round));
                comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
            }
            comem.parallel(|t| t.barrier());
        }
        // What one node allocates, another one frees.
        let own = pages_of(comem, 1, &RegionOptions::default());
        if comem.node() == 0 {
            let block = comem.alloc(100_000, &RegionOptions::default()).expect("there is room");
            own.set(0, block.expose_provenance() as u64);
        }
        comem.parallel(|t| t.barrier());
        let block: *mut u64 = std::ptr::with_exposed_provenance_mut(own.get(0) as usize);
        // SAFETY: words of the block of 100,000 bytes, each of another node.
        unsafe {
            assert_eq!(block.add(comem.node()).read_volatile(), 0, "new memory is zero");
            block.add(comem.node()).write_volatile(1);
        }
        comem.parallel(|t| t.barrier());
        if comem.node() == nodes - 1 {
            comem.free(block.cast()).expect("a block can be freed by any node");
        }
        give_back(comem, own);
    }
}

/// A region under `hlrc` keeps copies, in a job whose other memory has none.
fn beside_hlrc(comem: &Comem) {
    let copies = RegionOptions { engine: Some(PageEngine::Hlrc), ..RegionOptions::default() };
    let (one, other) = (pages_of(comem, 2, &RegionOptions::default()), pages_of(comem, 2, &copies));
    assert_eq!(comem.engine_of(one.as_ptr().cast()).unwrap(), Some(PageEngine::Hardware));
    assert_eq!(comem.engine_of(other.as_ptr().cast()).unwrap(), Some(PageEngine::Hlrc));
    comem.parallel(|t| {
        for _ in 0..50 {
            t.locked(LockId(4), || [&one, &other].iter().for_each(|slice| slice.set(0, slice.get(0) + 1)));
        }
        t.barrier();
        assert_eq!([&one, &other].map(|slice| slice.get(0)), [50 * t.threads() as u64; 2]);
        t.barrier();
    });
    give_back(comem, one);
    give_back(comem, other);
}

#[test]
fn the_suite_has_its_right_answers_under_hardware() {
    for (nodes, threads, backbone) in [(2, "2", "udp"), (3, "1", "shm"), (4, "2", "shm"), (2, "1", "udp")] {
        let place = [HARDWARE, TOKENS, ("COMEM_THREADS", threads), ("COMEM_BACKBONE", backbone)];
        job("suite", nodes, &place);
    }
    let bad = [HARDWARE, TOKENS, ("COMEM_BACKBONE", "udp"), ("COMEM_FAULTS", "drop=5%,dup=5%,reorder=5%,seed=17")];
    job("suite", 2, &bad);
    job("suite", 1, &[HARDWARE, ("COMEM_THREADS", "3")]);
}

/// Over both backbones, with locks as tokens and as words.
#[test]
fn no_signal_page_request_diff_or_notice_is_there_for_memory_of_one_copy() {
    for (nodes, threads, more) in [
        (2, "1", &[("COMEM_BACKBONE", "shm")][..]),
        (3, "2", &[("COMEM_BACKBONE", "shm"), TOKENS]),
        (2, "2", &[("COMEM_BACKBONE", "udp")]),
    ] {
        let outcome = job("one-copy-of-all", nodes, &[&[HARDWARE, ("COMEM_THREADS", threads)], more].concat());
        for name in [
            "signals",
            "read_faults",
            "write_faults",
            "page_requests",
            "pages_fetched",
            "pages_prefetched",
            "pages_taken",
            "pages_pushed",
            "diffs_sent",
            "diff_bytes",
            "diffs_applied",
            "twins_made",
            "write_notices",
            "invalidations",
            "evictions",
            "atomics_sent",
        ] {
            assert_eq!(counted(&outcome, name), 0, "{name}, {nodes} nodes, {more:?}");
        }
        for stats in outcome.stats.values() {
            assert_eq!((&stats["page_engine"], &stats["detector"]), (&"hardware".into(), &"none".into()), "{stats}");
            assert!(stats["regions"].as_array().is_some_and(|all| all.iter().all(|r| r["engine"] == "hardware")));
        }
    }
}

#[test]
fn the_processors_atomics_act_between_nodes() {
    for backbone in ["shm", "udp"] {
        job("atomics-of-the-processor", 3, &[HARDWARE, ("COMEM_BACKBONE", backbone)]);
    }
}

#[test]
fn memory_of_one_copy_goes_when_its_last_node_has_freed_it_and_is_new_afterwards() {
    for (nodes, backbone) in [(2, "shm"), (3, "udp")] {
        job("freed-one-after-the-other", nodes, &[HARDWARE, ("COMEM_BACKBONE", backbone)]);
    }
}

#[test]
fn addresses_of_memory_of_one_copy_are_used_again() {
    for (role, nodes, backbone) in [("again", 2, "shm"), ("own-again", 3, "shm"), ("again", 3, "udp")] {
        job(role, nodes, &[HARDWARE, ("COMEM_HEAP", "256M"), ("COMEM_BACKBONE", backbone)]);
    }
}

/// Global variables are shown where the linker put them, and node 0 keeps them behind the end.
#[test]
fn global_variables_of_one_copy_are_node_0s_at_the_end() {
    job("last-writes", 2, &[HARDWARE, ("COMEM_BACKBONE", "shm")]);
}

#[test]
fn a_region_may_keep_copies_beside_memory_of_one_copy() {
    let outcome = job("one-copy-beside-hlrc", 2, &[HARDWARE, TOKENS, ("COMEM_BACKBONE", "shm")]);
    assert!(counted(&outcome, "write_notices") > 0);
    let detectors: Vec<&str> = outcome.stats.values().filter_map(|stats| stats["detector"].as_str()).collect();
    assert!(detectors.len() == 2 && !detectors.contains(&"none"), "{detectors:?}");
}

#[test]
fn wrong_accesses_to_memory_of_one_copy_are_named_and_kill() {
    let beyond = "which is 8 bytes beyond the end of table (16384 bytes); check the pointer or index";
    let outcome = dies("beyond", &[HARDWARE], libc::SIGSEGV, beyond);
    assert_eq!(outcome.errors[1].matches(beyond).count(), 1, "it is said once");
    dies("freed", &[HARDWARE], libc::SIGSEGV, "which is 4096 bytes into table, which was freed");
    let (how, outcome) = ends("write-read-only", &[HARDWARE]);
    let text = format!("{:?}{:?}", outcome.errors[1], outcome.failures);
    assert!(text.contains("the program wrote to table, which it had declared read-only"), "{text}");
    assert_eq!(how[1], (Some(2), None), "{text}");
}

#[test]
fn where_a_system_forbids_foreign_files_the_engine_is_refused_if_it_was_named() {
    let settings = [HARDWARE, ("COMEM_BACKBONE", "udp"), ("COMEM_TEST_FORBID", "foreign-files")];
    let outcome = start("one-copy-of-all", 2, &settings, &[]).finish();
    assert!(outcome.statuses.iter().all(|status| *status != Some(0)), "{outcome:#?}");
    let said = outcome.errors.concat() + &outcome.failures.values().cloned().collect::<String>();
    assert!(said.contains("the engine hardware has all nodes map one memory, and this node cannot"), "{said}");
    assert!(said.contains("and node 1 (host ") && said.contains(") cannot; take another engine"), "{said}");
}

/// Nobody names an engine.
const UNNAMED: (&str, &str) = ("COMEM_ENGINE", "");

#[test]
fn nodes_of_one_host_have_one_memory_unless_something_asks_for_a_protocol() {
    for (more, engine) in
        [(&[][..], "hardware"), (&[("COMEM_CACHE", "1M")], "hlrc"), (&[("COMEM_BACKBONE", "udp")], "hlrc")]
    {
        let outcome = job("one-copy-of-all", 2, &[&[UNNAMED, ("COMEM_VERBOSE", "on")][..], more].concat());
        assert!(outcome.stats.values().all(|stats| stats["page_engine"] == engine), "{more:?}: {outcome:#?}");
        assert!(outcome.errors[0].contains(&format!("comem: pages {engine} (")), "{more:?}: {outcome:#?}");
    }
}

#[test]
fn where_a_system_forbids_foreign_files_nodes_keep_copies_and_one_line_says_so() {
    let settings = [UNNAMED, ("COMEM_BACKBONE", "shm"), ("COMEM_TEST_FORBID", "foreign-files")];
    let outcome = start("one-copy-of-all", 2, &settings, &[]).finish();
    all_well("one-copy-of-all", &outcome);
    let said: Vec<&str> =
        outcome.errors.iter().flat_map(|errors| errors.lines()).filter(|l| l.contains("comem: ")).collect();
    assert!(said.len() == 1 && said[0].contains("the nodes cannot map one memory"), "{said:?}");
    assert!(said[0].contains("pages are kept coherent by hlrc, which is slower"), "{said:?}");
    assert!(outcome.stats.values().all(|stats| stats["page_engine"] == "hlrc"), "{outcome:#?}");
}

/// Locks are words there, which tell nothing.
#[test]
fn a_region_that_names_hlrc_gives_way_to_one_memory_that_nobody_asked_for_and_one_line_says_so() {
    let outcome = job("one-copy-instead-of-hlrc", 2, &[UNNAMED]);
    let said: Vec<&str> =
        outcome.errors.iter().flat_map(|errors| errors.lines()).filter(|l| l.contains("comem: ")).collect();
    assert!(said.len() == 1 && said[0].contains("names the engine hlrc is under hardware"), "{said:?}");
    job("one-copy-beside-hlrc", 2, &[UNNAMED, TOKENS]);
}

/// A region that names `hlrc`.
fn instead_of_hlrc(comem: &Comem) {
    let options = RegionOptions { engine: Some(PageEngine::Hlrc), ..RegionOptions::default() };
    let slice = pages_of(comem, 2, &options);
    assert_eq!(comem.engine_of(slice.as_ptr().cast()).unwrap(), Some(PageEngine::Hardware));
    comem.parallel(|t| {
        (0..50).for_each(|_| t.locked(LockId(4), || slice.set(0, slice.get(0) + 1)));
        t.barrier();
        assert_eq!(slice.get(0), 50 * t.threads() as u64);
        t.barrier();
    });
    give_back(comem, slice);
}

#[test]
fn what_names_the_engine_in_a_job_without_such_memory_is_told_how_to_start_it() {
    all_well("one-copy-refused", &start("one-copy-refused", 2, &[("COMEM_ENGINE", "hlrc")], &[]).finish());
}

/// Asks for a region under `hardware` in a job under `hlrc`.
fn refused(comem: &Comem) {
    let options = RegionOptions { engine: Some(PageEngine::Hardware), ..RegionOptions::default() };
    let error = comem.alloc(10_000, &options).expect_err("there is no such memory");
    let text = comem.sentence(&error);
    assert!(text.contains("start it on one host with --engine hardware"), "{text}");
    comem.parallel(|t| assert!(t.node() < NodeId(2)));
}
