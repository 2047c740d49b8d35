//! Pages whose diffs stay with their writers (engines `lrc` and `multicast`): what the node keeps for all of them, and
//! the threads' side of their faults and collections. [`kept_diffs`](comem_protocol::coherence::pages::kept_diffs) has
//! the idea.

use crate::error::Result;
use crate::mutex::Mutex;
use crate::shared::Shared;
use crate::thread::Thread;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::kept_diffs::serve::send_asks;
use comem_protocol::coherence::pages::kept_diffs::{Ask, Stamp};
use comem_protocol::ids::NodeId;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What a node has of such pages beside their tables.
#[derive(Debug, Default)]
pub(crate) struct KeptDiffs {
    /// The diffs of intervals up to this stamp are in the tables.
    closed: AtomicU64,
    /// All nodes have heard of what was written up to this stamp, or will as they leave the last barrier.
    barrier: AtomicU64,
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

    pub(super) fn barrier(&self) -> Stamp {
        self.barrier.load(Ordering::Acquire)
    }

    pub(super) fn has_passed(&self, stamp: Stamp) {
        self.barrier.store(stamp, Ordering::Release);
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

    /// A barrier has opened: completes the copies that its collection demands.
    pub(super) fn complete_copies(&self, thread: &Thread, shared: &Shared) -> Result<()> {
        let asks = std::mem::take(&mut *self.to_complete.lock());
        if asks.is_empty() {
            return Ok(());
        }
        thread.ask_writers(shared, &asks);
        asks.iter().try_for_each(|(_, ask)| thread.wait_for_fetch(ask.page, || shared.is_fetching(ask.page)))
    }
}

/// What is said where a collection has dropped diffs that the manager of their page lacks.
pub(super) fn diffs_lost(shared: &Shared, page: PageNo) -> String {
    let region = shared.table.find(page).map_or(String::new(), |known| format!(", in {}", known.name()));
    format!(
        "what other nodes wrote to the page at {:#x}{region} is lost: all nodes have dropped their diffs, and this \
         one, which manages the page, has not got them; please report this, and run with --engine hlrc until it is \
         mended",
        shared.address_of(page)
    )
}

impl Thread {
    /// Asks writers for diffs.
    pub(in crate::shared) fn ask_writers(&self, shared: &Shared, asks: &[(NodeId, Ask)]) {
        let (epoch, mut sent) = (shared.epoch.load(Ordering::Acquire), 0);
        self.stepping(|out| sent = send_asks(asks, epoch, out));
        self.counters().page_requests.add(sent as u64);
    }
}
