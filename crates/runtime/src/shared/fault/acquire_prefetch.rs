//! After an acquire, the copies that it ended and that were in use are fetched again, without faults: a few requests to
//! each home.

use crate::error::Result;
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::thread::Thread;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::node::refetch::{Next, Refetch};
use comem_protocol::coherence::pages::policy::Predictor;
use comem_protocol::coherence::pages::policy::lock_working_set::{Event, Query};
use comem_protocol::coherence::pages::wire::FETCH_PAGES_MAX;
use comem_protocol::ids::LockId;
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Time;
use std::sync::atomic::Ordering;

impl Node {
    /// Whether acquires and barriers fetch copies again that were in use.
    pub(in crate::shared) fn refetches(&self) -> bool {
        self.config.prefetch && self.config.tuning.prefetch.acquire
    }
}

impl Thread {
    /// Begins to fetch again what an acquire, of this lock if it is one, ended and was in use; what belongs to other
    /// locks is left to their acquires.
    pub(crate) fn begin_acquire_prefetch(&self, shared: &Shared, lock: Option<LockId>) -> Refetch {
        let ended = std::mem::take(&mut *shared.invalidated.lock());
        if !self.home().refetches() {
            return Refetch::default();
        }
        self.note_acquire(lock);
        let ended = {
            let mut sections = shared.working_sets.lock();
            let ended = sections.predict(&(), Query::Ended { lock, ended });
            shared.passes_over.store(sections.passes_over(), Ordering::Relaxed);
            ended
        };
        if ended.is_empty() {
            return Refetch::default();
        }
        if let Some(lock) = lock.filter(|_| self.home().config.sends_unasked()) {
            shared.working_sets.lock().observe(&(), Event::Fetched { lock, pages: &ended });
        }
        let (node, mut none) = (self.home(), Outbox::new());
        // Where an answer brings no bytes, its home protects the next pages while the asker copies these.
        let direct = shared.tuning.prefetch.acquire_direct_pages;
        let most = |home| if node.peer_memory(shared, home).is_some() { direct } else { FETCH_PAGES_MAX };
        let mut refetch = Refetch::begin(&mut node.node_pages(shared, self.slot(), &mut none), &ended, most);
        self.ask_on(shared, &mut refetch);
        refetch
    }

    /// Takes what homes offer, and asks for the rest as far as it may be under way.
    fn ask_on(&self, shared: &Shared, refetch: &mut Refetch) {
        let (node, slot) = (self.home(), self.slot());
        let mut none = Outbox::new();
        while let Some(home) = refetch.next_fetch(&mut node.node_pages(shared, slot, &mut none)) {
            let start = node.now();
            let Some(fetching) = refetch.front() else { return };
            let first = fetching.first;
            if fetching.is_new() {
                let pages = fetching.runs().iter().map(|run| u64::from(run.end - run.start)).sum();
                self.counters().pages_prefetched.add(pages);
            }
            let asked = self
                .stepping(|out| refetch.run(&mut node.node_pages(shared, slot, out), node.peer_memory(shared, home)));
            if asked {
                self.counters().page_requests.add(1);
            }
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
    pub(crate) fn end_acquire_prefetch(&self, shared: &Shared, mut refetch: Refetch) -> Result<()> {
        let mut none = Outbox::new();
        loop {
            match refetch.next(&mut self.home().node_pages(shared, self.slot(), &mut none)) {
                Next::Nothing => return Ok(()),
                Next::Fetch(_) => self.ask_on(shared, &mut refetch),
                Next::Wait(page) => {
                    let start = self.home().now();
                    self.wait(Waiting::Page(page))?;
                    self.account_fetch(shared, page, start);
                }
            }
        }
    }
}
