//! One memory file mapped twice: the application's view with faults and the service view without.
//!
//! A page's state changes here and nowhere else. Callers serialise what they do to one page (the unit's lock);
//! different pages may be worked on at the same time.

use super::peer::TRACKED;
use super::sys::{self, Continued, Region, View};
use super::window::{Part, Window};
use super::written::PageSet;
use super::{Detector, PAGE_BYTES, PageNo, Tracking, fault};
use crate::mapping::gaps;
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The process has as many separate mappings as the system permits (`vm.max_map_count`), so `mprotect` cannot give one
/// more stretch of pages a permission of its own.
///
/// Only under [`Detector::Mprotect`]. It comes as the inner error of an [`io::Error`]; [`TooManyRanges::is`] finds it.
/// The range may then be changed in part. The way out is to coarsen: [`Arena::unmap`] a wide range that begins and ends
/// where permissions change anyway (the whole arena, at worst), which merges its mappings into one, and let the pages
/// fault in again; data is in the file and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanges {
    /// The system's limit.
    pub limit: usize,
}

impl TooManyRanges {
    /// Whether that is what `error` says.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<TooManyRanges>())
    }
}

impl fmt::Display for TooManyRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        write!(f, "mprotect: the process has as many mappings as it may ({limit}); raise vm.max_map_count")
    }
}

impl Error for TooManyRanges {}

/// How many separate mappings a process may have (`vm.max_map_count`; the kernel's default where that cannot be read).
pub fn map_count_limit() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(65_530)
}

/// What stands behind the application's view.
#[derive(Debug)]
enum Mechanism {
    /// userfaultfd; with the page table's file where the kernel notes writes.
    Userfault {
        uffd: OwnedFd,
        pagemap: Option<OwnedFd>,
    },
    Mprotect,
}

/// One memory file mapped twice: the application's view, with faults, at a given address; the service view, always
/// readable and writable, anywhere.
#[derive(Debug)]
pub struct Arena {
    /// Dropped first: no fault can come any more when the rest goes.
    pub(super) window: OnceLock<Window>,
    pub(super) app: View,
    service: View,
    file: OwnedFd,
    mechanism: Mechanism,
    /// Pages that were mapped since they were last discarded; only where the kernel notes writes.
    mapped: Option<PageSet>,
    /// Of these, the pages where writes concern somebody ([`Arena::untrack`]).
    regarded: Option<PageSet>,
    detector: Detector,
    tracking: Tracking,
    /// The application's view is plain memory; see [`Arena::detach`].
    detached: AtomicBool,
    /// How many times more [`Arena::forbid_writes`] was called than [`Arena::allow_writes`].
    forbidden: AtomicUsize,
}

impl Arena {
    /// Reserves `bytes` bytes (a multiple of the page, up to 16 TiB less one page) with the application's view exactly
    /// at `base`. All pages are unmapped and zero, and cost nothing until they are touched.
    ///
    /// A child made by `fork` does not have the application's view.
    ///
    /// # Errors
    /// `InvalidInput` for a bad size or address, `AlreadyExists` when something is mapped there, else what the system
    /// refused.
    pub fn new(base: usize, bytes: usize, tracking: Tracking, detector: Detector) -> io::Result<Arena> {
        Arena::build(Some(base), bytes, tracking, detector)
    }

    /// As [`Arena::new`], anywhere.
    pub(super) fn anywhere(bytes: usize, tracking: Tracking, detector: Detector) -> io::Result<Arena> {
        Arena::build(None, bytes, tracking, detector)
    }

