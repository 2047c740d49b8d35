//! A node's memory of pages, as separate steps: an access looks at the page table, and a store is made a step later.
//!
//! Every call of [`PageMemory`] begins with a moment in which the threads of the node go on, by the seed's choice: that
//! is how a store falls between a scan and an unmapping, or between a copy and a protection. What takes permission away
//! waits for the stores that have passed the page table already, as a processor's shootdown of translations does.
//!
//! A page has few words that count; on the wire it is as long as any.

use comem_protocol::coherence::Misbehaved;
use comem_protocol::coherence::pages::atomic::Atomic;
use comem_protocol::coherence::pages::{
    OneSidedMemory, PAGE_BYTES, PageMapping, PageMemory, PageNo, PageTwins, push_range,
};
use comem_protocol::faults::Rng;
use comem_protocol::ids::NodeId;
use comem_protocol::rules::Rule;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Words of a page that programs use.
pub const PAGE_WORDS: usize = 4;

/// What stands in memory that was given back.
const POISON: u64 = 0xdead_dead_dead_dead;

/// What the page table permits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Permit {
    None,
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    permit: Permit,
    /// Where writes are noted: written since it was last clean, or never mapped. To the kernel both are pages without a
    /// protected entry.
    written: bool,
    /// Mapped before, and not discarded since.
    met: bool,
    /// Whoever looks where something was written looks here.
    regarded: bool,
    /// Stores fault, whatever the page table permits.
    forbidden: bool,
    words: [u64; PAGE_WORDS],
    twin: Option<[u64; PAGE_WORDS]>,
    /// Other nodes may copy it without asking.
    offered: bool,
    /// One has begun to.
    taken: bool,
}

/// How far an access has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It has not looked at the page table yet.
    Wanted,
    /// The page table permitted the store; it will be made.
    Translated,
    /// The page table forbade it.
    Faulted,
    /// The chunk has been told of the fault.
    Told,
    /// It is done; the value loaded or stored.
    Done(u64),
}

/// A load, or a store of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The page.
    pub page: PageNo,
    /// Which of its words.
    pub word: usize,
    /// What is stored; `None` loads.
    pub store: Option<u64>,
    /// The value is added to what the word holds, in one step; what it held before comes of it.
    pub adds: bool,
    /// How far it has come.
    pub progress: Progress,
}

/// Who has claimed the unit that begins at a page, in the table of a node.
pub type Claims = Arc<Mutex<BTreeMap<(NodeId, PageNo), NodeId>>>;

/// A node's memory.
#[derive(Clone, Debug)]
pub struct Memory {
    notes: bool,
    reclaims: bool,
    /// Looks for writes leave out what was never mapped.
    leaves_out: bool,
    /// Other nodes can copy pages by themselves.
    offers: bool,
    /// The tables of all nodes, where they reach them.
    claims: Option<Claims>,
    pages: Vec<Page>,
    accesses: Vec<Option<Access>>,
    rng: Rng,
}

impl Memory {
    /// Untouched memory. With `notes` the kernel notes first writes, else they fault; with `reclaims` it now and then
    /// takes a page table entry away.
    pub fn new(pages: u32, threads: usize, (notes, reclaims): (bool, bool), seed: u64) -> Memory {
        let page = Page {
            permit: Permit::None,
            written: notes,
            met: false,
            regarded: false,
            forbidden: false,
            words: [0; PAGE_WORDS],
            twin: None,
            offered: false,
            taken: false,
        };
        let (pages, accesses) = (vec![page; pages as usize], vec![None; threads]);
        Memory { notes, reclaims, leaves_out: true, offers: false, claims: None, pages, accesses, rng: Rng::new(seed) }
    }

    /// As this memory, from which other nodes can copy pages by themselves if there are tables of claims.
    pub fn with_claims(self, claims: Option<Claims>) -> Memory {
        Memory { offers: claims.is_some(), claims, ..self }
    }

    /// As this memory, in which looks for writes find what the kernel finds, pages that were never mapped among it.
    pub fn with_all_found(self, all: bool) -> Memory {
        Memory { leaves_out: !all, ..self }
    }

    /// Another node is about to copy the unit that begins at this page: marks it, and says whether that is allowed.
    pub fn take(&mut self, unit: PageNo) -> bool {
        let page = &mut self.pages[unit as usize];
        page.taken |= page.offered;
        page.offered
    }

    /// Whether other nodes may copy the unit that begins at this page.
    pub fn is_offered(&self, unit: PageNo) -> bool {
        self.pages[unit as usize].offered
    }

    /// The access of thread `t` that is under way.
    pub fn access(&mut self, t: usize) -> &mut Option<Access> {
        &mut self.accesses[t]
    }

