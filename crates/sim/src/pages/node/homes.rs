//! Untouched memory that comes to a node, and how much of it may.

use super::Pages;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::ids::NodeId;
use std::ops::Range;

impl Pages {
    /// Claims units in the table of their home by the layout; gives what must be taken or asked for.
    pub(in super::super) fn claim(&mut self, home: NodeId, runs: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
        // Some nodes cannot see the home's table.
        if self.rng.below(3) == 0 {
            return runs;
        }
        let mut left = Vec::new();
        for unit in self.units_of(&runs) {
            if let Some(at) = self.chunk_of(unit.start) {
                self.with(at, |chunk, cx| chunk.claim(cx, &unit, home, &mut left));
            }
        }
        left
    }

    /// Whether more pages may have their home here than by the layout, and no more than that others have claimed what
    /// was this node's.
    pub(super) fn has_room_for_homes(&mut self) -> bool {
        let most = self.layout.homes_max;
        if self.tally.gained >= most {
            (0..self.chunks.len()).for_each(|at| self.with(at, |chunk, cx| chunk.collect_remote_claims(cx)));
        }
        self.tally.gained < most
    }
}
