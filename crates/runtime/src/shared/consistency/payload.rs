//! What the engines `hlrc` and `scope` say at releases and hear at acquires.
//!
//! A release that another node will see closes the interval ([`release`](super::release)); what the other lacks goes
//! with the message that it waits for. Where nodes share a host and have to share its cores too, a lock's token is
//! rather *published* after each release, with all that there is to tell, in a table that the others map
//! ([`SharedDirectory`]): whoever wants the lock takes it there, and nobody is woken.

use crate::node::Node;
use crate::shared::Shared;
use comem_memory::pages::{SharedDirectory, TOKEN_NOTICES_MAX};
use comem_net::Backbone;
use comem_protocol::coherence::pages::policy::Predictor;
use comem_protocol::coherence::pages::policy::lock_working_set::Query;
use comem_protocol::coherence::pages::write_notices::{self, Knowledge};
use comem_protocol::coherence::pages::{node, piggyback};
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::{IntervalMark, LockTail, Payload, Scope};

/// The payload of a node's synchronisation. What must leave before the message that carries it stands in `side`.
pub(crate) struct PagePayload<'a> {
    pub(crate) node: &'a Node,
    pub(crate) shared: &'a Shared,
    /// Who acts.
    pub(crate) slot: Slot,
    pub(crate) side: Outbox,
}

impl<'a> PagePayload<'a> {
    /// A node's table of offers, where this process sees it.
    fn directory_of(&self, node: NodeId) -> Option<&'a SharedDirectory> {
        let shared = self.shared;
        if node == shared.me { shared.directory() } else { self.node.peer_memory(shared, node)?.directory.as_ref() }
    }
}

impl Payload for PagePayload<'_> {
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>) {
        self.shared.intervals.lock().knowledge(scope, out);
    }

    fn mark(&mut self) -> IntervalMark {
        self.shared.mark()
    }

    fn prefetch_hint(&mut self, lock: LockId, out: &mut Vec<u8>) {
        if !self.node.config.sends_unasked() {
            return;
        }
        let section = self.shared.working_sets.lock().predict(&(), Query::Expected(lock));
        if !section.is_empty() {
            piggyback::prefetch_hint(&mut self.node.local_pages(self.shared, self.slot), &section).emit(out);
        }
    }

    fn on_release(&mut self, scope: Scope, _to: NodeId, knowledge: &[u8], released: IntervalMark, out: &mut Vec<u8>) {
        let mut pages = self.node.node_pages(self.shared, self.slot, &mut self.side);
        let mut intervals = self.shared.intervals.lock();
        let attached = node::sync::release(&mut pages, &mut intervals, (scope, released), knowledge, out);
        self.node.counters(self.slot).pages_pushed.add(attached);
    }

    fn on_acquire(&mut self, scope: Scope, bytes: &[u8]) {
        let mut pages = self.node.node_pages(self.shared, self.slot, &mut self.side);
        node::sync::acquire(&mut pages, &mut self.shared.intervals.lock(), scope, bytes);
    }

    fn deposit(&mut self, _scope: Scope, bytes: &[u8], stored: &mut Vec<u8>) {
        write_notices::unite(bytes, stored);
    }

    fn withdraw(&mut self, _scope: Scope, stored: &[u8], knowledge: &[u8], out: &mut Vec<u8>) {
        write_notices::hand_out(stored, &Knowledge::parse(knowledge), out);
    }

    fn queue_up(&mut self, lock: LockId, manager: NodeId, node: NodeId) -> Option<LockTail> {
        let (last, is_published) = self.directory_of(manager)?.queue_up(lock.0, node.0)?;
        Some(LockTail { node: NodeId(last), is_published })
    }

    fn publish_tail(&mut self, lock: LockId, last: NodeId) {
        if self.node.config.backbone.named() == Some(Backbone::Shm) {
            self.shared.directory().inspect(|directory| directory.publish_tail(lock.0, last.0));
        }
    }

    fn is_alike(&self) -> bool {
        self.shared.intervals.lock().is_alike()
    }

    fn token_left(&mut self, lock: LockId) {
        if self.node.config.lock_turns {
            self.node.schedule.step(|machine| machine.token_left(lock));
        }
    }

    fn publishes_tokens(&mut self) -> bool {
        // Who has a core of its own is told in less time than it takes to close intervals that nobody asks for.
        let shares_cores = self.shared.directory().is_some() && !crate::service::may_spin(&self.node.config);
        shares_cores && self.node.schedule.step(|machine| machine.publishes(self.node.now()))
    }

    fn publish_token(&mut self, lock: LockId, manager: NodeId) -> bool {
        let (shared, me) = (self.shared, self.shared.me);
        let (Some(mine), Some(queues)) = (shared.directory(), self.directory_of(manager)) else {
            return false;
        };
        let (now, schedule) = (self.node.now(), &self.node.schedule);
        if !queues.is_last(lock.0, me.0) || !schedule.step(|machine| machine.may_publish(now)) {
            return false;
        }
        // A long close is better left to the service thread.
        if !shared.intervals.lock().fits(TOKEN_NOTICES_MAX) || self.node.schedule.close_is_long(shared, self.node.now())
        {
            return false;
        }
        schedule.step(|machine| machine.token_published(now));
        let mut told = Vec::new();
        self.on_release(Scope::Lock(lock), me, &[], IntervalMark::NOW, &mut told);
        if !mine.put_notices(lock.0, &told) {
            return false;
        }
        // If another node has asked meanwhile, it asks by a message, or takes the token now.
        queues.publish_token(lock.0, me.0) || !mine.retract_token(lock.0)
    }

    fn retract_token(&mut self, lock: LockId, manager: NodeId) -> bool {
        let here = self.shared.directory().is_some_and(|mine| mine.retract_token(lock.0));
        if here && let Some(queues) = self.directory_of(manager) {
            queues.withdraw_token(lock.0, self.shared.me.0);
            self.node.schedule.step(|machine| machine.token_retracted());
        }
        here
    }

    fn take_published_token(&mut self, lock: LockId, from: NodeId) -> bool {
        // What was published beyond the barrier at which this node is could not be taken in. Whoever publishes it there
        // has heard of this node's arrival.
        let intervals = self.node.gate.as_ref().map(|_| self.shared.intervals.lock());
        if intervals.as_ref().is_some_and(|intervals| intervals.has_arrived()) {
            return false;
        }
        let told = self.directory_of(from).and_then(|table| table.take_published_token(lock.0));
        drop(intervals);
        told.map(|told| self.on_acquire(Scope::Lock(lock), &told)).is_some()
    }
}
