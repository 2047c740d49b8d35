//! What both roles of start-up share: the configuration, the way out, and the words for what happened.

use crate::ids::{NODES_MAX, NodeId, THREADS_MAX};
use crate::node::identity::{Identity, Refusal};
use crate::node::message::{self, ARGUMENTS_MAX, Intent, Join, OPTIONS_MAX, StartMessage, Wakeup};
use crate::node::rng::Rng;
use crate::node::table::{Member, Membership};
use crate::time::{Span, Time};
use crate::wire::header::MsgType;
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// How a process finds the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// A launcher gave the process its number. Node zero's own number is 0; the others learn its address now
    /// or later ([`super::Startup::set_zero`]).
    Launched {
        /// This node.
        node: NodeId,
        /// Where node zero's service thread listens.
        zero: Option<SocketAddr>,
    },
    /// This process is node zero, and the others know its address.
    Serve,
    /// Node zero is at this address and gives out the numbers.
    Join {
        /// Where node zero's service thread listens.
        zero: SocketAddr,
    },
    /// Look for the others on the network; whoever is first becomes node zero.
    Discover,
}

impl Mode {
    /// How long start-up may take when nobody says otherwise: a launcher may have to reach slow hosts.
    pub fn default_deadline(self) -> Span {
        match self {
            Mode::Launched { .. } => Span::from_ms(30_000),
            _ => Span::from_ms(10_000),
        }
    }
}

/// What a process brings to start-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How it finds the others.
    pub mode: Mode,
    /// What must agree, the number of nodes and threads among it.
    pub identity: Identity,
    /// The program's arguments, for WAKEUP.
    pub arguments: Vec<String>,
    /// The process's number on its host.
    pub pid: u32,
    /// Its host's name.
    pub host: String,
    /// The address its sockets are bound to; unspecified when to all.
    pub ip: IpAddr,
    /// The UDP port of each slot, the service thread's first; then, in all nodes or in none, that of what may wait
    /// until the node looks, and that at which the node is told what sets of nodes are told.
    pub ports: Vec<u16>,
    /// The job's number when a launcher or a daemon gave one, never 0.
    pub job: Option<u64>,
    /// The program number of the job's headers when a launcher gave one, never 0.
    pub prog: Option<u16>,
    /// Whether the process will listen to the job's multicast group once it knows the job.
    pub multicast: bool,
    /// Whether nodes find out if they hear each other. Those that share their host's memory need not: there each has
    /// been heard by node zero, and so is heard by all.
    pub introduces: bool,
    /// How long to wait for the others; `None` for ever.
    pub deadline: Option<Span>,
}

/// A configuration that cannot work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// No nodes, or more than a job may have.
    #[error("{0} nodes: a job has 1 to {NODES_MAX}; correct the number of nodes")]
    Nodes(u16),
    /// No threads, or more than a node may have.
    #[error("{0} threads: a node has 1 to {THREADS_MAX}; correct the number of threads")]
    Threads(u16),
    /// The launcher gave a number that the job does not have.
    #[error("{node} in a job of {nodes} nodes; numbers begin with 0")]
    Number {
        /// The number.
        node: NodeId,
        /// How many nodes there are.
        nodes: u16,
    },
    /// A node has one port for its service thread and one for each application thread. It may have one more for what
    /// may wait, and one at which it is told what sets of nodes are told.
    #[error("{ports} ports for {threads} threads; there must be one to three more, and none of them 0")]
    Ports {
        /// Ports given.
        ports: usize,
        /// Threads in a node.
        threads: u16,
    },
    /// The arguments do not fit a WAKEUP.
    #[error("the program's arguments take {bytes} bytes, WAKEUP carries {ARGUMENTS_MAX}; put them into a file")]
    Arguments {
        /// Bytes they take.
        bytes: usize,
    },
    /// The options do not fit a JOIN.
    #[error("the options that must agree take {bytes} bytes of {OPTIONS_MAX}; shorten them")]
    Options {
        /// Bytes they take.
        bytes: usize,
    },
}

