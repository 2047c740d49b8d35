//! Who allocates where in the heap.
//!
//! The heap has these parts. Jobs whose programs check their accesses themselves have lines memory too, and jobs whose
//! nodes map one memory have that. No job has both.
//!
//! | part | usually | with lines memory | with memory of one copy |
//! |---|---|---|---|
//! | tracked | the first half | the first half | the first quarter |
//! | one copy | none | none | the second and the third quarter |
//! | guarded | the second half | the third quarter | the last quarter |
//! | lines | none | the last quarter | none |
//!
//! Each part is cut into stretches of whole chunks, in this order:
//!
//! | stretch | of the part |
//! |---|---|
//! | nobody's, so that no allocation is at the heap's base | one chunk |
//! | node 0's, from which it allocates without asking anybody | a quarter, or what the other nodes leave of a half |
//! | each other node's, for the same | an equal part of a quarter |
//! | what all nodes allocate together, in the same order | the rest: half |
//!
//! Many programs leave allocating to node 0, so it has as much as all others.

use comem_protocol::coherence::pages::region::Part;
use comem_protocol::coherence::pages::{CHUNK_PAGES, PageNo};
use comem_protocol::ids::NodeId;
use std::ops::Range;

const CHUNK: u64 = CHUNK_PAGES as u64;

/// The pages of each part of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pages: u64,
    more: Option<Part>,
}

impl Parts {
    /// Those of a heap of so many pages with `more` than tracked and guarded pages: lines, or memory of one copy.
    pub(crate) fn new(pages: u64, more: Option<Part>) -> Parts {
        Parts { pages, more }
    }

    /// The pages of a part; none of one that the job has not.
    pub(crate) fn pages(&self, part: Part) -> Range<u64> {
        let (quarter, pages) = (self.pages / 4, self.pages);
        let half = pages / 2;
        let has_lines = self.more == Some(Part::Lines);
        let guarded = match self.more {
            Some(Part::OneCopy) => half + quarter..pages,
            _ if has_lines => half..half + quarter,
            _ => half..pages,
        };
        match part {
            Part::Tracked if self.more == Some(Part::OneCopy) => 0..quarter,
            Part::Tracked => 0..half,
            Part::Guarded => guarded,
            Part::Lines if has_lines => guarded.end..pages,
            Part::OneCopy if self.more == Some(Part::OneCopy) => quarter..guarded.start,
            Part::Lines | Part::OneCopy => pages..pages,
        }
    }

    /// The part with this page.
    fn of(&self, page: u64) -> Option<Part> {
        Part::ALL.into_iter().find(|part| self.pages(*part).contains(&page))
    }
}

/// The stretches of a part, in pages from its beginning.
#[derive(Clone, Copy, Debug)]
struct Extents {
    nodes: u64,
    /// Pages of the part, of node 0's stretch, of another node's.
    pages: u64,
    zeros: u64,
    others: u64,
}

impl Extents {
    fn new(nodes: usize, pages: u64) -> Extents {
        let chunks = (pages / CHUNK).saturating_sub(1);
        let (alone, others) = (chunks / 2, nodes as u64 - 1);
        // Where chunks are few each node has one, if there are so many.
        let most = alone.saturating_sub(1).checked_div(others).unwrap_or(0);
        let each = (alone / 2).checked_div(others).unwrap_or(0).max(1).min(most);
        Extents { nodes: nodes as u64, pages, zeros: (alone - each * others) * CHUNK, others: each * CHUNK }
    }

    /// Where the stretch of a node begins; that of the node behind the last is the common one's.
    fn start(&self, node: u64) -> u64 {
        CHUNK + node.min(1) * self.zeros + node.saturating_sub(1) * self.others
    }

    fn of(&self, whose: Option<NodeId>) -> Range<u64> {
        match whose {
            Some(node) => self.start(node.index() as u64)..self.start(node.index() as u64 + 1),
            None => self.start(self.nodes)..self.pages / CHUNK * CHUNK,
        }
    }

    fn owner_of(&self, at: u64) -> Option<NodeId> {
        let index = match at.checked_sub(CHUNK)?.checked_sub(self.zeros) {
            None => 0,
            Some(behind) => 1 + behind.checked_div(self.others)?,
        };
        (index < self.nodes).then_some(NodeId(index as u16))
    }
}

/// The stretches of a heap.
#[derive(Clone, Copy, Debug)]
pub(in crate::shared) struct HeapLayout {
    parts: Parts,
    stretches: [Extents; Part::ALL.len()],
}

impl HeapLayout {
    pub(in crate::shared) fn new(nodes: usize, parts: Parts) -> HeapLayout {
        let stretches = |part| {
            let Range { start, end } = parts.pages(part);
            Extents::new(nodes, end - start)
        };
        HeapLayout { parts, stretches: Part::ALL.map(stretches) }
    }

