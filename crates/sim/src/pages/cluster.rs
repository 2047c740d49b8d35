//! The cluster of nodes with pages: a network and virtual time. A seed decides how long each step of a thread takes,
//! how long each parcel travels, which are lost, doubled or damaged.

mod sets;

use super::agenda::{Agenda, Schedule};
use super::at_end::{contents, copysets};
use super::check::Judge;
use super::frees;
use super::layout::Layout;
use super::node::{Node, Open, Pages, SeenMemory};
use super::program::Programs;
use super::start;
use super::thread::{Phase, Thread, Turn};
use crate::carrier::{Carrier, Incoming, Link, Messages, Parcel, Parcels};
use crate::diagram;
use crate::schedule::{LOOKS_LATE, Scheduled, Waits};
use crate::tuning;
use comem_protocol::auth::Sealer;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::multicast::history::History;
use comem_protocol::coherence::pages::multicast::serve::repair_wait;
use comem_protocol::coherence::pages::node::fault::Fetching;
use comem_protocol::coherence::pages::node::refetch::{Next, Refetch};
use comem_protocol::coherence::pages::wire::Pages as PagesBody;
use comem_protocol::faults::{FaultPlan, FaultSpec, Rng};
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::link::LinkConfig;
use comem_protocol::node::route::Origin;
use comem_protocol::outbox::{Outbox, Target};
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::message::{Message, types};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How often a service thread looks after the sockets of threads that compute.
const ATTEND_EVERY: Span = Span::from_ms(20);
/// How long a message and its answer usually take.
const ROUND_TRIP: Span = Span(130_000);
/// More steps than any program here needs.
const STEPS_MAX: u64 = 400_000;
/// The latest moment by which all must have ended.
const BOUND: Span = Span::from_ms(600_000);

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What went wrong.
    pub violations: Vec<String>,
    /// Reads that did not return the last value.
    pub stale: u64,
    /// How long it took, in virtual time.
    pub took: Time,
    /// How many steps.
    pub steps: u64,
    /// Datagrams handed to the network, and repetitions among them.
    pub datagrams: (u64, u64),
    /// Pages fetched, diffs made, migrations, evictions, void fetches and pages untracked, over all nodes.
    pub tally: [u64; 6],
    /// Pages copied out of their home's memory without asking.
    pub taken: u64,
    /// Messages of diffs that were stored into their home's memory instead.
    pub put: u64,
    /// Messages about diffs that stay with their writers, each request and each reply.
    pub kept_messages: u64,
    /// Messages to sets of nodes.
    pub to_sets: u64,
    /// How many they are where each member gets one by itself.
    pub to_members: u64,
    /// Requests to writers whose diffs, told to a set, did not come in time.
    pub repaired: u64,
    /// Of each node, how often a message that told it something was read as it came, and in all.
    pub told_read: Vec<(u64, u64)>,
    /// Copysets that nodes left.
    pub left: u64,
    /// Bases that nodes fetched.
    pub bases: u64,
    /// Units that got another manager, and units whose diffs began to go to theirs alone.
    pub placed: (u64, u64),
    /// Diffs that came before they were asked for, and those of them that were used.
    pub indirect: (u64, u64),
    /// Bytes of such diffs that all nodes keep at the end.
    pub kept_bytes: u64,
    /// Pages sent unasked, and how many of them were used.
    pub pushed: (u64, u64),
    /// Pages sent with tokens, and how many of them were used.
    pub carried: (u64, u64),
    /// By a schedule, the events at which something else could have happened.
    pub choices: Vec<u64>,
    /// What each thread loaded, of a program that is not judged: the word and its value.
    pub loads: Vec<Vec<(usize, u64)>>,
    /// What the nodes arrived at, where diffs are told to sets.
    pub history: Option<History>,
    /// A line for everything that happened, when it was asked for.
    pub trace: Vec<String>,
    /// What a diagram shows, when a trace was asked for.
    pub events: Vec<diagram::Event>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Step(NodeId, usize),
    Arrive(Channel, Parcel),
    Attend(Channel),
    /// A message that found the intervals locked.
    Again(NodeId, Slot, Incoming),
    /// Pages that were taken in before.
    Late(NodeId, Vec<u8>),
    /// So was an answer about diffs that stay with their writers.
    Repeated(NodeId, Incoming),
    /// Somebody reads what a node was told.
    ReadTold(NodeId),
    /// The timer of a thread that waits for diffs told to a set: a unit and the number of its round.
    Repair(NodeId, usize, PageNo, u32),
    /// What steps of a node's chunks had left to do is done.
    Listed(NodeId),
    LinkTimer(Channel),
    BarrierTimer(NodeId),
    /// The service thread closes the next slice of a long close.
    Slice(NodeId),
    /// The service thread looks at what is deferred until then.
    Deferrals(NodeId, Time),
    /// A thread has waited for a lock for some time.
    Waited(NodeId, usize),
}