impl Config {
    /// Checks the configuration and cuts names to the length that the datagrams carry.
    pub(super) fn checked(mut self) -> Result<Config, ConfigError> {
        let Identity { nodes, threads, .. } = self.identity;
        if nodes == 0 || usize::from(nodes) > NODES_MAX {
            return Err(ConfigError::Nodes(nodes));
        }
        if threads == 0 || usize::from(threads) > THREADS_MAX {
            return Err(ConfigError::Threads(threads));
        }
        match self.mode {
            Mode::Launched { node, .. } if node.0 >= nodes => return Err(ConfigError::Number { node, nodes }),
            _ => {}
        }
        let spare = self.ports.len().checked_sub(usize::from(threads));
        if !matches!(spare, Some(1..=3)) || self.ports.contains(&0) {
            return Err(ConfigError::Ports { ports: self.ports.len(), threads });
        }
        let bytes = self.arguments.iter().map(|a| a.len() + 2).sum();
        if bytes > ARGUMENTS_MAX && self.mode == Mode::Discover {
            return Err(ConfigError::Arguments { bytes });
        }
        let bytes = self.identity.options.len();
        if bytes > OPTIONS_MAX {
            return Err(ConfigError::Options { bytes });
        }
        for name in [&mut self.host, &mut self.identity.job_name, &mut self.identity.program] {
            *name = message::fit(name, message::NAME_MAX);
        }
        self.identity.options = message::fit(&self.identity.options, OPTIONS_MAX);
        Ok(self)
    }

    /// This process as an entry of the address table.
    pub(super) fn member(&self) -> Member {
        Member { host: self.host.clone(), pid: self.pid, ip: self.ip, ports: self.ports.clone() }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// Everybody on the network, at the port known for discovery.
    Broadcast,
    /// The job's multicast group.
    Multicast,
    /// One process's service thread.
    Address(SocketAddr),
}

/// A datagram to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to.
    pub to: To,
    /// The type in its header.
    pub ty: MsgType,
    /// What stands behind the header.
    pub body: Vec<u8>,
}

/// A part of start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The launcher has not yet said where node zero is.
    Address,
    /// Processes get their numbers.
    Join,
    /// Nodes learn each other's addresses and introduce themselves.
    Hello,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Address => "before node zero's address was known",
            Phase::Join => "in phase JOIN",
            Phase::Hello => "in phase HELLO",
        })
    }
}

/// A node that did not come, or did not come through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Which.
    pub node: NodeId,
    /// Its host and process number, when it came as far as saying so.
    pub process: Option<(String, u32)>,
    /// Nodes that it did not hear, the first few.
    pub unheard: Vec<NodeId>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        if let Some((host, pid)) = &self.process {
            write!(f, " (host {host}, pid {pid})")?;
        }
        for (index, node) in self.unheard.iter().enumerate() {
            f.write_str(if index == 0 { " which does not hear " } else { ", " })?;
            write!(f, "{node}")?;
        }
        Ok(())
    }
}

fn list(missing: &[Missing]) -> String {
    const SHOWN: usize = 8;
    let mut text: Vec<String> = missing.iter().take(SHOWN).map(Missing::to_string).collect();
    if missing.len() > SHOWN {
        text.push(format!("{} more", missing.len() - SHOWN));
    }
    text.join("; ")
}

/// Whom a process waits for, while it is on its way into a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Its number, if it has one.
    pub me: Option<NodeId>,
    /// Where it has asked for a place, unless it is node zero or does not know yet.
    pub zero: Option<SocketAddr>,
    /// In which part of start-up.
    pub phase: Phase,
    /// Whom it waits for; node zero alone where that has to gather the others.
    pub missing: Vec<Missing>,
    /// When it gives up.
    pub until: Option<Time>,
}

impl Waits {
    /// The nodes it waits for, in words.
    pub fn missing(&self) -> String {
        list(&self.missing)
    }
}

/// Why a process is not part of a job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// Node zero said no.
    #[error("node zero at {zero} refused: {reason}")]
    Refused {
        /// Where node zero is.
        zero: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// Not enough processes came.
    #[error("{came} of {wanted} nodes came in time; start the others, or ask for fewer nodes")]
    TooFew {
        /// Nodes that came, node zero included.
        came: u16,
        /// Nodes wanted.
        wanted: u16,
    },
    /// Time ran out.
    #[error("{}; check that these processes run and that no firewall parts the hosts", self.what())]
    TimedOut {
        /// In which part.
        phase: Phase,
        /// Whom this node waited for.
        missing: Vec<Missing>,
    },
    /// Node zero is gone.
    #[error("node zero at {zero} ended during start-up; see its own message, then start again")]
    ZeroGone {
        /// Where it was.
        zero: SocketAddr,
    },
    /// Start-up was given up, here or by node zero.
    #[error("start-up was given up: {0}")]
    GivenUp(String),
}

