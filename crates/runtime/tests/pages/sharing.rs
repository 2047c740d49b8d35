//! How data is shared: neighbours in a page, data that travels with a lock, producers and consumers.

use crate::matrix::{orders_everything, times};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, RegionOptions};
use comem::{Comem, FlagId, LockId, NodeId, Thread};

/// Every thread writes words of its own in the same pages, and nobody's words get lost.
pub fn neighbours_in_a_page(comem: &Comem) {
    let rounds = 8;
    for homes in [Home::On(NodeId(0)), Home::Automatic] {
        let slice = pages_of(comem, 3, &RegionOptions { home: homes, ..RegionOptions::default() });
        comem.parallel(|t| {
            for _ in 0..rounds {
                for index in (t.id()..slice.len()).step_by(t.threads()) {
                    slice.set(index, slice.get(index) + index as u64);
                }
                t.barrier();
            }
            for index in 0..slice.len() {
                assert_eq!(slice.get(index), rounds * index as u64, "word {index}");
            }
        });
        give_back(comem, slice);
    }
}

/// A counter in one page and the history of its holders in others, all under one lock.
pub fn a_counter_that_travels(comem: &Comem) {
    let rounds = 15;
    let slice = pages_of(comem, 2, &RegionOptions::default());
    comem.parallel(|t| {
        for _ in 0..rounds {
            t.locked(LockId(21), || {
                let count = slice.get(0);
                slice.set(WORDS + count as usize, t.id() as u64 + 1);
                slice.set(0, count + 1);
            });
            // Another lock between does not disturb, nor does taking the same one again.
            t.locked(LockId(22), || ());
        }
        t.barrier();
        assert_eq!(slice.get(0), (rounds * t.threads()) as u64);
        for id in 0..t.threads() {
            let times = (0..rounds * t.threads()).filter(|i| slice.get(WORDS + i) == id as u64 + 1).count();
            assert_eq!(times, rounds, "thread {id} has been there as often as it counted");
        }
    });
    give_back(comem, slice);
}

/// Bytes that this process has of its own, not counting shared memory.
pub fn own_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let fields: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    fields.get(1).zip(fields.get(2)).map_or(0, |(all, shared)| (all - shared) * 4096)
}

const SLOTS: u64 = 4;

/// Thread 0 fills slots, the last thread empties them; flags say how far each is, and nobody meets at a barrier.
pub fn producers_and_consumers(comem: &Comem) {
    if !orders_everything(comem) || comem.threads() < 2 {
        return;
    }
    let slice = pages_of(comem, SLOTS as usize, &RegionOptions::default());
    let items = times(400) as u64;
    let (filled, emptied) = (FlagId(31), FlagId(32));
    comem.parallel(|t| {
        let slot = |item: u64| (item % SLOTS) as usize * WORDS;
        if t.id() == 0 {
            for item in 1..=items {
                t.flag_wait(emptied, item.saturating_sub(SLOTS));
                (0..64).for_each(|word| slice.set(slot(item) + word * 8, item * 100 + word as u64));
                t.flag_set(filled, item);
            }
        } else if t.id() + 1 == t.threads() {
            consume(t, items, |item| {
                t.flag_wait(filled, item);
                for word in 0..64 {
                    assert_eq!(slice.get(slot(item) + word * 8), item * 100 + word as u64, "item {item}");
                }
                t.flag_set(emptied, item);
            });
        }
    });
    give_back(comem, slice);
}

/// What is remembered of old items must not pile up, although no barrier clears it.
fn consume(t: &Thread, items: u64, take: impl Fn(u64)) {
    (1..=items / 2).for_each(&take);
    let half = own_bytes();
    (items / 2 + 1..=items).for_each(&take);
    let grown = own_bytes().saturating_sub(half);
    assert!(grown < 2 << 20, "thread {}: {grown} bytes more after {} more items", t.id(), items / 2);
}