    /// What a word holds, for checks at rest.
    pub fn word(&self, page: PageNo, word: usize) -> u64 {
        self.pages[page as usize].words[word]
    }

    /// The access of thread `t` goes one step on.
    pub fn advance(&mut self, t: usize) {
        let notes = self.notes;
        let Some(access) = &mut self.accesses[t] else { return };
        let page = &mut self.pages[access.page as usize];
        access.progress = match (access.progress, access.store) {
            (Progress::Wanted, _) if page.permit == Permit::None => Progress::Faulted,
            (Progress::Wanted, None) => Progress::Done(page.words[access.word]),
            (Progress::Wanted, Some(_)) if page.forbidden => Progress::Faulted,
            (Progress::Wanted, Some(_)) if page.permit == Permit::Write => Progress::Translated,
            (Progress::Wanted, Some(_)) if notes => {
                page.permit = Permit::Write;
                page.written = true;
                Progress::Translated
            }
            (Progress::Wanted, Some(_)) => Progress::Faulted,
            (Progress::Translated, Some(value)) if access.adds => {
                let word = &mut page.words[access.word];
                let before = *word;
                *word += value;
                Progress::Done(before)
            }
            (Progress::Translated, Some(value)) => {
                page.words[access.word] = value;
                Progress::Done(value)
            }
            (other, _) => other,
        };
    }

    /// A moment in which anything may happen.
    fn moment(&mut self) {
        for t in 0..self.accesses.len() {
            let steps = self.rng.below(4).saturating_sub(1);
            (0..steps).for_each(|_| self.advance(t));
        }
        if self.reclaims && self.rng.below(48) == 0 {
            let page = self.rng.below(self.pages.len() as u64) as u32;
            if self.pages[page as usize].permit != Permit::None {
                self.settle(&(page..page + 1));
                self.pages[page as usize].permit = Permit::None;
            }
        }
    }

    /// Reads the kernel's notes of writes and changes nothing; `None` where there are none.
    pub fn peek(&mut self) -> Option<Vec<Range<PageNo>>> {
        let mut seen = Vec::new();
        for page in 0..self.pages.len() {
            self.moment();
            if self.pages[page].written && self.pages[page].regarded {
                push_range(&mut seen, page as u32..page as u32 + 1);
            }
        }
        self.notes.then_some(seen)
    }

    /// Makes the stores that have passed the page table of these pages.
    fn settle(&mut self, pages: &Range<PageNo>) {
        for t in 0..self.accesses.len() {
            let under_way = |a: &Access| a.progress == Progress::Translated && pages.contains(&a.page);
            if self.accesses[t].as_ref().is_some_and(under_way) {
                self.advance(t);
            }
        }
    }

    /// Whether a page is among those that a look for writes finds. The kernel finds all that have no protected entry,
    /// and so pages that were never mapped.
    fn is_found(&self, page: PageNo) -> bool {
        let this = &self.pages[page as usize];
        let left_out = self.leaves_out && !this.met;
        this.written && !left_out && (this.permit != Permit::None || Rule::NotesOutliveMappings.on())
    }

    fn each(&mut self, pages: Range<PageNo>) -> &mut [Page] {
        &mut self.pages[pages.start as usize..pages.end as usize]
    }

    /// Whether threads can look at a page without a fault.
    pub fn is_mapped(&self, page: PageNo) -> bool {
        self.pages[page as usize].permit != Permit::None
    }

    fn permit(&mut self, pages: Range<PageNo>, permit: Permit) {
        self.moment();
        self.settle(&pages);
        self.each(pages).iter_mut().for_each(|p| p.permit = permit);
    }
}

impl PageMapping for Memory {
    fn sample(&mut self, unit: Range<PageNo>) -> u32 {
        self.moment();
        self.pages[unit.start as usize].words[0] as u32
    }

    fn notes_writes(&self) -> bool {
        self.notes
    }

    fn map_read(&mut self, pages: Range<PageNo>) {
        self.permit(pages.clone(), Permit::Read);
        self.each(pages).iter_mut().for_each(|p| (p.written, p.met, p.regarded) = (false, true, true));
    }

    fn map_write(&mut self, pages: Range<PageNo>) {
        self.permit(pages.clone(), Permit::Write);
        let notes = self.notes;
        self.each(pages).iter_mut().for_each(|p| (p.written, p.met, p.regarded) = (notes, true, true));
    }

    fn protect(&mut self, pages: Range<PageNo>) {
        self.moment();
        self.settle(&pages);
        for page in self.each(pages) {
            page.permit = page.permit.min(Permit::Read);
            (page.written, page.regarded) = (false, true);
        }
    }

    fn untrack(&mut self, pages: Range<PageNo>) {
        self.moment();
        self.each(pages).iter_mut().for_each(|p| p.regarded = false);
    }

