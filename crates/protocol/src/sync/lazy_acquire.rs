//! What a lazy acquire of a lock lacks, whose token came without everything.
//!
//! Under `scope` a lazy acquire (Brazos: Speight and Bennett, USENIX Windows NT 1997, section 3.3) brings all that the
//! releaser had written, and so its node says with its request that it wants to be told that. But the token may have
//! been here, or under way, before; and it may have come through a node that had asked for it plainly, and knows no
//! more than it was told. The [intervals](crate::coherence::pages::intervals) know such tokens. Then the lock's holder
//! asks all other nodes what they have written, one after the other: what had happened before any release of the lock
//! is among that.

use super::lock::Locks;
use super::{Context, IntervalMark, Scope};
use crate::ids::{LockId, NodeId};
use crate::outbox::{Origin, Target};
use crate::wire::message::{Message, Ticket};

/// The nodes that are still to be asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Behind {
    left: Vec<NodeId>,
    asked: Option<NodeId>,
}

impl Locks {
    /// The lock's holder asks the next node what it has written, unless one has been asked and has not answered;
    /// `false` when all have been, and what they told has been taken in. Otherwise wait until woken or answered, and
    /// ask again.
    pub fn catch_up(&mut self, cx: &mut Context<'_>, id: LockId) -> bool {
        let others = || NodeId::all(cx.nodes).filter(|node| *node != cx.me).collect();
        let behind = self.behind.entry(id).or_insert_with(|| Behind { left: others(), asked: None });
        if behind.asked.is_some() {
            return true;
        }
        behind.asked = behind.left.pop();
        let Some(node) = behind.asked else {
            self.behind.remove(&id);
            return false;
        };
        let payload = &mut *cx.payload;
        let target = Target::Request { node, origin: Origin::Caller };
        cx.out.send_with(target, &Message::CatchUp { lock: id, knowledge: &[] }, |body| {
            payload.knowledge(Scope::All, body);
        });
        true
    }

    /// A node elsewhere asks what this one has written.
    pub fn on_catch_up(&mut self, cx: &mut Context<'_>, id: LockId, ticket: Ticket, knowledge: &[u8]) {
        let payload = &mut *cx.payload;
        let (answer, to) = (Message::CaughtUp { lock: id, payload: &[] }, ticket.channel.node);
        cx.out.send_with(Target::Reply(ticket), &answer, |body| {
            payload.on_release(Scope::All, to, knowledge, IntervalMark::NOW, body);
        });
    }

    /// Its answer, if it has been asked.
    pub fn on_caught_up(&mut self, cx: &mut Context<'_>, id: LockId, from: NodeId, payload: &[u8]) {
        let asked = self.behind.get_mut(&id).and_then(|behind| behind.asked.take_if(|node| *node == from));
        if asked.is_none() {
            return;
        }
        if !payload.is_empty() {
            cx.payload.on_acquire(Scope::All, payload);
        }
        if let Some(holder) = self.holder(id) {
            cx.wake(holder);
        }
    }
}

#[cfg(test)]
#[path = "lazy_acquire_tests.rs"]
mod tests;
