//! Arrivals at barriers as words: seeds, every order of small jobs, and the rules of which none is superfluous.

use comem_protocol::rules::{Rule, without};
use comem_sim::arrivals::words::{Action, Programs, State};
use comem_sim::arrivals::{Setup, run, run_job, setup};
use stateright::{Checker, Model, Property};

const SEEDS: u64 = 20_000;
const SEEDS_MAX: u64 = 20_000;

/// The programs, and the node that may crash.
struct Words(Programs, Option<usize>);

impl Model for Words {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.0)]
    }
    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.actions(&self.0, self.1));
    }
    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(state.after(&self.0, self.1, action))
    }
    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("right", |model: &Words, state: &State| state.violation(&model.0).is_none()),
            Property::sometimes("finished", |model: &Words, state: &State| state.is_finished(&model.0)),
        ]
    }
}

/// Checks every state, and that there are as many as there should be.
fn check(programs: &[&[u8]], crash: Option<usize>, states: usize) {
    let programs = programs.iter().map(|program| program.to_vec()).collect();
    let checker = Words(programs, crash).checker().threads(2).spawn_bfs().join();
    if let Some(path) = checker.discovery("right") {
        panic!("{:?}\n{path:#?}", path.last_state().violation(&checker.model().0));
    }
    checker.assert_any_discovery("finished");
    assert_eq!(checker.unique_state_count(), states);
}

#[test]
fn every_order_of_two_nodes_that_pass_three_barriers() {
    check(&[&[1; 3], &[1; 3]], None, 4_061);
}

#[test]
fn every_order_of_three_nodes() {
    check(&[&[1], &[1], &[1]], None, 7_679);
    check(&[&[1; 2], &[1; 2], &[1; 2]], None, 221_091);
}

#[test]
fn every_order_of_calls_that_carry_something_between_others() {
    check(&[&[1, 0, 1], &[1, 0, 1]], None, 1_176);
}

#[test]
fn every_order_of_calls_that_do_not_go_together() {
    check(&[&[1, 5], &[1, 1]], None, 1_439);
    check(&[&[1], &[1], &[0]], None, 4_236);
}

#[test]
fn no_barrier_opens_without_a_node_that_has_crashed() {
    check(&[&[1; 2], &[1; 2]], Some(0), 2_860);
}

#[test]
fn seeds() {
    let wrong: Vec<_> = (0..SEEDS).filter_map(|seed| Some((seed, run(seed)?))).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn no_rule_of_arrivals_is_superfluous() {
    let missed = |rule| without(rule, || (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed)?))));
    let found: Vec<_> = Rule::ARRIVALS.into_iter().map(|rule| (rule, missed(rule))).collect();
    println!("{found:#?}");
    assert!(found.iter().all(|(_, seed)| seed.is_some()), "{found:#?}");
    // The same seeds pass with all rules.
    let wrong = found.iter().find_map(|(rule, seed)| run(seed.map_or(0, |(seed, _)| seed)).map(|what| (rule, what)));
    assert_eq!(wrong, None);
}

/// Messages may open the barrier as soon as the mutex is released. Then the node's other thread comes to the next, and
/// its word must not be followed by the older one.
#[test]
fn words_are_stored_while_the_barriers_mutex_is_locked() {
    let missed = |seed| run_job(seed, &Setup { stores_in_order: false, ..setup(seed) });
    assert!((0..SEEDS_MAX).any(|seed| missed(seed).is_some()));
}
