//! Start-up on a small virtual network: every process has an address of its own, datagrams take a random time and may be
//! lost or doubled, and a seed decides about all of it.

use super::*;
use crate::node::identity::tests::identity;
use crate::node::identity::{Refusal, VERSION};
use crate::node::message::{Answer, Intent, Join, Verdict};
use crate::node::table::Membership;
use crate::time::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

struct Process {
    startup: Startup,
    /// The last thing that matters to the caller.
    ready: Option<Membership>,
    surplus: bool,
    error: Option<StartError>,
    turned_away: Vec<Refusal>,
    joined: Option<NodeId>,
    began_zero: bool,
    alive: bool,
}

type InFlight = (usize, SocketAddr, MsgType, Vec<u8>);

struct Network {
    processes: Vec<Process>,
    in_flight: BTreeMap<(Time, u64), InFlight>,
    sent: u64,
    chance: Chance,
    now: Time,
    loss_percent: u64,
    multicast: bool,
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
            chance: Chance::new(seed),
            now: Time(1),
            loss_percent,
            multicast: true,
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
                To::Multicast => (0..self.processes.len()).for_each(|to| self.put(index, to, ty, &body)),
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

    fn error_of(&self, index: usize) -> String {
        self.processes[index].error.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        self.ready.is_some() || self.surplus || self.error.is_some()
    }
}

#[test]
fn launched_nodes_start_at_every_size_with_and_without_loss() {
    for nodes in [1, 2, 4, 9, 128] {
        for loss in [0, 20] {
            let mut network = Network::new(nodes + loss, loss);
            network.start_all(0..nodes as usize, |i| launched(i, nodes as u16));
            network.run_to_ends();
            let order = network.assert_one_job();
            assert_eq!(order, (0..nodes as usize).collect::<Vec<_>>(), "a launcher's numbers are kept");
            assert!(network.processes[0].ready.as_ref().is_some_and(|m| m.multicast || loss > 0 || nodes == 1));
        }
    }
}

#[test]
fn searching_nodes_start_at_every_size_with_and_without_loss() {
    for nodes in [2, 4, 9, 128] {
        for loss in [0, 20] {
            for seed in 0..if nodes < 100 { 20 } else { 2 } {
                let mut network = Network::new(1000 * nodes + loss + seed, loss);
                network.start_all(0..nodes as usize, |i| config(i, nodes as u16, Mode::Discover));
                network.run_to_ends();
                network.assert_one_job();
            }
        }
    }
}

#[test]
fn joiners_by_address_get_the_numbers_in_order_of_arrival() {
    let mut network = Network::new(5, 0);
    network.start(config(0, 3, Mode::Serve));
    for index in [1, 2] {
        network.start(config(index, 3, Mode::Join { zero: address(0) }));
        network.run_until(|n| n.processes[index].joined.is_some());
    }
    network.run_to_ends();
    assert_eq!(network.assert_one_job(), [0, 1, 2]);
}

#[test]
fn a_thousand_nodes_start() {
    let mut network = Network::new(77, 1);
    network.start_all(0..1024, |i| launched(i, 1024));
    network.run_to_ends();
    network.assert_one_job();
    let per_node = network.sent / 1024;
    assert!(per_node < 160, "{per_node} datagrams a node");
}

#[test]
fn a_job_of_one_node_sends_nothing() {
    let mut network = Network::new(1, 0);
    for mode in [Mode::Discover, Mode::Serve] {
        network.start(config(network.processes.len(), 1, mode));
    }
    assert!(network.processes.iter().all(|p| p.ready.is_some() && p.startup.next_timeout().is_none()));
    assert_eq!(network.sent, 0);
}

#[test]
fn node_zeros_address_may_come_later() {
    let mut network = Network::new(8, 0);
    for index in 0..3u16 {
        let mode = Mode::Launched { node: NodeId(index), zero: None };
        network.start(config(usize::from(index), 3, mode));
    }
    for index in 1..3 {
        let now = network.now;
        network.processes[index].startup.set_zero(now, address(0));
        network.collect(index);
    }
    network.run_to_ends();
    network.assert_one_job();
}

#[test]
fn the_search_takes_about_a_second_and_a_quarter() {
    let mut total = 0;
    for seed in 0..50 {
        let mut network = Network::new(seed, 0);
        network.start(config(0, 2, Mode::Discover));
        network.run_until(|n| n.processes[0].began_zero);
        let ms = network.now.0 / 1_000_000;
        assert!((990..=1490).contains(&ms), "{ms}");
        total += ms;
    }
    assert!((1200..=1280).contains(&(total / 50)), "{}", total / 50);
}

