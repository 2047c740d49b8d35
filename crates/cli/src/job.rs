//! A running job, as its launcher sees it: nodes on several hosts that start, speak, write and end.
//!
//! One loop waits for everything at once. What a job can go through:
//!
//! | event | what follows |
//! |---|---|
//! | node zero says where it is | all others are told |
//! | a node begins its second program, as a script does | a job of its own, where all nodes' second programs meet |
//! | a node has two programs at once | one sentence; the job ends |
//! | a node ends well | nothing, unless it left in the middle of the job, or never came: then the others are told |
//! | a node ends badly, or a host is lost | one sentence; the others are told; after a second they are ended |
//! | Ctrl-C, SIGTERM, `comem kill`, `--timeout`, nobody reads our output | all are told to stop, then ended |
//! | somebody watches | nodes are asked for their counters ([`watched`]) |
//! | all have ended | what is left of their process groups is killed; statistics; the first failing status |

mod ending;
mod watched;

pub use watched::{Line, Watched};

use crate::control::{FromNode, Job, ToNode, key_to_hex};
use crate::failure::{Failure, Outcome, exit};
use crate::group::Group;
use crate::output::Output;
use crate::remote::Remote;
use crate::spec::{Event, StdinFrom};
use crate::stats::NodeReport;
use crate::sys::host::HostInfo;
use crate::sys::poll::{PollSet, earlier};
use crate::sys::process::{self, Ended};
use crate::sys::signals::Signals;
use crate::sys::{self, ReadOutcome, read_some};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What a program lacks of which no node joins the job.
pub const TAKES_PART: &str =
    "a program takes part by comem_start() or its like, in Python by comem.rank or a shared array";
/// What is said of a node whose program has ended although others still take part in the same job as that.
const LEFT_A_ROUND: &str = "has begun its next program, having ended one before the end of the job";
/// What is said of a node's end to those that have begun a program after its last.
fn before_others(ended: Ended) -> String {
    format!("{ended}, having run fewer programs that take part in the job than others")
}

/// Nodes that lost another have so long to end by themselves.
const LOSS_GRACE: Duration = Duration::from_millis(1000);
/// How long nodes have that go on when others are lost: interpreters, whose programs may save what they have.
const OUTLIVE_GRACE: Duration = Duration::from_secs(60);
/// Where some nodes have called Comem, and not all have met after so long, a line says whom they wait for.
const START_PATIENCE: Duration = Duration::from_secs(3);
/// A line names so many nodes at most.
const NAMED_MAX: usize = 8;
/// How often a job in the background looks whether it has the terminal again.
const TERMINAL_LOOK: Duration = Duration::from_millis(250);
/// Most bytes of standard input on their way to node zero.
const STDIN_WINDOW: usize = 256 << 10;

/// A host's nodes, wherever they are.
pub enum Host {
    /// On this host.
    Here(Box<Group>),
    /// Behind an agent.
    There(Box<Remote>),
}

/// What the job is given.
pub struct JobOrders {
    /// What every node is told first.
    pub job: Job,
    /// Each host's name, and what it said of itself.
    pub host_names: Vec<String>,
    /// Which host each node is on.
    pub host_of: BTreeMap<u16, usize>,
    /// Whether the program is copied to other hosts first.
    pub staged: bool,
    /// Where node zero's standard input comes from.
    pub stdin: StdinFrom,
    /// When the job is to be ended.
    pub deadline: Option<(Instant, Duration)>,
}

/// What became of the job.
pub struct JobResult {
    /// The exit code.
    pub code: i32,
    /// What went wrong first.
    pub failure: Option<String>,
    /// Each node's end and counters.
    pub nodes: Vec<NodeReport>,
    /// What each host said of itself.
    pub hosts: Vec<(String, Option<HostInfo>)>,
    /// Whether the user wanted it to end.
    pub interrupted: bool,
    /// It went well, and no node has said anything: the program knows nothing of Comem.
    pub nobody_joined: bool,
    /// What the nodes' first programs arrived at, where a history is kept.
    history: Option<String>,
}

impl JobResult {
    /// What the job arrived at, if all went well.
    pub fn good_history(&self) -> Option<&str> {
        self.history.as_deref().filter(|_| self.code == exit::SUCCESS && !self.interrupted)
    }
}

