//! Lines memory under the engine `direct`, in jobs of real processes: this test binary is launcher and node in one.
//!
//! | file | does |
//! |---|---|
//! | [`checked`] | accesses with checks, by hand |
//! | [`roles`] | what the nodes do |
//! | [`network`] | the tests over `udp` |
//! | [`by_ucx`] | the tests where operations go by UCX |

mod by_ucx;
mod checked;
#[path = "../job/forged.rs"]
mod forged;
#[allow(dead_code, reason = "the tests of jobs use all of it")]
#[path = "../job/launcher.rs"]
mod launcher;
mod network;
mod objects;
mod roles;

use comem::inline::calls::ABI;
use launcher::{Cluster, Outcome, start};
use std::time::Duration;

/// What moves datagrams where a test does not say.
const BACKBONE: &str = "shm";
/// The engine where a test names none, but a detector perhaps.
const ENGINE: &str = "";

/// A node that takes longer, also beside other work, hangs.
const NODE_SECONDS: u32 = 240;

/// Plays the part of a node; without a role there is nothing to play.
#[test]
fn node() {
    let Ok(role) = std::env::var("COMEM_TEST_ROLE") else { return };
    // SAFETY: asks for a signal, no more.
    unsafe { libc::alarm(NODE_SECONDS) };
    roles::prepare(&role);
    match role.as_str() {
        "unchecked" => {}
        "older" => checked::attach_as(ABI - 1),
        "newer" => checked::attach_as(ABI + 1),
        role if role.starts_with("object-") => {}
        _ => checked::attach(),
    }
    let comem = comem::start().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(error.exit_code())
    });
    match role.starts_with("object-") {
        true => objects::play(&role, comem),
        false => roles::play(&role, comem),
    }
}

fn direct(role: &str, nodes: usize, env: &[(&str, &str)]) -> Cluster {
    start(role, nodes, &[&[("COMEM_ENGINE", "direct")], env].concat(), &[])
}

fn all_well(outcome: &Outcome) {
    assert!(outcome.statuses.iter().all(|s| *s == Some(0)), "{outcome:#?}");
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats.values().map(|s| s["direct"][name].as_u64().expect("a counter")).sum()
}

#[test]
fn sums_under_one_sided_locks_and_under_tokens_add_up() {
    for (locks, threads) in [("auto", "2"), ("tokens", "1")] {
        let outcome = direct("sections", 3, &[("COMEM_LOCKS", locks), ("COMEM_THREADS", threads)]).finish();
        all_well(&outcome);
        let operations = |stats: &serde_json::Value| stats["lock_operations"].as_u64().unwrap_or(0);
        let operations: u64 = outcome.stats.values().map(operations).sum();
        assert_eq!(operations > 0, locks == "auto", "{:?}", outcome.stats);
    }
}

#[test]
fn additions_of_four_nodes_add_up() {
    for (unit, threads) in [("64", "1"), ("2048", "2")] {
        let outcome = direct("additions", 4, &[("COMEM_UNIT_BYTES", unit), ("COMEM_THREADS", threads)]).finish();
        all_well(&outcome);
        assert!(counter(&outcome, "remote_fetch_and_sets") > 0, "{:?}", outcome.stats);
    }
}

#[test]
fn nodes_agree_with_a_model_whatever_the_unit() {
    for (unit, nodes, threads) in [("64", 2, "2"), ("256", 3, "1"), ("1024", 4, "1"), ("2048", 2, "3")] {
        all_well(&direct("model", nodes, &[("COMEM_UNIT_BYTES", unit), ("COMEM_THREADS", threads)]).finish());
    }
}

#[test]
fn threads_that_spin_on_plain_flags_see_them() {
    all_well(&direct("flags", 3, &[]).finish());
}

/// Operations on other nodes by all nodes: fetch-and-set, get, put, and the puts of MAGIC among these.
#[test]
fn each_kind_of_miss_takes_the_operations_that_the_paper_says() {
    let outcome = direct("cases", 3, &[]).finish();
    all_well(&outcome);
    let names = ["remote_fetch_and_sets", "remote_gets", "remote_puts", "magic_puts"];
    assert_eq!(names.map(|name| counter(&outcome, name)), roles::CASES, "{:?}", outcome.stats);
    assert_eq!(counter(&outcome, "dir_retries"), 0, "{:?}", outcome.stats);
    let genuine: u64 = outcome.stats.values().map(|s| s["inline"]["genuine_magic"].as_u64().expect("a counter")).sum();
    assert_eq!(genuine, 2, "{:?}", outcome.stats);
}

/// Objects of a program without checks, over memory and by messages.
#[test]
fn misses_of_objects_take_the_operations_that_the_paper_says() {
    for backbone in ["shm", "udp"] {
        let outcome = direct("object-cases", 3, &[("COMEM_BACKBONE", backbone)]).finish();
        all_well(&outcome);
        let names = ["remote_fetch_and_sets", "remote_gets", "remote_puts", "magic_puts"];
        assert_eq!(names.map(|name| counter(&outcome, name)), roles::CASES, "{backbone}: {:?}", outcome.stats);
        let genuine = |s: &serde_json::Value| s["inline"]["genuine_magic"].as_u64().expect("a counter");
        assert_eq!(outcome.stats.values().map(genuine).sum::<u64>(), 2, "{:?}", outcome.stats);
        let regions = outcome.stats[&0]["regions"].to_string();
        assert!(regions.contains("words") && regions.contains("direct"), "{regions}");
    }
}

