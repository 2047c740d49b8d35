//! What a read must return: in a program without races the writes of a word are in one order, and every read happens after the last of
//! those before it.
//!
//! A judge follows the program's synchronisation with vector clocks while it runs, says which value a read must return, and
//! whether the program races after all.

use comem_protocol::ids::{FlagId, LockId};
use std::collections::BTreeMap;

type Clock = Vec<u32>;

#[derive(Clone, Debug)]
struct Word {
    value: u64,
    writer: usize,
    written: u32,
    /// The clock of each thread at its last read.
    reads: Clock,
}

/// Judges the accesses of one run.
#[derive(Clone, Debug)]
pub struct Judge {
    threads: Vec<Clock>,
    words: Vec<Word>,
    locks: BTreeMap<LockId, Clock>,
    flags: BTreeMap<(FlagId, u64), Clock>,
    barriers: BTreeMap<u32, Clock>,
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
        let word = Word { value: 0, writer: 0, written: 0, reads: vec![0; threads] };
        Judge {
            threads: (0..threads).map(start).collect(),
            words: vec![word; words],
            locks: BTreeMap::new(),
            flags: BTreeMap::new(),
            barriers: BTreeMap::new(),
            violations: Vec::new(),
            stale: 0,
        }
    }

    /// The value that was written last.
    pub fn last(&self, word: usize) -> u64 {
        self.words[word].value
    }

    fn race(&mut self, t: usize, word: usize, what: &str) {
        self.violations.push(format!("the program races: thread {t} {what} word {word} at the same time as another"));
    }

    /// Thread `t` stored.
    pub fn wrote(&mut self, t: usize, word: usize, value: u64) {
        let (clock, this) = (&self.threads[t], &mut self.words[word]);
        let ordered = this.written <= clock[this.writer] && this.reads.iter().zip(clock).all(|(r, c)| r <= c);
        (this.value, this.writer, this.written) = (value, t, clock[t]);
        if !ordered {
            self.race(t, word, "writes");
        }
    }

    /// Thread `t` loaded.
    pub fn read(&mut self, t: usize, word: usize, value: u64) {
        let (clock, this) = (&self.threads[t], &mut self.words[word]);
        this.reads[t] = clock[t];
        if this.written > clock[this.writer] {
            return self.race(t, word, "reads");
        }
        if value != this.value {
            self.stale += 1;
            let (wanted, writer) = (this.value, this.writer);
            self.violations
                .push(format!("thread {t} read {value} from word {word}; thread {writer} wrote {wanted} last"));
        }
    }

    /// Thread `t` is about to release a lock.
    pub fn releases(&mut self, t: usize, lock: LockId) {
        self.locks.insert(lock, self.threads[t].clone());
        self.threads[t][t] += 1;
    }

    /// Thread `t` has acquired a lock.
    pub fn acquired(&mut self, t: usize, lock: LockId) {
        if let Some(clock) = self.locks.get(&lock) {
            join(&mut self.threads[t], clock);
        }
    }

    /// Thread `t` is about to raise a flag.
    pub fn sets(&mut self, t: usize, flag: FlagId, value: u64) {
        self.flags.insert((flag, value), self.threads[t].clone());
        self.threads[t][t] += 1;
    }

    /// Thread `t` has seen a flag raised.
    pub fn awaited(&mut self, t: usize, flag: FlagId, value: u64) {
        match self.flags.get(&(flag, value)) {
            Some(clock) => join(&mut self.threads[t], clock),
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
}
