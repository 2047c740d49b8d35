//! The same programs over `udp`, where one-sided operations are emulated by the other nodes' service threads.

use super::{all_well, counter, direct, forged, killed_with_an_entry_locked, launcher, roles};
use crate::checked::Words;
use comem::heap::RegionOptions;
use comem::{Comem, Home, NodeId, ObjectOptions};
use comem_protocol::coherence::direct::Entry;
use comem_protocol::coherence::direct::remote::{Command, Request, UnitAt};
use comem_protocol::ids::{Channel, Seq, Slot};
use comem_protocol::wire::header::Flags;
use comem_protocol::wire::message::types;

const UDP: (&str, &str) = ("COMEM_BACKBONE", "udp");
/// What a bad network does to the datagrams of every node.
const BAD: (&str, &str) = ("COMEM_FAULTS", "drop=2%,dup=2%,reorder=5%");

#[test]
fn additions_of_four_nodes_add_up() {
    for (unit, threads) in [("64", "1"), ("2048", "2")] {
        let env = [UDP, ("COMEM_UNIT_BYTES", unit), ("COMEM_THREADS", threads)];
        let outcome = direct("additions", 4, &env).finish();
        all_well(&outcome);
        assert!(counter(&outcome, "remote_batches") > 0, "{:?}", outcome.stats);
        assert!(outcome.stats.values().all(|stats| stats["one_sided"] == "emulated"), "{:?}", outcome.stats);
    }
}

/// The operations are called emulated where a user looks.
#[test]
fn nodes_say_that_operations_are_emulated() {
    for (backbone, says) in [("udp", true), ("shm", false)] {
        let env = [("COMEM_BACKBONE", backbone), ("COMEM_VERBOSE", "1")];
        let outcome = direct("flags", 2, &env).finish();
        all_well(&outcome);
        assert!(outcome.errors.iter().all(|said| said.contains("are emulated") == says), "{:?}", outcome.errors);
        let (how, batches) = if says { ("emulated", true) } else { ("mapped memory", false) };
        assert!(outcome.stats.values().all(|stats| stats["one_sided"] == how), "{:?}", outcome.stats);
        assert_eq!(counter(&outcome, "remote_batches") > 0, batches);
    }
}

#[test]
fn nodes_agree_with_a_model_whatever_the_unit() {
    for (unit, nodes, threads) in [("64", 1, "2"), ("64", 2, "2"), ("128", 4, "1"), ("2048", 2, "2")] {
        let env = [UDP, ("COMEM_UNIT_BYTES", unit), ("COMEM_THREADS", threads)];
        all_well(&direct("model", nodes, &env).finish());
    }
}

#[test]
fn a_network_that_loses_doubles_and_reorders_harms_nothing() {
    let mut harmed = [0, 0];
    for (role, unit, nodes) in [("additions", "64", 4), ("model", "128", 3), ("model", "2048", 2), ("flags", "64", 2)] {
        let outcome = direct(role, nodes, &[UDP, BAD, ("COMEM_UNIT_BYTES", unit)]).finish();
        all_well(&outcome);
        let sum = |name: &str| outcome.stats.values().map(|s| s[name].as_u64().expect("a counter")).sum::<u64>();
        harmed = [harmed[0] + sum("retransmissions"), harmed[1] + sum("duplicates")];
    }
    assert!(harmed.iter().all(|count| *count > 20), "{harmed:?} were sent again, and came again");
}

/// The answer to a revocation comes after the store under way. A request that is repeated meanwhile counts once.
#[test]
fn a_revocation_waits_for_the_store_under_way_and_is_carried_out_once() {
    for faults in ["", "drop=15%,dup=15%"] {
        let outcome = direct("interrupted", 2, &[UDP, ("COMEM_FAULTS", faults)]).finish();
        all_well(&outcome);
        assert!(counter(&outcome, "quiesces") >= 5, "{:?}", outcome.stats);
    }
}

#[test]
fn threads_that_spin_on_plain_flags_see_them() {
    all_well(&direct("flags", 3, &[UDP]).finish());
}

/// The operations are those that the paper says, and those between two decisions of a miss share a message.
#[test]
fn each_kind_of_miss_takes_the_operations_that_the_paper_says() {
    let outcome = direct("cases", 3, &[UDP]).finish();
    all_well(&outcome);
    let names = ["remote_fetch_and_sets", "remote_gets", "remote_puts", "magic_puts"];
    assert_eq!(names.map(|name| counter(&outcome, name)), roles::CASES, "{:?}", outcome.stats);
    assert_eq!(counter(&outcome, "remote_batches"), roles::CASES_BATCHES, "{:?}", outcome.stats);
}

