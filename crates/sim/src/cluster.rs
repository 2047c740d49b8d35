//! The cluster: nodes, a network and virtual time. A seed decides everything that a real run leaves to chance: how long
//! each step of a thread takes, how long each parcel travels, which are lost, doubled or damaged.
//!
//! A thread attends its own socket only while it waits; what comes meanwhile is left for when it waits again,
//! or for its service thread, which looks after unattended sockets now and then.

use crate::carrier::{Carrier, Incoming, Link, Messages, Parcel, Parcels};
use crate::diagram;
use crate::history::{Deed, Record, Stamp};
use crate::msi_pages::{self, LOOK_AGAIN, Paged, Paging, Tally};
use crate::node::Node;
use crate::program::{Op, Program};
use crate::schedule::{LOOKS_LATE, Scheduled, Waits};
use crate::thread::{Thread, Turn};
use crate::tuning;
use crate::watch::{self, Ended, Watchers};
use comem_protocol::auth::{JobKey, Sealer};
use comem_protocol::coherence::Engine;
use comem_protocol::faults::{FaultPlan, FaultSpec, Rng};
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::link::LinkConfig;
use comem_protocol::node::membership::{Transmit, WatchConfig};
use comem_protocol::node::route::Origin;
use comem_protocol::node::watch::LossCause;
use comem_protocol::outbox::Outbox;
use comem_protocol::time::{Span, Time};
use comem_protocol::tuning::{LockTuning, Tuning};
use comem_protocol::wire::header::{HEADER_BYTES, MsgType};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// How often a service thread looks after the sockets of threads that compute.
const ATTEND_EVERY: Span = Span::from_ms(20);

/// More steps than any program here needs, and each of its operations: nodes keep each other busy for ever.
const STEPS_MAX: u64 = 10_000_000;
const STEPS_OF_OPERATION_MAX: u64 = 1_000;

/// What a run is made of besides its program.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides everything.
    pub seed: u64,
    /// The engine.
    pub engine: Engine,
    /// `Some`: the production link over a network with these faults; `None`: whole messages, reordered.
    pub faults: Option<FaultSpec>,
    /// Whether the link's datagrams carry tags.
    pub authenticate: bool,
    /// `Some`: the units are of pages; the engine is `msi`.
    pub paging: Option<Paging>,
    /// Bytes in a datagram of the link.
    pub datagram_bytes: usize,
    /// Requests that a thread may have under way on the link.
    pub requests_per_thread: usize,
    /// The latest moment by which all must have ended.
    pub bound: Span,
    /// `Some`: nodes watch over each other; a job may end for that. Needs the link.
    pub watch: Option<WatchConfig>,
    /// The numbers of the link, of pages under `msi` and of synchronisation.
    pub tuning: Tuning,
    /// `Some`: requests for locks are deferred by these numbers.
    pub schedule: Option<LockTuning>,
    /// `Some`: from then on this node does nothing any more.
    pub crash: Option<(NodeId, Time)>,
    /// Whether whatever is sent travels for nearly the same time, and long.
    pub even: bool,
    /// Whether to keep a line for everything that happens.
    pub trace: bool,
}

