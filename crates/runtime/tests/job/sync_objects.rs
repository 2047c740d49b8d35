//! Jobs that synchronise with semaphores, condition variables and reader-writer locks.

use comem::{Comem, ConditionId, FlagId, LockId, ObjectArray, ObjectOptions, RwLockId, SemaphoreId, Thread};

const ROUNDS: usize = 40;

/// One thing after the other; each leaves the counts as it found them.
pub fn play(comem: &Comem) {
    let units = ObjectOptions { unit_elements: 1, ..ObjectOptions::default() };
    let counts = comem.object_array_with::<u64>(4, &units).expect("an array");
    comem.parallel(|t| {
        pass_a_turn_round(t, &counts);
        fill_and_empty_a_buffer(t, &counts);
        read_what_writers_keep_equal(t, &counts);
        try_a_lock_that_others_hold(t);
        take_what_was_posted(t);
    });
}

/// Every thread says far more than fits into a window, waits for none of it, and ends.
pub fn say_much(comem: &Comem) {
    const MANY: u64 = 60_000;
    comem.parallel(|t| {
        let (me, next) = (t.id() as u64, ((t.id() + 1) % t.threads()) as u64);
        (0..MANY).for_each(|i| t.flag_set(FlagId(me * MANY + i), 1));
        (0..MANY).step_by(997).for_each(|i| assert_eq!(t.flag_wait(FlagId(next * MANY + i), 1), 1));
        (0..MANY).for_each(|i| t.cond_notify_one(ConditionId(me * MANY + i)));
    });
}

/// A lock goes from node 0 to node 1 while a thread of node 0 still waits for it. Its neighbour then says far more than
/// fits into a window, and node 1 lets the lock go when it has heard the last of it.
pub fn say_much_while_a_neighbour_waits(comem: &Comem) {
    const MANY: u64 = 24_000;
    let (lock, moment) = (LockId(3), std::time::Duration::from_millis(10));
    let taken = comem.object_array::<u32>(1).expect("an array");
    comem.parallel(|t| {
        t.barrier();
        match t.id() {
            0 | 1 => {
                // Each waits whenever the other lets go, until the lock has been passed on here often enough.
                while taken.read(t, 0) == 0 {
                    t.locked(lock, || std::thread::sleep(2 * moment));
                    std::thread::sleep(moment);
                }
                (0..MANY).for_each(|i| t.flag_set(FlagId(i), 1));
            }
            2 => {
                std::thread::sleep(5 * moment);
                t.locked(lock, || {
                    taken.write(t, 0, 1);
                    (0..MANY).rev().step_by(997).for_each(|i| assert_eq!(t.flag_wait(FlagId(i), 1), 1));
                });
            }
            _ => {}
        }
    });
}

/// Each thread has a semaphore; a turn goes round, and whoever has it counts.
fn pass_a_turn_round(t: &Thread, counts: &ObjectArray<u64>) {
    let next = SemaphoreId(((t.id() + 1) % t.threads()) as u64);
    for round in 0..ROUNDS {
        if t.id() > 0 || round > 0 {
            t.sem_wait(SemaphoreId(t.id() as u64));
        }
        let before = counts.read(t, 0);
        assert_eq!(before, (round * t.threads() + t.id()) as u64, "somebody went out of turn");
        counts.write(t, 0, before + 1);
        t.sem_post(next);
    }
    t.barrier();
    if t.id() == 0 {
        t.sem_wait(SemaphoreId(0));
        counts.write(t, 0, 0);
    }
    t.barrier();
}

/// Every thread puts in and takes out as much; there is room for one thing.
fn fill_and_empty_a_buffer(t: &Thread, counts: &ObjectArray<u64>) {
    let (lock, room, filled) = (LockId(1), ConditionId(1), ConditionId(2));
    for round in 0..ROUNDS {
        let mut held = t.lock(lock);
        while counts.read(t, 1) == 1 {
            held = t.cond_wait(room, held);
        }
        counts.write(t, 1, 1);
        drop(held);
        t.cond_notify_one(filled); // without the lock, which is allowed
        let mut held = t.lock(lock);
        while counts.read(t, 1) == 0 {
            held = t.cond_wait(filled, held);
        }
        counts.write(t, 1, 0);
        if round % 2 == 0 {
            t.cond_notify_one(room)
        } else {
            t.cond_notify_all(room)
        }
        drop(held);
    }
    t.barrier();
    assert_eq!(counts.read(t, 1), 0);
}

