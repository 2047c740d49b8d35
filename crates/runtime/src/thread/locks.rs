//! Locks as a thread acquires and releases them, without guards.

use super::{Thread, misuse};
use crate::collective_gate::CollectiveGate;
use crate::error::{Error, Result};
use crate::node::Waiting;
use comem_protocol::ids::LockId;
use comem_protocol::sync::Context;
use comem_protocol::sync::lock::{Acquire, Locks};
use comem_protocol::time::Time;

impl Thread {
    /// Acquires a lock, without a guard: for languages whose locks have none. [`Thread::raw_unlock`] releases it.
    ///
    /// # Errors
    /// When this thread holds the lock already, or a node is lost.
    pub fn raw_lock(&self, lock: LockId) -> Result<()> {
        // What others ask for is looked at when the lock is released, or by who waits for it.
        self.node.send_combined_of(self.slot, self.slot);
        self.counters().lock_acquires.add(1);
        let call = LockCall { thread: self, lock };
        match &self.node.gate {
            None if call.take_at_once()? => {}
            None => call.take_later()?,
            Some(sections) => call.take_in_section(sections)?,
        }
        self.locks.one_more();
        Ok(())
    }

    /// As [`Thread::try_lock`], without a guard; whether this thread holds the lock now and did not before.
    ///
    /// # Errors
    /// When a node is lost.
    pub fn raw_try_lock(&self, lock: LockId) -> Result<bool> {
        // A thread that tries again and again sees to it that what it waits for comes in.
        self.node.serve_at_call(self.slot, None);
        self.node.send_combined_of(self.slot, self.slot);
        let may_begin = || self.node.gate.as_ref().is_none_or(|sections| sections.begin_at_once(self.slot));
        if self.node.holds_lock(lock, self.slot) || !may_begin() {
            return self.node.life.goes_on().map(|()| false);
        }
        let taken = match self.node.sync.lock_tables() {
            Some(tables) => tables.take_free(self, lock),
            None => LockCall { thread: self, lock }.take_free_token(),
        };
        if matches!(taken, Ok(true)) {
            self.counters().lock_acquires.add(1);
            self.locks.one_more();
            return Ok(true);
        }
        self.node.gate.iter().for_each(|sections| sections.end_section(self));
        taken.and_then(|_| self.node.life.goes_on()).map(|()| false)
    }

    /// Releases a lock that this thread has acquired by [`Thread::raw_lock`].
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_unlock(&self, lock: LockId) -> Result<()> {
        self.node.serve_at_call(self.slot, Some(lock));
        self.node.send_combined_of(self.slot, self.slot);
        match self.node.sync.lock_tables() {
            Some(tables) if tables.let_go(self, lock)? => {}
            Some(_) => return Err(misuse::holds_it_not(self.id(), lock)),
            None if self.node.sync.lock_shard(lock).release_local(lock, self.slot, || self.node.mark()) => {}
            None => LockCall { thread: self, lock }.give()?,
        }
        self.node.gate.iter().for_each(|sections| sections.end_section(self));
        self.locks.one_less();
        Ok(())
    }

    /// Acquires a lock, and under the engine `scope` with it what all who released it had written until then, whatever
    /// lock it was written under: Brazos's lazy acquire. Under other engines every acquire is of that kind. Where the
    /// token has come without that, all other nodes are asked, one after the other.
    ///
    /// # Errors
    /// When this thread holds the lock already, or a node is lost.
    pub fn raw_lock_lazily(&self, lock: LockId) -> Result<()> {
        self.node.intervals().into_iter().for_each(|mut intervals| intervals.require_full_notices_always(lock));
        self.raw_lock(lock)?;
        let is_partial = self.node.intervals().is_some_and(|intervals| intervals.has_partial_notices(lock));
        if is_partial { LockCall { thread: self, lock }.catch_up() } else { Ok(()) }
    }

    /// Releases a lock; under the engine `scope` whoever acquires it until the next barrier of all sees what this
    /// thread has written until now, whatever lock it was written under: Brazos's release-consistent release. Under
    /// other engines every release is of that kind.
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_unlock_widely(&self, lock: LockId) -> Result<()> {
        self.node.intervals().into_iter().for_each(|mut intervals| intervals.require_full_notices(lock));
        self.raw_unlock(lock)
    }
}

/// An acquire or a release of a lock by a thread.
#[derive(Clone, Copy)]
struct LockCall<'a> {
    thread: &'a Thread,
    lock: LockId,
}

