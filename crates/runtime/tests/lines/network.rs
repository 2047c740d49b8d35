//! The same programs over `udp`, where one-sided operations are emulated by the other nodes' service threads.

use super::{all_well, counter, direct, roles};
use std::time::{Duration, Instant};

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

/// A node that is killed while it holds an entry takes the job with it. All others say who it was, and those that know
/// it what it held.
#[test]
fn a_node_that_is_killed_with_an_entry_locked_is_named_with_its_region() {
    let mut job = direct("killed", 4, &[UDP]);
    job.tells_ends = true;
    let start = Instant::now();
    let outcome = job.finish();
    assert!(start.elapsed() < Duration::from_secs(100), "they end: {outcome:#?}");
    assert_eq!(outcome.statuses, [None, Some(4), Some(4), Some(4)], "{outcome:#?}");
    for node in 1..4 {
        let said = &outcome.failures[&node];
        assert!(said.contains("node 0 (host "), "node {node} said {said:?}: {outcome:#?}");
    }
    let waiting = outcome.failures.values().filter(|said| said.contains("a matrix")).count();
    assert!(waiting > 0, "{outcome:#?}");
}
