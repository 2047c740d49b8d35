//! The nodes of another host, as the launcher sees them: an agent there, and a stream of frames to it.

use crate::control::ToNode;
use crate::failure::{Failure, Outcome, exit};
use crate::frames::{Frame, Kind};
use crate::link::Link;
use crate::spec::{Event, HostSpec, Stream};
use crate::sys::host::HostInfo;
use crate::sys::poll::PollSet;
use crate::sys::process::{self, Ended};
use crate::sys::{self, ReadOutcome, read_some};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an agent may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(20);
/// How long an agent may take to end everything.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
/// An agent that was asked whether it is there, and has said nothing for so long, is cut off.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long a remote shell may take to end once its stream has.
const SHELL_END_LIMIT: Duration = Duration::from_secs(2);
/// So often a launcher says that it is there, in the time for which it may be silent.
const WORDS_OF_LIFE: u32 = 6;
/// A staged program travels in pieces of this size, each when less than one waits to be sent.
const STAGE_PIECE_BYTES: usize = 256 << 10;

/// An agent is told that its output was taken once it is so many bytes, far fewer than [`crate::agent::UNTAKEN_MAX`].
const TAKEN_PORTION: usize = 32 << 10;

/// Another host with an agent.
pub struct Remote {
    host: String,
    link: Link,
    shell: Option<Shell>,
    hello_by: Option<Instant>,
    /// The agent has answered.
    answered: bool,
    close_by: Option<Instant>,
    /// When to say that the launcher is there, and how often.
    alive: Option<(Instant, Duration)>,
    /// Until when the agent may take to say that it is there, since it was asked and has said nothing.
    answer_by: Option<Instant>,
    /// It let that pass, and has said nothing since.
    silent: bool,
    closed: bool,
    /// A program on its way there.
    staging: Option<Staging>,
    /// Bytes of output that came and of which the agent does not know yet that they were taken.
    untold: usize,
}

/// A program on its way to another host: all hosts have the one copy of its bytes that this process keeps.
struct Staging {
    program: Arc<Vec<u8>>,
    sent: usize,
    /// What the nodes are told, once they can be there.
    behind: Vec<Frame>,
}

/// The remote shell's process on this host.
struct Shell {
    pid: u32,
    pidfd: OwnedFd,
    stderr: Option<OwnedFd>,
    said: Vec<u8>,
    command: String,
}

/// How to start agents with a remote shell.
#[derive(Clone, Debug)]
pub struct ShellCommand {
    /// The program and its own arguments: `ssh -o BatchMode=yes …`.
    pub rsh: Vec<String>,
    /// The path of `comem` on the other host.
    pub remote_comem: String,
}

impl ShellCommand {
    /// `ssh`, or the words of `COMEM_RSH`.
    pub fn new(rsh: Option<&str>, remote_comem: &str) -> ShellCommand {
        const SSH: &str =
            "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3";
        let words = rsh.filter(|r| !r.trim().is_empty()).unwrap_or(SSH);
        ShellCommand {
            rsh: words.split_whitespace().map(str::to_string).collect(),
            remote_comem: remote_comem.to_string(),
        }
    }

    /// The command that runs `comem ARGS` on `host`.
    pub fn command(&self, host: &str, args: &str) -> Command {
        let mut command = Command::new(&self.rsh[0]);
        command.args(&self.rsh[1..]).arg(host).arg(format!("{} {args}", quote(&self.remote_comem)));
        command
    }
}

/// Quotes a path for a shell where it needs that. A leading `~/` is left to the shell.
fn quote(path: &str) -> String {
    let (home, rest) = path.strip_prefix("~/").map_or(("", path), |rest| ("~/", rest));
    format!("{home}{}", String::from_utf8_lossy(&quoted(OsStr::new(rest))))
}

/// A word as a shell reads it, in quotes where it needs them.
pub fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_encoded_bytes();
    if !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,=:@%".contains(byte)) {
        return bytes.to_vec();
    }
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\'').collect();
    [b"'", &parts.join(&b"'\\''"[..])[..], b"'"].concat()
}

