//! Pages of an arena that the program sees at an address of its own: its global variables, where the linker put them.
//!
//! The window is one more mapping of the arena's file, over what was there. What it shows is shown nowhere else: the
//! same pages of the arena's own application view stay empty and belong to nobody. So whatever is done to a run of
//! pages is done to its [`Part`]s: what lies before the window, in it, and behind it.

use super::sys::View;
use super::{Arena, PAGE_BYTES, PageNo, fault, sys};
use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A window.
#[derive(Debug)]
pub(super) struct Window {
    view: View,
    pages: Range<PageNo>,
    /// The program has its memory back; nothing is done to it any more.
    closed: AtomicBool,
}

/// A run of pages that the program sees in one piece.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) view: &'a View,
    pub(super) pages: Range<PageNo>,
    /// Where it begins in the view, in bytes.
    pub(super) offset: usize,
}

impl Part<'_> {
    /// Where the program sees it.
    pub(super) fn address(&self) -> usize {
        self.view.start() + self.offset
    }

    /// How long it is, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// The page at an address in it.
    pub(super) fn page_at(&self, address: usize) -> PageNo {
        self.pages.start + ((address - self.address()) / PAGE_BYTES) as PageNo
    }
}

impl Window {
    fn part(&self, pages: Range<PageNo>) -> Option<Part<'_>> {
        let offset = (pages.start - self.pages.start) as usize * PAGE_BYTES;
        let shown = !pages.is_empty() && !self.closed.load(Ordering::Acquire);
        shown.then_some(Part { view: &self.view, pages, offset })
    }

    fn address_range(&self) -> Range<usize> {
        self.view.start()..self.view.start() + self.view.bytes()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        fault::forget(self.view.start());
        CHILDS.store(std::ptr::null_mut(), Ordering::Release);
    }
}

impl Arena {
    /// The pieces in which the program sees a run of pages of the arena.
    pub(super) fn parts(&self, pages: Range<PageNo>) -> impl Iterator<Item = Part<'_>> {
        let own = |pages: Range<PageNo>| {
            let offset = pages.start as usize * PAGE_BYTES;
            (!pages.is_empty()).then_some(Part { view: &self.app, pages, offset })
        };
        let parts = match self.window.get() {
            None => [own(pages), None, None],
            Some(window) => {
                let (first, last) = (window.pages.start, window.pages.end);
                let (start, end) = (pages.start.clamp(first, last), pages.end.clamp(first, last));
                [own(pages.start..pages.end.min(first)), window.part(start..end), own(pages.start.max(last)..pages.end)]
            }
        };
        parts.into_iter().flatten()
    }

    /// From now on the program sees these pages at `start`, in place of what it has there, and no longer in the
    /// application's view. They are unmapped at first, whatever their state was. An arena has one window.
    ///
    /// A child made by `fork` has the memory as it was then, as its own.
    ///
    /// # Errors
    /// `InvalidInput` for pages outside or an address between pages, `AlreadyExists` for a second window, else what the
    /// system refused; the memory may be lost then.
    ///
    /// # Safety
    /// The bytes from `start` on are the program's own memory, nobody uses them meanwhile, and what stands there is
    /// lost: it was written to the service view before, or is of no use.
    pub unsafe fn open_window(&self, pages: Range<PageNo>, start: usize) -> io::Result<()> {
        let (offset, bytes) = self.bytes_of(&pages)?;
        if bytes == 0 || !start.is_multiple_of(PAGE_BYTES) {
            return Err(super::arena::invalid("a window is whole pages, at least one"));
        }
        if self.window.get().is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the arena has a window already"));
        }
        self.unmap(pages.clone())?;
        // SAFETY: by this function's contract the program loses nothing that it needs.
        let view = unsafe { View::over(start, bytes, self.unmapped_protection(), Some((self.file(), offset)), true)? };
        view.wish();
        self.watch(&view)?;
        fault::remember(start..start + bytes, self.service().addr() + offset)?;
        let (file, service) = (self.file().as_raw_fd(), self.service().addr() + offset);
        remember_for_children(Childs { view: start..start + bytes, file, offset, service });
        let window = Window { view, pages, closed: AtomicBool::new(false) };
        self.window.set(window).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// Gives the program the memory of the window for itself: it keeps what is in the file, without faults, and what it
    /// writes from here on nobody else sees. The pages are not to be used through the arena any more; what is done to
    /// them does nothing.
    ///
    /// # Errors
    /// What the system refused; `NotFound` without a window.
    pub fn close_window(&self) -> io::Result<()> {
        let window = self.window.get().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        if window.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let (offset, bytes) = self.bytes_of(&window.pages)?;
        // SAFETY: the new mapping shows the same bytes of the file as the one it replaces.
        let private = unsafe { View::over(window.view.start(), bytes, sys::BOTH, Some((self.file(), offset)), false)? };
        // The window's own view ends this mapping with the arena.
        std::mem::forget(private);
        // A fault may have come just before; its address stays known, so that the access is tried again.
        CHILDS.store(std::ptr::null_mut(), Ordering::Release);
        Ok(())
    }

    /// The page at an address where a program sees it.
    pub fn page_of(&self, address: usize) -> Option<PageNo> {
        let in_view = |view: &View| address.checked_sub(view.start()).filter(|at| *at < view.bytes());
        let page = |at: usize| (at / PAGE_BYTES) as PageNo;
        let Some(window) = self.window.get() else { return in_view(&self.app).map(page) };
        let elsewhere = || in_view(&self.app).map(page).filter(|page| !window.pages.contains(page));
        in_view(&window.view).map(|at| window.pages.start + page(at)).or_else(elsewhere)
    }

    /// Where the program sees the pages that are not in the application's view.
    pub fn window(&self) -> Option<(Range<PageNo>, Range<usize>)> {
        self.window.get().map(|w| (w.pages.clone(), w.address_range()))
    }
}

