//! The command amid limits: of files, processes, descriptors and cores; and what is left of commands that were killed.

mod common;

use common::{Held, Scratch, bin, err, exists, finish, json, left, out, signal, wait};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

/// Runs a line of a shell in which `$0` is the command.
fn shell(scratch: &Scratch, line: &str) -> Output {
    finish(scratch.command("sh").args(["-c", line, bin()]))
}

/// SIGXFSZ ended the launcher without a word.
#[test]
fn a_job_runs_where_no_file_may_have_a_byte_and_what_cannot_be_written_is_said() {
    let scratch = Scratch::new();
    let run = shell(&scratch, "ulimit -f 0; exec \"$0\" run -n 2 --backbone udp --no-prefix sh -c 'echo on >&2'");
    assert_eq!((run.status.code(), err(&run).as_str()), (Some(0), "on\non\n"));
    for (line, what) in [
        ("\"$0\" run --backbone udp --stats s.json true", "cannot write the statistics to s.json: File too large"),
        ("\"$0\" run --backbone udp seq 9 >out.txt", "cannot write standard output: File too large"),
        ("\"$0\" --help >out.txt", "cannot write standard output: File too large"),
    ] {
        let output = shell(&scratch, &format!("ulimit -f 0; {line}"));
        assert_eq!(output.status.code(), Some(6), "{line}: {}", err(&output));
        assert!(err(&output).starts_with(&format!("comem: {what}")), "{line}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{line}: {}", err(&output));
    }
}

/// What the command does for itself, programs do not inherit.
#[test]
fn a_program_meets_the_limit_of_files_as_it_would_without_the_command() {
    let scratch = Scratch::new();
    let line = "ulimit -f 0; exec \"$0\" run --backbone udp sh -c 'echo much >file; echo on'";
    let output = shell(&scratch, line);
    assert_eq!(output.status.code(), Some(128 + libc::SIGXFSZ), "{}", err(&output));
    assert!(err(&output).contains("(SIGXFSZ)"), "{}", err(&output));
    let ignored = shell(&scratch, &format!("trap '' XFSZ; {line}"));
    assert_eq!((ignored.status.code(), out(&ignored).as_str()), (Some(0), "[0] on\n"), "{}", err(&ignored));
}

/// As another user, since the limit does not hold for root and counts all processes of a user.
#[test]
fn threads_and_processes_that_the_system_refuses_are_an_error_that_says_so() {
    let scratch = Scratch::new();
    // SAFETY: the call reads nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIP: only root may become a user without processes");
        return;
    }
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has("setpriv") || !has("prlimit") {
        println!("SKIP: setpriv or prlimit is not installed");
        return;
    }
    let comem = scratch.text("comem");
    std::fs::copy(bin(), &comem).unwrap();
    for dir in [&scratch.0, &scratch.path("run")] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let user = 50_000 + std::process::id() % 10_000;
    let limited = |processes: u32, words: &[&str]| {
        let mut command = scratch.command("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", "prlimit"]);
        command.arg(format!("--nproc={processes}")).arg(&comem).args(words);
        finish(command.env("COMEM_RUNTIME_DIR", scratch.path("own")))
    };
    if limited(50, &["--version"]).status.code() != Some(0) {
        println!("SKIP: another user may not run what lies in {}", scratch.0.display());
        return;
    }
    for processes in 1..=3 {
        let output = limited(processes, &["run", "-n", "2", "--backbone", "udp", "true"]);
        let said = err(&output);
        assert!(matches!(output.status.code(), Some(3 | 6)), "{processes}: {said}");
        assert!(
            said.starts_with("comem: ") && said.contains("Resource temporarily unavailable"),
            "{processes}: {said}"
        );
        assert!(!said.contains("panicked") && said.lines().count() == 1, "{processes}: {said}");
    }
    let doctor = limited(1, &["doctor"]);
    assert!(!err(&doctor).contains("panicked"), "{}", err(&doctor));
    assert!(limited(1, &["bench", "net", "--rounds", "10"]).status.code() != Some(101));
}

