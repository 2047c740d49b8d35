//! Pages that are mapped while their bytes are on their way.
//!
//! A thread that waits for a page has nothing else to do, and once the bytes are here, to map the page takes longest.
//! Where no other thread can look at the node's memory ([`Rule::LoneThreadsMapEarly`]), nobody sees what is there
//! meanwhile: the thread goes on when the unit is not being fetched any more. If it is not valid then, because what
//! came was not wanted or did not come, it is unmapped again ([`Rule::UnwantedPagesAreTakenBack`]). Meanwhile it counts
//! as unmapped for all but those who end copies around it: its note, if it has one, may be taken, and writes to it
//! disregarded, until it has come.

use super::PageTable;
use super::units::Units;
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// The thread that takes this step waits for this unit, which is being fetched, and no other can look at this
    /// node's memory before it goes on: maps the unit as it will be mapped when it comes.
    pub fn premap(&mut self, cx: &mut Context<'_>, unit: &Range<PageNo>) {
        if !self.units.tuning.premap {
            return;
        }
        let at = self.units.index(unit.start);
        let for_store = self.units[at].state.fetch().is_some_and(|fetch| fetch.for_store)
            && !self.read_only
            && !self.forbids_writes();
        if !self.freed && self.units[at].state.premap() {
            map_installed(cx, self.units.pages_of(at), for_store);
            cx.tally.mapped_early += u64::from(self.units.layout.unit_pages);
        }
    }
}

impl Units {
    /// A unit is not being fetched any more, and is not valid: it is not mapped any more either.
    pub(super) fn unmap_premapped(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self[unit].state.end_premap() && Rule::UnwantedPagesAreTakenBack.on() {
            let at = self.pages_of(unit);
            cx.memory.unmap(at.clone());
            cx.memory.untrack(at);
        }
    }
}

/// Maps units whose bytes are here, or soon will be, and which may be about to be written.
pub(super) fn map_installed(cx: &mut Context<'_>, run: Range<PageNo>, for_store: bool) {
    // What is about to be written need not be protected first: the note would cost its writer a fault in the kernel.
    match for_store && cx.memory.notes_writes() {
        true => cx.memory.map_write(run),
        false => cx.memory.map_read(run),
    }
}
