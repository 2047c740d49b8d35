//! Which pages belong to which lock, as far as this node's writes show: so that an acquire fetches ahead what its own critical section needs.
//!
//! Under `hlrc` a lock's token brings notices of pages that have nothing to do with it: whatever its last holder had heard of. Where a program has a
//! lock for each part of its data, most of them are in use at this node, but under other locks, and end once more before those are taken. Pages that are
//! mostly written between the acquire and the release of one lock are that lock's *section*: they are fetched ahead when it is taken, or at a barrier, and
//! not when another one is. Other pages are nobody's, and are fetched ahead at every acquire, as ever.
//!
//! Nobody knows when a page was written, only that it was when an interval ends because a lock's token leaves. If the token has rested, other locks'
//! pages may have been written too. So each page keeps the lock that was right most often lately, and a score.

use comem_protocol::coherence::pages::{PageNo, push_range};
use comem_protocol::ids::LockId;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages that are followed; more are nobody's.
const PAGES_MAX: usize = 4096;

/// From this score on, a page belongs to its lock.
const SURE: u8 = 2;
/// The highest score.
const SUREST: u8 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Guard {
    lock: LockId,
    score: u8,
}

/// The sections of a node.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    guards: BTreeMap<PageNo, Guard>,
    of_lock: BTreeMap<LockId, Vec<PageNo>>,
    /// Copies that ended when other locks than theirs were taken.
    put_off: Vec<Range<PageNo>>,
}

impl Sections {
    /// These pages were written in the interval that ended because the lock's token left.
    pub(super) fn written_under(&mut self, lock: LockId, pages: Range<PageNo>) {
        for page in pages {
            let next = match self.guards.get(&page) {
                None if self.guards.len() >= PAGES_MAX => continue,
                Some(guard) if guard.lock == lock && guard.score > 0 => {
                    Guard { lock, score: (guard.score + 2).min(SUREST) }
                }
                Some(guard) if guard.score > 1 => Guard { score: guard.score - 1, ..*guard },
                _ => Guard { lock, score: 1 },
            };
            self.set(page, next);
        }
    }

    fn set(&mut self, page: PageNo, next: Guard) {
        let before = self.guard_of(page);
        self.guards.insert(page, next);
        let now = self.guard_of(page);
        if before == now {
            return;
        }
        if let Some(lock) = before
            && let Some(pages) = self.of_lock.get_mut(&lock)
        {
            pages.retain(|other| *other != page);
            if pages.is_empty() {
                self.of_lock.remove(&lock);
            }
        }
        if let Some(lock) = now {
            self.of_lock.entry(lock).or_default().push(page);
        }
    }

    /// The page was touched under another lock than its own: it belongs to none for now.
    pub(super) fn release(&mut self, page: PageNo) {
        if let Some(guard) = self.guards.get(&page) {
            self.set(page, Guard { score: 0, ..*guard });
        }
    }

    /// The lock to which a page belongs.
    pub(super) fn guard_of(&self, page: PageNo) -> Option<LockId> {
        self.guards.get(&page).filter(|guard| guard.score >= SURE).map(|guard| guard.lock)
    }

    /// An acquire, of this lock if it is one, has ended copies: gives what may be fetched ahead now, in order.
    pub(super) fn sort_out(&mut self, lock: Option<LockId>, ended: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
        let Some(lock) = lock else {
            let mut all = std::mem::take(&mut self.put_off);
            all.extend(ended);
            return in_order(all);
        };
        if self.of_lock.is_empty() {
            return ended;
        }
        let mut wanted: Vec<Range<PageNo>> = Vec::new();
        for page in ended.into_iter().flatten() {
            let other = self.guard_of(page).is_some_and(|guard| guard != lock);
            push_range(if other { &mut self.put_off } else { &mut wanted }, page..page + 1);
        }
        wanted.extend(self.of_lock.get(&lock).into_iter().flatten().map(|page| *page..page + 1));
        if self.put_off.len() > PAGES_MAX {
            self.put_off = in_order(std::mem::take(&mut self.put_off));
        }
        in_order(wanted)
    }
}

/// The same pages, each once, in order.
fn in_order(mut runs: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut all: Vec<Range<PageNo>> = Vec::new();
    for run in runs {
        let from = run.start.max(all.last().map_or(0, |last| last.end));
        if from < run.end {
            push_range(&mut all, from..run.end);
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are what is sorted out")]
mod tests {
    use super::*;

    const A: LockId = LockId(1);
    const B: LockId = LockId(2);

    fn often(sections: &mut Sections, lock: LockId, pages: Range<PageNo>) {
        (0..3).for_each(|_| sections.written_under(lock, pages.clone()));
    }

    #[test]
    fn what_ends_at_another_locks_acquire_is_put_off_until_its_own_or_a_barrier() {
        let mut sections = Sections::default();
        often(&mut sections, A, 4..8);
        often(&mut sections, B, 8..12);
        assert_eq!(sections.sort_out(Some(A), vec![2..12]), [2..8]);
        assert_eq!(sections.sort_out(Some(B), vec![5..6]), [8..12], "what was put off comes with its lock");
        assert_eq!(sections.sort_out(None, vec![1..3]), [1..3, 5..6, 8..12]);
        assert_eq!(sections.sort_out(None, vec![1..3]), [1..3]);
    }

    #[test]
    fn a_page_belongs_to_the_lock_under_which_it_is_mostly_written() {
        let mut sections = Sections::default();
        sections.written_under(A, 4..5);
        assert_eq!(sections.guard_of(4), None, "once is not often");
        for _ in 0..9 {
            often(&mut sections, A, 4..5);
            sections.written_under(B, 4..5);
            assert_eq!(sections.guard_of(4), Some(A));
        }
        (0..4).for_each(|_| sections.written_under(B, 4..5));
        assert_eq!(sections.guard_of(4), None);
        assert!(sections.of_lock.is_empty(), "a lock without pages costs nothing");
        often(&mut sections, B, 4..5);
        assert_eq!(sections.guard_of(4), Some(B));
        assert_eq!(sections.sort_out(Some(A), vec![3..6]), [3..4, 5..6]);
    }

    #[test]
    fn a_page_that_is_touched_without_its_lock_is_nobodys_for_a_while() {
        let mut sections = Sections::default();
        often(&mut sections, A, 4..6);
        sections.release(4);
        sections.written_under(A, 4..5);
        assert_eq!(sections.sort_out(Some(B), vec![4..6]), [4..5]);
        sections.written_under(A, 4..5);
        assert_eq!(sections.sort_out(Some(B), vec![4..5]), []);
    }

    #[test]
    fn pages_beyond_those_that_are_followed_are_nobodys() {
        let mut sections = Sections::default();
        let end = PAGES_MAX as PageNo;
        often(&mut sections, A, 0..end + 5);
        assert_eq!((sections.guard_of(end - 1), sections.guard_of(end)), (Some(A), None));
    }
}
