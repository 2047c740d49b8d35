//! What the engines `hlrc` and `scope` say at releases and hear at acquires.
//!
//! A release that another node will see closes the interval ([`release`](super::release)); what the other lacks goes with the message that it
//! waits for. Where nodes share a host and have to share its cores too, a lock's token rather *lies out* after each release, with all that there is to
//! tell, in a table that the others map ([`Offers`]): whoever wants the lock takes it there, and nobody is woken.

use super::Shared;
use crate::node::Node;
use comem_memory::pages::{Offers, TOLD_BYTES_MAX};
use comem_net::Backbone;
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::carry;
use comem_protocol::coherence::pages::history::{self, Knowledge};
use comem_protocol::coherence::pages::ledger::Ledger;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_interval};
use comem_protocol::coherence::pages::node::invalidate::end_copies;
use comem_protocol::ids::{LockId, NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::{Last, Mark, Payload, Scope};

/// The payload of a node's synchronisation. What must leave before the message that carries it stands in `side`.
pub(crate) struct PagePayload<'a> {
    pub(crate) node: &'a Node,
    pub(crate) shared: &'a Shared,
    /// Who acts.
    pub(crate) slot: Slot,
    pub(crate) side: Outbox,
}

impl Payload for PagePayload<'_> {
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>) {
        self.shared.ledger.lock().knowledge(scope, out);
    }

    fn mark(&mut self) -> Mark {
        self.shared.mark()
    }

    fn wishes(&mut self, lock: LockId, out: &mut Vec<u8>) {
        if !self.node.sends_unasked() {
            return;
        }
        let section = self.shared.sections.lock().expected(lock);
        if !section.is_empty() {
            carry::wishes(&mut self.node.page_house(self.shared, self.slot), &section).emit(out);
        }
    }

    fn on_release(&mut self, scope: Scope, _to: NodeId, knowledge: &[u8], released: Mark, out: &mut Vec<u8>) {
        let mut ledger = self.shared.ledger.lock();
        // Who has the ledger knows that no interval is ending: those that have begun to are over.
        if released.needs_close(self.shared.mark()) {
            let why = if let Scope::Lock(lock) = scope { CloseReason::Lock(lock) } else { CloseReason::Else };
            close_interval(&mut self.node.node_pages(self.shared, self.slot, &mut self.side), &mut ledger, why);
        }
        let ((seen, wishes), at) = (carry::split(knowledge), out.len());
        ledger.tell((scope, released), seen, out);
        if let Some(wishes) = wishes {
            let told = out[at..].to_vec();
            self.load(&ledger, wishes, &told, out);
        }
    }

    fn on_acquire(&mut self, scope: Scope, bytes: &[u8]) {
        let (told, carried) = carry::take_off(bytes);
        let mut ledger = self.shared.ledger.lock();
        let learnt = ledger.learn(scope, told, &mut self.shared.needs.lock());
        match learnt {
            Ok(entries) => {
                self.shared.end_pushed(&entries);
                let entries = entries.iter().map(|entry| &**entry);
                let mut pages = self.node.node_pages(self.shared, self.slot, &mut self.side);
                end_copies(&mut pages, &mut ledger, entries, false);
                carried.into_iter().for_each(|carried| self.unload(&ledger, carried));
            }
            Err(error) => {
                self.node.end_for_harm(&format!("a release of another node said what makes no sense ({error})"))
            }
        }
    }

    fn deposit(&mut self, _scope: Scope, bytes: &[u8], stored: &mut Vec<u8>) {
        history::unite(bytes, stored);
    }

    fn withdraw(&mut self, _scope: Scope, stored: &[u8], knowledge: &[u8], out: &mut Vec<u8>) {
        history::hand_out(stored, &Knowledge::parse(knowledge), out);
    }

    fn queue_up(&mut self, lock: LockId, manager: NodeId, node: NodeId) -> Option<Last> {
        let (last, lies_out) = self.node.offers_of(self.shared, manager)?.queue_up(lock.0, node.0)?;
        Some(Last { node: NodeId(last), lies_out })
    }

    fn lay_open(&mut self, lock: LockId, last: NodeId) {
        if self.node.config.backbone.named() == Some(Backbone::Shm) {
            self.shared.offers().inspect(|offers| offers.lay_open(lock.0, last.0));
        }
    }

    fn is_alike(&self) -> bool {
        self.shared.ledger.lock().is_alike()
    }

    fn token_left(&mut self, lock: LockId) {
        if self.node.config.lock_turns {
            self.node.stays.left(lock);
        }
    }

    fn lays_out(&mut self) -> bool {
        // Who has a core of its own is told in less time than it takes to close intervals that nobody asks for.
        let shares_cores = self.shared.offers().is_some() && !crate::service::may_spin(&self.node.config);
        shares_cores && self.shared.lying.lock().may(self.node.now())
    }

    fn lay_out(&mut self, lock: LockId, manager: NodeId) -> bool {
        let (shared, me) = (self.shared, self.shared.me);
        let (Some(mine), Some(queues)) = (shared.offers(), self.node.offers_of(shared, manager)) else { return false };
        let now = self.node.now();
        if !queues.is_last(lock.0, me.0) || !shared.lying.lock().may(now) || self.node.has_turn() {
            return false;
        }
        // A long close is better left to the service thread.
        if !shared.ledger.lock().fits(TOLD_BYTES_MAX) || self.node.close_would_be_long(shared) {
            return false;
        }
        shared.lying.lock().count(now);
        let mut told = Vec::new();
        self.on_release(Scope::Lock(lock), me, &[], Mark::NOW, &mut told);
        if !mine.tell(lock.0, &told) {
            return false;
        }
        // If another node has asked meanwhile, it asks by a message, or takes the token now.
        queues.lie_out(lock.0, me.0) || !mine.take_back(lock.0)
    }

    fn take_back(&mut self, lock: LockId, manager: NodeId) -> bool {
        let here = self.shared.offers().is_some_and(|mine| mine.take_back(lock.0));
        if here && let Some(queues) = self.node.offers_of(self.shared, manager) {
            queues.lie_in(lock.0, self.shared.me.0);
            self.shared.lying.lock().count_vain();
        }
        here
    }

    fn pick_up(&mut self, lock: LockId, from: NodeId) -> bool {
        // What was laid out beyond the barrier at which this node is could not be taken in. Whoever lays it out there has heard of this node's arrival.
        let ledger = self.node.sections.as_ref().map(|_| self.shared.ledger.lock());
        if ledger.as_ref().is_some_and(|ledger| ledger.has_arrived()) {
            return false;
        }
        let told = self.node.offers_of(self.shared, from).and_then(|table| table.pick_up(lock.0));
        drop(ledger);
        told.map(|told| self.on_acquire(Scope::Lock(lock), &told)).is_some()
    }
}

