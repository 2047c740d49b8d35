//! What litmus programs show under each engine: the outcomes that were seen, those that it allows, and those that it
//! forbids.

use crate::check::litmus::weak::{self, Model};
use crate::check::litmus::{Access, Litmus, Reads};
use crate::cluster;
use crate::diagram::Event;
use crate::pages::cluster::{self as paged, Config};
use crate::pages::layout::{Layout, eager};
use crate::pages::memory::PAGE_WORDS;
use crate::pages::program::{Op, Programs};
use crate::scenario::panicked;
use comem_protocol::coherence;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::page_table::PrefetchPlan;
use comem_protocol::coherence::pages::region::{Homes, Region, Unit};
use comem_protocol::faults::Rng;
use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_protocol::tuning::Tuning;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rounds of a program over shared objects in one run.
const ROUNDS: usize = 8;
/// A table shows all outcomes that there could be, if they are no more than this; else those that were seen.
const ROWS_MAX: usize = 36;

/// An engine, of objects or of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// An engine of shared objects.
    Objects(coherence::Engine),
    /// An engine of shared pages, other than `msi`.
    Pages(PageEngine),
}

impl Engine {
    /// All of them. Pages under `msi` show what objects under it do.
    pub const ALL: [Engine; 5] = [
        Engine::Objects(coherence::Engine::Owner),
        Engine::Objects(coherence::Engine::Broadcast),
        Engine::Objects(coherence::Engine::Msi),
        Engine::Pages(PageEngine::Hlrc),
        Engine::Pages(PageEngine::Scope),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Objects(engine) => engine.name(),
            Engine::Pages(engine) => engine.name(),
        }
    }

    /// The engine with this name; one of pages need not be listed.
    pub fn from_name(name: &str) -> Option<Engine> {
        let of_pages = || name.parse().ok().filter(|engine: &PageEngine| engine.has_several_writers());
        Engine::ALL.into_iter().find(|engine| engine.name() == name).or_else(|| of_pages().map(Engine::Pages))
    }

    /// The outcomes that it allows; `None` where it promises nothing.
    pub fn allowed(self, litmus: &Litmus) -> Option<BTreeSet<Reads>> {
        match self {
            Engine::Objects(coherence::Engine::Broadcast) => None,
            Engine::Objects(_) => Some(litmus.allowed()),
            Engine::Pages(engine) if engine.is_scoped() => Some(weak::allowed(litmus, Model::Scope)),
            Engine::Pages(_) => Some(weak::allowed(litmus, Model::Release)),
        }
    }
}

/// One run of a program.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The outcome of each of its rounds.
    pub outcomes: Vec<Reads>,
    /// What a diagram shows, if that was asked for.
    pub events: Vec<Event>,
    /// Which variable each word or element is.
    pub places: BTreeMap<usize, usize>,
    /// On which node each thread ran.
    pub nodes: Vec<usize>,
}

