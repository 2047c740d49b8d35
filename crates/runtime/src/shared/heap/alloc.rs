//! Allocation in the shared heap.
//!
//! Each node allocates from a stretch of its own in each half of the heap (tracked, guarded) without asking anybody;
//! there is another one for what all nodes allocate together, in the same order ([`super::heap_layout`]). What is known
//! of allocations stands in private memory, never in shared pages. Small blocks share pages of a region that their node
//! allocates for them, and return to that node.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::heap::HEAP_BYTES;
use crate::io::Wire;
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::shared::cache::map_count_limit;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::extent_alloc::ExtentAllocator;
use crate::shared::heap::heap_layout::{HeapLayout, Parts};
use crate::shared::heap::small_alloc::{SmallAllocator, cut_off};
use crate::thread::Thread;
use comem_protocol::coherence::direct::UNIT_BYTES;
use comem_protocol::coherence::pages::kept_diffs::Stamp;
use comem_protocol::coherence::pages::region::{Homes, Part, Region, Unit};
use comem_protocol::coherence::pages::wire::RequiredDiff;
use comem_protocol::coherence::pages::{PAGE_BYTES, PageEngine, PageNo, UNIT_PAGES_MAX, UnknownPageEngine};
use comem_protocol::ids::NodeId;
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::wire::message::{Collective, Message};
use std::collections::BTreeMap;
use std::ops::Range;

/// How memory is shared; the default suits most.
#[derive(Clone, Debug)]
pub struct RegionOptions {
    /// The engine; `None` takes the job's.
    pub engine: Option<PageEngine>,
    /// Where homes are.
    pub home: Homes,
    /// Bytes, a power of two.
    pub alignment: usize,
    /// Pages of a unit, a power of two; 0 takes the job's or, where that names none either, one: more once a node has
    /// as many mappings as it may have (`vm.max_map_count`).
    pub unit_pages: u32,
    /// Bytes of a unit of lines memory: 64, 128, 256, 512, 1024 or 2048; the job must have lines memory, and the engine
    /// is `direct` or `msi`. 0 takes the job's unit where the region's engine keeps lines, and pages elsewhere.
    pub unit_bytes: usize,
    /// A name for reports.
    pub label: String,
    /// Whether the region has pages in any case, for code that nobody checks; under `msi` where the engine keeps lines.
    #[doc(hidden)]
    pub keeps_pages: bool,
    /// Whether only the library accesses the region, which makes the checks itself.
    #[doc(hidden)]
    pub holds_objects: bool,
}

impl Default for RegionOptions {
    fn default() -> RegionOptions {
        RegionOptions {
            engine: None,
            home: Homes::Automatic,
            alignment: 64,
            unit_pages: 0,
            unit_bytes: 0,
            label: String::new(),
            keeps_pages: false,
            holds_objects: false,
        }
    }
}

/// Pages of a region for small blocks.
const SMALL_REGION_PAGES: u64 = 256;
/// Blocks of up to so many bytes share pages.
pub(in crate::shared) const SMALL_BYTES: usize = PAGE_BYTES / 2;

/// Small blocks of one size class and kind.
#[derive(Debug, Default)]
struct Class {
    free: Vec<FreeBlock>,
}

/// A small block that may be used again.
#[derive(Debug)]
struct FreeBlock {
    address: usize,
    elsewhere: Option<FreedElsewhere>,
}

/// What a node knew that freed memory of another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::shared) struct FreedElsewhere {
    /// The diffs that must have come to the memory's owner before it is used again.
    pub needs: Vec<RequiredDiff>,
    /// The last stamp of diffs that stay with their writers. What the owner stores next is to be later.
    pub stamp: Stamp,
}

/// What keeps a region, and in what units; units of 0 pages where none was named.
pub(in crate::shared) type Keeping = (PageEngine, Unit);

/// No unit was named.
pub(in crate::shared) const ANY_UNIT: Unit = Unit::Pages(0);

/// The kind of small blocks: engine, unit and size must agree.
type Kind = (PageEngine, Unit, usize);

