//! The shared heap of a node: memory for ordinary loads and stores, kept coherent page by page.
//!
//! | folder or file | does |
//! |---|---|
//! | [`heap`] | the same addresses on every node; regions and their page tables; allocation and freeing |
//! | [`fault`] | from the signal to the reply and back; prefetching by strides |
//! | [`cache`] | the cache's bound, which copies are given up for it, and how many mappings the kernel allows |
//! | [`consistency`] | the effects of the page logic in `protocol` at releases and acquires; what other nodes ask |
//! | [`one_sided`] | pages, diffs and atomic operations in another node's memory without its part |
//! | [`memory`] | what the protocol's steps do to real memory: views, twins, diffs |
//! | [`one_copy`] | memory that all nodes map, and no protocol keeps coherent |
//! | [`hooks`] | system calls on shared buffers: the wrapper library's way in |
//!
//! A job of one node has no detector and no faults: its heap is plain memory.

pub(crate) mod cache;
pub(crate) mod consistency;
pub(crate) mod fault;
pub(crate) mod heap;
pub(crate) mod hooks;
pub(crate) mod memory;
pub(crate) mod one_copy;
pub(crate) mod one_sided;

use crate::capacity::memory_free_bytes;
use crate::config::{CacheLimit, Config};
use crate::direct::engine::LinePeers;
use crate::error::{Error, Result};
use crate::mutex::Mutex;
use comem_memory::lines::Lines;
use comem_memory::mapping::Mapping;
use comem_memory::pages::{Arena, Detector, OneCopy, PeerView, SharedDirectory, Tracking};
use comem_memory::twins::Twins;
use comem_net::Backbone;
use comem_protocol::coherence::pages::home_queue::HomeQueue;
use comem_protocol::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use comem_protocol::coherence::pages::migration::Migration;
use comem_protocol::coherence::pages::policy::lock_working_set::LockWorkingSets;
use comem_protocol::coherence::pages::policy::scan_cost::ScanCost;
use comem_protocol::coherence::pages::policy::sync_phase::SyncPhase;
use comem_protocol::coherence::pages::push::PushBuffer;
use comem_protocol::coherence::pages::region::{Part, Region};
use comem_protocol::coherence::pages::{PAGE_BYTES, PageEngine, PageNo};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::sync::IntervalMark;
use comem_protocol::tuning::Tuning;
use consistency::false_sharing::FalseSharing;
use heap::alloc::Allocator;
use heap::heap_layout::Parts;
use heap::table::Table;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Memory that other nodes see too.
#[derive(Debug)]
pub(crate) struct Views {
    /// Pages whose writes may be found afterwards.
    pub(crate) tracked: Arena,
    /// Pages whose writes need permission first.
    pub(crate) guarded: Arena,
    /// Memory whose accesses the program checks itself, in jobs that have such memory.
    pub(crate) lines: Option<Lines>,
    /// Memory of which there is one copy, which all nodes map, in jobs that have such memory.
    pub(crate) one_copy: Option<OneCopy>,
    /// The same of the other nodes, where their memory can be reached without them.
    pub(crate) line_peers: OnceLock<LinePeers>,
    pub(crate) detector: Detector,
    /// What other nodes may copy by themselves, where they can and the kernel notes this node's writes.
    pub(crate) directory: Option<SharedDirectory>,
    /// Whether pages come in messages alone, never out of another node's memory.
    pub(crate) own_bytes: bool,
    /// Other nodes' memory, where this node can read it; looked for at the first fetch.
    pub(crate) peers: Vec<OnceLock<Option<Peer>>>,
}

/// Another node's memory, and what of it may be copied without asking.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) memory: PeerView,
    pub(crate) directory: Option<SharedDirectory>,
}

/// Where the heap of a job of several nodes lies, and how accesses to it are noticed here.
pub(crate) struct Place {
    pub(crate) base: usize,
    pub(crate) detector: Detector,
    /// See [`Shared::units_may_differ`].
    pub(crate) units_may_differ: bool,
    /// Whether all nodes have barriers on one another's threads.
    pub(crate) has_barrier: bool,
    /// Memory that all nodes have mapped.
    pub(crate) one_copy: Option<OneCopy>,
    /// The job's engine of pages, as all have settled it.
    pub(crate) page_engine: PageEngine,
}

