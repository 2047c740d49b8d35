//! What is asked of all of a node's channels together.

use super::{SendQueue, Wire};
use crate::counters::Counters;

impl Wire {
    /// Messages of this node that are on their way although nobody here waits for an answer.
    pub(crate) fn unsent_posts(&self) -> usize {
        let lines: usize = self.send_queues.iter().map(SendQueue::posts).sum();
        lines + self.senders.iter().map(|sender| sender.lock().posts()).sum::<usize>()
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
