//! Locks held as long as a guard lives, as with those of `std::sync`.

use super::Thread;
use crate::error::Result;
use comem_protocol::ids::LockId;
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;

/// A lock that a thread holds ([`Thread::lock`]), released when this is dropped.
///
/// A panic that unwinds releases the lock, too. Locks are not poisoned: the next holder sees what was written until
/// then. Where the job is over meanwhile (a node is lost, say), dropping the guard ends the node with the sentence that
/// tells of it; while a panic unwinds, it says nothing.
#[must_use = "the lock is released at once if its guard is not kept"]
#[derive(Debug)]
pub struct LockGuard<'a> {
    thread: &'a Thread,
    lock: LockId,
}

impl LockGuard<'_> {
    /// The lock.
    pub fn id(&self) -> LockId {
        self.lock
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.thread.end_guard(self.thread.raw_unlock(self.lock));
    }
}

/// A reader-writer lock that a thread holds to read ([`Thread::read_lock`]), released when this is dropped; panics and
/// errors as for [`LockGuard`].
#[must_use = "the lock is released at once if its guard is not kept"]
#[derive(Debug)]
pub struct ReadGuard<'a> {
    thread: &'a Thread,
    lock: RwLockId,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.thread.end_guard(self.thread.raw_rw_unlock(self.lock));
    }
}

/// A reader-writer lock that a thread holds to write ([`Thread::write_lock`]), released when this is dropped; panics
/// and errors as for [`LockGuard`].
#[must_use = "the lock is released at once if its guard is not kept"]
#[derive(Debug)]
pub struct WriteGuard<'a> {
    thread: &'a Thread,
    lock: RwLockId,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.thread.end_guard(self.thread.raw_rw_unlock(self.lock));
    }
}

impl Thread {
    /// Acquires a lock (not reentrant), and holds it as long as the guard lives.
    ///
    /// # Errors that end the node
    /// When this thread holds the lock already, or a node is lost.
    #[inline]
    pub fn lock(&self, lock: LockId) -> LockGuard<'_> {
        self.must(self.raw_lock(lock));
        LockGuard { thread: self, lock }
    }

    /// As [`Thread::lock`].
    ///
    /// # Errors
    /// When this thread holds the lock already, or a node is lost.
    pub fn checked_lock(&self, lock: LockId) -> Result<LockGuard<'_>> {
        self.raw_lock(lock).map(|()| LockGuard { thread: self, lock })
    }

    /// Acquires a lock if that means to wait for no thread; `None` where another thread holds it, or this one.
    ///
    /// Also `None` where the lock lies at another node: it is sent for, and a later call finds it here once nobody
    /// holds it.
    ///
    /// # Errors that end the node
    /// When a node is lost.
    pub fn try_lock(&self, lock: LockId) -> Option<LockGuard<'_>> {
        self.must(self.raw_try_lock(lock)).then(|| LockGuard { thread: self, lock })
    }

    /// Runs `f` while holding a lock: [`Thread::lock`] for the length of a call.
    ///
    /// # Errors that end the node
    /// As for [`Thread::lock`].
    pub fn locked<R>(&self, lock: LockId, f: impl FnOnce() -> R) -> R {
        let _guard = self.lock(lock);
        f()
    }

    /// Lets a lock go, waits until the condition variable is signalled, and acquires the lock again. No signal sent by
    /// a thread that acquired the lock meanwhile is lost. What the thread waits for may have come and gone again when
    /// it returns: check it in a loop, or take [`Thread::cond_wait_while`].
    ///
    /// # Errors that end the node
    /// When a node is lost.
    ///
    /// # Panics
    /// When the guard is another thread's.
    pub fn cond_wait<'a>(&self, condition: ConditionId, guard: LockGuard<'a>) -> LockGuard<'a> {
        assert!(std::ptr::eq(self, guard.thread), "a thread waits with a guard of another thread's");
        self.must(self.raw_cond_wait(condition, guard.lock));
        guard
    }

    /// As [`Thread::cond_wait`], again and again, as long as `waits` says so.
    pub fn cond_wait_while<'a>(
        &self,
        condition: ConditionId,
        mut guard: LockGuard<'a>,
        mut waits: impl FnMut() -> bool,
    ) -> LockGuard<'a> {
        while waits() {
            guard = self.cond_wait(condition, guard);
        }
        guard
    }

    /// Acquires a reader-writer lock to read, together with other readers, and holds it as long as the guard lives. A
    /// thread that reads already may enter again.
    ///
    /// # Errors that end the node
    /// When this thread writes under the lock, or a node is lost.
    pub fn read_lock(&self, lock: RwLockId) -> ReadGuard<'_> {
        self.must(self.raw_read_lock(lock));
        ReadGuard { thread: self, lock }
    }

    /// Acquires a reader-writer lock to write, alone, and holds it as long as the guard lives.
    ///
    /// # Errors that end the node
    /// When this thread holds the lock already, or a node is lost.
    pub fn write_lock(&self, lock: RwLockId) -> WriteGuard<'_> {
        self.must(self.raw_write_lock(lock));
        WriteGuard { thread: self, lock }
    }

    /// Acquires a reader-writer lock to read if that means to wait for no thread but the lock's manager; `None` where
    /// another thread writes or waits to write, or this one writes. A thread that reads already may enter again.
    ///
    /// # Errors that end the node
    /// When a node is lost.
    pub fn try_read_lock(&self, lock: RwLockId) -> Option<ReadGuard<'_>> {
        self.must(self.raw_try_read_lock(lock)).then(|| ReadGuard { thread: self, lock })
    }

    /// Acquires a reader-writer lock to write if that means to wait for no thread but the lock's manager; `None` where
    /// any thread holds it, this one among them.
    ///
    /// # Errors that end the node
    /// When a node is lost.
    pub fn try_write_lock(&self, lock: RwLockId) -> Option<WriteGuard<'_>> {
        self.must(self.raw_try_write_lock(lock)).then(|| WriteGuard { thread: self, lock })
    }

    fn end_guard(&self, released: Result<()>) {
        // The job may be over: the panic says enough.
        if !std::thread::panicking() {
            self.must(released);
        }
    }
}
