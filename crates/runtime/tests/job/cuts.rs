//! Networks that are cut between two nodes, nodes that break the protocol, and node zero that never comes.

use crate::forged;
use crate::launcher::{Outcome, start};
use crate::{all_well, counter};
use comem::{Comem, Home, LockId, NodeId, ObjectOptions, Operator};
use comem_protocol::ids::{Channel, Seq, Slot};
use comem_protocol::wire::header::{Flags, MsgType};
use comem_protocol::wire::message::types;
use std::time::{Duration, Instant};

/// For so long every node writes what every other one has written before, each time under a lock.
pub fn talk_to_all(comem: &Comem) {
    let seconds: f64 = std::env::var("COMEM_TEST_SECONDS").map_or(60.0, |text| text.parse().expect("seconds"));
    let nodes = comem.nodes();
    let len: usize = std::env::var("COMEM_TEST_LEN").map_or(4, |text| text.parse().expect("a length"));
    let arrays: Vec<_> = (0..nodes)
        .map(|home| {
            let home = Home::On(NodeId(home as u16));
            comem.object_array_with::<u64>(len, &ObjectOptions { home, unit_elements: len, ..ObjectOptions::default() })
        })
        .map(|array| array.expect("an array"))
        .collect();
    let start = Instant::now();
    comem.parallel(|t| {
        let mut rounds = 0;
        while start.elapsed().as_secs_f64() < seconds {
            for (home, array) in arrays.iter().enumerate() {
                t.locked(LockId(home as u64), || array.write(t, 0, array.read(t, 0) + 1));
            }
            rounds += 1;
        }
        t.barrier();
        let sum: u64 = arrays.iter().map(|array| array.read(t, 0)).sum();
        let mut all = [rounds * nodes as i64];
        t.reduce_i64(Operator::Sum, &mut all);
        assert_eq!(sum as i64, all[0], "nothing is lost");
    });
}

/// A job of so many nodes over a network with these faults, where a node may be silent for three seconds.
fn cut_job(nodes: usize, faults: &str, more: &[(&str, &str)]) -> Outcome {
    let settings = [("COMEM_FAULTS", faults), ("COMEM_NODE_TIMEOUT", "3s")];
    start("talks-to-all", nodes, &[&settings, more].concat(), &[]).finish()
}

/// All nodes end with status 4, and each says the same of both.
fn names_both(outcome: &Outcome, [a, b]: [usize; 2], what: &str) {
    assert!(outcome.statuses.iter().all(|status| *status == Some(4)), "{what}: {outcome:#?}");
    let sentences: Vec<&String> = outcome.failures.values().collect();
    assert_eq!(sentences.len(), outcome.statuses.len(), "{what}: {outcome:#?}");
    for sentence in &sentences {
        let names = |node: usize| sentence.contains(&format!("node {node} (host "));
        assert!(names(a) && names(b), "{what}: {sentence}");
        assert_eq!(sentence, &sentences[0], "{what}: one and the same verdict");
    }
}

#[test]
fn a_way_that_is_cut_for_ever_ends_the_job_with_one_sentence_that_names_both_nodes() {
    let cases: [(usize, &str, [usize; 2]); 6] = [
        (4, "cut=0-2@500ms", [0, 2]),
        (4, "cut=1-3@500ms", [1, 3]),
        (4, "cut=1>3@500ms", [1, 3]),
        (4, "cut=3>1@500ms", [1, 3]),
        (4, "cut=2-3@500ms", [2, 3]),
        (5, "cut=0>3@500ms", [0, 3]),
    ];
    for cases in cases.chunks(3) {
        std::thread::scope(|scope| {
            for (nodes, faults, pair) in cases {
                scope.spawn(move || names_both(&cut_job(*nodes, faults, &[]), *pair, faults));
            }
        });
    }
}

#[test]
fn a_way_that_is_cut_for_a_while_is_used_again() {
    std::thread::scope(|scope| {
        for faults in ["cut=0-2@300ms+1s", "cut=3>1@300ms+1s"] {
            scope.spawn(move || {
                let outcome = cut_job(4, faults, &[("COMEM_TEST_SECONDS", "2"), ("COMEM_NODE_TIMEOUT", "20s")]);
                all_well(&outcome);
                assert!(counter(&outcome, "retransmissions") > 0, "{faults}: {:?}", outcome.stats);
            });
        }
    });
}

/// Units of 80 KiB go in datagrams that the network drops; everything else is short.
#[test]
fn a_network_that_drops_long_packets_ends_the_job_with_a_sentence_that_says_so() {
    let outcome = cut_job(3, "longest=20000", &[("COMEM_TEST_LEN", "10000")]);
    assert!(outcome.statuses.iter().all(|status| *status == Some(4)), "{outcome:#?}");
    for sentence in outcome.failures.values() {
        assert!(sentence.contains("reach each other by short packets only"), "{sentence}");
        assert_eq!(sentence.matches(" (host ").count(), 2, "both are named: {sentence}");
    }
}

/// Answers that take 400 ms are waited for, once that is known.
#[test]
fn far_nodes_are_not_asked_again_and_again() {
    let outcome = start("far-away", 2, &[("COMEM_FAULTS", "delay=200ms")], &[]).finish();
    all_well(&outcome);
    // Before: two for each of 20 exchanges, and for those of the start.
    let (repeated, messages) = (counter(&outcome, "retransmissions"), counter(&outcome, "messages_sent"));
    assert!(repeated < 30 && messages > 40, "{repeated} of {messages}: {:?}", outcome.stats);
}

