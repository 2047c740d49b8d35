//! Guarded messages that found no room in their sender's window: they stand in line, one line for each slot, until
//! acknowledgements or answers make room there.

use super::Wire;
use crate::error::Error;
use crate::mutex::Mutex;
use crate::node::Node;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::link::{Body, Class, Dest, SendError};
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::types;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whoever has so many in line waits before it says more.
const QUEUED_MAX: usize = 4096;

/// A message in line.
struct Waiting {
    node: NodeId,
    class: Class,
    ty: MsgType,
    /// The body, and where it begins.
    buffer: Vec<u8>,
    start: usize,
}

/// A message that no sender takes, ever: its type, and why.
type Refused = (MsgType, SendError);

/// What becomes of a job one of whose messages cannot be sent, and what to do.
fn why_unsent(ty: MsgType, error: SendError) -> String {
    let what = format!("a message of type {} cannot be sent: {error}", ty.0);
    if !(types::LOCK_REQUEST..types::FETCH).contains(&ty) {
        return what;
    }
    format!(
        "{what}; what was written between two synchronisations lies in too many places to be told of: write pages \
         that lie together, synchronise more often, or take larger units (--unit-pages)"
    )
}

/// The line of a slot.
#[derive(Default)]
pub(super) struct SendQueue {
    waiting: Mutex<VecDeque<Waiting>>,
    /// How many stand in it.
    count: AtomicUsize,
}

impl SendQueue {
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// How many of them are posts.
    pub(super) fn posts(&self) -> usize {
        self.waiting.lock().iter().filter(|message| message.class == Class::Post).count()
    }
}

impl Wire {
    /// Lets those in front go, as far as the window has room; whether any went. Who joins the line calls this too: the
    /// window may have become free after it was found full, and nobody else would come by again.
    fn advance(&self, slot: Slot, joins: Option<Waiting>) -> Result<bool, Refused> {
        let line = &self.send_queues[slot.index()];
        let mut waiting = line.waiting.lock();
        waiting.extend(joins);
        // Before the window is found full: whoever makes room there after that sees that somebody waits for it.
        line.count.store(waiting.len(), Ordering::Release);
        let before = waiting.len();
        let mut result = Ok(());
        while let Some(first) = waiting.front_mut() {
            let (dest, body) = (Dest::Node(first.node, Slot::SERVICE), Body::Buffer(&mut first.buffer, first.start));
            match self.sender(slot).lock().send_guarded(dest, first.class, first.ty, body) {
                Err(SendError::WindowFull) => break,
                sent => result = result.and(sent.map(drop).map_err(|error| (first.ty, error))),
            }
            waiting.pop_front();
        }
        line.count.store(waiting.len(), Ordering::Release);
        result.map(|()| waiting.len() < before)
    }

    /// Whether a thread that goes on to say more, itself or through the service thread, would fill memory with it.
    pub(crate) fn send_queue_is_long(&self, slot: Slot) -> bool {
        [slot, Slot::SERVICE].into_iter().any(|slot| self.send_queues[slot.index()].len() > QUEUED_MAX)
    }
}

impl Node {
    /// Sends a guarded message, now or when what left earlier from the same slot has gone.
    pub(super) fn send_guarded(&self, from: Slot, node: NodeId, (class, ty): (Class, MsgType), mut body: Body<'_>) {
        let first = self.wire.send_queues[from.index()].len() == 0;
        let dest = Dest::Node(node, Slot::SERVICE);
        let mut send = || self.wire.sender(from).lock().send_guarded(dest, class, ty, body.reborrow());
        let mut result = if first { send().map(drop) } else { Err(SendError::WindowFull) }.map_err(|error| (ty, error));
        if matches!(result, Err((_, SendError::WindowFull))) {
            let (buffer, start) = body.into_buffer();
            let joins = Waiting { node, class, ty, buffer, start };
            result = self.wire.advance(from, Some(joins)).map(drop);
        }
        if let Err(refused) = result {
            self.end_unsent(refused);
        }
    }

    /// A message that others wait for cannot be sent: the job cannot go on.
    pub(super) fn end_unsent(&self, (ty, error): Refused) {
        self.end_with(&Error::TooLarge(why_unsent(ty, error)));
    }

    /// Acknowledgements or an answer have come in for a slot's sender.
    pub(super) fn advance_send_queue(&self, slot: Slot) {
        if self.wire.send_queues[slot.index()].len() == 0 {
            return;
        }
        match self.wire.advance(slot, None) {
            Ok(true) => self.transmit(slot),
            Ok(false) => {}
            Err(refused) => self.end_unsent(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::link::LinkConfig;

    fn wire() -> Wire {
        Wire::bare(Vec::new(), Vec::new())
    }

    fn waiting(ty: MsgType, len: usize) -> Option<Waiting> {
        Some(Waiting { node: NodeId(1), class: Class::Post, ty, buffer: vec![0; len], start: 0 })
    }

    #[test]
    fn a_message_that_no_sender_ever_takes_leaves_the_line_and_is_named() {
        let wire = wire();
        let too_long = wire.advance(Slot::SERVICE, waiting(types::LOCK_TOKENS, 1 << 24)).unwrap_err();
        assert!(matches!(too_long, (types::LOCK_TOKENS, SendError::TooLarge { .. })), "{too_long:?}");
        assert_eq!(wire.send_queues[0].len(), 0);
        let longest = LinkConfig::default().max_message_bytes(0);
        assert_eq!(wire.advance(Slot::SERVICE, waiting(types::ARRIVE, longest)), Ok(true));
    }

    /// What makes room comes by another thread, which leaves at once where it sees nobody in line.
    #[test]
    fn who_joins_the_line_stands_in_it_before_its_sender_is_asked() {
        let wire = wire();
        let sender = wire.sender(Slot::SERVICE).lock();
        std::thread::scope(|scope| {
            let joins = scope.spawn(|| wire.advance(Slot::SERVICE, waiting(types::TELL, 8)));
            let start = std::time::Instant::now();
            while wire.send_queues[0].len() == 0 && start.elapsed().as_secs() < 5 {
                std::thread::yield_now();
            }
            let seen = wire.send_queues[0].len();
            drop(sender);
            assert_eq!((seen, joins.join().unwrap()), (1, Ok(true)));
        });
        assert_eq!(wire.send_queues[0].len(), 0);
    }

    #[test]
    fn who_wrote_in_too_many_places_is_told_what_to_do() {
        let error = SendError::TooLarge { len: 20_000_000, max: 15_000_000 };
        for (ty, told) in [(types::ARRIVE, true), (types::LOCK_GRANT, true), (types::TELL, true), (types::DATA, false)]
        {
            let why = why_unsent(ty, error);
            assert!(why.contains("20000000 bytes is too long; at most 15000000"), "{why}");
            assert_eq!(why.contains("--unit-pages"), told, "{why}");
        }
    }
}
