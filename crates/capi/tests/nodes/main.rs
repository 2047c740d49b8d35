//! The C programs as jobs of several nodes, through `comem run`: the right answer under every engine that promises
//! one, with several threads a node, and over a network that loses, repeats and reorders.

#[path = "../common/mod.rs"]
mod common;
mod one_host;
mod plain;
mod successive;

use comem_rt::heap::PageEngine;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The command `comem`. Where its arguments name no engine pages have a protocol, which most of these tests look at: on
/// one host users get memory without one ([`one_host`]).
fn comem() -> Command {
    let mut command = common::node(&common::launcher(), 1);
    command.env_remove("COMEM_THREADS").env("COMEM_ENGINE", "hlrc");
    command
}

/// Runs a workload as a job and gives its line, which must end in `ok`.
fn job(options: &[&str], name: &str, arguments: &[&str]) -> String {
    let mut command = comem();
    command.args(["run", "--no-prefix"]).args(options);
    command.arg(common::workloads().join(name)).args(arguments);
    let line = String::from_utf8_lossy(&common::run(&mut command).stdout).into_owned();
    assert!(line.ends_with(" ok\n") && line.lines().count() == 1, "{command:?}: {line}");
    line
}

const SEA: [&str; 7] = ["--check", "--rows", "40", "--columns", "33", "--iterations", "12"];
const GENETIC: [&str; 5] = ["--check", "--population", "60", "--generations", "4"];
const XSTATE: [&str; 3] = ["--check", "--radius", "15"];

/// All three workloads with these options.
fn workloads_agree(options: &[&str]) {
    job(options, "sea", &SEA);
    job(options, "sea", &[&SEA[..], &["--ranges", "--unit", "7"]].concat());
    job(options, "genetic", &GENETIC);
    job(options, "xstate", &XSTATE);
    job(options, "xstate", &[&XSTATE[..], &["--weighted"]].concat());
}

#[test]
fn every_number_of_nodes_gives_the_sequential_answer() {
    for nodes in ["1", "2", "3", "4", "8"] {
        workloads_agree(&["-n", nodes, "--engine", "msi"]);
    }
    for nodes in ["2", "4"] {
        workloads_agree(&["-n", nodes, "--engine", "msi", "--backbone", "udp"]);
    }
}

#[test]
fn so_does_the_engine_owner() {
    for nodes in ["2", "3"] {
        workloads_agree(&["-n", nodes, "--engine", "owner", "--backbone", "udp"]);
    }
}

/// Programs without checks: their objects are checked by the library.
#[test]
fn so_does_the_engine_direct() {
    for options in [&["-n", "1"][..], &["-n", "3"], &["-n", "2", "-t", "2"], &["-n", "2", "--unit-bytes", "512"]] {
        workloads_agree(&[options, &["--engine", "direct"]].concat());
    }
    workloads_agree(&["-n", "2", "--engine", "direct", "--backbone", "udp"]);
    workloads_agree(&["-n", "2", "--engine", "direct", "--detector", "explicit"]);
}

/// Objects of C++ with elements of all sizes, in that program without checks too.
#[test]
fn objects_of_cpp_are_right_under_direct() {
    if !common::has("c++") {
        return println!("SKIP: objects of C++ under direct: there is no C++ compiler");
    }
    let program = common::build("c++", "c++17", "objects.cpp");
    for backbone in ["shm", "udp"] {
        for shape in [["-n", "2", "-t", "2"], ["-n", "4", "-t", "1"]] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "--engine", "direct"]);
            command.args(["--backbone", backbone]).args(shape).arg(&program);
            let output = common::run(&mut command);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "objects: ok\n", "{backbone} {shape:?}");
        }
    }
}

#[test]
fn what_was_printed_before_a_crash_gets_out() {
    let program = common::build("cc", "c99", "misuse.c");
    let mut command = comem();
    command.args(["run", "-n", "2"]).arg(program).arg("10");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.contains("[0] started\n") && text.contains("[1] started\n"), "{output:?}");
}

#[test]
fn so_do_several_threads_in_each_node() {
    for engine in ["msi", "owner"] {
        workloads_agree(&["-n", "2", "-t", "3", "--engine", engine]);
    }
}

