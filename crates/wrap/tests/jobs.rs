//! Programs that hand shared memory to the kernel, as jobs: with the wrapper every call does its work, and without it
//! each one fails, which shows that the memory was not there.

mod common;

use std::sync::OnceLock;

const DETECTORS: [&str; 3] = ["uffd-async", "uffd", "mprotect"];

/// What this host can do; the others are left out.
fn detectors() -> Vec<&'static str> {
    let works = |detector: &&str| {
        std::panic::catch_unwind(|| common::job(&["-n", "2", "--detector", detector], program(), &["none"])).is_ok()
    };
    DETECTORS.into_iter().filter(works).collect()
}

fn program() -> &'static std::path::Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| common::c_program("system_calls.c", &[]))
}

#[test]
fn every_wrapped_call_takes_shared_memory() {
    let with = detectors();
    assert!(with.contains(&"mprotect"), "{with:?}");
    for detector in with {
        for engine in ["hlrc", "scope", "lrc", "multicast", "msi"] {
            let options = ["-n", "2", "--prefetch", "off", "--detector", detector, "--engine", engine];
            assert_eq!(common::job(&options, program(), &[]), "ok\n", "{options:?}");
        }
    }
}

/// No engine is named: all nodes map one memory, and the kernel finds it there, with the wrapper and without.
#[test]
fn on_one_host_they_take_shared_memory_as_it_is() {
    for wrap in ["on", "off"] {
        let options = ["-n", "2", "--wrap", wrap];
        assert_eq!(common::job(&options, program(), &[]), "ok\n", "{options:?}");
    }
}

#[test]
fn so_do_the_calls_of_a_fortified_program() {
    let program = common::c_program("system_calls.c", &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]);
    assert_eq!(common::job(&["-n", "2", "--prefetch", "off", "--engine", "hlrc"], &program, &[]), "ok\n");
}

#[test]
fn without_the_wrapper_each_of_them_fails() {
    let calls = ["read", "pwrite", "writev", "fread", "fwrite", "send", "recvmsg", "open", "fstat"];
    let small = ["chdir", "mkdir", "rmdir", "waitpid", "wait", "pipe", "pipe2", "socketpair", "nanosleep"];
    let times = ["clock_gettime", "getrusage"];
    for call in calls.into_iter().chain(small).chain(times) {
        let options = ["-n", "2", "--prefetch", "off", "--engine", "hlrc", "--no-wrap"];
        assert_eq!(common::job(&options, program(), &[call]), format!("{call}: EFAULT\n"));
    }
}

#[test]
fn a_job_of_one_node_needs_no_wrapper() {
    assert_eq!(common::job(&["-n", "1"], program(), &[]), "");
}

#[test]
fn pages_that_others_take_away_meanwhile_are_no_reason_to_fail() {
    let program = common::c_program("contended.c", &[]);
    for engine in ["msi", "hlrc"] {
        assert_eq!(common::job(&["-n", "2", "-t", "2", "--engine", engine], &program, &[]), "ok\n", "{engine}");
    }
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_on_shared_memory_ends_alone() {
    let program = common::c_program("cancelled.c", &[]);
    assert_eq!(common::job(&["-n", "2", "-t", "1", "--engine", "hlrc"], &program, &[]), "ok\n");
}

#[test]
fn a_buffer_may_be_larger_than_the_cache_of_copies() {
    let program = common::example("file_io");
    let path = std::env::temp_dir().join(format!("comem-wrap-{}", std::process::id()));
    let options = ["-n", "2", "--cache", "256K", "--prefetch", "off", "--engine", "hlrc"];
    let said = common::job(&options, &program, &[path.to_str().expect("a path of letters")]);
    let _ = std::fs::remove_file(&path);
    assert_eq!(said, "0 wrong of 3000000\n");
}

#[test]
fn a_program_in_rust_needs_no_symbols_for_it() {
    let program = common::example("file_io");
    let path = std::env::temp_dir().join(format!("comem-wrap-rust-{}", std::process::id()));
    let path = path.to_str().expect("a path of letters");
    let options = ["-n", "2", "--prefetch", "off", "--engine", "hlrc"];
    assert_eq!(common::job(&options, &program, &[path]), "0 wrong of 3000000\n");
    let without = common::job(&[&options[..], &["--wrap", "off"]].concat(), &program, &[path]);
    let _ = std::fs::remove_file(path);
    assert!(without.contains("Bad address"), "{without}");
}

/// How jobs have memory whose accesses the program checks itself.
const LINES: [&[&str]; 3] = [
    &["-n", "2", "--engine", "direct", "--backbone", "shm"],
    &["-n", "2", "--engine", "direct", "--backbone", "shm", "--unit-bytes", "2048"],
    &["-n", "2", "--engine", "msi", "--detector", "inline", "--backbone", "udp"],
];

#[test]
fn calls_of_checked_programs_take_lines_memory() {
    let Some(program) = common::checked_program("system_calls.c") else { return };
    for options in LINES {
        assert_eq!(common::job(options, &program, &[]), "ok\n", "{options:?}");
    }
}

#[test]
fn functions_of_the_c_library_take_lines_memory() {
    let Some(program) = common::checked_program("library.c") else { return };
    for options in LINES {
        assert_eq!(common::job(options, &program, &[]), "ok\n", "{options:?}");
        let bare = [options, &["--no-wrap"]].concat();
        assert_eq!(common::job(&bare, &program, &[]), "ok\n", "{bare:?}");
    }
    let pages = ["-n", "2", "--engine", "msi"];
    assert_eq!(common::job(&pages, &program, &[]), "ok\n", "the same program on pages");
}