/// Makes processes `indices` node zeros that have not yet heard of each other.
fn become_zeros(network: &mut Network, indices: std::ops::Range<usize>, nodes: u16) {
    network.loss_percent = 100;
    network.start_all(indices.clone(), |i| config(i, nodes, Mode::Discover));
    let all = indices.clone();
    network.run_until(move |n| all.clone().all(|i| n.processes[i].began_zero));
    network.loss_percent = 0;
}

#[test]
fn of_two_nodes_zero_the_one_with_the_smaller_nonce_stays() {
    for seed in 0..20 {
        let mut network = Network::new(seed, 0);
        become_zeros(&mut network, 0..2, 4);
        let winner = usize::from(network.processes[1].startup.nonce() < network.processes[0].startup.nonce());
        network.start(config(2, 4, Mode::Discover));
        network.start(config(3, 4, Mode::Discover));
        network.run_to_ends();
        assert_eq!(network.assert_one_job()[0], winner);
    }
}

#[test]
fn joiners_of_the_node_zero_that_gives_way_follow_to_the_other() {
    for loss in [0, 20] {
        for seed in 0..20 {
            let mut network = Network::new(300 + seed, 0);
            let everybody_to_everybody = [(0, 1), (0, 2), (1, 3), (2, 3)];
            network.parted.extend(everybody_to_everybody);
            become_zeros(&mut network, 0..2, 4);
            // Process 2 hears only process 1, and process 3 only process 0: each of the two gathers one joiner.
            network.start(config(2, 4, Mode::Discover));
            network.start(config(3, 4, Mode::Discover));
            network.run_until(|n| n.processes[2].joined.is_some() && n.processes[3].joined.is_some());
            network.parted.clear();
            network.loss_percent = loss;
            network.run_to_ends();
            network.assert_one_job();
        }
    }
}

#[test]
fn surplus_joiners_leave_cleanly() {
    for loss in [0, 20] {
        for seed in 0..20 {
            let mut network = Network::new(40 + seed, loss);
            network.start_all(0..7, |i| config(i, 4, Mode::Discover));
            network.run_to_ends();
            network.assert_one_job();
            let surplus = network.processes.iter().filter(|p| p.surplus).count();
            assert_eq!((surplus, network.processes.iter().filter(|p| p.ready.is_some()).count()), (3, 4));
        }
    }
}

#[test]
fn too_few_joiners_are_an_error_that_counts_them_on_every_node() {
    for loss in [0, 20] {
        let mut network = Network::new(9, loss);
        network.start_all(0..3, |i| config(i, 5, Mode::Discover));
        network.run_to_ends();
        for process in &network.processes {
            assert_eq!(process.error, Some(StartError::TooFew { came: 3, wanted: 5 }));
        }
        assert!(network.error_of(1).contains("3 of 5 nodes came"));
    }
}

#[test]
fn a_launched_node_that_does_not_come_is_named_on_every_node() {
    let mut network = Network::new(10, 20);
    for index in 0..4 {
        network.start(launched(index, 4));
    }
    network.processes[2].alive = false;
    network.processes[2].startup.abandon("test");
    network.run_to_ends();
    for index in [0, 1, 3] {
        let error = network.error_of(index);
        assert!(error.contains("phase JOIN") && error.contains("node 2"), "{error}");
        assert!(!error.contains("node 3") && !error.contains("node 1"), "{error}");
    }
}

#[test]
fn a_firewall_between_two_nodes_is_named() {
    let mut network = Network::new(11, 0);
    network.parted.insert((2, 3));
    network.start_all(0..4, |i| launched(i, 4));
    network.run_to_ends();
    let error = network.error_of(0);
    for part in
        ["phase HELLO", "node 2 (host host2, pid 4002) which does not hear node 3", "which does not hear node 2"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("node 1"), "{error}");
}

#[test]
fn a_launcher_that_names_no_node_zero_is_an_error() {
    let mut network = Network::new(12, 0);
    network.start(config(0, 2, Mode::Launched { node: NodeId(1), zero: None }));
    network.run_to_ends();
    assert!(network.error_of(0).contains("before node zero's address was known"), "{}", network.error_of(0));
}

#[test]
fn without_multicast_the_nodes_start_and_know_it() {
    let mut network = Network::new(13, 0);
    network.multicast = false;
    network.start_all(0..5, |i| launched(i, 5));
    network.run_to_ends();
    network.assert_one_job();
    assert!(!network.processes[3].ready.as_ref().unwrap().multicast);
}

