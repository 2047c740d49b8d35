//! Jobs whose arrivals at barriers are words: nodes of one host, with all shared memory under `msi` or `direct`.

use crate::launcher::{Outcome, start};
use crate::{all_well, counter};
use comem::heap::RegionOptions;
use comem::{Comem, Engine, NodeId, Operator, Thread};
use std::time::Duration;

const SHM: (&str, &str) = ("COMEM_BACKBONE", "shm");
const MSI: (&str, &str) = ("COMEM_ENGINE", "msi");
const DIRECT: (&str, &str) = ("COMEM_ENGINE", "direct");
const TOKENS: (&str, &str) = ("COMEM_LOCKS", "tokens");
/// How many barriers the role that counts passes.
const TIMES: &str = "COMEM_TEST_TIMES";
/// So many calls the roles that mix make.
const CALLS: u64 = 300;
/// The kind of call that is a rendezvous.
const RENDEZVOUS: u64 = 3;

pub fn play(role: &str, comem: &Comem) {
    match role {
        "barriers-count" => comem.parallel(|t| {
            let times: usize = std::env::var(TIMES).expect("how often").parse().expect("a number");
            (0..times).for_each(|_| t.barrier());
        }),
        "barriers-mixed" => mixed(comem),
        // Node 1 never comes.
        "barriers-one-stays-away" => comem.parallel(|t| {
            t.barrier();
            if t.node() == NodeId(1) {
                std::thread::sleep(Duration::from_secs(600));
            }
            t.barrier();
        }),
        "barriers-asked" => comem.parallel(|t| {
            t.barrier();
            if t.node() == NodeId(1) {
                // Node 0 asks itself meanwhile where it waits.
                std::thread::sleep(Duration::from_millis(1500));
            } else {
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(700));
                    // SAFETY: Comem listens for this signal.
                    unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
                });
            }
            t.barrier();
        }),
        // Node 1 makes another call where the others wait at a barrier, or come to it.
        "barriers-differ" | "barriers-differ-late" => comem.parallel(|t| {
            (0..5).for_each(|_| t.barrier());
            let late = role == "barriers-differ-late";
            if (t.node() == NodeId(1)) == late {
                std::thread::sleep(Duration::from_millis(300));
            }
            match t.node() {
                NodeId(1) => t.reduce_i64(Operator::Sum, &mut [1]),
                _ => t.barrier(),
            }
        }),
        _ => panic!("no role {role}"),
    }
}

/// All kinds of collective calls in an order by chance. At each barrier all see what all have written before it.
fn mixed(comem: &Comem) {
    let rounds = comem.object_array::<u64>(comem.threads()).expect("an array");
    // Under `direct` pages need a program whose code checks its own accesses.
    let pages = comem.engine() != Engine::Direct;
    let page = pages.then(|| comem.page_slice::<u64>(comem.threads(), &RegionOptions::default()).expect("a page"));
    comem.parallel(|t| {
        let mut chance = 12_345_u64;
        for round in 1..=CALLS {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            rounds.write(t, t.id(), round);
            page.iter().for_each(|page| page.set(t.id(), round));
            // Now and then a thread is late.
            if (chance >> 20) % 64 == t.id() as u64 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let kind = (chance >> 33) % 8;
            call(t, round, kind);
            let other = (t.id() + 1 + (chance >> 40) as usize % t.threads()) % t.threads();
            let mut seen = vec![rounds.read(t, other)];
            // A rendezvous says nothing about pages under `hlrc`.
            seen.extend(page.as_ref().filter(|_| kind != RENDEZVOUS).map(|page| page.get(other)));
            assert!(seen.iter().all(|seen| (round..=round + 1).contains(seen)), "{seen:?} in round {round}");
        }
        t.barrier();
    });
}

fn call(t: &Thread, round: u64, kind: u64) {
    let everybody = t.threads() as u64;
    match kind {
        0 => {
            let mut sums = [t.id() as i64, round as i64];
            t.reduce_i64(Operator::Sum, &mut sums);
            assert_eq!(sums, [(everybody * (everybody - 1) / 2) as i64, (everybody * round) as i64]);
        }
        1 => {
            let mut most = [t.id() as f64];
            t.reduce_f64(Operator::Max, &mut most);
            assert_eq!(most, [(everybody - 1) as f64]);
        }
        2 => {
            // One thread of each node, behind all others of its node and before them.
            t.barrier();
            if t.local_id() == 0 {
                t.node_barrier();
            }
            t.barrier();
        }
        RENDEZVOUS => t.checked_rendezvous().expect("all do"),
        _ => t.barrier(),
    }
}