impl StartError {
    /// What happened, without advice: a launcher knows more of the processes that it has started.
    pub fn what(&self) -> String {
        match self {
            StartError::TimedOut { phase, missing } => format!("time ran out {phase}, waiting for {}", list(missing)),
            other => other.to_string(),
        }
    }

    /// The nodes for want of which the start failed.
    pub fn missing(&self) -> Vec<NodeId> {
        match self {
            StartError::TimedOut { missing, .. } => missing.iter().map(|missing| missing.node).collect(),
            _ => Vec::new(),
        }
    }
}

/// What the caller should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// This process is node zero and gathers the others. The caller now joins the job's multicast group.
    Zero(Wakeup),
    /// This process has a number, until [`Event::Ready`] a preliminary one; the caller now joins the job's
    /// multicast group. May come again with another number or job.
    Joined {
        /// The number.
        node: NodeId,
        /// The job.
        job: u64,
        /// The program number of its headers.
        prog: u16,
    },
    /// Node zero refused a process; told once a process.
    TurnedAway {
        /// Its address.
        from: SocketAddr,
        /// Its host and process number, as far as they could be read.
        process: Option<(String, u32)>,
        /// Why.
        reason: Refusal,
    },
    /// These nodes have not heard node zero's multicast; told by node zero before [`Event::Ready`].
    Deaf(Vec<NodeId>),
    /// All nodes know each other. The caller now runs the closing barrier.
    Ready(Membership),
    /// Enough others came; this process is not needed and should end without an error.
    Surplus,
    /// Start-up failed.
    Failed(StartError),
}

/// What both roles use.
#[derive(Debug)]
pub(super) struct Core {
    pub config: Config,
    /// This process's random number.
    pub nonce: u64,
    /// When it began.
    pub born: Time,
    pub chance: Rng,
    pub out: VecDeque<Transmit>,
    pub events: VecDeque<Event>,
}

impl Core {
    pub fn send(&mut self, to: To, message: &StartMessage) {
        let body = message.emit(self.config.identity.version);
        debug_assert!(body.len() <= message::BODY_MAX, "{} bytes", body.len());
        self.out.push_back(Transmit { to, ty: message.ty(), body });
    }

    pub fn fail(&mut self, error: StartError) {
        self.events.push_back(Event::Failed(error));
    }

    pub fn nodes(&self) -> usize {
        usize::from(self.config.identity.nodes)
    }

    pub fn discovers(&self) -> bool {
        self.config.mode == Mode::Discover
    }

    /// For how long this process has been on its way.
    pub fn age_ms(&self, now: Time) -> u32 {
        u32::try_from((now - self.born).0 / 1_000_000).unwrap_or(u32::MAX)
    }

    pub fn send_join(&mut self, now: Time, to: To, intent: Intent) {
        let config = &self.config;
        let requested = match config.mode {
            Mode::Launched { node, .. } => Some(node),
            _ => None,
        };
        let join = Join {
            nonce: self.nonce,
            discover: self.discovers() && to == To::Broadcast,
            intent,
            requested,
            job: config.job.unwrap_or(0),
            age_ms: self.age_ms(now),
            identity: config.identity.clone(),
            pid: config.pid,
            host: config.host.clone(),
            ports: config.ports.clone(),
        };
        self.send(to, &StartMessage::Join(Box::new(join)));
    }

    /// How long to wait before asking node zero for the `tries`-th time: doubling from 50 ms to a quarter of a second,
    /// longer where a thousand nodes ask.
    pub fn patience(&mut self, tries: u32) -> Span {
        let base = Span::from_us(50_000 + 250 * self.nodes() as u64);
        let most = Span::from_ms(250).0.max(2 * base.0);
        let span = Span((base.0 << tries.min(8)).min(most));
        self.chance.about(span)
    }
}
