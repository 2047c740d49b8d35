//! `comem daemon`: starts programs for callers that prove a shared key.
//!
//! | module | |
//! |---|---|
//! | [`key`] | the shared key's file |
//! | [`wire`] | the datagrams |
//! | [`gate`] | which requests are fresh |
//! | [`allow`] | which programs may start |
//! | [`server`] | the daemon itself |
//! | [`client`] | asking daemons: wake-ups, lists, kills |
//! | [`log`] | a log that keeps nobody waiting |
//! | [`callers`] | who connects to a port, among them the agent that was started |
//! | [`noise`] | the sealed stream from an agent back to its caller |
//!
//! A wake-up takes two round trips: the caller asks, the daemon answers with a challenge; the caller sends its request,
//! sealed and bound to the challenge, and the daemon answers sealed. For a wake-up it starts `comem agent`, which
//! connects back to the caller by TCP. Whatever does not prove the key is dropped in silence and counted.

pub mod allow;
pub mod callers;
pub mod client;
pub mod gate;
pub mod key;
pub mod log;
pub mod noise;
pub mod server;
pub mod wire;
