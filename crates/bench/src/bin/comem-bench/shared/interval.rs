//! Intervals between two nodes: pages that a barrier invalidated and that are fetched again, intervals closed with so
//! many written pages, and locks that are acquired where they were last held.

use super::node::{PAGE_WORDS, at_node_one, word_of};
use crate::echo::{Peer, Request};
use crate::node::{Task, What};
use comem::heap::PageSlice;
use comem::{Comem, LockId, Thread};
use comem_bench::sample::median;
use serde_json::{Value, json};
use std::cell::{Cell, UnsafeCell};
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// Cached pages beside what is measured.
pub const CACHED_PAGES: usize = 1000;
/// Locks that are acquired one after the other, then released.
const LOCKS: usize = 32;
/// How long node 0 lets node 1 go ahead to the barrier at which they meet.
const AHEAD: Duration = Duration::from_micros(200);

/// What a node does to measure refetch, release or relock; node 0 gives the measurement.
///
/// # Errors
/// When the plain sockets fail, memory cannot be had or holds what it should not.
pub fn side(task: &Task, comem: &Comem, thread: &Thread, peer: &Peer) -> io::Result<Value> {
    let is_cached_barrier = task.what == What::CachedBarrier;
    let pages = if is_cached_barrier { task.cached.max(1) } else { CACHED_PAGES };
    let bed = Bed { region: at_node_one(comem, pages)?, thread, stamp: Cell::new(1) };
    if is_cached_barrier && thread.id() == 1 {
        (0..task.cached).for_each(|page| bed.region.set(word_of(page), 1));
    }
    thread.barrier();
    if thread.id() != 0 {
        return bed.serve(task.what, peer);
    }
    let value = match task.what {
        What::Refetch => bed.refetch(task, peer),
        What::Release => bed.release(task, peer),
        What::CachedBarrier => bed.cached_barrier(task, peer),
        _ => bed.relock(task),
    }?;
    peer.ask(Request::Stop)?;
    Ok(value)
}

struct Bed<'a> {
    region: PageSlice<u64>,
    thread: &'a Thread,
    /// What is written next comes from this number, which both nodes count alike.
    stamp: Cell<u64>,
}

