//! Which pages other processes on this host may copy out of this one's memory without asking, and which diffs have been
//! applied to it: a table in a memory file of its own, which they map and write to.
//!
//! A page has a byte with two bits. *Offered*: its home sets and clears it. *Taken*: whoever is about to copy the page
//! sets it, with an instruction that also reads *offered*; the home clears it when it asks. All these are steps in one
//! order, so a copy is either known to the home or was not allowed. Between the home's stores to a page and its
//! question stands a fence, and so does one between the mark and the copy: a copy of which the home does not know yet
//! has everything that was stored before it asked.
//!
//! Beside that stands, for pages that nobody has touched at first, which node did so: whoever is the first to put its
//! number there.
//!
//! And for some locks that this process manages, which node asked last: whoever asks next puts its own number there.
//! And for some locks that this process has released, what it tells to whoever acquires them next: such a token is
//! *published*: who asks takes it without a message.
//!
//! Who stores its diffs into the memory by itself says here that they are in, and which bytes they changed: the newest
//! of these notes are kept for the home's report of who wrote what.

use super::peer::memory_file_of;
use super::sys::{self, View};
use super::{PAGE_BYTES, PageNo};
use comem_protocol::coherence::pages::ByteMarks;
use comem_protocol::coherence::pages::sharing::Touched;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

/// Writers whose diffs are counted: one for each node that a job may have.
const WRITERS: usize = 1 << 16;
const WRITERS_BYTES: usize = WRITERS * size_of::<AtomicU64>();
/// Notes of writers that are kept.
const NOTES: u64 = 1 << 14;
/// The count of notes, and the notes.
const NOTES_BYTES: usize = (8 + NOTES as usize * size_of::<Note>()).next_multiple_of(PAGE_BYTES);
/// Places for locks.
const LOCKS: usize = 1 << 12;
const LOCKS_BYTES: usize = LOCKS * size_of::<Queue>();
/// A place for a published token.
const TOKEN_BYTES: usize = PAGE_BYTES;
/// Most bytes that such a token may tell.
pub const TOKEN_NOTICES_MAX: usize = TOKEN_BYTES - size_of::<Token>();
const TOKENS_BYTES: usize = LOCKS * TOKEN_BYTES;
/// Beside each note, for those that need it: one bit for each byte of the page.
const MARKS_AT: usize = WRITERS_BYTES + NOTES_BYTES + LOCKS_BYTES + TOKENS_BYTES;
const MARKS_BYTES: usize = NOTES as usize * size_of::<ByteMarks>();
/// What lies before the bytes of the pages.
const BYTES_BEFORE: usize = MARKS_AT + MARKS_BYTES;
/// Beside who asked last: the token is published at that node.
const PUBLISHED: u64 = 1 << 16;
/// In place of a lock's name: what its token tells is being read.
const TAKEN_UP: u64 = u64::MAX;
/// In the name of the memory file.
const FILE_KIND: &str = "offers";
const OFFERED: u8 = 1;
const TAKEN: u8 = 2;

/// Notes are numbered by generations: when the home has read all and there are [`AGAIN_AFTER`] of the present one, the
/// next begins in the places of the first, whose memory everybody has met and the caches hold.
const GENERATION_BITS: u32 = 32;
const AGAIN_AFTER: u64 = 256;

/// Who wrote a page, and where.
#[repr(C)]
struct Note {
    /// Its number from 1; stored last.
    stamp: AtomicU64,
    writer: AtomicU64,
    /// The epoch, and in the low half the page.
    place: AtomicU64,
    /// The lines, and the bytes of each of them ([`Touched::Alike`]); no lines: the marks say it.
    lines: AtomicU64,
    bytes: AtomicU64,
}

/// Who asked last for a lock.
#[repr(C)]
struct Queue {
    /// The lock, plus one; 0: none. It stays.
    lock: AtomicU64,
    /// The node, and [`PUBLISHED`].
    last: AtomicU64,
}

/// In front of what a published token tells.
#[repr(C)]
struct Token {
    /// The lock, plus one; 0: the place is free.
    lock: AtomicU64,
    bytes: AtomicU64,
}

