//! What the tests of the C interface share: the library, the compilers, running what they make.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// A test program's source.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// A place for what tests compile.
pub fn scratch() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&dir).expect("a directory for test programs can be made");
    dir
}

/// The directory with libcomem.so and the command `comem`, built in the profile and target directory of this test:
/// Cargo builds no shared library, and no other package's binary, for tests. Both at once: what each wants of common
/// libraries by itself would have these built once more.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let profile = test.parent().and_then(Path::parent).expect("tests lie in PROFILE/deps").to_path_buf();
        let directory = profile.parent().expect("PROFILE lies in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "comem-c", "-p", "comem-cli", "-p", "comem-wrap", "--lib", "--bins"]);
        cargo.arg("--target-dir").arg(directory).current_dir(root());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        run(&mut cargo);
        profile
    })
}

/// The command `comem`.
pub fn launcher() -> PathBuf {
    library().join("comem")
}

/// The directory with the built workloads; each test file has its own, since test files may run side by side.
pub fn workloads() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let out = scratch().join(format!("workloads-{}", test.file_stem().unwrap_or_default().to_string_lossy()));
        let mut make = Command::new("make");
        make.arg("--quiet").arg("-C").arg(root().join("workloads"));
        make.arg(format!("COMEM_LIB={}", library().display())).arg(format!("OUT={}", out.display()));
        run(make.args(["CFLAGS=-O2 -Werror", "MAKEFLAGS="]));
        out
    })
}

/// Whether a compiler is installed.
pub fn has(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|o| o.status.success())
}

/// The C compilers (first) or C++ compilers to test with: the system's own, and clang where it is.
pub fn compilers(cpp: bool) -> Vec<&'static str> {
    let (own, clangs) = if cpp { ("c++", ["clang++", "clang++-14"]) } else { ("cc", ["clang", "clang-14"]) };
    std::iter::once(own).chain(clangs.into_iter().find(|c| has(c))).collect()
}

/// Runs a command to its end and gives what it printed; a failure fails the test with all of it.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A compiler with the warnings that users' builds may have on, all of them errors.
pub fn strict(compiler: &str, standard: &str) -> Command {
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}"));
    command.args(["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror", "-I"]);
    command.arg(root().join("include"));
    command
}

/// Compiles a test program and links it with the library. Tests that run side by side may build the same program, so
/// it gets its name when it is whole.
pub fn build(compiler: &str, standard: &str, source: &str) -> PathBuf {
    static BUILDS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{}-{compiler}", source.replace('.', "-"));
    let unfinished = format!("{name}.{}.{}", std::process::id(), BUILDS.fetch_add(1, Ordering::Relaxed));
    let (out, unfinished) = (scratch().join(name), scratch().join(unfinished));
    let library = library();
    let mut command = strict(compiler, standard);
    command.args(["-O2", "-pthread", "-o"]).arg(&unfinished).arg(program(source)).arg(library.join("libcomem.so"));
    run(command.arg(format!("-Wl,-rpath,{}", library.display())));
    std::fs::rename(&unfinished, &out).expect("a program can be given its name");
    out
}

/// Compiles an example as a user would, and links it with the library.
pub fn build_example(compiler: &str, standard: &str, source: &str) -> PathBuf {
    let out = scratch().join(format!("example-{}-{}", source.replace('.', "-"), std::process::id()));
    let library = library();
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-O2", "-pthread", "-I"]).arg(root().join("include"));
    command.arg("-o").arg(&out).arg(root().join("examples").join(source)).arg(library.join("libcomem.so"));
    run(command.arg(format!("-Wl,-rpath,{}", library.display())));
    out
}

/// A node alone, with so many threads, and none of the caller's own settings. One that hangs is ended, and so fails.
pub fn node(program: &Path, threads: usize) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("COMEM_")) {
        command.env_remove(name);
    }
    command.env("COMEM_THREADS", threads.to_string());
    command
}
