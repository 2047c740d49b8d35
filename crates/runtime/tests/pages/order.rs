//! A read sees what was written before, whatever orders the two. A flag, a semaphore or another lock than the one under
//! which it was written orders nothing under `scope`, so these are left out there.
//!
//! Where a region names its engine, the job's does not matter.

use crate::matrix::{orders_everything, times};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{PageEngine, PageSlice, RegionOptions};
use comem::{Comem, ConditionId, FlagId, LockId, Operator, RwLockId, SemaphoreId, Thread};

const ROUNDS: usize = 12;
/// Words of a record, one in each of so many pages.
const PARTS: usize = 3;

fn write_record(slice: &PageSlice<u64>, value: u64) {
    for part in 0..PARTS {
        slice.set(part * WORDS + part * 17, value);
    }
}

fn read_record(slice: &PageSlice<u64>) -> u64 {
    let parts: [u64; PARTS] = std::array::from_fn(|part| slice.get(part * WORDS + part * 17));
    assert!(parts.iter().all(|p| *p == parts[0]), "a record in parts: {parts:?}");
    parts[0]
}

fn on_record(comem: &Comem, f: impl Fn(&Thread, &PageSlice<u64>) + Sync) {
    let slice = pages_of(comem, PARTS, &RegionOptions::default());
    comem.parallel(|t| f(t, &slice));
    give_back(comem, slice);
}

/// A record of several pages, counted up by all under a lock.
pub fn locks(comem: &Comem) {
    on_record(comem, |t, record| {
        for _ in 0..ROUNDS {
            t.locked(LockId(3), || write_record(record, read_record(record) + 1));
        }
        t.barrier();
        assert_eq!(read_record(record), (ROUNDS * t.threads()) as u64);
    });
}

/// Many counters that share pages, each under a lock of its own, which all threads want all the time: so nodes take
/// turns.
pub fn many_locks(comem: &Comem) {
    const LOCKS: usize = 24;
    let steps = times(400);
    on_record(comem, |t, counters| {
        let place = |n: usize| n % PARTS * WORDS + n / PARTS * 5;
        for step in 0..steps {
            let n = (step * 7 + t.id() * 11 + step / 5) % LOCKS;
            t.locked(LockId(100 + n as u64), || counters.set(place(n), counters.get(place(n)) + 1));
        }
        t.barrier();
        let sum: u64 = (0..LOCKS).map(|n| counters.get(place(n))).sum();
        assert_eq!(sum, (steps * t.threads()) as u64);
    });
}

/// Threads take turns by a condition variable.
pub fn conditions(comem: &Comem) {
    let (lock, turn) = (LockId(4), ConditionId(4));
    on_record(comem, |t, record| {
        for round in 0..ROUNDS {
            let mut held = t.lock(lock);
            while read_record(record) as usize % t.threads() != t.id() {
                held = t.cond_wait(turn, held);
            }
            assert_eq!(read_record(record) as usize, round * t.threads() + t.id());
            write_record(record, read_record(record) + 1);
            t.cond_notify_all(turn);
            drop(held);
        }
        t.barrier();
        assert_eq!(read_record(record), (ROUNDS * t.threads()) as u64);
    });
}

/// Readers never see half of a record, and no write is lost.
pub fn readers_and_writers(comem: &Comem) {
    let lock = RwLockId(5);
    on_record(comem, |t, record| {
        let mut before = 0;
        for round in 0..ROUNDS {
            if (round + t.id()).is_multiple_of(3) {
                let writes = t.write_lock(lock);
                write_record(record, read_record(record) + 1);
                drop(writes);
            }
            let reads = t.read_lock(lock);
            let now = read_record(record);
            drop(reads);
            assert!(now >= before, "a reader went back from {before} to {now}");
            before = now;
        }
        t.barrier();
        let writes = (0..t.threads()).flat_map(|id| (0..ROUNDS).filter(move |r| (r + id).is_multiple_of(3)));
        assert_eq!(read_record(record), writes.count() as u64);
    });
}

