//! What releases tell and acquires hear, and what nodes lay open of locks.

use super::{Pages, PublishedTails};
use comem_protocol::coherence::pages::write_notices::{self, Knowledge};
use comem_protocol::coherence::pages::{node, piggyback};
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::sync::{IntervalMark, LockTail, Payload, Scope};
use std::sync::MutexGuard;

impl Pages {
    /// What a node lays open, if this one reaches it: some nodes do not reach the others' memory.
    fn laid_open(&self, at: NodeId) -> Option<MutexGuard<'_, PublishedTails>> {
        let reaches = at == self.me || self.me.0 % 3 != 2;
        self.queues.as_ref().filter(|_| reaches)?.lock().ok()
    }
}

impl Payload for Pages {
    fn knowledge(&mut self, scope: Scope, out: &mut Vec<u8>) {
        self.intervals.knowledge(scope, out);
    }

    fn mark(&mut self) -> IntervalMark {
        IntervalMark(self.closes)
    }

    fn prefetch_hint(&mut self, _lock: LockId, out: &mut Vec<u8>) {
        if self.layout.pushes.is_some() && self.rng.below(4) != 0 {
            let first = self.rng.below(u64::from(self.layout.pages())) as u32;
            let section = first..(first + 1 + self.rng.below(8) as u32).min(self.layout.pages());
            piggyback::prefetch_hint(self, &[section]).emit(out);
        }
    }

    fn on_release(&mut self, scope: Scope, _to: NodeId, knowledge: &[u8], released: IntervalMark, out: &mut Vec<u8>) {
        let release = |pages: &mut Pages, intervals: &mut _| {
            pages.carried.0 += node::sync::release(pages, intervals, (scope, released), knowledge, out);
        };
        self.with_intervals(release);
    }

    fn on_acquire(&mut self, scope: Scope, bytes: &[u8]) {
        self.with_intervals(|pages, intervals| node::sync::acquire(pages, intervals, scope, bytes));
    }

    fn deposit(&mut self, _scope: Scope, bytes: &[u8], stored: &mut Vec<u8>) {
        write_notices::unite(bytes, stored);
    }

    fn withdraw(&mut self, _scope: Scope, stored: &[u8], knowledge: &[u8], out: &mut Vec<u8>) {
        write_notices::hand_out(stored, &Knowledge::parse(knowledge), out);
    }

    fn queue_up(&mut self, lock: LockId, manager: NodeId, node: NodeId) -> Option<LockTail> {
        let mut open = self.laid_open(manager)?;
        open.last.get_mut(&lock).map(|last| std::mem::replace(last, LockTail { node, is_published: false }))
    }

    fn is_alike(&self) -> bool {
        self.intervals.is_alike()
    }

    fn token_left(&mut self, lock: LockId) {
        self.schedule.token_left(lock);
    }

    fn publish_tail(&mut self, lock: LockId, last: NodeId) {
        // Some locks find no place.
        if !lock.0.is_multiple_of(3)
            && let Some(mut open) = self.laid_open(self.me)
        {
            open.last.insert(lock, LockTail { node: last, is_published: false });
        }
    }

    fn publishes_tokens(&mut self) -> bool {
        self.queues.is_some() && self.intervals.fits(usize::MAX) && self.schedule.publishes(self.now)
    }

    fn publish_token(&mut self, lock: LockId, manager: NodeId) -> bool {
        let held = LockTail { node: self.me, is_published: false };
        let is_last = |open: &PublishedTails| open.last.get(&lock) == Some(&held);
        if !self.schedule.may_publish(self.now) {
            return false;
        }
        // Now and then a node that closes an interval finds that another has asked meanwhile.
        if self.rng.below(4) == 0 || !self.laid_open(manager).is_some_and(|open| is_last(&open)) {
            return false;
        }
        self.schedule.token_published(self.now);
        let mut told = Vec::new();
        self.on_release(Scope::Lock(lock), self.me, &[], IntervalMark::NOW, &mut told);
        let Some(mut open) = self.laid_open(manager).filter(|open| is_last(open)) else { return false };
        open.last.insert(lock, LockTail { is_published: true, ..held });
        open.told.insert((lock, held.node), told);
        true
    }

    fn retract_token(&mut self, lock: LockId, manager: NodeId) -> bool {
        let me = self.me;
        let here = self.laid_open(me).is_some_and(|mut open| open.told.remove(&(lock, me)).is_some());
        if here {
            self.schedule.token_retracted();
        }
        let out = LockTail { node: me, is_published: true };
        if let Some(mut open) = self.laid_open(manager).filter(|open| here && open.last.get(&lock) == Some(&out)) {
            open.last.insert(lock, LockTail { is_published: false, ..out });
        }
        here
    }

    fn take_published_token(&mut self, lock: LockId, from: NodeId) -> bool {
        let told = self.laid_open(from).and_then(|mut open| open.told.remove(&(lock, from)));
        told.map(|told| self.on_acquire(Scope::Lock(lock), &told)).is_some()
    }
}
