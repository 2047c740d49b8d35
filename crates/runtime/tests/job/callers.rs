//! Collective calls that another thread than its node's first makes, while that one is anywhere but in Comem.

use comem::heap::RegionOptions;
use comem::host::Host;
use comem::{Comem, Error, LockId, Thread};
use std::sync::Barrier;
use std::time::Duration;

/// A node that is late, is so by this: the others wait for it, or are asleep already.
const LATE: Duration = Duration::from_millis(20);

/// Which thread of each node calls, and which node is late: every combination comes once.
struct Round {
    number: usize,
    nodes: usize,
}

impl Round {
    fn all(nodes: usize) -> impl Iterator<Item = Round> {
        (0..(1 << nodes) * (nodes + 1)).map(move |number| Round { number, nodes })
    }

    /// Whether the first thread of this node is the one that calls.
    fn is_firsts(&self, comem: &Comem) -> bool {
        self.number >> comem.node() & 1 == 0
    }

    fn wait_if_late(&self, comem: &Comem) {
        if self.number >> self.nodes == comem.node() {
            std::thread::sleep(LATE);
        }
    }

    /// The call that one thread of every node makes.
    fn allocate(&self, comem: &Comem) {
        self.wait_if_late(comem);
        let slice = comem.page_slice::<u64>(64, &RegionOptions::default()).expect("a slice");
        assert_eq!(slice.get(self.number), 0);
    }
}

/// One thread of each node at a time: the first, or another for whose end the first waits outside of Comem.
fn each_in_turn(comem: &Comem, call: impl Fn(&Round) + Sync) {
    for round in Round::all(comem.nodes()) {
        if round.is_firsts(comem) {
            call(&round);
        } else {
            // Its place is free again when it has been joined, and not when the scope ends.
            std::thread::scope(|scope| scope.spawn(|| call(&round)).join().expect("a call that succeeds"));
        }
    }
}

/// The first thread waits for the other's end.
pub fn joined(comem: &Comem) {
    each_in_turn(comem, |round| round.allocate(comem));
}

/// The first thread waits for a lock that the other holds.
pub fn holding_a_lock(comem: &Comem) {
    let lock = LockId(comem.node() as u64);
    for round in Round::all(comem.nodes()) {
        let held = Barrier::new(2);
        let call = |t: &Thread| {
            let calls = (t.local_id() == 0) == round.is_firsts(comem);
            if !calls {
                held.wait();
            }
            let guard = t.lock(lock);
            if calls {
                held.wait();
                round.allocate(comem);
            }
            drop(guard);
        };
        comem.parallel(call);
    }
}

/// The first thread is through with its part, and the other is not.
pub fn behind_the_first(comem: &Comem) {
    for round in Round::all(comem.nodes()) {
        comem.parallel(|t| {
            if (t.local_id() == 0) == round.is_firsts(comem) {
                round.allocate(comem);
            }
        });
    }
}

/// A thread whose scope has ended may not have been taken down.
pub fn behind_a_scope(comem: &Comem) {
    for _ in 0..300 {
        std::thread::scope(|scope| {
            scope.spawn(|| comem.current().expect("a place").id());
        });
        comem.checked_parallel(Thread::barrier).expect("a place for every thread");
    }
}

struct Interpreter;

impl Host for Interpreter {
    fn has_other_threads(&self) -> bool {
        false
    }

    fn ends_wait(&self) -> bool {
        false
    }
    fn ends_fault(&self) -> bool {
        false
    }
    fn job_is_over(&self, _error: &Error, _sentence: &str) {}
    fn stale_access(&self) {}
}

/// To be called before the start: a program of which one thread of each node takes part in barriers.
pub fn become_an_interpreter() {
    comem::host::attend(&Interpreter);
}

/// What is written before a barrier is read behind it, whichever thread has made the call.
pub fn at_barriers(comem: &Comem) {
    let slice = comem.page_slice::<u64>(comem.nodes() * 512, &RegionOptions::default()).expect("a slice");
    each_in_turn(comem, |round| {
        slice.set(comem.node() * 512, round.number as u64);
        round.wait_if_late(comem);
        comem.current().expect("a place").barrier();
        (0..comem.nodes()).for_each(|node| assert_eq!(slice.get(node * 512), round.number as u64));
        comem.current().expect("a place").barrier();
    });
}
