//! `COMEM_MULTICAST`: who hears the job's group, what follows from it, and where that is said.

use crate::launcher::{Outcome, start};
use crate::{all_well, counter};
use comem::Comem;

const BROADCAST: (&str, &str) = ("COMEM_ENGINE", "broadcast");

/// Each thread writes to memory of which all nodes are told.
pub fn tell_all(comem: &Comem) {
    let told = comem.object_array::<u64>(64).expect("an array");
    comem.parallel(|t| {
        for value in 0..20 {
            told.write(t, t.id(), value);
            t.barrier();
        }
    });
}

fn ways(outcome: &Outcome) -> Vec<&str> {
    outcome.stats.values().map(|stats| stats["multicast"].as_str().unwrap_or("none")).collect()
}

/// A job of three nodes with these settings; its way, and whether groups were sent to.
fn way(env: &[(&str, &str)], own: &[(usize, &str, &str)]) -> (String, bool) {
    let outcome = start("tells-all", 3, env, own).finish();
    all_well(&outcome);
    let ways = ways(&outcome);
    assert!(ways.len() == 3 && ways.iter().all(|way| way == &ways[0]), "{ways:?}");
    (ways[0].to_string(), counter(&outcome, "multicasts") > 0)
}

fn mode(name: &'static str) -> (&'static str, &'static str) {
    ("COMEM_MULTICAST", name)
}

#[test]
fn the_statistics_say_how_a_job_sends_to_many_nodes() {
    assert_eq!(way(&[BROADCAST], &[]), ("ip".into(), true));
    assert_eq!(way(&[BROADCAST, mode("on")], &[]), ("ip".into(), true));
    assert_eq!(way(&[BROADCAST, mode("off")], &[]), ("off".into(), false));
    assert_eq!(way(&[BROADCAST, ("COMEM_BACKBONE", "shm")], &[]), ("shm".into(), false));
    assert_eq!(way(&[], &[]), ("off".into(), false), "the engine msi tells nobody");
    assert_eq!(way(&[mode("on")], &[]).0, "ip", "for regions and objects of other engines than the job's");
}

#[test]
fn where_a_node_does_not_hear_the_group_all_send_to_each() {
    let deaf = [(2, "COMEM_MULTICAST", "off")];
    let outcome = start("tells-all", 3, &[BROADCAST, ("COMEM_VERBOSE", "on")], &deaf).finish();
    all_well(&outcome);
    assert_eq!(outcome.stats[&0]["multicast"], "fanout");
    assert_eq!(counter(&outcome, "multicasts"), 0);
    assert_eq!(outcome.history, None, "its launcher keeps none");
    let said = "multicast: fanout: node 2 does not hear what is sent to 239.";
    assert!(outcome.errors[0].contains(said), "{outcome:#?}");
    assert!(outcome.errors[1..].iter().all(|text| !text.contains("fanout")), "one node says it");
}

#[test]
fn a_job_that_insists_on_multicast_fails_where_it_does_not_arrive() {
    for deaf in ["off", "auto"] {
        let deaf = [(1, "COMEM_MULTICAST", deaf), (2, "COMEM_MULTICAST", "off")];
        // Under `msi` a node with `auto` does not listen either.
        let outcome = start("tells-all", 3, &[mode("on")], &deaf).finish();
        assert!(outcome.statuses.iter().all(|status| *status != Some(0)), "{outcome:#?}");
        let said = "COMEM_MULTICAST=on, but nodes 1 and 2 do not hear what is sent to 239.";
        assert!(outcome.errors[0].contains(said) && outcome.statuses[0] == Some(3), "{outcome:#?}");
    }
    let outcome = start("tells-all", 3, &[mode("on"), ("COMEM_BACKBONE", "shm")], &[]).finish();
    assert_eq!(outcome.statuses, [Some(3); 3]);
    assert!(outcome.errors.iter().all(|why| why.contains("does not go with COMEM_BACKBONE=shm")), "{outcome:#?}");
}
