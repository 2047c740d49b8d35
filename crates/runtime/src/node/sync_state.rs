//! The state machines of a node's synchronisation, behind their locks.

use crate::biased_mutex::{self, BiasedMutex};
use crate::locks::LockTables;
use crate::mutex::Mutex;
use comem_protocol::ids::{FlagId, LockId, Slot};
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{SyncObject, SyncObjects};
use comem_protocol::tuning::Tuning;
use std::sync::{MutexGuard, OnceLock};

const LOCK_SHARDS: usize = 64;
const FLAG_SHARDS: usize = 16;
const OBJECT_SHARDS: usize = 64;

/// Locks, flags, objects of synchronisation and the barrier, as this node knows them.
///
/// A name's shard is taken for one step on it. A step that releases or acquires closes an interval or ends copies with
/// the shard held: so a shard, or the barrier, is taken before the schedule of locks and before the locks of pages.
/// Nobody holds two shards.
#[derive(Debug)]
pub(crate) struct SyncState {
    locks: Vec<BiasedMutex<Locks>>,
    /// Where locks are one-sided: their words.
    lock_tables: OnceLock<LockTables>,
    flags: Vec<Mutex<Flags>>,
    objects: Vec<Mutex<SyncObjects>>,
    barrier: Mutex<Barrier>,
}

/// Where a name is among so many shards.
#[inline]
fn shard(name: u64, shards: usize) -> usize {
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % shards
}

impl SyncState {
    pub(crate) fn new(barrier: Barrier, tuning: &Tuning) -> SyncState {
        SyncState {
            locks: (0..LOCK_SHARDS).map(|_| BiasedMutex::around(Locks::new().tuned(tuning.locks))).collect(),
            lock_tables: OnceLock::new(),
            flags: (0..FLAG_SHARDS).map(|_| Mutex::default()).collect(),
            objects: (0..OBJECT_SHARDS).map(|_| Mutex::new(SyncObjects::new().tuned(tuning.sync))).collect(),
            barrier: Mutex::new(barrier),
        }
    }

    #[inline]
    pub(crate) fn lock_shard(&self, lock: LockId) -> biased_mutex::Guard<'_, Locks> {
        self.locks[shard(lock.0, LOCK_SHARDS)].lock()
    }

    pub(crate) fn flag_shard(&self, flag: FlagId) -> MutexGuard<'_, Flags> {
        self.flags[shard(flag.0, FLAG_SHARDS)].lock()
    }

    pub(crate) fn object_shard(&self, object: SyncObject) -> MutexGuard<'_, SyncObjects> {
        self.objects[shard(object.key(), OBJECT_SHARDS)].lock()
    }

    pub(crate) fn with_barrier<R>(&self, step: impl FnOnce(&mut Barrier) -> R) -> R {
        step(&mut self.barrier.lock())
    }

    /// The tables of locks; `None` where they are tokens.
    #[inline]
    pub(crate) fn lock_tables(&self) -> Option<&LockTables> {
        self.lock_tables.get()
    }

    pub(crate) fn set_lock_tables(&self, tables: LockTables) {
        let set = self.lock_tables.set(tables);
        debug_assert!(set.is_ok(), "they are made once");
    }

    /// The locks whose tokens threads of this node hold, and who does.
    pub(crate) fn locks_held(&self) -> Vec<(LockId, Slot)> {
        self.locks.iter().flat_map(|shard| shard.lock().held().collect::<Vec<_>>()).collect()
    }

    /// The names of reader-writer locks that threads of this node hold, who does, and whether for writing.
    pub(crate) fn rw_locks_held(&self) -> Vec<(u64, Slot, bool)> {
        self.objects.iter().flat_map(|shard| shard.lock().held().collect::<Vec<_>>()).collect()
    }
}
