//! How often one page fault looks its region up, takes its page table's lock and calls the protocol's page logic; and
//! how often one remote lock asks whether it waits. The library counts that where debug assertions are on.

use crate::matrix::{detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, RegionOptions};
use comem::path_counts::so_far;
use comem::{Comem, LockId, NodeId};

/// Pages that are touched one by one, in no order.
const SINGLE: usize = 64;
/// Pages that are read in order.
const IN_ORDER: usize = 400;
/// Remote acquires of each node.
const ACQUIRES: u64 = 20;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "counted-faults" => counted_faults(comem),
        "counted-questions" => counted_questions(comem),
        _ => return false,
    }
    true
}

/// What an access costs: lookups of a region, locks of page tables, calls of the page logic.
fn cost_of(access: impl FnOnce()) -> [u64; 3] {
    let before = so_far();
    access();
    let after = so_far();
    [0, 1, 2].map(|which| after[which] - before[which])
}

/// The costs of those accesses that faulted.
fn of_faults(costs: impl Iterator<Item = [u64; 3]>) -> Vec<[u64; 3]> {
    costs.filter(|cost| *cost != [0; 3]).collect()
}

/// All costs, in order, for a message.
fn sorted(mut costs: Vec<[u64; 3]>) -> Vec<[u64; 3]> {
    costs.sort_unstable();
    costs
}

/// What most of these faults cost. On a busy machine a thread may be woken once more, and look once more.
fn usual(costs: &[[u64; 3]]) -> [u64; 3] {
    let often = |cost: &[u64; 3]| costs.iter().filter(|other| *other == cost).count();
    costs.iter().copied().max_by_key(often).unwrap_or_default()
}

/// The first thread of node 1 faults on pages whose home is node 0, which has written them.
fn counted_faults(comem: &Comem) {
    let options = || RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let (single, in_order) = (pages_of(comem, 3 * SINGLE, &options()), pages_of(comem, IN_ORDER, &options()));
    comem.parallel(|t| {
        if t.id() == 0 {
            (0..3 * SINGLE).for_each(|page| single.set(page * WORDS, page as u64));
            (0..IN_ORDER).for_each(|page| in_order.set(page * WORDS, page as u64));
        }
        t.barrier();
        if (t.node(), t.local_id()) == (NodeId(1), 0) {
            let order = (0..SINGLE).map(|i| (5 * i + 6 * i * i) % SINGLE);
            let read = |page: usize| cost_of(|| assert_eq!(single.get(page * WORDS), page as u64));
            let write = |page: usize| cost_of(|| single.set(page * WORDS + 1, 7));
            let reads = of_faults(order.clone().map(read));
            let stores = of_faults(order.clone().map(write));
            let mut writes = of_faults(order.map(|page| write(2 * SINGLE + page)));
            // The kernel notes stores, or the first one faults once more.
            let is_noted = std::env::var("COMEM_DETECTOR").is_ok_and(|name| name == "uffd-async");
            let store = u64::from(!is_noted);
            // Of pages that came with others before, that fault is the only one.
            writes.retain(|[lookups, ..]| *lookups > store);
            assert_eq!((usual(&stores), stores.is_empty()), ([store; 3], is_noted));
            // The step that says what to fetch, the one that takes it in, and where no other thread could see the page
            // meanwhile, the one that maps it early.
            for (costs, store) in [(&reads, 0), (&writes, store)] {
                let [lookups, locks, calls] = usual(costs).map(|each| each - store);
                let is_right = lookups == 1 && [2, 3].contains(&locks) && locks == calls;
                assert!(is_right, "{:?}", sorted(costs.clone()));
            }
            let read = |page: usize| cost_of(|| assert_eq!(in_order.get(page * WORDS), page as u64));
            let runs = of_faults((0..IN_ORDER).map(read));
            let ahead = std::env::var("COMEM_PREFETCH").is_ok_and(|value| value == "on");
            // To ask for the next run too is a step more; so is its answer, if that comes while the first is awaited.
            let most = if ahead { 4 } else { 3 };
            let few = runs.iter().filter(|[lookups, locks, calls]| *lookups == 1 && *locks <= most && *calls <= most);
            let few = few.count();
            assert!(4 * few >= 3 * runs.len() && (runs.len() < IN_ORDER / 2) == ahead, "{runs:?}");
            println!("single reads {:?}, writes {:?}, in order {runs:?}", usual(&reads), usual(&writes));
        }
        t.barrier();
    });
    give_back(comem, single);
    give_back(comem, in_order);
}

/// Two nodes take a lock in turn.
fn counted_questions(comem: &Comem) {
    comem.parallel(|t| {
        let takes = |step: u64| {
            if step % 2 == u64::from(t.node().0) {
                t.locked(LockId(1), || ());
            }
            t.rendezvous();
        };
        (0..2).for_each(takes);
        let before = so_far()[3];
        t.rendezvous();
        (0..2 * ACQUIRES).for_each(takes);
        // Each acquire of the other node has asked here once.
        assert_eq!(so_far()[3] - before, ACQUIRES);
    });
}

#[test]
fn a_fault_looks_its_region_up_once_and_takes_its_page_tables_lock_three_times_at_most() {
    for detector in detectors() {
        for prefetch in ["on", "off"] {
            for threads in ["1", "2"] {
                if (prefetch, threads) == ("off", "2") {
                    continue;
                }
                let settings = [
                    ("COMEM_ENGINE", "hlrc"),
                    ("COMEM_BACKBONE", "udp"),
                    ("COMEM_DETECTOR", detector),
                    ("COMEM_THREADS", threads),
                    ("COMEM_PREFETCH", prefetch),
                ];
                let outcome = job("counted-faults", 2, &settings);
                let printed = outcome.outputs.iter().flat_map(|output| output.lines());
                printed.filter(|line| line.contains("single reads")).for_each(|line| println!("{detector}: {line}"));
            }
        }
    }
}

#[test]
fn a_remote_lock_asks_once_whether_it_waits() {
    let settings = [("COMEM_BACKBONE", "udp"), ("COMEM_THREADS", "1"), ("COMEM_LOCKS", "tokens")];
    job("counted-questions", 2, &settings);
}