/// The heap of a node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) me: NodeId,
    pub(crate) nodes: usize,
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    /// The job's engine for pages.
    pub(crate) page_engine: PageEngine,
    parts: Parts,
    /// Whether any node changes permissions by `mprotect`, and so may come to use larger units than others.
    pub(crate) units_may_differ: bool,
    /// None in a job of one node.
    pub(crate) views: Option<Views>,
    /// The memory of a job of one node.
    pub(crate) plain: Option<Mapping>,
    /// The program's global variables, where they are shared.
    pub(crate) globals: OnceLock<heap::globals::Globals>,
    pub(crate) twins: Twins,
    pub(crate) table: Table,
    pub(crate) allocator: Mutex<Allocator>,
    /// Small blocks that all nodes allocate together.
    pub(crate) packed: Mutex<heap::packed_alloc::PackedAllocator>,
    /// Whether any were since that was last compared with the other nodes.
    pub(crate) packed_calls: AtomicBool,
    /// Threads that have come to a call before which that is compared.
    pub(crate) packed_callers: consistency::release::CallCount,
    pub(crate) intervals: Mutex<IntervalState>,
    pub(crate) needs: Mutex<RequiredDiffs>,
    /// What engines need whose diffs stay with their writers.
    pub(crate) kept_diffs: consistency::kept_diffs::KeptDiffs,
    pub(crate) home_queue: Mutex<HomeQueue>,
    /// What other nodes have sent unasked. Taken last: who holds it takes no other lock.
    pub(crate) push_buffer: Mutex<PushBuffer>,
    /// Where homes go at barriers.
    pub(crate) migration: Mutex<Migration>,
    /// The epoch, to read without the lock of `IntervalState`.
    pub(crate) epoch: AtomicU32,
    /// Where threads come together around coherent barriers.
    pub(crate) gate: consistency::release::BarrierGate,
    /// Whether diffs for this node's own home pages were announced that may not have come.
    pub(crate) awaiting: AtomicBool,
    /// Threads that wait for such diffs.
    pub(crate) diff_waiters: Mutex<Vec<Slot>>,
    /// How this node's intervals have ended lately.
    pub(crate) sync_phase: Mutex<SyncPhase>,
    /// Chunks in which an interval's close may find something, by their first pages.
    pub(crate) active: Mutex<Vec<PageNo>>,
    /// How many intervals have begun to end, those that end in slices apart.
    pub(crate) closes: AtomicU64,
    /// Whether this node's workers have begun: see [`Thread::begin_work`](crate::Thread::begin_work).
    pub(crate) claims: AtomicBool,
    /// What scans for writes have cost.
    pub(crate) scan_cost: Mutex<ScanCost>,
    /// Who wrote where to pages whose home is here.
    pub(crate) sharing: FalseSharing,
    /// When an interval was last closed.
    pub(crate) last_close: AtomicU64,
    /// Copies that ended at the last acquires, to be fetched again if they were in use.
    pub(crate) invalidated: Mutex<Vec<Range<PageNo>>>,
    /// The job's numbers.
    pub(crate) tuning: Tuning,
    /// Which pages belong to which lock.
    working_sets: Mutex<LockWorkingSets>,
    /// Whether barriers pass over pages that belong to locks.
    passes_over: AtomicBool,
    pub(crate) cached_pages: AtomicU64,
    /// The cache's bound; see [`cache::page_cache`] for why it may grow.
    pub(crate) cache_pages_max: AtomicU64,
    /// It is never less than this.
    cache_pages_least: AtomicU64,
    /// The homes that came here.
    home_quota: cache::home_quota::HomeQuota,
    /// Where copies are, of engines with several writers.
    page_cache: cache::page_cache::PageCache,
    /// Units under `msi` whose memory is in use here and that have their home elsewhere, by their first pages, in the
    /// order in which they came; without those that are on their way home.
    pub(crate) units: Mutex<VecDeque<PageNo>>,
    /// What faulting threads wait for, by their slots.
    awaited: Vec<fault::awaited::Awaited>,
    /// Pages under `msi` that faulting threads hold until they have retried.
    pub(crate) holds: consistency::msi_pages::Holds,
}

