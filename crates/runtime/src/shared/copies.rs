//! The cache's bound, and which copies of other nodes' pages are given up for it.
//!
//! Chunks with copies stand in a list from the first that comes until the last one's memory is given back, whether or not an interval's close has
//! anything to do there. When a fetch would go beyond the bound, copies go that are of no use now, for they have ended or lie aside; then those of the
//! chunk that has been in the list longest, and of the next, and that comes to the list's end if something of it stays.

use super::Shared;
use super::gather::Gather;
use super::table::Marks;
use crate::error::Result;
use crate::node::Node;
use crate::thread::Thread;
use comem_protocol::coherence::pages::ledger::Ledger;
use comem_protocol::coherence::pages::{PageNo, Tally};
use comem_protocol::ids::Slot;
use comem_protocol::outbox::Outbox;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Which copies of a chunk go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    /// Those that are of no use now; the chunk was taken from the list of such.
    Idle,
    All,
}

/// Where copies are.
#[derive(Default, Debug)]
pub(super) struct Copies {
    lists: Mutex<Lists>,
}

#[derive(Default, Debug)]
struct Lists {
    /// Chunks with copies, by their first pages, in the order in which their turns come.
    chunks: VecDeque<PageNo>,
    /// Those in which copies may be idle, the oldest first.
    idle: VecDeque<PageNo>,
}

impl Copies {
    /// A step of the chunk that begins at this page has ended; its lock is held.
    pub(super) fn book(&self, first: PageNo, marks: &mut Marks, tally: &Tally) {
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
    /// Whether so many more pages would not fit the cache's bound.
    pub(super) fn is_full(&self, pages: u64) -> bool {
        self.cached_pages.load(Ordering::Relaxed) + pages > self.cache_pages_max
    }
}

impl Thread {
    /// Gives copies up until `pages` more fit the cache's bound: clean ones are dropped, written ones flushed first.
    pub(super) fn make_cache_room(&self, shared: &Shared, pages: u64) -> Result<()> {
        let (node, slot) = (self.home(), self.slot());
        if !shared.is_full(pages) {
            return Ok(());
        }
        let mut side = Outbox::new();
        let mut ledger = shared.ledger.lock();
        let copies = &shared.copies;
        while shared.is_full(pages)
            && let Some(first) = copies.next_idle()
        {
            node.evict_chunk(shared, &mut ledger, (first, Which::Idle), slot, &mut side);
        }
        for _ in 0..copies.len() {
            if !shared.is_full(pages) {
                break;
            }
            let Some(first) = copies.next() else { break };
            node.evict_chunk(shared, &mut ledger, (first, Which::All), slot, &mut side);
        }
        drop(ledger);
        node.flush(slot, &mut side);
        self.give_units_back(shared, pages)
    }
}

impl Node {
    /// Gives up a chunk's copies, written ones after a flush. The caller holds the ledger.
    fn evict_chunk(
        &self,
        shared: &Shared,
        ledger: &mut Ledger,
        (first, which): (PageNo, Which),
        slot: Slot,
        side: &mut Outbox,
    ) {
        let Some(views) = shared.views.as_ref() else { return };
        let mut gather = Gather::new(self, shared, ledger);
        let done = shared.table.step(views, first, |known, chunk, frames, marks| {
            marks.idle &= which != Which::Idle;
            self.step_listed(slot, shared, known, (chunk, frames, marks), side, |chunk, cx| {
                let pages = first..first + chunk.shape().pages;
                match which {
                    Which::Idle => chunk.evict_idle(cx, &pages, &mut gather),
                    Which::All => chunk.evict(cx, &pages, &mut gather),
                };
            });
        });
        gather.send(slot, side);
        if done.is_none() {
            shared.copies.forget(first);
        }
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
        let (copies, mut marks) = (Copies::default(), [Marks::default(); 2]);
        copies.book(512, &mut marks[0], &tally(3, 0));
        copies.book(1024, &mut marks[1], &tally(1, 0));
        assert_eq!((copies.len(), copies.next_idle()), (2, None));
        (0..5).for_each(|_| copies.book(512, &mut marks[0], &tally(0, 1)));
        assert_eq!(copies.next(), Some(512));
        assert_eq!(copies.next(), Some(1024), "by turns");
        copies.book(1024, &mut marks[1], &tally(-1, 1));
        assert_eq!((copies.len(), copies.next()), (1, Some(512)));
        assert_eq!([copies.next_idle(), copies.next_idle()], [Some(512), None]);
        copies.book(512, &mut marks[0], &tally(-3, 0));
        assert_eq!(copies.len(), 0);
    }
}