#[test]
fn a_region_may_have_a_unit_of_its_own() {
    all_well(&direct("regions", 2, &[UDP, ("COMEM_UNIT_BYTES", "512")]).finish());
}

/// A node that is killed while it holds an entry takes the job with it within two seconds. All others say who it was,
/// and those that know it what it held.
#[test]
fn a_node_that_is_killed_with_an_entry_locked_is_named_with_its_region() {
    launcher::is_within_two_seconds("over udp", || {
        let (took, said) = killed_with_an_entry_locked(&[UDP]);
        assert!(said.iter().any(|said| said.contains("a matrix")), "{said:#?}");
        took
    });
}

/// A request that no node sends, by the role that sends it; the region has units of 128 bytes.
fn nonsense(role: &str) -> Vec<u8> {
    let request = |first: u64, lines: u16, command: Command| {
        let (mut body, unit) = (Vec::new(), UnitAt::new(first, lines).expect("an aligned unit"));
        Request { serial: 1, unit, commands: [command].into_iter().collect() }.emit(&mut body);
        body
    };
    match role {
        "forges-outside" => request(1 << 24, 2, Command::PutMagic),
        "forges-beyond-memory" => request(1 << 50, 2, Command::GetData),
        "forges-other-unit" => request(0, 1, Command::FetchAndSet),
        "forges-without-key" => request(0, 2, Command::PutMagic),
        "forges-lock" => request(0, 2, Command::PutEntry(Entry::BIASED.after_fetch_and_set(NodeId(1)))),
        _ => vec![0xff; 32],
    }
}

/// Node 1 sends node 0 a request that no node sends, from each of its own sockets to each of node 0's.
pub fn forge(comem: Comem, role: &str) {
    let words = Words::new(&comem, 1 << 14, &RegionOptions::default());
    let ports =
        comem.object_array_with::<u32>(8, &ObjectOptions { home: Home::On(NodeId(0)), ..ObjectOptions::default() });
    let ports = ports.expect("an array");
    let key = if role == "forges-without-key" { [8; 32] } else { [7; 32] };
    comem.parallel(|t| {
        let mine = forged::own_sockets();
        if t.node() == NodeId(0) {
            mine.iter().zip(0..8).for_each(|((_, port), at)| ports.write(t, at, u32::from(*port)));
        }
        t.barrier();
        if t.node() == NodeId(1) {
            // A request says first how far back its channel still waits.
            let payload = [vec![0, 0], nonsense(role)].concat();
            let seq = Seq::guarded(Channel { node: NodeId(1), slot: Slot::SERVICE }, 3_000);
            let flags = Flags { ack_requested: true, ..Flags::default() };
            let datagram = forged::datagram(Some(key), (types::REMOTE, flags), seq, &payload);
            for at in 0..8 {
                let port = ports.read(t, at) as u16;
                mine.iter().filter(|_| port != 0).for_each(|(socket, _)| forged::send(*socket, &datagram, port));
            }
        }
        t.barrier();
        if key == [7; 32] {
            t.flag_wait(comem::FlagId(1), 1);
        }
        assert_eq!(words.load(0), 0, "nobody has invalidated it");
    });
    comem.finish().expect("the job ends");
}

/// Who does not know the job's key is not heard.
#[test]
fn a_request_of_a_stranger_does_nothing_and_is_counted() {
    let outcome = direct("forges-without-key", 2, &[UDP, ("COMEM_UNIT_BYTES", "128"), ("COMEM_AUTH", "on")]).finish();
    all_well(&outcome);
    let rejected = outcome.stats[&0]["rejected"].as_u64().expect("a counter");
    assert!(rejected > 0, "{:?}", outcome.stats);
    assert_eq!(outcome.stats[&1]["rejected"], 0, "{:?}", outcome.stats);
}

#[test]
fn a_request_that_no_node_sends_ends_the_job_before_it_does_anything() {
    for (role, said) in [
        ("forges-outside", "on what no region has"),
        ("forges-beyond-memory", "on what no region has"),
        ("forges-other-unit", "on what no region has"),
        ("forges-lock", "that make no sense"),
        ("forges-noise", "that make no sense"),
    ] {
        let env = [UDP, ("COMEM_UNIT_BYTES", "128"), ("COMEM_AUTH", "on")];
        let outcome = direct(role, 2, &env).finish();
        assert_eq!(outcome.statuses, [Some(6), Some(4)], "{role}: {outcome:#?}");
        let sentence = &outcome.failures[&0];
        let is_named = sentence.starts_with("node 1 (host ") && sentence.contains(said);
        assert!(is_named && sentence.contains("memory may be wrong"), "{role}: {sentence}");
    }
}
