//! How an application thread sleeps, and how others rouse it.
//!
//! A thread that expects answers sleeps in its socket; one that waits for a neighbour sleeps on a word (futex).
//! Whoever rouses it need not know which: [`Waiter::rouse`] tells the caller whether the socket needs a kick.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const AWAKE: u32 = 0;
const ROUSED: u32 = 1;
const IN_SOCKET: u32 = 2;
const PARKED: u32 = 3;
/// Roused in its socket, where it may still sleep: what rouses it lies there and is for nobody else.
const LEAVING: u32 = 4;

/// The sleep of one thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Waiter {
    state: AtomicU32,
}

pub(crate) fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(t.subsec_nanos() as i32),
    });
    let pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the timeout outlive the call, which only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value, pointer) };
}

impl Waiter {
    /// Takes note of having been roused, if so.
    pub fn was_roused(&self) -> bool {
        matches!(self.state.swap(AWAKE, Ordering::AcqRel), ROUSED | LEAVING)
    }

    /// Whether it has been roused; it takes no note of that.
    pub fn is_roused(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), ROUSED | LEAVING)
    }

    /// About to sleep in the socket; `false` when roused meanwhile: then do not sleep.
    pub fn enter_socket(&self) -> bool {
        self.state.compare_exchange(AWAKE, IN_SOCKET, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Back from the socket; tells whether somebody roused the thread.
    pub fn leave_socket(&self) -> bool {
        self.was_roused()
    }

    /// Whether the thread sleeps in its socket (and so attends it), roused or not.
    pub fn in_socket(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), IN_SOCKET | LEAVING)
    }

    /// Sleeps until roused or until the time is up; tells whether it was roused.
    pub fn park(&self, timeout: Duration) -> bool {
        if self.state.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            futex(&self.state, libc::FUTEX_WAIT, PARKED, Some(timeout));
        }
        self.was_roused()
    }

    /// Rouses the thread; `true` when it sleeps in its socket and a datagram must be sent there.
    #[must_use]
    pub fn rouse(&self) -> bool {
        let roused = |before| Some(if matches!(before, IN_SOCKET | LEAVING) { LEAVING } else { ROUSED });
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, roused);
        if before == Ok(PARKED) {
            futex(&self.state, libc::FUTEX_WAKE, 1, None);
        }
        before == Ok(IN_SOCKET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rousing_before_sleeping_is_not_lost() {
        let waiter = Waiter::default();
        assert!(!waiter.rouse());
        assert!(!waiter.enter_socket());
        assert!(waiter.park(Duration::from_secs(60)), "returns at once");
        assert!(waiter.enter_socket() && waiter.rouse() && waiter.leave_socket());
    }

    #[test]
    fn a_thread_that_was_roused_in_its_socket_attends_it_until_it_has_left() {
        let waiter = Waiter::default();
        assert!(waiter.enter_socket() && waiter.in_socket() && !waiter.is_roused());
        assert!(waiter.rouse(), "it wants a datagram");
        assert!(waiter.in_socket() && waiter.is_roused(), "who takes the datagram for it lets it sleep");
        assert!(!waiter.rouse(), "one datagram will do");
        assert!(waiter.leave_socket() && !waiter.in_socket() && !waiter.is_roused());
    }

    #[test]
    fn a_parked_thread_wakes() {
        let waiter = std::sync::Arc::new(Waiter::default());
        let sleeper = std::thread::spawn({
            let waiter = waiter.clone();
            move || while !waiter.park(Duration::from_secs(60)) {}
        });
        assert!(!waiter.rouse());
        sleeper.join().unwrap();
    }
}
