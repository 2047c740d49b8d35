//! Each thread adds up its share of the numbers below a million; thread 0 adds up the shares.

fn main() -> comem::Result<()> {
    let comem = comem::start()?;
    let sums = comem.object_array::<i64>(comem.threads())?;
    comem.parallel(|t| {
        sums.write(t, t.id(), t.split(1_000_000).map(|i| i as i64).sum());
        t.barrier();
        if t.id() == 0 {
            let total: i64 = (0..t.threads()).map(|i| sums.read(t, i)).sum();
            println!("{total}");
        }
    });
    comem.finish()
}
