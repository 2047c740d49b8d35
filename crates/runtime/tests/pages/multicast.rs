//! Pages under `multicast`, whose diffs are asked of sets of nodes and told to sets: exact numbers of messages by IP
//! multicast and without it, who is interrupted, who leaves copysets, what comes with locks, and lost messages.

use crate::launcher::{Outcome, start};
use crate::matrix::{all_well, counted, detectors, job};
use crate::placement::pages_of;
use comem::heap::{Home, RegionOptions};
use comem::{Comem, LockId, NodeId};

const MULTICAST: (&str, &str) = ("COMEM_ENGINE", "multicast");
const UDP: (&str, &str) = ("COMEM_BACKBONE", "udp");
const SHM: (&str, &str) = ("COMEM_BACKBONE", "shm");
const FAN_OUT: (&str, &str) = ("COMEM_MULTICAST", "off");
/// What is only late on a busy machine is not asked for again.
const PATIENT: &str = "multicast.repair_min_us=1000000";
/// And nothing is told early, in which case the next rounds take fewer messages.
const PATIENT_AND_LATE: &str = "multicast.repair_min_us=1000000,multicast.early=off";

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "figure-three-in-rounds" => figure_three_in_rounds(comem),
        "words-of-all" => words_of_all(comem),
        "counter-goes-about" => counter_goes_about(comem),
        _ => return false,
    }
    true
}

const ROUNDS: u64 = 8;

/// Brazos, Figure 3, again and again: three nodes write words of a page and read each other's. A fourth has used the
/// page once, and is told every time.
fn figure_three_in_rounds(comem: &Comem) {
    let slice = pages_of(comem, 1, &RegionOptions { home: Home::On(NodeId(3)), ..RegionOptions::default() });
    comem.parallel(|t| {
        let me = t.node().index();
        for round in 1..=ROUNDS {
            if me < 3 {
                slice.set(me, 8 * round + me as u64);
            } else if round == 1 {
                assert_eq!(slice.get(3), 0);
            }
            t.barrier();
            if me < 3 {
                let other = (me + 1) % 3;
                assert_eq!(slice.get(other), 8 * round + other as u64);
            }
            // Whatever was told has been by now.
            t.rendezvous();
            t.barrier();
        }
    });
}

/// Every thread writes a word of each of some pages in each round, and reads those of all others.
fn words_of_all(comem: &Comem) {
    const PAGES: usize = 6;
    let rounds = crate::matrix::times(30) as u64;
    let slice = pages_of(comem, PAGES, &RegionOptions { home: Home::Cyclic(1), ..RegionOptions::default() });
    let words = slice.len() / PAGES;
    comem.parallel(|t| {
        for round in 1..=rounds {
            (0..PAGES).for_each(|page| slice.set(page * words + t.id(), 100 * round + t.id() as u64));
            t.locked(LockId(17), || slice.set(words - 1, slice.get(words - 1) + 1));
            t.barrier();
            for (page, id) in (0..PAGES).flat_map(|page| (0..t.threads()).map(move |id| (page, id))) {
                assert_eq!(slice.get(page * words + id), 100 * round + id as u64, "round {round}, page {page}");
            }
            assert_eq!(slice.get(words - 1), round * t.threads() as u64, "round {round}");
            t.barrier();
        }
    });
}

