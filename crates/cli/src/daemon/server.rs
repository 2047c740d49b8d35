//! The daemon: one socket, one table of challenges, one table of agents.

use super::allow::Limits;
use super::client::NOT_UNDERSTOOD;
use super::gate::{Admission, Gate};
use super::key::SharedKey;
use super::log::Log;
use super::noise;
use super::wire::{
    self, Answer, Challenge, DATAGRAM_MAX, Datagram, Garbage, HOST_VERSION, HostState, JobLine, Keys, Nonce, Request,
};
use crate::agent::DaemonOrders;
use crate::failure::{Failure, Outcome, exit};
use crate::sys::host::{self, HostInfo};
use crate::sys::poll::PollSet;
use crate::sys::process;
use crate::sys::signals::Signals;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Most agents at a time.
const JOBS_MAX: usize = 1024;
/// Most lines of a list in one answer, so that it stays one datagram.
const LIST_LINES: usize = 32;
/// Longest program path shown in a list.
const SHOWN_PATH_MAX: usize = 256;
/// Largest answer, sealed or not; a refusal that quotes an absurd path is cut down to fit.
const ANSWER_MAX: usize = 56_000;
/// How long agents may take to end before they are killed.
const END_LIMIT: Duration = Duration::from_secs(3);
/// How long the last lines of the log may take.
const LOG_LIMIT: Duration = Duration::from_millis(500);
/// Most datagrams taken before signals and jobs are looked after again.
const DATAGRAMS_AT_ONCE: usize = 64;

/// What the command line says.
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The shared key.
    pub key: SharedKey,
    /// What may be started.
    pub limits: Limits,
    /// Most nodes at a time.
    pub slots: Option<usize>,
    /// Most load at which nodes are started.
    pub max_load: Option<f64>,
    /// Whether to say what is dropped.
    pub verbose: bool,
}

struct Daemon {
    socket: UdpSocket,
    keys: Keys,
    gate: Gate,
    limits: Limits,
    slots: Option<usize>,
    max_load: Option<f64>,
    jobs: BTreeMap<u64, Job>,
    next_id: u64,
    dropped: BTreeMap<Garbage, u64>,
    started_at: Instant,
    log: Log,
    verbose: bool,
}

/// An agent that was started.
struct Job {
    pid: u32,
    pidfd: OwnedFd,
    program: PathBuf,
    /// Nodes here, as far as the caller has told.
    nodes: usize,
    caller: SocketAddr,
    since: Instant,
}

/// Serves until a signal ends it; its exit code.
pub fn serve(settings: Settings) -> Outcome<i32> {
    let wanted = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    let signals = Signals::block(&wanted).map_err(|e| Failure::system("cannot block signals", e))?;
    let socket = bind(settings.listen)?;
    let address = socket.local_addr().map_err(|e| Failure::system("the daemon's address", e))?;
    let log = Log::to(io::stdout(), "comem daemon: ")?;
    log.say(format_args!("listening on {address}, pid {}", std::process::id()));
    let mut daemon = Daemon {
        socket,
        keys: Keys::new(&settings.key),
        gate: Gate::new(),
        limits: settings.limits,
        slots: settings.slots,
        max_load: settings.max_load,
        jobs: BTreeMap::new(),
        next_id: 1,
        dropped: BTreeMap::new(),
        started_at: Instant::now(),
        log,
        verbose: settings.verbose,
    };
    let signal = daemon.run(&signals)?;
    daemon.end_jobs();
    daemon.log.finish(LOG_LIMIT);
    Ok(if signal == libc::SIGTERM { 0 } else { exit::SIGNAL + signal })
}

fn bind(listen: SocketAddr) -> Outcome<UdpSocket> {
    let trouble = |e: io::Error| {
        let advice = match e.kind() {
            io::ErrorKind::AddrInUse => "another daemon may run there; choose another port with --port",
            _ => "check --bind and --iface",
        };
        Failure::start(format!("cannot listen on UDP {listen}: {e}"), advice)
    };
    let socket = UdpSocket::bind(listen).map_err(trouble)?;
    socket.set_nonblocking(true).map_err(trouble)?;
    Ok(socket)
}

impl Daemon {
    fn run(&mut self, signals: &Signals) -> Outcome<i32> {
        let mut polls = PollSet::default();
        loop {
            polls.clear();
            polls.readable(signals);
            polls.readable(&self.socket);
            self.jobs.values().for_each(|job| polls.readable(&job.pidfd));
            polls.wait(None).map_err(|e| Failure::system("waiting", e))?;
            if let Some(signal) = signals.take().first() {
                return Ok(signal.number);
            }
            self.forget_ended();
            self.receive();
        }
    }