/// A running job.
pub struct Running<'a> {
    orders: JobOrders,
    hosts: Vec<Host>,
    signals: &'a Signals,
    output: &'a mut Output,
    /// Who watches the job, where others can see it.
    watched: Option<&'a mut Watched>,
    nodes: BTreeMap<u16, Node>,
    infos: Vec<Option<HostInfo>>,
    /// What nodes run one after the other: the first programs of all, the second, ...
    rounds: Vec<Round>,
    /// The nodes were told of one that ended without having joined the others.
    one_never_came: bool,
    /// Losses and orders to stop, for nodes that have their job only after they were sent.
    said_to_all: Vec<ToNode>,
    first_bad: Option<Bad>,
    failure: Option<String>,
    ending: Option<Ending>,
    stdin: Stdin,
    /// Whether SIGTERM or SIGKILL went out: ends from here on are our own doing.
    signalled: bool,
    interrupted: bool,
    /// When the first signal came that ends the job.
    signal_at: Option<Instant>,
    /// All hosts were told to end what is left; no grace counts any more.
    closing: bool,
    /// When a line says whom the nodes wait for, from the first that has called Comem until all have met.
    start_said_at: Option<Instant>,
    /// That need not be said any more.
    start_said: bool,
    /// It was said for want of whom the start has failed.
    start_failed: bool,
    /// What node zero said that its first program arrived at.
    history: Option<String>,
}

/// What all nodes run as their n-th program: a job of its own.
struct Round {
    job: Job,
    /// Where its node zero is.
    zero: Option<String>,
    /// Nodes that have passed its closing barrier.
    finished: usize,
}

impl Round {
    fn new(job: Job) -> Round {
        Round { job, zero: None, finished: 0 }
    }
}

#[derive(Default)]
struct Node {
    pid: Option<u32>,
    /// Its first program has said that it is there.
    began: bool,
    /// The round of its latest program.
    round: usize,
    has_job: bool,
    /// It has said anything at all.
    speaks: bool,
    joined: bool,
    finished: bool,
    complained: bool,
    /// It goes on when others are lost, and ends by itself.
    outlives: bool,
    ended: Option<Ended>,
    stats: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The status that the job will exit with.
struct Bad {
    code: i32,
    /// It only follows from what happened to another node.
    secondary: bool,
}

impl Bad {
    /// Whether a later status says more of the cause: one that follows from nothing, or, of those that only follow, the
    /// loss of a node, for which others were told to stop.
    fn gives_way_to(&self, later: &Bad) -> bool {
        self.secondary && (!later.secondary || (self.code == exit::STOPPED && later.code == exit::NODE_LOST))
    }
}

/// The job is being ended.
struct Ending {
    term_at: Option<Instant>,
    kill_at: Instant,
}

/// Our standard input on its way to node zero.
struct Stdin {
    open: bool,
    in_flight: usize,
    /// It is a terminal, and this job is in the background.
    away: bool,
}

impl<'a> Running<'a> {
    /// A job whose hosts were just ordered to start their nodes; `events` is what they said meanwhile.
    pub fn new(orders: JobOrders, hosts: Vec<Host>, signals: &'a Signals, output: &'a mut Output) -> Running<'a> {
        let rounds = vec![Round::new(orders.job.clone())];
        let nodes = orders.host_of.keys().map(|node| (*node, Node::default())).collect();
        let stdin = Stdin { open: orders.stdin == StdinFrom::Pipe, in_flight: 0, away: false };
        let infos = hosts.iter().map(|host| matches!(host, Host::Here(_)).then(HostInfo::here)).collect();
        Running {
            orders,
            hosts,
            signals,
            output,
            watched: None,
            nodes,
            infos,
            rounds,
            one_never_came: false,
            said_to_all: Vec::new(),
            first_bad: None,
            failure: None,
            ending: None,
            stdin,
            signalled: false,
            interrupted: false,
            signal_at: None,
            closing: false,
            start_said_at: None,
            start_said: false,
            start_failed: false,
            history: None,
        }
    }

