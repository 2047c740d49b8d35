//! Which nodes hold a unit: the directory at the unit's home.
//!
//! Jobs of up to eight nodes have a bit for each node in the presence byte of the home's entry (the paper's eight
//! presence bits). The home's own bit is inverted, so that a unit that only its home holds has the presence 0.
//!
//! Larger jobs use the byte as a code:
//!
//! | presence | holders |
//! |---|---|
//! | 0 | the home alone |
//! | 1 to 254 | node `presence - 1` alone |
//! | 255 | any other set: a bit for each node in the *wide words* of the unit, beside the home's entries |

use super::entry::Entry;
use crate::coherence::node_set::NodeSet;
use crate::ids::NodeId;

/// Most nodes of a job whose directory needs no wide words.
pub const NARROW_NODES_MAX: usize = 8;

const WIDE: u8 = 255;

/// How a unit's holders are written down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The unit's home.
    pub home: NodeId,
    /// How many nodes the job has.
    pub nodes: usize,
}

/// Holders as they stand in the directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coded {
    /// The presence byte.
    pub presence: u8,
    /// The set that goes into the wide words, if the byte does not say all.
    pub wide: Option<NodeSet>,
}

impl Layout {
    /// Words of 64 bits that hold a wide set.
    pub fn wide_words(&self) -> usize {
        if self.nodes <= NARROW_NODES_MAX { 0 } else { self.nodes.div_ceil(64) }
    }

    /// Whether the wide words say who holds the unit.
    pub fn is_wide(&self, entry: Entry) -> bool {
        self.nodes > NARROW_NODES_MAX && entry.presence() == WIDE
    }

    /// The nodes that hold the unit. `wide` is what the wide words say, where [`Layout::is_wide`]; nodes that the job
    /// does not have count for nothing.
    pub fn holders(&self, entry: Entry, wide: Option<&NodeSet>) -> NodeSet {
        let presence = entry.presence();
        if self.nodes <= NARROW_NODES_MAX {
            let bits = presence ^ self.home_bit();
            return NodeId::all(self.nodes).filter(|node| bits & (1 << node.0) != 0).collect();
        }
        match (presence, wide) {
            (0, _) => NodeSet::from_iter([self.home]),
            (WIDE, Some(set)) => set.iter().filter(|node| node.index() < self.nodes).collect(),
            (WIDE, None) => NodeSet::new(),
            (sole, _) => NodeSet::from_iter([NodeId(u16::from(sole) - 1)]),
        }
    }

    /// How the directory says that these nodes hold the unit.
    pub fn code(&self, holders: &NodeSet) -> Coded {
        if self.nodes <= NARROW_NODES_MAX {
            let bits = holders.iter().fold(0, |bits, node| bits | 1 << node.0);
            return Coded { presence: bits ^ self.home_bit(), wide: None };
        }
        let sole = holders.first().filter(|_| holders.len() == 1);
        match sole {
            Some(node) if node == self.home => Coded { presence: 0, wide: None },
            Some(node) if node.0 + 1 < u16::from(WIDE) => Coded { presence: node.0 as u8 + 1, wide: None },
            _ => Coded { presence: WIDE, wide: Some(holders.clone()) },
        }
    }

    fn home_bit(&self) -> u8 {
        1 << self.home.0
    }
}
