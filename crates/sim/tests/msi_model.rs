//! Every state that two or three nodes can reach around one unit under `msi`.
//!
//! The number of states is asserted: when it changes, the protocol has changed, and somebody should have meant it.

use comem_sim::model::Access::{GiveBack, Read, Write};
use comem_sim::model::{Access, Action, Programs, State};
use stateright::{Checker, Model, Property};

struct Msi(Programs);

impl Model for Msi {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.0)]
    }
    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.actions(&self.0));
    }
    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(state.after(&self.0, &action))
    }
    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("coherent", |model: &Msi, state: &State| state.violation(&model.0).is_none()),
            Property::always("at rest in the end", |model: &Msi, state: &State| {
                !state.actions(&model.0).is_empty() || state.is_quiet()
            }),
            Property::always("forgotten units get no message", |_: &Msi, state: &State| {
                state.quiet_units_leave_nothing()
            }),
            Property::sometimes("finished", |model: &Msi, state: &State| state.is_finished(&model.0)),
        ]
    }
}

/// Checks every state, and that there are as many as there should be. Debug builds have more: there an invalidation's
/// confirmation carries a checksum of the copy.
fn check(programs: Vec<Vec<Vec<Access>>>, states: usize, states_with_checksums: usize) {
    let checker = Msi(Programs(programs)).checker().threads(2).spawn_bfs().join();
    for name in ["coherent", "at rest in the end", "forgotten units get no message"] {
        if let Some(path) = checker.discovery(name) {
            let model = checker.model();
            let last = path.last_state().clone();
            for (state, action) in path.into_vec() {
                eprintln!("{state:?}\n  -> {action:?}");
            }
            panic!("{name}: {:?}", last.violation(&model.0));
        }
    }
    checker.assert_any_discovery("finished");
    let expected = if cfg!(debug_assertions) { states_with_checksums } else { states };
    assert_eq!(checker.unique_state_count(), expected);
}

#[test]
fn two_nodes() {
    let each = vec![Read, Write, Read];
    check(vec![vec![each.clone()], vec![each]], 222, 225);
}

#[test]
fn two_nodes_with_two_threads_each() {
    check(vec![vec![vec![Read], vec![Write]], vec![vec![Read, Write], vec![Read, Read]]], 2362, 2410);
}

#[test]
fn three_nodes() {
    check(vec![vec![vec![Read, Write]], vec![vec![Read, Write]], vec![vec![Write, Read]]], 8869, 9480);
}

#[test]
fn three_nodes_two_of_them_with_two_threads() {
    check(vec![vec![vec![Write]], vec![vec![Read], vec![Read, Write]], vec![vec![Write], vec![Read]]], 112823, 122612);
}

#[test]
fn two_nodes_one_of_which_gives_its_copy_back() {
    let back = vec![Write, GiveBack, Read, GiveBack];
    check(vec![vec![vec![Read, Write]], vec![back]], 396, 400);
}

#[test]
fn a_node_with_two_threads_of_which_one_gives_the_copy_back() {
    let back = vec![vec![Read, Write], vec![GiveBack, Read]];
    check(vec![vec![vec![Write, Read]], back], 2167, 2200);
}

#[test]
fn three_nodes_two_of_which_give_their_copies_back() {
    check(vec![vec![vec![Read]], vec![vec![Write, GiveBack, Read]], vec![vec![Read, GiveBack, Write]]], 14397, 14474);
}
