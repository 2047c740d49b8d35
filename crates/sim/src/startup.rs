//! Whole jobs: processes start over a bad network, become a job, pass barriers and stop.

use crate::check;
use crate::cluster::{self, Config, Outcome};
use crate::program::{Op, Program, Shape};
use comem_protocol::auth::{JobKey, Receiver, Sealer};
use comem_protocol::coherence::Engine;
use comem_protocol::faults::{FaultPlan, FaultSpec, Rng};
use comem_protocol::ids::{Channel, NodeId, Seq};
use comem_protocol::node::identity::{Identity, Layout, VERSION};
use comem_protocol::node::startup::{self, DISCOVERY_PROG, Event, Mode, Startup, To, Transmit};
use comem_protocol::node::table::Membership;
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::header::{Flags, HeaderRepr, Packet};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const SERVICE_PORT: u16 = 7000;
const START_MAX: Span = Span::from_ms(60_000);

/// A datagram under way: to which process, from which, its bytes.
type InFlight = (usize, usize, Vec<u8>);

/// Processes that become a job.
struct Starting {
    processes: Vec<Startup>,
    members: Vec<Option<Membership>>,
    failures: Vec<String>,
    in_flight: BTreeMap<(Time, u64), InFlight>,
    timers: BTreeMap<(Time, usize), ()>,
    timer_of: Vec<Option<Time>>,
    plans: Vec<FaultPlan>,
    sealer: Sealer,
    rng: Rng,
    now: Time,
    sent: u64,
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, (index >> 8) as u8, index as u8)), SERVICE_PORT)
}

fn index_of(address: SocketAddr) -> Option<usize> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let [_, _, high, low] = ip.octets();
    Some(usize::from(high) << 8 | usize::from(low))
}

fn config(index: usize, nodes: usize) -> startup::Config {
    let identity = Identity {
        version: VERSION,
        job_name: "simulated".to_string(),
        program: "barriers".to_string(),
        hash: [3; 32],
        layout: Layout::of_this_process(4096),
        nodes: nodes as u16,
        threads: 1,
        options: "engine=msi".to_string(),
    };
    let mode = Mode::Launched { node: NodeId(index as u16), zero: Some(address(0)) };
    startup::Config {
        mode,
        identity,
        arguments: Vec::new(),
        pid: 100 + index as u32,
        host: format!("host{index}"),
        ip: address(index).ip(),
        ports: vec![SERVICE_PORT, SERVICE_PORT + 1],
        job: None,
        prog: None,
        multicast: false,
        introduces: true,
        deadline: Some(mode.default_deadline()),
    }
}

/// Starts `nodes` processes by a launcher over a network with these faults; gives each node's view of the job.
///
/// # Errors
/// What went wrong, in words.
pub fn start(nodes: usize, faults: FaultSpec, seed: u64) -> Result<Vec<Membership>, Vec<String>> {
    let spec = FaultSpec { seed, ..faults };
    let mut rng = Rng::new(seed);
    let mut starting = Starting {
        processes: Vec::new(),
        members: vec![None; nodes],
        failures: Vec::new(),
        in_flight: BTreeMap::new(),
        timers: BTreeMap::new(),
        timer_of: vec![None; nodes],
        plans: (0..nodes as u64).map(|n| FaultPlan::new(&spec, n)).collect(),
        sealer: Sealer::new(Some(JobKey::new([9; 32]))),
        rng: Rng::new(rng.next_u64()),
        now: Time(1),
        sent: 0,
    };
    for index in 0..nodes {
        match Startup::new(config(index, nodes), starting.now, rng.next_u64()) {
            Ok(process) => starting.processes.push(process),
            Err(error) => return Err(vec![format!("process {index}: {error}")]),
        }
    }
    (0..nodes).for_each(|index| starting.collect(index));
    starting.run();
    let members: Vec<Membership> = starting.members.into_iter().flatten().collect();
    if starting.failures.is_empty() { Ok(members) } else { Err(starting.failures) }
}

impl Starting {
    fn run(&mut self) {
        let limit = self.now + START_MAX;
        while self.failures.is_empty() && self.members.iter().any(Option::is_none) {
            let arrival = self.in_flight.first_key_value().map(|(key, _)| key.0);
            let timer = self.timers.first_key_value().map(|(key, ())| key.0);
            match (arrival, timer) {
                (Some(at), timer) if timer.is_none_or(|t| at <= t) => self.arrive(at),
                (_, Some(at)) => self.time_out(at),
                _ => self.failures.push("start-up has come to rest without an end".to_string()),
            }
            if self.now > limit {
                let missing = self.members.iter().filter(|m| m.is_none()).count();
                self.failures.push(format!("{missing} nodes are not ready after {} us", START_MAX.as_us()));
            }
        }
    }

