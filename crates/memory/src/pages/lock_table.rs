//! The table of a node's one-sided locks: a memory file that the host's other nodes map, and change as they take locks
//! and let them go.
//!
//! A place has a lock's name, which stays once it is there, and the lock's word ([`comem_protocol::sync::one_sided`]).
//! Threads of every process that wait for a lock sleep on the half of the word that says who holds it.

use super::PAGE_BYTES;
use super::futex;
use super::peer::memory_file_of;
use super::sys::{self, View};
use comem_protocol::sync::one_sided::{LockWord, PLACES};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// In the name of the memory file, which tells it from those of earlier jobs of the same process.
fn kind(job: u64) -> String {
    format!("locks-{job:x}")
}

/// A place has a cache line for itself.
const PLACE_BYTES: usize = 64;
const BYTES: usize = (PLACES * PLACE_BYTES).next_multiple_of(PAGE_BYTES);
/// A wake-up is for whoever sleeps with this ticket, modulo this: the bits that the system compares.
const TICKETS_APART: u16 = 32;

#[repr(C, align(64))]
struct Place {
    name: AtomicU64,
    word: AtomicU64,
}

const _: () = assert!(size_of::<Place>() == PLACE_BYTES);

/// A table of locks: this process's own, or a view of another's.
#[derive(Debug)]
pub struct LockTable {
    view: View,
    /// Keeps the file's name where others look for it; `None` in a view of another process's table.
    _file: Option<OwnedFd>,
}

impl LockTable {
    /// A table for this job, without names. It costs nothing until it is touched.
    ///
    /// # Errors
    /// What the system refused.
    pub fn new(job: u64) -> io::Result<LockTable> {
        let file = sys::memory_file(&kind(job), BYTES)?;
        let view = View::new(None, BYTES, sys::BOTH, Some(file.as_fd()))?;
        Ok(LockTable { view, _file: Some(file) })
    }

    /// The table that process `pid` has made for this job.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process write to it (another user, another container).
    pub fn of(pid: u32, job: u64) -> io::Result<LockTable> {
        let file = memory_file_of(pid, &kind(job), BYTES, true)?;
        let view = View::new(None, BYTES, sys::BOTH, Some(file.as_fd()))?;
        Ok(LockTable { view, _file: None })
    }

    /// Where the table begins in this process, and its bytes.
    pub fn whole(&self) -> (*mut u8, usize) {
        (std::ptr::with_exposed_provenance_mut(self.view.start()), BYTES)
    }

    /// How far from the table's beginning the name at a place lies, in bytes.
    pub fn name_offset(at: usize) -> u64 {
        (at * PLACE_BYTES + std::mem::offset_of!(Place, name)) as u64
    }

    /// How far from the table's beginning the word at a place lies, in bytes.
    pub fn word_offset(at: usize) -> u64 {
        (at * PLACE_BYTES + std::mem::offset_of!(Place, word)) as u64
    }

    fn place(&self, at: usize) -> &Place {
        assert!(at < PLACES, "the table has {PLACES} places");
        // SAFETY: within the view, which lives as long as this table, and aligned; any bytes will do, and all who share
        // them use atomic instructions.
        unsafe { &*std::ptr::with_exposed_provenance::<Place>(self.view.start() + at * PLACE_BYTES) }
    }

    /// The name at a place; 0: none.
    pub fn name(&self, at: usize) -> u64 {
        self.place(at).name.load(Ordering::Acquire)
    }

    /// Gives a place a name if it has none; gives what it had.
    pub fn claim(&self, at: usize, name: u64) -> u64 {
        let claimed = self.place(at).name.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
        claimed.unwrap_or_else(|before| before)
    }

    /// The word at a place.
    pub fn word(&self, at: usize) -> LockWord {
        LockWord(self.place(at).word.load(Ordering::Acquire))
    }

    /// Replaces the word at a place if it is `expected`; gives what it was.
    pub fn swap(&self, at: usize, expected: LockWord, new: LockWord) -> LockWord {
        let swapped = self.place(at).word.compare_exchange(expected.0, new.0, Ordering::SeqCst, Ordering::Acquire);
        LockWord(swapped.unwrap_or_else(|before| before))
    }

    /// The half of the word that sleepers compare ([`LockWord::seen`]).
    fn half(&self, at: usize) -> *const AtomicU32 {
        let lower = if cfg!(target_endian = "big") { 1 } else { 0 };
        self.place(at).word.as_ptr().cast::<AtomicU32>().wrapping_add(lower)
    }

    /// Sleeps while that half is `seen`, until the holder of this ticket is woken, for `most` at most, or for no
    /// reason.
    pub fn sleep(&self, at: usize, seen: u32, ticket: u16, most: Duration) {
        futex::sleep(self.half(at), seen, bit(ticket), most);
    }

    /// Wakes the thread that sleeps at a place with this ticket, if one does.
    pub fn wake(&self, at: usize, ticket: u16) {
        futex::wake(self.half(at), bit(ticket));
    }
}

fn bit(ticket: u16) -> u32 {
    1 << (ticket % TICKETS_APART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_views_are_one_table_and_a_sleeper_in_one_is_woken_through_the_other() {
        let _earlier = LockTable::new(6).unwrap();
        let own = LockTable::new(7).unwrap();
        assert!(LockTable::of(std::process::id(), 8).is_err(), "another job's table");
        let other = LockTable::of(std::process::id(), 7).unwrap();
        assert_eq!([own.claim(7, 3), other.claim(7, 4), other.name(7), own.name(8)], [0, 3, 3, 0]);
        let held = LockWord(1 << 40 | 5);
        assert_eq!(other.swap(PLACES - 1, LockWord(1), held), LockWord::FREE, "it was not what was expected");
        assert_eq!((other.swap(PLACES - 1, LockWord::FREE, held), own.word(PLACES - 1)), (LockWord::FREE, held));
        let long = Duration::from_secs(600);
        own.sleep(PLACES - 1, held.seen() + 1, 0, long);
        own.sleep(PLACES - 1, held.seen(), 0, Duration::from_millis(1));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| own.sleep(PLACES - 1, held.seen(), 33, long));
            // Another ticket's wake-up is not for it, and whether it sleeps yet nobody can see.
            while !sleeper.is_finished() {
                other.wake(PLACES - 1, 1);
                std::thread::yield_now();
            }
        });
    }
}
