//! What the tests of the `comem` command share: a scratch directory, the command itself, and ways to wait for events.
#![allow(dead_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything takes that works.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that goes when the test ends.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comem-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("run")).unwrap();
        for dir in [path.clone(), path.join("run")] {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// Writes an executable script.
    pub fn script(&self, name: &str, body: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, body).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// Makes a named pipe that processes of a job hold open: its end tells that all of them are gone.
    pub fn fifo(&self, name: &str) -> String {
        let path = self.text(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// The command, in a clean environment.
    pub fn comem(&self) -> Command {
        self.command(bin())
    }

    /// A program in the same environment: a shell that starts the command, say.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["COMEM_", "SLURM_", "OMPI_", "PMI", "OMP_"].iter().any(|p| text.starts_with(p)) {
                command.env_remove(&name);
            }
        }
        command.env("COMEM_RUNTIME_DIR", self.path("run")).env("HOME", &self.0).current_dir(&self.0);
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
        // Whoever runs the tests may do so in the background, or after a logout.
        on_signals(&mut command, &[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGCHLD], libc::SIG_DFL);
        command
    }

    /// Runs `comem run` with these arguments to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        finish(self.comem().arg("run").args(args))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a program does on these signals from its start on: `SIG_DFL`, or nothing (`SIG_IGN`).
pub fn on_signals(command: &mut Command, signals: &'static [i32], action: libc::sighandler_t) {
    let set = move || {
        for signal in signals {
            // SAFETY: neither action installs handler code.
            unsafe { libc::signal(*signal, action) };
        }
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
    unsafe { command.pre_exec(set) };
}

/// A named pipe that keeps those who read it waiting.
pub struct Gate(File);

impl Gate {
    pub fn new(fifo: &str) -> Gate {
        // Opened for both, a pipe waits for nobody and does not end.
        Gate(File::options().read(true).write(true).open(fifo).unwrap())
    }

    /// Lets so many readers of one line pass.
    pub fn open(&mut self, readers: usize) {
        self.0.write_all("go\n".repeat(readers).as_bytes()).unwrap();
    }
}

pub fn bin() -> &'static str {
    env!("CARGO_BIN_EXE_comem")
}

/// Runs a command to its end, or fails the test when it has none.
pub fn finish(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait(child)
}

/// Waits for a child's end and its output.
pub fn wait(child: Child) -> Output {
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("process {pid} does not end")).unwrap()
}

/// Opens a named pipe, which waits for a writer, and reads it in a thread.
pub struct Held {
    lines: mpsc::Receiver<Option<String>>,
}

impl Held {
    pub fn open(fifo: &str) -> Held {
        let path = fifo.to_string();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let reader = BufReader::new(File::open(path).unwrap());
            for line in reader.lines().map_while(Result::ok) {
                let _ = sender.send(Some(line));
            }
            let _ = sender.send(None);
        });
        Held { lines }
    }

    /// The next line that a holder wrote; `None` when all holders are gone.
    pub fn next(&self) -> Option<String> {
        self.lines.recv_timeout(PATIENCE).expect("the holders of the pipe neither speak nor end")
    }

    pub fn expect_lines(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next().expect("a holder ended too early")).collect()
    }

    /// Waits until no process holds the pipe.
    pub fn expect_all_gone(&self) {
        while self.next().is_some() {}
    }
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

///
/// Scripts in place of nodes join no job; what the launcher says of that is left out.
pub fn err(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.split_inclusive('\n').filter(|line| !line.starts_with(NOBODY_JOINED)).collect()
}

/// How the launcher begins to say that no node has joined the job.
pub const NOBODY_JOINED: &str = "comem: no node has joined the job";

/// The lines of a text, sorted: nodes run side by side.
pub fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// The names in the directory where processes of this host meet, but for what stays: the script for debuggers, and what
/// is known of jobs that have ended.
pub fn left(scratch: &Scratch) -> Vec<String> {
    let names = |path: &str| {
        let entries = std::fs::read_dir(scratch.path(path)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let running = names("run/jobs").into_iter().filter(|name| !name.ends_with(".ended"));
    let others = names("run").into_iter().filter(|name| !name.ends_with(".gdb") && name != "jobs");
    let mut all: Vec<String> = others.chain(running).collect();
    all.sort();
    all
}

/// Sends a signal.
pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

pub fn read_to_string(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
