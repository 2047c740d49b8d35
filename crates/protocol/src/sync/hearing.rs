//! Signals that nobody hears need not be sent.
//!
//! Programs signal condition variables far more often than threads wait for them: SPLASH-3's FMM broadcasts 23,000 times on each of two nodes, and
//! waits some twenty times. So a manager whose conditions nobody waits for tells a node that goes on signalling so, and that node keeps its signals to
//! itself, all of those that are managed there (and lie in the same shard of the desk), whether it has named them before or not. Before a thread has
//! joined the waiters of any of them, every node that keeps quiet is told to speak again, and has said that it does ([`Condition`](super::condition):
//! the first of a wait's four steps takes that much longer then). Who signals after the waiter has let its lock go therefore knows.
//!
//! | at the manager, a node | signals in vain, often enough | somebody joins | says that it speaks |
//! |---|---|---|---|
//! | speaks | is hushed, with a number one higher | | |
//! | is hushed | | is told to speak | |
//! | was told to speak | | | speaks; who has joined is answered when none is left |
//!
//! Messages overtake each other: a node that was told to speak takes no notice of being hushed under that number or a lower one. A node that was told to speak is
//! hushed again only after four times as many vain signals as before, so where threads do wait, little is said of this.

use super::Context;
use super::condition::ConditionId;
use super::desk::{Desk, Kind, Thing, Waiter};
use crate::coherence::Misbehaved;
use crate::ids::NodeId;
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Hearing, Message};
use std::collections::BTreeMap;

/// So many vain signals of a node are enough at first, and at most.
const VAIN_FIRST: u32 = 2;
const VAIN_MOST: u32 = 1 << 13;

/// What a node knows of a manager's conditions.
#[derive(Clone, Copy, Debug, Default)]
struct Ear {
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
struct Speaker {
    said: Said,
    serial: u32,
    vain: u32,
    enough: u32,
}

impl Default for Speaker {
    fn default() -> Speaker {
        Speaker { said: Said::Nothing, serial: 0, vain: 0, enough: VAIN_FIRST }
    }
}

/// Who hears whose signals, for the conditions of one shard of the desk.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearers {
    /// As others have told this node.
    ears: BTreeMap<NodeId, Ear>,
    /// As it has told others.
    speakers: BTreeMap<NodeId, Speaker>,
    /// Threads that have joined, and are told so when all speak.
    joining: Vec<(Thing, Waiter)>,
}

const NOT_TOLD: Misbehaved = Misbehaved("says that it speaks, although nobody has told it to");
const NO_MANAGER: Misbehaved = Misbehaved("says who waits for conditions that it does not manage");

impl Hearers {
    /// Whether `manager` has said that nobody hears this node's signals.
    fn nobody_hears(&self, manager: NodeId) -> bool {
        self.ears.get(&manager).is_some_and(|ear| ear.nobody.is_some())
    }
}

fn tell(cx: &mut Context<'_>, node: NodeId, name: u64, serial: u32, hearing: Hearing) {
    cx.out.send(Target::Post { node, origin: Origin::Service }, &Message::Hears { name, serial, hearing });
}

impl Desk {
    /// Whether a signal of the condition would find nobody, as far as is known here: then it need not be given.
    pub fn cond_is_unheard(&self, id: ConditionId, me: NodeId, nodes: usize) -> bool {
        self.is_unheard(Thing { kind: Kind::Condition, name: id.0 }, me, nodes)
    }

    /// The same of any thing: what is not a signal is always heard.
    pub(super) fn is_unheard(&self, thing: Thing, me: NodeId, nodes: usize) -> bool {
        thing.kind == Kind::Condition
            && match thing.manager(nodes) {
                // Who comes to wait later acquires the lock.
                manager if manager == me => !self.things.contains_key(&thing),
                manager => self.hearers.nobody_hears(manager),
            }
    }

    fn anybody_waits(&self) -> bool {
        let [first, last] = [0, u64::MAX].map(|name| Thing { kind: Kind::Condition, name });
        self.things.range(first..=last).next().is_some()
    }

    /// At the manager: a signal from node `from` has found nobody.
    pub(super) fn signalled_in_vain(&mut self, cx: &mut Context<'_>, from: NodeId, name: u64) {
        if self.anybody_waits() {
            return;
        }
        let speaker = self.hearers.speakers.entry(from).or_default();
        speaker.vain += 1;
        if speaker.said == Said::Nothing && speaker.vain >= speaker.enough {
            speaker.said = Said::Nobody;
            speaker.serial = speaker.serial.wrapping_add(1).max(1);
            tell(cx, from, name, speaker.serial, Hearing::Nobody);
        }
    }

    /// At the manager: a thread has joined the waiters of `thing`. Gives it back if it may be told so now.
    pub(super) fn joins(&mut self, cx: &mut Context<'_>, thing: Thing, waiter: Waiter) -> Option<Waiter> {
        let mut all_speak = true;
        for (node, speaker) in &mut self.hearers.speakers {
            if speaker.said == Said::Nobody {
                speaker.said = Said::Somebody;
                tell(cx, *node, thing.name, speaker.serial, Hearing::Somebody);
            }
            all_speak &= speaker.said == Said::Nothing;
        }
        if all_speak || !Rule::WaitersAreHeardOf.on() {
            return Some(waiter);
        }
        self.hearers.joining.push((thing, waiter));
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
        hearing: Hearing,
    ) -> Result<(), Misbehaved> {
        if hearing == Hearing::Understood {
            return self.speaks(cx, from, serial);
        }
        if (Thing { kind: Kind::Condition, name }).manager(cx.nodes) != from {
            return Err(NO_MANAGER);
        }
        let ear = self.hearers.ears.entry(from).or_default();
        if hearing == Hearing::Nobody {
            if serial > ear.over {
                ear.nobody = Some(serial);
            }
            return Ok(());
        }
        ear.over = ear.over.max(serial);
        ear.nobody = ear.nobody.filter(|nobody| *nobody > ear.over);
        tell(cx, from, name, serial, Hearing::Understood);
        Ok(())
    }

    /// At the manager: node `from` speaks again.
    fn speaks(&mut self, cx: &mut Context<'_>, from: NodeId, serial: u32) -> Result<(), Misbehaved> {
        let told = |speaker: &&mut Speaker| (speaker.said, speaker.serial) == (Said::Somebody, serial);
        let speaker = self.hearers.speakers.get_mut(&from).filter(told).ok_or(NOT_TOLD)?;
        *speaker = Speaker { said: Said::Nothing, serial, vain: 0, enough: (speaker.enough * 4).min(VAIN_MOST) };
        if self.hearers.speakers.values().all(|speaker| speaker.said == Said::Nothing) {
            for (thing, waiter) in std::mem::take(&mut self.hearers.joining) {
                self.answer(cx, thing, waiter, true);
            }
        }
        Ok(())
    }
}
