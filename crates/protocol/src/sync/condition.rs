//! Condition variables: threads that hold a lock wait for a signal and let the lock go meanwhile, both at one stroke
//! (C. A. R. Hoare, "Monitors", 1974; signals as in Lampson and Redell, "Experience with processes and monitors in
//! Mesa", 1980: a woken thread acquires the lock again like any other, and checks again what it waits for).
//!
//! A signal that comes after the waiter has released the lock must not be lost, though it may leave from another node
//! and overtake the waiter's messages. So a wait takes four steps, and the receipt of the first comes before the
//! second:
//!
//! 1. *join* the waiters at the condition's manager, and hear that it is done;
//! 2. release the lock;
//! 3. *await* the signal: a second request, answered when the signal has come, even if that was before the request;
//! 4. acquire the lock.
//!
//! | at the manager, a waiter has | signal | its await |
//! |---|---|---|
//! | joined | is signalled | waits with its ticket |
//! | been signalled | (the next one's) | is answered and leaves |
//! | waits with its ticket | is answered and leaves | |
//!
//! Signals reach waiters in the order in which they joined. One that finds nobody is forgotten; most need not even be
//! sent ([`signal_suppression`](super::signal_suppression)).

use super::Context;
use super::objects::{Given, SyncObjects, Waiter};
use crate::coherence::Misbehaved;
use crate::ids::{Channel, Slot};
use crate::rules::Rule;
use crate::wire::message::{SyncRequest, SyncUpdate};
use std::collections::VecDeque;

/// A condition variable, named by any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ConditionId(pub u64);

/// How far a waiter has come.
#[derive(Clone, Debug)]
enum Step {
    Joined,
    Signalled,
    Awaits(Waiter),
}

/// A condition variable at its manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    waiters: VecDeque<(Channel, Step)>,
}

const NOT_JOINED: Misbehaved = Misbehaved("waits for a signal without having joined the waiters");
const JOINED_TWICE: Misbehaved = Misbehaved("joined a condition's waiters twice");

impl Condition {
    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }

    fn position(&self, channel: Channel) -> Option<usize> {
        self.waiters.iter().position(|(c, _)| *c == channel)
    }

    pub(super) fn join(&mut self, waiter: Waiter, given: &mut Given) -> Result<(), Misbehaved> {
        if self.position(waiter.channel).is_some() {
            return Err(JOINED_TWICE);
        }
        self.waiters.push_back((waiter.channel, Step::Joined));
        given.push((waiter, true));
        Ok(())
    }

    pub(super) fn wait(&mut self, waiter: Waiter, given: &mut Given) -> Result<(), Misbehaved> {
        let Some(index) = self.position(waiter.channel) else {
            if Rule::WaiterRegistersBeforeRelease.on() {
                return Err(NOT_JOINED);
            }
            self.waiters.push_back((waiter.channel, Step::Awaits(waiter)));
            return Ok(());
        };
        match &mut self.waiters[index].1 {
            Step::Signalled => {
                self.waiters.remove(index);
                given.push((waiter, true));
            }
            step => *step = Step::Awaits(waiter),
        }
        Ok(())
    }

    pub(super) fn signal(&mut self, all: bool, given: &mut Given) {
        let mut index = 0;
        while let Some((channel, step)) = self.waiters.get_mut(index) {
            match std::mem::replace(step, Step::Signalled) {
                // Signalled before: not this signal's business.
                Step::Signalled => {
                    index += 1;
                    continue;
                }
                Step::Joined => index += 1,
                Step::Awaits(waiter) => {
                    debug_assert_eq!(*channel, waiter.channel);
                    self.waiters.remove(index);
                    given.push((waiter, true));
                }
            }
            if !all {
                return;
            }
        }
    }
}

impl SyncObjects {
    /// Step 1 of a wait: thread `slot` joins the condition's waiters. Whether that is done; otherwise wait until woken
    /// or answered, and ask [`SyncObjects::collect`] for [`SyncRequest::CondJoin`]. The lock stays held until then.
    pub fn cond_join(&mut self, cx: &mut Context<'_>, id: ConditionId, slot: Slot) -> bool {
        !Rule::WaiterRegistersBeforeRelease.on() || self.ask(cx, SyncRequest::CondJoin, id.0, slot).is_some()
    }

    /// Step 3 of a wait: whether thread `slot`, which has joined, has been signalled. Otherwise wait until woken or
    /// answered, and ask [`SyncObjects::collect`] for [`SyncRequest::CondAwait`].
    pub fn cond_await(&mut self, cx: &mut Context<'_>, id: ConditionId, slot: Slot) -> bool {
        self.ask(cx, SyncRequest::CondAwait, id.0, slot).is_some()
    }

    /// Wakes the thread that has waited longest for the condition, if one does. A signal is a release, except from a
    /// thread that holds a lock (`under_lock`): whoever is woken acquires the lock, and hears there what this would
    /// say; to end an interval for it too would cost more than the signal.
    pub fn cond_signal(&mut self, cx: &mut Context<'_>, id: ConditionId, under_lock: bool) {
        self.tell(cx, SyncUpdate::CondSignal, id.0, !under_lock && Rule::SignalsTell.on());
    }

    /// As [`SyncObjects::cond_signal`], for all threads that wait for the condition.
    pub fn cond_broadcast(&mut self, cx: &mut Context<'_>, id: ConditionId, under_lock: bool) {
        self.tell(cx, SyncUpdate::CondBroadcast, id.0, !under_lock && Rule::SignalsTell.on());
    }
}
