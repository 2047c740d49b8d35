//! The web server behind `comem ui`: who may speak to it, what it is asked, and the pages that it shows.
//!
//! | module | |
//! |---|---|
//! | [`desk`] | what the server asks of the command: a trait, so that nothing here knows what a job is |
//! | [`access`] | who may ask: the token, sessions, `Host` and `Origin` |
//! | [`site`] | which address means what, and what every answer carries |
//! | [`streams`] | answers that go on: samples of a job, and its output |
//! | [`server`] | connections, with TLS where others than this host may connect |
//! | [`patience`] | a connection whose other end takes nothing is given up |
//! | [`assets`] | the page itself |
//!
//! One thread serves all connections, and never waits for anything but them. What the desk is asked may take seconds,
//! so it is asked in threads of their own.

pub mod access;
pub mod assets;
pub mod desk;
pub mod patience;
pub mod server;
pub mod site;
pub mod streams;

pub use desk::{Answer, Desk, Refusal};
pub use server::{Settings, Tls, Trouble, start};
