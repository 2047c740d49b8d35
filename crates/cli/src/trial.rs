//! A trial: one job run by this very command, with what node 0 printed and what the stats file says.

use crate::failure::{Failure, Outcome, exit};
use crate::hash_seed::{self, HASH_SEED};
use crate::progress::Progress;
use crate::report::model::{PAGE_COUNTERS, Run};
use crate::rundir;
use crate::sys::process;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// How to run a program.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Nodes.
    pub nodes: usize,
    /// Application threads in each.
    pub threads: usize,
    /// Further flags of `comem run`, such as `--engine=hlrc`.
    pub flags: Vec<String>,
    /// Where it runs, and what it reads.
    pub surroundings: Surroundings,
}

/// What is around a program besides its arguments.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The working directory; `None`: this command's.
    pub folder: Option<PathBuf>,
    /// What it finds on its standard input.
    pub input: String,
}

impl Surroundings {
    /// Runs a command there to its end.
    fn output(&self, command: &mut Command) -> std::io::Result<Output> {
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if self.input.is_empty() {
            return command.stdin(Stdio::null()).output();
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // A program that ends without reading says by its status what is wrong.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(self.input.as_bytes()));
        child.wait_with_output()
    }
}

/// How a trial ended well.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What node 0 printed.
    pub output: String,
    /// The figures.
    pub run: Run,
}

impl Trial {
    /// The time that counts: what the program itself says in `time_s=`, else the job's wall time.
    pub fn seconds(&self) -> f64 {
        let words = self.output.split_whitespace().rev();
        let mut said = words.filter_map(|word| word.strip_prefix("time_s=")?.parse().ok());
        said.find(|time: &f64| time.is_finite() && *time >= 0.0).unwrap_or(self.run.wall_s)
    }

    /// A counter of shared pages, over all nodes.
    ///
    /// # Panics
    /// There is no counter of this name.
    pub fn pages(&self, name: &str) -> u64 {
        self.run.total().pages.map_or(0, |pages| pages[page_counter(name)])
    }

    /// The same, of the node that has the most.
    ///
    /// # Panics
    /// As [`Trial::pages`].
    pub fn most_pages(&self, name: &str) -> u64 {
        let of_nodes = self.run.nodes.iter().filter_map(|node| node.pages);
        of_nodes.map(|pages| pages[page_counter(name)]).max().unwrap_or(0)
    }
}

fn page_counter(name: &str) -> usize {
    PAGE_COUNTERS.iter().position(|(n, _)| *n == name).expect("a page counter's name")
}

/// A file that goes with this value, where nobody else can put anything in its place.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Outcome<Temporary> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("trial-{}-{number}.json", std::process::id());
        Ok(Temporary(rundir::directory()?.join(name)))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a program as a job and waits for its end.
///
/// # Errors
/// A clause about how the job failed: its status and the last line of its standard error.
pub fn run(setup: &Setup, program: &[OsString]) -> Result<Trial, String> {
    let _line = Progress::of(|| in_words(setup, program));
    let stats = Temporary::new().map_err(|failure| failure.what)?;
    let flags = ["--stats".into(), stats.0.clone().into_os_string()];
    let mut command = command(setup, &flags, program).map_err(|failure| failure.what)?;
    let output = setup.surroundings.output(&mut command).map_err(|e| format!("cannot start a job: {e}"))?;
    check(&output)?;
    let run = Run::load(&stats.0).map_err(|failure| failure.what)?;
    Ok(Trial { output: text(&output.stdout), run })
}

/// Sees whether a job of this kind could start at all: flags and program are right.
///
/// # Errors
/// What `comem run` says against it.
pub fn rehearse(setup: &Setup, program: &[OsString]) -> Outcome<()> {
    let mut command = command(setup, &["--dry-run".into()], program)?;
    let output = setup.surroundings.output(&mut command).map_err(|e| Failure::system("cannot start comem run", e))?;
    match output.status.code() {
        Some(exit::SUCCESS) => Ok(()),
        code => Err(Failure::new(code.unwrap_or(exit::INTERNAL), last_words(&output), "")),
    }
}

