//! Untouched memory that comes to a node, and how much of it may.

use super::Pages;

impl Pages {
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
