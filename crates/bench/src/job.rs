//! Starts programs: by themselves, or as the nodes of a job through the real `comem run`.

use crate::stats::{Stats, Totals};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
        let output = run(&words);
        let outcome = output.and_then(|output| {
            let stats = Stats::load(&stats)?;
            Ok(Outcome { output, totals: stats.totals()?, stats })
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
    let Some((program, arguments)) = words.split_first() else { return Err("there is no command".to_string()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // Who ends this process ends the job with it.
    // SAFETY: between fork and exec the closure makes one system call, which touches no memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = command.output().map_err(|e| format!("cannot start {program}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` ended with {}:\n{}{}", words.join(" "), output.status, text, said.trim_end()))
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
    fn what_is_not_built_is_named_with_the_command_that_builds_it() {
        let programs = Programs { comem: "comem".into(), workloads: "/nowhere".into() };
        assert!(programs.workload("sea").unwrap_err().contains("/nowhere/sea; build it: make build"));
    }
}
