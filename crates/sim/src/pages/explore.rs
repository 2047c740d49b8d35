//! All orders of events with few delays, of programs small enough for that.

use super::agenda::Schedule;
use super::cluster::{self, Config, Outcome};
use super::layout::Layout;
use super::memory::PAGE_WORDS;
use super::program::{Op, Programs};
use crate::scenario::panicked;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::chunk::Ahead;
use comem_protocol::coherence::pages::region::{Homes, Region};
use comem_protocol::ids::{FlagId, LockId, NodeId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A small program on a small memory.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    layout: Arc<Layout>,
    programs: Programs,
}

/// How nodes treat memory, where they have a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// The engine, `hlrc` or `scope`.
    pub engine: PageEngine,
    /// Whether the kernel notes writes; else first writes fault.
    pub notes: bool,
    /// Whether nodes take pages out of their home's memory, and put diffs there; where writes are noted.
    pub takes: bool,
}

impl Ways {
    /// All of them.
    pub fn all() -> Vec<Ways> {
        let memory = [(true, false), (true, true), (false, false)];
        let of = |engine| memory.map(|(notes, takes)| Ways { engine, notes, takes });
        [PageEngine::Hlrc, PageEngine::Scope].into_iter().flat_map(of).collect()
    }

    fn layout(self, nodes: usize, threads: usize, pages: u32, homes: Homes) -> Layout {
        let (bytes, label) = (u64::from(pages) * 4096, String::new());
        let engine = self.engine;
        let region = Region { first: 0, pages, bytes, unit_pages: 1, engine, homes, owner: None, cut_up: false, label };
        Layout {
            nodes,
            threads,
            engine,
            regions: vec![(region, true)],
            chunk_pages: 2,
            memory: (self.notes, false),
            cache_pages: u32::MAX,
            ahead: Ahead { units: 1, stride: 1, known: 1, claims: false },
            fetches_ahead: true,
            takes: self.takes,
            wants: false,
            idles: false,
            pushes: (!self.takes).then_some(1),
            diffs_bytes: 4096,
            posts_arrivals: false,
        }
    }
}

impl std::fmt::Display for Ways {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let writes = if self.notes { "noted" } else { "fault" };
        write!(f, "{}, writes {writes}{}", self.engine, if self.takes { ", pages taken" } else { "" })
    }
}

impl Ways {
    /// Two regions of a page, the second under the other engine.
    fn both(self, nodes: usize) -> Layout {
        let mut layout = self.layout(nodes, 1, 1, Homes::On(NodeId(0)));
        let (first, writes) = layout.regions[0].clone();
        let other = if self.engine == PageEngine::Hlrc { PageEngine::Scope } else { PageEngine::Hlrc };
        layout.regions.push((Region { first: 1, engine: other, ..first }, writes));
        layout
    }
}

/// What came of all orders of one case.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// How many orders.
    pub runs: u64,
    /// Events of the longest.
    pub events: u64,
    /// Void fetches, over all runs.
    pub void_fetches: u64,
    /// Units taken out of a home's memory, over all runs.
    pub taken: u64,
    /// The first order that fails, and what it shows.
    pub failure: Option<(Schedule, Vec<String>)>,
}

impl Case {
    /// Runs one order. A panic counts as a failure.
    pub fn run(&self, seed: u64, schedule: &Schedule, trace: bool) -> Outcome {
        let schedule = Some(schedule.clone());
        let config = Config { seed, faults: None, datagram_bytes: 1472, trace, schedule, beyond_scope: false };
        catch_unwind(AssertUnwindSafe(|| cluster::run(&self.layout, self.programs.clone(), &config)))
            .unwrap_or_else(|panic| Outcome { violations: vec![panicked(panic.as_ref())], ..Outcome::default() })
    }

    /// Runs all orders with up to `delays` delays, whichever node is first, with prompt messages and with late ones. The seed decides what orders do
    /// not: which messages that nobody guards are lost, which diffs are put.
    pub fn explore(&self, seed: u64, delays: usize) -> Explored {
        let mut explored = Explored::default();
        for first in 0..self.layout.nodes {
            for prompt in [true, false] {
                self.further(seed, Schedule { prompt, first, delays: Vec::new() }, delays, &mut explored);
            }
        }
        explored
    }