impl Config {
    /// A run over whole messages.
    pub fn new(engine: Engine, seed: u64) -> Config {
        Config {
            seed,
            engine,
            faults: None,
            authenticate: false,
            paging: None,
            datagram_bytes: 1472,
            requests_per_thread: LinkConfig::default().requests_per_thread,
            bound: Span::from_ms(600_000),
            watch: None,
            tuning: Tuning::DEFAULT,
            schedule: None,
            crash: None,
            even: false,
            trace: false,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the threads did, in the order of its ending.
    pub records: Vec<Record>,
    /// What went wrong in the run itself.
    pub failures: Vec<String>,
    /// How long it took, in virtual time.
    pub took: Time,
    /// How many steps.
    pub steps: u64,
    /// Datagrams handed to the network, and repetitions among them.
    pub datagrams: (u64, u64),
    /// How the nodes ended whose failure detectors found a loss.
    pub ended: Vec<Option<Ended>>,
    /// What happened around pages.
    pub tally: Tally,
    /// A line for everything that happened, when it was asked for.
    pub trace: Vec<String>,
    /// What a diagram shows, when a trace was asked for.
    pub events: Vec<diagram::Event>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Event {
    Step(NodeId, usize),
    /// A thread that took this nap looks again.
    LookAgain(NodeId, usize, u64),
    /// The service thread looks at the units that threads hold.
    Holds(NodeId),
    /// It lets one go.
    LetGo(NodeId, u32),
    Arrive(Channel, Parcel),
    Attend(Channel),
    LinkTimer(Channel),
    BarrierTimer(NodeId),
    /// A node looks after its failure detector.
    Watch(NodeId),
    /// The service thread looks at what is deferred until then.
    Deferrals(NodeId, Time),
    /// A thread has waited for a lock for some time.
    Waited(NodeId, usize),
}

/// An event and its moment; equal moments keep the order in which they were set.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Due {
    at: Time,
    order: u64,
    event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A cluster at work.
pub struct Cluster {
    config: Config,
    steps_max: u64,
    nodes: Vec<Node>,
    carriers: Vec<Carrier>,
    plans: Vec<FaultPlan>,
    rng: Rng,
    now: Time,
    events: BinaryHeap<Reverse<Due>>,
    order: u64,
    timers: BTreeMap<Channel, Time>,
    barrier_timers: Vec<Option<Time>>,
    deferral_timers: Vec<Option<Time>>,
    unread: BTreeMap<Channel, VecDeque<Parcel>>,
    running: usize,
    watchers: Option<Watchers>,
    out: Outbox,
    outcome: Outcome,
}

/// Runs a program to its end.
pub fn run(program: &Program, config: Config) -> Outcome {
    let mut cluster = Cluster::new(program, config);
    cluster.run();
    cluster.into_outcome()
}

impl Cluster {
    /// A cluster about to run `program`.
    pub fn new(program: &Program, config: Config) -> Cluster {
        let (nodes, shape) = (program.threads.len(), program.shape);
        let slots = program.threads_per_node() + 1;
        let sealer = Sealer::new(config.authenticate.then(|| JobKey::new([7; 32])));
        let (datagram_bytes, requests_per_thread) = (config.datagram_bytes, config.requests_per_thread);
        let link = tuning::link(config.seed, &config.tuning.link);
        let link = LinkConfig { datagram_bytes, requests_per_thread, ..link };
        let spec = FaultSpec { seed: config.seed, ..config.faults.unwrap_or_default() };
        let carriers = NodeId::all(nodes).map(|me| match config.faults {
            Some(_) => Carrier::Link(Box::new(Link::new(me, nodes, slots, link, &sealer))),
            None => Carrier::Messages(Messages::new(me, nodes, slots)),
        });
        let machines = program.threads.iter().zip(NodeId::all(nodes)).map(|(threads, me)| {
            let threads = threads.iter().map(|ops| Thread::new(plain(ops, config.engine))).collect();
            let node = Node::new(me, shape, config.engine, threads).with_sync(config.tuning.sync);
            node.with_paging(config.paging, config.tuning.msi).with_schedule(config.schedule)
        });
        let operations = program.threads.iter().flatten().map(Vec::len).sum::<usize>();
        let mut cluster = Cluster {
            steps_max: STEPS_MAX + operations as u64 * STEPS_OF_OPERATION_MAX,
            nodes: machines.collect(),
            carriers: carriers.collect(),
            plans: (0..nodes as u64).map(|n| FaultPlan::new(&spec, n)).collect(),
            rng: Rng::new(config.seed),
            now: Time(0),
            events: BinaryHeap::new(),
            order: 0,
            timers: BTreeMap::new(),
            barrier_timers: vec![None; nodes],
            deferral_timers: vec![None; nodes],
            unread: BTreeMap::new(),
            running: nodes * (slots - 1),
            watchers: config.watch.map(|watch| Watchers::new(nodes, watch)),
            out: Outbox::new(),
            outcome: Outcome::default(),
            config,
        };
        for node in NodeId::all(nodes) {
            if cluster.watchers.is_some() {
                let start = Span(cluster.rng.below(watch::TICK.0));
                cluster.after(start, Event::Watch(node));
            }
            for t in 0..slots - 1 {
                let start = Span(cluster.rng.below(50_000));
                cluster.after(start, Event::Step(node, t));
            }
        }
        cluster
    }

    /// Runs until every program has ended and the network is at rest, or nothing more can come of it.
    pub fn run(&mut self) {
        while let Some(Reverse(due)) = self.events.pop() {
            self.now = due.at;
            self.outcome.steps += 1;
            if self.outcome.steps > self.steps_max {
                self.outcome.failures.push(format!("a storm: no rest after {} steps", self.steps_max));
            }
            if self.now > Time(0) + self.config.bound || !self.outcome.failures.is_empty() {
                break;
            }
            self.take(due.event);
            if self.watchers.as_ref().is_some_and(Watchers::all_ended) {
                break;
            }
            if self.config.schedule.is_some() {
                let now = self.now;
                let unrest = self.nodes.iter_mut().filter(|node| !Self::is_gone(&self.config, now, node.me));
                self.outcome.failures.extend(unrest.filter_map(|node| node.schedule_unrest(now)));
            }
            if self.config.paging.is_some() {
                self.outcome.failures.extend(msi_pages::two_masters(&self.nodes));
            }
        }
        self.outcome.took = self.now;
        if let Some(watchers) = self.watchers.take() {
            self.outcome.ended = watchers.into_ended();
        }
        let ended = NodeId::all(self.nodes.len()).zip(&self.outcome.ended);
        let mut over = ended.map(|(node, ended)| ended.is_some() || Self::is_gone(&self.config, self.now, node));
        if !self.outcome.ended.is_empty() && over.all(|over| over) {
            return;
        }
        self.look_for_waiters();
        if self.outcome.failures.is_empty() {
            self.nodes.iter_mut().for_each(|node| node.end_holds(&mut self.out));
            let unrest = self.nodes.iter().find_map(Node::unrest);
            self.outcome.failures.extend(unrest);
        }
    }

    /// What came of it.
    pub fn into_outcome(mut self) -> Outcome {
        let tallies = self.nodes.iter().filter_map(|node| node.paged.as_ref()).map(|paged| paged.tally);
        self.outcome.tally = tallies.fold(Tally::default(), Tally::with);
        self.outcome.records = self.nodes.into_iter().flat_map(|n| n.records).collect();
        self.outcome.records.sort_by_key(|r| (r.ended, r.begun));
        self.outcome.datagrams = self.carriers.iter().map(Carrier::counts).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.outcome
    }

    fn after(&mut self, span: Span, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Due { at: self.now + span, order: self.order, event }));
    }

    fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.config.trace {
            let line = format!("{:>12} ns  {:>8}  {}", self.now.0, self.outcome.steps, line());
            self.outcome.trace.push(line);
        }
    }

