//! After an acquire, the copies that it ended and that were in use are fetched again, without faults: a few requests to
//! each home.

use crate::error::Result;
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::thread::Thread;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::node::invalidate::fetch_again;
use comem_protocol::coherence::pages::wire::{FETCH_PAGES_MAX, Fetch};
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Time;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Pages of one home, in state `Fetching`, that were not asked for yet.
struct Wanted {
    home: NodeId,
    runs: Vec<Range<PageNo>>,
}

/// What is being fetched again. It must be finished: others may wait for these pages by now.
#[derive(Default)]
pub(crate) struct AcquirePrefetch {
    wanted: VecDeque<Wanted>,
    asked: VecDeque<(NodeId, Fetch)>,
}

impl Node {
    /// Whether acquires and barriers fetch copies again that were in use.
    pub(in crate::shared) fn refetches(&self) -> bool {
        self.config.prefetch && self.config.tuning.prefetch.acquire
    }
}

impl Thread {
    /// Begins to fetch again what an acquire, of this lock if it is one, ended and was in use; what belongs to other
    /// locks is left to their acquires.
    pub(crate) fn begin_acquire_prefetch(&self, shared: &Shared, lock: Option<LockId>) -> AcquirePrefetch {
        let ended = std::mem::take(&mut *shared.invalidated.lock());
        let mut refetch = AcquirePrefetch::default();
        if !self.home().refetches() {
            return refetch;
        }
        self.note_acquire(lock);
        let ended = {
            let mut sections = shared.working_sets.lock();
            let ended = sections.sort_out(lock, ended);
            shared.passes_over.store(sections.passes_over(), Ordering::Relaxed);
            ended
        };
        if ended.is_empty() {
            return refetch;
        }
        if let Some(lock) = lock.filter(|_| self.home().config.sends_unasked()) {
            shared.working_sets.lock().fetches(lock, &ended);
        }
        let (node, mut none) = (self.home(), Outbox::new());
        // Where an answer brings no bytes, its home protects the next pages while the asker copies these.
        let direct = shared.tuning.prefetch.acquire_direct_pages;
        let most = |home| if node.peer_memory(shared, home).is_some() { direct } else { FETCH_PAGES_MAX };
        let requests = fetch_again(&mut node.node_pages(shared, self.slot(), &mut none), &ended, most);
        refetch.wanted.extend(requests.into_all().map(|(home, runs)| Wanted { home, runs }));
        self.ask_on(shared, &mut refetch);
        refetch
    }

    /// Takes what homes offer, and asks for the rest as far as it may be under way.
    fn ask_on(&self, shared: &Shared, refetch: &mut AcquirePrefetch) {
        while let Some(next) = refetch.wanted.front() {
            let with_bytes = refetch.asked.iter().filter(|(_, fetch)| !fetch.direct).count();
            let most = shared.tuning.prefetch.acquire_under_way;
            if with_bytes >= most && self.home().peer_memory(shared, next.home).is_none() {
                return;
            }
            let Some(Wanted { home, runs }) = refetch.wanted.pop_front() else { return };
            let pages: u32 = runs.iter().map(|r| r.end - r.start).sum();
            self.counters().pages_prefetched.add(u64::from(pages));
            let (first, start) = (runs[0].start, self.home().now());
            let runs = self.take(shared, home, runs);
            let (pushed, runs) = self.pick(shared, home, runs);
            if !runs.is_empty() {
                refetch.asked.push_back((home, self.send_fetch(shared, home, runs, false)));
            }
            self.install_pushed(shared, &pushed);
            self.account_fetch(shared, first, start);
        }
    }

    /// Books the time since `start` to the region of `page`.
    fn account_fetch(&self, shared: &Shared, page: PageNo, start: Time) {
        if let Some(known) = shared.table.find(page) {
            known.costs.fetch_ns.fetch_add((self.home().now() - start).0, Ordering::Relaxed);
        }
    }

    /// Waits until all of it has come.
    pub(crate) fn end_acquire_prefetch(&self, shared: &Shared, mut refetch: AcquirePrefetch) -> Result<()> {
        while let Some((home, fetch)) = refetch.asked.pop_front() {
            // Another thread may be taking the answer in, in the order of the pages, one chunk after another.
            for last in fetch.runs.iter().map(|run| run.end - 1) {
                let start = self.home().now();
                let mut waited = false;
                while self.is_fetching(last) {
                    waited = true;
                    self.wait(Waiting::Page(last))?;
                }
                if waited {
                    self.account_fetch(shared, last, start);
                }
            }
            shared.needs.lock().confirm(home, &fetch.needs);
            self.ask_on(shared, &mut refetch);
        }
        Ok(())
    }
}
