//! How a launcher and its nodes talk: environment variables, and lines of JSON over one inherited descriptor.
//!
//! `comem run` gives each node its orders as environment variables (the names are in [`var`], their meaning in
//! `docs/`), and one end of a stream socket pair whose number stands in `COMEM_CONTROL_FD`. Over it both sides send
//! *messages*: one JSON object a line, told apart by its `type`. The first line a node reads is [`ToNode::Job`].
//!
//! | node → launcher | when |
//! |---|---|
//! | [`FromNode::Begins`] | first of all: a program of this node takes its place |
//! | [`FromNode::Address`] | node zero has bound its service socket; [`ToNode::Zero`] tells the others |
//! | [`FromNode::Joining`] | the program has called Comem, and looks for the other nodes |
//! | [`FromNode::Missing`] | the start has taken too long; the launcher knows more of those that are missing |
//! | [`FromNode::Started`] | start-up is over; from here on an end without [`FromNode::Finished`] counts as a loss |
//! | [`FromNode::Outlives`] | the process (an interpreter, say) goes on when others are lost; it ends by itself |
//! | [`FromNode::Failed`] | the node gives up; the launcher prints the message, the node prints nothing |
//! | [`FromNode::Stats`] | once, at the end, also after a failure |
//! | [`FromNode::Sample`] | the answer to [`ToNode::Sample`] |
//! | [`FromNode::History`] | node zero, once, at a good end: what the job arrived at, for the program's next run |
//! | [`FromNode::Finished`] | the closing barrier is passed; the node may end with any status it likes |
//! | [`FromNode::Beside`] | a second program of the node wants a place while the first still has it |
//!
//! | launcher → node | what the node does |
//! |---|---|
//! | [`ToNode::Job`] | keeps it: key, program number, authentication |
//! | [`ToNode::Zero`] | joins node zero there |
//! | [`ToNode::PeerEnded`] | takes the node for lost at once, and ends within a second |
//! | [`ToNode::Sample`] | tells its counters up to now; one that has not started, or has finished, says nothing |
//! | [`ToNode::AllFinished`] | ends at once, having passed the closing barrier: nobody waits for a word of it |
//! | [`ToNode::Stop`] | sends its statistics and ends; 300 ms later comes SIGTERM, a second later SIGKILL |
//!
//! A node may be a script that runs several programs, one after the other. The first finds its job as the first line;
//! each
//! later one has its own as the answer to its [`FromNode::Begins`]: what all nodes run as their n-th program is a job
//! of its own.
//! Two at once cannot share the descriptor. So a program locks it (a record lock, which ends with its process).
//!
//! End of file on the descriptor means that the launcher is gone: the node ends. Unknown types are skipped, so that
//! either side may be the newer one.
//!
//! `comem exec` has no launcher of its own to talk to. It passes `COMEM_ZERO` (node zero's address; node zero binds
//! its port) and, in place of the control descriptor, `COMEM_JOB_FD`: a file that holds the one line with the job.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Seek};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

