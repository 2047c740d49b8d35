//! What the protocol's steps on pages do to real memory.

use crate::shared::Peer;
use comem_memory::pages::{Arena, SharedDirectory, TooManyRanges};
use comem_memory::twins::Row;
use comem_memory::{atomic, copy, diff};
use comem_protocol::coherence::Misbehaved;
use comem_protocol::coherence::pages::atomic::{Atomic, Op};
use comem_protocol::coherence::pages::page_table::ChunkLayout;
use comem_protocol::coherence::pages::{
    ByteMarks, OneSidedMemory, PAGE_BYTES, PageMapping, PageMemory, PageNo, PageTwins,
};
use comem_protocol::ids::NodeId;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// So many pages are copied at a time where they are copied twice, so that the first copy is still in the caches.
const BATCH_PAGES: u32 = 32;

/// The memory of one chunk, while its lock is held.
pub(crate) struct ChunkMemory<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) twins: &'a mut Row,
    pub(crate) layout: ChunkLayout,
    /// This node.
    pub(crate) me: NodeId,
    /// Where other nodes can copy pages by themselves.
    pub(crate) directory: Option<&'a SharedDirectory>,
    /// Other nodes' memory, as far as it was looked for.
    pub(crate) peers: &'a [OnceLock<Option<Peer>>],
    /// Whether pages' bytes come in memory of this node's own, where they stay as they are; under `shm` they are read
    /// where their home may be writing, and so once only.
    pub(crate) own_bytes: bool,
}

/// Carries out a change of these pages' mappings; when the process has too many of them, with coarser ones.
pub(crate) fn change(arena: &Arena, pages: &Range<PageNo>, step: impl Fn(Range<PageNo>) -> io::Result<()>) {
    if arena.is_detached() {
        return;
    }
    crate::shared::cache::map_count_limit::keep_some(arena);
    let mut result = step(pages.clone());
    if result.is_err() && !arena.is_detached() && !arena.is_mapped(pages) {
        crate::shared::fault::tell_unmapped(arena.base() + pages.start as usize * PAGE_BYTES);
        std::process::abort();
    }
    if result.as_ref().is_err_and(TooManyRanges::is) {
        result = crate::shared::cache::map_count_limit::make_room(arena, pages, step);
    }
    if let Err(error) = result {
        if arena.is_detached() {
            return;
        }
        // Without the change, memory would not be coherent: nothing can go on.
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::OutOfMemory => {
                crate::shared::fault::tell_no_memory(Some(arena.base() + pages.start as usize * PAGE_BYTES));
            }
            _ => crate::error::say(format_args!(
                "comem: cannot change the permissions of shared pages: {error}; the node ends"
            )),
        }
        std::process::abort();
    }
}

impl ChunkMemory<'_> {
    fn pointer(&self, page: PageNo) -> *mut u8 {
        debug_assert!(page < self.arena.pages());
        // SAFETY: the page lies within the service view.
        unsafe { self.arena.service().add(page as usize * PAGE_BYTES) }
    }

    /// Asks for the kernel's notes of writes.
    fn look(&self, step: impl FnOnce(&Arena) -> io::Result<()>) {
        if self.arena.is_detached() {
            return;
        }
        if let Err(error) = step(self.arena) {
            if self.arena.is_detached() {
                return;
            }
            crate::error::say(format_args!(
                "comem: node {}: cannot find what was written to shared pages: {error}; the node ends",
                self.me
            ));
            std::process::abort();
        }
    }

    /// Where claims are noted of what is a node's by the layout.
    fn table_of(&self, home: NodeId) -> Option<&SharedDirectory> {
        if home == self.me { self.directory } else { self.peers.get(home.index())?.get()?.as_ref()?.directory.as_ref() }
    }

    fn bytes(pages: &Range<PageNo>) -> usize {
        (pages.end - pages.start) as usize * PAGE_BYTES
    }

    /// The places of these pages' units in the chunk.
    fn units(&self, pages: &Range<PageNo>) -> Range<usize> {
        self.unit(pages)..self.unit(pages) + pages.len() / self.layout.unit_pages as usize
    }

    /// Gives pages that have no memory what lies at `bytes`, where their home may be writing: they get what their twins
    /// got. Twins that lie one behind the other are copied by one call, while they are in the caches.
    fn fill_as_twins(&mut self, pages: Range<PageNo>, unit_pages: u32, bytes: &[u8]) {
        let (arena, batch) = (self.arena, (BATCH_PAGES / unit_pages).max(1) * unit_pages);
        let unit_bytes = unit_pages as usize * PAGE_BYTES;
        let parts = pages.clone().step_by(batch as usize).map(|first| first..pages.end.min(first + batch));
        for (mut part, bytes) in parts.zip(bytes.chunks(batch as usize * PAGE_BYTES)) {
            self.twins.take(self.units(&part));
            for (unit, bytes) in self.units(&part).zip(bytes.chunks(unit_bytes)) {
                // SAFETY: there are as many bytes as the unit has.
                unsafe { self.twins.copy_from(unit, bytes.as_ptr(), false) };
            }
            while !part.is_empty() {
                let copied = self.twins.stretch(self.units(&part));
                let end = part.start + (copied.len() / PAGE_BYTES) as PageNo;
                change(arena, &(part.start..end), |p| arena.fill(p, copied));
                part.start = end;
            }
        }
    }

    fn unit(&self, pages: &Range<PageNo>) -> usize {
        ((pages.start - self.layout.first) / self.layout.unit_pages) as usize
    }
}

