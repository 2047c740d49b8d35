//! A simulated cluster, checkers and models for Comem's protocols.
//!
//! | module | holds |
//! |---|---|
//! | [`model`] | the `msi` engine for exhaustive checking |
//! | [`program`] | what simulated threads do |
//! | [`memory`], [`node`], [`thread`], `sync_objects` | memory, machines, threads in steps as small as a processor's |
//! | [`carrier`] | how messages travel: whole, or as datagrams of the production link |
//! | [`cluster`] | nodes, network and virtual time |
//! | [`history`] | what the threads did |
//! | [`check`] | what no run may show |
//! | [`direct`] | the engine `direct`, over a model of memory with store buffers and puts on their way |
//! | [`locks`] | one-sided locks, over words and names that all threads share |
//! | [`arrivals`] | arrivals at barriers as words, beside arrivals by messages |
//! | [`diagram`] | a run as a message diagram, for people: as text and as a picture |
//! | [`outcomes`] | what litmus programs show under each engine, against what it allows |
//! | [`scenario`] | programs by name, made by seed |
//! | [`pages`] | the engines for pages, over a model of memory with page tables, twins and diffs |
//! | [`msi_pages`] | pages under `msi`, over a model of memory with page tables |
//! | `schedule` | the schedule of locks, with numbers that a seed draws |
//! | [`startup`] | whole jobs, from start-up to the end |
//! | [`watch`], [`partition`] | the failure detector, and jobs whose network is cut in places |

pub mod arrivals;
pub mod carrier;
pub mod check;
pub mod cluster;
pub mod diagram;
pub mod direct;
pub mod history;
pub mod locks;
pub mod memory;
pub mod model;
pub mod msi_pages;
pub mod node;
pub mod outcomes;
pub mod pages;
pub mod partition;
pub mod program;
pub mod scenario;
mod schedule;
pub mod startup;
mod sync_objects;
pub mod thread;
mod tuning;
pub mod watch;
