//! The cache's bound, and which copies of other nodes' pages are given up for it.
//!
//! Chunks with copies stand in a list from the first that comes until the last one's memory is given back, whether or
//! not an interval's close has anything to do there. When a fetch would go beyond the bound, copies go that are of no
//! use now, for they are invalid or untracked; then those of the chunk that has been in the list longest, and of the
//! next, and that comes to the list's end if something of it stays.
//!
//! Homes that come here take memory that was another node's share of it, without a twin: two of their pages leave room
//! for a copy less. When they have taken as much as the bound, no more come as long as none go: this node says of what
//! it writes that it does not hold it, and claims nothing (`NodePages::finds_room_for_homes`). So its memory stays
//! within what its share and the cache take, whoever initialises everything.
//!
//! Whole chunks go, since nothing tells which of their pages are in use. So once copies had to go that may be, less is
//! fetched ahead: as many faults as the cache has pages, no more than an eighth of it for a page, and nothing for
//! sequences with a stride, where such have ended early ([`Shared::under_pressure`]).
//!
//! An access may need several units at once: it spans two, or its instruction has two operands. So what each thread met
//! in its last faults stays, and the bound is never less than that.

use crate::error::Result;
use crate::mutex::Mutex;
use crate::shared::Shared;
use crate::shared::fault::PageFault;
use crate::shared::heap::table::{ListMembership, RegionState};
use comem_protocol::coherence::pages::node::evict::{Which, evict};
use comem_protocol::coherence::pages::{PageNo, Tally};
use comem_protocol::ids::Slot;
use comem_protocol::outbox::Outbox;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Units that one instruction may need: two operands, each across a boundary.
const UNITS_OF_INSTRUCTION: usize = 4;

/// The pages of a thread's last faults, which it alone notes.
#[derive(Default, Debug)]
struct Touched {
    pages: [AtomicU32; UNITS_OF_INSTRUCTION],
    next: AtomicU32,
}

/// Where copies are.
#[derive(Debug)]
pub(in crate::shared) struct PageCache {
    lists: Mutex<Lists>,
    touched: Vec<Touched>,
    /// For so many faults more it counts that copies in use had to go.
    under_pressure: AtomicU64,
}

#[derive(Default, Debug)]
struct Lists {
    /// Chunks with copies, by their first pages, in the order in which their turns come.
    chunks: VecDeque<PageNo>,
    /// Those in which copies may be idle, the oldest first.
    idle: VecDeque<PageNo>,
}

impl PageCache {
    pub(in crate::shared) fn new(slots: usize) -> PageCache {
        PageCache {
            lists: Mutex::default(),
            touched: (0..slots).map(|_| Touched::default()).collect(),
            under_pressure: AtomicU64::new(0),
        }
    }

    /// A step of the chunk that begins at this page has ended; its lock is held.
    pub(in crate::shared) fn account(&self, first: PageNo, marks: &mut ListMembership, tally: &Tally) {
        let before = marks.held;
        marks.held += tally.held;
        let ended = tally.invalidations > 0 || tally.void_fetches > 0 || tally.laid_aside > 0;
        let idle = marks.held > 0 && (marks.idle || ended);
        if (before > 0, marks.idle) == (marks.held > 0, idle) {
            return;
        }
        let mut lists = self.lists.lock();
        match (before > 0, marks.held > 0) {
            (false, true) => lists.chunks.push_back(first),
            (true, false) => lists.chunks.retain(|f| *f != first),
            _ => {}
        }
        match (marks.idle, idle) {
            (false, true) => lists.idle.push_back(first),
            (true, false) => lists.idle.retain(|f| *f != first),
            _ => {}
        }
        marks.idle = idle;
    }

    /// A thread's access to this page faulted.
    pub(in crate::shared) fn is_touched(&self, slot: Slot, page: PageNo) {
        let Some(touched) = self.touched.get(slot.index()) else { return };
        if touched.pages.iter().any(|p| p.load(Ordering::Relaxed) == page) {
            return;
        }
        let next = touched.next.load(Ordering::Relaxed);
        touched.next.store(next.wrapping_add(1), Ordering::Relaxed);
        touched.pages[next as usize % UNITS_OF_INSTRUCTION].store(page, Ordering::Relaxed);
    }

    /// What threads met in their last faults, in order.
    fn spared(&self) -> Vec<PageNo> {
        let pages = self.touched.iter().flat_map(|touched| &touched.pages);
        let mut spared: Vec<PageNo> = pages.map(|page| page.load(Ordering::Relaxed)).collect();
        spared.sort_unstable();
        spared
    }

    /// The chunk whose turn it is to give up what is idle; it is in that list no more.
    fn next_idle(&self) -> Option<PageNo> {
        self.lists.lock().idle.pop_front()
    }

    /// The chunk whose turn it is to give up everything; it comes to the list's end.
    fn next(&self) -> Option<PageNo> {
        let mut lists = self.lists.lock();
        let first = lists.chunks.pop_front()?;
        lists.chunks.push_back(first);
        Some(first)
    }

