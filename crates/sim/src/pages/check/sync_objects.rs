//! What threads hear by semaphores, reader-writer locks, condition variables and barriers of some threads.
//!
//! Which posts have made a semaphore give, and which signal has woken a thread, nobody can say who sees the threads
//! alone. So a thread is taken to have heard what it must have heard, whichever it was.

use super::{Clock, Guard, Judge, join};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;
use std::collections::BTreeMap;

/// What is known of each.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncObjects {
    semaphores: BTreeMap<SemaphoreId, Semaphore>,
    rwlocks: BTreeMap<RwLockId, RwLock>,
    /// Who signalled, and at which moment if the signal says so.
    signals: BTreeMap<ConditionId, Vec<(usize, Option<Clock>)>>,
    /// Who came to each meeting of a name.
    meetings: BTreeMap<(SubsetBarrierId, u32), Vec<(usize, Clock)>>,
    /// How often each thread has come to one.
    came: BTreeMap<(usize, SubsetBarrierId), u32>,
}

#[derive(Clone, Debug, Default)]
struct Semaphore {
    /// By whom, in the order in which they left.
    posts: Vec<(usize, Clock)>,
    /// How many threads have seen that they got one.
    taken: usize,
    /// Who waits, and how many had seen that before.
    waiting: BTreeMap<usize, usize>,
    /// Who was the last to get one, and has not posted since.
    holder: Option<usize>,
    /// Somebody posted without having got what was posted before.
    counts: bool,
}

#[derive(Clone, Debug, Default)]
struct RwLock {
    /// What its writers have released, and its readers.
    written: Option<Clock>,
    read: Option<Clock>,
    writes: bool,
}

fn join_into(into: &mut Option<Clock>, clock: &Clock) {
    join(into.get_or_insert_with(|| vec![0; clock.len()]), clock);
}

impl Judge {
    /// Thread `t` hears what thread `u` said at a moment.
    fn hears(&mut self, t: usize, u: usize, clock: &Clock) {
        join(&mut self.threads[t], clock);
        let told = &mut self.told[t].by_others[u];
        *told = (*told).max(clock[u]);
    }

    /// The clock of thread `t` as it releases something.
    fn lets_go(&mut self, t: usize) -> Clock {
        let clock = self.threads[t].clone();
        self.threads[t][t] += 1;
        clock
    }

    /// Thread `t` is about to add one to a semaphore.
    pub fn posts(&mut self, t: usize, semaphore: SemaphoreId) {
        let clock = self.lets_go(t);
        let this = self.sync_objects.semaphores.entry(semaphore).or_default();
        let holder = this.holder.take();
        this.counts |= !this.posts.is_empty() && holder != Some(t);
        this.posts.push((t, clock));
    }

    /// Thread `t` begins to wait for one.
    pub fn wants(&mut self, t: usize, semaphore: SemaphoreId) {
        let this = self.sync_objects.semaphores.entry(semaphore).or_default();
        this.waiting.insert(t, this.taken);
    }

    /// Thread `t` has got one. A semaphore of one, which nobody posts who has not got it, is as good as a lock. Else as
    /// many posts have come to count as threads that had got theirs before this one asked, and one more; whose these
    /// were, others might say.
    pub fn took(&mut self, t: usize, semaphore: SemaphoreId) {
        let this = self.sync_objects.semaphores.entry(semaphore).or_default();
        let least = this.waiting.remove(&t).unwrap_or_default() + 1;
        this.taken += 1;
        this.holder = Some(t);
        let (taken, all) = (this.taken, this.posts.len());
        if taken > all {
            self.violations.push(format!("{taken} threads were given what {all} have posted to {semaphore:?}"));
            return;
        }
        let mut heard: Vec<(usize, Clock)> = Vec::new();
        for u in 0..self.threads.len() {
            let own: Vec<&Clock> = this.posts.iter().filter(|(who, _)| *who == u).map(|(_, clock)| clock).collect();
            let sure = if this.counts { (least + own.len()).saturating_sub(all) } else { own.len() };
            heard.extend(sure.checked_sub(1).map(|last| (u, own[last].clone())));
        }
        heard.into_iter().for_each(|(u, clock)| self.hears(t, u, &clock));
    }

    /// Thread `t` has acquired a reader-writer lock: it hears what the writers before it said, and a writer what the
    /// readers said.
    pub fn enters(&mut self, t: usize, lock: RwLockId, writes: bool) {
        let this = self.sync_objects.rwlocks.entry(lock).or_default();
        if this.writes {
            self.violations.push(format!("thread {t} got {lock:?} while another writes under it"));
        }
        this.writes = writes;
        let heard = [this.written.clone(), this.read.clone().filter(|_| writes)];
        let told = self.told[t].by_locks.entry(Guard::RwLock(lock)).or_insert_with(|| vec![0; self.threads.len()]);
        for clock in heard.iter().flatten() {
            join(told, clock);
            join(&mut self.threads[t], clock);
        }
        self.told[t].held.push(Guard::RwLock(lock));
    }

    /// Thread `t` is about to release it.
    pub fn leaves(&mut self, t: usize, lock: RwLockId) {
        self.told[t].held.retain(|held| *held != Guard::RwLock(lock));
        let clock = self.lets_go(t);
        let this = self.sync_objects.rwlocks.entry(lock).or_default();
        let released = if std::mem::take(&mut this.writes) { &mut this.written } else { &mut this.read };
        join_into(released, &clock);
    }

    /// Thread `t` is about to signal a condition variable. Under a lock that says nothing: the lock's release does.
    pub fn signals(&mut self, t: usize, condition: ConditionId, under_lock: bool) {
        let clock = (!under_lock).then(|| self.lets_go(t));
        self.sync_objects.signals.entry(condition).or_default().push((t, clock));
    }

