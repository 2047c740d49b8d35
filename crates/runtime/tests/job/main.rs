//! Jobs of real processes: this test binary is launcher and node in one.

mod barriers;
mod by_hand;
mod callers;
mod cores;
mod cuts;
mod forged;
mod launcher;
mod locks;
mod mail;
mod multicast;
mod packets;
mod roles;
mod sync_objects;

use comem::control::{FromNode, ToNode};
use launcher::{Outcome, start};
use std::collections::HashMap;
use std::time::Duration;

/// What moves datagrams where a test does not say: most look at the protocol over a network.
const BACKBONE: &str = "udp";
/// What keeps pages where a test does not say: on one host users get memory without a protocol.
const ENGINE: &str = "hlrc";

/// One after the other, for tests that hold over both.
const BACKBONES: [(&str, &str); 2] = [("COMEM_BACKBONE", "udp"), ("COMEM_BACKBONE", "shm")];

/// Plays the part of a node; without a role there is nothing to play.
#[test]
fn node() {
    if let Ok(role) = std::env::var("COMEM_TEST_ROLE") {
        roles::play(&role);
    }
}

fn all_well(outcome: &Outcome) {
    assert!(outcome.statuses.iter().all(|s| *s == Some(0)), "{outcome:#?}");
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats.values().map(|s| s[name].as_u64().unwrap_or(0)).sum()
}

#[test]
fn nothing_is_lost_between_nodes_and_threads() {
    for backbone in BACKBONES {
        for (nodes, threads) in [(1, "3"), (2, "1"), (3, "2"), (9, "1")] {
            let outcome = start("stress", nodes, &[("COMEM_THREADS", threads), backbone], &[]).finish();
            all_well(&outcome);
            assert_eq!(outcome.stats.len(), nodes);
            assert!(outcome.stats.values().all(|stats| stats["backbone"] == backbone.1), "{:?}", outcome.stats);
            // A reduction in each of 25 rounds.
            let reductions = 25 * nodes as u64 * threads.parse::<u64>().unwrap();
            assert_eq!(counter(&outcome, "reductions"), reductions, "{:?}", outcome.stats);
        }
    }
}

#[test]
fn nothing_is_lost_on_a_bad_network() {
    let faults = "drop=5%,dup=2%,reorder=5%,delay=20us,corrupt=1%,truncate=1%,seed=11";
    let outcome = start("stress", 3, &[("COMEM_FAULTS", faults), ("COMEM_THREADS", "2")], &[]).finish();
    all_well(&outcome);
    assert!(counter(&outcome, "retransmissions") > 0 && counter(&outcome, "rejected") > 0, "{:?}", outcome.stats);
}

#[test]
fn damaged_datagrams_are_authenticated_or_the_job_does_not_start() {
    for faults in ["drop=1%", "truncate=1%", "corrupt=1%"] {
        for backbone in BACKBONES {
            let outcome = start("relock", 2, &[("COMEM_FAULTS", faults), backbone], &[]).finish();
            all_well(&outcome);
            assert!(outcome.stats.values().all(|stats| stats["auth"] == true), "{faults}: {:?}", outcome.stats);
        }
    }
    let open = start("relock", 2, &[("COMEM_AUTH", "off")], &[]).finish();
    all_well(&open);
    assert!(open.stats.values().all(|stats| stats["auth"] == false), "{:?}", open.stats);
    let refused = start("relock", 1, &[("COMEM_FAULTS", "corrupt=1%"), ("COMEM_AUTH", "off")], &[]).finish();
    assert_eq!(refused.statuses, [Some(3)], "{refused:#?}");
    assert!(format!("{refused:?}").contains("do not go with COMEM_AUTH=off"), "{refused:#?}");
}

#[test]
fn every_engine_gives_the_same_answer_to_a_race_free_program() {
    for engine in ["owner", "msi", "direct"] {
        for backbone in BACKBONES {
            all_well(&start("jacobi", 3, &[("COMEM_ENGINE", engine), backbone], &[]).finish());
        }
    }
}

#[test]
fn taking_a_lock_again_costs_no_message() {
    let outcome = start("relock", 2, &[], &[]).finish();
    all_well(&outcome);
    assert_eq!(counter(&outcome, "lock_acquires"), 1000);
    assert!(counter(&outcome, "lock_remote") <= 1, "{:?}", outcome.stats);
}

