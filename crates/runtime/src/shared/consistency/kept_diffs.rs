//! Pages whose diffs stay with their writers (engine `lrc`): what the node keeps for all of them, and the threads' side
//! of their faults and collections. [`kept_diffs`](comem_protocol::coherence::pages::kept_diffs) has the idea.

use crate::error::Result;
use crate::mutex::Mutex;
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_protocol::coherence::pages::kept_diffs::serve::send_asks;
use comem_protocol::coherence::pages::kept_diffs::{Ask, Stamp};
use comem_protocol::coherence::pages::node::kept_diffs::reuse;
use comem_protocol::coherence::pages::{PageEngine, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::outbox::Outbox;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What a node has of such pages beside their tables.
#[derive(Debug, Default)]
pub(crate) struct KeptDiffs {
    /// The diffs of intervals up to this stamp are in the tables.
    closed: AtomicU64,
    /// Bytes that the tables keep of this node's writes.
    bytes: AtomicI64,
    /// The most that they have kept at a time.
    bytes_most: AtomicI64,
    /// More than so many are collected.
    bytes_max: u64,
    /// What is to be asked for before threads leave the barrier that has opened.
    to_complete: Mutex<Vec<(NodeId, Ask)>>,
}

impl KeptDiffs {
    /// Of a node that collects when it keeps more than so many bytes.
    pub(crate) fn new(bytes_max: u64) -> KeptDiffs {
        KeptDiffs { bytes_max, ..KeptDiffs::default() }
    }

    pub(crate) fn closed(&self) -> Stamp {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn has_closed(&self, stamp: Stamp) {
        self.closed.store(stamp, Ordering::Release);
    }

    pub(super) fn grew(&self, bytes: i64) {
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes_most.fetch_max(now, Ordering::Relaxed);
    }

    /// The most bytes that were kept here at a time.
    pub(crate) fn bytes_most(&self) -> u64 {
        self.bytes_most.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes that are kept here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).max(0) as u64
    }

    pub(super) fn wants_collection(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    pub(super) fn must_complete(&self, mut asks: Vec<(NodeId, Ask)>) {
        self.to_complete.lock().append(&mut asks);
    }
}

/// What is said where a collection has dropped diffs that the manager of their page lacks.
pub(super) fn diffs_lost(shared: &Shared, page: PageNo) -> String {
    let region = shared.table.find(page).map_or(String::new(), |known| format!(", in {}", known.name()));
    format!(
        "what other nodes wrote to the page at {:#x}{region} is lost: all nodes have dropped their diffs, and this one, \
         which manages the page, has not got them; please report this, and run with --engine hlrc until it is mended",
        shared.address_of(page)
    )
}

impl Thread {
    /// Asks for what a fault on the page needs, and waits until its unit is not being fetched any more.
    pub(in crate::shared) fn ask_writers(
        &self,
        shared: &Shared,
        known: &RegionState,
        page: PageNo,
        asks: &[(NodeId, Ask)],
    ) -> Result<()> {
        self.send_kept_asks(asks);
        self.wait_for_fetch_of(shared, known, page)
    }

    fn send_kept_asks(&self, asks: &[(NodeId, Ask)]) {
        let mut sent = 0;
        self.stepping(|out| sent = send_asks(asks, out));
        self.counters().page_requests.add(sent as u64);
    }

    /// Memory is given out again, and is about to be zeroed. `stamp`: another node has freed it, and had heard of all up
    /// to this one.
    pub(in crate::shared) fn uses_again(
        &self,
        shared: &Shared,
        engine: PageEngine,
        memory: Range<usize>,
        stamp: Option<Stamp>,
    ) {
        // Where an acquire brings all that happened before, whoever gets the memory next hears of what this node had
        // heard of when it freed it.
        let must_tell = stamp.is_some() || engine.is_scoped();
        if !engine.keeps_diffs() || !must_tell || shared.views.is_none() {
            return;
        }
        let mut side = Outbox::new();
        let mut intervals = shared.intervals.lock();
        let mut pages = self.home().node_pages(shared, self.slot(), &mut side);
        let bytes = memory.start - shared.base..memory.end - shared.base;
        reuse(&mut pages, &mut intervals, bytes, stamp.unwrap_or_default());
        drop(intervals);
        self.home().flush(self.slot(), &mut side);
    }

    /// A barrier has opened: completes the copies that its collection demands.
    pub(super) fn complete_copies(&self, shared: &Shared) -> Result<()> {
        let asks = std::mem::take(&mut *shared.kept_diffs.to_complete.lock());
        if asks.is_empty() {
            return Ok(());
        }
        self.send_kept_asks(&asks);
        asks.iter().try_for_each(|(_, ask)| self.wait_for_fetch(ask.page))
    }
}