    fn build(base: Option<usize>, bytes: usize, tracking: Tracking, detector: Detector) -> io::Result<Arena> {
        let aligned = bytes.is_multiple_of(PAGE_BYTES) && base.unwrap_or(0).is_multiple_of(PAGE_BYTES);
        let pages = u32::try_from(bytes / PAGE_BYTES).ok().filter(|pages| *pages > 0 && aligned);
        let pages = pages.ok_or_else(|| invalid("an arena is whole pages, at least one and fewer than 2^32"))?;
        let notes = detector == Detector::Async && tracking == Tracking::Tracked;
        let kind = if tracking == Tracking::Tracked { TRACKED } else { "guarded" };
        let file = sys::memory_file(kind, bytes)?;
        let protection = if detector == Detector::Mprotect { libc::PROT_NONE } else { sys::BOTH };
        let app = View::new(base, bytes, protection, Some(file.as_fd()))?;
        let mechanism = match detector {
            Detector::Mprotect => Mechanism::Mprotect,
            Detector::Async | Detector::Handled => {
                let uffd = sys::userfaultfd(notes)?;
                Mechanism::Userfault { uffd, pagemap: notes.then(sys::pagemap).transpose()? }
            }
        };
        let service = View::new(None, bytes, sys::BOTH, Some(file.as_fd()))?;
        let set = || notes.then(|| PageSet::new(pages)).transpose();
        let (mapped, regarded) = (set()?, set()?);
        let (window, detached, forbidden) = (OnceLock::new(), AtomicBool::new(false), AtomicUsize::new(0));
        let arena =
            Arena { window, app, service, file, mechanism, mapped, regarded, detector, tracking, detached, forbidden };
        arena.watch(&arena.app)?;
        fault::remember(arena.base()..arena.base() + bytes, arena.service.start())?;
        Ok(arena)
    }

    /// Has the accesses to a new view noticed, all of whose pages are unmapped.
    pub(super) fn watch(&self, view: &View) -> io::Result<()> {
        let bytes = view.bytes();
        view.advise(0, bytes, libc::MADV_DONTFORK)?;
        match &self.mechanism {
            Mechanism::Mprotect => Ok(()),
            Mechanism::Userfault { uffd, .. } => sys::register(uffd.as_fd(), view.start(), bytes),
        }
    }

    /// What a view permits whose pages are all unmapped.
    pub(super) fn unmapped_protection(&self) -> i32 {
        if self.detector == Detector::Mprotect { libc::PROT_NONE } else { sys::BOTH }
    }

    /// Whether an application's view of `bytes` bytes could be mapped at `base`.
    pub fn is_free(base: usize, bytes: usize) -> bool {
        View::new(Some(base), bytes, libc::PROT_NONE, None).is_ok()
    }

    /// Where the application's view begins.
    pub fn base(&self) -> usize {
        self.app.start()
    }

    /// Whether the application's view of these pages is mapped, by whomever: false where the program has unmapped some
    /// of it.
    pub fn is_mapped(&self, pages: &Range<u32>) -> bool {
        let (start, count) = (self.base() + pages.start as usize * PAGE_BYTES, pages.len());
        sys::is_mapped(start, count * PAGE_BYTES)
    }

    /// How many pages there are.
    pub fn pages(&self) -> u32 {
        (self.app.bytes() / PAGE_BYTES) as u32
    }