/// A table of offers: this process's own, or a view of another's.
#[derive(Debug)]
pub struct SharedDirectory {
    view: View,
    pages: PageNo,
    /// Keeps the file's name where others look for it; `None` in a view of another process's table.
    file: Option<OwnedFd>,
}

impl SharedDirectory {
    fn bytes(pages: PageNo) -> usize {
        (SharedDirectory::claims_at(pages) + pages as usize * size_of::<AtomicU16>()).next_multiple_of(PAGE_BYTES)
    }

    /// Where the claims are, behind the bytes of the pages.
    fn claims_at(pages: PageNo) -> usize {
        (BYTES_BEFORE + pages as usize).next_multiple_of(PAGE_BYTES)
    }

    /// A table for an arena of so many pages, in which nothing is offered. It costs nothing until it is touched.
    ///
    /// # Errors
    /// What the system refused.
    pub fn new(pages: PageNo) -> io::Result<SharedDirectory> {
        let file = sys::memory_file(FILE_KIND, SharedDirectory::bytes(pages))?;
        let view = View::new(None, SharedDirectory::bytes(pages), sys::BOTH, Some(file.as_fd()))?;
        Ok(SharedDirectory { view, pages, file: Some(file) })
    }

    /// The table of process `pid`, whose arena has so many pages.
    ///
    /// # Errors
    /// When there is none, or the system does not let this process write to it (another user, another container).
    pub fn of(pid: u32, pages: PageNo) -> io::Result<SharedDirectory> {
        let file = memory_file_of(pid, FILE_KIND, SharedDirectory::bytes(pages), true)?;
        let view = View::new(None, SharedDirectory::bytes(pages), sys::BOTH, Some(file.as_fd()))?;
        Ok(SharedDirectory { view, pages, file: None })
    }

    fn byte(&self, page: PageNo) -> Option<&AtomicU8> {
        let at = (page < self.pages).then_some(self.view.start() + BYTES_BEFORE + page as usize)?;
        // SAFETY: within the view, which lives as long as this table; any byte will do, and all who share it use atomic
        // instructions.
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

    fn claim_of(&self, page: PageNo) -> Option<&AtomicU16> {
        let at = (page < self.pages)
            .then_some(SharedDirectory::claims_at(self.pages) + page as usize * size_of::<AtomicU16>())?;
        // SAFETY: within the view, which lives as long as this table, and aligned; any number will do, and all who
        // share it use atomic instructions.
        Some(unsafe { &*std::ptr::with_exposed_provenance::<AtomicU16>(self.view.start() + at) })
    }

    /// `node` touches the page: gives the first node of which that was said. `None`: there is no such page, or node.
    pub fn claim(&self, page: PageNo, node: u16) -> Option<u16> {
        let number = node.checked_add(1)?;
        match self.claim_of(page)?.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Some(node),
            Err(first) => Some(first - 1),
        }
    }

