//! Engine `owner`: naive sequential consistency (DSM/IP, section 3.2.2.1, ENGINE_OU).
//!
//! Each unit belongs to one node for ever. Every access of another node is a request to the owner, whose service
//! thread carries it out in order of arrival; the owner's own threads access the memory itself. The order in
//! which the owner's memory is read and written is the order that all threads see.

use super::{Context, Misbehaved};
use crate::outbox::{Origin, Target};
use crate::wire::message::{Message, Ticket};

/// Asks the owner for `len` bytes at `offset`.
pub fn ask_read(cx: &mut Context<'_>, offset: u32, len: u32) {
    let target = Target::Request { node: cx.home, origin: Origin::Caller };
    cx.out.send(target, &Message::OwnerRead { unit: cx.unit, offset, len });
}

/// Asks the owner to store `bytes` at `offset`.
pub fn ask_write(cx: &mut Context<'_>, offset: u32, bytes: &[u8]) {
    let target = Target::Request { node: cx.home, origin: Origin::Caller };
    cx.out.send(target, &Message::OwnerWrite { unit: cx.unit, offset, bytes });
}

/// Serves a read at the owner.
///
/// # Errors
/// When the requester asks the wrong node or for bytes outside the unit.
pub fn serve_read(cx: &mut Context<'_>, ticket: Ticket, offset: u32, len: u32) -> Result<(), Misbehaved> {
    let inside = u64::from(offset) + u64::from(len) <= cx.memory.len() as u64;
    if cx.me != cx.home || !inside {
        return Err(Misbehaved("asked for bytes that this node does not own"));
    }
    let memory = &*cx.memory;
    let answer = Message::OwnerValue { unit: cx.unit, offset, bytes: &[] };
    cx.out.send_with(Target::Reply(ticket), &answer, |body| {
        memory.read(offset as usize, len as usize, body);
    });
    Ok(())
}

/// Serves a write at the owner.
///
/// # Errors
/// As for reads.
pub fn serve_write(cx: &mut Context<'_>, ticket: Ticket, offset: u32, bytes: &[u8]) -> Result<(), Misbehaved> {
    if cx.me != cx.home || !cx.memory.write(offset as usize, bytes) {
        return Err(Misbehaved("wrote bytes that this node does not own"));
    }
    cx.out.send(Target::Reply(ticket), &Message::OwnerDone { unit: cx.unit });
    Ok(())
}
