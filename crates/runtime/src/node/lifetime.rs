//! How far a node has come: start-up, work, the end of its job.

use crate::error::{Error, Result};
use crate::host::{Over, host};
use crate::shutdown::Shutdown;
use comem_protocol::ids::Slot;
use comem_protocol::time::Time;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far a node has come, and whether its job goes on.
///
/// Everything here is set once and read without a lock, also by a thread that holds others.
#[derive(Debug, Default)]
pub(crate) struct Lifetime {
    began: OnceLock<Time>,
    /// Counts steps, so that a hang can be told from slow progress.
    progress: AtomicU64,
    /// How the program has misused shared memory, found where the node could not be ended at once.
    misuse: OnceLock<String>,
    /// Who has ended the node's part, and when: nobody answers any more.
    ended: OnceLock<(Slot, Time)>,
    /// Why the job is over, where the process outlives it.
    over: OnceLock<Over>,
    /// How long the node still answers others when it is done.
    pub(crate) shutdown: Shutdown,
}

impl Lifetime {
    /// The program's main thread has taken its place: start-up is over.
    pub(crate) fn begin(&self, now: Time) {
        let _ = self.began.set(now);
    }

    /// When start-up was over, if it is.
    pub(crate) fn began(&self) -> Option<Time> {
        self.began.get().copied()
    }

    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// How many steps were made.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// The program has misused shared memory, and the caller cannot end the node: the service thread does so soon.
    pub(crate) fn note_misuse(&self, what: impl FnOnce() -> String) {
        self.misuse.get_or_init(what);
    }

    /// Whether the program has used shared memory rightly so far.
    ///
    /// # Errors
    /// How it has not.
    pub(crate) fn check_use(&self) -> Result<()> {
        self.misuse.get().map_or(Ok(()), |what| Err(Error::Frozen(what.clone())))
    }

    /// `slot`'s thread has ended the node's part in the job.
    pub(crate) fn end(&self, slot: Slot, now: Time) {
        let _ = self.ended.set((slot, now));
    }

    /// Which slot's thread has ended the node's part, and when.
    pub(crate) fn ended(&self) -> Option<(Slot, Time)> {
        self.ended.get().copied()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ended.get().is_some()
    }

    /// The job is over although the process goes on. The first reason stays, and is made once.
    pub(crate) fn set_over(&self, why: impl FnOnce() -> Over) {
        self.over.get_or_init(why);
    }

    /// After the closing barrier: a process with a host goes on without the others.
    pub(crate) fn outlive_finish(&self) {
        if host().is_some() {
            self.set_over(|| Over::Finished);
        }
    }

    /// Nothing, or why every wait and every call fails from now on.
    pub(crate) fn goes_on(&self) -> Result<()> {
        self.over.get().map_or(Ok(()), |over| Err(over.error()))
    }

    /// Another node's memory cannot be reached: mostly that node has ended. Gives the news of that some time to come.
    pub(crate) fn hears_of_a_loss(&self) -> bool {
        const NEWS: Duration = Duration::from_secs(5);
        let start = Instant::now();
        while self.goes_on().is_ok() && start.elapsed() < NEWS {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.goes_on().is_err()
    }

    /// Why another node's memory cannot be reached: that node has ended, as soon as it had started perhaps, or the
    /// error.
    pub(crate) fn loss_or(&self, error: Error) -> Error {
        self.hears_of_a_loss();
        self.goes_on().err().unwrap_or(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_for_the_end_stays() {
        let life = Lifetime::default();
        assert!(life.goes_on().is_ok() && !life.is_ending());
        life.set_over(|| Over::Stopped("first".to_string()));
        life.set_over(|| unreachable!("a reason is made once"));
        assert!(life.goes_on().unwrap_err().to_string().contains("first"));
        let loss = life.loss_or(Error::Argument("cannot map".to_string()));
        assert!(loss.to_string().contains("first"), "{loss}");
    }

    #[test]
    fn the_first_misuse_is_told() {
        let life = Lifetime::default();
        assert!(life.check_use().is_ok());
        for what in ["one", "two"] {
            life.note_misuse(|| what.to_string());
        }
        assert!(life.check_use().unwrap_err().to_string().contains("one"));
    }
}