    fn look_for_waiters(&mut self) {
        if self.running == 0 {
            if !self.carriers.iter().all(Carrier::is_idle) {
                self.outcome.failures.push("the programs have ended, but a sender still waits".to_string());
            }
            return;
        }
        for node in &self.nodes {
            for (t, thread) in node.threads.iter().enumerate().filter(|(_, thread)| !thread.is_done()) {
                let sender = self.carriers[node.me.index()].describe(Slot::thread(t));
                let stage = node.stage(t);
                let line = format!("{}, thread {t} still waits at {}{stage}{sender}", node.me, thread.place());
                self.outcome.failures.push(line);
            }
        }
    }

    fn take(&mut self, event: Event) {
        let node = Self::node_of(&event);
        if Self::is_gone(&self.config, self.now, node) {
            return;
        }
        if self.has_ended(node) {
            if let Event::Arrive(_, Parcel::Watch(from, ..)) = event {
                self.tell_closed_port(from, node);
            }
            return;
        }
        match event {
            Event::Arrive(at, Parcel::Watch(from, ty, body)) => self.on_watch(at.node, from, ty, &body),
            Event::Step(node, t) => self.step(node, t),
            Event::LookAgain(node, t, nap) => {
                let thread = &self.nodes[node.index()].threads[t];
                if thread.asleep && thread.naps == nap {
                    self.rouse(node, Slot::thread(t));
                }
            }
            Event::Holds(node) => self.look_at_holds(node),
            Event::LetGo(node, unit) => self.let_go(node, unit),
            Event::Arrive(at, parcel) => self.arrive(at, parcel),
            Event::Attend(at) => self.drain(at, Slot::SERVICE),
            Event::LinkTimer(channel) => self.link_timer(channel),
            Event::BarrierTimer(node) => self.barrier_timer(node),
            Event::Watch(node) => self.watch(node),
            Event::Deferrals(node, due) => self.look_at_deferrals(node, due),
            Event::Waited(node, t) => {
                if self.nodes[node.index()].waits_for(t) == Some(Waits::Lock) {
                    self.lets_go(node, t);
                }
            }
        }
    }