    /// The node that was the first to say that it touches the page, if one has.
    pub fn claimant(&self, page: PageNo) -> Option<u16> {
        self.claim_of(page)?.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Whether another node than `me` was the first to touch one of these pages.
    pub fn is_claimed_by_others(&self, mut pages: Range<PageNo>, me: u16) -> bool {
        pages.any(|page| self.claimant(page).is_some_and(|node| node != me))
    }

    /// At the home: nobody has touched these pages, of which all have forgotten what lay there. Gives back the table's
    /// own memory for them.
    pub fn forget_claims(&self, pages: Range<PageNo>) {
        const IN_A_PAGE: PageNo = (PAGE_BYTES / size_of::<AtomicU16>()) as PageNo;
        let end = pages.end.min(self.pages);
        let whole = pages.start.next_multiple_of(IN_A_PAGE).min(end)..end - end % IN_A_PAGE;
        let clear = |pages: Range<PageNo>| {
            pages.filter_map(|page| self.claim_of(page)).for_each(|claim| claim.store(0, Ordering::SeqCst));
        };
        let at = SharedDirectory::claims_at(self.pages) + whole.start as usize * size_of::<AtomicU16>();
        let punch = |file: &OwnedFd| sys::punch(file.as_fd(), at, whole.len() * size_of::<AtomicU16>());
        if whole.is_empty() || self.file.as_ref().is_none_or(|file| punch(file).is_err()) {
            return clear(pages.start..end);
        }
        clear(pages.start..whole.start);
        clear(whole.end..end);
    }

    /// At the home: these pages are used no more, as all the `free` ones around them. Gives back what of the table's
    /// memory is about such alone.
    pub fn give_back(&self, gone: &Range<PageNo>, free: &Range<PageNo>) {
        let Some(file) = &self.file else { return };
        for (at, size) in
            [(BYTES_BEFORE, size_of::<AtomicU8>()), (SharedDirectory::claims_at(self.pages), size_of::<AtomicU16>())]
        {
            let place = |page: PageNo| at + page.min(self.pages) as usize * size;
            let start = place(free.start).next_multiple_of(PAGE_BYTES).max(place(gone.start) / PAGE_BYTES * PAGE_BYTES);
            let end = (place(free.end) / PAGE_BYTES * PAGE_BYTES).min(place(gone.end).next_multiple_of(PAGE_BYTES));
            if start < end {
                // Without that it stays as it is, and says nothing wrong.
                let _ = sys::punch(file.as_fd(), start, end - start);
            }
        }
    }

    fn writer(&self, writer: u16) -> &AtomicU64 {
        let at = self.view.start() + usize::from(writer) * size_of::<AtomicU64>();
        // SAFETY: within the view, which lives as long as this table, and aligned; all who share it use atomic
        // instructions.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(at) }
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
        let at = self.view.start() + WRITERS_BYTES + NOTES_BYTES + place(lock) * size_of::<Queue>();
        // SAFETY: as in `writer`.
        unsafe { &*std::ptr::with_exposed_provenance::<Queue>(at) }
    }

    /// At the lock's manager: `node` asked last for it, and from now on whoever asks says so here; unless another lock
    /// has the place.
    pub fn publish_tail(&self, lock: u64, node: u16) {
        let queue = self.queue(lock);
        if queue.lock.load(Ordering::SeqCst) == 0 {
            queue.last.store(u64::from(node), Ordering::SeqCst);
            // A lock of the highest number has no place.
            queue.lock.store(lock.wrapping_add(1), Ordering::SeqCst);
        }
    }

    fn open_queue(&self, lock: u64) -> Option<&Queue> {
        let queue = self.queue(lock);
        (lock != u64::MAX && queue.lock.load(Ordering::SeqCst) == lock + 1).then_some(queue)
    }

    /// `node` asks for the lock: gives who asked last before it, and whether the token was published there; then it is
    /// `node`'s from now on. `None`, and nothing done, if that was not published.
    pub fn queue_up(&self, lock: u64, node: u16) -> Option<(u16, bool)> {
        let last = self.open_queue(lock)?.last.swap(u64::from(node), Ordering::SeqCst);
        Some((last as u16, last & PUBLISHED != 0))
    }

    /// Whether `node` asked last for the lock, and so nobody waits for it to let go.
    pub fn is_last(&self, lock: u64, node: u16) -> bool {
        self.open_queue(lock).is_some_and(|queue| queue.last.load(Ordering::SeqCst) == u64::from(node))
    }

    /// From now on whoever asks sees that the token is published at `node`, which asked last; `false` if another has
    /// asked since.
    pub fn publish_token(&self, lock: u64, node: u16) -> bool {
        self.change(lock, u64::from(node), u64::from(node) | PUBLISHED)
    }

    /// The token is no longer published at `node`. Who has asked meanwhile looks there and finds that out.
    pub fn withdraw_token(&self, lock: u64, node: u16) {
        self.change(lock, u64::from(node) | PUBLISHED, u64::from(node));
    }

    fn change(&self, lock: u64, from: u64, to: u64) -> bool {
        let queue = self.open_queue(lock);
        queue.is_some_and(|queue| queue.last.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok())
    }

    /// What stands at the place of a published token; `None` for the two locks whose names would say something else.
    fn name(lock: u64) -> Option<u64> {
        Some(lock.wrapping_add(1)).filter(|name| *name != 0 && *name != TAKEN_UP)
    }

    fn token(&self, lock: u64) -> &Token {
        let at = self.view.start() + WRITERS_BYTES + NOTES_BYTES + LOCKS_BYTES + place(lock) * TOKEN_BYTES;
        // SAFETY: as in `writer`.
        unsafe { &*std::ptr::with_exposed_provenance::<Token>(at) }
    }

    fn notices_at(&self, lock: u64) -> *mut u8 {
        let at = std::ptr::from_ref(self.token(lock)).addr() + size_of::<Token>();
        std::ptr::with_exposed_provenance_mut(at)
    }

    /// At the node that releases a lock, before others hear that its token is published: what it tells. `false` where
    /// the place is another lock's, or it is too much.
    pub fn put_notices(&self, lock: u64, bytes: &[u8]) -> bool {
        let (token, Some(name)) = (self.token(lock), SharedDirectory::name(lock)) else { return false };
        if token.lock.load(Ordering::SeqCst) != 0 || bytes.len() > TOKEN_NOTICES_MAX {
            return false;
        }
        // SAFETY: within the place; who takes the token reads it after it was published, and nobody writes to a place
        // in use.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.notices_at(lock), bytes.len()) };
        token.bytes.store(bytes.len() as u64, Ordering::SeqCst);
        token.lock.store(name, Ordering::SeqCst);
        true
    }

    /// At the node that has asked for a published token, in the table of the node that published it: takes it, and
    /// gives what it tells; `None` if that node has taken it back.
    pub fn take_published_token(&self, lock: u64) -> Option<Vec<u8>> {
        let token = self.token(lock);
        self.take_token(lock, TAKEN_UP).then(|| {
            let len = (token.bytes.load(Ordering::SeqCst) as usize).min(TOKEN_NOTICES_MAX);
            let mut bytes = vec![0; len];
            // SAFETY: within the place, to which nobody writes before it is free.
            unsafe { std::ptr::copy_nonoverlapping(self.notices_at(lock), bytes.as_mut_ptr(), len) };
            token.lock.store(0, Ordering::SeqCst);
            bytes
        })
    }

    /// At the node that has published the token: it is published no longer; `false` if another has taken it.
    pub fn retract_token(&self, lock: u64) -> bool {
        self.take_token(lock, 0)
    }

    /// One node gets a published token: the one that published it or the one that asked.
    fn take_token(&self, lock: u64, then: u64) -> bool {
        let taken =
            |name| self.token(lock).lock.compare_exchange(name, then, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        SharedDirectory::name(lock).is_some_and(taken)
    }

    fn marks(&self, number: u64) -> &[AtomicU64; PAGE_BYTES / 64] {
        let at = self.view.start() + MARKS_AT + (number % NOTES) as usize * size_of::<ByteMarks>();
        // SAFETY: as in `writer`.
        unsafe { &*std::ptr::with_exposed_provenance::<[AtomicU64; PAGE_BYTES / 64]>(at) }
    }

    /// At another node: it has stored these bytes of a page there, in an epoch.
    pub fn note_writer(&self, writer: u16, epoch: u32, page: PageNo, marks: &ByteMarks) {
        let number = self.note_count().fetch_add(1, Ordering::Relaxed);
        let note = self.note(number);
        note.stamp.store(0, Ordering::Relaxed);
        // Who sees any of what follows sees that the note is incomplete.
        fence(Ordering::Release);
        note.writer.store(u64::from(writer), Ordering::Relaxed);
        note.place.store(u64::from(epoch) << 32 | u64::from(page), Ordering::Relaxed);
        let (lines, bytes) = Touched::alike(marks).unwrap_or_default();
        note.lines.store(lines, Ordering::Relaxed);
        note.bytes.store(bytes, Ordering::Relaxed);
        if lines == 0 {
            self.marks(number).iter().zip(marks).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        }
        note.stamp.store(number + 1, Ordering::Release);
    }

    /// At the home: gives `f` the notes (writer, epoch, page, where) about `wanted` pages, from number `from` on, up to
    /// the first that is being written; gives the number of the next one, and how many were lost.
    pub fn writers(
        &self,
        from: u64,
        wanted: impl Fn(PageNo) -> bool,
        mut f: impl FnMut(u16, u32, PageNo, Touched<&ByteMarks>),
    ) -> (u64, u64) {
        let end = self.note_count().load(Ordering::Relaxed);
        let first = from.max(end.saturating_sub(NOTES));
        let (mut lost, mut marks) = (first - from.min(first), [0; PAGE_BYTES / 64]);
        for number in first..end {
            let note = self.note(number);
            let stamp = note.stamp.load(Ordering::Acquire);
            if stamp <= number {
                return (number, lost);
            }
            let (writer, place) = (note.writer.load(Ordering::Relaxed), note.place.load(Ordering::Relaxed));
            let touched = wanted(place as PageNo).then(|| self.touched(number, note, &mut marks));
            fence(Ordering::Acquire);
            let whole = stamp == number + 1 && note.stamp.load(Ordering::Relaxed) == stamp;
            match touched {
                _ if !whole => lost += 1,
                Some(touched) => f(writer as u16, (place >> 32) as u32, place as PageNo, touched),
                None => {}
            }
        }
        (self.begin_again(end), lost)
    }

    /// All notes up to this number have been read; gives the number of the next.
    fn begin_again(&self, end: u64) -> u64 {
        let next = ((end >> GENERATION_BITS) + 1) << GENERATION_BITS;
        let enough = end % (1 << GENERATION_BITS) >= AGAIN_AFTER;
        let begins = |next| self.note_count().compare_exchange(end, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if enough && begins(next) { next } else { end }
    }

    fn touched<'m>(&self, number: u64, note: &Note, marks: &'m mut ByteMarks) -> Touched<&'m ByteMarks> {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        match read(&note.lines) {
            0 => {
                *marks = self.marks(number).each_ref().map(read);
                Touched::Each(marks)
            }
            lines => Touched::Alike { lines, bytes: read(&note.bytes) },
        }
    }

