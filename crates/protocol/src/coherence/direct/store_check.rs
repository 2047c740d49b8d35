//! The order of a checked store's steps, beside a thread of another node that revokes the unit.
//!
//! The compiler puts these steps around a store, or around the stores of a *strip*, which lie in several units:
//!
//! | step | what happens |
//! |---|---|
//! | 1 | publish the addresses: the *hazard* |
//! | 2 | load the entry of each unit, by plain loads |
//! | 3 | all are [`Entry::BIASED`]: store, and clear the hazard |
//! | 4 | else clear the hazard and make the unit exclusive, then start again at 1; or store by calls |
//!
//! Who revokes the unit locks its entry first, then makes a barrier on this thread's processor, then looks at the
//! hazard.
//! A thread that has loaded the entry before the barrier has published its hazard before it, and is waited for. One
//! that loads it later finds the entry locked.
//!
//! The hazard is cleared before the thread waits for anything. Whoever it waits for may wait for the hazard.

use super::entry::Entry;
use crate::rules::Rule;

/// Times that a strip's units are made exclusive before its stores are made one by one.
const ROUNDS_MAX: u8 = 2;

/// What the thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Publish the addresses of all stores.
    RaiseHazard,
    /// Load the entry of this unit of the strip and give it to [`StoreCheck::next`].
    Check(usize),
    /// Make all stores.
    Store,
    /// Clear the hazard.
    LowerHazard,
    /// Make this unit exclusive: a [`super::Miss`] that wants [`super::Want::Own`].
    Own(usize),
    /// Make the store to this unit by a [`super::Miss`] that wants [`super::Want::Store`].
    StoreByCall(usize),
    /// The stores are made.
    Finished,
}

/// A store, or the stores of a strip, under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StoreCheck {
    units: usize,
    rounds: u8,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Raise,
    Check(usize),
    Store,
    /// The stores are made, or will be made by call.
    Lower(After),
    Own(usize),
    ByCall(usize),
    /// The hazard has been kept for too long; only without the rule that forbids it.
    LowerLate,
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum After {
    Finished,
    Own(usize),
    ByCall,
}

impl StoreCheck {
    /// Stores to `units` different units, at least one.
    pub fn start(units: usize) -> StoreCheck {
        StoreCheck { units, rounds: 0, state: State::Raise }
    }

    /// The step to make now.
    pub fn step(&self) -> Step {
        match self.state {
            State::Raise => Step::RaiseHazard,
            State::Check(unit) => Step::Check(unit),
            State::Store => Step::Store,
            State::Lower(_) | State::LowerLate => Step::LowerHazard,
            State::Own(unit) => Step::Own(unit),
            State::ByCall(unit) => Step::StoreByCall(unit),
            State::Finished => Step::Finished,
        }
    }

    /// The step is made. `entry` is what a [`Step::Check`] has loaded.
    pub fn next(&mut self, entry: Option<Entry>) {
        self.state = match self.state {
            State::Raise if self.rounds > 0 && !Rule::HazardsRecheckedAfterMiss.on() => State::Store,
            State::Raise => State::Check(0),
            State::Check(unit) if entry == Some(Entry::BIASED) => self.after_check(unit),
            State::Check(unit) => self.missed(unit),
            State::Store => State::Lower(After::Finished),
            State::Lower(After::Finished) | State::LowerLate | State::Finished => State::Finished,
            State::Lower(After::Own(unit)) => State::Own(unit),
            State::Lower(After::ByCall) => State::ByCall(0),
            State::Own(_) => State::Raise,
            State::ByCall(unit) if unit + 1 < self.units => State::ByCall(unit + 1),
            State::ByCall(_) if Rule::HazardLoweredBeforeWaiting.on() => State::Finished,
            State::ByCall(_) => State::LowerLate,
        };
    }

    fn after_check(&self, unit: usize) -> State {
        if unit + 1 < self.units { State::Check(unit + 1) } else { State::Store }
    }

    /// The unit may not be stored to by a plain store.
    fn missed(&mut self, unit: usize) -> State {
        let after = if self.units > 1 && self.rounds < ROUNDS_MAX {
            self.rounds += 1;
            After::Own(unit)
        } else {
            After::ByCall
        };
        if Rule::HazardLoweredBeforeWaiting.on() {
            return State::Lower(after);
        }
        match after {
            After::Own(unit) => State::Own(unit),
            _ => State::ByCall(0),
        }
    }
}
