//! Reader-writer locks: many readers or one writer, in phases, so that neither starves: a writer that waits keeps new
//! readers out, and after a writer all readers that wait go together (Brandenburg and Anderson, "Spin-based
//! reader-writer synchronization for multiprocessor real-time systems", 2010: phase-fair locks).
//!
//! | at the manager | read | write | end of a read | end of a write |
//! |---|---|---|---|---|
//! | free | yes | yes | | |
//! | readers, no writer waits | yes | queue | the last: free | |
//! | readers, a writer waits | queue | queue | the last: the first writer | |
//! | a writer | queue | queue | | all readers that wait, else the next writer, else free |
//!
//! Who only tries gets *no* where this table says *queue*.
//!
//! A thread that reads may enter again; that stays within its node, since behind a waiting writer it would wait for
//! itself. Whoever gets the lock learns what all who held it before have released, readers too: a writer must come
//! after their reads.

use super::Context;
use super::objects::{Given, SyncObjects, Waiter};
use crate::coherence::Misbehaved;
use crate::ids::Slot;
use crate::rules::Rule;
use crate::wire::message::{SyncRequest, SyncUpdate};
use std::collections::VecDeque;

/// A reader-writer lock, named by any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RwLockId(pub u64);

/// A thread used a reader-writer lock in a way it cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RwMisuse {
    /// It released what it does not hold.
    #[error("released a reader-writer lock that it does not hold")]
    NotHeld,
    /// It would wait for itself.
    #[error("asked for a reader-writer lock that it writes under, or to write under one that it reads under")]
    WaitsForItself,
}

/// A thread of this node holds the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hold {
    writes: bool,
    /// How often it has entered.
    depth: u32,
}

impl Hold {
    pub(super) fn writes(&self) -> bool {
        self.writes
    }

    pub(super) fn new(writes: bool) -> Hold {
        Hold { writes, depth: 1 }
    }
}

/// A reader-writer lock at its manager.
#[derive(Clone, Debug, Default)]
pub(super) struct RwLock {
    readers: u32,
    writes: bool,
    waiting_readers: Vec<Waiter>,
    waiting_writers: VecDeque<Waiter>,
}

const NOT_HELD: Misbehaved = Misbehaved("released a reader-writer lock that nobody holds like that");

impl RwLock {
    pub(super) fn is_idle(&self) -> bool {
        self.readers == 0 && !self.writes && self.waiting_readers.is_empty() && self.waiting_writers.is_empty()
    }

    pub(super) fn read(&mut self, waiter: Waiter, given: &mut Given) {
        if self.writes || !self.waiting_writers.is_empty() {
            self.waiting_readers.push(waiter);
        } else {
            self.readers += 1;
            given.push((waiter, true));
        }
    }

    /// As [`RwLock::read`], but nobody waits.
    pub(super) fn try_read(&mut self, waiter: Waiter, given: &mut Given) {
        let gets = !self.writes && self.waiting_writers.is_empty();
        self.readers += u32::from(gets);
        given.push((waiter, gets));
    }

    /// As [`RwLock::write`], but nobody waits.
    pub(super) fn try_write(&mut self, waiter: Waiter, given: &mut Given) {
        // A writer that waits does so for a reader or a writer that is there.
        let gets = !self.writes && self.readers == 0;
        self.writes |= gets;
        given.push((waiter, gets));
    }

    pub(super) fn write(&mut self, waiter: Waiter, given: &mut Given) {
        self.waiting_writers.push_back(waiter);
        self.admit_writer(given);
    }

    pub(super) fn unlock(&mut self, wrote: bool, given: &mut Given) -> Result<(), Misbehaved> {
        if wrote && self.writes {
            self.writes = false;
            self.readers += self.waiting_readers.len() as u32;
            given.extend(self.waiting_readers.drain(..).map(|reader| (reader, true)));
        } else if !wrote && self.readers > 0 {
            self.readers -= 1;
        } else {
            return Err(NOT_HELD);
        }
        self.admit_writer(given);
        Ok(())
    }

