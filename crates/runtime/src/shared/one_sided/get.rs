//! Pages copied out of their home's memory by the node that wants them, without asking: a get, where nodes share a
//! host.
//!
//! A fetch that is asked for is a round trip, and where the home's threads compute, two wake-ups as well. Under `shm`
//! the home's memory is mapped here anyway; what remains is to know that the home has what is needed, and that it knows
//! of the copy. Both stand in the home's table ([`SharedDirectory`](comem_memory::pages::SharedDirectory); decision
//! 0014). What is not offered, or not up to date, is asked for.

use crate::shared::heap::table::RegionState;
use crate::shared::{Peer, Shared};
use crate::thread::Thread;
use comem_protocol::coherence::pages::page_table::PageTable;
use comem_protocol::coherence::pages::serve::{self, PageState};
use comem_protocol::coherence::pages::wire::RequiredDiff;
use comem_protocol::coherence::pages::{Context, PageNo, push_range};
use comem_protocol::ids::NodeId;
use comem_protocol::rules::Rule;
use std::ops::Range;

impl Peer {
    pub(in crate::shared) fn has_applied(&self, needs: &[RequiredDiff]) -> bool {
        let Some(directory) = &self.directory else { return false };
        let is_in = |need: &RequiredDiff| directory.diffs_in(need.writer.0) >= need.serial;
        needs.iter().all(is_in) || !Rule::TakersLookForTheirNeeds.on()
    }
}

impl Thread {
    /// Takes one unit, which is in state `Fetching`, as [`Thread::take`] does; `false` where it must be asked for.
    pub(in crate::shared) fn take_unit(
        &self,
        shared: &Shared,
        known: &RegionState,
        home: NodeId,
        unit: &Range<PageNo>,
    ) -> bool {
        let Some(peer) = self.home().peer_memory(shared, home) else { return false };
        let needs = self.needs_at(shared, home);
        let offered = |peer: &Peer| peer.directory.as_ref().is_some_and(|directory| directory.take(unit.start));
        if !peer.has_applied(&needs) || !offered(peer) {
            return false;
        }
        let here = self.stepping(|out| {
            let bytes = self.home().local_pages(shared, self.slot()).memory_of(home, unit)?;
            let step = |table: &mut PageTable, cx: &mut Context<'_>| table.on_pages(cx, unit.clone(), bytes);
            self.home().known_step(self.slot(), shared, known, unit.start, out, step)
        });
        if here.is_some() {
            self.home().life.note_progress();
            self.counters().pages_taken.add(unit.len() as u64);
            shared.needs.lock().confirm(home, &needs);
        }
        here.is_some()
    }

    /// Claims untouched units, in state `Fetching`, in the table of the node that is their home by the layout; gives
    /// what must be taken or asked for: what is there after all, and what that node's table cannot say.
    pub(in crate::shared) fn claim(
        &self,
        shared: &Shared,
        home: NodeId,
        runs: Vec<Range<PageNo>>,
    ) -> Vec<Range<PageNo>> {
        if self.home().peer_memory(shared, home).is_none() {
            return runs;
        }
        let mut left = Vec::new();
        for run in runs {
            self.stepping(|out| {
                self.home().each_chunk(shared, &run, self.slot(), out, |table, cx, part| {
                    table.claim(cx, part, home, &mut left);
                });
            });
        }
        left
    }

    /// Takes what of these pages their home offers; gives what must be asked for. The pages are whole units in state
    /// `Fetching`: a notice that comes meanwhile voids what is taken, as it voids an answer.
    pub(in crate::shared) fn take(
        &self,
        shared: &Shared,
        home: NodeId,
        runs: Vec<Range<PageNo>>,
    ) -> Vec<Range<PageNo>> {
        let Some(peer) = self.home().peer_memory(shared, home) else { return runs };
        let needs = self.needs_at(shared, home);
        let Some(directory) = peer.directory.as_ref().filter(|_| peer.has_applied(&needs)) else { return runs };
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for mut run in runs {
            while let Some(known) = shared.table.find(run.start).filter(|_| !run.is_empty()) {
                let (units, unit_pages) = (run.start..run.end.min(known.region.range().end), known.region.unit_pages());
                run.start = units.end;
                for first in units.step_by(unit_pages as usize) {
                    let list = if directory.take(first) { &mut taken } else { &mut left };
                    push_range(list, first..first + unit_pages);
                }
            }
            push_range(&mut left, run);
        }
        for run in taken {
            let here = self.stepping(|out| {
                let mut state = self.home().local_pages(shared, self.slot());
                let bytes = state.memory_of(home, &run);
                bytes.is_some_and(|bytes| serve::take_in(&mut state, &run, bytes, out).is_some())
            });
            if here {
                self.home().life.note_progress();
                self.counters().pages_taken.add(u64::from(run.end - run.start));
            } else {
                left.push(run);
            }
        }
        shared.needs.lock().confirm(home, &needs);
        left
    }
}
