//! Who allocates where in the heap.
//!
//! Each half of the heap (tracked, guarded) is cut into stretches of whole chunks, in this order:
//!
//! | stretch | of the half |
//! |---|---|
//! | nobody's, so that no allocation is at the heap's base | one chunk |
//! | node 0's, from which it allocates without asking anybody | a quarter, or what the other nodes leave of a half |
//! | each other node's, for the same | an equal part of a quarter |
//! | what all nodes allocate together, in the same order | the rest: half |
//!
//! Many programs leave allocating to node 0, so it has as much as all others.

use comem_protocol::coherence::pages::{CHUNK_PAGES, PageNo};
use comem_protocol::ids::NodeId;
use std::ops::Range;

const CHUNK: u64 = CHUNK_PAGES as u64;

/// The stretches of a heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    nodes: u64,
    /// Pages of the heap, of node 0's stretch, of another node's.
    pages: u64,
    zeros: u64,
    others: u64,
}

impl Layout {
    pub(super) fn new(nodes: usize, pages: u64) -> Layout {
        let chunks = (pages / 2 / CHUNK).saturating_sub(1);
        let (alone, others) = (chunks / 2, nodes as u64 - 1);
        // Where chunks are few each node has one, if there are so many.
        let most = alone.saturating_sub(1).checked_div(others).unwrap_or(0);
        let each = (alone / 2).checked_div(others).unwrap_or(0).max(1).min(most);
        Layout { nodes: nodes as u64, pages, zeros: (alone - each * others) * CHUNK, others: each * CHUNK }
    }

    fn half(&self) -> u64 {
        self.pages / 2
    }

    /// Where in its half the stretch of a node begins; that of the node behind the last is the common one's.
    fn start(&self, node: u64) -> u64 {
        CHUNK + node.min(1) * self.zeros + node.saturating_sub(1) * self.others
    }

    /// The pages of a half (0: tracked, 1: guarded) that a node allocates from alone, or for `None` all together.
    pub(super) fn stretch(&self, half: u64, of: Option<NodeId>) -> Range<u64> {
        let (start, end) = match of {
            Some(node) => (self.start(node.index() as u64), self.start(node.index() as u64 + 1)),
            None => (self.start(self.nodes), self.half() / CHUNK * CHUNK),
        };
        // The last page number of all stays unused.
        half * self.half() + start..(half * self.half() + end).min(self.pages - 1)
    }

    /// The node that allocates from the stretch with this page; `None` for the common one.
    pub(super) fn owner_of(&self, page: PageNo) -> Option<NodeId> {
        let at = (u64::from(page) % self.half()).checked_sub(CHUNK)?;
        let index = match at.checked_sub(self.zeros) {
            None => 0,
            Some(behind) => 1 + behind.checked_div(self.others)?,
        };
        (index < self.nodes).then_some(NodeId(index as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{HEAP_BYTES, HEAP_BYTES_MIN};
    use comem_protocol::coherence::pages::PAGE_BYTES;

    const PAGES_MAX: u64 = HEAP_BYTES / PAGE_BYTES as u64;
    const PAGES_MIN: u64 = HEAP_BYTES_MIN / PAGE_BYTES as u64;

    fn whose(nodes: usize) -> impl Iterator<Item = Option<NodeId>> {
        NodeId::all(nodes).map(Some).chain([None])
    }

    #[test]
    fn stretches_lie_side_by_side_and_their_borders_belong_to_them() {
        for pages in [PAGES_MIN, PAGES_MIN + 256, PAGES_MIN + 4 * CHUNK, PAGES_MAX / 3, PAGES_MAX] {
            for nodes in [1, 2, 3, 31, 64, 1024] {
                let layout = Layout::new(nodes, pages);
                for half in 0..2 {
                    let mut next = half * (pages / 2) + CHUNK;
                    for of in whose(nodes) {
                        let stretch = layout.stretch(half, of);
                        assert_eq!(stretch.start, next, "{of:?} of {nodes}");
                        next = stretch.end;
                        for page in [stretch.start, stretch.end - 1].into_iter().filter(|page| stretch.contains(page)) {
                            assert_eq!(layout.owner_of(page as PageNo), of, "page {page}, {nodes} nodes");
                        }
                        let whole = [stretch.start, stretch.end].map(|page| (page - half * (pages / 2)) % CHUNK);
                        assert!(whole == [0, 0] || next == pages - 1, "{of:?} of {nodes}: {whole:?}");
                    }
                    assert!(next <= (half + 1) * (pages / 2) && next <= u64::from(PageNo::MAX), "{nodes} nodes");
                }
            }
        }
    }

    #[test]
    fn all_together_have_half_and_node_0_as_much_as_the_others() {
        for nodes in [1, 2, 3, 64] {
            let layout = Layout::new(nodes, PAGES_MAX);
            let tib = |of| {
                let stretch = layout.stretch(0, of);
                (stretch.end - stretch.start) as f64 * PAGE_BYTES as f64 / (1u64 << 40) as f64
            };
            let zeros = if nodes == 1 { 4.0 } else { 2.0 };
            let is = |of, wanted: f64| assert!((tib(of) - wanted).abs() < 0.001, "{of:?} of {nodes}: {}", tib(of));
            is(None, 4.0);
            is(Some(NodeId(0)), zeros);
            NodeId::all(nodes).skip(1).for_each(|node| is(Some(node), 2.0 / (nodes - 1) as f64));
        }
    }

    #[test]
    fn in_the_smallest_heap_each_of_31_nodes_has_a_chunk() {
        for nodes in [1, 2, 3, 16, 17, 31] {
            let layout = Layout::new(nodes, PAGES_MIN);
            let has_one = |of: Option<NodeId>| layout.stretch(0, of).count() as u64 >= CHUNK;
            assert!(whose(nodes).all(has_one), "{nodes} nodes");
        }
        let many = Layout::new(64, PAGES_MIN);
        assert_eq!(many.stretch(0, Some(NodeId(63))).count(), 0);
        assert_eq!(many.owner_of(many.stretch(0, None).start as PageNo), None);
    }
}
