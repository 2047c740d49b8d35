//! Pages that are mapped while their bytes are on their way.
//!
//! A thread that waits for a page has nothing else to do, and once the bytes are here, to map the page takes longest.
//! Where no other thread can look at the node's memory ([`Rule::LoneThreadsMapEarly`]), nobody sees what is there
//! meanwhile: the thread goes on when the unit is not being fetched any more. If it is not valid then, because what
//! came was not wanted or did not come, it is unmapped again ([`Rule::UnwantedPagesAreTakenBack`]). Meanwhile it counts
//! as unmapped for all but those who end copies around it: its note, if it has one, may be taken, and writes to it
//! disregarded, until it has come.

use super::{INVALID_MAPPED, PREMAPPED, PageTable, State, WRITE_FETCH};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// The thread that takes this step waits for this unit, which is being fetched, and no other can look at this
    /// node's memory before it goes on: maps the unit as it will be mapped when it comes.
    pub fn premap(&mut self, cx: &mut Context<'_>, unit: &Range<PageNo>) {
        if !self.tuning.premap {
            return;
        }
        let at = self.index(unit.start);
        let this = self.units[at];
        if this.state == State::Fetching && !this.has(INVALID_MAPPED | PREMAPPED) && !self.freed {
            self.map_installed(cx, self.pages(at..at + 1));
            self.units[at].set(PREMAPPED, true);
            cx.tally.mapped_early += u64::from(self.layout.unit_pages);
        }
    }

    /// Maps units whose bytes are here, or soon will be.
    pub(super) fn map_installed(&self, cx: &mut Context<'_>, run: Range<PageNo>) {
        // What is about to be written need not be protected first: the note would cost its writer a fault in the
        // kernel.
        let noted = cx.memory.notes_writes() && !self.read_only;
        match noted && self.units[self.units_in(&run)].iter().all(|unit| unit.has(WRITE_FETCH)) {
            true => cx.memory.map_write(run),
            false => cx.memory.map_read(run),
        }
    }

    /// A unit is not being fetched any more, and is not valid: it is not mapped any more either.
    pub(super) fn unmap_premapped(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.units[unit].has(PREMAPPED) {
            self.units[unit].set(PREMAPPED, false);
            if Rule::UnwantedPagesAreTakenBack.on() {
                let at = self.pages(unit..unit + 1);
                cx.memory.unmap(at.clone());
                cx.memory.untrack(at);
            }
        }
    }
}
