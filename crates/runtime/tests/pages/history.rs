//! Jobs under `multicast` that start with what an earlier one arrived at, and memory that is given out again there.

use crate::launcher::{Outcome, start_after};
use crate::matrix::{all_well, counted, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, RegionOptions};
use comem::{Comem, NodeId};

const MULTICAST: (&str, &str) = ("COMEM_ENGINE", "multicast");
const UDP: (&str, &str) = ("COMEM_BACKBONE", "udp");
const SHM: (&str, &str) = ("COMEM_BACKBONE", "shm");
const FAN_OUT: (&str, &str) = ("COMEM_MULTICAST", "off");

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "learns" => learns(comem),
        "sets-again" => sets_again(comem),
        _ => return false,
    }
    true
}

fn at(node: u16, label: &str) -> RegionOptions {
    RegionOptions { home: Home::On(NodeId(node)), label: label.to_string(), ..RegionOptions::default() }
}

/// A value of which every byte is another than in the round before.
fn every_byte(round: u64) -> u64 {
    round * 0x0101_0101_0101_0101
}

/// Four nodes use five pages, each its own way. The pages lie where no node that uses them would have them: two
/// without labels from the same line, one that node 1 allocates alone, one that two nodes write and one reads, and one
/// that is freed before the end.
fn learns(comem: &Comem) {
    let [early, late] = [0, 1].map(|_| pages_of(comem, 1, &at(3, "")));
    let gathered = pages_of(comem, 1, &at(2, "gathered"));
    let freed = pages_of(comem, 1, &at(0, "freed"));
    let place = pages_of(comem, 1, &at(0, "place"));
    if comem.node() == 1 {
        place.set(0, comem.alloc(WORDS * 8, &at(0, "alone")).expect("there is room").addr() as u64);
    }
    comem.parallel(|t| {
        t.barrier();
        let (me, alone) = (t.node().index(), place.get(0) as *mut u64);
        for round in 1..=16 {
            match me {
                0 => (0..WORDS / 2).for_each(|word| gathered.set(word, every_byte(round))),
                1 => [&early, &late].iter().for_each(|slice| slice.set(7, round)),
                // SAFETY: within the page, where this thread alone writes.
                2 => unsafe { alone.add(7).write_volatile(round) },
                _ => (WORDS / 2..WORDS).for_each(|word| gathered.set(word, every_byte(round))),
            }
            if me == 2 {
                freed.set(7, round);
            }
            t.barrier();
            match me {
                1 => assert_eq!([gathered.get(0), gathered.get(WORDS - 1)], [every_byte(round); 2]),
                2 => assert_eq!([early.get(7), late.get(7)], [round; 2]),
                // SAFETY: within the page, which nobody writes now.
                3 => assert_eq!((unsafe { alone.add(7).read_volatile() }, freed.get(7)), (round, round)),
                _ => {}
            }
            t.barrier();
        }
    });
    give_back(comem, freed);
}

/// Each round allocates most of what all nodes may have together, so most rounds have addresses of others. All is zero
/// at first, whatever was told of them and comes late.
fn sets_again(comem: &Comem) {
    const PAGES: usize = 5_000;
    let mut seen = Vec::new();
    for round in 1..=12_u64 {
        let unit_pages = [1, 2, 4][round as usize % 3];
        let options = RegionOptions { home: Home::Cyclic(4), unit_pages, ..RegionOptions::default() };
        let slice = pages_of(comem, PAGES, &options);
        seen.push(slice.as_ptr());
        comem.parallel(|t| {
            let pages = || (0..PAGES).step_by(PAGES / 12).map(|page| page * WORDS);
            for page in pages() {
                assert_eq!(slice.get(page + t.id()), 0, "round {round}, page {}", page / WORDS);
                slice.set(page + t.id(), round);
            }
            t.barrier();
            for (page, id) in pages().flat_map(|page| (0..t.threads()).map(move |id| (page, id))) {
                assert_eq!(slice.get(page + id), round, "page {}", page / WORDS);
            }
            for page in pages() {
                assert_eq!(slice.get(page + t.threads()), 0, "round {round}, page {}", page / WORDS);
                t.locked(comem::LockId(19), || slice.set(page + 500, slice.get(page + 500) + round));
            }
            t.barrier();
            pages().for_each(|page| assert_eq!(slice.get(page + 500), round * t.threads() as u64, "round {round}"));
        });
        give_back(comem, slice);
        comem.parallel(|t| (0..2).for_each(|_| t.barrier()));
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() <= count / 2, "{} places in {count} rounds", seen.len());
}