    /// Whether a node has crashed.
    fn is_gone(config: &Config, now: Time, node: NodeId) -> bool {
        config.crash.is_some_and(|(gone, since)| gone == node && now >= since)
    }

    /// Whose event it is.
    fn node_of(event: &Event) -> NodeId {
        match event {
            Event::Step(node, _)
            | Event::LookAgain(node, ..)
            | Event::Holds(node)
            | Event::LetGo(node, _)
            | Event::BarrierTimer(node)
            | Event::Deferrals(node, _)
            | Event::Waited(node, _)
            | Event::Watch(node) => *node,
            Event::Arrive(at, _) | Event::Attend(at) | Event::LinkTimer(at) => at.node,
        }
    }

    fn has_ended(&self, node: NodeId) -> bool {
        self.watchers.as_ref().is_some_and(|watchers| watchers.has_ended(node))
    }

    /// A node looks after its failure detector.
    fn watch(&mut self, node: NodeId) {
        let (now, index) = (self.now, node.index());
        let Some(watchers) = &mut self.watchers else { return };
        let before = watchers.ask_before(now);
        let mut waiting = self.carriers[index].unanswered(now, before);
        waiting.extend(self.nodes[index].barrier.unanswered(before));
        let sends = watchers.step(now, node, |detector| {
            detector.unanswered(now, &waiting);
            detector.on_timeout(now);
        });
        self.send_watch(node, sends);
        if self.running > 0 || !self.carriers.iter().all(Carrier::is_idle) {
            self.after(watch::TICK, Event::Watch(node));
        }
    }

    fn send_watch(&mut self, from: NodeId, sends: Vec<Transmit>) {
        let parcels =
            sends.into_iter().map(|Transmit { to, ty, body }| (Channel::service(to), Parcel::Watch(from, ty, body)));
        self.dispatch(from, parcels.collect());
    }

    /// Nothing listens at this node any more.
    fn tell_closed_port(&mut self, from: NodeId, node: NodeId) {
        let now = self.now;
        let Some(watchers) = &mut self.watchers else { return };
        let sends = watchers.step(now, from, |detector| detector.evidence(now, node, LossCause::PortClosed));
        self.send_watch(from, sends);
    }

    /// A datagram of another node's failure detector.
    fn on_watch(&mut self, at: NodeId, from: NodeId, ty: MsgType, body: &[u8]) {
        let now = self.now;
        let Some(watchers) = &mut self.watchers else { return };
        let mut result = Ok(());
        let sends = watchers.step(now, at, |detector| result = detector.on_datagram(now, from, ty, body));
        if let Err(error) = result {
            self.outcome.failures.push(format!("{at} cannot read what {from}'s failure detector says: {error}"));
        }
        self.send_watch(at, sends);
    }

    fn note_heard(&mut self, at: NodeId) {
        let (now, heard) = (self.now, self.carriers[at.index()].take_heard());
        let Some(watchers) = &mut self.watchers else { return };
        let sends = watchers.step(now, at, |detector| heard.iter().for_each(|from| detector.heard(now, *from)));
        self.send_watch(at, sends);
    }