/// Runs a program once; with `shown`, in a single round whose events are kept.
///
/// # Errors
/// What went wrong in the run itself.
pub fn run(litmus: &Litmus, engine: Engine, seed: u64, shown: bool) -> Result<Run, String> {
    let go = || match engine {
        Engine::Objects(engine) => run_objects(litmus, engine, seed, shown),
        Engine::Pages(engine) => run_pages(litmus, engine, seed, shown),
    };
    catch_unwind(AssertUnwindSafe(go)).unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

fn run_objects(litmus: &Litmus, engine: coherence::Engine, seed: u64, shown: bool) -> Result<Run, String> {
    let mut rng = Rng::new(seed ^ 0x0b1e_c700);
    let unit_elements = 1 + rng.below(2) as usize * litmus.variables;
    let rounds = if shown { 1 } else { ROUNDS };
    let prepared = litmus.program(rounds, unit_elements, &mut rng);
    let config = cluster::Config { trace: shown, ..cluster::Config::new(engine, seed) };
    let outcome = cluster::run(&prepared.program, config);
    if let Some(failure) = outcome.failures.first() {
        return Err(failure.clone());
    }
    Ok(Run {
        outcomes: litmus.outcomes(&prepared, &outcome.records),
        events: outcome.events,
        places: (0..rounds * litmus.variables).map(|element| (element, element % litmus.variables)).collect(),
        nodes: prepared.nodes_of_last_round(),
    })
}

fn run_pages(litmus: &Litmus, engine: PageEngine, seed: u64, shown: bool) -> Result<Run, String> {
    let mut rng = Rng::new(seed ^ 0x9a6e_c700);
    let threads = litmus.threads.len();
    // Each variable on a page of its own, or several on one.
    let apart = litmus.variables > PAGE_WORDS || rng.below(2) == 0;
    let word = |variable: usize| if apart { variable * PAGE_WORDS } else { variable };
    let pages = if apart { litmus.variables } else { 1 };
    let mut nodes: Vec<usize> = (0..threads).collect();
    nodes.rotate_left(rng.below(threads as u64) as usize);
    let (mut programs, mut warm): (Programs, Vec<usize>) = (vec![vec![Vec::new()]; threads], vec![0; threads]);
    let pause = [20_000, 100_000, 300_000][rng.below(3) as usize];
    for (thread, node) in nodes.iter().enumerate() {
        let program = &mut programs[*node][0];
        // Copies that the program may find stale.
        let read: Vec<usize> = (0..litmus.variables).filter(|_| rng.below(2) == 0).collect();
        program.extend(read.iter().map(|variable| Op::Read(word(*variable))));
        warm[thread] = read.len();
        program.extend([Op::Barrier, Op::Think(rng.below(pause))]);
        for step in &litmus.threads[thread] {
            if rng.below(2) == 0 {
                program.push(Op::Think(rng.below(pause)));
            }
            program.push(match *step {
                Access::R(variable) => Op::Read(word(variable)),
                Access::W(variable, value) => Op::Write(word(variable), value),
                Access::Lock(lock) => Op::Lock(LockId(lock as u64)),
                Access::Unlock(lock) => Op::Unlock(LockId(lock as u64)),
                Access::Set(flag) => Op::Set(FlagId(flag as u64), 1),
                Access::Wait(flag) => Op::Await(FlagId(flag as u64), 1),
                Access::Barrier => Op::Barrier,
            });
        }
        if litmus.finally {
            program.push(Op::Barrier);
            program.extend((0..litmus.variables).map(|variable| Op::Read(word(variable))));
        }
    }
    let layout = Arc::new(layout(threads, pages as u32, engine, &mut rng));
    let config = Config {
        seed,
        faults: None,
        datagram_bytes: 1472,
        trace: shown,
        schedule: None,
        beyond_scope: false,
        races: true,
    };
    let outcome = paged::run(&layout, programs, &config);
    if let Some(violation) = outcome.violations.first() {
        return Err(violation.clone());
    }
    let of_thread = |(thread, node): (usize, &usize)| {
        outcome.loads[*node].iter().skip(warm[thread]).map(|(_, value)| *value).collect::<Vec<u64>>()
    };
    Ok(Run {
        outcomes: vec![nodes.iter().enumerate().flat_map(of_thread).collect()],
        events: outcome.events,
        places: (0..litmus.variables).map(|variable| (word(variable), variable)).collect(),
        nodes,
    })
}

fn layout(nodes: usize, pages: u32, engine: PageEngine, rng: &mut Rng) -> Layout {
    let homes = match rng.below(3) {
        0 => Homes::Cyclic(1),
        1 => Homes::Automatic,
        _ => Homes::On(NodeId(rng.below(nodes as u64) as u16)),
    };
    let bytes = u64::from(pages) * 4096;
    let region = Region {
        first: 0,
        pages,
        bytes,
        unit: Unit::Pages(1),
        engine,
        homes,
        owner: None,
        cut_up: false,
        label: String::new(),
    };
    Layout {
        nodes,
        threads: 1,
        engine,
        regions: vec![(region, rng.below(4) != 0)],
        chunk_pages: 512,
        memory: (rng.below(2) == 0, false),
        all_found: false,
        cache_pages: u32::MAX,
        homes_max: i64::MAX,
        ahead: PrefetchPlan { units: 1, stride: 1, known: 1, claims: false },
        fetches_ahead: false,
        takes: false,
        wants: false,
        tuning: Tuning { locks: crate::schedule::quiet(false), ..eager() },
        closes_early: true,
        idles: false,
        forbids: false,
        compares: false,
        pushes: None,
        diffs_bytes: 4096,
        diffs_kept_max: i64::MAX,
        posts_arrivals: true,
        told_loss_percent: 0,
        told_lies: false,
        start: None,
    }
}

/// What a program has shown under an engine.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The engine.
    pub engine: Engine,
    /// How often each outcome was seen.
    pub seen: BTreeMap<Reads, u64>,
    /// The outcomes that it allows; `None`: it promises nothing.
    pub allowed: Option<BTreeSet<Reads>>,
}