#[test]
fn so_does_a_bad_network() {
    workloads_agree(&["-n", "3", "--faults", "drop=5%,dup=2%,reorder=5%,seed=7"]);
}

#[test]
fn the_microbenchmarks_find_nothing_wrong_on_a_bad_network() {
    for faults in ["drop=0%,seed=1", "drop=5%,dup=2%,reorder=5%,seed=3"] {
        let options = ["-n", "3", "--faults", faults];
        job(&options, "message-test", &["--count", "6000"]);
        job(&options, "barrier-test", &["--barriers", "60"]);
        job(&options, "lock-test", &["--increments", "60"]);
    }
}

#[test]
fn a_program_in_cpp_is_a_job_too() {
    let program = common::build("c++", "c++17", "job.cpp");
    let mut command = comem();
    command.args(["run", "--no-prefix", "-n", "3", "-t", "2"]).arg(program);
    assert_eq!(String::from_utf8_lossy(&common::run(&mut command).stdout), "job: ok\n");
}

/// Every engine that keeps pages, the example among them.
fn page_engines() -> impl Iterator<Item = &'static str> {
    PageEngine::for_jobs().filter(|engine| engine.keeps_pages()).map(PageEngine::name)
}

#[test]
fn shared_memory_in_c_is_one_memory_on_every_node() {
    let program = common::build("cc", "c11", "heap.c");
    // It has regions under each engine, and so locks that tell what was written.
    for engine in page_engines() {
        for shape in [["1", "3"], ["2", "2"], ["3", "1"]] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "--engine", engine, "--locks", "tokens"]);
            command.args(["-n", shape[0], "-t", shape[1]]).arg(&program);
            let output = common::run(&mut command);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "heap: ok\n", "{engine} {shape:?}");
        }
    }
}

#[test]
fn atomic_operations_and_loops_dealt_out_are_right_on_every_number_of_nodes() {
    let program = common::build("cc", "c11", "atomics.c");
    for engine in page_engines() {
        for (backbone, shapes) in
            [("shm", [["1", "3"], ["2", "2"], ["4", "1"]]), ("udp", [["1", "1"], ["2", "2"], ["4", "1"]])]
        {
            for shape in shapes {
                let mut command = comem();
                command.args(["run", "--no-prefix", "--engine", engine]);
                command.args(["--backbone", backbone, "-n", shape[0], "-t", shape[1]]).arg(&program);
                let output = common::run(&mut command);
                let said = String::from_utf8_lossy(&output.stdout);
                assert_eq!(said, "atomics: ok\n", "{engine} over {backbone}, {shape:?}");
            }
        }
    }
}

#[test]
fn mistakes_with_atomic_operations_and_loops_end_with_a_sentence() {
    let program = common::build("cc", "c11", "atomics_wrong.c");
    let mistakes = [
        ("1", "which is in no allocation of the shared heap"),
        ("2", "which is no multiple of 8"),
        ("3", "which was declared read-only"),
        ("4", "a dynamic loop within a dynamic loop"),
        ("5", "every thread makes the same loops in the same order"),
        ("6", "which is in no allocation of the shared heap"),
    ];
    for (which, sentence) in mistakes {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2"]).arg(&program).arg(which);
        let output = command.output().expect("the job runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(sentence), "{which}: {output:?}");
    }
}

#[test]
fn the_standard_containers_work_in_shared_memory() {
    if !common::has("c++") {
        return println!("SKIP: there is no C++ compiler");
    }
    let out = common::scratch().join("containers");
    let mut compile = common::strict("c++", "c++17");
    compile.args(["-O1", "-pthread", "-no-pie", "-o"]).arg(&out).arg(common::program("containers.cpp"));
    compile.arg(common::library().join("libcomem.so")).arg(format!("-Wl,-rpath,{}", common::library().display()));
    common::run(&mut compile);
    for engine in page_engines() {
        for (backbone, shape) in [("shm", ["1", "2"]), ("shm", ["2", "1"]), ("udp", ["2", "2"]), ("udp", ["4", "1"])] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "--engine", engine]);
            command.args(["--backbone", backbone, "-n", shape[0], "-t", shape[1]]).arg(&out);
            let said = String::from_utf8_lossy(&common::run(&mut command).stdout).into_owned();
            assert_eq!(said, "containers: ok\n", "{engine} over {backbone}, {shape:?}");
        }
    }
}