/// Nothing is told early, and what is only late is not asked for again. Two writers of half a page each are enough for
/// a page to go home.
const LEARNING: &str = "multicast.repair_min_us=1000000,multicast.early=off,multicast.homed_percent=50";

fn run_after(history: Option<&str>, role: &str, settings: &[(&str, &str)]) -> Outcome {
    let outcome = start_after(history, role, 4, settings, &[]).finish();
    all_well(&format!("{role} after {history:?}, {settings:?}"), &outcome);
    outcome
}

/// In how many units each node began with what is known: all say the same.
fn units(outcome: &Outcome) -> Option<u64> {
    let mut said = outcome.stats.values().map(|stats| stats["history_units"].as_u64());
    let first = said.next().flatten();
    assert!(said.all(|units| units == first), "nodes differ");
    first
}

/// How many managers moved and how many pages went home.
fn placed(outcome: &Outcome) -> [u64; 2] {
    ["managers_moved", "pages_homed"].map(|name| counted(outcome, name))
}

#[test]
fn the_second_run_starts_with_what_the_first_arrived_at() {
    for more in [&[UDP][..], &[UDP, FAN_OUT], &[SHM]] {
        let settings = [&[MULTICAST, ("COMEM_TUNING", LEARNING)][..], more].concat();
        let first = run_after(Some(""), "learns", &settings);
        // Node 1 manages the pages that it writes, node 2 those that it does; node 0 is one of those that gather.
        assert_eq!((units(&first), placed(&first)), (Some(0), [5, 1]), "{more:?}");
        let history = first.history.expect("what it arrived at");
        let second = run_after(Some(&history), "learns", &settings);
        assert_eq!((units(&second), placed(&second)), (Some(6), [0, 0]), "{more:?}, {history}");
        assert!(second.history.is_some());
    }
    let without = run_after(None, "learns", &[MULTICAST, UDP, ("COMEM_TUNING", LEARNING)]);
    assert_eq!((units(&without), placed(&without), without.history), (None, [5, 1], None));
}

/// What is told early in one run is told so from the first barrier of the next on.
#[test]
fn pages_that_were_told_early_are_told_early_at_once() {
    let faults = ("COMEM_FAULTS", "delay=5ms");
    let patient = ("COMEM_TUNING", "multicast.repair_min_us=1000000");
    let settings = [MULTICAST, UDP, ("COMEM_LOCKS", "tokens"), patient, faults];
    let first = run_after(Some(""), "words-of-all", &settings);
    let second = run_after(first.history.as_deref(), "words-of-all", &settings);
    let early = [&first, &second].map(|outcome| counted(outcome, "diffs_told_early"));
    assert!(0 < early[0] && early[0] < early[1], "{early:?}");
    assert_eq!(units(&second), Some(6));
}

#[test]
fn what_is_no_history_counts_as_nothing_and_changes_no_result() {
    let settings = [MULTICAST, UDP, ("COMEM_TUNING", LEARNING)];
    for text in ["comem-history 1 0000000000000000\nvariable", "[[[["] {
        let outcome = run_after(Some(text), "learns", &settings);
        assert_eq!((units(&outcome), placed(&outcome)), (Some(0), [5, 1]), "{text:?}");
        assert!(outcome.history.is_some());
    }
}

/// What a set was told of freed memory may come at any time: late, twice, or in another order.
#[test]
fn addresses_of_freed_memory_are_used_again_and_what_was_told_of_it_counts_for_nothing() {
    let small = ("COMEM_HEAP", "256M");
    let bad = [("COMEM_FAULTS", "drop=2%,dup=5%,reorder=10%,seed=11"), ("COMEM_DIFFS", "64K")];
    for (nodes, more) in [(4, &[UDP][..]), (2, &[SHM, ("COMEM_THREADS", "2")]), (3, &[UDP, bad[0], bad[1]])] {
        job("sets-again", nodes, &[&[MULTICAST, small, ("COMEM_LOCKS", "tokens")][..], more].concat());
    }
    job("own-again", 3, &[MULTICAST, small, SHM]);
}