#[test]
fn a_barrier_between_nodes_of_one_host_costs_no_message() {
    for (nodes, threads, engine) in [(2, "1", MSI), (4, "1", DIRECT), (3, "2", MSI), (2, "2", DIRECT)] {
        let job = |times: &str, locks: (&str, &str)| {
            let settings = [SHM, engine, ("COMEM_THREADS", threads), (TIMES, times), locks];
            let outcome = start("barriers-count", nodes, &settings, &[]).finish();
            all_well(&outcome);
            outcome
        };
        let (few, many) = (job("0", ("COMEM_LOCKS", "auto")), job("2000", ("COMEM_LOCKS", "auto")));
        let by_words = counter(&many, "barriers_by_words") - counter(&few, "barriers_by_words");
        assert_eq!(by_words, 2000 * nodes as u64, "{:?}", many.stats);
        // Start and end send some; how often they repeat depends on the load.
        assert!(counter(&many, "messages_sent") < 500, "{:?}", many.stats);
        let tokens = job("2000", TOKENS);
        assert_eq!(counter(&tokens, "barriers_by_words"), 0);
        assert!(counter(&tokens, "messages_sent") >= 2 * 2000 * (nodes as u64 - 1), "{:?}", tokens.stats);
        assert_eq!(counter(&tokens, "barriers"), counter(&many, "barriers"));
    }
}

#[test]
fn barriers_and_reductions_in_any_order_open_when_all_have_come() {
    let shapes = [
        (2, "1", "auto", MSI),
        (3, "1", "block", DIRECT),
        (4, "1", "auto", MSI),
        (2, "2", "block", MSI),
        (3, "2", "auto", DIRECT),
        (4, "2", "spin", MSI),
    ];
    for (nodes, threads, wait, engine) in shapes {
        let settings = [SHM, engine, ("COMEM_THREADS", threads), ("COMEM_WAIT", wait)];
        let outcome = start("barriers-mixed", nodes, &settings, &[]).finish();
        all_well(&outcome);
        let by_words = counter(&outcome, "barriers_by_words");
        assert!(by_words >= CALLS / 2 * nodes as u64, "{nodes} nodes: {:?}", outcome.stats);
    }
}

#[test]
fn what_carries_something_and_what_was_told_to_stay_goes_by_messages() {
    for settings in [&[SHM, MSI, TOKENS][..], &[SHM, ("COMEM_ENGINE", "hlrc")], &[("COMEM_BACKBONE", "udp"), MSI]] {
        let outcome = start("barriers-mixed", 2, settings, &[]).finish();
        all_well(&outcome);
        assert_eq!(counter(&outcome, "barriers_by_words"), 0, "{settings:?}: {:?}", outcome.stats);
    }
}

/// What was said of two calls that do not go together, without names of hosts and processes.
fn said(outcome: &Outcome) -> Vec<String> {
    let all = outcome.errors.iter().chain(outcome.failures.values()).flat_map(|text| text.lines());
    let mut said: Vec<String> = all
        .filter(|line| line.contains(" met "))
        .map(|line| line.split(" (host ").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect())
        .collect();
    said.sort();
    said.dedup();
    said
}

#[test]
fn calls_that_do_not_go_together_are_named_as_without_words() {
    for role in ["barriers-differ", "barriers-differ-late"] {
        for nodes in [2, 3] {
            let words = start(role, nodes, &[SHM, MSI], &[]).finish();
            let tokens = start(role, nodes, &[SHM, MSI, TOKENS], &[]).finish();
            for outcome in [&words, &tokens] {
                assert!(outcome.statuses.iter().all(|status| *status != Some(0)), "{outcome:#?}");
                let sentence = "every node must make the same collective calls";
                assert!(said(outcome).iter().any(|line| line.contains(sentence)), "{outcome:#?}");
                assert!(said(outcome).iter().any(|line| line.contains("a reduction")), "{outcome:#?}");
            }
        }
    }
}

#[test]
fn the_death_of_a_node_ends_those_that_wait_for_its_word() {
    for (nodes, wait) in [(2, "block"), (4, "auto")] {
        let mut cluster = start("barriers-one-stays-away", nodes, &[SHM, MSI, ("COMEM_WAIT", wait)], &[]);
        cluster.wait_until_started();
        std::thread::sleep(Duration::from_millis(300));
        cluster.nodes[1].kill().expect("a node can be killed");
        let outcome = cluster.finish();
        for node in (0..nodes).filter(|node| *node != 1) {
            assert_eq!(outcome.statuses[node], Some(4), "{outcome:#?}");
            assert!(outcome.failures[&node].starts_with("node 1 (host "), "{outcome:#?}");
        }
    }
}

#[test]
fn who_asks_hears_whose_word_is_missing() {
    // In a tree node 2 hears of node 1 only by node 0; by words it knows itself.
    let outcome = start("barriers-asked", 3, &[SHM, MSI], &[]).finish();
    all_well(&outcome);
    for node in [0, 2] {
        let said = &outcome.errors[node];
        let after = said.split("missing node ").nth(1);
        assert!(after.is_some_and(|after| after.starts_with("1 (host ") && !after.contains(", node")), "{outcome:#?}");
    }
}
