//! Semaphores, condition variables and reader-writer locks as a thread calls them.

use super::Thread;
use super::misuse::of_rw_lock;
use crate::error::{Error, Result};
use crate::names::Named;
use crate::node::Waiting;
use comem_protocol::ids::LockId;
use comem_protocol::sync::Context;
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::objects::{Kind, SyncObjects};
use comem_protocol::sync::rwlock::{RwLockId, RwMisuse};
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;
use comem_protocol::wire::message::{SyncRequest, SyncUpdate};

impl Thread {
    fn at_manager(&self, name: u64) -> AtManager<'_> {
        AtManager { thread: self, name }
    }

    /// Adds one to a semaphore; each is zero at first. Does not wait: the post counts once it has reached the
    /// semaphore's manager.
    pub fn sem_post(&self, semaphore: SemaphoreId) {
        self.at_manager(semaphore.0).tell(SyncUpdate::SemPost, |objects, cx| objects.sem_post(cx, semaphore));
    }

    /// Adds one to a semaphore, and waits until that counts: whoever comes to know of it by other means finds it there.
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn sem_give(&self, semaphore: SemaphoreId) -> Result<()> {
        self.at_manager(semaphore.0)
            .obtain(SyncRequest::SemGive, |objects, cx| objects.sem_give(cx, semaphore, self.slot).then_some(true))?;
        Ok(())
    }

    /// Makes a semaphore's count zero, and waits until it is. Those who wait for it go on waiting.
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn sem_reset(&self, semaphore: SemaphoreId) -> Result<()> {
        self.at_manager(semaphore.0)
            .obtain(SyncRequest::SemReset, |objects, cx| objects.sem_reset(cx, semaphore, self.slot).then_some(true))?;
        Ok(())
    }

    /// Takes one from a semaphore, once there is one; threads get theirs in the order in which they ask.
    pub fn sem_wait(&self, semaphore: SemaphoreId) {
        self.must(self.checked_sem_wait(semaphore));
    }

    /// As [`Thread::sem_wait`].
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn checked_sem_wait(&self, semaphore: SemaphoreId) -> Result<()> {
        self.at_manager(semaphore.0)
            .obtain(SyncRequest::SemWait, |objects, cx| objects.sem_wait(cx, semaphore, self.slot).then_some(true))?;
        Ok(())
    }

    /// Waits until a semaphore has one, and leaves it there: a post lets any number of threads pass, until one is
    /// taken.
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn sem_pass(&self, semaphore: SemaphoreId) -> Result<()> {
        self.at_manager(semaphore.0)
            .obtain(SyncRequest::SemPass, |objects, cx| objects.sem_pass(cx, semaphore, self.slot).then_some(true))?;
        Ok(())
    }

    /// Takes one from a semaphore if its manager has one just now; tells whether it did.
    pub fn try_sem_wait(&self, semaphore: SemaphoreId) -> bool {
        self.must(self.checked_try_sem_wait(semaphore))
    }

    /// As [`Thread::try_sem_wait`].
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn checked_try_sem_wait(&self, semaphore: SemaphoreId) -> Result<bool> {
        self.at_manager(semaphore.0)
            .obtain(SyncRequest::SemTryWait, |objects, cx| objects.sem_try_wait(cx, semaphore, self.slot))
    }

    /// Waits until `threads` threads of the job have come to the barrier of that name; any threads, not always the
    /// same. What each of them wrote before is seen after. When all threads of the job are meant, it is
    /// [`Thread::barrier`]; in a job of one node whose threads come and go no number means all.
    ///
    /// # Errors that end the node
    /// When another thread is there that expects another number.
    pub fn subset_barrier(&self, name: SubsetBarrierId, threads: usize) {
        self.must(self.checked_subset_barrier(name, threads));
    }

    /// As [`Thread::subset_barrier`].
    ///
    /// # Errors
    /// When another thread is there that expects another number, when that is 0, or the job cannot have so many
    /// threads.
    pub fn checked_subset_barrier(&self, name: SubsetBarrierId, threads: usize) -> Result<()> {
        // Where threads come and go, in a job of this node alone, the number with which it was started says nothing of
        // how many there are.
        let come_and_go = self.node.nodes() == 1 && self.node.slots.are_spare();
        if threads == self.threads() && !come_and_go {
            return self.checked_barrier();
        }
        if threads == 0 {
            return Err(Error::Argument(format!(
                "thread {} comes to barrier {} of 0 threads; say how many meet there, itself included",
                self.id(),
                Named(name.0)
            )));
        }
        let most = self.node.nodes() * self.node.config.thread_slots;
        if threads > most {
            return Err(Error::Argument(format!(
                "thread {} comes to barrier {} of {threads} threads, but the job has {most}; start it with more (-n, \
                 -t)",
                self.id(),
                Named(name.0)
            )));
        }
        let met = self.at_manager(name.0).obtain(SyncRequest::SubsetBarrier, |objects, cx| {
            objects.subset_barrier(cx, name, threads as u32, self.slot)
        })?;
        self.counters().barriers.add(1);
        if met {
            return Ok(());
        }
        Err(Error::BarrierMismatch { thread: self.id(), barrier: name, threads })
    }

    /// As [`Thread::cond_wait`], of a lock held without a guard.
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_cond_wait(&self, condition: ConditionId, lock: LockId) -> Result<()> {
        let slot = self.slot;
        if !self.node.holds_lock(lock, slot) {
            return Err(Error::WaitWithoutLock { thread: self.id(), condition, lock });
        }
        self.at_manager(condition.0)
            .obtain(SyncRequest::CondJoin, |objects, cx| objects.cond_join(cx, condition, slot).then_some(true))?;
        self.raw_unlock(lock)?;
        self.at_manager(condition.0)
            .obtain(SyncRequest::CondAwait, |objects, cx| objects.cond_await(cx, condition, slot).then_some(true))?;
        self.raw_lock(lock)
    }

    /// Wakes the thread that has waited longest for a condition variable; nothing when none waits. It is a release,
    /// unless this thread holds a lock: then that lock's release is.
    pub fn cond_notify_one(&self, condition: ConditionId) {
        if self.at_manager(condition.0).is_unheard() {
            return;
        }
        let under_lock = self.locks.any();
        self.at_manager(condition.0)
            .tell(SyncUpdate::CondSignal, |objects, cx| objects.cond_signal(cx, condition, under_lock));
    }

    /// As [`Thread::cond_notify_one`], for all threads that wait for a condition variable.
    pub fn cond_notify_all(&self, condition: ConditionId) {
        if self.at_manager(condition.0).is_unheard() {
            return;
        }
        let under_lock = self.locks.any();
        self.at_manager(condition.0)
            .tell(SyncUpdate::CondBroadcast, |objects, cx| objects.cond_broadcast(cx, condition, under_lock));
    }

    /// As [`Thread::read_lock`], without a guard; [`Thread::raw_rw_unlock`] releases it.
    ///
    /// # Errors
    /// When this thread writes under the lock.
    pub fn raw_read_lock(&self, lock: RwLockId) -> Result<()> {
        self.at_manager(lock.0).rw_in_section(SyncRequest::ReadLock, |objects, cx| objects.rd_lock(cx, lock, self.slot))
    }

    /// As [`Thread::write_lock`], without a guard; [`Thread::raw_rw_unlock`] releases it.
    ///
    /// # Errors
    /// When this thread holds the lock already.
    pub fn raw_write_lock(&self, lock: RwLockId) -> Result<()> {
        self.at_manager(lock.0)
            .rw_in_section(SyncRequest::WriteLock, |objects, cx| objects.wr_lock(cx, lock, self.slot))
    }

    /// As [`Thread::try_read_lock`], without a guard; whether this thread has entered the lock.
    ///
    /// # Errors
    /// When a node is lost.
    pub fn raw_try_read_lock(&self, lock: RwLockId) -> Result<bool> {
        let begin = |objects: &mut SyncObjects, cx: &mut Context<'_>| objects.try_rd_lock(cx, lock, self.slot);
        self.at_manager(lock.0).rw_try(SyncRequest::TryReadLock, begin)
    }

    /// As [`Thread::try_write_lock`], without a guard; whether this thread holds the lock now and did not before.
    ///
    /// # Errors
    /// When a node is lost.
    pub fn raw_try_write_lock(&self, lock: RwLockId) -> Result<bool> {
        let begin = |objects: &mut SyncObjects, cx: &mut Context<'_>| objects.try_wr_lock(cx, lock, self.slot);
        self.at_manager(lock.0).rw_try(SyncRequest::TryWriteLock, begin)
    }

    /// Releases a reader-writer lock, however this thread holds it.
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_rw_unlock(&self, lock: RwLockId) -> Result<()> {
        let released =
            self.at_manager(lock.0).tell(SyncUpdate::ReadUnlock, |objects, cx| objects.rw_unlock(cx, lock, self.slot));
        released.map_err(|misuse| of_rw_lock(self.id(), lock, misuse))?;
        self.node.gate.iter().for_each(|sections| sections.end_section(self));
        Ok(())
    }

    /// Who says more than can leave waits until some of it has. When the job ends meanwhile, the next operation tells.
    pub(super) fn wait_for_send_queue(&self) {
        if !self.node.wire.send_queue_is_long(self.slot) {
            return;
        }
        self.let_pins_go();
        self.counters().line_waits.add(1);
        while self.node.wire.send_queue_is_long(self.slot) && self.node.life.goes_on().is_ok() {
            if self.node.sleep_a_little(self.slot).is_err() {
                break;
            }
        }
        let _ = self.take_pins_back();
    }
}

