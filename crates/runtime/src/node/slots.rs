//! The places of a node's threads, and what each thread has there.

use super::Waiting;
use crate::counters::{Counters, Since};
use crate::direct::post::Requests;
use crate::locks::{HeldLocks, LockPlaces};
use crate::mutex::Mutex;
use crate::service::SpinBudget;
use crate::waiter::Waiter;
use crate::write_combining::WriteCombiner;
use comem_protocol::ids::Slot;
use comem_protocol::time::Time;
use std::ops::{Deref, Index};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What belongs to one slot of the node.
#[derive(Debug, Default)]
pub(crate) struct ThreadSlot {
    pub(crate) waiter: Waiter,
    pub(crate) counters: Counters,
    /// What the thread waits for, since when.
    status: Mutex<Option<(Waiting, Time)>>,
    answer: Mutex<Option<Vec<u8>>>,
    /// Its one-sided operations, where other nodes carry them out.
    pub(crate) requests: Mutex<Requests>,
    /// The one-sided locks that the thread holds.
    pub(crate) held: HeldLocks,
    /// Where the thread has found words of one-sided locks that it reaches by UCX.
    pub(crate) lock_places: LockPlaces,
    pub(crate) combined_writes: WriteCombiner,
    pub(crate) spins: SpinBudget,
    /// Whoever is sent something by this thread just now gets a moment to look before it is roused.
    patient: AtomicBool,
    /// Set while an application thread sits here.
    taken: AtomicBool,
    /// How many loops whose items are dealt out the threads that sat here have begun.
    pub(crate) loops: AtomicU64,
    /// Since when the life of the thread that sits here is not booked.
    pub(crate) lives: Since,
    /// Since when the wait of that thread is not booked.
    pub(crate) waits: Since,
}

impl ThreadSlot {
    /// What a thread that is not at its end has not booked yet.
    pub(crate) fn unbooked(&self, now: Time) -> Counters {
        let unbooked = Counters::default();
        if let Some(since) = self.lives.get() {
            unbooked.lifetime_ns.add((now - since).0);
        }
        if let (Some(since), Some((why, _))) = (self.waits.get(), self.waits_for()) {
            why.time(&unbooked).add((now - since).0);
        }
        unbooked
    }

