//! The program's global variables as a region of the heap.
//!
//! Their pages are pages of the heap to everything else: chunks, diffs, notices, fetches. Only where the program sees
//! them is another matter: where its linker put them, through the arena's window
//! ([`comem_memory::pages::Arena::open_window`]), and no longer at the heap's address. [`Shared::page_of`] and
//! [`Shared::address_of`] know of that, and nobody else.
//!
//! Node 0's values when they are shared are everybody's; it is the home of all pages at first. At the end it gets all
//! of them back and keeps them as memory of its own, so that it may go on alone.

use crate::error::{Error, Result};
use crate::heap::RegionOptions;
use crate::shared::Shared;
use crate::shared::heap::ThreadHeap;
use crate::shared::hooks;
use crate::shared::memory;
use comem_memory::pages::Arena;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::coherence::pages::{Access, PAGE_BYTES, PageNo};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::message::{Collective, Want};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The region's name in reports.
pub(crate) const LABEL: &str = "globals";

/// Where the global variables are, in the heap and for the program.
#[derive(Debug)]
pub(crate) struct Globals {
    pages: Range<PageNo>,
    start: usize,
}

impl Globals {
    /// Whether they have this page of the heap.
    pub(crate) fn has(&self, page: PageNo) -> bool {
        self.pages.contains(&page)
    }

    /// Their page at an address of the program's.
    pub(in crate::shared) fn page_of(&self, address: usize) -> Option<PageNo> {
        let page = address.checked_sub(self.start)? / PAGE_BYTES;
        (page < self.pages.len()).then(|| self.pages.start + page as PageNo)
    }

    /// Where the program sees one of their pages.
    pub(in crate::shared) fn address_of(&self, page: PageNo) -> Option<usize> {
        self.has(page).then(|| self.start + (page - self.pages.start) as usize * PAGE_BYTES)
    }
}

/// The arena with a page, and the page's number in it.
fn arena_of(shared: &Shared, page: PageNo) -> Option<(&Arena, PageNo)> {
    let (views, from) = (shared.views.as_ref()?, shared.guarded_from());
    Some(if page < from { (&views.tracked, page) } else { (&views.guarded, page - from) })
}

/// The parts of the range that are mapped from a file, so that an untouched page may have values; the whole range where
/// the system does not say.
fn from_files(range: &Range<usize>) -> Vec<Range<usize>> {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return vec![range.clone()] };
    // "START-END rw-p OFFSET DEVICE INODE PATH", where memory of no file has inode 0.
    let part = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let part = number(start)?.max(range.start)..number(end)?.min(range.end);
        (words.nth(3)? != "0" && !part.is_empty()).then_some(part)
    };
    maps.lines().filter_map(part).collect()
}

/// Whether pages of the range have ever been touched, by the process's page table; all of them where that may not be
/// read.
fn touched(range: &Range<usize>) -> impl Fn(usize) -> bool + use<> {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    let first = range.start / PAGE_BYTES;
    let mut entries = vec![0; range.len() / PAGE_BYTES * 8];
    if File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut entries, first as u64 * 8)).is_err() {
        entries.fill(u8::MAX);
    }
    move |address| {
        let entry = entries.as_chunks::<8>().0.get(address / PAGE_BYTES - first);
        entry.is_none_or(|entry| u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED != 0)
    }
}

/// Copies what stands in the program's memory into the service view, which is zero as yet. What is zero is left out,
/// and memory of no file that nobody touched is not touched here either.
///
/// # Safety
/// The range is readable memory that nobody writes meanwhile; `to` has room for it.
unsafe fn copy_in(program: &Range<usize>, to: *mut u8) {
    let (files, is_touched) = (from_files(program), touched(program));
    let has_values = |at: &usize| is_touched(*at) || files.iter().any(|part| part.contains(at));
    for at in program.clone().step_by(PAGE_BYTES).filter(has_values) {
        let from: *const u8 = std::ptr::with_exposed_provenance(at);
        // SAFETY: by this function's contract.
        let page = unsafe { std::slice::from_raw_parts(from, PAGE_BYTES) };
        if page.iter().any(|byte| *byte != 0) {
            // SAFETY: by this function's contract; the service view is other memory.
            unsafe { std::ptr::copy_nonoverlapping(from, to.add(at - program.start), PAGE_BYTES) };
        }
    }
}

fn misuse<T>(what: String) -> Result<T> {
    Err(Error::Globals(what))
}

fn checked(shared: &Shared, program: &Range<usize>) -> Result<()> {
    let (start, end) = (format!("{:#x}", program.start), format!("{:#x}", program.end));
    let whole_pages = program.start.is_multiple_of(PAGE_BYTES) && program.end.is_multiple_of(PAGE_BYTES);
    if !whole_pages || program.is_empty() {
        return misuse(format!(
            "the program's globals from {start} to {end} are not whole pages; link it with comem-cc"
        ));
    }
    if shared.globals.get().is_some() {
        return misuse("the program's globals are shared already; that is done once".to_string());
    }
    if program.start < shared.base + shared.bytes && program.end > shared.base {
        return misuse(format!("the program's globals from {start} to {end} lie in the shared heap"));
    }
    Ok(())
}

