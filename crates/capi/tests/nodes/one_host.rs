//! What programs in C and C++ get on one host where nobody asks for an engine: one memory that all nodes map.

use super::*;

/// The command `comem`, as users call it.
fn unasked() -> Command {
    let mut command = comem();
    command.env_remove("COMEM_ENGINE");
    command
}

/// Runs a job with these options; what it printed, and its statistics as text.
fn with_stats(options: &[&str], words: &[&OsStr]) -> (String, String) {
    static JOBS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = JOBS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let stats = common::scratch().join(format!("one-host-{}-{number}.json", std::process::id()));
    let mut command = unasked();
    command.args(["run", "--no-prefix", "--stats"]).arg(&stats).args(options).args(words);
    let output = common::run(&mut command);
    let text = std::fs::read_to_string(&stats).expect("the statistics were written");
    let _ = std::fs::remove_file(stats);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nothing is said: {options:?}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), text)
}

/// The numbers of a counter, of each node and in all.
fn counted(stats: &str, name: &str) -> Vec<u64> {
    let number = |rest: &str| rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    stats.split(&format!("\"{name}\":")).skip(1).filter_map(number).collect()
}

/// What a protocol of pages would count.
const OF_A_PROTOCOL: [&str; 16] = [
    "read_faults",
    "write_faults",
    "signals",
    "page_requests",
    "pages_fetched",
    "pages_prefetched",
    "pages_taken",
    "pages_pushed",
    "diffs_sent",
    "diff_bytes",
    "diffs_applied",
    "twins_made",
    "write_notices",
    "home_notices",
    "evictions",
    "claimed",
];

/// `sor` and an example in C, and containers of C++: their nodes write and read each other's memory.
fn programs() -> Vec<(Vec<PathBuf>, &'static str)> {
    let sor = vec![common::workloads().join("sor"), "--preset".into(), "tiny".into()];
    let grid = common::build_example("cc", "c11", "grid.c");
    let mut all = vec![(sor, " ok\n"), (vec![grid], "999999\n")];
    if common::has("c++") {
        all.push((vec![common::build_example("c++", "c++17", "words.cpp")], "250 times of\n"));
    }
    all
}

#[test]
fn on_one_host_nothing_of_memory_is_noticed_or_sent() {
    for (words, end) in programs() {
        let words: Vec<&OsStr> = words.iter().map(|word| word.as_os_str()).collect();
        for options in [&["-n", "2"][..], &["-n", "4", "--backbone", "shm"], &["-n", "2", "--hosts", "localhost"]] {
            let (printed, stats) = with_stats(options, &words);
            assert!(printed.ends_with(end), "{words:?} {options:?}: {printed}");
            assert!(stats.contains("\"page_engine\": \"hardware\"") && !stats.contains("hlrc"), "{words:?}: {stats}");
            for name in OF_A_PROTOCOL {
                let counts = counted(&stats, name);
                assert!(
                    !counts.is_empty() && counts.iter().all(|n| *n == 0),
                    "{words:?} {options:?}: {name} {counts:?}"
                );
            }
        }
    }
}

#[test]
fn a_rehearsal_notices_and_sends_what_two_hosts_would() {
    for (words, end) in programs() {
        let words: Vec<&OsStr> = words.iter().map(|word| word.as_os_str()).collect();
        let (printed, stats) = with_stats(&["-n", "2", "--rehearse"], &words);
        assert!(printed.ends_with(end), "{words:?}: {printed}");
        assert!(stats.contains("\"page_engine\": \"hlrc\"") && !stats.contains("\"hardware\""), "{words:?}: {stats}");
        assert!(stats.contains("\"backbone\": \"udp\""), "{words:?}: {stats}");
    }
    let sor = [common::workloads().join("sor"), "--preset".into(), "tiny".into()];
    let (_, stats) = with_stats(&["-n", "2", "--rehearse"], &sor.each_ref().map(|word| word.as_os_str()));
    assert!(counted(&stats, "page_requests").iter().any(|n| *n > 0), "{stats}");
}

#[test]
fn on_one_host_mistakes_are_told_as_elsewhere() {
    for (what, sentence) in [
        ("wild", "(SIGSEGV)"),
        ("cut", "looks like the lower half of shared address 0x"),
        ("null", "a null pointer was followed; each node has variables of its own"),
        ("unmap", "the program has unmapped shared memory of field"),
    ] {
        let output = unasked().args(["run", "-n", "2"]).arg(odd()).arg(what).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(sentence), "{what}: {output:?}");
    }
    let program = common::build("cc", "c11", "atomics_wrong.c");
    for (which, sentence) in [("1", "which is in no allocation of the shared heap"), ("3", "was declared read-only")] {
        let output = unasked().args(["run", "-n", "2"]).arg(&program).arg(which).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(sentence), "{which}: {output:?}");
    }
}

/// Locks are words there, and whoever waits for one is told all the same.
#[test]
fn who_waits_for_long_on_one_host_hears_for_what() {
    crate::says_where_it_has_waited(unasked());
}

/// A child made by `fork` has no shared memory; programs that a node runs one after the other have one each.
#[test]
fn children_and_successors_are_as_elsewhere() {
    const CALLS: usize = 13;
    let program = common::build("cc", "c11", "forks.c");
    let output = common::run(unasked().args(["run", "--no-prefix", "-n", "2"]).arg(&program));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("a process made by fork called Comem").count(), CALLS, "{said}");
    let program = odd().display().to_string();
    let script = format!("'{program}' sum one && '{program}' sum two && '{program}' sum three");
    let output = common::run(unasked().args(["run", "--no-prefix", "-n", "3", "sh", "-c", &script]));
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["one 6\n", "two 6\n", "three 6\n"] {
        assert_eq!(text.matches(word).count(), 3, "{text}");
    }
}
