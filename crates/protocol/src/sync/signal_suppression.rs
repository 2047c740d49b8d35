//! Signals that nobody hears need not be sent.
//!
//! Programs signal condition variables far more often than threads wait for them: SPLASH-3's FMM broadcasts 23,000
//! times on each of two nodes, and waits some twenty times. So a manager whose conditions nobody waits for tells a node
//! that goes on signalling so, and that node keeps its signals to itself, all of those that are managed there (and lie
//! in the same shard), whether it has named them before or not. Before a thread has joined the waiters of any of them,
//! every node that keeps quiet is told to speak again, and has said that it does ([`Condition`](super::condition): the
//! first of a wait's four steps takes that much longer then). Who signals after the waiter has let its lock go
//! therefore knows.
//!
//! | at the manager, a node | signals in vain, often enough | somebody joins | says that it speaks |
//! |---|---|---|---|
//! | speaks | is hushed, with a number one higher | | |
//! | is hushed | | is told to speak | |
//! | was told to speak | | | speaks; who has joined is answered when none is left |
//!
//! Messages overtake each other: a node that was told to speak takes no notice of being hushed under that number or a
//! lower one. A node that was told to speak is hushed again only after four times as many vain signals as before, so
//! where threads do wait, little is said of this.

use super::Context;
use super::condition::ConditionId;
use super::objects::{Kind, SyncObject, SyncObjects, Waiter};
use crate::coherence::Misbehaved;
use crate::ids::NodeId;
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Message, SignalInterest};
use std::collections::BTreeMap;

/// What a node knows of a manager's conditions.
#[derive(Clone, Copy, Debug, Default)]
struct ManagerWord {
    /// Nobody waits for any.
    nobody: Option<u32>,
    /// Under the number up to which that is no longer true.
    over: u32,
}

/// What a manager has said to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    /// Nothing, or it has understood.
    Nothing,
    /// Nobody waits.
    Nobody,
    /// Somebody does.
    Somebody,
}

#[derive(Clone, Copy, Debug)]
struct Signaller {
    said: Said,
    serial: u32,
    unheard: u32,
    enough: u32,
}

/// Who hears whose signals, for the conditions of one shard.
#[derive(Clone, Debug, Default)]
pub(super) struct SignalSuppression {
    /// As others have told this node.
    managers: BTreeMap<NodeId, ManagerWord>,
    /// As it has told others.
    signallers: BTreeMap<NodeId, Signaller>,
    /// Threads that have joined, and are told so when all speak.
    joining: Vec<(SyncObject, Waiter)>,
}

const NOT_TOLD: Misbehaved = Misbehaved("says that it speaks, although nobody has told it to");
const NO_MANAGER: Misbehaved = Misbehaved("says who waits for conditions that it does not manage");

impl SignalSuppression {
    /// Whether `manager` has said that nobody hears this node's signals.
    fn nobody_hears(&self, manager: NodeId) -> bool {
        self.managers.get(&manager).is_some_and(|word| word.nobody.is_some())
    }
}

fn tell(cx: &mut Context<'_>, node: NodeId, name: u64, serial: u32, interest: SignalInterest) {
    cx.out.send(Target::Post { node, origin: Origin::Service }, &Message::Hears { name, serial, interest });
}

impl SyncObjects {
    /// Whether a signal of the condition would find nobody, as far as is known here: then it need not be given.
    pub fn cond_is_unheard(&self, id: ConditionId, me: NodeId, nodes: usize) -> bool {
        self.is_unheard(SyncObject { kind: Kind::Condition, name: id.0 }, me, nodes)
    }

    /// The same of any thing: what is not a signal is always heard.
    pub(super) fn is_unheard(&self, object: SyncObject, me: NodeId, nodes: usize) -> bool {
        object.kind == Kind::Condition
            && match object.manager(nodes) {
                // Who comes to wait later acquires the lock.
                manager if manager == me => !self.objects.contains_key(&object),
                manager => self.suppression.nobody_hears(manager),
            }
    }

    fn anybody_waits(&self) -> bool {
        let [first, last] = [0, u64::MAX].map(|name| SyncObject { kind: Kind::Condition, name });
        self.objects.range(first..=last).next().is_some()
    }

    /// At the manager: a signal from node `from` has found nobody.
    pub(super) fn signalled_in_vain(&mut self, cx: &mut Context<'_>, from: NodeId, name: u64) {
        if !self.tuning.signal_suppression || self.anybody_waits() {
            return;
        }
        let new = Signaller { said: Said::Nothing, serial: 0, unheard: 0, enough: self.tuning.vain_signals };
        let signaller = self.suppression.signallers.entry(from).or_insert(new);
        signaller.unheard += 1;
        if signaller.said == Said::Nothing && signaller.unheard >= signaller.enough {
            signaller.said = Said::Nobody;
            signaller.serial = signaller.serial.wrapping_add(1).max(1);
            tell(cx, from, name, signaller.serial, SignalInterest::Nobody);
        }
    }

    /// At the manager: a thread has joined the waiters of `object`. Gives it back if it may be told so now.
    pub(super) fn joins(&mut self, cx: &mut Context<'_>, object: SyncObject, waiter: Waiter) -> Option<Waiter> {
        let mut all_speak = true;
        for (node, signaller) in &mut self.suppression.signallers {
            if signaller.said == Said::Nobody {
                signaller.said = Said::Somebody;
                tell(cx, *node, object.name, signaller.serial, SignalInterest::Somebody);
            }
            all_speak &= signaller.said == Said::Nothing;
        }
        if all_speak || !Rule::WaitersAreHeardOf.on() {
            return Some(waiter);
        }
        self.suppression.joining.push((object, waiter));
        None
    }

    /// Word from `from` of who hears signals.
    ///
    /// # Errors
    /// When no correct peer would have said that.
    pub fn on_hears(
        &mut self,
        cx: &mut Context<'_>,
        from: NodeId,
        (name, serial): (u64, u32),
        interest: SignalInterest,
    ) -> Result<(), Misbehaved> {
        if interest == SignalInterest::Understood {
            return self.speaks(cx, from, serial);
        }
        if (SyncObject { kind: Kind::Condition, name }).manager(cx.nodes) != from {
            return Err(NO_MANAGER);
        }
        let word = self.suppression.managers.entry(from).or_default();
        if interest == SignalInterest::Nobody {
            if serial > word.over {
                word.nobody = Some(serial);
            }
            return Ok(());
        }
        word.over = word.over.max(serial);
        word.nobody = word.nobody.filter(|nobody| *nobody > word.over);
        tell(cx, from, name, serial, SignalInterest::Understood);
        Ok(())
    }

    /// At the manager: node `from` speaks again.
    fn speaks(&mut self, cx: &mut Context<'_>, from: NodeId, serial: u32) -> Result<(), Misbehaved> {
        let told = |signaller: &&mut Signaller| (signaller.said, signaller.serial) == (Said::Somebody, serial);
        let most = self.tuning.vain_signals_max;
        let signaller = self.suppression.signallers.get_mut(&from).filter(told).ok_or(NOT_TOLD)?;
        *signaller = Signaller { said: Said::Nothing, serial, unheard: 0, enough: most.min(4 * signaller.enough) };
        if self.suppression.signallers.values().all(|signaller| signaller.said == Said::Nothing) {
            for (object, waiter) in std::mem::take(&mut self.suppression.joining) {
                self.answer(cx, object, waiter, true);
            }
        }
        Ok(())
    }
}