/// A cluster at work.
pub struct Cluster {
    nodes: Vec<Node>,
    judge: Judge,
    carriers: Vec<Carrier>,
    plans: Vec<FaultPlan>,
    rng: Rng,
    /// How much longer the step under way takes: what comes of it comes so much later.
    lag: Span,
    now: Time,
    /// What that waits for: the number of an event.
    lagged_by: Option<u64>,
    agenda: Agenda,
    order: u64,
    timers: BTreeMap<Channel, Time>,
    barrier_timers: Vec<Option<Time>>,
    /// What nodes look at their deferred messages for next.
    deferral_timers: Vec<Option<Time>>,
    slicing: Vec<bool>,
    unread: BTreeMap<Channel, VecDeque<Parcel>>,
    running: usize,
    traces: bool,
    out: Outbox,
    outcome: Outcome,
}

/// What a run is made of besides layout and programs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides everything.
    pub seed: u64,
    /// `Some`: the production link over a network with these faults; `None`: whole messages, reordered.
    pub faults: Option<FaultSpec>,
    /// Bytes in a datagram of the link.
    pub datagram_bytes: usize,
    /// Whether to keep a line for everything that happens.
    pub trace: bool,
    /// The order of events, if not that of virtual time. It wants whole messages.
    pub schedule: Option<Schedule>,
    /// Whether the programs ask for more than `scope` promises: then regions under it are judged by its rules.
    pub beyond_scope: bool,
    /// Whether the program races on purpose: nothing is expected of what it loads, which the outcome tells.
    pub races: bool,
}

/// Runs programs to their end.
pub fn run(layout: &Arc<Layout>, programs: Programs, config: &Config) -> Outcome {
    let mut cluster = Cluster::new(layout, programs, config);
    cluster.run();
    cluster.finish(layout)
}

impl Cluster {
    fn new(layout: &Arc<Layout>, programs: Programs, config: &Config) -> Cluster {
        let (nodes, slots) = (layout.nodes, layout.threads + 1);
        let link = tuning::link(config.seed, &layout.tuning.link);
        let link = LinkConfig { datagram_bytes: config.datagram_bytes, ..link };
        let spec = FaultSpec { seed: config.seed, ..config.faults.unwrap_or_default() };
        let sealer = Sealer::new(None);
        let carriers = NodeId::all(nodes).map(|me| match config.faults {
            Some(_) => Carrier::Link(Box::new(Link::new(me, nodes, slots, link, &sealer))),
            None => Carrier::Messages(Messages::new(me, nodes, slots)),
        });
        let open = Open::default();
        let machines = programs.into_iter().zip(NodeId::all(nodes)).map(|(programs, me)| {
            let threads = programs.into_iter().map(Thread::new).collect();
            Node::new(me, layout, threads, &open, config.seed << 8 | me.index() as u64)
        });
        let words = layout.pages() as usize * super::memory::PAGE_WORDS;
        let judge = Judge::new(nodes * layout.threads, words).with_scope(layout.threads, |word| {
            config.beyond_scope && layout.engine_of((word / super::memory::PAGE_WORDS) as u32).is_scoped()
        });
        let mut cluster = Cluster {
            nodes: machines.collect(),
            judge: if config.races { judge.that_only_writes_down() } else { judge },
            carriers: carriers.collect(),
            plans: (0..nodes as u64).map(|n| FaultPlan::new(&spec, n)).collect(),
            rng: Rng::new(config.seed),
            lag: Span(0),
            now: Time(0),
            lagged_by: None,
            agenda: Agenda::new(config.schedule.as_ref(), nodes),
            order: 0,
            timers: BTreeMap::new(),
            barrier_timers: vec![None; nodes],
            deferral_timers: vec![None; nodes],
            slicing: vec![false; nodes],
            unread: BTreeMap::new(),
            running: nodes * layout.threads,
            traces: config.trace,
            out: Outbox::new(),
            outcome: Outcome { told_read: vec![(0, 0); nodes], ..Outcome::default() },
        };
        for node in NodeId::all(nodes) {
            for t in 0..layout.threads {
                let start = Span(cluster.rng.below(50_000));
                cluster.after(start, Event::Step(node, t));
            }
        }
        cluster
    }

