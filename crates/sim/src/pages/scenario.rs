//! One seed, one run, one verdict.

use super::cluster::{self, Config, Outcome};
use super::frees;
use super::layout::{Layout, eager};
use super::program::{self, Kind, Maker};
use super::start;
use crate::scenario::panicked;
use crate::schedule;
use crate::tuning;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::page_table::PrefetchPlan;
use comem_protocol::coherence::pages::region::{Homes, Region, Unit};
use comem_protocol::faults::{FaultSpec, Rng};
use comem_protocol::ids::NodeId;
use comem_protocol::tuning::Tuning;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The family; `None` lets the seed choose.
    pub kind: Option<Kind>,
    /// The job's engine, one with several writers.
    pub engine: PageEngine,
    /// Whether each region has an engine of its own, by seed: `hlrc` or `scope`, and in a job under `lrc` that too.
    pub mixed: bool,
    /// Whether the kernel notes writes (else they fault); `None` lets the seed choose.
    pub notes_writes: Option<bool>,
    /// `Some`: over the production link with these faults; `None`: over whole messages.
    pub faults: Option<FaultSpec>,
    /// Whether nodes have one thread each, whatever the seed says.
    pub lone: bool,
    /// Whether a region is freed, whatever the seed says.
    pub frees: bool,
    /// Whether requests for locks are deferred, by numbers that the seed draws.
    pub schedules: bool,
    /// Whether half of the seeds draw the other numbers by which nodes tune themselves.
    pub tunes: bool,
    /// How often, in per cent, messages to sets are lost, if not as often as the seed says.
    pub told_loss: Option<u64>,
    /// Whether jobs under `multicast` start with choices that nobody has arrived at, whatever the seed says.
    pub guesses: bool,
    /// Whether stores to page tables are forbidden, whatever the seed says.
    pub forbids: bool,
    /// Keep a line for everything that happens.
    pub trace: bool,
}

/// A run and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Which family ran.
    pub kind: Kind,
    /// What is wrong; empty when all is well.
    pub violations: Vec<String>,
    /// The run.
    pub outcome: Outcome,
}

impl Scenario {
    /// Anything, under this engine, over whole messages.
    pub fn new(engine: PageEngine) -> Scenario {
        Scenario {
            kind: None,
            engine,
            mixed: false,
            notes_writes: None,
            faults: None,
            lone: false,
            frees: false,
            schedules: false,
            tunes: true,
            told_loss: None,
            guesses: false,
            forbids: false,
            trace: false,
        }
    }

    /// The same, with regions under both engines.
    pub fn mixed(engine: PageEngine) -> Scenario {
        Scenario { mixed: true, ..Scenario::new(engine) }
    }

    /// The families among which seeds choose. Where engines are mixed, programs may ask of a region what only `hlrc`
    /// promises: the judge knows which regions promise less.
    fn kinds(&self) -> Vec<Kind> {
        if self.mixed {
            return Kind::ALL.into_iter().chain(Kind::WIDE).collect();
        }
        let of_kept = if self.engine.keeps_diffs() { &Kind::KEPT[..] } else { &[] };
        let of_sets = if self.engine.tells_sets() { &Kind::HOMED[..] } else { &[] };
        let others = of_kept.iter().chain(of_sets).copied();
        Kind::ALL.into_iter().chain(others).filter(|k| self.may_ask_for(*k)).collect()
    }

    fn may_ask_for(&self, kind: Kind) -> bool {
        self.mixed || !self.engine.is_scoped() || kind.is_scoped() || kind == Kind::Blocks
    }

    /// The family around synchronisation objects that a seed chooses.
    fn desk_kind(&self, seed: u64) -> Kind {
        let kinds: Vec<Kind> = Kind::SYNC_OBJECTS.into_iter().filter(|k| self.may_ask_for(*k)).collect();
        kinds[(seed / 7) as usize % kinds.len()]
    }

