//! Regions that are freed while the nodes go on: by one of them, after everybody has done with it; the others hear of
//! it.

use super::layout::Layout;
use super::memory::PAGE_WORDS;
use super::node::{Node, Pages};
use super::program::{Op, Programs};
use comem_protocol::coherence::pages::kept_diffs::Stamp;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_interval};
use comem_protocol::coherence::pages::node::evict::free;
use comem_protocol::coherence::pages::node::kept_diffs::reuse;
use comem_protocol::coherence::pages::region::Region;
use comem_protocol::coherence::pages::{PAGE_BYTES, PageMapping, PageMemory, PageNo, PageTwins};
use comem_protocol::faults::Rng;
use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::wire::message::Message;
use std::ops::Range;

/// Above the values that programs store, and apart from those that waver.
const VALUES: u64 = 1 << 42;
/// The first of the flags by which threads say that they have done with a region.
const DONE: u64 = 9_000;
/// The first of the flags by which the judge hears of freed blocks.
const BLOCKS: u64 = 10_000;
/// Guards the word that all go on with.
const LOCK: LockId = LockId(9_000);

/// Appends to programs that end with a barrier: each thread writes some words of the last region, one of them reads
/// some and frees it, and all count in the first region while they hear of that, and for two barriers more. Where diffs
/// are told to sets, a new region gets the addresses then.
pub fn append(programs: &mut Programs, layout: &Layout, rng: &mut Rng) {
    let Some((region, _)) = layout.regions.last().filter(|_| layout.regions.len() > 1) else { return };
    let words: Vec<usize> =
        region.range().flat_map(|p| (0..PAGE_WORDS).map(move |w| p as usize * PAGE_WORDS + w)).collect();
    let threads: Vec<(usize, usize)> =
        (0..layout.nodes).flat_map(|n| (0..layout.threads).map(move |t| (n, t))).collect();
    let freer = rng.below(threads.len() as u64) as usize;
    let renews = region.engine.tells_sets();
    for (who, (n, t)) in threads.iter().enumerate() {
        let program = &mut programs[*n][*t];
        for word in words.iter().skip(who).step_by(threads.len()).filter(|_| rng.below(2) == 0) {
            program.push(Op::Write(*word, VALUES + *word as u64));
        }
        if renews {
            // What is told at barriers is told to sets.
            program.push(Op::Barrier);
            program.extend((0..4).map(|_| Op::Read(words[rng.below(words.len() as u64) as usize])));
        }
        program.push(Op::Set(FlagId(DONE + who as u64), 1));
        if who == freer {
            program.extend((0..threads.len()).map(|other| Op::Await(FlagId(DONE + other as u64), 1)));
            program.extend((0..rng.below(3)).map(|_| Op::Read(words[rng.below(words.len() as u64) as usize])));
            program.push(Op::Free(layout.regions.len() - 1));
        }
        for _ in 0..3 {
            for _ in 0..rng.between(1, 3) {
                let think = Op::Think(rng.below(100_000));
                program.extend([think, Op::Lock(LOCK), Op::Read(0), Op::WriteNext(0), Op::Unlock(LOCK)]);
            }
            program.push(Op::Barrier);
        }
        if renews {
            if *t == 0 {
                program.push(Op::Renew(layout.regions.len() - 1));
            }
            program.push(Op::Barrier);
            let of_thread = words.iter().skip(who).step_by(threads.len());
            program.extend(of_thread.step_by(3).map(|word| Op::Write(*word, 2 * VALUES + *word as u64)));
            for _ in 0..2 {
                program.push(Op::Barrier);
                program.extend((0..6).map(|_| Op::Read(words[rng.below(words.len() as u64) as usize])));
            }
            program.push(Op::Barrier);
        }
    }
}

/// The flag by which the judge hears of the free of the block that begins at a word.
pub(super) fn flag_of_block(word: usize) -> FlagId {
    FlagId(BLOCKS + word as u64)
}

impl Pages {
    /// A thread of this node frees a region: the others are told.
    pub(super) fn free(&mut self, number: usize, out: &mut Outbox) {
        let region = self.layout.regions[number].0.clone();
        self.drop_region(&region);
        let mut body = Vec::new();
        Region { bytes: 0, ..region }.emit(&mut body);
        for node in NodeId::all(self.layout.nodes).filter(|node| *node != self.me) {
            out.send(Target::Post { node, origin: Origin::Caller }, &Message::Region { body: &body });
        }
    }