/// What a thread asks and tells the manager of the synchronisation object of a name.
#[derive(Clone, Copy)]
struct AtManager<'a> {
    thread: &'a Thread,
    name: u64,
}

impl AtManager<'_> {
    /// Whether nobody waits for a condition variable; most signals find nobody.
    fn is_unheard(&self) -> bool {
        let AtManager { thread, name } = *self;
        let objects = thread.node.sync.object_shard(SyncUpdate::CondSignal.object(name));
        objects.cond_is_unheard(ConditionId(name), thread.node.me(), thread.node.nodes())
    }

    /// As [`AtManager::rw_acquire`], where another thread of the node may make a collective call meanwhile.
    fn rw_in_section(
        &self,
        request: SyncRequest,
        begin: impl Fn(&mut SyncObjects, &mut Context<'_>) -> std::result::Result<bool, RwMisuse>,
    ) -> Result<()> {
        let AtManager { thread, name } = *self;
        let Some(sections) = &thread.node.gate else { return self.rw_acquire(request, begin) };
        loop {
            // As with a lock, nobody waits for who waits.
            let entry = sections.begin_section(thread)?;
            sections.end_section(thread);
            self.rw_acquire(request, &begin)?;
            if sections.begin(thread.slot, entry) {
                return Ok(());
            }
            let slot = thread.slot;
            thread.stepping(|out| {
                thread.node.with_sync_objects(request.object(name), Some(slot), out, |d, cx| {
                    d.rw_hand_back(cx, RwLockId(name), slot)
                });
            });
        }
    }

    /// Acquires a reader-writer lock.
    fn rw_acquire(
        &self,
        request: SyncRequest,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> std::result::Result<bool, RwMisuse>,
    ) -> Result<()> {
        let AtManager { thread, name } = *self;
        thread.counters().lock_acquires.add(1);
        let mut misuse = None;
        self.obtain(request, |objects, cx| match begin(objects, cx) {
            Ok(held) => held.then_some(true),
            Err(why) => {
                misuse = Some(why);
                Some(false)
            }
        })?;
        misuse.map_or(Ok(()), |why| Err(of_rw_lock(thread.id(), RwLockId(name), why)))
    }

    /// Acquires a reader-writer lock if nobody must be waited for but its manager; whether it did.
    fn rw_try(
        &self,
        request: SyncRequest,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> Option<bool>,
    ) -> Result<bool> {
        let AtManager { thread, .. } = *self;
        let may_begin = || thread.node.gate.as_ref().is_none_or(|sections| sections.begin_at_once(thread.slot));
        if !may_begin() {
            return thread.node.life.goes_on().map(|()| false);
        }
        let taken = self.obtain(request, begin);
        if matches!(taken, Ok(true)) {
            thread.counters().lock_acquires.add(1);
        } else {
            thread.node.gate.iter().for_each(|sections| sections.end_section(thread));
        }
        taken
    }

    /// A release: tells a manager something.
    fn tell<R>(&self, update: SyncUpdate, tell: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> R) -> R {
        let AtManager { thread, name } = *self;
        thread.operation(|| {
            let slot = thread.slot;
            thread.node.send_combined_of(slot, slot);
            let told = thread.releasing(|| {
                thread.stepping(|out| thread.node.with_sync_objects(update.object(name), Some(slot), out, tell))
            });
            thread.wait_for_send_queue();
            told
        })
    }

    /// An acquire: begins to ask, and waits for the answer unless it is there at once.
    fn obtain(
        &self,
        request: SyncRequest,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> Option<bool>,
    ) -> Result<bool> {
        let AtManager { thread, name } = *self;
        thread.operation(|| {
            let (slot, object) = (thread.slot, request.object(name));
            thread.node.send_combined_of(slot, slot);
            let ask = || {
                thread.stepping(|out| {
                    let first = thread.node.with_sync_objects(object, Some(slot), out, begin);
                    (first, !out.sends().is_empty())
                })
            };
            // To come to a meeting is a release, too, and so is to give.
            let releases = matches!(request, SyncRequest::SubsetBarrier | SyncRequest::SemGive);
            let (first, asked) = if releases { thread.releasing(ask) } else { ask() };
            if let Some(got) = first {
                thread.after_acquire(None)?;
                return Ok(got);
            }
            thread.slow_down();
            thread.let_pins_go();
            let got = loop {
                // In a statement of its own, so that the room is not locked while the thread sleeps.
                let answer = thread.node.sync.object_shard(object).collect(request, name, slot);
                match answer {
                    Some(got) => break got,
                    None => thread.wait(Waiting::Answer(request, name))?,
                }
            };
            if asked && got && object.kind == Kind::RwLock {
                thread.counters().lock_remote.add(1);
            }
            thread.after_acquire(None)?;
            thread.take_pins_back()?;
            Ok(got)
        })
    }
}