    fn admit_writer(&mut self, given: &mut Given) {
        let readers_left = self.readers == 0 || !Rule::WriterWaitsForReaders.on();
        if !self.writes
            && readers_left
            && let Some(first) = self.waiting_writers.pop_front()
        {
            self.writes = true;
            given.push((first, true));
        }
    }
}

impl SyncObjects {
    /// Thread `slot` begins to acquire the lock for reading; whether it holds it now. Otherwise wait until woken or
    /// answered, and ask [`SyncObjects::collect`] for [`SyncRequest::ReadLock`].
    ///
    /// # Errors
    /// When the thread writes under the lock.
    pub fn rd_lock(&mut self, cx: &mut Context<'_>, id: RwLockId, slot: Slot) -> Result<bool, RwMisuse> {
        match self.holds.get_mut(&(id.0, slot)) {
            Some(hold) if hold.writes => Err(RwMisuse::WaitsForItself),
            Some(hold) => {
                hold.depth += 1;
                Ok(true)
            }
            None => Ok(self.ask(cx, SyncRequest::ReadLock, id.0, slot).is_some()),
        }
    }

    /// Thread `slot` begins to acquire the lock for writing; whether it holds it now. Otherwise wait until woken or
    /// answered, and ask [`SyncObjects::collect`] for [`SyncRequest::WriteLock`].
    ///
    /// # Errors
    /// When the thread holds the lock.
    pub fn wr_lock(&mut self, cx: &mut Context<'_>, id: RwLockId, slot: Slot) -> Result<bool, RwMisuse> {
        match self.holds.contains_key(&(id.0, slot)) {
            true => Err(RwMisuse::WaitsForItself),
            false => Ok(self.ask(cx, SyncRequest::WriteLock, id.0, slot).is_some()),
        }
    }

    /// Thread `slot` tries to acquire the lock for reading: whether it holds it now, if that is known at once.
    /// Otherwise wait until woken or answered, and ask [`SyncObjects::collect`] for [`SyncRequest::TryReadLock`].
    pub fn try_rd_lock(&mut self, cx: &mut Context<'_>, id: RwLockId, slot: Slot) -> Option<bool> {
        match self.holds.get_mut(&(id.0, slot)) {
            Some(hold) if hold.writes => Some(false),
            Some(hold) => {
                hold.depth += 1;
                Some(true)
            }
            None => self.ask(cx, SyncRequest::TryReadLock, id.0, slot),
        }
    }

    /// Thread `slot` tries to acquire the lock for writing: whether it holds it now, if that is known at once.
    /// Otherwise wait until woken or answered, and ask [`SyncObjects::collect`] for [`SyncRequest::TryWriteLock`].
    pub fn try_wr_lock(&mut self, cx: &mut Context<'_>, id: RwLockId, slot: Slot) -> Option<bool> {
        match self.holds.contains_key(&(id.0, slot)) {
            true => Some(false),
            false => self.ask(cx, SyncRequest::TryWriteLock, id.0, slot),
        }
    }

    /// Thread `slot`, which has just got the lock, cannot use it now: as nothing was done under it, this is no release.
    pub fn rw_hand_back(&mut self, cx: &mut Context<'_>, id: RwLockId, slot: Slot) {
        if let Some(hold) = self.holds.remove(&(id.0, slot)) {
            let update = if hold.writes { SyncUpdate::WriteUnlock } else { SyncUpdate::ReadUnlock };
            self.tell(cx, update, id.0, false);
        }
    }

    /// Thread `slot` releases the lock, however it holds it.
    ///
    /// # Errors
    /// When it does not hold it.
    pub fn rw_unlock(&mut self, cx: &mut Context<'_>, id: RwLockId, slot: Slot) -> Result<(), RwMisuse> {
        let hold = self.holds.get_mut(&(id.0, slot)).ok_or(RwMisuse::NotHeld)?;
        hold.depth -= 1;
        if hold.depth == 0 {
            let update = if hold.writes { SyncUpdate::WriteUnlock } else { SyncUpdate::ReadUnlock };
            let tells = hold.writes || Rule::ReadersTell.on();
            self.holds.remove(&(id.0, slot));
            self.tell(cx, update, id.0, tells);
        }
        Ok(())
    }
}