/// Node 1 reads what node 0 has written, again and again.
pub fn far_away(comem: &Comem) {
    let home = Home::On(NodeId(0));
    let array =
        comem.object_array_with::<u64>(20, &ObjectOptions { home, unit_elements: 1, ..ObjectOptions::default() });
    let array = array.expect("an array");
    comem.parallel(|t| {
        if t.node() == NodeId(1) {
            assert!((0..20).all(|index| array.read(t, index) == 0));
        }
        t.barrier();
    });
}

/// What a node sends that breaks the protocol.
#[derive(Clone, Copy)]
enum Nonsense {
    /// A message that cannot be read.
    Garbled,
    /// One that can be, about what does not exist.
    Contradiction,
    /// One without the job's key.
    Untagged,
}

/// Node 1 sends node 0 nonsense from its own socket.
pub fn break_the_protocol(comem: &Comem, role: &str) {
    let nonsense = match role {
        "sends-garbled" => Nonsense::Garbled,
        "sends-contradiction" => Nonsense::Contradiction,
        _ => Nonsense::Untagged,
    };
    let ports =
        comem.object_array_with::<u32>(8, &ObjectOptions { home: Home::On(NodeId(0)), ..ObjectOptions::default() });
    let ports = ports.expect("an array");
    comem.parallel(|t| {
        let mine = forged::own_sockets();
        if t.node() == NodeId(0) {
            mine.iter().zip(0..8).for_each(|((_, port), at)| ports.write(t, at, u32::from(*port)));
        }
        t.barrier();
        if t.node() == NodeId(1) {
            let datagram = nonsense_of(nonsense);
            for at in 0..8 {
                let port = ports.read(t, at) as u16;
                mine.iter().filter(|_| port != 0).for_each(|(socket, _)| forged::send(*socket, &datagram, port));
            }
        }
        t.barrier();
        // The one that found out ends this.
        if !matches!(nonsense, Nonsense::Untagged) {
            t.flag_wait(comem::FlagId(1), 1);
        }
    });
}

/// Sealed with the key of these tests' jobs, or with another.
fn nonsense_of(nonsense: Nonsense) -> Vec<u8> {
    let auth = std::env::var("COMEM_AUTH").is_ok_and(|auth| auth == "on");
    let key = if matches!(nonsense, Nonsense::Untagged) { [8; 32] } else { [7; 32] };
    let from = Channel { node: NodeId(1), slot: Slot::SERVICE };
    let (ty, body) = match nonsense {
        Nonsense::Contradiction => (types::UPDATE, vec![0xff; 32]),
        _ => (MsgType(0x1abc), vec![0xff; 32]),
    };
    forged::datagram(auth.then_some(key), (ty, Flags::default()), Seq::free(from, 1 << 30), &body)
}

#[test]
fn a_job_does_not_succeed_when_a_node_has_broken_the_protocol() {
    for auth in ["on", "off"] {
        for (role, said) in [
            ("sends-garbled", "sent a message that makes no sense"),
            ("sends-contradiction", "named a unit that does not exist here"),
        ] {
            let outcome = start(role, 2, &[("COMEM_AUTH", auth)], &[]).finish();
            assert_eq!(outcome.statuses, [Some(6), Some(4)], "{role}, auth {auth}: {outcome:#?}");
            let sentence = &outcome.failures[&0];
            let named = sentence.starts_with("node 1 (host ") && sentence.contains(said);
            assert!(named && sentence.contains("memory may be wrong"), "{sentence}");
        }
    }
}

#[test]
fn what_does_not_carry_the_jobs_key_is_counted_and_does_no_harm() {
    let outcome = start("sends-untagged", 2, &[("COMEM_AUTH", "on")], &[]).finish();
    all_well(&outcome);
    assert!(outcome.stats[&0]["rejected"].as_u64().unwrap_or(0) > 0, "{:?}", outcome.stats);
}

/// It is there, and never calls Comem. The others answer questions meanwhile, and say in the end whom they have waited
/// for.
#[test]
fn node_zero_that_never_comes_is_waited_for_as_long_as_any_other() {
    let mut cluster = start("stress", 2, &[], &[(0, "COMEM_TEST_ROLE", "never-comes")]);
    let asks = Instant::now();
    // Until it catches the signal, that would end it.
    let status = format!("/proc/{}/status", cluster.nodes[1].id());
    let catches = || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default().to_string();
        u64::from_str_radix(mask.trim(), 16).unwrap_or(0) >> (libc::SIGUSR1 - 1) & 1 == 1
    };
    while !catches() {
        assert!(asks.elapsed() < Duration::from_secs(60), "node 1 does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: asks a child of this test.
    unsafe { libc::kill(cluster.nodes[1].id() as libc::pid_t, libc::SIGUSR1) };
    let status = cluster.nodes[1].wait().expect("node 1 ends").code();
    cluster.nodes[0].kill().expect("node 0 is there");
    let outcome = cluster.finish();
    assert_eq!(status, Some(3), "{outcome:#?}");
    let said = &outcome.errors[1];
    assert!(said.contains("node 1 of a job of 2 (host ") && said.contains("waits for node 0"), "{said}");
    assert!(said.contains("time ran out before node zero's address was known, waiting for node 0"), "{said}");
}
