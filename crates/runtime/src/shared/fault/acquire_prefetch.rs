//! After an acquire, the copies that it ended and that were in use are fetched again, without faults: a few requests to
//! each home.

use crate::config::Config;
use crate::error::Result;
use crate::node::Waiting;
use crate::shared::Shared;
use crate::thread::Thread;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::node::refetch::{Next, Refetch};
use comem_protocol::coherence::pages::policy::Predictor;
use comem_protocol::coherence::pages::policy::lock_working_set::{Event, Query};
use comem_protocol::coherence::pages::wire::FETCH_PAGES_MAX;
use comem_protocol::ids::LockId;
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Span;
use std::sync::atomic::Ordering;

impl Config {
    /// Whether acquires and barriers fetch copies again that were in use.
    pub(in crate::shared) fn refetches(&self) -> bool {
        self.prefetch && self.tuning.prefetch.acquire
    }
}

/// What a thread fetches again after an acquire.
pub(in crate::shared) struct AcquirePrefetch<'a> {
    thread: &'a Thread,
    shared: &'a Shared,
    refetch: Refetch,
}

impl<'a> AcquirePrefetch<'a> {
    /// Begins to fetch again what an acquire, of this lock if it is one, ended and was in use; what belongs to other
    /// locks is left to their acquires.
    pub(in crate::shared) fn begin(thread: &'a Thread, shared: &'a Shared, lock: Option<LockId>) -> Self {
        let ended = std::mem::take(&mut *shared.invalidated.lock());
        let mut begun = AcquirePrefetch { thread, shared, refetch: Refetch::default() };
        let node = thread.home();
        if !node.config.refetches() {
            return begun;
        }
        thread.note_acquire(lock);
        let ended = {
            let mut sections = shared.working_sets.lock();
            let ended = sections.predict(&(), Query::Ended { lock, ended });
            shared.passes_over.store(sections.passes_over(), Ordering::Relaxed);
            ended
        };
        if ended.is_empty() {
            return begun;
        }
        if let Some(lock) = lock.filter(|_| node.config.sends_unasked()) {
            shared.working_sets.lock().observe(&(), Event::Fetched { lock, pages: &ended });
        }
        let mut none = Outbox::new();
        // Where an answer brings no bytes, its home protects the next pages while the asker copies these.
        let direct = shared.tuning.prefetch.acquire_direct_pages;
        let most = |home| if node.peer_memory(shared, home).is_some() { direct } else { FETCH_PAGES_MAX };
        begun.refetch = Refetch::begin(&mut node.node_pages(shared, thread.slot(), &mut none), &ended, most);
        begun.ask_on();
        begun
    }

    /// Takes what homes offer, and asks for the rest as far as it may be under way.
    fn ask_on(&mut self) {
        let AcquirePrefetch { thread, shared, refetch } = self;
        let (node, slot) = (thread.home(), thread.slot());
        let mut none = Outbox::new();
        while let Some(home) = refetch.next_fetch(&mut node.node_pages(shared, slot, &mut none)) {
            let start = node.now();
            let Some(fetching) = refetch.front() else { return };
            let first = fetching.first;
            if fetching.is_new() {
                let pages = fetching.runs().iter().map(|run| u64::from(run.end - run.start)).sum();
                thread.counters().pages_prefetched.add(pages);
            }
            let asked = thread
                .stepping(|out| refetch.run(&mut node.node_pages(shared, slot, out), node.peer_memory(shared, home)));
            if asked {
                thread.counters().page_requests.add(1);
            }
            shared.account_fetch(first, node.now() - start);
        }
    }

    /// Waits until all of it has come.
    pub(in crate::shared) fn end(mut self) -> Result<()> {
        let (thread, shared) = (self.thread, self.shared);
        let mut none = Outbox::new();
        loop {
            match self.refetch.next(&mut thread.home().node_pages(shared, thread.slot(), &mut none)) {
                Next::Nothing => return Ok(()),
                Next::Fetch(_) => self.ask_on(),
                Next::Wait(page) => {
                    let start = thread.home().now();
                    thread.wait(Waiting::Page(page))?;
                    shared.account_fetch(page, thread.home().now() - start);
                }
            }
        }
    }
}

impl Shared {
    /// Books the time that a fetch of `page` took to its region.
    fn account_fetch(&self, page: PageNo, span: Span) {
        if let Some(known) = self.table.find(page) {
            known.costs.fetch_ns.fetch_add(span.0, Ordering::Relaxed);
        }
    }
}