    /// The pages of a part that a node allocates from alone, or for `None` all together.
    pub(in crate::shared) fn stretch(&self, part: Part, of: Option<NodeId>) -> Range<u64> {
        let (whole, last) = (self.parts.pages(part), self.parts.pages - 1);
        let first = whole.start;
        let Range { start, end } = self.stretches[part as usize].of(of);
        if whole.is_empty() {
            return first..first;
        }
        // The last page number of all stays unused.
        first + start..(first + end).min(last)
    }

    /// The node that allocates from the stretch with this page; `None` for the common one.
    pub(in crate::shared) fn owner_of(&self, page: PageNo) -> Option<NodeId> {
        let part = self.parts.of(page.into())?;
        self.stretches[part as usize].owner_of(u64::from(page) - self.parts.pages(part).start)
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
        let sizes = [PAGES_MIN, PAGES_MIN + 256, PAGES_MIN + 4 * CHUNK, PAGES_MAX / 3, PAGES_MAX];
        let kinds = [None, Some(Part::Lines), Some(Part::OneCopy)];
        for (pages, more) in sizes.into_iter().flat_map(|pages| kinds.map(|more| (pages, more))) {
            let parts = Parts::new(pages, more);
            for nodes in [1, 2, 3, 31, 64, 1024] {
                let layout = HeapLayout::new(nodes, parts);
                for part in [Some(Part::Tracked), Some(Part::Guarded), more].iter().flatten() {
                    let Range { start, end } = parts.pages(*part);
                    let mut next = start + CHUNK;
                    for of in whose(nodes) {
                        let stretch = layout.stretch(*part, of);
                        assert_eq!(stretch.start, next, "{of:?} of {nodes}");
                        next = stretch.end;
                        for page in [stretch.start, stretch.end - 1].into_iter().filter(|page| stretch.contains(page)) {
                            assert_eq!(layout.owner_of(page as PageNo), of, "page {page}, {nodes} nodes");
                        }
                        let whole = [stretch.start, stretch.end].map(|page| (page - start) % CHUNK);
                        assert!(whole == [0, 0] || next == pages - 1, "{of:?} of {nodes}: {whole:?}");
                    }
                    assert!(next <= end && next <= u64::from(PageNo::MAX), "{nodes} nodes");
                }
            }
        }
    }

    #[test]
    fn all_together_have_half_and_node_0_as_much_as_the_others() {
        for nodes in [1, 2, 3, 64] {
            let layout = HeapLayout::new(nodes, Parts::new(PAGES_MAX, None));
            let tib = |of| {
                let stretch = layout.stretch(Part::Tracked, of);
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
            let layout = HeapLayout::new(nodes, Parts::new(PAGES_MIN, None));
            let has_one = |of: Option<NodeId>| layout.stretch(Part::Tracked, of).count() as u64 >= CHUNK;
            assert!(whose(nodes).all(has_one), "{nodes} nodes");
        }
        let many = HeapLayout::new(64, Parts::new(PAGES_MIN, None));
        assert_eq!(many.stretch(Part::Tracked, Some(NodeId(63))).count(), 0);
        assert_eq!(many.owner_of(many.stretch(Part::Tracked, None).start as PageNo), None);
    }

    #[test]
    fn lines_memory_is_the_last_quarter_where_there_is_any() {
        let [without, with] = [None, Some(Part::Lines)].map(|more| Parts::new(PAGES_MAX, more));
        assert_eq!(Part::ALL.map(|part| without.pages(part).count() as u64 * 4 / PAGES_MAX), [2, 2, 0, 0]);
        assert_eq!(Part::ALL.map(|part| with.pages(part).count() as u64 * 4 / PAGES_MAX), [2, 1, 1, 0]);
        assert_eq!(with.pages(Part::Lines).end, PAGES_MAX);
        let layout = HeapLayout::new(2, without);
        for part in [Part::Lines, Part::OneCopy] {
            assert!([None, Some(NodeId(1))].iter().all(|of| layout.stretch(part, *of).is_empty()));
        }
    }

    #[test]
    fn memory_of_one_copy_is_half_of_a_heap_that_has_it() {
        let with = Parts::new(PAGES_MAX, Some(Part::OneCopy));
        assert_eq!(Part::ALL.map(|part| with.pages(part).count() as u64 * 4 / PAGES_MAX), [1, 1, 0, 2]);
        assert_eq!(with.pages(Part::Tracked).end, with.pages(Part::OneCopy).start);
        assert_eq!(with.pages(Part::OneCopy).end, with.pages(Part::Guarded).start);
    }
}
