//! Atomic operations on words of a unit: at its home, and at the node that asks.
//! [`atomic`](crate::coherence::pages::atomic) has the idea.

use super::{
    ATOMIC, DiffSink, HOME_DIRTY_LAST_EPOCH, HOME_UNKNOWN, INVALID_MAPPED, NOTICE_PENDING, PageTable, REMOTE_DIRTY,
    State,
};
use crate::coherence::pages::atomic::Atomic;
use crate::coherence::pages::{Context, PAGE_BYTES, PageNo};
use crate::ids::NodeId;
use crate::rules::Rule;

/// Where an atomic operation on a page has to be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Here, by the processor: this node is the page's home.
    Here,
    /// At this node, which is its home.
    At(NodeId),
    /// There too, once this node's copy of the page has ended ([`PageTable::invalidate`]).
    AtAfterCopy(NodeId),
    /// Nobody has touched the page yet, as far as this node knows. A thread that reads it settles whose it is.
    Unclaimed,
}

impl PageTable {
    /// Where an atomic operation on this page has to be carried out.
    pub fn place_of_atomic(&self, page: PageNo) -> Place {
        let unit = &self.units[self.index(page)];
        match unit.state {
            State::Home => Place::Here,
            State::Unclaimed => Place::Unclaimed,
            State::Valid => Place::AtAfterCopy(unit.home),
            _ if unit.has(HOME_UNKNOWN) => Place::Unclaimed,
            _ if unit.has(INVALID_MAPPED) => Place::AtAfterCopy(unit.home),
            State::Invalid | State::Fetching => Place::At(unit.home),
        }
    }

    /// An operation of this node on the page was carried out at its home: the open interval has to tell of it. Whether
    /// there is a copy, or a fetch under way, that may lack it, and has to end ([`PageTable::invalidate`]).
    pub fn atomic_done(&mut self, page: PageNo) -> bool {
        let index = self.index(page);
        let this = &mut self.units[index];
        if this.state == State::Home {
            return false;
        }
        if Rule::AtomicsAreTold.on() {
            this.set(ATOMIC, true);
            self.pending = true;
        }
        let lacks = matches!(this.state, State::Valid | State::Fetching) || this.has(INVALID_MAPPED);
        lacks && Rule::AtomicsEndCopies.on()
    }

    /// The interval closes: its notices name what atomic operations have changed. The empty diff has a serial: copies
    /// that left the home before it are too old.
    pub(super) fn notice_atomics(&mut self, unit: usize, flush: &mut dyn DiffSink) {
        if !self.units[unit].has(ATOMIC) {
            return;
        }
        let (home, page) = (self.units[unit].home, self.pages(unit..unit + 1).start);
        let this = &mut self.units[unit];
        this.set(ATOMIC, false);
        if this.state == State::Home {
            return;
        }
        this.set(NOTICE_PENDING, true);
        match flush.puts(home) {
            true => flush.was_put(home, page, &[0; PAGE_BYTES / 64]),
            false => flush.diff(home, page, &[]),
        }
    }

    /// An operation of another node on the word at `offset` of `page`; `None`, and nothing done, where this node is
    /// not the page's home.
    pub fn on_atomic(&mut self, cx: &mut Context<'_>, (page, offset): (PageNo, usize), atomic: Atomic) -> Option<u64> {
        let unit = self.index(page);
        if self.units[unit].state != State::Home || self.freed {
            return None;
        }
        if atomic.writes() {
            // As for a diff: what is compared next, and who gets the page unasked, must not miss it.
            self.drop_home_twin_for_diff(cx, unit);
            self.forget_readers(unit);
            let this = &mut self.units[unit];
            this.set(HOME_DIRTY_LAST_EPOCH, false);
            this.set(REMOTE_DIRTY, true);
        }
        Some(cx.memory.atomic(page, offset, atomic))
    }
}
