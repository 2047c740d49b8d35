//! The regions that this node has heard of, and the tables of their chunks, which come into being when a page of theirs
//! is first met.

use crate::config::Config;
use crate::inline::units::{LineCosts, LineUnits};
use crate::mutex::{Mutex, RwLock};
use crate::path_counts;
use crate::shared::consistency::msi_pages::MsiUnit;
use crate::shared::heap::freed_regions::{Births, FreedRegions};
use crate::shared::heap::history::{self, Choices, KeptHistory};
use crate::shared::memory::ChunkMemory;
use comem_memory::twins::{Row, Twins};
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::pages::kept_diffs::Stamp;
use comem_protocol::coherence::pages::page_table::interval_end::PendingWork;
use comem_protocol::coherence::pages::page_table::{ChunkLayout, PageTable};
use comem_protocol::coherence::pages::region::{GRAIN_PAGES, Part, Region};
use comem_protocol::coherence::pages::{CHUNK_PAGES, PAGE_BYTES, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::tuning::{MulticastTuning, PageTuning};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

/// A chunk's table with what the memory side keeps for it.
#[derive(Debug)]
pub(crate) struct PageTableSlot {
    pub(crate) table: PageTable,
    /// The units' twins.
    pub(crate) twins: Row,
    pub(crate) lists: ListMembership,
}

/// In which lists a chunk is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ListMembership {
    /// In the list of active ones.
    pub(crate) active: bool,
    /// Pages that hold copies; in the list of chunks with copies where there are any.
    pub(crate) held: i64,
    /// In the list of chunks in which copies may be idle.
    pub(crate) idle: bool,
}

/// What a region cost, for reports.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    pub(crate) faults: AtomicU64,
    /// Time in faults on its pages, and in fetching again what an acquire ended.
    pub(crate) fetch_ns: AtomicU64,
    pub(crate) pages_fetched: AtomicU64,
    pub(crate) diff_bytes: AtomicU64,
    pub(crate) invalidations: AtomicU64,
}

/// What reports call a region.
#[derive(Debug, Default)]
pub(crate) struct Name {
    pub(crate) text: String,
    /// Whether the program chose it on this node (`comem_label`): other nodes may know the region by where it was
    /// allocated.
    by_label: bool,
}

impl Name {
    /// The program names it; where it is handed out in blocks, one of them.
    pub(crate) fn set(&mut self, name: &str, of_block: bool) {
        match of_block {
            false => self.text = name.to_string(),
            true if self.text.split([':', ',']).skip(1).any(|block| block.trim() == name) => {}
            true if self.text.len() + name.len() > BLOCK_NAMES => {}
            true => {
                self.text += if self.by_label { ", " } else { ": " };
                self.text += name;
            }
        }
        self.by_label = true;
    }
}

/// Most bytes of a name that tells of blocks.
const BLOCK_NAMES: usize = 200;

/// So many units of a region under `msi` stand in one block.
const BLOCK_UNITS: u32 = 512;

type UnitBlock = Box<[OnceLock<Box<Mutex<MsiUnit>>>]>;

/// A region as this node knows it.
#[derive(Debug)]
pub(crate) struct RegionState {
    pub(crate) region: Region,
    pub(crate) name: Mutex<Name>,
    pub(crate) freed: AtomicBool,
    /// Freed at its home, which does not give its pages any more; here it may be freed still.
    pub(crate) gone: AtomicBool,
    pub(crate) read_only: AtomicBool,
    pub(crate) costs: Costs,
    chunks: Box<[OnceLock<Box<Mutex<PageTableSlot>>>]>,
    /// What each chunk has to be asked for ([`PendingWork::bits`]), as its last step left it: of many chunks few have
    /// to.
    pending_work: Box<[AtomicU8]>,
    /// Under `msi`: the units, in blocks of so many: of a large region few may ever be touched.
    units: Box<[OnceLock<UnitBlock>]>,
    /// In lines memory under `msi`: the units.
    pub(crate) lines: LineUnits,
    /// In lines memory: what its units cost.
    pub(crate) line_costs: LineCosts,
    pool: Twins,
    me: NodeId,
    nodes: usize,
    write_detection: bool,
    tuning: PageTuning,
    sets_tuning: MulticastTuning,
    /// Where diffs stay with their writers: up to which stamp nobody keeps diffs any more.
    kept_floor: Arc<AtomicU64>,
    /// And what is not later than this is of a region that had these addresses before.
    born: Stamp,
    /// What an earlier run of the program arrived at.
    starts: Choices,
}

