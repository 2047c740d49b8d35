//! Stores to quiet page tables are forbidden, and no close looks at them.
//!
//! Where the kernel notes writes, each close of an interval looks at its notes of all copies, and of home pages that
//! others hold. That grows with what is cached, although mostly nobody writes it. A page table to which nobody has
//! stored for a while is write-protected as a whole, by one call. Its pages stay mapped, and loads cost nothing. It
//! leaves the list of active tables, so no close comes by it. The first store faults: then all of the table may be
//! stored to again.
//!
//! Two orders matter. A table leaves the list of active ones only at a close that has looked at the kernel's notes after
//! stores were forbidden ([`Rule::QuietTablesAreLookedAtOnceMore`]): what was stored up to then is found. Stores are
//! forbidden at the end of a close, and closes of a node go one by one, so that is the next one. And a table is listed
//! before stores to it are allowed ([`Rule::AllowedTablesAreListedFirst`]): another thread may store at once, and end
//! its interval before the step is over.

use super::PageTable;
use super::units::Unit;
use crate::coherence::pages::Context;
#[cfg(doc)]
use crate::rules::Rule;

impl PageTable {
    /// Whether stores to the whole table are forbidden.
    pub fn forbids_writes(&self) -> bool {
        self.close_state.forbids_writes
    }

    /// Forbids stores if nothing has been written here for some intervals and nothing is left to be told; whether they
    /// are forbidden now.
    pub(super) fn forbid_quiet_writes(&mut self, cx: &mut Context<'_>) -> bool {
        let (tuning, state) = (&self.units.tuning, &self.close_state);
        let quiet_closes = cx.sync_phase.total().wrapping_sub(state.touched);
        let may = tuning.forbid_writes && quiet_closes >= tuning.quiet_closes && cx.memory.notes_writes();
        if !state.forbids_writes && may && !self.units.iter().any(Unit::has_work) {
            self.close_state.forbids_writes = cx.memory.forbid_writes(self.units.all_pages());
            // For that look.
            self.close_state.passed_over |= self.close_state.forbids_writes;
        }
        self.close_state.forbids_writes
    }

    /// A thread is about to store to the table, or its region was freed.
    pub(super) fn allow_writes(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.close_state.forbids_writes) {
            self.close_state.touched = cx.sync_phase.total();
            cx.memory.allow_writes(self.units.all_pages());
        }
    }
}
