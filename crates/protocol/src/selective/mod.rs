//! Selective multicast: one datagram that every member of a job's group gets, and that names whom it is for.
//!
//! Its head has two sets of nodes. Those that are *asked* shall do something now. Those that are *told* may find it of
//! use later (Brazos calls that an indirect diff). Each node's kernel looks at the sets and wakes nobody for the rest
//! (`comem_net::selective`). Nothing is acknowledged, ordered or sent again: who needs an answer asks again, one by
//! one. What a datagram carries is not looked at here.
//!
//! | module | holds |
//! |---|---|
//! | [`head`] | the bytes: sets of nodes as base and bitmap, what one datagram can name |
//! | [`author`] | makes the datagrams of one message |
//! | [`receiver`] | takes them in: tag, job, sets, replays, fragments |
//! | [`way`] | whether a job takes IP multicast, and when a sender gives it up |

pub mod author;
pub mod head;
pub mod receiver;
pub mod way;

pub use author::{Author, TooLong};
pub use head::Members;
pub use receiver::{Message, Receiver, Refused, Role, Taken};
pub use way::{Choice, NoChoice, RepairHistory, Way};

/// Most bytes of one message: more is refused, and whoever has more sends several.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