#[test]
fn a_thread_that_waits_for_a_lock_does_not_keep_its_node_from_saying_more() {
    for backbone in BACKBONES {
        all_well(&start("said-while-one-waits", 2, &[("COMEM_THREADS", "2"), backbone], &[]).finish());
    }
}

#[test]
fn a_killed_node_ends_the_others_within_two_seconds_with_one_sentence_that_names_it() {
    for case in [(2, 4, BACKBONES[0]), (0, 3, BACKBONES[0]), (2, 4, BACKBONES[1]), (0, 3, BACKBONES[1])] {
        launcher::is_within_two_seconds(&format!("{case:?}"), || a_node_is_killed(case));
    }
}

/// How long the others took to notice.
fn a_node_is_killed((victim, nodes, backbone): (usize, usize, (&str, &str))) -> Duration {
    let mut cluster = start("wait-for-ever", nodes, &[backbone], &[]);
    cluster.wait_until_started();
    let pid = cluster.nodes[victim].id();
    cluster.nodes[victim].kill().expect("a node can be killed");
    let (took, outcome) = cluster.finish_after_the_end_of(victim);
    for node in (0..nodes).filter(|n| *n != victim) {
        assert_eq!(outcome.statuses[node], Some(4), "{outcome:#?}");
        let said = &outcome.failures[&node];
        assert!(said.starts_with(&format!("node {victim} (host ")) && said.contains(&format!("pid {pid})")), "{said}");
        assert_eq!(outcome.errors[node].matches("comem:").count(), 0, "the launcher prints the sentence");
    }
    took
}

/// Neither the computation nor the wait comes to its end.
#[test]
fn the_statistics_of_a_job_that_is_cut_short_say_what_its_threads_did_last() {
    for backbone in BACKBONES {
        let outcome = start("cut-short", 3, &[backbone], &[]).finish();
        assert_eq!(outcome.statuses, [Some(4), Some(4), Some(9)], "{outcome:#?}");
        for (node, did) in [(0, "compute"), (1, "lock")] {
            let times = &outcome.stats[&node]["time_us"];
            let spent = |name: &str| times[name].as_u64().unwrap_or(0);
            let others: u64 = ["compute", "fetch", "lock", "barrier", "protocol", "idle"].map(spent).iter().sum();
            assert!(2 * spent(did) > others, "node {node} spends its time on {did}: {times}");
        }
    }
}

/// Nobody watches: nobody is told anything.
#[test]
fn a_node_tells_its_counters_exactly_as_often_as_it_is_asked() {
    let cluster = start("wait-for-ever", 2, &[], &[]);
    cluster.wait_until_started();
    let asked = [(false, false), (false, true), (true, false)];
    asked.into_iter().for_each(|(waits, pages)| cluster.tell(0, &ToNode::Sample { waits, pages }));
    let mut samples = Vec::new();
    cluster.follow(&mut HashMap::new(), &mut HashMap::new(), |said| {
        if let FromNode::Sample { sample } = said {
            samples.push(sample.clone());
        }
        samples.len() == 3
    });
    for sample in &samples {
        assert!(sample["time_us"]["compute"].is_u64() && sample["messages_sent"].is_u64(), "{sample}");
        assert!(sample["pages"]["read_faults"].is_u64() && sample["regions"].is_array(), "{sample}");
    }
    let asked_for_waits = samples.iter().map(|sample| sample["waits"].is_array());
    assert_eq!(asked_for_waits.collect::<Vec<_>>(), [false, false, true]);
    (0..2).for_each(|node| cluster.tell(node, &ToNode::Stop { reason: "enough was seen".to_string() }));
    let outcome = cluster.finish();
    assert_eq!([0, 1].map(|node| outcome.stats[&node]["samples"].as_u64()), [Some(3), Some(0)], "{outcome:#?}");
}

#[test]
fn a_nodes_time_is_that_of_its_threads_lives() {
    for backbone in BACKBONES {
        let outcome = start("little", 4, &[backbone, ("COMEM_THREADS", "2")], &[]).finish();
        assert_eq!(outcome.statuses, [Some(0); 4], "{outcome:#?}");
        for stats in outcome.stats.values() {
            let spent = |name: &str| stats["time_us"][name].as_f64().unwrap_or(f64::NAN);
            let parts: f64 = ["compute", "fetch", "lock", "barrier", "protocol", "idle"].map(spent).iter().sum();
            let lives = 2e6 * stats["wall_s"].as_f64().unwrap_or_default();
            assert!((parts - lives).abs() <= 0.01 * lives + 10.0, "{parts} us of {lives}: {stats}");
        }
    }
}

