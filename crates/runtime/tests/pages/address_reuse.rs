//! Addresses of freed regions that all nodes use again, because the heap has no others.

use crate::matrix::{counted, detectors, job};
use crate::placement::{WORDS, pages_of, shares_that_wander};
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, NodeId, Thread};
use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "again" => again(comem),
        "again-under-one" => under_one(comem),
        "again-on-the-way" => on_the_way(comem),
        "again-flushed" => flushed(comem),
        "own-again" => own_again(comem),
        "table-given-back" => table_given_back(comem),
        _ => return false,
    }
    true
}

/// The smallest heap there is: 64 MiB for what all nodes allocate together, and as much under `msi`.
const SMALL_HEAP: (&str, &str) = ("COMEM_HEAP", "256M");
const PAGES: [usize; 4] = [2000, 2504, 700, 1500];
const UNITS: [u32; 3] = [1, 4, 2];
/// Pages that are written and given up: fewer than the cache holds.
const FLUSHED: usize = 60;

/// Memory that is new, whatever lay there: allocated with other units, at other homes, and freed by each node some
/// barriers later than by the one before.
fn again(comem: &Comem) {
    let last = NodeId(comem.nodes() as u16 - 1);
    let homes = [Home::Block, Home::Cyclic(3), Home::FirstTouch, Home::On(last), Home::Automatic, Home::FirstTouch];
    let mut in_use: VecDeque<PageSlice<u64>> = VecDeque::new();
    for round in 0..24 {
        let options = RegionOptions {
            home: homes[round % homes.len()].clone(),
            unit_pages: UNITS[round % UNITS.len()],
            ..RegionOptions::default()
        };
        let slice = pages_of(comem, PAGES[round % PAGES.len()], &options);
        comem.parallel(|t| shares_that_wander(t, &slice, 2));
        in_use.push_back(slice);
        if in_use.len() > comem.node() {
            let slice = in_use.pop_front().expect("there is one");
            comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        }
    }
}

/// Memory that one node allocates alone, and any node frees, is new whatever lay there. In all it is many times what
/// the node has room for.
fn own_again(comem: &Comem) {
    const WORDS_EACH: usize = (6 << 20) / 8;
    let place = comem.page_slice::<usize>(WORDS, &RegionOptions::default()).expect("there is room");
    let options = |round: usize| RegionOptions {
        home: [Home::Block, Home::FirstTouch, Home::Automatic, Home::Cyclic(3)][round % 4].clone(),
        unit_pages: UNITS[round % UNITS.len()],
        ..RegionOptions::default()
    };
    for round in 0..60 {
        let owner = round / 3 % comem.nodes();
        if comem.node() == owner {
            let address = comem.alloc(WORDS_EACH * 8, &options(round)).expect("there is room, again").addr();
            place.set(0, address);
        }
        comem.parallel(|t| {
            t.barrier();
            let words = place.get(0) as *mut usize;
            // Every 16th page, and by turns: diffs go home, copies are invalidated.
            for at in (0..WORDS_EACH).step_by(16 * WORDS) {
                for lap in 0..2 {
                    let (mine, theirs) = (at + t.id(), at + (t.id() + 1) % t.threads());
                    // SAFETY: within the allocation; each thread writes words of its own.
                    unsafe {
                        let before = if lap == 0 { 0 } else { round + 1 };
                        assert_eq!(words.add(mine).read_volatile(), before, "round {round}, word {mine}");
                        words.add(mine).write_volatile(round + 1);
                        // Races with that thread, which is allowed here: either value is right.
                        assert!([0, round + 1].contains(&words.add(theirs).read_volatile()), "round {round}");
                    }
                }
            }
            t.barrier();
        });
        if comem.node() == round % comem.nodes() {
            comem.free(place.get(0) as *mut u8).expect("any node may free it");
        }
        comem.parallel(|t| (0..3).for_each(|_| t.barrier()));
    }
}

