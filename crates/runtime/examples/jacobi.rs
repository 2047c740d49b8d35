//! Jacobi's method for a linear system whose matrix is shared; the same program as `examples/jacobi.c` and
//! `examples/python/jacobi.py`.
//!
//! `comem run -n 4 jacobi [SIZE]` solves A x = b with A\[i\]\[i\] = 2 SIZE, 1 elsewhere, and b such that every x\[i\]
//! is 1.

use comem::Operator;
use comem::heap::RegionOptions;

fn main() -> comem::Result<()> {
    let n: usize = std::env::args().nth(1).map_or(1000, |n| n.parse().expect("SIZE is a number"));
    let comem = comem::start()?;
    let options = RegionOptions::default();
    let a = comem.page_slice::<f64>(n * n, &options)?;
    let xs = [comem.page_slice::<f64>(n, &options)?, comem.page_slice::<f64>(n, &options)?];
    comem.parallel(|t| {
        let mine = t.split(n);
        for i in mine.clone() {
            (0..n).for_each(|j| a.set(i * n + j, if i == j { 2.0 * n as f64 } else { 1.0 }));
        }
        t.barrier();

        let (mut steps, mut change) = (0, [1.0]);
        while change[0] > 1e-10 {
            let (now, then) = (xs[steps % 2], xs[(steps + 1) % 2]);
            change[0] = 0.0_f64;
            for i in mine.clone() {
                let others: f64 = (0..n).filter(|j| *j != i).map(|j| a.get(i * n + j) * now.get(j)).sum();
                then.set(i, (3.0 * n as f64 - 1.0 - others) / a.get(i * n + i));
                change[0] = change[0].max((then.get(i) - now.get(i)).abs());
            }
            t.reduce_f64(Operator::Max, &mut change);
            steps += 1;
        }

        let mut error = [mine.map(|i| (xs[steps % 2].get(i) - 1.0).abs()).fold(0.0, f64::max)];
        t.reduce_f64(Operator::Max, &mut error);
        if t.id() == 0 {
            println!("jacobi: {n} unknowns, {steps} steps: {}", if error[0] < 1e-6 { "ok" } else { "WRONG" });
        }
    });
    comem.finish()
}