/// What this node knows of its allocations.
#[derive(Debug)]
pub(crate) struct Allocator {
    me: NodeId,
    layout: HeapLayout,
    /// This node's slices and the common ones, of each part.
    own: [ExtentAllocator; Part::ALL.len()],
    common: [ExtentAllocator; Part::ALL.len()],
    small: BTreeMap<Kind, Class>,
    /// Small blocks in use, by address, with their kinds.
    blocks: BTreeMap<usize, Kind>,
    /// What nobody has had of the regions for small blocks.
    rests: BTreeMap<Kind, Vec<Range<usize>>>,
    pub(in crate::shared) pieces: SmallAllocator,
    /// How many regions of each name there were, of this node's and of all.
    pub(super) names: [BTreeMap<String, u32>; 2],
}

impl Allocator {
    pub(crate) fn new(me: NodeId, nodes: usize, parts: Parts) -> Allocator {
        let layout = HeapLayout::new(nodes, parts);
        let of = |whose| {
            Part::ALL.map(|part| {
                let Range { start, end } = layout.stretch(part, whose);
                ExtentAllocator::new(start, end)
            })
        };
        Allocator {
            me,
            layout,
            own: of(Some(me)),
            common: of(None),
            small: BTreeMap::new(),
            blocks: BTreeMap::new(),
            rests: BTreeMap::new(),
            pieces: SmallAllocator::default(),
            names: Default::default(),
        }
    }

    /// The node that allocates from the slice with this page; `None` for the common slice.
    pub(crate) fn owner_of(&self, page: PageNo) -> Option<NodeId> {
        self.layout.owner_of(page)
    }

    /// Whether `node` may tell others of this region: as of its own, of pages that it allocates alone and that lie in
    /// the part of the region's engine, with units and homes that it could have asked for.
    pub(crate) fn may_be_told(&self, node: NodeId, region: &Region, nodes: usize) -> bool {
        let single = region.part() == Part::Guarded;
        let stretch = self.layout.stretch(region.part(), Some(node));
        let pages = region.range();
        let within = stretch.start <= u64::from(pages.start) && u64::from(pages.end) <= stretch.end;
        let home_exists = match region.homes {
            Homes::On(home) | Homes::StartingOn(home) => home.index() < nodes,
            _ => true,
        };
        let unit_fits = !single || region.unit_pages() <= crate::shared::consistency::msi_pages::MSI_UNIT_PAGES_MAX;
        region.owner == Some(node) && within && home_exists && unit_fits
    }

    /// The pages of a part that a node allocates from alone, or all together.
    pub(in crate::shared) fn stretch_of(&self, part: Part, whose: Option<NodeId>) -> Range<PageNo> {
        let Range { start, end } = self.layout.stretch(part, whose);
        start as PageNo..end as PageNo
    }

    /// Bytes of the slice of a part, and how many of them nobody has had yet.
    fn room(&self, part: Part, common: bool) -> [u64; 2] {
        let Range { start, end } = self.layout.stretch(part, (!common).then_some(self.me));
        let unused = (if common { &self.common } else { &self.own })[part as usize].unused();
        [end.saturating_sub(start), unused].map(|pages| pages * PAGE_BYTES as u64)
    }

    fn take(&mut self, part: Part, pages: u64, align: u64, common: bool) -> Option<u64> {
        let slices = if common { &mut self.common } else { &mut self.own };
        slices[part as usize].take(pages, align)
    }

    pub(super) fn give_back(&mut self, region: &Region) {
        let slices = if region.owner == Some(self.me) { &mut self.own } else { &mut self.common };
        slices[region.part() as usize].give(region.first.into(), region.pages.into());
    }

    /// The block or piece at this address, if there is one, may be given out again. `elsewhere`: what the node
    /// knew that freed it, if another did.
    pub(super) fn take_back(&mut self, address: usize, elsewhere: Option<FreedElsewhere>, epoch: u32) -> bool {
        if let Some(kind) = self.blocks.remove(&address) {
            self.small.entry(kind).or_default().free.push(FreeBlock { address, elsewhere });
            return true;
        }
        self.pieces.give_back(address, elsewhere.is_some(), epoch)
    }
}