/// `comem run` with these flags besides those of the setup.
fn command(setup: &Setup, flags: &[OsString], program: &[OsString]) -> Outcome<Command> {
    let own = std::env::current_exe().map_err(|e| Failure::system("cannot find this command", e))?;
    let mut command = Command::new(own);
    clear_variables(&mut command);
    command.args(["run", "--only-node-zero", "-n", &setup.nodes.to_string(), "-t", &setup.threads.to_string()]);
    command.args(flags).args(backbone(&setup.flags)).args(&setup.flags).arg("--").args(program);
    end_with_this_command(&mut command);
    command.env(HASH_SEED, hash_seed::of_trials());
    Ok(command)
}

/// Unless the flags name a backbone: udp, so that messages and bytes are what a network would carry. Under shm, pages
/// are read in place.
fn backbone(flags: &[String]) -> Option<&'static str> {
    (!flags.iter().any(|flag| flag.starts_with("--backbone"))).then_some("--backbone=udp")
}

/// Runs a program by itself, without any job around it.
///
/// # Errors
/// As [`run`].
pub fn run_plain(program: &[OsString], surroundings: &Surroundings) -> Result<Trial, String> {
    let _line = Progress::of(|| format!("{} by itself", name(program)));
    let mut command = Command::new(program.first().ok_or("no program is named")?);
    clear_variables(&mut command);
    end_with_this_command(&mut command);
    let start = Instant::now();
    let output = surroundings.output(command.args(&program[1..])).map_err(|e| format!("cannot start: {e}"))?;
    let wall_s = start.elapsed().as_secs_f64();
    check(&output)?;
    let output = text(&output.stdout);
    Ok(Trial { output, run: Run { wall_s, ..Run::default() } })
}

/// A trial for who waits for it.
fn in_words(setup: &Setup, program: &[OsString]) -> String {
    let nodes = if setup.nodes == 1 { "1 node".to_string() } else { format!("{} nodes", setup.nodes) };
    format!("{} on {nodes} {}", name(program), setup.flags.join(" ")).trim_end().to_string()
}

/// A program's name without its directories.
fn name(program: &[OsString]) -> String {
    let path = program.first().map(Path::new);
    path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whoever ends this command, as by SIGTERM, ends the trial.
fn end_with_this_command(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
    unsafe { command.pre_exec(move || process::begin_helper(parent)) };
}

/// The status of a process that ended otherwise than well, and its last words.
fn check(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, last_words(output)))
}

/// The last line of a process's standard error.
fn last_words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    last.trim_start_matches("comem: ").to_string()
}

/// Takes away what would choose something behind the flags' back, but for the network and waiting.
fn clear_variables(command: &mut Command) {
    const KEPT: [&str; 7] = [
        "COMEM_RUNTIME_DIR",
        "COMEM_IFACE",
        "COMEM_PORTS",
        "COMEM_WAIT",
        "COMEM_AUTH",
        "COMEM_NODE_TIMEOUT",
        "COMEM_TIMEOUT",
    ];
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|n| n.to_string_lossy().starts_with("COMEM_") && !KEPT.iter().any(|kept| n == kept)) {
        command.env_remove(name);
    }
}

/// What was printed, as a text: bytes that are none are written out, so that different ones stay different.
fn text(output: &[u8]) -> String {
    let escaped = |byte: &u8| format!("\\x{byte:02x}");
    output.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(escaped));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_stay_different() {
        assert_eq!(text(b"a \xff\xc3\n\xc3\xa4"), "a \\xff\\xc3\n\u{e4}");
    }

    #[test]
    fn a_trial_is_told_in_words() {
        let setup = Setup { nodes: 4, flags: vec!["--engine=hlrc".to_string()], ..Setup::default() };
        assert_eq!(in_words(&setup, &["/opt/sor".into(), "-n".into()]), "sor on 4 nodes --engine=hlrc");
        assert_eq!(in_words(&Setup { nodes: 1, ..Setup::default() }, &["sor".into()]), "sor on 1 node");
    }

    #[test]
    fn the_programs_own_time_counts() {
        let run = Run { wall_s: 9.0, ..Run::default() };
        let trial = |output: &str| Trial { output: output.to_string(), run: run.clone() }.seconds();
        assert_eq!(trial("sea: time_s=1.5 ok\n"), 1.5);
        for none in ["runtime_s=1.5\n", "time_s=nan", "time_s=inf", "time_s=-3"] {
            assert_eq!(trial(none), 9.0, "{none}");
        }
    }
}