impl Tally {
    /// Runs a program with all these seeds.
    ///
    /// # Errors
    /// The first seed whose run failed, and why.
    pub fn of(litmus: &Litmus, engine: Engine, seeds: Range<u64>) -> Result<Tally, String> {
        let mut seen = BTreeMap::new();
        for seed in seeds {
            let run = run(litmus, engine, seed, false);
            let run = run.map_err(|why| format!("{} under {}, seed {seed:#x}: {why}", litmus.name, engine.name()))?;
            run.outcomes.into_iter().for_each(|outcome| *seen.entry(outcome).or_default() += 1);
        }
        Ok(Tally { engine, seen, allowed: engine.allowed(litmus) })
    }

    /// Whether the engine allows an outcome.
    pub fn allows(&self, outcome: &Reads) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(outcome))
    }

    /// Outcomes that were seen although the engine forbids them.
    pub fn forbidden(&self) -> Vec<&Reads> {
        self.seen.keys().filter(|outcome| !self.allows(outcome)).collect()
    }

    fn cell(&self, outcome: &Reads) -> String {
        match (self.seen.get(outcome).copied().unwrap_or(0), self.allows(outcome)) {
            (0, true) => "-".to_string(),
            (0, false) => "forbidden".to_string(),
            (count, true) => count.to_string(),
            (count, false) => format!("{count} WRONG"),
        }
    }
}

/// The table of a program: a row for each outcome, and for each engine how often it was seen.
pub fn table(litmus: &Litmus, tallies: &[Tally]) -> String {
    let sequential = litmus.allowed();
    let mut head: Vec<String> =
        (litmus.loads().iter()).map(|(thread, variable)| format!("{}:{}", thread, litmus.names[*variable])).collect();
    head.push("sequential".to_string());
    head.extend(tallies.iter().map(|tally| tally.engine.name().to_string()));
    let mut rows = vec![head];
    let (outcomes, all) = outcomes(litmus, tallies);
    for outcome in &outcomes {
        let mut row: Vec<String> = outcome.iter().map(u64::to_string).collect();
        row.push(if sequential.contains(outcome) { "yes" } else { "no" }.to_string());
        row.extend(tallies.iter().map(|tally| tally.cell(outcome)));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = format!("{}:  {}\n\n", litmus.name, litmus.text);
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        text += &format!("  {}\n", cells.join("  "));
    }
    if !all {
        text += "  (Outcomes that were never seen are left out.)\n";
    }
    text
}

/// The outcomes to show, and whether they are all that there could be.
fn outcomes(litmus: &Litmus, tallies: &[Tally]) -> (BTreeSet<Reads>, bool) {
    let seen = tallies.iter().flat_map(|tally| tally.seen.keys().cloned());
    let values: Vec<BTreeSet<u64>> = litmus.loads().iter().map(|(_, variable)| litmus.values(*variable)).collect();
    if values.iter().map(BTreeSet::len).try_fold(1usize, usize::checked_mul).is_none_or(|all| all > ROWS_MAX) {
        return (seen.collect(), false);
    }
    let mut all: Vec<Reads> = vec![Reads::new()];
    for values in &values {
        let longer = |reads: &Reads, value: u64| reads.iter().copied().chain([value]).collect();
        all = all.iter().flat_map(|reads| values.iter().map(move |value| longer(reads, *value))).collect();
    }
    (all.into_iter().chain(seen).collect(), true)
}

