//! Start-up on a small virtual network: every process has an address of its own, datagrams take a random time and may
//! be lost or doubled, and a seed decides about all of it.

use super::*;
use crate::node::identity::tests::identity;
use crate::node::identity::{Refusal, VERSION};
use crate::node::message::{Answer, Intent, Join, Verdict, Wakeup};
use crate::node::table::Membership;
use crate::time::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

mod failures;
mod starts;

struct Process {
    startup: Startup,
    /// The last thing that matters to the caller.
    ready: Option<Membership>,
    surplus: bool,
    error: Option<StartError>,
    turned_away: Vec<Refusal>,
    joined: Option<NodeId>,
    deaf: Vec<NodeId>,
    began_zero: bool,
    alive: bool,
}

type InFlight = (usize, SocketAddr, MsgType, Vec<u8>);

struct Network {
    processes: Vec<Process>,
    in_flight: BTreeMap<(Time, u64), InFlight>,
    sent: u64,
    chance: Rng,
    now: Time,
    loss_percent: u64,
    multicast: bool,
    /// Processes that hear none.
    deaf: BTreeSet<usize>,
    /// Pairs of processes that cannot reach each other.
    parted: BTreeSet<(usize, usize)>,
}

const SERVICE_PORT: u16 = 7000;

fn address(index: usize) -> SocketAddr {
    SocketAddr::new(ip(index), SERVICE_PORT)
}

fn ip(index: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, (index >> 8) as u8, (index & 255) as u8).into()
}

fn config(index: usize, nodes: u16, mode: Mode) -> Config {
    Config {
        mode,
        identity: identity(nodes),
        arguments: vec!["--size".into(), "512".into()],
        pid: 4000 + index as u32,
        host: format!("host{index}"),
        ip: ip(index),
        ports: vec![SERVICE_PORT, SERVICE_PORT + 1, SERVICE_PORT + 2],
        job: None,
        prog: None,
        multicast: true,
        introduces: true,
        deadline: Some(mode.default_deadline()),
    }
}

fn launched(index: usize, nodes: u16) -> Config {
    config(index, nodes, Mode::Launched { node: NodeId(index as u16), zero: Some(address(0)) })
}

impl Network {
    fn new(seed: u64, loss_percent: u64) -> Network {
        Network {
            processes: Vec::new(),
            in_flight: BTreeMap::new(),
            sent: 0,
            chance: Rng::new(seed),
            now: Time(1),
            loss_percent,
            multicast: true,
            deaf: BTreeSet::new(),
            parted: BTreeSet::new(),
        }
    }

    fn start(&mut self, config: Config) -> usize {
        let seed = self.chance.next();
        let startup = Startup::new(config, self.now, seed).expect("a good configuration");
        self.processes.push(Process {
            startup,
            ready: None,
            surplus: false,
            error: None,
            turned_away: Vec::new(),
            joined: None,
            deaf: Vec::new(),
            began_zero: false,
            alive: true,
        });
        self.collect(self.processes.len() - 1);
        self.processes.len() - 1
    }

    fn start_all(&mut self, indices: std::ops::Range<usize>, config: impl Fn(usize) -> Config) {
        for index in indices {
            assert_eq!(self.start(config(index)), index);
        }
    }

    /// Takes what a process has to say.
    fn collect(&mut self, index: usize) {
        while let Some(Transmit { to, ty, body }) = self.processes[index].startup.poll_transmit() {
            assert!(body.len() <= crate::node::message::BODY_MAX);
            match to {
                To::Broadcast => (0..self.processes.len()).for_each(|to| self.put(index, to, ty, &body)),
                To::Multicast if !self.multicast => {}
                To::Multicast => {
                    let hears: Vec<usize> = (0..self.processes.len()).filter(|to| !self.deaf.contains(to)).collect();
                    hears.into_iter().for_each(|to| self.put(index, to, ty, &body));
                }
                To::Address(to) => {
                    let to = (0..self.processes.len()).find(|&i| address(i) == to);
                    to.into_iter().for_each(|to| self.put(index, to, ty, &body));
                }
            }
        }
        let process = &mut self.processes[index];
        while let Some(event) = process.startup.poll_event() {
            assert!(process.ready.is_none() || matches!(event, Event::TurnedAway { .. }), "{event:?} after the start");
            match event {
                Event::Ready(membership) => process.ready = Some(membership),
                Event::Failed(error) => process.error = Some(error),
                Event::Surplus => process.surplus = true,
                Event::Deaf(nodes) => process.deaf = nodes,
                Event::Joined { node, .. } => process.joined = Some(node),
                Event::TurnedAway { reason, .. } => process.turned_away.push(reason),
                Event::Zero(wakeup) => {
                    assert_eq!(wakeup.arguments, ["--size", "512"]);
                    process.began_zero = true;
                }
            }
        }
    }

