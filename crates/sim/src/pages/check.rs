//! What a read must return: in a program without races the writes of a word are in one order, and every read happens
//! after the last of those before it.
//!
//! A judge follows the program's synchronisation with vector clocks while it runs, says which value a read must return,
//! and whether the program races after all.
//!
//! Words under `scope` promise less, where a program asks for more than that: a read must return the last write if a
//! barrier, a flag, post, signal or meeting of the writer's own, a lock that the writer held as it wrote, or their
//! being on one node orders the two; else it may return any earlier value. Where two writes are not ordered so, either
//! may last until a barrier has passed.

mod sync_objects;

use self::sync_objects::SyncObjects;
use comem_protocol::ids::{FlagId, LockId};
use comem_protocol::sync::rwlock::RwLockId;
use std::collections::BTreeMap;

type Clock = Vec<u32>;

#[derive(Clone, Debug)]
struct Word {
    value: u64,
    writer: usize,
    written: u32,
    /// The clock of each thread at its last read.
    reads: Clock,
    /// Under `scope`: what else it was, and how it was written last.
    scoped: Option<Box<Scoped>>,
    /// What was added to it atomically since it was written last.
    added: Option<Box<Added>>,
}

/// Atomic additions to a word.
#[derive(Clone, Debug, Default)]
struct Added {
    /// The clock of each thread at its last one.
    by: Clock,
    /// What they found.
    found: Vec<u64>,
}

/// What guards critical sections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Guard {
    Lock(LockId),
    RwLock(RwLockId),
}

/// What is kept of a word under `scope`.
#[derive(Clone, Debug, Default)]
struct Scoped {
    /// Earlier values.
    older: Vec<u64>,
    /// The locks that the last writer held.
    held: Vec<Guard>,
    /// The last write was not ordered behind the one before it: either may last.
    torn: bool,
}

/// What a thread has been told under `scope`: of each thread, up to which of its moments.
#[derive(Clone, Debug, Default)]
struct Told {
    held: Vec<Guard>,
    by_locks: BTreeMap<Guard, Clock>,
    /// By what others said themselves: flags, posts, signals, meetings.
    by_others: Clock,
    by_barriers: Clock,
}

/// A lock that others have acquired so often while a thread waits is not given to those who wait: on their way requests
/// meet far fewer turns.
const TURNS_MOST: u32 = 100;

/// Judges the accesses of one run.
#[derive(Clone, Debug)]
pub struct Judge {
    threads: Vec<Clock>,
    told: Vec<Told>,
    threads_per_node: usize,
    words: Vec<Word>,
    locks: BTreeMap<LockId, Clock>,
    /// Who waits for each, and how often others have acquired it meanwhile.
    waiting: BTreeMap<LockId, Vec<(usize, u32)>>,
    /// With who raised them.
    flags: BTreeMap<(FlagId, u64), (usize, Clock)>,
    barriers: BTreeMap<u32, Clock>,
    /// What comes of the numbers that the threads bring to each.
    sums: BTreeMap<u32, u64>,
    sync_objects: SyncObjects,
    /// Whether loads and races are judged; else loads are only written down.
    judges: bool,
    /// What each thread has loaded: the word and its value.
    pub loads: Vec<Vec<(usize, u64)>>,
    /// What was wrong.
    pub violations: Vec<String>,
    /// Stale reads.
    pub stale: u64,
}

fn join(into: &mut Clock, other: &Clock) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
}

impl Judge {
    /// A judge of so many threads and words, all zero.
    pub fn new(threads: usize, words: usize) -> Judge {
        let start = |t: usize| (0..threads).map(|u| u32::from(u == t)).collect();
        let word = Word { value: 0, writer: 0, written: 0, reads: vec![0; threads], scoped: None, added: None };
        let told = Told { by_others: vec![0; threads], by_barriers: vec![0; threads], ..Told::default() };
        Judge {
            threads: (0..threads).map(start).collect(),
            told: vec![told; threads],
            threads_per_node: 1,
            words: vec![word; words],
            locks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            flags: BTreeMap::new(),
            barriers: BTreeMap::new(),
            sums: BTreeMap::new(),
            sync_objects: SyncObjects::default(),
            judges: true,
            loads: vec![Vec::new(); threads],
            violations: Vec::new(),
            stale: 0,
        }
    }