    /// A job that others may watch and end.
    pub fn watched_by(mut self, watched: &'a mut Watched) -> Running<'a> {
        self.watched = Some(watched);
        self
    }

    /// Runs until all is over.
    pub fn run(mut self, first_events: Vec<(usize, Event)>) -> Outcome<JobResult> {
        first_events.into_iter().for_each(|(host, event)| self.take(host, event));
        let mut polls = PollSet::default();
        while self.nodes.values().any(|node| node.ended.is_none()) {
            self.step(&mut polls)?;
        }
        self.close(&mut polls)?;
        self.output.set_status(None);
        self.tell_if_nobody_joined();
        Ok(self.result())
    }

    /// A program that knows nothing of Comem has run as often as there are nodes, each time on its own.
    fn tell_if_nobody_joined(&mut self) {
        let count = self.nodes.len();
        if count > 1 && self.nobody_joined() {
            self.output.say(&format!(
                "comem: no node has joined the job: the program ran {count} times, each time by itself ({TAKES_PART})"
            ));
        }
    }

    fn nobody_joined(&self) -> bool {
        let all_well = self.first_bad.is_none() && !self.interrupted;
        all_well && self.nodes.values().all(|node| !node.speaks)
    }

    fn step(&mut self, polls: &mut PollSet) -> Outcome<()> {
        polls.clear();
        polls.readable(self.signals);
        self.register_watchers(polls);
        let clogged = self.output.is_clogged();
        for host in &self.hosts {
            match host {
                Host::Here(group) => group.register(polls, !clogged),
                Host::There(remote) => remote.register(polls),
            }
        }
        if self.stdin.open && self.stdin.in_flight < STDIN_WINDOW {
            self.stdin.away = process::is_kept_from(&io::stdin());
            if !self.stdin.away {
                polls.readable(&io::stdin());
            }
        }
        polls.wait(self.deadline()).map_err(|e| Failure::system("waiting", e))?;
        self.take_events(polls);
        self.read_stdin(polls);
        self.take_signals();
        self.take_watchers(polls);
        self.on_time(Instant::now());
        self.ask_for_output();
        Ok(())
    }

    /// Lets agents send more output, unless there is more already than is read here.
    fn ask_for_output(&mut self) {
        if self.output.is_clogged() {
            return;
        }
        for host in &mut self.hosts {
            if let Host::There(remote) = host {
                remote.output_taken();
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let ending = self.ending.as_ref().filter(|_| !self.closing).map(|e| e.term_at.unwrap_or(e.kill_at));
        let limit = self.orders.deadline.filter(|_| self.may_end()).map(|(at, _)| at);
        let remotes = self.hosts.iter().filter_map(|host| match host {
            Host::Here(_) => None,
            Host::There(remote) => remote.deadline(),
        });
        let terminal = (self.stdin.open && self.stdin.away).then(|| Instant::now() + TERMINAL_LOOK);
        let all = remotes.map(Some).chain([ending, limit, terminal, self.output.deadline()]);
        all.chain([self.start_said_at, self.sample_at()]).fold(None, earlier)
    }

    fn take_events(&mut self, polls: &PollSet) {
        for index in 0..self.hosts.len() {
            let mut events = Vec::new();
            match &mut self.hosts[index] {
                Host::Here(group) => group.take_ready(polls, &mut events),
                Host::There(remote) => remote.take_ready(polls, &mut events),
            }
            events.into_iter().for_each(|event| self.take(index, event));
        }
    }

    fn take(&mut self, host: usize, event: Event) {
        match event {
            Event::Hello(info) => self.infos[host] = Some(info),
            Event::Started { node, pid } => self.node_started(node, pid),
            Event::Output { node, stream, bytes } => self.output.take(node, stream, &bytes),
            Event::Control { node, message } => self.node_said(node, message),
            Event::StdinTaken { count } => self.stdin.in_flight = self.stdin.in_flight.saturating_sub(count),
            Event::Ended { node, ended } => self.node_ended(node, ended),
            Event::Lost(failure) => self.host_lost(host, &failure),
            Event::Note(text) => self.output.say(&format!("comem: {text}")),
        }
    }

    fn node_started(&mut self, node: u16, pid: u32) {
        if let Some(state) = self.nodes.get_mut(&node) {
            state.pid = Some(pid);
        }
        // A node waits for the others so long at most from when it has its job; copies of the program may be under way
        // for longer.
        let is_late = |node: &Node| node.pid.is_none() && node.ended.is_none();
        if self.orders.staged && self.nodes.values().any(is_late) {
            return;
        }
        let idle = |node: &Node| node.pid.is_some() && !node.has_job;
        let waiting: Vec<u16> = self.nodes.iter().filter(|(_, state)| idle(state)).map(|(node, _)| *node).collect();
        waiting.into_iter().for_each(|node| self.give_job(node));
    }

    fn give_job(&mut self, node: u16) {
        if let Some(state) = self.nodes.get_mut(&node) {
            state.has_job = true;
        }
        self.tell(node, &ToNode::Job(self.orders.job.clone()));
        self.tell_what_it_missed(node);
    }

    /// What the program of a node would have been told, had it been there before.
    fn tell_what_it_missed(&mut self, node: u16) {
        let round = self.nodes.get(&node).map_or(0, |state| state.round);
        let mut missed: Vec<ToNode> = Vec::new();
        missed.extend(self.rounds[round].zero.clone().filter(|_| node != 0).map(|addr| ToNode::Zero { addr }));
        missed.extend(self.said_to_all.iter().cloned());
        let gone = |(other, state): (&u16, &Node)| {
            let ended = state.ended.filter(|_| state.round < round)?;
            Some(ToNode::PeerEnded { node: *other, how: before_others(ended) })
        };
        missed.extend(self.nodes.iter().filter_map(gone));
        missed.iter().for_each(|message| self.tell(node, message));
    }

    /// A program of a node is there. The first has its job already.
    fn program_began(&mut self, node: u16, program: u64) {
        let Some(state) = self.nodes.get_mut(&node) else { return };
        if !std::mem::replace(&mut state.began, true) {
            return;
        }
        self.watched.iter_mut().for_each(|watched| watched.forget(node));
        let (before, left) = (state.round, !state.finished);
        state.round += 1;
        (state.joined, state.finished, state.complained) = (false, false, false);
        let round = state.round;
        if self.rounds.len() == round {
            // Datagrams of an earlier round that are late are none of this one.
            let job = Job {
                key: key_to_hex(&sys::random()),
                job: self.orders.job.job.wrapping_add(round as u64),
                // It is kept of the first program alone.
                history: None,
                ..self.orders.job.clone()
            };
            self.rounds.push(Round::new(job));
        }
        if left {
            let waits =
                |(other, state): &(&u16, &Node)| **other != node && state.round == before && state.ended.is_none();
            let others: Vec<u16> = self.nodes.iter().filter(waits).map(|(other, _)| *other).collect();
            let message = ToNode::PeerEnded { node, how: LEFT_A_ROUND.to_string() };
            others.into_iter().for_each(|other| self.tell(other, &message));
        }
        let job = Job { program: Some(program), ..self.rounds[round].job.clone() };
        self.tell(node, &ToNode::Job(job));
        self.tell_what_it_missed(node);
    }

    /// Two programs of one node want its place at once.
    fn programs_meet(&mut self, node: u16, message: &str) {
        if self.may_end() {
            let line = format!("{}: {message}", self.name_of(node));
            self.announce(&line);
            self.bad(exit::USAGE, false);
            // What they say as they are stopped is no news.
            self.nodes.values_mut().for_each(|node| node.complained = true);
            self.begin_ending("a node has two programs at once", LOSS_GRACE);
        }
    }

    fn node_finished(&mut self, node: u16) {
        let Some(state) = self.nodes.get_mut(&node).filter(|state| !state.finished) else { return };
        state.finished = true;
        let round = state.round;
        self.rounds[round].finished += 1;
        if self.rounds[round].finished == self.nodes.len() {
            let of_it = |state: &Node| state.round == round && state.ended.is_none();
            let nodes: Vec<u16> = self.nodes.iter().filter(|(_, state)| of_it(state)).map(|(node, _)| *node).collect();
            nodes.into_iter().for_each(|node| self.tell(node, &ToNode::AllFinished));
        }
    }

    fn node_said(&mut self, node: u16, message: FromNode) {
        let Some(state) = self.nodes.get_mut(&node) else { return };
        state.speaks = true;
        match message {
            FromNode::Begins { program } => self.program_began(node, program),
            FromNode::Beside { message } => self.programs_meet(node, &message),
            FromNode::Address { addr, .. } if node == 0 => self.zero_found(addr),
            FromNode::Joining => {
                self.watched.iter_mut().for_each(|watched| watched.node_joins());
                let starts = !self.start_said && self.ending.is_none();
                self.start_said_at = self.start_said_at.or_else(|| starts.then(|| Instant::now() + START_PATIENCE));
            }
            FromNode::Missing { nodes } => self.start_failed(&nodes),
            FromNode::Started => {
                state.joined = true;
                (self.start_said_at, self.start_said) = (None, true);
            }
            FromNode::Outlives => state.outlives = true,
            FromNode::Finished => self.node_finished(node),
            FromNode::Stats { stats } => state.stats = stats.as_object().cloned(),
            FromNode::Sample { sample } => self.take_sample(node, sample),
            FromNode::History { text } if node == 0 && state.round == 0 => self.history = Some(text),
            FromNode::Failed { message } => {
                let first_time = !std::mem::replace(&mut state.complained, true);
                // Nodes that end because the user wants it need not say so.
                if first_time && !self.interrupted {
                    let line = format!("{}: {message}", self.name_of(node));
                    self.announce(&line);
                }
            }
            _ => {}
        }
    }

    /// Nodes wait for others: who those are, and what is known of them.
    fn tell_who_is_missing(&mut self) {
        (self.start_said_at, self.start_said) = (None, true);
        let silent: Vec<u16> = self.nodes.iter().filter(|(_, state)| !state.speaks).map(|(node, _)| *node).collect();
        let what = match (silent.is_empty(), &self.rounds[0].zero) {
            (false, _) => format!("nodes wait: {}", self.what_is_known(&silent)),
            (true, Some(zero)) => format!(
                "all nodes have called Comem, and have not met yet; they ask for node 0 at {zero}: a firewall may part \
                 them, or packets are lost"
            ),
            (true, None) => "all nodes have called Comem, and node 0 has not told where it is".to_string(),
        };
        self.output.say(&format!("comem: {what}"));
    }

    /// The start has failed for want of these nodes.
    fn start_failed(&mut self, missing: &[u16]) {
        if !std::mem::replace(&mut self.start_failed, true) {
            let line = format!("the nodes have not met in time: {}", self.what_is_known(missing));
            self.announce(&line);
        }
    }

    /// What is known of nodes that others wait for, and what to do.
    fn what_is_known(&self, missing: &[u16]) -> String {
        let mut known: Vec<String> = missing.iter().take(NAMED_MAX).map(|node| self.known_of(*node)).collect();
        if missing.len() > NAMED_MAX {
            known.push(format!("{} more", missing.len() - NAMED_MAX));
        }
        let late = |node: &u16| self.nodes.get(node).is_some_and(|state| !state.speaks && state.ended.is_none());
        let advice = match missing.iter().any(late) {
            true => "let all nodes call Comem at about the same time, or give a longer --node-timeout",
            false => "see whether a firewall parts the hosts",
        };
        format!("{}; {advice}", known.join("; "))
    }

    fn known_of(&self, node: u16) -> String {
        let name = self.name_of(node);
        match self.nodes.get(&node) {
            Some(Node { ended: Some(ended), .. }) => format!("{name}: {ended}"),
            Some(Node { pid: None, .. }) | None => format!("{name} was not started yet"),
            Some(Node { speaks: false, .. }) => format!("{name} runs, but has not called Comem yet"),
            Some(_) => format!("{name} has called Comem, and does not reach the others"),
        }
    }

    fn zero_found(&mut self, addr: String) {
        let local = addr.parse::<SocketAddr>().is_ok_and(|a| a.ip().is_loopback());
        let elsewhere = self.orders.host_names.len() > 1
            && self.hosts.iter().any(|host| matches!(host, Host::There(_)))
            && !self.orders.host_names.iter().all(|name| crate::hosts::is_loopback(name));
        if local && elsewhere {
            let line = format!(
                "{}: listens on {addr}, which other hosts cannot reach; choose another network with --iface",
                self.name_of(0)
            );
            self.announce(&line);
            self.bad(exit::START, false);
            return self.begin_ending("node zero cannot be reached", Duration::ZERO);
        }
        let round = self.nodes.get(&0).map_or(0, |state| state.round);
        let waits = |(node, state): &(&u16, &Node)| **node != 0 && state.round == round;
        let others: Vec<u16> = self.nodes.iter().filter(waits).map(|(node, _)| *node).collect();
        others.into_iter().for_each(|node| self.tell(node, &ToNode::Zero { addr: addr.clone() }));
        self.rounds[round].zero = Some(addr);
    }

    fn node_ended(&mut self, node: u16, ended: Ended) {
        let Some(state) = self.nodes.get_mut(&node) else { return };
        if state.ended.replace(ended).is_some() {
            return;
        }
        let (finished, complained) = (state.finished, state.complained);
        let joined = state.joined;
        // It has run all it runs, and others wait for a program that does not come.
        let awaited = finished && self.tell_later_rounds(node, ended);
        if ended.is_good() {
            if !finished && self.ending.is_none() {
                self.left_early(node, joined);
            }
            return;
        }
        if !self.signalled {
            let secondary = matches!(ended, Ended::Status(exit::NODE_LOST | exit::STOPPED)) && complained;
            self.bad(ended.code(), secondary);
        }
        if self.ending.is_none() || (!complained && !self.signalled && self.failure.is_none()) {
            // Those that outlive the first loss end one after another; only the first end is news.
            if !complained && (self.failure.is_none() || !self.rest_outlives()) {
                let advice = ended.advice(node, self.nodes.len()).map_or(String::new(), |advice| format!("; {advice}"));
                let line = format!("{}: {ended}{advice}", self.name_of(node));
                self.announce(&line);
            }
            if !finished || awaited {
                if !awaited {
                    self.tell_others(node, &ended.to_string());
                }
                self.begin_ending("", if self.rest_outlives() { OUTLIVE_GRACE } else { LOSS_GRACE });
            }
        }
    }

    /// A node ended well, and yet others may wait for it. Whether they do is not known: those that wait to be told
    /// where node zero is have said nothing, and programs that know nothing of Comem do not hear it.
    fn left_early(&mut self, node: u16, joined: bool) {
        if joined {
            self.tell_others(
                node,
                "left before the end of the job, with status 0 (a program that ends regularly calls comem_finish(), \
                 jia_exit, Tmk_exit, Qk_shutdown or MAIN_END, in Python comem.finish() first)",
            );
        } else if !std::mem::replace(&mut self.one_never_came, true) {
            self.tell_others(node, "ended before the job had begun, with status 0");
        }
    }

    /// Tells the nodes that have begun a program after the last of this one, which has ended; whether there are any.
    fn tell_later_rounds(&mut self, node: u16, ended: Ended) -> bool {
        let round = self.nodes.get(&node).map_or(0, |state| state.round);
        let later = |state: &Node| state.round > round && state.ended.is_none();
        let others: Vec<u16> = self.nodes.iter().filter(|(_, state)| later(state)).map(|(node, _)| *node).collect();
        let message = ToNode::PeerEnded { node, how: before_others(ended) };
        others.iter().for_each(|other| self.tell(*other, &message));
        !others.is_empty()
    }

    /// Whether every node that still runs goes on when others are lost.
    fn rest_outlives(&self) -> bool {
        self.nodes.values().filter(|node| node.ended.is_none()).all(|node| node.outlives)
    }

    /// A host cannot take part, or not any more.
    fn host_lost(&mut self, host: usize, failure: &Failure) {
        self.announce_failure(failure);
        self.bad(failure.code, false);
        self.mark_host_ended(host);
        self.begin_ending(&failure.what, LOSS_GRACE);
    }

    /// Nothing more will be heard of a host's nodes.
    fn mark_host_ended(&mut self, host: usize) {
        let on_it = self.orders.host_of.iter().filter(|(_, h)| **h == host).map(|(node, _)| *node);
        let lost: Vec<u16> = on_it.filter(|node| self.nodes[node].ended.is_none()).collect();
        for node in &lost {
            if let Some(state) = self.nodes.get_mut(node) {
                state.ended = Some(Ended::Signal(libc::SIGKILL));
            }
        }
        let host = self.orders.host_names[host].clone();
        for node in lost {
            self.tell_others(node, &format!("was lost with its host {host}"));
        }
    }

    /// Tells a node something. One that has no job yet is told with it: the job must be the first it hears.
    fn tell(&mut self, node: u16, message: &ToNode) {
        if self.nodes.get(&node).is_none_or(|state| !state.has_job) {
            return;
        }
        let Some(index) = self.orders.host_of.get(&node) else { return };
        match &mut self.hosts[*index] {
            Host::Here(group) => group.tell(node, message),
            Host::There(remote) => remote.tell(node, message),
        }
    }

    fn tell_running(&mut self, message: &ToNode) {
        let running: Vec<u16> = self.nodes.iter().filter(|(_, n)| n.ended.is_none()).map(|(node, _)| *node).collect();
        running.into_iter().for_each(|node| self.tell(node, message));
        self.said_to_all.push(message.clone());
    }

    fn tell_others(&mut self, node: u16, how: &str) {
        self.tell_running(&ToNode::PeerEnded { node, how: how.to_string() });
    }

    /// Notes a failing status. The first one counts, unless it only followed from another.
    fn bad(&mut self, code: i32, secondary: bool) {
        let bad = Bad { code, secondary };
        if self.first_bad.as_ref().is_none_or(|first| first.gives_way_to(&bad)) {
            self.first_bad = Some(bad);
        }
    }

    fn announce(&mut self, line: &str) {
        self.output.say(&format!("comem: {line}"));
        self.failure.get_or_insert_with(|| line.to_string());
    }

    fn announce_failure(&mut self, failure: &Failure) {
        self.announce(failure.to_string().trim_start_matches("comem: "));
    }

    fn name_of(&self, node: u16) -> String {
        let host = self.orders.host_of.get(&node).map_or("?", |h| self.orders.host_names[*h].as_str());
        match self.nodes.get(&node).and_then(|n| n.pid) {
            Some(pid) => format!("node {node} (host {host}, pid {pid})"),
            None => format!("node {node} (host {host})"),
        }
    }

    fn read_stdin(&mut self, polls: &PollSet) {
        if !self.stdin.open || !polls.can_read(&io::stdin()) {
            return;
        }
        let mut bytes = vec![0; 64 << 10];
        match read_some(&io::stdin(), &mut bytes) {
            ReadOutcome::Bytes(count) => bytes.truncate(count),
            ReadOutcome::NothingYet => return,
            // Refused, since the terminal was taken away meanwhile.
            ReadOutcome::End if process::is_kept_from(&io::stdin()) => return,
            ReadOutcome::End => {
                self.stdin.open = false;
                bytes.clear();
            }
        }
        self.stdin.in_flight += bytes.len();
        let Some(index) = self.orders.host_of.get(&0).copied() else { return };
        let mut events = Vec::new();
        match &mut self.hosts[index] {
            Host::Here(group) => group.feed(0, &bytes, &mut events),
            Host::There(remote) => remote.feed(0, &bytes),
        }
        events.into_iter().for_each(|event| self.take(index, event));
    }

    fn result(self) -> JobResult {
        let nobody_joined = self.nobody_joined();
        let report = |(node, state): (u16, Node)| NodeReport {
            host: self.orders.host_names[self.orders.host_of[&node]].clone(),
            pid: state.pid,
            ended: state.ended,
            stats: state.stats,
        };
        JobResult {
            nobody_joined,
            code: self.first_bad.map_or(0, |bad| bad.code),
            failure: self.failure,
            nodes: self.nodes.into_iter().map(report).collect(),
            hosts: self.orders.host_names.iter().cloned().zip(self.infos).collect(),
            interrupted: self.interrupted,
            history: self.history,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_job_is_that_of_the_cause_whatever_comes_first() {
        let follows = |code| Bad { code, secondary: true };
        let cause = |code| Bad { code, secondary: false };
        let last = |statuses: [Bad; 2]| {
            let [first, later] = statuses;
            if first.gives_way_to(&later) { later.code } else { first.code }
        };
        assert_eq!(last([follows(exit::STOPPED), follows(exit::NODE_LOST)]), exit::NODE_LOST);
        assert_eq!(last([follows(exit::NODE_LOST), follows(exit::STOPPED)]), exit::NODE_LOST);
        assert_eq!(last([follows(exit::NODE_LOST), cause(139)]), 139);
        assert_eq!(last([follows(exit::STOPPED), cause(exit::STOPPED)]), exit::STOPPED);
        assert_eq!(last([cause(7), follows(exit::NODE_LOST)]), 7);
        assert_eq!(last([cause(7), cause(8)]), 7);
    }
}
