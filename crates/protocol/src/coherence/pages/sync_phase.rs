//! How a node's intervals have ended lately: what its chunks presume of the writes to come.
//!
//! Where barriers alone order writes, an epoch has one close, or none where nothing was written. An epoch with a second
//! one has locks in it.

/// After an epoch with locks so many epochs without them must come before one is called quiet, ...
const QUIET_EPOCHS: i8 = 16;
/// ... or so many, as long as there were locks in the first epochs alone: with them threads tell each other who is who.
const QUIET_EPOCHS_AT_FIRST: i8 = 2;

/// How many intervals have ended, in this epoch and before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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
}

impl SyncPhase {
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
        let locks = if self.locks_come_back { -QUIET_EPOCHS } else { -QUIET_EPOCHS_AT_FIRST };
        self.quiet = if self.calm { self.quiet.saturating_add(1).min(0) } else { locks };
    }

    /// No lock has closed an interval in this epoch so far: the close under way, if there is one, is the first.
    pub(super) fn is_first(self) -> bool {
        self.closes <= 1
    }

    /// Nor was that so in the last epoch: what happened at its only close, the barrier's, holds still.
    pub(super) fn is_calm(self) -> bool {
        self.calm && self.is_first()
    }

    /// Nor for a long time.
    pub(super) fn is_quiet(self) -> bool {
        self.quiet >= 0 && self.is_first()
    }

    /// No interval has ended in this epoch, nor any but the barrier's in the last.
    pub(super) fn has_barriers_alone(self) -> bool {
        self.calm && self.closes == 0
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
