//! Global variables as shared memory: a stretch of this process's own memory, at the same address on every node, that
//! was there before it was shared. (Where a linker put variables, C programs test: `tests/compat/globals`.)

use crate::matrix::{detectors, job, orders_everything, times};
use comem::{Comem, LockId, Thread};
use std::sync::OnceLock;

const PAGE_BYTES: usize = 4096;
const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// Where they are: below the heap, and where systems put nothing.
const PLACE: usize = 0x2_0000_0000;
/// Pages with values from the start.
const DATA_PAGES: usize = 3;
/// All pages; most are never touched.
const PAGES: usize = 1024;

/// Maps the memory, with values of this process's own, as a program has it before it joins a job: `None` when the place
/// is taken.
fn memory() -> *mut u64 {
    static START: OnceLock<usize> = OnceLock::new();
    let start = START.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let (at, both) = (std::ptr::without_provenance_mut(PLACE), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh mapping where nothing is.
        let start = unsafe { libc::mmap(at, PAGES * PAGE_BYTES, both, flags, -1, 0) };
        assert_eq!(start.addr(), PLACE, "{}", std::io::Error::last_os_error());
        start.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*start)
}

fn get(word: usize) -> u64 {
    assert!(word < PAGES * PAGE_WORDS);
    // SAFETY: within the memory; what threads may see of each other is the scenarios' synchronisation.
    unsafe { memory().add(word).read_volatile() }
}

fn set(word: usize, value: u64) {
    assert!(word < PAGES * PAGE_WORDS);
    // SAFETY: as above.
    unsafe { memory().add(word).write_volatile(value) }
}

/// Shares it; a process can do that once.
pub fn share(comem: &Comem) {
    let at = |pages: usize| memory().cast::<u8>().wrapping_add(pages * PAGE_BYTES);
    // SAFETY: this memory is used by nothing but these scenarios, later.
    unsafe { comem.share_globals(at(0), at(PAGES)) }.expect("globals can be shared");
}

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    if role == LAST_WRITES {
        last_writes(comem);
    }
    role == LAST_WRITES
}

const LAST_WRITES: &str = "last-writes";

/// Threads write, and nobody synchronises before the end of the job.
fn last_writes(comem: &Comem) {
    fill(comem);
    share(comem);
    comem.parallel(|t| {
        (0..2).for_each(|page| set(page * PAGE_WORDS + t.id(), 1));
        t.barrier();
        (0..3).for_each(|page| set(page * PAGE_WORDS + t.id(), 70 + t.id() as u64));
        set((10 + t.id()) * PAGE_WORDS, 80 + t.id() as u64);
    });
}

/// The job is over: node 0 has all of it, as memory of its own.
pub fn look_back(role: &str, node: usize, threads: usize) {
    for id in (0..threads).filter(|_| role == LAST_WRITES && node == 0) {
        let found = [0, 1, 2, 10 + id].map(|page| get(page * PAGE_WORDS + if page < 3 { id } else { 0 }));
        let (first, alone) = (70 + id as u64, 80 + id as u64);
        assert_eq!(found, [first, first, first, alone], "as thread {id} left it");
    }
}

/// What each node has before: other values in the same places.
pub fn fill(comem: &Comem) {
    let mine = 1 + comem.node() as u64;
    (0..DATA_PAGES * PAGE_WORDS).for_each(|word| set(word, mine * 1000 + word as u64));
    // One page of those that were zero at first, too.
    set(7 * PAGE_WORDS, mine);
}

/// The values are node 0's everywhere; then threads write neighbours in a page, between barriers.
pub fn variables_of_all(comem: &Comem) {
    fill(comem);
    share(comem);
    comem.parallel(|t| {
        if t.local_id() == 0 {
            for word in (0..DATA_PAGES * PAGE_WORDS).step_by(61) {
                assert_eq!(get(word), 1000 + word as u64, "word {word} as node 0 had it");
            }
            assert_eq!((get(7 * PAGE_WORDS), get(8 * PAGE_WORDS)), (1, 0));
        }
        t.barrier();
        neighbours(t);
        in_turns(t);
        if orders_everything(comem) {
            by_another_lock(t);
        }
        t.barrier();
    });
    // They are known by their own addresses.
    assert!(comem.nodes() == 1 || comem.is_shared(memory().cast()));
    assert!(!comem.is_shared(memory().cast::<u8>().wrapping_add(PAGES * PAGE_BYTES)));
    let freed = comem.free(memory().cast()).unwrap_err().to_string();
    assert!(comem.nodes() == 1 || freed.contains("global variable"), "{freed}");
    assert!(comem.freeze(memory().cast()).is_err());
}

/// Each thread has every so-and-so-manieth word of two pages, one that has initial values and one that was zero.
fn neighbours(t: &Thread) {
    let (threads, me) = (t.threads(), t.id());
    for round in 0..times(6) as u64 {
        for page in [1, 9] {
            for word in (me..PAGE_WORDS).step_by(threads) {
                set(page * PAGE_WORDS + word, round * 10_000 + word as u64);
            }
        }
        t.barrier();
        for page in [1, 9] {
            for word in (0..PAGE_WORDS).step_by(7) {
                assert_eq!(get(page * PAGE_WORDS + word), round * 10_000 + word as u64, "page {page}, round {round}");
            }
        }
        t.barrier();
    }
}

/// A counter and an array under one lock.
fn in_turns(t: &Thread) {
    let (counter, array, rounds) = (20 * PAGE_WORDS + 3, 21 * PAGE_WORDS, times(12) as u64);
    for _ in 0..rounds {
        let held = t.lock(LockId(5));
        let next = get(counter);
        set(counter, next + 1);
        set(array + next as usize, next * next);
        drop(held);
    }
    t.barrier();
    let all = rounds * t.threads() as u64;
    assert_eq!(get(counter), all);
    (0..all).for_each(|n| assert_eq!(get(array + n as usize), n * n));
    t.barrier();
}

/// What is written before one lock is seen by whoever comes after, also through another page.
fn by_another_lock(t: &Thread) {
    let (value, ready) = (30 * PAGE_WORDS, 31 * PAGE_WORDS);
    if t.id() == t.threads() - 1 {
        set(value, 77);
        let held = t.lock(LockId(6));
        set(ready, 1);
        drop(held);
    }
    loop {
        let held = t.lock(LockId(6));
        let seen = get(ready);
        drop(held);
        if seen == 1 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(get(value), 77);
}

#[test]
fn at_the_end_node_0_has_what_others_wrote_last() {
    for (engine, detector) in ["hlrc", "scope", "msi"].into_iter().zip(detectors().into_iter().cycle()) {
        for (backbone, threads) in [("udp", "1"), ("shm", "2")] {
            let settings = [
                ("COMEM_ENGINE", engine),
                ("COMEM_DETECTOR", detector),
                ("COMEM_BACKBONE", backbone),
                ("COMEM_THREADS", threads),
            ];
            job(LAST_WRITES, 3, &settings);
        }
    }
}