    fn run(&mut self) {
        while let Some((at, event)) = self.agenda.pop(self.now) {
            (self.now, self.lag, self.lagged_by) = (at, Span(0), None);
            self.outcome.steps += 1;
            if self.outcome.steps > STEPS_MAX {
                self.outcome.violations.push(format!("a storm: no rest after {STEPS_MAX} steps"));
            }
            if self.now > Time(0) + BOUND || !self.outcome.violations.is_empty() || !self.judge.violations.is_empty() {
                break;
            }
            match event {
                Event::Step(node, t) => self.step(node, t),
                Event::Arrive(at, parcel) => self.arrive(at, parcel),
                Event::Attend(at) => self.drain(at, Slot::SERVICE),
                Event::Again(node, slot, message) => self.message(node, slot, message),
                Event::Late(node, body) => self.late(node, &body),
                Event::Repeated(node, message) => self.repeated(node, &message),
                Event::ReadTold(node) => self.read_told(node, None),
                Event::Repair(node, t, page, round) => self.repair(node, t, (page, round)),
                Event::Listed(node) => self.nodes[node.index()].pages.active.all_go_on(),
                Event::LinkTimer(channel) => self.link_timer(channel),
                Event::BarrierTimer(node) => self.barrier_timer(node),
                Event::Slice(node) => self.close_slice(node),
                Event::Deferrals(node, due) => self.look_at_deferrals(node, due),
                Event::Waited(node, t) => self.has_waited(node, t),
            }
            let unrest = self.nodes.iter_mut().find_map(|node| node.schedule_unrest(self.now));
            self.outcome.violations.extend(unrest);
        }
        self.outcome.took = self.now;
        self.outcome.choices = self.agenda.choices();
    }

    fn finish(mut self, layout: &Layout) -> Outcome {
        self.outcome.violations.append(&mut self.judge.violations);
        self.outcome.stale = self.judge.stale;
        self.outcome.loads = std::mem::take(&mut self.judge.loads);
        if self.outcome.violations.is_empty() {
            self.look_for_waiters();
        }
        if self.outcome.violations.is_empty() {
            let unrest = self.nodes.iter().find_map(Node::unrest);
            self.outcome.violations.extend(unrest);
            self.outcome.violations.extend(self.nodes.iter().find_map(frees::remains));
            self.outcome.violations.extend(contents(&self.nodes, &self.judge, layout));
            self.outcome.violations.extend(copysets(&self.nodes, layout));
            self.outcome.history = self.nodes.first().map(|node| start::arrived_at(node, layout));
        }
        for (read, node) in self.outcome.told_read.iter_mut().zip(&self.nodes) {
            read.1 = node.told.read;
        }
        let counts = self.carriers.iter().map(Carrier::counts);
        self.outcome.datagrams = counts.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let pushed = self.nodes.iter().map(|n| n.pages.pushed);
        let carried = self.nodes.iter().map(|n| n.pages.carried);
        self.outcome.taken = self.nodes.iter().map(|n| n.pages.taken).sum();
        self.outcome.carried = carried.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.outcome.pushed = pushed.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        for tables in self.nodes.iter().map(|n| &n.pages.chunks) {
            self.outcome.kept_bytes += tables.iter().map(|table| table.kept_bytes() as u64).sum::<u64>();
        }
        for tally in self.nodes.iter().map(|n| n.pages.tally) {
            self.outcome.left += tally.copysets_left;
            self.outcome.bases += tally.bases_fetched;
            self.outcome.placed.0 += tally.managers_moved;
            self.outcome.placed.1 += tally.pages_homed;
            self.outcome.indirect.0 += tally.diffs_indirect;
            self.outcome.indirect.1 += tally.diffs_indirect_used;
            let moved = [tally.pages_fetched, tally.diffs_made, tally.migrations];
            let ended = [tally.evictions, tally.void_fetches, tally.laid_aside];
            let new = moved.into_iter().chain(ended);
            self.outcome.tally.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
        }
        self.outcome
    }

