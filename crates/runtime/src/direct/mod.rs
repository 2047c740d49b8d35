//! The engine `direct`: a thread that misses brings the unit itself, and no other node's thread helps it.
//!
//! The protocol is [`comem_protocol::coherence::direct`]; here is what runs it over real memory.
//!
//! | file | does |
//! |---|---|
//! | [`engine`] | the engine as regions see it; what a node that ends held locked |
//! | [`locked`] | stores to locked units that this node holds alone |
//! | [`miss`] | runs the protocol of one miss, and counts what it took |
//! | [`here`] | what a miss does to its own node's memory |
//! | [`one_by_one`] | carries operations out where the backbone has one-sided ones |
//! | [`shm`] | one-sided operations by loads and stores in other nodes' memory |
//! | [`emulated`] | one-sided operations by messages, where the backbone has none |
//! | [`target`] | this node's memory, as the messages of others act on it |
//! | [`post`] | how these messages are sent, answered and waited for |
//! | [`ucx`] | one-sided operations by UCX |
//! | [`reach`] | which of these ways a job takes |
//! | [`pause`] | how a thread waits for an entry that another one has locked |

pub(crate) mod emulated;
pub(crate) mod engine;
pub(crate) mod here;
pub(crate) mod locked;
pub(crate) mod miss;
pub(crate) mod one_by_one;
pub(crate) mod pause;
pub(crate) mod post;
pub(crate) mod reach;
pub(crate) mod shm;
pub(crate) mod target;
pub(crate) mod ucx;

#[cfg(test)]
mod tests;
