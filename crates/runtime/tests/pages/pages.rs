//! What else pages promise: read-only regions, a meeting without news, accesses across a page's end, regions with one
//! writer.

use crate::matrix::times;
use crate::placement::{WORDS, give_back, pages_of};
use comem::Comem;
use comem::heap::{PageEngine, PageSlice, RegionOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pages between two that are looked at: more than a look passes over.
const IDLE_APART: usize = 200;

fn with_one_writer() -> RegionOptions {
    RegionOptions { engine: Some(PageEngine::Msi), ..RegionOptions::default() }
}

/// A word to use as on one machine.
fn word(slice: &PageSlice<u64>, index: usize) -> &AtomicU64 {
    assert!(index < slice.len());
    // SAFETY: an aligned word of the slice, which lives as long as the scenario.
    unsafe { &*slice.as_ptr().add(index).cast() }
}

/// Memory that is filled once and then declared read-only has its contents everywhere.
pub fn declared_read_only(comem: &Comem) {
    [RegionOptions::default(), with_one_writer()].iter().for_each(|options| read_by_all(comem, options));
}

fn read_by_all(comem: &Comem, options: &RegionOptions) {
    let slice = pages_of(comem, 12, options);
    comem.parallel(|t| {
        t.split(slice.len()).for_each(|i| slice.set(i, i as u64 * 3 + 1));
        t.barrier();
    });
    comem.freeze(slice.as_ptr().cast()).expect("a region can be declared read-only");
    comem.parallel(|t| {
        for round in 0..3 {
            (round..slice.len()).step_by(11).for_each(|i| assert_eq!(slice.get(i), i as u64 * 3 + 1, "word {i}"));
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// Pages that everybody has and nobody writes for many barriers, until they are used again.
pub fn idle_for_long(comem: &Comem) {
    let slice = pages_of(comem, 2 * IDLE_APART * comem.nodes(), &RegionOptions::default());
    let place = |node: usize| 2 * IDLE_APART * node * WORDS;
    let all = |f: &dyn Fn(usize)| (0..comem.nodes()).for_each(|node| f(place(node)));
    comem.parallel(|t| {
        all(&|page| slice.set(page + t.id(), t.id() as u64 + 1));
        t.barrier();
        all(&|page| (0..t.threads()).for_each(|id| assert_eq!(slice.get(page + id), id as u64 + 1)));
        for step in 0..times(30) {
            slice.set(IDLE_APART * WORDS + t.id(), step as u64);
            t.barrier();
        }
        // Some come back by a load, some by a store, and what was untracked may end by a notice.
        let mine = place(t.node().index()) + t.id();
        slice.set(mine, slice.get(mine) + 10);
        t.barrier();
        all(&|page| slice.set(page + t.id(), slice.get(page + t.id()) + 100));
        t.barrier();
        for node in 0..comem.nodes() {
            for id in 0..t.threads() {
                let here = if id / (t.threads() / comem.nodes()) == node { 10 } else { 0 };
                assert_eq!(slice.get(place(node) + id), id as u64 + 101 + here, "thread {id} in the page of {node}");
            }
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// A thread that the program has started has a place of the node as long as it lives; no other thread is seated there.
pub fn places_of_other_threads(comem: &Comem) {
    comem.current().expect("the main thread has a place");
    if comem.threads_per_node() > 1 {
        let (arrived, goes) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(comem.current().expect("there is a free place").local_id(), 1);
                arrived.wait();
                goes.wait();
            });
            arrived.wait();
            let refused =
                comem.checked_parallel(|_| unreachable!("not all can run")).expect_err("a place is taken").to_string();
            assert!(refused.contains("place 1 of this node"), "{refused}");
            goes.wait();
            thread.join().expect("it has ended, and its place is free");
        });
    }
    comem.checked_parallel(|t| t.barrier()).expect("the place is free again");
}

/// Nobody leaves a rendezvous before everybody has come. It says nothing about memory, so who has come stands in a
/// region that is coherent without it.
pub fn a_rendezvous_holds_everybody(comem: &Comem) {
    let slice = pages_of(comem, 1, &with_one_writer());
    comem.parallel(|t| {
        for round in 1..5 {
            if round % t.threads() == t.id() {
                std::thread::sleep(Duration::from_millis(5));
            }
            word(&slice, 0).fetch_add(1, Ordering::SeqCst);
            t.checked_rendezvous().expect("all meet");
            assert_eq!(word(&slice, 0).load(Ordering::SeqCst) as usize, round * t.threads(), "somebody left early");
            t.checked_rendezvous().expect("all meet");
        }
    });
    give_back(comem, slice);
}

/// Numbers that lie half in one page and half in the next.
pub fn accesses_that_span_two_pages(comem: &Comem) {
    for options in [RegionOptions::default(), with_one_writer()] {
        let slice = pages_of(comem, 4, &options);
        let spanning = |page: usize| {
            // SAFETY: eight bytes around the end of a page that another page of the slice follows.
            unsafe { slice.as_ptr().cast::<u8>().add((page + 1) * WORDS * 8 - 4).cast::<u64>() }
        };
        let (read, write) = (
            // SAFETY: within the slice; locks and barriers keep others away.
            |page: usize| unsafe { spanning(page).read_unaligned() },
            // SAFETY: as above.
            |page: usize, value: u64| unsafe { spanning(page).write_unaligned(value) },
        );
        comem.parallel(|t| {
            for _ in 0..10 {
                t.locked(comem::LockId(51), || (0..3).for_each(|page| write(page, read(page) + 0x1_0000_0001)));
            }
            t.barrier();
            (0..3).for_each(|page| assert_eq!(read(page), 10 * t.threads() as u64 * 0x1_0000_0001));
        });
        give_back(comem, slice);
    }
}

/// A region under `msi` works in a job under any engine: locked instructions of all nodes on the same words.
pub fn one_writer_regions_beside_others(comem: &Comem) {
    let (slice, plain) = (pages_of(comem, 4, &with_one_writer()), pages_of(comem, 4, &RegionOptions::default()));
    let each = 40;
    comem.parallel(|t| {
        for n in 0..each {
            word(&slice, (n % 4) * WORDS + n % 3).fetch_add(1, Ordering::SeqCst);
            plain.set(n * t.threads() + t.id(), n as u64);
        }
        t.barrier();
        let sum: u64 = (0..slice.len()).map(|i| word(&slice, i).load(Ordering::SeqCst)).sum();
        assert_eq!(sum, (each * t.threads()) as u64, "increments were lost");
        for n in 0..each {
            (0..t.threads()).for_each(|id| assert_eq!(plain.get(n * t.threads() + id), n as u64));
        }
    });
    give_back(comem, slice);
    give_back(comem, plain);
}

/// Store buffering and Peterson's lock between the first and the last thread, on pages under `msi`.
pub fn racing_programs(comem: &Comem) {
    if comem.threads() < 2 {
        return;
    }
    let slice = pages_of(comem, 6, &with_one_writer());
    comem.parallel(|t| {
        if let Some(me) = [0, t.threads() - 1].iter().position(|id| *id == t.id()) {
            store_buffering(&slice, me);
            peterson(&slice, me);
        }
        t.barrier();
        for round in 0..STORES {
            let both = slice.get(2 * WORDS + round) + slice.get(3 * WORDS + round);
            assert!(both > 0, "round {round}: each store was missed by the other's load");
        }
        assert_eq!(slice.get(5 * WORDS), 2 * TURNS, "two threads were inside Peterson's lock");
    });
    give_back(comem, slice);
}

const STORES: usize = 60;
const TURNS: u64 = 20;

fn store_buffering(slice: &PageSlice<u64>, me: usize) {
    for round in 0..STORES {
        word(slice, me * WORDS + round).store(1, Ordering::SeqCst);
        let seen = word(slice, (1 - me) * WORDS + round).load(Ordering::SeqCst);
        slice.set((2 + me) * WORDS + round, seen);
    }
}

/// Flags and turn in one page, what they protect in another.
fn peterson(slice: &PageSlice<u64>, me: usize) {
    let (wants, turn) = (|who: usize| word(slice, 4 * WORDS + who), word(slice, 4 * WORDS + 2));
    for _ in 0..TURNS {
        wants(me).store(1, Ordering::SeqCst);
        turn.store(1 - me as u64, Ordering::SeqCst);
        while wants(1 - me).load(Ordering::SeqCst) == 1 && turn.load(Ordering::SeqCst) == 1 - me as u64 {
            std::thread::yield_now();
        }
        let inside = slice.get(5 * WORDS);
        slice.set(5 * WORDS, inside + 1);
        wants(me).store(0, Ordering::SeqCst);
    }
}