    /// Words for which `is_scoped` holds promise only what `scope` does; a node has so many threads.
    pub fn with_scope(mut self, threads_per_node: usize, is_scoped: impl Fn(usize) -> bool) -> Judge {
        self.threads_per_node = threads_per_node;
        for (at, word) in self.words.iter_mut().enumerate() {
            word.scoped = is_scoped(at).then(Box::default);
        }
        self
    }

    /// The same for a program that races on purpose: nothing is expected of its loads, which are written down in
    /// `loads`.
    pub fn that_only_writes_down(mut self) -> Judge {
        self.judges = false;
        self
    }

    /// The value that was written last.
    pub fn last(&self, word: usize) -> u64 {
        self.words[word].value
    }

    /// Whether a word may hold this value when all is over.
    pub fn may_end_as(&self, word: usize, value: u64) -> bool {
        let this = &self.words[word];
        !self.judges || value == this.value || this.scoped.as_ref().is_some_and(|s| s.torn && s.older.contains(&value))
    }

    /// Whether the rules of `scope` order the last write of a word before what thread `t` does now, given that it was
    /// before.
    fn is_told(&self, t: usize, word: usize) -> bool {
        let (this, told) = (&self.words[word], &self.told[t]);
        let Some(scoped) = &this.scoped else { return true };
        let seen = |clock: &Clock| clock[this.writer] >= this.written;
        let by_lock = |lock| told.by_locks.get(lock).is_some_and(seen);
        this.written == 0
            || this.writer / self.threads_per_node == t / self.threads_per_node
            || seen(&told.by_barriers)
            || seen(&told.by_others)
            || scoped.held.iter().any(by_lock)
    }

    fn race(&mut self, t: usize, word: usize, what: &str) {
        if !self.judges {
            return;
        }
        self.violations.push(format!("the program races: thread {t} {what} word {word} at the same time as another"));
    }

    /// Thread `t` stored.
    pub fn wrote(&mut self, t: usize, word: usize, value: u64) {
        let told = self.is_told(t, word);
        let (clock, this) = (&self.threads[t], &mut self.words[word]);
        let after = |times: &Clock| times.iter().zip(clock).all(|(time, c)| time <= c);
        let added = this.added.take();
        let behind_added = added.as_ref().is_none_or(|added| after(&added.by));
        let ordered = this.written <= clock[this.writer] && after(&this.reads) && behind_added;
        if let Some(scoped) = &mut this.scoped {
            let behind_a_barrier = self.told[t].by_barriers[this.writer] >= this.written;
            // What a word is already makes no diff: who is told of this write alone may not see it.
            let is_silent = value == this.value && this.written > 0;
            scoped.torn = !told || is_silent || (scoped.torn && !behind_a_barrier);
            scoped.older.push(this.value);
            scoped.held.clone_from(&self.told[t].held);
        }
        (this.value, this.writer, this.written) = (value, t, clock[t]);
        if !ordered {
            self.race(t, word, "writes");
        }
    }

    /// These words are given out again, by somebody behind all who used them, though under `scope` it may not have been
    /// told of that. What they were is over for whoever is told of what they become. They are zero, or are zeroed next.
    pub fn renewed(&mut self, words: impl Iterator<Item = usize>) {
        for word in words {
            let this = &mut self.words[word];
            if let Some(scoped) = &mut this.scoped {
                scoped.older.push(this.value);
                scoped.torn = false;
            }
            (this.value, this.written) = (0, 0);
        }
    }

