//! Pieces: memory for programs that allocate one structure at a time.
//!
//! A node cuts pieces, of any size up to [`PIECE_BYTES`] and each on cache lines of its own, from larger regions, so
//! that a thousand allocations cost one announcement and lie side by side. What is known of them stands in private
//! memory of the node that cut them.
//!
//! A piece that its own node frees may be used again at once: whoever wrote to it before has synchronised with the
//! thread that frees it. One that another node frees lies idle for two epochs, until a barrier of all threads has told
//! everybody of everything that was written to it: its diffs may be on their way to any home.

use crate::error::Result;
use crate::shared::Shared;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::alloc::{Keeping, RegionOptions};
use crate::shared::heap::table::RegionState;
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::ids::NodeId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The largest piece; beyond, an allocation is a region of its own.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Pieces begin at multiples of this many bytes: no two share a cache line.
const PIECE_ALIGN: usize = 64;
/// The first region for pieces has so many bytes; later ones are as large as all before them, up to
/// [`REGION_BYTES_MAX`].
const REGION_BYTES: usize = 1 << 20;
const REGION_BYTES_MAX: usize = 64 << 20;

/// Which pieces lie side by side: engine, unit and home must agree.
type Kind = (Keeping, Option<NodeId>);

/// The pieces of one kind.
#[derive(Debug, Default)]
struct Room {
    /// What nobody has had of its regions: several where threads found no room at the same time.
    rests: Vec<Range<usize>>,
    /// Bytes of all its regions.
    bytes: usize,
    /// Pieces that were freed, by size, with the epoch from which on they may be used again.
    free: BTreeMap<usize, Vec<(usize, u32)>>,
}

/// What this node knows of the pieces that it cut.
#[derive(Debug, Default)]
pub(crate) struct SmallAllocator {
    rooms: BTreeMap<Kind, Room>,
    /// Kind and size of those in use, by address.
    used: BTreeMap<usize, (Kind, usize)>,
}

/// The first so many bytes of the first range that has them.
pub(in crate::shared) fn cut_off(rests: &mut Vec<Range<usize>>, size: usize) -> Option<usize> {
    let at = rests.iter().position(|rest| rest.len() >= size)?;
    let rest = &mut rests[at];
    rest.start += size;
    let address = rest.start - size;
    if rest.start == rest.end {
        rests.remove(at);
    }
    Some(address)
}

impl SmallAllocator {
    /// Cuts a piece; whether it was used before, and so is not zero. `None` when there is no room for it.
    fn cut(&mut self, kind: Kind, size: usize, epoch: u32) -> Option<(usize, bool)> {
        let room = self.rooms.entry(kind).or_default();
        let free = room.free.get_mut(&size);
        let ripe = |(_, from): &(usize, u32)| epoch.wrapping_sub(*from) as i32 >= 0;
        let used = free.and_then(|all| all.iter().rposition(ripe).map(|at| all.swap_remove(at).0));
        let fresh = || cut_off(&mut room.rests, size).map(|address| (address, false));
        let (address, used) = used.map(|address| (address, true)).or_else(fresh)?;
        self.used.insert(address, (kind, size));
        Some((address, used))
    }

    fn add_region(&mut self, kind: Kind, start: usize, bytes: usize) {
        let room = self.rooms.entry(kind).or_default();
        match room.rests.last_mut() {
            Some(last) if last.end == start => last.end += bytes,
            _ => room.rests.push(start..start + bytes),
        }
        room.bytes += bytes;
    }

    fn next_region(&self, kind: Kind) -> usize {
        self.rooms.get(&kind).map_or(0, |room| room.bytes).clamp(REGION_BYTES, REGION_BYTES_MAX)
    }

    /// Takes a piece back; `false` when none begins there. `elsewhere` says that another node frees it, in `epoch` or
    /// the next.
    pub(crate) fn give_back(&mut self, address: usize, elsewhere: bool, epoch: u32) -> bool {
        let Some((kind, size)) = self.used.remove(&address) else { return false };
        let from = if elsewhere { epoch.wrapping_add(2) } else { epoch };
        self.rooms.entry(kind).or_default().free.entry(size).or_default().push((address, from));
        true
    }
}

impl Shared {
    /// The pieces of this node that are in use, and the regions that it allocated because a piece would have been too
    /// large.
    pub(crate) fn pieces(&self) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let allocator = self.allocator.lock();
        found.extend(allocator.pieces.used.iter().map(|(start, (_, size))| *start..start + size));
        let whole = |known: &&Arc<RegionState>| {
            let region = &known.region;
            let mine = region.owner == Some(self.me) && !region.cut_up;
            mine && region.bytes > PIECE_BYTES as u64 && !known.freed.load(Ordering::Acquire)
        };
        let at = |known: &Arc<RegionState>| self.address_of(known.region.first);
        let range = |known: &Arc<RegionState>| at(known)..at(known) + known.region.bytes as usize;
        found.extend(self.table.all().iter().filter(whole).map(range));
        found.sort_by_key(|piece| piece.start);
        found
    }
}

