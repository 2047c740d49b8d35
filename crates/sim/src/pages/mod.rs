//! Pages under virtual time: the engines `hlrc` and `scope` over a model of memory in which every access, every change
//! of the page table, every diff and every copy is a step of its own.
//!
//! | module | holds |
//! |---|---|
//! | [`layout`] | where the memory of a run is and how it is kept |
//! | [`memory`] | a node's memory and page table |
//! | [`program`] | what the threads do, made by seed: programs without races |
//! | [`node`], [`thread`], [`sync_objects`] | a node: the production machines, joined as the runtime joins them |
//! | [`frees`] | regions that are freed while nodes go on |
//! | [`cluster`] | nodes, network and virtual time |
//! | [`agenda`] | what happens next: by virtual time, or by a schedule |
//! | [`check`] | which value every read must return |
//! | [`scenario`] | one seed, one run, one verdict |
//! | [`explore`] | all orders of events with few delays |
//! | [`start`] | what a run starts with, where an earlier one has arrived at something |
//! | [`small`] | programs small enough for that |

pub mod agenda;
mod at_end;
pub mod check;
pub mod cluster;
pub mod explore;
pub mod frees;
pub mod layout;
pub mod memory;
pub mod node;
pub mod program;
pub mod scenario;
pub mod small;
pub mod start;
pub mod sync_objects;
pub mod thread;