/// A counter under a lock, which goes from node to node with it.
fn counter_goes_about(comem: &Comem) {
    const EACH: u64 = 250;
    let slice = pages_of(comem, 1, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    comem.parallel(|t| {
        for _ in 0..EACH {
            t.locked(LockId(18), || slice.set(5, slice.get(5) + 1));
        }
        t.rendezvous();
        t.locked(LockId(18), || assert_eq!(slice.get(5), EACH * t.threads() as u64));
    });
}

/// How the nodes of this job have sent to sets.
fn way(outcome: &Outcome) -> String {
    outcome.stats[&0]["multicast"].as_str().unwrap_or_default().to_string()
}

/// Whether IP multicast arrives on this host; else the test says that it is left out.
fn is_by_ip(outcome: &Outcome, test: &str) -> bool {
    let is = way(outcome) == "ip";
    if !is {
        println!("SKIP: {test}: multicast does not arrive here, the way is {}", way(outcome));
    }
    is
}

fn sum(outcome: &Outcome, names: &[&str]) -> u64 {
    names.iter().map(|name| counted(outcome, name)).sum()
}

/// Messages about diffs.
fn messages(outcome: &Outcome) -> u64 {
    sum(outcome, &["diffs_asked", "diffs_told", "page_requests"])
}

/// Datagrams to sets, of which some nodes heard copies.
fn of_sets(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats.values().map(|stats| stats["sets"][name].as_u64().unwrap_or_default()).sum()
}

#[test]
fn figure_three_takes_three_messages_by_multicast_and_nine_without() {
    for (more, name, datagrams) in [(&[UDP][..], "ip", 3), (&[UDP, FAN_OUT], "off", 9), (&[SHM], "shm", 0)] {
        for detector in detectors() {
            let settings = [MULTICAST, ("COMEM_TEST_STEPS", "1"), ("COMEM_TUNING", PATIENT)];
            let outcome = job("figure-three", 4, &[&settings[..], more, &[("COMEM_DETECTOR", detector)]].concat());
            let counts = (messages(&outcome), counted(&outcome, "diffs_repaired"), counted(&outcome, "bases_fetched"));
            assert_eq!(counts, (3, 0, 0), "{name}, {detector}: an ask and two tells, or three asks");
            // The fourth node was told, and nothing was asked of it: so nothing has woken its service thread.
            let sets = &outcome.stats[&3]["sets"];
            assert_eq!(sets["copies_received"], sets["told_received"], "{name}, {detector}: {sets}");
            if name == "ip" && !is_by_ip(&outcome, "Figure 3 by multicast") {
                break;
            }
            assert_eq!((way(&outcome).as_str(), of_sets(&outcome, "datagrams_sent")), (name, datagrams), "{detector}");
            assert_eq!(of_sets(&outcome, "copies_addressed"), 9 * u64::from(datagrams > 0), "{name}, {detector}");
        }
    }
}

/// Four rounds in which the fourth node does not use what it is told, and four after it has left.
#[test]
fn who_does_not_use_what_it_is_told_leaves_after_four_rounds() {
    for (more, way_name, copies) in [(&[UDP][..], "ip", 60), (&[UDP, FAN_OUT], "off", 60), (&[SHM], "shm", 0)] {
        let settings = [MULTICAST, ("COMEM_TUNING", PATIENT_AND_LATE)];
        let outcome = job("figure-three-in-rounds", 4, &[&settings[..], more].concat());
        if way_name == "ip" && !is_by_ip(&outcome, "leaving copysets by multicast") {
            continue;
        }
        assert_eq!(way(&outcome), way_name);
        let left = (counted(&outcome, "copysets_left"), counted(&outcome, "diffs_repaired"));
        assert_eq!((messages(&outcome), left), (ROUNDS * 3, (1, 0)), "{way_name}");
        assert_eq!(of_sets(&outcome, "copies_addressed"), copies, "{way_name}: 4 x 9 and 4 x 6");
        let datagrams = if way_name == "ip" { ROUNDS * 3 } else { copies };
        assert_eq!(of_sets(&outcome, "datagrams_sent"), datagrams, "{way_name}");
        let sets = &outcome.stats[&3]["sets"];
        assert_eq!(sets["copies_received"], sets["told_received"], "{way_name}: nobody has woken the fourth node");
    }
}

#[test]
fn a_round_of_n_writers_and_readers_takes_n_messages() {
    for nodes in [2, 4, 8] {
        for backbone in [UDP, SHM] {
            let outcome = job("all-to-all", nodes, &[MULTICAST, backbone, ("COMEM_TUNING", PATIENT)]);
            let counts = (messages(&outcome), counted(&outcome, "diffs_repaired"));
            assert_eq!(counts, (nodes as u64, 0), "{nodes} nodes, {backbone:?}");
        }
    }
}

#[test]
fn a_counter_that_goes_about_with_its_lock_causes_no_request() {
    for backbone in [UDP, SHM] {
        let outcome = job("counter-goes-about", 4, &[MULTICAST, backbone, ("COMEM_LOCKS", "tokens")]);
        assert_eq!(messages(&outcome), 0, "{backbone:?}");
        assert!(counted(&outcome, "lock_remote") > 0 && counted(&outcome, "diffs_indirect_used") > 0, "{backbone:?}");
    }
}

/// Each message is on its way for so long that asks cross.
#[test]
fn pages_that_nodes_ask_for_at_the_same_time_are_told_early() {
    for more in [&[UDP][..], &[UDP, FAN_OUT], &[SHM]] {
        let run = |tuning| {
            let faults = ("COMEM_FAULTS", "delay=5ms");
            let settings = [MULTICAST, ("COMEM_LOCKS", "tokens"), ("COMEM_TUNING", tuning), faults];
            job("words-of-all", 4, &[&settings[..], more].concat())
        };
        let (early, late) = (run(PATIENT), run(PATIENT_AND_LATE));
        assert!(counted(&early, "diffs_told_early") > 0 && counted(&late, "diffs_told_early") == 0, "{more:?}");
        let [early, late] = [&early, &late].map(|outcome| sum(outcome, &["diffs_asked", "diffs_told"]));
        assert!(early * 2 < late, "{more:?}: {early} and {late} messages");
    }
}

/// 5 % of what each node hears is lost there, and of all that is sent to one node.
#[test]
fn lost_messages_are_repaired_and_change_no_result() {
    for (threads, more) in [("1", &[UDP][..]), ("2", &[UDP, FAN_OUT])] {
        let settings = [MULTICAST, ("COMEM_THREADS", threads), ("COMEM_LOCKS", "tokens")];
        let faults = [("COMEM_FAULTS", "drop=5%,seed=3"), ("COMEM_TUNING", "multicast.early=off")];
        let outcome = job("words-of-all", 4, &[&settings[..], more, &faults].concat());
        assert!(counted(&outcome, "diffs_repaired") > 0, "{more:?}");
    }
}

#[test]
fn where_a_node_is_deaf_all_send_to_each_and_the_counts_say_so() {
    let deaf = [(2, "COMEM_MULTICAST", "off")];
    let outcome = start("figure-three", 4, &[MULTICAST, UDP, ("COMEM_TEST_STEPS", "1")], &deaf).finish();
    all_well("Figure 3 with a deaf node", &outcome);
    assert_eq!((way(&outcome).as_str(), of_sets(&outcome, "datagrams_sent") >= 9), ("fanout", true));
}
