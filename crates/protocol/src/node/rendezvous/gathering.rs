//! Who is which node, and what goes wrong on the way: the machine that the process which made the id runs.
//!
//! | phase | until |
//! |---|---|
//! | gathering | as many processes have arrived as each expects |
//! | placed | node zero has said where it listens |
//! | over | – |
//!
//! What cannot be right any more ends the rendezvous for all at once, with the same sentence: two processes of one
//! rank, different numbers of processes, a time limit. A process whose connection ends while others are awaited is as
//! if it had not come, so that it can be started again.
//!
//! After each call take what is to be sent ([`Gathering::poll_reply`]), and call [`Gathering::on_timeout`] at
//! [`Gathering::next_timeout`].

use super::message::{Arrival, Placed, ToGuest};
use crate::ids::NodeId;
use crate::time::{Span, Time};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

/// A process at the rendezvous, by the number that the caller gives its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Guest(pub u32);

/// After so long the one who came first is told whom all wait for.
const SILENCE: Span = Span::from_ms(2_000);

/// A process, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}, pid {}", self.host, self.pid)
    }
}

/// Why there will be no job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Two processes are to be the same node.
    SameRank {
        /// Which.
        node: NodeId,
        /// The one that came first.
        first: Process,
        /// The other.
        second: Process,
    },
    /// A rank is not below the number of processes.
    NoSuchRank {
        /// The rank.
        node: NodeId,
        /// How many processes there are.
        processes: u16,
        /// Whose rank it is.
        process: Process,
    },
    /// Processes expect different numbers of them.
    Processes {
        /// The one that came first, and its number.
        first: (Process, u16),
        /// Another, and its number.
        second: (Process, u16),
    },
    /// Not all came in time.
    TooFew {
        /// How many are expected.
        processes: u16,
        /// Those that came, with their ranks if they have one.
        came: Vec<(Process, Option<NodeId>)>,
        /// For how long they were waited for, in seconds.
        limit_s: u64,
    },
    /// Node zero is gone before the others could join it.
    ZeroGone {
        /// Which process it was.
        process: Process,
    },
    /// This process comes when all are here.
    Late {
        /// How many there are.
        processes: u16,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::SameRank { node, first, second } => {
                write!(f, "two processes are to be {node} ({first}; {second}); give each a rank of its own")
            }
            Fault::NoSuchRank { node, processes, process } => write!(
                f,
                "a process ({process}) is to be {node}, and a job of {processes} has nodes 0 to {}; correct its rank",
                processes - 1
            ),
            Fault::Processes { first, second } => write!(
                f,
                "one process ({}) expects {} processes and another ({}) {}; start all with the same number",
                first.0, first.1, second.0, second.1
            ),
            Fault::TooFew { processes, came, limit_s } => write!(
                f,
                "{} of {processes} processes came within {limit_s} s, and {}; see whether they run and have this id",
                came.len(),
                missing(*processes, came)
            ),
            Fault::ZeroGone { process } => write!(
                f,
                "node 0 ({process}) ended before the others could join it; see its own message, then start all anew"
            ),
            Fault::Late { processes } => write!(
                f,
                "the {processes} processes of this id's job have met already; an id serves one job, so make another \
                 for the next, and start no more processes than you say"
            ),
        }
    }
}

/// Who is missing: the ranks, where all who came have one.
fn missing(processes: u16, came: &[(Process, Option<NodeId>)]) -> String {
    const SHOWN: usize = 8;
    if came.iter().all(|(_, rank)| rank.is_some()) {
        let is_there = |node: u16| came.iter().any(|(_, rank)| *rank == Some(NodeId(node)));
        let nodes: Vec<u16> = (0..processes).filter(|node| !is_there(*node)).collect();
        let mut text: Vec<String> = nodes.iter().take(SHOWN).map(u16::to_string).collect();
        if nodes.len() > SHOWN {
            text.push(format!("{} more", nodes.len() - SHOWN));
        }
        let (word, are) = if nodes.len() == 1 { ("node", "is") } else { ("nodes", "are") };
        return format!("{word} {} {are} missing", text.join(", "));
    }
    let mut here: Vec<String> = came.iter().take(SHOWN).map(|(process, _)| process.to_string()).collect();
    if came.len() > SHOWN {
        here.push(format!("{} more", came.len() - SHOWN));
    }
    format!("only these are here: {}", here.join("; "))
}