    fn look_for_waiters(&mut self) {
        if self.running == 0 && !self.carriers.iter().all(Carrier::is_idle) {
            self.outcome.violations.push("the programs have ended, but a sender still waits".to_string());
        }
        for node in &self.nodes {
            for (t, thread) in node.threads.iter().enumerate().filter(|(_, thread)| !thread.is_done()) {
                let line = format!("{}, thread {t} still waits at {}", node.pages.me, thread.place());
                self.outcome.violations.push(line);
            }
        }
    }

    fn after(&mut self, span: Span, event: Event) {
        self.order += 1;
        self.agenda.push(self.now + self.lag + span, self.order, self.lagged_by, event);
    }

    fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.traces {
            let line = format!("{:>12} ns  {:>8}  {}", self.now.0, self.outcome.steps, line());
            self.outcome.trace.push(line);
        }
    }

    fn step(&mut self, node: NodeId, t: usize) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].pages.active.goes_on(Some(Slot::thread(t)));
        let before = if self.traces { self.nodes[node.index()].threads[t].place() } else { String::new() };
        let place = self.nodes[node.index()].threads[t].at;
        let turn = match self.nodes[node.index()].threads[t].phase.clone() {
            Phase::Fetch(fetching) => self.fetch(node, t, fetching),
            Phase::Refetch(refetch) => self.refetch(node, t, refetch, &mut out),
            _ => self.nodes[node.index()].step_thread(self.now, t, &mut self.judge, &mut out),
        };
        if self.traces {
            let access = *self.nodes[node.index()].pages.memory.access(t);
            self.trace(|| format!("{node}.{t} {turn:?}: {before}; {access:?}"));
            let thread = &self.nodes[node.index()].threads[t];
            if thread.at > place
                && let Some(step) = diagram::Step::of_pages(thread.program[place], thread.register)
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
            Turn::Done => {
                self.running -= 1;
                self.nodes[node.index()].threads[t].ended = true;
                return self.lets_go(node, t);
            }
        };
        self.after(pause, Event::Step(node, t));
    }

    /// The next stage of thread `t`'s fetch.
    fn fetch(&mut self, node: NodeId, t: usize, mut fetching: Fetching) -> Turn {
        let sees = self.sees_home(node, &fetching);
        let progress = self.acts_on(node, t, sees, |pages, home| fetching.step(pages, home));
        self.nodes[node.index()].has_fetched(t, fetching, progress)
    }

    /// What thread `t` does next to fetch again what a barrier has ended.
    fn refetch(&mut self, node: NodeId, t: usize, mut refetch: Refetch, out: &mut Outbox) -> Turn {
        let next = self.acts_on(node, t, None, |pages, _| refetch.next(pages));
        let this = &mut self.nodes[node.index()];
        match next {
            Next::Nothing => this.has_refetched(t, out),
            Next::Wait(_) => this.sleeps_in(t, Phase::Refetch(refetch)),
            Next::Fetch(_) => {
                let sees = refetch.front().cloned().and_then(|fetching| self.sees_home(node, &fetching));
                self.acts_on(node, t, sees, |pages, home| refetch.step(pages, home));
                self.nodes[node.index()].goes_to(t, Phase::Refetch(refetch))
            }
        }
    }

    /// The home whose memory the next stage of a fetch sees; some nodes do not see it.
    fn sees_home(&mut self, node: NodeId, fetching: &Fetching) -> Option<NodeId> {
        let sees = self.nodes[node.index()].pages.layout.takes && fetching.sees_home() && fetching.home != node;
        (sees && (fetching.is_taking() || self.rng.below(3) > 0)).then_some(fetching.home)
    }

    /// Thread `t` acts on its node's pages, and on the memory of a home if it sees one.
    fn acts_on<R>(
        &mut self,
        node: NodeId,
        t: usize,
        home: Option<NodeId>,
        step: impl FnOnce(&mut Pages, Option<&mut SeenMemory<'_>>) -> R,
    ) -> R {
        let now = self.now;
        let begins = |pages: &mut Pages| (pages.caller, pages.now) = (Some(Slot::thread(t)), now);
        let Some(home) = home else {
            let pages = &mut self.nodes[node.index()].pages;
            begins(pages);
            return step(pages, None);
        };
        let [this, home] =
            self.nodes.get_disjoint_mut([node.index(), home.index()]).expect("a node does not ask itself");
        begins(&mut this.pages);
        step(&mut this.pages, Some(&mut SeenMemory(&mut home.pages)))
    }

    /// Usually short, now and then (a preemption, a cache miss) up to `long`.
    fn chance_delay(&mut self, low: u64, high: u64, long: u64) -> Span {
        let high = if self.rng.below(12) == 0 { long } else { high };
        Span(self.rng.between(low, high))
    }

    fn sleep(&mut self, node: NodeId, t: usize) {
        self.nodes[node.index()].threads[t].asleep = true;
        match self.nodes[node.index()].waits_for(t) {
            Some(Waits::Others) => self.lets_go(node, t),
            Some(Waits::Lock) => {
                let tuning = *self.nodes[node.index()].pages.schedule.tuning();
                if tuning.longest_deferral() > Span(0) {
                    self.after(tuning.lock_wait(), Event::Waited(node, t));
                }
            }
            Some(Waits::Data) | None => {}
        }
        let slot = Slot::thread(t);
        self.drain(Channel { node, slot }, slot);
        let this = &self.nodes[node.index()];
        if this.threads[t].asleep && this.threads[t].phase == Phase::Joined && this.has_unread() {
            self.read_told(node, Some(t));
        }
    }

    /// If all threads of the node wait, it no longer keeps from others what they have asked for.
    fn lets_go(&mut self, node: NodeId, t: usize) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].end_all_deferrals(self.now, t, &mut out);
        self.effects(node, Slot::thread(t), &mut out);
        self.out = out;
    }

    fn has_waited(&mut self, node: NodeId, t: usize) {
        let this = &self.nodes[node.index()];
        if this.waits_for(t) == Some(Waits::Lock) && !this.opening {
            self.lets_go(node, t);
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

    fn close_slice(&mut self, node: NodeId) {
        if self.nodes[node.index()].opening {
            return self.after(Span(10_000), Event::Slice(node));
        }
        let mut out = std::mem::take(&mut self.out);
        self.slicing[node.index()] = false;
        self.nodes[node.index()].close_slice(self.now, &mut out);
        self.effects(node, Slot::SERVICE, &mut out);
        self.out = out;
    }

    /// The service thread has something to do for the schedule of its node's locks.
    fn follow_schedule(&mut self, node: NodeId) {
        let schedule = &self.nodes[node.index()].pages.schedule;
        let (due, closes) = (schedule.next_due(), schedule.is_closing());
        if closes && !std::mem::replace(&mut self.slicing[node.index()], true) {
            let pause = self.chance_delay(20, 2_000, 50_000);
            self.after(pause, Event::Slice(node));
        }
        let due = due.filter(|due| *due < Time(u64::MAX));
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
        let received = self.carriers[at.node.index()].receive(self.now, slot, parcel, &mut parcels);
        self.dispatch(at.node, parcels);
        match received {
            Ok(Some(message)) => self.message(at.node, slot, message),
            Ok(None) => {}
            Err(why) => self.trace(|| format!("{}: {why}", at.node)),
        }
        self.set_timers(at.node);
    }

    fn message(&mut self, node: NodeId, slot: Slot, message: Incoming) {
        let of_kept = [types::FETCH_DIFFS, types::KEPT_DIFFS, types::FETCH_BASE, types::BASE].contains(&message.ty);
        let of_pages = of_kept
            || [types::FETCH, types::PAGES, types::DIFFS, types::PUSH, types::PUSH_UNUSED].contains(&message.ty);
        self.outcome.kept_messages += u64::from(of_kept);
        if self.nodes[node.index()].is_told_alone(&message) {
            return self.told(node, message);
        }
        let of_pages = of_pages || message.ty == types::DIFFS_ASKED;
        if self.nodes[node.index()].opening && !of_pages {
            return self.after(Span(10_000), Event::Again(node, slot, message));
        }
        let mut out = std::mem::take(&mut self.out);
        let caller = (slot != Slot::SERVICE).then_some(slot);
        let origin = Origin { from: message.from, ticket: message.ticket, caller };
        let machine = &mut self.nodes[node.index()];
        machine.pages.active.goes_on(caller);
        let content = (message.ty, &message.body[..]);
        let result = machine.on_message(self.now, origin, message.answers, content, &mut out);
        if self.traces {
            let line = describe(&message);
            self.trace(|| format!("{node} slot {} <- {}: {line}", slot.0, message.from));
        }
        self.outcome.violations.extend(result.err());
        self.effects(node, slot, &mut out);
        self.out = out;
        self.rouse(node, slot);
        self.rouse(node, message.answers);
        if message.ty == types::PAGES
            && matches!(self.carriers[node.index()], Carrier::Messages(_))
            && self.rng.below(8) == 0
        {
            let delay = self.chance_delay(5_000, 60_000, 500_000);
            self.after(delay, Event::Late(node, message.body));
        } else if [types::KEPT_DIFFS, types::BASE].contains(&message.ty)
            && matches!(self.carriers[node.index()], Carrier::Messages(_))
            && self.rng.below(8) == 0
        {
            let delay = self.chance_delay(5_000, 60_000, 500_000);
            self.after(delay, Event::Repeated(node, message));
        }
    }

    fn repeated(&mut self, node: NodeId, message: &Incoming) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].pages.active.goes_on(None);
        self.nodes[node.index()].pages.take_repeated(message, &mut out);
        self.effects(node, Slot::SERVICE, &mut out);
        self.out = out;
    }

    /// The same pages come again, long answered. The link lets no reply pass that nobody waits for; this is what the
    /// table itself does with one, so it counts where no fetch is under way.
    fn late(&mut self, node: NodeId, body: &[u8]) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].pages.active.goes_on(None);
        self.nodes[node.index()].pages.take_late(body, &mut out);
        self.effects(node, Slot::SERVICE, &mut out);
        self.out = out;
    }

    /// Sends what a step asked for, diffs first, and wakes whom it woke.
    fn effects(&mut self, node: NodeId, slot: Slot, out: &mut Outbox) {
        self.linger(node, slot);
        let mut side = std::mem::take(&mut self.nodes[node.index()].pages.side);
        self.put_or_send(node, &mut side);
        for out in [&mut side, out] {
            for send in out.sends() {
                if let Target::Set(id) = send.target {
                    self.outcome.to_sets += 1;
                    self.outcome.to_members += out.audience(id).members().count() as u64;
                }
            }
            let mut parcels = Parcels::new();
            self.carriers[node.index()].flush(self.now, slot, out, &mut parcels);
            self.dispatch(node, parcels);
            out.wakes().to_vec().into_iter().for_each(|slot| self.rouse(node, slot));
            out.clear();
        }
        let pages = &mut self.nodes[node.index()].pages;
        pages.side = side;
        self.outcome.violations.extend(pages.failure.take());
        if std::mem::take(&mut pages.applied) {
            let threads = self.nodes[node.index()].threads.len();
            (0..threads).for_each(|t| self.rouse(node, Slot::thread(t)));
        }
        for (page, round) in std::mem::take(&mut self.nodes[node.index()].told.repairs) {
            let tuning = self.nodes[node.index()].pages.layout.tuning.multicast;
            let thread = slot.index().saturating_sub(1);
            self.after(repair_wait(&tuning, ROUND_TRIP), Event::Repair(node, thread, page, round));
        }
        self.follow_schedule(node);
        self.set_timers(node);
    }

    /// A chunk that the step has made active is listed a little later, and only then do others hear of the step.
    fn linger(&mut self, node: NodeId, slot: Slot) {
        let caller = (slot != Slot::SERVICE).then_some(slot);
        if self.nodes[node.index()].pages.active.is_late(caller) {
            let high = if self.rng.below(4) == 0 { 100_000 } else { 2_000 };
            let more = Span(self.rng.between(20, high));
            self.after(more, Event::Listed(node));
            (self.lag, self.lagged_by) = (more, Some(self.order));
        }
    }

    /// Diffs leave: into their home's memory, or where the home is elsewhere or does not have those before them yet, as
    /// messages.
    fn put_or_send(&mut self, node: NodeId, side: &mut Outbox) {
        let takes = self.nodes[node.index()].pages.layout.takes;
        for diffs in std::mem::take(&mut self.nodes[node.index()].pages.diffs) {
            let home = &mut self.nodes[diffs.home.index()].pages;
            if takes && self.rng.below(4) > 0 && home.put(node, diffs.head.serial, &diffs.parts) {
                self.outcome.put += 1;
            } else {
                diffs.send(side);
            }
        }
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
        if self.traces {
            let sent = self.now + self.lag;
            let event = diagram::Event::message(sent, from, travel.map(|travel| sent + travel), to.node, parcel);
            self.outcome.events.extend(event);
        }
    }

    /// Puts parcels on the network.
    fn dispatch(&mut self, from: NodeId, parcels: Parcels) {
        for (to, parcel) in parcels {
            let mut travel = self.chance_delay(5_000, 60_000, 500_000);
            if matches!(&parcel, Parcel::Free(message) if message.ty == types::PUSH) && self.rng.below(3) == 0 {
                // Past the barrier that it goes to, and perhaps the next.
                travel = Span(self.rng.between(60_000, 3_000_000));
            }
            match parcel {
                Parcel::Message(_) => {
                    self.note(from, to, &parcel, Some(travel));
                    self.after(travel, Event::Arrive(to, parcel));
                }
                Parcel::Free(message) if [types::DIFFS_ASKED, types::DIFFS_TOLD].contains(&message.ty) => {
                    let layout = self.nodes[from.index()].pages.layout.clone();
                    if layout.told_lies && self.rng.below(8) == 0 {
                        let late = Span(self.rng.between(5_000, 3_000_000));
                        self.after(late, Event::Arrive(to, Parcel::Free(message.clone())));
                    }
                    let is_lost = self.rng.below(100) < layout.told_loss_percent;
                    let parcel = Parcel::Free(message);
                    self.note(from, to, &parcel, (!is_lost).then_some(travel));
                    if !is_lost {
                        self.after(travel, Event::Arrive(to, parcel));
                    }
                }
                Parcel::Free(_) => {
                    // One in eight is lost, one in eight arrives twice.
                    let chance = self.rng.below(8);
                    if chance == 1 {
                        self.after(travel, Event::Arrive(to, parcel.clone()));
                    }
                    if chance != 0 {
                        let travel = self.chance_delay(5_000, 60_000, 500_000);
                        self.note(from, to, &parcel, Some(travel));
                        self.after(travel, Event::Arrive(to, parcel));
                    } else {
                        self.note(from, to, &parcel, None);
                    }
                }
                // These clusters are watched by nobody.
                Parcel::Watch(..) => {}
                Parcel::Datagram(bytes) => {
                    let decision = self.plans[from.index()].decide(self.now, bytes.len());
                    for delivery in decision.deliveries() {
                        let span = Span(travel.0 + delivery.delay.0);
                        self.after(span, Event::Arrive(to, Parcel::Datagram(delivery.apply(&bytes))));
                    }
                }
            }
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

/// A message in one line.
fn describe(message: &Incoming) -> String {
    match Message::parse(message.ty, &message.body) {
        Ok(Message::Pages { body }) => format!("{:?}", PagesBody::parse(body).map(|(pages, _)| pages)),
        Ok(Message::Fetch { body }) => format!("{:?}", comem_protocol::coherence::pages::wire::Fetch::parse(body)),
        other => format!("{other:?}"),
    }
}
