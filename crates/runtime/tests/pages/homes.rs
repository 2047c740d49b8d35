//! How many homes may come to a node beside what it may hold copies of.

use crate::limits::file_bytes;
use crate::matrix::{counted, detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, RegionOptions};
use comem::{Comem, FlagId, NodeId};

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "set-up-in-turns" => set_up_in_turns(comem),
        "set-up-at-once" => set_up_at_once(comem),
        "exchanged" => exchanged(comem),
        "placed-first" => placed_first(comem),
        "freed-unmet" => freed_unmet(comem),
        _ => return false,
    }
    true
}

/// As many pages may a node hold copies of that has this cache.
const CACHE_PAGES: usize = 256;
const SMALL_CACHE: (&str, &str) = ("COMEM_CACHE", "1M");

/// Node 0 writes everything, a part in each epoch, and holds what it has written when that ends.
fn set_up_in_turns(comem: &Comem) {
    const PARTS: usize = 16;
    const PART: usize = 256;
    let options = RegionOptions { home: Home::StartingOn(NodeId(1)), ..RegionOptions::default() };
    let slice = pages_of(comem, PARTS * PART, &options);
    comem.parallel(|t| {
        for part in 0..PARTS {
            if t.node() == NodeId(0) {
                (part * PART..(part + 1) * PART).for_each(|page| slice.set(page * WORDS, page as u64 + 1));
            }
            t.barrier();
        }
        (0..PARTS * PART).for_each(|page| assert_eq!(slice.get(page * WORDS), page as u64 + 1));
        t.barrier();
    });
    give_back(comem, slice);
}

/// Node 0 is the first to touch anything, twice after another, and has to leave most of it to the node whose share it
/// is.
fn set_up_at_once(comem: &Comem) {
    let pages = 4096;
    for _ in 0..2 {
        let slice = pages_of(comem, pages, &RegionOptions { home: Home::Automatic, ..RegionOptions::default() });
        comem.parallel(|t| {
            if t.node() == NodeId(0) {
                (0..pages).for_each(|page| slice.set(page * WORDS, page as u64 + 1));
            }
            t.barrier();
            let (own, cache) = ((pages / comem.nodes() * 4096) as u64, 1 << 20);
            let (most, slack) = (2 * (own + 2 * cache), 6 << 20);
            assert!(file_bytes() < most + slack, "{} bytes of memory files, not {most}", file_bytes());
            (0..pages).for_each(|page| assert_eq!(slice.get(page * WORDS), page as u64 + 1));
            t.barrier();
        });
        give_back(comem, slice);
    }
}

