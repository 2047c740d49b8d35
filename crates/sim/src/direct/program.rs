//! What the threads of the model do, and on what machine.

use comem_protocol::coherence::direct::directory::Layout;
use comem_protocol::coherence::direct::miss::Site;
use comem_protocol::ids::NodeId;

/// Words of a unit in the model.
pub const WORDS: usize = 2;
/// The value of an invalid word.
pub const MAGIC: u16 = 0xfffd;

/// How one node reaches another's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fabric {
    /// Mapped memory: a put is a store, and leaves through the thread's store buffer in order with all others.
    Shared,
    /// A network: puts to one node arrive in order, and puts to two nodes in any order.
    Network,
    /// A network without one-sided operations: a thread of the other node runs them, a message at a time.
    Messages,
}

impl Fabric {
    /// Every one.
    pub const ALL: [Fabric; 3] = [Fabric::Shared, Fabric::Network, Fabric::Messages];
}

/// One access of a thread's program. A word is named by its unit and its place in the unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the fields carry the names of what they are
pub enum Access {
    /// Load, and keep the value.
    Load { unit: usize, word: usize },
    /// A plain store.
    Store { unit: usize, word: usize, value: u16 },
    /// Add one atomically.
    Add { unit: usize, word: usize },
    /// A sequentially consistent store: exchange the value.
    Swap { unit: usize, word: usize, value: u16 },
    /// Two plain stores to different units under one hazard.
    Strip { stores: [(usize, usize, u16); 2] },
    /// Bring copies of both units, to be loaded later.
    Bring { units: [usize; 2] },
}

impl Access {
    /// The units that the access stores to.
    pub fn stores(&self) -> Vec<(usize, usize, u16)> {
        match *self {
            Access::Load { .. } | Access::Bring { .. } => Vec::new(),
            Access::Store { unit, word, value } | Access::Swap { unit, word, value } => vec![(unit, word, value)],
            Access::Add { unit, word } => vec![(unit, word, 0)],
            Access::Strip { stores } => stores.to_vec(),
        }
    }

    /// Whether the access is an atomic operation, which leaves nothing in the store buffer.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Access::Add { .. } | Access::Swap { .. })
    }
}

/// The machine and the program.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How nodes reach each other.
    pub fabric: Fabric,
    /// How many nodes there are.
    pub nodes: usize,
    /// The home of each unit.
    pub homes: Vec<NodeId>,
    /// Lines of a unit: 1 or 2.
    pub lines: usize,
    /// Whether there is an asymmetric barrier. If not, all exclusive units are locked.
    pub has_barrier: bool,
    /// Whether stores to locked units that their node holds alone leave them biased.
    pub biases_again: bool,
    /// Whether a strip makes its units this node's alone side by side.
    pub has_groups: bool,
    /// Whether units are untouched at first, except at their homes.
    pub is_untouched: bool,
    /// The node that may crash, at any step.
    pub crash: Option<NodeId>,
    /// The threads: where each runs, and what it does.
    pub threads: Vec<(NodeId, Vec<Access>)>,
}

impl Setup {
    /// A machine with mapped memory and one unit of one line, at home on node 0.
    pub fn new(nodes: usize, threads: Vec<(NodeId, Vec<Access>)>) -> Setup {
        Setup {
            fabric: Fabric::Shared,
            nodes,
            homes: vec![NodeId(0)],
            lines: 1,
            has_barrier: true,
            biases_again: false,
            has_groups: false,
            is_untouched: false,
            crash: None,
            threads,
        }
    }

    /// The site of a miss of `unit` on node `me`.
    pub fn site(&self, me: NodeId, unit: usize) -> Site {
        let layout = Layout { home: self.homes[unit], nodes: self.nodes };
        let Setup { lines, has_barrier, biases_again, .. } = *self;
        Site { me, layout, lines, has_barrier, biases_again }
    }

    /// The line of a unit that holds `word`.
    pub fn line_of(&self, word: usize) -> usize {
        word * self.lines / WORDS
    }
}
