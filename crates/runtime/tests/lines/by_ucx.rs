//! The same programs where one-sided operations go by UCX, over transports that need no adapter.

use super::{Outcome, all_well, counter, direct, roles};
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

/// The settings of a job whose locks are words that are reached over these transports.
fn words<'a>(transports: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&settings(transports, "64")[..], &[("COMEM_LOCKS", "one-sided")], more].concat()
}

/// The sum of a counter of locks over all nodes.
fn of_locks(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats.values().map(|stats| stats[name].as_u64().expect("a counter")).sum()
}

/// One operation takes the lock and one lets it go. The first time its place is looked for: a name is read and put
/// down.
#[test]
fn a_free_lock_costs_two_operations_at_its_home_and_its_home_nothing() {
    if !is_there() {
        return;
    }
    for (transports, times, operations) in
        [(TRANSPORTS[0], "0", 0), (TRANSPORTS[0], "1", 4), (TRANSPORTS[0], "200", 402), (TRANSPORTS[1], "200", 402)]
    {
        let outcome = direct("lock-taken", 2, &words(transports, &[(roles::TIMES, times)])).finish();
        all_well(&outcome);
        assert_eq!(of_locks(&outcome, "lock_operations"), operations, "{:?}", outcome.stats);
        assert_eq!(outcome.stats[&0]["lock_operations"], 0, "its home takes no part");
        for name in ["lock_waits", "lock_wakes", "lock_remote"] {
            assert_eq!(of_locks(&outcome, name), 0, "{name}: {:?}", outcome.stats);
        }
    }
    // Nodes that map one another's memory need no library for their locks: a name to look at, each time.
    let mapped = words(TRANSPORTS[1], &[(roles::TIMES, "200"), ("COMEM_BACKBONE", "shm")]);
    let outcome = direct("lock-taken", 2, &mapped).finish();
    all_well(&outcome);
    assert_eq!(of_locks(&outcome, "lock_operations"), 601, "{:?}", outcome.stats);
}

#[test]
fn sums_of_four_nodes_under_locks_by_ucx_add_up() {
    if !is_there() {
        return;
    }
    // Lines under msi go by messages: what is lost here, locks have lost.
    let by_messages = [("COMEM_ENGINE", "msi"), ("COMEM_DETECTOR", "inline")];
    for (transports, threads, wait) in [(TRANSPORTS[0], "1", "auto"), (TRANSPORTS[1], "2", "block")] {
        let env = [&by_messages[..], &[("COMEM_THREADS", threads), ("COMEM_WAIT", wait)]].concat();
        let env = words(transports, &env);
        let outcome = direct("sections", 4, &env).finish();
        all_well(&outcome);
        assert!(of_locks(&outcome, "lock_waits") > 0, "{:?}", outcome.stats);
        assert_eq!(counter(&outcome, "remote_fetch_and_sets"), 0, "no operation but those of locks");
        assert_eq!(of_locks(&outcome, "lock_remote"), 0, "no token: {:?}", outcome.stats);
    }
}

/// The data too is kept coherent by operations through UCX. A node's two threads contend for its own entries.
#[test]
fn sums_of_four_nodes_of_two_threads_add_up() {
    if !is_there() {
        return;
    }
    let [tcp, posix] = TRANSPORTS;
    for (transports, locks) in [(posix, "tokens"), (posix, "one-sided"), (tcp, "one-sided")] {
        // What two threads lock at the same time is seldom: a run alone tells little.
        for _ in 0..if transports == posix { 3 } else { 1 } {
            let env = [("COMEM_LOCKS", locks), ("COMEM_THREADS", "2"), ("COMEM_WAIT", "block")];
            let outcome = direct("sections", 4, &[&settings(transports, "64")[..], &env].concat()).finish();
            all_well(&outcome);
            assert!(counter(&outcome, "dir_retries") > 0, "nobody has contended: {:?}", outcome.stats);
            assert_eq!(counter(&outcome, "locked_stores"), 0, "the processor has locked entries: {:?}", outcome.stats);
            let is_word = locks == "one-sided";
            assert_eq!(of_locks(&outcome, "lock_operations") > 0, is_word, "{:?}", outcome.stats);
            assert_eq!(of_locks(&outcome, "lock_remote") > 0, !is_word, "{:?}", outcome.stats);
        }
    }
}

/// Words that a processor reaches for others cost more than tokens.
#[test]
fn locks_are_tokens_unless_words_by_ucx_are_asked_for() {
    if is_there() {
        let outcome = direct("lock-taken", 2, &[&settings(TRANSPORTS[0], "64")[..], &[(roles::TIMES, "9")]].concat());
        let outcome = outcome.finish();
        all_well(&outcome);
        assert_eq!((of_locks(&outcome, "lock_operations"), of_locks(&outcome, "lock_remote")), (0, 1));
    }
}

#[test]
fn a_node_that_is_killed_with_locks_held_is_named() {
    for transports in TRANSPORTS {
        if !is_there() {
            return;
        }
        let mut job = direct("lock-kept", 3, &words(transports, &[]));
        job.tells_ends = true;
        let outcome = job.finish();
        assert_eq!(outcome.statuses, [Some(4), None, Some(4)], "{outcome:#?}");
        assert!([0, 2].iter().all(|node| outcome.failures[node].contains("node 1 (host ")), "{outcome:#?}");
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