    /// Thread `t` loaded.
    pub fn read(&mut self, t: usize, word: usize, value: u64) {
        if !self.judges {
            return self.loads[t].push((word, value));
        }
        let told = self.is_told(t, word);
        let (clock, this) = (&self.threads[t], &mut self.words[word]);
        this.reads[t] = clock[t];
        let unordered = |added: &Added| added.by.iter().zip(clock).any(|(time, c)| time > c);
        if this.written > clock[this.writer] || this.added.as_deref().is_some_and(unordered) {
            return self.race(t, word, "reads");
        }
        if value != this.value {
            self.stale += 1;
            if this.added.is_none()
                && this.scoped.as_ref().is_some_and(|s| (s.torn || !told) && s.older.contains(&value))
            {
                return;
            }
            let (wanted, writer) = (this.value, this.writer);
            self.violations
                .push(format!("thread {t} read {value} from word {word}; thread {writer} wrote {wanted} last"));
        }
    }

    /// Thread `t` has added a number to a word atomically, and found a value there.
    pub fn added(&mut self, t: usize, word: usize, (number, found): (u64, u64)) {
        let (clock, this) = (&self.threads[t], &mut self.words[word]);
        let ordered = this.written <= clock[this.writer]
            && this.reads.iter().zip(clock).enumerate().all(|(u, (r, c))| u == t || r <= c);
        let added = this.added.get_or_insert_with(|| Box::new(Added { by: vec![0; clock.len()], found: Vec::new() }));
        added.by[t] = clock[t];
        if added.found.contains(&found) {
            self.violations.push(format!("thread {t} added to word {word} and found {found}, as another had"));
        }
        added.found.push(found);
        this.value += number;
        if !ordered {
            self.race(t, word, "adds to");
        }
    }

    /// Thread `t` is about to release a lock.
    pub fn releases(&mut self, t: usize, lock: LockId) {
        self.told[t].held.retain(|held| *held != Guard::Lock(lock));
        self.locks.insert(lock, self.threads[t].clone());
        self.threads[t][t] += 1;
    }

    /// Thread `t` begins to wait for a lock.
    pub fn waits(&mut self, t: usize, lock: LockId) {
        self.waiting.entry(lock).or_default().push((t, 0));
    }

    /// Thread `t` has acquired a lock.
    pub fn acquired(&mut self, t: usize, lock: LockId) {
        let waiting = self.waiting.entry(lock).or_default();
        waiting.retain(|(who, _)| *who != t);
        for (who, turns) in waiting {
            *turns += 1;
            if *turns == TURNS_MOST {
                self.violations.push(format!("thread {who} waits while others have acquired {lock:?} {turns} times"));
            }
        }
        self.told[t].held.push(Guard::Lock(lock));
        if let Some(clock) = self.locks.get(&lock) {
            join(&mut self.threads[t], clock);
            self.told[t].by_locks.insert(Guard::Lock(lock), clock.clone());
        }
    }

    /// Thread `t` is about to raise a flag.
    pub fn sets(&mut self, t: usize, flag: FlagId, value: u64) {
        self.flags.insert((flag, value), (t, self.threads[t].clone()));
        self.threads[t][t] += 1;
    }

    /// Thread `t` has seen a flag raised.
    pub fn awaited(&mut self, t: usize, flag: FlagId, value: u64) {
        match self.flags.get(&(flag, value)) {
            Some((raiser, clock)) => {
                join(&mut self.threads[t], clock);
                let told = &mut self.told[t].by_others[*raiser];
                *told = (*told).max(clock[*raiser]);
            }
            None => {
                self.violations.push(format!("thread {t} saw flag {flag:?} at {value}, which nobody raised so far"))
            }
        }
    }

    /// Thread `t` comes to a barrier.
    pub fn arrives(&mut self, t: usize, barrier: u32) {
        let clock = self.threads[t].clone();
        join(self.barriers.entry(barrier).or_insert_with(|| vec![0; clock.len()]), &clock);
        self.threads[t][t] += 1;
    }

    /// Thread `t` has passed a barrier.
    pub fn passed(&mut self, t: usize, barrier: u32) {
        if let Some(clock) = self.barriers.get(&barrier) {
            join(&mut self.threads[t], clock);
            self.told[t].by_barriers.clone_from(clock);
        }
    }