impl LockCall<'_> {
    /// Takes a lock whose token is here and free; else asks for the token, for no thread, and does not wait.
    fn take_free_token(&self) -> Result<bool> {
        let LockCall { thread, lock } = *self;
        if self.retake()? {
            return Ok(true);
        }
        let slot = thread.slot;
        let take = |l: &mut Locks, cx: &mut Context<'_>| l.try_acquire(cx, lock, slot);
        let mut taken = thread.stepping(|out| thread.node.with_locks(lock, Some(slot), out, take));
        if !taken {
            // A token that was published comes at once.
            thread.node.request_tokens(slot, &[lock]);
            taken = thread.node.sync.lock_shard(lock).reacquire_local(lock, slot);
        }
        if taken {
            thread.operation(|| thread.after_acquire(Some(lock)))?;
        }
        Ok(taken)
    }

    /// Takes a lock without a message and without waiting; whether it did.
    #[inline]
    fn take_at_once(&self) -> Result<bool> {
        let LockCall { thread, lock } = *self;
        match thread.node.sync.lock_tables() {
            Some(tables) => tables.take_free(thread, lock),
            None => self.retake(),
        }
    }

    /// Takes a lock that [`LockCall::take_at_once`] did not.
    fn take_later(&self) -> Result<()> {
        let LockCall { thread, lock } = *self;
        match thread.node.sync.lock_tables() {
            Some(tables) => tables.take_in_turn(thread, lock),
            None => self.fetch(),
        }
    }

    /// A lock last held here: no message, and no clock either. Whether it is one, and is held now.
    fn retake(&self) -> Result<bool> {
        let LockCall { thread, lock } = *self;
        if !thread.node.sync.lock_shard(lock).reacquire_local(lock, thread.slot) {
            return Ok(false);
        }
        if thread.node.awaits_diffs() {
            // The token has come while no thread waited for it.
            thread.operation(|| thread.after_acquire(Some(lock)))?;
        }
        Ok(true)
    }

    /// Acquires a lock where another thread of the node may make a collective call meanwhile.
    fn take_in_section(&self, sections: &CollectiveGate) -> Result<()> {
        let LockCall { thread, lock } = *self;
        loop {
            let entry = sections.begin_section(thread)?;
            match self.take_at_once() {
                Ok(false) => {}
                Ok(true) => return Ok(()),
                Err(error) => {
                    sections.end_section(thread);
                    return Err(error);
                }
            }
            // Who waits for a token holds nothing, however patient, so nobody may wait for that: the token may be where
            // it stays until the call is over.
            sections.end_section(thread);
            self.take_later()?;
            if sections.begin(thread.slot, entry) {
                return Ok(());
            }
            let slot = thread.slot;
            match thread.node.sync.lock_tables() {
                Some(tables) => _ = tables.let_go(thread, lock)?,
                None => thread
                    .stepping(|out| thread.node.with_locks(lock, Some(slot), out, |l, cx| l.hand_back(cx, lock, slot))),
            }
        }
    }

    /// Asks for the lock's token, and waits until it is here.
    fn fetch(&self) -> Result<()> {
        let LockCall { thread, lock } = *self;
        thread.operation(|| {
            let slot = thread.slot;
            if thread.node.sync.lock_shard(lock).holds(lock, slot) {
                return Err(Error::LockHeld { thread: thread.id(), lock });
            }
            let (first, asked) = thread.stepping(|out| {
                let first = thread.node.with_locks(lock, Some(slot), out, |l, cx| l.acquire(cx, lock, slot));
                (first, !out.sends().is_empty())
            });
            if first == Acquire::Held {
                // The token has come since `reacquire_local`, while no thread waited for it.
                return if thread.node.awaits_diffs() { thread.after_acquire(Some(lock)) } else { Ok(()) };
            }
            if first == Acquire::Taken {
                thread.counters().lock_remote.add(1);
                thread.counters().lock_taken.add(1);
                return thread.after_acquire(Some(lock));
            }
            let start = if asked { thread.node.now() } else { Time(0) };
            if asked {
                thread.counters().lock_remote.add(1);
                thread.node.schedule.step(|machine| machine.token_requested(lock, start));
            }
            thread.slow_down();
            thread.let_pins_go();
            while !thread.node.sync.lock_shard(lock).holds(lock, slot) {
                thread.wait(Waiting::Lock(lock))?;
            }
            if asked {
                thread.node.token_arrived(slot, lock, start);
            }
            thread.after_acquire(Some(lock))?;
            thread.take_pins_back()
        })
    }

    /// Releases a lock that somebody waits for, or that was never here alone.
    fn give(&self) -> Result<()> {
        let LockCall { thread, lock } = *self;
        thread.operation(|| {
            let slot = thread.slot;
            let released =
                thread.stepping(|out| thread.node.with_locks(lock, Some(slot), out, |l, cx| l.release(cx, lock, slot)));
            released.map_err(|_| misuse::holds_it_not(thread.id(), lock))
        })
    }

    /// Learns what the token of a lock that this thread holds did not bring.
    fn catch_up(&self) -> Result<()> {
        let LockCall { thread, lock } = *self;
        let slot = thread.slot;
        thread.operation(|| {
            while thread.stepping(|out| thread.node.with_locks(lock, Some(slot), out, |l, cx| l.catch_up(cx, lock))) {
                thread.wait(Waiting::Lock(lock))?;
            }
            thread.node.intervals().into_iter().for_each(|mut intervals| intervals.has_caught_up(lock));
            thread.after_acquire(Some(lock))
        })
    }
}
