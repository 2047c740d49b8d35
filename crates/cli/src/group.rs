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
use crate::sys::spawn::{Words, spawn};
use crate::sys::{self, ReadOutcome, read_some, write_some};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

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
    /// What is read of a node's output, before it is known how much that is.
    chunk: Vec<u8>,
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
        let (nodes, chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
        let mut group = Group { nodes, guardian, prog_id, _lock: lock, closed: false, memory_kills, chunk };
        let starter = Starter::new(spec, limit, niceness, group.guardian.descriptor());
        let starter = starter.map_err(|why| trouble(spec, "its nodes", &why))?;
        for node in &spec.nodes {
            let process = starter.start(node)?;
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
        let (memory_kills, chunk) = (self.memory_kills, &mut self.chunk);
        for process in &mut self.nodes {
            for stream in [Stream::Out, Stream::Err] {
                let pipe = &process.outputs[stream as usize];
                if pipe.as_ref().is_some_and(|pipe| polls.can_read(pipe)) {
                    process.read_output(stream, chunk, events);
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
                process.look_for_end(memory_kills, chunk, events);
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
        // Before their numbers can be those of strangers.
        self.guardian.release_all();
        for process in &mut self.nodes {
            process.wait_for_end(self.memory_kills, &mut self.chunk, events);
            process::reap(process.pid);
        }
        process::kill_strays(|environment| is_of_node(environment, self.prog_id));
        for process in &mut self.nodes {
            for stream in [Stream::Out, Stream::Err] {
                // A process that cannot be told to be the node's may go on writing.
                for _ in 0..PIPE_BYTES_MAX / CHUNK_BYTES {
                    if !process.read_output(stream, &mut self.chunk, events) {
                        break;
                    }
                }
            }
        }
    }

    fn process(&mut self, node: u16) -> Option<&mut Process> {
        // They were started in the order of their numbers.
        let index = self.nodes.binary_search_by_key(&node, |process| process.node).ok()?;
        self.nodes.get_mut(index)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.close(&mut Vec::new());
    }
}

impl Process {
    /// Reads what is there of an output, by way of `chunk`; whether there was anything.
    fn read_output(&mut self, stream: Stream, chunk: &mut [u8], events: &mut Vec<Event>) -> bool {
        let slot = &mut self.outputs[stream as usize];
        let Some(pipe) = slot else { return false };
        let bytes = match read_some(pipe, chunk) {
            ReadOutcome::NothingYet => return false,
            ReadOutcome::Bytes(count) => chunk[..count].to_vec(),
            ReadOutcome::End => {
                *slot = None;
                Vec::new()
            }
        };
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

    fn look_for_end(&mut self, memory_kills: u64, chunk: &mut [u8], events: &mut Vec<Event>) {
        if let Some(mut ended) = process::peek_end(&self.pidfd) {
            if ended == Ended::Signal(libc::SIGKILL) && sys::host::memory_kills() > memory_kills {
                ended = Ended::OutOfMemory;
            }
            // The outputs up to here come before the end.
            for stream in [Stream::Out, Stream::Err] {
                self.read_output(stream, chunk, events);
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
    fn wait_for_end(&mut self, memory_kills: u64, chunk: &mut [u8], events: &mut Vec<Event>) {
        while self.ended.is_none() {
            let mut polls = PollSet::default();
            polls.readable(&self.pidfd);
            if polls.wait(None).is_err() {
                return;
            }
            self.read_control(events);
            self.look_for_end(memory_kills, chunk, events);
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

/// What the nodes of a host have in common when they are started.
struct Starter<'a> {
    spec: &'a HostSpec,
    environment: BTreeMap<OsString, OsString>,
    cwd: CString,
    /// An input that ends at once.
    no_input: File,
    limit: FdLimit,
    niceness: Option<i32>,
    guardian: i32,
}

/// A node's ends of its standard streams, and ours.
struct Streams {
    theirs: [Option<OwnedFd>; 3],
    input: Option<OwnedFd>,
    outputs: [Option<OwnedFd>; 2],
}

impl Streams {
    fn new(input: StdinFrom) -> io::Result<Streams> {
        let (output, error) = (io::pipe()?, io::pipe()?);
        let input = if input == StdinFrom::Pipe { Some(io::pipe()?) } else { None };
        let (theirs, ours) = input.map(|(reader, writer)| (reader.into(), writer.into())).unzip();
        let streams = Streams {
            theirs: [theirs, Some(output.1.into()), Some(error.1.into())],
            input: ours,
            outputs: [Some(output.0.into()), Some(error.0.into())],
        };
        let ours = streams.outputs.iter().chain([&streams.input]).flatten();
        ours.map(AsFd::as_fd).try_for_each(sys::set_nonblocking)?;
        Ok(streams)
    }

    /// A debugger has ours.
    fn of_launcher() -> Streams {
        Streams { theirs: [None, None, None], input: None, outputs: [None, None] }
    }
}

impl<'a> Starter<'a> {
    fn new(spec: &'a HostSpec, limit: FdLimit, niceness: Option<i32>, guardian: i32) -> io::Result<Starter<'a>> {
        let cwd = CString::new(spec.cwd.as_bytes())?;
        let no_input = File::open("/dev/null")?;
        Ok(Starter { spec, environment: environment(spec), cwd, no_input, limit, niceness, guardian })
    }

    fn start(&self, node: &NodeSpec) -> Outcome<Process> {
        self.try_start(node).map_err(|why| trouble(self.spec, &format!("node {}", node.node), &why))
    }

    fn try_start(&self, node: &NodeSpec) -> io::Result<Process> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let has_terminal = node.debugger.as_ref().is_some_and(|debugger| debugger.terminal);
        let mut streams = match has_terminal {
            true => Streams::of_launcher(),
            false => Streams::new(self.input_of(node))?,
        };
        let pid = self.spawn(node, &theirs, &streams, has_terminal)?;
        Ok(Process {
            node: node.node,
            pid,
            pidfd: process::open_pidfd(pid)?,
            ended: None,
            outputs: std::mem::take(&mut streams.outputs),
            control: Some(Control { stream: ours, lines: Lines::default(), unsent: Vec::new() }),
            stdin: streams.input.take().map(|pipe| Stdin { pipe, unsent: Vec::new(), last: false }),
            has_terminal,
        })
    }

    fn input_of(&self, node: &NodeSpec) -> StdinFrom {
        if node.node == 0 { self.spec.stdin } else { StdinFrom::Nothing }
    }

    fn spawn(&self, node: &NodeSpec, control: &UnixStream, streams: &Streams, takes_terminal: bool) -> io::Result<u32> {
        let words = node.debugger.iter().flat_map(|debugger| &debugger.words);
        let words = Words::new(words.chain([&self.spec.program]).chain(&self.spec.args))?;
        let environment = self.environment_of(node, control.as_raw_fd())?;
        let mut standard = streams.theirs.each_ref().map(|fd| fd.as_ref().map(AsRawFd::as_raw_fd));
        if !takes_terminal && self.input_of(node) == StdinFrom::Nothing {
            standard[0] = Some(self.no_input.as_raw_fd());
        }
        let (parent, cores) = (std::process::id(), node.cores.as_deref());
        let prepare = || {
            process::have_standard(standard)?;
            process::go_to(&self.cwd)?;
            process::lead_a_group()?;
            watch_me(self.guardian)?;
            process::die_with(parent, libc::SIGKILL)?;
            process::let_inherit(control.as_raw_fd())?;
            process::set_fd_limit(&self.limit);
            if takes_terminal {
                process::take_terminal();
            }
            self.niceness.map_or(Ok(()), process::be_nice)?;
            cores.map_or(Ok(()), comem::bind::stay_on)?;
            sys::signals::restore_default(libc::SIGTTIN);
            sys::signals::give_file_limit_back();
            sys::signals::unblock_all();
            Ok(())
        };
        // SAFETY: the closure makes async-signal-safe calls alone, allocates nothing, takes no locks, and writes to no
        // memory but the system's answers.
        unsafe { spawn(&words, &environment, &prepare) }
    }

    /// The variables of a node: those of all, and over them its own.
    fn environment_of(&self, node: &NodeSpec, control_fd: i32) -> io::Result<Words> {
        let control = (OsString::from(var::CONTROL_FD), OsString::from(control_fd.to_string()));
        let own: BTreeMap<&OsString, &OsString> =
            node.env.iter().chain([&control]).map(|(name, value)| (name, value)).collect();
        let others = self.environment.iter().filter(|(name, _)| !own.contains_key(name));
        Words::new(others.chain(own.iter().map(|(name, value)| (*name, *value))).map(|(name, value)| {
            let mut word = OsString::with_capacity(name.len() + value.len() + 1);
            [name.as_os_str(), "=".as_ref(), value].into_iter().for_each(|part| word.push(part));
            word
        }))
    }
}

/// The variables that all nodes of a host have, beside those that each has for itself.
fn environment(spec: &HostSpec) -> BTreeMap<OsString, OsString> {
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for name in FOREIGN_VARS {
        all.remove(OsStr::new(name));
    }
    all.entry(OMP_THREADS.into()).or_insert_with(|| spec.threads.to_string().into());
    all.entry(FORTRAN_OUTPUT.into()).or_insert_with(|| "y".into());
    all.extend(spec.env.iter().cloned());
    all.extend(preload(&spec.program, &spec.env).map(|value| (LD_PRELOAD.into(), value)));
    all.insert(var::PROGRAM.into(), spec.hashed.clone());
    all
}

/// A node cannot be started, or none of a host.
fn trouble(spec: &HostSpec, which: &str, why: &io::Error) -> Failure {
    let otherwise = match why.kind() {
        io::ErrorKind::NotFound => "check that it (and the interpreter it names) exists on that host",
        io::ErrorKind::PermissionDenied => "make it executable: chmod +x",
        _ => "check the host's limits (ulimit -a)",
    };
    let (why, advice) = why_not_started(why, otherwise);
    let program = spec.program.to_string_lossy();
    Failure::start(format!("{which} (host {}): cannot start {program}: {why}", spec.host), advice)
}