    fn track(&mut self, pages: Range<PageNo>) {
        self.moment();
        self.each(pages).iter_mut().for_each(|p| p.regarded = true);
    }

    fn forbid_writes(&mut self, pages: Range<PageNo>) -> bool {
        for page in pages {
            self.moment();
            self.settle(&(page..page + 1));
            self.pages[page as usize].forbidden = true;
        }
        true
    }

    fn allow_writes(&mut self, pages: Range<PageNo>) {
        for page in pages {
            self.pages[page as usize].forbidden = false;
            self.moment();
        }
    }

    fn unmap(&mut self, pages: Range<PageNo>) {
        self.permit(pages, Permit::None);
    }

    fn written(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        for page in pages {
            self.moment();
            if self.is_found(page) {
                push_range(written, page..page + 1);
            }
        }
    }

    fn collect(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        for page in pages {
            self.moment();
            self.settle(&(page..page + 1));
            let found = self.is_found(page);
            let this = &mut self.pages[page as usize];
            (this.permit, this.written) = (this.permit.min(Permit::Read), false);
            if found {
                push_range(written, page..page + 1);
            }
        }
    }
}

impl OneSidedMemory for Memory {
    fn can_offer(&self) -> bool {
        self.offers
    }

    fn offer(&mut self, pages: Range<PageNo>) {
        self.moment();
        self.each(pages).iter_mut().for_each(|p| (p.offered, p.taken) = (true, false));
    }

    fn withdraw(&mut self, pages: Range<PageNo>) {
        self.moment();
        self.each(pages).iter_mut().for_each(|p| (p.offered, p.taken) = (false, false));
    }

    fn was_taken(&mut self, unit: PageNo) -> bool {
        self.moment();
        std::mem::take(&mut self.pages[unit as usize].taken)
    }

    fn claim(&mut self, home: NodeId, unit: PageNo, node: NodeId) -> Option<NodeId> {
        self.moment();
        let mut claims = self.claims.as_ref()?.lock().ok()?;
        Some(*claims.entry((home, unit)).or_insert(node))
    }

    fn claimant(&mut self, home: NodeId, unit: PageNo) -> Option<NodeId> {
        self.moment();
        self.claims.as_ref()?.lock().ok()?.get(&(home, unit)).copied()
    }
}

impl PageTwins for Memory {
    fn make_twin(&mut self, unit: Range<PageNo>, _many: bool) {
        self.moment();
        self.each(unit).iter_mut().for_each(|p| p.twin = Some(p.words));
    }

    fn has_twin(&self, unit: Range<PageNo>) -> bool {
        self.pages[unit.start as usize].twin.is_some()
    }

    fn copy_twin(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> bool {
        if !self.has_twin(unit.clone()) {
            return false;
        }
        for page in unit {
            let end = out.len() + PAGE_BYTES;
            self.moment();
            let twin = self.pages[page as usize].twin.expect("all pages of a unit have twins");
            twin.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
            out.resize(end, 0);
        }
        true
    }

    fn drop_twin(&mut self, unit: Range<PageNo>) {
        self.moment();
        self.each(unit).iter_mut().for_each(|p| p.twin = None);
    }

    /// Each change is encoded as page within the unit (u16), word (u16) and value (u64).
    fn diff(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> usize {
        let before = out.len();
        for page in unit.clone() {
            for word in 0..PAGE_WORDS {
                self.moment();
                let this = &mut self.pages[page as usize];
                let now = this.words[word];
                let twin = this.twin.as_mut().unwrap_or_else(|| panic!("page {page} has no twin to compare it with"));
                if now != twin[word] {
                    twin[word] = now;
                    out.extend_from_slice(&((page - unit.start) as u16).to_be_bytes());
                    out.extend_from_slice(&(word as u16).to_be_bytes());
                    out.extend_from_slice(&now.to_be_bytes());
                }
            }
        }
        (out.len() - before) / 12 * 8
    }

    fn renew(&mut self, unit: Range<PageNo>, bytes: &[u8]) {
        for (page, bytes) in unit.zip(bytes.chunks(PAGE_BYTES)) {
            for (word, bytes) in (0..PAGE_WORDS).zip(bytes.chunks_exact(8)) {
                self.moment();
                let new = bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
                let this = &mut self.pages[page as usize];
                match this.twin.as_mut().map(|twin| &mut twin[word]) {
                    Some(twin) if *twin == new => {}
                    Some(twin) => (*twin, this.words[word]) = (new, new),
                    None => this.words[word] = new,
                }
            }
        }
    }
}

impl PageMemory for Memory {
    fn apply(&mut self, unit: Range<PageNo>, diff: &[u8]) -> Result<(), Misbehaved> {
        for change in diff.chunks(12) {
            let number = |r: Range<usize>| change[r].iter().fold(0, |n, b| n << 8 | u64::from(*b));
            let (page, word) = (unit.start + number(0..2) as u32, number(2..4) as usize);
            if !unit.contains(&page) || word >= PAGE_WORDS {
                return Err(Misbehaved("sent a diff that leaves its unit"));
            }
            self.moment();
            self.pages[page as usize].words[word] = number(4..12);
        }
        Ok(())
    }

    fn atomic(&mut self, page: PageNo, offset: usize, atomic: Atomic) -> u64 {
        self.moment();
        let word = &mut self.pages[page as usize].words[offset / 8 % PAGE_WORDS];
        let old = *word;
        *word = atomic.apply(old);
        old
    }

    fn copy_out(&mut self, pages: Range<PageNo>, out: &mut Vec<u8>) {
        for page in pages {
            let end = out.len() + PAGE_BYTES;
            for word in 0..PAGE_WORDS {
                self.moment();
                out.extend_from_slice(&self.pages[page as usize].words[word].to_be_bytes());
            }
            out.resize(end, 0);
        }
    }

    fn install(&mut self, pages: Range<PageNo>, bytes: &[u8]) {
        self.moment();
        for (page, bytes) in self.each(pages).iter_mut().zip(bytes.chunks(PAGE_BYTES)) {
            for (word, bytes) in page.words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
            }
        }
    }

    fn patch(&mut self, unit: Range<PageNo>, at: usize, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            self.moment();
            let page = &mut self.pages[unit.start as usize + at / PAGE_BYTES];
            let (word, in_word) = (at % PAGE_BYTES / 8, at % 8);
            let mut bytes = page.words[word].to_be_bytes();
            bytes[in_word] = *byte;
            page.words[word] = u64::from_be_bytes(bytes);
        }
    }