#[test]
fn a_lock_is_released_by_a_panic_that_the_program_goes_on_from() {
    let outcome = start("panics-under-a-lock", 2, &[("COMEM_THREADS", "2")], &[]).finish();
    assert_eq!(outcome.statuses, [Some(0); 2], "{outcome:#?}");
}

#[test]
fn a_silent_node_is_warned_about_and_then_given_up() {
    std::thread::scope(|scope| BACKBONES.map(|backbone| scope.spawn(move || silence_is_noticed(backbone))).map(drop));
}

fn silence_is_noticed(backbone: (&str, &str)) {
    let cluster = start("wait-for-ever", 3, &[("COMEM_NODE_TIMEOUT", "3s"), backbone], &[]);
    cluster.wait_until_started();
    let victim = cluster.nodes[1].id() as libc::pid_t;
    // SAFETY: stops a child of this test.
    unsafe { libc::kill(victim, libc::SIGSTOP) };
    let stopped = std::time::Instant::now();
    let (mut failures, mut stats) = Default::default();
    let mut failed = 0;
    cluster.follow(&mut failures, &mut stats, |m| {
        failed += usize::from(matches!(m, comem::control::FromNode::Failed { .. }));
        failed == 2
    });
    assert!(stopped.elapsed() > Duration::from_millis(2500), "given up too early: {:?}", stopped.elapsed());
    // The nodes look whenever they get to run: beside other work they find more seconds of silence.
    let silent = |said: &str, least: u64| {
        let seconds = said.split("silent for ").nth(1).and_then(|rest| rest.split('.').next()?.parse().ok());
        seconds.is_some_and(|seconds: u64| (least..least + 20).contains(&seconds))
    };
    // SAFETY: ends the stopped child.
    unsafe { libc::kill(victim, libc::SIGKILL) };
    let outcome = cluster.finish();
    let warned = [0, 2].iter().any(|n| outcome.errors[*n].contains("node 1 (host") && silent(&outcome.errors[*n], 2));
    assert!(warned, "{outcome:#?}");
    for node in [0, 2] {
        let said = &failures[&node];
        assert!(said.starts_with("node 1 (host ") && said.contains(") was silent for "), "{failures:?}");
        assert!(silent(said, 3), "{failures:?}");
        assert_eq!(outcome.statuses[node], Some(4));
    }
}

#[test]
fn different_collective_calls_are_an_error_not_a_hang() {
    let outcome = start("mismatch", 2, &[], &[]).finish();
    let text = format!("{:?}{:?}", outcome.errors, outcome.failures);
    assert!(text.contains("met") && text.contains("every node must make the same collective calls"), "{outcome:#?}");
    // Node 1 has nothing left to do but to leave: if node 0, which notices first, is gone before its word comes, node 1
    // ends well.
    assert_ne!(outcome.statuses[0], Some(0), "{outcome:#?}");
}

#[test]
fn objects_of_different_shape_are_refused() {
    let outcome = start("shapes", 2, &[], &[]).finish();
    let text = format!("{:?}{:?}", outcome.errors, outcome.outputs);
    assert!(text.contains("differ in shape"), "{outcome:#?}");
}

#[test]
fn impossible_objects_are_refused_with_the_reason() {
    all_well(&start("impossible", 1, &[], &[]).finish());
}

#[test]
fn ports_in_use_are_named() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = taken.local_addr().expect("an address").port();
    let ports = format!("{port}-{port}");
    let mut cluster = start("stress", 2, &[("COMEM_PORTS", &ports)], &[]);
    cluster.tells_ends = true;
    let outcome = cluster.finish();
    let text = format!("{:?}{:?}", outcome.errors, outcome.failures);
    assert!(text.contains(&format!("UDP port {port} of 127.0.0.1 is in use")), "{outcome:#?}");
    assert!(outcome.statuses.contains(&Some(3)), "{outcome:#?}");
}

#[test]
fn another_program_is_refused_with_the_reason() {
    let mut cluster = start("stress", 2, &[], &[(1, "COMEM_PROGRAM", "/bin/true")]);
    cluster.tells_ends = true;
    let outcome = cluster.finish();
    let text = format!("{:?}{:?}", outcome.errors, outcome.failures);
    assert!(text.contains("program"), "{outcome:#?}");
    assert!(outcome.statuses.iter().all(|s| *s != Some(0)), "{outcome:#?}");
}

