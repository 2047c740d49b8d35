//! What misses of the engine `direct` cost: `comem run -n 3 --engine direct --backbone shm lines [UNITS] [ROUNDS]`.
//!
//! Node 0 is the home of all units. Node 1 takes the time, and node 2 is the third one. All wait at barriers while one
//! of them is at work, so that each has a core. Printed are the least and the median of the rounds, in nanoseconds a
//! unit.
//!
//! | case | what node 1 does |
//! |---|---|
//! | clean | loads a unit that the home holds |
//! | dirty | loads a unit that node 2 holds alone |
//! | upgrade | stores to a unit that it holds with node 2 and the home |
//! | write | stores to a unit that node 2 holds alone |
//! | here | stores to a unit that it holds alone: the call under the tag's lock |

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/lines/checked.rs"]
mod checked;

use checked::Words;
use comem::heap::{Home, RegionOptions};
use comem::{NodeId, Thread};
use std::time::Instant;

/// Words of a unit of the largest size, so that each unit is touched once whatever its size.
const STRIDE: usize = 2048 / 8;
const CASES: [&str; 5] = ["clean", "dirty", "upgrade", "write", "here"];

fn main() -> comem::Result<()> {
    checked::attach();
    let comem = comem::start()?;
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (units, rounds) = (arguments.next().unwrap_or(1000), arguments.next().unwrap_or(50));
    assert!(comem.nodes() == 3 && comem.threads() == 3, "three nodes of one thread each");
    let options = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let words = Words::new(&comem, units * STRIDE, &options);
    comem.parallel(|t| {
        let mut took: [Vec<u64>; CASES.len()] = Default::default();
        for round in 1..=rounds as u64 {
            one_round(t, words, units, round, &mut took);
        }
        if t.id() == 1 {
            for (case, mut took) in CASES.iter().zip(took) {
                took.sort_unstable();
                println!("{case:8} least {:5} median {:5} ns", took[0], took[took.len() / 2]);
            }
        }
    });
    comem.finish()
}

/// Does each case once for all units; node 1 takes the time.
fn one_round(t: &Thread, words: Words, units: usize, round: u64, took: &mut [Vec<u64>]) {
    let at_work = |node: usize, act: &dyn Fn(usize)| {
        t.barrier();
        let start = Instant::now();
        if t.id() == node {
            (0..units).for_each(|unit| act(unit * STRIDE));
        }
        let each = start.elapsed().as_nanos() as u64 / units as u64;
        t.barrier();
        each
    };
    let store = |at: usize| words.store(at, round);
    let load = |at: usize| assert_eq!(words.load(at), round);
    at_work(0, &store);
    took[0].push(at_work(1, &load));
    at_work(2, &store);
    took[1].push(at_work(1, &load));
    took[2].push(at_work(1, &store));
    at_work(2, &store);
    took[3].push(at_work(1, &store));
    took[4].push(at_work(1, &store));
}
