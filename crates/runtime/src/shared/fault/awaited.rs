//! What a faulting thread waits for, as whoever takes in the answer finds it.
//!
//! The answer to a fetch names pages. Whoever takes it in, mostly the thread itself, finds their region here instead of
//! looking it up, and says here that the page is not being fetched any more, while it has the page table's lock anyway.
//! So the thread need not take that lock to see whether it waits on.

use crate::mutex::Mutex;
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::page_table::PageTable;
use comem_protocol::coherence::pages::wire::RequiredDiff;
use comem_protocol::ids::{NodeId, Slot};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// No page.
const NONE: PageNo = PageNo::MAX;

/// What the thread in a slot waits for.
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::shared) struct Awaited {
    page: AtomicU32,
    /// The page is not being fetched any more.
    over: AtomicBool,
    /// There is something in `fetch`.
    waits: AtomicBool,
    fetch: Mutex<AwaitedFetch>,
}

#[derive(Debug, Default)]
struct AwaitedFetch {
    region: Option<Arc<RegionState>>,
    /// What the page's home will have applied when it has answered.
    needs: Option<(NodeId, Vec<RequiredDiff>)>,
}

impl Default for Awaited {
    fn default() -> Awaited {
        Awaited {
            page: AtomicU32::new(NONE),
            over: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            fetch: Mutex::default(),
        }
    }
}

impl Awaited {
    /// The thread's fault on this page begins; the lock of its page table is held.
    pub(in crate::shared) fn begin(&self, page: PageNo) {
        self.over.store(false, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
    }

    /// The thread waits for an answer from now on, which comes after this. Of the page's home it has asked `needs`.
    pub(in crate::shared) fn waits(&self, region: &Arc<RegionState>, needs: Option<(NodeId, Vec<RequiredDiff>)>) {
        *self.fetch.lock() = AwaitedFetch { region: Some(region.clone()), needs };
        self.waits.store(true, Ordering::Release);
    }

    /// The thread's fault is over.
    pub(in crate::shared) fn end(&self) {
        self.page.store(NONE, Ordering::Relaxed);
        if self.waits.load(Ordering::Relaxed) {
            self.waits.store(false, Ordering::Relaxed);
            *self.fetch.lock() = AwaitedFetch::default();
        }
    }

    /// Whether the page is known not to be fetched any more.
    pub(in crate::shared) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The region in which the thread's fault is.
    pub(in crate::shared) fn region(&self) -> Option<Arc<RegionState>> {
        if self.waits.load(Ordering::Acquire) { self.fetch.lock().region.clone() } else { None }
    }
}

impl Shared {
    /// What the thread in this slot waits for.
    pub(in crate::shared) fn awaited(&self, slot: Slot) -> &Awaited {
        &self.awaited[slot.index()]
    }

    /// A step of this page table has ended, which may have brought what the thread in the slot waits for; the table's
    /// lock is held.
    pub(in crate::shared) fn has_stepped(&self, slot: Slot, table: &PageTable) {
        let Some(awaited) = self.awaited.get(slot.index()) else { return };
        let page = awaited.page.load(Ordering::Relaxed);
        let shape = table.layout();
        if !(shape.first..shape.first + shape.pages).contains(&page)
            || table.unit(page).is_fetching()
            || awaited.is_over()
        {
            return;
        }
        // The home has answered, so it need not be told again what it had to have applied.
        let needs = if awaited.waits.load(Ordering::Acquire) { awaited.fetch.lock().needs.take() } else { None };
        if let Some((home, needs)) = needs {
            self.needs.lock().confirm(home, &needs);
        }
        awaited.over.store(true, Ordering::Release);
    }
}