    /// Thread `t` has been woken: it hears what all say who may have done it.
    pub fn woken(&mut self, t: usize, condition: ConditionId) {
        let signals = self.sync_objects.signals.get(&condition).cloned().unwrap_or_default();
        let Some((first, _)) = signals.first() else {
            return self.violations.push(format!("thread {t} was woken by nobody who signals {condition:?}"));
        };
        let Some(clocks) = signals.iter().map(|(_, clock)| clock.as_ref()).collect::<Option<Vec<_>>>() else { return };
        let least = |u: usize| clocks.iter().map(|clock| clock[u]).min().unwrap_or_default();
        let least: Clock = (0..self.threads.len()).map(least).collect();
        match signals.iter().all(|(who, _)| who == first) {
            true => self.hears(t, *first, &least),
            false => join(&mut self.threads[t], &least),
        }
    }

    /// Thread `t` comes to a meeting.
    pub fn comes(&mut self, t: usize, meeting: SubsetBarrierId) {
        let clock = self.lets_go(t);
        let times = self.sync_objects.came.entry((t, meeting)).or_default();
        *times += 1;
        self.sync_objects.meetings.entry((meeting, *times)).or_default().push((t, clock));
    }

    /// Thread `t` goes on from it.
    pub fn met(&mut self, t: usize, meeting: SubsetBarrierId) {
        let times = self.sync_objects.came.get(&(t, meeting)).copied().unwrap_or_default();
        let there = self.sync_objects.meetings.get(&(meeting, times)).cloned().unwrap_or_default();
        there.into_iter().for_each(|(u, clock)| self.hears(t, u, &clock));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_posters_either_may_have_been_heard_by_who_took_first_and_both_by_who_took_then() {
        let semaphore = SemaphoreId(1);
        let mut judge = Judge::new(4, 2);
        for t in 0..2 {
            judge.wrote(t, t, 5);
            judge.posts(t, semaphore);
        }
        judge.wants(2, semaphore);
        judge.took(2, semaphore);
        judge.wants(3, semaphore);
        judge.took(3, semaphore);
        (0..2).for_each(|word| judge.read(3, word, 5));
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
        judge.read(2, 0, 5);
        assert!(judge.violations[0].contains("races"), "{:?}", judge.violations);
    }

    #[test]
    fn who_waited_beside_another_has_heard_of_one_post_for_sure() {
        let semaphore = SemaphoreId(1);
        let mut judge = Judge::new(3, 1);
        (1..3).for_each(|t| judge.wants(t, semaphore));
        judge.wrote(0, 0, 5);
        judge.posts(0, semaphore);
        judge.wrote(0, 0, 6);
        judge.posts(0, semaphore);
        (1..3).rev().for_each(|t| judge.took(t, semaphore));
        judge.read(1, 0, 6);
        assert!(judge.violations[0].contains("races"), "by the second post perhaps: {:?}", judge.violations);
    }

    #[test]
    fn a_semaphore_of_one_is_as_good_as_a_lock() {
        let semaphore = SemaphoreId(1);
        let mut judge = Judge::new(3, 1);
        judge.posts(0, semaphore);
        // All wait from the beginning, so that nothing is known of who came before.
        (0..3).for_each(|t| judge.wants(t, semaphore));
        for t in [1, 2, 0] {
            judge.took(t, semaphore);
            judge.read(t, 0, [2, 0, 1][t]);
            judge.wrote(t, 0, [3, 1, 2][t]);
            judge.posts(t, semaphore);
        }
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
    }

    #[test]
    fn a_writer_hears_of_readers_and_a_reader_does_not() {
        let lock = RwLockId(1);
        let mut judge = Judge::new(3, 1);
        judge.enters(0, lock, false);
        judge.wrote(0, 0, 5);
        judge.leaves(0, lock);
        judge.enters(1, lock, true);
        judge.read(1, 0, 5);
        judge.leaves(1, lock);
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
        judge.enters(2, lock, false);
        judge.read(2, 0, 5);
        assert!(judge.violations.is_empty(), "the writer has said it: {:?}", judge.violations);
        judge.wrote(0, 0, 6);
        assert!(judge.violations[0].contains("races"), "{:?}", judge.violations);
    }

    #[test]
    fn a_signal_tells_unless_another_may_have_woken_the_thread_or_a_lock_says_it() {
        let (one, two, three) = (ConditionId(1), ConditionId(2), ConditionId(3));
        let mut judge = Judge::new(3, 1);
        judge.wrote(0, 0, 5);
        judge.signals(1, two, false);
        [one, two].into_iter().for_each(|condition| judge.signals(0, condition, false));
        judge.signals(0, three, true);
        judge.woken(2, one);
        judge.read(2, 0, 5);
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
        for condition in [two, three] {
            judge.woken(1, condition);
            judge.read(1, 0, 5);
            assert!(judge.violations.pop().is_some_and(|v| v.contains("races")));
        }
    }

    #[test]
    fn who_met_has_heard_of_all_who_came() {
        let meeting = SubsetBarrierId(1);
        let mut judge = Judge::new(3, 2).with_scope(1, |_| true);
        (0..2).for_each(|t| judge.wrote(t, t, 5));
        (0..2).for_each(|t| judge.comes(t, meeting));
        (0..2).for_each(|t| judge.met(t, meeting));
        (0..2).for_each(|t| judge.read(t, 1 - t, 5));
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
        judge.read(0, 1, 0);
        assert!(judge.violations[0].contains("read 0"), "under scope too: {:?}", judge.violations);
    }
}