impl Shared {
    /// The heap at its place, or of a job of one node anywhere, mostly at the first place of all.
    pub(crate) fn new(config: &Config, me: NodeId, nodes: usize, place: Option<Place>) -> Result<Shared> {
        let bytes = config.heap;
        let units_may_differ = place.as_ref().is_some_and(|place| place.units_may_differ);
        let page_engine = place.as_ref().map_or(config.page_engine, |place| place.page_engine);
        let parts = parts_of(config, page_engine);
        let (views, plain, base) = match place {
            None => {
                let plain = Mapping::near(heap::address_space::FIRST, bytes)
                    .map_err(Error::system("cannot reserve the shared heap"))?;
                plain.dump(0, bytes, false);
                let base = plain.start().addr();
                (None, Some(plain), base)
            }
            Some(place) => {
                let base = place.base;
                (Some(Views::new(config, parts, place, nodes)?), None, base)
            }
        };
        let (twins, tuning) = (Twins::new(), config.tuning);
        Ok(Shared {
            tuning,
            me,
            nodes,
            base,
            bytes,
            page_engine,
            parts,
            units_may_differ,
            views,
            plain,
            globals: OnceLock::new(),
            table: Table::new(me, nodes, config, twins.clone()),
            twins,
            allocator: Mutex::new(Allocator::new(me, nodes, parts)),
            packed: Mutex::default(),
            packed_calls: AtomicBool::new(false),
            packed_callers: consistency::release::CallCount::default(),
            intervals: Mutex::new(IntervalState::new(me, page_engine)),
            needs: Mutex::default(),
            kept_diffs: consistency::kept_diffs::KeptDiffs::new(
                config.diffs.unwrap_or_else(|| cache_pages(config) * PAGE_BYTES as u64 / tuning.cache.kept_diffs_part),
            ),
            home_queue: Mutex::new(HomeQueue::new()),
            push_buffer: Mutex::new(PushBuffer::new(tuning.notices)),
            migration: Mutex::new(Migration::new(tuning.homes)),
            epoch: AtomicU32::new(0),
            gate: consistency::release::BarrierGate::default(),
            awaiting: AtomicBool::new(false),
            claims: AtomicBool::new(false),
            sync_phase: Mutex::new(SyncPhase::new(&tuning.notices)),
            diff_waiters: Mutex::default(),
            active: Mutex::default(),
            closes: AtomicU64::new(IntervalMark::FIRST.0),
            sharing: FalseSharing::default(),
            scan_cost: Mutex::new(ScanCost::new(tuning.cache)),
            last_close: AtomicU64::new(0),
            invalidated: Mutex::default(),
            working_sets: Mutex::new(LockWorkingSets::new(tuning.working_set)),
            passes_over: AtomicBool::new(false),
            cached_pages: AtomicU64::new(0),
            cache_pages_max: AtomicU64::new(cache_pages(config)),
            cache_pages_least: AtomicU64::new(0),
            home_quota: cache::home_quota::HomeQuota::default(),
            page_cache: cache::page_cache::PageCache::new(config.thread_slots + 1),
            units: Mutex::default(),
            awaited: (0..=config.thread_slots).map(|_| fault::awaited::Awaited::default()).collect(),
            holds: consistency::msi_pages::Holds::new(config.thread_slots + 1, tuning.msi),
        })
    }

    /// The page of an address where the program sees it: in the heap, or among its global variables.
    pub(crate) fn page_of(&self, address: usize) -> Option<PageNo> {
        let offset = address.wrapping_sub(self.base);
        if offset >= self.bytes {
            return self.globals.get().and_then(|globals| globals.page_of(address));
        }
        let page = (offset / PAGE_BYTES) as PageNo;
        let elsewhere = self.globals.get().is_some_and(|globals| globals.has(page));
        (!elsewhere).then_some(page)
    }

    /// Where the program sees a page.
    pub(crate) fn address_of(&self, page: PageNo) -> usize {
        let elsewhere = self.globals.get().and_then(|globals| globals.address_of(page));
        elsewhere.unwrap_or(self.base + page as usize * PAGE_BYTES)
    }

    /// Names the region that begins at an address by where it was allocated, unless it has a name.
    pub(crate) fn name(&self, address: usize, site: &str) {
        let known = self.page_of(address).and_then(|page| self.table.find(page));
        if let Some(known) = known.filter(|k| self.address_of(k.region.first) == address) {
            let mut name = known.name.lock();
            if name.text.is_empty() {
                name.text = site.to_string();
            }
        }
    }