impl RegionState {
    fn new(region: Region, table: &Table) -> RegionState {
        let (chunks, units, grains) = match region.part() {
            Part::Tracked => (region.pages.div_ceil(CHUNK_PAGES), 0, 0),
            Part::Guarded => (0, (region.pages / region.unit_pages()).div_ceil(BLOCK_UNITS), 0),
            Part::Lines => (0, 0, if region.engine.has_directory() { region.pages / GRAIN_PAGES } else { 0 }),
            Part::OneCopy => (0, 0, 0),
        };
        RegionState {
            name: Mutex::new(Name { text: region.label.clone(), by_label: false }),
            born: table.births.lock().take(&region.range()),
            starts: table.kept_history.starts(&region),
            freed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            costs: Costs::default(),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            pending_work: (0..chunks).map(|_| AtomicU8::new(0)).collect(),
            units: (0..units).map(|_| OnceLock::new()).collect(),
            lines: LineUnits::new(grains as usize),
            line_costs: LineCosts::default(),
            region,
            pool: table.pool.clone(),
            me: table.me,
            nodes: table.nodes,
            write_detection: table.write_detection,
            tuning: table.tuning,
            sets_tuning: table.sets_tuning,
            kept_floor: table.kept_floor.clone(),
        }
    }

    /// Whether an access to it is a mistake.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire) || self.gone.load(Ordering::Acquire)
    }

    /// The name in reports.
    pub(crate) fn name(&self) -> String {
        let name = self.name.lock();
        if name.text.is_empty() { format!("region at page {}", self.region.first) } else { name.text.clone() }
    }

    /// Writes the name, unless somebody has it just now.
    pub(crate) fn write_name(&self, out: &mut dyn std::fmt::Write) {
        let _ = match self.name.try_lock() {
            Some(name) if !name.text.is_empty() => out.write_str(&name.text),
            _ => write!(out, "the region at page {}", self.region.first),
        };
    }

    /// Where the name is from: of several nodes' names the report takes the best.
    pub(crate) fn named_by(&self) -> &'static str {
        let name = self.name.lock();
        match (name.by_label, name.text.is_empty()) {
            (true, _) => "label",
            (false, false) => "allocation",
            (false, true) => "page",
        }
    }

    /// The cell of the chunk with this page.
    pub(crate) fn slot(&self, page: PageNo) -> &Mutex<PageTableSlot> {
        let index = (page - self.region.first) / CHUNK_PAGES;
        let mut is_new = false;
        let cell = self.chunks[index as usize].get_or_init(|| {
            is_new = true;
            let first = self.region.first + index * CHUNK_PAGES;
            let layout = ChunkLayout {
                first,
                pages: (self.region.pages - index * CHUNK_PAGES).min(CHUNK_PAGES),
                unit_pages: self.region.unit_pages(),
                first_touch: self.region.homes.first_touch(),
                write_detection: self.write_detection,
                engine: self.region.engine,
            };
            let home_of = |page| self.region.home_of(page, self.nodes);
            let mut table = PageTable::new(self.me, layout, home_of).tuned(self.tuning);
            table = table.with_sets_tuned(self.sets_tuning);
            table.set_floor(self.kept_floor.load(Ordering::Acquire));
            table.set_birth(self.born);
            history::start(&mut table, &self.starts);
            self.catch_up(&mut table);
            let unit_bytes = layout.unit_pages as usize * PAGE_BYTES;
            let twins = self.pool.row((layout.pages / layout.unit_pages) as usize, unit_bytes);
            Box::new(Mutex::new(PageTableSlot { table, twins, lists: ListMembership::default() }))
        });
        if is_new {
            // Who frees the region or declares it read-only meanwhile, says so first and then looks which chunks there
            // are: either finds the other.
            fence(Ordering::SeqCst);
            self.catch_up(&mut cell.lock().table);
        }
        cell
    }

    /// What was said of the whole region before the chunk came into being.
    fn catch_up(&self, table: &mut PageTable) {
        if self.read_only.load(Ordering::Acquire) {
            table.declare_read_only();
        }
        if self.freed.load(Ordering::Acquire) {
            table.begin_freed();
        }
    }

    /// Declares the region read-only here.
    pub(crate) fn declare_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.slots().for_each(|cell| cell.lock().table.declare_read_only());
    }

    /// Marks the region as freed, before its chunks are; whether it was not yet.
    pub(crate) fn begin_freeing(&self) -> bool {
        let freed = self.freed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        !freed
    }

    /// Runs a step on the chunk with this page of this region, which has several writers.
    pub(crate) fn step<R>(
        &self,
        views: &crate::shared::Views,
        page: PageNo,
        step: impl FnOnce(&RegionState, &mut PageTable, &mut ChunkMemory<'_>, &mut ListMembership) -> R,
    ) -> R {
        path_counts::count(path_counts::Step::TableLock);
        let mut cell = self.slot(page).lock();
        let PageTableSlot { table, twins, lists } = &mut *cell;
        let layout = table.layout();
        let (arena, directory, own_bytes) = (&views.tracked, views.directory.as_ref(), views.own_bytes);
        let peers = &views.peers;
        let mut memory = ChunkMemory { arena, twins, layout, me: self.me, directory, peers, own_bytes };
        step(self, table, &mut memory, lists)
    }

    /// A step of the chunk with this page begins; its lock is held. It may take notes out of the kernel, so from now on
    /// a close that does not see them there must wait for the step's end. It may offer pages, which others take before
    /// it ends: a close must see that too.
    pub(crate) fn request_close(&self, page: PageNo) {
        self.pending_work[((page - self.region.first) / CHUNK_PAGES) as usize]
            .fetch_or(PendingWork::IN_A_STEP, Ordering::SeqCst);
    }

    /// The step has ended; the lock is still held.
    pub(crate) fn note_pending_work(&self, page: PageNo, pending_work: PendingWork) {
        self.pending_work[((page - self.region.first) / CHUNK_PAGES) as usize]
            .store(pending_work.bits(), Ordering::Release);
    }

    /// Whether stores to the chunk with this page are forbidden, as its last step left it.
    pub(crate) fn forbids_writes(&self, page: PageNo) -> bool {
        self.pending_work(page).forbids_writes
    }

    /// What the chunk with this page has to be asked for.
    fn pending_work(&self, page: PageNo) -> PendingWork {
        let index = ((page - self.region.first) / CHUNK_PAGES) as usize;
        PendingWork::of(self.pending_work.get(index).map_or(0, |kept| kept.load(Ordering::Acquire)))
    }

    /// Whether the chunk with this page exists.
    pub(crate) fn has_slot(&self, page: PageNo) -> bool {
        self.chunks.get(((page - self.region.first) / CHUNK_PAGES) as usize).is_some_and(|c| c.get().is_some())
    }

    /// The chunk with this page, whether or not it exists here.
    fn chunk_of(&self, page: PageNo) -> Range<PageNo> {
        page - (page - self.region.first) % CHUNK_PAGES..self.chunk_end(page)
    }

    /// Where the chunk with this page ends.
    pub(crate) fn chunk_end(&self, page: PageNo) -> PageNo {
        let index = (page - self.region.first) / CHUNK_PAGES;
        (self.region.first + (index + 1) * CHUNK_PAGES).min(self.region.first + self.region.pages)
    }

    /// The chunk with this page, where regions of this kind have them and if it exists here; else the next page, if
    /// there is one, where there may be one.
    pub(crate) fn chunk_around(&self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        match self.region.part() {
            Part::Guarded | Part::Lines | Part::OneCopy => Err(Some(self.region.range().end)),
            Part::Tracked if self.has_slot(page) => Ok(self.chunk_of(page)),
            Part::Tracked => Err(Some(self.chunk_end(page))),
        }
    }

    /// Whether homes may migrate.
    pub(crate) fn migrates(&self) -> bool {
        self.region.homes.migrate() && !self.region.engine.keeps_diffs()
    }

    /// Whether something of it was flushed of which no interval has told yet.
    pub(crate) fn has_flushed(&self) -> bool {
        self.slots().any(|cell| cell.lock().table.units().has_flushed())
    }

    /// A page that is being fetched, if there is one.
    fn awaited(&self) -> Option<PageNo> {
        self.slots().find_map(|cell| cell.lock().table.units().awaited())
    }

    /// Under `msi`: whether nothing is under way around any unit, as seen from here.
    fn units_are_quiet(&self) -> bool {
        self.used_units().all(|(_, unit)| unit.lock().is_quiet()) && self.lines.are_quiet()
    }

    /// The chunks that exist.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Mutex<PageTableSlot>> {
        self.chunks.iter().filter_map(|c| c.get()).map(|c| &**c)
    }

    /// Under `msi`: unit `index`.
    pub(crate) fn unit(&self, index: u32) -> Option<&Mutex<MsiUnit>> {
        let block = self.units.get((index / BLOCK_UNITS) as usize)?;
        let block = block.get_or_init(|| (0..BLOCK_UNITS).map(|_| OnceLock::new()).collect());
        let cell = block.get((index % BLOCK_UNITS) as usize)?;
        let new = || Box::new(Mutex::new(MsiUnit::new(Unit::new(self.home_of_unit(index) == self.me))));
        Some(cell.get_or_init(new))
    }

    /// Under `msi`: unit `index`, if anybody here has had to do with it.
    pub(crate) fn unit_if_used(&self, index: u32) -> Option<&Mutex<MsiUnit>> {
        let block = self.units.get((index / BLOCK_UNITS) as usize)?.get()?;
        block.get((index % BLOCK_UNITS) as usize)?.get().map(|unit| &**unit)
    }

    /// Under `msi`: the units that anybody here has had to do with, and their indices.
    pub(crate) fn used_units(&self) -> impl Iterator<Item = (u32, &Mutex<MsiUnit>)> {
        let blocks = (0..).zip(&self.units).filter_map(|(at, block)| Some((at * BLOCK_UNITS, block.get()?)));
        blocks.flat_map(|(first, block)| (first..).zip(block).filter_map(|(index, unit)| Some((index, &**unit.get()?))))
    }

    /// Under `msi`: the home of unit `index`.
    pub(crate) fn home_of_unit(&self, index: u32) -> NodeId {
        self.region.home_of(self.region.first + index * self.region.unit_pages(), self.nodes)
    }

    /// Under `msi`: the pages of unit `index`.
    pub(crate) fn pages_of_unit(&self, index: u32) -> Range<PageNo> {
        let first = self.region.first + index * self.region.unit_pages();
        first..first + self.region.unit_pages()
    }
}