/// What the columns and the cells mean.
pub const LEGEND: &str = "\
1:x is what thread 1 loads from x. sequential: whether some interleaving of the threads gives this outcome.
Under each engine stands how often it was seen; `-`: allowed, and never seen; `forbidden`: the engine does not allow it.
owner and msi promise sequential consistency, hlrc release consistency, scope scope consistency, broadcast nothing.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::litmus::{ALL, SYNCHRONISED};

    fn engine(name: &str) -> Engine {
        Engine::from_name(name).unwrap()
    }

    fn seen(name: &str, under: &str, seeds: u64) -> Tally {
        Tally::of(&Litmus::named(name).unwrap(), engine(under), 0..seeds).unwrap()
    }

    #[test]
    fn no_engine_shows_what_it_forbids() {
        for litmus in ALL.iter().chain(SYNCHRONISED.iter()) {
            for engine in Engine::ALL {
                let tally = Tally::of(litmus, engine, 0..100).unwrap();
                assert!(tally.forbidden().is_empty(), "{}: {tally:?}", litmus.name);
                assert!(!tally.seen.is_empty());
            }
        }
    }

    #[test]
    fn store_buffering_is_seen_under_hlrc_and_not_under_msi() {
        assert!(seen("SB", "hlrc", 100).seen.contains_key(&vec![0, 0]));
        assert!(!seen("SB", "msi", 100).seen.contains_key(&vec![0, 0]));
        assert!(seen("MP", "hlrc", 300).seen.contains_key(&vec![1, 0]), "a sign that comes before what it tells of");
    }

    #[test]
    fn what_a_second_lock_tells_of_is_the_difference_between_hlrc_and_scope() {
        for (name, outcome) in [("MP+publish", vec![1, 0]), ("WRC+locks", vec![1, 1, 0])] {
            assert!(seen(name, "scope", 3000).seen.contains_key(&outcome), "{name} under scope");
            let under_hlrc = seen(name, "hlrc", 300);
            assert!(!under_hlrc.seen.contains_key(&outcome) && !under_hlrc.allows(&outcome), "{name} under hlrc");
        }
    }

    #[test]
    fn the_table_tells_seen_from_allowed_and_forbidden() {
        let litmus = Litmus::named("SB").unwrap();
        let tally = |name: &str, seen: &[(&[u64], u64)]| Tally {
            engine: engine(name),
            seen: seen.iter().map(|(outcome, count)| (outcome.to_vec(), *count)).collect(),
            allowed: engine(name).allowed(&litmus),
        };
        let text = table(&litmus, &[tally("msi", &[(&[0, 1], 7), (&[1, 1], 2)]), tally("hlrc", &[(&[0, 0], 9)])]);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["0:y", "1:x", "sequential", "msi", "hlrc"]);
        assert_eq!(rows[1], ["0", "0", "no", "forbidden", "9"]);
        assert_eq!(rows[2], ["0", "1", "yes", "7", "-"]);
        assert!(table(&litmus, &[tally("owner", &[(&[0, 0], 1)])]).contains("1 WRONG"));
    }

    #[test]
    fn a_run_that_is_shown_has_events_of_every_node() {
        for engine in Engine::ALL {
            let run = run(&Litmus::named("SB").unwrap(), engine, 1, true).unwrap();
            let on = |wanted: u16| run.events.iter().any(|e| matches!(e, Event::Step { node, .. } if node.0 == wanted));
            assert!(on(0) && on(1) && run.outcomes.len() == 1, "{engine:?}: {run:?}");
            let messages = run.events.iter().filter(|event| matches!(event, Event::Message { .. })).count();
            assert!(messages > 0, "{engine:?}");
        }
    }
}