/// The environment variables by which launchers and nodes understand each other. Others say how memory is shared, and
/// stand where they are read (`config.rs`).
pub mod var {
    /// This node's number, from zero.
    pub const NODE: &str = "COMEM_NODE";
    /// How many nodes the job has.
    pub const NODES: &str = "COMEM_NODES";
    /// Application threads in each node.
    pub const THREADS: &str = "COMEM_THREADS";
    /// `owner`, `broadcast` or `msi`, for pages `hlrc`, `scope` or `msi`.
    pub const ENGINE: &str = "COMEM_ENGINE";
    /// `on`: the job's engine wins over a region's own.
    pub const FORCE_ENGINE: &str = "COMEM_FORCE_ENGINE";
    /// `auto`, `udp` or `shm`. A launcher that sees all nodes resolves `auto` for them.
    pub const BACKBONE: &str = "COMEM_BACKBONE";
    /// `on`: on one host, what would run between hosts.
    pub const REHEARSE: &str = "COMEM_REHEARSE";
    /// `uffd-async`, `uffd` or `mprotect`.
    pub const DETECTOR: &str = "COMEM_DETECTOR";
    /// Faults to inject, such as `drop=5%,seed=7`.
    pub const FAULTS: &str = "COMEM_FAULTS";
    /// The network to use: an interface's name, or `10.0.0.0/8`.
    pub const IFACE: &str = "COMEM_IFACE";
    /// The ports to use: `FIRST-LAST`.
    pub const PORTS: &str = "COMEM_PORTS";
    /// The most bytes of a packet, where the way to a node takes less than the interface.
    pub const MTU: &str = "COMEM_MTU";
    /// The file in which a node records its datagrams, its number put into the name.
    pub const CAPTURE: &str = "COMEM_CAPTURE";
    /// `auto`, `on` or `off`: whether one datagram goes to many nodes.
    pub const MULTICAST: &str = "COMEM_MULTICAST";
    /// `on` or `off`: whether datagrams carry a keyed tag.
    pub const AUTH: &str = "COMEM_AUTH";
    /// How long a node may be silent: `10s`, or `off`.
    pub const NODE_TIMEOUT: &str = "COMEM_NODE_TIMEOUT";
    /// How much slower than it could this node is to be: `3x`. (Given to `comem run`: `2=3x,5=2x`.)
    pub const SLOW: &str = "COMEM_SLOW";
    /// How threads wait: `auto`, `spin` or `block`.
    pub const WAIT: &str = "COMEM_WAIT";
    /// The numbers by which the job tunes itself.
    pub const TUNING: &str = "COMEM_TUNING";
    /// `on`: say what was chosen.
    pub const VERBOSE: &str = "COMEM_VERBOSE";
    /// Where statistics go. A node with a control descriptor sends them there and leaves the file to the launcher.
    pub const STATS: &str = "COMEM_STATS";
    /// The program number in every datagram's header.
    pub const PROG_ID: &str = "COMEM_PROG_ID";
    /// How many of the job's nodes share this host.
    pub const HOST_NODES: &str = "COMEM_HOST_NODES";
    /// Which of these nodes this one is, from zero.
    pub const HOST_PLACE: &str = "COMEM_HOST_PLACE";
    /// `cores`: application threads stay on their node's share of the host's cores; `off`; `auto`.
    pub const BIND: &str = "COMEM_BIND";
    /// The file whose contents must be the same everywhere: the program, or the script that it runs.
    pub const PROGRAM: &str = "COMEM_PROGRAM";
    /// The descriptor to the launcher.
    pub const CONTROL_FD: &str = "COMEM_CONTROL_FD";
    /// A descriptor with the job's line, from `comem exec`.
    pub const JOB_FD: &str = "COMEM_JOB_FD";
    /// Node zero's service address, from `comem exec`.
    pub const ZERO: &str = "COMEM_ZERO";
}

