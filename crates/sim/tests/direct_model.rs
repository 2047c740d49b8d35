//! Every state that two or three nodes can reach around a unit of two words under `direct`.
//!
//! The number of states is asserted: when it changes, the protocol has changed, and somebody should have meant it.

use comem_protocol::ids::NodeId;
use comem_sim::direct::program::Fabric;
use comem_sim::direct::{Access, Action, Setup, State};
use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;

struct Direct(Setup);

impl Model for Direct {
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
            Property::always("coherent", |model: &Direct, state: &State| state.violation(&model.0).is_none()),
            Property::sometimes("finished", |model: &Direct, state: &State| state.is_finished(&model.0)),
        ]
    }
}

const READ: Access = Access::Load { unit: 0, word: 0 };

fn write(value: u16) -> Access {
    Access::Store { unit: 0, word: 0, value }
}

fn threads(programs: &[(u16, &[Access])]) -> Vec<(NodeId, Vec<Access>)> {
    programs.iter().map(|(node, program)| (NodeId(*node), program.to_vec())).collect()
}

/// Checks every state, and that there are as many as there should be.
fn check(setup: Setup, states: usize) {
    let checker = Direct(setup).checker().threads(2).spawn_bfs().join();
    if let Some(path) = checker.discovery("coherent") {
        let model = checker.model();
        let last = path.last_state().clone();
        for (state, action) in path.into_vec() {
            eprintln!("{state:?}\n  -> {action:?}");
        }
        panic!("{:?}", last.violation(&model.0));
    }
    checker.assert_any_discovery("finished");
    assert_eq!(checker.unique_state_count(), states);
}

/// The loads' results that some order of all steps ends with.
fn outcomes(setup: Setup) -> BTreeSet<Vec<Vec<u16>>> {
    let mut seen = std::collections::HashSet::new();
    let mut todo = vec![State::new(&setup)];
    let mut outcomes = BTreeSet::new();
    while let Some(state) = todo.pop() {
        assert_eq!(state.violation(&setup), None);
        let actions = state.actions(&setup);
        if actions.is_empty() {
            outcomes.insert(state.loads());
        }
        let after = actions.into_iter().map(|action| state.after(&setup, action));
        todo.extend(after.filter(|state| seen.insert(state.clone())));
    }
    outcomes
}

#[test]
fn two_nodes_with_biased_units() {
    check(Setup::new(2, threads(&[(0, &[write(1), READ]), (1, &[write(2), READ])])), 870);
}

#[test]
fn two_nodes_with_locked_units() {
    let setup = Setup::new(2, threads(&[(0, &[write(1), READ]), (1, &[write(2), READ])]));
    check(Setup { has_barrier: false, ..setup }, 877);
}

#[test]
fn a_locked_unit_that_becomes_biased_again() {
    let programs: [(u16, &[Access]); 2] = [(0, &[write(1), write(2), write(3)]), (1, &[write(4), write(5), READ])];
    for (lines, states) in [(1, 8119), (2, 11261)] {
        let setup = Setup::new(2, threads(&programs));
        check(Setup { biases_again: true, lines, ..setup }, states);
    }
}

#[test]
fn two_nodes_over_a_network() {
    let setup = Setup::new(2, threads(&[(0, &[write(1), READ]), (1, &[write(2), READ])]));
    check(Setup { fabric: Fabric::Network, ..setup }, 885);
}

#[test]
fn two_nodes_whose_operations_are_emulated() {
    let setup = Setup::new(2, threads(&[(0, &[write(1), READ]), (1, &[write(2), READ])]));
    check(Setup { fabric: Fabric::Messages, ..setup }, 938);
}

#[test]
fn two_nodes_with_untouched_units_of_two_lines() {
    let other = Access::Store { unit: 0, word: 1, value: 2 };
    let setup = Setup::new(2, threads(&[(0, &[write(1)]), (1, &[other, READ])]));
    check(Setup { lines: 2, is_untouched: true, ..setup }, 839);
}

#[test]
fn three_nodes() {
    check(Setup::new(3, threads(&[(0, &[READ]), (1, &[write(1)]), (2, &[write(2)])])), 3492);
}

#[test]
fn three_nodes_over_a_network() {
    let setup = Setup::new(3, threads(&[(0, &[READ]), (1, &[write(1)]), (2, &[write(2)])]));
    check(Setup { fabric: Fabric::Network, ..setup }, 3680);
}

#[test]
fn three_nodes_that_read_and_write() {
    let programs: [(u16, &[Access]); 3] = [(0, &[write(1), READ]), (1, &[READ, write(2)]), (2, &[write(3), READ])];
    check(Setup::new(3, threads(&programs)), 55711);
}

#[test]
fn atomic_operations_of_three_nodes() {
    let add: &[Access] = &[Access::Add { unit: 0, word: 0 }, Access::Add { unit: 0, word: 1 }];
    check(Setup::new(3, threads(&[(0, add), (1, add), (2, add)])), 199678);
}

#[test]
fn strips_of_two_nodes() {
    let strip = |value| Access::Strip { stores: [(0, 0, value), (1, 1, value + 1)] };
    let (one, other): (&[Access], &[Access]) = (&[strip(1)], &[strip(3)]);
    let setup = two_units(&[(0, one), (1, other)]);
    check(Setup { biases_again: true, ..setup.clone() }, 17815);
    check(setup, 18781);
}