#[test]
fn a_wrong_index_names_the_object_and_its_length() {
    let outcome = start("index", 1, &[], &[]).finish();
    assert!(
        outcome.failures[&0].contains("index 12 is outside of temperatures, which has 12 elements"),
        "{outcome:#?}"
    );
    assert_eq!(outcome.statuses, [Some(2)], "{outcome:#?}");
}

#[test]
fn threads_that_run_already_do_not_run_once_more() {
    for threads in ["1", "2"] {
        let outcome = start("within-itself", 1, &[("COMEM_THREADS", threads)], &[]).finish();
        assert_eq!(outcome.statuses, [Some(0)], "{outcome:#?}");
    }
}

#[test]
fn a_thread_that_cannot_go_on_ends_its_node_though_others_wait_for_it() {
    for (role, status, said) in [
        ("one-misuses", 2, "lock"),
        ("one-panics", 101, "thread 1 of the job panicked"),
        ("no-thread", 6, "cannot start thread 1 of 2"),
    ] {
        let outcome = start(role, 2, &[("COMEM_THREADS", "2")], &[]).finish();
        assert_eq!(outcome.statuses[0], Some(status), "{outcome:#?}");
        assert!(outcome.failures[&0].contains(said), "{outcome:#?}");
        assert!(role != "one-panics" || outcome.errors[0].contains("thread 1 does not go on"), "{outcome:#?}");
    }
}

#[test]
fn strangers_garbage_and_replays_are_refused_and_do_no_harm() {
    let outcome = start("attacked", 2, &[("COMEM_AUTH", "on")], &[]).finish();
    all_well(&outcome);
    assert!(counter(&outcome, "rejected") > 0, "{:?}", outcome.stats);
}

#[test]
fn posts_arrive_exactly_once_under_loss() {
    let faults = "drop=5%,dup=5%,reorder=5%,seed=3";
    let outcome = start("posts", 4, &[("COMEM_FAULTS", faults)], &[]).finish();
    all_well(&outcome);
}

#[test]
fn a_full_inbox_keeps_no_message_from_the_other_threads_of_its_node() {
    for backbone in BACKBONES {
        for faults in ["drop=0%", "drop=3%,dup=3%,reorder=10%,seed=9"] {
            let settings = [("COMEM_THREADS", "2"), ("COMEM_FAULTS", faults), backbone];
            all_well(&start("one-inbox-full", 2, &settings, &[]).finish());
        }
    }
}

#[test]
fn nodes_end_though_nobody_reads_what_they_have_posted() {
    for backbone in BACKBONES {
        for role in ["nobody-reads", "one-reads-nothing"] {
            all_well(&start(role, 2, &[backbone], &[]).finish());
        }
    }
}

#[test]
fn elements_that_broadcast_could_not_tell_of_are_refused() {
    all_well(&start("wide-told", 2, &[("COMEM_ENGINE", "broadcast"), ("COMEM_MTU", "576")], &[]).finish());
}

#[test]
fn ranges_do_not_stay_with_a_thread_that_waits_for_messages() {
    for backbone in BACKBONES {
        all_well(&start("waits-while-lent", 2, &[backbone], &[]).finish());
    }
}

#[test]
fn who_has_posted_more_than_an_inbox_takes_goes_on() {
    for more in ["1", "200", "600"] {
        for backbone in BACKBONES {
            all_well(&start("posts-before-access", 2, &[("COMEM_TEST_MORE", more), backbone], &[]).finish());
        }
    }
}

#[test]
fn semaphores_conditions_and_readers_work_between_nodes_and_on_a_bad_network() {
    let faults = "drop=5%,dup=5%,reorder=10%,seed=5";
    for (nodes, threads, faults) in [(1, "4", "drop=0%"), (4, "1", "drop=0%"), (3, "2", faults)] {
        all_well(&start("desks", nodes, &[("COMEM_FAULTS", faults), ("COMEM_THREADS", threads)], &[]).finish());
    }
}

/// Windows fill, whatever the threads' pace.
const LATE_RECEIPTS: (&str, &str) = ("COMEM_FAULTS", "delay=2ms");

#[test]
fn what_threads_say_faster_than_it_can_leave_arrives_soon_even_if_they_end() {
    // What has waited for room was looked through from its beginning for each of it, and receipts for threads that had
    // ended lay about.
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "2"), LATE_RECEIPTS];
        let outcome = start("many-said", 2, &settings, &[]).finish();
        all_well(&outcome);
        assert!(counter(&outcome, "line_waits") > 0, "memory is not filled with what waits: {:?}", outcome.stats);
    }
}