/// The regions.
#[derive(Debug)]
pub(crate) struct Table {
    regions: RwLock<BTreeMap<PageNo, Arc<RegionState>>>,
    freed_regions: Mutex<FreedRegions>,
    pool: Twins,
    me: NodeId,
    nodes: usize,
    write_detection: bool,
    tuning: PageTuning,
    sets_tuning: MulticastTuning,
    /// Whether there ever was a region under an engine with several writers.
    tracked: AtomicBool,
    kept_floor: Arc<AtomicU64>,
    births: Mutex<Births>,
    /// What earlier runs of the program arrived at, and this one.
    pub(in crate::shared) kept_history: KeptHistory,
}

impl Table {
    pub(crate) fn new(me: NodeId, nodes: usize, config: &Config, pool: Twins) -> Table {
        Table {
            regions: RwLock::default(),
            freed_regions: Mutex::default(),
            pool,
            me,
            nodes,
            write_detection: config.write_detection,
            tuning: config.tuning.pages,
            sets_tuning: config.tuning.multicast,
            tracked: AtomicBool::new(false),
            kept_floor: Arc::default(),
            births: Mutex::default(),
            kept_history: KeptHistory::new(config.history.as_ref()),
        }
    }

    /// Whether a detector watches pages of some region.
    pub(crate) fn has_watched(&self) -> bool {
        self.regions.read().values().any(|known| matches!(known.region.part(), Part::Tracked | Part::Guarded))
    }