fn read_what_writers_keep_equal(t: &Thread, counts: &ObjectArray<u64>) {
    let lock = RwLockId(1);
    for round in 0..ROUNDS {
        if (round + t.id()).is_multiple_of(4) {
            let _writes = t.write_lock(lock);
            let value = counts.read(t, 2) + 1;
            counts.write(t, 2, value);
            counts.write(t, 3, value);
        }
        let _reads = t.read_lock(lock);
        assert_eq!(counts.read(t, 2), counts.read(t, 3), "a reader met a writer");
    }
    t.barrier();
    let writes = (0..t.threads()).map(|id| (0..ROUNDS).filter(|round| (round + id).is_multiple_of(4)).count());
    assert_eq!(counts.read(t, 2), writes.sum::<usize>() as u64);
}

/// All try for a reader-writer lock that one thread holds, and get it when it may be had.
fn try_a_lock_that_others_hold(t: &Thread) {
    let lock = RwLockId(3);
    let writes = (t.id() == 0).then(|| t.write_lock(lock));
    t.barrier();
    assert!(t.try_read_lock(lock).is_none() && t.try_write_lock(lock).is_none(), "one writes");
    t.barrier();
    drop(writes);
    t.barrier();
    let reads = t.read_lock(lock);
    t.barrier();
    assert!(t.try_read_lock(lock).is_some(), "all read");
    assert!(t.try_write_lock(lock).is_none(), "all read, this thread too");
    t.barrier();
    drop(reads);
    t.barrier();
    // An end is told without waiting, and so may come to the manager a moment later.
    if t.id() == 0 {
        while t.try_write_lock(lock).is_none() {
            std::thread::yield_now();
        }
    }
    t.barrier();
}

/// All post, and all try until each has got one; then there is none left.
fn take_what_was_posted(t: &Thread) {
    let semaphore = SemaphoreId(1 << 63);
    t.sem_post(semaphore);
    while !t.try_sem_wait(semaphore) {
        std::thread::yield_now();
    }
    t.barrier();
    assert!(!t.try_sem_wait(semaphore), "more was taken than posted");
    t.barrier();
}

/// Node 0 holds a lock for a while and node 1 waits for it; both ask themselves meanwhile.
pub fn ask_while_a_lock_is_held(comem: &Comem) {
    let lock = LockId(9);
    comem.parallel(|t| {
        let held = (t.id() == 0).then(|| t.lock(lock));
        t.barrier();
        if t.id() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1900));
            // SAFETY: the runtime handles the signal.
            unsafe { libc::raise(libc::SIGUSR1) };
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(held);
        } else {
            std::thread::spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(1900));
                // SAFETY: as above.
                unsafe { libc::raise(libc::SIGUSR1) };
            });
            t.locked(lock, || ());
        }
    });
}

/// Three threads of node 1 wait for something each; the fourth asks its own node where they wait, and then lets them
/// go.
pub fn ask_where_it_waits(comem: &Comem) {
    let (semaphore, condition, lock, shared) = (SemaphoreId(5), ConditionId(6), LockId(6), RwLockId(7));
    let last = comem.threads() - 1;
    let done = comem.object_array::<u32>(1).expect("an array");
    comem.parallel(|t| {
        let writes = (t.id() == last).then(|| t.write_lock(shared));
        t.barrier();
        if t.id() == last - 3 {
            t.sem_wait(semaphore);
        } else if t.id() == last - 2 {
            let mut held = t.lock(lock);
            while done.read(t, 0) == 0 {
                held = t.cond_wait(condition, held);
            }
            drop(held);
        } else if t.id() == last - 1 {
            drop(t.read_lock(shared));
        } else if t.id() == last {
            for _ in 0..30 {
                // SAFETY: the runtime handles the signal.
                unsafe { libc::raise(libc::SIGUSR1) };
                std::thread::sleep(std::time::Duration::from_millis(60));
            }
            t.sem_post(semaphore);
            drop(writes);
            let held = t.lock(lock);
            done.write(t, 0, 1);
            t.cond_notify_all(condition);
            drop(held);
        }
    });
}
