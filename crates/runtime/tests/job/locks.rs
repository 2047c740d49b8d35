//! Jobs whose locks are one-sided: nodes of one host, with all shared memory under `msi` or `direct`.

use crate::launcher::{Outcome, start};
use crate::{all_well, counter};
use comem::heap::{Home, RegionOptions};
use comem::{Comem, ConditionId, LockId, NodeId};
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::ids::manager_of;
use std::time::Duration;

const SHM: (&str, &str) = ("COMEM_BACKBONE", "shm");
const MSI: (&str, &str) = ("COMEM_ENGINE", "msi");
/// How often the roles that count take their lock.
const TIMES: &str = "COMEM_TEST_TIMES";

/// A lock whose word is at a node, in a job of `nodes`.
fn lock_at(node: u16, nodes: usize) -> LockId {
    (0..).map(LockId).find(|lock| manager_of(lock.0, nodes) == NodeId(node)).expect("some lock")
}

pub fn play(role: &str, comem: &Comem) {
    match role {
        "locks-stress" => stress(comem),
        "locks-tried" => tried(comem),
        "locks-one-takes" => comem.parallel(|t| {
            let times: usize = std::env::var(TIMES).expect("how often").parse().expect("a number");
            let lock = lock_at(0, comem.nodes());
            if t.node() == NodeId(1) {
                (0..times).for_each(|_| t.locked(lock, || ()));
            }
            t.barrier();
        }),
        // Node 1 holds the lock for ever, and all others want it.
        "locks-one-keeps" => comem.parallel(|t| {
            let _held = (t.node() == NodeId(1)).then(|| t.lock(LockId(1)));
            t.barrier();
            match t.node() {
                NodeId(1) => std::thread::sleep(Duration::from_secs(600)),
                _ => drop(t.lock(LockId(1))),
            }
        }),
        "locks-twice" => comem.parallel(|t| {
            t.locked(LockId(8), || drop(t.lock(LockId(8))));
        }),
        "locks-and-hlrc" => {
            let options = RegionOptions { engine: Some(PageEngine::Hlrc), home: Home::Block, ..Default::default() };
            if let Err(error) = comem.page_slice::<u64>(1000, &options) {
                eprintln!("{error}");
                std::process::exit(error.exit_code());
            }
        }
        _ => panic!("no role {role}"),
    }
}

