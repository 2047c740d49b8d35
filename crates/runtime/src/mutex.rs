//! Locks that a panic does not poison, and whose waiters sleep.
//!
//! They are the standard library's. Who finds one taken looks for a microsecond, then sleeps, and is woken when it is
//! free. Locks that give their core away by `sched_yield` while they wait do badly here: the service thread wakes on
//! the core of an application thread, which may have just been inside; it yields, the thread comes out, goes on to wait
//! for another node, spins, and the service thread, which would let that node go on, gets its core back when the
//! spinning is over.

use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Mutual exclusion.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` where somebody else has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T: ?Sized> RwLock<T> {
    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` where somebody writes, or is about to.
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_poisons_nothing() {
        let (mutex, rwlock) = (Mutex::new(1), RwLock(std::sync::RwLock::new(2)));
        std::thread::scope(|s| {
            let inside = s.spawn(|| {
                let _both = (mutex.lock(), rwlock.write());
                assert!(mutex.try_lock().is_none());
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(inside.join().is_err());
        });
        assert_eq!(*mutex.lock(), 1);
        assert_eq!(mutex.try_lock().map(|n| *n), Some(1));
        assert_eq!(*rwlock.read(), 2);
        assert_eq!(*rwlock.write(), 2);
    }
}