/// Bytes that the table of what others may copy takes here; `None` where this process has none.
fn table_bytes() -> Option<u64> {
    let files = std::fs::read_dir("/proc/self/fd").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |path: &PathBuf| path.read_link().is_ok_and(|name| name.to_string_lossy().contains("comem-offers"));
    Some(std::fs::metadata(files.into_iter().find(is_table)?).ok()?.blocks() * 512)
}

/// 8 GiB of address space, 8 MiB at a time: what was noted of memory that is gone is given back.
fn table_given_back(comem: &Comem) {
    let mut most = [0; 2];
    for round in 0..1024 {
        let slice = comem.page_slice::<u64>(1 << 20, &RegionOptions::default()).expect("there is room");
        comem.parallel(|t| {
            // Each claims what would be the other's, so that no diffs are noted there.
            let half = (1 - t.id()) << 19;
            (half..half + (1 << 19)).step_by(WORDS << 6).for_each(|word| slice.set(word, 1));
            t.barrier();
        });
        comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        most[round / 512] = table_bytes().unwrap_or_default().max(most[round / 512]);
    }
    // As many regions as 2 GiB hold are kept for a while.
    assert!(most[1] <= most[0] + (64 << 10), "{most:?} bytes of the table, in the first and in the second half");
    assert_eq!(most[0] > 0, table_bytes().is_some());
}

/// Where nobody has freed anything two barriers ago there is no room, on any node, and the job goes on.
fn under_one(comem: &Comem) {
    let all = 60 << 20;
    let first = comem.alloc_all(all, &RegionOptions::default()).expect("there is room");
    let refused = |after: &str| {
        let error = comem.alloc_all(all, &RegionOptions::default()).expect_err("there is no room").to_string();
        assert!(error.contains("used again after two barriers"), "{after}: {error}");
    };
    refused("nothing is freed");
    if comem.node() == 0 {
        comem.free(first).expect("it can be freed");
    }
    comem.parallel(|t| (0..3).for_each(|_| t.barrier()));
    refused("one node has freed it");
    if comem.node() != 0 {
        comem.free(first).expect("it can be freed");
    }
    refused("no barrier has been since");
    comem.parallel(|t| (0..2).for_each(|_| t.barrier()));
    let second = comem.alloc_all(all, &RegionOptions::default()).expect("there is room again");
    assert_eq!(first, second);
}

/// The second thread of node 1 reads in order and stops, so that pages which were fetched ahead are in its socket,
/// where it does not look: it comes last to all barriers. Meanwhile their region is freed, and its place used again.
fn on_the_way(comem: &Comem) {
    let options = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let value = |round: usize, page: usize| (1000 * (round + 1) + page) as u64;
    let place = Mutex::new(None);
    comem.parallel(|t| {
        let (first, reader) = (t.local_id() == 0, (t.node(), t.local_id()) == (NodeId(1), 1));
        let meet = |t: &Thread| {
            std::thread::sleep(Duration::from_millis(if reader { 3 } else { 0 }));
            t.barrier();
        };
        for round in 0..6 {
            if first {
                *place.lock().expect("a place") = Some(pages_of(comem, 15_000, &options));
            }
            meet(t);
            let slice = place.lock().expect("a place").expect("it was allocated");
            if first && t.node() == NodeId(0) {
                (0..1000).for_each(|page| slice.set(page * WORDS, value(round, page)));
            }
            meet(t);
            let base = |round: usize| round % 5 * 200;
            if reader {
                let before = base(round + 4) + 50;
                assert_eq!(slice.get(before * WORDS), value(round, before), "round {round}");
                for page in [0, 1, 9].map(|page| base(round) + page) {
                    assert_eq!(slice.get(page * WORDS), value(round, page), "round {round}");
                }
            }
            meet(t);
            if first {
                comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
            }
            meet(t);
            meet(t);
        }
    });
}