    fn further(&self, seed: u64, schedule: Schedule, left: usize, explored: &mut Explored) {
        if explored.failure.is_some() {
            return;
        }
        let outcome = self.run(seed, &schedule, false);
        explored.runs += 1;
        explored.events = explored.events.max(outcome.steps);
        explored.void_fetches += outcome.tally[4];
        explored.taken += outcome.taken;
        if !outcome.violations.is_empty() {
            explored.failure = Some((schedule, outcome.violations));
            return;
        }
        if left == 0 {
            return;
        }
        let last = schedule.delays.last().copied().unwrap_or(0);
        for at in outcome.choices.into_iter().filter(|at| *at >= last) {
            let mut delays = schedule.delays.clone();
            delays.push(at);
            self.further(seed, Schedule { delays, ..schedule }, left - 1, explored);
        }
    }
}

/// The cases for a way of treating memory.
pub fn cases(ways: Ways) -> Vec<Case> {
    let on = || Homes::On(NodeId(0));
    let case = |name, layout, programs| Case { name, layout: Arc::new(layout), programs };
    let alone = |programs: Vec<Vec<Op>>| programs.into_iter().map(|program| vec![program]).collect();
    vec![
        case("counter", ways.layout(2, 1, 1, on()), alone((0..2).map(|who| count(who, 2, 2)).collect())),
        case("counter of three", ways.layout(3, 1, 1, on()), alone((0..3).map(|who| count(who, 3, 1)).collect())),
        case("two threads beside one", ways.layout(2, 2, 1, on()), beside()),
        case("handed on", ways.layout(3, 1, 1, on()), alone(handed())),
        case("home moves", ways.layout(2, 1, 1, Homes::Automatic), alone(moves())),
        case("first touch", ways.layout(2, 1, 1, Homes::FirstTouch), alone(touched())),
        case("little cache", Layout { cache_pages: 1, ..ways.layout(2, 1, 3, on()) }, alone(evicted())),
        case("two locks", ways.layout(2, 2, 1, on()), two_locks()),
        case("counter, often", ways.layout(2, 1, 1, on()), alone((0..2).map(|who| count(who, 2, 4)).collect())),
        case(
            "counter of three, twice",
            ways.layout(3, 1, 1, on()),
            alone((0..3).map(|who| count(who, 3, 2)).collect()),
        ),
        case("both engines", ways.both(3), alone((0..3).map(counts_in_both).collect())),
        case("sent at barriers", ways.layout(3, 1, 1, on()), alone(sent())),
        case("laid aside", Layout { idles: true, ..ways.layout(2, 2, 2, on()) }, two_locks()),
        case("notice beside a fetch", ways.layout(2, 2, 1, on()), noticed()),
    ]
}

fn word(page: usize, at: usize) -> usize {
    page * PAGE_WORDS + at
}

/// Counts under a lock, writes a word of its own in the same page between, and reads all in the end.
fn count(who: usize, of: usize, rounds: usize) -> Vec<Op> {
    let mut program = Vec::new();
    for round in 0..rounds {
        program.extend([Op::Lock(LockId(1)), Op::Read(0), Op::WriteNext(0), Op::Unlock(LockId(1))]);
        program.push(Op::Write(1 + who, (10 * (round + 1) + who) as u64));
    }
    program.push(Op::Barrier);
    program.extend((0..=of).map(Op::Read));
    program
}

/// Two threads of one node and one of two of another write words of one page in two epochs; each reads another's.
fn beside() -> Programs {
    let program = |me: usize, other: usize| {
        let values = [1, 2].map(|epoch| (10 * epoch + me) as u64);
        vec![
            Op::Write(me, values[0]),
            Op::Barrier,
            Op::Read(other),
            Op::Barrier,
            Op::Write(me, values[1]),
            Op::Barrier,
            Op::Read(other),
        ]
    };
    vec![vec![program(0, 1), vec![Op::Barrier; 3]], vec![program(1, 0), program(2, 0)]]
}

/// A word goes from node to node by flags, while each writes another word of the page.
fn handed() -> Vec<Vec<Op>> {
    let (first, second) = (FlagId(1), FlagId(2));
    vec![
        vec![
            Op::Write(1, 7),
            Op::Await(second, 1),
            Op::Read(0),
            Op::WriteNext(0),
            Op::Barrier,
            Op::Read(2),
            Op::Read(3),
        ],
        vec![Op::Write(2, 8), Op::Read(0), Op::WriteNext(0), Op::Set(first, 1), Op::Barrier, Op::Read(0), Op::Read(1)],
        vec![
            Op::Await(first, 1),
            Op::Read(0),
            Op::WriteNext(0),
            Op::Set(second, 1),
            Op::Write(3, 9),
            Op::Barrier,
            Op::Read(0),
        ],
    ]
}