    /// Whether there ever was a region under an engine with several writers.
    pub(crate) fn has_tracked(&self) -> bool {
        self.tracked.load(Ordering::Acquire)
    }

    /// The region with this page.
    pub(crate) fn find(&self, page: PageNo) -> Option<Arc<RegionState>> {
        path_counts::count(path_counts::Step::RegionLookup);
        let regions = self.regions.read();
        let (_, known) = regions.range(..=page).next_back()?;
        (page < known.region.first + known.region.pages).then(|| known.clone())
    }

    /// The chunks that begin at these pages, as far as regions have them, in one look at the table; each with what it
    /// has to be asked for.
    pub(crate) fn chunks_at(&self, firsts: &[PageNo]) -> Vec<(Range<PageNo>, PendingWork)> {
        path_counts::count(path_counts::Step::RegionLookup);
        let regions = self.regions.read();
        let mut last: Option<&Arc<RegionState>> = None;
        let chunk = |first: &PageNo| {
            if last.is_none_or(|known| !known.region.range().contains(first)) {
                last = regions.range(..=*first).next_back().map(|(_, known)| known);
            }
            last.filter(|known| known.region.range().contains(first))
                .map(|known| (*first..known.chunk_end(*first), known.pending_work(*first)))
        };
        let mut chunks = Vec::with_capacity(firsts.len());
        chunks.extend(firsts.iter().filter_map(chunk));
        chunks
    }

