//! What a step wants done, as plain data: the caller sends the messages and wakes the threads.
//!
//! An outbox is reused from step to step: bodies stand one behind the other in one buffer, so that a step on the
//! fault path allocates nothing once the buffers have grown.

use crate::coherence::node_set::NodeSet;
use crate::ids::{NodeId, Slot};
use crate::link::LEAD;
use crate::wire::header::MsgType;
use crate::wire::message::{Message, Ticket};
use std::ops::Range;

/// Whose channel a guarded message leaves from: the replies and acknowledgements come back there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The thread that takes this step, because it waits for the answer itself.
    Caller,
    /// The node's service thread.
    Service,
}

/// How a message travels and to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A guarded message that expects a reply.
    Request {
        /// The node asked.
        node: NodeId,
        /// Whose channel it leaves from.
        origin: Origin,
    },
    /// A guarded message that expects none.
    Post {
        /// The receiver.
        node: NodeId,
        /// Whose channel it leaves from.
        origin: Origin,
    },
    /// The reply to a request.
    Reply(Ticket),
    /// An unguarded message to one slot of a node.
    Free {
        /// The receiver.
        node: NodeId,
        /// Which of its threads.
        slot: Slot,
    },
    /// An unguarded message to every other node.
    FreeToAll,
    /// An unguarded message to the members of an [`Audience`], as one datagram where the network can.
    Set(AudienceId),
}

/// Whom a message to a set of nodes is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audience {
    /// These are to answer: it interrupts them.
    pub asked: NodeSet,
    /// These may want to know: for them it lies unread until a thread waits for such a message, or faults, or comes to
    /// a barrier.
    pub told: NodeSet,
}

impl Audience {
    /// All members, those that are asked first.
    pub fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.asked.iter().chain(self.told.iter().filter(|node| !self.asked.contains(*node)))
    }
}

/// The place of an audience in its outbox ([`Outbox::audience`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AudienceId(usize);

/// One message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Send {
    /// How and to whom.
    pub target: Target,
    /// The message's type.
    pub ty: MsgType,
    /// Where its body stands in the outbox.
    body: Range<usize>,
    /// Which buffer of its own it stands in, if it does.
    buffer: Option<usize>,
}

/// Bodies that were taken from an outbox in the buffers they were made in.
#[derive(Default, Debug)]
pub struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// The buffer of a message, and where in it the body begins; `None` where the body stands in the outbox.
    pub fn take(&mut self, send: &Send) -> Option<(Vec<u8>, usize)> {
        let buffer = self.0.get_mut(send.buffer?)?;
        Some((std::mem::take(buffer), send.body.start))
    }
}

/// The effects of a step.
#[derive(Default, Debug)]
pub struct Outbox {
    /// Room for what stands before a long reply's first fragment, then the bodies.
    bytes: Vec<u8>,
    /// Those that were made elsewhere.
    buffers: Vec<Vec<u8>>,
    sends: Vec<Send>,
    wakes: Vec<Slot>,
    handed_on: Vec<(Ticket, NodeId)>,
    audiences: Vec<Audience>,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Queues `message` for `target`.
    pub fn send(&mut self, target: Target, message: &Message<'_>) {
        self.send_with(target, message, |_| ());
    }

    /// Queues `message` for `target`; `tail` appends the bytes that end its body, so that a unit's data is
    /// copied once, from memory into the datagram to be.
    pub fn send_with(&mut self, target: Target, message: &Message<'_>, tail: impl FnOnce(&mut Vec<u8>)) {
        self.try_send_with(target, message, |body| {
            tail(body);
            true
        });
    }

    /// As [`Outbox::send_with`], unless `tail` says that there is no such message. Whether there is.
    pub fn try_send_with(
        &mut self,
        target: Target,
        message: &Message<'_>,
        tail: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        if self.sends.is_empty() {
            self.bytes.resize(LEAD, 0);
        }
        let start = self.bytes.len();
        message.emit(&mut self.bytes);
        let is_one = tail(&mut self.bytes);
        if is_one {
            self.sends.push(Send { target, ty: message.ty(), body: start..self.bytes.len(), buffer: None });
        } else {
            self.bytes.truncate(start);
        }
        is_one
    }

