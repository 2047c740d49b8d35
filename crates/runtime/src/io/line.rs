//! Guarded messages that found no room in their sender's window: they stand in line, one line for each slot, until acknowledgements or answers make
//! room there.

use super::Wire;
use crate::node::Node;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::link::{Class, Dest, SendError};
use comem_protocol::time::Time;
use comem_protocol::wire::header::MsgType;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whoever has so many in line waits before it says more.
const LINE_MAX: usize = 4096;

/// A message in line.
struct Waiting {
    node: NodeId,
    class: Class,
    ty: MsgType,
    body: Vec<u8>,
}

/// The line of a slot.
#[derive(Default)]
pub(super) struct Line {
    waiting: Mutex<VecDeque<Waiting>>,
    /// How many stand in it.
    count: AtomicUsize,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

impl Wire {
    /// Lets those in front go, as far as the window has room; whether any went. Who joins the line calls this too: the window may have become free
    /// after it was found full, and nobody else would come by again.
    fn advance(&self, slot: Slot, now: Time, joins: Option<Waiting>) -> Result<bool, SendError> {
        let line = &self.lines[slot.index()];
        let mut waiting = line.waiting.lock();
        waiting.extend(joins);
        let before = waiting.len();
        let mut result = Ok(());
        while let Some(first) = waiting.front() {
            let dest = Dest::Node(first.node, Slot::SERVICE);
            match self.sender(slot).lock().send(now, dest, first.class, first.ty, &first.body) {
                Err(SendError::WindowFull) => break,
                sent => result = result.and(sent.map(drop)),
            }
            waiting.pop_front();
        }
        line.count.store(waiting.len(), Ordering::Release);
        result.map(|()| waiting.len() < before)
    }
}

impl Node {
    /// Sends a guarded message, now or when what left earlier from the same slot has gone.
    pub(super) fn send_guarded(&self, now: Time, from: Slot, node: NodeId, class: Class, ty: MsgType, body: &[u8]) {
        let first = self.wire.lines[from.index()].len() == 0;
        let send = || self.wire.sender(from).lock().send(now, Dest::Node(node, Slot::SERVICE), class, ty, body);
        let mut result = if first { send().map(drop) } else { Err(SendError::WindowFull) };
        if result == Err(SendError::WindowFull) {
            let joins = Waiting { node, class, ty, body: body.to_vec() };
            result = self.wire.advance(from, now, Some(joins)).map(drop);
        }
        if let Err(error) = result {
            self.bug(&format!("a message of type {} cannot be sent: {error}", ty.0));
        }
    }

    /// Whether a thread that goes on to say more, itself or through the service thread, would fill memory with it.
    pub(crate) fn line_is_long(&self, slot: Slot) -> bool {
        [slot, Slot::SERVICE].into_iter().any(|slot| self.wire.lines[slot.index()].len() > LINE_MAX)
    }

    /// Acknowledgements or an answer have come in for a slot's sender.
    pub(super) fn advance_line(&self, slot: Slot) {
        if self.wire.lines[slot.index()].len() == 0 {
            return;
        }
        match self.wire.advance(slot, self.now(), None) {
            Ok(true) => self.transmit(slot),
            Ok(false) => {}
            Err(error) => self.bug(&format!("a message that stood in line cannot be sent: {error}")),
        }
    }
}