impl PagePayload<'_> {
    /// What the acquirer wishes for goes with the token, if one message can take it.
    fn load(&mut self, ledger: &Ledger, wishes: &[u8], told: &[u8], out: &mut Vec<u8>) {
        let most = (carry::CARRIED_PAGES_MAX as usize + 1) * PAGE_BYTES;
        if out.len() + most > self.node.wire.message_bytes() {
            return;
        }
        let needs = self.shared.needs.lock().at(self.shared.me);
        let fresh = self.shared.meets(&needs);
        let mut house = self.node.page_house(self.shared, self.slot);
        let pages = carry::load(&mut house, ledger, (wishes, fresh), told, out);
        self.node.counters(self.slot).pages_pushed.add(pages);
    }

    /// What came with a token is put aside until it is fetched.
    fn unload(&mut self, ledger: &Ledger, carried: &[u8]) {
        let mut house = self.node.page_house(self.shared, self.slot);
        let pass_by = |home| self.shared.needs.lock().pass_by(home);
        if let Err(error) = carry::unload(&mut house, ledger, pass_by, carried) {
            self.node.end_for_harm(&format!("a lock came with what makes no sense ({error})"));
        }
    }
}

impl Node {
    /// A node's table of offers, where this process sees it.
    fn offers_of<'a>(&self, shared: &'a Shared, node: NodeId) -> Option<&'a Offers> {
        if node == shared.me { shared.offers() } else { self.peer_memory(shared, node)?.offers.as_ref() }
    }
}
