//! Counting semaphores: zero at first; a post adds one, a wait takes one, and those who wait get theirs in the order in
//! which their requests came (E. W. Dijkstra, "Cooperating sequential processes", 1965). To pass is to wait for one and
//! to leave it: so a post is an event for any number of threads (PARMACS's pauses).
//!
//! | at the manager | post | wait | try | pass |
//! |---|---|---|---|---|
//! | count is positive | one more | one less, yes | one less, yes | yes |
//! | zero, nobody waits | one | queue | no | queue |
//! | zero, some wait | all who want to pass do, and the first of the others gets it | queue | no | queue |
//!
//! A post takes effect when it arrives at the manager, so a try may miss one that is still on its way. To *give* is a
//! post whose thread waits until it has arrived: what it does next comes after. To *reset* makes the count zero, and is
//! answered as well.

use super::Context;
use super::objects::{Given, SyncObjects, Waiter};
use crate::ids::Slot;
use crate::rules::Rule;
use crate::wire::message::{SyncRequest, SyncUpdate};
use std::collections::VecDeque;

/// A semaphore, named by any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SemaphoreId(pub u64);

impl SemaphoreId {
    /// Names from here up to 2^32 more belong to Comem: a library over it tells its workers with them to begin and
    /// hears that they have ended. All of them are one scope: who acquires any of them hears of what was released with
    /// any other.
    pub const RESERVED: u64 = 0xC03E_0000_0000_0000;

    /// A name of Comem's own.
    pub fn reserved(number: u32) -> SemaphoreId {
        SemaphoreId(Self::RESERVED | u64::from(number))
    }

    /// Whether the name is one of Comem's own.
    pub fn is_reserved(self) -> bool {
        self.0 >> 32 == Self::RESERVED >> 32
    }
}

/// A semaphore at its manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Semaphore {
    count: u64,
    /// Threads that wait; boxed and made when first needed, since most semaphores of many are idle, and so half the
    /// size.
    #[allow(clippy::box_collection)]
    queue: Option<Box<VecDeque<Waiter>>>,
}

impl Semaphore {
    pub(super) fn is_idle(&self) -> bool {
        self.count == 0 && self.queue.is_none()
    }

    /// A thread asks for something, which it mostly waits for.
    pub(super) fn request(&mut self, waiter: Waiter, given: &mut Given) {
        match waiter.request {
            SyncRequest::SemGive => {
                self.post(given);
                given.push((waiter, true));
            }
            SyncRequest::SemReset => {
                self.count = 0;
                given.push((waiter, true));
            }
            _ => self.wait(waiter, given),
        }
    }

    fn wait(&mut self, waiter: Waiter, given: &mut Given) {
        if self.count > 0 {
            self.count -= u64::from(waiter.request != SyncRequest::SemPass);
            given.push((waiter, true));
        } else if waiter.request == SyncRequest::SemTryWait {
            given.push((waiter, false));
        } else {
            self.queue.get_or_insert_default().push_back(waiter);
        }
    }

    pub(super) fn post(&mut self, given: &mut Given) {
        let Some(queue) = self.queue.as_mut() else {
            self.count += 1;
            return;
        };
        while let Some(next) = queue.iter().position(|w| w.request == SyncRequest::SemPass) {
            given.extend(queue.remove(next).map(|passes| (passes, true)));
        }
        match queue.pop_front() {
            Some(first) => given.push((first, true)),
            None => self.count += 1,
        }
        if queue.is_empty() {
            self.queue = None;
        }
    }
}

impl SyncObjects {
    /// Adds one to the semaphore.
    pub fn sem_post(&mut self, cx: &mut Context<'_>, id: SemaphoreId) {
        self.tell(cx, SyncUpdate::SemPost, id.0, Rule::PostsTell.on());
    }

    /// Thread `slot` adds one to the semaphore; whether that has happened. Otherwise wait until woken or answered, and
    /// ask [`SyncObjects::collect`] for [`SyncRequest::SemGive`].
    pub fn sem_give(&mut self, cx: &mut Context<'_>, id: SemaphoreId, slot: Slot) -> bool {
        self.ask(cx, SyncRequest::SemGive, id.0, slot).is_some()
    }

    /// Thread `slot` makes the semaphore's count zero; whether that has happened. Otherwise as
    /// [`SyncObjects::sem_give`], for [`SyncRequest::SemReset`].
    pub fn sem_reset(&mut self, cx: &mut Context<'_>, id: SemaphoreId, slot: Slot) -> bool {
        self.ask(cx, SyncRequest::SemReset, id.0, slot).is_some()
    }

    /// Thread `slot` begins to take one from the semaphore; whether it has it now. Otherwise wait until woken or
    /// answered, and ask [`SyncObjects::collect`] for [`SyncRequest::SemWait`].
    pub fn sem_wait(&mut self, cx: &mut Context<'_>, id: SemaphoreId, slot: Slot) -> bool {
        self.ask(cx, SyncRequest::SemWait, id.0, slot).is_some()
    }

    /// Thread `slot` begins to wait until the semaphore has one, and leaves it there; whether it has one now. Otherwise
    /// as [`SyncObjects::sem_wait`], for [`SyncRequest::SemPass`].
    pub fn sem_pass(&mut self, cx: &mut Context<'_>, id: SemaphoreId, slot: Slot) -> bool {
        self.ask(cx, SyncRequest::SemPass, id.0, slot).is_some()
    }

    /// Thread `slot` asks for one from the semaphore, to be told at once whether there is one: now, when this node is
    /// the manager, otherwise through [`SyncObjects::collect`] for [`SyncRequest::SemTryWait`].
    pub fn sem_try_wait(&mut self, cx: &mut Context<'_>, id: SemaphoreId, slot: Slot) -> Option<bool> {
        self.ask(cx, SyncRequest::SemTryWait, id.0, slot)
    }
}
