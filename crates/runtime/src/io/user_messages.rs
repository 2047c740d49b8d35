//! Messages between a program's threads: which are taken in, and how they leave.

use crate::error::{Error, Result};
use crate::node::Node;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::link::{Class, Dest, Part, SendError};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::message::{Message, types};

impl Node {
    /// Whether a part of a program's message may be taken in. The beginning says to whom it goes, and with it all of
    /// the message is taken.
    pub(super) fn has_room_for(&self, part: Part<'_>) -> bool {
        match part {
            Part::Beginning(&[high, low, ..]) => self.takes_messages(u16::from_be_bytes([high, low])),
            Part::Beginning(_) | Part::Following => true,
            // Nobody knows yet to whom it goes.
            Part::Ahead => (0..self.threads() as u16).all(|thread| self.inbox_has_room(thread)),
        }
    }

    /// What comes for a thread that does not exist is taken, and thrown away.
    fn takes_messages(&self, thread: u16) -> bool {
        usize::from(thread) >= self.threads() || self.inbox_has_room(thread)
    }

    /// Posts a program's message; `false` when there is no room just now.
    pub(crate) fn post_user(&self, slot: Slot, to: usize, bytes: &[u8]) -> Result<bool> {
        let (node, thread) = (NodeId((to / self.threads()) as u16), (to % self.threads()) as u16);
        if node == self.me() {
            let room = self.inbox_has_room(thread);
            if room {
                let mut out = Outbox::new();
                self.deliver_user(node, thread, bytes, &mut out);
                self.flush(slot, &mut out);
            }
            return Ok(room);
        }
        let mut body = Vec::with_capacity(bytes.len() + 2);
        Message::User { thread, bytes }.emit(&mut body);
        let dest = Dest::Node(node, Slot::SERVICE);
        let result = self.wire.sender(slot).lock().send(dest, Class::Post, types::USER, &body);
        match result {
            Ok(_) => {
                self.counters(slot).messages_sent.add(1);
                self.transmit(slot);
                Ok(true)
            }
            Err(SendError::WindowFull) => Ok(false),
            Err(error) => Err(Error::TooLarge(format!("cannot post: {error}"))),
        }
    }
}
