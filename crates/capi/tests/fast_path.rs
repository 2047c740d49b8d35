//! What a hit costs: at most 5 instructions more than the plain access for a read, 8 for a write, bounds check and
//! sequential consistency included. Counted by stepping through compiled loops, so the answer is exact.
#![cfg(target_arch = "x86_64")]

mod common;

fn count(compiler: &str, standard: &str, source: &str) {
    let out = common::scratch().join(format!("{}-{compiler}", source.replace('.', "-")));
    let mut command = common::strict(compiler, standard);
    // Unrolling would take instructions from the plain loop alone, and count them against the shared one.
    command.args(["-O2", "-fno-unroll-loops", "-o"]).arg(&out).arg(common::program(source));
    common::run(&mut command);
    let output = common::run(&mut std::process::Command::new(&out));
    let lines = String::from_utf8_lossy(&output.stdout);
    print!("{compiler}:\n{lines}");
    assert!(lines.contains("instructions more") || lines.contains("SKIP"), "{lines}");
}

#[test]
fn a_hit_from_c_stays_within_its_instructions() {
    for compiler in common::compilers(false) {
        count(compiler, "c11", "fast_path.c");
    }
}

#[test]
fn a_hit_in_natural_cpp_syntax_stays_within_its_instructions() {
    for compiler in common::compilers(true) {
        count(compiler, "c++17", "fast_path.cpp");
    }
}

#[test]
fn no_store_is_announced_while_its_value_is_read() {
    for compiler in common::compilers(true) {
        for level in ["-O0", "-O2"] {
            let out = common::scratch().join(format!("announced{level}-{compiler}"));
            let mut command = common::strict(compiler, "c++17");
            common::run(command.args([level, "-o"]).arg(&out).arg(common::program("announced.cpp")));
            common::run(&mut std::process::Command::new(&out));
        }
    }
}