#[test]
fn the_examples_of_containers_and_pools_print_on_several_nodes_what_they_print_alone() {
    let examples = [
        ("c++", "c++17", "words.cpp", "350 times a\n300 times the\n250 times of\n"),
        ("cc", "c11", "pool.c", "mean 153599.5\n"),
    ];
    for (compiler, standard, name, expected) in examples.into_iter().filter(|(compiler, ..)| common::has(compiler)) {
        let out = common::scratch().join(name.replace('.', "-"));
        let mut compile = Command::new(compiler);
        compile
            .arg(format!("-std={standard}"))
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-pthread", "-o"]);
        compile.arg(&out).arg(common::root().join("examples").join(name));
        compile.arg(format!("-I{}", common::root().join("include").display()));
        compile.arg(common::library().join("libcomem.so")).arg(format!("-Wl,-rpath,{}", common::library().display()));
        common::run(&mut compile);
        for nodes in ["1", "3"] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "-n", nodes, "-t", "2"]).arg(&out);
            assert_eq!(String::from_utf8_lossy(&common::run(&mut command).stdout), expected, "{name}, {nodes} nodes");
        }
    }
}

#[test]
fn threads_of_openmp_and_those_of_comem_parallel_use_shared_memory_in_turn() {
    let out = common::scratch().join("pools");
    let mut compile = common::strict("cc", "c11");
    compile.args(["-O1", "-pthread", "-fopenmp", "-o"]).arg(&out).arg(common::program("pools.c"));
    compile.arg(common::library().join("libcomem.so")).arg(format!("-Wl,-rpath,{}", common::library().display()));
    common::run(&mut compile);
    for engine in page_engines() {
        for (nodes, first) in [("1", None), ("2", Some("parallel-first")), ("2", None)] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "--engine", engine, "-n", nodes, "-t", "2"]);
            let said = String::from_utf8_lossy(&common::run(command.arg(&out).args(first)).stdout).into_owned();
            assert_eq!(said, "pools: ok\n", "{engine}, {nodes} nodes, {first:?}");
        }
    }
}

#[test]
fn atomic_operations_are_right_where_writes_fault_and_on_a_bad_network() {
    let program = common::build("cc", "c11", "atomics.c");
    for options in
        [["--detector", "mprotect"], ["--detector", "uffd"], ["--faults", "drop=5%,dup=5%,reorder=5%,seed=4"]]
    {
        let mut command = comem();
        command.args(["run", "--no-prefix", "--backbone", "udp", "-n", "3", "-t", "2"]);
        let output = common::run(command.args(options).arg(&program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "atomics: ok\n", "{options:?}");
    }
}

#[test]
fn any_thread_may_make_the_call_of_its_node_whatever_the_first_waits_for() {
    let program = common::build("cc", "c11", "callers.c");
    for backbone in ["shm", "udp"] {
        for nodes in ["2", "3"] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "--backbone", backbone]);
            let output = common::run(command.args(["-n", nodes, "-t", "2"]).arg(&program));
            assert_eq!(String::from_utf8_lossy(&output.stdout), "callers: ok\n", "{backbone}, {nodes} nodes");
        }
    }
}

#[test]
fn what_is_written_within_a_range_stays_and_ends_without_a_beginning_are_refused() {
    let program = common::build("cc", "c11", "ranges.c");
    for engine in ["msi", "owner", "direct"] {
        for backbone in ["shm", "udp"] {
            let mut command: Command = common::node(&common::launcher(), 1);
            command.args(["run", "--no-prefix", "-n", "2", "--engine", engine, "--backbone", backbone]).arg(&program);
            let output = common::run(&mut command);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ranges: ok\n", "{engine}, {backbone}");
            let failed = command.arg("failed").output().unwrap();
            assert_eq!(failed.status.code(), Some(42), "{engine}, {backbone}: {failed:?}");
        }
    }
}

