//! The workloads build from their Makefile and give the sequential answer on one node with one and several threads.

mod common;

/// Runs a workload and gives its line, which must end in `ok`.
fn line(name: &str, threads: usize, arguments: &[&str]) -> String {
    let output = common::run(common::node(&common::workloads().join(name), threads).args(arguments));
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(line.ends_with(" ok\n") && line.lines().count() == 1, "{line}");
    line
}

/// The value of `key=` in a line.
fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let found = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key}= in {line}"))
}

/// The workload agrees with its sequential build, and with its own check, at one and more threads.
fn agrees(name: &str, arguments: &[&str]) {
    let sequential = line(&format!("{name}-seq"), 1, arguments);
    for threads in [1, 2, 3, 5] {
        let shared = line(name, threads, &[arguments, &["--check"]].concat());
        assert_eq!(value(&shared, "checksum"), value(&sequential, "checksum"), "{threads} threads: {shared}");
    }
}

#[test]
fn sea_gives_the_sequential_sea() {
    let size = ["--rows", "61", "--columns", "83", "--iterations", "37"];
    for mode in [&["--unit", "0"][..], &["--ranges"], &["--weighted"], &["--unit", "7", "--ranges"]] {
        agrees("sea", &[&size[..], mode].concat());
    }
}

#[test]
fn sea_dumps_its_field() {
    let dump = common::scratch().join("sea.raw");
    line("sea", 2, &["--rows", "30", "--columns", "20", "--iterations", "5", "--dump", &dump.to_string_lossy()]);
    let bytes = std::fs::read(dump).expect("the dump was written");
    let numbers: Vec<i32> = bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    assert_eq!((numbers[0], numbers[1], numbers.len()), (30, 20, 2 + 30 * 20));
    let land = numbers[2..].iter().filter(|t| **t == i32::MIN).count();
    assert!(land > 20 && land < 300, "{land} cells of land");
}

#[test]
fn genetic_breeds_the_sequential_population() {
    agrees("genetic", &["--population", "257", "--think", "10"]);
    agrees("genetic", &["--population", "64", "--think", "1", "--generations", "9", "--seed", "5"]);
}

#[test]
fn xstate_finds_the_sequential_zeros() {
    for expression in ["0", "1", "2", "3"] {
        agrees("xstate", &["--radius", "20", "--expression", expression]);
    }
    agrees("xstate", &["--radius", "15", "--weighted"]);
}

#[test]
fn the_microbenchmarks_find_nothing_wrong() {
    for threads in [1, 3] {
        let messages = line("message-test", threads, &["--count", "5000", "--size", "100"]);
        assert_eq!(value(&messages, "received"), (5000 * threads).to_string());
        line("barrier-test", threads, &["--barriers", "2000"]);
        let locks = line("lock-test", threads, &["--increments", "3000"]);
        assert_eq!(value(&locks, "total"), (3000 * threads).to_string());
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    for (name, arguments) in [("sea", &["--rows", "2"][..]), ("genetic", &["--seed", "x"]), ("xstate", &["--nonsense"])]
    {
        let output =
            common::node(&common::workloads().join(name), 1).args(arguments).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{name} {arguments:?}");
    }
}
