//! Which pages belong to which lock, as far as this node's writes show: so that an acquire fetches ahead what its own
//! critical section needs.
//!
//! Under `hlrc` a lock's token brings notices of pages that have nothing to do with it: whatever its last holder had
//! heard of. Where a program has a lock for each part of its data, most of them are in use at this node, but under
//! other locks, and end once more before those are taken. Pages that are mostly written between the acquire and the
//! release of one lock are that lock's *section*: they are fetched ahead when it is taken, or at a barrier, and not
//! when another one is. Other pages are nobody's, and are fetched ahead at every acquire, as ever.
//!
//! Nobody knows when a page was written, only that it was when an interval ends because a lock's token leaves. If the
//! token has rested, other locks' pages may have been written too. So each page keeps the lock that was right most
//! often lately, and a score.
//!
//! What a barrier fetches ahead of a section may be of no use: if other nodes take the lock first, it ends before this
//! node does. Programs have phases, so the barriers of one kind are followed by the sections and those of another by
//! everybody's reads. So each page remembers what became of it after the last four barriers that ended it, and a
//! barrier passes over what was of no use two and four of them before.

use super::Predictor;
use crate::coherence::pages::piggyback::PIGGYBACK_PAGES_MAX;
use crate::coherence::pages::{PageNo, push_range};
use crate::ids::LockId;
use crate::tuning::WorkingSetTuning;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What the last barrier that ended a page has done about it, as long as nobody knows what came of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Fetched,
    PassedOver,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Guard {
    lock: LockId,
    score: u8,
    done: Option<Done>,
    /// Whether it was, or would have been, in vain: one bit for each barrier, the last one lowest.
    unused: u8,
}

impl Guard {
    fn new(lock: LockId) -> Guard {
        Guard { lock, score: 1, done: None, unused: 0 }
    }

    fn is_sure(&self, tuning: &WorkingSetTuning) -> bool {
        self.score >= tuning.sure_score
    }

    /// Whether the next barrier that ends the page had better not fetch it.
    fn is_mostly_unused(&self, tuning: &WorkingSetTuning) -> bool {
        const TWO_AND_FOUR_AGO: u8 = 0b1010;
        tuning.pass_over && self.is_sure(tuning) && self.unused & TWO_AND_FOUR_AGO == TWO_AND_FOUR_AGO
    }
}

/// The sections of a node.
#[derive(Debug, Default)]
pub struct LockWorkingSets {
    guards: BTreeMap<PageNo, Guard>,
    of_lock: BTreeMap<LockId, Vec<PageNo>>,
    /// What the last acquires of locks fetched that fetched a few pages.
    fetched: BTreeMap<LockId, Vec<Range<PageNo>>>,
    /// Copies that ended when other locks than theirs were taken, or at barriers that passed over them.
    put_off: Vec<Range<PageNo>>,
    /// The pages that the next barrier passes over.
    unused: BTreeSet<PageNo>,
    /// Those that the barrier passes over which is ending copies.
    passed: Vec<PageNo>,
    /// The pages of which it is not known what came of what the last barrier did; and some of which it is.
    undecided: Vec<PageNo>,
    tuning: WorkingSetTuning,
}

impl LockWorkingSets {
    /// Nothing is known yet.
    pub fn new(tuning: WorkingSetTuning) -> LockWorkingSets {
        LockWorkingSets { tuning, ..LockWorkingSets::default() }
    }

    fn written_under(&mut self, lock: LockId, pages: Range<PageNo>) {
        let tuning = self.tuning;
        for page in pages {
            let next = match self.guards.get(&page) {
                None if self.guards.len() >= tuning.pages_max => continue,
                Some(guard) if guard.lock == lock && guard.score > 0 => {
                    Guard { score: (guard.score + 2).min(tuning.score_max), ..*guard }
                }
                Some(guard) if guard.score > 1 => Guard { score: guard.score - 1, ..*guard },
                _ => Guard::new(lock),
            };
            self.set(page, next);
        }
    }