    /// Where the service view begins: readable and writable, no fault, nothing noted.
    pub fn service(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.service.start())
    }

    /// The memory file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The detector in use.
    pub fn detector(&self) -> Detector {
        self.detector
    }

    /// The tracking asked for.
    pub fn tracking(&self) -> Tracking {
        self.tracking
    }

    /// Whether the kernel notes writes silently here.
    pub fn notes_writes(&self) -> bool {
        self.mapped.is_some()
    }

    /// Byte offset and length of a range of pages.
    pub(super) fn bytes_of(&self, pages: &Range<PageNo>) -> io::Result<(usize, usize)> {
        if pages.start > pages.end || pages.end > self.pages() {
            return Err(invalid("pages outside the arena"));
        }
        Ok((pages.start as usize * PAGE_BYTES, pages.len() * PAGE_BYTES))
    }

    /// Makes pages readable; a write is noted ([`Arena::notes_writes`]) or faults. They may have been unmapped or
    /// mapped, and are clean afterwards: what was written and not collected is forgotten.
    ///
    /// # Errors
    /// [`TooManyRanges`] under `mprotect`; `InvalidInput` for pages outside; else what the system refused.
    pub fn map_read(&self, pages: Range<PageNo>) -> io::Result<()> {
        self.map(pages, false)
    }

    /// Makes pages readable and writable. Where writes are noted, they count as written at the next [`Arena::collect`],
    /// whether or not anybody writes.
    ///
    /// # Errors
    /// As for [`Arena::map_read`].
    pub fn map_write(&self, pages: Range<PageNo>) -> io::Result<()> {
        self.map(pages, true)
    }

    fn map(&self, pages: Range<PageNo>, writable: bool) -> io::Result<()> {
        self.bytes_of(&pages)?;
        let protection = if writable { sys::BOTH } else { libc::PROT_READ };
        // What was never mapped mostly has no memory.
        let holes = writable && self.mapped.as_ref().is_some_and(|mapped| mapped.runs(pages.clone()).next().is_none());
        for set in self.mapped.iter().chain(&self.regarded) {
            set.insert(pages.clone());
        }
        self.parts(pages).try_for_each(|part| match &self.mechanism {
            Mechanism::Mprotect => mprotect(&part, protection),
            Mechanism::Userfault { uffd, .. } => {
                let filled = if holes { sys::zero_range(uffd.as_fd(), part.address(), part.bytes()) } else { 0 };
                self.map_entries(uffd.as_fd(), &part, filled, !writable)
            }
        })
    }

    /// Walks the part from byte `at` on: absent entries are made, holes of the file filled, and where entries were
    /// there already their protection is changed afterwards, in one call.
    fn map_entries(&self, uffd: BorrowedFd<'_>, part: &Part<'_>, mut at: usize, protected: bool) -> io::Result<()> {
        let (start, in_file, end) = (part.address(), part.pages.start as usize * PAGE_BYTES, part.bytes());
        let mut filled = false;
        let mut present: Option<Range<usize>> = None;
        while at < end {
            match sys::continue_range(uffd, start + at, end - at, protected)? {
                Continued::Mapped(bytes) => at += bytes,
                Continued::Present => {
                    let next = at + PAGE_BYTES;
                    present = Some(present.map_or(at..next, |range| range.start..next));
                    at = next;
                }
                Continued::Hole if filled => return Err(io::Error::other("the memory file does not keep its pages")),
                Continued::Hole => {
                    sys::populate(self.file.as_fd(), in_file + at, end - at)?;
                    filled = true;
                }
            }
        }
        match present {
            Some(range) => sys::write_protect(uffd, start + range.start, range.len(), protected),
            None => Ok(()),
        }
    }

    /// Whether [`Arena::fill`] gives pages memory, bytes and their place in the page table in one call.
    pub fn fills(&self) -> bool {
        matches!(self.mechanism, Mechanism::Userfault { .. })
    }

    /// Gives pages that are not mapped these bytes, and maps them as [`Arena::map_read`] does: in one call up to the
    /// first page that has memory already. Threads may load and store before this returns, so a copy of the bytes must
    /// have been made if one is wanted.
    ///
    /// # Errors
    /// As for [`Arena::map_read`]; `InvalidInput` also for too few bytes.
    pub fn fill(&self, pages: Range<PageNo>, bytes: &[u8]) -> io::Result<()> {
        let (_, len) = self.bytes_of(&pages)?;
        let bytes = bytes.get(..len).ok_or_else(|| invalid("fewer bytes than pages"))?;
        let done = self.fill_holes(&pages, bytes);
        let rest = pages.start + done..pages.end;
        if rest.is_empty() {
            return Ok(());
        }
        let (offset, len) = self.bytes_of(&rest)?;
        // SAFETY: the pages lie within the service view, and no thread can see them as they are not mapped; there are
        // as many bytes.
        unsafe { crate::copy::pages(bytes[done as usize * PAGE_BYTES..].as_ptr(), self.service().add(offset), len) };
        self.map_read(rest)
    }

    /// As [`Arena::fill`], up to the first page that has memory, or cannot get any; gives how many pages it did.
    fn fill_holes(&self, pages: &Range<PageNo>, bytes: &[u8]) -> u32 {
        let Mechanism::Userfault { uffd, .. } = &self.mechanism else { return 0 };
        for set in self.mapped.iter().chain(&self.regarded) {
            set.insert(pages.clone());
        }
        let mut done = 0;
        for part in self.parts(pages.clone()) {
            let bytes = &bytes[done * PAGE_BYTES..][..part.bytes()];
            // SAFETY: the range is this arena's own, and unmapped pages of it hold nothing but zeros that nobody has
            // seen.
            let filled = unsafe { sys::copy_range(uffd.as_fd(), part.address(), bytes, true) };
            done += filled / PAGE_BYTES;
            if filled < bytes.len() {
                break;
            }
        }
        done as u32
    }

    /// Has the service view know pages that have memory, before they are overwritten there: a read fault maps all that
    /// there are around it, a write fault one page. Once they are unmapped in the application's view, the kernel knows
    /// them as written, and maps them so: else the first store to each has the processor note it, which takes 0.3 us in
    /// a virtual machine. Pages outside the arena are passed over.
    pub fn prefault_service_view(&self, pages: Range<PageNo>) {
        const AROUND: PageNo = 16;
        let (mut page, end) = (pages.start, pages.end.min(self.pages()));
        while page < end {
            // SAFETY: the page lies within the service view and has memory; the byte is not looked at.
            unsafe { self.service().add(page as usize * PAGE_BYTES).read_volatile() };
            page = (page / AROUND + 1) * AROUND;
        }
    }

    /// Makes mapped pages readable as after [`Arena::map_read`]. When it returns, all earlier stores are visible in the
    /// service view, and no later one goes unnoticed. All the pages must be mapped (`mprotect` would make unmapped ones
    /// readable).
    ///
    /// # Errors
    /// As for [`Arena::map_read`].
    pub fn protect(&self, pages: Range<PageNo>) -> io::Result<()> {
        self.bytes_of(&pages)?;
        if let Some(regarded) = &self.regarded {
            regarded.insert(pages.clone());
        }
        self.parts(pages).try_for_each(|part| match &self.mechanism {
            Mechanism::Mprotect => mprotect(&part, libc::PROT_READ),
            Mechanism::Userfault { uffd, .. } => sys::write_protect(uffd.as_fd(), part.address(), part.bytes(), true),
        })
    }

    /// Where the kernel notes writes: forbids stores to pages, mapped or not, until [`Arena::allow_writes`]. A store
    /// raises SIGSEGV. When this returns, earlier stores are noted. Pages that are mapped meanwhile can be loaded from.
    /// `false`, and nothing done, where the kernel notes no writes or refuses, and where the process would have a tenth
    /// of its mappings for that alone.
    pub fn forbid_writes(&self, pages: Range<PageNo>) -> bool {
        if !self.notes_writes() || self.is_detached() || self.bytes_of(&pages).is_err() {
            return false;
        }
        // Each such stretch may be a mapping more, and one behind it.
        if self.forbidden.fetch_add(1, Ordering::Relaxed) >= map_count_limit() / 20 {
            self.forbidden.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let done = self.parts(pages.clone()).try_for_each(|part| mprotect(&part, libc::PROT_READ));
        if done.is_err() && self.allow_writes(pages).is_err() {
            // Stores to what is forbidden now fault, and the fault permits them.
            self.forbidden.fetch_add(1, Ordering::Relaxed);
        }
        done.is_ok()
    }

    /// Ends [`Arena::forbid_writes`] for the same pages.
    ///
    /// # Errors
    /// [`TooManyRanges`]; `InvalidInput` for pages outside; else what the system refused.
    pub fn allow_writes(&self, pages: Range<PageNo>) -> io::Result<()> {
        self.bytes_of(&pages)?;
        self.forbidden.fetch_sub(1, Ordering::Relaxed);
        self.parts(pages).try_for_each(|part| mprotect(&part, sys::BOTH))
    }

    /// Takes all access away. Data stays in the file; what was written stays noted until the next
    /// [`Arena::collect`].
    ///
    /// # Errors
    /// As for [`Arena::map_read`]: under `mprotect` a small piece of a large mapping is one range more.
    pub fn unmap(&self, pages: Range<PageNo>) -> io::Result<()> {
        self.bytes_of(&pages)?;
        self.parts(pages).try_for_each(|part| match &self.mechanism {
            Mechanism::Mprotect => mprotect(&part, libc::PROT_NONE),
            Mechanism::Userfault { .. } => part.view.advise(part.offset, part.bytes(), libc::MADV_DONTNEED),
        })
    }

    /// As [`Arena::unmap`] for several runs, in few system calls. `false` where the system does not do that, or refuses
    /// some of it: some of the runs may be unmapped then.
    pub fn unmap_all(&self, runs: &[Range<PageNo>]) -> bool {
        if matches!(self.mechanism, Mechanism::Mprotect) || runs.iter().any(|run| self.bytes_of(run).is_err()) {
            return false;
        }
        let parts = runs.iter().flat_map(|run| self.parts(run.clone()));
        sys::unmap_all(parts.map(|part| part.address()..part.address() + part.bytes()))
    }

    /// Appends the pages of the range that were written since they were last clean, in order, and makes them clean
    /// (protected again where they are mapped). It is exact for unmapped pages; on a mapped page a store that runs
    /// beside it is in this collection or in the next. Pages that were never mapped, or not since they were discarded,
    /// are not reported, although the kernel would.
    ///
    /// Nothing is appended where the kernel does not note writes.
    ///
    /// # Errors
    /// `InvalidInput` for pages outside; else what the system refused.
    pub fn collect(&self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) -> io::Result<()> {
        self.bytes_of(&pages)?;
        let Some(mapped) = &self.mapped else { return Ok(()) };
        self.scan(pages, sys::Notes::Taken, mapped, PageSet::hulls, written)
    }

    /// As [`Arena::collect`], but changes nothing: what was written stays noted, and no other processor is interrupted.
    /// Pages that were mapped by [`Arena::map_write`] and not collected since are among the written ones; disregarded
    /// ones are not. `looked` is told of each stretch that took a call, and what was found in it.
    ///
    /// # Errors
    /// As for [`Arena::collect`].
    pub fn peek(
        &self,
        pages: Range<PageNo>,
        written: &mut Vec<Range<PageNo>>,
        mut looked: impl FnMut(Range<PageNo>, &[Range<PageNo>]),
    ) -> io::Result<()> {
        self.bytes_of(&pages)?;
        let Some(regarded) = &self.regarded else { return Ok(()) };
        for span in regarded.spans(pages) {
            let before = written.len();
            self.scan(span.clone(), sys::Notes::Kept, regarded, |_, span| std::iter::once(span), written)?;
            looked(span, written.get(before..).unwrap_or_default());
        }
        Ok(())
    }

    /// As [`Arena::collect`], but changes nothing: what was written stays noted, until the page is mapped again if it
    /// is not mapped.
    ///
    /// # Errors
    /// As for [`Arena::collect`].
    pub fn written(&self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) -> io::Result<()> {
        self.bytes_of(&pages)?;
        let Some(mapped) = &self.mapped else { return Ok(()) };
        self.scan(pages, sys::Notes::Kept, mapped, PageSet::hulls, written)
    }

    /// What is written to these pages concerns nobody until they are mapped or protected again: [`Arena::peek`] passes
    /// them over.
    pub fn untrack(&self, pages: Range<PageNo>) {
        if let Some(regarded) = self.regarded.as_ref().filter(|_| self.bytes_of(&pages).is_ok()) {
            regarded.remove(pages);
        }
    }

    /// Ends [`Arena::untrack`]: what was written to these mapped pages and not collected is seen again, however long
    /// ago that was.
    pub fn track(&self, pages: Range<PageNo>) {
        if let Some(regarded) = self.regarded.as_ref().filter(|_| self.bytes_of(&pages).is_ok()) {
            regarded.insert(pages);
        }
    }

    /// Walks stretches of the range in which there are pages of the set, and appends those of the set that were
    /// written.
    fn scan<'a, S: Iterator<Item = Range<PageNo>> + 'a>(
        &'a self,
        pages: Range<PageNo>,
        notes: sys::Notes,
        set: &'a PageSet,
        stretches: impl FnOnce(&'a PageSet, Range<PageNo>) -> S,
        written: &mut Vec<Range<PageNo>>,
    ) -> io::Result<()> {
        let Mechanism::Userfault { pagemap: Some(pagemap), .. } = &self.mechanism else { return Ok(()) };
        let mut found = [Region::default(); 64];
        for part in stretches(set, pages).flat_map(|span| self.parts(span)) {
            let (mut at, end) = (part.address(), part.address() + part.bytes());
            while at < end {
                let (count, walked) = sys::scan_written(pagemap.as_fd(), at..end, notes, &mut found)?;
                for region in found.get(..count).unwrap_or_default() {
                    let (start, end) = (part.page_at(region.start as usize), part.page_at(region.end as usize));
                    set.runs(start..end).for_each(|run| append(written, run));
                }
                if walked <= at {
                    return Err(io::Error::other("PAGEMAP_SCAN: the walk does not advance"));
                }
                at = walked;
            }
        }
        Ok(())
    }

    /// Has memory ready for pages that will be written through the service view; for moments with nothing else to do.
    pub fn prepare(&self, pages: Range<PageNo>) {
        let Ok((offset, len)) = self.bytes_of(&pages) else { return };
        // Where the kernel does not know the advice, memory comes at the first touch.
        let _ = self.service.advise(offset, len, libc::MADV_POPULATE_WRITE);
    }

    /// Brings pages' memory nearer that will be written through the service view.
    pub fn look_ahead(&self, pages: Range<PageNo>) {
        let Ok((offset, len)) = self.bytes_of(&pages) else { return };
        crate::prefetch_hint::of_writes(self.service().wrapping_add(offset), len);
    }

    /// Gives pages' memory back: they are unmapped, clean, and zero when they are next seen through either view.
    ///
    /// # Errors
    /// As for [`Arena::unmap`].
    pub fn discard(&self, pages: Range<PageNo>) -> io::Result<()> {
        let (offset, len) = self.bytes_of(&pages)?;
        if len == 0 {
            return Ok(());
        }
        self.unmap(pages.clone())?;
        sys::punch(self.file.as_fd(), offset, len)?;
        for set in self.mapped.iter().chain(&self.regarded) {
            set.remove(pages.clone());
        }
        Ok(())
    }

    /// Makes the application's view plain memory: every page readable and writable, without faults, with what the file
    /// holds. Other changes of mappings do nothing from then on.
    ///
    /// # Errors
    /// What the system refused.
    pub fn detach(&self) -> io::Result<()> {
        if self.detached.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the range is this arena's own; the new mapping shows the same bytes.
        let view = unsafe { View::over(self.base(), self.app.bytes(), sys::BOTH, Some((self.file.as_fd(), 0)), true) }?;
        view.wish();
        // The range has an owner already.
        std::mem::forget(view);
        self.app.advise(0, self.app.bytes(), libc::MADV_DONTFORK)
    }

    /// Whether [`Arena::detach`] was called.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }

    /// Leaves of both views and of the file no more than these parts of the application's view, which do not overlap,
    /// as private memory, of which a child made by `fork` has a copy. All other addresses are free for something
    /// else, and all other memory is given back.
    ///
    /// # Safety
    /// Nobody uses anything else of the arena any more, and it is never dropped. The parts are whole pages.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn shrink_to(&self, keep: &[Range<usize>]) -> io::Result<()> {
        fault::forget(self.base());
        let ours = self.base()..self.base() + self.app.bytes();
        for part in keep.iter().filter(|part| ours.contains(&part.start)) {
            let from = Some((self.file.as_fd(), part.start - ours.start));
            // SAFETY: a part of the view; the new mapping shows the same bytes.
            let view = unsafe { View::over(part.start, part.len(), sys::BOTH, from, false) }?;
            // The range has an owner already.
            std::mem::forget(view);
        }
        // SAFETY: the gaps lie within the view, and nobody uses them.
        gaps(&ours, keep).into_iter().try_for_each(|gap| unsafe { self.give_back(gap) })?;
        // SAFETY: by this function's contract.
        unsafe { self.service.unmap(0, self.service.bytes()) }
    }

    /// Gives back a part of the application's view, with its memory.
    ///
    /// # Safety
    /// As for [`Arena::shrink_to`], of this part.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn give_back(&self, part: Range<usize>) -> io::Result<()> {
        let offset = part.start - self.base();
        // SAFETY: within the view, and by this function's contract nobody uses it.
        unsafe { self.app.unmap(offset, part.len())? };
        sys::punch(self.file.as_fd(), offset, part.len())
    }

    /// Whether an address lies in the application's view.
    pub fn contains(&self, address: usize) -> bool {
        (self.base()..self.base() + self.app.bytes()).contains(&address)
    }

    /// Bytes of memory that the arena's file takes.
    pub fn resident_bytes(&self) -> u64 {
        sys::file_bytes(self.file.as_fd())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        fault::forget(self.base());
    }
}

fn mprotect(part: &Part<'_>, protection: i32) -> io::Result<()> {
    part.view.mprotect(part.offset, part.bytes(), protection).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => io::Error::new(io::ErrorKind::OutOfMemory, TooManyRanges { limit: map_count_limit() }),
        _ => sys::refused("mprotect", &error),
    })
}

/// Adds a run behind others, as part of the last where they touch.
fn append(runs: &mut Vec<Range<PageNo>>, run: Range<PageNo>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

pub(super) fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