#[test]
fn every_difference_is_refused_with_its_reason() {
    type Change = fn(&mut Config);
    let differences: [(Change, &str); 7] = [
        (|c| c.identity.hash = [1; 32], "another program"),
        (|c| c.identity.version = VERSION + 1, "speaks version"),
        (|c| c.identity.layout.page_bytes = 65536, "pages of 4096 bytes there, 65536 bytes here"),
        (|c| c.identity.nodes = 3, "4 nodes"),
        (|c| c.identity.threads = 1, "2 threads"),
        (|c| c.identity.options = "engine=owner auth=off".into(), "engine=msi there, engine=owner here"),
        (|c| c.job = Some(99), "the job there is called"),
    ];
    for (change, words) in differences {
        for loss in [0, 20] {
            let mut network = Network::new(14, loss);
            network.start(config(0, 4, Mode::Serve));
            let mut other = config(1, 4, Mode::Join { zero: address(0) });
            change(&mut other);
            other.ports.truncate(1 + usize::from(other.identity.threads));
            network.start(other);
            network.run_until(|n| n.processes[1].has_ended());
            let error = network.error_of(1);
            let words = words.replace("65536 bytes", "65536");
            assert!(error.contains("10.0.0.0:7000 refused") && error.contains(&words), "{error}");
            assert_eq!(network.processes[0].turned_away.len(), 1, "reported once");
        }
    }
}

#[test]
fn a_searching_process_ignores_jobs_of_other_names() {
    let mut network = Network::new(15, 0);
    for index in 0..4 {
        let mut config = config(index, 2, Mode::Discover);
        config.identity.job_name = if index < 2 { "sea" } else { "lake" }.into();
        config.identity.hash = [index as u8 / 2; 32];
        network.start(config);
    }
    network.run_to_ends();
    let job = |i: usize| network.processes[i].ready.as_ref().map(|m| m.job);
    assert!(job(0).is_some() && job(0) == job(1) && job(2).is_some() && job(2) == job(3) && job(0) != job(2));
}