    fn forget_ended(&mut self) {
        let ended: Vec<u64> =
            self.jobs.iter().filter_map(|(id, job)| process::peek_end(&job.pidfd).map(|_| *id)).collect();
        for job in ended.iter().filter_map(|id| self.jobs.remove(id)) {
            process::reap(job.pid);
        }
    }

    /// Takes what datagrams are there, but some at a time: jobs that end and signals do not wait behind a flood.
    fn receive(&mut self) {
        let mut buffer = vec![0; DATAGRAM_MAX + 1];
        for _ in 0..DATAGRAMS_AT_ONCE {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, caller)) => {
                    if let Err(garbage) = self.take(&buffer[..length], caller) {
                        self.drop_datagram(garbage, caller);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // An earlier answer could not be delivered, or the call was interrupted.
                Err(_) => {}
            }
        }
    }

    fn drop_datagram(&mut self, garbage: Garbage, caller: SocketAddr) {
        let count = self.dropped.entry(garbage).or_default();
        *count += 1;
        if self.verbose {
            self.log.say(format_args!("dropped a datagram from {caller}: {} (number {count})", garbage.why()));
        }
    }

    fn take(&mut self, bytes: &[u8], caller: SocketAddr) -> Result<(), Garbage> {
        match self.keys.parse(bytes)? {
            Datagram::Ask(nonce) => {
                let challenge = self.gate.challenge(caller, &nonce, self.now_ms());
                self.send(&self.keys.challenge(&nonce, &challenge), caller);
                Ok(())
            }
            Datagram::Request(nonce, challenge, sealed) => self.take_request(nonce, challenge, sealed, caller),
            Datagram::Challenge(..) | Datagram::Answer(..) => Err(Garbage::NotOurs),
        }
    }

    fn take_request(
        &mut self,
        nonce: Nonce,
        challenge: Challenge,
        sealed: &[u8],
        caller: SocketAddr,
    ) -> Result<(), Garbage> {
        let now_ms = self.now_ms();
        match self.gate.admit(caller, &nonce, &challenge, sealed, now_ms) {
            Admission::Dropped(garbage) => Err(garbage),
            Admission::Repeated(answer) => {
                self.send(&answer, caller);
                Ok(())
            }
            Admission::Fresh => {
                let head = wire::request_head(&nonce, &challenge);
                let mut noise = noise::handshake(&self.keys.seal, &head, false);
                let mut plain = vec![0; sealed.len()];
                let length = noise.read_message(sealed, &mut plain).map_err(|_| Garbage::WrongKey)?;
                let answer = self.decide(&plain[..length], caller);
                let datagram = seal_answer(&mut noise, &nonce, &answer);
                self.gate.used(&challenge, sealed, datagram.clone());
                self.send(&datagram, caller);
                Ok(())
            }
        }
    }

    fn decide(&mut self, request: &[u8], caller: SocketAddr) -> Answer {
        match serde_json::from_slice(request) {
            Ok(Request::Start { port, psk, program, nodes }) => {
                let connect = SocketAddr::new(caller.ip(), port);
                self.start(connect, psk, (Path::new(&program), nodes), caller)
                    .unwrap_or_else(|failure| Answer::refusal(&failure))
            }
            Ok(Request::Host { .. }) => Answer::Host(self.state()),
            Ok(Request::List { after }) => self.list(after),
            Ok(Request::Kill { id }) => self.kill(id),
            Err(e) => Answer::Refused {
                what: format!("{NOT_UNDERSTOOD}: {e}"),
                advice: "install the same version of Comem on all hosts".to_string(),
            },
        }
    }

    /// The host, and what this daemon has started on it.
    fn state(&self) -> HostState {
        HostState {
            version: HOST_VERSION,
            host: HostInfo::here(),
            load: host::load(),
            memory_free_mib: comem::capacity::memory_free_bytes() >> 20,
            jobs: self.jobs.len(),
            nodes: self.jobs.values().map(|job| job.nodes).sum(),
            slots: self.slots,
            max_load: self.max_load,
        }
    }

    /// Refuses nodes for which there is no room.
    fn check_room(&self, nodes: usize) -> Outcome<()> {
        let state = self.state();
        if let Some(most) = self.max_load.filter(|most| state.load > *most) {
            let what =
                format!("the host's load is {:.2}, and its daemon starts nodes up to {most} (--max-load)", state.load);
            return Err(Failure::refused(what, "see `comem hosts`, or wait"));
        }
        match self.slots {
            Some(slots) if nodes > state.free_slots() => {
                let what =
                    format!("the daemon has {} of {slots} slots free, and the job wants {nodes}", state.free_slots());
                Err(Failure::refused(what, "see `comem hosts`; give fewer nodes to this host"))
            }
            _ => Ok(()),
        }
    }

    fn start(
        &mut self,
        connect: SocketAddr,
        psk: String,
        (program, nodes): (&Path, Option<usize>),
        caller: SocketAddr,
    ) -> Outcome<Answer> {
        let program = self.limits.resolve(program)?;
        self.check_room(nodes.unwrap_or(1))?;
        if self.jobs.len() >= JOBS_MAX {
            return Err(Failure::refused(format!("the daemon runs {JOBS_MAX} jobs already"), "end some of them"));
        }
        let orders = DaemonOrders { connect, psk, limits: self.limits.clone(), program: program.clone(), nodes };
        let trouble = |e| Failure::system("the daemon cannot start an agent", e);
        let (pid, pidfd) = start_agent(&orders).map_err(trouble)?;
        let id = self.next_id;
        self.next_id += 1;
        if self.verbose {
            self.log.say(format_args!("job {id} for {caller}: {} (pid {pid})", program.display()));
        }
        self.jobs.insert(id, Job { pid, pidfd, program, nodes: nodes.unwrap_or(1), caller, since: Instant::now() });
        Ok(Answer::Started { id })
    }

    fn list(&self, after: u64) -> Answer {
        let mut lines = self.jobs.range(after.saturating_add(1)..);
        let jobs = lines.by_ref().take(LIST_LINES).map(|(id, job)| job.line(*id)).collect();
        Answer::Jobs { jobs, more: lines.next().is_some() }
    }

    fn kill(&self, id: u64) -> Answer {
        match self.jobs.get(&id) {
            Some(job) => {
                process::kill(job.pid, libc::SIGTERM);
                Answer::Killed { id }
            }
            None => Answer::Refused {
                what: format!("the daemon on host {} has no job {id}", crate::sys::host::name()),
                advice: "see `comem daemon list`".to_string(),
            },
        }
    }

    fn end_jobs(&mut self) {
        self.jobs.values().for_each(|job| process::kill(job.pid, libc::SIGTERM));
        let deadline = Instant::now() + END_LIMIT;
        for job in self.jobs.values() {
            let mut polls = PollSet::default();
            polls.readable(&job.pidfd);
            if polls.wait(Some(deadline)).is_err() || !polls.can_read(&job.pidfd) {
                process::kill(job.pid, libc::SIGKILL);
            }
            process::reap(job.pid);
        }
    }

    fn send(&self, datagram: &[u8], caller: SocketAddr) {
        // A lost answer is asked for again.
        let _ = self.socket.send_to(datagram, caller);
    }

    fn now_ms(&self) -> u64 {
        self.started_at.elapsed().as_millis() as u64
    }
}

