//! What releases tell and acquires hear, and what nodes lay open of locks.

use super::{LaidOpen, Pages};
use comem_protocol::coherence::pages::history::{self, Knowledge};
use comem_protocol::coherence::pages::{carry, node};
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::sync::{Last, Mark, Payload, Scope};
use std::sync::MutexGuard;

impl Pages {
    /// What a node lays open, if this one reaches it: some nodes do not reach the others' memory.
    fn laid_open(&self, at: NodeId) -> Option<MutexGuard<'_, LaidOpen>> {
        let reaches = at == self.me || self.me.0 % 3 != 2;
        self.queues.as_ref().filter(|_| reaches)?.lock().ok()
    }
}

impl Payload for Pages {
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>) {
        self.ledger.knowledge(scope, out);
    }

    fn mark(&mut self) -> Mark {
        Mark(self.closes)
    }

    fn wishes(&mut self, _lock: LockId, out: &mut Vec<u8>) {
        if self.layout.pushes.is_some() && self.rng.below(4) != 0 {
            let first = self.rng.below(u64::from(self.layout.pages())) as u32;
            let section = first..(first + 1 + self.rng.below(8) as u32).min(self.layout.pages());
            carry::wishes(self, &[section]).emit(out);
        }
    }

    fn on_release(&mut self, scope: Scope, _to: NodeId, knowledge: &[u8], released: Mark, out: &mut Vec<u8>) {
        let release = |pages: &mut Pages, ledger: &mut _| {
            pages.carried.0 += node::sync::release(pages, ledger, (scope, released), knowledge, out);
        };
        self.in_ledger(release);
    }

    fn on_acquire(&mut self, scope: Scope, bytes: &[u8]) {
        self.in_ledger(|pages, ledger| node::sync::acquire(pages, ledger, scope, bytes));
    }

    fn deposit(&mut self, _scope: Scope, bytes: &[u8], stored: &mut Vec<u8>) {
        history::unite(bytes, stored);
    }

    fn withdraw(&mut self, _scope: Scope, stored: &[u8], knowledge: &[u8], out: &mut Vec<u8>) {
        history::hand_out(stored, &Knowledge::parse(knowledge), out);
    }

    fn queue_up(&mut self, lock: LockId, manager: NodeId, node: NodeId) -> Option<Last> {
        let mut open = self.laid_open(manager)?;
        open.last.get_mut(&lock).map(|last| std::mem::replace(last, Last { node, lies_out: false }))
    }

    fn is_alike(&self) -> bool {
        self.ledger.is_alike()
    }

    fn token_left(&mut self, lock: LockId) {
        self.schedule.token_left(lock);
    }

    fn lay_open(&mut self, lock: LockId, last: NodeId) {
        // Some locks find no place.
        if !lock.0.is_multiple_of(3)
            && let Some(mut open) = self.laid_open(self.me)
        {
            open.last.insert(lock, Last { node: last, lies_out: false });
        }
    }

    fn lays_out(&mut self) -> bool {
        self.queues.is_some() && self.ledger.fits(usize::MAX) && self.schedule.publishes(self.now)
    }

    fn lay_out(&mut self, lock: LockId, manager: NodeId) -> bool {
        let held = Last { node: self.me, lies_out: false };
        let is_last = |open: &LaidOpen| open.last.get(&lock) == Some(&held);
        if !self.schedule.may_publish(self.now) {
            return false;
        }
        // Now and then a node that closes an interval finds that another has asked meanwhile.
        if self.rng.below(4) == 0 || !self.laid_open(manager).is_some_and(|open| is_last(&open)) {
            return false;
        }
        self.schedule.token_published(self.now);
        let mut told = Vec::new();
        self.on_release(Scope::Lock(lock), self.me, &[], Mark::NOW, &mut told);
        let Some(mut open) = self.laid_open(manager).filter(|open| is_last(open)) else { return false };
        open.last.insert(lock, Last { lies_out: true, ..held });
        open.told.insert((lock, held.node), told);
        true
    }

    fn take_back(&mut self, lock: LockId, manager: NodeId) -> bool {
        let me = self.me;
        let here = self.laid_open(me).is_some_and(|mut open| open.told.remove(&(lock, me)).is_some());
        if here {
            self.schedule.token_retracted();
        }
        let out = Last { node: me, lies_out: true };
        if let Some(mut open) = self.laid_open(manager).filter(|open| here && open.last.get(&lock) == Some(&out)) {
            open.last.insert(lock, Last { lies_out: false, ..out });
        }
        here
    }

    fn pick_up(&mut self, lock: LockId, from: NodeId) -> bool {
        let told = self.laid_open(from).and_then(|mut open| open.told.remove(&(lock, from)));
        told.map(|told| self.on_acquire(Scope::Lock(lock), &told)).is_some()
    }
}