    /// At the home, or at `writer` itself when it has stored them: the diffs of node `writer` up to this serial are in
    /// the memory.
    pub fn diffs_are_in(&self, writer: u16, serial: u64) {
        self.writer(writer).fetch_max(serial, Ordering::SeqCst);
    }

    /// The serial up to which the diffs of node `writer` are in the memory.
    pub fn diffs_in(&self, writer: u16) -> u64 {
        self.writer(writer).load(Ordering::SeqCst)
    }
}

/// A lock's place in both tables.
fn place(lock: u64) -> usize {
    (lock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % LOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (SharedDirectory, SharedDirectory) {
        let home = SharedDirectory::new(1000).expect("a table");
        let other = SharedDirectory::of(std::process::id(), 1000);
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
        home.offer(20..40);
        assert!(other.take(24) && home.any_taken(17..39) && home.any_taken(24..32) && !home.any_taken(25..PageNo::MAX));
        assert!(home.was_taken(24) && !home.any_taken(8..1000));
        for page in [20, 38] {
            assert!(other.take(page) && home.any_taken(17..39) && home.was_taken(page) && !home.any_taken(17..39));
        }
        assert!(home.was_taken(7) && !home.was_taken(7) && !home.was_taken(8));
        assert!(other.take(7), "it is offered still");
        home.withdraw(7..9);
        assert!(!other.take(7) && !home.was_taken(7), "a mark that came too late, or was none, is gone");
        home.diffs_are_in(3, 5);
        home.diffs_are_in(3, 4);
        other.diffs_are_in(4, 1 << 40);
        assert_eq!([3, 4, 65_535].map(|writer| home.diffs_in(writer)), [5, 1 << 40, 0]);
        let mut mixed = [3; PAGE_BYTES / 64];
        mixed[63] = 1 << 63;
        let [some, all] = [[3; PAGE_BYTES / 64], [u64::MAX; PAGE_BYTES / 64]];
        other.note_writer(3, 9, 70, &some);
        other.note_writer(65_535, u32::MAX, PageNo::MAX, &all);
        other.note_writer(4, 9, 71, &mixed);
        let all_marks = [some, all, mixed];
        let [some_touched, all, mixed] = all_marks.each_ref().map(Touched::of);
        assert!(matches!(mixed, Touched::Each(_)));
        let told = [(3, 9, 70, some_touched), (65_535, u32::MAX, PageNo::MAX, all), (4, 9, 71, mixed)];
        let mut at = 0;
        let mut note = |writer, epoch, page, touched: Touched<&ByteMarks>| {
            assert_eq!((writer, epoch, page, touched), told[at]);
            at += 1;
        };
        assert_eq!(home.writers(0, |_| true, &mut note), (3, 0));
        assert_eq!(at, 3);
        at = 1;
        let mut note = |writer, _, page, _: Touched<&ByteMarks>| {
            assert_eq!((writer, page), (told[at].0, told[at].2));
            at += 1;
        };
        assert_eq!(home.writers(0, |page| page > 71, &mut note), (3, 0), "what is not wanted is not lost");
        assert_eq!(at, 2);
        notes_that_are_kept(&home, &other);
        home.offer(999..1002);
        assert!(!other.take(1000) && !other.take(PageNo::MAX), "pages that there are not");
        home.withdraw(999..1002);
        assert_eq!([other.claim(7, 3), home.claim(7, 0), other.claim(7, 4), home.claim(8, 0)], [3, 3, 3, 0].map(Some));
        assert_eq!([other.claim(999, 1022), other.claim(1000, 0), other.claim(9, u16::MAX)], [Some(1022), None, None]);
        assert!(!other.take(999), "the table of claims is another");
        assert_eq!([7, 8, 9, 1000].map(|page| home.claimant(page)), [Some(3), Some(0), None, None]);
        let of_others = |pages, me| home.is_claimed_by_others(pages, me);
        assert!(of_others(5..9, 3) && of_others(5..9, 0) && !of_others(7..8, 3) && !of_others(9..20, 3));
        home.forget_claims(7..8);
        assert_eq!([other.claim(8, 5), other.claim(7, 5)], [0, 5].map(Some));
        assert_eq!(other.queue_up(17, 4), None, "not laid open");
        home.publish_tail(17, 2);
        assert_eq!([4, 5, 4].map(|node| other.queue_up(17, node)), [2, 4, 5].map(|last| Some((last, false))));
        assert_eq!(home.queue_up(17, 0), Some((4, false)));
        let beside = (18..).find(|lock| std::ptr::eq(home.queue(*lock), home.queue(17))).unwrap_or_default();
        home.publish_tail(beside, 1);
        home.publish_tail(u64::MAX, 1);
        assert_eq!([beside, u64::MAX].map(|lock| other.queue_up(lock, 4)), [None; 2], "no place");
        assert_eq!(other.queue_up(17, 3), Some((0, false)));
        published_tokens(&home, &other, beside);
    }

    /// Three notes are there.
    fn notes_that_are_kept(home: &SharedDirectory, other: &SharedDirectory) {
        let note = |count| (0..count).for_each(|page| other.note_writer(1, 0, page as PageNo, &[3; PAGE_BYTES / 64]));
        let read = |from| {
            let mut kept = Vec::new();
            let (next, lost) = home.writers(from, |_| true, |writer, _, page, _| kept.push((writer, page)));
            (next, lost, kept)
        };
        note(NOTES);
        home.note(NOTES + 1).stamp.store(0, Ordering::Relaxed);
        assert_eq!((read(NOTES).0, read(NOTES).2.len()), (NOTES + 1, 1), "one that is being written is waited for");
        home.note(NOTES + 1).stamp.store(NOTES + 2, Ordering::Relaxed);
        let second = 1 << GENERATION_BITS;
        let (next, lost, kept) = read(1);
        assert_eq!((next, lost), (second, 2), "all is read: the next begin where the first did");
        assert_eq!((kept.len() as u64, kept[0]), (NOTES, (1, 0)), "older ones are lost");
        assert_eq!(read(second), (second, 0, Vec::new()), "what lies there was read before");
        note(AGAIN_AFTER - 1);
        let (next, lost, kept) = read(second);
        assert_eq!((next, lost, kept.len() as u64), (second + AGAIN_AFTER - 1, 0, AGAIN_AFTER - 1), "few go on");
        note(2);
        assert_eq!(read(next), (2 << GENERATION_BITS, 0, vec![(1, 0), (1, 1)]));
        other.note_writer(7, 0, 5, &[3; PAGE_BYTES / 64]);
        assert_eq!(read(2 << GENERATION_BITS), ((2 << GENERATION_BITS) + 1, 0, vec![(7, 5)]));
        assert!(std::ptr::eq(home.note(0), home.note(2 << GENERATION_BITS)));
        let last = (2 << GENERATION_BITS) + 1;
        other.note_writer(7, 0, 5, &[3; PAGE_BYTES / 64]);
        home.note(last).stamp.store(last + 1 + NOTES, Ordering::Relaxed);
        assert_eq!(read(last), (last + 1, 1, Vec::new()), "a later one has its place");
        // Other processes write there, too: no more notes are looked at than there may be.
        home.note_count().store(1 << 60, Ordering::Relaxed);
        assert_eq!(read(0), ((1 << 60) - NOTES, (1 << 60) - NOTES, Vec::new()));
    }

    /// Node 3, whose table `home` is too, asked last for lock 17.
    fn published_tokens(home: &SharedDirectory, other: &SharedDirectory, beside: u64) {
        assert!(!home.publish_token(17, 4) && !home.is_last(17, 4) && home.is_last(17, 3));
        assert!(home.put_notices(17, b"all") && home.publish_token(17, 3) && !home.is_last(17, 3));
        assert!(!home.put_notices(beside, b"more"), "no place");
        assert!(
            [u64::MAX, u64::MAX - 1].iter().all(|lock| !home.put_notices(*lock, b"") && !home.retract_token(*lock)),
            "no name"
        );
        assert!(
            home.retract_token(17) && !home.retract_token(17) && other.take_published_token(17).is_none(),
            "one node gets it"
        );
        home.withdraw_token(17, 3);
        assert!(home.is_last(17, 3) && home.put_notices(17, b"again") && home.publish_token(17, 3));
        assert_eq!(other.queue_up(17, 4), Some((3, true)));
        assert_eq!(other.queue_up(17, 5), Some((4, false)));
        home.withdraw_token(17, 3);
        assert!(home.is_last(17, 5), "others have asked");
        assert_eq!(other.take_published_token(17).as_deref(), Some(&b"again"[..]));
        assert!(!home.retract_token(17) && !home.put_notices(17, &[7; TOKEN_NOTICES_MAX + 1]), "too much");
        assert!(home.put_notices(beside, &[7; TOKEN_NOTICES_MAX]), "what has been read leaves its place");
        assert_eq!(other.take_published_token(beside), Some(vec![7; TOKEN_NOTICES_MAX]));
        let elsewhere = (18..).find(|lock| place(*lock) != place(17)).unwrap_or_default();
        assert!(home.put_notices(17, b"one") && home.put_notices(elsewhere, b"another"));
        assert_eq!(
            [17, elsewhere].map(|lock| other.take_published_token(lock)),
            [b"one".to_vec(), b"another".to_vec()].map(Some)
        );
        // Other processes write there, too.
        assert!(home.put_notices(17, b"one"));
        other.token(17).bytes.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(home.take_published_token(17).map(|told| told.len()), Some(TOKEN_NOTICES_MAX));
    }

    #[test]
    fn claims_of_many_pages_are_forgotten_and_those_beside_them_stay() {
        let table = SharedDirectory::new(10_000).unwrap();
        let pages = [2000, 2499, 2500, 3000, 4095, 4096, 6143, 6144, 7999, 8000, 9999];
        pages.iter().for_each(|page| assert_eq!(table.claim(*page, 3), Some(3)));
        table.forget_claims(2500..8000);
        let again = pages.map(|page| table.claim(page, 4));
        assert_eq!(again, pages.map(|page| Some(if (2500..8000).contains(&page) { 4 } else { 3 })));
        for page in 2048..6144 {
            table.claim(page, 4);
        }
        table.give_back(&(2500..3000), &(2100..6143));
        let kept = [2048, 4095, 4096, 6143].map(|page| table.claim(page, 5));
        assert_eq!(kept, [Some(4); 4], "no page of the table is about these alone");
        table.give_back(&(4500..5000), &(4096..6144));
        let kept = [4095, 4096, 6143, 6144].map(|page| table.claim(page, 5));
        assert_eq!(kept, [4, 5, 5, 4].map(Some));
        table.give_back(&(9_999..30_000), &(9_999..30_000));
        assert_eq!(table.claim(2000, 5), Some(3), "there are no pages behind the last");
        table.forget_claims(0..PageNo::MAX);
        assert!(pages.iter().all(|page| table.claim(*page, 5) == Some(5)));
    }
}
