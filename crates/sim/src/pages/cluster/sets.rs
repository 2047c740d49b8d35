//! What nodes tell sets of nodes, and what they ask for again.

use super::{Cluster, Event, describe};
use crate::carrier::Incoming;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::time::Span;

impl Cluster {
    /// A message has come that tells a node something and asks it nothing.
    pub(super) fn told(&mut self, node: NodeId, message: Incoming) {
        if self.traces {
            let line = describe(&message);
            self.trace(|| format!("{node} is told by {}: {line}", message.from));
        }
        let reader = self.nodes[node.index()].lies_unread(message);
        let lies = self.nodes[node.index()].pages.layout.told_lies;
        if lies && self.rng.below(3) == 0 {
            let later = Span(self.rng.between(20_000, 3_000_000));
            self.after(later, Event::ReadTold(node));
        } else if let Some(t) = reader {
            self.outcome.told_read[node.index()].0 += 1;
            self.read_told(node, Some(t));
        }
    }

    pub(super) fn read_told(&mut self, node: NodeId, t: Option<usize>) {
        let mut out = std::mem::take(&mut self.out);
        let slot = t.map_or(Slot::SERVICE, Slot::thread);
        self.nodes[node.index()].pages.active.goes_on(t.map(Slot::thread));
        self.nodes[node.index()].pages.now = self.now;
        self.nodes[node.index()].read_told(t, &mut out);
        self.effects(node, slot, &mut out);
        self.out = out;
        self.rouse(node, slot);
    }

    pub(super) fn repair(&mut self, node: NodeId, t: usize, round: (PageNo, u32)) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[node.index()].pages.now = self.now;
        let repaired = self.nodes[node.index()].repair(t, round, &mut out);
        self.trace(|| format!("{node}.{t} asks {repaired} writers again for {round:?}"));
        self.outcome.repaired += repaired as u64;
        self.effects(node, Slot::thread(t), &mut out);
        self.out = out;
    }
}
