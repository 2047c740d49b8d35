//! A job that others watch, and end: samples of its nodes' counters, orders of `comem kill`, and the line on the
//! terminal of who has started it.
//!
//! A *round* begins when a sample is due: each node that has joined is asked for its counters, and when all have
//! answered, or after a moment, what is known is published. A node is asked again only when it has answered.

use super::{Node, Running};
use crate::control::ToNode;
use crate::failure::exit;
use crate::live::VERSION;
use crate::live::sample::{NodeCounters, NodeSample, Sample, State};
use crate::live::watchers::Watchers;
use crate::sys::poll::{PollSet, earlier};
use crate::top::view;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A start that takes longer is worth a line.
const START_SHOWN_AFTER: Duration = Duration::from_secs(2);
/// How often the line changes.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// How long the nodes' answers are waited for before those that have come are shown.
const ROUND_LIMIT: Duration = Duration::from_millis(400);

/// Who watches a job, and what its nodes have told for that.
pub struct Watched {
    /// Those who can find the job, where it can be found.
    watchers: Option<Watchers>,
    line: Line,
    began: Instant,
    published: u64,
    round: Option<Round>,
    /// Nodes that have not answered yet.
    asked: BTreeSet<u16>,
    told: BTreeMap<u16, (Instant, NodeCounters)>,
}

struct Round {
    began: Instant,
    waits_for: BTreeSet<u16>,
}

/// The line on the launcher's terminal.
pub struct Line {
    /// The job's name.
    pub name: String,
    /// Whether there may be one.
    pub possible: bool,
    /// Whether it is wanted all the time, and not only while the job takes long to start.
    pub wanted: bool,
    /// When it changes.
    next_at: Option<Instant>,
    /// What was shown last.
    before: Option<Sample>,
}

impl Line {
    /// The line of a job that begins now.
    pub fn new(name: String, possible: bool, wanted: bool) -> Line {
        let wait = if wanted { LINE_EVERY } else { START_SHOWN_AFTER };
        Line { name, possible, wanted, next_at: possible.then(|| Instant::now() + wait), before: None }
    }

    /// When counters are wanted for it.
    fn sample_at(&self) -> Option<Instant> {
        self.next_at.filter(|_| self.wanted)
    }

    /// When it is to be looked whether nodes still have not met.
    fn start_at(&self) -> Option<Instant> {
        self.next_at.filter(|_| !self.wanted)
    }
}

impl Watched {
    /// A job that begins now.
    pub fn new(watchers: Option<Watchers>, line: Line) -> Watched {
        Watched {
            watchers,
            line,
            began: Instant::now(),
            published: 0,
            round: None,
            asked: BTreeSet::new(),
            told: BTreeMap::new(),
        }
    }

    /// The job is over.
    pub fn end(self, status: i32) {
        if let Some(watchers) = self.watchers {
            watchers.end(status);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let next = match &self.round {
            Some(round) => Some(round.began + ROUND_LIMIT),
            None => self.next_at(),
        };
        let deaf = self.watchers.as_ref().and_then(Watchers::deadline);
        earlier(earlier(next, deaf), self.line.start_at())
    }

    /// When the next sample is due; never where nobody watches.
    fn next_at(&self) -> Option<Instant> {
        earlier(self.watchers.as_ref().and_then(Watchers::next_at), self.line.sample_at())
    }

    fn is_due(&self, now: Instant) -> bool {
        self.round.is_none() && self.next_at().is_some_and(|at| at <= now)
    }

    /// A node has called Comem: how long others take to do so may be worth a line.
    pub(super) fn node_joins(&mut self) {
        let line = &mut self.line;
        if line.possible && line.next_at.is_none() {
            line.next_at = Some(Instant::now() + START_SHOWN_AFTER);
        }
    }

    /// A node's next program has told nothing yet.
    pub(super) fn forget(&mut self, node: u16) {
        self.asked.remove(&node);
        self.told.remove(&node);
    }
}

impl Node {
    /// Whether its program listens to what the launcher asks.
    fn can_tell(&self) -> bool {
        self.joined && !self.finished && self.ended.is_none()
    }

    fn state(&self) -> State {
        match () {
            () if self.ended.is_some() => State::Ended,
            () if self.finished => State::Finished,
            () if self.pid.is_none() || (self.speaks && !self.joined) => State::Starting,
            () => State::Running,
        }
    }
}

impl Running<'_> {
    pub(super) fn register_watchers(&self, polls: &mut PollSet) {
        if let Some(watchers) = self.watched.as_ref().and_then(|watched| watched.watchers.as_ref()) {
            watchers.register(polls);
        }
    }

    pub(super) fn sample_at(&self) -> Option<Instant> {
        self.watched.as_ref()?.deadline()
    }

    /// Takes in what watchers say.
    pub(super) fn take_watchers(&mut self, polls: &PollSet) {
        let state = self.state();
        let Some(watchers) = self.watchers() else { return };
        for killer in watchers.take_ready(polls, state) {
            let already = !self.may_end();
            self.end_as_told();
            self.watchers().into_iter().for_each(|watchers| watchers.answer_kill(killer, already));
        }
    }

