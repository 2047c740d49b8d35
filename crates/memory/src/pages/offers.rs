//! Which pages other processes on this host may copy out of this one's memory without asking, and which diffs have been applied to it: a table in a
//! memory file of its own, which they map and write to.
//!
//! A page has a byte with two bits. *Offered*: its home sets and clears it. *Taken*: whoever is about to copy the page sets it, with an instruction
//! that also reads *offered*; the home clears it when it asks. All these are steps in one order, so a copy is either known to the
//! home or was not allowed. Between the home's stores to a page and its question stands a fence, and so does one between
//! the mark and the copy: a copy of which the home does not know yet has everything that was stored before it asked.
//!
//! Beside that stands, for some locks that this process manages, which node asked last: whoever asks next puts its own number there.
//!
//! Who stores its diffs into the memory by itself says here that they are in, and which lines they changed: the newest of these notes are kept for
//! the home's report of who wrote what.

use super::peer::memory_file_of;
use super::sys::{self, View};
use super::{PAGE_BYTES, PageNo};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Writers whose diffs are counted: one for each node that a job may have.
const WRITERS: usize = 1 << 16;
const WRITERS_BYTES: usize = WRITERS * size_of::<AtomicU32>();
/// Notes of writers that are kept.
const NOTES: u64 = 1 << 14;
/// The count of notes, and the notes.
const NOTES_BYTES: usize = (8 + NOTES as usize * size_of::<Note>()).next_multiple_of(PAGE_BYTES);
/// Places for locks.
const LOCKS: usize = 1 << 12;
const LOCKS_BYTES: usize = LOCKS * size_of::<Queue>();
/// What lies before the bytes of the pages.
const BYTES_BEFORE: usize = WRITERS_BYTES + NOTES_BYTES + LOCKS_BYTES;
const FILE_PREFIX: &str = "/memfd:comem-offers";
const OFFERED: u8 = 1;
const TAKEN: u8 = 2;

/// Who wrote which lines of a page.
#[repr(C)]
struct Note {
    /// Its number from 1, and in the lowest 16 bits the writer; stored last.
    stamp: AtomicU64,
    /// The epoch, and in the low half the page.
    place: AtomicU64,
    lines: AtomicU64,
}

/// Who asked last for a lock.
#[repr(C)]
struct Queue {
    /// The lock, plus one; 0: none. It stays.
    lock: AtomicU64,
    last: AtomicU64,
}

/// A table of offers: this process's own, or a view of another's.
#[derive(Debug)]
pub struct Offers {
    view: View,
    pages: PageNo,
    /// Keeps the file's name where others look for it; `None` in a view of another process's table.
    _file: Option<OwnedFd>,
}

impl Offers {
    fn bytes(pages: PageNo) -> usize {
        (BYTES_BEFORE + pages as usize).next_multiple_of(PAGE_BYTES)
    }

    /// A table for an arena of so many pages, in which nothing is offered. It costs nothing until it is touched.
    ///
    /// # Errors
    /// What the system refused.
    pub fn new(pages: PageNo) -> io::Result<Offers> {
        let file = sys::memory_file(c"comem-offers", Offers::bytes(pages))?;
        let view = View::new(None, Offers::bytes(pages), sys::BOTH, Some(file.as_fd()))?;
        Ok(Offers { view, pages, _file: Some(file) })
    }

    /// The table of process `pid`, whose arena has so many pages.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process write to it (another user, another container).
    pub fn of(pid: u32, pages: PageNo) -> io::Result<Offers> {
        let file = memory_file_of(pid, FILE_PREFIX, Offers::bytes(pages), true)?;
        let view = View::new(None, Offers::bytes(pages), sys::BOTH, Some(file.as_fd()))?;
        Ok(Offers { view, pages, _file: None })
    }

    fn byte(&self, page: PageNo) -> Option<&AtomicU8> {
        let at = (page < self.pages).then_some(self.view.start() + BYTES_BEFORE + page as usize)?;
        // SAFETY: within the view, which lives as long as this table; any byte will do, and all who share it use atomic instructions.
        Some(unsafe { &*std::ptr::with_exposed_provenance::<AtomicU8>(at) })
    }

    /// At the home: from now on others may copy these pages.
    pub fn offer(&self, pages: Range<PageNo>) {
        pages.filter_map(|page| self.byte(page)).for_each(|byte| byte.store(OFFERED, Ordering::SeqCst));
    }

