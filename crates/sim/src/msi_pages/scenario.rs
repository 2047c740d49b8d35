//! One seed, one run, one verdict.

use super::Paging;
use super::program::{Kind, Maker};
use crate::check;
use crate::check::litmus;
use crate::cluster::{self, Config, Outcome};
use crate::scenario::panicked;
use crate::tuning;
use comem_protocol::coherence::Engine;
use comem_protocol::faults::{FaultSpec, Rng};
use comem_protocol::tuning::Tuning;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rounds of a litmus program in one run.
const LITMUS_ROUNDS: usize = 8;

/// One seed in so many has a slow and even network, whatever the scenario says.
const EVEN_EVERY: u64 = 8;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The family; `None` lets the seed choose.
    pub kind: Option<Kind>,
    /// How many nodes; `None` lets the seed choose. Litmus programs bring their own number.
    pub nodes: Option<usize>,
    /// Threads in each; `None` lets the seed choose.
    pub threads: Option<usize>,
    /// `Some`: over the production link with these faults; `None`: over whole messages.
    pub faults: Option<FaultSpec>,
    /// Whether the network is slow, and takes nearly as long for whatever is sent.
    pub even: bool,
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
    /// Runs a seed. A panic counts as a failure.
    pub fn run(&self, seed: u64) -> Verdict {
        let mut rng = Rng::new(seed ^ 0x51a6_1e00);
        let kinds = Kind::all();
        let kind = self.kind.unwrap_or(kinds[rng.below(kinds.len() as u64) as usize]);
        let run = || self.run_kind(kind, seed, &mut rng);
        let (violations, outcome) = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| (vec![panicked(panic.as_ref())], Outcome::default()));
        Verdict { kind, violations, outcome }
    }

    fn run_kind(&self, kind: Kind, seed: u64, rng: &mut Rng) -> (Vec<String>, Outcome) {
        let damaged = self.faults.is_some_and(|f| f.damages());
        // Threads that loop until others have stored make a step each microsecond: long waits do not fit a run.
        let subjects: &[&str] = if kind == Kind::Spins { &["msi", "sync"] } else { &["msi", "link", "sync"] };
        let config = Config {
            faults: self.faults,
            // Without tags nobody can tell a damaged datagram.
            authenticate: rng.below(2) == 0 || damaged,
            datagram_bytes: if rng.below(4) == 0 { 512 } else { 1472 },
            requests_per_thread: if rng.below(2) == 0 { 2 } else { 64 },
            even: self.even || seed % EVEN_EVERY == 5,
            tuning: tuning::drawn_in_half(seed, subjects, Tuning::DEFAULT),
            trace: self.trace,
            ..Config::new(Engine::Msi, seed)
        };
        let tight = kind == Kind::Evictions || rng.below(3) == 0;
        let paging = Paging {
            page_elements: 1,
            reclaims: rng.below(2) == 0,
            units_max: if tight { rng.between(1, 3) as usize } else { usize::MAX },
            spare: rng.below(3) as usize,
            ahead: [0, 0, 1, 3][(seed / 2 % 4) as usize],
            seed,
        };
        match kind {
            Kind::Litmus(index) => litmus_run(&litmus::ALL[index], paging, config, rng),
            _ => self.stress_run(kind, paging, config, rng),
        }
    }

    fn stress_run(&self, kind: Kind, paging: Paging, config: Config, rng: &mut Rng) -> (Vec<String>, Outcome) {
        let nodes = self.nodes.unwrap_or_else(|| rng.between(2, 4) as usize);
        let threads = self.threads.unwrap_or_else(|| rng.between(1, 3) as usize);
        let (program, page_elements) = Maker::make(kind, nodes, threads, rng);
        let config = Config { paging: Some(Paging { page_elements, ..paging }), ..config };
        let outcome = cluster::run(&program, config);
        (check::all(Engine::Msi, &outcome), outcome)
    }
}

/// One variable in a unit, or some more than a round has, so that rounds share units.
fn litmus_run(litmus: &litmus::Litmus, paging: Paging, config: Config, rng: &mut Rng) -> (Vec<String>, Outcome) {
    let unit_elements = 1 + rng.below(2) as usize * litmus.variables;
    let page_elements = if rng.below(2) == 0 { 1 } else { unit_elements };
    let run = litmus.program(LITMUS_ROUNDS, unit_elements, rng);
    let config = Config { paging: Some(Paging { page_elements, ..paging }), ..config };
    let outcome = cluster::run(&run.program, config);
    let mut violations = check::all(Engine::Msi, &outcome);
    if outcome.failures.is_empty() {
        let allowed = litmus.allowed();
        let outcomes = litmus.outcomes(&run, &outcome.records).into_iter();
        let forbidden = outcomes.filter(|outcome| !allowed.contains(outcome));
        violations.extend(forbidden.map(|o| format!("{}: forbidden outcome {o:?}", litmus.name)));
    }
    (violations, outcome)
}
