//! The requester's side: which operations of a batch go to whom together, and when the thread waits.

use super::super::one_sided::Op;
use crate::ids::NodeId;
use smallvec::SmallVec;

/// What a thread does next with a batch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Send these operations to this node, in one message. Nothing is under way to it.
    Send(NodeId, Vec<Op>),
    /// Wait for the answers to everything that was sent, and store the bytes that they brought.
    Await,
    /// Do this on the thread's own node.
    Here(Op),
}

/// The steps of `batch`, for a thread of node `me`. The last one is [`Step::Await`] if anything was sent.
///
/// Operations on one node keep their order. Those on different nodes have none, except where [`Op::Flush`] makes one or
/// where the thread itself needs the bytes. So a flush costs nothing where all that comes before it and the next
/// operation go to the same node.
pub fn split(me: NodeId, batch: &[Op]) -> SmallVec<[Step; 8]> {
    let mut splitting = Splitting::default();
    for op in batch {
        match op.target(me) {
            Some(node) => splitting.remote(node, op),
            None if *op == Op::Flush => splitting.must_flush = !splitting.open.is_empty(),
            None => splitting.here(op),
        }
    }
    splitting.settle();
    splitting.steps
}

#[derive(Default)]
struct Splitting {
    steps: SmallVec<[Step; 8]>,
    /// What will be sent, by node, in the order of the first operations.
    open: SmallVec<[(NodeId, Vec<Op>); 4]>,
    /// Whether they bring bytes for this node's memory.
    brings_data: bool,
    /// There was a flush behind them.
    must_flush: bool,
}

impl Splitting {
    fn remote(&mut self, node: NodeId, op: &Op) {
        if self.must_flush && self.open.iter().any(|(other, _)| *other != node) {
            self.settle();
        }
        self.brings_data |= matches!(op, Op::GetData { .. });
        match self.open.iter_mut().find(|(other, _)| *other == node) {
            Some((_, ops)) => ops.push(op.clone()),
            None => self.open.push((node, vec![op.clone()])),
        }
    }

    fn here(&mut self, op: &Op) {
        if self.must_flush || self.brings_data {
            self.settle();
        }
        self.steps.push(Step::Here(op.clone()));
    }

    /// Sends everything and waits for it.
    fn settle(&mut self) {
        (self.brings_data, self.must_flush) = (false, false);
        if self.open.is_empty() {
            return;
        }
        self.steps.extend(self.open.drain(..).map(|(node, ops)| Step::Send(node, ops)));
        self.steps.push(Step::Await);
    }
}