#[test]
fn a_page_is_mapped_before_it_comes_where_no_other_thread_could_see_it() {
    let program = common::build("cc", "c11", "early.c");
    let stats = common::scratch().join("early.json");
    for detector in [&[][..], &["--detector", "mprotect"]] {
        for (wait, threads) in [("spin", "alone"), ("block", "alone"), ("block", "gone"), ("block", "beside")] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "-n", "2", "--backbone", "udp"]);
            command.args(["--prefetch", "off", "--wait", wait, "--stats"]).arg(&stats).args(detector);
            let output = common::run(command.arg(&program).arg(threads));
            assert_eq!(String::from_utf8_lossy(&output.stdout), "early: 0 wrong\n", "{wait} {threads}");
            let text = std::fs::read_to_string(&stats).expect("the statistics were written");
            // Node 0 alone asks for pages.
            let count = |name: &str| -> u64 {
                let key = format!("\"{name}\":");
                let number = |rest: &str| rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
                text.split(&key).skip(1).filter_map(number).max().expect("it is counted")
            };
            let (requests, early) = (count("page_requests"), count("mapped_early"));
            assert!(requests >= 3000, "{requests}");
            match threads {
                "beside" => assert_eq!(early, 0),
                _ => assert!(early >= requests * 9 / 10, "{detector:?} {wait} {threads}: {early} of {requests}"),
            }
        }
    }
}

#[test]
fn a_child_made_by_fork_that_calls_comem_is_told_so_and_ends_alone() {
    const CALLS: usize = 13;
    let program = common::build("cc", "c11", "forks.c");
    for options in [["-n", "1"].as_slice(), &["-n", "2", "--backbone", "shm"], &["-n", "2", "--backbone", "udp"]] {
        let mut command = comem();
        command.args(["run", "--no-prefix"]).args(options).arg(&program);
        let output = common::run(&mut command);
        let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let count = |text: &str, part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!(count(&said, "a process made by fork called Comem"), CALLS, "{said}");
        assert_eq!(
            count(&printed, "printed by the parent alone"),
            options[1].parse::<usize>().expect("a number"),
            "{printed}"
        );
        assert_eq!(count(&printed, "forks: ended"), 1, "{printed}");
    }
}

#[test]
fn what_a_program_hands_over_may_lie_in_shared_memory() {
    let program = common::build("cc", "c11", "buffers.c");
    // The best detector that works here, and the one that works everywhere.
    for (backbone, detector) in
        ["udp", "shm"].into_iter().flat_map(|b| [(b, &[][..]), (b, &["--detector", "mprotect"])])
    {
        for threads in ["1", "3"] {
            let options = [&["-n", "2", "-t", threads, "--backbone", backbone][..], detector].concat();
            let mut command = comem();
            command.args(["run", "--no-prefix"]).args(&options).arg(&program);
            let output = common::run(&mut command);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "buffers: ok\n", "{options:?}");
        }
    }
}

#[test]
fn a_programs_signals_come_in_its_own_threads() {
    let program = common::build("cc", "c11", "signals.c");
    for options in [["--backbone", "shm"], ["--backbone", "udp"], ["--faults", "reorder=5%,seed=1"]] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2", "-t", "2"]).args(options);
        let output = common::run(command.arg(&program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "signals: ok\n", "{options:?}");
    }
}

#[test]
fn a_program_survives_what_it_survives_without_comem() {
    let program = common::build("cc", "c11", "survives.c");
    for options in [["--backbone", "shm"], ["--backbone", "udp"]] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2", "-t", "2"]).args(options);
        let output = common::run(command.arg(&program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "survives: ok\n", "{options:?}");
    }
}

/// A program of several tests, which may run side by side: built once.
fn odd() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| common::build("cc", "c11", "odd.c"))
}

/// A node started by `comem run` panicked where an argument was no UTF-8.
#[test]
fn arguments_that_are_no_text_reach_the_program_as_they_are() {
    let program = odd();
    let name = OsStr::from_bytes(b"caf\xe9 \xff");
    let place = common::scratch().join(name);
    std::fs::create_dir_all(&place).expect("a file system that takes any name");
    std::fs::copy(program, place.join(name)).expect("a copy of the program");
    for program in [program.to_path_buf(), place.join(name)] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2"]).arg(&program).arg("args").arg(name);
        let output = common::run(command.current_dir(&place));
        assert_eq!(output.stdout, b"caf\xe9 \xff\ncaf\xe9 \xff\n", "{program:?}");
    }
}

