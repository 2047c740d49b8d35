//! A node's memory of pages under `msi`, as separate steps: an access looks at the page table, and is made a step
//! later.
//!
//! Every change of the page table and every copy begins with a moment in which the threads of the node go on, by the
//! seed's choice: that is how a store falls between a copy and an unmapping. What takes permission away waits for the
//! accesses that have passed the page table already, as a processor's shootdown of translations does.
//!
//! A page has few words that count; on the wire it is as long as any.

use super::Paging;
use crate::history::Stamp;
use crate::program::Shape;
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::coherence::{Permission, UnitMemory};
use comem_protocol::faults::Rng;
use comem_protocol::rules::Rule;
use std::cell::RefCell;
use std::ops::Range;

/// What stands in memory that was given back.
const POISON: u64 = 0xdead_dead_dead_dead;

#[derive(Clone, Debug)]
struct Page {
    permission: Permission,
    words: Vec<u64>,
}

/// How far an access has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It has not looked at the page table yet.
    Wanted,
    /// The page table permitted it; it will be made.
    Translated,
    /// The page table forbade it, for this page.
    Faulted(usize),
    /// It was made at that moment.
    Done(Stamp),
}

/// A load or a store of one element, or of two neighbours on two pages at once.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Which elements.
    pub(crate) elements: Range<usize>,
    /// What is stored; `None` loads.
    pub(crate) store: Option<u64>,
    /// How far it has come.
    pub(crate) progress: Progress,
    /// What was loaded.
    pub(crate) loaded: Vec<u64>,
}

/// A node's memory.
#[derive(Clone, Debug)]
pub struct Memory {
    page_elements: usize,
    unit_pages: usize,
    /// Whether page table entries get lost now and then, as where the kernel reclaims them.
    reclaims: bool,
    pages: Vec<Page>,
    accesses: Vec<Option<Access>>,
    rng: Rng,
    /// The step under way.
    pub(crate) now: Stamp,
}

impl Memory {
    pub(super) fn new(shape: Shape, paging: Paging, threads: usize, seed: u64) -> Memory {
        let page = Page { permission: Permission::None, words: vec![0; paging.page_elements] };
        let unit_pages = shape.unit_elements / paging.page_elements;
        Memory {
            page_elements: paging.page_elements,
            unit_pages,
            reclaims: paging.reclaims,
            pages: vec![page; shape.units() * unit_pages],
            accesses: vec![None; threads],
            rng: Rng::new(seed),
            now: Stamp(0),
        }
    }

    /// The memory of one unit, for the engine.
    pub(crate) fn frame(&mut self, unit: u32) -> Frame<'_> {
        let first = unit as usize * self.unit_pages;
        let pages = first..first + self.unit_pages;
        Frame { memory: RefCell::new(self), pages }
    }

    /// What each page permits.
    pub(crate) fn permissions(&self) -> impl Iterator<Item = Permission> {
        self.pages.iter().map(|page| page.permission)
    }

    pub(crate) fn unit_of(&self, page: usize) -> u32 {
        (page / self.unit_pages) as u32
    }

    /// Thread `t` begins an access.
    pub(crate) fn begin(&mut self, t: usize, elements: Range<usize>, store: Option<u64>) {
        self.accesses[t] = Some(Access { elements, store, progress: Progress::Wanted, loaded: Vec::new() });
    }

    /// Thread `t` makes its access anew: it comes back from a fault.
    pub(crate) fn retry(&mut self, t: usize) {
        if let Some(access) = &mut self.accesses[t] {
            access.progress = Progress::Wanted;
        }
    }

    /// The access of thread `t` goes one step on; gives how far it has come.
    pub(crate) fn advance(&mut self, t: usize) -> Progress {
        let Some(mut access) = self.accesses[t].take() else { return Progress::Done(self.now) };
        match access.progress {
            Progress::Wanted => {
                let needed = if access.store.is_some() { Permission::Write } else { Permission::Read };
                let mut pages = access.elements.clone().map(|element| element / self.page_elements);
                let forbidden = pages.find(|page| self.pages[*page].permission < needed);
                access.progress = forbidden.map_or(Progress::Translated, Progress::Faulted);
            }
            Progress::Translated => {
                self.make(&mut access);
                access.progress = Progress::Done(self.now);
            }
            Progress::Faulted(_) | Progress::Done(_) => {}
        }
        let progress = access.progress;
        self.accesses[t] = Some(access);
        progress
    }

    /// Takes the access of thread `t` when it is done.
    pub(crate) fn take_done(&mut self, t: usize) -> Option<Access> {
        self.accesses[t].take_if(|access| matches!(access.progress, Progress::Done(_)))
    }

    fn make(&mut self, access: &mut Access) {
        for element in access.elements.clone() {
            let word = &mut self.pages[element / self.page_elements].words[element % self.page_elements];
            match access.store {
                Some(value) => *word = value,
                None => access.loaded.push(*word),
            }
        }
    }

    /// A moment in which anything may happen.
    fn moment(&mut self) {
        for t in 0..self.accesses.len() {
            let steps = self.rng.below(4).saturating_sub(1);
            for _ in 0..steps {
                self.advance(t);
            }
        }
        if self.reclaims && self.rng.below(48) == 0 {
            let page = self.rng.below(self.pages.len() as u64) as usize;
            self.lower(page, Permission::None);
        }
    }

    /// Takes permission away from a page, and waits for the accesses that have passed the page table.
    fn lower(&mut self, page: usize, permission: Permission) {
        let this = &mut self.pages[page];
        this.permission = this.permission.min(permission);
        for t in 0..self.accesses.len() {
            let here = |a: &Access| a.elements.clone().any(|element| element / self.page_elements == page);
            let under_way = |a: &Access| a.progress == Progress::Translated && here(a);
            if self.accesses[t].as_ref().is_some_and(under_way) && Rule::RevokeWaitsForStores.on() {
                self.advance(t);
            }
        }
    }
}