    /// The first page after this one at which a region begins.
    pub(crate) fn next_after(&self, page: PageNo) -> Option<PageNo> {
        self.regions.read().range(page + 1..).next().map(|(first, _)| *first)
    }

    /// The chunk with this page, in a region of pages with several writers and if it exists here; else the next page,
    /// if there is one, where there may be one.
    pub(crate) fn chunk_around(&self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        self.find(page).map_or_else(|| Err(self.next_after(page)), |known| known.chunk_around(page))
    }

    /// A collection of diffs ends: what was written up to this stamp is kept by nobody.
    pub(crate) fn was_collected(&self, floor: Stamp) {
        self.kept_floor.store(floor, Ordering::Release);
    }

    /// As [`Table::chunk_around`], in a region whose diffs stay with their writers, whether or not the chunk exists
    /// here yet.
    pub(crate) fn kept_chunk_around(&self, page: PageNo) -> Result<Range<PageNo>, Option<PageNo>> {
        let Some(known) = self.find(page) else { return Err(self.next_after(page)) };
        match known.region.engine.keeps_diffs() {
            true => Ok(known.chunk_of(page)),
            false => Err(Some(known.region.range().end)),
        }
    }

    /// The first pages of all chunks that exist here of such regions.
    pub(crate) fn kept_chunks(&self) -> Vec<PageNo> {
        let kept = |known: &&Arc<RegionState>| known.region.engine.keeps_diffs();
        let regions: Vec<Arc<RegionState>> = self.regions.read().values().filter(kept).cloned().collect();
        let firsts = |known: &Arc<RegionState>| {
            let slots = (0..).zip(&known.chunks).filter(|(_, slot)| slot.get().is_some());
            slots.map(|(index, _)| known.region.first + index * CHUNK_PAGES).collect::<Vec<_>>()
        };
        regions.iter().flat_map(firsts).collect()
    }

    /// The region that begins at or before this page, for messages about accesses beyond it.
    pub(crate) fn before(&self, page: PageNo) -> Option<Arc<RegionState>> {
        self.regions.read().range(..=page).next_back().map(|(_, known)| known.clone())
    }