    /// Takes in news of a region, if it is news.
    pub(crate) fn add(&self, region: Region) {
        // Before anybody can write there, the node has the log for it.
        if region.engine != self.page_engine && region.engine.has_several_writers() {
            self.intervals.lock().on_region(region.engine);
        }
        self.push_buffer.lock().on_allocation(region.range());
        self.make_bound_fit(region.unit_pages());
        if let Some(plain) = &self.plain {
            plain.dump(region.first as usize * PAGE_BYTES, region.pages as usize * PAGE_BYTES, true);
        }
        if let Some(known) = self.table.add(region) {
            self.open_one_copy(&known.region);
        }
    }

    /// The first page of the guarded part.
    pub(crate) fn guarded_from(&self) -> PageNo {
        self.parts.pages(Part::Guarded).start as PageNo
    }
}

impl Views {
    fn new(config: &Config, parts: Parts, place: Place, nodes: usize) -> Result<Views> {
        let Place { base, detector, has_barrier, one_copy, .. } = place;
        let arena = |part, tracking| {
            let (at, bytes) = place_of(parts, base, part);
            let made = Arena::new(at, bytes, tracking, detector);
            made.map_err(Error::system(format!("cannot reserve the shared heap at {at:#x} with detector {detector}")))
        };
        let tracked = arena(Part::Tracked, Tracking::Tracked)?;
        let guarded = arena(Part::Guarded, Tracking::Guarded)?;
        let (at, line_bytes) = place_of(parts, base, Part::Lines);
        let make_lines = || crate::inline::make_lines(at, line_bytes, nodes, has_barrier);
        let lines = config.has_lines().then(make_lines).transpose()?;
        let peers = (0..nodes).map(|_| OnceLock::new()).collect();
        // Without a table every page is asked for, as over a network.
        let own_bytes = config.backbone.named() != Some(Backbone::Shm);
        let one_sided = !own_bytes && tracked.notes_writes();
        let directory = one_sided.then(|| SharedDirectory::new(tracked.pages()).ok()).flatten();
        let line_peers = OnceLock::new();
        Ok(Views { tracked, guarded, lines, one_copy, line_peers, detector, directory, own_bytes, peers })
    }
}

/// The parts of the job's heap under this engine of pages.
pub(crate) fn parts_of(config: &Config, page_engine: PageEngine) -> Parts {
    let more = match () {
        () if config.has_lines() => Some(Part::Lines),
        () if page_engine.has_one_copy() => Some(Part::OneCopy),
        () => None,
    };
    Parts::new((config.heap / PAGE_BYTES) as u64, more)
}

/// Where a part of the heap lies that begins at `base`, and its bytes.
pub(crate) fn place_of(parts: Parts, base: usize, part: Part) -> (usize, usize) {
    let Range { start, end } = parts.pages(part);
    (base + start as usize * PAGE_BYTES, (end - start) as usize * PAGE_BYTES)
}

/// How many pages of other nodes may be kept.
fn cache_pages(config: &Config) -> u64 {
    cache_pages_of(config.cache, config.host_nodes.max(1) as u64, memory_free_bytes)
}

/// As [`cache_pages`], where the host and the cgroup leave `free` bytes to so many nodes on this host. Twins may take
/// as much again: with them, half of what is left is used unless somebody said otherwise.
fn cache_pages_of(limit: Option<CacheLimit>, host_nodes: u64, free: impl Fn() -> u64) -> u64 {
    let part = |part: f64| (free() as f64 * part) as u64 / host_nodes;
    let bytes = match limit {
        Some(CacheLimit::Bytes(bytes)) => bytes,
        Some(CacheLimit::Part(of_free)) => part(of_free),
        None => part(0.25),
    };
    (bytes / PAGE_BYTES as u64).max(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_their_twins_take_half_of_what_is_left_at_most() {
        let pages = |limit| cache_pages_of(limit, 2, || 8 << 30);
        assert_eq!(2 * pages(None) * PAGE_BYTES as u64, (8 << 30) / 2 / 2, "for each of two nodes");
        assert_eq!(pages(Some(CacheLimit::Part(0.5))), (2 << 30) / PAGE_BYTES as u64, "as was said, twins apart");
        assert_eq!([1, 1 << 20].map(|bytes| pages(Some(CacheLimit::Bytes(bytes)))), [64, 256]);
    }
}
