//! Home pages that are protected along with one that another node has asked for by itself.
//!
//! To protect a page takes a call, 1.2 to 2 us of the time in which the asker waits; a page more in the same call 0.1.
//! Where pages of a chunk are asked for one by one and in no order, their neighbours will be too, and then are
//! protected already: what the kernel has noted since is at least what who copies them then has to hear of, as with
//! those that a close has protected (`ProtectedAtBarrier`). Nobody is told of them before. In the epoch after, their
//! home may write them, and a note from before the copy would end the copy for nothing, so this holds for an epoch; and
//! what is protected in vain costs its next writer a note in the kernel, so as many are as have turned out to be of
//! use. No update can be lost by it: a page that is not protected counts as written.

use super::state::{Home, Private, Sharing, UnitState};
use super::units::Units;
use super::write_predictor::WritePredictor;
use crate::coherence::pages::sync_phase::SyncPhase;
use std::ops::Range;

/// What came of it in an epoch: units are `ProtectedWithNeighbour` from that epoch, or from none.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BatchProtection {
    epoch: u8,
    /// How often a unit had to be protected by itself.
    calls: usize,
    /// How often one was protected already.
    hits: usize,
}

impl BatchProtection {
    /// Whether a unit, which is asked for by itself, was protected along with another in this epoch.
    pub(super) fn has(&mut self, sync_phase: SyncPhase, home: Home) -> bool {
        let with_neighbour = home.sharing == Sharing::Private(Private::ProtectedWithNeighbour);
        let was = with_neighbour && self.epoch == sync_phase.epoch();
        self.hits += usize::from(was);
        was
    }

    /// The units around `unit`, itself included, that are to be protected with it.
    pub(super) fn neighbours(
        &mut self,
        sync_phase: SyncPhase,
        units: &mut Units,
        writes: &WritePredictor,
        unit: usize,
    ) -> Range<usize> {
        if self.epoch != sync_phase.epoch() {
            *self = BatchProtection { epoch: sync_phase.epoch(), ..BatchProtection::default() };
            for home in units.iter_mut().filter_map(|unit| unit.state.home_mut()) {
                if home.sharing == Sharing::Private(Private::ProtectedWithNeighbour) {
                    home.sharing = Sharing::Private(Private::Writable);
                }
            }
        }
        self.calls += 1;
        let reach = (self.calls / 2 + self.hits).min(units.tuning.batch_protect_units_max);
        let plain = |at: &usize| {
            let writable = Sharing::Private(Private::Writable);
            let UnitState::Home(Home { sharing, offered, .. }) = units[*at].state else { return false };
            sharing == writable && !offered && !writes.is_left(*at)
        };
        let before = (0..unit).rev().take(reach).take_while(plain).count();
        let behind = (unit + 1..units.len()).take(reach).take_while(plain).count();
        unit - before..unit + 1 + behind
    }
}