impl PageMapping for ChunkMemory<'_> {
    fn notes_writes(&self) -> bool {
        self.arena.notes_writes()
    }

    fn mapped_together(&self) -> u32 {
        crate::shared::cache::map_count_limit::pages()
    }

    fn map_read(&mut self, pages: Range<PageNo>) {
        change(self.arena, &pages, |p| self.arena.map_read(p));
    }

    fn map_write(&mut self, pages: Range<PageNo>) {
        change(self.arena, &pages, |p| self.arena.map_write(p));
    }

    fn protect(&mut self, pages: Range<PageNo>) {
        change(self.arena, &pages, |p| self.arena.protect(p));
    }

    fn unmap(&mut self, pages: Range<PageNo>) {
        change(self.arena, &pages, |p| self.arena.unmap(p));
    }

    fn unmap_all(&mut self, runs: &[Range<PageNo>]) {
        if runs.len() < 2 || self.arena.is_detached() || !self.arena.unmap_all(runs) {
            runs.iter().for_each(|run| self.unmap(run.clone()));
        }
    }

    fn written(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        self.look(|arena| arena.written(pages, written));
    }

    fn collect(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        self.look(|arena| arena.collect(pages, written));
    }

    fn untrack(&mut self, pages: Range<PageNo>) {
        self.arena.untrack(pages);
    }

    fn track(&mut self, pages: Range<PageNo>) {
        self.arena.track(pages);
    }

    fn forbid_writes(&mut self, pages: Range<PageNo>) -> bool {
        self.arena.forbid_writes(pages)
    }

    fn allow_writes(&mut self, pages: Range<PageNo>) {
        change(self.arena, &pages, |p| self.arena.allow_writes(p));
    }

    fn sample(&mut self, unit: Range<PageNo>) -> u32 {
        // One in each KiB of the first page, in cache lines that prefetchers do not bring together.
        let at = self.pointer(unit.start);
        let words = [5, 331, 598, 965].map(|word| {
            // SAFETY: within a page of the service view. Threads of this node may store there meanwhile: any value will
            // do.
            unsafe { at.cast::<u32>().add(word).read_volatile() }
        });
        words.iter().fold(0, |sum: u32, word| sum.rotate_left(7).wrapping_mul(0x9e37_79b1) ^ word)
    }
}

impl OneSidedMemory for ChunkMemory<'_> {
    fn can_offer(&self) -> bool {
        self.directory.is_some()
    }

    fn offer(&mut self, pages: Range<PageNo>) {
        self.directory.inspect(|directory| directory.offer(pages));
    }

    fn withdraw(&mut self, pages: Range<PageNo>) {
        self.directory.inspect(|directory| directory.withdraw(pages));
    }

    fn was_taken(&mut self, unit: PageNo) -> bool {
        self.directory.is_some_and(|directory| directory.was_taken(unit))
    }

    fn claim(&mut self, home: NodeId, unit: PageNo, node: NodeId) -> Option<NodeId> {
        self.table_of(home)?.claim(unit, node.0).map(NodeId)
    }

    fn claimant(&mut self, home: NodeId, unit: PageNo) -> Option<NodeId> {
        self.table_of(home)?.claimant(unit).map(NodeId)
    }

    fn put(&mut self, home: NodeId, unit: Range<PageNo>, changed: &mut dyn FnMut(PageNo, &ByteMarks)) -> Option<usize> {
        let peer = self.peers.get(home.index())?.get()?.as_ref()?;
        let (at, now) = (self.unit(&unit), self.pointer(unit.start));
        let Some(twin) = self.twins.get_mut(at) else { return Some(0) };
        let mut page = |number: usize, marks: &ByteMarks| changed(unit.start + number as PageNo, marks);
        // SAFETY: the unit lies within the service view, and the twin is as long as the unit.
        unsafe { peer.memory.put(unit.start as usize * PAGE_BYTES, now, twin, &mut page) }
    }
}

