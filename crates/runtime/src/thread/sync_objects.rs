//! Semaphores, condition variables and reader-writer locks as a thread calls them.

use super::Thread;
use super::misuse::of_rw_lock;
use crate::error::{Error, Result};
use crate::names::Named;
use crate::node::Waiting;
use comem_protocol::ids::LockId;
use comem_protocol::sync::Context;
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::objects::SyncObjects;
use comem_protocol::sync::rwlock::{RwLockId, RwMisuse};
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;
use comem_protocol::wire::message::{SyncRequest, SyncUpdate};

impl Thread {
    /// Adds one to a semaphore; each is zero at first. Does not wait: the post counts once it has reached the
    /// semaphore's manager.
    pub fn sem_post(&self, semaphore: SemaphoreId) {
        self.tell(SyncUpdate::SemPost, semaphore.0, |objects, cx| objects.sem_post(cx, semaphore));
    }

    /// Adds one to a semaphore, and waits until that counts: whoever comes to know of it by other means finds it there.
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn sem_give(&self, semaphore: SemaphoreId) -> Result<()> {
        self.obtain(SyncRequest::SemGive, semaphore.0, |objects, cx| {
            objects.sem_give(cx, semaphore, self.slot).then_some(true)
        })?;
        Ok(())
    }

    /// Makes a semaphore's count zero, and waits until it is. Those who wait for it go on waiting.
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn sem_reset(&self, semaphore: SemaphoreId) -> Result<()> {
        self.obtain(SyncRequest::SemReset, semaphore.0, |objects, cx| {
            objects.sem_reset(cx, semaphore, self.slot).then_some(true)
        })?;
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
        self.obtain(SyncRequest::SemWait, semaphore.0, |objects, cx| {
            objects.sem_wait(cx, semaphore, self.slot).then_some(true)
        })?;
        Ok(())
    }