    /// A thread comes to a barrier with a number.
    pub fn adds(&mut self, barrier: u32, number: u64) {
        let sum = self.sums.entry(barrier).or_default();
        *sum = sum.wrapping_add(number);
    }

    /// Thread `t` was given the sum there.
    pub fn reduced(&mut self, t: usize, barrier: u32, sum: u64) {
        let wanted = self.sums.get(&barrier).copied().unwrap_or_default();
        if sum != wanted {
            self.violations.push(format!("thread {t} was given {sum} for the sum of all, which is {wanted}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_read_is_seen_and_so_is_a_race() {
        let lock = LockId(0);
        let mut judge = Judge::new(2, 1);
        judge.wrote(0, 0, 5);
        judge.releases(0, lock);
        judge.acquired(1, lock);
        judge.read(1, 0, 5);
        assert!(judge.violations.is_empty());
        judge.read(1, 0, 0);
        assert_eq!(judge.stale, 1);
        judge.wrote(0, 0, 6);
        assert!(judge.violations[1].contains("races"), "{:?}", judge.violations);
    }

    #[test]
    fn under_scope_a_read_is_judged_by_the_lock_under_which_the_word_was_written() {
        let (of, second) = (LockId(0), LockId(1));
        // Word 0 is under `scope`, word 1 is not.
        let mut judge = Judge::new(2, 2).with_scope(1, |word| word == 0);
        judge.acquired(0, of);
        (0..2).for_each(|word| judge.wrote(0, word, 5));
        judge.releases(0, of);
        judge.acquired(0, second);
        judge.releases(0, second);
        judge.acquired(1, second);
        judge.read(1, 0, 0);
        judge.read(1, 0, 5);
        assert!(judge.violations.is_empty(), "the second lock promises nothing: {:?}", judge.violations);
        judge.read(1, 1, 0);
        assert!(judge.violations[0].contains("word 1"), "under hlrc it does: {:?}", judge.violations);
        judge.releases(1, second);
        judge.acquired(1, of);
        judge.read(1, 0, 0);
        assert!(judge.violations[1].contains("word 0"), "the lock itself does: {:?}", judge.violations);
        judge.read(1, 0, 3);
        assert!(judge.violations[2].contains("read 3"), "and what was never written is always wrong");
    }

    #[test]
    fn what_memory_was_before_it_was_given_out_again_is_wrong_for_who_is_told_of_it() {
        let flag = FlagId(3);
        let mut judge = Judge::new(3, 1).with_scope(1, |_| true);
        judge.wrote(0, 0, 5);
        judge.sets(0, flag, 1);
        judge.awaited(1, flag, 1);
        judge.renewed(0..1);
        judge.wrote(1, 0, 0);
        judge.sets(1, flag, 2);
        judge.awaited(2, flag, 2);
        judge.read(2, 0, 0);
        assert!(judge.violations.is_empty() && !judge.may_end_as(0, 5), "{:?}", judge.violations);
        judge.read(2, 0, 5);
        assert!(judge.violations[0].contains("read 5"), "{:?}", judge.violations);
    }

    #[test]
    fn under_scope_of_two_writes_without_a_lock_in_common_either_may_last() {
        let second = LockId(1);
        let mut judge = Judge::new(2, 1).with_scope(1, |_| true);
        judge.wrote(0, 0, 5);
        judge.acquired(0, second);
        judge.releases(0, second);
        judge.acquired(1, second);
        judge.wrote(1, 0, 6);
        assert!(judge.may_end_as(0, 5) && judge.may_end_as(0, 6) && !judge.may_end_as(0, 7));
        (0..2).for_each(|t| judge.arrives(t, 0));
        (0..2).for_each(|t| judge.passed(t, 0));
        judge.read(1, 0, 5);
        judge.wrote(1, 0, 7);
        assert!(!judge.may_end_as(0, 5) && judge.may_end_as(0, 7), "settled by a write behind a barrier");
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
    }
}