/// The memory of one unit: what the runtime's `Frame` (`shared/consistency/msi_pages.rs`) is. Its pages are mapped and
/// unmapped one after the other.
pub(crate) struct Frame<'a> {
    memory: RefCell<&'a mut Memory>,
    pages: Range<usize>,
}

impl Frame<'_> {
    fn each(&self, mut step: impl FnMut(&mut Memory, usize)) {
        let memory = &mut **self.memory.borrow_mut();
        for page in self.pages.clone() {
            memory.moment();
            step(memory, page);
        }
    }
}

impl UnitMemory for Frame<'_> {
    fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    fn permit(&mut self, permission: Permission) {
        if permission > Permission::None {
            self.each(|memory, page| memory.pages[page].permission = permission);
        }
    }

    fn revoke(&mut self, permission: Permission) {
        if permission < Permission::Write {
            self.each(|memory, page| memory.lower(page, permission));
        }
    }

    fn copy_out(&self, out: &mut Vec<u8>) {
        self.each(|memory, page| {
            let end = out.len() + PAGE_BYTES;
            for word in 0..memory.page_elements {
                out.extend_from_slice(&memory.pages[page].words[word].to_be_bytes());
                memory.moment();
            }
            out.resize(end, 0);
        });
    }

    fn install(&mut self, bytes: &[u8]) {
        let mut pages = bytes.chunks(PAGE_BYTES);
        self.each(|memory, page| {
            let words = pages.next().unwrap_or_default().as_chunks::<8>().0;
            for (word, bytes) in words.iter().take(memory.page_elements).enumerate() {
                memory.pages[page].words[word] = u64::from_be_bytes(*bytes);
                memory.moment();
            }
        });
    }

    fn discard(&mut self) {
        self.each(|memory, page| {
            memory.lower(page, Permission::None);
            memory.pages[page].words.fill(POISON);
        });
    }

    fn read(&self, _offset: usize, _len: usize, _out: &mut Vec<u8>) -> bool {
        false // pages are read through their mappings
    }

    fn write(&mut self, _offset: usize, _bytes: &[u8]) -> bool {
        false // as above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages of two words, each its own unit, and one thread.
    fn memory(seed: u64) -> Memory {
        let shape = Shape { nodes: 1, elements: 4, width: 8, unit_elements: 2 };
        Memory::new(
            shape,
            Paging { page_elements: 2, reclaims: false, units_max: 9, spare: 0, ahead: 0, seed },
            1,
            seed,
        )
    }

    #[test]
    fn a_store_that_passed_the_page_table_is_in_the_copy_that_is_taken_after_the_unmapping() {
        for seed in 0..20 {
            let mut memory = memory(seed);
            memory.frame(0).permit(Permission::Write);
            memory.begin(0, 1..2, Some(7));
            memory.advance(0);
            memory.frame(0).revoke(Permission::None);
            let mut bytes = Vec::new();
            memory.frame(0).copy_out(&mut bytes);
            assert_eq!((bytes.len(), bytes[15]), (PAGE_BYTES, 7));
        }
    }

    #[test]
    fn an_access_across_two_pages_faults_on_the_one_that_is_missing_and_stores_nothing() {
        let mut memory = memory(0);
        memory.frame(0).permit(Permission::Write);
        memory.frame(1).permit(Permission::Read);
        memory.begin(0, 1..3, Some(7));
        assert_eq!(memory.advance(0), Progress::Faulted(1));
        assert_eq!((memory.pages[0].words[1], memory.pages[1].words[0]), (0, 0));
        memory.frame(1).permit(Permission::Write);
        memory.retry(0);
        while !matches!(memory.advance(0), Progress::Done(_)) {}
        assert_eq!((memory.pages[0].words[1], memory.pages[1].words[0]), (7, 7));
    }
}