    /// Waits until a semaphore has one, and leaves it there: a post lets any number of threads pass, until one is
    /// taken.
    ///
    /// # Errors
    /// When the job ends meanwhile.
    pub fn sem_pass(&self, semaphore: SemaphoreId) -> Result<()> {
        self.obtain(SyncRequest::SemPass, semaphore.0, |objects, cx| {
            objects.sem_pass(cx, semaphore, self.slot).then_some(true)
        })?;
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
        self.obtain(SyncRequest::SemTryWait, semaphore.0, |objects, cx| objects.sem_try_wait(cx, semaphore, self.slot))
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
        let met = self.obtain(SyncRequest::SubsetBarrier, name.0, |objects, cx| {
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
        self.obtain(SyncRequest::CondJoin, condition.0, |objects, cx| {
            objects.cond_join(cx, condition, slot).then_some(true)
        })?;
        self.raw_unlock(lock)?;
        self.obtain(SyncRequest::CondAwait, condition.0, |objects, cx| {
            objects.cond_await(cx, condition, slot).then_some(true)
        })?;
        self.raw_lock(lock)
    }

    /// Wakes the thread that has waited longest for a condition variable; nothing when none waits. It is a release,
    /// unless this thread holds a lock: then that lock's release is.
    pub fn cond_notify_one(&self, condition: ConditionId) {
        if self.is_unheard(condition) {
            return;
        }
        let under_lock = self.locks.any();
        self.tell(SyncUpdate::CondSignal, condition.0, |objects, cx| objects.cond_signal(cx, condition, under_lock));
    }

    /// As [`Thread::cond_notify_one`], for all threads that wait for a condition variable.
    pub fn cond_notify_all(&self, condition: ConditionId) {
        if self.is_unheard(condition) {
            return;
        }
        let under_lock = self.locks.any();
        self.tell(SyncUpdate::CondBroadcast, condition.0, |objects, cx| {
            objects.cond_broadcast(cx, condition, under_lock)
        });
    }

    /// Whether nobody waits for a condition variable; most signals find nobody.
    fn is_unheard(&self, condition: ConditionId) -> bool {
        let objects = self.node.sync.object_shard(SyncUpdate::CondSignal.object(condition.0));
        objects.cond_is_unheard(condition, self.node.me(), self.node.nodes())
    }

    /// As [`Thread::read_lock`], without a guard; [`Thread::raw_rw_unlock`] releases it.
    ///
    /// # Errors
    /// When this thread writes under the lock.
    pub fn raw_read_lock(&self, lock: RwLockId) -> Result<()> {
        self.rw_in_section(SyncRequest::ReadLock, lock, |objects, cx| objects.rd_lock(cx, lock, self.slot))
    }

    /// As [`Thread::write_lock`], without a guard; [`Thread::raw_rw_unlock`] releases it.
    ///
    /// # Errors
    /// When this thread holds the lock already.
    pub fn raw_write_lock(&self, lock: RwLockId) -> Result<()> {
        self.rw_in_section(SyncRequest::WriteLock, lock, |objects, cx| objects.wr_lock(cx, lock, self.slot))
    }

    /// Releases a reader-writer lock, however this thread holds it.
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_rw_unlock(&self, lock: RwLockId) -> Result<()> {
        let released = self.tell(SyncUpdate::ReadUnlock, lock.0, |objects, cx| objects.rw_unlock(cx, lock, self.slot));
        released.map_err(|misuse| of_rw_lock(self.id(), lock, misuse))?;
        self.node.gate.iter().for_each(|sections| sections.end_section(self));
        Ok(())
    }

    /// As [`Thread::rw_acquire`], where another thread of the node may make a collective call meanwhile.
    fn rw_in_section(
        &self,
        request: SyncRequest,
        lock: RwLockId,
        begin: impl Fn(&mut SyncObjects, &mut Context<'_>) -> std::result::Result<bool, RwMisuse>,
    ) -> Result<()> {
        let Some(sections) = &self.node.gate else { return self.rw_acquire(request, lock, begin) };
        loop {
            // As with a lock, nobody waits for who waits.
            let entry = sections.begin_section(self)?;
            sections.end_section(self);
            self.rw_acquire(request, lock, &begin)?;
            if sections.begin(self.slot, entry) {
                return Ok(());
            }
            let slot = self.slot;
            self.stepping(|out| {
                self.node
                    .with_sync_objects(request.object(lock.0), Some(slot), out, |d, cx| d.rw_hand_back(cx, lock, slot));
            });
        }
    }

    fn rw_acquire(
        &self,
        request: SyncRequest,
        lock: RwLockId,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> std::result::Result<bool, RwMisuse>,
    ) -> Result<()> {
        self.counters().lock_acquires.add(1);
        let mut misuse = None;
        self.obtain(request, lock.0, |objects, cx| match begin(objects, cx) {
            Ok(held) => held.then_some(true),
            Err(why) => {
                misuse = Some(why);
                Some(false)
            }
        })?;
        misuse.map_or(Ok(()), |why| Err(of_rw_lock(self.id(), lock, why)))
    }

    /// A release: tells a manager something.
    fn tell<R>(&self, update: SyncUpdate, name: u64, tell: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> R) -> R {
        self.operation(|| {
            let slot = self.slot;
            self.node.send_combined_of(slot, slot);
            let told = self.releasing(|| {
                self.stepping(|out| self.node.with_sync_objects(update.object(name), Some(slot), out, tell))
            });
            self.wait_for_send_queue();
            told
        })
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

    /// An acquire: begins to ask, and waits for the answer unless it is there at once.
    fn obtain(
        &self,
        request: SyncRequest,
        name: u64,
        begin: impl FnOnce(&mut SyncObjects, &mut Context<'_>) -> Option<bool>,
    ) -> Result<bool> {
        self.operation(|| {
            let (slot, object) = (self.slot, request.object(name));
            self.node.send_combined_of(slot, slot);
            let ask = || {
                self.stepping(|out| {
                    let first = self.node.with_sync_objects(object, Some(slot), out, begin);
                    (first, !out.sends().is_empty())
                })
            };
            // To come to a meeting is a release, too, and so is to give.
            let releases = matches!(request, SyncRequest::SubsetBarrier | SyncRequest::SemGive);
            let (first, asked) = if releases { self.releasing(ask) } else { ask() };
            if let Some(got) = first {
                self.after_acquire(None)?;
                return Ok(got);
            }
            if asked && object.kind == comem_protocol::sync::objects::Kind::RwLock {
                self.counters().lock_remote.add(1);
            }
            self.slow_down();
            self.let_pins_go();
            let got = loop {
                // In a statement of its own, so that the room is not locked while the thread sleeps.
                let answer = self.node.sync.object_shard(object).collect(request, name, slot);
                match answer {
                    Some(got) => break got,
                    None => self.wait(Waiting::Answer(request, name))?,
                }
            };
            self.after_acquire(None)?;
            self.take_pins_back()?;
            Ok(got)
        })
    }
}
