//! Messages between a program's threads that have come and were not taken.

use crate::mutex::Mutex;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::link::Part;
use comem_protocol::outbox::Outbox;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages to one thread that it has not taken yet; beyond, senders have to wait.
pub(crate) const INBOX_MAX: usize = 4096;

/// Who has sent it, and its bytes.
type Messages = VecDeque<(NodeId, Vec<u8>)>;

/// The inboxes of a node's threads.
///
/// Each has a mutex of its own. It is held for one step on the queue, and no other lock is taken meanwhile.
#[derive(Debug)]
pub(crate) struct Inboxes {
    /// By thread, of as many as the node has places.
    of: Vec<Mutex<Messages>>,
    /// The threads with which the node was started: they alone are addressed.
    threads: usize,
    /// This node has come to the end of the job and reads no more messages: its inboxes take what others have posted
    /// yet, since they wait for that.
    takes_all: AtomicBool,
    /// Called whenever a message has come.
    told: OnceLock<fn()>,
}

impl Inboxes {
    pub(crate) fn new(places: usize, threads: usize) -> Inboxes {
        let of = (0..places).map(|_| Mutex::default()).collect();
        Inboxes { of, threads, takes_all: AtomicBool::new(false), told: OnceLock::new() }
    }

    /// Takes the next message to `slot`'s thread, and whether the inbox was full: then threads of this node may wait
    /// for room there.
    pub(crate) fn take(&self, slot: Slot) -> Option<((NodeId, Vec<u8>), bool)> {
        let mut inbox = self.of[slot.index() - 1].lock();
        let was_full = inbox.len() >= INBOX_MAX;
        inbox.pop_front().map(|message| (message, was_full))
    }

    /// Puts back, in front of others, what was taken and not used.
    pub(crate) fn give_back(&self, slot: Slot, messages: VecDeque<(NodeId, Vec<u8>)>) {
        let mut inbox = self.of[slot.index() - 1].lock();
        messages.into_iter().rev().for_each(|message| inbox.push_front(message));
    }

    /// Whether thread `thread` of this node can take one more message.
    pub(crate) fn has_room(&self, thread: u16) -> bool {
        let inbox = self.of.get(usize::from(thread));
        inbox.is_some_and(|inbox| inbox.lock().len() < INBOX_MAX) || self.takes_all.load(Ordering::Acquire)
    }

    /// Whether a part of a program's message may be taken in. The beginning says to whom it goes, and with it all of
    /// the message is taken.
    pub(crate) fn has_room_for(&self, part: Part<'_>) -> bool {
        match part {
            // What comes for a thread that does not exist is taken, and thrown away.
            Part::Beginning(&[high, low, ..]) => {
                let thread = u16::from_be_bytes([high, low]);
                usize::from(thread) >= self.threads || self.has_room(thread)
            }
            Part::Beginning(_) | Part::Following => true,
            // Nobody knows yet to whom it goes.
            Part::Ahead => (0..self.threads as u16).all(|thread| self.has_room(thread)),
        }
    }

    /// Puts a message into the inbox of thread `thread`, which is roused.
    pub(crate) fn deliver(&self, from: NodeId, thread: u16, bytes: &[u8], out: &mut Outbox) {
        if let Some(inbox) = self.of.get(usize::from(thread)) {
            // They may lie in shared memory, whose fault must not wait for a page with the inbox locked.
            let bytes = bytes.to_vec();
            inbox.lock().push_back((from, bytes));
            out.wake(Slot::thread(usize::from(thread)));
            if let Some(told) = self.told.get() {
                told();
            }
        }
    }

    /// From now on `told` is called whenever a message has come. The first call counts.
    pub(crate) fn tell(&self, told: fn()) {
        self.told.get_or_init(|| told);
    }

    /// Nobody reads here any more: whatever comes is taken.
    pub(crate) fn take_all(&self) {
        self.takes_all.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_inbox_has_no_room_until_something_is_taken_or_nobody_reads_it_any_more() {
        let (inboxes, mut out) = (Inboxes::new(2, 2), Outbox::new());
        let fill = || (0..INBOX_MAX).for_each(|_| inboxes.deliver(NodeId(1), 1, b"x", &mut Outbox::new()));
        fill();
        assert!(inboxes.has_room(0) && !inboxes.has_room(1) && !inboxes.has_room_for(Part::Ahead));
        assert!(!inboxes.has_room_for(Part::Beginning(&[0, 1, 7])) && inboxes.has_room_for(Part::Following));
        assert!(inboxes.has_room_for(Part::Beginning(&[0, 2, 7])), "there is no such thread");
        let was_full = |slot| inboxes.take(slot).map(|(_, was_full)| was_full);
        assert_eq!([was_full(Slot(2)), was_full(Slot(2)), was_full(Slot(1))], [Some(true), Some(false), None]);
        fill();
        inboxes.take_all();
        assert!(inboxes.has_room(1));
        inboxes.deliver(NodeId(1), 0, b"first", &mut out);
        inboxes.give_back(Slot(1), [(NodeId(0), b"before".to_vec())].into());
        assert_eq!(inboxes.take(Slot(1)), Some(((NodeId(0), b"before".to_vec()), false)));
    }
}
