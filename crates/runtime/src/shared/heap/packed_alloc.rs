//! Small allocations of all nodes, side by side.
//!
//! A region costs some kilobytes on each node, pages of its own, and a collective call. So small allocations that all
//! nodes make together, with the same engine, placement and unit and without a label, are cut from larger regions.
//! Each node cuts for itself: calls come in the same order everywhere, so all get the same addresses, without a
//! message. That they did is checked with the next collective call of any kind: a sum over the calls is compared then.
//!
//! A block's memory is not given out again by itself, which would take an agreement of all nodes. A region is freed
//! when all its blocks have been freed, and no more are cut from it.

use crate::error::Result;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::alloc::{Keeping, RegionOptions, SMALL_BYTES};
use crate::thread::Thread;
use comem_protocol::coherence::checksum;
use comem_protocol::coherence::pages::region::{Homes, Region};
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo};
use comem_protocol::wire::message::Collective;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Blocks begin at multiples of this many bytes at least.
const LEAST_ALIGN: usize = 16;
/// The first region of a kind has so many bytes; later ones are as large as all before them, up to
/// [`PACKED_REGION_BYTES_MAX`].
const PACKED_REGION_BYTES: usize = 64 << 10;
const PACKED_REGION_BYTES_MAX: usize = 1 << 20;

/// What must agree of blocks in one region: engine and unit, and placement.
type Kind = (Keeping, Homes);

/// Where blocks of a kind are cut.
#[derive(Debug)]
struct Room {
    kind: Kind,
    /// The first page of the region, and what nobody has had of it.
    region: PageNo,
    rest: Range<usize>,
    /// Bytes of all regions of the kind so far.
    bytes: usize,
}

/// What a node knows of the blocks; the same on every node but for what each has freed.
#[derive(Debug, Default)]
pub(crate) struct PackedAllocator {
    rooms: Vec<Room>,
    /// Blocks in use, by address, with the first pages of their regions.
    blocks: BTreeMap<usize, PageNo>,
    /// How many blocks of each region are in use.
    used: BTreeMap<PageNo, usize>,
    /// A sum over all calls so far.
    calls: u64,
}

impl PackedAllocator {
    fn room(&mut self, kind: &Kind) -> Option<&mut Room> {
        self.rooms.iter_mut().find(|room| room.kind == *kind)
    }

    /// Cuts a block; `None` when there is no room for it.
    fn cut(&mut self, kind: &Kind, bytes: usize, align: usize) -> Option<usize> {
        let room = self.room(kind)?;
        let start = room.rest.start.next_multiple_of(align);
        let end = start.checked_add(bytes).filter(|end| *end <= room.rest.end)?;
        room.rest.start = end;
        let region = room.region;
        self.blocks.insert(start, region);
        *self.used.entry(region).or_default() += 1;
        self.calls = checksum(&[self.calls, bytes as u64, start as u64].map(u64::to_be_bytes).concat());
        Some(start)
    }

    /// How large the next region of a kind is, in bytes.
    fn next_region(&mut self, kind: &Kind) -> usize {
        self.room(kind).map_or(0, |room| room.bytes).clamp(PACKED_REGION_BYTES, PACKED_REGION_BYTES_MAX)
    }

    /// From now on blocks of this kind are cut from this region. Gives the region before it if that has no blocks in
    /// use.
    fn add_region(&mut self, kind: &Kind, region: PageNo, memory: Range<usize>) -> Option<PageNo> {
        self.used.insert(region, 0);
        let Some(room) = self.room(kind) else {
            let bytes = memory.len();
            self.rooms.push(Room { kind: kind.clone(), region, rest: memory, bytes });
            return None;
        };
        room.bytes += memory.len();
        room.rest = memory;
        let before = std::mem::replace(&mut room.region, region);
        self.unused(before)
    }

    /// Takes a block back. `None` if none begins there; else the region, if that is to be freed with its last block.
    fn give_back(&mut self, address: usize) -> Option<Option<PageNo>> {
        let region = self.blocks.remove(&address)?;
        self.used.entry(region).and_modify(|used| *used -= 1);
        let is_open = self.rooms.iter().any(|room| room.region == region);
        Some(if is_open { None } else { self.unused(region) })
    }

    /// Forgets a region without blocks in use, from which no more are cut.
    fn unused(&mut self, region: PageNo) -> Option<PageNo> {
        self.used.get(&region).is_some_and(|used| *used == 0).then(|| self.used.remove(&region))?;
        Some(region)
    }
}

