//! The C and C++ interfaces do what they say, on a node alone. (What several nodes do is tested through `comem run`.)

mod common;

use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_c_function_does_what_it_says() {
    for compiler in common::compilers(false) {
        let program = common::build(compiler, "c11", "interface.c");
        let output = common::run(common::node(&program, 3).args(["--comem-wait=block", "mine", "--comem-verbose=off"]));
        assert_eq!(text(&output.stdout), "interface: ok\n");
    }
}

#[test]
fn every_cpp_class_does_what_it_says() {
    for compiler in common::compilers(true) {
        let program = common::build(compiler, "c++17", "interface.cpp");
        let output = common::run(&mut common::node(&program, 3));
        assert_eq!(text(&output.stdout), "interface: ok\n");
    }
}

#[test]
fn the_same_source_is_a_sequential_program_without_the_library() {
    let out = common::scratch().join("interface-sequential");
    let mut compile = common::strict("c++", "c++17");
    compile.args(["-DCOMEM_SEQUENTIAL", "-O2", "-o"]).arg(&out).arg(common::program("interface.cpp"));
    common::run(&mut compile);
    assert_eq!(text(&common::run(&mut Command::new(out)).stdout), "interface: ok\n");
}

/// Runs misuse number `which`.
fn misuse(which: u32) -> Output {
    let program = common::build("cc", "c99", "misuse.c");
    let mut command = common::node(&program, 1);
    let engine = if which == 11 { "none" } else { "msi" };
    command
        .env("COMEM_ENGINE", engine)
        .arg(which.to_string())
        .env("COMEM_NODE", "0")
        .output()
        .expect("the program runs")
}

#[test]
fn misuse_ends_the_node_with_one_sentence_and_a_documented_status() {
    let cases = [
        (0, 2, "before comem_start(), or what starts it in its place"),
        (1, 2, "index 10 is outside of"),
        (2, 2, "lock 0x5, which it does not hold; acquire it first"),
        (3, 9, "enough"),
        (4, 2, "make it smaller"),
        (7, 1, "enough, too"),
        (5, 2, "after comem_finish(); finish last"),
        (6, 2, "reader-writer lock 0x5, which it does not hold; acquire it first"),
        (8, 2, "a range of -5 bytes"),
        (9, 2, "an alignment of -64 bytes"),
        (
            11,
            3,
            "although its start had failed; look at what that returns. It was: COMEM_ENGINE=none: there is no engine",
        ),
    ];
    for (which, status, part) in cases {
        let output = misuse(which);
        let sentence = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{which}: {sentence}");
        assert!(sentence.starts_with("comem: node 0 (host "), "also before the start: {sentence}");
        assert!(sentence.contains(part) && sentence.lines().count() == 1, "{sentence}");
        let printed = if [0, 11].contains(&which) { "" } else { "started\n" };
        assert_eq!(text(&output.stdout), printed, "what was printed before gets out, and nothing after");
    }
}

#[test]
fn an_option_of_comem_that_is_none_is_refused_before_anything_starts() {
    let program = common::build("cc", "c99", "misuse.c");
    let output = common::node(&program, 1).args(["1", "--comem-engin=msi"]).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("unknown option --comem-engin"), "{}", text(&output.stderr));
}