    /// From now on, whoever is sent something by this thread gets a moment to look before it is roused, or none.
    pub(crate) fn set_patient(&self, patient: bool) {
        self.patient.store(patient, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_patient(&self) -> bool {
        self.patient.load(Ordering::Relaxed)
    }

    /// An application thread sits here from now on; whether none did.
    pub(crate) fn take_place(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn leave_place(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Whether an application thread sits here.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// What the thread waits for, since when.
    pub(crate) fn waits_for(&self) -> Option<(Waiting, Time)> {
        *self.status.lock()
    }

    pub(crate) fn set_waits_for(&self, why: Option<(Waiting, Time)>) {
        *self.status.lock() = why;
    }

    /// The thread is about to ask for something whose answer is a row of bytes.
    pub(crate) fn expect_answer(&self) {
        *self.answer.lock() = None;
    }

    pub(crate) fn take_answer(&self) -> Option<Vec<u8>> {
        self.answer.lock().take()
    }

    pub(crate) fn give_answer(&self, bytes: &[u8]) {
        *self.answer.lock() = Some(bytes.to_vec());
    }
}

/// The slots of a node: the service thread's, one for each application thread, and what is common to them.
///
/// What a slot has stands behind small mutexes of its own. They are taken last, one at a time, but that of combined
/// writes, which is held while these are sent.
#[derive(Debug)]
pub(crate) struct Slots {
    of: Vec<ThreadSlot>,
    /// With so many application threads the node was started.
    threads: usize,
    /// Application threads that wait just now.
    waiting: AtomicU64,
    /// Of these, the ones that spin, and look after the service socket meanwhile.
    spinning: AtomicU64,
}

impl Slots {
    /// The service thread's slot, and `places` of application threads.
    pub(crate) fn new(places: usize, threads: usize) -> Slots {
        let of = (0..=places).map(|_| ThreadSlot::default()).collect();
        Slots { of, threads, waiting: AtomicU64::new(0), spinning: AtomicU64::new(0) }
    }

    /// The slots of application threads.
    pub(crate) fn of_threads(&self) -> impl Iterator<Item = Slot> + use<> {
        (1..self.of.len()).map(|index| Slot(index as u16))
    }

    /// Whether there are more than threads with which the node was started.
    pub(crate) fn are_spare(&self) -> bool {
        self.of.len() > self.threads + 1
    }

    /// Whether an application thread sits in another slot.
    pub(crate) fn others_sit(&self, slot: Slot) -> bool {
        self.of_threads().any(|other| other != slot && self[other].is_taken())
    }

    /// What the thread in a slot sleeps in, as the node's other threads see it.
    pub(crate) fn asleep<R>(&self, slot: Slot, why: Waiting, since: Time, sleep: impl FnOnce() -> R) -> R {
        let thread_slot = &self[slot];
        thread_slot.set_waits_for(Some((why, since)));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = sleep();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        thread_slot.set_waits_for(None);
        result
    }

    /// Runs what the thread that waits does while it spins.
    pub(crate) fn spinning<R>(&self, spin: impl FnOnce() -> R) -> R {
        self.spinning.fetch_add(1, Ordering::Relaxed);
        let result = spin();
        self.spinning.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Whether all application threads wait.
    pub(crate) fn all_wait(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) as usize >= self.threads
    }

    /// Whether all application threads sleep: none that waits spins.
    pub(crate) fn all_sleep(&self) -> bool {
        self.all_wait() && self.spinning.load(Ordering::Relaxed) == 0
    }

    /// Whether all of this node's threads wait for what others do, and none for a lock: so none takes one soon.
    pub(crate) fn are_at_rest(&self) -> bool {
        let is_at_work = |why: Waiting| !why.is_for_others() || matches!(why, Waiting::Lock(_));
        self.all_wait() && !self.somebody_waits(is_at_work)
    }

    /// Whether a thread waits for such a thing.
    pub(crate) fn somebody_waits(&self, such: impl Fn(Waiting) -> bool) -> bool {
        self.of.iter().any(|thread_slot| thread_slot.waits_for().is_some_and(|(waiting, _)| such(waiting)))
    }

    /// When the waits of threads that have work to do began.
    pub(crate) fn waits_in_work(&self) -> impl Iterator<Item = Time> {
        let waits = self.of.iter().filter_map(ThreadSlot::waits_for);
        waits.filter(|(why, _)| !why.is_for_work()).map(|(_, since)| since)
    }
}

impl Index<Slot> for Slots {
    type Output = ThreadSlot;

    #[inline]
    fn index(&self, slot: Slot) -> &ThreadSlot {
        &self.of[slot.index()]
    }
}

impl Deref for Slots {
    type Target = [ThreadSlot];

    fn deref(&self) -> &[ThreadSlot] {
        &self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::ids::{FlagId, LockId};

    #[test]
    fn a_node_is_at_rest_when_all_its_threads_wait_and_none_for_a_lock() {
        let (slots, flag) = (Slots::new(3, 2), Waiting::Flag(FlagId(1), 1));
        assert!(slots.are_spare() && !slots.all_wait());
        let second = |why| slots.asleep(Slot(2), why, Time(2), || (slots.all_wait(), slots.are_at_rest()));
        slots.asleep(Slot(1), flag, Time(1), || {
            assert!(!slots.all_wait());
            assert_eq!(
                [flag, Waiting::Lock(LockId(7)), Waiting::Diffs].map(second),
                [(true, true), (true, false), (true, false)]
            );
            assert_eq!(slots.waits_in_work().collect::<Vec<_>>(), [Time(1)]);
        });
        assert!(!slots.somebody_waits(|_| true));
    }

    #[test]
    fn a_thread_that_spins_waits_and_does_not_sleep() {
        let slots = Slots::new(1, 1);
        slots.asleep(Slot(1), Waiting::Diffs, Time(0), || {
            assert!(slots.all_sleep());
            slots.spinning(|| assert!(slots.all_wait() && !slots.all_sleep()));
        });
    }
}