impl ThreadHeap<'_> {
    /// Allocates a piece or, when it is large, a region of its own; at `home`, or where the pages are used.
    /// `site` names such a region.
    pub(crate) fn allocate_piece(&self, bytes: usize, home: Option<NodeId>, site: &str) -> Result<usize> {
        let ThreadHeap { shared, .. } = *self;
        let homes = home.map_or(Homes::Claimed, Homes::On);
        if bytes > PIECE_BYTES {
            return self.allocate(bytes, &RegionOptions { home: homes, ..RegionOptions::default() }, site);
        }
        let kept = self.checked(bytes, &RegionOptions { home: homes.clone(), ..RegionOptions::default() })?;
        let (kind, size) = ((kept, home), bytes.max(1).next_multiple_of(PIECE_ALIGN));
        loop {
            let epoch = shared.epoch.load(Ordering::Acquire);
            let mut allocator = shared.allocator.lock();
            let cut = allocator.pieces.cut(kind, size, epoch);
            let region_bytes = allocator.pieces.next_region(kind);
            drop(allocator);
            if let Some((address, used)) = cut {
                if used {
                    // Two barriers have told everybody of what another node has freed.
                    self.uses_again(kept.0, address..address + size, None);
                    // SAFETY: the piece is in an allocated region and belongs to nobody else; its old contents have no
                    // meaning.
                    unsafe { shared.clear(address, size) };
                }
                return Ok(address);
            }
            let pages = (region_bytes / PAGE_BYTES).max(kept.1.pages() as usize);
            let label = format!("pieces of node {}", shared.me.0);
            let options = RegionOptions { home: homes.clone(), label, ..RegionOptions::default() };
            let start = self.allocate_region(pages * PAGE_BYTES, kept, &options, true)?;
            let mut allocator = shared.allocator.lock();
            allocator.pieces.add_region(kind, start, pages * PAGE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::coherence::pages::PageEngine;
    use comem_protocol::coherence::pages::region::Unit;

    const KIND: Kind = ((PageEngine::Hlrc, Unit::Pages(1)), None);

    #[test]
    fn pieces_lie_side_by_side_and_never_overlap() {
        let mut pieces = SmallAllocator::default();
        assert_eq!(pieces.cut(KIND, 64, 0), None, "no region yet");
        pieces.add_region(KIND, 0x10000, REGION_BYTES);
        assert_eq!(pieces.cut(KIND, 64, 0), Some((0x10000, false)));
        assert_eq!(pieces.cut(KIND, 192, 0), Some((0x10040, false)));
        assert_eq!(pieces.cut(KIND, REGION_BYTES, 0), None);
        pieces.add_region(KIND, 0x10000 + REGION_BYTES, REGION_BYTES);
        assert_eq!(pieces.cut(KIND, REGION_BYTES, 0), Some((0x10100, false)), "adjacent regions are one");
    }

    /// Two threads that found no room at the same time each allocated a region, and what was left of the first was
    /// lost.
    #[test]
    fn what_is_left_of_regions_is_cut_up() {
        let mut pieces = SmallAllocator::default();
        pieces.add_region(KIND, 0x100_0000, 256);
        pieces.add_region(KIND, 0x200_0000, 256);
        let cut = |pieces: &mut SmallAllocator, size| pieces.cut(KIND, size, 0).map(|(address, _)| address);
        let all = [192, 128, 64, 64, 64].map(|size| cut(&mut pieces, size));
        assert_eq!(all, [0x100_0000, 0x200_0000, 0x100_00c0, 0x200_0080, 0x200_00c0].map(Some));
        assert_eq!(cut(&mut pieces, 64), None);
    }

    #[test]
    fn what_another_node_freed_lies_idle_for_two_epochs() {
        let mut pieces = SmallAllocator::default();
        pieces.add_region(KIND, 0x10000, 64);
        assert_eq!(pieces.cut(KIND, 64, 7), Some((0x10000, false)));
        assert!(pieces.give_back(0x10000, true, 7) && !pieces.give_back(0x10000, true, 7), "once");
        assert_eq!(pieces.cut(KIND, 64, 8), None);
        assert_eq!(pieces.cut(KIND, 64, 9), Some((0x10000, true)));
        assert!(pieces.give_back(0x10000, false, 9));
        assert_eq!(pieces.cut(KIND, 64, 9), Some((0x10000, true)));
    }

    #[test]
    fn regions_grow_with_what_is_used() {
        let mut pieces = SmallAllocator::default();
        let mut sizes = Vec::new();
        for _ in 0..9 {
            sizes.push(pieces.next_region(KIND) >> 20);
            pieces.add_region(KIND, 0, pieces.next_region(KIND));
        }
        assert_eq!(sizes, [1, 1, 2, 4, 8, 16, 32, 64, 64]);
    }
}
