//! Comem's views of shared memory, and how accesses to it are noticed. The unsafe code lives here.
//!
//! So far there is one detector, `explicit`: typed objects whose accessors check a permission before they touch
//! memory ([`segments`]), and the handshake that keeps a store from falling between its check and an
//! invalidation ([`guard`]).
#![warn(missing_docs)]

pub mod guard;
pub mod mapping;
pub mod segments;

pub use guard::{StoreFlag, StoreGuard};
pub use segments::{Segments, UnitView};