/// Why an allocation is refused: how large the part of the heap is that it must come from, and what helps.
fn no_room(shared: &Shared, bytes: usize, of: Part, owner: Option<NodeId>) -> Error {
    let [[part, left], [_, together]] = [owner.is_none(), true].map(|all| shared.allocator.lock().room(of, all));
    let whose =
        owner.map_or("what all nodes allocate together".to_string(), |node| format!("what {node} allocates alone"));
    let under = match of {
        Part::Tracked => "pages under hlrc and scope",
        Part::Guarded => "pages under msi",
        Part::Lines => "memory whose accesses are checked in line",
        Part::OneCopy => "pages under hardware",
    };
    let several = shared.nodes > 1;
    let mut help =
        Vec::from_iter((shared.bytes as u64 != HEAP_BYTES).then_some("start with a larger --heap (16T at most)"));
    match owner {
        Some(_) if several && bytes as u64 <= together => help.push("let all nodes allocate it together"),
        Some(_) if !several => help.push("free memory"),
        _ => help.push("allocate less"),
    }
    let spent = match several {
        false => "",
        true => "; addresses of freed regions are used again after two barriers of all threads",
    };
    Error::HeapFull(format!(
        "no room for {bytes} bytes: of the shared heap of {} bytes, {whose} has {part} for {under}, of which {left} \
         have not been used yet{spent}; {}",
        shared.bytes,
        help.join(", or ")
    ))
}

/// A region's shape from what was asked: pages and alignment in pages.
fn shape(bytes: usize, unit: Unit, alignment: usize) -> Option<(u64, u64)> {
    let unit = u64::from(unit.pages());
    let pages = (bytes.max(1) as u64).div_ceil(PAGE_BYTES as u64).checked_next_multiple_of(unit)?;
    let align = (alignment / PAGE_BYTES).max(1) as u64;
    Some((pages, align.max(unit)))
}

/// Refuses alignments that the heap cannot give.
fn check_alignment(shared: &Shared, alignment: usize) -> Result<()> {
    let (base, heap) = (shared.base, shared.bytes);
    let wrong = match alignment {
        _ if !alignment.is_power_of_two() => format!("an alignment of {alignment} bytes is no power of two"),
        _ if alignment > heap => {
            format!("an alignment of {alignment} bytes is larger than the shared heap of {heap} bytes")
        }
        // Addresses are multiples of what the heap's beginning is a multiple of.
        _ if !base.is_multiple_of(alignment) => format!(
            "an alignment of {alignment} bytes is larger than that of the shared heap, which begins at {base:#x}"
        ),
        _ => return Ok(()),
    };
    Err(Error::Argument(wrong))
}

/// The diffs of a unit that stay with their writers are at most so many times as long as the unit.
const KEPT_DIFF_GROWTH: usize = 4;

/// The engine of a region in a job with this engine of pages, and its unit if it lies in lines memory.
fn engine_of(config: &Config, page_engine: PageEngine, options: &RegionOptions) -> Result<(PageEngine, Option<Unit>)> {
    let wrong = |what: String| Err(Error::Argument(what));
    let named = options.engine.filter(|_| !config.force_engine);
    // A job of one node has one copy of everything.
    let named = named.filter(|named| config.nodes > 1 || !named.has_one_copy());
    let engine = named.unwrap_or(page_engine);
    if engine.has_one_copy() && !page_engine.has_one_copy() {
        return wrong(format!(
            "memory under {engine}, in a job whose nodes map no memory in common; start it on one host with \
             --engine {engine}"
        ));
    }
    if !engine.properties().is_for_jobs {
        return wrong(UnknownPageEngine(engine.name().to_string()).to_string());
    }
    if options.keeps_pages {
        let engine = match engine.keeps_pages() {
            // What is put into a home's memory before anybody hears of it needs a home.
            true if engine.keeps_diffs() => PageEngine::Hlrc,
            true => engine,
            false => PageEngine::Msi,
        };
        return Ok((engine, None));
    }
    let unit_bytes = if options.unit_bytes == 0 { config.unit_bytes } else { options.unit_bytes };
    let Some(unit) = Unit::of_bytes(unit_bytes) else {
        return wrong(format!("a unit of {unit_bytes} bytes is none of {UNIT_BYTES:?}"));
    };
    let is_asked_for = options.unit_bytes > 0 || !engine.keeps_pages();
    let keeps_lines = is_asked_for || (config.has_lines() && named.is_none());
    if !keeps_lines {
        return Ok((engine, None));
    }
    if !engine.keeps_lines() {
        return wrong(format!(
            "a unit of {unit_bytes} bytes under {engine}, which keeps pages; name the engine direct or msi"
        ));
    }
    if !config.has_lines() {
        return wrong(format!(
            "memory under {engine} in units of {unit_bytes} bytes, in a job without memory of that kind; start the \
             job with --detector inline, or with --engine direct"
        ));
    }
    if !options.holds_objects {
        crate::inline::refuse_unchecked_memory(config)?;
    }
    if options.unit_pages > 0 && options.unit_bytes > 0 {
        return wrong(format!("a unit of {} pages and of {unit_bytes} bytes; name one of them", options.unit_pages));
    }
    if options.unit_pages > 0
        && let Some(named) = named.filter(|named| !named.keeps_pages())
    {
        return wrong(format!(
            "a unit of {} pages under {named}, which keeps lines; name a unit of bytes, or the engine msi",
            options.unit_pages
        ));
    }
    Ok((engine, Some(unit)))
}

