//! Messages between threads: guaranteed, exactly once, in no particular order.

use super::Thread;
use crate::error::{Error, Result};
use crate::node::{INBOX_MAX, Node, Waiting};
use comem_protocol::ids::{NodeId, Slot};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Messages that a thread puts aside while it waits to send, unless it keeps all.
const UNREAD_MAX: usize = 16 * INBOX_MAX;

/// Messages that came for a thread while it waited for something else.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    unread: RefCell<VecDeque<(NodeId, Vec<u8>)>>,
    /// They are put aside whenever the thread waits, however many.
    keeps_all: Cell<bool>,
}

impl Mailbox {
    pub(super) fn keeps_all(&self) -> bool {
        self.keeps_all.get()
    }

    /// The next message to the thread in this slot, if one is there.
    fn take(&self, node: &Node, slot: Slot) -> Option<(NodeId, Vec<u8>)> {
        let aside = self.unread.borrow_mut().pop_front();
        aside.or_else(|| node.take_user(slot))
    }

    /// Puts messages to the thread aside while it waits to send: threads that send to each other in a circle, all with
    /// full inboxes, would wait for ever.
    pub(super) fn make_room(&self, node: &Node, slot: Slot) {
        let most = if self.keeps_all() { usize::MAX } else { UNREAD_MAX };
        while self.unread.borrow().len() < most {
            let Some(message) = node.take_user(slot) else { return };
            self.unread.borrow_mut().push_back(message);
        }
    }

    /// What was put aside waits for the thread that takes this one's place.
    pub(super) fn leave(&self, node: &Node, slot: Slot) {
        node.inboxes.give_back(slot, self.unread.take());
    }
}

impl Thread {
    /// Waits until every message that this node has posted has arrived, if not been received.
    ///
    /// # Errors
    /// When a node is lost.
    pub fn flush_posts(&self) -> Result<()> {
        let start = self.node.now();
        let mut waited = 0;
        while self.node.wire.unsent_posts() > 0 {
            self.node.life.goes_on()?;
            self.mail.make_room(&self.node, self.slot);
            self.node.sleep_a_little(self.slot)?;
            // Threads that have ended look after their sockets no more.
            self.node.attend_idle_sockets(self.slot);
            // And nobody is roused for acknowledgements of what went by the service socket.
            self.node.serve_at_call(self.slot, None);
            let before = std::mem::replace(&mut waited, (self.node.now() - start).0);
            self.ask_host(before, waited)?;
        }
        Ok(())
    }

    /// Sends `bytes` to thread `to` of the job: guaranteed, exactly once, in no particular order. Waits while
    /// too much is under way.
    ///
    /// # Errors
    /// When there is no such thread or the message is too large.
    pub fn post(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.operation(|| {
            if to >= self.threads() {
                return Err(Error::NoThread { thread: to, threads: self.threads() });
            }
            while !self.node.post_user(self.slot, to, bytes)? {
                self.mail.make_room(&self.node, self.slot);
                self.let_pins_go();
                self.wait(Waiting::Room)?;
            }
            self.take_pins_back()
        })
    }

    /// Takes the next message sent to this thread, if one is there: the sender's node and the bytes.
    pub fn try_receive(&self) -> Option<(NodeId, Vec<u8>)> {
        self.mail.take(&self.node, self.slot)
    }

    /// Gives back a message that was taken: it is the next.
    pub fn put_back(&self, message: (NodeId, Vec<u8>)) {
        self.mail.unread.borrow_mut().push_front(message);
    }

    /// From now on messages to this thread are put aside whenever it waits, however many: who sends waits for room only
    /// while this thread computes, and what it sends behind them, diffs for instance, does not wait for ever for their
    /// receiver. For interfaces that put no bound on what is sent to a thread that waits for something else.
    pub fn keep_messages(&self) {
        self.mail.keeps_all.set(true);
    }

    /// Waits for a message to this thread.
    pub fn receive(&self) -> (NodeId, Vec<u8>) {
        self.must(self.operation(|| {
            loop {
                if let Some(message) = self.try_receive() {
                    self.take_pins_back()?;
                    return Ok(message);
                }
                self.let_pins_go();
                self.wait(Waiting::Messages)?;
            }
        }))
    }
}