    /// Runs a seed. A panic counts as a failure.
    pub fn run(&self, seed: u64) -> Verdict {
        let mut rng = Rng::new(seed ^ 0x9a6e_5000);
        let kinds = self.kinds();
        let chosen = kinds[rng.below(kinds.len() as u64) as usize];
        let kind = self.kind.unwrap_or(match seed % 7 {
            4 => Kind::Wavering,
            6 => self.desk_kind(seed),
            _ => chosen,
        });
        let run = || self.run_kind(kind, seed, &mut rng);
        let outcome = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Outcome { violations: vec![panicked(panic.as_ref())], ..Outcome::default() });
        Verdict { kind, violations: outcome.violations.clone(), outcome }
    }

    fn run_kind(&self, kind: Kind, seed: u64, rng: &mut Rng) -> Outcome {
        let mut layout = self.layout(rng);
        layout.takes = layout.memory.0 && seed % 2 == 1;
        layout.wants = seed.is_multiple_of(3);
        if self.tunes {
            layout.tuning = tuning::drawn_in_half(seed, &tuning::PAGES, layout.tuning);
        }
        layout.tuning.locks =
            if self.schedules { schedule::drawn(&mut Rng::new(seed ^ 0x70e2)) } else { schedule::quiet(layout.wants) };
        layout.all_found = seed % 3 == 1;
        layout.idles = seed.is_multiple_of(5);
        if self.forbids || seed % 10 == 7 {
            layout = layout.with_stores_forbidden();
        }
        layout.compares = seed / 2 % 3 == 1;
        if self.engine.keeps_diffs() {
            layout.diffs_kept_max = [0, 100, i64::MAX][(seed / 3 % 3) as usize];
        }
        layout.told_loss_percent = self.told_loss.unwrap_or([0, 5, 30][(seed / 2 % 3) as usize]);
        layout.told_lies = seed / 3 % 2 == 1;
        if self.engine.tells_sets() && (self.guesses || seed % 4 == 3) {
            layout.start = Some(Arc::new(start::guessed(&layout, &mut Rng::new(seed ^ 0x4157))));
        }
        if seed % 5 == 3 {
            layout.homes_max = (seed / 5 % 4) as i64;
        }
        layout.pushes = if layout.takes { None } else { [None, Some(1), Some(1), Some(2)][seed as usize / 2 % 4] };
        if self.lone || seed % 9 == 5 {
            layout.threads = 1;
        }
        if kind == Kind::Wavering {
            (layout.takes, layout.pushes) = (false, Some(1));
        }
        let layout = Arc::new(layout);
        let mut programs = Maker::make(kind, layout.nodes, layout.threads, layout.pages(), rng);
        if seed % 7 == 2 {
            program::waver(&mut programs, &mut Rng::new(seed));
        }
        if self.frees || seed % 8 == 6 {
            frees::append(&mut programs, &layout, &mut Rng::new(seed ^ 0xf4ee));
        }
        let datagram_bytes = if rng.below(4) == 0 { 512 } else { 1472 };
        let beyond_scope = (self.mixed || self.engine.is_scoped()) && !kind.is_scoped();
        let (faults, trace) = (self.faults, self.trace);
        let config = Config { seed, faults, datagram_bytes, trace, schedule: None, beyond_scope, races: false };
        let mut outcome = cluster::run(&layout, programs, &config);
        if self.trace {
            outcome.trace.insert(0, format!("{layout:?}"));
        }
        outcome
    }

    fn layout(&self, rng: &mut Rng) -> Layout {
        let nodes = rng.between(2, 4) as usize;
        let mut regions = Vec::new();
        let mut first = 0;
        while first < 6 || (first < 12 && rng.below(2) == 0) {
            let region = self.region(first, nodes, rng);
            first = region.range().end;
            regions.push((region, rng.below(4) != 0));
        }
        let notes = rng.below(2) == 0;
        Layout {
            nodes,
            threads: 2,
            engine: self.engine,
            regions,
            chunk_pages: [2, 4, 512][rng.below(3) as usize],
            memory: (self.notes_writes.unwrap_or(notes), rng.below(2) == 0),
            all_found: false,
            cache_pages: if rng.below(3) == 0 { rng.between(1, 5) as u32 } else { u32::MAX },
            homes_max: i64::MAX,
            ahead: PrefetchPlan {
                units: rng.between(1, 3) as usize,
                stride: [1, 1, -1, 2][rng.below(4) as usize],
                known: rng.between(1, 5) as usize,
                claims: false,
            },
            fetches_ahead: rng.below(2) == 0,
            takes: false,
            wants: false,
            tuning: Tuning { locks: schedule::quiet(false), ..eager() },
            closes_early: false,
            idles: false,
            forbids: false,
            compares: false,
            pushes: None,
            diffs_bytes: if rng.below(2) == 0 { 1 } else { 4096 },
            diffs_kept_max: i64::MAX,
            posts_arrivals: rng.below(2) == 0 || self.faults.is_some(),
            told_loss_percent: 0,
            told_lies: false,
            start: None,
        }
    }

    fn region(&self, first: u32, nodes: usize, rng: &mut Rng) -> Region {
        let unit_pages = [1, 1, 2, 4][rng.below(4) as usize];
        let homes = match rng.below(7) {
            0 => Homes::Block,
            1 => Homes::Cyclic(unit_pages),
            2 => Homes::On(NodeId(rng.below(nodes as u64) as u16)),
            3 => Homes::FirstTouch,
            4 => Homes::Claimed,
            _ => Homes::Automatic,
        };
        let pages = unit_pages * rng.between(1, 4) as u32;
        let engine = match self.mixed {
            true if self.engine.tells_sets() => {
                let others = [PageEngine::Lrc, PageEngine::Hlrc, PageEngine::Scope];
                others.get(rng.below(6) as usize).copied().unwrap_or(self.engine)
            }
            true if self.engine.keeps_diffs() => {
                [PageEngine::Lrc, PageEngine::Lrc, PageEngine::Hlrc, PageEngine::Scope][rng.below(4) as usize]
            }
            true if rng.below(2) == 0 => PageEngine::Hlrc,
            true => PageEngine::Scope,
            false => self.engine,
        };
        let (bytes, label) = (u64::from(pages) * 4096, String::new());
        Region { first, pages, bytes, unit: Unit::Pages(unit_pages), engine, homes, owner: None, cut_up: false, label }
    }
}