/// Each failure of each socket was said, ten thousand times a second.
#[test]
fn a_program_that_closes_comems_descriptors_hears_of_it_once_and_ends() {
    let program = odd();
    for backbone in ["udp", "shm"] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2", "--backbone", backbone]);
        let output = command.args(["--detector", "mprotect"]).arg(program).arg("close").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let times = said.matches("the program has closed descriptors that Comem needs").count();
        assert_eq!((output.status.code(), times), (Some(6), 1), "{backbone}: {said}");
        assert!(said.lines().count() < 12, "{backbone}: {said}");
    }
}

/// The process stayed, with threads of Comem's alone.
#[test]
fn a_node_ends_with_the_last_of_its_programs_threads() {
    let program = odd();
    let delay = ["--backbone", "udp", "--faults", "delay=1ms,seed=1"];
    for options in [&["--backbone", "shm"][..], &["--backbone", "udp", "-t", "2"], &delay] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2"]).args(options);
        let output = common::run(command.arg(program).arg("leave"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "the last\nthe last\n", "{options:?}");
    }
}

/// Where a thread's own keys are taken down it has no place any more, nor anything in which to keep a sentence: the
/// node aborted.
#[test]
fn a_call_from_a_destructor_of_a_thread_is_refused_or_done() {
    let output = common::run(common::node(odd(), 2).arg("late"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.is_empty() || said.starts_with("-6 comem: "), "{said}");
}

/// Messages that it had put aside were lost, and the node aborted where a range was still open that others wanted.
#[test]
fn what_a_thread_had_open_when_it_ended_is_for_others() {
    let program = common::build("cc", "gnu99", "places.c");
    for backbone in ["udp", "shm"] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2", "-t", "2", "--backbone", backbone]);
        let output = common::run(command.arg(&program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "places: ok\n", "{backbone}");
    }
}

/// What old code's most usual mistake was called: a null pointer, or one of another node.
#[test]
fn a_pointer_that_was_cut_to_32_bits_is_called_that_and_no_other_is() {
    let sentence = "looks like the lower half of shared address 0x";
    for size in [&["run", "-n", "1"][..], &["run", "-n", "2"], &["run", "-n", "2", "--detector", "mprotect"]] {
        for (what, expected) in [("cut", 1), ("wild", 0)] {
            let output = comem().args(size).arg(odd()).arg(what).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(139), "{size:?}: {said}");
            assert_eq!(said.matches(sentence).count(), expected, "{size:?} {what}: {said}");
            assert!(expected == 0 || said.contains(", 12 bytes into field: a pointer was cut to 32 bits"), "{said}");
            assert!(size.contains(&"2") || !said.contains("another node"), "{size:?}: {said}");
        }
    }
    let alone = common::node(odd(), 1).arg("cut").output().expect("it runs");
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(said.contains(sentence) && said.contains("12 bytes into field"), "{said}");
}

#[test]
fn a_node_that_lacks_a_pointer_is_told_so() {
    let output = comem().args(["run", "-n", "2"]).arg(odd()).arg("null").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(139), "{said}");
    assert!(said.contains("): a null pointer was followed; each node has variables of its own"), "{said}");
}

#[test]
fn what_stands_in_the_guides_runs() {
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let examples = common::root().join("examples");
    for (compiler, standard, source, threads, wanted) in [
        ("cc", "c11", "grid.c", 2, "999999\n"),
        ("cc", "c11", "histogram.c", 2, "1000000 items, 178573 in the first bin\n"),
        ("c++", "c++17", "sum.cpp", 1, "499999500000\n"),
    ] {
        let out = common::scratch().join(source.replace('.', "-"));
        let compile = |flags: &[&str]| {
            let mut command = common::strict(compiler, standard);
            common::run(
                command
                    .args(["-Wno-conversion", "-O2", "-pthread", "-o"])
                    .arg(&out)
                    .arg(examples.join(source))
                    .args(flags),
            );
        };
        let library = common::library();
        let linked =
            [format!("-L{}", library.display()), "-lcomem".into(), format!("-Wl,-rpath,{}", library.display())];
        compile(&linked.iter().map(String::as_str).collect::<Vec<_>>());
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "3", "-t"]);
        assert_eq!(said(common::run(command.arg(threads.to_string()).arg(&out))), wanted, "{source}");
        for form in ["-DCOMEM_PTHREADS", "-DCOMEM_SEQUENTIAL"] {
            compile(&[form]);
            assert_eq!(said(common::run(&mut common::node(&out, threads))), wanted, "{source} {form}");
        }
    }
}

