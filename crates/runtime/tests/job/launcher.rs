//! A launcher of a few lines: starts this test binary again as the nodes of a job.

use comem::control::{ControlReader, ControlWriter, FromNode, Job, ToNode, key_to_hex, var};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a node said, and which node.
pub type Said = (usize, Option<FromNode>);

/// A running job.
pub struct Cluster {
    pub nodes: Vec<Child>,
    pub said: Receiver<Said>,
    writers: Vec<ControlWriter<ToNode>>,
    /// What node zero said that the job arrived at.
    history: RefCell<Option<String>>,
    /// Whether the end of one node is told to the others, as real launchers do; otherwise they must find out.
    pub tells_ends: bool,
}

/// How a job went.
#[derive(Debug)]
pub struct Outcome {
    pub statuses: Vec<Option<i32>>,
    pub outputs: Vec<String>,
    pub errors: Vec<String>,
    pub failures: HashMap<usize, String>,
    pub stats: HashMap<usize, serde_json::Value>,
    /// What the job arrived at, where it keeps a history.
    pub history: Option<String>,
}

/// Where a node of a test finds its job's number.
pub const JOB: &str = "COMEM_TEST_JOB";

/// A number that no other job on this host has: those with the same one would hear each other in one group.
fn own_job() -> u64 {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    (u64::from(std::process::id()) << 10) | (JOBS.fetch_add(1, Ordering::Relaxed) % 1024)
}

/// Starts `count` nodes that play `role`; `env` goes to all of them, `own` to one each.
pub fn start(role: &str, count: usize, env: &[(&str, &str)], own: &[(usize, &str, &str)]) -> Cluster {
    start_after(None, role, count, env, own)
}

/// As [`start`], of a job that keeps a history: what an earlier run arrived at.
pub fn start_after(
    history: Option<&str>,
    role: &str,
    count: usize,
    env: &[(&str, &str)],
    own: &[(usize, &str, &str)],
) -> Cluster {
    let (send, said) = channel();
    let job = own_job();
    let (key, history) = (key_to_hex(&[7; 32]), history.map(str::to_string));
    let job = Job { key, job, prog_id: 21, auth: true, hosts: Vec::new(), program: None, history };
    let (nodes, writers, history) = (Vec::new(), Vec::new(), RefCell::new(None));
    let mut cluster = Cluster { nodes, said, writers, history, tells_ends: false };
    for node in 0..count {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "node", "--nocapture", "--test-threads=1"]).env("COMEM_TEST_ROLE", role);
        command.env("RUST_BACKTRACE", "0").env(JOB, job.job.to_string());
        command.env(var::NODE, node.to_string()).env(var::NODES, count.to_string());
        command.env(var::HOST_NODES, count.to_string()).env(var::BACKBONE, crate::BACKBONE);
        command.env(var::ENGINE, crate::ENGINE).envs(env.iter().copied());
        for (_, name, value) in own.iter().filter(|(n, _, _)| *n == node) {
            command.env(name, value);
        }
        let fd = theirs.as_raw_fd();
        command.env(var::CONTROL_FD, fd.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: clears a flag of a descriptor in the child; nothing but a system call happens there.
        unsafe {
            command.pre_exec(move || {
                libc::fcntl(fd, libc::F_SETFD, 0);
                Ok(())
            });
        }
        cluster.nodes.push(command.spawn().expect("a node can be started"));
        let writer = ControlWriter::new(ours.try_clone().expect("a second handle"));
        writer.send(&ToNode::Job(job.clone())).expect("a node hears its job");
        cluster.writers.push(writer);
        let send = send.clone();
        std::thread::spawn(move || {
            let mut reader: ControlReader<FromNode> = ControlReader::new(ours);
            while let Ok(message) = reader.next_message() {
                let end = message.is_none();
                if send.send((node, message)).is_err() || end {
                    return;
                }
            }
        });
    }
    cluster
}

/// Longer than any node that works is silent, also beside other work.
const SILENCE_MAX: Duration = Duration::from_secs(300);