    /// A thread of this node frees a block of another node, or of its own (the runtime's `Thread::free`).
    pub(super) fn free_block(&mut self, word: usize, owner: NodeId, out: &mut Outbox) {
        if owner == self.me {
            self.free_blocks.push((word, None));
            self.applied = true;
            return;
        }
        self.with_intervals(|pages, intervals| close_interval(pages, intervals, CloseReason::Else));
        let (page, offset) = ((word / PAGE_WORDS) as u32, (word % PAGE_WORDS * 8) as u32);
        let message = Message::Free { page, offset, stamp: self.intervals.last_stamp(), needs: &[] };
        out.send(Target::Post { node: owner, origin: Origin::Caller }, &message);
    }

    /// Another node has freed a block of this one.
    pub(super) fn block_is_free(&mut self, (page, offset): (PageNo, u32), stamp: Stamp) {
        self.free_blocks.push((page as usize * PAGE_WORDS + offset as usize / 8, Some(stamp)));
        self.applied = true;
    }

    /// A block of this node is given out again, if it is free (the runtime's `Thread::allocate_small`).
    pub(super) fn reuse_block(&mut self, word: usize, words: usize) -> bool {
        let Some(at) = self.free_blocks.iter().position(|(free, _)| *free == word) else { return false };
        let (_, stamp) = self.free_blocks.remove(at);
        let start = word / PAGE_WORDS * PAGE_BYTES + word % PAGE_WORDS * 8;
        let is_scoped = self.layout.engine_of((word / PAGE_WORDS) as PageNo).is_scoped();
        if stamp.is_some() || is_scoped {
            let stamp = stamp.unwrap_or_default();
            self.with_intervals(|pages, intervals| reuse(pages, intervals, start..start + words * 8, stamp));
        }
        true
    }

    /// A region that was freed before the last two barriers is a new one, with the addresses of the old. Gives its
    /// words; `None`: this node has not heard of the free yet.
    pub(super) fn renew(&mut self, number: usize) -> Option<Range<usize>> {
        let range = self.layout.regions[number].0.range();
        if !self.freed.contains(&range) {
            return None;
        }
        self.freed.retain(|freed| *freed != range);
        self.memory.drop_twin(range.clone());
        self.memory.discard(range.clone());
        let (floor, born) = (self.floor, self.intervals.barrier_stamp());
        for mut table in self.layout.clone().tables_of(self.me, number) {
            let first = table.layout().first;
            table.set_floor(floor);
            table.set_birth(born);
            if let Some(at) = self.chunks.iter().position(|chunk| chunk.layout().first == first) {
                self.chunks[at] = table;
                self.active.forget(at);
            }
        }
        Some(range.start as usize * PAGE_WORDS..range.end as usize * PAGE_WORDS)
    }

    /// A region was freed (the runtime's `drop_region`).
    pub(super) fn drop_region(&mut self, region: &Region) {
        self.freed.push(region.range());
        self.applied |= region.engine.tells_sets();
        free(self, &region.range());
        self.memory.discard(region.range());
        self.memory.unmap(region.range());
    }
}

/// What is left of freed regions although all that was on its way has come, and two barriers have passed.
pub(super) fn remains(node: &Node) -> Option<String> {
    let Pages { me, chunks, memory, freed, .. } = &node.pages;
    for chunk in chunks.iter().filter(|chunk| freed.iter().any(|range| range.contains(&chunk.layout().first))) {
        let shape = chunk.layout();
        let page = (shape.first..shape.first + shape.pages).find(|page| memory.is_mapped(*page));
        if let Some(page) = page {
            return Some(format!("{me}: page {page} was freed and is mapped"));
        }
        if chunk.may_be_dirty() {
            return Some(format!("{me}: the chunk at page {} was freed, and each close looks at it", shape.first));
        }
        if chunk.units().cached_pages() > 0 {
            return Some(format!("{me}: {} freed pages count as cached", chunk.units().cached_pages()));
        }
    }
    None
}