#[test]
fn where_the_table_of_offers_is_refused_nobody_copies_what_its_home_is_writing() {
    let program = common::build("cc", "c11", "refused.c");
    let meeting = common::scratch().join("refused-meeting");
    std::fs::write(&meeting, [0; 4096]).unwrap();
    let mut command = comem();
    command.args(["run", "--no-prefix", "-n", "3", "--backbone", "shm"]);
    let output = common::run(command.arg(&program).arg(&meeting));
    let doctor = common::run(Command::new(common::launcher()).arg("doctor"));
    let notes = String::from_utf8_lossy(&doctor.stdout).contains("uffd-async: the best there is");
    let line = if notes { "refused: ok\n" } else { "refused: ok, and nothing was\n" };
    assert_eq!(String::from_utf8_lossy(&output.stdout), line.repeat(3));
}

/// Under `mprotect` it was said to have as many mappings as the system permits, and no memory.
#[test]
fn a_program_that_unmaps_shared_memory_hears_that_it_did() {
    let program = odd();
    for options in [&[][..], &["--detector", "mprotect"]] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", "2"]).args(options);
        let output = command.arg(program).arg("unmap").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{options:?}: {said}");
        assert_eq!(said.matches("the program has unmapped shared memory of field").count(), 1, "{options:?}: {said}");
        assert!(!said.contains("max_map_count"), "{options:?}: {said}");
    }
}

/// What a job says that waits for longer than ten seconds, and whether it goes on after that.
#[test]
fn who_waits_for_long_hears_for_what_and_why_that_may_be() {
    let program = common::build("cc", "gnu99", "waits.c");
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (
            "lock",
            &["-n", "2"],
            &["no progress for ten seconds", "lock 0x7", "whoever holds the lock computes for long"],
        ),
        ("flag", &["-n", "2"], &["no progress for ten seconds", "flag 0x3", "whoever sets the flag"]),
        (
            "threads",
            &["-n", "1", "-t", "2"],
            &["no progress for ten seconds", "a thread of this node computes for long"],
        ),
        (
            "word",
            &["-n", "2"],
            &[
                "no progress for ten seconds",
                "spins on a plain variable, where under hlrc",
                "--engine msi; no engine helps where the variable is its node's own",
            ],
        ),
        ("asked", &["-n", "2"], &["asked where it waits", "barrier"]),
        ("first", &["-n", "3"], &["no progress for ten seconds", "missing node 0 ("]),
    ];
    std::thread::scope(|scope| {
        for (what, options, expected) in cases {
            let program = &program;
            scope.spawn(move || {
                let mut command = comem();
                command.args(["run", "--no-prefix"]).args(options).arg(program).arg(what);
                let output = common::run(&mut command);
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(String::from_utf8_lossy(&output.stdout), "waits: ok\n", "{what}: {said}");
                for words in expected {
                    // Of three nodes two wait.
                    let times = if what == "first" { 2 } else { 1 };
                    assert_eq!(said.matches(words).count(), times, "{what}: {words}: {said}");
                }
            });
        }
    });
}

/// Sooner than a node would say so by itself, and late enough for one that came to wait late.
#[test]
fn a_job_that_is_stopped_says_where_its_threads_have_waited_for_long() {
    says_where_it_has_waited(comem());
}

