//! Starts programs: by themselves, or as the nodes of a job through the real `comem run`.

use crate::stats::{Stats, Totals};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The command `comem`.
    pub comem: PathBuf,
    /// The folder with the compiled workloads.
    pub workloads: PathBuf,
}

/// A job for `comem run`.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// How many nodes.
    pub nodes: usize,
    /// The engine; `None` leaves the choice to Comem.
    pub engine: Option<String>,
    /// Further arguments of `comem run`, such as `--auth on`.
    pub flags: Vec<String>,
    /// The program and its arguments.
    pub program: Vec<String>,
}

/// What a job did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it printed.
    pub output: String,
    /// Its counters, summed over the nodes.
    pub totals: Totals,
    /// All that the stats file says.
    pub stats: Stats,
    /// The most memory that one of its processes had, in KiB.
    pub peak_kib: u64,
}

/// Takes the settings out of this process's environment that stand there for other jobs, so that what it starts goes by
/// its flags alone. Only where processes meet on this host stays.
///
/// # Safety
/// The process has one thread.
pub unsafe fn forget_settings() {
    for name in std::env::vars_os().map(|(name, _)| name).filter(|name| is_setting(name)) {
        // SAFETY: no other thread reads the environment.
        unsafe { std::env::remove_var(name) };
    }
}

fn is_setting(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"COMEM_") && name != "COMEM_RUNTIME_DIR"
}

impl Programs {
    /// The programs beside the one that runs, and the workloads in `workloads`.
    ///
    /// # Errors
    /// A sentence that names what is missing and says how to build it.
    pub fn find(workloads: &Path) -> Result<Programs, String> {
        let here = std::env::current_exe().map_err(|e| format!("cannot find this program's folder: {e}"))?;
        let comem = here.with_file_name("comem");
        let programs = Programs { comem, workloads: workloads.to_path_buf() };
        if !programs.comem.is_file() {
            return Err(format!("there is no {}; build it: make build", programs.comem.display()));
        }
        Ok(programs)
    }

    /// The path of a workload.
    ///
    /// # Errors
    /// A sentence that says how to build it.
    pub fn workload(&self, name: &str) -> Result<String, String> {
        let path = self.workloads.join(name);
        match path.is_file() {
            true => Ok(path.display().to_string()),
            false => Err(format!("there is no {}; build it: make build", path.display())),
        }
    }

    /// The whole command line of a job.
    pub fn command_line(&self, job: &Job) -> Vec<String> {
        let mut words = vec![self.comem.display().to_string(), "run".into(), "-n".into(), job.nodes.to_string()];
        if let Some(engine) = &job.engine {
            words.extend(["--engine".to_string(), engine.clone()]);
        }
        words.push("--no-prefix".to_string());
        words.extend(job.flags.iter().cloned());
        words
    }

    /// Runs a job to its end.
    ///
    /// # Errors
    /// A sentence with the command, its status and what it said.
    pub fn run(&self, job: &Job) -> Result<Outcome, String> {
        let stats = std::env::temp_dir().join(format!("comem-bench-{}.json", std::process::id()));
        let mut words = self.command_line(job);
        words.extend(["--stats".to_string(), stats.display().to_string(), "--".to_string()]);
        words.extend(job.program.iter().cloned());
        let outcome = execute(&words).and_then(|(output, peak_kib)| {
            let stats = Stats::load(&stats)?;
            Ok(Outcome { output, totals: stats.totals()?, stats, peak_kib })
        });
        let _ = std::fs::remove_file(&stats);
        outcome
    }
}

/// Runs a command to its end and gives what it printed.
///
/// # Errors
/// A sentence with the command, its status and what it said.
pub fn run(words: &[String]) -> Result<String, String> {
    execute(words).map(|(output, _)| output)
}

/// As [`run`], and the most memory that one of its processes had, in KiB.
fn execute(words: &[String]) -> Result<(String, u64), String> {
    let Some((program, arguments)) = words.split_first() else { return Err("there is no command".to_string()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Who ends this process ends the job with it.
    // SAFETY: between fork and exec the closure makes one system call, which touches no memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(|e| format!("cannot start {program}: {e}"))?;
    let (output, peak_kib) = finish(child).map_err(|e| format!("cannot wait for {program}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok((text, peak_kib));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` ended with {}:\n{}{}", words.join(" "), output.status, text, said.trim_end()))
}

/// What a child has printed when it has ended, and the peak of the memory of it and of what it has waited for: its own,
/// where `RUSAGE_CHILDREN` would tell that of the largest child so far.
fn finish(mut child: Child) -> io::Result<(Output, u64)> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut pipes = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let errors = || pipes.1.as_mut().map_or(Ok(0), |pipe| pipe.read_to_end(&mut stderr));
        let beside = std::thread::Builder::new().spawn_scoped(scope, errors)?;
        let read = pipes.0.as_mut().map_or(Ok(0), |pipe| pipe.read_to_end(&mut stdout));
        beside.join().expect("reading does not panic").and(read)
    })?;
    let (mut status, pid) = (0, child.id() as libc::pid_t);
    // SAFETY: an all-zero record is a valid value to be overwritten.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are ours and outlive the call; nobody else waits for this child.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
    let peak_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Ok((Output { status: ExitStatus::from_raw(status), stdout, stderr }, peak_kib))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn a_failing_command_is_quoted_with_its_words() {
        assert_eq!(run(&words("echo fine")), Ok("fine\n".to_string()));
        let said = run(&["sh".to_string(), "-c".to_string(), "echo half; echo woe >&2; exit 3".to_string()]);
        let said = said.unwrap_err();
        assert!(said.contains("exit status: 3") && said.contains("half") && said.contains("woe"), "{said}");
        assert!(run(&words("/no/such/program")).unwrap_err().contains("cannot start"));
    }

    #[test]
    fn each_command_has_a_peak_of_its_own() {
        let peak = |text: &str| execute(&words(text)).unwrap().1;
        let large = peak("dd if=/dev/zero of=/dev/null bs=64M count=1 status=none");
        assert!(large > 64 << 10, "{large}");
        let small = peak("true");
        assert!((1..32 << 10).contains(&small), "{small}: not that of a larger one before");
        let both = execute(&["sh".to_string(), "-c".to_string(), "seq 100000; seq 100000 >&2".to_string()]);
        assert!(both.is_ok_and(|(output, _)| output.ends_with("100000\n")), "neither pipe keeps the other waiting");
    }

    #[test]
    fn settings_are_told_from_other_variables() {
        for (name, is) in [("COMEM_THREADS", true), ("COMEM_RUNTIME_DIR", false), ("PATH", false), ("XCOMEM_A", false)]
        {
            assert_eq!(is_setting(OsStr::new(name)), is, "{name}");
        }
    }

    #[test]
    fn what_is_not_built_is_named_with_the_command_that_builds_it() {
        let programs = Programs { comem: "comem".into(), workloads: "/nowhere".into() };
        assert!(programs.workload("sea").unwrap_err().contains("/nowhere/sea; build it: make build"));
    }
}
