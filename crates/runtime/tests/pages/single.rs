//! Pages under `msi`, where accesses need two of them, where there are very many, and where they were freed.

use crate::matrix::{counted, detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::Comem;
use comem::heap::{Homes, PageEngine, RegionOptions};

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "across" => across(comem),
        "sparse" => sparse(comem),
        _ => return false,
    }
    true
}

fn single(homes: Homes) -> RegionOptions {
    RegionOptions { engine: Some(PageEngine::Msi), homes, ..RegionOptions::default() }
}

/// Stores of each node that span two pages.
const STORES: u64 = 40;

/// All nodes store to the same words, which lie across two pages.
fn across(comem: &Comem) {
    let slice = pages_of(comem, 2, &single(Homes::Cyclic(1)));
    comem.run(|t| {
        t.barrier();
        for n in 0..STORES {
            t.try_rendezvous().expect("all come");
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
    let slice = pages_of(comem, PAGES, &single(Homes::Block));
    comem.run(|t| {
        let place = |n: usize| n * (PAGES / 8) * WORDS + 1;
        (0..8).filter(|n| n % t.count() == t.id()).for_each(|n| slice.set(place(n), n as u64 + 1));
        t.barrier();
        (0..8).for_each(|n| assert_eq!(slice.get(place(n)), n as u64 + 1));
        t.barrier();
    });
    comem.readonly(slice.as_ptr().cast()).expect("it is a region");
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