/// By this command, with which a job is stopped after 8 seconds.
fn says_where_it_has_waited(mut command: Command) {
    let program = common::build("cc", "gnu99", "waits.c");
    command.args(["run", "--no-prefix", "--timeout", "8s", "-n", "2"]);
    let output = command.arg(program).arg("lock").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{said}");
    for words in ["longer than 8s", "told to stop, while: thread 0 has waited", "for lock 0x7"] {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
}

/// A fault that comes on the smallest of stacks, in a thread that Comem has never seen, and the end of that thread.
#[test]
fn a_thread_with_the_smallest_stack_uses_shared_memory_and_nothing_below_its_stack_changes() {
    let program = common::build("cc", "gnu11", "small_stacks.c");
    let mut skipped = Vec::new();
    for detector in ["uffd-async", "uffd", "mprotect"] {
        for (backbone, engine) in [("udp", "hlrc"), ("shm", "hlrc"), ("udp", "msi"), ("shm", "scope")] {
            let mut command = comem();
            command.args(["run", "--no-prefix", "-n", "2", "-t", "2", "--engine", engine]);
            command.args(["--detector", detector, "--backbone", backbone]).arg(&program);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if said.contains("does not work on host") {
                skipped.push(detector);
                continue;
            }
            assert!(output.status.success(), "{detector} {backbone} {engine}: {output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "small_stacks: ok\n", "{detector} {backbone} {engine}");
        }
    }
    skipped.dedup();
    skipped.iter().for_each(|detector| println!("SKIP: small stacks under {detector}: it does not work here"));
}

/// Exceptions went through the library's frames: a crash, or Rust's words about itself. A thread that ended so let the
/// others wait for ever.
#[test]
fn a_function_of_the_program_that_is_left_by_an_exception_or_the_threads_end_ends_the_node_with_a_sentence() {
    let program = common::build("c++", "c++17", "unwound.cpp");
    for (called, function) in [("parallel", "the function of comem_parallel()"), ("handler", "the handler of errors")] {
        for (how, what) in
            [("exception", "an exception"), ("exit", "or a cancellation,"), ("cancel", "or a cancellation,")]
        {
            for size in [["1", "1"], ["2", "1"], ["2", "2"], ["4", "1"]] {
                let mut command = comem();
                command.args(["run", "--no-prefix", "-n", size[0], "-t", size[1]]);
                let output = command.arg(&program).args([called, how]).output().expect("it runs");
                let said = String::from_utf8_lossy(&output.stderr);
                let told = said.contains(&format!("{what} left {function}, which Comem had called"));
                assert!(told && output.status.code() == Some(101), "{called} {how} {size:?}: {output:?}");
                assert_eq!(output.stdout, b"", "{called} {how} {size:?}");
            }
        }
    }
    let program = common::build("c++", "c++17", "unwound_worker.cpp");
    for size in [["2", "1"], ["1", "2"], ["4", "1"]] {
        let mut command = comem();
        command.args(["run", "--no-prefix", "-n", size[0], "-t", size[1]]).arg(&program);
        let output = command.output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr).contains("an exception left the function of a CREATE");
        assert!(told && output.status.code() == Some(101), "{size:?}: {output:?}");
    }
}

/// A blank or a colon ended the name in `LD_PRELOAD`, and `write` failed.
#[test]
fn system_calls_use_shared_memory_wherever_comem_is_installed() {
    let program = odd().display().to_string();
    let place = common::scratch().join("installed");
    let _ = std::fs::remove_dir_all(&place);
    let run = |command: &std::path::Path| {
        let mut command = common::node(command, 1);
        command.env_remove("COMEM_THREADS").env("COMEM_RUNTIME_DIR", place.join("run"));
        command.args([
            "run",
            "--no-prefix",
            "-n",
            "2",
            "--backbone",
            "udp",
            "--detector",
            "mprotect",
            &program,
            "write",
        ]);
        let output = common::run(&mut command);
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (out, err)
    };
    std::fs::create_dir_all(&place).expect("it can be made");
    for (folder, with_library) in [("with blank", true), ("with:colon", true), ("without", false)] {
        let folder = place.join(folder);
        std::fs::create_dir_all(&folder).expect("it can be made");
        let files = if with_library { &["comem", "libcomem_wrap.so"][..] } else { &["comem"] };
        for name in files {
            std::fs::copy(common::library().join(name), folder.join(name)).expect("it can be copied");
        }
        let (out, err) = run(&folder.join("comem"));
        match with_library {
            true => assert_eq!((out.as_str(), err.as_str()), ("100\n", ""), "{folder:?}"),
            false => {
                assert_eq!(out, "-1\n");
                assert!(err.lines().count() == 1 && err.contains("libcomem_wrap.so is not loaded"), "{err}");
            }
        }
    }
    std::fs::remove_dir_all(place).expect("it can be removed");
}

/// Nodes were killed by SIGXFSZ as they tried detectors, and as they wrote captures and statistics.
#[test]
fn nodes_work_where_files_may_have_few_bytes_or_none() {
    let program = odd().display().to_string();
    let comem = common::launcher().display().to_string();
    let shell = |line: &str| {
        let mut command = common::node(std::path::Path::new("sh"), 1);
        let output = command.env_remove("COMEM_THREADS").args(["-c", line]).output().expect("it runs");
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), out, err)
    };
    for limit in [0, 4] {
        let ran = shell(&format!("ulimit -f {limit}; '{comem}' run --no-prefix -n 2 --backbone udp '{program}' sum a"));
        assert_eq!(ran, (Some(0), "a 3\na 3\n".to_string(), String::new()), "{limit}");
        let (status, _, said) =
            shell(&format!("ulimit -f {limit}; '{comem}' run -n 2 --backbone udp '{program}' write"));
        assert!(status == Some(2) && said.contains("raise `ulimit -f`"), "{limit}: {status:?} {said}");
    }
    let place = common::scratch().join("few-bytes");
    std::fs::create_dir_all(&place).expect("it can be made");
    let inside = |limit: u32, line: &str| shell(&format!("cd '{}'; ulimit -f {limit}; {line}", place.display()));
    let (status, out, said) = inside(0, &format!("COMEM_STATS=run.json '{program}' sum a"));
    assert_eq!((status, out.as_str()), (Some(6), "a 1\n"), "{said}");
    let (status, _, said) = inside(1, &format!("'{comem}' run -n 2 --capture run.pcap '{program}' sum a"));
    assert!(status == Some(0) && said.contains("cannot capture to"), "{status:?} {said}");
    std::fs::remove_dir_all(place).expect("it can be removed");
}

