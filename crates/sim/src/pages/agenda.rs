//! What happens next in a cluster: what is due first in virtual time, or what a [`Schedule`] says.
//!
//! A schedule leaves time out. Each thread and each message has a rank; what may go on and has the highest rank goes
//! on. The schedule names events at which that is put behind everything else: a thread stops in the middle of what it
//! does until all others wait, a message stays on its way. So a handful of delays reaches orders that need hundreds of
//! lucky delays in virtual time, and all orders with so few of them can be gone through (after S. Burckhardt et al., "A
//! Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010, and M. Emmi et al., "Delay-Bounded
//! Scheduling", POPL 2011).

use super::cluster::Event;
use comem_protocol::ids::NodeId;
use comem_protocol::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// An order of events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// Whether messages arrive as soon as they have left; else when no thread can go on.
    pub prompt: bool,
    /// The node whose threads go before those of all others; the nodes after it follow.
    pub first: usize,
    /// Which events, counted from 0, are put behind everything else, in ascending order. A number that stands there
    /// twice puts off two.
    pub delays: Vec<u64>,
}

/// An event and its moment; equal moments keep the order in which they were set.
#[derive(Debug)]
pub(super) struct Due(Time, u64, Event);

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The events that are to come.
#[derive(Debug)]
pub(super) enum Agenda {
    Timed(BinaryHeap<Reverse<Due>>),
    Scheduled(Box<Scheduled>),
}

impl Agenda {
    pub(super) fn new(schedule: Option<&Schedule>, nodes: usize) -> Agenda {
        match schedule {
            None => Agenda::Timed(BinaryHeap::new()),
            Some(schedule) => Agenda::Scheduled(Box::new(Scheduled::new(schedule.clone(), nodes))),
        }
    }

    /// Adds an event, which comes at a moment or, by a schedule, when its turn has come and the event `after` has
    /// happened.
    pub(super) fn push(&mut self, at: Time, number: u64, after: Option<u64>, event: Event) {
        match self {
            Agenda::Timed(heap) => heap.push(Reverse(Due(at, number, event))),
            Agenda::Scheduled(scheduled) => scheduled.push(at, number, after, event),
        }
    }

    /// The next event and its moment.
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, Event)> {
        match self {
            Agenda::Timed(heap) => heap.pop().map(|Reverse(Due(at, _, event))| (at, event)),
            Agenda::Scheduled(scheduled) => scheduled.pop(now),
        }
    }

    /// The events, counted from 0, at which something else could have happened; none by virtual time.
    pub(super) fn choices(&mut self) -> Vec<u64> {
        match self {
            Agenda::Timed(_) => Vec::new(),
            Agenda::Scheduled(scheduled) => std::mem::take(&mut scheduled.choices),
        }
    }
}

/// What arrives at once goes before threads, the rest behind them; all that was put off has a rank below zero.
const PROMPT: i64 = 1_000;
const THREADS: i64 = 500;
const LAZY: i64 = 20;
const ATTEND: i64 = 10;
/// What was passed over by so many events goes next: who asks again and again gets the answer that it waits for.
const PATIENCE: u64 = 400;
/// Timers run when nothing else is left to do.
const TIMER: i64 = i64::MIN;

#[derive(Debug)]
struct Waiting {
    rank: i64,
    number: u64,
    /// How many events had been when it was set.
    since: u64,
    after: Option<u64>,
    at: Time,
    event: Event,
}

/// The events that are to come, by a schedule.
#[derive(Debug)]
pub(super) struct Scheduled {
    schedule: Schedule,
    nodes: usize,
    waiting: Vec<Waiting>,
    /// The ranks of threads that were put off.
    put_off: BTreeMap<(NodeId, usize), i64>,
    lowest: i64,
    done: u64,
    delayed: usize,
    choices: Vec<u64>,
}

impl Scheduled {
    fn new(schedule: Schedule, nodes: usize) -> Scheduled {
        let (waiting, put_off, choices) = (Vec::new(), BTreeMap::new(), Vec::new());
        Scheduled { schedule, nodes, waiting, put_off, lowest: 0, done: 0, delayed: 0, choices }
    }

    fn rank(&mut self, event: &Event) -> i64 {
        match event {
            Event::Step(node, t) => self.put_off.get(&(*node, *t)).copied().unwrap_or_else(|| {
                let turn = (node.index() + self.nodes - self.schedule.first) % self.nodes;
                THREADS - (turn * 8 + t) as i64
            }),
            Event::Listed(_) => PROMPT,
            Event::Arrive(..) if self.schedule.prompt => PROMPT,
            Event::Arrive(..) => LAZY,
            Event::Attend(_) | Event::Late(..) | Event::Repeated(..) | Event::ReadTold(_) | Event::Slice(_) => ATTEND,
            // Whoever it waits for must go first.
            Event::Again(..) => self.below_all(),
            Event::LinkTimer(_)
            | Event::BarrierTimer(_)
            | Event::Deferrals(..)
            | Event::Waited(..)
            | Event::Repair(..) => TIMER,
        }
    }

    fn below_all(&mut self) -> i64 {
        self.lowest -= 1;
        self.lowest
    }

    fn push(&mut self, at: Time, number: u64, after: Option<u64>, event: Event) {
        let rank = self.rank(&event);
        self.waiting.push(Waiting { rank, number, since: self.done, after, at, event });
    }

    /// The place of what goes on, and whether something else could.
    fn best(&self) -> Option<(usize, bool)> {
        let may = |w: &&Waiting| w.after.is_none_or(|number| self.waiting.iter().all(|other| other.number != number));
        let able = || self.waiting.iter().enumerate().filter(|(_, w)| may(w));
        let late = |w: &Waiting| w.rank != TIMER && self.done - w.since > PATIENCE;
        let key =
            |w: &Waiting| (late(w), w.rank, Reverse(if w.rank == TIMER { w.at } else { Time(0) }), Reverse(w.number));
        let (place, _) = able().max_by_key(|(_, w)| key(w))?;
        Some((place, able().filter(|(_, w)| w.rank != TIMER).nth(1).is_some()))
    }

    fn pop(&mut self, now: Time) -> Option<(Time, Event)> {
        let (mut place, more) = self.best()?;
        if more && self.choices.last() != Some(&self.done) {
            self.choices.push(self.done);
        }
        while self.schedule.delays.get(self.delayed) == Some(&self.done) {
            self.delayed += 1;
            let rank = self.below_all();
            self.waiting[place].rank = rank;
            if let Event::Step(node, t) = self.waiting[place].event {
                self.put_off.insert((node, t), rank);
            }
            (place, _) = self.best()?;
        }
        self.done += 1;
        let next = self.waiting.swap_remove(place);
        let at = if next.rank == TIMER { now.max(next.at) } else { now + Span(1_000) };
        Some((at, next.event))
    }
}
