//! `comem agent`: the launcher's hand on another host.
//!
//! It reads what to start from its caller, starts the host's nodes, passes on their outputs and control messages, and
//! ends them when it is told to or when the caller is gone. The caller is `comem run`, over the pipes of a remote
//! shell, or over a sealed TCP stream when `comem daemon` started the agent.

use crate::daemon::allow::{self, Limits};
use crate::daemon::noise;
use crate::failure::{Failure, Outcome, exit};
use crate::frames::{Frame, Kind};
use crate::group::Group;
use crate::guardian::Guardian;
use crate::link::Link;
use crate::rundir::ProgLock;
use crate::spec::{Event, HostSpec, Stream};
use crate::stage::StageDir;
use crate::sys::host::HostInfo;
use crate::sys::poll::PollSet;
use crate::sys::process::{self, FdLimit};
use crate::sys::signals::Signals;
use crate::{control, sys};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// While so many bytes wait for the caller, the nodes' outputs are left in their pipes.
const UNSENT_MAX: usize = 1 << 20;
/// While the launcher has not taken so many bytes of the nodes' outputs, more is left in their pipes: it always reads
/// what we say, though nobody reads what it writes.
pub const UNTAKEN_MAX: usize = 256 << 10;
/// How long the last words may take to reach the caller.
pub const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);
/// How long the way back to the caller may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What a daemon tells the agent that it starts, as one line on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct DaemonOrders {
    /// Where the caller waits.
    pub connect: SocketAddr,
    /// The key of this connection, in hexadecimal.
    pub psk: String,
    /// What may be started at all.
    pub limits: Limits,
    /// The program that was asked for, resolved: the one that may be started now.
    pub program: PathBuf,
    /// How many nodes were asked for, where the caller has said that.
    pub nodes: Option<usize>,
}

/// What a daemon has let its caller start.
struct Allowed {
    limits: Limits,
    program: PathBuf,
    nodes: Option<usize>,
}

struct Agent {
    link: Link,
    signals: Signals,
    guardian: Option<Guardian>,
    limit: FdLimit,
    limits: Option<Allowed>,
    spec: Option<HostSpec>,
    group: Option<Group>,
    stage: Option<StageDir>,
    /// Bytes of output that the launcher has not taken yet.
    untaken: usize,
    /// When something came from the launcher last.
    heard: Instant,
    /// The launcher has stopped the nodes, and itself.
    stopped: bool,
}

/// Runs the agent; its exit code.
pub fn main(from_daemon: bool) -> Outcome<i32> {
    let guardian = Guardian::start().map_err(|e| Failure::no_process("fork the guardian", &e))?;
    let limit = process::raise_fd_limit();
    let wanted = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    let signals = Signals::block(&wanted).map_err(|e| Failure::system("cannot block signals", e))?;
    let (link, limits) = if from_daemon { to_daemons_caller()? } else { (to_shells_caller()?, None) };
    let mut agent = Agent {
        link,
        signals,
        guardian: Some(guardian),
        limit,
        limits,
        spec: None,
        group: None,
        stage: None,
        untaken: 0,
        heard: Instant::now(),
        stopped: false,
    };
    agent.link.send(&Frame::json(Kind::Hello, 0, &HostInfo::here()));
    agent.serve()
}

fn to_shells_caller() -> Outcome<Link> {
    let own = |fd: io::Result<OwnedFd>| fd.map_err(|e| Failure::system("standard input and output", e));
    let input = own(io::stdin().as_fd().try_clone_to_owned())?;
    let output = own(io::stdout().as_fd().try_clone_to_owned())?;
    Link::to_caller(input, output).map_err(|e| Failure::system("standard input and output", e))
}

fn to_daemons_caller() -> Outcome<(Link, Option<Allowed>)> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|e| Failure::system("the daemon's orders", e))?;
    let wrong = |e: &dyn std::fmt::Display| Failure::usage(format!("the daemon's orders make no sense: {e}"), "");
    let orders: DaemonOrders = serde_json::from_str(&line).map_err(|e| wrong(&e))?;
    let psk = control::key_from_hex(&orders.psk).ok_or_else(|| wrong(&"no key"))?;
    let trouble = |e: io::Error| {
        Failure::unreachable(format!("no connection to the caller at {}: {e}", orders.connect), "check its firewall")
    };
    let mut stream = TcpStream::connect_timeout(&orders.connect, CONNECT_LIMIT).map_err(trouble)?;
    let state = noise::initiate(&mut stream, &psk, Instant::now() + CONNECT_LIMIT).map_err(trouble)?;
    let allowed = Allowed { limits: orders.limits, program: orders.program, nodes: orders.nodes };
    Ok((Link::sealed(stream, state).map_err(trouble)?, Some(allowed)))
}

