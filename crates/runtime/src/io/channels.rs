//! What is asked of all of a node's channels together.

use super::{SendQueue, Wire};
use crate::counters::Counters;
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::ids::{Channel, NodeId, Slot};
use comem_protocol::time::Time;

impl Wire {
    /// How many pages of a unit fit one message on this network.
    pub(crate) fn message_pages(&self) -> usize {
        // Beside a page's bytes a diff of it has a few more, and a message a few of its own.
        self.message_bytes().saturating_sub(64) / (PAGE_BYTES + 16)
    }

    /// The port of a node's service socket, which no two nodes of one host have in common.
    pub(crate) fn service_port(&self, node: NodeId) -> u16 {
        self.address(Channel::service(node)).map_or(0, |address| address.port())
    }

    /// Whether something that a slot has sent is under way.
    pub(crate) fn is_sending(&self, slot: Slot) -> bool {
        self.sender(slot).lock().outstanding() > 0
    }

    /// Messages of this node that are on their way although nobody here waits for an answer.
    pub(crate) fn unsent_posts(&self) -> usize {
        let lines: usize = self.send_queues.iter().map(SendQueue::posts).sum();
        lines + self.senders.iter().map(|sender| sender.lock().posts()).sum::<usize>()
    }

    /// The nodes that owe an answer to what a slot has sent before that.
    pub(crate) fn unanswered(&self, before: Time, waiting: &mut Vec<(NodeId, Time)>) {
        self.senders.iter().for_each(|sender| waiting.extend(sender.lock().unanswered(before)));
    }

    /// What the senders counted, each from the start on.
    pub(crate) fn link_counters(&self) -> impl Iterator<Item = Counters> {
        self.senders.iter().map(|sender| {
            let (counted, counters) = (sender.lock().counters(), Counters::default());
            counters.retransmissions.add(counted.retransmissions);
            counters.timeouts.add(counted.timeouts);
            counters
        })
    }

    /// Whether something has come for a thread of the program.
    pub(crate) fn threads_glance(&self) -> bool {
        self.endpoints.iter().take(self.senders.len()).skip(1).any(|endpoint| endpoint.glance())
    }
}
