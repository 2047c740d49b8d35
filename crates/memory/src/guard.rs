//! The handshake between a store's fast path and the thread that takes the permission away.
//!
//! A store checks the permission and then stores; an invalidation between the two would be lost data (DSM/IP, section
//! 3.2.3). Locking every store would cost a locked instruction or two; instead the cost is put on the rare side:
//!
//! ```text
//! storing thread                      revoking thread
//!   flag = 1                            permission = less
//!   (compiler barrier)                  membarrier: every thread of the process has passed a full barrier
//!   if permission allows: store         wait until each thread's flag is 0
//!   (compiler barrier)
//!   flag = 0
//! ```
//!
//! After the `membarrier`, a thread that checked before the revocation has its flag visibly set, and a thread that
//! sets its flag later sees the new permission. So when the flags are down, no store under the old
//! permission is under way and all of them are in memory. Where the system call is missing, no thread is ever
//! permitted the fast path for stores.

use comem_protocol::ids::{Slot, THREADS_MAX};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// One thread's part in the handshake. The layout is known to the C header.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct StoreFlag {
    /// 1 while the thread is between the check of a permission and the store.
    pub writing: AtomicU8,
    /// The permission byte that allows this thread to store: [`WRITE`] once it is attached, never equal to a
    /// permission before.
    pub may_write: u8,
}

/// Permission byte: nothing is allowed.
pub const NONE: u8 = 0;
/// Permission byte: loads are allowed.
pub const READ: u8 = 1;
/// Permission byte: loads and stores are allowed.
pub const WRITE: u8 = 3;

impl StoreFlag {
    /// The flag of an attached thread.
    pub const fn new() -> StoreFlag {
        StoreFlag { writing: AtomicU8::new(0), may_write: WRITE }
    }
}

impl Default for StoreFlag {
    fn default() -> Self {
        StoreFlag::new()
    }
}

const COMMAND_PRIVATE_EXPEDITED: i64 = 1 << 3;
const COMMAND_REGISTER_PRIVATE_EXPEDITED: i64 = 1 << 4;

fn membarrier(command: i64) -> bool {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether this system has the expedited `membarrier`; found by using it.
pub fn membarrier_works() -> bool {
    membarrier(COMMAND_REGISTER_PRIVATE_EXPEDITED) && membarrier(COMMAND_PRIVATE_EXPEDITED)
}

/// Every thread of the process passes a full barrier before this returns, where [`membarrier_works`].
pub fn barrier_everywhere() {
    let done = membarrier(COMMAND_PRIVATE_EXPEDITED);
    debug_assert!(done, "it has worked before");
}

/// The revoking side: knows every thread's flag.
#[derive(Debug)]
pub struct StoreGuard {
    flags: Box<[AtomicPtr<StoreFlag>]>,
    /// Slots above this number have never been attached.
    slots: AtomicUsize,
    fast: bool,
}

impl StoreGuard {
    /// A guard with no threads attached. `fast` asks for the fast path; it is granted where `membarrier` works.
    pub fn new(fast: bool) -> StoreGuard {
        let flags = (0..=THREADS_MAX).map(|_| AtomicPtr::default()).collect();
        StoreGuard { flags, slots: AtomicUsize::new(0), fast: fast && membarrier_works() }
    }

    /// Whether threads may store without a lock.
    pub fn fast(&self) -> bool {
        self.fast
    }

    /// Makes `slot`'s flag known. It must stay where it is for as long as the guard lives.
    pub fn attach(&self, slot: Slot, flag: &'static StoreFlag) {
        self.flags[slot.index()].store(std::ptr::from_ref(flag).cast_mut(), Ordering::Release);
        self.slots.fetch_max(slot.index() + 1, Ordering::AcqRel);
    }

    /// Returns when no store that began under an earlier permission is under way in another thread than `caller`.
    pub fn quiesce(&self, caller: Option<Slot>) {
        if !self.fast {
            return;
        }
        if let Some(own) = caller {
            let own = self.flags[own.index()].load(Ordering::Acquire);
            // SAFETY: as below.
            let announced = unsafe { own.as_ref() }.is_some_and(|own| own.writing.load(Ordering::Relaxed) != 0);
            debug_assert!(!announced, "a thread revokes permissions while it has a store announced");
        }
        let slots = self.slots.load(Ordering::Acquire);
        let others = (1..slots).filter(|i| caller.map(Slot::index) != Some(*i));
        let mut waited = false;
        for index in others {
            let flag = self.flags[index].load(Ordering::Acquire);
            // SAFETY: `attach` takes flags that live for ever; a slot without one holds null.
            let Some(flag) = (unsafe { flag.as_ref() }) else { continue };
            if !waited {
                barrier_everywhere();
                waited = true;
            }
            let mut spins = 0_u32;
            while flag.writing.load(Ordering::Acquire) != 0 {
                spins += 1;
                if spins < 100 {
                    std::hint::spin_loop();
                } else {
                    // The thread lost its core in the middle of a store: let it have this one.
                    std::thread::yield_now();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Two threads store under permission as fast as they can, a third revokes and copies; a store that
    /// lands after the copy was taken would be missing from the count.
    #[test]
    fn no_store_falls_behind_a_revocation() {
        const WRITERS: usize = 2;
        let guard = Arc::new(StoreGuard::new(true));
        assert!(guard.fast(), "this test needs membarrier");
        let permission: Arc<[AtomicU8; WRITERS]> = Arc::default();
        let cells: Arc<[AtomicU64; WRITERS]> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (guard, permission, cells, stop) = (guard.clone(), permission.clone(), cells.clone(), stop.clone());
                let flag: &'static StoreFlag = Box::leak(Box::new(StoreFlag::new()));
                guard.attach(Slot::thread(w), flag);
                std::thread::spawn(move || {
                    let mut stored = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        flag.writing.store(1, Ordering::Relaxed);
                        std::sync::atomic::compiler_fence(Ordering::SeqCst);
                        if permission[w].load(Ordering::Relaxed) == WRITE {
                            cells[w].store(stored + 1, Ordering::Relaxed);
                            stored += 1;
                        }
                        std::sync::atomic::compiler_fence(Ordering::SeqCst);
                        flag.writing.store(0, Ordering::Release);
                    }
                    stored
                })
            })
            .collect();
        for round in 0..5_000 {
            let w = round % WRITERS;
            permission[w].store(WRITE, Ordering::Release);
            permission[w].store(NONE, Ordering::Relaxed);
            guard.quiesce(None);
            let copy = cells[w].load(Ordering::Relaxed);
            for _ in 0..20 {
                assert_eq!(cells[w].load(Ordering::Relaxed), copy, "a store fell behind the revocation");
            }
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
    }
}
