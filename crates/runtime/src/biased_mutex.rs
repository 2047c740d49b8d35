//! Mutual exclusion for what one thread takes again and again, and others seldom.
//!
//! An ordinary mutex takes two locked instructions, one to take it and one to let it go, since who lets it go must find
//! out whether somebody sleeps. They are most of what it costs to take a lock that was last held here. Here to let go
//! is a store, and who finds the mutex taken pays:
//!
//! ```text
//! who lets go                     who finds it taken
//!   taken = 0                       waiting += 1
//!   (compiler barrier)              membarrier: every thread of the process has passed a full barrier
//!   if waiting > 0: wake one        sleep while taken = 1
//! ```
//!
//! After the `membarrier`, who let go before has its store in memory, so nobody falls asleep; who lets go later sees
//! that somebody waits. Where the system call is missing, to let go is a locked instruction as well.

use crate::waiter::futex;
use comem_memory::guard::{barrier_everywhere, membarrier_works};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// So often it is looked whether it is free, before the thread sleeps: a microsecond or two.
const SPINS_BEFORE_SLEEP: u32 = 100;

/// A mutex. A panic inside poisons nothing.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct BiasedMutex<T> {
    taken: AtomicU32,
    /// Threads that sleep or are about to.
    waiting: AtomicU32,
    /// To let go is a store.
    stores: bool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time gets at the value, through the guard.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

impl<T: Default> Default for BiasedMutex<T> {
    fn default() -> BiasedMutex<T> {
        BiasedMutex::around(T::default())
    }
}

impl<T> BiasedMutex<T> {
    /// One around this value.
    pub(crate) fn around(value: T) -> BiasedMutex<T> {
        static WORKS: OnceLock<bool> = OnceLock::new();
        BiasedMutex::new(value, *WORKS.get_or_init(membarrier_works))
    }

    fn new(value: T, stores: bool) -> BiasedMutex<T> {
        BiasedMutex { taken: AtomicU32::new(0), waiting: AtomicU32::new(0), stores, value: UnsafeCell::new(value) }
    }

    /// Takes it. Whatever this thread has stored before is in memory then, for all to see.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if !self.takes() {
            self.wait();
        }
        Guard { mutex: self }
    }

    #[inline]
    fn takes(&self) -> bool {
        self.taken.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS_BEFORE_SLEEP {
            if self.taken.load(Ordering::Relaxed) == 0 && self.takes() {
                return;
            }
            std::hint::spin_loop();
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.stores {
            barrier_everywhere();
        }
        while !self.takes() {
            futex(&self.taken, libc::FUTEX_WAIT, 1, None);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn let_go(&self) {
        if self.stores {
            self.taken.store(0, Ordering::Release);
            compiler_fence(Ordering::SeqCst);
        } else {
            self.taken.swap(0, Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        futex(&self.taken, libc::FUTEX_WAKE, 1, None);
    }
}

/// What is held while this lives.
pub(crate) struct Guard<'a, T> {
    mutex: &'a BiasedMutex<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread has the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn threads_take_turns_and_none_sleeps_for_ever() {
        for stores in [membarrier_works(), false] {
            let counts = BiasedMutex::new((0_u64, 0_u64), stores);
            std::thread::scope(|scope| {
                for thread in 0..4_u64 {
                    let counts = &counts;
                    scope.spawn(move || {
                        for round in 0..20_000_u64 {
                            let mut both = counts.lock();
                            both.0 += 1;
                            // Others must find it taken, and sleep.
                            if (round + thread).is_multiple_of(1_000) {
                                std::thread::sleep(Duration::from_micros(50));
                            } else if round.is_multiple_of(64) {
                                std::thread::yield_now();
                            }
                            both.1 += 1;
                            assert_eq!(both.0, both.1);
                        }
                    });
                }
            });
            assert_eq!(*counts.lock(), (80_000, 80_000));
            assert_eq!((counts.taken.into_inner(), counts.waiting.into_inner()), (0, 0));
        }
    }

    #[test]
    fn who_sleeps_is_woken_by_who_lets_go() {
        for stores in [membarrier_works(), false] {
            let light = BiasedMutex::new(1, stores);
            std::thread::scope(|scope| {
                let mut mine = light.lock();
                let other = scope.spawn(|| *light.lock());
                while light.waiting.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                // Long enough for it to fall asleep.
                std::thread::sleep(Duration::from_millis(20));
                *mine = 2;
                drop(mine);
                assert_eq!(other.join().unwrap(), 2);
            });
        }
    }

    #[test]
    fn a_panic_inside_lets_go() {
        let light = BiasedMutex::<u32>::default();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let _guard = light.lock();
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(inside.join().is_err());
        });
        assert_eq!(*light.lock(), 0);
    }
}
