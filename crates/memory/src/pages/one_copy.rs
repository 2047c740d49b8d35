//! Memory of which there is one copy: a file that the processes of a host all map at the same address.
//!
//! The processors keep it coherent, so nothing is noticed here. A page permits nothing before its region is known
//! ([`OneCopy::open`]) and after it was freed ([`OneCopy::close`]): an access to memory that belongs to nobody ends the
//! process, as in arenas. A page gets memory from the node of the machine on which it is first touched.

use super::peer::memory_file_of;
use super::sys::{self, View};
use super::{PAGE_BYTES, PageNo, fault, window};
use crate::mapping::gaps;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// In the name of the memory file, which tells it from those of earlier jobs of the same process.
fn kind(job: u64) -> String {
    format!("one-copy-{job:x}")
}

/// Behind the pages the file has a counter for each: how many processes have freed the region that begins there.
fn counter_bytes(bytes: usize) -> usize {
    (bytes / PAGE_BYTES * size_of::<AtomicU32>()).next_multiple_of(PAGE_BYTES)
}

/// The file, which is to be mapped.
#[derive(Debug)]
pub struct OneCopyFile {
    file: OwnedFd,
    bytes: usize,
}

impl OneCopyFile {
    /// A file of `bytes` bytes, all zero, for this job.
    ///
    /// # Errors
    /// What the system refused.
    pub fn new(job: u64, bytes: usize) -> io::Result<OneCopyFile> {
        let file = sys::memory_file(&kind(job), bytes + counter_bytes(bytes))?;
        Ok(OneCopyFile { file, bytes })
    }

    /// The file that process `pid` has made for this job.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process write to it (another user, another container).
    pub fn of(pid: u32, job: u64, bytes: usize) -> io::Result<OneCopyFile> {
        let file: File = memory_file_of(pid, &kind(job), bytes + counter_bytes(bytes), true)?;
        Ok(OneCopyFile { file: file.into(), bytes })
    }

    /// Maps it at `base`, where nothing may be mapped yet. A child made by `fork` does not have the memory.
    ///
    /// # Errors
    /// `AlreadyExists` when something is mapped there, else what the system refused.
    pub fn map(self, base: usize) -> io::Result<OneCopy> {
        self.map_at(Some(base))
    }

    /// As [`OneCopyFile::map`], anywhere.
    ///
    /// # Errors
    /// As there.
    pub fn map_anywhere(self) -> io::Result<OneCopy> {
        self.map_at(None)
    }

    fn map_at(self, base: Option<usize>) -> io::Result<OneCopy> {
        let OneCopyFile { file, bytes } = self;
        let view = View::new(base, bytes, libc::PROT_NONE, Some(file.as_fd()))?;
        view.advise(0, bytes, libc::MADV_DONTFORK)?;
        let counters = View::of_part(file.as_fd(), bytes, counter_bytes(bytes))?;
        // Its accesses are never noticed: faults there are mistakes, which the runtime names.
        fault::remember(view.start()..view.start() + bytes, usize::MAX)?;
        Ok(OneCopy { view, counters, file, is_open: AtomicBool::new(false), is_detached: AtomicBool::new(false) })
    }
}

impl Drop for OneCopy {
    fn drop(&mut self) {
        fault::forget(self.base());
    }
}

/// Memory of which there is one copy, as this process sees it.
#[derive(Debug)]
pub struct OneCopy {
    view: View,
    counters: View,
    file: OwnedFd,
    /// Whether all pages permit everything, since the system permits no more mappings.
    is_open: AtomicBool,
    is_detached: AtomicBool,
}

impl OneCopy {
    /// Where it begins.
    pub fn base(&self) -> usize {
        self.view.start()
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: usize) -> bool {
        (self.base()..self.base() + self.view.bytes()).contains(&address)
    }

    /// Bytes of memory that the file takes, in all processes together.
    pub fn resident_bytes(&self) -> u64 {
        sys::file_bytes(self.file.as_fd())
    }

    /// Byte offset and length of a range of pages, within the view.
    fn bytes_of(&self, pages: &Range<PageNo>) -> (usize, usize) {
        let (start, len) = (pages.start as usize * PAGE_BYTES, pages.len() * PAGE_BYTES);
        assert!(start + len <= self.view.bytes(), "pages outside the memory");
        (start, len)
    }

    fn permit(&self, pages: &Range<PageNo>, protection: i32) {
        let (offset, len) = self.bytes_of(pages);
        if self.is_open.load(Ordering::Acquire) || self.is_detached.load(Ordering::Acquire) {
            return;
        }
        if self.view.mprotect(offset, len, protection).is_err() {
            // The process has as many mappings as it may. One for all needs no more: then wild accesses go unnoticed.
            self.is_open.store(true, Ordering::Release);
            let _ = self.view.mprotect(0, self.view.bytes(), sys::BOTH);
        }
    }