impl Remote {
    /// Starts an agent on this host by a remote shell.
    pub fn by_shell(shell: &ShellCommand, host: &str) -> Outcome<Remote> {
        let mut command = shell.command(host, "agent");
        let shown = format!("{} {}", shell.rsh.join(" "), host);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let parent = std::process::id();
        // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
        unsafe { command.pre_exec(move || process::begin_helper(parent)) };
        let trouble = |e: io::Error| {
            let advice = match e.kind() {
                io::ErrorKind::WouldBlock => "end other processes of this user, or raise their limit (ulimit -u)",
                _ => "install ssh, or name another remote shell in COMEM_RSH",
            };
            Failure::unreachable(format!("host {host}: cannot run {}: {e}", shell.rsh[0]), advice)
        };
        let mut child = command.spawn().map_err(trouble)?;
        let input = OwnedFd::from(child.stdout.take().expect("standard output is a pipe"));
        let output = OwnedFd::from(child.stdin.take().expect("standard input is a pipe"));
        let stderr = OwnedFd::from(child.stderr.take().expect("standard error is a pipe"));
        sys::set_nonblocking(stderr.as_fd()).map_err(trouble)?;
        let shell = Shell {
            pid: child.id(),
            pidfd: process::open_pidfd(child.id()).map_err(trouble)?,
            stderr: Some(stderr),
            said: Vec::new(),
            command: shown,
        };
        let link = Link::to_shell(input, output).map_err(trouble)?;
        Ok(Remote::new(host, link, Some(shell)))
    }

    /// Takes over an agent that a daemon started and that has connected to us.
    pub fn by_daemon(host: &str, link: Link) -> Remote {
        Remote::new(host, link, None)
    }

    fn new(host: &str, link: Link, shell: Option<Shell>) -> Remote {
        let hello_by = Some(Instant::now() + HELLO_LIMIT);
        Remote {
            host: host.to_string(),
            link,
            shell,
            hello_by,
            answered: false,
            close_by: None,
            alive: None,
            answer_by: None,
            silent: false,
            closed: false,
            staging: None,
            untold: 0,
        }
    }

    /// Orders the agent to start its nodes; `staged` are the program's bytes where the spec wants them.
    pub fn order(&mut self, spec: &HostSpec, staged: Option<&Arc<Vec<u8>>>) {
        self.link.send(&Frame::json(Kind::Spec, 0, spec));
        let often = Duration::from_millis(spec.patience_ms) / WORDS_OF_LIFE;
        self.alive = (!often.is_zero()).then(|| (Instant::now() + often, often));
        self.staging = staged.map(|program| Staging { program: program.clone(), sent: 0, behind: Vec::new() });
        self.stage();
    }

    /// Sends of the program what the host takes now. As long as some is left, something waits to be sent, and so
    /// [`Remote::take_ready`] goes on.
    fn stage(&mut self) {
        while self.link.unsent() < STAGE_PIECE_BYTES {
            let Some(staging) = &mut self.staging else { return };
            let rest = &staging.program[staging.sent..];
            let piece = &rest[..rest.len().min(STAGE_PIECE_BYTES)];
            // An empty piece is the end.
            self.link.send(&Frame::bytes(Kind::Stage, 0, piece));
            staging.sent += piece.len();
            if piece.is_empty() {
                let behind = self.staging.take().map_or(Vec::new(), |staging| staging.behind);
                behind.iter().for_each(|frame| self.link.send(frame));
            }
        }
    }

    /// Sends a frame that is for the nodes: not before the program that they are made of.
    fn send(&mut self, frame: Frame) {
        match &mut self.staging {
            Some(staging) => staging.behind.push(frame),
            None => self.link.send(&frame),
        }
    }

    /// Adds what to wait for.
    pub fn register(&self, polls: &mut PollSet) {
        if self.closed {
            return;
        }
        self.link.register(polls);
        if let Some(stderr) = self.shell.as_ref().and_then(|s| s.stderr.as_ref()) {
            polls.readable(stderr);
        }
    }

    /// What has come of the nodes' outputs is taken: the agent may send more. While it is not, the nodes are slowed
    /// down, but everything else goes on.
    pub fn output_taken(&mut self) {
        if !self.closed && self.untold >= TAKEN_PORTION {
            self.link.send(&Frame::json(Kind::OutputTaken, 0, &std::mem::take(&mut self.untold)));
        }
    }