/// What a child made by `fork` needs to have the window's memory for itself.
#[derive(Debug)]
struct Childs {
    view: Range<usize>,
    file: libc::c_int,
    offset: usize,
    /// Where the window's memory lies in the service view.
    service: usize,
}

/// Of the process's last window: a process has one.
static CHILDS: AtomicPtr<Childs> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The copy that this thread has made for its next child.
    static COPY: Cell<*mut libc::c_void> = const { Cell::new(libc::MAP_FAILED) };
}

/// The program sees memory of this file at `view`, and the same memory where `service` begins: a child made by `fork`
/// has it as it was then, as its own.
pub(super) fn show_to_children(view: Range<usize>, file: libc::c_int, offset: usize, service: usize) {
    remember_for_children(Childs { view, file, offset, service });
}

/// The process has such memory no more, or has it for itself.
pub(super) fn show_no_more() {
    CHILDS.store(std::ptr::null_mut(), Ordering::Release);
}

fn remember_for_children(childs: Childs) {
    // Few bytes, once in a process's life; a fork in another thread may be reading an older one.
    CHILDS.store(Box::into_raw(Box::new(childs)), Ordering::Release);
}

/// Before a `fork`: copies the window's memory for the child, which would see what the parent writes later otherwise.
pub(super) fn copy_for_child() {
    // SAFETY: null or a structure that lives for ever.
    let Some(childs) = (unsafe { CHILDS.load(Ordering::Acquire).as_ref() }) else { return };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory.
    let copy = unsafe { libc::mmap(std::ptr::null_mut(), childs.view.len(), sys::BOTH, flags, -1, 0) };
    COPY.set(copy);
    if copy == libc::MAP_FAILED {
        return;
    }
    // SAFETY: asks where the file has bytes.
    let seek = |from: usize, what| unsafe { libc::lseek(childs.file, from as libc::off_t, what) };
    let (mut at, end) = (childs.offset, childs.offset + childs.view.len());
    while let Ok(data) = usize::try_from(seek(at, libc::SEEK_DATA))
        && data < end
    {
        at = usize::try_from(seek(data, libc::SEEK_HOLE)).unwrap_or(end).min(end);
        let from = std::ptr::with_exposed_provenance::<u8>(childs.service + data - childs.offset);
        // SAFETY: within the window's memory and the copy of it. Other threads may be writing there: any of their bytes
        // will do.
        unsafe { std::ptr::copy_nonoverlapping(from, copy.cast::<u8>().add(data - childs.offset), at - data) };
    }
}

/// After a `fork`: the parent needs no copy.
pub(super) fn drop_copy() {
    let copy = COPY.replace(libc::MAP_FAILED);
    // SAFETY: null or a structure that lives for ever.
    let childs = unsafe { CHILDS.load(Ordering::Acquire).as_ref() };
    if let Some(childs) = childs.filter(|_| copy != libc::MAP_FAILED) {
        // SAFETY: the copy is this thread's, and nobody looks at it any more.
        unsafe { libc::munmap(copy, childs.view.len()) };
    }
}

/// In a child made by `fork`, before it does anything: its global variables are as they were, and its own.
pub(super) fn keep_in_child() {
    // SAFETY: null or a structure that lives for ever.
    let Some(childs) = (unsafe { CHILDS.load(Ordering::Acquire).as_ref() }) else { return };
    let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(childs.view.start);
    let (copy, len) = (COPY.replace(libc::MAP_FAILED), childs.view.len());
    // SAFETY: a child does not inherit the window, so nothing is at its place; a new mapping there takes nothing away.
    unsafe {
        if copy == libc::MAP_FAILED {
            // There was no memory for a copy: better what the parent may be changing than nothing.
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
            libc::mmap(at, len, sys::BOTH, flags, childs.file, childs.offset as libc::off_t);
        } else {
            libc::mremap(copy, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, at);
        }
    }
}