    /// There is no such chunk any more.
    fn forget(&self, first: PageNo) {
        self.lists.lock().chunks.retain(|f| *f != first);
    }

    fn len(&self) -> usize {
        self.lists.lock().chunks.len()
    }
}

impl Shared {
    /// Whether so many more pages would not fit the cache's bound, as far as homes that came here leave room.
    pub(in crate::shared) fn is_full(&self, pages: u64) -> bool {
        self.would_be_full(pages, self.home_quota.pages())
    }

    /// The same with so many homes that came here.
    fn would_be_full(&self, pages: u64, gained: u64) -> bool {
        let (max, least) = (self.cache_pages_max.load(Ordering::Relaxed), &self.cache_pages_least);
        // A copy may have a twin.
        let left = max - (gained / 2).min(max);
        self.cached_pages.load(Ordering::Relaxed) + pages > left.max(least.load(Ordering::Relaxed))
    }

    /// A thread faults: where copies in use had to go not long ago, so many pages at most are fetched ahead with a
    /// page.
    pub(in crate::shared) fn under_pressure(&self) -> Option<u64> {
        let crowded = &self.page_cache.under_pressure;
        let left = crowded.load(Ordering::Relaxed);
        if left == 0 {
            return None;
        }
        crowded.store(left - 1, Ordering::Relaxed);
        Some(self.cache_pages_max.load(Ordering::Relaxed) / self.tuning.cache.prefetch_part)
    }

    /// Whether a page of this region has its home at another node.
    pub(in crate::shared) fn is_elsewhere(&self, known: &RegionState, page: PageNo) -> bool {
        self.views
            .as_ref()
            .is_some_and(|views| known.step(views, page, |_, table, _, _| table.unit(page).is_elsewhere()))
    }

    /// Memory in units of so many pages was allocated: the bound is not less than what all threads may need of such at
    /// once.
    pub(in crate::shared) fn make_bound_fit(&self, unit_pages: u32) {
        let threads = self.page_cache.touched.len().saturating_sub(1).max(1);
        let least = (threads * UNITS_OF_INSTRUCTION) as u64 * u64::from(unit_pages);
        self.cache_pages_least.fetch_max(least, Ordering::Relaxed);
        self.cache_pages_max.fetch_max(least, Ordering::Relaxed);
    }
}

impl PageFault<'_> {
    /// Gives copies up until `pages` more fit the cache's bound, which they do not: clean ones are dropped, written
    /// ones flushed first.
    pub(in crate::shared) fn make_cache_room(&self, pages: u64) -> Result<()> {
        let PageFault { thread, shared, .. } = *self;
        let (node, slot) = (thread.home(), thread.slot());
        let mut side = Outbox::new();
        let mut evicting = node.node_pages(shared, slot, &mut side);
        if !shared.would_be_full(pages, 0) {
            // Only homes that came are in the way.
            evicting.collect_remote_claims();
        }
        let mut intervals = shared.intervals.lock();
        let (copies, spared) = (&shared.page_cache, shared.page_cache.spared());
        let mut give_up = |what: (PageNo, Which)| {
            if !evict(&mut evicting, &mut intervals, what, &spared) {
                copies.forget(what.0);
            }
        };
        while shared.is_full(pages)
            && let Some(first) = copies.next_idle()
        {
            give_up((first, Which::Idle));
        }
        for _ in 0..copies.len() {
            if !shared.is_full(pages) {
                break;
            }
            let Some(first) = copies.next() else { break };
            copies.under_pressure.store(shared.cache_pages_max.load(Ordering::Relaxed), Ordering::Relaxed);
            give_up((first, Which::All));
        }
        drop(intervals);
        node.flush(slot, &mut side);
        self.give_units_back(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(held: i64, invalidations: u64) -> Tally {
        Tally { held, invalidations, ..Tally::default() }
    }

    #[test]
    fn chunks_are_listed_as_long_as_copies_are_there_and_idle_ones_once() {
        let (copies, mut marks) = (PageCache::new(1), [ListMembership::default(); 2]);
        copies.account(512, &mut marks[0], &tally(3, 0));
        copies.account(1024, &mut marks[1], &tally(1, 0));
        assert_eq!((copies.len(), copies.next_idle()), (2, None));
        (0..5).for_each(|_| copies.account(512, &mut marks[0], &tally(0, 1)));
        assert_eq!(copies.next(), Some(512));
        assert_eq!(copies.next(), Some(1024), "by turns");
        copies.account(1024, &mut marks[1], &tally(-1, 1));
        assert_eq!((copies.len(), copies.next()), (1, Some(512)));
        assert_eq!([copies.next_idle(), copies.next_idle()], [Some(512), None]);
        copies.account(512, &mut marks[0], &tally(-3, 0));
        assert_eq!(copies.len(), 0);
    }

    #[test]
    fn what_a_thread_met_in_its_last_faults_is_spared() {
        let copies = PageCache::new(2);
        [7, 8, 7, 9, 3, 4].into_iter().for_each(|page| copies.is_touched(Slot::thread(0), page));
        assert_eq!(copies.spared()[4..], [3, 4, 8, 9], "without another thread's, which met nothing");
    }
}
