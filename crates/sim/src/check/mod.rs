//! The checkers: what no run may show, whatever its seed.
//!
//! | checker | finds |
//! |---|---|
//! | [`location`] | an element whose reads and writes fit no order, or not the order in which they ended and began |
//! | [`sync`] | critical sections side by side, barriers left early, flags up too soon, messages lost or doubled |
//! | [`litmus`] | outcomes that no interleaving of a program has |
//!
//! That every operation ends is checked by the run itself ([`crate::cluster`]).

pub mod litmus;
pub mod location;
pub mod sync;

use crate::cluster::Outcome;
use comem_protocol::coherence::Engine;

/// Everything that is wrong with a run, first things first.
pub fn all(engine: Engine, outcome: &Outcome) -> Vec<String> {
    let mut found = outcome.failures.clone();
    if engine != Engine::Broadcast {
        found.extend(location::violations(&outcome.records));
    }
    // What was cut short is not also blamed for what it did not come to.
    let complete = outcome.failures.is_empty();
    found.extend(sync::violations(&outcome.records, complete));
    found
}
