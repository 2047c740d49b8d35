//! What a run starts with, where diffs are told to sets: what an earlier one arrived at, or anything.

use super::layout::{Layout, name_of};
use super::node::Node;
use comem_protocol::coherence::pages::multicast::history::{Choice, History, Identity};
use comem_protocol::coherence::pages::multicast::placement::Placement;
use comem_protocol::faults::Rng;
use comem_protocol::ids::NodeId;

/// The job, as its history names it.
pub fn identity(layout: &Layout) -> Identity {
    let (nodes, threads) = (layout.nodes as u16, layout.threads as u16);
    Identity { program: [1; 32], nodes, threads, engine: layout.engine }
}

/// What nodes have arrived at, as one of them tells it: all agree.
pub(super) fn arrived_at(node: &Node, layout: &Layout) -> History {
    let mut history = History::new(identity(layout));
    for (number, (region, _)) in layout.regions.iter().enumerate() {
        for table in node.pages.chunks.iter().filter(|table| region.range().contains(&table.layout().first)) {
            history.add(&name_of(number), region, table.choices());
        }
    }
    history
}

/// Choices that nobody has arrived at.
pub(super) fn guessed(layout: &Layout, rng: &mut Rng) -> History {
    let mut history = History::new(identity(layout));
    for (number, (region, _)) in layout.regions.iter().enumerate() {
        for first in region.range().step_by(region.unit_pages() as usize) {
            let manager = NodeId(rng.below(layout.nodes as u64) as u16);
            let placement = Placement { manager, is_homed: rng.below(3) == 0 };
            let members = NodeId::all(layout.nodes).filter(|_| rng.below(2) == 0).collect();
            let choice = Choice { placement, is_early: rng.below(2) == 0, members, epochs: 1 };
            history.add(&name_of(number), region, [(first..first + region.unit_pages(), choice)]);
        }
    }
    history
}
