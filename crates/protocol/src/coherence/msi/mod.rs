//! Engine `msi`: sequential consistency by invalidation (DSM/IP, section 3.2.2.2, ENGINE_MSI).
//!
//! A node holds a unit in state M (the only copy, readable and writable), S (one of several, readable) or I.
//! Always: if one node is in M, all others are in I; and some node is in M or S. The paper kept count of sharers at
//! every node by broadcast; here the unit's *home* keeps a directory of them and serves requests one at
//! a time, in order of arrival, while the bytes travel from cache to cache.
//!
//! ```text
//!  requester            home                       owner or sharer
//!     | Get(S|M)          |                               |
//!     |------------------>| M elsewhere, or S wanted      |
//!     |                   | Forward(requester)            |
//!     |                   |------------------------------>| revoke, copy
//!     |<-------------------------------------- Data(S|M) -|
//!     |                   |<------------------ ForwardDone|
//!     |                   | S elsewhere and M wanted      |
//!     |                   | Invalidate                    |
//!     |                   |------------------------------>| revoke
//!     |                   |<--------------- InvalidateDone| (with the bytes when nobody nearer has them)
//!     |<- Grant | Data(M)-|                               |
//! ```
//!
//! The home goes on to the next request as soon as the *others* have confirmed, while the requester's Data may
//! still be on its way, through another socket than the messages of the next transaction. Hence:
//!
//! | meets a node | Forward as owner | Forward as sharer | Invalidate |
//! |---|---|---|---|
//! | in M | serve | (never) | (never) |
//! | in S | wait for the grant on its way | serve | serve; a fetch of M is still queued at the home |
//! | in I, fetching | wait for the grant on its way | (never) | confirm, and void the fetch |
//!
//! A sharer's copy may still be on its way when the home already counts it; so the home asks for the bytes, be it for
//! another sharer or for a new owner, only from the *keeper*: the sharer that certainly has them (the last owner, or
//! the home itself once its own copy has come).
//!
//! Data of a voided fetch may satisfy the one access that asked for it (that access was under way when the home
//! ordered it before the invalidation) and nobody else's. A granted unit is *reserved* until the
//! thread that asked has made its access, so that two nodes cannot steal it from each other for ever; a
//! *pinned* unit stays until the range access ends.
//!
//! A node that has no room gives copies back ([`Unit::give_back`]): `GiveBack`, with the bytes of a copy in M or of the
//! keeper's, is answered by `GiveBackDone`, and the copy serves what the home asks until then.
//!
//! [`unit`] is the side of the cache, [`directory`] the side of the home; [`residency`] says how long a page stays.

pub mod directory;
pub mod ping_pong;
pub mod residency;
mod unit;

pub use unit::{Begin, Unit, WriteBack};

#[cfg(test)]
mod tests;
