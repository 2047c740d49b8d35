//! Programs built for plain memory: alone, and with plain threads.

use super::*;

const SEQUENTIAL: &str = "-DCOMEM_SEQUENTIAL";
const PTHREADS: &str = "-DCOMEM_PTHREADS";

/// Compiles a test program for plain memory.
fn plain(source: &str, mode: &str) -> PathBuf {
    let out = common::scratch().join(format!("{source}{mode}"));
    let mut compile = common::strict("cc", "c11");
    compile.args([mode, "-O2", "-pthread", "-o"]).arg(&out).arg(common::program(source));
    common::run(&mut compile);
    out
}

#[test]
fn the_same_source_is_a_program_with_plain_memory() {
    for mode in [SEQUENTIAL, PTHREADS] {
        for name in ["heap", "atomics"] {
            let out = plain(&format!("{name}.c"), mode);
            let output = common::run(common::node(&out, 3).env_remove("LD_LIBRARY_PATH"));
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{name}: ok\n"), "{mode}");
        }
    }
}

#[test]
fn with_plain_memory_too_a_program_that_ends_the_job_never_ends_with_status_zero() {
    for mode in [SEQUENTIAL, PTHREADS] {
        let out = plain("misuse.c", mode);
        for (which, status, sentence) in [("3", 9, "enough\n"), ("7", 1, "enough, too\n")] {
            let output = common::node(&out, 1).arg(which).output().expect("the program runs");
            assert_eq!(output.status.code(), Some(status), "{mode} {which}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), sentence, "{mode}");
        }
    }
}

#[test]
fn reader_writer_locks_of_plain_threads_let_readers_in_again_and_together() {
    let output = common::run(common::node(&plain("readers.c", PTHREADS), 4).env_remove("LD_LIBRARY_PATH"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "readers: ok\n");
}

#[test]
fn the_least_of_numbers_with_a_nan_is_one_with_plain_threads_as_well() {
    for program in [common::build("cc", "c11", "reductions.c"), plain("reductions.c", PTHREADS)] {
        let output = common::run(&mut common::node(&program, 3));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "reductions: ok\n", "{program:?}");
    }
}
