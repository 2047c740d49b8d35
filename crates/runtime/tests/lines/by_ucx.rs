//! The same programs where one-sided operations go by UCX, over transports that need no adapter.

use super::{all_well, counter, direct, roles};
use comem_net::ucx::Library;
use std::path::Path;

/// Over tcp, and through memory that processes of one host share.
const TRANSPORTS: [&str; 2] = ["tcp,self", "posix,self"];

/// Whether the library is there.
fn is_there() -> bool {
    Library::load().map_err(|missing| println!("SKIP: {missing}")).is_ok()
}

/// The settings of a job over these transports, with units of so many bytes.
fn settings<'a>(transports: &'a str, unit: &'a str) -> [(&'a str, &'a str); 4] {
    [("COMEM_BACKBONE", "udp"), ("COMEM_ONE_SIDED", "ucx"), ("UCX_TLS", transports), ("COMEM_UNIT_BYTES", unit)]
}

#[test]
fn additions_of_all_nodes_add_up() {
    for (transports, unit, nodes) in [(TRANSPORTS[0], "64", 3), (TRANSPORTS[1], "2048", 2)] {
        if is_there() {
            let outcome = direct("additions", nodes, &settings(transports, unit)).finish();
            all_well(&outcome);
            assert!(outcome.stats.values().all(|stats| stats["one_sided"] == "ucx, emulated"), "{:?}", outcome.stats);
            let counters = ["remote_batches", "quiesces"].map(|name| counter(&outcome, name));
            assert_eq!(counters[0], 0, "{:?}", outcome.stats);
        }
    }
}

#[test]
fn nodes_agree_with_a_model() {
    for (transports, unit, nodes) in [(TRANSPORTS[0], "128", 2), (TRANSPORTS[1], "64", 2), (TRANSPORTS[1], "64", 1)] {
        if is_there() {
            all_well(&direct("model", nodes, &settings(transports, unit)).finish());
        }
    }
}

#[test]
fn each_kind_of_miss_takes_the_operations_that_the_paper_says() {
    for transports in TRANSPORTS {
        if is_there() {
            let outcome = direct("cases", 3, &settings(transports, "64")).finish();
            all_well(&outcome);
            let names = ["remote_fetch_and_sets", "remote_gets", "remote_puts", "magic_puts"];
            assert_eq!(names.map(|name| counter(&outcome, name)), roles::CASES, "{:?}", outcome.stats);
        }
    }
}

/// A node that is killed in the midst of a miss takes the job with it, and all others name it.
#[test]
fn a_node_that_is_killed_with_an_entry_locked_is_named() {
    for transports in TRANSPORTS {
        if !is_there() {
            return;
        }
        let mut job = direct("killed", 3, &settings(transports, "64"));
        job.tells_ends = true;
        let outcome = job.finish();
        assert_eq!(outcome.statuses, [None, Some(4), Some(4)], "{outcome:#?}");
        for node in 1..3 {
            let said = &outcome.failures[&node];
            assert!(said.contains("node 0 (host "), "node {node} said {said:?}: {outcome:#?}");
        }
    }
}

#[test]
fn objects_hold_what_was_written() {
    for (role, transports) in [("object-shapes", TRANSPORTS[1]), ("object-sums", TRANSPORTS[0])] {
        if is_there() {
            all_well(&direct(role, 2, &settings(transports, "64")).finish());
        }
    }
}

/// The library is found and cannot be loaded: the file is empty.
#[test]
fn without_the_library_a_job_does_not_start() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-ucx");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("libucp.so.0"), "").expect("an empty file");
    let env = [("LD_LIBRARY_PATH", folder.to_str().expect("a name in UTF-8"))];
    let outcome = direct("additions", 2, &[&settings(TRANSPORTS[0], "64")[..], &env].concat()).finish();
    assert!(outcome.statuses.iter().all(|status| matches!(status, Some(3 | 4))), "{outcome:#?}");
    let said = format!("{:?} {:?}", outcome.errors, outcome.failures);
    assert!(said.contains("libucp.so.0 cannot be loaded (") && said.contains("apt install libucx0"), "{said}");
}
