//! How a node's intervals have ended lately: what its chunks presume of the writes to come.
//!
//! Where barriers alone order writes, an epoch has one close, or none where nothing was written. An epoch with a second
//! one has locks in it. After one of those so many epochs without locks must come before an epoch is called quiet
//! (`quiet_epochs`); or fewer, as long as there were locks in the first epochs alone: with them threads tell each other
//! who is who.

use super::Predictor;
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
        self.observe(&(), Event::IntervalEnded);
    }

    /// An epoch has ended.
    pub fn open(&mut self) {
        self.observe(&(), Event::EpochEnded);
    }

    /// No lock has closed an interval in this epoch so far: the close under way, if there is one, is the first.
    pub(in super::super) fn is_first(self) -> bool {
        self.closes <= 1
    }

    /// [`Query::Calm`].
    pub(in super::super) fn is_calm(mut self) -> bool {
        self.predict(&(), Query::Calm)
    }

    /// [`Query::Quiet`].
    pub(in super::super) fn is_quiet(mut self) -> bool {
        self.predict(&(), Query::Quiet)
    }

    /// [`Query::BarriersAlone`].
    pub(in super::super) fn has_barriers_alone(mut self) -> bool {
        self.predict(&(), Query::BarriersAlone)
    }

    /// How many epochs have ended, as far as 8 bits count.
    pub(in super::super) fn epoch(self) -> u8 {
        self.epoch
    }

    /// How many intervals have ended, as far as 32 bits count.
    pub fn total(self) -> u32 {
        self.total
    }
}

/// What has happened on this node.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// An interval ends.
    IntervalEnded,
    /// An epoch has ended.
    EpochEnded,
}

/// Whether barriers alone order writes.
#[derive(Clone, Copy, Debug)]
pub enum Query {
    /// No lock has closed an interval in this epoch and the last: what happened at the barrier between holds still.
    Calm,
    /// Nor for a long time.
    Quiet,
    /// No interval has ended in this epoch, nor any but the barrier's in the last.
    BarriersAlone,
}

impl Predictor for SyncPhase {
    type Numbers = ();
    type Event<'a> = Event;
    type Query<'a> = Query;
    type Prediction = bool;

    fn is_on(&self, (): &()) -> bool {
        self.presumes
    }

    /// Intervals and epochs are counted, whether or not anything is presumed from them.
    fn observe(&mut self, (): &(), event: Event) {
        self.learn(&(), event);
    }

    fn learn(&mut self, (): &(), event: Event) {
        match event {
            Event::IntervalEnded => {
                self.closes = self.closes.saturating_add(1);
                self.total = self.total.wrapping_add(1);
            }
            Event::EpochEnded => {
                self.epoch = self.epoch.wrapping_add(1);
                let closes = std::mem::take(&mut self.closes);
                self.calm = closes <= 1;
                self.locks_come_back |= !self.calm && self.quiet >= 0 && self.total > u32::from(closes);
                let locks = -(if self.locks_come_back { self.wanted.0 } else { self.wanted.1 } as i8);
                self.quiet = if self.calm { self.quiet.saturating_add(1).min(0) } else { locks };
            }
        }
    }

    fn answer(&mut self, (): &(), query: Query) -> bool {
        match query {
            Query::Calm => self.calm && self.is_first(),
            Query::Quiet => self.quiet >= 0 && self.is_first(),
            Query::BarriersAlone => self.calm && self.closes == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An epoch in which so many intervals end.
    fn epoch(phase: &mut SyncPhase, closes: u32) {
        (0..closes).for_each(|_| phase.close());
        phase.open();
    }

    #[test]
    fn after_an_epoch_with_locks_some_without_must_come_and_more_if_locks_come_back() {
        let numbers = NoticeTuning::DEFAULT;
        let mut phase = SyncPhase::default();
        epoch(&mut phase, 3);
        assert!(!phase.is_calm() && !phase.is_quiet());
        let quiet_after = |phase: &mut SyncPhase| {
            let epochs = (1..100).find(|_| {
                epoch(phase, 1);
                phase.is_quiet()
            });
            epochs.expect("an end")
        };
        assert_eq!(quiet_after(&mut phase), u32::from(numbers.quiet_epochs_at_first));
        assert!(phase.is_calm() && phase.has_barriers_alone());
        phase.close();
        assert!(phase.is_calm() && !phase.has_barriers_alone());
        phase.close();
        assert!(!phase.is_calm() && !phase.is_quiet(), "a lock, in this epoch");
        phase.open();
        assert_eq!(quiet_after(&mut phase), u32::from(numbers.quiet_epochs));
    }

    #[test]
    fn it_counts_when_it_presumes_nothing() {
        let mut phase = SyncPhase::new(&NoticeTuning { sync_phase: false, ..NoticeTuning::DEFAULT });
        (0..5).for_each(|_| epoch(&mut phase, 1));
        assert!(!phase.is_calm() && !phase.is_quiet() && !phase.has_barriers_alone());
        assert_eq!((phase.epoch(), phase.total()), (5, 5));
    }
}
