//! The nodes of this host: processes, the pipes from their outputs, and their control channels.
//!
//! Each node leads a process group of its own, so that a signal reaches what it started too, and a terminal's Ctrl-C
//! reaches the launcher alone. A node that ended stays a zombie until [`Group::close`], so that its group's number
//! cannot pass to a stranger. `close` kills what is left of every group, and strays that left theirs: processes that
//! still have a node's environment. Other children of the launcher are not ours.

use crate::control::{Lines, ToNode, encode, var};
use crate::cores;
use crate::debug;
use crate::failure::{Failure, Outcome};
use crate::guardian::{Guardian, watch_me};
use crate::preload::{LD_PRELOAD, preload};
use crate::program::why_not_started;
use crate::rundir::ProgLock;
use crate::spec::{Event, HostSpec, NodeSpec, StdinFrom, Stream};
use crate::sys::poll::PollSet;
use crate::sys::process::{self, Ended, FdLimit};
use crate::sys::{self, ReadOutcome, read_some, write_some};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Variables of an outer job or of another way to start, which must not reach our nodes.
pub const FOREIGN_VARS: [&str; 7] =
    [var::JOB_FD, var::ZERO, var::HOST_PLACE, "COMEM_ID", "COMEM_JOIN", "COMEM_DISCOVER", var::CONTROL_FD];

/// Set to the number of threads where it is not set at all.
pub const OMP_THREADS: &str = "OMP_NUM_THREADS";
/// Has gfortran's programs print into a pipe at once, as C programs do by lines once they have joined.
const FORTRAN_OUTPUT: &str = "GFORTRAN_UNBUFFERED_PRECONNECTED";

/// Most bytes taken from one node's output before the others have their turn.
const CHUNK_BYTES: usize = 64 << 10;
/// Most bytes that a pipe holds (`pipe-max-size`).
const PIPE_BYTES_MAX: usize = 1 << 20;

/// The nodes of this host.
pub struct Group {
    nodes: Vec<Process>,
    guardian: Guardian,
    prog_id: u16,
    _lock: ProgLock,
    closed: bool,
    /// Processes killed for want of memory before the nodes were started.
    memory_kills: u64,
}

struct Process {
    node: u16,
    pid: u32,
    pidfd: OwnedFd,
    ended: Option<Ended>,
    outputs: [Option<OwnedFd>; 2],
    control: Option<Control>,
    stdin: Option<Stdin>,
    /// It has the terminal, which comes back to us when it ends.
    has_terminal: bool,
}

/// The launcher's end of a node's control channel.
struct Control {
    stream: UnixStream,
    lines: Lines,
    unsent: Vec<u8>,
}

/// A pipe that feeds a node's standard input.
struct Stdin {
    pipe: OwnedFd,
    unsent: Vec<u8>,
    last: bool,
}

impl Group {
    /// Starts the nodes of `spec`; what happened so far is added to `events`.
    ///
    /// # Errors
    /// A node cannot be started; those that were are ended again.
    pub fn start(
        spec: &HostSpec,
        lock: ProgLock,
        guardian: Guardian,
        limit: FdLimit,
        events: &mut Vec<Event>,
    ) -> Outcome<Group> {
        process::adopt_orphans();
        if !std::path::Path::new(&spec.cwd).is_dir() {
            let what = format!("host {} has no directory {}", spec.host, spec.cwd.to_string_lossy());
            return Err(Failure::start(
                what,
                "run from a directory that all hosts have, such as one of a shared file system",
            ));
        }
        // A job goes well without it, and whoever asks for a debugger hears why there is none (`debug::prepare`).
        let _ = debug::leave_script();
        for node in &spec.nodes {
            node.cores.iter().try_for_each(|cores| cores::check_here(node.node, &spec.host, cores))?;
        }
        let niceness = process::niceness(spec.nice).map_err(|e| {
            let what =
                format!("host {}: cannot give nodes priority over others (--nice {}): {e}", spec.host, spec.nice);
            Failure::start(what, "give a positive number, or ask for the right (ulimit -e, CAP_SYS_NICE)")
        })?;
        let (prog_id, memory_kills) = (spec.prog_id, sys::host::memory_kills());
        let mut group = Group { nodes: Vec::new(), guardian, prog_id, _lock: lock, closed: false, memory_kills };
        let preloaded = preload(&spec.program, &spec.env);
        for node in &spec.nodes {
            let process = start_node(spec, node, preloaded.as_ref(), (limit, niceness), group.guardian.descriptor())?;
            events.push(Event::Started { node: process.node, pid: process.pid });
            group.nodes.push(process);
        }
        Ok(group)
    }