    fn put(&mut self, from: usize, to: usize, ty: MsgType, body: &[u8]) {
        if self.parted.contains(&(from.min(to), from.max(to))) {
            return;
        }
        let copies = 1 + u64::from(self.chance.next() % 100 < self.loss_percent / 4);
        for _ in 0..copies {
            if self.chance.next() % 100 >= self.loss_percent {
                let delay = Span::from_us(20 + self.chance.next() % 400);
                self.sent += 1;
                self.in_flight.insert((self.now + delay, self.sent), (to, address(from), ty, body.to_vec()));
            }
        }
    }

    fn step(&mut self) -> bool {
        let timer = |p: &Process| p.alive.then(|| p.startup.next_timeout()).flatten();
        let timeout = self.processes.iter().enumerate().filter_map(|(i, p)| timer(p).map(|at| (at, i))).min();
        let arrival = self.in_flight.keys().next().copied();
        match (arrival, timeout) {
            (Some(key), timer) if timer.is_none_or(|(at, _)| key.0 <= at) => {
                let (to, from, ty, body) = self.in_flight.remove(&key).expect("just seen");
                self.now = self.now.max(key.0);
                if self.processes[to].alive {
                    self.processes[to].startup.on_datagram(self.now, from, ty, &body).expect("good bytes");
                    self.collect(to);
                }
            }
            (_, Some((at, index))) => {
                self.now = self.now.max(at);
                self.processes[index].startup.on_timeout(self.now);
                self.collect(index);
            }
            (None, None) => return false,
            (Some(_), None) => unreachable!("the first arm takes it"),
        }
        true
    }

    /// Runs until `done` or nothing can happen any more; fails when that takes longer than any start may.
    fn run_until(&mut self, done: impl Fn(&Network) -> bool) {
        let limit = self.now + Span::from_ms(90_000);
        while !done(self) {
            if !self.step() {
                assert!(done(self), "nothing can happen any more: {}", self.picture());
            }
            assert!(self.now < limit, "no end: {}", self.picture());
        }
    }

    fn run_to_ends(&mut self) {
        self.run_until(|network| network.processes.iter().all(|p| !p.alive || p.has_ended()));
    }

    fn picture(&self) -> String {
        let one = |(i, p): (usize, &Process)| {
            format!("{i}: ready {}, surplus {}, {:?}, {:?}", p.ready.is_some(), p.surplus, p.error, p.joined)
        };
        self.processes.iter().enumerate().map(one).collect::<Vec<_>>().join("\n")
    }

    /// All are nodes of one job and agree about it; returns the address table by node number.
    fn assert_one_job(&self) -> Vec<usize> {
        let members: Vec<&Membership> = self.processes.iter().filter_map(|p| p.ready.as_ref()).collect();
        let first = members[0];
        let mut numbers: Vec<usize> = members.iter().map(|m| m.me.index()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..first.nodes.len()).collect::<Vec<_>>());
        for member in &members {
            assert_eq!((member.job, member.prog, member.multicast), (first.job, first.prog, first.multicast));
            assert_eq!(member.nodes, first.nodes);
            assert_ne!((member.job, member.prog), (0, DISCOVERY_PROG));
        }
        for (index, process) in self.processes.iter().enumerate() {
            if let Some(membership) = &process.ready {
                let me = &membership.nodes[membership.me.index()];
                assert_eq!((me.service(), me.pid), (address(index), 4000 + index as u32));
                assert!(process.startup.is_running());
            }
        }
        first.nodes.iter().map(|m| (m.pid - 4000) as usize).collect()
    }

    /// What process `to` answers to a message made by hand.
    fn answers(&mut self, to: usize, from: SocketAddr, message: &StartMessage) -> Vec<Verdict> {
        let startup = &mut self.processes[to].startup;
        while startup.poll_transmit().is_some() {}
        startup.on_datagram(self.now, from, message.ty(), &message.emit(VERSION)).expect("good bytes");
        let sent = std::iter::from_fn(|| startup.poll_transmit());
        let parsed = sent.map(|t| StartMessage::parse(t.ty, &t.body, VERSION).expect("good bytes"));
        let verdict = |message| match message {
            StartMessage::Answer(answer) => Some(answer.verdict),
            _ => None,
        };
        parsed.filter_map(verdict).collect()
    }

    fn error_of(&self, index: usize) -> String {
        self.processes[index].error.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        self.ready.is_some() || self.surplus || self.error.is_some()
    }
}

/// A JOIN made by hand.
fn join(nonce: u64, requested: Option<NodeId>, nodes: u16) -> Join {
    Join {
        nonce,
        discover: false,
        intent: Intent::Ask,
        requested,
        job: 0,
        age_ms: 0,
        identity: identity(nodes),
        pid: 1,
        host: "h".into(),
        ports: vec![1, 2, 3],
    }
}