    /// Queues a post of type `ty` that was made elsewhere: its body is what stands in `buffer` from `start` on.
    pub fn post_buffer(&mut self, node: NodeId, origin: Origin, ty: MsgType, buffer: Vec<u8>, start: usize) {
        let (target, body) = (Target::Post { node, origin }, start..buffer.len());
        self.sends.push(Send { target, ty, body, buffer: Some(self.buffers.len()) });
        self.buffers.push(buffer);
    }

    /// Where a message to these nodes goes.
    pub fn set_target(&mut self, audience: Audience) -> Target {
        self.audiences.push(audience);
        Target::Set(AudienceId(self.audiences.len() - 1))
    }

    /// Whom a message of this outbox to a set is for.
    pub fn audience(&self, id: AudienceId) -> &Audience {
        &self.audiences[id.0]
    }

    /// Asks to wake an application thread of this node that waits for a local event.
    pub fn wake(&mut self, slot: Slot) {
        if !self.wakes.contains(&slot) {
            self.wakes.push(slot);
        }
    }

    /// Notes that the request behind `ticket` was handed to `node`, which will answer it.
    pub fn hand_on(&mut self, ticket: Ticket, node: NodeId) {
        self.handed_on.push((ticket, node));
    }

    /// The messages to send, in order.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }

    /// The body of one of the messages.
    pub fn body(&self, send: &Send) -> &[u8] {
        &send.buffer.map_or(&self.bytes, |at| &self.buffers[at])[send.body.clone()]
    }

    /// The bodies that stand in buffers of their own, for whoever sends them and can keep them as they are
    /// ([`Buffers::take`]).
    pub fn take_buffers(&mut self) -> Buffers {
        Buffers(std::mem::take(&mut self.buffers))
    }

    /// The reply that is the only message there is, its body behind [`LEAD`] bytes of room. Whoever takes it calls
    /// [`Outbox::is_sent`] then.
    pub fn only_reply(&mut self) -> Option<(Ticket, MsgType, &mut Vec<u8>)> {
        match self.sends[..] {
            [Send { target: Target::Reply(ticket), ty, buffer: None, .. }] => Some((ticket, ty, &mut self.bytes)),
            _ => None,
        }
    }

    /// All the messages have been sent.
    pub fn is_sent(&mut self) {
        self.sends.clear();
        self.audiences.clear();
    }

    /// The threads to wake.
    pub fn wakes(&self) -> &[Slot] {
        &self.wakes
    }

    /// Requests handed on to other nodes since the last clearing.
    pub fn handed_on(&self) -> &[(Ticket, NodeId)] {
        &self.handed_on
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.wakes.is_empty() && self.handed_on.is_empty()
    }

    /// Forgets everything, keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.buffers.clear();
        self.sends.clear();
        self.wakes.clear();
        self.handed_on.clear();
        self.audiences.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_to_a_set_goes_once_to_each_member() {
        let set = |nodes: &[u16]| nodes.iter().copied().map(NodeId).collect();
        let mut out = Outbox::new();
        let target = out.set_target(Audience { asked: set(&[4, 1]), told: set(&[1, 0]) });
        out.send(target, &Message::DiffsTold { body: b"x" });
        let Target::Set(id) = out.sends()[0].target else { panic!("{:?}", out.sends()) };
        assert_eq!(out.audience(id).members().collect::<Vec<_>>(), [NodeId(1), NodeId(4), NodeId(0)]);
        out.clear();
        assert!(out.is_empty());
    }

    #[test]
    fn a_post_that_was_made_elsewhere_is_read_here_or_taken_as_it_is() {
        let mut out = Outbox::new();
        out.post_buffer(NodeId(1), Origin::Service, MsgType(5), b"room and body".to_vec(), 9);
        out.send(Target::FreeToAll, &Message::Diffs { body: b"here" });
        let sends = out.sends().to_vec();
        assert_eq!(sends[0].target, Target::Post { node: NodeId(1), origin: Origin::Service });
        assert_eq!(sends.iter().map(|send| out.body(send)).collect::<Vec<_>>(), [b"body", b"here"]);
        assert!(out.only_reply().is_none());
        let mut buffers = out.take_buffers();
        assert_eq!(buffers.take(&sends[0]), Some((b"room and body".to_vec(), 9)));
        assert_eq!((buffers.take(&sends[1]), out.body(&sends[1])), (None, &b"here"[..]));
        out.clear();
        assert!(out.is_empty() && out.take_buffers().0.is_empty());
    }
}