/// The unit of a region that this node allocates now, where `named` is what [`ThreadHeap::checked`] gave.
fn unit_now(wire: &Wire, named: Unit, homes: &Homes) -> Unit {
    match homes {
        _ if named != ANY_UNIT => named,
        // The program has said which node gets which pages.
        Homes::Dealt(_) => Unit::Pages(1),
        _ => Unit::Pages(map_count_limit::pages().min(1 << wire.message_pages().max(1).ilog2())),
    }
}

impl Node {
    /// The engine of a region for which the program names this one. Where start-up has taken memory of one copy without
    /// being asked, and with it locks that tell nothing, engines whose locks must tell something give way to it: it
    /// keeps what they promise.
    fn engine_that_can_be(&self, named: PageEngine) -> PageEngine {
        let of_the_job = self.page_engine();
        let is_unasked = self.config.fallback_engine.is_some() && of_the_job.has_one_copy();
        if !is_unasked || !named.has_several_writers() || self.sync.lock_tables().is_none() {
            return named;
        }
        static SAID: std::sync::Once = std::sync::Once::new();
        if self.me() == NodeId(0) {
            SAID.call_once(|| {
                crate::error::say(format_args!(
                    "comem: {}: memory for which the program names the engine {named} is under {of_the_job}, since all \
                     nodes are on one host; --rehearse, --engine {named} or --locks tokens gives it what it names",
                    self.name_of(self.me())
                ));
            });
        }
        of_the_job
    }
}