impl Agent {
    fn serve(&mut self) -> Outcome<i32> {
        let mut polls = PollSet::default();
        loop {
            polls.clear();
            polls.readable(&self.signals);
            self.link.register(&mut polls);
            if let Some(group) = &self.group {
                group.register(&mut polls, self.untaken < UNTAKEN_MAX && self.link.unsent() < UNSENT_MAX);
            }
            polls.wait(self.silent_until()).map_err(|e| Failure::system("waiting", e))?;
            let mut events = Vec::new();
            if let Some(group) = &mut self.group {
                group.take_ready(&polls, &mut events);
            }
            self.report(events);
            if let Some(code) = self.take_orders(&polls) {
                return Ok(code);
            }
        }
    }

    /// Until when the launcher may be silent. When its host has vanished, nothing else tells that.
    fn silent_until(&self) -> Option<Instant> {
        let patience = self.spec.as_ref().filter(|_| !self.stopped).map_or(0, |spec| spec.patience_ms);
        (patience > 0).then(|| self.heard + Duration::from_millis(patience))
    }

    /// Takes in what the caller and the signals say; an exit code when it is time to go.
    fn take_orders(&mut self, polls: &PollSet) -> Option<i32> {
        if let Some(signal) = self.signals.take().first() {
            let name = sys::signals::name(signal.number);
            let what = format!("host {}: the agent was ended by {name}", self.host());
            self.refuse(&Failure::new(exit::NODE_LOST, what, "ask whoever looks after that host"));
            self.end();
            return Some(exit::SIGNAL + signal.number);
        }
        let Ok(frames) = self.link.take_ready(polls) else {
            self.close();
            return Some(exit::INTERNAL);
        };
        if !frames.is_empty() {
            self.heard = Instant::now();
        }
        if self.silent_until().is_some_and(|until| until <= Instant::now()) {
            // Nobody would read last words.
            self.close();
            return Some(exit::NODE_LOST);
        }
        for frame in frames {
            match self.obey(&frame) {
                Ok(true) => {
                    self.end();
                    return Some(0);
                }
                Ok(false) => {}
                Err(failure) => self.refuse(&failure),
            }
        }
        if self.link.has_ended() {
            self.close();
            return Some(0);
        }
        None
    }

    /// Does what one frame says; whether it says to end.
    fn obey(&mut self, frame: &Frame) -> Outcome<bool> {
        let garbled = |e: io::Error| Failure::refused(e.to_string(), "install the same version of Comem on all hosts");
        match frame.kind {
            Kind::Spec => {
                let spec: HostSpec = frame.value().map_err(garbled)?;
                let staged = spec.staged;
                self.spec = Some(spec);
                if !staged {
                    self.start()?;
                }
            }
            Kind::Stage => self.stage_piece(&frame.payload)?,
            Kind::OutputTaken => {
                let count: usize = frame.value().map_err(garbled)?;
                self.untaken = self.untaken.saturating_sub(count);
            }
            Kind::Alive => self.link.send(&Frame::bytes(Kind::Alive, 0, b"")),
            Kind::Close => return Ok(true),
            _ => self.pass_on(frame).map_err(garbled)?,
        }
        Ok(false)
    }

    /// What is for the nodes.
    fn pass_on(&mut self, frame: &Frame) -> io::Result<()> {
        let Some(group) = &mut self.group else { return Ok(()) };
        let mut events = Vec::new();
        match frame.kind {
            Kind::ToNode => group.tell(frame.node, &frame.value()?),
            Kind::Stdin => group.feed(frame.node, &frame.payload, &mut events),
            Kind::Signal => {
                let signal = frame.value()?;
                self.stopped = signal == libc::SIGSTOP || (self.stopped && signal != libc::SIGCONT);
                group.signal(signal);
            }
            _ => {}
        }
        self.report(events);
        Ok(())
    }