    /// At the home: nobody may any more. Who has begun goes on.
    pub fn withdraw(&self, pages: Range<PageNo>) {
        pages.filter_map(|page| self.byte(page)).for_each(|byte| byte.store(0, Ordering::SeqCst));
    }

    /// At the home: whether anybody took the page since this was last asked.
    pub fn was_taken(&self, page: PageNo) -> bool {
        fence(Ordering::SeqCst);
        let Some(byte) = self.byte(page).filter(|byte| byte.load(Ordering::SeqCst) & TAKEN != 0) else { return false };
        byte.fetch_and(!TAKEN, Ordering::SeqCst) & TAKEN != 0
    }

    /// At the home: whether anybody took one of these pages since that was last asked of it; the marks stay.
    pub fn any_taken(&self, pages: Range<PageNo>) -> bool {
        fence(Ordering::SeqCst);
        let taken = |page| self.byte(page).is_some_and(|byte| byte.load(Ordering::Relaxed) & TAKEN != 0);
        let end = pages.end.min(self.pages);
        // Eight at a time, since this is asked of every page that is offered whenever an interval closes.
        let words = pages.start.next_multiple_of(8).min(end)..end - end % 8;
        if words.is_empty() {
            return (pages.start..end).any(taken);
        }
        let any = words.clone().step_by(8).any(|page| {
            let at = self.view.start() + BYTES_BEFORE + page as usize;
            // SAFETY: eight bytes of the view, which lives as long as this table, aligned; any bytes will do.
            let eight = unsafe { std::ptr::with_exposed_provenance::<u64>(at).read_volatile() };
            eight & u64::from_ne_bytes([TAKEN; 8]) != 0
        });
        any || (pages.start..words.start).any(taken) || (words.end..end).any(taken)
    }

    /// At another node: whether the page may be copied now; the home will know of it.
    pub fn take(&self, page: PageNo) -> bool {
        let Some(byte) = self.byte(page).filter(|byte| byte.load(Ordering::Relaxed) & OFFERED != 0) else {
            return false;
        };
        let offered = byte.fetch_or(TAKEN, Ordering::SeqCst) & OFFERED != 0;
        fence(Ordering::SeqCst);
        offered
    }

    fn writer(&self, writer: u16) -> &AtomicU32 {
        let at = self.view.start() + usize::from(writer) * size_of::<AtomicU32>();
        // SAFETY: within the view, which lives as long as this table, and aligned; all who share it use atomic instructions.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(at) }
    }

    fn note_count(&self) -> &AtomicU64 {
        // SAFETY: as in `writer`.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(self.view.start() + WRITERS_BYTES) }
    }

    fn note(&self, number: u64) -> &Note {
        let at = self.view.start() + WRITERS_BYTES + 8 + (number % NOTES) as usize * size_of::<Note>();
        // SAFETY: as in `writer`.
        unsafe { &*std::ptr::with_exposed_provenance::<Note>(at) }
    }