    /// Adds what to wait for. Without `outputs`, what the nodes write stays in their pipes and slows them down.
    pub fn register(&self, polls: &mut PollSet, outputs: bool) {
        for process in &self.nodes {
            if process.ended.is_none() {
                polls.readable(&process.pidfd);
            }
            for pipe in process.outputs.iter().flatten().filter(|_| outputs) {
                polls.readable(pipe);
            }
            if let Some(control) = &process.control {
                polls.readable(&control.stream);
                if !control.unsent.is_empty() {
                    polls.writable(&control.stream);
                }
            }
            if let Some(stdin) = process.stdin.as_ref().filter(|s| !s.unsent.is_empty()) {
                polls.writable(&stdin.pipe);
            }
        }
    }

    /// Takes in what the wait has shown. What a node said comes before how it ended.
    pub fn take_ready(&mut self, polls: &PollSet, events: &mut Vec<Event>) {
        let memory_kills = self.memory_kills;
        for process in &mut self.nodes {
            for stream in [Stream::Out, Stream::Err] {
                let pipe = &process.outputs[stream as usize];
                if pipe.as_ref().is_some_and(|pipe| polls.can_read(pipe)) {
                    process.read_output(stream, events);
                }
            }
            if process.control.as_ref().is_some_and(|c| polls.can_write(&c.stream)) {
                process.flush_control();
            }
            if process.stdin.as_ref().is_some_and(|s| polls.can_write(&s.pipe)) {
                process.flush_stdin(events);
            }
            let may_have_ended = process.ended.is_none() && polls.can_read(&process.pidfd);
            if may_have_ended || process.control.as_ref().is_some_and(|c| polls.can_read(&c.stream)) {
                process.read_control(events);
            }
            if may_have_ended {
                process.look_for_end(memory_kills, events);
            }
        }
    }

    /// Sends a node a message; one that is gone is not told.
    pub fn tell(&mut self, node: u16, message: &ToNode) {
        if let Some(process) = self.process(node) {
            if let Some(control) = &mut process.control {
                control.unsent.extend(encode(message));
            }
            process.flush_control();
        }
    }

    /// Adds to a node's standard input; no bytes mean that nothing more will come.
    pub fn feed(&mut self, node: u16, bytes: &[u8], events: &mut Vec<Event>) {
        if let Some(process) = self.process(node) {
            match &mut process.stdin {
                Some(stdin) => {
                    stdin.last |= bytes.is_empty();
                    stdin.unsent.extend_from_slice(bytes);
                    process.flush_stdin(events);
                }
                None => events.push(Event::StdinTaken { count: bytes.len() }),
            }
        }
    }

    /// Sends a signal to every node that runs, and to what it started.
    pub fn signal(&self, signal: i32) {
        for process in self.nodes.iter().filter(|p| p.ended.is_none()) {
            match signal {
                libc::SIGUSR1 => process::ask_group(process.pid, signal),
                _ => process::kill_group(process.pid, signal),
            }
        }
    }

    /// Ends everything at once and takes in the last words.
    pub fn close(&mut self, events: &mut Vec<Event>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        for process in &self.nodes {
            process::kill_group(process.pid, libc::SIGKILL);
        }
        for process in &mut self.nodes {
            process.wait_for_end(self.memory_kills, events);
            process::reap(process.pid);
            self.guardian.release(process.pid);
        }
        process::kill_strays(|environment| is_of_node(environment, self.prog_id));
        for process in &mut self.nodes {
            for stream in [Stream::Out, Stream::Err] {
                // A process that cannot be told to be the node's may go on writing.
                for _ in 0..PIPE_BYTES_MAX / CHUNK_BYTES {
                    if !process.read_output(stream, events) {
                        break;
                    }
                }
            }
        }
    }

    fn process(&mut self, node: u16) -> Option<&mut Process> {
        self.nodes.iter_mut().find(|p| p.node == node)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.close(&mut Vec::new());
    }
}