/// A reduction is a barrier too.
pub fn reductions(comem: &Comem) {
    on_record(comem, |t, record| {
        for round in 0..ROUNDS {
            if round % t.threads() == t.id() {
                write_record(record, round as u64 + 1);
            }
            let mut sum = [t.id() as i64];
            t.reduce_i64(Operator::Sum, &mut sum);
            assert_eq!(sum[0] as usize, t.threads() * (t.threads() - 1) / 2);
            assert_eq!(read_record(record), round as u64 + 1);
            t.reduce_i64(Operator::Max, &mut sum);
        }
    });
}

/// What a reduction stores in shared memory stays there, also in a page that another node alone has written before,
/// which so becomes its home.
pub fn reductions_into_shared_memory(comem: &Comem) {
    let slice: PageSlice<i64> = comem.page_slice(PARTS * WORDS, &RegionOptions::default()).expect("there is room");
    comem.parallel(|t| {
        let (writer, mut sum) = (t.threads() - 1, 0);
        for round in 1..=ROUNDS as i64 {
            for part in 0..PARTS {
                if t.id() == writer {
                    slice.set(part * WORDS + 300, round);
                }
                // The first thread adds what it has there from the round before, so that it does not write before the
                // call.
                let mut own = [round; 2];
                let values = match t.id() {
                    // SAFETY: two words of the slice, which nobody else uses now.
                    0 => unsafe { std::slice::from_raw_parts_mut(slice.as_ptr().add(part * WORDS), 2) },
                    _ => &mut own,
                };
                t.reduce_i64(Operator::Sum, values);
            }
            t.barrier();
            sum += round * (t.threads() - 1) as i64;
            for part in 0..PARTS {
                let found = [0, 1, 300].map(|word| slice.get(part * WORDS + word));
                assert_eq!(found, [sum, sum, round], "part {part}, round {round}");
            }
            t.barrier();
        }
        t.barrier();
    });
    comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
}

/// One thread of each node allocates, for its node; the others have a sum to look at, and go to the next barrier.
pub fn allocations_beside_others(comem: &Comem) {
    comem.parallel(|t| {
        for round in 0..ROUNDS {
            let mut sum = [(round * t.threads() + t.id()) as i64];
            t.reduce_i64(Operator::Sum, &mut sum);
            if t.id() % comem.threads_per_node() == round % comem.threads_per_node() {
                let slice = pages_of(comem, 1, &RegionOptions::default());
                assert_eq!(slice.get(round), 0);
            }
            let expected = round * t.threads() * t.threads() + t.threads() * (t.threads() - 1) / 2;
            assert_eq!(sum[0] as usize, expected, "round {round}");
            t.barrier();
        }
    });
}

/// A record that goes from thread to thread by flags.
pub fn flags(comem: &Comem) {
    if !orders_everything(comem) {
        return;
    }
    on_record(comem, |t, record| {
        for round in 0..ROUNDS {
            let turn = (round * t.threads() + t.id()) as u64;
            t.flag_wait(FlagId(9), turn);
            assert_eq!(read_record(record), turn);
            write_record(record, turn + 1);
            t.flag_set(FlagId(9), turn + 1);
        }
        t.flag_wait(FlagId(9), (ROUNDS * t.threads()) as u64);
        assert_eq!(read_record(record), (ROUNDS * t.threads()) as u64);
    });
    // Flags never go down: the next run of this scenario in the same job would find it raised.
}

/// A record that goes round by semaphores.
pub fn semaphores(comem: &Comem) {
    if !orders_everything(comem) {
        return;
    }
    let of = |id: usize| SemaphoreId(100 + id as u64);
    on_record(comem, |t, record| {
        for round in 0..ROUNDS {
            if round > 0 || t.id() > 0 {
                t.sem_wait(of(t.id()));
            }
            let turn = (round * t.threads() + t.id()) as u64;
            assert_eq!(read_record(record), turn);
            write_record(record, turn + 1);
            t.sem_post(of((t.id() + 1) % t.threads()));
        }
        if t.id() == 0 {
            t.sem_wait(of(0));
        }
        t.barrier();
    });
}

