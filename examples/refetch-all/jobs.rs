//! `refetch-all` in jobs of real processes: what it costs, exactly, and the suite of the other engines under it. This
//! file is a module of `crates/runtime/tests/pages/main.rs`.

use crate::counts::{costs, steps};
use crate::matrix::{detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, LockId, NodeId};

const PAGES: usize = 6;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "pages-after-barriers" => after_barriers(comem),
        "pages-after-locks" => after_locks(comem),
        _ => return false,
    }
    true
}

fn at_node_0(comem: &Comem) -> PageSlice<u64> {
    pages_of(comem, PAGES, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() })
}

fn read_all(slice: &PageSlice<u64>) {
    (0..PAGES).for_each(|page| assert_eq!(slice.get(page * WORDS), 0));
}

/// Node 1 reads pages of node 0 after each barrier; nobody writes them.
fn after_barriers(comem: &Comem) {
    let slice = at_node_0(comem);
    comem.parallel(|t| {
        for _ in 0..steps() {
            t.barrier();
            if t.node() == NodeId(1) {
                read_all(&slice);
            }
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// Node 1 reads pages of node 0 under a lock that node 0 had before; nobody writes them. A rendezvous is no acquire.
fn after_locks(comem: &Comem) {
    let slice = at_node_0(comem);
    comem.parallel(|t| {
        for _ in 0..steps() {
            for turn in 0..2 {
                if t.node() == NodeId(turn) {
                    t.locked(LockId(1), || read_all(&slice));
                }
                t.rendezvous();
            }
        }
        t.barrier();
    });
    give_back(comem, slice);
}

#[test]
fn each_acquire_costs_a_fetch_of_each_page_that_is_used_after_it_under_refetch_all() {
    for detector in detectors() {
        for backbone in ["udp", "shm"] {
            for (engine, each) in [("hlrc", 0), ("refetch-all", PAGES as u64)] {
                let settings = [
                    ("COMEM_ENGINE", engine),
                    ("COMEM_DETECTOR", detector),
                    ("COMEM_BACKBONE", backbone),
                    // Else pages come with others, too, that may not be used.
                    ("COMEM_PREFETCH", "off"),
                ];
                costs("pages-after-barriers", 2, &settings, &[("pages_fetched", each)]);
                costs("pages-after-locks", 2, &settings, &[("pages_fetched", each)]);
            }
        }
    }
}

#[test]
fn the_suite_has_its_right_answers_under_refetch_all() {
    for detector in detectors() {
        for backbone in ["udp", "shm"] {
            let settings = [
                ("COMEM_ENGINE", "refetch-all"),
                ("COMEM_DETECTOR", detector),
                ("COMEM_BACKBONE", backbone),
                ("COMEM_THREADS", "2"),
                ("COMEM_LOCKS", "tokens"),
            ];
            job("suite", 2, &settings);
        }
    }
}
