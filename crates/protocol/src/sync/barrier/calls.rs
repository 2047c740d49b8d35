//! The collective calls that meet at a barrier.

use crate::ids::NodeId;
use crate::rules::Rule;
use crate::sync::reduce::{Number, Operator, Reduction};
use crate::wire::message::Collective;

/// The kinds of collective call.
pub mod kinds {
    /// A barrier of all threads.
    pub const BARRIER: u8 = 1;
    /// Creation of a shared object, called once a node; the detail is a hash of its shape.
    pub const CREATE: u8 = 2;
    /// A reduction of all threads; the detail holds operator, kind of number and length.
    pub const REDUCE: u8 = 3;
    /// The end of the program, called once a node.
    pub const EXIT: u8 = 4;
    /// A barrier of all threads that says nothing about memory (JIAJIA's `jia_wait`).
    pub const RENDEZVOUS: u8 = 5;
    /// The choice of a place for the shared heap, called once a node: the least of integers.
    pub const PLACE: u8 = 6;
    /// A node has come to the end of its part, in the middle of which the others may still be. Meets any other call:
    /// that fails at whoever made it, and all go on from there.
    pub const LEAVE: u8 = 7;
    /// The choice of the unit of shared memory that all nodes allocate together, or of its place, called once a node:
    /// the largest of integers.
    pub const UNIT: u8 = 8;
    /// A barrier of nodes, called by one thread of each, whose other threads do not use shared memory meanwhile.
    pub const NODES: u8 = 9;

    /// The kind's name in messages to people.
    pub fn name(kind: u8) -> &'static str {
        match kind {
            BARRIER => "a barrier",
            CREATE => "the creation of a shared object or allocation of memory",
            REDUCE => "a reduction",
            EXIT => "the end of the program",
            RENDEZVOUS => "a rendezvous",
            PLACE => "the choice of a place for the shared heap",
            LEAVE => "the end of what all do together",
            UNIT => "the allocation of shared memory",
            NODES => "a barrier of nodes",
            _ => "an unknown collective call",
        }
    }
}

impl Collective {
    /// A plain barrier.
    pub const BARRIER: Collective = Collective { kind: kinds::BARRIER, detail: 0 };
    /// A barrier of nodes.
    pub const NODES: Collective = Collective { kind: kinds::NODES, detail: 0 };
    /// The end of the program.
    pub const EXIT: Collective = Collective { kind: kinds::EXIT, detail: 0 };
    /// Before that, where node 0 is to have what others wrote last.
    pub const LAST_WRITES: Collective = Collective { kind: kinds::EXIT, detail: 1 };

    /// No call at all: a node whose own arrival was posted asks a peer to repeat what it said.
    pub(super) const QUESTION: Collective = Collective { kind: 0, detail: 0 };

    /// A barrier without coherence.
    pub const RENDEZVOUS: Collective = Collective { kind: kinds::RENDEZVOUS, detail: 0 };

    /// The choice of a place for the heap.
    pub const PLACE: Collective = Collective { kind: kinds::PLACE, detail: 0 };

    /// The choice of a unit.
    pub const UNIT: Collective = Collective { kind: kinds::UNIT, detail: 0 };

    /// The choice of a place that was in use before.
    pub const AGAIN: Collective = Collective { kind: kinds::UNIT, detail: 1 };

    /// The end of a node's part.
    pub const LEAVE: Collective = Collective { kind: kinds::LEAVE, detail: 0 };

    /// Whether memory is consistent when the call returns: then arrivals carry write notices.
    pub fn is_coherent(self) -> bool {
        match self.kind {
            kinds::BARRIER | kinds::LEAVE | kinds::NODES => true,
            kinds::REDUCE => Rule::ReductionsTell.on(),
            _ => self == Collective::LAST_WRITES,
        }
    }

    /// What a barrier comes to where `node` has left and others have not.
    pub(super) fn left_by(node: NodeId) -> Collective {
        Collective { kind: kinds::LEAVE, detail: u64::from(node.0) + 1 }
    }

    /// The node that had left, where others had not.
    pub(super) fn leaver(self) -> Option<NodeId> {
        (self.kind == kinds::LEAVE && self.detail > 0).then(|| NodeId((self.detail - 1) as u16))
    }

    /// The creation of an object of this shape.
    pub fn create(shape: u64) -> Collective {
        Collective { kind: kinds::CREATE, detail: shape }
    }

    /// A reduction of `count` numbers.
    pub fn reduce(reduction: Reduction, count: usize) -> Collective {
        Collective { kind: kinds::REDUCE, detail: u64::from(reduction.code()) << 32 | count as u64 }
    }

    /// The same call, made by callers that must agree on something else too.
    #[must_use]
    pub fn agreeing(self, terms: u16) -> Collective {
        Collective { detail: self.detail | u64::from(terms) << 48, ..self }
    }

    /// Whether the call has no argument and no result, and arrivals at it may be words.
    pub(super) fn fits_word(self) -> bool {
        self.detail == 0 && matches!(self.kind, kinds::BARRIER | kinds::RENDEZVOUS | kinds::NODES)
    }

    pub(super) fn reduction(self) -> Option<Reduction> {
        match self.kind {
            kinds::REDUCE => Reduction::from_code((self.detail >> 32) as u8),
            kinds::PLACE => Some(Reduction { operator: Operator::Min, number: Number::I64 }),
            kinds::UNIT => Some(Reduction { operator: Operator::Max, number: Number::I64 }),
            _ => None,
        }
    }

    /// Whether every thread takes part, or one thread for each node.
    pub fn by_threads(self) -> bool {
        matches!(self.kind, kinds::BARRIER | kinds::REDUCE | kinds::RENDEZVOUS | kinds::LEAVE)
    }
}
