//! How long a node that is done still answers others.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// So long at most: others may have missed this node's arrival at the closing barrier.
const ANSWERS_FOR: Duration = Duration::from_millis(30);

/// Whether all nodes have passed the closing barrier, as far as the launcher has said so.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    all_finished: Mutex<bool>,
    said: Condvar,
}

impl Shutdown {
    /// The launcher says so: nobody will ask for anything.
    pub(crate) fn all_have_finished(&self) {
        *self.all_finished.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.said.notify_all();
    }

    /// Waits for that, or until others have been reminded for long enough where no launcher tells. Whether it was said.
    pub(crate) fn answer_others(&self) -> bool {
        let all_finished = self.all_finished.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.said.wait_timeout_while(all_finished, ANSWERS_FOR, |all| !*all);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_node_lingers_until_all_have_finished() {
        let farewell = Shutdown::default();
        let start = Instant::now();
        assert!(!farewell.answer_others() && start.elapsed() >= ANSWERS_FOR);
        farewell.all_have_finished();
        assert!(farewell.answer_others() && farewell.answer_others());
    }
}
