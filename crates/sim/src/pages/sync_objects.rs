//! A thread's side of semaphores, condition variables, reader-writer locks and barriers of some threads, as the
//! runtime's threads call them.

use super::check::Judge;
use super::node::Node;
use super::program::Op;
use super::thread::{Phase, Turn};
use comem_protocol::coherence::pages::node::sync::home_is_fresh;
use comem_protocol::ids::{LockId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::Context;
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::objects::SyncObjects;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::wire::message::SyncRequest;

impl Node {
    pub(super) fn at_sync_object(&mut self, t: usize, op: Op, judge: &mut Judge, out: &mut Outbox) -> Turn {
        let (slot, me, begins) = (Slot::thread(t), self.number(t), self.threads[t].phase == Phase::Begin);
        match op {
            Op::Post(semaphore) => {
                judge.posts(me, semaphore);
                self.on_sync_objects(Some(slot), out, |d, cx| d.sem_post(cx, semaphore));
                self.ends(t)
            }
            Op::Give(semaphore) => {
                if begins {
                    judge.posts(me, semaphore);
                }
                let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| d.sem_give(cx, semaphore, slot).then_some(true);
                self.obtains(t, (SyncRequest::SemGive, semaphore.0), out, begin).unwrap_or_else(|| self.ends(t))
            }
            Op::Take(semaphore) => self.take_one(t, semaphore, judge, out),
            Op::ReadLock(lock) => self.enter(t, (SyncRequest::ReadLock, lock), judge, out),
            Op::WriteLock(lock) => self.enter(t, (SyncRequest::WriteLock, lock), judge, out),
            Op::RwUnlock(lock) => {
                judge.leaves(me, lock);
                let released = self.on_sync_objects(Some(slot), out, |d, cx| d.rw_unlock(cx, lock, slot));
                assert_eq!(released, Ok(()), "the program holds what it releases");
                self.ends(t)
            }
            Op::Signal(condition) | Op::Broadcast(condition) => {
                let under_lock = self.threads[t].locks > 0;
                judge.signals(me, condition, under_lock);
                self.on_sync_objects(Some(slot), out, |d, cx| match op {
                    Op::Broadcast(_) => d.cond_broadcast(cx, condition, under_lock),
                    _ => d.cond_signal(cx, condition, under_lock),
                });
                self.ends(t)
            }
            Op::CondWaitIfZero(..) if begins && self.threads[t].register > 0 => self.ends(t),
            Op::CondWaitIfZero(condition, lock) => {
                self.cond_wait(t, condition, lock, judge, out).unwrap_or_else(|| {
                    self.threads[t].at -= 1;
                    self.goes_to(t, Phase::Begin)
                })
            }
            Op::CondWait(condition, lock) => {
                self.cond_wait(t, condition, lock, judge, out).unwrap_or_else(|| self.ends(t))
            }
            Op::BarrierOf(meeting, threads) => {
                if begins {
                    judge.comes(me, meeting);
                }
                let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| d.subset_barrier(cx, meeting, threads, slot);
                self.obtains(t, (SyncRequest::SubsetBarrier, meeting.0), out, begin).unwrap_or_else(|| {
                    judge.met(me, meeting);
                    self.ends(t)
                })
            }
            _ => unreachable!("{op:?} is none of the desk's"),
        }
    }

    /// Begins to ask for something, sees whether the answer has come, and awaits the diffs of home pages that it
    /// announced; `None` when all that is done.
    fn obtains(
        &mut self,
        t: usize,
        (request, name): (SyncRequest, u64),
        out: &mut Outbox,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> Option<bool>,
    ) -> Option<Turn> {
        let slot = Slot::thread(t);
        let answer = match self.threads[t].phase {
            Phase::Answered(answered) if answered == request => {
                return (!home_is_fresh(&mut self.pages)).then_some(Turn::Sleeps);
            }
            Phase::Requested(asked) if asked == request => self.objects.collect(request, name, slot),
            _ => self.on_sync_objects(Some(slot), out, begin),
        };
        Some(match answer {
            Some(got) => {
                assert!(got, "nothing that a program wishes here is refused");
                self.goes_to(t, Phase::Answered(request))
            }
            None => self.sleeps_in(t, Phase::Requested(request)),
        })
    }

    fn take_one(&mut self, t: usize, semaphore: SemaphoreId, judge: &mut Judge, out: &mut Outbox) -> Turn {
        let slot = Slot::thread(t);
        if self.threads[t].phase == Phase::Begin {
            judge.wants(self.number(t), semaphore);
        }
        let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| d.sem_wait(cx, semaphore, slot).then_some(true);
        self.obtains(t, (SyncRequest::SemWait, semaphore.0), out, begin).unwrap_or_else(|| {
            judge.took(self.number(t), semaphore);
            self.ends(t)
        })
    }

    fn enter(
        &mut self,
        t: usize,
        (request, lock): (SyncRequest, RwLockId),
        judge: &mut Judge,
        out: &mut Outbox,
    ) -> Turn {
        let (slot, writes) = (Slot::thread(t), request == SyncRequest::WriteLock);
        let begin = |d: &mut SyncObjects, cx: &mut Context<'_>| {
            let begun = if writes { d.wr_lock(cx, lock, slot) } else { d.rd_lock(cx, lock, slot) };
            begun.expect("the program does not hold what it acquires").then_some(true)
        };
        self.obtains(t, (request, lock.0), out, begin).unwrap_or_else(|| {
            judge.enters(self.number(t), lock, writes);
            self.ends(t)
        })
    }

    /// The four steps of a wait; `None` when the thread has been woken and has the lock again.
    fn cond_wait(
        &mut self,
        t: usize,
        condition: ConditionId,
        lock: LockId,
        judge: &mut Judge,
        out: &mut Outbox,
    ) -> Option<Turn> {
        let slot = Slot::thread(t);
        match self.threads[t].phase {
            Phase::Begin | Phase::Requested(SyncRequest::CondJoin) | Phase::Answered(SyncRequest::CondJoin) => {
                let begin =
                    |d: &mut SyncObjects, cx: &mut Context<'_>| d.cond_join(cx, condition, slot).then_some(true);
                let turn = self.obtains(t, (SyncRequest::CondJoin, condition.0), out, begin);
                turn.or_else(|| {
                    self.unlock(t, lock, judge, out);
                    Some(self.goes_to(t, Phase::LetGo))
                })
            }
            Phase::LetGo | Phase::Requested(_) | Phase::Answered(_) => {
                let begin =
                    |d: &mut SyncObjects, cx: &mut Context<'_>| d.cond_await(cx, condition, slot).then_some(true);
                let turn = self.obtains(t, (SyncRequest::CondAwait, condition.0), out, begin);
                turn.or_else(|| {
                    judge.woken(self.number(t), condition);
                    Some(self.goes_to(t, Phase::Woken))
                })
            }
            _ => self.acquires(t, lock, judge, out),
        }
    }
}
