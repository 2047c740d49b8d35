//! The engine `direct` under a model of memory in which every step of the protocol can be seen by every thread.
//!
//! The model runs the production machines ([`comem_protocol::coherence::direct`]). What it leaves open is what hardware
//! leaves open: when a store leaves its processor's store buffer, when a put arrives at another node, in which order
//! the
//! words of a unit are copied, and which thread goes on next. One step is one operation, one word of a copy, or one
//! store that reaches memory.
//!
//! A state is a value, so the same model is run with random steps ([`scenario`]) and searched for all orders (the
//! tests,
//! with stateright).
//!
//! # What must hold in every state
//!
//! - Each word of each node's memory has the latest value or is MAGIC. The latest value is that of the last store
//!   that has
//!   reached memory.
//! - The latest value of each word is in some node's memory, or on its way to one.
//! - An atomic operation finds the latest value.
//! - While a thread has something left to do, some step is possible.

mod memory;
mod message;
pub mod program;
pub mod scenario;
mod state;
mod thread;

pub use program::{Access, Fabric, Setup};
pub use state::{Action, State};
