//! A thread's side of semaphores, condition variables and reader-writer locks.

use crate::history::Deed;
use crate::node::Node;
use crate::program::{Gap, Op};
use crate::thread::{Phase, Turn};
use comem_protocol::ids::LockId;
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::Context;
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::objects::SyncObjects;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::wire::message::SyncRequest;

/// How long a thread computes between two tries.
const TRY_EVERY_NS: u64 = 30_000;

impl Node {
    pub(crate) fn at_sync_object(&mut self, t: usize, op: Op, out: &mut Outbox) -> Turn {
        let (slot, caller) = (Self::slot(t), Some(Self::slot(t)));
        match op {
            Op::Post(semaphore) => {
                self.on_sync_objects(caller, out, |d, cx| d.sem_post(cx, semaphore));
                self.ends_with(t, Deed::Posted { semaphore })
            }
            Op::Signal(condition) => {
                self.on_sync_objects(caller, out, |d, cx| d.cond_signal(cx, condition, false));
                self.ends(t)
            }
            Op::Broadcast(condition) => {
                self.on_sync_objects(caller, out, |d, cx| d.cond_broadcast(cx, condition, false));
                self.ends(t)
            }
            Op::RwUnlock(lock) => self.leave(t, lock, out),
            Op::AwaitWhile(gap, condition, lock) => self.await_while(t, gap, condition, lock, out),
            Op::Take(semaphore) => {
                let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| d.sem_wait(cx, semaphore, slot).then_some(true);
                match self.asks(t, (SyncRequest::SemWait, semaphore.0), out, begin) {
                    Some(_) => self.ends_with(t, Deed::Took { semaphore }),
                    None => self.sleeps_in(t, Phase::Requested(SyncRequest::SemWait)),
                }
            }
            Op::TryTake(semaphore) => {
                let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| d.sem_try_wait(cx, semaphore, slot);
                match self.asks(t, (SyncRequest::SemTryWait, semaphore.0), out, begin) {
                    Some(true) => self.ends_with(t, Deed::Took { semaphore }),
                    Some(false) => {
                        self.goes_to(t, Phase::Begin);
                        Turn::Thinks(TRY_EVERY_NS)
                    }
                    None => self.sleeps_in(t, Phase::Requested(SyncRequest::SemTryWait)),
                }
            }
            Op::ReadLock(lock) => self.enter(t, SyncRequest::ReadLock, lock, out),
            Op::WriteLock(lock) => self.enter(t, SyncRequest::WriteLock, lock, out),
            _ => self.ends(t),
        }
    }

    /// Begins to ask for something, or sees whether the answer has come.
    fn asks(
        &mut self,
        t: usize,
        (request, name): (SyncRequest, u64),
        out: &mut Outbox,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> Option<bool>,
    ) -> Option<bool> {
        let slot = Self::slot(t);
        match self.threads[t].phase {
            Phase::Requested(asked) if asked == request => self.sync_objects.collect(request, name, slot),
            _ => self.on_sync_objects(Some(slot), out, begin),
        }
    }

    fn enter(&mut self, t: usize, request: SyncRequest, lock: RwLockId, out: &mut Outbox) -> Turn {
        let (slot, writes) = (Self::slot(t), request == SyncRequest::WriteLock);
        let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| {
            let begun = if writes { d.wr_lock(cx, lock, slot) } else { d.rd_lock(cx, lock, slot) };
            // A program here never enters twice; if the node thinks so, the thread waits for ever and the run fails.
            begun.unwrap_or(false).then_some(true)
        };
        if self.asks(t, (request, lock.0), out, begin).is_none() {
            return self.sleeps_in(t, Phase::Requested(request));
        }
        let stamp = self.stamp;
        self.threads[t].shared.insert(lock, (stamp, writes));
        self.ends(t)
    }

    fn leave(&mut self, t: usize, lock: RwLockId, out: &mut Outbox) -> Turn {
        let slot = Self::slot(t);
        if let Some((begun, writes)) = self.threads[t].shared.remove(&lock) {
            self.threads[t].begun = begun;
            self.record(t, Deed::Shared { lock, writes });
        }
        // A release that is refused shows as a lock that nobody gets any more.
        let _ = self.on_sync_objects(Some(slot), out, |d, cx| d.rw_unlock(cx, lock, slot));
        self.ends(t)
    }

    /// Waits for the condition while the counts are as `gap` says, and then goes back to where the thread reads them.
    fn await_while(&mut self, t: usize, gap: Gap, condition: ConditionId, lock: LockId, out: &mut Outbox) -> Turn {
        let slot = Self::slot(t);
        let (phase, counts) = (self.threads[t].phase, (self.threads[t].register, self.threads[t].before));
        match phase {
            Phase::Begin if !gap.is(counts.0, counts.1) => self.ends(t),
            Phase::Begin | Phase::Requested(SyncRequest::CondJoin) => {
                let begin =
                    |d: &mut SyncObjects, cx: &mut Context<'_>| d.cond_join(cx, condition, slot).then_some(true);
                match self.asks(t, (SyncRequest::CondJoin, condition.0), out, begin) {
                    Some(_) => self.goes_to(t, Phase::Joined),
                    None => self.sleeps_in(t, Phase::Requested(SyncRequest::CondJoin)),
                }
            }
            Phase::Joined => {
                self.releases(t, lock, out);
                let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| d.cond_await(cx, condition, slot);
                match self.on_sync_objects(Some(slot), out, begin) {
                    true => self.goes_to(t, Phase::Slow),
                    false => self.sleeps_in(t, Phase::Requested(SyncRequest::CondAwait)),
                }
            }
            Phase::Requested(request) => match self.sync_objects.collect(request, condition.0, slot) {
                Some(_) => self.goes_to(t, Phase::Slow),
                None => self.sleeps_in(t, Phase::Requested(request)),
            },
            _ if self.acquires(t, lock, out) => {
                self.threads[t].at -= 2;
                self.goes_to(t, Phase::Begin)
            }
            _ => self.sleeps_in(t, Phase::Await),
        }
    }
}
