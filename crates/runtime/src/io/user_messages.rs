//! Messages between a program's threads: how they leave.

use crate::error::{Error, Result};
use crate::node::Node;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::link::{Class, Dest, SendError};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::message::{Message, types};

impl Node {
    /// Posts a program's message; `false` when there is no room just now.
    pub(crate) fn post_user(&self, slot: Slot, to: usize, bytes: &[u8]) -> Result<bool> {
        let (node, thread) = (NodeId((to / self.threads()) as u16), (to % self.threads()) as u16);
        if node == self.me() {
            let room = self.inboxes.has_room(thread);
            if room {
                let mut out = Outbox::new();
                self.inboxes.deliver(node, thread, bytes, &mut out);
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
