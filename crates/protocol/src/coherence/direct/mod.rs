//! The engine `direct`: the thread that misses runs the whole protocol, and no handler runs anywhere else.
//!
//! Source: Radović and Hagersten, "Removing the Overhead from Software-Based Shared Memory", sections 2.3 and 2.4.
//! Sequentially consistent at the grain of a *unit* of 64 to 2048 bytes. The thread uses one-sided operations only
//! ([`one_sided`]), on the memory of the unit's home and of the nodes that hold copies.
//!
//! # What each node keeps
//!
//! - *Data.* An invalid unit is filled with a value that programs rarely store ([`MAGIC`]). A load tests the value that
//!   it loaded, and nothing else.
//! - *Entries.* One [`Entry`] of 16 bits for each line of 64 bytes. At the unit's home it is the directory;
//!   elsewhere it
//!   is the tag, which says whether this node may store. An entry of 0 means that a store may go ahead.
//!
//! The directory is *blocking*: whoever has to change a unit's holders locks its entry at the home by fetch-and-set,
//! and
//! changes the copies itself. So a unit is part of one transaction at a time, and no race has more than two sides.
//!
//! # The parts
//!
//! | module | holds |
//! |---|---|
//! | [`entry`] | the 16 bits: tag and presence |
//! | [`directory`] | which nodes hold a unit, as presence bits, a sole holder or a wide set |
//! | [`one_sided`] | the operations on another node's memory |
//! | [`remote`] | those operations as messages, where the backbone has none |
//! | [`miss`] | the protocol: what a thread does that has missed |
//! | [`group`] | misses of one thread on several units, side by side |
//! | [`store_check`] | the order of a checked store's steps beside a revocation |
//!
//! # Two kinds of exclusive units
//!
//! A unit that a node holds exclusively is *biased* (entry 0) or *locked*. A biased unit costs its stores a plain check
//! and a *hazard*, an address that the thread publishes; who revokes the unit makes an asymmetric barrier and waits for
//! hazards in the unit ([`one_sided::Op::Quiesce`]). A locked unit costs each store an atomic instruction, and its
//! revocation no barrier. A unit is biased at first. It is locked from then on at each node from which it has been
//! revoked while it was biased, and everywhere if the backbone has no barrier. A thread that needs it in the middle
//! of a strip of stores ([`Want::OwnBiased`]) makes it biased again, and so does one in many stores.

pub mod directory;
pub mod entry;
pub mod group;
pub mod miss;
pub mod one_sided;
pub mod remote;
pub mod store_check;

#[cfg(test)]
mod tests;

pub use entry::Entry;
pub use miss::{Miss, Outcome, Step, Want};
pub use one_sided::{OneSided, Op, Reply};

/// Bytes of a line, for each of which a node keeps an entry.
pub const LINE_BYTES: usize = 64;
/// The sizes that a unit may have, in bytes.
pub const UNIT_BYTES: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
/// The value of each aligned 4 bytes of an invalid unit: a quiet NaN as a `float` and, twice, as a `double`, with a
/// period of 2 bytes. A signalling NaN would raise a flag, or a signal, where a program loads it.
pub const MAGIC: u32 = 0xfffd_fffd;