/// Node 1 writes memory, has to give up its copies since it reads other memory, and frees it at once. What it wrote is
/// on its way to node 0, which has the place for something else soon.
fn flushed(comem: &Comem) {
    let at = |node| RegionOptions { home: Home::On(NodeId(node)), ..RegionOptions::default() };
    let barrier = || comem.parallel(|t| t.barrier());
    let free_at = |nodes: &[usize], slice: &PageSlice<u64>| {
        if nodes.contains(&comem.node()) {
            comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        }
        barrier();
    };
    let (other, first) = (pages_of(comem, 10, &at(2)), pages_of(comem, 15_000, &at(0)));
    if comem.node() == 1 {
        (0..FLUSHED * WORDS).for_each(|index| first.set(index, u64::MAX));
        (0..10).for_each(|page| assert_eq!(other.get(page * WORDS), 0));
    }
    free_at(&[1], &first);
    free_at(&[0, 2], &first);
    barrier();
    let second = pages_of(comem, 15_000, &at(0));
    assert_eq!(first.as_ptr(), second.as_ptr());
    if comem.node() == 0 {
        (0..FLUSHED).for_each(|page| second.set(page * WORDS, 7));
        std::thread::sleep(Duration::from_millis(500));
        for page in 0..FLUSHED {
            assert_eq!([0, 1].map(|word| second.get(page * WORDS + word)), [7, 0], "page {page}");
        }
    }
    barrier();
}

#[test]
fn what_was_flushed_before_its_memory_was_freed_is_told() {
    let settings = [SMALL_HEAP, ("COMEM_BACKBONE", "udp"), ("COMEM_CACHE", "256K"), ("COMEM_PREFETCH", "off")];
    let told = counted(&job("again-flushed", 3, &settings), "write_notices");
    assert!(told >= FLUSHED as u64 - 8, "{told} notices; who is told waits for what was flushed");
}

#[test]
fn what_is_still_on_its_way_of_freed_memory_does_not_come_to_what_lies_there_next() {
    job("again-on-the-way", 2, &[SMALL_HEAP, ("COMEM_THREADS", "2"), ("COMEM_BACKBONE", "udp")]);
}

#[test]
fn memory_that_all_allocate_and_free_again_and_again_is_new_each_time() {
    for detector in detectors() {
        let shapes = [("2", "2", "udp"), ("3", "1", "shm"), ("4", "1", "udp"), ("3", "1", "udp"), ("3", "2", "udp")];
        for ((nodes, threads, backbone), engine) in shapes.into_iter().zip(["hlrc", "scope", "hlrc", "msi", "lrc"]) {
            let nodes = nodes.parse().expect("a number");
            let place = [("COMEM_DETECTOR", detector), ("COMEM_THREADS", threads), ("COMEM_BACKBONE", backbone)];
            job("again", nodes, &[&[SMALL_HEAP, ("COMEM_ENGINE", engine)][..], &place].concat());
        }
    }
    job("again", 2, &[SMALL_HEAP, ("COMEM_ENGINE", "hlrc"), ("COMEM_BACKBONE", "shm")]);
    job("again", 1, &[SMALL_HEAP]);
}

#[test]
fn what_was_noted_of_freed_memory_takes_none() {
    job("table-given-back", 2, &[("COMEM_BACKBONE", "shm")]);
}

#[test]
fn addresses_are_used_again_when_every_node_has_freed_them_two_barriers_ago() {
    job("again-under-one", 3, &[SMALL_HEAP]);
}

#[test]
fn addresses_of_what_a_node_allocates_alone_are_used_again() {
    for (engine, backbone, detector) in detectors()
        .into_iter()
        .zip([("hlrc", "shm"), ("scope", "udp"), ("hlrc", "udp")])
        .map(|(detector, (engine, backbone))| (engine, backbone, detector))
        .chain([("msi", "shm", "uffd"), ("msi", "udp", "mprotect"), ("lrc", "udp", "uffd"), ("lrc", "shm", "mprotect")])
    {
        let settings =
            [SMALL_HEAP, ("COMEM_ENGINE", engine), ("COMEM_BACKBONE", backbone), ("COMEM_DETECTOR", detector)];
        for nodes in [2, 3] {
            job("own-again", nodes, &settings);
        }
    }
}
