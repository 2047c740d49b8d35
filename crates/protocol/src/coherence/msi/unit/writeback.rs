//! A copy goes back to its home, because this node has no room to keep it.
//!
//! The copy *leaves*: its threads may use it no more, but until the home has it, it still serves what the home asked
//! for before, for the home may have forwarded a request to this node, or taken the copy away, while the copy was on
//! its way. The home takes what comes back in its turn, behind the requests that came before, and only from a node that
//! still holds the unit; either way it says so. Only then is the memory given up, and only then may this node ask for
//! the unit again.
//!
//! The bytes travel with a copy in M, and with the keeper's, which the home would ask for; of any other copy the home
//! has no need.

use super::{Copy, Unit};
use crate::coherence::{Context, Permission};
use crate::ids::Slot;
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::Message;

/// What becomes of a copy that is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteBack {
    /// It stays: it is in use, asked for, on its way, or the home's own.
    Stays,
    /// Its memory is given up; there was no copy in it any more.
    Gone,
    /// It leaves when the home has answered.
    Leaves,
}

impl Unit {
    /// Gives this node's copy back to the unit's home, if nobody here uses it or waits for it.
    pub fn give_back(&mut self, cx: &mut Context<'_>) -> WriteBack {
        if cx.me == cx.home || self.pins > 0 || self.activity.is_some() || cx.memory.is_lent() {
            return WriteBack::Stays;
        }
        if self.copy == Copy::Invalid {
            self.forget(cx);
            return WriteBack::Gone;
        }
        if Rule::RevokeBeforeGivingBack.on() {
            cx.memory.revoke(Permission::None);
        }
        let with_bytes = self.copy == Copy::Modified || self.keeper;
        let target = Target::Request { node: cx.home, origin: Origin::Caller };
        let memory = &*cx.memory;
        cx.out.send_with(target, &Message::GiveBack { unit: cx.unit, bytes: &[] }, |body| {
            if with_bytes {
                memory.copy_out(body);
            }
        });
        if !Rule::RevokeBeforeGivingBack.on() {
            cx.memory.revoke(Permission::None);
        }
        self.active().leaving = Some(cx.caller.unwrap_or(Slot::SERVICE));
        if !Rule::LeavingUnitsStillServe.on() {
            self.forget(cx);
        }
        WriteBack::Leaves
    }

    /// The home has the copy, or had taken it away before.
    pub fn on_give_back_done(&mut self, cx: &mut Context<'_>) {
        let Some(activity) = self.activity.as_deref_mut().filter(|a| a.leaving.is_some()) else { return };
        activity.leaving = None;
        self.forget(cx);
        self.wake_waiters(cx);
        self.settle(cx);
    }

    /// Whether bytes of the unit lie in this node's memory although another node is its home.
    pub fn is_stored(&self) -> bool {
        self.stored
    }

    /// The unit's memory was given up without asking; whether any was in use.
    pub fn abandon(&mut self) -> bool {
        std::mem::take(&mut self.stored)
    }

    /// The thread that gave the copy back, while it is on its way home. That thread waits for the answer before it asks
    /// for anything else: the answer may have to wait for other threads, and these for what that thread's own next
    /// access sends from the same channel.
    pub fn leaving(&self) -> Option<Slot> {
        self.activity.as_ref().and_then(|a| a.leaving)
    }

    fn forget(&mut self, cx: &mut Context<'_>) {
        self.copy = Copy::Invalid;
        self.keeper = false;
        if std::mem::take(&mut self.stored) {
            cx.memory.discard();
        }
    }
}
