//! Diffs that stay with their writers: distributed page management as in TreadMarks (Keleher et al., USENIX 1994), the
//! way of the engine `lrc`.
//!
//! A page has no home. At the end of an interval each writer makes the diff of what it wrote and keeps it. Write
//! notices tell who wrote which page, as under `hlrc`. Whoever faults on a page that notices have ended asks every
//! writer for what its copy lacks, and patches the copy.
//!
//! | part | keeps |
//! |---|---|
//! | [`runs`] | bytes with the stamps of their writes: the stamps of a copy, and the diffs that a writer keeps |
//! | [`unit`] | what a node knows of one unit: what it needs, what its copy has |
//! | [`wire`] | the bodies of the messages |
//! | [`clock`] | up to which stamp a node has heard, behind what it releases |
//! | [`serve`] | what a node does with these messages |
//! | [`page_table::kept_diffs`](super::page_table) | the transitions of units, with memory |
//! | [`node::kept_diffs`](super::node::kept_diffs) | what notices and barriers do with all page tables |
//!
//! # Stamps
//!
//! Intervals with writes to such pages have Lamport *stamps*: one more than any that their node has heard of. A notice
//! carries the stamp in the place of its serial number, in a group whose home is the writer. What happened before has a
//! lower stamp, so of two writes of one byte, in a program without races, the one with the higher stamp is the later.
//! A stamp also names an interval of its writer: stamps of one writer only grow, through barriers too. Each diff has a
//! stamp of its own, no later than its interval's.
//!
//! # A unit's states
//!
//! | state | memory | an access |
//! |---|---|---|
//! | absent, never named in a notice | none | maps zeros, without a message |
//! | absent | none | asks the unit's *manager* for a base, then the writers |
//! | invalid | unmapped: released bytes up to [`KeptUnit::had`](unit::KeptUnit) | asks the writers, and patches |
//! | asked | unmapped | waits |
//! | valid | mapped, with a twin where writes are noted | |
//!
//! | event | what it does |
//! |---|---|
//! | notice of another's interval | raises what is needed of the writer; a valid copy ends, its own writes kept first |
//! | interval closes | what differs from the twin joins the store |
//! | diffs come | each byte is stored if it is newer than the copy's; then the writer's interval is here |
//! | the last answer comes | valid if nothing is missing, else invalid: whoever needs the unit asks again |
//!
//! # Messages
//!
//! | message | to | carries |
//! |---|---|---|
//! | fetch diffs (request) | a writer | units, and of each the last stamp that the copy has and the one that it needs |
//! | kept diffs (reply) | | of each unit what the writer wrote later, each byte once, with its stamp |
//! | fetch base (request) | the manager | units |
//! | base (reply) | | of each unit its released bytes, their stamps, and which intervals are in them |
//!
//! A round of N writers that read each other's bytes costs `2 N (N - 1)` messages (Brazos, Figure 3).
//!
//! # The store
//!
//! It keeps each byte that this node wrote once, as it was last, with its stamp. So the store of a page is bounded by
//! the page and not by the number of intervals, and diffs do not accumulate. An answer may have newer bytes than were
//! asked for: who reads such a byte without synchronisation races with its writer.
//!
//! # Collection
//!
//! A node whose stores have grown beyond their bound says so at barrier *b*. When the barrier opens, managers and
//! recent users ask for all that their copies lack; other copies end. At the next barrier all have done so, and every
//! node drops what it kept up to *b*. Whoever needs such a unit later gets a base.

pub mod clock;
pub mod runs;
pub mod serve;
#[cfg(test)]
mod tests;
pub mod unit;
pub mod wire;

/// A Lamport time of an interval, from 1; 0 is before all.
pub type Stamp = u64;

/// The last stamp that a diff may have.
pub const STAMP_MAX: Stamp = 1 << 62;

/// The last stamp that an interval may have: a node that comes to it ends, and no correct peer tells of a later one.
pub const INTERVAL_STAMP_MAX: Stamp = STAMP_MAX / 2;

/// What a faulting thread asks another node for about one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The unit's first page.
    pub page: super::PageNo,
    /// How many pages it has.
    pub pages: u32,
    /// What is wanted of it.
    pub wants: Wants,
}

/// What is wanted of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Of the manager: its copy.
    Base,
    /// Of a writer: what it wrote after its interval `since`, up to `need` at least.
    Diffs {
        /// The copy has what the writer wrote up to here.
        since: Stamp,
        /// It needs what the writer wrote up to here.
        need: Stamp,
    },
}