#[derive(Clone, Debug)]
struct Came {
    guest: Guest,
    arrival: Arrival,
}

impl Came {
    fn process(&self) -> Process {
        Process { host: self.arrival.host.clone(), pid: self.arrival.pid }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Gathering,
    Placed { zero: Guest },
    Over,
}

/// The machine.
#[derive(Debug)]
pub struct Gathering {
    phase: Phase,
    /// In the order in which they came.
    came: Vec<Came>,
    processes: u16,
    /// How long the first one waits.
    limit: Option<Span>,
    deadline: Option<Time>,
    /// When the first one is told whom all wait for.
    tell_at: Option<Time>,
    replies: VecDeque<(Guest, ToGuest)>,
    /// What all were told when it failed.
    failed: Option<String>,
}

impl Default for Gathering {
    fn default() -> Gathering {
        Gathering::new()
    }
}

impl Gathering {
    /// Nobody has come yet.
    pub fn new() -> Gathering {
        Gathering {
            phase: Phase::Gathering,
            came: Vec::new(),
            processes: 0,
            limit: None,
            deadline: None,
            tell_at: None,
            replies: VecDeque::new(),
            failed: None,
        }
    }

    /// A process has come.
    pub fn on_arrival(&mut self, now: Time, guest: Guest, arrival: Arrival) {
        if self.phase != Phase::Gathering {
            let late = || Fault::Late { processes: self.processes }.to_string();
            self.replies.push_back((guest, ToGuest::Failed(self.failed.clone().unwrap_or_else(late))));
            return;
        }
        if self.came.is_empty() {
            self.processes = arrival.processes;
            self.limit = (arrival.limit_ms > 0).then(|| Span::from_ms(arrival.limit_ms.into()));
            self.deadline = self.limit.map(|limit| now + limit);
            self.tell_at = Some(now + SILENCE);
        }
        let fault = self.fault_of(&arrival);
        self.came.push(Came { guest, arrival });
        match fault {
            Some(fault) => self.fail(&fault),
            None if self.came.len() == usize::from(self.processes) => self.place(now),
            None => {}
        }
    }

    /// What keeps a process from coming to those who are here.
    fn fault_of(&self, arrival: &Arrival) -> Option<Fault> {
        let process = Process { host: arrival.host.clone(), pid: arrival.pid };
        if let Some(first) = self.came.first().filter(|_| arrival.processes != self.processes) {
            let first = (first.process(), self.processes);
            return Some(Fault::Processes { first, second: (process, arrival.processes) });
        }
        let node = arrival.rank?;
        if node.0 >= self.processes {
            return Some(Fault::NoSuchRank { node, processes: self.processes, process });
        }
        let first = self.came.iter().find(|came| came.arrival.rank == Some(node))?;
        Some(Fault::SameRank { node, first: first.process(), second: process })
    }

    /// All are here: each gets its number.
    fn place(&mut self, now: Time) {
        let nodes = numbers(&self.came);
        let places: Vec<Placed> = (0..self.came.len()).map(|index| self.placed(index, &nodes)).collect();
        for (came, placed) in self.came.iter().zip(&places) {
            self.replies.push_back((came.guest, ToGuest::Placed(*placed)));
        }
        self.tell_at = None;
        self.deadline = self.limit.map(|limit| now + limit);
        let zero = nodes.iter().position(|node| node.0 == 0).map_or(Guest(0), |index| self.came[index].guest);
        self.phase = Phase::Placed { zero };
    }

    fn placed(&self, index: usize, nodes: &[NodeId]) -> Placed {
        let place = &self.came[index].arrival.place;
        let here = || self.came.iter().zip(nodes).filter(|(came, _)| came.arrival.place == *place);
        Placed {
            node: nodes[index],
            host_nodes: here().count() as u16,
            host_place: here().filter(|(_, node)| **node < nodes[index]).count() as u16,
        }
    }