/// A program that lacks a barrier is right where all nodes map one memory, and is found before it leaves its host.
#[test]
fn what_is_right_under_hardware_alone_is_found_by_a_rehearsal_and_by_a_comparison() {
    let program = common::build("cc", "c99", "unsynchronised.c");
    let comem = |arguments: &[&str]| {
        let mut command = common::node(&common::launcher(), 1);
        let output = command.env_remove("COMEM_THREADS").args(arguments).arg(&program).output().expect("it runs");
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), out, err)
    };
    let run = |flags: &[&str]| comem(&[&["run", "--no-prefix", "-n", "2"], flags].concat());
    assert_eq!(run(&["--engine", "hardware"]).1, "found 42\n");
    assert_eq!(run(&[]).1, "found 42\n", "nobody asks for a protocol");
    assert_eq!(run(&["--rehearse"]).1, "found 0\n");
    assert_eq!(run(&["--rehearse", "--engine", "msi"]).1, "found 42\n", "msi needs no barrier for that");
    let (status, table, said) = comem(&["compare", "-n", "2", "--repeat", "1", "--engines", "hlrc,hardware"]);
    assert_eq!(status, Some(1), "{table}{said}");
    let verdict = |engine: &str| table.lines().find(|line| line.starts_with(engine)).unwrap_or_default().to_string();
    assert!(verdict("hlrc").ends_with("differs") && verdict("hardware").ends_with("ok"), "{table}");
    assert!(said.contains("the program is right under hardware alone"), "{said}");
    let (_, shown, _) = run(&["--rehearse", "--dry-run"]);
    assert!(
        shown.contains("backbone   udp (--rehearse: as between hosts)") && shown.contains("COMEM_MTU=1500"),
        "{shown}"
    );
    let (_, shown, _) = run(&["--engine", "hardware", "--dry-run"]);
    assert!(shown.contains("pages      hardware (as it was named)"), "{shown}");
    let (_, shown, _) = run(&["--dry-run"]);
    assert!(shown.contains("pages      hardware (all nodes are on one host and map one memory)"), "{shown}");
}
