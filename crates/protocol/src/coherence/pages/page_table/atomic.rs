//! Atomic operations on words of a unit: at its home, and at the node that asks.
//! [`atomic`](crate::coherence::pages::atomic) has the idea.

use super::state::{Fetch, Target, UnitState};
use super::units::{Unit, Units};
use super::{DiffSink, PageTable};
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

impl Unit {
    /// Where an atomic operation on this unit has to be carried out.
    pub fn place_of_atomic(&self) -> Place {
        match self.state {
            UnitState::Home(_) => Place::Here,
            UnitState::Unclaimed => Place::Unclaimed,
            UnitState::Valid(_) | UnitState::Stale(_) => Place::AtAfterCopy(self.home),
            UnitState::Fetching(Fetch { into: Target::Stale(_), .. }) => Place::AtAfterCopy(self.home),
            UnitState::Invalid(_) | UnitState::Fetching(_) if self.state.is_unheard() => Place::Unclaimed,
            UnitState::Invalid(_) | UnitState::Fetching(_) => Place::At(self.home),
        }
    }
}

impl PageTable {
    /// An operation of this node on the page was carried out at its home: the open interval has to tell of it. Whether
    /// there is a copy, or a fetch under way, that may lack it, and has to end ([`PageTable::invalidate`]).
    pub fn atomic_done(&mut self, page: PageNo) -> bool {
        let index = self.units.index(page);
        let this = &mut self.units[index];
        if this.is_home() {
            return false;
        }
        if Rule::AtomicsAreTold.on() {
            this.notices.change_at_home();
            self.close_state.pending = true;
        }
        let lacks = matches!(this.state, UnitState::Valid(_) | UnitState::Fetching(_) | UnitState::Stale(_));
        lacks && Rule::AtomicsEndCopies.on()
    }

    /// An operation of another node on the word at `offset` of `page`; `None`, and nothing done, where this node is
    /// not the page's home.
    pub fn on_atomic(&mut self, cx: &mut Context<'_>, (page, offset): (PageNo, usize), atomic: Atomic) -> Option<u64> {
        let unit = self.units.index(page);
        if !self.units[unit].is_home() || self.freed {
            return None;
        }
        if atomic.writes() {
            self.note_remote_write(cx, unit);
        }
        Some(cx.memory.atomic(page, offset, atomic))
    }
}

impl Units {
    /// The interval closes: its notices name what atomic operations have changed. The empty diff has a serial: copies
    /// that left the home before it are too old.
    pub(super) fn notice_atomics(&mut self, unit: usize, flush: &mut dyn DiffSink) {
        let this = &mut self[unit];
        if !this.notices.take_atomics() || this.is_home() {
            return;
        }
        this.notices.flush();
        let (home, page) = (this.home, self.pages_of(unit).start);
        match flush.puts(home) {
            true => flush.was_put(home, page, &[0; PAGE_BYTES / 64]),
            false => flush.diff(home, page, &[]),
        }
    }
}
