//! Engine `broadcast`: no consistency (DSM/IP, section 3.2.2.2, ENGINE_NC).
//!
//! Reads are local; a write is stored here and told to all others in a datagram that nobody acknowledges.
//! Copies may differ for ever, and no lock or barrier changes that: good for data that may be stale or wrong, and
//! as the yardstick of what consistency costs.

use super::{Context, Misbehaved};
use crate::outbox::Target;
use crate::wire::message::Message;

/// Stores `bytes` at `offset` here and tells the others.
pub fn write(cx: &mut Context<'_>, offset: u32, bytes: &[u8]) {
    cx.memory.write(offset as usize, bytes);
    tell(cx, offset, bytes);
}

/// Tells the others of bytes that are stored here already.
pub fn tell(cx: &mut Context<'_>, offset: u32, bytes: &[u8]) {
    if cx.nodes > 1 {
        cx.out.send(Target::FreeToAll, &Message::Update { unit: cx.unit, offset, bytes });
    }
}

/// Takes in another node's write.
///
/// # Errors
/// When the write leaves the unit.
pub fn on_update(cx: &mut Context<'_>, offset: u32, bytes: &[u8]) -> Result<(), Misbehaved> {
    if cx.memory.write(offset as usize, bytes) { Ok(()) } else { Err(Misbehaved("an update that leaves its unit")) }
}