impl ThreadHeap<'_> {
    /// Makes the program's memory shared; collective.
    ///
    /// # Errors
    /// When the range makes no sense, nodes have it at different addresses, or the system refuses.
    ///
    /// # Safety
    /// The range is the program's own writable memory, and no thread of this process uses it during the call.
    pub(crate) unsafe fn share_globals(&self, program: Range<usize>) -> Result<()> {
        let ThreadHeap { thread, shared } = *self;
        checked(shared, &program)?;
        if shared.views.is_none() {
            return Ok(());
        }
        self.agree_on(&program)?;
        let options = RegionOptions {
            home: Homes::StartingOn(NodeId(0)),
            alignment: PAGE_BYTES,
            unit_pages: 1,
            label: LABEL.to_string(),
            // The program's own code reaches them in ways that nobody checks.
            keeps_pages: true,
            ..RegionOptions::default()
        };
        let address = self.allocate_common(program.len(), &options, "")?;
        let pages = (program.len() / PAGE_BYTES) as PageNo;
        let no_heap = || Error::NoHeap("there is no shared heap".to_string());
        let first = shared.page_of(address).ok_or_else(no_heap)?;
        let is_first = shared.me == NodeId(0);
        let opened = if let Some((memory, within)) = shared.one_copy(&(first..first + pages)) {
            if is_first {
                // SAFETY: the region is that long, and nobody else uses it yet; the rest is this function's contract.
                unsafe { copy_in(&program, std::ptr::with_exposed_provenance_mut(address)) };
            }
            // SAFETY: by this function's contract; the memory holds node 0's bytes when the call ends, and those of the
            // others do not count.
            unsafe { memory.show_at(&within, program.start) }
        } else {
            let (arena, in_arena) = arena_of(shared, first).ok_or_else(no_heap)?;
            if is_first {
                // SAFETY: the region is that long, and nobody else has heard of it; the rest is this function's
                // contract.
                unsafe { copy_in(&program, arena.service().add(in_arena as usize * PAGE_BYTES)) };
            }
            // SAFETY: by this function's contract; node 0's bytes are in the service view, and those of the others do
            // not count.
            unsafe { arena.open_window(in_arena..in_arena + pages, program.start) }
        };
        opened.map_err(Error::system("cannot share the program's globals"))?;
        let _ = shared.globals.set(Globals { pages: first..first + pages, start: program.start });
        hooks::tell_range(program);
        // Nobody uses them before every node has them.
        thread.collective(Collective::create(u64::from(first)), &[], |_| ())
    }

    /// All nodes must have them at the same addresses.
    fn agree_on(&self, program: &Range<usize>) -> Result<()> {
        let ThreadHeap { thread, .. } = *self;
        let numbers = [program.start, program.end].map(|at| at as i64);
        // The least of the numbers and of their opposites: they are the same everywhere if both are one's own.
        let directory: Vec<u8> = numbers.iter().flat_map(|n| [*n, -n]).flat_map(i64::to_be_bytes).collect();
        let same = thread.collective(Collective::PLACE, &directory, |least| least == directory)?;
        if same {
            return Ok(());
        }
        let (start, end) = (program.start, program.end);
        misuse(format!(
            "the program's globals, here from {start:#x} to {end:#x}, lie elsewhere on another node; link the program \
             with comem-cc (or -no-pie), or run it with --globals copy"
        ))
    }

    /// At the end, collective: brings all global variables to node 0 that other nodes have written, whether or not they
    /// have synchronised since.
    pub(crate) fn bring_globals_home(&self) -> Result<()> {
        let ThreadHeap { thread, shared } = *self;
        let Some(globals) = shared.globals.get() else { return Ok(()) };
        thread.collective(Collective::LAST_WRITES, &[], |_| ())?;
        if shared.me != NodeId(0) {
            return Ok(());
        }
        for page in globals.pages.clone() {
            if !self.is_here(page) {
                thread.page_fault(shared, page, Access::Read, 0)?;
            }
        }
        Ok(())
    }

    /// Whether a page of several writers, or of one, can be used here without asking; also if nobody has ever used it.
    fn is_here(&self, page: PageNo) -> bool {
        let ThreadHeap { thread, shared } = *self;
        let Some(known) = shared.table.find(page) else { return true };
        let mut none = Outbox::new();
        if !known.region.engine.has_several_writers() {
            let index = (page - known.region.first) / known.region.unit_pages();
            return known.unit_if_used(index).is_none_or(|unit| unit.lock().holds(Want::Shared));
        }
        !known.has_slot(page)
            || thread.home().page_step(Slot::SERVICE, page, &mut none, |table, _| table.unit(page).is_here())
                == Some(true)
    }
}

impl Shared {
    /// The job is over: the program has its global variables for itself again.
    pub(crate) fn give_globals_back(&self) {
        let Some(globals) = self.globals.get() else { return };
        if let Some((memory, within)) = self.one_copy(&globals.pages) {
            // SAFETY: they are shown there, and the job is over: nobody changes what they hold.
            if let Err(error) = unsafe { memory.keep_at(&within, globals.start) } {
                crate::error::say(format_args!("comem: the program's globals stay shared with other nodes: {error}"));
            }
        } else if let Some((arena, _)) = arena_of(self, globals.pages.start) {
            memory::change(arena, &(0..0), |_| arena.close_window());
        }
    }
}
