//! A node as a whole: start-up, membership, and which machine a message is for.

pub mod route;