    /// Takes a piece of the program. What is refused is refused once: the pieces behind it are dropped.
    fn stage_piece(&mut self, piece: &[u8]) -> Outcome<()> {
        let Some(mut spec) = self.spec.take_if(|spec| spec.staged) else { return Ok(()) };
        if self.limits.is_some() {
            let what = format!("the daemon on host {} starts no program that is sent to it", spec.host);
            return Err(Failure::refused(what, "install the program under a directory it allows, without --stage"));
        }
        let mut dir = match self.stage.take() {
            Some(dir) => dir,
            None => StageDir::make(&spec)?,
        };
        let is_whole = piece.is_empty();
        match is_whole {
            true => dir.complete(&mut spec),
            false => dir.add(&spec, piece)?,
        }
        (self.stage, self.spec) = (Some(dir), Some(spec));
        if is_whole { self.start() } else { Ok(()) }
    }

    fn start(&mut self) -> Outcome<()> {
        let Some(mut spec) = self.spec.take() else { return Ok(()) };
        if let Some(Allowed { limits, program, nodes }) = &self.limits {
            allow::check_spec(limits, &mut spec)?;
            if Path::new(&spec.program) != program {
                return Err(Failure::refused("the agent was asked for one program and given another", ""));
            }
            if nodes.is_some_and(|nodes| spec.nodes.len() > nodes) {
                return Err(Failure::refused("the agent was given more nodes than it was asked for", ""));
            }
        }
        let guardian = self.guardian.take().ok_or_else(|| Failure::refused("the agent has nodes already", ""))?;
        let lock = ProgLock::take(spec.prog_id, spec.job)?;
        let mut events = Vec::new();
        let group = Group::start(&spec, lock, guardian, self.limit, &mut events);
        self.spec = Some(spec);
        self.report(events);
        self.group = Some(group?);
        Ok(())
    }

    fn host(&self) -> String {
        self.spec.as_ref().map_or_else(sys::host::name, |spec| spec.host.clone())
    }

    fn refuse(&mut self, failure: &Failure) {
        self.link.send(&Frame::json(Kind::Refused, 0, &(failure.code, &failure.what, &failure.advice)));
    }

    fn report(&mut self, events: Vec<Event>) {
        for frame in events.into_iter().filter_map(frame_of) {
            if matches!(frame.kind, Kind::Out | Kind::Err) {
                self.untaken += frame.payload.len();
            }
            self.link.send(&frame);
        }
    }

    /// Ends the nodes.
    fn close(&mut self) {
        let mut events = Vec::new();
        if let Some(group) = &mut self.group {
            group.close(&mut events);
        }
        self.report(events);
    }

    /// Ends the nodes and sees the last words off.
    fn end(&mut self) {
        self.close();
        self.stage = None;
        self.link.send(&Frame::bytes(Kind::Closed, 0, b""));
        let deadline = Instant::now() + LAST_WORDS_LIMIT;
        let mut polls = PollSet::default();
        while self.link.unsent() > 0 && Instant::now() < deadline {
            polls.clear();
            self.link.register(&mut polls);
            if polls.wait(Some(deadline)).is_err() || self.link.take_ready(&polls).is_err() || self.link.has_ended() {
                return;
            }
        }
    }
}

fn frame_of(event: Event) -> Option<Frame> {
    Some(match event {
        Event::Hello(info) => Frame::json(Kind::Hello, 0, &info),
        Event::Started { node, pid } => Frame::json(Kind::Started, node, &pid),
        Event::Output { node, stream: Stream::Out, bytes } => Frame::bytes(Kind::Out, node, &bytes),
        Event::Output { node, stream: Stream::Err, bytes } => Frame::bytes(Kind::Err, node, &bytes),
        Event::Control { node, message } => Frame::json(Kind::FromNode, node, &message),
        Event::StdinTaken { count } => Frame::json(Kind::StdinTaken, 0, &count),
        Event::Ended { node, ended } => Frame::json(Kind::Ended, node, &ended),
        Event::Note(text) => Frame::bytes(Kind::Note, 0, text.as_bytes()),
        Event::Lost(_) => return None,
    })
}
