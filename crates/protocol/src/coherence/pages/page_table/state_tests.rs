//! The table of transitions in the documentation of [`state`](super::state), read and walked.

use super::state::{CopyState, Detection, Fetch, Home, Memory, Private, Shared, Sharing, Target, UnitState, Writers};
use super::units::Unit;
use std::collections::BTreeSet;

/// Every state that there is.
fn every_state() -> Vec<UnitState> {
    let memory = [Memory::Unheard, Memory::None, Memory::Kept];
    let copies = [CopyState::Clean, CopyState::Dirty, CopyState::Untracked];
    let mut states = vec![UnitState::Unclaimed];
    states.extend(memory.map(UnitState::Invalid));
    states.extend(copies.map(UnitState::Stale));
    states.extend(copies.map(UnitState::Valid));
    let targets = memory.map(Target::Unmapped).into_iter().chain(memory.map(Target::Premapped));
    for into in targets.chain(copies.map(Target::Stale)) {
        for (cancelled, for_store) in [(false, false), (false, true), (true, false), (true, true)] {
            states.push(UnitState::Fetching(Fetch { into, cancelled, for_store }));
        }
    }
    let private = [Private::Unmapped, Private::Writable, Private::ProtectedAtBarrier, Private::ProtectedWithNeighbour];
    let mut sharings: Vec<Sharing> = private.map(Sharing::Private).to_vec();
    sharings.push(Sharing::Shared(Shared::Unmapped));
    for writes in [Detection::Protected, Detection::Assumed, Detection::Counted, Detection::Twin] {
        sharings.extend([false, true].map(|dirty| Sharing::Shared(Shared::Mapped { dirty, writes })));
    }
    for sharing in sharings {
        for offered in [false, true] {
            for writers in [Writers::Nobody, Writers::Home, Writers::Others, Writers::HomeThenOthers] {
                states.push(UnitState::Home(Home { sharing, offered, writers }));
            }
        }
    }
    states
}

/// What the table calls a state: all but what it says changes beside it.
fn name(state: UnitState) -> String {
    let copy = |copy| match copy {
        CopyState::Clean => "",
        CopyState::Dirty => " dirty",
        CopyState::Untracked => " untracked",
    };
    let memory = |memory| match memory {
        Memory::Unheard => " unheard",
        Memory::None => "",
        Memory::Kept => " memory",
    };
    match state {
        UnitState::Unclaimed => "Unclaimed".to_string(),
        UnitState::Invalid(m) => format!("Invalid{}", memory(m)),
        UnitState::Stale(c) => format!("Stale{}", copy(c)),
        UnitState::Valid(c) => format!("Valid{}", copy(c)),
        UnitState::Fetching(Fetch { into: Target::Unmapped(m), .. }) => format!("Fetching unmapped{}", memory(m)),
        UnitState::Fetching(Fetch { into: Target::Premapped(m), .. }) => format!("Fetching premapped{}", memory(m)),
        UnitState::Fetching(Fetch { into: Target::Stale(c), .. }) => format!("Fetching stale{}", copy(c)),
        UnitState::Home(Home { sharing: Sharing::Private(private), .. }) => match private {
            Private::Unmapped => "Home private unmapped",
            Private::Writable => "Home private writable",
            Private::ProtectedAtBarrier => "Home private protected",
            Private::ProtectedWithNeighbour => "Home private protected early",
        }
        .to_string(),
        UnitState::Home(Home { sharing: Sharing::Shared(Shared::Unmapped), .. }) => "Home shared unmapped".to_string(),
        UnitState::Home(Home { sharing: Sharing::Shared(Shared::Mapped { dirty, writes }), .. }) => {
            let writes = match writes {
                Detection::Protected => "protected",
                Detection::Assumed => "assumed",
                Detection::Counted => "counted",
                Detection::Twin => "twin",
            };
            format!("Home shared {} {writes}", if dirty { "dirty" } else { "clean" })
        }
    }
}

/// An event: whether it applies, where its method says so.
type Event = fn(&mut UnitState) -> Option<bool>;

