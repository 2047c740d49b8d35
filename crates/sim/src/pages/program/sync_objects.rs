//! Programs around semaphores, reader-writer locks, condition variables, reductions and barriers of some threads
//! (meetings).
//!
//! Names of semaphores and condition variables are of one phase, so that what is left of one phase wakes nobody in the
//! next.

use super::{Maker, Op};
use comem_protocol::ids::{FlagId, LockId};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;

impl Maker<'_> {
    /// Most releases that can be told do not wait until they count.
    fn post(&mut self, who: usize, semaphore: SemaphoreId) {
        let op = if self.below(4) == 0 { Op::Give(semaphore) } else { Op::Post(semaphore) };
        self.program(who).push(op);
    }

    /// Counts in a word under a semaphore of one.
    fn count_under(&mut self, who: usize, guard: SemaphoreId, word: usize) {
        self.program(who).extend([Op::Take(guard), Op::Read(word), Op::WriteNext(word)]);
        self.post(who, guard);
    }

    pub(super) fn semaphores(&mut self, phase: u64) {
        let count = self.places.len();
        let name = |number: usize| SemaphoreId(100 * phase + number as u64);
        let words = self.shuffled();
        let (counter, words) = (words[0], &words[1..]);
        let (own, words) = words.split_at(count);
        let (guard, done, go) = (name(0), name(1), name(2));
        let first = self.below(count);
        self.program(first).push(Op::Post(guard));
        // Buffers of a few words, handed back and forth by pairs.
        let pairs = count / 2;
        let share = words.len() / pairs;
        for pair in 0..pairs {
            let (producer, consumer) = (pair, count - 1 - pair);
            let (full, empty) = (name(10 + 2 * pair), name(11 + 2 * pair));
            let slots = 1 + self.below(share.min(3));
            (0..slots).for_each(|_| self.program(consumer).push(Op::Post(empty)));
            for round in 0..3 + self.below(3) {
                let slot = words[pair * share + round % slots];
                let value = self.value();
                self.program(producer).extend([Op::Take(empty), Op::Write(slot, value)]);
                self.post(producer, full);
                self.program(consumer).extend([Op::Take(full), Op::Read(slot)]);
                self.post(consumer, empty);
                match self.below(4) {
                    0 => self.think(producer),
                    1 => self.think(consumer),
                    2 => self.count_under(producer, guard, counter),
                    _ => self.count_under(consumer, guard, counter),
                }
            }
        }
        // One waits for all others, and they for it.
        let collector = self.below(count);
        for who in (0..count).filter(|who| *who != collector) {
            let value = self.value();
            self.program(who).push(Op::Write(own[who], value));
            self.post(who, done);
            self.program(who).extend([Op::Take(go), Op::Read(own[collector])]);
            self.program(collector).push(Op::Take(done));
        }
        own.iter().for_each(|word| self.program(collector).push(Op::Read(*word)));
        let value = self.value();
        self.program(collector).push(Op::Write(own[collector], value));
        (1..count).for_each(|_| self.post(collector, go));
    }

    pub(super) fn readers(&mut self) {
        let count = self.places.len();
        let words = self.shuffled();
        let halves: Vec<&[usize]> = words.chunks(words.len() / 2).collect();
        for who in 0..count {
            for _ in 0..3 + self.below(4) {
                let which = self.below(2);
                let (marks, table) = halves[which].split_at(count);
                let lock = RwLockId(which as u64);
                if self.below(3) == 0 {
                    self.program(who).push(Op::WriteLock(lock));
                    for _ in 0..1 + self.below(3) {
                        self.read_or_write(who, table);
                    }
                    let mark = marks[self.below(count)];
                    self.program(who).push(Op::Read(mark));
                } else {
                    self.program(who).push(Op::ReadLock(lock));
                    for _ in 0..1 + self.below(2) {
                        let word = table[self.below(table.len())];
                        self.program(who).push(Op::Read(word));
                    }
                    let value = self.value();
                    let mark = (self.below(2) == 0).then_some(Op::Write(marks[who], value));
                    self.program(who).extend(mark);
                }
                self.program(who).push(Op::RwUnlock(lock));
                if self.below(2) == 0 {
                    self.think(who);
                }
            }
        }
    }

    /// Signals, or tells all, under the lock or behind it; mostly the former.
    fn signal_and_unlock(&mut self, who: usize, condition: ConditionId, lock: LockId) {
        let signal = if self.below(4) == 0 { Op::Broadcast(condition) } else { Op::Signal(condition) };
        let ops = if self.below(3) == 0 { [Op::Unlock(lock), signal] } else { [signal, Op::Unlock(lock)] };
        self.program(who).extend(ops);
    }

    pub(super) fn conditions(&mut self, phase: u64) {
        let count = self.places.len();
        let name = |number: usize| ConditionId(100 * phase + number as u64);
        let words = self.shuffled();
        let (items, room) = (words[0], words[1]);
        let (some, space, lock) = (name(0), name(1), LockId(7));
        let slots = 1 + self.below(3);
        let (buffer, words) = words[2..].split_at(slots);
        self.program(0).extend([Op::Write(items, 0), Op::Write(room, slots as u64)]);
        (0..count / 2).for_each(|pair| self.program(0).push(Op::Write(words[2 * pair], 0)));
        self.barrier();
        // Threads with even numbers fill a bounded buffer, the others empty it.
        let (producers, consumers) = (count.div_ceil(2), count / 2);
        for item in 0..producers * (2 + self.below(2)) {
            let (producer, consumer) = (2 * (item % producers), 2 * (item % consumers) + 1);
            let (slot, value) = (buffer[item % slots], self.value());
            self.program(producer).extend([Op::Lock(lock), Op::Read(room), Op::CondWaitIfZero(space, lock)]);
            self.program(producer).extend([Op::WriteLess(room), Op::Write(slot, value), Op::Read(items)]);
            self.program(producer).push(Op::WriteNext(items));
            self.signal_and_unlock(producer, some, lock);
            self.program(consumer).extend([Op::Lock(lock), Op::Read(items), Op::CondWaitIfZero(some, lock)]);
            self.program(consumer).extend([Op::WriteLess(items), Op::Read(slot), Op::Read(room)]);
            self.program(consumer).push(Op::WriteNext(room));
            self.signal_and_unlock(consumer, space, lock);
            let who = if self.below(2) == 0 { producer } else { consumer };
            self.think(who);
        }
        // One thread of each pair waits, and what the other wrote it is told by the signal itself.
        for pair in 0..count / 2 {
            let (waits, signals) = (pair, count - 1 - pair);
            let (lock, ready, heard) = (LockId(20 + pair as u64), name(10 + 2 * pair), name(11 + 2 * pair));
            let (sign, data) = (words[2 * pair], words[2 * pair + 1]);
            let (value, signed) = (self.value(), self.value());
            self.program(waits).extend([Op::Lock(lock), Op::Write(sign, signed), Op::Signal(ready)]);
            self.program(waits).extend([Op::CondWait(heard, lock), Op::Read(data), Op::Unlock(lock)]);
            self.program(signals).extend([Op::Lock(lock), Op::Read(sign), Op::CondWaitIfZero(ready, lock)]);
            self.program(signals).extend([Op::Unlock(lock), Op::Write(data, value)]);
            let signal = if self.below(2) == 0 { Op::Broadcast(heard) } else { Op::Signal(heard) };
            self.program(signals).push(signal);
        }
    }

    /// Words dealt out to the threads.
    fn shares(&mut self) -> Vec<Vec<usize>> {
        let (count, words) = (self.places.len(), self.shuffled());
        (0..count).map(|who| words.iter().skip(who).step_by(count).copied().collect()).collect()
    }

    pub(super) fn reductions(&mut self) {
        let shares = self.shares();
        for _ in 0..2 + self.below(2) {
            for (who, own) in shares.iter().enumerate() {
                for word in &own[..1 + self.below(own.len())] {
                    let value = self.value();
                    self.program(who).push(Op::Write(*word, value));
                }
                if self.below(2) == 0 {
                    self.think(who);
                }
                let number = self.value();
                self.program(who).push(Op::Reduce(number));
                for _ in 0..3 {
                    let other = &shares[self.below(shares.len())];
                    let word = other[self.below(other.len())];
                    self.program(who).push(Op::Read(word));
                }
                // What comes of the next one is kept.
                self.program(who).extend([Op::Reduce(number / 2), Op::WriteBack(own[0])]);
            }
        }
    }

    pub(super) fn meetings(&mut self, phase: u64) {
        let shares = self.shares();
        let mut all: Vec<usize> = (0..shares.len()).collect();
        (1..all.len()).rev().for_each(|i| all.swap(i, self.rng.below(i as u64 + 1) as usize));
        let first = 2 + self.below(all.len() - 1);
        for (number, group) in [&all[..first], &all[first..]].into_iter().enumerate() {
            let meet = Op::BarrierOf(SubsetBarrierId(10 * phase + number as u64), group.len() as u32);
            for _ in 0..2 + self.below(2) {
                for who in group.iter().copied() {
                    for word in &shares[who][..1 + self.below(shares[who].len())] {
                        let value = self.value();
                        self.program(who).push(Op::Write(*word, value));
                    }
                    if self.below(2) == 0 {
                        self.think(who);
                    }
                    self.program(who).push(meet);
                    for _ in 0..3 {
                        let other = &shares[group[self.below(group.len())]];
                        let word = other[self.below(other.len())];
                        self.program(who).push(Op::Read(word));
                    }
                    self.program(who).push(meet);
                }
            }
        }
    }

    pub(super) fn relay(&mut self, phase: u64) {
        let words = self.shuffled();
        let count = self.places.len();
        let (start, turn) = (self.below(count), self.below(3));
        let (counters, own) = words.split_at(2);
        for step in 0..2 * count {
            let (who, number) = (start + step, 100 * phase + step as u64 + 1);
            if step > 0 {
                let [_, takes] = Self::link(step + turn, number - 1);
                // What the thread before the last has written it has not said to this one itself.
                let before = own[step.saturating_sub(2) % own.len()];
                self.program(who).extend([takes, Op::Read(before)]);
            }
            for word in counters {
                self.program(who).extend([Op::Read(*word), Op::WriteNext(*word)]);
            }
            let value = self.value();
            self.program(who).push(Op::Write(own[step % own.len()], value));
            if step + 1 < 2 * count {
                let [gives, _] = Self::link(step + 1 + turn, number);
                self.program(who).push(gives);
            }
        }
    }

    /// How a thread hands on what it has, and the next one takes it.
    fn link(way: usize, number: u64) -> [Op; 2] {
        let (semaphore, flag, meet) = (SemaphoreId(number), FlagId(number), Op::BarrierOf(SubsetBarrierId(number), 2));
        match way % 3 {
            0 => [Op::Post(semaphore), Op::Take(semaphore)],
            1 => [meet, meet],
            _ => [Op::Set(flag, 1), Op::Await(flag, 1)],
        }
    }
}