    /// A process has said that it is node zero, and where it listens.
    pub fn on_address(&mut self, guest: Guest, address: SocketAddr) {
        if self.phase != (Phase::Placed { zero: guest }) {
            return;
        }
        for came in self.came.iter().filter(|came| came.guest != guest) {
            self.replies.push_back((came.guest, ToGuest::Zero(address)));
        }
        self.end();
    }

    /// A process's connection has ended.
    pub fn on_closed(&mut self, guest: Guest) {
        let Some(index) = self.came.iter().position(|came| came.guest == guest) else { return };
        let gone = self.came.remove(index);
        if self.phase == (Phase::Placed { zero: guest }) {
            self.fail(&Fault::ZeroGone { process: gone.process() });
        }
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|at| at <= now) {
            match self.phase.clone() {
                Phase::Gathering => self.fail(&self.too_few()),
                Phase::Placed { zero } => {
                    if let Some(zero) = self.came.iter().find(|came| came.guest == zero) {
                        self.fail(&Fault::ZeroGone { process: zero.process() });
                    }
                }
                Phase::Over => {}
            }
        } else if self.tell_at.take_if(|at| *at <= now).is_some()
            && let Some(first) = self.came.first()
        {
            let (came, processes) = (self.came.len(), self.processes);
            let text = format!("{came} of {processes} processes have come; {}", missing(processes, &self.who_came()));
            self.replies.push_back((first.guest, ToGuest::Waits(text)));
        }
    }

    /// When to call [`Gathering::on_timeout`]; `None` while nothing can become due.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.deadline, self.tell_at].into_iter().flatten().min()
    }

    /// The next thing to tell a process.
    pub fn poll_reply(&mut self) -> Option<(Guest, ToGuest)> {
        self.replies.pop_front()
    }

    /// Whether nobody else is expected, and nothing more will be told.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.replies.is_empty()
    }

    fn who_came(&self) -> Vec<(Process, Option<NodeId>)> {
        self.came.iter().map(|came| (came.process(), came.arrival.rank)).collect()
    }

    fn too_few(&self) -> Fault {
        let limit_s = self.limit.unwrap_or_default().0.div_ceil(1_000_000_000);
        Fault::TooFew { processes: self.processes, came: self.who_came(), limit_s }
    }

    fn fail(&mut self, fault: &Fault) {
        let text = fault.to_string();
        for came in &self.came {
            self.replies.push_back((came.guest, ToGuest::Failed(text.clone())));
        }
        self.failed = Some(text);
        self.end();
    }

    fn end(&mut self) {
        self.phase = Phase::Over;
        (self.deadline, self.tell_at) = (None, None);
    }
}

/// The numbers of those who came: those without a rank take what is left, first the one that made the id, then host by
/// host, so that neighbours in number are neighbours in place.
fn numbers(came: &[Came]) -> Vec<NodeId> {
    let host = |came: &Came| came.arrival.place.clone();
    let host_order = |one: &Came| came.iter().position(|other| host(other) == host(one));
    let made_id = came.iter().find(|came| came.arrival.made_id).map(host);
    let mut unranked: Vec<usize> = (0..came.len()).filter(|index| came[*index].arrival.rank.is_none()).collect();
    unranked.sort_by_key(|index| {
        let one = &came[*index];
        (!one.arrival.made_id, made_id.as_ref() != Some(&host(one)), host_order(one), *index)
    });
    let is_taken = |node: &u16| came.iter().any(|came| came.arrival.rank == Some(NodeId(*node)));
    let free: Vec<u16> = (0..came.len() as u16).filter(|node| !is_taken(node)).collect();
    let mut nodes: Vec<NodeId> = came.iter().map(|came| came.arrival.rank.unwrap_or_default()).collect();
    for (index, node) in unranked.into_iter().zip(free) {
        nodes[index] = NodeId(node);
    }
    nodes
}
