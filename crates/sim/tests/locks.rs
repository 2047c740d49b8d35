//! One-sided locks: seeds, every order of small jobs, and the rules of which none is superfluous.

use comem_protocol::ids::NodeId;
use comem_protocol::rules::{Rule, without};
use comem_protocol::tuning::LockTuning;
use comem_sim::locks::{Act, Action, Setup, State, run};
use stateright::{Checker, Model, Property};

const SEEDS: u64 = 3_000;
const SEEDS_MAX: u64 = 5_000;

struct Locks(Setup);

impl Model for Locks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.0)]
    }
    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.actions(&self.0));
    }
    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(state.after(&self.0, action))
    }
    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("right", |model: &Locks, state: &State| state.violation(&model.0).is_none()),
            Property::always("free in the end", |model: &Locks, state: &State| {
                model.0.crash.is_some() || !state.is_finished(&model.0) || state.is_at_rest()
            }),
            Property::sometimes("finished", |model: &Locks, state: &State| state.is_finished(&model.0)),
        ]
    }
}

/// Checks every state, and that there are as many as there should be.
fn check(programs: &[&[Act]], crash: Option<usize>, states: usize) {
    assert_eq!(states_of(programs, crash, false), states);
}

/// Checks every state, also where operations are `far`; how many states there are.
fn states_of(programs: &[&[Act]], crash: Option<usize>, far: bool) -> usize {
    let threads = programs.iter().enumerate().map(|(node, program)| (NodeId(node as u16), program.to_vec())).collect();
    let setup = Setup { threads, places: 4, crash, far, tuning: LockTuning::DEFAULT };
    let checker = Locks(setup).checker().threads(2).spawn_bfs().join();
    for name in ["right", "free in the end"] {
        if let Some(path) = checker.discovery(name) {
            let violation = path.last_state().violation(&checker.model().0);
            panic!("{name}: {violation:?}\n{path:#?}");
        }
    }
    checker.assert_any_discovery("finished");
    checker.unique_state_count()
}

const ONCE: &[Act] = &[Act::Section(0)];
const TWICE: &[Act] = &[Act::Section(0), Act::Section(0)];

#[test]
fn every_order_of_two_threads_that_take_a_lock_three_times() {
    check(&[&[Act::Section(0); 3], &[Act::Section(0); 3]], None, 3_927);
}

#[test]
fn every_order_of_three_threads() {
    check(&[TWICE, TWICE, ONCE], None, 61_545);
}

#[test]
fn every_order_of_tries_and_of_two_locks_with_one_place_between_them() {
    check(&[&[Act::Nested(0, 3)], &[Act::Section(3), Act::Try(0)], &[Act::Try(3)]], None, 9_363);
}

#[test]
fn who_waits_hears_of_a_loss_wherever_the_holder_was() {
    check(&[TWICE, TWICE, ONCE], Some(0), 137_126);
}

#[test]
fn every_order_of_operations_that_take_time() {
    let states = [
        states_of(&[TWICE, TWICE], None, true),
        states_of(&[ONCE, ONCE, ONCE], None, true),
        states_of(&[&[Act::Nested(0, 3)], &[Act::Try(3)]], None, true),
        states_of(&[TWICE, ONCE], Some(0), true),
    ];
    assert_eq!(states, [8_764, 140_605, 1_115, 4_888]);
}

#[test]
fn seeds() {
    for far in [false, true] {
        let wrong: Vec<_> = (0..SEEDS).filter_map(|seed| Some((seed, run(seed, far)?))).take(5).collect();
        assert!(wrong.is_empty(), "far: {far}, {wrong:?}");
    }
}

/// Each rule is missed by some seed, which passes with all rules.
fn needs(rules: &[Rule], far: bool) {
    let missed = |rule| without(rule, || (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed, far)?))));
    let found: Vec<_> = rules.iter().map(|rule| (rule, missed(*rule))).collect();
    println!("{found:#?}");
    assert!(found.iter().all(|(_, seed)| seed.is_some()), "{found:#?}");
    let wrong =
        found.iter().find_map(|(rule, seed)| run(seed.map_or(0, |(seed, _)| seed), far).map(|what| (rule, what)));
    assert_eq!(wrong, None);
}

#[test]
fn no_rule_of_one_sided_locks_is_superfluous() {
    needs(&Rule::ONE_SIDED_LOCKS, false);
}

/// The other rules are about sleepers that somebody wakes.
#[test]
fn no_rule_is_superfluous_where_nobody_is_woken() {
    let rules = [Rule::HeldLocksAreNotTaken, Rule::BypassesEnd, Rule::ReleasesKeepTheQueue, Rule::NamesStay];
    needs(&rules, true);
}