    /// A region in use with an address whose lower 32 bits are these, and that address; `address_of` says where a page
    /// is. Allocates nothing, and gives up where the table is being changed.
    pub(crate) fn with_low_half(
        &self,
        low: u32,
        address_of: impl Fn(PageNo) -> usize,
    ) -> Option<(Arc<RegionState>, usize)> {
        let regions = self.regions.try_read()?;
        let here = |known: &&Arc<RegionState>| {
            let start = address_of(known.region.first);
            let at = start + (low.wrapping_sub(start as u32) as usize);
            (!known.is_freed() && ((at - start) as u64) < known.region.bytes).then_some(at)
        };
        regions.values().find_map(|known| Some((known.clone(), here(&known)?)))
    }

    /// Takes in news of a region; `None` when it was known or overlaps another.
    pub(crate) fn add(&self, region: Region) -> Option<Arc<RegionState>> {
        let mut regions = self.regions.write();
        let end = region.first + region.pages;
        let clash =
            regions.range(..end).next_back().is_some_and(|(_, k)| k.region.first + k.region.pages > region.first);
        if clash {
            return None;
        }
        if region.engine.has_several_writers() {
            self.tracked.store(true, Ordering::Release);
        }
        let known = Arc::new(RegionState::new(region, self));
        regions.insert(known.region.first, known.clone());
        Some(known)
    }

    /// Forgets a region, whose addresses are used again.
    pub(crate) fn remove(&self, first: PageNo) {
        self.regions.write().remove(&first);
    }

    /// A region was freed in this epoch. May its addresses be used again when there are no others?
    pub(crate) fn retire_region(&self, epoch: u32, pages: Range<PageNo>, again: bool) {
        self.freed_regions.lock().add(epoch, pages, again);
    }

    /// An epoch has begun: forgets most of regions that were freed long ago; gives their pages.
    pub(crate) fn forget_freed(&self, epoch: u32) -> Vec<Range<PageNo>> {
        let mut fallen = Vec::new();
        self.freed_regions.lock().fall(epoch, |first| self.is_awaited(first), &mut fallen);
        self.forget(&fallen)
    }

    /// As [`Table::forget_freed`], of all regions that were freed two barriers ago.
    pub(crate) fn forget_all_freed(&self, epoch: u32) -> Vec<Range<PageNo>> {
        let mut fallen = Vec::new();
        self.freed_regions.lock().all_fall(epoch, |first| self.is_awaited(first), &mut fallen);
        self.forget(&fallen)
    }

    /// Whether something of the region that begins at this page is being fetched, or on its way from this node.
    fn is_awaited(&self, first: PageNo) -> bool {
        self.find(first).is_some_and(|known| known.awaited().is_some() || !known.units_are_quiet())
    }

    /// A page of a freed region that is being fetched, if there is one.
    pub(crate) fn awaited_of_freed(&self) -> Option<PageNo> {
        let kept: Vec<PageNo> = self.freed_regions.lock().kept().collect();
        kept.into_iter().find_map(|first| self.find(first)?.awaited())
    }

    /// Where so many pages of regions that were forgotten could be used again: the first place within a range.
    pub(crate) fn place_again(&self, within: &Range<PageNo>, pages: u64, align: u64) -> Option<PageNo> {
        self.freed_regions.lock().place(within, pages, align)
    }

    /// As [`Table::place_again`]; no other thread gets the place until it is used or put back.
    pub(crate) fn take_place_again(&self, within: &Range<PageNo>, pages: u64, align: u64) -> Option<PageNo> {
        self.freed_regions.lock().take_place(within, pages, align)
    }

    /// A place that was taken is not used after all.
    pub(crate) fn put_back_place(&self, pages: Range<PageNo>) {
        self.freed_regions.lock().put_back(pages);
    }

    /// Whether nothing is known of these pages, or nothing but that they were freed and may be used again.
    pub(crate) fn is_unused(&self, pages: &Range<PageNo>) -> bool {
        let regions = self.regions.read();
        let last = regions.range(..pages.end).next_back();
        last.is_none_or(|(_, known)| known.region.range().end <= pages.start)
            && self.freed_regions.lock().may_be_used(pages)
    }