impl ThreadHeap<'_> {
    /// Allocates a small block together with all nodes, which make the same call; `None` where the allocation is to be
    /// a region of its own.
    pub(crate) fn allocate_packed(&self, bytes: usize, options: &RegionOptions) -> Result<Option<usize>> {
        let ThreadHeap { shared, .. } = *self;
        let is_plain = options.label.is_empty() && !matches!(options.home, Homes::Dealt(_));
        if bytes > SMALL_BYTES || options.alignment > SMALL_BYTES || !is_plain {
            return Ok(None);
        }
        let kind = (self.checked(bytes, options)?, options.home.clone());
        let (bytes, align) = (bytes.max(1).next_multiple_of(LEAST_ALIGN), options.alignment.max(LEAST_ALIGN));
        loop {
            let region_bytes = {
                let mut packed = shared.packed.lock();
                if let Some(address) = packed.cut(&kind, bytes, align) {
                    shared.packed_calls.store(shared.nodes > 1, Ordering::Release);
                    return Ok(Some(address));
                }
                packed.next_region(&kind)
            };
            self.allocate_packed_region(&kind, region_bytes)?;
        }
    }

    /// Allocates a region from which blocks are cut; every node does so in the same call.
    fn allocate_packed_region(&self, kind: &Kind, bytes: usize) -> Result<()> {
        let ThreadHeap { thread, shared } = *self;
        let ((engine, named), homes) = kind;
        let label = "small allocations of all nodes".to_string();
        let options = RegionOptions { home: homes.clone(), label, ..RegionOptions::default() };
        let unit = self.unit_of_all(*named, homes)?;
        let region = Region { cut_up: true, ..self.region(bytes, (*engine, unit), &options, None)? };
        let (first, memory) = (region.first, region.pages as usize * PAGE_BYTES);
        let start = shared.address_of(first);
        let shape = format!("blocks {kind:?} {memory} {}", if shared.nodes > 1 { start } else { 0 });
        shared.add(region);
        // No node uses the memory before all know of it.
        thread.collective(Collective::create(checksum(shape.as_bytes())), &[], |_| ())?;
        let unused = shared.packed.lock().add_region(kind, first, start..start + memory);
        unused.inspect(|first| self.drop_packed(*first));
        Ok(())
    }

    /// Frees a block of this kind, on this node; `false` if none begins there.
    pub(in crate::shared) fn free_packed(&self, address: usize) -> bool {
        let ThreadHeap { shared, .. } = *self;
        let freed = shared.packed.lock().give_back(address);
        freed.flatten().inspect(|first| self.drop_packed(*first));
        freed.is_some()
    }

    fn drop_packed(&self, first: PageNo) {
        let ThreadHeap { thread, shared } = *self;
        self.tell_flushed(first);
        if let Some(known) = shared.table.find(first) {
            let epoch = shared.epoch.load(Ordering::Acquire);
            thread.stepping(|out| thread.home().node_pages(shared, thread.slot(), out).drop_region(&known, epoch));
        }
    }
}

impl Thread {
    /// Before a collective call: compares with all nodes which blocks were cut since the last one, if any were. Where
    /// all threads of a node take part, its last one does so: until then another may be allocating.
    pub(crate) fn tell_packed(&self, what: Collective) -> Result<()> {
        let Some(shared) = self.home().shared().filter(|shared| shared.nodes > 1) else { return Ok(()) };
        if !shared.packed_callers.all_came(what, crate::host::callers(&self.home().config)) {
            return Ok(());
        }
        if !shared.packed_calls.load(Ordering::Relaxed) || !shared.packed_calls.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let calls = shared.packed.lock().calls;
        self.collective(Collective::create(calls), &[], |_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::heap::alloc::ANY_UNIT;
    use comem_protocol::coherence::pages::PageEngine;

    fn kind(homes: Homes) -> Kind {
        ((PageEngine::Hlrc, ANY_UNIT), homes)
    }

    #[test]
    fn blocks_of_one_kind_lie_side_by_side_and_those_of_others_elsewhere() {
        let (mut packed, mine, other) = (PackedAllocator::default(), kind(Homes::Automatic), kind(Homes::Block));
        assert_eq!(packed.cut(&mine, 16, 16), None, "no region yet");
        packed.add_region(&mine, 16, 0x10000..0x20000);
        packed.add_region(&other, 32, 0x20000..0x30000);
        let blocks = [(16, 16), (48, 64), (16, 16)].map(|(bytes, align)| packed.cut(&mine, bytes, align));
        assert_eq!(blocks, [0x10000, 0x10040, 0x10070].map(Some));
        assert_eq!(packed.cut(&other, 16, 64), Some(0x20000));
        assert_eq!(packed.cut(&mine, 0x10000, 16), None);
    }

    #[test]
    fn a_region_is_freed_with_its_last_block_once_no_more_are_cut_from_it() {
        let (mut packed, kind) = (PackedAllocator::default(), kind(Homes::Automatic));
        packed.add_region(&kind, 16, 0x10000..0x20000);
        let all = [1, 2].map(|_| packed.cut(&kind, 64, 64).unwrap());
        assert_eq!(packed.give_back(all[0] + 16), None, "no block begins there");
        assert_eq!(packed.give_back(all[0]), Some(None));
        assert_eq!(packed.give_back(all[0]), None, "once");
        assert_eq!(packed.add_region(&kind, 48, 0x30000..0x40000), None, "one is in use");
        assert_eq!(packed.give_back(all[1]), Some(Some(16)));
        let block = packed.cut(&kind, 64, 64).unwrap();
        assert_eq!(packed.give_back(block), Some(None), "more may be cut from it");
        assert_eq!(packed.add_region(&kind, 80, 0x50000..0x60000), Some(48));
    }

    #[test]
    fn regions_grow_with_what_is_used() {
        let (mut packed, kind) = (PackedAllocator::default(), kind(Homes::Automatic));
        let mut sizes = Vec::new();
        for _ in 0..7 {
            let bytes = packed.next_region(&kind);
            sizes.push(bytes >> 10);
            packed.add_region(&kind, 0, 0..bytes);
        }
        assert_eq!(sizes, [64, 64, 128, 256, 512, 1024, 1024]);
    }
}
