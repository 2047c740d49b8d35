//! Units that travel with a lock's token: see [`piggyback`](crate::coherence::pages::piggyback).

use super::{ATOMIC, HOME_UNKNOWN, INVALID_MAPPED, NOTICE_PENDING, PageTable, State};
use crate::coherence::pages::{Context, PageNo};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Whether the unit of this page is valid here; `None` if an acquire would not fetch it again.
    pub fn would_fetch(&self, page: PageNo) -> Option<bool> {
        let this = self.units[self.units_in(&(page..page + 1)).start];
        let copy = matches!(this.state, State::Invalid | State::Valid) && !this.has(HOME_UNKNOWN) && !self.read_only;
        (copy && this.credit > 0).then_some(this.state == State::Valid)
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
        match self.units[self.units_in(unit).start].state {
            State::Valid => {
                let released = Rule::CarriedCopiesAreReleased.on();
                if !(released && cx.memory.copy_twin(unit.clone(), out)) {
                    cx.memory.copy_out(unit.clone(), out);
                }
            }
            State::Home if fresh => self.share(cx, std::slice::from_ref(unit), Some(out)),
            _ => return false,
        }
        true
    }

    /// The home of this unit, if what came of it with a token can be used: it is not here, this node knows its home for
    /// certain, and nothing that this node has written to it in the open interval is on its way, or was changed at its
    /// home by an atomic operation.
    pub fn can_use_piggybacked(&self, unit: &Range<PageNo>) -> Option<NodeId> {
        let units = self.units_in(unit);
        let this = self.units[units.start];
        let whole = self.pages(units.start..units.start + 1) == *unit;
        let own = this.has(NOTICE_PENDING | ATOMIC) && Rule::CarriedPagesHaveOwnBytes.on();
        (whole && this.state == State::Invalid && !this.has(INVALID_MAPPED | HOME_UNKNOWN) && !own).then_some(this.home)
    }
}