    /// These pages are used again. What was written to them up to this stamp is about what was there before.
    pub(crate) fn reuse(&self, pages: &Range<PageNo>, stamp: Stamp) {
        self.births.lock().add(pages.clone(), stamp);
        self.freed_regions.lock().reuse(pages);
    }

    fn forget(&self, fallen: &[PageNo]) -> Vec<Range<PageNo>> {
        if fallen.is_empty() {
            return Vec::new();
        }
        let mut regions = self.regions.write();
        fallen.iter().filter_map(|first| regions.remove(first)).map(|known| known.region.range()).collect()
    }

    /// All pages in a row around this one of regions that were forgotten, if its own was.
    pub(in crate::shared) fn forgotten_around(&self, page: PageNo) -> Option<Range<PageNo>> {
        self.freed_regions.lock().fallen_around(page)
    }

    /// Whether the memory with this page was freed here.
    pub(crate) fn is_freed(&self, page: PageNo) -> bool {
        match self.find(page) {
            Some(known) => known.freed.load(Ordering::Acquire),
            None => self.freed_regions.lock().has_fallen(page),
        }
    }

    /// All regions, in the order of their addresses.
    pub(crate) fn all(&self) -> Vec<Arc<RegionState>> {
        self.regions.read().values().cloned().collect()
    }

    /// Runs a step on the chunk with this page, in a region of pages with several writers.
    pub(crate) fn step<R>(
        &self,
        views: &crate::shared::Views,
        page: PageNo,
        step: impl FnOnce(&RegionState, &mut PageTable, &mut ChunkMemory<'_>, &mut ListMembership) -> R,
    ) -> Option<R> {
        let known = self.find(page).filter(|k| k.region.engine.has_several_writers())?;
        Some(known.step(views, page, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::coherence::pages::PageEngine;
    use comem_protocol::coherence::pages::region::{Homes, Unit as RegionUnit};
    use std::sync::Barrier;
    use std::thread;

    fn table() -> Table {
        Table {
            regions: RwLock::default(),
            freed_regions: Mutex::default(),
            pool: Twins::new(),
            me: NodeId(0),
            nodes: 2,
            write_detection: true,
            tuning: PageTuning::DEFAULT,
            sets_tuning: MulticastTuning::DEFAULT,
            tracked: AtomicBool::new(false),
            kept_floor: Arc::default(),
            births: Mutex::default(),
            kept_history: KeptHistory::default(),
        }
    }

    fn region(first: PageNo) -> Region {
        Region {
            first,
            pages: 1000,
            bytes: 1,
            unit: RegionUnit::Pages(1),
            engine: PageEngine::Hlrc,
            homes: Homes::Block,
            owner: None,
            cut_up: false,
            label: String::new(),
        }
    }

    #[test]
    fn a_chunk_that_comes_into_being_while_its_region_is_freed_or_declared_read_only_hears_of_it() {
        let table = table();
        for round in 0..2_000 {
            let known = table.add(region(512 + 1024 * round)).expect("nothing lies there");
            let both = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    known.slot(known.region.first);
                });
                both.wait();
                known.declare_read_only();
                if known.begin_freeing() {
                    known.slots().for_each(|cell| cell.lock().table.begin_freed());
                }
            });
            let told = known.slots().map(|cell| format!("{:?}", cell.lock().table)).collect::<String>();
            assert!(told.contains("read_only: true") && told.contains("freed: true"), "round {round}: {told}");
        }
    }

    #[test]
    fn a_chunk_in_the_midst_of_a_step_has_its_writes_and_its_takers_looked_for() {
        let (table, region) = (table(), region(512));
        let known = table.add(region).expect("nothing lies there");
        let asked = || {
            table
                .chunks_at(&[512, 1024])
                .into_iter()
                .map(|(_, pending_work)| (pending_work.close, pending_work.gets))
                .collect::<Vec<_>>()
        };
        assert_eq!(asked(), [(false, false); 2]);
        known.request_close(1024);
        assert_eq!(asked(), [(false, false), (true, true)]);
        known.note_pending_work(1024, PendingWork::default());
        assert_eq!(asked(), [(false, false); 2]);
    }
}
