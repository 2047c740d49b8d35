//! Home pages that are protected along with one that another node has asked for by itself.
//!
//! To protect a page takes a call, 1.2 to 2 us of the time in which the asker waits; a page more in the same call 0.1.
//! Where pages of a chunk are asked for one by one and in no order, their neighbours will be too, and then are
//! protected already: what the kernel has noted since is at least what who copies them then has to hear of, as with
//! those that a close has protected (`PROTECTED_AT_BARRIER`). Nobody is told of them before. In the epoch after, their
//! home may write them, and a note from before the copy would end the copy for nothing, so this holds for an epoch; and
//! what is protected in vain costs its next writer a note in the kernel, so as many are as have turned out to be of
//! use. No update can be lost by it: a page that is not protected counts as written.

use super::{HAS_COPIES, MAPPED, OFFERED, PROTECTED_AT_BARRIER, PageTable, State};
use crate::coherence::pages::sync_phase::SyncPhase;
use std::ops::Range;

/// Protected along with a neighbour in the epoch of [`BatchProtection`], and held by nobody since.
pub(super) const PROTECTED_WITH_NEIGHBOUR: u32 = 1 << 16;

/// What came of it in an epoch.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BatchProtection {
    epoch: u8,
    /// How often a unit had to be protected by itself.
    calls: usize,
    /// How often one was protected already.
    hits: usize,
}

impl BatchProtection {
    fn reach(self, most: usize) -> usize {
        (self.calls / 2 + self.hits).min(most)
    }
}

impl PageTable {
    /// Whether `unit`, which is asked for by itself, was protected along with another in this epoch.
    pub(super) fn was_batch_protected(&mut self, sync_phase: SyncPhase, unit: usize) -> bool {
        let was = self.units[unit].has(PROTECTED_WITH_NEIGHBOUR) && self.batch_protection.epoch == sync_phase.epoch();
        self.batch_protection.hits += usize::from(was);
        was
    }

    /// The units around `unit`, itself included, that are to be protected with it.
    pub(super) fn batch_neighbours(&mut self, sync_phase: SyncPhase, unit: usize) -> Range<usize> {
        if self.batch_protection.epoch != sync_phase.epoch() {
            self.batch_protection = BatchProtection { epoch: sync_phase.epoch(), ..BatchProtection::default() };
            self.units.iter_mut().for_each(|unit| unit.set(PROTECTED_WITH_NEIGHBOUR, false));
        }
        self.batch_protection.calls += 1;
        let reach = self.batch_protection.reach(self.tuning.batch_protect_units_max);
        let flags = HAS_COPIES | OFFERED | PROTECTED_AT_BARRIER | PROTECTED_WITH_NEIGHBOUR;
        let plain = |at: &usize| {
            let this = &self.units[*at];
            this.state == State::Home && this.has(MAPPED) && !this.has(flags) && !self.is_left(*at)
        };
        let before = (0..unit).rev().take(reach).take_while(plain).count();
        let behind = (unit + 1..self.units.len()).take(reach).take_while(plain).count();
        unit - before..unit + 1 + behind
    }
}