impl Cluster {
    /// Passes on what has to be passed on until `done` says so, or all nodes have closed their lines.
    pub fn follow(
        &self,
        failures: &mut HashMap<usize, String>,
        stats: &mut HashMap<usize, serde_json::Value>,
        mut done: impl FnMut(&FromNode) -> bool,
    ) {
        let mut closed = 0;
        while closed < self.nodes.len() {
            let (node, message) = match self.said.recv_timeout(SILENCE_MAX) {
                Ok(said) => said,
                // All lines are closed; some of them said so before this call.
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("no node has said anything for {SILENCE_MAX:?}"),
            };
            match message {
                None => {
                    closed += 1;
                    // Those that end because another one has ended are no news, and might come before that one.
                    let is_news = !failures.get(&node).is_some_and(|said| said.contains("this node stops, since"));
                    for writer in self.writers.iter().filter(|_| self.tells_ends && is_news) {
                        let _ = writer.send(&ToNode::PeerEnded { node: node as u16, how: "has ended".to_string() });
                    }
                }
                Some(message) => {
                    match &message {
                        FromNode::Address { addr, .. } => {
                            for writer in &self.writers[1..] {
                                let _ = writer.send(&ToNode::Zero { addr: addr.clone() });
                            }
                        }
                        FromNode::Failed { message } => {
                            failures.insert(node, message.clone());
                        }
                        FromNode::Stats { stats: counted } => {
                            stats.insert(node, counted.clone());
                        }
                        FromNode::History { text } => *self.history.borrow_mut() = Some(text.clone()),
                        _ => {}
                    }
                    if done(&message) {
                        return;
                    }
                }
            }
        }
    }

    /// Says something to a node.
    pub fn tell(&self, node: usize, message: &ToNode) {
        self.writers[node].send(message).expect("the node hears it");
    }

    /// Returns when every node has met every other.
    pub fn wait_until_started(&self) {
        let mut started = 0;
        let count = self.nodes.len();
        self.follow(&mut HashMap::new(), &mut HashMap::new(), |m| {
            started += usize::from(*m == FromNode::Started);
            started == count
        });
    }

    /// As [`Cluster::finish`] where a node is killed meanwhile; also, how long the others lived on.
    pub fn finish_after_the_end_of(self, node: usize) -> (Duration, Outcome) {
        let pid = self.nodes[node].id();
        let watch = std::thread::spawn(move || {
            // SAFETY: all zeros are a value of this plain type.
            let mut how: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: waits for a child of this process, and leaves its end for others to collect.
            let waited = unsafe { libc::waitid(libc::P_PID, pid, &raw mut how, libc::WEXITED | libc::WNOWAIT) };
            assert_eq!(waited, 0, "{}", std::io::Error::last_os_error());
            Instant::now()
        });
        let mut said = (HashMap::new(), HashMap::new());
        self.follow(&mut said.0, &mut said.1, |_| false);
        // Before the child is collected: a watcher that starts late would find no child.
        let ended = watch.join().expect("it ended");
        let outcome = self.collect(said);
        (Instant::now() - ended, outcome)
    }

    /// Returns when all nodes have ended.
    pub fn finish(self) -> Outcome {
        let mut said = (HashMap::new(), HashMap::new());
        self.follow(&mut said.0, &mut said.1, |_| false);
        self.collect(said)
    }

    /// Waits for the nodes' processes, whose lines are closed, and adds how they ended to what they had said.
    fn collect(self, (failures, stats): (HashMap<usize, String>, HashMap<usize, serde_json::Value>)) -> Outcome {
        let history = self.history.take();
        let (statuses, outputs, errors) = (Vec::new(), Vec::new(), Vec::new());
        let mut outcome = Outcome { statuses, outputs, errors, failures, stats, history };
        for node in self.nodes {
            let output = node.wait_with_output().expect("a node ends");
            outcome.statuses.push(output.status.code());
            outcome.outputs.push(String::from_utf8_lossy(&output.stdout).into_owned());
            outcome.errors.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        outcome
    }
}

/// What the others notice within two seconds; `tried` gives how long one try took. Where other work has the processors,
/// any try may take longer. Silence alone would tell after ten seconds.
#[track_caller]
pub fn is_within_two_seconds(what: &str, tried: impl Fn() -> Duration) {
    let mut took: Vec<Duration> = Vec::new();
    while took.len() < 5 && took.iter().all(|took| *took >= Duration::from_secs(2)) {
        took.push(tried());
    }
    let limit = if is_busy() { Duration::from_secs(8) } else { Duration::from_secs(2) };
    assert!(took.iter().any(|took| *took < limit), "{what}: {took:?}");
}

/// Whether more is ready to run on this machine than it has processors, besides this program.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = load.split(' ').nth(3).and_then(|word| word.split('/').next()?.parse::<usize>().ok());
    running.unwrap_or(0) > std::thread::available_parallelism().map_or(1, usize::from)
}
