//! Of those: semaphores, reader-writer locks, condition variables, reductions and meetings.

use super::{alone, word};
use crate::pages::program::{Op, Programs};
use comem_protocol::ids::{FlagId, LockId};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;

/// Two nodes write a word each and post; the third, which has a copy, takes both, counts in one of the words, and gives
/// the first its turn.
pub(super) fn posted() -> Programs {
    let (done, go) = (SemaphoreId(1), SemaphoreId(2));
    let start = [Op::Read(3), Op::Barrier];
    let end = [Op::Barrier, Op::Read(0), Op::Read(1)];
    let takes = [Op::Take(done), Op::Take(done), Op::Read(1), Op::Read(0), Op::WriteNext(0), Op::Give(go)];
    alone(vec![
        [&start[..], &[Op::Write(0, 4), Op::Post(done), Op::Take(go), Op::Read(0)], &end].concat(),
        [&start[..], &[Op::Write(1, 4), Op::Post(done)], &end].concat(),
        [&start[..], &takes, &end].concat(),
    ])
}

/// A word under a semaphore of one goes from node to node.
pub(super) fn handed() -> Programs {
    let guard = SemaphoreId(1);
    let count = [Op::Take(guard), Op::Read(0), Op::WriteNext(0), Op::Post(guard)];
    let end = [Op::Barrier, Op::Read(0)];
    alone(vec![
        [&[Op::Post(guard)][..], &count, &end].concat(),
        [&count[..], &end].concat(),
        [&count[..], &end].concat(),
    ])
}

/// A node counts in a table, in which the others read and leave marks, which it reads as well.
pub(super) fn read_and_written() -> Programs {
    let lock = RwLockId(1);
    let counts = [Op::WriteLock(lock), Op::Read(1), Op::Read(2), Op::Read(0), Op::WriteNext(0), Op::RwUnlock(lock)];
    let marks = |me: usize, value| [Op::ReadLock(lock), Op::Read(0), Op::Write(me, value), Op::RwUnlock(lock)];
    let end = [&[Op::Barrier][..], &[0, 1, 2].map(Op::Read)].concat();
    let reader = |me| [&marks(me, 4)[..], &marks(me, 5), &end].concat();
    alone(vec![[&counts[..], &counts, &end].concat(), reader(1), reader(2)])
}

/// A node waits for a condition, and another that holds no lock tells it by the signal what it has written since it let
/// the lock go, which has been elsewhere.
pub(super) fn signalled() -> Programs {
    let (lock, ready, heard) = (LockId(1), ConditionId(1), ConditionId(2));
    let (left, passed) = (FlagId(1), FlagId(2));
    let (sign, data) = (word(0, 0), word(1, 0));
    let start = [Op::Read(data), Op::Barrier];
    let waits = [Op::Lock(lock), Op::Write(sign, 1), Op::Signal(ready), Op::CondWait(heard, lock), Op::Read(data)];
    let passes = [Op::Await(left, 1), Op::Lock(lock), Op::Unlock(lock), Op::Set(passed, 1)];
    let looks = [Op::Lock(lock), Op::Read(sign), Op::CondWaitIfZero(ready, lock), Op::Unlock(lock)];
    let signals = [Op::Set(left, 1), Op::Await(passed, 1), Op::Write(data, 5), Op::Broadcast(heard)];
    alone(vec![
        [&start[..], &passes].concat(),
        [&start[..], &waits, &[Op::Unlock(lock)]].concat(),
        [&start[..], &looks, &signals].concat(),
    ])
}

/// Two nodes write words of one page and read each other's behind a reduction.
pub(super) fn reduced() -> Programs {
    let program = |me: usize| {
        let writes = [Op::Read(3), Op::Write(me, 4), Op::Reduce(3 + me as u64), Op::Read(1 - me)];
        let keeps = [Op::Reduce(1), Op::WriteBack(me), Op::Reduce(2), Op::Read(1 - me)];
        [writes, keeps].concat()
    };
    alone((0..2).map(program).collect())
}

/// The same behind meetings of two of three nodes, while the third counts.
pub(super) fn met() -> Programs {
    let meet = Op::BarrierOf(SubsetBarrierId(1), 2);
    let program = |me: usize| {
        let round = |value| [Op::Write(me, value), meet, Op::Read(1 - me), meet];
        [&round(4)[..], &round(5), &[Op::Barrier, Op::Read(2)]].concat()
    };
    let third = [Op::Read(3), Op::Write(2, 4), Op::Write(2, 5), Op::Barrier, Op::Read(0), Op::Read(1)];
    alone(vec![program(0), program(1), third.to_vec()])
}
