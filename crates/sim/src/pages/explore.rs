//! All orders of events with few delays, of programs small enough for that.

use super::agenda::Schedule;
use super::cluster::{self, Config, Outcome};
use super::layout::{Layout, eager};
use super::program::Programs;
use super::start::identity;
use crate::scenario::panicked;
use crate::schedule::quiet;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::multicast::history::History;
use comem_protocol::coherence::pages::page_table::PrefetchPlan;
use comem_protocol::coherence::pages::region::{Homes, Region, Unit};
use comem_protocol::ids::NodeId;
use comem_protocol::tuning::Tuning;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A small program on a small memory.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    pub(super) layout: Arc<Layout>,
    pub(super) programs: Programs,
}

/// How nodes treat memory, where they have a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// The engine, one with several writers.
    pub engine: PageEngine,
    /// Whether the kernel notes writes; else first writes fault.
    pub notes: bool,
    /// Whether nodes take pages out of their home's memory, and put diffs there; where writes are noted.
    pub takes: bool,
}

impl Ways {
    /// All of them, under every engine with several writers and homes that is listed.
    pub fn all() -> Vec<Ways> {
        let has_homes = |engine: &PageEngine| engine.has_several_writers() && !engine.keeps_diffs();
        PageEngine::listed().filter(has_homes).flat_map(Ways::under).collect()
    }

    /// All of them, under one engine.
    pub fn under(engine: PageEngine) -> [Ways; 3] {
        [(true, false), (true, true), (false, false)].map(|(notes, takes)| Ways { engine, notes, takes })
    }

    /// Those of an engine whose diffs stay with their writers.
    pub fn kept() -> Vec<Ways> {
        [true, false].map(|notes| Ways { engine: PageEngine::Lrc, notes, takes: false }).to_vec()
    }

    /// The same of an engine whose diffs are told to sets.
    pub fn multicast() -> Vec<Ways> {
        [true, false].map(|notes| Ways { engine: PageEngine::Multicast, notes, takes: false }).to_vec()
    }

    /// One region of so many pages, each a unit.
    pub fn layout(self, nodes: usize, threads: usize, pages: u32, homes: Homes) -> Layout {
        let (bytes, label) = (u64::from(pages) * 4096, String::new());
        let engine = self.engine;
        let region =
            Region { first: 0, pages, bytes, unit: Unit::Pages(1), engine, homes, owner: None, cut_up: false, label };
        Layout {
            nodes,
            threads,
            engine,
            regions: vec![(region, true)],
            chunk_pages: 2,
            memory: (self.notes, false),
            all_found: false,
            cache_pages: u32::MAX,
            homes_max: i64::MAX,
            ahead: PrefetchPlan { units: 1, stride: 1, known: 1, claims: false },
            fetches_ahead: true,
            takes: self.takes,
            wants: false,
            tuning: Tuning { locks: quiet(true), ..eager() },
            closes_early: false,
            idles: false,
            forbids: false,
            compares: false,
            pushes: (!self.takes).then_some(1),
            diffs_bytes: 4096,
            diffs_kept_max: i64::MAX,
            posts_arrivals: false,
            told_loss_percent: 0,
            told_lies: false,
            start: None,
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
    pub(super) fn both(self, nodes: usize) -> Layout {
        let mut layout = self.layout(nodes, 1, 1, Homes::On(NodeId(0)));
        let (first, writes) = layout.regions[0].clone();
        let other = if self.engine.is_scoped() { PageEngine::Hlrc } else { PageEngine::Scope };
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
    /// Writers asked again because what they had told did not come, over all runs.
    pub repaired: u64,
    /// The first order that fails, and what it shows.
    pub failure: Option<(Schedule, Vec<String>)>,
}

impl Case {
    /// The same, and nothing is told before it is asked for.
    #[must_use]
    pub fn told_late(&self) -> Case {
        let mut layout = Layout::clone(&self.layout);
        layout.tuning.multicast.early = false;
        Case { layout: Arc::new(layout), ..self.clone() }
    }

    /// The same, by its next run, which starts with what this one arrived at, as a file has that.
    #[must_use]
    pub fn again(&self, history: &History) -> Case {
        let read = History::decode(history.encode().as_bytes(), &identity(&self.layout)).expect("its own history");
        let layout = Layout { start: Some(Arc::new(read)), ..Layout::clone(&self.layout) };
        Case { layout: Arc::new(layout), ..self.clone() }
    }

    /// The same, with managers that stay and diffs that go to sets.
    #[must_use]
    pub fn placed_for_good(&self) -> Case {
        let mut layout = Layout::clone(&self.layout);
        (layout.tuning.multicast.managers_move, layout.tuning.multicast.homed) = (false, false);
        Case { layout: Arc::new(layout), ..self.clone() }
    }

    /// Runs one order. A panic counts as a failure.
    pub fn run(&self, seed: u64, schedule: &Schedule, trace: bool) -> Outcome {
        self.run_as(seed, Some(schedule.clone()), trace)
    }

    /// Runs it with times that the seed gives: threads and messages overtake each other.
    pub fn run_by(&self, seed: u64) -> Outcome {
        self.run_as(seed, None, false)
    }

    fn run_as(&self, seed: u64, schedule: Option<Schedule>, trace: bool) -> Outcome {
        let config =
            Config { seed, faults: None, datagram_bytes: 1472, trace, schedule, beyond_scope: false, races: false };
        catch_unwind(AssertUnwindSafe(|| cluster::run(&self.layout, self.programs.clone(), &config)))
            .unwrap_or_else(|panic| Outcome { violations: vec![panicked(panic.as_ref())], ..Outcome::default() })
    }

    /// Runs all orders with up to `delays` delays, whichever node is first, with prompt messages and with late ones.
    /// The seed decides what orders do not: which messages that nobody guards are lost, which diffs are put.
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
        explored.repaired += outcome.repaired;
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
