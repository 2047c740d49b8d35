//! Pages under `msi`, where accesses need two of them, where there are very many, where they are read in sequence, and
//! where they were freed.

use crate::matrix::{counted, detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::Comem;
use comem::heap::{Home, PageEngine, RegionOptions};
use comem_protocol::ids::NodeId;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "across" => across(comem),
        "sparse" => sparse(comem),
        "in-sequence" => in_sequence(comem),
        "scanned" => scanned(comem),
        _ => return false,
    }
    true
}

fn single(homes: Home) -> RegionOptions {
    RegionOptions { engine: Some(PageEngine::Msi), home: homes, ..RegionOptions::default() }
}

/// Stores of each node that span two pages.
const STORES: u64 = 40;

/// All nodes store to the same words, which lie across two pages.
fn across(comem: &Comem) {
    let slice = pages_of(comem, 2, &single(Home::Cyclic(1)));
    comem.parallel(|t| {
        t.barrier();
        for n in 0..STORES {
            t.checked_rendezvous().expect("all come");
            // SAFETY: within the slice. Threads of other nodes store there too, each with one instruction.
            unsafe { slice.as_ptr().byte_add(WORDS * 8 - 4).write_unaligned(n << 32 | n) };
        }
        t.barrier();
        let (low, high) = (slice.get(WORDS - 1) >> 32, slice.get(WORDS) & u64::from(u32::MAX));
        assert_eq!((low, high), (STORES - 1, STORES - 1));
        t.barrier();
    });
    give_back(comem, slice);
}

#[test]
fn accesses_across_two_pages_come_to_an_end_on_a_network_that_takes_longer_than_pages_are_held() {
    for (detector, nodes) in detectors().into_iter().cycle().zip([2, 3, 2]) {
        let settings = [("COMEM_BACKBONE", "udp"), ("COMEM_FAULTS", "delay=200us"), ("COMEM_THREADS", "1")];
        let outcome = job("across", nodes, &[&settings[..], &[("COMEM_DETECTOR", detector)]].concat());
        let faults = counted(&outcome, "write_faults");
        assert!(faults < 16 * nodes as u64 * STORES, "{detector}: {faults} faults");
    }
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("of memory too");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// Much is shared, a little of it used, and all of it declared read-only and freed.
fn sparse(comem: &Comem) {
    const PAGES: usize = 64 << 20;
    let before = resident();
    let slice = pages_of(comem, PAGES, &single(Home::Block));
    comem.parallel(|t| {
        let place = |n: usize| n * (PAGES / 8) * WORDS + 1;
        (0..8).filter(|n| n % t.threads() == t.id()).for_each(|n| slice.set(place(n), n as u64 + 1));
        t.barrier();
        (0..8).for_each(|n| assert_eq!(slice.get(place(n)), n as u64 + 1));
        t.barrier();
    });
    comem.freeze(slice.as_ptr().cast()).expect("it is a region");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB for 8 pages in use");
    give_back(comem, slice);
}

#[test]
fn of_a_region_under_msi_only_what_is_touched_costs_memory() {
    for detector in detectors() {
        job("sparse", 2, &[("COMEM_DETECTOR", detector)]);
    }
}

/// Pages that are read in sequence.
const SEQUENCE: usize = 400;

/// The last thread reads pages of node 0 in order, twice, and in between they are written there.
fn in_sequence(comem: &Comem) {
    let slice = pages_of(comem, SEQUENCE, &single(Home::On(NodeId(0))));
    comem.parallel(|t| {
        for value in 1..3 {
            if t.id() == 0 {
                (0..SEQUENCE).for_each(|page| slice.set(page * WORDS, value));
            }
            t.barrier();
            if t.id() + 1 == t.threads() {
                (0..SEQUENCE).for_each(|page| assert_eq!(slice.get(page * WORDS), value));
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

#[test]
fn pages_that_are_read_in_sequence_are_asked_for_together() {
    for (detector, backbone) in detectors().into_iter().flat_map(|d| [(d, "udp"), (d, "shm")]) {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
        let counts = |more: &[(&str, &str)]| {
            let outcome = job("in-sequence", 2, &[&settings[..], more].concat());
            ["read_faults", "pages_fetched"].map(|name| counted(&outcome, name))
        };
        // Each page twice, and none that is not read; and the home asks before it writes them again.
        let (read, fetched) = (2 * SEQUENCE as u64, 3 * SEQUENCE as u64);
        let run = counts(&[]);
        assert!(run[0] < 2 * (6 + SEQUENCE as u64 / 60) && run[1] == fetched, "{detector}, {backbone}: {run:?}");
        assert_eq!(counts(&[("COMEM_PREFETCH", "off")]), [read, fetched], "{detector}, {backbone}");
        // Copies have to go for others.
        let run = counts(&[("COMEM_CACHE", "512K")]);
        assert!(run[0] < read / 4, "{detector}, {backbone}, small cache: {run:?}");
    }
}

/// Rounds of stores, and pages that are stored to and read.
const ROUNDS: u64 = 30;
const SCANNED: usize = 64;

/// Thread 0 stores the number of each round to one page after the other; all others read them in sequence, up and down,
/// without any synchronisation.
fn scanned(comem: &Comem) {
    let slice = pages_of(comem, SCANNED, &single(Home::Cyclic(3)));
    comem.parallel(|t| {
        t.barrier();
        if t.id() == 0 {
            (1..=ROUNDS).for_each(|round| (0..SCANNED).for_each(|page| slice.set(page * WORDS, round)));
        } else {
            let read = |page: usize| slice.get(page * WORDS);
            let mut before = 0;
            while before < ROUNDS {
                before = 0;
                for page in 0..SCANNED {
                    let now = read(page);
                    assert!(now + 1 >= before, "page {page}: {now}, the one before had {before} earlier");
                    before = now;
                }
                for page in (0..SCANNED - 1).rev() {
                    let now = read(page);
                    assert!(now >= before, "page {page}: {now}, the one behind had {before} earlier");
                    before = now;
                }
                before = read(SCANNED - 1);
            }
        }
        t.barrier();
    });
    give_back(comem, slice);
}

#[test]
fn what_is_fetched_ahead_is_no_older_than_what_was_read_before() {
    for detector in detectors() {
        for (backbone, nodes, more) in [
            ("udp", 3, ("COMEM_FAULTS", "reorder=5%,delay=50us")),
            ("udp", 2, ("COMEM_CACHE", "256K")),
            ("shm", 3, ("COMEM_UNIT_PAGES", "2")),
        ] {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "2"), more];
            job("scanned", nodes, &settings);
        }
    }
}