/// The number that a round writes: another than the last in all of its bytes, or nearly.
fn stamped(round: u64) -> u64 {
    round.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The request to take part in so many rounds.
fn rounds_of(count: usize, pages: u16) -> io::Result<Request> {
    let count = u16::try_from(count).map_err(|_| io::Error::other("--rounds takes at most 65535 here"))?;
    Ok(Request::Rounds { count, pages })
}

/// Page `index` of `count` pages spread over the region: they are no neighbours.
fn spread(index: usize, count: usize) -> usize {
    index * CACHED_PAGES / count.max(1)
}

impl Bed<'_> {
    fn serve(&self, what: What, peer: &Peer) -> io::Result<Value> {
        peer.serve(|request| {
            let Request::Rounds { count, pages } = request else { return };
            for _ in 0..count {
                if what == What::Refetch {
                    self.write(usize::from(pages), false);
                    self.thread.barrier();
                }
                self.thread.barrier();
            }
        })?;
        Ok(Value::Null)
    }

    fn next_stamp(&self) -> u64 {
        stamped(self.stamp.replace(self.stamp.get() + 1))
    }

    /// Writes so many pages, a word in each or all of it.
    fn write(&self, pages: usize, whole: bool) {
        let stamp = self.next_stamp();
        for page in (0..pages).map(|i| spread(i, pages)) {
            if whole {
                (0..PAGE_WORDS).for_each(|word| self.region.set(page * PAGE_WORDS + word, stamp));
            } else {
                self.region.set(word_of(page), stamp);
            }
        }
    }

    /// Node 1 writes pages that node 0 uses; node 0 measures from its arrival at the barrier until it has read them.
    /// Rounds with nothing written, in turn, are what the barrier itself costs.
    fn refetch(&self, task: &Task, peer: &Peer) -> io::Result<Value> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        self.refetch_rounds(task.rounds, task.pages, peer)?;
        for _ in 0..task.blocks {
            without.push(median(&self.refetch_rounds(task.rounds, 0, peer)?));
            with.push(median(&self.refetch_rounds(task.rounds, task.pages, peer)?));
        }
        Ok(json!({ "with": with, "without": without, "rounds": (task.blocks + 1) * task.rounds }))
    }

    fn refetch_rounds(&self, rounds: usize, pages: u16, peer: &Peer) -> io::Result<Vec<f64>> {
        peer.ask(rounds_of(rounds, pages)?)?;
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let stamp = self.next_stamp();
            wait(AHEAD);
            let start = Instant::now();
            self.thread.barrier();
            let pages = usize::from(pages);
            let stale = (0..pages).filter(|i| black_box(self.region.get(word_of(spread(*i, pages)))) != stamp).count();
            times.push(start.elapsed().as_secs_f64() * 1e6);
            if stale > 0 {
                return Err(io::Error::other(format!("{stale} of {pages} pages do not hold {stamp}")));
            }
            self.thread.barrier();
        }
        Ok(times)
    }

    /// Node 0 writes some of the pages that it has, then measures a barrier, at which node 1 waits already.
    fn release(&self, task: &Task, peer: &Peer) -> io::Result<Value> {
        let rounds = |pages: u16| self.release_rounds(task, pages, peer);
        let nothing_cached: Vec<f64> =
            (0..task.blocks).map(|_| rounds(0).map(|t| median(&t))).collect::<io::Result<_>>()?;
        let sum = (0..CACHED_PAGES).fold(0, |sum: u64, page| sum.wrapping_add(self.region.get(word_of(page))));
        black_box(sum);
        rounds(task.pages)?;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..task.blocks {
            without.push(median(&rounds(0)?));
            with.push(median(&rounds(task.pages)?));
        }
        Ok(json!({
            "with": with, "without": without, "nothing_cached": nothing_cached,
            "rounds": (task.blocks + 1) * task.rounds,
        }))
    }

    fn release_rounds(&self, task: &Task, pages: u16, peer: &Peer) -> io::Result<Vec<f64>> {
        peer.ask(rounds_of(task.rounds, pages)?)?;
        let mut times = Vec::with_capacity(task.rounds);
        for _ in 0..task.rounds {
            self.write(usize::from(pages), task.whole);
            wait(AHEAD);
            let start = Instant::now();
            self.thread.barrier();
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    }

    /// Node 0 reads pages that node 1 has written, then measures barriers before which nobody writes: the first one,
    /// and those that follow.
    fn cached_barrier(&self, task: &Task, peer: &Peer) -> io::Result<Value> {
        let sum: u64 = (0..task.cached).map(|page| self.region.get(word_of(page))).sum();
        if sum != task.cached as u64 {
            return Err(io::Error::other(format!("the sum of {} pages is {sum}", task.cached)));
        }
        let nothing = |rounds| self.release_rounds(&Task { rounds, pages: 0, ..task.clone() }, 0, peer);
        let first = median(&nothing(1)?);
        nothing(task.rounds)?;
        let barriers: Vec<f64> =
            (0..task.blocks).map(|_| nothing(task.rounds).map(|t| median(&t))).collect::<io::Result<_>>()?;
        Ok(json!({ "barriers": barriers, "first": first }))
    }

    /// Acquires and releases locks that this node had last, while written pages wait for the next release; beside them
    /// the mutexes of pthreads. Nanoseconds each.
    fn relock(&self, task: &Task) -> io::Result<Value> {
        (0..CACHED_PAGES).for_each(|page| assert!(black_box(self.region.get(word_of(page))) == 0));
        let locks: Vec<LockId> = (0..LOCKS as u64).map(LockId).collect();
        let mutexes: Vec<Mutex> = (0..LOCKS).map(|_| Mutex::new()).collect();
        locks.iter().for_each(|lock| self.thread.locked(*lock, || ()));
        self.write(usize::from(task.pages), false);
        let mut found: [Vec<f64>; 4] = Default::default();
        for _ in 0..task.blocks {
            let (mut ours, mut plain) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
            for _ in 0..task.rounds {
                ours[0].push(each(&locks, |lock| self.thread.raw_lock(*lock).expect("it is free")));
                ours[1].push(each(&locks, |lock| self.thread.raw_unlock(*lock).expect("it is held")));
                plain[0].push(each(&mutexes, Mutex::lock));
                plain[1].push(each(&mutexes, Mutex::unlock));
            }
            for (list, times) in found.iter_mut().zip(ours.iter().chain(&plain)) {
                list.push(median(times));
            }
        }
        let [acquire, release, plain_acquire, plain_release] = found;
        Ok(json!({
            "acquire": acquire, "release": release, "plain_acquire": plain_acquire, "plain_release": plain_release,
            "operations": task.blocks * task.rounds * LOCKS,
        }))
    }
}

/// Nanoseconds of the operation, on each in turn, by one look at the clock before and one after.
fn each<T>(things: &[T], operation: impl FnMut(&T)) -> f64 {
    let start = Instant::now();
    things.iter().for_each(operation);
    start.elapsed().as_secs_f64() * 1e9 / things.len() as f64
}

fn wait(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A mutex of pthreads, for one thread.
struct Mutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

impl Mutex {
    fn new() -> Mutex {
        Mutex(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)))
    }

    fn lock(&self) {
        // SAFETY: the mutex is initialised and stays where it is, in its box.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    fn unlock(&self) {
        // SAFETY: as above; the one thread that uses it has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_byte_changes_from_round_to_round() {
        let changed = |round: u64| {
            let pair = [stamped(round).to_ne_bytes(), stamped(round + 1).to_ne_bytes()];
            (0..8).filter(|i| pair[0][*i] != pair[1][*i]).count()
        };
        assert!((1..1000).map(changed).sum::<usize>() > 999 * 8 * 98 / 100);
    }

    #[test]
    fn spread_pages_are_different_pages_of_the_region() {
        for count in [1, 4, 14, 100, CACHED_PAGES] {
            let pages: Vec<usize> = (0..count).map(|i| spread(i, count)).collect();
            assert!(
                pages.windows(2).all(|pair| pair[0] < pair[1]) && pages.iter().all(|p| *p < CACHED_PAGES),
                "{count}"
            );
        }
    }
}