impl PageTwins for ChunkMemory<'_> {
    fn make_twin(&mut self, unit: Range<PageNo>, many: bool) {
        let from = self.pointer(unit.start);
        // SAFETY: the unit lies within the service view; where its threads can store they fault first, and wait for
        // this step.
        unsafe { self.twins.copy_from(self.unit(&unit), from, many) };
    }

    fn has_twin(&self, unit: Range<PageNo>) -> bool {
        self.twins.get(self.unit(&unit)).is_some()
    }

    fn copy_twin(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> bool {
        let twin = self.twins.get(self.unit(&unit));
        twin.inspect(|twin| out.extend_from_slice(twin)).is_some()
    }

    fn drop_twin(&mut self, unit: Range<PageNo>) {
        self.twins.drop_twin(self.unit(&unit));
    }

    fn diff(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> usize {
        let (at, now) = (self.unit(&unit), self.pointer(unit.start));
        let Some(twin) = self.twins.get_mut(at) else { return 0 };
        // SAFETY: the unit lies within the service view, and the twin is as long as the unit.
        unsafe { diff::make(now, twin, out) }
    }

    fn update_twin(&mut self, unit: Range<PageNo>) -> bool {
        let (at, now) = (self.unit(&unit), self.pointer(unit.start));
        let Some(twin) = self.twins.get_mut(at) else { return false };
        // SAFETY: the unit lies within the service view, and the twin is as long as the unit.
        unsafe { diff::update(now, twin) }
    }

    fn renew(&mut self, unit: Range<PageNo>, bytes: &[u8]) {
        let (at, target) = (self.unit(&unit), self.pointer(unit.start));
        match self.twins.get_mut(at) {
            // SAFETY: the unit lies within the service view, and the twin is as long as the unit.
            Some(twin) => unsafe { diff::renew(target, twin, bytes) },
            // SAFETY: as many bytes came as the unit has. No thread can store there, and all that can load are in the
            // barrier that has ended the copy.
            None => unsafe { copy::pages(bytes.as_ptr(), target, Self::bytes(&unit).min(bytes.len())) },
        }
    }
}

impl PageMemory for ChunkMemory<'_> {
    fn install_with_twins(&mut self, pages: Range<PageNo>, unit_pages: u32, bytes: &[u8], many: bool) {
        if many && bytes.len() >= Self::bytes(&pages) {
            let to = self.pointer(pages.start);
            self.arena.prefault_service_view(pages.clone());
            // SAFETY: the units lie one behind the other within the service view, and no thread can see them meanwhile;
            // as many bytes came.
            unsafe { self.twins.copy_run(self.units(&pages), bytes.as_ptr(), Some(to)) };
            return;
        }
        let units = pages.step_by(unit_pages as usize).zip(bytes.chunks(unit_pages as usize * PAGE_BYTES));
        for (first, bytes) in units {
            let unit = first..first + unit_pages;
            self.install(unit.clone(), bytes);
            self.make_twin(unit, many);
        }
    }

    fn apply(&mut self, unit: Range<PageNo>, encoded: &[u8]) -> Result<(), Misbehaved> {
        // SAFETY: the unit lies within the service view, which is writable.
        let applied = unsafe { diff::apply(self.pointer(unit.start), Self::bytes(&unit), encoded) };
        applied.map_err(|_| Misbehaved("sent a diff that leaves its unit"))
    }

    fn atomic(&mut self, page: PageNo, offset: usize, operation: Atomic) -> u64 {
        let (at, bytes) = (self.pointer(page).wrapping_add(offset), operation.kind.bytes());
        if operation.op == Op::Load {
            // SAFETY: an aligned word of a page of the service view; the request was checked when it was read.
            return unsafe { atomic::load(at, bytes) };
        }
        // SAFETY: as above; the service view is writable, and this node's threads see the word change in one step.
        unsafe { atomic::update(at, bytes, |old| operation.apply(old)) }
    }

    fn copy_out(&mut self, pages: Range<PageNo>, out: &mut Vec<u8>) {
        let (len, from) = (Self::bytes(&pages), self.pointer(pages.start));
        out.reserve(len);
        // SAFETY: there is room for `len` bytes behind the vector's end, and the pages lie within the service view.
        // Threads of this node may store to the pages meanwhile: whatever mixture of old and new bytes comes, they note
        // it after the protection.
        unsafe {
            copy::pages(from, out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    fn install(&mut self, pages: Range<PageNo>, bytes: &[u8]) {
        let len = Self::bytes(&pages).min(bytes.len());
        self.arena.prefault_service_view(pages.clone());
        // SAFETY: the pages lie within the service view, and no thread can see them meanwhile.
        unsafe { copy::pages(bytes.as_ptr(), self.pointer(pages.start), len) };
    }

    fn fill(&mut self, pages: Range<PageNo>, unit_pages: u32, bytes: &[u8], twins: bool, many: bool) -> bool {
        if (self.own_bytes && !many) || !self.arena.fills() || self.arena.is_detached() {
            return false;
        }
        let arena = self.arena;
        let Some(bytes) = bytes.get(..Self::bytes(&pages)) else { return false };
        if twins && !self.own_bytes {
            self.fill_as_twins(pages, unit_pages, bytes);
            return true;
        }
        if twins {
            // SAFETY: as many bytes came as the units have, and nobody changes them.
            unsafe { self.twins.copy_run(self.units(&pages), bytes.as_ptr(), None) };
        }
        change(arena, &pages, |p| arena.fill(p, bytes));
        true
    }

    fn patch(&mut self, unit: Range<PageNo>, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= Self::bytes(&unit));
        // SAFETY: the bytes lie within the unit, which lies within the service view; no thread can see it meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(unit.start).add(at), bytes.len()) };
    }

    fn discard(&mut self, pages: Range<PageNo>) {
        change(self.arena, &pages, |p| self.arena.discard(p));
    }
}
