//! An endpoint's bell: how producers tell it that a lane has something, and how it sleeps until they do.
//!
//! One page of shared memory: a *mask* with a bit for each lane, and a counter to sleep on (a futex). A producer sets
//! its lane's bit after it has filled the lane. The top bit says that somebody sleeps or is about to; only who finds it
//! set, in the very operation that sets its own bit, clears it, raises the counter and makes the system call. So a
//! receiver that is awake costs its senders no system call.
//!
//! The receiver does not clear the top bit when it wakes by itself: a sender then rings once in vain, which is cheaper
//! than agreeing with other sleepers about who may clear it.

use super::sys::{self, Mapping};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::time::Duration;

/// The bytes of a bell's memory file.
pub(super) const DOORBELL_BYTES: usize = 4096;
/// How many lanes a bell has bits for.
pub(crate) const LANES_MAX: usize = 63;

const MASK: usize = 0;
/// On the mask's cache line: whoever needs it has just used that.
const COUNTER: usize = 8;
const ASLEEP: u64 = 1 << LANES_MAX;
/// How many threads look again and again: while there are any, nobody need be roused.
const WATCHERS: usize = 256;
/// Counts the looks of threads that do so now and then.
const GLANCES: usize = 320;

/// A bell, on either side.
#[derive(Debug)]
pub(super) struct Doorbell {
    memory: Mapping,
}

impl Doorbell {
    pub(super) fn new(file: BorrowedFd<'_>) -> io::Result<Doorbell> {
        Ok(Doorbell { memory: Mapping::of(file, DOORBELL_BYTES)? })
    }

    /// Tells that a lane has something.
    #[inline]
    pub(super) fn ring(&self, lane: usize) {
        if self.ring_softly(lane) {
            self.rouse();
        }
    }

    /// As [`Doorbell::ring`], but leaves it to the caller to [`Doorbell::rouse`]: `true` when somebody sleeps and
    /// nobody watches.
    #[inline]
    pub(super) fn ring_softly(&self, lane: usize) -> bool {
        let before = self.memory.word(MASK).fetch_or(1 << lane, SeqCst);
        // A watcher that stops takes its name off first and looks once more then.
        before & ASLEEP != 0 && !self.is_watched()
    }

    /// Whether some thread looks again and again.
    pub(super) fn is_watched(&self) -> bool {
        self.memory.half_word(WATCHERS).load(SeqCst) != 0
    }

    /// Whether what a lane was rung for still lies there, and somebody sleeps.
    pub(super) fn is_unheard(&self, lane: usize) -> bool {
        let mask = self.memory.word(MASK).load(SeqCst);
        mask & (1 << lane) != 0 && mask & ASLEEP != 0
    }

    /// A thread looks again and again from now on, or no longer.
    pub(super) fn watch(&self, watching: bool) {
        let watchers = self.memory.half_word(WATCHERS);
        if watching {
            watchers.fetch_add(1, SeqCst)
        } else {
            watchers.fetch_sub(1, SeqCst)
        };
    }

    /// Counts a look. Looks at one moment may count as one.
    #[inline]
    pub(super) fn glance(&self) {
        let glances = self.memory.half_word(GLANCES);
        glances.store(glances.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// How often somebody has looked.
    #[inline]
    pub(super) fn glances(&self) -> u32 {
        self.memory.half_word(GLANCES).load(Relaxed)
    }

    /// Ends all sleeps that have begun, and those that are about to.
    #[cold]
    pub(super) fn rouse(&self) {
        // First the bit, then the counter: who announces itself in between is woken and announces itself again.
        self.memory.word(MASK).fetch_and(!ASLEEP, SeqCst);
        self.memory.half_word(COUNTER).fetch_add(1, SeqCst);
        sys::wake_all(self.memory.half_word(COUNTER));
    }

    /// Whether a lane may have something.
    #[inline]
    pub(super) fn has_rung(&self) -> bool {
        self.memory.word(MASK).load(Relaxed) & !ASLEEP != 0
    }

    /// The lanes that have something, to be looked into by the caller: a bit each.
    #[inline]
    pub(super) fn answer(&self) -> u64 {
        if self.has_rung() { self.memory.word(MASK).fetch_and(ASLEEP, AcqRel) & !ASLEEP } else { 0 }
    }

    #[cfg(test)]
    pub(super) fn somebody_sleeps(&self) -> bool {
        self.memory.word(MASK).load(SeqCst) & ASLEEP != 0
    }

    /// What [`Doorbell::sleep`] wants to know; to be read before the last look at whatever rousing is for.
    pub(super) fn moment(&self) -> u32 {
        self.memory.half_word(COUNTER).load(Acquire)
    }

    /// Sleeps until the bell rings or rouses, for so long at most; not at all when it has done so since `moment`.
    pub(super) fn sleep(&self, moment: u32, timeout: Option<Duration>) {
        let before = self.memory.word(MASK).fetch_or(ASLEEP, SeqCst);
        if before & !ASLEEP == 0 {
            sys::wait_on(self.memory.half_word(COUNTER), moment, timeout);
        }
    }
}
