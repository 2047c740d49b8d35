//! What a thread does with locks that it must not, as an error.

use crate::error::Error;
use comem_protocol::ids::LockId;
use comem_protocol::sync::rwlock::{RwLockId, RwMisuse};

/// Thread `thread` releases a lock that it does not hold.
pub(crate) fn holds_it_not(thread: usize, lock: LockId) -> Error {
    Error::LockNotHeld { thread, lock }
}

/// Thread `thread` acquires a lock that it holds.
pub(crate) fn holds_already(thread: usize, lock: LockId) -> Error {
    Error::LockHeld { thread, lock }
}

/// The same of a reader-writer lock.
pub(super) fn of_rw_lock(thread: usize, lock: RwLockId, misuse: RwMisuse) -> Error {
    match misuse {
        RwMisuse::NotHeld => Error::RwLockNotHeld { thread, lock },
        RwMisuse::WaitsForItself => Error::RwLockHeld { thread, lock },
    }
}
