//! Collective calls that do not go together, as those who made them are told.

use crate::ids::NodeId;
use crate::sync::barrier::kinds;
use crate::wire::message::Collective;

/// Two parties that came to one barrier with different calls, and what each called. Both may be threads of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apart(pub [(NodeId, Collective); 2]);

impl Apart {
    /// What a call at node `me` is told: the call that does not go with it, where there is one.
    pub(crate) fn as_met(self, me: NodeId, mine: Collective) -> Mismatch {
        let neighbour = self.0.iter().all(|(node, _)| *node == me);
        let other = self.0.iter().find(|(node, theirs)| *theirs != mine && (neighbour || *node != me));
        let (node, theirs) = *other.unwrap_or(&self.0[0]);
        Mismatch { node, theirs, mine, neighbour, earlier: false }
    }
}

/// A collective call did not go with that of another party.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The other party.
    pub node: NodeId,
    /// What it called.
    pub theirs: Collective,
    /// What was called here.
    pub mine: Collective,
    /// The other party is another thread of the same node.
    pub neighbour: bool,
    /// That was at an earlier call. Nobody knows since what goes with what.
    pub earlier: bool,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mine, theirs) = (kinds::name(self.mine.kind), kinds::name(self.theirs.kind));
        if self.earlier {
            write!(f, "no collective call works any more since ")?;
        }
        match (self.mine.kind == self.theirs.kind, self.neighbour) {
            (true, false) if self.mine == self.theirs => {
                write!(f, "two threads of {} call for {mine} at the same time", self.node)
            }
            (true, false) => write!(f, "{mine} here and at {} differ in shape or arguments", self.node),
            (false, false) => write!(f, "{mine} here met {theirs} at {}", self.node),
            (true, true) => {
                write!(f, "two threads of this node call for {mine} at the same time, or with different arguments")
            }
            (false, true) => write!(f, "{mine} here met {theirs} in another thread of this node"),
        }
    }
}

impl std::error::Error for Mismatch {}
