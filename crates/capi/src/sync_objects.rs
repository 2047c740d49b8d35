//! Semaphores, condition variables and reader-writer locks.

use crate::failure::{done, reported};
use crate::job::thread;
use comem_rt::{ConditionId, LockId, RwLockId, SemaphoreId};
use std::ffi::c_int;

/// Adds one to a semaphore.
#[unsafe(no_mangle)]
pub extern "C" fn comem_sem_post(semaphore: u64) -> c_int {
    done(|| {
        thread()?.sem_post(SemaphoreId(semaphore));
        Ok(())
    })
}

/// Takes one from a semaphore, once there is one.
#[unsafe(no_mangle)]
pub extern "C" fn comem_sem_wait(semaphore: u64) -> c_int {
    done(|| Ok(thread()?.checked_sem_wait(SemaphoreId(semaphore))?))
}

/// Takes one from a semaphore, if there is one; 1 if it did.
#[unsafe(no_mangle)]
pub extern "C" fn comem_sem_trywait(semaphore: u64) -> c_int {
    reported(|| Ok(c_int::from(thread()?.checked_try_sem_wait(SemaphoreId(semaphore))?)), |code| code)
}

/// Waits for a signal without the lock, and acquires it again.
#[unsafe(no_mangle)]
pub extern "C" fn comem_cond_wait(condition: u64, lock: u64) -> c_int {
    done(|| Ok(thread()?.raw_cond_wait(ConditionId(condition), LockId(lock))?))
}

/// Wakes the thread that has waited longest.
#[unsafe(no_mangle)]
pub extern "C" fn comem_cond_signal(condition: u64) -> c_int {
    done(|| {
        thread()?.cond_notify_one(ConditionId(condition));
        Ok(())
    })
}

/// Wakes all threads that wait.
#[unsafe(no_mangle)]
pub extern "C" fn comem_cond_broadcast(condition: u64) -> c_int {
    done(|| {
        thread()?.cond_notify_all(ConditionId(condition));
        Ok(())
    })
}

/// Acquires a reader-writer lock to read.
#[unsafe(no_mangle)]
pub extern "C" fn comem_rdlock(lock: u64) -> c_int {
    done(|| Ok(thread()?.raw_read_lock(RwLockId(lock))?))
}

/// Acquires a reader-writer lock to write.
#[unsafe(no_mangle)]
pub extern "C" fn comem_wrlock(lock: u64) -> c_int {
    done(|| Ok(thread()?.raw_write_lock(RwLockId(lock))?))
}

/// Acquires a reader-writer lock to read, if no thread but its manager must be waited for; 1 if it did.
#[unsafe(no_mangle)]
pub extern "C" fn comem_tryrdlock(lock: u64) -> c_int {
    reported(|| Ok(c_int::from(thread()?.raw_try_read_lock(RwLockId(lock))?)), |code| code)
}

/// Acquires a reader-writer lock to write, if no thread but its manager must be waited for; 1 if it did.
#[unsafe(no_mangle)]
pub extern "C" fn comem_trywrlock(lock: u64) -> c_int {
    reported(|| Ok(c_int::from(thread()?.raw_try_write_lock(RwLockId(lock))?)), |code| code)
}

/// Releases a reader-writer lock.
#[unsafe(no_mangle)]
pub extern "C" fn comem_rwunlock(lock: u64) -> c_int {
    done(|| Ok(thread()?.raw_rw_unlock(RwLockId(lock))?))
}
