//! Who wrote where to pages whose home is here, as far as this node learns it, to find false sharing.

use crate::mutex::Mutex;
use crate::shared::heap::table::Table;
use comem_memory::diff;
use comem_memory::pages::SharedDirectory;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::sharing::{Sharing, Touched};
use comem_protocol::ids::NodeId;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes to pages whose home is here, by node.
///
/// The count of notes is locked before what they say. Nothing is taken behind either but the table of regions, to look
/// one up.
#[derive(Debug, Default)]
pub(crate) struct FalseSharing {
    found: Mutex<Sharing>,
    /// How many notes of who put diffs here were taken, or had been written over.
    putters_noted: Mutex<u64>,
    /// How many of them had been.
    putters_missed: AtomicU64,
}

impl FalseSharing {
    /// Takes note of who wrote where to a page, in the epoch in which it did.
    pub(super) fn note_writer(&self, table: &Table, writer: NodeId, epoch: u32, page: PageNo, encoded: &[u8]) {
        let Some(known) = table.find(page) else { return };
        let mut found = self.found.lock();
        // Of such a page there is nothing to read.
        if known.region.unit_pages() == 1 && found.is_known(page) {
            return;
        }
        diff::marks(encoded, |number, marks| {
            found.note(epoch, writer, page + number as u32, Touched::of(marks));
        });
    }

    /// Takes note of who put diffs into this node's memory, as its directory says, if it
    /// has one.
    pub(crate) fn note_putters(&self, directory: Option<&SharedDirectory>) {
        let Some(directory) = directory else { return };
        let (mut noted, found) = (self.putters_noted.lock(), RefCell::new(self.found.lock()));
        let wanted = |page| !found.borrow().is_known(page);
        let (end, missed) = directory.writers(*noted, wanted, |writer, epoch, page, touched| {
            found.borrow_mut().note(epoch, NodeId(writer), page, touched);
        });
        self.putters_missed.fetch_add(missed, Ordering::Relaxed);
        *noted = end.max(*noted);
    }

    /// The home itself wrote these pages in the interval that closes; nobody knows which bytes.
    pub(super) fn note_home(&self, epoch: u32, me: NodeId, pages: Range<PageNo>) {
        self.found.lock().note_home(epoch, me, pages);
    }

    /// These pages are no region's any more.
    pub(in crate::shared) fn forget(&self, pages: &Range<PageNo>) {
        self.found.lock().forget(pages);
    }

    /// How often a write of another node to a page whose home is here was not looked at.
    pub(crate) fn unseen(&self) -> u64 {
        self.found.lock().passed_over() + self.putters_missed.load(Ordering::Relaxed)
    }

    /// What was found, to be told.
    pub(crate) fn found(&self) -> MutexGuard<'_, Sharing> {
        self.found.lock()
    }
}