#[test]
fn numbers_must_be_free_and_exist() {
    let mut network = Network::new(16, 0);
    network.start(launched(0, 3));
    network.start(launched(1, 3));
    let confirmed = network.now + Span::from_ms(20);
    network.run_until(|n| n.now > confirmed);
    for (number, words) in [(1, "another process (host host1, pid 4001)"), (0, "another process (host host0")] {
        let nonce = 1234 + u64::from(number);
        let body = join_body(nonce, Some(NodeId(number)), 3);
        let now = network.now;
        network.processes[0].startup.on_datagram(now, address(8), types::JOIN, &body).unwrap();
        let refusal = refusal_to(&mut network, nonce);
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    let body = join_body(77, Some(NodeId(3)), 3);
    let now = network.now;
    network.processes[0].startup.on_datagram(now, address(9), types::JOIN, &body).unwrap();
    assert_eq!(refusal_to(&mut network, 77), Refusal::NoSuchNode { nodes: 3 });
}

fn join_body(nonce: u64, requested: Option<NodeId>, nodes: u16) -> Vec<u8> {
    let join = Join {
        nonce,
        discover: false,
        intent: Intent::Ask,
        requested,
        job: 0,
        identity: identity(nodes),
        pid: 1,
        host: "h".into(),
        ports: vec![1, 2, 3],
    };
    StartMessage::Join(Box::new(join)).emit(VERSION)
}

fn refusal_to(network: &mut Network, wanted: u64) -> Refusal {
    while let Some(transmit) = network.processes[0].startup.poll_transmit() {
        if let Ok(StartMessage::Answer(Answer { nonce, verdict: Verdict::Refused(reason), .. })) =
            StartMessage::parse(transmit.ty, &transmit.body, VERSION)
            && nonce == wanted
        {
            return reason;
        }
    }
    panic!("no refusal");
}

#[test]
fn a_complete_job_by_address_refuses_more() {
    let mut network = Network::new(17, 0);
    network.start(config(0, 2, Mode::Serve));
    network.start(config(1, 2, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    network.start(config(2, 2, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    assert!(network.error_of(2).contains("the job has its 2 nodes"), "{}", network.error_of(2));
}

#[test]
fn a_second_job_of_the_same_name_hears_that_the_first_is_running() {
    let mut network = Network::new(18, 0);
    network.start_all(0..2, |i| config(i, 2, Mode::Discover));
    network.run_to_ends();
    network.now = network.now + Span::from_ms(60_000);
    network.start(config(2, 2, Mode::Discover));
    // A process that a daemon started for the running job comes late: not needed, and no error.
    let mut late = config(3, 2, Mode::Discover);
    late.job = network.processes[0].ready.as_ref().map(|m| m.job);
    network.start(late);
    network.run_to_ends();
    assert!(network.error_of(2).contains("a job called \"sea\" is running already"), "{}", network.error_of(2));
    assert!(network.processes[3].surplus);
}

#[test]
fn a_rival_whose_job_is_complete_makes_the_others_surplus() {
    let mut network = Network::new(19, 0);
    become_zeros(&mut network, 0..2, 2);
    network.parted.extend([(0, 1), (1, 2)]);
    network.start(config(2, 2, Mode::Discover));
    network.run_until(|n| n.processes[2].has_ended());
    network.parted.clear();
    network.run_to_ends();
    assert!(network.processes[1].surplus, "{}", network.picture());
    network.assert_one_job();
}

#[test]
fn a_node_that_ends_during_start_up_is_named_to_the_others() {
    let mut network = Network::new(20, 0);
    network.parted.insert((1, 2));
    network.start_all(0..3, |i| launched(i, 3));
    network.run_until(|n| (0..3).all(|i| i == 0 || n.processes[i].joined.is_some()));
    // All are there, but 1 and 2 cannot hear each other: the start waits, and node 2 dies.
    let until = network.now + Span::from_ms(100);
    network.run_until(|n| n.now > until);
    network.processes[2].alive = false;
    let now = network.now;
    network.processes[0].startup.on_refused(now, address(2));
    network.collect(0);
    network.run_to_ends();
    for index in 0..2 {
        let error = network.error_of(index);
        assert!(error.contains("node 2 (host host2, pid 4002) ended during start-up"), "{error}");
    }
}

#[test]
fn a_joiner_that_leaves_makes_room_for_another() {
    let mut network = Network::new(21, 0);
    network.start(config(0, 3, Mode::Serve));
    network.start(config(1, 3, Mode::Join { zero: address(0) }));
    network.run_until(|n| n.processes[1].joined.is_some());
    network.processes[1].startup.abandon("Ctrl-C");
    network.collect(1);
    network.processes[1].alive = false;
    network.start_all(2..4, |i| config(i, 3, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    let mut order = network.assert_one_job();
    order.sort_unstable();
    assert_eq!(order, [0, 2, 3]);
}

#[test]
fn a_joiner_that_died_silently_is_replaced() {
    let mut network = Network::new(22, 0);
    network.start(config(0, 3, Mode::Serve));
    network.start(config(1, 3, Mode::Join { zero: address(0) }));
    network.run_until(|n| n.processes[1].joined.is_some());
    let confirmed = network.now + Span::from_ms(20);
    network.run_until(|n| n.now > confirmed);
    network.processes[1].alive = false;
    network.run_until(|n| n.in_flight.is_empty());
    network.now = network.now + Span::from_ms(6_000);
    network.start_all(2..4, |i| config(i, 3, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    network.assert_one_job();
}

#[test]
fn when_node_zero_dies_before_the_start_the_searching_ones_find_another() {
    for refused in [false, true] {
        let mut network = Network::new(23, 0);
        network.start_all(0..3, |i| config(i, 4, Mode::Discover));
        network.run_until(|n| n.processes.iter().filter(|p| p.joined.is_some()).count() == 2);
        let dead = network.processes.iter().position(|p| p.began_zero).unwrap();
        network.processes[dead].alive = false;
        for index in (0..3).filter(|&i| i != dead && refused) {
            let now = network.now;
            network.processes[index].startup.on_refused(now, address(dead));
            network.collect(index);
        }
        network.start_all(3..5, |i| config(i, 4, Mode::Discover));
        network.run_to_ends();
        network.assert_one_job();
    }
}

#[test]
fn a_launched_node_knows_when_node_zero_ended() {
    let mut network = Network::new(24, 0);
    network.start_all(0..2, |i| launched(i, 3));
    network.run_until(|n| n.processes[1].joined.is_some());
    let now = network.now;
    network.processes[1].startup.on_refused(now, address(0));
    network.collect(1);
    assert_eq!(network.processes[1].error, Some(StartError::ZeroGone { zero: address(0) }));
}

#[test]
fn node_zero_that_gives_up_says_why_to_all() {
    let mut network = Network::new(25, 20);
    network.start_all(0..3, |i| launched(i, 4));
    network.run_until(|n| n.processes[1].joined.is_some() && n.processes[2].joined.is_some());
    network.processes[0].startup.abandon("out of shared memory");
    network.collect(0);
    network.run_until(|n| n.processes[1].has_ended() && n.processes[2].has_ended());
    assert!(network.error_of(2).contains("out of shared memory"));
}

#[test]
fn hosts_seen_over_loopback_and_from_outside_are_not_mixed() {
    let mut network = Network::new(26, 0);
    network.start(config(0, 3, Mode::Serve));
    let now = network.now;
    for (nonce, from) in [(5, "127.0.0.1:5000"), (6, "10.9.9.9:5000")] {
        let from: SocketAddr = from.parse().unwrap();
        let body = join_body(nonce, None, 3);
        network.processes[0].startup.on_datagram(now, from, types::JOIN, &body).unwrap();
        let mut answers = Vec::new();
        while let Some(t) = network.processes[0].startup.poll_transmit() {
            answers.push(StartMessage::parse(t.ty, &t.body, VERSION).unwrap());
        }
        let Some(StartMessage::Answer(Answer { verdict: Verdict::Accepted { job, .. }, .. })) = answers.first() else {
            panic!("{answers:?}");
        };
        let StartMessage::Join(mut join) = StartMessage::parse(types::JOIN, &body, VERSION).unwrap() else { panic!() };
        join.intent = Intent::Confirm(*job);
        let body = StartMessage::Join(join).emit(VERSION);
        network.processes[0].startup.on_datagram(now, from, types::JOIN, &body).unwrap();
    }
    network.collect(0);
    assert!(network.error_of(0).contains("--iface"), "{}", network.error_of(0));
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    type Change = fn(&mut Config);
    let cases: [(Change, &str); 6] = [
        (|c| c.identity.nodes = 0, "0 nodes"),
        (|c| c.identity.nodes = 1025, "1 to 1024"),
        (|c| c.identity.threads = 0, "0 threads"),
        (|c| c.ports = vec![1], "1 ports for 2 threads"),
        (|c| c.arguments = vec!["x".repeat(2000)], "put them into a file"),
        (|c| c.mode = Mode::Launched { node: NodeId(4), zero: None }, "node 4 in a job of 4"),
    ];
    for (change, words) in cases {
        let mut config = config(0, 4, Mode::Discover);
        change(&mut config);
        let error = Startup::new(config, Time(0), 1).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn random_and_damaged_bytes_do_no_harm() {
    let mut chance = Chance::new(99);
    let mut network = Network::new(27, 0);
    network.start_all(0..3, |i| config(i, 3, Mode::Discover));
    let mut seen: Vec<(MsgType, Vec<u8>)> = Vec::new();
    for _ in 0..60_000 {
        let victim = chance.next() as usize % 3;
        let (ty, mut body) = match chance.next() % 3 {
            0 => random_bytes(&mut chance),
            _ => damaged(&mut chance, &seen).unwrap_or_else(|| random_bytes(&mut chance)),
        };
        body.truncate(1400);
        let now = network.now;
        let from = address(chance.next() as usize % 5);
        let _ = network.processes[victim].startup.on_datagram(now, from, ty, &body);
        while let Some(transmit) = network.processes[victim].startup.poll_transmit() {
            if seen.len() < 500 {
                seen.push((transmit.ty, transmit.body));
            }
        }
        while network.processes[victim].startup.poll_event().is_some() {}
        if chance.next().is_multiple_of(50) {
            network.now = network.now + Span::from_ms(20);
            network.processes[victim].startup.on_timeout(network.now);
        }
    }
    assert!(seen.len() > 100, "the test reached the machines");
}

fn random_bytes(chance: &mut Chance) -> (MsgType, Vec<u8>) {
    let len = chance.next() % 300;
    (MsgType(7 + (chance.next() % 8) as u16), (0..len).map(|_| chance.next() as u8).collect())
}

fn damaged(chance: &mut Chance, seen: &[(MsgType, Vec<u8>)]) -> Option<(MsgType, Vec<u8>)> {
    let (ty, mut body) = seen.get(chance.next() as usize % seen.len().max(1))?.clone();
    for _ in 0..chance.next() % 4 {
        let at = chance.next() as usize % body.len().max(1);
        if let Some(byte) = body.get_mut(at) {
            *byte = chance.next() as u8;
        }
    }
    if chance.next().is_multiple_of(4) {
        body.truncate(chance.next() as usize % (body.len() + 1));
    }
    Some((ty, body))
}
