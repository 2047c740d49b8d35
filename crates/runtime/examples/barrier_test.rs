//! The paper's barrier test: as many barriers as asked for; between two of them nobody may be more than one apart.
//!
//! `barrier_test [COUNT]` (10,000 if not given).

use std::time::Instant;

fn main() -> comem::Result<()> {
    let count: u64 = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("COUNT is a number"));
    let comem = comem::start()?;
    let arrived = comem.object_array::<u64>(comem.threads())?;
    let begin = Instant::now();
    comem.parallel(|t| {
        for round in 0..count {
            if round % 1000 == 0 {
                // Now and then, look: nobody is behind after a barrier.
                arrived.write(t, t.id(), round);
                t.barrier();
                assert!((0..t.threads()).all(|i| arrived.read(t, i) >= round), "somebody had not arrived");
            }
            t.barrier();
        }
    });
    if comem.node() == 0 {
        let each = begin.elapsed().as_secs_f64() / count as f64 * 1e6;
        println!("barrier_test: {} threads, {count} barriers, {each:.1} us each, ok", comem.threads());
    }
    comem.finish()
}
