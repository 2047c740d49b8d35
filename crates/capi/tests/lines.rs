//! Memory whose accesses the program checks itself, through programs whose checks were written by hand
//! (`programs/checked.h`), so that no compiler with the plug-in is needed.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Compiles a program of checks written by hand.
fn build(source: &str) -> PathBuf {
    let library = common::library();
    let out = common::scratch().join(source.replace('.', "-"));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
    command.arg(common::root().join("include")).arg("-o").arg(&out);
    command.arg(common::program(source)).arg(library.join("libcomem.so"));
    common::run(command.arg(format!("-Wl,-rpath,{}", library.display())));
    out
}

fn lines() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("lines.c"))
}

fn wrong() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("lines_wrong.c"))
}

fn launch(options: &[&str]) -> Command {
    let mut command = common::node(&common::launcher(), 1);
    command.env_remove("COMEM_THREADS").arg("run").args(options);
    command
}

/// Runs the conformance program with these options.
fn conforms(options: &[&str], rounds: &str) {
    let output = common::run(launch(&[&["--no-prefix"], options].concat()).arg(lines()).arg(rounds));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{options:?}: {output:?}");
}

const DIRECT: [&str; 2] = ["--engine", "direct"];
const MSI: [&str; 4] = ["--engine", "msi", "--detector", "inline"];

/// Units of all sizes that matter, and as many nodes.
fn conforms_everywhere(options: &[&str]) {
    for (nodes, unit) in [("1", "64"), ("2", "64"), ("2", "128"), ("2", "2048"), ("4", "64"), ("4", "2048")] {
        conforms(&[options, &["-n", nodes, "--unit-bytes", unit]].concat(), "20");
    }
}

#[test]
fn lines_under_msi_are_right_in_shared_memory() {
    conforms_everywhere(&[&MSI[..], &["--backbone", "shm"]].concat());
}

#[test]
fn so_they_are_over_a_network() {
    conforms_everywhere(&[&MSI[..], &["--backbone", "udp"]].concat());
}

#[test]
fn lines_under_direct_are_right_in_shared_memory() {
    conforms_everywhere(&[&DIRECT[..], &["--backbone", "shm"]].concat());
    conforms(&[&DIRECT[..], &["-n", "2", "-t", "3"]].concat(), "20");
}

#[test]
fn so_are_those_over_a_network() {
    conforms(&[&DIRECT[..], &["-n", "2", "--backbone", "udp"]].concat(), "20");
}

#[test]
fn so_they_are_over_a_bad_network_and_with_several_threads() {
    conforms(&[&MSI[..], &["-n", "3", "--faults", "drop=3%,dup=2%,reorder=5%,seed=7"]].concat(), "10");
    conforms(&[&MSI[..], &["-n", "2", "-t", "3"]].concat(), "40");
}

#[test]
fn the_same_program_runs_on_pages() {
    // Its accesses are sequentially consistent there too, and its checks find nothing.
    conforms(&["-n", "2", "--engine", "msi"], "10");
}

#[test]
fn what_the_checks_found_is_counted() {
    let stats = common::scratch().join("lines-stats.json");
    let file = stats.to_string_lossy().into_owned();
    conforms(&[&MSI[..], &["-n", "2", "--stats", &file]].concat(), "20");
    let text = std::fs::read_to_string(&stats).expect("statistics");
    let count = |name: &str| {
        let field = format!("\"{name}\":");
        let found = text.split(&field).skip(1);
        found.filter_map(|rest| rest.trim_start().split([',', '\n', '}']).next()?.trim().parse::<u64>().ok()).max()
    };
    for name in ["load_misses", "store_misses", "genuine_magic"] {
        assert!(count(name).is_some_and(|count| count > 0), "{name}: {text}");
    }
    assert_eq!(count("unit_bytes"), Some(64));
}

#[test]
fn names_in_lines_memory_are_those_that_other_nodes_wrote() {
    let stats = common::scratch().join("lines-names.json");
    let file = stats.to_string_lossy().into_owned();
    for engine in [&DIRECT[..], &MSI] {
        conforms(&[engine, &["-n", "2", "--stats", &file]].concat(), "5");
        let text = std::fs::read_to_string(&stats).expect("statistics");
        for name in ["a name that thread 0", "a name that thread 1", "b name that thread 0", "b name that thread 1"] {
            assert!(text.contains(&format!("{name} made, as long as a label in a report can be")), "{name}: {text}");
        }
    }
}

/// What a node says that is refused or ended.
fn refused(command: &mut Command, code: i32) -> String {
    let Output { status, stderr, .. } = command.output().expect("it can be started");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(code), "{command:?}: {said}");
    said
}

fn says(said: &str, words: &[&str]) {
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in: {said}");
}

