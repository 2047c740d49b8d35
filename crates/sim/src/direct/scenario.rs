//! One seed, one run of random steps, one verdict.

use super::program::{Access, Fabric, MAGIC, Setup, WORDS};
use super::state::{Action, State};
use crate::scenario::panicked;
use comem_protocol::faults::Rng;
use comem_protocol::ids::NodeId;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps after which a run counts as one that never ends.
const STEPS_MAX: usize = 200_000;

/// A family of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Everything at once, on few units.
    #[default]
    Mixed,
    /// Atomic additions to one word.
    Counter,
    /// Strips over two units.
    Strips,
    /// The same, and copies of two units at a time, side by side.
    Groups,
}

impl Kind {
    /// Every family.
    pub const ALL: [Kind; 4] = [Kind::Mixed, Kind::Counter, Kind::Strips, Kind::Groups];
}

/// What to run; what is left open is chosen by the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scenario {
    /// The family.
    pub kind: Option<Kind>,
    /// How nodes reach each other.
    pub fabric: Option<Fabric>,
    /// How many nodes.
    pub nodes: Option<usize>,
    /// Lines of a unit.
    pub lines: Option<usize>,
    /// Whether units are untouched at first.
    pub is_untouched: Option<bool>,
    /// Whether one node crashes, and after how many steps of the run.
    pub crash_at: Option<usize>,
}

/// A run and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What is wrong, if anything.
    pub violation: Option<String>,
    /// Steps of the run.
    pub steps: usize,
}

impl Scenario {
    /// Runs a seed. A panic counts as a failure.
    pub fn run(&self, seed: u64) -> Verdict {
        catch_unwind(AssertUnwindSafe(|| self.run_to_its_end(seed)))
            .unwrap_or_else(|panic| Verdict { violation: Some(panicked(panic.as_ref())), steps: 0 })
    }

    /// The machine and program of a seed.
    pub fn setup(&self, rng: &mut Rng) -> Setup {
        let nodes = self.nodes.unwrap_or_else(|| if rng.below(8) == 0 { 12 } else { rng.between(2, 5) as usize });
        let kind = self.kind.unwrap_or(Kind::ALL[rng.below(3) as usize]);
        let units = if kind == Kind::Counter { 1 } else { rng.between(2, 3) as usize };
        let any_node = |rng: &mut Rng| NodeId(rng.below(nodes as u64) as u16);
        let homes = (0..units).map(|_| any_node(rng)).collect();
        let places: Vec<NodeId> = (0..rng.between(2, 5)).map(|_| any_node(rng)).collect();
        let mut values = 0;
        let threads = places.iter().map(|node| (*node, program(kind, units, &mut values, rng))).collect();
        let setup = Setup {
            fabric: self.fabric.unwrap_or(Fabric::ALL[rng.below(3) as usize]),
            nodes,
            homes,
            lines: self.lines.unwrap_or(rng.between(1, 2) as usize),
            has_barrier: rng.below(4) != 0,
            biases_again: false,
            has_groups: kind == Kind::Groups,
            is_untouched: self.is_untouched.unwrap_or(rng.below(2) == 0),
            crash: self.crash_at.map(|_| places[rng.below(places.len() as u64) as usize]),
            threads,
        };
        // In half of the runs, without a number of its own: the others' would change.
        Setup { biases_again: setup.has_barrier && values % 2 == 0, ..setup }
    }

    fn run_to_its_end(&self, seed: u64) -> Verdict {
        let mut rng = Rng::new(seed ^ 0xd1_4ec7);
        let setup = self.setup(&mut rng);
        // Some seeds leave stores in their buffers for long, others bring them to memory at once.
        let drains_of_8 = rng.between(1, 7);
        let mut state = State::new(&setup);
        for steps in 0..STEPS_MAX {
            if self.crash_at == Some(steps) && !state.is_finished(&setup) {
                state.act(&setup, Action::Crash);
            }
            if let Some(violation) = state.violation(&setup) {
                return Verdict { violation: Some(violation.to_string()), steps };
            }
            let mut actions = state.actions(&setup);
            actions.retain(|action| *action != Action::Crash);
            if actions.is_empty() {
                return Verdict { violation: wrong_end(&setup, &state, self.crash_at.is_some()), steps };
            }
            state.act(&setup, choose(&actions, drains_of_8, &mut rng));
        }
        Verdict { violation: Some(format!("no end after {STEPS_MAX} steps")), steps: STEPS_MAX }
    }
}

fn choose(actions: &[Action], drains_of_8: u64, rng: &mut Rng) -> Action {
    let is_step = |action: &Action| matches!(action, Action::Step(_));
    let wants_step = rng.below(8) >= drains_of_8;
    let fitting: Vec<Action> = actions.iter().copied().filter(|action| is_step(action) == wants_step).collect();
    let among = if fitting.is_empty() { actions } else { &fitting };
    among[rng.below(among.len() as u64) as usize]
}

/// What is wrong at the end of a run in which everything else was right.
fn wrong_end(setup: &Setup, state: &State, may_be_lost: bool) -> Option<String> {
    if !may_be_lost && !state.is_complete(setup) {
        return Some("a thread has given up, though no node is lost".to_string());
    }
    if may_be_lost {
        return None;
    }
    let accesses = || setup.threads.iter().flat_map(|(_, program)| program);
    let adds_only = accesses().all(|access| matches!(access, Access::Add { .. } | Access::Load { .. }));
    let adds = accesses().filter(|access| matches!(access, Access::Add { .. })).count();
    let total: usize = (0..WORDS).map(|word| usize::from(state.latest(0, word))).sum();
    (adds_only && setup.homes.len() == 1 && total != adds).then(|| format!("{adds} additions make {total}"))
}

fn program(kind: Kind, units: usize, values: &mut u16, rng: &mut Rng) -> Vec<Access> {
    let length = rng.between(2, 7);
    (0..length).map(|_| access(kind, units, values, rng)).collect()
}

fn access(kind: Kind, units: usize, values: &mut u16, rng: &mut Rng) -> Access {
    let (unit, word) = (rng.below(units as u64) as usize, rng.below(WORDS as u64) as usize);
    let mut value = || {
        *values += 1;
        *values
    };
    match (kind, rng.below(8)) {
        (Kind::Counter, 0..5) => Access::Add { unit, word },
        (Kind::Groups, 0 | 1) => Access::Bring { units: [unit, (unit + 1) % units] },
        (Kind::Strips, 0..5) | (Kind::Groups, 2..6) => {
            let other = (unit + 1) % units;
            Access::Strip { stores: [(unit, word, value()), (other, WORDS - 1 - word, value())] }
        }
        (Kind::Mixed, 0 | 1) => Access::Store { unit, word, value: value() },
        (Kind::Mixed, 2) => Access::Add { unit, word },
        (Kind::Mixed, 3) => Access::Swap { unit, word, value: value() },
        // A value that looks like an invalid one.
        (Kind::Mixed, 4) => Access::Store { unit, word, value: MAGIC },
        _ => Access::Load { unit, word },
    }
}
