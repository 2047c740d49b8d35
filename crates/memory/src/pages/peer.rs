//! The tracked arena of another process of this user on this host: to read pages out of it without asking for their bytes, and to store diffs into it
//! without sending them.

use super::sys::{self, View};
use crate::diff;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Another process's memory file, mapped to read, and to write where the system lets us.
#[derive(Debug)]
pub struct PeerView {
    view: View,
    writable: bool,
}

/// Finds a memory file of process `pid` by the beginning of its name and its size.
pub(super) fn memory_file_of(pid: u32, name: &str, bytes: usize, write: bool) -> io::Result<File> {
    let folder = format!("/proc/{pid}/fd");
    for entry in std::fs::read_dir(Path::new(&folder))? {
        let path = entry?.path();
        let named = std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with(name));
        if !named {
            continue;
        }
        let file = File::options().read(true).write(write).open(&path)?;
        if file.metadata()?.len() == bytes as u64 {
            return Ok(file);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the process has no memory file of this size"))
}

impl PeerView {
    /// Finds the memory file of process `pid` and maps its `bytes` bytes.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process see it (another user, another container).
    pub fn open(pid: u32, bytes: usize) -> io::Result<PeerView> {
        let open = |write, protection| {
            let file = memory_file_of(pid, "/memfd:comem-tracked", bytes, write)?;
            View::new(None, bytes, protection, Some(file.as_fd())).map(|view| PeerView { view, writable: write })
        };
        open(true, sys::BOTH).or_else(|_| open(false, libc::PROT_READ))
    }

    /// Whether diffs can be stored into it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Stores the bytes that a diff changed of the unit of `len` bytes at `at`, and no others; `false` where the unit or the diff reaches beyond what
    /// there is.
    pub fn apply(&self, at: usize, len: usize, diff: &[u8]) -> bool {
        if !self.writable || at.checked_add(len).is_none_or(|end| end > self.bytes()) {
            return false;
        }
        let target = std::ptr::with_exposed_provenance_mut::<u8>(self.view.start() + at);
        // SAFETY: within the view, which is writable and stays mapped; the other process's threads see each changed byte old or new.
        unsafe { diff::apply(target, len, diff) }.is_ok()
    }

    /// Compares a unit of this process with its twin and stores what differs at `at` here and in the twin ([`diff::put`]); `None`, and nothing done, where
    /// that reaches beyond what there is or may not be written. Returns the count of changed bytes.
    ///
    /// # Safety
    /// `now .. now + twin.len()` is readable.
    pub unsafe fn put(
        &self,
        at: usize,
        now: *const u8,
        twin: &mut [u8],
        changed: &mut dyn FnMut(usize, u64),
    ) -> Option<usize> {
        if !self.writable || at.checked_add(twin.len()).is_none_or(|end| end > self.bytes()) {
            return None;
        }
        let target = std::ptr::with_exposed_provenance_mut::<u8>(self.view.start() + at);
        // SAFETY: the target lies within the view, which is writable and stays mapped; the rest is the caller's promise.
        Some(unsafe { diff::put(now, twin, target, changed) })
    }

    /// Where it begins. The other process writes to it while this one reads: what a copy brings of words that are being written is any
    /// mixture of old and new ones.
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
            // SAFETY: within the view, which stays mapped. What the other node writes meanwhile does not matter: the byte is not used,
            // and the page is mapped now, without which a hint would have no effect.
            unsafe { self.start().add(page).read_volatile() };
            crate::ahead::of_reads(self.start().wrapping_add(page), (end - page).min(super::PAGE_BYTES));
        }
    }
}
