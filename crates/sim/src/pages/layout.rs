//! Where the memory of a run is and how it is kept.

use comem_protocol::coherence::pages::multicast::history::History;
use comem_protocol::coherence::pages::page_table::{ChunkLayout, PageTable, PrefetchPlan};
use comem_protocol::coherence::pages::region::{Homes, Region};
use comem_protocol::coherence::pages::{PageEngine, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::tuning::{MulticastTuning, PageTuning, Tuning};
use std::ops::Range;
use std::sync::Arc;

/// Where memory is and how it is kept, the same on every node.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Threads of each.
    pub threads: usize,
    /// The job's engine, one with several writers; regions may have others.
    pub engine: PageEngine,
    /// The regions, one behind the other from page 0, and whether homes notice their own writes only while others hold
    /// copies.
    pub regions: Vec<(Region, bool)>,
    /// Pages of a chunk.
    pub chunk_pages: u32,
    /// Whether the memory notes writes, and whether page table entries get lost.
    pub memory: (bool, bool),
    /// Whether looks for writes find pages that were never mapped, as the kernel does.
    pub all_found: bool,
    /// Copies beyond so many pages are evicted.
    pub cache_pages: u32,
    /// With so many pages that have come to a node to stay, no more do.
    pub homes_max: i64,
    /// What is fetched with a faulting unit.
    pub ahead: PrefetchPlan,
    /// Whether a node fetches ahead after a barrier.
    pub fetches_ahead: bool,
    /// Whether homes offer pages, and others take them without asking.
    pub takes: bool,
    /// Whether nodes request tokens that have left at any time, and not as a turn begins alone.
    pub wants: bool,
    /// The numbers by which nodes tune themselves.
    pub tuning: Tuning,
    /// Whether nodes end intervals where nothing demands it, too.
    pub closes_early: bool,
    /// Whether pages are laid aside.
    pub idles: bool,
    /// Whether stores to page tables are forbidden again and again.
    pub forbids: bool,
    /// Whether home pages that are written again and again are compared, as few of many are, or their notes count as
    /// those of many do.
    pub compares: bool,
    /// After how many questions in a row homes send pages unasked, if they do.
    pub pushes: Option<u8>,
    /// Most bytes of diffs in a message.
    pub diffs_bytes: usize,
    /// A node whose diffs that stay take more bytes than so many announces a collection.
    pub diffs_kept_max: i64,
    /// Whether arrivals with more than a few notices are posted; else all are repeated until the barrier opens.
    pub posts_arrivals: bool,
    /// Where diffs are told to sets: how often such a message is lost, for each receiver by itself.
    pub told_loss_percent: u64,
    /// Whether they lie unread for a while although somebody would read them, and come twice.
    pub told_lies: bool,
    /// What an earlier run arrived at of such regions: this one starts with it.
    pub start: Option<Arc<History>>,
}

/// The name by which another run knows a region.
pub(super) fn name_of(number: usize) -> String {
    format!("region {number}")
}

/// The defaults, but for what runs as short as those of the simulator would never show.
pub(crate) fn eager() -> Tuning {
    Tuning {
        pages: PageTuning { write_prefetch_after: 1, ..PageTuning::DEFAULT },
        multicast: MulticastTuning { window_epochs: 2, homed_percent: 0, ..MulticastTuning::DEFAULT },
        ..Tuning::DEFAULT
    }
}

impl Layout {
    /// As this, where stores to page tables are forbidden again and again, and before the first copies come.
    pub(super) fn with_stores_forbidden(mut self) -> Layout {
        self.forbids = true;
        let eager = PageTuning { quiet_closes: 0, twinless_pages_min: 1, twinless_closes: 0, ..self.tuning.pages };
        self.tuning.pages = eager;
        self
    }

    /// Pages in all.
    pub fn pages(&self) -> u32 {
        self.regions.iter().map(|(r, _)| r.pages).sum()
    }

    fn region_of(&self, page: PageNo) -> Option<&Region> {
        self.regions.iter().map(|(r, _)| r).find(|r| r.range().contains(&page))
    }

    /// Whether nodes claim pages of the region with this one.
    pub(super) fn has_claims(&self, page: PageNo) -> bool {
        self.region_of(page).is_none_or(|region| region.homes != Homes::Automatic)
    }

    /// The engine of the region with a page.
    pub(super) fn engine_of(&self, page: PageNo) -> PageEngine {
        self.region_of(page).map_or(self.engine, |r| r.engine)
    }

    /// The pages of the unit that begins at a page, where homes migrate.
    pub(super) fn migrating_unit(&self, page: PageNo) -> Option<Range<PageNo>> {
        self.region_of(page).filter(|r| r.homes.migrate() && !r.engine.keeps_diffs()).map(|r| r.unit_of(page))
    }

    pub(super) fn chunks(&self, me: NodeId) -> Vec<PageTable> {
        (0..self.regions.len()).flat_map(|number| self.tables_of(me, number)).collect()
    }

    /// The tables of one region.
    pub(super) fn tables_of(&self, me: NodeId, number: usize) -> Vec<PageTable> {
        let pages = self.tuning.pages;
        let tuning = PageTuning {
            push: pages.push && self.pushes.is_some(),
            push_after: self.pushes.unwrap_or(pages.push_after),
            predicted_part: if self.compares { 0 } else { pages.predicted_part },
            ..pages
        };
        let mut chunks = Vec::new();
        let (region, write_detection) = &self.regions[number];
        let step = (self.chunk_pages / region.unit_pages()).max(1) * region.unit_pages();
        for first in region.range().step_by(step as usize) {
            let shape = ChunkLayout {
                first,
                pages: step.min(region.range().end - first),
                unit_pages: region.unit_pages(),
                first_touch: region.homes.first_touch(),
                write_detection: *write_detection,
                engine: region.engine,
            };
            let table = PageTable::new(me, shape, |page| region.home_of(page, self.nodes));
            chunks.push(table.tuned(tuning).with_sets_tuned(self.tuning.multicast));
        }
        let name = name_of(number);
        for (run, choice) in self.start.iter().flat_map(|history| history.choices(&name, region)) {
            for table in &mut chunks {
                let (first, end) = (table.layout().first, table.layout().first + table.layout().pages);
                let part = run.start.max(first)..run.end.min(end);
                if !part.is_empty() {
                    table.start_with(&part, choice);
                }
            }
        }
        chunks
    }
}
