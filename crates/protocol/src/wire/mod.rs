//! The bytes of every datagram: numbers, the header, the messages behind it.

pub mod bytes;
pub mod header;
pub mod message;
