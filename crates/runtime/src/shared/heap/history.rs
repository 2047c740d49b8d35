//! What earlier runs of the program arrived at of its shared memory, and what this one arrives at.
//!
//! The launcher gives every node the same history
//! ([`multicast::history`](comem_protocol::coherence::pages::multicast::history)). A page table starts with what it
//! says of its region. Nodes must agree on that, so a region is looked up by what all of them know alike:
//!
//! - what a node allocates alone has the label that its node tells the others;
//! - what all allocate together has a label that is checked to be the same everywhere. Without one it is known by where
//!   the program allocates it, and that is compared first: nodes may do so in different lines.
//!
//! The second region of a name gets a number. Node zero tells the launcher at the end, since all nodes have heard the
//! same at barriers.

use crate::control::FromNode;
use crate::error::Result;
use crate::mutex::Mutex;
use crate::node::Node;
use crate::shared::Shared;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::table::RegionState;
use comem_protocol::coherence::checksum;
use comem_protocol::coherence::pages::multicast::history::{Choice, History, name_of, numbered};
use comem_protocol::coherence::pages::page_table::PageTable;
use comem_protocol::coherence::pages::region::Region;
use comem_protocol::coherence::pages::{PageEngine, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::wire::message::Collective;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many lines of regions that were freed are kept for the end: about as many as a file has.
const FREED_LINES_MAX: usize = 10_000;

/// Of a region's units, as runs of pages.
pub(super) type Choices = Vec<(Range<PageNo>, Choice)>;

/// The history of a job; nothing in one that keeps none.
#[derive(Debug, Default)]
pub(in crate::shared) struct KeptHistory {
    earlier: Option<Arc<History>>,
    /// Of regions that were freed: what this run had arrived at.
    freed: Mutex<Vec<(Region, Choices)>>,
    /// Units that began with what an earlier run arrived at.
    units: AtomicU64,
}

impl KeptHistory {
    pub(super) fn new(earlier: Option<&Arc<History>>) -> KeptHistory {
        KeptHistory { earlier: earlier.cloned(), ..KeptHistory::default() }
    }

    fn is_kept_of(&self, engine: PageEngine) -> bool {
        self.earlier.is_some() && engine.tells_sets()
    }

    /// What this region starts with.
    pub(super) fn starts(&self, region: &Region) -> Choices {
        let Some(earlier) = self.earlier.as_ref().filter(|_| region.engine.tells_sets()) else { return Vec::new() };
        let name = name_of(region);
        let starts: Vec<_> = earlier.choices(&name, region).map(|(run, choice)| (run, choice.clone())).collect();
        let pages: u32 = starts.iter().map(|(run, _)| run.end - run.start).sum();
        self.units.fetch_add(u64::from(pages / region.unit_pages()), Relaxed);
        starts
    }

    /// A region is about to be freed.
    pub(super) fn note_freed(&self, known: &RegionState) {
        let is_kept = self.is_kept_of(known.region.engine) && !known.region.label.is_empty();
        let mut freed = self.freed.lock();
        if is_kept && freed.len() < FREED_LINES_MAX {
            freed.push((known.region.clone(), arrived_at(known)));
        }
    }
}

/// What a region's units have arrived at.
fn arrived_at(known: &RegionState) -> Choices {
    known.slots().flat_map(|slot| slot.lock().table.choices()).collect()
}

/// A page table begins with what is known of its region.
pub(super) fn start(table: &mut PageTable, starts: &[(Range<PageNo>, Choice)]) {
    let (first, end) = (table.layout().first, table.layout().first + table.layout().pages);
    for (run, choice) in starts {
        let part = run.start.max(first)..run.end.min(end);
        if !part.is_empty() {
            table.start_with(&part, choice);
        }
    }
}

impl Shared {
    /// In how many units this job has begun with what an earlier run arrived at; `None` where it keeps no history.
    pub(crate) fn units_from_history(&self) -> Option<u64> {
        let kept = &self.table.kept_history;
        kept.earlier.as_ref().map(|_| kept.units.load(Relaxed))
    }

    /// The history of this run; `None` where none is kept, or nothing is known.
    fn history(&self) -> Option<History> {
        let kept = &self.table.kept_history;
        let mut history = History::new(kept.earlier.as_ref()?.identity.clone());
        for (region, choices) in kept.freed.lock().drain(..) {
            history.add(&name_of(&region), &region, choices);
        }
        for known in self.table.all().iter().filter(|known| known.region.engine.tells_sets() && !known.is_freed()) {
            history.add(&name_of(&known.region), &known.region, arrived_at(known));
        }
        (!history.variables.is_empty()).then_some(history)
    }
}

/// The job has come to a good end: node zero tells the launcher what it arrived at.
pub(crate) fn tell(node: &Node) {
    if let Some(history) = node.shared().filter(|_| node.me() == NodeId(0)).and_then(Shared::history) {
        node.launcher.tell(&FromNode::History { text: history.encode() });
    }
}

impl ThreadHeap<'_> {
    /// A region's label, with a number where this node, or all together, had others of it: what the next run will know
    /// it by. As it is where no history is kept.
    pub(super) fn numbered(&self, engine: PageEngine, label: &str, owner: Option<NodeId>) -> String {
        let ThreadHeap { shared, .. } = *self;
        if label.is_empty() || !shared.table.kept_history.is_kept_of(engine) {
            return label.to_string();
        }
        let mut allocator = shared.allocator.lock();
        let before = allocator.names[usize::from(owner.is_none())].entry(label.to_string()).or_insert(0);
        *before += 1;
        numbered(label, *before - 1)
    }

    /// The same for what all nodes allocate together. What has no label is named by its site, if that is the same
    /// everywhere. Where nothing is known of earlier runs no node needs to agree, and none is asked.
    pub(super) fn name_for_all(&self, engine: PageEngine, label: &str, site: &str) -> Result<String> {
        let ThreadHeap { thread, shared } = *self;
        let kept = &shared.table.kept_history;
        if !label.is_empty() || !kept.is_kept_of(engine) {
            return Ok(self.numbered(engine, label, None));
        }
        if kept.earlier.as_ref().is_some_and(|earlier| !earlier.variables.is_empty()) {
            // The least of the numbers and of their opposites: they are the same everywhere if both are one's own.
            let mine = (checksum(site.as_bytes()) >> 1) as i64;
            let mine: Vec<u8> = [mine, -mine].into_iter().flat_map(i64::to_be_bytes).collect();
            if !thread.collective(Collective::PLACE, &mine, |least| least == mine)? {
                return Ok(String::new());
            }
        }
        Ok(self.numbered(engine, site, None))
    }
}