impl ThreadHeap<'_> {
    /// The engine, and the unit that the allocation or the job names.
    pub(in crate::shared) fn checked(&self, bytes: usize, options: &RegionOptions) -> Result<Keeping> {
        let ThreadHeap { thread, shared } = *self;
        let wrong = |what: String| Err(Error::Argument(what));
        check_alignment(shared, options.alignment)?;
        let named = if options.unit_pages == 0 { thread.home().config.unit_pages } else { options.unit_pages };
        let unit = named.max(1);
        if !unit.is_power_of_two() || unit > UNIT_PAGES_MAX {
            return wrong(format!("a unit of {unit} pages is no power of two up to {UNIT_PAGES_MAX}"));
        }
        let fits = thread.home().wire.message_pages();
        if thread.home().nodes() > 1 && unit as usize > fits {
            return wrong(format!(
                "a unit of {unit} pages does not fit one message on this network; take at most {} pages",
                1 << fits.max(1).ilog2()
            ));
        }
        if let Homes::On(node) | Homes::StartingOn(node) = options.home
            && node.index() >= thread.home().nodes()
        {
            return wrong(format!("there is no {node}; the job has {} nodes", thread.home().nodes()));
        }
        let (engine, by_lines) = engine_of(&thread.home().config, thread.home().page_engine(), options)?;
        let engine = thread.home().engine_that_can_be(engine);
        // A writer's answer has more than a unit's bytes, where those beside each other were written at several times.
        let fits = (fits / KEPT_DIFF_GROWTH).max(1);
        if engine.keeps_diffs() && thread.home().nodes() > 1 && unit as usize > fits {
            return wrong(format!(
                "under {engine} the diffs of a unit of {unit} pages may not fit one message on this network; take at \
                 most {} pages",
                1 << fits.ilog2()
            ));
        }
        if engine.has_several_writers() && thread.home().sync.lock_tables().is_some() {
            return wrong(format!(
                "under {engine} locks tell what was written, and this job's locks are one-sided, which tell nothing; \
                 start it with --locks tokens"
            ));
        }
        let most = crate::shared::consistency::msi_pages::MSI_UNIT_PAGES_MAX;
        if !engine.has_several_writers() && !engine.has_one_copy() && by_lines.is_none() && unit > most {
            return wrong(format!(
                "under {engine} a unit has at most {most} pages, and {unit} are asked for; choose fewer \
                 (--unit-pages, or with the allocation)"
            ));
        }
        if bytes > isize::MAX as usize / 2 {
            return wrong(format!("{bytes} bytes are more than an address space holds; allocate less"));
        }
        Ok((engine, by_lines.unwrap_or(Unit::Pages(named))))
    }

    /// As [`unit_now`] where all nodes allocate together: the largest unit of any.
    pub(in crate::shared) fn unit_of_all(&self, named: Unit, homes: &Homes) -> Result<Unit> {
        let ThreadHeap { thread, shared } = *self;
        let mine = unit_now(&thread.home().wire, named, homes);
        if named != ANY_UNIT || !shared.units_may_differ {
            return Ok(mine);
        }
        let largest = thread.collective(Collective::UNIT, &i64::from(mine.pages()).to_be_bytes(), |largest| {
            largest.as_chunks::<8>().0.first().and_then(|word| u32::try_from(i64::from_be_bytes(*word)).ok())
        })?;
        largest.filter(|unit| unit.is_power_of_two() && *unit <= UNIT_PAGES_MAX).map(Unit::Pages).ok_or_else(|| {
            Error::PeerMisbehaved(
                "a node has asked for a unit of pages that makes no sense; please report this".to_string(),
            )
        })
    }

    /// Allocates on this node alone; `site` names what has no label.
    pub(crate) fn allocate(&self, bytes: usize, options: &RegionOptions, site: &str) -> Result<usize> {
        let (engine, named) = self.checked(bytes, options)?;
        let plain =
            options.label.is_empty() && matches!(options.home, Homes::Automatic | Homes::Block | Homes::Claimed);
        if bytes <= SMALL_BYTES && options.alignment <= SMALL_BYTES && plain {
            return self.allocate_small(bytes, (engine, named), options.alignment);
        }
        let label = if options.label.is_empty() { site.to_string() } else { options.label.clone() };
        self.allocate_region(bytes, (engine, named), &RegionOptions { label, ..options.clone() }, false)
    }

    /// Allocates a region of this node's and tells the others.
    pub(in crate::shared) fn allocate_region(
        &self,
        bytes: usize,
        (engine, named): Keeping,
        options: &RegionOptions,
        cut_up: bool,
    ) -> Result<usize> {
        let ThreadHeap { thread, shared } = *self;
        let kind = (engine, unit_now(&thread.home().wire, named, &options.home));
        let label = self.numbered(engine, &options.label, Some(shared.me));
        let options = &RegionOptions { label, ..options.clone() };
        let region = Region { cut_up, ..self.region(bytes, kind, options, Some(shared.me))? };
        self.announce(&region)?;
        let first = region.first;
        shared.add(region);
        Ok(shared.address_of(first))
    }

    /// Allocates what all nodes allocate in the same order; the caller sees to it that they do.
    /// `site` names what has no label.
    pub(crate) fn allocate_common(&self, bytes: usize, options: &RegionOptions, site: &str) -> Result<usize> {
        let ThreadHeap { shared, .. } = *self;
        let (engine, named) = self.checked(bytes, options)?;
        let unit = self.unit_of_all(named, &options.home)?;
        let label = self.name_for_all(engine, &options.label, site)?;
        let region = self.region(bytes, (engine, unit), &RegionOptions { label, ..options.clone() }, None)?;
        let first = region.first;
        shared.add(region);
        Ok(shared.address_of(first))
    }

    pub(in crate::shared) fn region(
        &self,
        bytes: usize,
        (engine, unit): Keeping,
        options: &RegionOptions,
        owner: Option<NodeId>,
    ) -> Result<Region> {
        let ThreadHeap { shared, .. } = *self;
        let part = Part::of(engine, unit);
        let no_room = || no_room(shared, bytes, part, owner);
        let (pages, align) = shape(bytes, unit, options.alignment).ok_or_else(no_room)?;
        let mut taken = shared.allocator.lock().take(part, pages, align, owner.is_none());
        if taken.is_none() {
            taken = match owner {
                None => self.take_again(part, pages, align)?,
                Some(_) => self.take_own_again((engine, unit), pages, align)?,
            };
        }
        let first = taken.ok_or_else(no_room)?;
        let mut label = options.label.clone();
        while label.len() > comem_protocol::coherence::pages::region::LABEL_MAX {
            label.pop();
        }
        Ok(Region {
            first: first as u32,
            pages: pages as u32,
            bytes: bytes.max(1) as u64,
            unit,
            engine,
            homes: options.home.clone(),
            owner,
            cut_up: false,
            label,
        })
    }

    /// Tells the other nodes of a region.
    fn announce(&self, region: &Region) -> Result<()> {
        let ThreadHeap { shared, .. } = *self;
        if shared.views.is_none() {
            return Ok(());
        }
        // When the pointer gets about, every node has heard of the region.
        NodeId::all(shared.nodes)
            .filter(|node| *node != shared.me)
            .try_for_each(|node| self.ask_of_region(node, region).map(drop))
    }

    /// Tells another node of a region or, where that has no bytes, asks it whether the place may be used again; gives
    /// the answer.
    pub(in crate::shared) fn ask_of_region(&self, node: NodeId, region: &Region) -> Result<Vec<u8>> {
        let ThreadHeap { thread, .. } = *self;
        let mut body = Vec::new();
        region.emit(&mut body);
        thread.operation(|| {
            thread.home().slots[thread.slot()].expect_answer();
            let target = Target::Request { node, origin: Origin::Caller };
            thread.stepping(|out| out.send(target, &Message::Region { body: &body }));
            thread.await_answer(region.first)
        })
    }

    fn allocate_small(&self, bytes: usize, (engine, named): Keeping, align: usize) -> Result<usize> {
        let ThreadHeap { thread, shared } = *self;
        let size = bytes.max(align).max(16).next_power_of_two();
        let kind = (engine, named, size);
        loop {
            {
                let mut allocator = shared.allocator.lock();
                let free = allocator.small.entry(kind).or_default();
                let may_be_used = |block: &FreeBlock| block.elsewhere.iter().all(|by| shared.meets(&by.needs));
                if let Some(at) = free.free.iter().rposition(may_be_used) {
                    let FreeBlock { address, elsewhere } = free.free.swap_remove(at);
                    allocator.blocks.insert(address, kind);
                    drop(allocator);
                    self.uses_again(engine, address..address + size, elsewhere.map(|by| by.stamp));
                    // SAFETY: the block is in an allocated region and belongs to nobody else; its old contents have no
                    // meaning.
                    unsafe { shared.clear(address, size) };
                    return Ok(address);
                }
                if let Some(address) = cut_off(allocator.rests.entry(kind).or_default(), size) {
                    allocator.blocks.insert(address, kind);
                    return Ok(address);
                }
            }
            let options = RegionOptions {
                home: Homes::On(shared.me),
                label: format!("blocks of {size} bytes of node {}", shared.me.0),
                ..RegionOptions::default()
            };
            let unit = unit_now(&thread.home().wire, named, &options.home);
            let pages = (SMALL_REGION_PAGES as usize).max(unit.pages() as usize);
            let address = self.allocate_region(pages * PAGE_BYTES, (engine, unit), &options, true)?;
            let mut allocator = shared.allocator.lock();
            allocator.rests.entry(kind).or_default().push(address..address + pages * PAGE_BYTES);
        }
    }
}

