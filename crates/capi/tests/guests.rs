//! Processes that somebody else starts become one job: `comem_start_attr()`, and `comem_mpi.h` beside MPI.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn scratch(name: &str) -> PathBuf {
    let path = common::scratch().join(format!("guests-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// Runs processes side by side, and gives what each printed.
fn side_by_side(commands: Vec<Command>) -> Vec<String> {
    let start = |mut command: Command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let children: Vec<_> = commands.into_iter().map(|command| start(command).expect("a process")).collect();
    let end = |output: Output| {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}\n{out}{err}", output.status);
        out.into_owned()
    };
    children.into_iter().map(|child| end(child.wait_with_output().expect("it ends"))).collect()
}

#[test]
fn processes_join_by_an_id_and_by_a_broadcast_of_the_programs_own() {
    let program = common::build("cc", "c99", "guest.c");
    for way in ["id", "broadcast"] {
        let file = scratch(way).join("id");
        let process = |rank: usize| {
            let mut command = common::node(&program, 1);
            command.args([way, &rank.to_string(), "3"]).arg(&file);
            command
        };
        let said = side_by_side((0..3).map(process).collect());
        let line = |node: usize| format!("node {node} of 3, 2 threads each, sum 6\n");
        assert_eq!(said, [line(0), line(1), line(2)]);
    }
}

/// The program beside MPI: with the compiler's own MPI, or with one that is no more than the program asks for.
fn beside_mpi(compiler: &[&str], out: &Path) -> bool {
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-std=c99", "-Wall", "-Wextra", "-D_DEFAULT_SOURCE", "-I"]);
    command.arg(common::root().join("include")).args(["-O2", "-o"]).arg(out);
    command.arg(common::program("beside_mpi.c")).arg(common::library().join("libcomem.so"));
    command.arg(format!("-Wl,-rpath,{}", common::library().display()));
    command.output().is_ok_and(|output| {
        if !output.status.success() {
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
        output.status.success()
    })
}

/// The program in C of a section of docs/launchers.md, compiled with the MPI that is no more than it asks for.
fn program_of_page(section: &str, directory: &Path) -> PathBuf {
    let page = std::fs::read_to_string(common::root().join("docs/launchers.md")).expect("the page");
    let text = page.split_once(&format!("\n## {section}\n")).expect("the section").1;
    let text = text.split_once("\n## ").map_or(text, |(section, _)| section);
    let code = text.split_once("```c\n").expect("a program").1.split_once("```").expect("its end").0;
    let (source, program) = (directory.join("program.c"), directory.join("program"));
    std::fs::write(&source, code).expect("a file");
    let mut command = common::strict("cc", "c99");
    command.args(["-D_DEFAULT_SOURCE", "-I"]).arg(common::program("fake_mpi")).arg("-o").arg(&program).arg(source);
    command.arg(common::library().join("libcomem.so"));
    common::run(command.arg(format!("-Wl,-rpath,{}", common::library().display())));
    program
}

#[test]
fn the_programs_of_the_page_do_what_it_says() {
    let directory = scratch("page-id");
    let (program, file) = (program_of_page("A unique id", &directory), directory.join("id"));
    std::fs::write(&file, comem_rt::UniqueId::new().expect("an id").to_string()).expect("a file");
    let process = |_| {
        let mut command = common::node(&program, 1);
        command.arg(&file);
        command
    };
    let mut said = side_by_side((0..2).map(process).collect());
    said.sort();
    assert_eq!(said, ["node 0 of 2\n", "node 1 of 2\n"]);
    let directory = scratch("page-mpi");
    let program = program_of_page("MPI", &directory);
    let process = |rank: usize| {
        let mut command = common::node(&program, 1);
        command.env("FAKE_RANK", rank.to_string()).env("FAKE_SIZE", "2").env("FAKE_DIRECTORY", &directory);
        command
    };
    assert_eq!(side_by_side((0..2).map(process).collect()), ["node 0 of 2\n", "node 1 of 2\n"]);
}

fn lines(ranks: usize) -> Vec<String> {
    (0..ranks).map(|rank| format!("rank {rank} is node {rank} of {ranks}: {}", 100 * ranks)).collect()
}

#[test]
fn a_program_sends_by_mpi_and_shares_by_comem() {
    let directory = scratch("fake");
    let (fake, program) = (common::program("fake_mpi"), directory.join("beside"));
    assert!(beside_mpi(&["cc", "-Werror", "-I", fake.to_str().expect("a path")], &program));
    let process = |rank: usize| {
        let mut command = common::node(&program, 1);
        command.env("FAKE_RANK", rank.to_string()).env("FAKE_SIZE", "3").env("FAKE_DIRECTORY", &directory);
        command
    };
    let said: Vec<String> = side_by_side((0..3).map(process).collect());
    assert_eq!(said.iter().map(|text| text.trim_end()).collect::<Vec<_>>(), lines(3));
}

/// The program in Fortran beside MPI, by a compiler of C and one of Fortran, each with its words about MPI.
fn fortran_beside_mpi(c: &[&str], fortran: &[&str], directory: &Path) -> PathBuf {
    let (object, out) = (directory.join("start_beside.o"), directory.join("beside"));
    let include = common::root().join("include");
    let mut command = Command::new(c[0]);
    command.args(&c[1..]).args(["-std=c99", "-Wall", "-Wextra", "-D_DEFAULT_SOURCE", "-O2", "-c", "-I"]).arg(&include);
    common::run(command.arg(common::program("start_beside.c")).arg("-o").arg(&object));
    let mut command = Command::new(fortran[0]);
    command.args(&fortran[1..]).args(["-O1", "-J"]).arg(directory).arg("-I").arg(&include).arg("-o").arg(&out);
    command.arg(include.join("comem.f90")).arg(common::program("beside_mpi.f90")).arg(object);
    command.arg(common::library().join("libcomem.so"));
    common::run(command.arg(format!("-Wl,-rpath,{}", common::library().display())));
    out
}

#[test]
fn a_fortran_program_starts_by_its_communicators_handle() {
    if !common::has("gfortran") {
        println!("SKIP: there is no Fortran compiler (Debian: gfortran)");
        return;
    }
    let (directory, fake) = (scratch("fortran"), common::program("fake_mpi"));
    let (fake, before) = (fake.display().to_string(), fake.join("fortran.h").display().to_string());
    let c = ["cc", "-Werror", "-I", &fake, "-include", &before];
    let program = fortran_beside_mpi(&c, &["gfortran", "-I", &fake], &directory);
    let process = |rank: usize| {
        let mut command = common::node(&program, 1);
        command.env("FAKE_RANK", rank.to_string()).env("FAKE_SIZE", "3").env("FAKE_DIRECTORY", &directory);
        command
    };
    let said: Vec<String> = side_by_side((0..3).map(process).collect());
    assert_eq!(said.iter().map(|text| text.trim_end()).collect::<Vec<_>>(), lines(3));
}

#[test]
fn a_fortran_program_starts_by_the_handle_of_a_real_communicator() {
    let compiles = |mpifort: &str| {
        let source = scratch(&format!("{mpifort}-probe")).join("probe.f90");
        std::fs::write(&source, "include 'mpif.h'\nend\n").expect("a file");
        let output = Command::new(mpifort).arg("-fsyntax-only").arg(source).output();
        output.is_ok_and(|output| output.status.success())
    };
    let kinds = ["openmpi", "mpich"].map(|kind| ["mpicc", "mpifort", "mpirun"].map(|tool| format!("{tool}.{kind}")));
    let Some([mpicc, mpifort, mpirun]) = kinds.into_iter().find(|[_, mpifort, _]| compiles(mpifort)) else {
        println!("SKIP: there is no MPI to compile Fortran with (Debian: libopenmpi-dev and gfortran)");
        return;
    };
    let program = fortran_beside_mpi(&[&mpicc], &[&mpifort], &scratch("real-fortran"));
    assert_eq!(by_mpirun(&mpirun, &program, &[]), lines(3), "{mpifort}");
}

/// What three processes of a program print, in order.
fn by_mpirun(mpirun: &str, program: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", mpirun, "-n", "3"]).arg(program).args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("COMEM_")) {
        command.env_remove(name);
    }
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    let output = common::run(&mut command);
    let mut said: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(ToString::to_string).collect();
    said.sort_unstable();
    said
}

#[test]
fn a_program_sends_by_a_real_mpi_and_shares_by_comem() {
    let has_headers = |mpicc: &&str| {
        let mut command = Command::new(mpicc);
        command.args(["-fsyntax-only", "-x", "c", "/dev/null", "-include", "mpi.h"]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let pairs = [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc.mpich", "mpirun.mpich"), ("mpicc", "mpirun")];
    let mut tried = 0;
    for (mpicc, mpirun) in pairs.into_iter().filter(|(mpicc, _)| has_headers(mpicc)).take(2) {
        let program = scratch(mpicc).join("beside");
        assert!(beside_mpi(&[mpicc], &program));
        assert_eq!(by_mpirun(mpirun, &program, &[]), lines(3), "{mpicc}");
        if mpicc.ends_with("openmpi") {
            assert_eq!(by_mpirun(mpirun, &program, &["comem-first"]), lines(3), "{mpicc}");
        }
        tried += 1;
    }
    if tried == 0 {
        println!("SKIP: there is no MPI to compile with (Debian: libopenmpi-dev or libmpich-dev)");
    }
}
