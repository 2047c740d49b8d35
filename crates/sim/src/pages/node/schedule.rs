//! The schedule of the node's locks: what it asks, and a long close.

use super::Node;
use crate::pages::thread::Phase;
use crate::schedule::{Scheduled, Waits};
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::lock_schedule::{DeferralInputs, LockSchedule, Request, Slice, incremental_close};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::IntervalMark;
use comem_protocol::sync::lock::{Acquire, Locks};
use comem_protocol::time::{Span, Time};
use comem_protocol::tuning::LockTuning;

impl DeferralInputs for Node {
    fn is_idle(&mut self) -> bool {
        self.idles()
    }

    fn is_beyond_barrier(&mut self, request: &Request<'_>) -> bool {
        request.is_beyond_barrier(&self.pages.intervals)
    }

    fn long_close(&mut self, tuning: &LockTuning) -> Option<Vec<PageNo>> {
        let pages = &mut self.pages;
        let chunks: Vec<PageNo> = pages.active.chunks().iter().map(|at| *at as PageNo).collect();
        let written = || (pages.memory.peek().map(|runs| runs.iter().map(|run| run.len() as u32).sum()), chunks.len());
        let is_long = incremental_close::is_long(tuning, pages.closed, pages.now, written);
        // Where numbers are drawn, a close now and then goes in one piece whatever they are.
        let always = tuning.longest_deferral() == Span(0);
        (is_long && (always || pages.rng.below(2) == 0)).then_some(chunks)
    }
}

impl Scheduled for Node {
    fn who(&self) -> (NodeId, usize) {
        (self.pages.me, self.threads.len())
    }

    fn schedule(&mut self) -> &mut LockSchedule {
        &mut self.pages.schedule
    }

    fn locks_now(&self) -> (&Locks, IntervalMark) {
        (&self.locks, IntervalMark(self.pages.closes))
    }

    fn acts(&mut self, now: Time, caller: Option<Slot>) {
        (self.pages.now, self.pages.caller, self.answers) = (now, caller, caller.unwrap_or(Slot::SERVICE));
    }

    fn refuses(&mut self, why: String) {
        self.pages.failure = Some(why);
    }

    fn looks_at_clock(&mut self) -> bool {
        self.pages.rng.below(2) == 0
    }

    fn waits_for(&self, t: usize) -> Option<Waits> {
        let thread = &self.threads[t];
        match thread.phase {
            _ if thread.ended => Some(Waits::Others),
            _ if !thread.asleep => None,
            Phase::Flag | Phase::Barrier(_) | Phase::Requested(_) => Some(Waits::Others),
            Phase::Lock | Phase::CatchUp => Some(Waits::Lock),
            _ => Some(Waits::Data),
        }
    }
}

impl Node {
    /// The next slice of a long close.
    pub(in crate::pages) fn close_slice(&mut self, now: Time, out: &mut Outbox) {
        self.acts(now, None);
        match self.pages.schedule.next_slice() {
            Slice::None => {}
            Slice::Close(chunk) => {
                self.pages.active.goes_on(None);
                self.pages.close_chunk(chunk as usize);
            }
            Slice::Over(waited) => {
                self.carry_out(now, None, waited, out);
                self.may_request_ahead(None, out);
            }
        }
    }

    /// Something has happened: now and then a node requests the tokens that have left, and not as a turn begins alone.
    pub(super) fn may_request_ahead(&mut self, caller: Option<Slot>, out: &mut Outbox) {
        // A node at a barrier wants nothing.
        if self.pages.layout.wants && self.pages.intervals.may_close() && self.pages.rng.below(2) == 0 {
            self.request_ahead(caller, out);
        }
    }

    /// Thread `t` begins to acquire a lock.
    pub(in crate::pages) fn begins_to_acquire(&mut self, t: usize, lock: LockId, out: &mut Outbox) -> Acquire {
        let (slot, before) = (Slot::thread(t), out.sends().len());
        let begun = self.on_locks(Some(slot), out, |l, cx| l.acquire(cx, lock, slot));
        if begun == Acquire::Wait && out.sends().len() > before {
            self.pages.schedule.token_requested(lock, self.pages.now);
            self.threads[t].asked_for_token = Some(self.pages.now);
        }
        begun
    }
}