/// One node alone writes, epoch after epoch, and becomes the home; then the other does.
fn moves() -> Vec<Vec<Op>> {
    let (wrote, idle) = ([Op::Read(0), Op::WriteNext(0), Op::Barrier], [Op::Barrier]);
    let look = [Op::Read(0), Op::Barrier];
    let one = [&idle[..], &idle, &look, &wrote, &wrote, &[Op::Read(0)]].concat();
    let other = [&wrote[..], &wrote, &idle, &idle, &idle, &[Op::Read(0)]].concat();
    vec![one, other]
}

/// Two nodes touch a page that nobody had.
fn touched() -> Vec<Vec<Op>> {
    (0..2)
        .map(|me| {
            vec![
                Op::Write(me, 5),
                Op::Barrier,
                Op::Read(1 - me),
                Op::Barrier,
                Op::Write(me, 6),
                Op::Barrier,
                Op::Read(1 - me),
            ]
        })
        .collect()
}

/// More pages than the cache has room for, all written by both nodes.
fn evicted() -> Vec<Vec<Op>> {
    let program = |me: usize| {
        let mut program: Vec<Op> = (0..3).map(|page| Op::Write(word(page, me), (page + 1) as u64)).collect();
        program.push(Op::Barrier);
        program.extend((0..3).map(|page| Op::Read(word(page, 1 - me))));
        program
    };
    vec![program(0), program(1)]
}

/// Words of one page under two locks, each lock wanted by a thread of each node.
fn two_locks() -> Programs {
    let program = |lock: u64| {
        let at = lock as usize - 1;
        let mut program = vec![Op::Lock(LockId(lock)), Op::Read(at), Op::WriteNext(at), Op::Unlock(LockId(lock))];
        program.extend([Op::Barrier, Op::Read(0), Op::Read(1)]);
        program
    };
    vec![vec![program(1), program(2)], vec![program(1), program(2)]]
}

/// While one thread fetches a page for a word that nobody writes, the node's other thread hears that the page was written.
fn noticed() -> Programs {
    let counts = [Op::Lock(LockId(1)), Op::Read(0), Op::WriteNext(0), Op::Unlock(LockId(1))];
    let (writes, reads) =
        ([&counts[..], &counts, &[Op::Barrier]].concat(), vec![Op::Read(3), Op::Barrier, Op::Read(0)]);
    let hears = [&counts[..], &[Op::Barrier, Op::Read(0)]].concat();
    vec![vec![writes, vec![Op::Barrier]], vec![reads, hears]]
}

/// Counts in two pages under one lock, and writes a word of its own in each.
fn counts_in_both(who: usize) -> Vec<Op> {
    let (other, lock) = (word(1, 0), LockId(1));
    let mut program = Vec::new();
    for round in 0..2 {
        program.extend([Op::Lock(lock), Op::Read(0), Op::WriteNext(0), Op::Read(other), Op::WriteNext(other)]);
        program.extend([Op::Unlock(lock), Op::Write(1 + who, round + 1), Op::Write(word(1, 1 + who), round + 1)]);
    }
    program.push(Op::Barrier);
    program.extend([0, other, 1, word(1, 2), 3].map(Op::Read));
    program
}

/// The home writes in each epoch what the second node reads in the next; the third hands the second a lock, and with it a word of the page.
fn sent() -> Vec<Vec<Op>> {
    let (mut home, mut reader, mut other) = (Vec::new(), Vec::new(), Vec::new());
    let counts = [Op::Lock(LockId(1)), Op::Read(1), Op::WriteNext(1), Op::Unlock(LockId(1))];
    for epoch in 0..4 {
        home.extend([Op::Write(0, epoch + 1), Op::Barrier, Op::Barrier]);
        reader.extend([Op::Barrier, Op::Read(0), Op::Barrier]);
        other.extend([Op::Barrier, Op::Barrier]);
        if epoch >= 2 {
            reader.splice(reader.len() - 2..reader.len() - 2, counts);
            other.splice(other.len() - 1..other.len() - 1, counts);
        }
    }
    vec![home, reader, other]
}
