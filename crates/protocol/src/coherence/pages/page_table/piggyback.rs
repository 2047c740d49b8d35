//! Units that travel with a lock's token: see [`piggyback`](crate::coherence::pages::piggyback).

use super::PageTable;
use super::state::{Memory, UnitState};
use super::units::Units;
use crate::coherence::pages::{Context, PageNo};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Whether the unit of this page is valid here; `None` if an acquire would not fetch it again.
    pub fn would_fetch(&self, page: PageNo) -> Option<bool> {
        let unit = self.units.index(page);
        let state = self.units[unit].state;
        let copy = match state {
            UnitState::Invalid(memory) => memory != Memory::Unheard,
            state => state.is_valid() || state.is_absent(),
        };
        let copy = copy && !self.read_only && !self.keeps_diffs();
        (copy && self.units.is_used_again(unit)).then_some(state.is_valid())
    }

    /// The token of a lock goes to a node that wants this unit: appends its bytes if they are as that node must see
    /// them. At its home all diffs are in that were announced, if it is `fresh`.
    pub fn copy_for_token(
        &mut self,
        cx: &mut Context<'_>,
        unit: &Range<PageNo>,
        fresh: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        match self.units[self.units.within(unit).start].state {
            UnitState::Valid(_) if !self.keeps_diffs() => {
                let released = Rule::CarriedCopiesAreReleased.on();
                if !(released && cx.memory.copy_twin(unit.clone(), out)) {
                    cx.memory.copy_out(unit.clone(), out);
                }
            }
            UnitState::Home(_) if fresh => self.share(cx, std::slice::from_ref(unit), Some(out)),
            _ => return false,
        }
        true
    }
}

impl Units {
    /// The home of this unit, if what came of it with a token can be used: it is not here, this node knows its home for
    /// certain, and nothing that this node has written to it in the open interval is on its way, or was changed at its
    /// home by an atomic operation.
    pub fn can_use_piggybacked(&self, unit: &Range<PageNo>) -> Option<NodeId> {
        let at = self.within(unit).start;
        let this = self[at];
        let absent = matches!(this.state, UnitState::Invalid(memory) if memory != Memory::Unheard);
        let own = this.notices.are_owed() && Rule::CarriedPagesHaveOwnBytes.on();
        let may = absent && !own && !self.layout.engine.keeps_diffs();
        (self.pages_of(at) == *unit && may).then_some(this.home)
    }
}
