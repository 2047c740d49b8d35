//! Synchronisation between threads of all nodes: locks, flags, barriers and reductions.
//!
//! It knows no engine. A release may produce an opaque payload and an acquire consumes it; the engines that need
//! write notices fill it in ([`Payload`]), and for those that keep memory consistent at every
//! access it is empty.

pub mod barrier;
pub mod flag;
pub mod lock;
pub mod reduce;

use crate::ids::{NodeId, Slot};
use crate::outbox::Outbox;

/// What a release has to tell to the acquirer.
pub trait Payload {
    /// Appends what `to` must know when it acquires.
    fn on_release(&mut self, to: NodeId, out: &mut Vec<u8>);
    /// Takes in what a release elsewhere said.
    fn on_acquire(&mut self, bytes: &[u8]);
}

/// The payload of engines that need none.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoPayload;

impl Payload for NoPayload {
    fn on_release(&mut self, _to: NodeId, _out: &mut Vec<u8>) {}
    fn on_acquire(&mut self, _bytes: &[u8]) {}
}

/// What a step of synchronisation knows besides its own state.
pub struct Context<'a> {
    /// This node.
    pub me: NodeId,
    /// How many nodes the job has.
    pub nodes: usize,
    /// The application thread that takes the step; `None` for the service thread.
    pub caller: Option<Slot>,
    /// What releases tell acquires.
    pub payload: &'a mut dyn Payload,
    /// Where the effects go.
    pub out: &'a mut Outbox,
}

impl Context<'_> {
    fn wake(&mut self, slot: Slot) {
        if self.caller != Some(slot) {
            self.out.wake(slot);
        }
    }
}