    fn set(&mut self, page: PageNo, next: Guard) {
        let before = self.guard_of(page);
        self.guards.insert(page, next);
        if next.is_mostly_unused(&self.tuning) {
            self.unused.insert(page);
        } else {
            self.unused.remove(&page);
        }
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

    /// The lock to which a page belongs.
    pub fn guard_of(&self, page: PageNo) -> Option<LockId> {
        self.guards.get(&page).filter(|guard| guard.is_sure(&self.tuning)).map(|guard| guard.lock)
    }

    /// An acquire of this lock fetches these pages.
    fn fetched(&mut self, lock: LockId, pages: &[Range<PageNo>]) {
        let few = pages.iter().map(|run| run.end - run.start).sum::<PageNo>() <= PIGGYBACK_PAGES_MAX;
        if few && (self.fetched.len() < self.tuning.locks_max || self.fetched.contains_key(&lock)) {
            self.fetched.insert(lock, pages.to_vec());
        } else {
            self.fetched.remove(&lock);
        }
    }

    /// The pages, in order, that the barrier which is about to end copies does not fetch ahead.
    pub fn passed_over(&self) -> &[PageNo] {
        &self.passed
    }

    /// Whether barriers pass over pages: then it wants to be told of faults ([`Event::Missed`]).
    pub fn passes_over(&self) -> bool {
        !self.unused.is_empty()
    }

    /// It is known what came of what the last barrier did about a page, if it was that.
    fn record_write(&mut self, page: PageNo, done: Done, in_vain: bool) {
        if let Some(guard) = self.guards.get(&page).filter(|guard| guard.done == Some(done)) {
            self.set(page, Guard { done: None, unused: (guard.unused << 1) | u8::from(in_vain), ..*guard });
        }
    }

    /// A barrier has ended copies: gives what may be fetched ahead now, in order.
    fn sort_out_all(&mut self, ended: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
        let (before, passed) = (std::mem::take(&mut self.put_off), std::mem::take(&mut self.passed));
        if self.of_lock.is_empty() {
            return in_order(if before.is_empty() { ended } else { [before, ended].concat() });
        }
        let ended = in_order(ended);
        let is_new = |page: &PageNo| {
            ended.get(ended.partition_point(|run| run.end <= *page)).is_some_and(|run| run.contains(page))
        };
        let mut wanted: Vec<Range<PageNo>> = Vec::new();
        for page in in_order([before, ended.clone()].concat()).into_iter().flatten() {
            let sure = self.guards.get(&page).copied().filter(|guard| guard.is_sure(&self.tuning));
            // What was not passed over when it ended may have stayed mapped: it must be fetched.
            let over = if is_new(&page) {
                passed.binary_search(&page).is_ok()
            } else {
                sure.is_some_and(|guard| guard.is_mostly_unused(&self.tuning))
            };
            push_range(if over { &mut self.put_off } else { &mut wanted }, page..page + 1);
            if let Some(guard) = sure {
                self.undecided.push(page);
                self.set(page, Guard { done: Some(if over { Done::PassedOver } else { Done::Fetched }), ..guard });
            }
        }
        if self.undecided.len() > self.tuning.pages_max {
            // Acquires without a lock, and no barrier since.
            self.undecided.sort_unstable();
            self.undecided.dedup();
        }
        wanted
    }

    fn sort_out(&mut self, lock: Option<LockId>, ended: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
        let Some(lock) = lock else { return self.sort_out_all(ended) };
        if self.of_lock.is_empty() {
            return ended;
        }
        let mut wanted: Vec<Range<PageNo>> = Vec::new();
        for page in ended.into_iter().flatten() {
            self.record_write(page, Done::Fetched, true);
            let other = self.guard_of(page).is_some_and(|guard| guard != lock);
            push_range(if other { &mut self.put_off } else { &mut wanted }, page..page + 1);
        }
        let own = self.of_lock.get(&lock).cloned().unwrap_or_default();
        for page in own {
            self.record_write(page, Done::Fetched, false);
            self.record_write(page, Done::PassedOver, true);
            wanted.push(page..page + 1);
        }
        if self.put_off.len() > self.tuning.pages_max {
            self.put_off = in_order(std::mem::take(&mut self.put_off));
        }
        in_order(wanted)
    }
}

/// What has happened on this node.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// These pages were written in the interval that ended because the lock's token left.
    Written {
        /// The lock.
        lock: LockId,
        /// The pages.
        pages: Range<PageNo>,
    },
    /// A page was touched under another lock than its own: it belongs to none for now.
    TouchedElsewhere(PageNo),
    /// A page was touched that is not here.
    Missed(PageNo),
    /// An acquire of this lock fetches these pages.
    Fetched {
        /// The lock.
        lock: LockId,
        /// The pages.
        pages: &'a [Range<PageNo>],
    },
    /// A barrier is about to end copies.
    BarrierEnds,
}

