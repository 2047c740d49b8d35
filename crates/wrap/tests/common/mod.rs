//! The command, the libraries and the programs that the tests use.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// The directory with the command, both libraries and the examples, in the profile of this test. (Cargo builds no
/// shared library, and no other package's binary, for tests.)
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let profile = test.parent().and_then(Path::parent).expect("tests lie in PROFILE/deps").to_path_buf();
        let target = profile.parent().expect("PROFILE lies in the target directory");
        // All at once: what each wants of common libraries by itself would have these built once more.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "comem-c", "-p", "comem-cli", "-p", "comem-wrap"]);
        cargo.args(["--lib", "--bins", "--examples", "--target-dir"]).arg(target).current_dir(root());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        run(&mut cargo);
        profile
    })
}

/// Runs a command and gives what it printed; a failure fails the test with all of it.
#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// Compiles a test program. Tests that run side by side may build the same one, so it gets its name when it is whole.
pub fn c_program(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    static BUILDS: AtomicUsize = AtomicUsize::new(0);
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{}", flags.concat()));
    let unfinished = format!("{}.{}.{}", out.display(), std::process::id(), BUILDS.fetch_add(1, Ordering::Relaxed));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2", "-pthread", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root().join("include"));
    command.args(flags).arg("-o").arg(&unfinished).arg(source).arg(built().join("libcomem.so"));
    run(command.arg(format!("-Wl,-rpath,{}", built().display())));
    std::fs::rename(&unfinished, &out).expect("a program can be given its name");
    out
}

/// Compiles a test program with checks in its own code; `None`, with a line that says so, where LLVM is not there.
pub fn checked_program(name: &str) -> Option<PathBuf> {
    let plugin = root().join("out/compiler/libcomem_inline.so");
    let clang = Command::new("clang-19").arg("--version").output();
    if clang.is_err() || !plugin.is_file() {
        println!("SKIP: {name} with checks in its own code: there is no clang-19, or no {} (make)", plugin.display());
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-checked"));
    let mut command = Command::new(built().join("comem"));
    command.args(["cc", "--inline", "-std=gnu11", "-O2", "-pthread", "-o"]).arg(&out).arg(source).arg("-lm");
    run(command.env("COMEM_INLINE_PLUGIN", plugin).env("COMEM_LIB", built()));
    Some(out)
}

/// An example of this package.
pub fn example(name: &str) -> PathBuf {
    built().join("examples").join(name)
}

/// Runs a program as a job and gives what it printed. One that hangs is ended, and so fails.
#[track_caller]
pub fn job(options: &[&str], program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(built().join("comem"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COMEM_")) {
        command.env_remove(name);
    }
    command.args(["run", "--no-prefix"]).args(options).arg(program).args(arguments);
    String::from_utf8_lossy(&run(&mut command).stdout).into_owned()
}