#[test]
fn who_waits_to_say_more_has_its_ranges_back_before_it_goes_on() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "2"), ("COMEM_ENGINE", "msi"), LATE_RECEIPTS];
        let outcome = start("said-while-lent", 2, &settings, &[]).finish();
        all_well(&outcome);
        assert!(counter(&outcome, "line_waits") > 0, "nobody has had to wait: {:?}", outcome.stats);
    }
}

/// In a tree and without one; with its node's first thread in the call or anywhere else.
fn any_thread_may_call(role: &str) {
    for backbone in BACKBONES {
        for nodes in [2, 3] {
            let outcome = start(role, nodes, &[("COMEM_THREADS", "2"), backbone], &[]).finish();
            all_well(&outcome);
        }
    }
}

#[test]
fn any_thread_may_call_for_its_node_while_the_first_waits_for_its_end() {
    any_thread_may_call("called-and-joined");
}

#[test]
fn any_thread_may_call_for_its_node_while_the_first_waits_for_its_lock() {
    any_thread_may_call("called-under-a-lock");
}

#[test]
fn all_threads_of_a_node_start_behind_a_scope_in_which_others_were() {
    any_thread_may_call("called-behind-a-scope");
}

#[test]
fn any_thread_may_call_for_its_node_when_the_first_is_through() {
    any_thread_may_call("called-behind-the-first");
}

#[test]
fn any_thread_of_an_interpreter_may_come_to_a_barrier() {
    any_thread_may_call("called-at-barriers");
}

#[test]
fn a_node_that_is_asked_says_for_which_semaphore_condition_or_lock_its_threads_wait() {
    let outcome = start("asked", 2, &[("COMEM_THREADS", "4")], &[]).finish();
    all_well(&outcome);
    let said = &outcome.errors[1];
    for part in
        ["semaphore 0x5 to be posted", "condition variable 0x6 to be signalled", "reader-writer lock 0x7, to read"]
    {
        assert!(said.contains(&format!("for {part} (managed by node ")), "{said}");
    }
}

#[test]
fn a_wait_is_as_long_as_it_lasts_and_who_holds_a_lock_says_so() {
    for backbone in BACKBONES {
        let outcome = start("asked-about-locks", 2, &[backbone], &[]).finish();
        all_well(&outcome);
        let (holder, waiter) = (&outcome.errors[0], &outcome.errors[1]);
        assert!(holder.contains("no thread waits in Comem; thread 0 holds lock 0x9"), "{holder}");
        // It wakes every second at least.
        let seconds = waiter.split("thread 1 has waited ").nth(1).and_then(|rest| rest.split(' ').next());
        let seconds: f64 = seconds.and_then(|text| text.parse().ok()).expect(waiter);
        assert!(seconds > 1.5, "{waiter}");
        assert!(waiter.contains("which no thread of this node holds"), "{waiter}");
    }
}

#[test]
fn ranges_that_cross_do_not_wait_for_each_other_for_ever() {
    for backbone in BACKBONES {
        all_well(&start("crossing", 3, &[("COMEM_THREADS", "2"), backbone], &[]).finish());
    }
}

#[test]
fn sequential_consistency_holds_between_real_processes() {
    for backbone in BACKBONES {
        all_well(&start("litmus", 2, &[("COMEM_THREADS", "2"), backbone], &[]).finish());
    }
}

#[test]
fn nodes_that_nobody_told_take_the_backbone_that_fits_and_one_job_has_one() {
    let taken = |settings: &[_]| {
        let outcome = start("relock", 2, settings, &[]).finish();
        all_well(&outcome);
        outcome.stats.values().map(|stats| stats["backbone"].as_str().unwrap_or("").to_string()).collect::<Vec<_>>()
    };
    let auto = ("COMEM_BACKBONE", "auto");
    assert_eq!(taken(&[auto]), ["shm", "shm"]);
    assert_eq!(taken(&[auto, ("COMEM_PORTS", "20000-31999")]), ["udp", "udp"]);
    let outcome = start("relock", 2, &[("COMEM_BACKBONE", "shm")], &[(1, "COMEM_BACKBONE", "udp")]).finish();
    let said = format!("{:?}{:?}", outcome.errors, outcome.failures);
    assert!(said.contains("backbone=udp") && said.contains("backbone=shm"), "{outcome:#?}");
    assert!(outcome.statuses.iter().all(|status| *status != Some(0)), "{outcome:#?}");
}
