//! A rendezvous: how processes that somebody else has started become the nodes of one job.
//!
//! One process makes a [`UniqueId`] and listens at the address in it. It hands the id to the others by any means: MPI,
//! a file, the environment. Each then arrives there with the id, its rank or none, and the number of processes.
//!
//! ```text
//!  process                        rendezvous (in the process that made the id)
//!     |<-- Hello: version, nonce -------|
//!     |--- Arrival: rank, processes --->|   … until all have arrived
//!     |<-- Placed: node, host's nodes --|
//!     |--- Address (node 0 alone) ----->|
//!     |<-- Zero: node 0's address ------|
//!     |       start-up, as after a launcher ([`super::startup`], mode `Launched`)
//! ```
//!
//! So a rendezvous plays the part of `comem run`: it numbers the nodes, tells each how many share its host, and tells
//! all where node zero listens. What must agree beyond that, start-up checks. The process that made the id need not be
//! a node.
//!
//! All but the first message carry a tag that only who has the id can make. The nonces keep old ones from counting.
//!
//! | module | decides |
//! |---|---|
//! | `id` | what an id holds, and its text |
//! | `message` | the bytes of the messages, and their tags |
//! | `gathering` | who is which node, and what goes wrong |

mod gathering;
mod id;
mod message;
#[cfg(test)]
mod tests;

pub use self::gathering::{Fault, Gathering, Guest, Process};
pub use self::id::{ID_BYTES, IdError, SECRET_BYTES, UniqueId};
pub use self::message::{Arrival, FRAME_MAX, FromGuest, NONCE_BYTES, Nonce, Placed, Rejected, ToGuest};