    fn step(&mut self, node: NodeId, t: usize) {
        let mut out = std::mem::take(&mut self.out);
        let machine = &mut self.nodes[node.index()];
        machine.stamp = Stamp(self.outcome.steps);
        let (recorded, before) = (machine.records.len(), machine.threads[t].at);
        let turn = machine.step_thread(self.now, t, &mut out);
        if self.config.trace {
            let place = self.nodes[node.index()].threads[t].place() + &self.nodes[node.index()].stage(t);
            let record = self.nodes[node.index()].records.get(recorded).copied();
            self.trace(|| format!("{node}.{t} {turn:?}: {}", record.map_or(place, |record| record.to_string())));
            let thread = &self.nodes[node.index()].threads[t];
            let loaded = match record.map(|record| record.deed) {
                Some(Deed::Read { value, .. }) => value,
                _ => 0,
            };
            if thread.at > before
                && let Some(step) = diagram::Step::of_objects(thread.program[before], loaded)
            {
                self.outcome.events.push(diagram::Event::step(self.now, node, step));
            }
        }
        self.effects(node, Slot::thread(t), &mut out);
        self.out = out;
        let pause = match turn {
            Turn::Within => self.chance_delay(20, 200, 100_000),
            Turn::Ended => self.chance_delay(20, 2_000, 50_000),
            Turn::Thinks(ns) => Span(ns),
            Turn::Sleeps => return self.sleep(node, t),
            Turn::Naps => {
                let naps = &mut self.nodes[node.index()].threads[t].naps;
                *naps += 1;
                let nap = *naps;
                self.after(LOOK_AGAIN, Event::LookAgain(node, t, nap));
                return self.sleep(node, t);
            }
            Turn::Done => {
                self.running -= 1;
                self.nodes[node.index()].threads[t].ended = true;
                return self.lets_go(node, t);
            }
        };
        self.after(pause, Event::Step(node, t));
    }

    /// Usually short, now and then (a preemption, a cache miss) up to `long`.
    fn chance_delay(&mut self, low: u64, high: u64, long: u64) -> Span {
        let high = if self.rng.below(12) == 0 { long } else { high };
        Span(self.rng.between(low, high))
    }

    fn travel(&mut self) -> Span {
        match self.config.even {
            true => Span(self.rng.between(100_000, 102_000)),
            false => self.chance_delay(5_000, 60_000, 500_000),
        }
    }

    fn sleep(&mut self, node: NodeId, t: usize) {
        self.nodes[node.index()].threads[t].asleep = true;
        match (self.nodes[node.index()].waits_for(t), self.config.schedule) {
            (Some(Waits::Others), _) => self.lets_go(node, t),
            (Some(Waits::Lock), Some(tuning)) => self.after(tuning.lock_wait(), Event::Waited(node, t)),
            _ => {}
        }
        let slot = Slot::thread(t);
        self.drain(Channel { node, slot }, slot);
    }

    /// If all threads of the node wait, it no longer keeps from others what they have asked for.
    fn lets_go(&mut self, node: NodeId, t: usize) {
        if self.config.schedule.is_some() {
            let mut out = std::mem::take(&mut self.out);
            self.nodes[node.index()].end_all_deferrals(self.now, t, &mut out);
            self.effects(node, Slot::thread(t), &mut out);
            self.out = out;
        }
    }