/// Threads try for a lock until they have it, and count on a page and in an object; then one holds it, and nobody gets
/// it by trying.
fn tried(comem: &Comem) {
    const ROUNDS: usize = 50;
    let (lock, other) = (LockId(3), LockId(4));
    let page = comem.page_slice::<u64>(1, &RegionOptions::default()).expect("a page");
    let count = comem.object_var::<u64>().expect("a value");
    comem.parallel(|t| {
        for _ in 0..ROUNDS {
            let held = loop {
                match t.try_lock(lock) {
                    Some(held) => break held,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(held.id(), lock);
            page.set(0, page.get(0) + 1);
            count.write(t, count.read(t) + 1);
        }
        t.barrier();
        let all = (ROUNDS * t.threads()) as u64;
        assert_eq!((page.get(0), count.read(t)), (all, all));
        let held = (t.id() == 0).then(|| t.lock(other));
        t.barrier();
        assert!((0..20).all(|_| t.try_lock(other).is_none()), "thread {} got a lock that is held", t.id());
        t.barrier();
        drop(held);
        t.barrier();
        drop(t.checked_lock(other).expect("it is free, and was sent for before"));
    });
}

/// Counters under locks, which threads take one at a time or two in order; then threads hand on a turn by a condition;
/// then many names.
fn stress(comem: &Comem) {
    const COUNTERS: usize = 6;
    const ROUNDS: usize = 150;
    let counters = comem.object_array::<u64>(COUNTERS).expect("an array");
    let turn = comem.object_array::<u64>(1).expect("an array");
    let names = comem.object_array::<u64>(1).expect("an array");
    let page = comem.page_slice::<u64>(2, &RegionOptions::default()).expect("a page");
    comem.parallel(|t| {
        let add = |at: usize| counters.write(t, at, counters.read(t, at) + 1);
        let mut chance = 977 * t.id() + 1;
        for _ in 0..ROUNDS {
            chance = chance.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
            let first = (chance >> 8) % (COUNTERS - 1);
            t.locked(LockId(first as u64), || {
                add(first);
                t.locked(LockId(first as u64 + 1), || add(first + 1));
            });
        }
        t.barrier();
        if t.id() == 0 {
            let sum: u64 = (0..COUNTERS).map(|at| counters.read(t, at)).sum();
            assert_eq!(sum, (2 * ROUNDS * t.threads()) as u64);
        }
        let (lock, changed) = (LockId(77), ConditionId(77));
        for round in 0..20 {
            let mut held = t.lock(lock);
            while turn.read(t, 0) != (round * t.threads() + t.id()) as u64 {
                held = t.cond_wait(changed, held);
            }
            turn.write(t, 0, turn.read(t, 0) + 1);
            t.cond_notify_all(changed);
            drop(held);
        }
        // Each name once in each thread, among them the last of all.
        for name in (0..1000).map(|n: u64| n.wrapping_mul(0x1_0000_0003)).chain([u64::MAX]) {
            t.locked(LockId(name), || ());
        }
        for _ in 0..50 {
            t.locked(LockId(u64::MAX), || names.write(t, 0, names.read(t, 0) + 1));
            t.locked(LockId(5), || page.set(1, page.get(1) + 1));
        }
        t.barrier();
        assert_eq!((names.read(t, 0), page.get(1)), (50 * t.threads() as u64, 50 * t.threads() as u64));
        t.barrier();
    });
}

#[test]
fn nothing_is_lost_under_one_sided_locks() {
    let shapes = [(2, "1", "auto"), (2, "3", "block"), (4, "2", "auto"), (3, "1", "spin")];
    for (nodes, threads, wait) in shapes {
        let settings = [SHM, MSI, ("COMEM_THREADS", threads), ("COMEM_WAIT", wait)];
        let outcome = start("locks-stress", nodes, &settings, &[]).finish();
        all_well(&outcome);
        assert!(counter(&outcome, "lock_operations") > 0 && counter(&outcome, "lock_waits") > 0, "{:?}", outcome.stats);
        assert_eq!(counter(&outcome, "lock_remote"), 0, "no token: {:?}", outcome.stats);
    }
}

#[test]
fn a_lock_that_is_tried_for_is_got_once_it_is_free_and_never_while_it_is_held() {
    let udp = ("COMEM_BACKBONE", "udp");
    for settings in [[SHM, MSI], [SHM, ("COMEM_ENGINE", "hlrc")], [udp, ("COMEM_ENGINE", "hlrc")], [udp, MSI]] {
        all_well(&start("locks-tried", 2, &[&settings[..], &[("COMEM_THREADS", "2")]].concat(), &[]).finish());
    }
}

#[test]
fn a_free_lock_costs_three_operations_at_its_home_and_its_home_nothing() {
    for (times, operations) in [("0", 0), ("1", 4), ("500", 4 + 3 * 499)] {
        // Once more where its name is not there yet.
        let outcome = start("locks-one-takes", 2, &[SHM, MSI, (TIMES, times)], &[]).finish();
        all_well(&outcome);
        assert_eq!(counter(&outcome, "lock_operations"), operations, "{:?}", outcome.stats);
        assert_eq!(outcome.stats[&0]["lock_operations"], 0);
        for name in ["lock_waits", "lock_wakes", "lock_remote"] {
            assert_eq!(counter(&outcome, name), 0, "{name}: {:?}", outcome.stats);
        }
    }
}

#[test]
fn locks_are_tokens_where_somebody_wants_that_or_a_release_has_something_to_tell() {
    for settings in [[SHM, MSI, ("COMEM_LOCKS", "tokens")], [SHM, ("COMEM_ENGINE", "hlrc"), ("COMEM_LOCKS", "auto")]] {
        let outcome = start("locks-one-takes", 2, &[&settings[..], &[(TIMES, "9")]].concat(), &[]).finish();
        all_well(&outcome);
        assert_eq!((counter(&outcome, "lock_operations"), counter(&outcome, "lock_remote")), (0, 1));
    }
    all_well(&start("locks-and-hlrc", 2, &[SHM, MSI, ("COMEM_LOCKS", "tokens")], &[]).finish());
    // Objects alone need none.
    let settings = [SHM, ("COMEM_LOCKS", "one-sided"), (TIMES, "2")];
    assert_eq!(counter(&start("locks-one-takes", 2, &settings, &[]).finish(), "lock_operations"), 7);
}

fn refused(outcome: &Outcome, status: i32, sentence: &str) {
    // Another node may have heard of the first end before it came to its own.
    assert!(outcome.statuses.contains(&Some(status)), "{outcome:#?}");
    let said = |text: &String| text.contains(sentence);
    assert!(outcome.errors.iter().any(said) || outcome.failures.values().any(said), "{outcome:#?}");
}

#[test]
fn what_one_sided_locks_cannot_do_is_refused_in_a_sentence() {
    let tokens = "start it with --locks tokens";
    refused(&start("locks-and-hlrc", 2, &[SHM, MSI], &[]).finish(), 2, tokens);
    let udp = [("COMEM_BACKBONE", "udp"), MSI, ("COMEM_LOCKS", "one-sided")];
    let needs = "needs nodes that reach one another's memory, and the backbone is udp";
    refused(&start("locks-one-takes", 2, &udp, &[]).finish(), 3, needs);
    // Without memory of lines there is nothing for UCX to reach.
    let ucx = [&udp[..], &[("COMEM_ONE_SIDED", "ucx")]].concat();
    refused(&start("locks-one-takes", 2, &ucx, &[]).finish(), 3, "with --engine direct --one-sided ucx");
    let own = [(1, "COMEM_LOCKS", "tokens")];
    let differ = start("locks-one-takes", 2, &[SHM, MSI, (TIMES, "1")], &own).finish();
    assert!(differ.statuses.iter().all(|status| *status != Some(0)), "{differ:#?}");
    let twice = start("locks-twice", 2, &[SHM, MSI], &[]).finish();
    refused(&twice, 2, "acquires lock 0x8, which it holds already");
    let not_held = start("one-misuses", 2, &[SHM, MSI, ("COMEM_THREADS", "2")], &[]).finish();
    refused(&not_held, 2, "releases lock 0x5, which it does not hold");
}

#[test]
fn the_death_of_a_holder_ends_those_that_sleep() {
    for wait in ["auto", "block"] {
        let mut cluster = start("locks-one-keeps", 3, &[SHM, MSI, ("COMEM_WAIT", wait)], &[]);
        cluster.wait_until_started();
        // By now some wait, some do not yet: both have to end.
        std::thread::sleep(Duration::from_millis(300));
        cluster.nodes[1].kill().expect("a node can be killed");
        let outcome = cluster.finish();
        for node in [0, 2] {
            assert_eq!(outcome.statuses[node], Some(4), "{outcome:#?}");
            assert!(outcome.failures[&node].starts_with("node 1 (host "), "{outcome:#?}");
        }
    }
}

#[test]
fn who_asks_hears_who_holds_the_lock() {
    let outcome = start("asked-about-locks", 2, &[SHM, MSI], &[]).finish();
    all_well(&outcome);
    assert!(outcome.errors[0].contains("thread 0 holds lock 0x9"), "{outcome:#?}");
    assert!(outcome.errors[1].contains("lock 0x9 (its word is at node "), "{outcome:#?}");
    assert!(outcome.errors[1].contains("), which thread 0 of node 0 (host "), "{outcome:#?}");
}
