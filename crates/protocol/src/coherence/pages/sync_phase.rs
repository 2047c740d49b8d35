//! How a node's intervals have ended lately: what its chunks presume of the writes to come.
//!
//! Where barriers alone order writes, an epoch has one close, or none where nothing was written. An epoch with a second
//! one has locks in it. After one of those so many epochs without locks must come before an epoch is called quiet
//! (`quiet_epochs`); or fewer, as long as there were locks in the first epochs alone: with them threads tell each other
//! who is who.

use crate::tuning::NoticeTuning;

/// How many intervals have ended, in this epoch and before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncPhase {
    closes: u8,
    calm: bool,
    /// Below 0: so many epochs without locks must pass.
    quiet: i8,
    /// Locks have come after quiet epochs.
    locks_come_back: bool,
    /// All closes ever, as far as 32 bits count.
    total: u32,
    /// All epochs that have ended, as far as 8 bits count.
    epoch: u8,
    /// Whether anything is presumed.
    presumes: bool,
    /// How many epochs without locks are wanted, and how many at first.
    wanted: (u8, u8),
}

impl Default for SyncPhase {
    fn default() -> SyncPhase {
        SyncPhase::new(&NoticeTuning::default())
    }
}

impl SyncPhase {
    /// Before the first interval ends.
    pub fn new(tuning: &NoticeTuning) -> SyncPhase {
        SyncPhase {
            closes: 0,
            calm: false,
            quiet: 0,
            locks_come_back: false,
            total: 0,
            epoch: 0,
            presumes: tuning.sync_phase,
            wanted: (tuning.quiet_epochs, tuning.quiet_epochs_at_first),
        }
    }

    /// An interval ends.
    pub fn close(&mut self) {
        self.closes = self.closes.saturating_add(1);
        self.total = self.total.wrapping_add(1);
    }

    /// An epoch has ended.
    pub fn open(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        let closes = std::mem::take(&mut self.closes);
        self.calm = closes <= 1;
        self.locks_come_back |= !self.calm && self.quiet >= 0 && self.total > u32::from(closes);
        let locks = -(if self.locks_come_back { self.wanted.0 } else { self.wanted.1 } as i8);
        self.quiet = if self.calm { self.quiet.saturating_add(1).min(0) } else { locks };
    }

    /// No lock has closed an interval in this epoch so far: the close under way, if there is one, is the first.
    pub(super) fn is_first(self) -> bool {
        self.closes <= 1
    }

    /// Nor was that so in the last epoch: what happened at its only close, the barrier's, holds still.
    pub(super) fn is_calm(self) -> bool {
        self.presumes && self.calm && self.is_first()
    }

    /// Nor for a long time.
    pub(super) fn is_quiet(self) -> bool {
        self.presumes && self.quiet >= 0 && self.is_first()
    }

    /// No interval has ended in this epoch, nor any but the barrier's in the last.
    pub(super) fn has_barriers_alone(self) -> bool {
        self.presumes && self.calm && self.closes == 0
    }

    /// How many epochs have ended, as far as 8 bits count.
    pub(super) fn epoch(self) -> u8 {
        self.epoch
    }

    /// How many intervals have ended, as far as 32 bits count.
    pub fn total(self) -> u32 {
        self.total
    }
}