    fn watchers(&mut self) -> Option<&mut Watchers> {
        self.watched.as_mut()?.watchers.as_mut()
    }

    /// `comem kill` is as good as Ctrl-C.
    fn end_as_told(&mut self) {
        self.end_as_wanted(false, "as comem kill asks", "ended by comem kill", exit::SIGNAL + libc::SIGINT);
    }

    /// How far the job is.
    fn state(&self) -> State {
        match () {
            () if !self.may_end() => State::Ending,
            () if self.nodes.values().any(|node| node.state() == State::Starting) => State::Starting,
            () => State::Running,
        }
    }

    /// Begins a round that is due, and ends one that has lasted long enough.
    pub(super) fn sample_on_time(&mut self, now: Instant) {
        let Some(watched) = &mut self.watched else { return };
        if watched.is_due(now) {
            let able = self.nodes.iter().filter(|(_, node)| node.can_tell()).map(|(node, _)| *node);
            let new: BTreeSet<u16> = able.filter(|node| !watched.asked.contains(node)).collect();
            watched.asked.extend(&new);
            let waits = watched.watchers.as_ref().is_some_and(Watchers::wants_waits);
            let pages = watched.watchers.as_ref().is_some_and(Watchers::wants_pages);
            watched.round = Some(Round { began: now, waits_for: new.clone() });
            new.into_iter().for_each(|node| self.tell(node, &ToNode::Sample { waits, pages }));
        }
        self.publish_if_complete(now);
        self.tell_of_the_start(now);
    }

    /// On a terminal, a line says how far the start is that takes long; it goes when all nodes have met.
    fn tell_of_the_start(&mut self, now: Instant) {
        let Some(watched) = self.watched.as_mut().filter(|w| w.line.start_at().is_some_and(|at| at <= now)) else {
            return;
        };
        let (mut run, mut called, mut met) = (0, 0, 0);
        for node in self.nodes.values().filter(|node| node.ended.is_none()) {
            run += usize::from(node.pid.is_some());
            called += usize::from(node.speaks);
            met += usize::from(node.joined);
        }
        let all = self.nodes.len();
        // Of nodes that all run and have not called Comem nobody knows whether they will.
        let starts = self.ending.is_none() && met < all && (run < all || called > 0);
        watched.line.next_at = starts.then(|| now + LINE_EVERY);
        let seconds = watched.began.elapsed().as_secs();
        let name = &watched.line.name;
        let text = starts.then(|| {
            format!(
                "comem: {name}, starting for {seconds} s: of {all} nodes {run} run, {called} have called Comem, \
                 {met} have met"
            )
        });
        self.output.set_status(text);
    }

    /// A node's counters.
    pub(super) fn take_sample(&mut self, node: u16, sample: serde_json::Value) {
        let now = Instant::now();
        let Some(watched) = &mut self.watched else { return };
        watched.asked.remove(&node);
        if let Ok(counters) = serde_json::from_value(sample) {
            watched.told.insert(node, (now, counters));
        }
        if let Some(round) = &mut watched.round {
            round.waits_for.remove(&node);
        }
    }

    /// Publishes what is known, when all have answered that can, or the others have taken too long.
    fn publish_if_complete(&mut self, now: Instant) {
        let state = self.state();
        let Some(watched) = &mut self.watched else { return };
        let Some(round) = &watched.round else { return };
        let is_awaited = |node: &u16| self.nodes.get(node).is_some_and(Node::can_tell);
        if round.waits_for.iter().any(is_awaited) && now < round.began + ROUND_LIMIT {
            return;
        }
        let began = round.began;
        watched.round = None;
        watched.published += 1;
        let one = |(number, node): (&u16, &Node)| {
            let told = watched.told.get(number);
            NodeSample {
                node: *number,
                host: self.orders.host_of.get(number).map_or("?".into(), |h| self.orders.host_names[*h].clone()),
                pid: node.pid,
                state: node.state(),
                counters: told.map(|(_, counters)| counters.clone()),
                age_ms: told.map_or(0, |(at, _)| now.saturating_duration_since(*at).as_millis() as u64),
            }
        };
        let sample = Sample {
            version: VERSION,
            number: watched.published,
            elapsed_s: watched.began.elapsed().as_secs_f64(),
            state,
            nodes: self.nodes.iter().map(one).collect(),
        };
        if watched.line.sample_at().is_some_and(|at| at <= began) {
            watched.line.next_at = Some(began + LINE_EVERY);
            let text = view::in_one_line(&watched.line.name, &sample, watched.line.before.as_ref());
            self.output.set_status(Some(text));
            watched.line.before = Some(sample.clone());
        }
        if let Some(watchers) = &mut watched.watchers {
            watchers.publish(&sample, began);
        }
    }
}