    fn discard(&mut self, pages: Range<PageNo>) {
        self.moment();
        let notes = self.notes;
        for page in self.each(pages) {
            page.words = [POISON; PAGE_WORDS];
            (page.written, page.met, page.regarded) = (notes, false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_the_kernel_a_page_that_was_never_mapped_was_written() {
        for all in [false, true] {
            let mut memory = Memory::new(3, 1, (true, false), 0).with_all_found(all);
            let found = |memory: &mut Memory| {
                let mut written = Vec::new();
                memory.written(0..3, &mut written);
                written.into_iter().flatten().collect::<Vec<PageNo>>()
            };
            memory.map_read(1..2);
            memory.map_write(2..3);
            memory.unmap(2..3);
            assert_eq!(found(&mut memory), if all { vec![0, 2] } else { vec![2] });
            memory.discard(2..3);
            assert_eq!(found(&mut memory), if all { vec![0, 2] } else { vec![] }, "as if it had never been mapped");
            memory.collect(0..3, &mut Vec::new());
            assert_eq!(found(&mut memory), [], "protected entries stay where nothing is mapped");
        }
    }

    fn store(memory: &mut Memory, value: u64) {
        *memory.access(0) =
            Some(Access { page: 0, word: 1, store: Some(value), adds: false, progress: Progress::Wanted });
    }

    #[test]
    fn a_store_that_passed_the_page_table_is_made_before_the_page_is_unmapped() {
        for seed in 0..20 {
            let mut memory = Memory::new(1, 1, (true, false), seed);
            memory.map_read(0..1);
            store(&mut memory, 7);
            memory.advance(0);
            memory.unmap(0..1);
            assert_eq!(memory.word(0, 1), 7);
            let mut written = Vec::new();
            memory.collect(0..1, &mut written);
            assert_eq!(written, vec![0..1], "and the note of it outlives the mapping");
        }
    }

    #[test]
    fn a_store_to_a_readable_page_faults_where_writes_are_not_noted() {
        let mut memory = Memory::new(1, 1, (false, false), 0);
        memory.map_read(0..1);
        store(&mut memory, 7);
        memory.advance(0);
        assert_eq!(memory.access(0).map(|a| a.progress), Some(Progress::Faulted));
    }

    #[test]
    fn a_diff_brings_changed_words_and_no_others() {
        let (mut here, mut home) = (Memory::new(1, 1, (true, false), 0), Memory::new(1, 1, (true, false), 0));
        here.make_twin(0..1, false);
        here.pages[0].words[2] = 5;
        home.pages[0].words[1] = 3;
        let mut diff = Vec::new();
        assert_eq!(here.diff(0..1, &mut diff), 8);
        home.apply(0..1, &diff).unwrap();
        assert_eq!(home.pages[0].words, [0, 3, 5, 0]);
        assert_eq!(here.diff(0..1, &mut Vec::new()), 0, "the twin is up to date");
    }
}