/// What a node tells its launcher.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromNode {
    /// A program of this node takes its place in the job.
    Begins {
        /// Tells it from others of the node: a later one's job names it ([`Job::program`]).
        program: u64,
    },
    /// This program takes no place: another one of the same node has it.
    Beside {
        /// As for [`FromNode::Failed`].
        message: String,
    },
    /// Node zero's service socket can be reached here.
    Address {
        /// The node that speaks (zero).
        node: u16,
        /// `ip:port`.
        addr: String,
    },
    /// The program has called Comem; the node looks for the others.
    Joining,
    /// The start has failed for want of these nodes.
    Missing {
        /// Their numbers.
        nodes: Vec<u16>,
    },
    /// All nodes have met; the program runs.
    Started,
    /// This node gives up.
    Failed {
        /// What happened and what to do, without `comem:` and without this node's name.
        message: String,
    },
    /// This node's counters.
    Stats {
        /// Any JSON object; numbers are added up over the nodes.
        stats: serde_json::Value,
    },
    /// What the job arrived at, where it keeps a history.
    History {
        /// As a file has it.
        text: String,
    },
    /// This node's counters up to now.
    Sample {
        /// Those of [`FromNode::Stats`] that are cheap to tell, in the same form.
        sample: serde_json::Value,
    },
    /// The node's process goes on when its job cannot, to save what it has: it is not to be ended when others are lost.
    Outlives,
    /// The closing barrier is passed: this node's end is no loss any more.
    Finished,
    /// A type this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a launcher tells a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToNode {
    /// The job's secrets and its names; always the first line.
    Job(Job),
    /// Node zero's address.
    Zero {
        /// `ip:port`.
        addr: String,
    },
    /// Another node is gone.
    PeerEnded {
        /// Which.
        node: u16,
        /// How, as a clause: `was killed by signal 9 (SIGKILL)`.
        how: String,
    },
    /// Every node has passed the closing barrier.
    AllFinished,
    /// Somebody watches the job: the node is to tell its counters.
    Sample {
        /// Whether to tell what its threads wait for, too.
        #[serde(default)]
        waits: bool,
        /// Whether to tell which pages of its regions are shared falsely, and who holds copies of them, too.
        #[serde(default)]
        pages: bool,
    },
    /// The job is to end.
    Stop {
        /// Why.
        reason: String,
    },
    /// A type this version does not know.
    #[serde(other)]
    Unknown,
}

/// What all nodes of one job share and nobody else may know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The job's key: 64 hexadecimal digits. Present also when the datagrams carry no tag.
    pub key: String,
    /// The job's number, the same on every node and of no meaning otherwise.
    pub job: u64,
    /// The program number in the datagrams' headers.
    pub prog_id: u16,
    /// Whether datagrams carry a keyed tag.
    pub auth: bool,
    /// The nodes' hosts by node number, as the user named them.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The program that it is for, where that is not the first of its node: what [`FromNode::Begins`] said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<u64>,
    /// What earlier runs of the program arrived at, as a file has it, or nothing if there were none; `None` where the
    /// job keeps no history. All nodes are told the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
}

impl Job {
    /// The key's bytes; `None` when the text is not a key.
    pub fn key_bytes(&self) -> Option<[u8; 32]> {
        key_from_hex(&self.key)
    }
}

/// Writes a key as 64 hexadecimal digits.
pub fn key_to_hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a key of 64 hexadecimal digits.
pub fn key_from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
    }
    Some(key)
}

/// Longest line that either side accepts: statistics with many named regions.
pub const LINE_MAX: usize = 16 << 20;

/// One message as a line.
///
/// # Panics
/// Never for this module's messages, which all have a JSON form.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("a control message has a JSON form");
    line.push(b'\n');
    line
}

/// Puts messages together from bytes that arrive in any portions.
#[derive(Default)]
pub struct Lines {
    pending: Vec<u8>,
    searched: usize,
}

impl Lines {
    /// Adds what was read.
    ///
    /// # Errors
    /// A line longer than [`LINE_MAX`].
    pub fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        let line_max_passed = self.pending.len() > LINE_MAX && !self.pending.contains(&b'\n');
        if line_max_passed { Err(invalid("a control line is longer than 16 MiB")) } else { Ok(()) }
    }

    /// The next complete line, without its end.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.searched
            + self.pending[self.searched..].iter().position(|&b| b == b'\n').or_else(|| {
                self.searched = self.pending.len();
                None
            })?;
        let mut line: Vec<u8> = self.pending.drain(..=end).collect();
        self.searched = 0;
        line.pop();
        Some(line)
    }

    /// The next complete message; empty lines are skipped.
    ///
    /// # Errors
    /// A line that is no message.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        while let Some(line) = self.next_line() {
            if !line.iter().all(u8::is_ascii_whitespace) {
                return serde_json::from_slice(&line).map(Some).map_err(|e| invalid(&format!("a control line: {e}")));
            }
        }
        Ok(None)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The receiving half: blocks until a message of type `M` has come.