/// Fill the buffer without a lock; then, under a lock, say that it is full.
pub fn a_second_lock(comem: &Comem) {
    if !orders_everything(comem) {
        return;
    }
    let slice = pages_of(comem, PARTS + 1, &RegionOptions::default());
    let ready = PARTS * WORDS;
    comem.parallel(|t| {
        for round in 1..=ROUNDS as u64 {
            if round as usize % t.threads() == t.id() {
                write_record(&slice, round);
                t.locked(LockId(6), || slice.set(ready, round));
            }
            while t.locked(LockId(6), || slice.get(ready)) < round {
                std::thread::yield_now();
            }
            assert_eq!(read_record(&slice), round);
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// A record in a region of this engine, whatever the job's is.
fn record_under(comem: &Comem, engine: PageEngine) -> PageSlice<u64> {
    pages_of(comem, PARTS + 1, &RegionOptions { engine: Some(engine), ..RegionOptions::default() })
}

/// What is written under a lock says in a region under `scope` that a region under `hlrc` was filled without one, and
/// the other way round: the reader who sees the sign sees what it stands for, except that a region under `scope` must
/// have been written under the same lock.
pub fn both_engines_in_one_program(comem: &Comem) {
    let (free, scoped) = (record_under(comem, PageEngine::Hlrc), record_under(comem, PageEngine::Scope));
    let lock = LockId(7);
    comem.parallel(|t| {
        for round in 1..=ROUNDS as u64 {
            if round as usize % t.threads() == t.id() {
                write_record(&free, round);
                t.locked(lock, || write_record(&scoped, round));
            }
            // Many small critical sections of other locks, so that notices of both come through various tokens.
            let counter = PARTS * WORDS + t.id() % 3;
            for slice in [&free, &scoped] {
                t.locked(LockId(8 + t.id() as u64 % 3), || slice.set(counter, slice.get(counter) + 1));
            }
            while t.locked(lock, || read_record(&scoped)) < round {
                std::thread::yield_now();
            }
            assert_eq!(read_record(&free), round, "a lock brings all that happened before, for a region under hlrc");
            t.barrier();
        }
        for slice in [&free, &scoped] {
            let sum: u64 = (0..3).map(|n| slice.get(PARTS * WORDS + n)).sum();
            assert_eq!(sum as usize, ROUNDS * t.threads(), "increments were lost");
        }
    });
    give_back(comem, free);
    give_back(comem, scoped);
}

/// A chain of semaphores orders what everybody in it wrote, for a region under `hlrc` in a job under any engine, with
/// one under `scope` in use beside it.
pub fn chains_beside_scope(comem: &Comem) {
    let (record, beside) = (record_under(comem, PageEngine::Hlrc), record_under(comem, PageEngine::Scope));
    let of = |id: usize| SemaphoreId(200 + id as u64);
    // Each thread has a word in a page, beside others' words.
    let word = |id: usize| id % PARTS * WORDS + id;
    comem.parallel(|t| {
        let turn = |round: usize, id: usize| (round * t.threads() + id + 1) as u64;
        for round in 0..ROUNDS {
            if round > 0 || t.id() > 0 {
                t.sem_wait(of(t.id()));
            }
            for id in 0..t.threads() {
                let rounds = if id < t.id() { round + 1 } else { round };
                let last = rounds.checked_sub(1).map_or(0, |round| turn(round, id));
                assert_eq!(record.get(word(id)), last, "round {round}: thread {} reads what thread {id} wrote", t.id());
            }
            record.set(word(t.id()), turn(round, t.id()));
            beside.set(word(t.id()), turn(round, t.id()));
            t.sem_post(of((t.id() + 1) % t.threads()));
        }
        if t.id() == 0 {
            t.sem_wait(of(0));
        }
        t.barrier();
        let last = |id: usize| turn(ROUNDS - 1, id);
        (0..t.threads()).for_each(|id| assert_eq!(beside.get(word(id)), last(id), "a barrier brings everything"));
    });
    give_back(comem, record);
    give_back(comem, beside);
}

/// Far more barriers than a node has seconds for.
pub fn many_barriers(comem: &Comem) {
    on_record(comem, |t, _| (0..3000).for_each(|_| t.barrier()));
}
