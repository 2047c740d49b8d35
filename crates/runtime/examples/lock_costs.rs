//! What a lock and its release cost where every node has one thread: locks that nobody else wants, free locks that each
//! node takes in turn, and a lock that all take again and again.
//!
//! `comem run -n 2 --backbone udp --engine direct --one-sided ucx --locks tokens -- lock_costs [ROUNDS]` (100 if not
//! given), and the same with `--locks one-sided`; `UCX_TLS=tcp,self` names transports.

use comem::{Comem, LockId, Thread};
use std::time::Instant;

/// Locks that the nodes take in turn.
const LOCKS: u64 = 64;
/// How often the locks are taken that stay, and the one that all want.
const TIMES: u64 = 2_000;
/// The lock that all want.
const WANTED: LockId = LockId(1 << 20);

fn main() -> comem::Result<()> {
    let rounds: u64 = std::env::args().nth(1).map_or(100, |n| n.parse().expect("ROUNDS is a number"));
    let comem = comem::start()?;
    let sum = comem.object_var::<u64>()?;
    let own = |node: usize, number: u64| LockId((2 + node as u64) * (1 << 20) + number);
    let node = comem.node();
    comem.parallel(|t| {
        say(&comem, "a lock that was here last, and nobody else wants", || {
            let mut each: Vec<f64> = (0..10).map(|_| per_lock(t, TIMES, |n| own(node, n % 8), || ())).collect();
            t.barrier();
            median(&mut each)
        });
        say(&comem, "64 free locks, taken by each node in turn", || {
            let mut each = Vec::new();
            for round in 0..rounds + 2 {
                for turn in 0..comem.nodes() {
                    if turn == node {
                        let took = per_lock(t, LOCKS, LockId, || ());
                        // The first rounds make the locks.
                        each.extend((round >= 2).then_some(took));
                    }
                    t.barrier();
                }
            }
            median(&mut each)
        });
        // All sections of all nodes, one after the other.
        let sections = (TIMES * t.threads() as u64) as f64;
        say(&comem, "one lock that all take again and again", || {
            let took = TIMES as f64 * per_lock(t, TIMES, |_| WANTED, || t.barrier());
            took / sections
        });
        say(&comem, "the same, and each adds to a shared counter", || {
            let begin = Instant::now();
            (0..TIMES).for_each(|_| t.locked(WANTED, || sum.write(t, sum.read(t) + 1)));
            t.barrier();
            let took = begin.elapsed().as_secs_f64() * 1e6;
            assert_eq!(sum.read(t), TIMES * t.threads() as u64, "increments were lost");
            took / sections
        });
    });
    comem.finish()
}

/// Microseconds of a lock and its release, with what is done at the end.
fn per_lock(t: &Thread, times: u64, lock: impl Fn(u64) -> LockId, end: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    (0..times).for_each(|n| t.locked(lock(n), || ()));
    end();
    begin.elapsed().as_secs_f64() * 1e6 / times as f64
}

fn say(comem: &Comem, what: &str, measure: impl FnOnce() -> f64) {
    let took = measure();
    if comem.node() == 0 {
        println!("{what:<50} {took:>9.2} us");
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