pub struct ControlReader<M> {
    stream: UnixStream,
    lines: Lines,
    message: PhantomData<M>,
}

impl<M: DeserializeOwned> ControlReader<M> {
    /// Reads from `stream`.
    pub fn new(stream: UnixStream) -> ControlReader<M> {
        ControlReader { stream, lines: Lines::default(), message: PhantomData }
    }

    /// How long [`ControlReader::next_message`] waits at most, after which it fails with [`io::ErrorKind::WouldBlock`];
    /// `None` for ever.
    ///
    /// # Errors
    /// The system's refusal, as for a time of zero.
    pub fn set_timeout(&self, timeout: Option<std::time::Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// Waits for the next message; `None` when the other side is gone.
    ///
    /// # Errors
    /// A line that is no message, or the system's refusal to read.
    pub fn next_message(&mut self) -> io::Result<Option<M>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(message) = self.lines.next_message()? {
                return Ok(Some(message));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => self.lines.feed(&chunk[..count])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
}

/// The sending half; threads may share it, and each line goes out whole.
pub struct ControlWriter<M> {
    stream: Mutex<UnixStream>,
    message: PhantomData<fn(M)>,
}

impl<M: Serialize> ControlWriter<M> {
    /// Writes to `stream`.
    pub fn new(stream: UnixStream) -> ControlWriter<M> {
        ControlWriter { stream: Mutex::new(stream), message: PhantomData }
    }

    /// Sends one message; blocks while the other side's buffer is full.
    ///
    /// # Errors
    /// The other side is gone (no signal is raised).
    pub fn send(&self, message: &M) -> io::Result<()> {
        let line = encode(message);
        let stream = self.stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut rest = &line[..];
        while !rest.is_empty() {
            match send_some(&stream, rest) {
                Ok(count) => rest = &rest[count..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Sends what the socket takes, without a signal when nobody listens any more.
fn send_some(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length describe `bytes`, which outlives the call, and the descriptor is open.
    let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Locks what all programs of a node share, for as long as this process lives and has the descriptor open. A process
/// loses the
/// lock with the first of its descriptors of that file that it closes, so none may be.
///
/// # Errors
/// Another process has it ([`io::ErrorKind::ResourceBusy`]).
fn lock(fd: RawFd) -> io::Result<()> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the record is ours and outlives the call.
    if unsafe { libc::fcntl(fd, libc::F_SETLK, &lock) } == 0 {
        return Ok(());
    }
    // What cannot be locked is not shared in this way.
    if !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
        return Ok(());
    }
    // SAFETY: as above; the call fills the record in.
    unsafe { libc::fcntl(fd, libc::F_GETLK, &raw mut lock) };
    let who = if lock.l_pid > 0 { format!(" (pid {})", lock.l_pid) } else { String::new() };
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!(
            "another program of this node{who} takes part in the job already, and a node is one process; let one end \
             before the next begins, or start a node for each (comem run -n)"
        ),
    ))
}

/// Takes over an inherited descriptor: checks that it is open and that no program started from here inherits it.
fn adopt(name: &str) -> io::Result<Option<OwnedFd>> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let fd: RawFd = text
        .to_str()
        .and_then(|t| t.parse().ok())
        .filter(|fd| *fd > 2)
        .ok_or_else(|| invalid(&format!("{name}={} is no descriptor", text.to_string_lossy())))?;
    // SAFETY: setting a flag on a descriptor number touches no memory; a wrong number is reported.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        let why = io::Error::last_os_error();
        let advice =
            "a program that a node starts is no node itself; start it without the variables COMEM_*, or by comem run";
        return Err(io::Error::new(why.kind(), format!("{name}={fd}: {why}; {advice}")));
    }
    // SAFETY: the number was handed to this process for this purpose alone, and is taken over once, at start-up.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// The node's two halves of the channel to its launcher.
pub type LauncherChannel = (ControlReader<ToNode>, ControlWriter<FromNode>);

/// The channel named by `COMEM_CONTROL_FD`, over which this program, by its number `program`, has said that it
/// begins; `None`
/// without a launcher. Call it once.
///
/// # Errors
/// The variable names no open descriptor, or another program of the node has the channel
/// ([`io::ErrorKind::ResourceBusy`]).
pub fn launcher_channel(program: u64) -> io::Result<Option<LauncherChannel>> {
    let Some(fd) = adopt(var::CONTROL_FD)? else { return Ok(None) };
    let stream = UnixStream::from(fd);
    let locked = lock(stream.as_raw_fd());
    let writer = ControlWriter::new(stream.try_clone()?);
    // A launcher that is gone shows when the first line is read.
    let _ = writer.send(&match &locked {
        Ok(()) => FromNode::Begins { program },
        Err(why) => FromNode::Beside { message: why.to_string() },
    });
    locked.map(|()| Some((ControlReader::new(stream), writer)))
}

/// The job that `comem exec` left in `COMEM_JOB_FD`; `None` without it. Call it once.
///
/// # Errors
/// The variable names no open descriptor, or what it holds is no job.
pub fn exec_job() -> io::Result<Option<Job>> {
    let Some(fd) = adopt(var::JOB_FD)? else { return Ok(None) };
    lock(fd.as_raw_fd())?;
    let mut text = Vec::new();
    // It stays open, and so locked, until this process ends.
    let mut file = ManuallyDrop::new(std::fs::File::from(fd));
    file.rewind()?;
    (&mut *file).take(LINE_MAX as u64).read_to_end(&mut text)?;
    let mut lines = Lines::default();
    lines.feed(&text)?;
    match lines.next_message()? {
        Some(ToNode::Job(job)) => Ok(Some(job)),
        _ => Err(invalid("COMEM_JOB_FD holds no job")),
    }
}

/// A process manager other than ours that started this process, from its variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Its name, for messages.
    pub name: &'static str,
    /// This process's number; `None` when the variables do not tell.
    pub rank: Option<usize>,
    /// How many processes it started; `None` when the variables do not tell.
    pub size: Option<usize>,
}

/// Which process manager started us, according to variables that `read` looks up.
///
/// Slurm sets its variables also in a batch script, which is one process; only `srun` sets the step's. Open MPI sets
/// PMIX_* too, so it is asked first.
pub fn foreign(read: &dyn Fn(&str) -> Option<String>) -> Option<Foreign> {
    let number = |names: &[&str]| names.iter().find_map(|name| read(name)?.trim().parse::<usize>().ok());
    let of = |name, rank: &[&str], size: &[&str]| {
        let found = Foreign { name, rank: number(rank), size: number(size) };
        found.rank.is_some().then_some(found)
    };
    of("mpirun", &["OMPI_COMM_WORLD_RANK"], &["OMPI_COMM_WORLD_SIZE"])
        .or_else(|| {
            number(&["SLURM_STEP_ID", "SLURM_STEPID"])?;
            of("srun", &["SLURM_PROCID"], &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"])
        })
        .or_else(|| of("mpiexec", &["PMI_RANK"], &["PMI_SIZE"]))
        .or_else(|| of("a PMIx launcher", &["PMIX_RANK"], &["PMIX_SIZE"]))
}

/// The process manager that started this program more than once *without* `comem exec` or `comem run` between them:
/// its name and the number of processes (2 when it does not say). Each would run alone, so a program refuses.
pub fn foreign_launcher() -> Option<(&'static str, usize)> {
    foreign_without_us(&|name| std::env::var(name).ok())
}

fn foreign_without_us(read: &dyn Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    if read(var::NODE).is_some() {
        return None;
    }
    let found = foreign(read)?;
    let size = found.size.unwrap_or(2);
    (size > 1).then_some((found.name, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
    }

    #[test]
    fn a_key_survives_its_hexadecimal_form() {
        let key: [u8; 32] = std::array::from_fn(|i| (i * 37) as u8);
        assert_eq!(key_from_hex(&key_to_hex(&key)), Some(key));
        assert_eq!(key_from_hex("12"), None);
        assert_eq!(key_from_hex(&"g".repeat(64)), None);
        assert_eq!(key_from_hex(&"é".repeat(32)), None);
    }

    #[test]
    fn messages_have_the_documented_form() {
        let line = |m: &FromNode| String::from_utf8(encode(m)).unwrap();
        assert_eq!(line(&FromNode::Started), "{\"type\":\"started\"}\n");
        let address = FromNode::Address { node: 0, addr: "127.0.0.1:9".to_string() };
        assert_eq!(line(&address), "{\"type\":\"address\",\"node\":0,\"addr\":\"127.0.0.1:9\"}\n");
        let job = Job {
            key: key_to_hex(&[1; 32]),
            job: 7,
            prog_id: 77,
            auth: true,
            hosts: vec!["a".to_string()],
            program: None,
            history: Some("comem-history 1".to_string()),
        };
        let text = String::from_utf8(encode(&ToNode::Job(job.clone()))).unwrap();
        assert!(text.starts_with("{\"type\":\"job\",\"key\":\"0101"), "{text}");
        assert_eq!(serde_json::from_str::<ToNode>(&text).unwrap(), ToNode::Job(job));
    }

    #[test]
    fn an_unknown_type_is_known_as_such() {
        let read: ToNode = serde_json::from_str("{\"type\":\"later\",\"x\":[1,{\"y\":2}]}").unwrap();
        assert_eq!(read, ToNode::Unknown);
    }

    #[test]
    fn lines_come_together_from_any_portions() {
        let mut lines = Lines::default();
        let text = b"{\"type\":\"started\"}\n\n{\"type\":\"finished\"}\n";
        let mut seen: Vec<FromNode> = Vec::new();
        for byte in text {
            lines.feed(&[*byte]).unwrap();
            while let Some(message) = lines.next_message().unwrap() {
                seen.push(message);
            }
        }
        assert_eq!(seen, [FromNode::Started, FromNode::Finished]);
        lines.feed(b"nonsense\n").unwrap();
        assert!(lines.next_message::<FromNode>().is_err());
    }

    #[test]
    fn reader_and_writer_meet_over_a_socket_pair_and_see_its_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let writer = ControlWriter::<FromNode>::new(theirs);
        writer.send(&FromNode::Started).unwrap();
        writer.send(&FromNode::Failed { message: "x".repeat(100_000) }).unwrap();
        drop(writer);
        let mut reader = ControlReader::<FromNode>::new(ours);
        assert_eq!(reader.next_message().unwrap(), Some(FromNode::Started));
        assert!(
            matches!(reader.next_message().unwrap(), Some(FromNode::Failed { message }) if message.len() == 100_000)
        );
        assert_eq!(reader.next_message().unwrap(), None);
    }

    #[test]
    fn a_writer_whose_reader_is_gone_reports_it() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        assert!(ControlWriter::<FromNode>::new(theirs).send(&FromNode::Started).is_err());
    }

    #[test]
    fn several_tasks_of_a_foreign_launcher_are_noticed() {
        let srun = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")];
        assert_eq!(foreign_without_us(&lookup(&srun)), Some(("srun", 4)));
        let mpirun = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")];
        assert_eq!(foreign_without_us(&lookup(&mpirun)), Some(("mpirun", 2)));
        assert_eq!(foreign_without_us(&lookup(&[("PMIX_RANK", "0")])), Some(("a PMIx launcher", 2)));
    }

    #[test]
    fn one_task_a_batch_script_and_our_own_nodes_are_not_foreign() {
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(foreign_without_us(&lookup(&batch)), None);
        assert_eq!(foreign_without_us(&lookup(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")])), None);
        let ours = [("COMEM_NODE", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "3")];
        assert_eq!(foreign_without_us(&lookup(&ours)), None);
    }
}