#[test]
fn descriptors_that_the_system_refuses_are_an_error_that_says_so() {
    let scratch = Scratch::new();
    for limit in 4..=12 {
        let line = format!("ulimit -n {limit}; exec \"$0\" run -n 3 --backbone udp true");
        let output = shell(&scratch, &line);
        let said = err(&output);
        assert!(matches!(output.status.code(), Some(3 | 6 | 127)), "{limit}: {:?} {said}", output.status);
        assert!(!said.contains("panicked"), "{limit}: {said}");
    }
}

/// The kernel gives the lock free; its file stayed for a day.
#[test]
fn what_killed_launchers_leave_is_collected_by_the_next() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let mut command = scratch.comem();
    command.args(["run", "--prog-id", "77", "-n", "2", "sh", "-c", "exec 9>held; echo up >&9; sleep 1000"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(2);
    child.kill().unwrap();
    child.wait().unwrap();
    held.expect_all_gone();
    let remains = left(&scratch);
    assert!(remains.len() == 3 && remains.contains(&"prog-77.lock".to_string()), "{remains:?}");
    let stage = scratch.path("tmp/comem-stage-dead");
    std::fs::create_dir_all(&stage).unwrap();
    let mut next = scratch.comem();
    next.env("TMPDIR", scratch.path("tmp")).args(["run", "--prog-id", "77", "true"]);
    let output = finish(&mut next);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(left(&scratch), [""; 0]);
    assert!(!exists(&stage), "the copy of a program that an agent left");
}

/// The meeting file holds the job's key.
#[test]
fn nothing_is_left_of_a_meeting_that_all_have_been_at() {
    let scratch = Scratch::new();
    for _ in 0..2 {
        let start = |rank: &str| {
            let mut command = scratch.comem();
            command.env("SLURM_JOB_ID", "4711").env("SLURM_STEP_ID", "3").env("SLURM_NODELIST", "here");
            command.env("SLURM_PROCID", rank).env("SLURM_NTASKS", "3").args(["exec", "--backbone", "udp", "true"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for child in ["2", "1", "0"].map(start) {
            let output = wait(child);
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        }
        assert!(left(&scratch).iter().all(|name| !name.starts_with("exec-")), "{:?}", left(&scratch));
    }
}

#[test]
fn cores_are_those_that_the_command_may_use() {
    let scratch = Scratch::new();
    let Some(core) = comem::bind::allowed_cores().last().copied() else { panic!("a process runs somewhere") };
    let mut command = scratch.command("taskset");
    command.args(["-c", &core.to_string(), bin(), "run", "--stats", "run.json", "true"]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(json(&scratch.path("run.json"))["hosts"][0]["cores"], 1);
}

/// A control group of version 1 or 2, where one may be made.
#[test]
fn cores_are_those_that_a_control_groups_quota_leaves() {
    let scratch = Scratch::new();
    let name = format!("comem-test-{}", std::process::id());
    let groups = [("cpu", "cpu.cfs_quota_us", "100000"), (".", "cpu.max", "100000 100000")];
    let made = groups.iter().find_map(|(folder, file, quota)| {
        let group = std::path::Path::new("/sys/fs/cgroup").join(folder).join(&name);
        std::fs::create_dir(&group).ok()?;
        let set = group.join(file).is_file() && std::fs::write(group.join(file), quota).is_ok();
        if !set {
            let _ = std::fs::remove_dir(&group);
        }
        set.then_some(group)
    });
    let Some(group) = made else {
        println!("SKIP: no control group may be made here");
        return;
    };
    let line = "echo $$ >\"$1/cgroup.procs\" && exec \"$0\" run --stats run.json true";
    let output = finish(scratch.command("sh").args(["-c", line, bin(), group.to_str().unwrap()]));
    let removed = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::remove_dir(&group).is_ok()
    });
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(json(&scratch.path("run.json"))["hosts"][0]["cores"], 1);
    assert!(removed, "the group is empty");
}

/// Another process, stopped by a signal, would keep them.
#[test]
fn a_launcher_that_is_asked_to_end_leaves_nothing() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let mut command = scratch.comem();
    command.args(["run", "-n", "2", "sh", "-c", "exec 9>held; echo up >&9; sleep 1000"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(2);
    signal(child.id(), "TERM");
    assert_eq!(wait(child).status.code(), Some(128 + libc::SIGTERM));
    assert_eq!(left(&scratch), [""; 0]);
}