/// Two threads want both units, and lock them side by side.
#[test]
fn strips_and_copies_of_two_nodes_side_by_side() {
    let strip = |value| Access::Strip { stores: [(0, 0, value), (1, 1, value + 1)] };
    let bring = |units| Access::Bring { units };
    let (one, other): (&[Access], &[Access]) = (&[strip(1)], &[bring([1, 0]), READ]);
    for (fabric, states) in [(Fabric::Shared, 18547), (Fabric::Messages, 21947)] {
        let setup = two_units(&[(0, one), (1, other)]);
        check(Setup { has_groups: true, fabric, ..setup }, states);
    }
    let setup = two_units(&[(0, one), (1, &[strip(3)])]);
    check(Setup { has_groups: true, ..setup }, 132461);
}

#[test]
fn one_of_three_nodes_crashes_at_any_step() {
    let setup = Setup::new(3, threads(&[(0, &[write(1)]), (1, &[write(2)]), (2, &[READ])]));
    check(Setup { crash: Some(NodeId(1)), ..setup }, 10313);
}

#[test]
fn two_threads_of_a_node_and_one_of_another() {
    check(Setup::new(2, threads(&[(0, &[write(1)]), (1, &[write(2)]), (1, &[READ])])), 6593);
}

#[test]
fn one_of_two_nodes_crashes_at_any_step() {
    let setup = Setup::new(2, threads(&[(0, &[write(1), READ]), (1, &[write(2)])]));
    check(Setup { crash: Some(NodeId(1)), ..setup }, 973);
}

/// Two units with homes on different nodes.
fn two_units(programs: &[(u16, &[Access])]) -> Setup {
    Setup { homes: vec![NodeId(0), NodeId(1)], ..Setup::new(2, threads(programs)) }
}

fn load(unit: usize) -> Access {
    Access::Load { unit, word: 0 }
}
fn store(unit: usize) -> Access {
    Access::Store { unit, word: 0, value: 1 }
}
fn swap(unit: usize) -> Access {
    Access::Swap { unit, word: 0, value: 1 }
}

/// Plain stores pass the loads behind them between threads of one node, as on the processor itself.
#[test]
fn store_buffering_is_seen_within_a_node() {
    let seen = outcomes(two_units(&[(0, &[store(0), load(1)]), (0, &[store(1), load(0)])]));
    let all = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[a, b]| vec![vec![a], vec![b]]);
    assert_eq!(seen, BTreeSet::from(all));
}

/// Between nodes they do not: who loads what another node has stored revokes the unit, which brings the store to
/// memory.
#[test]
fn store_buffering_is_not_seen_between_nodes() {
    for (fabric, has_barrier) in [(Fabric::Shared, true), (Fabric::Network, true), (Fabric::Network, false)] {
        let setup = two_units(&[(0, &[store(0), load(1)]), (1, &[store(1), load(0)])]);
        let seen = outcomes(Setup { fabric, has_barrier, ..setup });
        assert_eq!(seen, BTreeSet::from([[0, 1], [1, 0], [1, 1]].map(|[a, b]| vec![vec![a], vec![b]])), "{fabric:?}");
    }
}

/// Atomic stores never do.
#[test]
fn store_buffering_is_not_seen_with_atomic_stores() {
    for node in [0, 1] {
        let seen = outcomes(two_units(&[(0, &[swap(0), load(1)]), (node, &[swap(1), load(0)])]));
        assert_eq!(seen, BTreeSet::from([[0, 1], [1, 0], [1, 1]].map(|[a, b]| vec![vec![a], vec![b]])));
    }
}

/// Stores are seen in their order, and loads are made in theirs.
#[test]
fn messages_are_passed_by_plain_stores() {
    for fabric in [Fabric::Shared, Fabric::Network] {
        let setup = two_units(&[(0, &[store(0), store(1)]), (1, &[load(1), load(0)])]);
        let seen = outcomes(Setup { fabric, ..setup });
        assert!(!seen.contains(&vec![vec![], vec![1, 0]]), "{fabric:?}: {seen:?}");
        assert!(seen.contains(&vec![vec![], vec![1, 1]]) && seen.contains(&vec![vec![], vec![0, 0]]), "{seen:?}");
    }
}

/// So they are within one unit.
#[test]
fn messages_are_passed_within_a_unit() {
    let word = |word| Access::Load { unit: 0, word };
    let set = |word| Access::Store { unit: 0, word, value: 1 };
    let seen = outcomes(Setup::new(2, threads(&[(0, &[set(0), set(1)]), (1, &[word(1), word(0)])])));
    assert!(!seen.contains(&vec![vec![], vec![1, 0]]), "{seen:?}");
    assert!(seen.contains(&vec![vec![], vec![0, 1]]), "{seen:?}");
}

/// Two nodes never disagree about the order of one word's values.
#[test]
fn a_words_values_have_one_order() {
    let setup = Setup::new(3, threads(&[(0, &[write(1)]), (1, &[READ, READ]), (2, &[READ])]));
    assert!(!outcomes(setup).iter().any(|loads| loads[1] == [1, 0]));
}
