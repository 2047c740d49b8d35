//! Who reads a home's pages, and what it sends them unasked: see [`push`](crate::coherence::pages::push).

use super::PageTable;
use super::state::Writers;
use crate::coherence::pages::policy::Predictor;
use crate::coherence::pages::policy::push_predictor::{Event, Told};
use crate::coherence::pages::push::Pushes;
use crate::coherence::pages::{Context, PageNo};
use crate::ids::NodeId;
use smallvec::SmallVec;
use std::ops::Range;

impl PageTable {
    /// A node in `epoch` has asked for these pages, and gets their bytes.
    pub fn note_reader(&mut self, runs: &[Range<PageNo>], node: NodeId, epoch: u32) {
        let units: SmallVec<[Range<usize>; 2]> = runs.iter().map(|run| self.units.within(run)).collect();
        // What is asked for beside it may be of no use.
        let alone = units.iter().map(ExactSizeIterator::len).sum::<usize>() == 1;
        for unit in units.into_iter().flatten() {
            let Some(home) = self.units[unit].state.home() else { continue };
            let new = alone && home.writers == Writers::Nobody;
            let home_wrote = home.writers.home_wrote_last_epoch();
            self.push_predictor.observe(&self.units.tuning, Event::Asked { unit, node, epoch, home_wrote, new });
        }
    }

    /// A reader says that these pages were sent in vain.
    pub fn on_unused(&mut self, pages: &Range<PageNo>, node: NodeId) {
        for unit in self.units.within(pages) {
            self.push_predictor.observe(&self.units.tuning, Event::Unused(unit, node));
        }
    }

    /// This node arrives at the barrier that ends `epoch`, and has told of what it wrote: whom to send which units.
    pub fn pushes(&mut self, cx: &Context<'_>, epoch: u32, pushes: &mut Pushes) {
        let (units, push) = (&self.units, &mut self.push_predictor);
        if !self.close_state.may_be_noticed || push.units().is_empty() {
            return;
        }
        let is_sure = cx.sync_phase.is_quiet() && cx.memory.notes_writes();
        push.observe(&units.tuning, Event::Arrives { is_sure });
        for unit in push.units() {
            if !units[unit].is_home() {
                push.observe(&units.tuning, Event::Forgotten(unit));
            } else if units[unit].notices.are_told() {
                let spurious = self.write_predictor.notice_was_spurious(unit);
                for node in push.predict(&units.tuning, Told { unit, epoch, spurious }) {
                    if !pushes.add(node, units.layout.first, units.pages_of(unit)) {
                        push.observe(&units.tuning, Event::NotSent(unit, node));
                    }
                }
            }
        }
        push.observe(&units.tuning, Event::Arrived);
    }
}