/// What is needed of the copies that end?
#[derive(Clone, Debug)]
pub enum Query {
    /// The pages that an acquire of this lock will probably fetch, in order: the lock's own, and those that the last
    /// one fetched.
    Expected(LockId),
    /// An acquire, of this lock if it is one, has ended copies: what may be fetched ahead now, in order.
    Ended {
        /// The lock.
        lock: Option<LockId>,
        /// The copies.
        ended: Vec<Range<PageNo>>,
    },
}

impl Predictor for LockWorkingSets {
    type Numbers = ();
    type Event<'a> = Event<'a>;
    type Query<'a> = Query;
    type Prediction = Vec<Range<PageNo>>;

    fn is_on(&self, (): &()) -> bool {
        self.tuning.follow
    }

    fn otherwise(&self, (): &(), query: Query) -> Vec<Range<PageNo>> {
        match query {
            Query::Expected(_) => Vec::new(),
            Query::Ended { ended, .. } => in_order(ended),
        }
    }

    fn learn(&mut self, (): &(), event: Event<'_>) {
        match event {
            Event::Written { lock, pages } => self.written_under(lock, pages),
            Event::TouchedElsewhere(page) => {
                if let Some(guard) = self.guards.get(&page) {
                    self.set(page, Guard { score: 0, ..*guard });
                }
            }
            Event::Missed(page) => self.record_write(page, Done::PassedOver, false),
            Event::Fetched { lock, pages } => self.fetched(lock, pages),
            Event::BarrierEnds => {
                // What was fetched has stayed until now, and nobody has missed what was not.
                for page in std::mem::take(&mut self.undecided) {
                    self.record_write(page, Done::Fetched, false);
                    self.record_write(page, Done::PassedOver, true);
                }
                self.passed.clear();
                self.passed.extend(&self.unused);
            }
        }
    }

    fn answer(&mut self, (): &(), query: Query) -> Vec<Range<PageNo>> {
        match query {
            Query::Expected(lock) => {
                let own = self.of_lock.get(&lock).into_iter().flatten().map(|page| *page..page + 1);
                in_order(own.chain(self.fetched.get(&lock).into_iter().flatten().cloned()).collect())
            }
            Query::Ended { lock, ended } => self.sort_out(lock, ended),
        }
    }
}