/// The events, as the table calls them.
fn events() -> [(&'static str, Event); 18] {
    [
        ("a first touch makes this node the home", |s| Some(s.settle(true, true))),
        ("a first touch makes another node the home", |s| Some(s.settle(false, true))),
        ("a fetch begins", |s| Some(s.begin_fetch(false))),
        ("its reader maps it before it comes", |s| Some(s.premap())),
        ("the premapping ends", |s| Some(s.end_premap())),
        ("a copy comes, and lacks diffs", |s| {
            s.begin_copy();
            None
        }),
        ("the bytes come", |s| Some(s.arrive())),
        ("the fetch ends without them", |s| Some(s.end_fetch())),
        ("a write is found", |s| {
            s.set_dirty(true);
            None
        }),
        ("what was written has left", |s| {
            s.set_dirty(false);
            None
        }),
        ("it is idle", |s| Some(s.untrack())),
        ("it is touched again", |s| Some(s.touch())),
        ("another node wrote it, and a barrier fetches it again", |s| Some(s.make_stale())),
        ("the copy ends", |s| Some(s.end_copy())),
        ("its memory is given back", |s| Some(s.give_back())),
        ("another node copies it", |s| {
            s.home_mut().into_iter().for_each(|home| home.share(Detection::Protected));
            None
        }),
        ("the region is freed", |s| {
            s.forget();
            None
        }),
        ("nobody has a copy any more", |s| {
            s.home_mut().into_iter().filter(|home| home.is_shared()).for_each(|home| home.unshare(true));
            None
        }),
    ]
}

/// A row of the table: event, state and next state.
type Row = [String; 3];

fn table() -> Vec<Row> {
    let (mut rows, mut event) = (Vec::new(), String::new());
    let source = include_str!("state.rs");
    let lines = source.lines().skip_while(|line| !line.starts_with("//! | event | state | next |")).skip(2);
    for line in lines.map_while(|line| line.strip_prefix("//! |")) {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        if !cells[0].is_empty() {
            event = cells[0].to_string();
        }
        rows.push([event.clone(), cells[1].to_string(), cells[2].to_string()]);
    }
    rows
}

/// The state after an event, as a row says; `None` where the row is of another event or state.
fn next(row: &Row, event: &str, state: &str) -> Option<String> {
    let [of, from, to] = row;
    let rest = match from.strip_suffix('…') {
        Some(begin) => state.strip_prefix(begin).filter(|rest| rest.is_empty() || rest.starts_with(' '))?,
        None => (state == from).then_some("")?,
    };
    (of == event).then(|| to.replace('…', rest))
}

#[test]
fn the_table_of_transitions_is_true() {
    let (table, mut met) = (table(), BTreeSet::new());
    assert!(table.len() > 40, "{} rows", table.len());
    for (event, apply) in events() {
        for state in every_state() {
            let mut after = state;
            let applies = apply(&mut after);
            let rows: Vec<_> = table.iter().filter_map(|row| Some((row, next(row, event, &name(state))?))).collect();
            assert!(rows.len() < 2, "{event:?} in {state:?} is in several rows");
            match rows.first() {
                Some((row, expected)) => {
                    assert_eq!(&name(after), expected, "{event:?} in {state:?}");
                    assert_ne!(applies, Some(false), "{event:?} in {state:?} is refused");
                    met.insert(*row);
                }
                None => {
                    assert_eq!(after, state, "{event:?} is in no row for {:?}", name(state));
                    assert_ne!(applies, Some(true), "{event:?} in {state:?} is in no row");
                }
            }
        }
    }
    let unmet: Vec<_> = table.iter().filter(|row| !met.contains(row)).collect();
    assert!(unmet.is_empty(), "rows of no event or state: {unmet:?}");
}

#[test]
fn what_is_said_of_a_state_agrees_with_itself() {
    for state in every_state() {
        let kinds = [state.is_home(), state.is_valid(), state.is_absent(), state.is_fetching()];
        let unclaimed = state == UnitState::Unclaimed;
        assert_eq!(kinds.into_iter().filter(|is| *is).count(), usize::from(!unclaimed), "{state:?}");
        assert!(!state.is_dirty() || state.is_tracked() || state.stale().is_some(), "{state:?} is dirty unseen");
        assert!(!(state.has_memory() && (state.is_unheard() || state.is_home())), "{state:?}");
        assert!(!state.may_be_untracked() || state.is_tracked() && !state.is_dirty(), "{state:?}");
        assert!(!state.is_assumed_dirty() || state.is_shared() && state.is_mapped_home(), "{state:?}");
        let mut forgotten = state;
        forgotten.forget();
        assert!(!forgotten.is_tracked() && !forgotten.has_memory() && !forgotten.is_offered(), "{state:?}");
        assert_eq!(forgotten.is_home(), state.is_home());
        assert_eq!(forgotten.is_fetching(), state.is_fetching());
    }
}

#[test]
fn a_fetch_that_ends_is_no_longer_cancelled_nor_for_a_store() {
    for state in every_state().into_iter().filter(UnitState::is_fetching) {
        let mut again = state;
        again.end_fetch();
        assert!(again.begin_fetch(false));
        let fetch = again.fetch().map(|fetch| (fetch.cancelled, fetch.for_store));
        assert_eq!(fetch, Some((false, false)), "{state:?}");
    }
}

#[test]
fn who_wrote_a_home_page() {
    let all = [Writers::Nobody, Writers::Home, Writers::Others, Writers::HomeThenOthers];
    for before in all {
        let (mut written, mut told) = (before, before);
        written.others_write();
        told.home_tells();
        let said = |writers: Writers| (writers.home_wrote_last_epoch(), writers.others_wrote());
        assert_eq!(said(written), (said(before).0, true), "after {before:?}");
        assert_eq!(said(told), (said(before).0, false), "after {before:?}");
    }
}

#[test]
fn a_unit_takes_no_more_memory_than_its_flags_did() {
    assert_eq!(size_of::<UnitState>(), 5);
    assert!(size_of::<Unit>() <= 12, "{} bytes", size_of::<Unit>());
}
