//! The paper's lock test: all threads acquire one lock and increment one variable; no increment may be lost.
//!
//! `lock_test [COUNT]` (10,000 if not given).

use comem::LockId;
use std::time::Instant;

fn main() -> comem::Result<()> {
    let count: u64 = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("COUNT is a number"));
    let comem = comem::start()?;
    let sum = comem.object_var::<u64>()?;
    let begin = Instant::now();
    comem.parallel(|t| {
        for _ in 0..count {
            t.locked(LockId(1), || sum.write(t, sum.read(t) + 1));
        }
        t.barrier();
        assert_eq!(sum.read(t), count * t.threads() as u64, "increments were lost");
    });
    if comem.node() == 0 {
        let each = begin.elapsed().as_secs_f64() / (count * comem.threads() as u64) as f64 * 1e6;
        println!("lock_test: {} threads, {count} increments each, {each:.2} us each, ok", comem.threads());
    }
    comem.finish()
}