#[test]
fn objects_of_all_shapes_hold_what_was_written() {
    for (backbone, threads, unit) in [("shm", "2", "64"), ("shm", "1", "2048"), ("udp", "1", "128")] {
        let env = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", threads), ("COMEM_UNIT_BYTES", unit)];
        all_well(&direct("object-shapes", 3, &env).finish());
    }
    all_well(&direct("object-shapes", 2, &[("COMEM_LOCKS", "tokens")]).finish());
}

#[test]
fn objects_that_all_write_lose_nothing_and_are_seen_whole() {
    for (role, backbone, threads) in [
        ("object-sums", "shm", "2"),
        ("object-sums", "udp", "1"),
        ("object-wide", "shm", "2"),
        ("object-wide", "udp", "1"),
    ] {
        all_well(&direct(role, 3, &[("COMEM_BACKBONE", backbone), ("COMEM_THREADS", threads)]).finish());
    }
}

#[test]
fn a_node_that_is_killed_with_a_range_lent_ends_the_others_with_its_name() {
    for backbone in ["shm", "udp"] {
        let mut job = direct("object-killed", 3, &[("COMEM_BACKBONE", backbone)]);
        job.tells_ends = true;
        let outcome = job.finish();
        assert_eq!(outcome.statuses, [Some(4), None, Some(4)], "{outcome:#?}");
        assert!([0, 2].iter().all(|node| outcome.failures[node].contains("node 1 (host ")), "{outcome:#?}");
    }
}

#[test]
fn a_region_may_have_a_unit_of_its_own() {
    all_well(&direct("regions", 2, &[("COMEM_UNIT_BYTES", "512")]).finish());
}

/// A node that is killed while it holds an entry takes the job with it within two seconds. The others say who it was
/// and what it held.
#[test]
fn a_node_that_is_killed_with_an_entry_locked_is_named_with_its_region() {
    launcher::is_within_two_seconds("over shm", || {
        let (took, said) = killed_with_an_entry_locked(&[]);
        assert!(said.iter().all(|said| said.contains("a matrix")), "{said:#?}");
        took
    });
}

/// How long the three others lived on, and what they said.
fn killed_with_an_entry_locked(env: &[(&str, &str)]) -> (Duration, Vec<String>) {
    let mut job = direct("killed", 4, env);
    job.tells_ends = true;
    let (took, outcome) = job.finish_after_the_end_of(0);
    assert_eq!(outcome.statuses, [None, Some(4), Some(4), Some(4)], "{outcome:#?}");
    let said: Vec<String> = (1..4).map(|node| outcome.failures[&node].clone()).collect();
    assert!(said.iter().all(|said| said.contains("node 0 (host ")), "{outcome:#?}");
    (took, said)
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    let refused = |role: &str, env: &[(&str, &str)], words: &[&str]| {
        let outcome = direct(role, 2, env).finish();
        // A node that has not met all others yet may hear of the end of one that was refused.
        assert!(outcome.statuses.iter().all(|status| matches!(status, Some(2..=4))), "{outcome:#?}");
        assert!(outcome.statuses.iter().any(|status| matches!(status, Some(2 | 3))), "{outcome:#?}");
        let said = format!("{:?} {:?}", outcome.errors, outcome.failures);
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    };
    refused("cramped", &[], &["the engine direct", "node ", "--heap", "RLIMIT_AS"]);
    refused("unchecked", &[], &["the engine direct", "comem-cc", "--inline"]);
    refused("object-index", &[], &["index 12 is outside of temperatures, which has 12 elements"]);
    refused("additions", &[("COMEM_UNIT_BYTES", "96")], &["COMEM_UNIT_BYTES", "64, 128"]);
}

/// The first nodes are refused and have ended before the last have mapped their memory. These say so, and not that they
/// may not map it.
#[test]
fn nodes_that_are_refused_at_once_leave_the_others_with_the_right_sentence() {
    // Mostly one of these jobs has such nodes.
    for _ in 0..3 {
        let mut job = direct("unchecked", 8, &[]);
        job.tells_ends = true;
        let outcome = job.finish();
        let said = format!("{:?} {:?}", outcome.errors, outcome.failures);
        assert!(outcome.statuses.iter().all(|status| matches!(status, Some(3 | 4))), "{outcome:#?}");
        assert!(said.contains("comem-cc --inline") && !said.contains("may not map"), "{said}");
    }
}

#[test]
fn a_module_whose_checks_are_of_another_version_is_refused_by_name() {
    for (role, theirs) in [("older", ABI - 1), ("newer", ABI + 1)] {
        let outcome = direct(role, 1, &[]).finish();
        assert_eq!(outcome.statuses, [Some(3)], "{outcome:#?}");
        let what = format!("by hand was built with checks of version {theirs}, and this libcomem knows version {ABI}");
        let said = &outcome.errors[0];
        assert!(said.contains(&what) && said.contains("build it anew with the comem-cc"), "{said}");
    }
}

#[test]
fn checked_code_and_this_library_have_one_version() {
    let header = include_str!("../../../../compiler/abi.h");
    assert!(header.contains(&format!("#define COMEM_INLINE_ABI {ABI}u\n")), "the version is {ABI} here");
    assert!(header.contains(&format!("agree on: version {ABI}.")), "the header's first line");
    assert!(header.contains(&format!("`abi={ABI} module=")), "the header's example");
}