#[test]
fn a_unit_that_there_is_not_is_refused() {
    let options = [&MSI[..], &["-n", "2"]].concat();
    for unit in ["96", "32", "4096"] {
        let said = refused(launch(&[&options[..], &["--unit-bytes", unit]].concat()).arg(lines()), 2);
        says(&said, &["64, 128, 256, 512, 1024 or 2048 bytes"]);
        let said = refused(common::node(lines(), 1).env("COMEM_UNIT_BYTES", unit), 3);
        says(&said, &["COMEM_UNIT_BYTES", unit, "64, 128, 256, 512, 1024, 2048"]);
    }
    for (mistake, words) in [
        ("unit", "96 bytes is none of"),
        ("hlrc", "under hlrc, which keeps pages"),
        ("two", "2 pages and of 64 bytes"),
        ("pages", "under direct, which keeps lines"),
    ] {
        says(&refused(launch(&options).arg(wrong()).arg(mistake), 2), &[words]);
    }
    says(&refused(launch(&["-n", "2"]).arg(wrong()).arg("hlrc"), 2), &["under hlrc, which keeps pages"]);
}

#[test]
fn nodes_that_disagree_on_the_unit_do_not_start() {
    let script = format!("COMEM_UNIT_BYTES=$((64 << COMEM_NODE)) exec {}", lines().display());
    let options = [&MSI[..], &["-n", "2"]].concat();
    let said = refused(launch(&options).args(["--", "sh", "-c", &script]), 3);
    says(&said, &["lines=64", "lines=128"]);
}

#[test]
fn a_program_without_checks_is_told_how_to_get_them() {
    // It allocates memory that it uses by plain loads and stores; under direct it is told then.
    let program = common::build("cc", "c11", "buffers.c");
    // There are no pages under direct either, as between hosts.
    let pages = ["--engine", "direct", "--detector", "mprotect", "--backbone", "udp"];
    for (options, name) in
        [(&MSI[..], "the detector inline"), (&DIRECT, "the engine direct"), (&pages, "the engine direct")]
    {
        for nodes in ["1", "2"] {
            let output = launch(&[options, &["-n", nodes]].concat()).arg(&program).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{said}");
            says(&said, &[name, "and buffers-c-cc does not", "comem-cc --inline"]);
        }
    }
    let said = refused(launch(&["-n", "2", "--engine", "hlrc", "--detector", "inline"]).arg(&program), 2);
    says(&said, &["hlrc does not go with detector inline", "lines"]);
    let said = refused(common::node(lines(), 1).env("COMEM_ENGINE", "scope").env("COMEM_DETECTOR", "inline"), 3);
    says(&said, &["scope keeps pages"]);
}

/// No code in Fortran has checks, so it would lose what it stores.
#[test]
fn a_program_in_fortran_is_refused_and_runs_on_pages() {
    if !common::has("gfortran") {
        return println!("SKIP: a program in Fortran under inline: there is no gfortran");
    }
    let program = common::scratch().join("heat-f90");
    let mut compile = Command::new(common::library().join("comem-fc"));
    compile.env_remove("COMEM_FC").env("XDG_CACHE_HOME", common::scratch()).arg("-O1").arg("-o").arg(&program);
    common::run(compile.arg(common::root().join("examples/heat.f90")));
    for (options, name) in [(&MSI[2..], "the detector inline"), (&MSI, "the detector inline"), (&DIRECT, "direct")] {
        for nodes in ["1", "2"] {
            let said = refused(launch(&[options, &["-n", nodes]].concat()).arg(&program), 3);
            says(
                &said,
                &[
                    name,
                    "heat-f90 does not",
                    "comem-cc --inline",
                    "Fortran, Python and Rust",
                    "--engine hlrc, scope, lrc, multicast, msi or hardware",
                ],
            );
        }
    }
    common::run(launch(&["-n", "2", "--engine", "msi"]).arg(&program));
}

#[test]
fn accesses_that_are_mistakes_end_the_node_with_a_sentence() {
    for (engine, (mistake, words)) in [&MSI[..], &DIRECT].into_iter().flat_map(|engine| MISTAKES.map(|it| (engine, it)))
    {
        let options = [engine, &["-n", "2"]].concat();
        let Output { status, stderr, .. } = launch(&options).arg(wrong()).arg(mistake).output().expect("it starts");
        assert!(!status.success(), "{mistake}");
        says(&String::from_utf8_lossy(&stderr), words);
    }
}

/// What is said of each mistake.
const MISTAKES: [(&str, &[&str]); 8] = [
    ("beyond", &["a read of", "948576 bytes beyond the end of grid"]),
    ("store-beyond", &["a write to", "948576 bytes beyond the end of grid"]),
    ("copy-beyond", &["a write to", "948576 bytes beyond the end of grid"]),
    ("freed", &["a read of", "0 bytes into grid, which was freed"]),
    ("unmapped", &["the program has unmapped shared memory of grid"]),
    ("two-units", &["grid", "lie in two units of 64 bytes"]),
    ("abort", &["the grid has a hole"]),
    ("read-only", &["the program wrote to grid, which it had declared read-only"]),
];

#[test]
fn a_table_that_cannot_be_mapped_names_the_limit() {
    let script = format!("ulimit -v 8000000; exec {}", lines().display());
    let said = refused(Command::new("sh").args(["-c", &script]), 3);
    says(&said, &["comem-cc --inline", "the table of entries", "RLIMIT_AS", "8000000 KiB", "ulimit -v"]);
}