impl Process {
    /// Reads what is there of an output; whether there was anything.
    fn read_output(&mut self, stream: Stream, events: &mut Vec<Event>) -> bool {
        let slot = &mut self.outputs[stream as usize];
        let Some(pipe) = slot else { return false };
        let mut bytes = vec![0; CHUNK_BYTES];
        match read_some(pipe, &mut bytes) {
            ReadOutcome::NothingYet => return false,
            ReadOutcome::Bytes(count) => bytes.truncate(count),
            ReadOutcome::End => {
                *slot = None;
                bytes.clear();
            }
        }
        events.push(Event::Output { node: self.node, stream, bytes });
        true
    }

    /// Reads everything that the node has said by now.
    fn read_control(&mut self, events: &mut Vec<Event>) {
        let mut chunk = [0; 4096];
        while let Some(control) = &mut self.control {
            let intact = match read_some(&control.stream, &mut chunk) {
                ReadOutcome::NothingYet => return,
                ReadOutcome::End => false,
                ReadOutcome::Bytes(count) => control.take_messages(self.node, &chunk[..count], events),
            };
            if !intact {
                self.control = None;
            }
        }
    }

    fn flush_control(&mut self) {
        let Some(control) = &mut self.control else { return };
        while !control.unsent.is_empty() {
            match write_some(&control.stream, &control.unsent) {
                Ok(0) => return,
                Ok(count) => drop(control.unsent.drain(..count)),
                Err(_) => return control.unsent.clear(),
            }
        }
    }

    fn flush_stdin(&mut self, events: &mut Vec<Event>) {
        let Some(stdin) = &mut self.stdin else { return };
        while !stdin.unsent.is_empty() {
            let count = match write_some(&stdin.pipe, &stdin.unsent) {
                Ok(0) => return,
                Ok(count) => count,
                // The node reads no more: whatever comes is taken and dropped.
                Err(_) => {
                    events.push(Event::StdinTaken { count: stdin.unsent.len() });
                    self.stdin = None;
                    return;
                }
            };
            stdin.unsent.drain(..count);
            events.push(Event::StdinTaken { count });
        }
        if stdin.last {
            self.stdin = None;
        }
    }

    fn look_for_end(&mut self, memory_kills: u64, events: &mut Vec<Event>) {
        if let Some(mut ended) = process::peek_end(&self.pidfd) {
            if ended == Ended::Signal(libc::SIGKILL) && sys::host::memory_kills() > memory_kills {
                ended = Ended::OutOfMemory;
            }
            // The outputs up to here come before the end.
            for stream in [Stream::Out, Stream::Err] {
                self.read_output(stream, events);
            }
            self.ended = Some(ended);
            self.stdin = None;
            if self.has_terminal {
                process::take_terminal();
            }
            events.push(Event::Ended { node: self.node, ended });
        }
    }

    /// After SIGKILL: waits until the process is gone.
    fn wait_for_end(&mut self, memory_kills: u64, events: &mut Vec<Event>) {
        while self.ended.is_none() {
            let mut polls = PollSet::default();
            polls.readable(&self.pidfd);
            if polls.wait(None).is_err() {
                return;
            }
            self.read_control(events);
            self.look_for_end(memory_kills, events);
        }
    }
}

impl Control {
    /// Takes in what a node said; `false` when it is no message, and the node is not listened to any more.
    fn take_messages(&mut self, node: u16, bytes: &[u8], events: &mut Vec<Event>) -> bool {
        let mut intact = self.lines.feed(bytes).is_ok();
        while intact {
            match self.lines.next_message() {
                Ok(Some(message)) => events.push(Event::Control { node, message }),
                Ok(None) => return true,
                Err(_) => intact = false,
            }
        }
        events.push(Event::Note(format!("node {node} sent its launcher a line that is no message; it is ignored")));
        false
    }
}

/// Whether an environment comes from a node of the job with this number, which no other job on this host has.
fn is_of_node(environment: &[u8], prog_id: u16) -> bool {
    let (number, control) = (format!("{}={prog_id}", var::PROG_ID), format!("{}=", var::CONTROL_FD));
    let mut entries = environment.split(|byte| *byte == 0);
    entries.clone().any(|entry| entry == number.as_bytes()) && entries.any(|e| e.starts_with(control.as_bytes()))
}