    fn queue(&self, lock: u64) -> &Queue {
        let place = (lock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % LOCKS;
        let at = self.view.start() + WRITERS_BYTES + NOTES_BYTES + place * size_of::<Queue>();
        // SAFETY: as in `writer`.
        unsafe { &*std::ptr::with_exposed_provenance::<Queue>(at) }
    }

    /// At the lock's manager: `node` asked last for it, and from now on whoever asks says so here; unless another lock has the place.
    pub fn lay_open(&self, lock: u64, node: u16) {
        let queue = self.queue(lock);
        if queue.lock.load(Ordering::SeqCst) == 0 {
            queue.last.store(u64::from(node), Ordering::SeqCst);
            // A lock of the highest number has no place.
            queue.lock.store(lock.wrapping_add(1), Ordering::SeqCst);
        }
    }

    /// `node` asks for the lock: gives who asked last before it; `None`, and nothing done, if that was not laid open.
    pub fn queue_up(&self, lock: u64, node: u16) -> Option<u16> {
        let queue = self.queue(lock);
        let open = lock != u64::MAX && queue.lock.load(Ordering::SeqCst) == lock + 1;
        open.then(|| queue.last.swap(u64::from(node), Ordering::SeqCst) as u16)
    }

    /// At another node: it has stored to these lines (one bit each) of a page, in an epoch.
    pub fn note_writer(&self, writer: u16, epoch: u32, page: PageNo, lines: u64) {
        let number = self.note_count().fetch_add(1, Ordering::Relaxed);
        let note = self.note(number);
        note.stamp.store(0, Ordering::SeqCst);
        note.place.store(u64::from(epoch) << 32 | u64::from(page), Ordering::SeqCst);
        note.lines.store(lines, Ordering::SeqCst);
        note.stamp.store((number + 1) << 16 | u64::from(writer), Ordering::SeqCst);
    }

    /// At the home: gives `f` the notes (writer, epoch, page, lines) from number `from` on that are still there and complete; gives the number of
    /// the next one.
    pub fn writers(&self, from: u64, mut f: impl FnMut(u16, u32, PageNo, u64)) -> u64 {
        let end = self.note_count().load(Ordering::Relaxed);
        for number in from.max(end.saturating_sub(NOTES))..end {
            let note = self.note(number);
            let read = |word: &AtomicU64| word.load(Ordering::SeqCst);
            let (stamp, place, lines) = (read(&note.stamp), read(&note.place), read(&note.lines));
            if stamp >> 16 == number + 1 && read(&note.stamp) == stamp {
                f(stamp as u16, (place >> 32) as u32, place as PageNo, lines);
            }
        }
        end
    }

    /// At the home, or at `writer` itself when it has stored them: the diffs of node `writer` up to this serial are in the memory.
    pub fn diffs_are_in(&self, writer: u16, serial: u32) {
        self.writer(writer).fetch_max(serial, Ordering::SeqCst);
    }

    /// The serial up to which the diffs of node `writer` are in the memory.
    pub fn diffs_in(&self, writer: u16) -> u32 {
        self.writer(writer).load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Offers, Offers) {
        let home = Offers::new(1000).expect("a table");
        let other = Offers::of(std::process::id(), 1000);
        (home, other.expect("a process sees its own files"))
    }

    #[test]
    fn what_is_offered_can_be_taken_and_the_home_hears_of_it_once() {
        // One test: the table of a process is found by name and size.
        let (home, other) = pair();
        assert!(!other.take(7) && !home.was_taken(7), "nothing is offered");
        home.offer(7..9);
        assert!(!home.was_taken(7));
        assert!(other.take(7) && other.take(7) && !other.take(9));
        assert!(home.any_taken(0..1000) && !home.any_taken(8..1000));
        assert!(home.any_taken(7..8) && home.any_taken(3..9) && !home.any_taken(0..7) && !home.any_taken(7..7));
        home.offer(20..30);
        assert!(other.take(24) && home.any_taken(17..39) && home.any_taken(24..32) && !home.any_taken(25..PageNo::MAX));
        assert!(home.was_taken(24) && !home.any_taken(8..1000));
        assert!(home.was_taken(7) && !home.was_taken(7) && !home.was_taken(8));
        assert!(other.take(7), "it is offered still");
        home.withdraw(7..9);
        assert!(!other.take(7) && !home.was_taken(7), "a mark that came too late, or was none, is gone");
        home.diffs_are_in(3, 5);
        home.diffs_are_in(3, 4);
        assert_eq!((other.diffs_in(3), other.diffs_in(65_535)), (5, 0));
        other.note_writer(3, 9, 70, 0b101);
        other.note_writer(65_535, u32::MAX, PageNo::MAX, u64::MAX);
        let mut notes = Vec::new();
        assert_eq!(home.writers(0, |writer, epoch, page, lines| notes.push((writer, epoch, page, lines))), 2);
        assert_eq!(notes, [(3, 9, 70, 0b101), (65_535, u32::MAX, PageNo::MAX, u64::MAX)]);
        (0..NOTES).for_each(|page| other.note_writer(1, 0, page as PageNo, 1));
        let mut kept = Vec::new();
        assert_eq!(home.writers(1, |writer, _, page, _| kept.push((writer, page))), NOTES + 2);
        assert_eq!((kept.len() as u64, kept[0]), (NOTES, (1, 0)), "older ones are lost");
        assert!(!other.take(1000) && !other.take(PageNo::MAX), "pages that there are not");
        assert_eq!(other.queue_up(17, 4), None, "not laid open");
        home.lay_open(17, 2);
        assert_eq!([4, 5, 4].map(|node| other.queue_up(17, node)), [2, 4, 5].map(Some));
        assert_eq!(home.queue_up(17, 0), Some(4));
        let beside = (18..).find(|lock| std::ptr::eq(home.queue(*lock), home.queue(17))).unwrap_or_default();
        home.lay_open(beside, 1);
        home.lay_open(u64::MAX, 1);
        assert_eq!([beside, u64::MAX].map(|lock| other.queue_up(lock, 4)), [None; 2], "no place");
        assert_eq!(other.queue_up(17, 3), Some(0));
    }
}
