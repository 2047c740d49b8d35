//! Stores to quiet page tables are forbidden: no close looks at them, and copies that come have no twins.
//!
//! Where the kernel notes writes, each close of an interval looks at its notes of all copies, and of home pages that
//! others hold. That grows with what is cached, although mostly nobody writes it. A page table to which nobody has
//! stored for a while is write-protected as a whole, by one call. Its pages stay mapped, and loads cost nothing. It
//! leaves the list of active tables, so no close comes by it. The first store faults: then all of the table may be
//! stored to again.
//!
//! While stores are forbidden, copies that come need no twins: nobody can write them. So a page table of which nothing
//! is mapped is write-protected before the first long run of copies is mapped in it. The first store makes the twins
//! that are missing. A table that was stored to is left alone for a while: to forbid stores in vain costs two calls and
//! a fault.
//!
//! Three orders matter:
//!
//! - A table leaves the list of active ones only at a close that has looked at the kernel's notes after stores were
//!   forbidden ([`Rule::QuietTablesAreLookedAtOnceMore`]): what was stored up to then is found. Stores are forbidden at
//!   the end of a close, and closes of a node go one by one, so that is the next one.
//! - A table is listed before stores to it are allowed ([`Rule::AllowedTablesAreListedFirst`]): another thread may
//!   store at once, and end its interval before the step is over.
//! - Twins are made before stores are allowed ([`Rule::TwinsBeforeStores`]).

use super::PageTable;
use super::units::Unit;
use crate::coherence::pages::Context;
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
        let is_quiet = self.quiet_closes(cx) >= tuning.quiet_closes;
        let may = tuning.forbid_writes && is_quiet && cx.memory.notes_writes();
        if !state.forbids_writes && may && !self.units.iter().any(Unit::has_work) {
            self.close_state.forbids_writes = cx.memory.forbid_writes(self.units.all_pages());
            // For that look.
            self.close_state.passed_over |= self.close_state.forbids_writes;
        }
        self.close_state.forbids_writes
    }

    /// A long run of copies is about to be mapped: forbids stores if nothing of the table is mapped yet, and nobody has
    /// stored to it of late. So the copies need no twins.
    pub(super) fn forbid_writes_of_copies(&mut self, cx: &mut Context<'_>, pages: u32) {
        let (tuning, state) = (&self.units.tuning, &self.close_state);
        let is_first = state.touched == 0 || self.quiet_closes(cx) >= tuning.twinless_closes;
        let may = tuning.twinless && pages >= tuning.twinless_pages_min && is_first && !self.read_only;
        let nothing_mapped = |unit: &Unit| unit.state.is_nowhere_mapped() && !unit.has_work();
        if may && !state.forbids_writes && self.units.iter().all(nothing_mapped) {
            self.close_state.forbids_writes = cx.memory.forbid_writes(self.units.all_pages());
        }
    }

    /// A thread is about to store to the table, or its region was freed.
    pub(super) fn allow_writes(&mut self, cx: &mut Context<'_>) {
        if self.close_state.forbids_writes {
            if Rule::TwinsBeforeStores.on() {
                self.make_missing_twins(cx);
            }
            self.close_state.forbids_writes = false;
            self.close_state.touched = cx.sync_phase.total().max(1);
            cx.memory.allow_writes(self.units.all_pages());
        }
    }

    /// Whether a copy of this unit has no twin because nobody can have stored to it.
    pub(super) fn lacks_twin(&self, cx: &Context<'_>, unit: usize) -> bool {
        self.forbids_writes() && !cx.memory.has_twin(self.units.pages_of(unit))
    }

    fn quiet_closes(&self, cx: &Context<'_>) -> u32 {
        cx.sync_phase.total().wrapping_sub(self.close_state.touched)
    }

    fn make_missing_twins(&mut self, cx: &mut Context<'_>) {
        if self.read_only || self.keeps_diffs() {
            return;
        }
        for unit in 0..self.units.len() {
            let pages = self.units.pages_of(unit);
            if self.units[unit].state.is_copy() && !cx.memory.has_twin(pages.clone()) {
                cx.memory.make_twin(pages, true);
                cx.tally.twins_made += 1;
            }
        }
    }
}