impl Job {
    fn line(&self, id: u64) -> JobLine {
        let mut shown = self.program.to_string_lossy().into_owned();
        if shown.len() > SHOWN_PATH_MAX {
            shown = shown.chars().take(SHOWN_PATH_MAX / 5).collect::<String>() + "...";
        }
        let caller = self.caller.ip();
        let caller = match caller {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(caller, IpAddr::V4),
            IpAddr::V4(_) => caller,
        };
        let seconds = self.since.elapsed().as_secs();
        JobLine { id, pid: self.pid, program: PathBuf::from(shown), caller: caller.to_string(), seconds }
    }
}

fn seal_answer(noise: &mut snow::HandshakeState, nonce: &Nonce, answer: &Answer) -> Vec<u8> {
    let mut plain = serde_json::to_vec(answer).expect("an answer has a JSON form");
    if plain.len() > ANSWER_MAX {
        let short = Answer::Refused { what: "the daemon refuses".to_string(), advice: "ask for less".to_string() };
        plain = serde_json::to_vec(&short).expect("an answer has a JSON form");
    }
    let mut datagram = wire::answer_head(nonce);
    let start = datagram.len();
    datagram.resize(start + plain.len() + 256, 0);
    let length = noise.write_message(&plain, &mut datagram[start..]).expect("an answer fits a datagram");
    datagram.truncate(start + length);
    datagram
}

fn start_agent(orders: &DaemonOrders) -> io::Result<(u32, OwnedFd)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["agent", "--from-daemon"]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let parent = std::process::id();
    // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
    unsafe { command.pre_exec(move || process::begin_helper(parent)) };
    let mut line = serde_json::to_vec(orders)?;
    line.push(b'\n');
    let mut child = command.spawn()?;
    let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&line));
    let known = told.and_then(|()| process::open_pidfd(child.id()));
    if known.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok((child.id(), known?))
}
