//! The tracked arena of another process of this user on this host: to read pages out of it without asking for their
//! bytes, and to store diffs into it without sending them.

use super::sys::{self, View};
use crate::diff;
use comem_protocol::coherence::pages::ByteMarks;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Another process's memory file, mapped to read, and to write where the system lets us.
#[derive(Debug)]
pub struct PeerView {
    view: View,
    writable: bool,
}

/// The kind of memory file that has an arena whose pages other processes read.
pub(super) const TRACKED: &str = "tracked";

/// Finds process `pid`'s own memory file of a kind and a size, among those of other processes that it may have open.
pub(crate) fn memory_file_of(pid: u32, kind: &str, bytes: usize, write: bool) -> io::Result<File> {
    let own = format!("/memfd:{} (deleted)", sys::file_name(kind, pid));
    // A process of a large job has many sockets, opened before its memory files: the last are looked at first.
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))?.collect::<io::Result<Vec<_>>>()?;
    for path in entries.iter().rev().map(std::fs::DirEntry::path) {
        if !std::fs::read_link(&path).is_ok_and(|to| to.as_os_str() == own.as_str()) {
            continue;
        }
        let file = File::options().read(true).write(write).open(&path)?;
        if file.metadata()?.len() == bytes as u64 {
            return Ok(file);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the process has no memory file of this kind and size"))
}

impl PeerView {
    /// Finds the memory file of process `pid` and maps its `bytes` bytes.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process see it (another user, another container).
    pub fn open(pid: u32, bytes: usize) -> io::Result<PeerView> {
        let open = |write, protection| {
            let file = memory_file_of(pid, TRACKED, bytes, write)?;
            View::new(None, bytes, protection, Some(file.as_fd())).map(|view| PeerView { view, writable: write })
        };
        open(true, sys::BOTH).or_else(|_| open(false, libc::PROT_READ))
    }

    /// Gives its addresses back.
    ///
    /// # Safety
    /// Nobody uses it any more, and it is never dropped.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn unmap(&self) -> io::Result<()> {
        // SAFETY: by this function's contract.
        unsafe { self.view.unmap(0, self.view.bytes()) }
    }

    /// Whether diffs can be stored into it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Stores the bytes that a diff changed of the unit of `len` bytes at `at`, and no others; `false` where the unit
    /// or the diff reaches beyond what there is.
    pub fn apply(&self, at: usize, len: usize, diff: &[u8]) -> bool {
        if !self.writable || at.checked_add(len).is_none_or(|end| end > self.bytes()) {
            return false;
        }
        let target = std::ptr::with_exposed_provenance_mut::<u8>(self.view.start() + at);
        // SAFETY: within the view, which is writable and stays mapped; the other process's threads see each changed
        // byte old or new.
        unsafe { diff::apply(target, len, diff) }.is_ok()
    }

    /// Compares a unit of this process with its twin and stores what differs at `at` here and in the twin
    /// ([`diff::put`]); `None`, and nothing done, where that reaches beyond what there is or may not be written.
    /// Returns the count of changed bytes.
    ///
    /// # Safety
    /// `now .. now + twin.len()` is readable.
    pub unsafe fn put(
        &self,
        at: usize,
        now: *const u8,
        twin: &mut [u8],
        changed: &mut dyn FnMut(usize, &ByteMarks),
    ) -> Option<usize> {
        if !self.writable || at.checked_add(twin.len()).is_none_or(|end| end > self.bytes()) {
            return None;
        }
        let target = std::ptr::with_exposed_provenance_mut::<u8>(self.view.start() + at);
        // SAFETY: the target lies within the view, which is writable and stays mapped; the rest is the caller's
        // promise.
        Some(unsafe { diff::put(now, twin, target, changed) })
    }

    /// The word at `at`, to change it there; `None` where it reaches beyond what there is or may not be written.
    pub fn word(&self, at: usize) -> Option<*mut u8> {
        let inside = at.checked_add(size_of::<u64>()).is_some_and(|end| end <= self.bytes());
        (self.writable && inside).then(|| std::ptr::with_exposed_provenance_mut(self.view.start() + at))
    }

    /// Where it begins. The other process writes to it while this one reads: what a copy brings of words that are being
    /// written is any mixture of old and new ones.
    pub fn start(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.view.start())
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.view.bytes()
    }

    /// Brings bytes nearer that will probably be read soon; those beyond the end are none.
    pub fn look_ahead(&self, bytes: std::ops::Range<usize>) {
        let end = bytes.end.min(self.bytes());
        for page in (bytes.start..end).step_by(super::PAGE_BYTES) {
            // SAFETY: within the view, which stays mapped. What the other node writes meanwhile does not matter: the
            // byte is not used, and the page is mapped now, without which a hint would have no effect.
            unsafe { self.start().add(page).read_volatile() };
            crate::prefetch_hint::of_reads(self.start().wrapping_add(page), (end - page).min(super::PAGE_BYTES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{Arena, Detector, PAGE_BYTES, Tracking};

    /// A process that maps other processes' files has them open for a moment, where whoever looks for its own may come
    /// upon them.
    #[test]
    fn a_process_is_not_taken_for_another_whose_file_it_has_open() {
        let (pid, bytes) = (std::process::id(), 3 * PAGE_BYTES);
        // One gets a lower number than the process's own file and one a higher: one of them is found first.
        let of_another = || sys::named_file(&sys::file_name("of-a-test", 10 * pid), bytes).expect("a memory file");
        let before = of_another();
        assert!(memory_file_of(pid, "of-a-test", bytes, false).is_err(), "its own does not exist");
        let own = File::from(sys::memory_file("of-a-test", bytes).expect("a memory file"));
        let behind = of_another();
        let found = memory_file_of(pid, "of-a-test", bytes, false).expect("a process sees its own files");
        let number = |file: &File| std::os::unix::fs::MetadataExt::ino(&file.metadata().expect("an open file"));
        assert_eq!(number(&found), number(&own));
        assert!([before, behind].map(|file| number(&File::from(file))).iter().all(|other| *other != number(&found)));
        assert!(memory_file_of(pid, "of-a-test", bytes + 1, false).is_err(), "of another size");
    }

    #[test]
    fn what_is_stored_in_another_processs_arena_stays_within_it() {
        const PAGES: usize = 37;
        let page = |byte| vec![byte; PAGE_BYTES];
        let arena = Arena::anywhere(PAGES * PAGE_BYTES, Tracking::Tracked, Detector::Mprotect).expect("an arena");
        let view = PeerView::open(std::process::id(), PAGES * PAGE_BYTES).expect("a process sees its own files");
        let mut diff = Vec::new();
        diff::make_slice(&page(3), &mut page(0), &mut diff);
        let put = |view: &PeerView, at| {
            let now = page(4);
            // SAFETY: a page is readable there.
            unsafe { view.put(at, now.as_ptr(), &mut page(0), &mut |_, _| ()) }
        };
        let last = (PAGES - 1) * PAGE_BYTES;
        // SAFETY: a byte of the service view.
        let byte = |at| unsafe { arena.service().add(at).read_volatile() };
        assert!(view.is_writable() && view.bytes() == PAGES * PAGE_BYTES);
        assert!(view.apply(last, PAGE_BYTES, &diff));
        assert_eq!((put(&view, 0), byte(last), byte(0)), (Some(PAGE_BYTES), 3, 4));
        for outside in [last + 1, PAGES * PAGE_BYTES, usize::MAX] {
            assert!(!view.apply(outside, PAGE_BYTES, &diff) && put(&view, outside).is_none());
        }
        view.look_ahead(last..usize::MAX);
        let file = Some(arena.file());
        let only_read = View::new(None, PAGES * PAGE_BYTES, libc::PROT_READ, file).expect("a view");
        let only_read = PeerView { view: only_read, writable: false };
        assert!(!only_read.apply(0, PAGE_BYTES, &diff) && put(&only_read, 0).is_none());
        let end = PAGES * PAGE_BYTES;
        assert!(view.word(end - 8).is_some() && [end - 7, end, usize::MAX].iter().all(|at| view.word(*at).is_none()));
        assert!(only_read.word(0).is_none());
    }
}