    /// Asks whether the agent is there; [`Remote::is_silent`] tells when it does not answer. One that may be busy with
    /// what it was sent before is not asked.
    pub fn ask(&mut self) {
        if !self.closed && self.answered && self.staging.is_none() {
            self.link.send(&Frame::bytes(Kind::Alive, 0, b""));
            self.answer_by = Some(Instant::now() + ANSWER_LIMIT);
        }
    }

    /// Whether the agent did not answer when it was asked last.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// When [`Remote::on_time`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let all = [self.alive.map(|(at, _)| at), self.answer_by, self.hello_by, self.close_by];
        if self.closed { None } else { all.into_iter().fold(None, sys::poll::earlier) }
    }

    /// Gives up on an agent that lets its deadline pass.
    pub fn on_time(&mut self, now: Instant, events: &mut Vec<Event>) {
        if self.closed {
            return;
        }
        if let Some((at, often)) = self.alive.as_mut().filter(|(at, _)| *at <= now) {
            *at = now + *often;
            self.link.send(&Frame::bytes(Kind::Alive, 0, b""));
        }
        if self.answer_by.take_if(|by| *by <= now).is_some() {
            self.silent = true;
        }
        // What it would say of its nodes' end does not come either.
        if self.close_by.is_some_and(|by| by <= now || self.silent) {
            let host = &self.host;
            let text = match self.answered {
                true => {
                    format!("host {host} does not say that its nodes have ended; look there for what may still run")
                }
                false => format!("host {host} has not answered so far, and so no node was seen to start there"),
            };
            events.push(Event::Note(text));
            self.finish();
        } else if self.hello_by.is_some_and(|by| by <= now) {
            let said =
                self.shell.as_ref().and_then(Shell::last_words).map_or(String::new(), |said| format!(" ({said})"));
            let what = format!("host {} does not answer within {} s{said}", self.host, HELLO_LIMIT.as_secs());
            events.push(Event::Lost(Failure::unreachable(what, "check its name, the network and its load")));
            self.finish();
        }
    }

    /// Takes in what the wait has shown.
    pub fn take_ready(&mut self, polls: &PollSet, events: &mut Vec<Event>) {
        if self.closed {
            return;
        }
        self.read_shell(polls, events);
        match self.link.take_ready(polls) {
            Ok(frames) => {
                if !frames.is_empty() {
                    (self.answer_by, self.silent) = (None, false);
                }
                frames.into_iter().for_each(|frame| self.take_frame(frame, events));
            }
            Err(e) => {
                events.push(Event::Lost(Failure::unreachable(
                    format!("host {}: {e}", self.host),
                    "check what runs there",
                )));
                return self.finish();
            }
        }
        self.stage();
        if self.link.has_ended() && !self.closed {
            if self.close_by.is_none() {
                let failure = self.why_lost();
                events.push(Event::Lost(failure));
            }
            self.finish();
        }
    }

    /// Sends a node a message.
    pub fn tell(&mut self, node: u16, message: &ToNode) {
        self.send(Frame::json(Kind::ToNode, node, message));
    }

    /// Adds to a node's standard input; no bytes mean that nothing more will come.
    pub fn feed(&mut self, node: u16, bytes: &[u8]) {
        self.send(Frame::bytes(Kind::Stdin, node, bytes));
    }

    /// Sends a signal to every node there.
    pub fn signal(&mut self, signal: i32) {
        self.send(Frame::json(Kind::Signal, 0, &signal));
    }

    /// Has the agent end everything; [`Remote::is_closed`] tells when that is done.
    pub fn close(&mut self) {
        if !self.closed && self.close_by.is_none() {
            self.close_by = Some(Instant::now() + if self.silent { Duration::ZERO } else { CLOSE_LIMIT });
            self.hello_by = None;
            self.staging = None;
            self.link.send(&Frame::bytes(Kind::Close, 0, b""));
        }
    }

    /// Whether nothing more will come.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn take_frame(&mut self, frame: Frame, events: &mut Vec<Event>) {
        if matches!(frame.kind, Kind::Out | Kind::Err) {
            self.untold += frame.payload.len();
        }
        match self.event(frame) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => {}
            Err(e) => events.push(Event::Note(format!("host {}: {e}; ignored", self.host))),
        }
    }

    fn event(&mut self, frame: Frame) -> io::Result<Option<Event>> {
        let node = frame.node;
        let event = match frame.kind {
            Kind::Hello => return self.greet(frame.value()?).map(Some),
            Kind::Started => Event::Started { node, pid: frame.value()? },
            Kind::Out => Event::Output { node, stream: Stream::Out, bytes: frame.payload },
            Kind::Err => Event::Output { node, stream: Stream::Err, bytes: frame.payload },
            Kind::FromNode => Event::Control { node, message: frame.value()? },
            Kind::StdinTaken => Event::StdinTaken { count: frame.value()? },
            Kind::Ended => Event::Ended { node, ended: frame.value()? },
            Kind::Note => Event::Note(format!("host {}: {}", self.host, String::from_utf8_lossy(&frame.payload))),
            Kind::Refused => {
                let (code, what, advice): (i32, String, String) = frame.value()?;
                Event::Lost(Failure::new(code, what, advice))
            }
            Kind::Closed => {
                if let Some(shell) = &mut self.shell {
                    shell.wait_for_end();
                }
                self.finish();
                return Ok(None);
            }
            _ => return Ok(None),
        };
        Ok(Some(event))
    }

    fn greet(&mut self, info: HostInfo) -> io::Result<Event> {
        self.hello_by = None;
        self.answered = true;
        let ours = env!("CARGO_PKG_VERSION");
        if info.version == ours {
            return Ok(Event::Hello(info));
        }
        let what = format!("host {} has Comem {}, this one {ours}", self.host, info.version);
        Ok(Event::Lost(Failure::refused(what, "install the same version on both, or name it with --remote-comem")))
    }

    /// What ssh itself says: kept until the agent speaks, passed on later.
    fn read_shell(&mut self, polls: &PollSet, events: &mut Vec<Event>) {
        let Some(shell) = &mut self.shell else { return };
        if !shell.stderr.as_ref().is_some_and(|fd| polls.can_read(fd)) {
            return;
        }
        shell.read_stderr();
        if self.hello_by.is_none() {
            let said = std::mem::take(&mut shell.said);
            let text = String::from_utf8_lossy(&said);
            events.extend(text.lines().map(|line| Event::Note(format!("host {}: {line}", self.host))));
        }
    }

    /// The stream has ended although nobody wanted it to.
    fn why_lost(&mut self) -> Failure {
        let came = self.hello_by.is_none();
        let host = &self.host;
        let Some(shell) = &mut self.shell else {
            return Failure::new(exit::NODE_LOST, format!("host {host}: the connection to its agent ended"), "");
        };
        let ended = shell.wait_for_end();
        let said = shell.last_words();
        let how = ended.map_or("closed its output".to_string(), |e| e.to_string());
        let detail = said.map_or(String::new(), |said| format!(": {said}"));
        if came {
            let what = format!("host {host}: the connection to its agent ended ({} {how}{detail})", shell.command);
            return Failure::new(exit::NODE_LOST, what, "look at that host");
        }
        let what = format!("cannot start an agent on host {host}: `{}` {how}{detail}", shell.command);
        if ended == Some(Ended::Status(127)) {
            return Failure::unreachable(what, "install comem there, or say where it is with --remote-comem");
        }
        Failure::unreachable(what, format!("check that `{} true` works without a question", shell.command))
    }

    fn finish(&mut self) {
        self.closed = true;
        if let Some(shell) = self.shell.take() {
            shell.end();
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shell {
    fn read_stderr(&mut self) {
        let mut chunk = [0; 4096];
        while let Some(fd) = &self.stderr {
            match read_some(fd, &mut chunk) {
                ReadOutcome::Bytes(count) => self.said.extend_from_slice(&chunk[..count]),
                ReadOutcome::NothingYet => return,
                ReadOutcome::End => self.stderr = None,
            }
        }
    }

    /// The last line that it said.
    fn last_words(&self) -> Option<String> {
        String::from_utf8_lossy(&self.said).trim().lines().last().map(str::to_string)
    }

    fn wait_for_end(&mut self) -> Option<Ended> {
        let mut polls = PollSet::default();
        polls.readable(&self.pidfd);
        polls.wait(Some(Instant::now() + SHELL_END_LIMIT)).ok()?;
        self.read_stderr();
        process::peek_end(&self.pidfd)
    }

    fn end(self) {
        process::kill_group(self.pid, libc::SIGTERM);
        let mut polls = PollSet::default();
        polls.readable(&self.pidfd);
        let _ = polls.wait(Some(Instant::now() + Duration::from_millis(500)));
        process::kill_group(self.pid, libc::SIGKILL);
        process::reap(self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::StdinFrom;

    #[test]
    fn of_a_host_that_does_not_answer_is_told_what_the_shell_there_said() {
        let rsh = ["sh", "-c", "echo 'Enter the code for $1:' >&2; echo >&2; sleep 1000", "sh"];
        let shell = ShellCommand { rsh: rsh.map(str::to_string).to_vec(), remote_comem: "comem".to_string() };
        let mut remote = Remote::by_shell(&shell, "alpha").unwrap();
        let mut events = Vec::new();
        while remote.shell.as_ref().and_then(Shell::last_words).is_none() {
            let mut polls = PollSet::default();
            remote.register(&mut polls);
            polls.wait(None).unwrap();
            remote.take_ready(&polls, &mut events);
        }
        assert!(events.is_empty(), "{events:?}");
        remote.on_time(Instant::now() + HELLO_LIMIT, &mut events);
        let [Event::Lost(failure)] = &events[..] else { panic!("{events:?}") };
        assert!(failure.to_string().contains("(Enter the code for $1:)"), "{failure}");
    }

    fn spec() -> HostSpec {
        HostSpec {
            version: String::new(),
            host: "alpha".to_string(),
            job: 1,
            prog_id: 1,
            threads: 1,
            program: "/p".into(),
            args: Vec::new(),
            hashed: "/p".into(),
            cwd: "/".into(),
            env: Vec::new(),
            nodes: Vec::new(),
            stdin: StdinFrom::Pipe,
            nice: 0,
            staged: true,
            patience_ms: 0,
        }
    }

    #[test]
    fn a_program_waits_in_one_copy_for_hosts_that_take_it_slowly_and_what_nodes_are_told_comes_behind_it() {
        let program = Arc::new((0..20 << 20).map(|i: u32| (i % 251) as u8).collect::<Vec<_>>());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let end = |stream: &std::os::unix::net::UnixStream| OwnedFd::from(stream.try_clone().unwrap());
        let mut remote = Remote::by_daemon("alpha", Link::to_shell(end(&ours), end(&ours)).unwrap());
        let mut agent = Link::to_caller(end(&theirs), end(&theirs)).unwrap();
        remote.order(&spec(), Some(&program));
        remote.feed(0, b"input");
        let (mut came, mut kinds) = (Vec::new(), Vec::new());
        while kinds.last() != Some(&Kind::Stdin) {
            assert!(remote.link.unsent() < 2 * STAGE_PIECE_BYTES + 4096, "{}", remote.link.unsent());
            let mut polls = PollSet::default();
            remote.register(&mut polls);
            agent.register(&mut polls);
            polls.wait(None).unwrap();
            remote.take_ready(&polls, &mut Vec::new());
            for frame in agent.take_ready(&polls).unwrap() {
                kinds.push(frame.kind);
                came.extend(frame.payload.into_iter().filter(|_| frame.kind == Kind::Stage));
            }
        }
        assert!(came[..] == program[..], "{} bytes came", came.len());
        assert_eq!(Arc::strong_count(&program), 1, "nothing of it is kept");
    }

    #[test]
    fn a_path_is_quoted_and_the_home_in_front_of_it_is_not() {
        for (path, quoted) in [
            ("/opt/comem", "/opt/comem"),
            ("~/bin/comem", "~/bin/comem"),
            ("/my tools/comem", "'/my tools/comem'"),
            ("~/my tools/comem", "~/'my tools/comem'"),
            ("it's", "'it'\\''s'"),
            ("a~b", "'a~b'"),
            ("-Wl,-rpath,/l", "-Wl,-rpath,/l"),
        ] {
            assert_eq!(quote(path), quoted);
        }
    }
}