/// The same pages, each once, in order.
fn in_order(mut runs: Vec<Range<PageNo>>) -> Vec<Range<PageNo>> {
    if runs.is_sorted_by(|run, next| run.end < next.start) && !runs.iter().any(Range::is_empty) {
        return runs;
    }
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

    fn often(sections: &mut LockWorkingSets, lock: LockId, pages: Range<PageNo>) {
        (0..3).for_each(|_| sections.written_under(lock, pages.clone()));
    }

    #[test]
    fn what_ends_at_another_locks_acquire_is_put_off_until_its_own_or_a_barrier() {
        let mut sections = LockWorkingSets::default();
        often(&mut sections, A, 4..8);
        often(&mut sections, B, 8..12);
        assert_eq!(sections.sort_out(Some(A), vec![2..12]), [2..8]);
        assert_eq!(sections.sort_out(Some(B), vec![5..6]), [8..12], "what was put off comes with its lock");
        assert_eq!(sections.sort_out(None, vec![1..3]), [1..3, 5..6, 8..12]);
        assert_eq!(sections.sort_out(None, vec![1..3]), [1..3]);
    }

    #[test]
    fn a_page_belongs_to_the_lock_under_which_it_is_mostly_written() {
        let mut sections = LockWorkingSets::default();
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
        let mut sections = LockWorkingSets::default();
        often(&mut sections, A, 4..6);
        sections.observe(&(), Event::TouchedElsewhere(4));
        sections.written_under(A, 4..5);
        assert_eq!(sections.sort_out(Some(B), vec![4..6]), [4..5]);
        sections.written_under(A, 4..5);
        assert_eq!(sections.sort_out(Some(B), vec![4..5]), []);
    }

    fn expected(sections: &mut LockWorkingSets, lock: LockId) -> Vec<Range<PageNo>> {
        sections.predict(&(), Query::Expected(lock))
    }

    fn pass_over(sections: &mut LockWorkingSets) -> Vec<PageNo> {
        sections.observe(&(), Event::BarrierEnds);
        sections.passed_over().to_vec()
    }

    /// A barrier that is followed by the sections, in which others come first, and one that is followed by reads; gives
    /// what each fetched ahead.
    fn round(sections: &mut LockWorkingSets) -> [Vec<Range<PageNo>>; 2] {
        pass_over(sections);
        let first = sections.sort_out(None, vec![4..8]);
        sections.sort_out(Some(B), first.clone());
        assert_eq!(sections.sort_out(Some(A), vec![]), [4..8]);
        pass_over(sections);
        [first, sections.sort_out(None, vec![4..8])]
    }

    #[test]
    fn what_a_barrier_fetched_in_vain_two_and_four_barriers_ago_is_passed_over() {
        let mut sections = LockWorkingSets::default();
        often(&mut sections, A, 4..8);
        for _ in 0..2 {
            assert_eq!(round(&mut sections), [vec![4..8], vec![4..8]]);
            assert!(!sections.passes_over());
        }
        for _ in 0..3 {
            assert_eq!(round(&mut sections), [vec![], vec![4..8]]);
        }
    }

    #[test]
    fn what_was_missed_is_fetched_again() {
        let mut sections = LockWorkingSets::default();
        often(&mut sections, A, 4..8);
        (0..3).for_each(|_| drop(round(&mut sections)));
        assert_eq!(pass_over(&mut sections), [4, 5, 6, 7]);
        assert_eq!(sections.sort_out(None, vec![4..8]), []);
        assert!(sections.passes_over());
        sections.observe(&(), Event::Missed(6));
        sections.observe(&(), Event::Missed(6));
        pass_over(&mut sections);
        assert_eq!(sections.sort_out(None, vec![]), [4..8], "what was put off");
        assert_eq!(pass_over(&mut sections), [4, 5, 7]);
    }

    #[test]
    fn an_acquire_expects_its_own_pages_and_what_the_last_one_fetched_if_that_was_little() {
        let mut sections = LockWorkingSets::default();
        often(&mut sections, A, 4..6);
        assert_eq!(expected(&mut sections, A), [4..6]);
        sections.fetched(A, &[5..7, 9..10]);
        assert_eq!((expected(&mut sections, A), expected(&mut sections, B)), (vec![4..7, 9..10], vec![]));
        sections.fetched(A, &[20..20 + PIGGYBACK_PAGES_MAX + 1]);
        assert_eq!(expected(&mut sections, A), [4..6], "neither the many nor what came before them");
        (0..WorkingSetTuning::DEFAULT.locks_max as u64 + 2)
            .for_each(|lock| sections.fetched(LockId(100 + lock), &[1..2]));
        assert_eq!(sections.fetched.len(), WorkingSetTuning::DEFAULT.locks_max);
    }

    #[test]
    fn what_stayed_mapped_is_fetched_whatever_was_learnt_since() {
        let mut sections = LockWorkingSets::default();
        often(&mut sections, A, 4..8);
        (0..2).for_each(|_| drop(round(&mut sections)));
        assert_eq!(pass_over(&mut sections), [4, 5, 6, 7]);
        sections.passed.clear();
        assert_eq!(sections.sort_out(None, vec![4..6]), [4..6]);
    }

    #[test]
    fn pages_beyond_those_that_are_followed_are_nobodys() {
        let mut sections = LockWorkingSets::default();
        let end = WorkingSetTuning::DEFAULT.pages_max as PageNo;
        often(&mut sections, A, 0..end + 5);
        assert_eq!((sections.guard_of(end - 1), sections.guard_of(end)), (Some(A), None));
    }
}
