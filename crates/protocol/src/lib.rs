//! Comem's protocols, and nothing else: what is sent, kept, granted and refused, as state machines that take
//! plain input and give plain effects. No input or output, no clock, no thread, no unsafe code: the runtime and the
//! simulator run the same machines.
//!
//! | module | decides |
//! |---|---|
//! | [`ids`], [`time`] | names and moments |
//! | [`wire`] | the bytes of every datagram |
//! | [`link`] | guaranteed, at-most-once delivery; fragments; congestion |
//! | [`auth`] | the keyed tag of a datagram |
//! | [`faults`] | which datagrams a lossy network would harm, by seed |
//! | [`sync`] | barriers, locks, reductions, flags |
//! | [`lock_schedule`] | when a node gives a lock's token away, and which requests wait |
//! | [`coherence`] | the engines: `owner`, `broadcast`, `msi`, of pages `hlrc` and `scope`, of lines `direct` |
//! | [`node`] | start-up and membership; which machine a message is for |
//! | [`outbox`] | what a step wants done: sends, wake-ups |
//! | [`selective`] | datagrams to sets of nodes, and whether multicast carries them |
//! | [`rules`] | the ordering rules, which tests may switch off one by one |
#![forbid(unsafe_code)]

pub mod auth;
pub mod coherence;
pub mod faults;
mod hash_map;
pub mod ids;
pub mod link;
pub mod lock_schedule;
pub mod node;
pub mod outbox;
pub mod rules;
pub mod selective;
pub mod sync;
pub mod time;
pub mod tuning;
pub mod wire;