fn start_node(
    spec: &HostSpec,
    node: &NodeSpec,
    preloaded: Option<&OsString>,
    (limit, niceness): (FdLimit, Option<i32>),
    guardian: i32,
) -> Outcome<Process> {
    let trouble = |e: io::Error| {
        let otherwise = match e.kind() {
            io::ErrorKind::NotFound => "check that it (and the interpreter it names) exists on that host",
            io::ErrorKind::PermissionDenied => "make it executable: chmod +x",
            _ => "check the host's limits (ulimit -a)",
        };
        let (why, advice) = why_not_started(&e, otherwise);
        let program = spec.program.to_string_lossy();
        Failure::start(format!("node {} (host {}): cannot start {program}: {why}", node.node, spec.host), advice)
    };
    let (ours, theirs) = UnixStream::pair().map_err(trouble)?;
    ours.set_nonblocking(true).map_err(trouble)?;
    let has_terminal = node.debugger.as_ref().is_some_and(|debugger| debugger.terminal);
    let mut command = command(spec, node, preloaded, theirs.as_raw_fd());
    before_exec(&mut command, theirs.as_raw_fd(), limit, guardian, has_terminal);
    place(&mut command, niceness, node.cores.clone());
    let mut child = command.spawn().map_err(trouble)?;
    drop(theirs);
    let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let stdin = child.stdin.take().map(OwnedFd::from);
    for fd in outputs.iter().chain([&stdin]).flatten() {
        sys::set_nonblocking(fd.as_fd()).map_err(trouble)?;
    }
    Ok(Process {
        node: node.node,
        pid: child.id(),
        pidfd: process::open_pidfd(child.id()).map_err(trouble)?,
        ended: None,
        outputs,
        control: Some(Control { stream: ours, lines: Lines::default(), unsent: Vec::new() }),
        stdin: stdin.map(|pipe| Stdin { pipe, unsent: Vec::new(), last: false }),
        has_terminal,
    })
}

fn command(spec: &HostSpec, node: &NodeSpec, preloaded: Option<&OsString>, control_fd: i32) -> Command {
    let words = node.debugger.iter().flat_map(|debugger| &debugger.words);
    let words: Vec<&OsString> = words.chain([&spec.program]).chain(&spec.args).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(&spec.cwd).process_group(0);
    for name in FOREIGN_VARS {
        command.env_remove(name);
    }
    if std::env::var_os(OMP_THREADS).is_none() {
        command.env(OMP_THREADS, spec.threads.to_string());
    }
    if std::env::var_os(FORTRAN_OUTPUT).is_none() {
        command.env(FORTRAN_OUTPUT, "y");
    }
    command.envs(spec.env.iter().cloned()).envs(node.env.iter().cloned());
    command.envs(preloaded.map(|value| (LD_PRELOAD, value)));
    command.env(var::PROGRAM, &spec.hashed).env(var::CONTROL_FD, control_fd.to_string());
    if node.debugger.as_ref().is_some_and(|debugger| debugger.terminal) {
        return command;
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(match spec.stdin {
        StdinFrom::Inherited if node.node == 0 => Stdio::inherit(),
        StdinFrom::Pipe if node.node == 0 => Stdio::piped(),
        _ => Stdio::null(),
    });
    command
}

/// What the new process does between fork and exec.
fn before_exec(command: &mut Command, control_fd: i32, limit: FdLimit, guardian: i32, takes_terminal: bool) {
    let parent = std::process::id();
    let prepare = move || {
        watch_me(guardian)?;
        process::die_with(parent, libc::SIGKILL)?;
        process::let_inherit(control_fd)?;
        process::set_fd_limit(&limit);
        if takes_terminal {
            process::take_terminal();
        }
        sys::signals::restore_default(libc::SIGTTIN);
        sys::signals::give_file_limit_back();
        sys::signals::unblock_all();
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
    unsafe { command.pre_exec(prepare) };
}

/// Where the new process runs, and how much others go before it.
fn place(command: &mut Command, niceness: Option<i32>, cores: Option<Vec<usize>>) {
    let prepare = move || {
        niceness.map_or(Ok(()), process::be_nice)?;
        cores.as_ref().map_or(Ok(()), |cores| comem::bind::stay_on(cores))
    };
    // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
    unsafe { command.pre_exec(prepare) };
}
