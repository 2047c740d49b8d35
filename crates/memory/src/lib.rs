//! Comem's views of shared memory, and how accesses to it are noticed. The unsafe code lives here.
//!
//! The detector `explicit`: typed objects whose accessors check a permission before they touch memory ([`segments`]),
//! and the handshake that keeps a store from falling between its check and an invalidation ([`guard`]). The detectors
//! of pages: memory whose accesses fault or are noted by the kernel ([`pages`]).
#![warn(missing_docs)]

pub mod atomic;
pub mod copy;
pub mod diff;
pub mod guard;
pub mod lines;
pub mod mapping;
pub mod pages;
pub mod prefetch_hint;
pub mod segments;
pub mod twins;

pub use guard::{StoreFlag, StoreGuard};
pub use segments::{Segments, UnitView};