    fn look_at_deferrals(&mut self, node: NodeId, due: Time) {
        if self.deferral_timers[node.index()] == Some(due) {
            self.deferral_timers[node.index()] = None;
        }
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].end_due_deferrals(self.now, &mut out);
        self.effects(node, Slot::SERVICE, &mut out);
        self.out = out;
    }

    /// The service thread looks at the clock when a deferred message is due.
    fn follow_schedule(&mut self, node: NodeId) {
        let due = self.nodes[node.index()].schedule.next_due().filter(|due| *due < Time(u64::MAX));
        if let Some(due) = due.filter(|due| self.deferral_timers[node.index()].is_none_or(|set| *due < set)) {
            self.deferral_timers[node.index()] = Some(due);
            let late = Span(self.rng.below(LOOKS_LATE.0));
            self.after(due - self.now + late, Event::Deferrals(node, due));
        }
    }

    /// Takes what waits at a socket, as long as its thread sleeps or the service thread looks after it.
    fn drain(&mut self, at: Channel, slot: Slot) {
        while let Some(parcel) = self.unread.get_mut(&at).and_then(VecDeque::pop_front) {
            self.receive(at, slot, parcel);
            let thread = at.slot.index().checked_sub(1);
            if slot != Slot::SERVICE && thread.is_some_and(|t| !self.nodes[at.node.index()].threads[t].asleep) {
                return;
            }
        }
    }

    fn arrive(&mut self, at: Channel, parcel: Parcel) {
        let attended = match at.slot.index().checked_sub(1) {
            None => true,
            Some(t) => self.nodes[at.node.index()].threads.get(t).is_some_and(|thread| thread.asleep),
        };
        if attended {
            return self.receive(at, at.slot, parcel);
        }
        let unread = self.unread.entry(at).or_default();
        unread.push_back(parcel);
        if unread.len() == 1 {
            self.after(ATTEND_EVERY, Event::Attend(at));
        }
    }

    fn receive(&mut self, at: Channel, slot: Slot, parcel: Parcel) {
        let mut parcels = Parcels::new();
        let node = at.node.index();
        let received = self.carriers[node].receive(self.now, slot, parcel, &mut parcels);
        self.dispatch(at.node, parcels);
        self.note_heard(at.node);
        match received {
            Ok(Some(message)) => self.message(at.node, slot, message),
            Ok(None) => {}
            // Damaged datagrams are refused, and that is right; a sender that misbehaves shows in `message`.
            Err(why) => self.trace(|| format!("{}: {why}", at.node)),
        }
        self.set_timers(at.node);
    }

    fn message(&mut self, node: NodeId, slot: Slot, message: Incoming) {
        let mut out = std::mem::take(&mut self.out);
        let caller = (slot != Slot::SERVICE).then_some(slot);
        let origin = Origin { from: message.from, ticket: message.ticket, caller };
        let machine = &mut self.nodes[node.index()];
        machine.stamp = Stamp(self.outcome.steps);
        let content = (message.ty, &message.body[..]);
        let result = machine.on_message(self.now, origin, message.answers, content, &mut out);
        let roused = machine.roused.take();
        if self.config.trace {
            let parsed = comem_protocol::wire::message::Message::parse(message.ty, &message.body);
            self.trace(|| format!("{node} slot {} <- {}: {parsed:?}", slot.0, message.from));
        }
        if let Err(why) = result {
            self.outcome.failures.push(why);
        }
        self.effects(node, slot, &mut out);
        self.out = out;
        for slot in [Some(slot), Some(message.answers), roused].into_iter().flatten() {
            self.rouse(node, slot);
        }
    }

    fn effects(&mut self, node: NodeId, slot: Slot, out: &mut Outbox) {
        let mut parcels = Parcels::new();
        self.carriers[node.index()].flush(self.now, slot, out, &mut parcels);
        self.dispatch(node, parcels);
        for slot in out.wakes() {
            self.rouse(node, *slot);
        }
        out.clear();
        self.follow_schedule(node);
        self.set_timers(node);
        if self.nodes[node.index()].paged.as_mut().is_some_and(Paged::take_roused) {
            let pause = self.chance_delay(1_000, 20_000, 200_000);
            self.after(pause, Event::Holds(node));
        }
    }

    /// The service thread looks at the units that threads hold, and lets those go that were held long enough.
    fn look_at_holds(&mut self, node: NodeId) {
        let Some(paged) = &mut self.nodes[node.index()].paged else { return };
        let (due, again) = paged.look_at_holds(self.now);
        for unit in due {
            let pause = self.chance_delay(20, 2_000, 50_000);
            self.after(pause, Event::LetGo(node, unit));
        }
        if let Some(at) = again {
            self.after(at - self.now, Event::Holds(node));
        }
    }

    fn let_go(&mut self, node: NodeId, unit: u32) {
        let mut out = std::mem::take(&mut self.out);
        let machine = &mut self.nodes[node.index()];
        machine.stamp = Stamp(self.outcome.steps);
        machine.on_unit(unit, None, &mut out, |state, cx| state.unpin(cx));
        self.effects(node, Slot::SERVICE, &mut out);
        self.out = out;
    }

    fn rouse(&mut self, node: NodeId, slot: Slot) {
        let Some(t) = slot.index().checked_sub(1) else { return };
        let Some(thread) = self.nodes[node.index()].threads.get_mut(t) else { return };
        if std::mem::take(&mut thread.asleep) {
            let pause = self.chance_delay(1_000, 20_000, 200_000);
            self.after(pause, Event::Step(node, t));
        }
    }

    /// Writes a message down for a diagram.
    fn note(&mut self, from: NodeId, to: Channel, parcel: &Parcel, travel: Option<Span>) {
        if self.config.trace {
            let event =
                diagram::Event::message(self.now, from, travel.map(|travel| self.now + travel), to.node, parcel);
            self.outcome.events.extend(event);
        }
    }

    /// Puts parcels on the network.
    fn dispatch(&mut self, from: NodeId, parcels: Parcels) {
        for (to, parcel) in parcels {
            let travel = self.travel();
            match parcel {
                Parcel::Message(_) => {
                    self.note(from, to, &parcel, Some(travel));
                    self.after(travel, Event::Arrive(to, parcel));
                }
                Parcel::Free(_) => {
                    // One in eight is lost, one in eight arrives twice.
                    let chance = self.rng.below(8);
                    if chance == 1 {
                        self.after(travel, Event::Arrive(to, parcel.clone()));
                    }
                    if chance != 0 {
                        let travel = self.travel();
                        self.note(from, to, &parcel, Some(travel));
                        self.after(travel, Event::Arrive(to, parcel));
                    } else {
                        self.note(from, to, &parcel, None);
                    }
                }
                Parcel::Datagram(bytes) => self.put_on_wire(from, to, travel, &bytes),
                Parcel::Watch(..) => self.put_watch_on_wire(from, to, travel, parcel),
            }
        }
    }

    fn is_cut(&self, from: NodeId, to: Channel) -> bool {
        self.config.faults.is_some_and(|faults| faults.cuts_off(self.now - Time(0), from, to.node))
    }

    fn put_watch_on_wire(&mut self, from: NodeId, to: Channel, travel: Span, parcel: Parcel) {
        let Parcel::Watch(_, _, body) = &parcel else { return };
        let bytes = body.len() + HEADER_BYTES;
        if !self.is_cut(from, to) && !self.plans[from.index()].decide(self.now, bytes).is_lost() {
            self.after(travel, Event::Arrive(to, parcel));
        }
    }

    fn put_on_wire(&mut self, from: NodeId, to: Channel, travel: Span, bytes: &[u8]) {
        if self.is_cut(from, to) {
            return;
        }
        let decision = self.plans[from.index()].decide(self.now, bytes.len());
        for delivery in decision.deliveries() {
            let span = Span(travel.0 + delivery.delay.0);
            self.after(span, Event::Arrive(to, Parcel::Datagram(delivery.apply(bytes))));
        }
    }

    fn set_timers(&mut self, node: NodeId) {
        for index in 0..=self.nodes[node.index()].threads.len() {
            let slot = Slot(index as u16);
            let channel = Channel { node, slot };
            let Some(at) = self.carriers[node.index()].next_timeout(slot) else { continue };
            if at < Time(u64::MAX) && self.timers.get(&channel).is_none_or(|set| at < *set) {
                self.timers.insert(channel, at);
                self.after(at - self.now, Event::LinkTimer(channel));
            }
        }
        let next = self.nodes[node.index()].barrier.next_timeout();
        if let Some(at) = next.filter(|at| self.barrier_timers[node.index()].is_none_or(|set| *at < set)) {
            self.barrier_timers[node.index()] = Some(at);
            self.after(at - self.now, Event::BarrierTimer(node));
        }
    }

    fn link_timer(&mut self, channel: Channel) {
        if self.timers.get(&channel).is_some_and(|set| *set <= self.now) {
            self.timers.remove(&channel);
        }
        let carrier = &mut self.carriers[channel.node.index()];
        if carrier.next_timeout(channel.slot).is_some_and(|at| at <= self.now) {
            let mut parcels = Parcels::new();
            carrier.on_timeout(self.now, channel.slot, &mut parcels);
            self.dispatch(channel.node, parcels);
        }
        self.set_timers(channel.node);
    }

    fn barrier_timer(&mut self, node: NodeId) {
        if self.barrier_timers[node.index()].is_some_and(|set| set <= self.now) {
            self.barrier_timers[node.index()] = None;
        }
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].barrier.on_timeout(self.now, &mut out);
        self.effects(node, Slot::SERVICE, &mut out);
        self.out = out;
    }
}

/// The program with ranges taken apart for engines that have none.
fn plain(ops: &[Op], engine: Engine) -> Vec<Op> {
    if engine == Engine::Msi {
        return ops.to_vec();
    }
    let each = |op: &Op| -> Vec<Op> {
        match *op {
            Op::ReadRange(first, count) => (first..first + count).map(Op::Read).collect(),
            Op::WriteRange(first, count, value) => (0..count).map(|i| Op::Write(first + i, value + i as u64)).collect(),
            other => vec![other],
        }
    };
    ops.iter().flat_map(each).collect()
}
