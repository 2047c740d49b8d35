//! A line on the terminal for who waits: which of how many runs goes on, and for how long. Where standard error is no
//! terminal there is nothing, and no thread.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often the time in the line moves. A measurement goes on meanwhile, and hardly notices.
const TICK: Duration = Duration::from_secs(1);

/// Runs that have begun.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
/// Runs that will be; 0 where nobody has counted.
static EXPECTED: AtomicUsize = AtomicUsize::new(0);

/// Tells of so many more runs.
pub fn expect(runs: usize) {
    EXPECTED.fetch_add(runs, Ordering::Relaxed);
}

/// A run that goes on while this value lives.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins a run; `what` is asked where somebody sees it.
    pub fn of(what: impl FnOnce() -> String) -> Progress {
        let begun = BEGUN.fetch_add(1, Ordering::Relaxed) + 1;
        let bar = ProgressBar::new_spinner();
        if !bar.is_hidden() {
            let style = ProgressStyle::with_template("{wide_msg} {elapsed:>5}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_message(line(begun, EXPECTED.load(Ordering::Relaxed), &what()));
            bar.enable_steady_tick(TICK);
        }
        Progress(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// More runs than were counted have no place among them.
fn line(begun: usize, expected: usize, what: &str) -> String {
    match expected {
        expected if begun <= expected => format!("comem: run {begun} of {expected}: {what}"),
        _ => format!("comem: run {begun}: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_where_their_number_is_known() {
        assert_eq!(line(3, 12, "sor on 4 nodes"), "comem: run 3 of 12: sor on 4 nodes");
        assert_eq!(line(3, 0, "sor on 4 nodes"), "comem: run 3: sor on 4 nodes");
        assert_eq!(line(13, 12, "sor"), "comem: run 13: sor");
    }
}