impl Thread {
    /// Waits for an answer about the allocation of a page.
    pub(in crate::shared) fn await_answer(&self, page: PageNo) -> Result<Vec<u8>> {
        loop {
            if let Some(answer) = self.home().slots[self.slot()].take_answer() {
                return Ok(answer);
            }
            self.wait(Waiting::Page(page))?;
        }
    }
}

pub(super) fn tell_all(shared: &Shared, body: &[u8], out: &mut Outbox) {
    for node in NodeId::all(shared.nodes).filter(|n| *n != shared.me) {
        out.send(Target::Post { node, origin: Origin::Caller }, &Message::Region { body });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = (1 << 30) / PAGE_BYTES as u64;

    fn allocator(me: u16) -> Allocator {
        Allocator::new(NodeId(me), 64, Parts::new(16 << 10 << 30 >> PAGE_BYTES.ilog2(), None))
    }

    #[test]
    fn on_many_nodes_there_is_room_for_what_all_allocate_together_and_for_what_node_0_allocates_for_all() {
        for part in [Part::Tracked, Part::Guarded] {
            for me in [0, 63] {
                let (mut one, mut other) = (allocator(me), allocator(1));
                for gib in [200, 3000, 1] {
                    let first = one.take(part, gib * GIB, 1, true).expect("there is room");
                    assert_eq!(other.take(part, gib * GIB, 1, true), Some(first));
                    assert_eq!(one.owner_of(first as PageNo), None);
                    assert_eq!(one.owner_of((first + gib * GIB - 1) as PageNo), None);
                }
                assert_eq!(one.take(part, 2000 * GIB, 1, true), None);
                let most = if me == 0 { 2000 } else { 32 };
                let first = one.take(part, most * GIB, 1, false).expect("there is room");
                assert_eq!(other.owner_of((first + most * GIB - 1) as PageNo), Some(NodeId(me)));
            }
        }
    }

    #[test]
    fn an_engine_that_no_job_may_have_yet_is_refused_as_an_unknown_one() {
        let config = Config::from_env().expect("no settings");
        for engine in PageEngine::ALL.into_iter().filter(|engine| engine.keeps_pages()) {
            let config = Config { nodes: 2, ..config.clone() };
            let job = if engine.has_one_copy() { engine } else { PageEngine::Hlrc };
            let found = engine_of(&config, job, &RegionOptions { engine: Some(engine), ..RegionOptions::default() });
            match engine.properties().is_for_jobs {
                true => assert_eq!(found.expect("jobs may have it").0, engine),
                false => {
                    let sentence = format!("unknown page engine \"{engine}\"; the engines for pages are hlrc");
                    assert!(found.expect_err("jobs may not have it").to_string().contains(&sentence));
                }
            }
        }
    }

    #[test]
    fn a_node_tells_of_what_it_can_have_and_of_nothing_else() {
        let teller = NodeId(5);
        for engine in PageEngine::for_jobs().filter(|engine| engine.keeps_pages()) {
            let part = Part::of(engine, Unit::Pages(1));
            let more = engine.has_one_copy().then_some(Part::OneCopy);
            let allocator = Allocator::new(NodeId(3), 64, Parts::new(16 << 10 << 30 >> PAGE_BYTES.ilog2(), more));
            let another = if part == Part::Tracked { Part::Guarded } else { Part::Tracked };
            let [own, other, common] =
                [Some(teller), Some(NodeId(6)), None].map(|of| allocator.layout.stretch(part, of));
            let elsewhere = allocator.layout.stretch(another, Some(teller));
            let region = |first: u64, pages| Region {
                first: first as PageNo,
                pages,
                bytes: 1,
                unit: Unit::Pages(1),
                engine,
                homes: Homes::Block,
                owner: Some(teller),
                cut_up: false,
                label: String::new(),
            };
            let told = |region: &Region| allocator.may_be_told(teller, region, 64);
            let fine = region(own.start, (own.end - own.start) as u32);
            assert!(told(&fine));
            for first in [own.start - 1, own.end - 7, other.start, common.start, elsewhere.start] {
                assert!(!told(&region(first, 8)), "{engine:?}: {first}");
            }
            for owner in [None, Some(NodeId(6))] {
                assert!(!told(&Region { owner, ..fine.clone() }));
            }
            for homes in [Homes::On, Homes::StartingOn] {
                let placed = |home| told(&Region { homes: homes(NodeId(home)), ..fine.clone() });
                assert_eq!([placed(63), placed(64)], [true, false]);
            }
            let large = Region { unit: Unit::Pages(256), ..region(own.start, 512) };
            assert_eq!(told(&large), part != Part::Guarded);
        }
    }
}
