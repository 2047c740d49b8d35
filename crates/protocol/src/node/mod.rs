//! A node as a whole: start-up, membership, and which machine a message is for.
//!
//! | module | decides |
//! |---|---|
//! | [`rendezvous`] | how processes that somebody else has started meet by an id, and which node each is |
//! | [`startup`] | how processes find each other, get numbers and learn each other's addresses |
//! | [`identity`] | which processes may join, and what the others are told |
//! | [`table`] | the address table that start-up arrives at |
//! | [`membership`] | whether the other nodes are still alive and can be reached |
//! | [`repeated`] | which replies do not arrive |
//! | [`message`], [`watch`] | the bytes of their datagrams |
//! | [`route`] | which machine a message of the running job is for |

pub mod identity;
pub mod membership;
pub mod message;
pub mod rendezvous;
pub mod repeated;
mod rng;
pub mod route;
pub mod startup;
pub mod table;
pub mod watch;