/// Each of two nodes touches every other page, a few between two barriers: it gets as many pages of the other's share
/// as the other of its.
fn exchanged(comem: &Comem) {
    let (steps, each) = (24, 64);
    let slice = pages_of(comem, steps * each, &RegionOptions { home: Home::Automatic, ..RegionOptions::default() });
    comem.parallel(|t| {
        for step in 0..steps / 2 {
            // Some of each node's share.
            for part in [step, steps / 2 + step] {
                let pages = (part * each..(part + 1) * each).filter(|page| page % 2 == t.node().index());
                pages.for_each(|page| slice.set(page * WORDS, page as u64 + 1));
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// Node 0 touches first what is placed so, many times its cache, and then reads a few pages of node 1 again and again.
fn placed_first(comem: &Comem) {
    let vast = RegionOptions { home: Home::FirstTouch, ..RegionOptions::default() };
    let vast = pages_of(comem, 8 * CACHE_PAGES, &vast);
    let few = RegionOptions { home: Home::On(NodeId(1)), ..RegionOptions::default() };
    let few = pages_of(comem, CACHE_PAGES / 4, &few);
    comem.parallel(|t| {
        if t.node() == NodeId(0) {
            (0..8 * CACHE_PAGES).for_each(|page| vast.set(page * WORDS, 1));
        } else {
            (0..CACHE_PAGES / 4).for_each(|page| few.set(page * WORDS, page as u64));
        }
        t.barrier();
        for _ in 0..4 {
            (0..CACHE_PAGES / 4).for_each(|page| assert_eq!(few.get(page * WORDS), page as u64));
        }
        t.barrier();
    });
    [vast, few].into_iter().for_each(|slice| give_back(comem, slice));
}

/// Node 1 claims pages of node 0's share without a word, node 2 alone writes them in the next epoch, and node 0 frees
/// the region in that epoch without having had anything to do with it. Then node 0 sets up memory of which two thirds
/// are other nodes' shares.
fn freed_unmet(comem: &Comem) {
    let automatic = RegionOptions { home: Home::Automatic, ..RegionOptions::default() };
    for round in 0..8 {
        let slice = pages_of(comem, 3 * CACHE_PAGES, &automatic);
        let write = |word: usize| (0..CACHE_PAGES / 4).for_each(|page| slice.set(page * WORDS + word, 1));
        comem.parallel(|t| {
            if t.node() == NodeId(1) {
                write(0);
            }
            t.barrier();
            match t.node().0 {
                2 => {
                    write(1);
                    t.flag_set(FlagId(round), 1);
                }
                0 => {
                    t.flag_wait(FlagId(round), 1);
                }
                _ => {}
            }
        });
        let free = || comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        if comem.node() == 0 {
            free();
        }
        comem.parallel(|t| t.barrier());
        if comem.node() != 0 {
            free();
        }
        comem.parallel(|t| t.barrier());
    }
    let slice = pages_of(comem, 12 * CACHE_PAGES, &automatic);
    comem.parallel(|t| {
        if t.node() == NodeId(0) {
            (0..12 * CACHE_PAGES).for_each(|page| slice.set(page * WORDS, 1));
        }
        t.barrier();
    });
    give_back(comem, slice);
}

#[test]
fn homes_come_only_as_long_as_there_is_room() {
    for (detector, backbone) in detectors().into_iter().zip(["udp", "shm"].into_iter().cycle()) {
        let settings = [("COMEM_CACHE", "1M"), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
        let outcome = job("set-up-in-turns", 2, &[&settings[..], &[("COMEM_THREADS", "1")]].concat());
        let moved = counted(&outcome, "migrations");
        assert!((256..=512).contains(&moved), "{detector} {backbone}: {moved} of 4096 pages");
        // Of what node 0 writes in an epoch it holds some when that ends.
        let kept = counted(&outcome, "no_room");
        assert!((14..=4096).contains(&kept), "{detector} {backbone}: {kept} pages stayed for want of room");
        let outcome = job("set-up-at-once", 2, &settings);
        let claimed = counted(&outcome, "claimed");
        assert!((256..=2 * 512).contains(&claimed), "{detector} {backbone}: {claimed} pages claimed");
    }
}

#[test]
fn nodes_that_exchange_equal_parts_of_their_shares_go_on_claiming() {
    for (detector, backbone) in detectors().into_iter().flat_map(|d| [(d, "udp"), (d, "shm")]) {
        let settings = [SMALL_CACHE, ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
        let outcome =
            job("exchanged", 2, &[&settings[..], &[("COMEM_THREADS", "1"), ("COMEM_PREFETCH", "off")]].concat());
        let counts = ["claimed", "pages_fetched", "evictions"].map(|name| counted(&outcome, name));
        assert_eq!(counts, [768, 0, 0], "{detector}, {backbone}");
    }
}

#[test]
fn memory_placed_by_first_touch_leaves_the_cache_alone() {
    for backbone in ["udp", "shm"] {
        let settings = [SMALL_CACHE, ("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
        let outcome = job("placed-first", 2, &settings);
        let counts = ["claimed", "pages_fetched", "evictions"].map(|name| counted(&outcome, name));
        assert_eq!(counts, [4 * CACHE_PAGES as u64, CACHE_PAGES as u64 / 4, 0], "{backbone}");
    }
}

#[test]
fn a_region_that_was_freed_before_this_node_met_it_makes_no_room() {
    for backbone in ["udp", "shm"] {
        let settings = [SMALL_CACHE, ("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
        let outcome = job("freed-unmet", 3, &settings);
        let claimed = outcome.stats[&0]["pages"]["claimed"].as_u64().unwrap_or(0) as usize;
        // A fetch may claim up to 60 pages.
        assert!((CACHE_PAGES..CACHE_PAGES + 60).contains(&claimed), "{backbone}: {claimed} pages claimed");
    }
}