    fn arrive(&mut self, at: Time) {
        self.now = at;
        let Some((_, (to, from, bytes))) = self.in_flight.pop_first() else { return };
        // What is damaged on the way is dropped here, as in the runtime.
        let Some(bytes) = self.sealer.open(&bytes, Receiver::Anybody) else { return };
        let Ok(packet) = Packet::new_checked(bytes) else { return };
        if let Err(error) = self.processes[to].on_datagram(self.now, address(from), packet.header.ty, packet.payload) {
            self.failures.push(format!("process {to} cannot read what {from} sent: {error}"));
        }
        self.collect(to);
    }

    fn time_out(&mut self, at: Time) {
        let Some(((_, index), ())) = self.timers.pop_first() else { return };
        self.now = self.now.max(at);
        self.timer_of[index] = None;
        self.processes[index].on_timeout(self.now);
        self.collect(index);
    }

    fn collect(&mut self, index: usize) {
        while let Some(Transmit { to, ty, body }) = self.processes[index].poll_transmit() {
            let mut bytes = Vec::new();
            let seq = Seq::free(Channel::service(NodeId(index as u16)), self.sent);
            let len = body.len() as u16;
            HeaderRepr { prog: DISCOVERY_PROG, ty, flags: Flags::default(), len, retrans: 0, frag: 0, seq }
                .emit(&mut bytes);
            bytes.extend_from_slice(&body);
            self.sealer.seal(&mut bytes, 0, Receiver::Anybody);
            match to {
                To::Address(to) => index_of(to).into_iter().for_each(|to| self.put(index, to, &bytes)),
                // The launcher told everybody where node zero is, and this network has no multicast.
                To::Broadcast | To::Multicast => {}
            }
        }
        while let Some(event) = self.processes[index].poll_event() {
            match event {
                Event::Ready(membership) => self.members[index] = Some(membership),
                Event::Failed(error) => self.failures.push(format!("process {index}: {error}")),
                Event::Surplus => self.failures.push(format!("process {index} was not needed")),
                Event::Zero(_) | Event::Joined { .. } | Event::TurnedAway { .. } | Event::Deaf(_) => {}
            }
        }
        self.set_timer(index);
    }

    fn set_timer(&mut self, index: usize) {
        let next = self.processes[index].next_timeout();
        if next != self.timer_of[index] {
            if let Some(before) = std::mem::replace(&mut self.timer_of[index], next) {
                self.timers.remove(&(before, index));
            }
            if let Some(at) = next {
                self.timers.insert((at, index), ());
            }
        }
    }

    fn put(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if to >= self.processes.len() {
            return;
        }
        let decision = self.plans[from].decide(self.now, bytes.len());
        for delivery in decision.deliveries() {
            self.sent += 1;
            let travel = Span(self.rng.between(20_000, 400_000) + delivery.delay.0);
            self.in_flight.insert((self.now + travel, self.sent), (to, from, delivery.apply(bytes)));
        }
    }
}

/// What is wrong when `nodes` nodes start, pass so many barriers and stop (nothing when all is well), and the run.
pub fn start_pass_stop(nodes: usize, barriers: usize, faults: FaultSpec, seed: u64) -> (Vec<String>, Outcome) {
    let members = match start(nodes, faults, seed) {
        Ok(members) => members,
        Err(failures) => return (failures, Outcome::default()),
    };
    let mut found = disagreements(&members);
    let ops: Vec<Op> = (0..barriers).map(|b| Op::Barrier(b as i64)).chain([Op::Exit]).collect();
    let shape = Shape { nodes, elements: 1, width: 8, unit_elements: 1 };
    let program = Program { shape, threads: vec![vec![ops]; nodes] };
    let config = Config { faults: Some(faults), authenticate: true, ..Config::new(Engine::Msi, seed) };
    let outcome = cluster::run(&program, config);
    found.extend(check::all(Engine::Msi, &outcome));
    (found, outcome)
}

/// The nodes must agree about the job and about each other.
fn disagreements(members: &[Membership]) -> Vec<String> {
    let mut found = Vec::new();
    let Some(first) = members.first() else { return found };
    for (index, view) in members.iter().enumerate() {
        if view.me != NodeId(index as u16) {
            found.push(format!("process {index} thinks it is {}", view.me));
        }
        if (view.job, view.prog, &view.nodes) != (first.job, first.prog, &first.nodes) {
            found.push(format!("{} sees another job than {}", view.me, first.me));
        }
    }
    found
}