    /// A region of these pages is known: they may be read and written.
    pub fn open(&self, pages: &Range<PageNo>) {
        self.permit(pages, sys::BOTH);
    }

    /// The region of these pages is only read from now on: a store ends in a signal.
    pub fn freeze(&self, pages: &Range<PageNo>) {
        self.permit(pages, libc::PROT_READ);
    }

    /// Whether these pages are mapped, by whomever: false where the program has unmapped some of them.
    pub fn is_mapped(&self, pages: &Range<PageNo>) -> bool {
        let (offset, len) = self.bytes_of(pages);
        sys::is_mapped(self.base() + offset, len)
    }

    /// The region of these pages was freed here.
    pub fn close(&self, pages: &Range<PageNo>) {
        self.permit(pages, libc::PROT_NONE);
    }

    /// Gives the pages' memory back: they are zero for all processes when they are next seen.
    ///
    /// # Errors
    /// What the system refused.
    pub fn discard(&self, pages: &Range<PageNo>) -> io::Result<()> {
        let (offset, len) = self.bytes_of(pages);
        sys::punch(self.file.as_fd(), offset, len)
    }

    /// One more of `processes` has freed the region that begins at a page; whether it is the last one.
    pub fn is_last_to_free(&self, first: PageNo, processes: usize) -> bool {
        let at = first as usize * size_of::<AtomicU32>();
        assert!(at < self.counters.bytes(), "a page outside the memory");
        // SAFETY: within the view, which lives as long as this; all who share the counter use atomic instructions.
        let counter = unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(self.counters.start() + at) };
        let is_last = counter.fetch_add(1, Ordering::AcqRel) as usize + 1 >= processes;
        if is_last {
            counter.store(0, Ordering::Release);
        }
        is_last
    }

    /// Shows pages at another place too, in place of what is mapped there. One range at a time can be shown so.
    ///
    /// A child made by `fork` has what stands there as it was then, as its own.
    ///
    /// # Safety
    /// The range, as long as the pages, is the program's own memory, and nobody needs what stands there.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn show_at(&self, pages: &Range<PageNo>, start: usize) -> io::Result<()> {
        let (offset, len) = self.bytes_of(pages);
        // SAFETY: by this function's contract.
        let view = unsafe { View::over(start, len, sys::BOTH, Some((self.file.as_fd(), offset)), true) }?;
        view.advise(0, len, libc::MADV_DONTFORK)?;
        std::mem::forget(view);
        window::show_to_children(start..start + len, self.file.as_raw_fd(), offset, self.base() + offset);
        Ok(())
    }

    /// Ends [`OneCopy::show_at`]: from now on the place is memory of this process alone, with what stands there.
    ///
    /// # Safety
    /// As for [`OneCopy::show_at`], and what the pages hold is what stands there.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn keep_at(&self, pages: &Range<PageNo>, start: usize) -> io::Result<()> {
        let (offset, len) = self.bytes_of(pages);
        // SAFETY: by this function's contract; the new mapping shows the same bytes.
        let view = unsafe { View::over(start, len, sys::BOTH, Some((self.file.as_fd(), offset)), false) }?;
        std::mem::forget(view);
        window::show_no_more();
        Ok(())
    }

    /// The job is over for this process: the memory is its own from now on, all of it, with what stands there.
    ///
    /// # Errors
    /// What the system refused.
    pub fn detach(&self) -> io::Result<()> {
        if self.is_detached.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the range is this view's own; the new mapping shows the same bytes.
        let own = unsafe { View::over(self.base(), self.view.bytes(), sys::BOTH, Some((self.file.as_fd(), 0)), false) };
        match own {
            Ok(view) => {
                view.wish();
                // The range has an owner already.
                std::mem::forget(view);
            }
            // So much private memory may not be promised (vm.overcommit_memory): it stays shared.
            Err(_) => self.view.mprotect(0, self.view.bytes(), sys::BOTH)?,
        }
        self.view.advise(0, self.view.bytes(), libc::MADV_DONTFORK)
    }

    /// Leaves of the memory no more than these parts, which do not overlap, as memory of this process alone, of which a
    /// child made by `fork` has a copy. All other addresses are free for something else.
    ///
    /// # Safety
    /// Nobody uses anything else of it any more, and it is never dropped. The parts are whole pages.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn shrink_to(&self, keep: &[Range<usize>]) -> io::Result<()> {
        self.detach()?;
        fault::forget(self.base());
        let ours = self.base()..self.base() + self.view.bytes();
        for part in keep.iter().filter(|part| ours.contains(&part.start)) {
            self.view.advise(part.start - ours.start, part.len(), libc::MADV_DOFORK)?;
        }
        // SAFETY: the gaps lie within the view, and nobody uses them.
        gaps(&ours, keep).into_iter().try_for_each(|gap| unsafe { self.give_back(gap) })?;
        // SAFETY: by this function's contract.
        unsafe { self.counters.unmap(0, self.counters.bytes()) }
    }

    /// Gives back a part of the addresses. The memory goes with the last process that has it.
    ///
    /// # Safety
    /// As for [`OneCopy::shrink_to`], of this part.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn give_back(&self, part: Range<usize>) -> io::Result<()> {
        // SAFETY: within the view, and by this function's contract nobody uses it.
        unsafe { self.view.unmap(part.start - self.base(), part.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 600;
    const BYTES: usize = PAGES as usize * PAGE_BYTES;

    /// Two views of one file, as two processes have them.
    fn two(job: u64) -> [OneCopy; 2] {
        let made = OneCopyFile::new(job, BYTES).expect("a memory file");
        let found = OneCopyFile::of(std::process::id(), job, BYTES).expect("a process sees its own files");
        [made, found].map(|file| file.map_anywhere().expect("a view"))
    }

    fn word(memory: &OneCopy, page: u32) -> &AtomicU32 {
        assert!(page < PAGES);
        // SAFETY: the tests ask for pages that are open, or for what was made private.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(memory.base() + page as usize * PAGE_BYTES) }
    }

    #[test]
    fn what_one_view_writes_the_other_reads_until_the_last_one_has_freed_it() {
        let [one, other] = two(1);
        for view in [&one, &other] {
            view.open(&(3..9));
        }
        word(&one, 8).store(5, Ordering::Relaxed);
        assert_eq!(word(&other, 8).fetch_add(1, Ordering::Relaxed), 5);
        assert_eq!(word(&one, 8).load(Ordering::Relaxed), 6);
        assert!(one.resident_bytes() >= PAGE_BYTES as u64);
        assert!(!one.is_last_to_free(3, 2) && !one.is_last_to_free(4, 2), "each region has a counter of its own");
        assert_eq!(word(&other, 8).load(Ordering::Relaxed), 6, "the other one uses it still");
        assert!(other.is_last_to_free(3, 2) && other.is_last_to_free(4, 2));
        other.discard(&(3..9)).expect("memory goes back");
        assert_eq!(word(&one, 8).load(Ordering::Relaxed), 0, "new memory is zero");
        assert!(!one.is_last_to_free(3, 2), "the count begins anew");
    }

    #[test]
    fn nothing_is_mapped_where_something_is() {
        let [one, _] = two(6);
        let file = OneCopyFile::of(std::process::id(), 6, BYTES).expect("a process sees its own files");
        assert!(file.map(one.base()).is_err());
        assert!(one.contains(one.base() + BYTES - 1) && !one.contains(one.base() + BYTES));
        assert!(one.is_mapped(&(0..PAGES)));
    }

    #[test]
    fn each_job_has_a_file_of_its_own() {
        let _file = OneCopyFile::new(2, BYTES).expect("a memory file");
        assert!(OneCopyFile::of(std::process::id(), 3, BYTES).is_err());
        assert!(OneCopyFile::of(std::process::id(), 2, BYTES + PAGE_BYTES).is_err(), "of another size");
    }

    #[test]
    fn what_is_detached_is_this_processs_own_with_what_stood_there() {
        let [one, other] = two(4);
        for view in [&one, &other] {
            view.open(&(0..2));
        }
        word(&one, 1).store(7, Ordering::Relaxed);
        one.detach().expect("a private view");
        word(&one, 1).store(8, Ordering::Relaxed);
        assert_eq!((word(&one, 1).load(Ordering::Relaxed), word(&other, 1).load(Ordering::Relaxed)), (8, 7));
        assert_eq!(word(&one, 400).load(Ordering::Relaxed), 0, "all of it may be read");
    }

    #[test]
    fn a_view_elsewhere_shows_the_same_pages_until_it_is_kept() {
        let [one, other] = two(5);
        other.open(&(0..4));
        let program = View::new(None, 2 * PAGE_BYTES, sys::BOTH, None).expect("memory");
        // SAFETY: memory of this test, which nobody needs.
        unsafe { one.show_at(&(2..4), program.start()) }.expect("a view");
        // SAFETY: a word of the test's memory, which is mapped.
        let seen = unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(program.start() + PAGE_BYTES) };
        word(&other, 3).store(9, Ordering::Relaxed);
        assert_eq!(seen.load(Ordering::Relaxed), 9);
        // SAFETY: as above; the pages are those that it shows.
        unsafe { one.keep_at(&(2..4), program.start()) }.expect("a view");
        assert_eq!(seen.load(Ordering::Relaxed), 9);
        seen.store(1, Ordering::Relaxed);
        assert_eq!(word(&other, 3).load(Ordering::Relaxed), 9);
    }
}
