//! Everything at once, for as long as asked: counters under locks, publication, ranges, wide elements, flags, messages.
//!
//! `stress [ROUNDS]`; exits with an error when anything is lost.

use comem::{FlagId, LockId, ObjectOptions, Operator};

type Wide = [u64; 4];

fn main() -> comem::Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(100, |r| r.parse().expect("ROUNDS is a number"));
    let comem = comem::start()?;
    let threads = comem.threads();
    let counters =
        comem.object_array_with::<u32>(16, &ObjectOptions { unit_elements: 1, ..ObjectOptions::default() })?;
    let neighbours =
        comem.object_array_with::<u64>(threads, &ObjectOptions { unit_elements: 4, ..ObjectOptions::default() })?;
    let wide = comem.object_array::<Wide>(4)?;
    let field = comem
        .object_array_with::<i32>(64 * threads, &ObjectOptions { unit_elements: 48, ..ObjectOptions::default() })?;
    comem.parallel(|t| {
        for round in 0..rounds {
            // Counters under locks: no increment may be lost.
            for lock in 0..4 {
                t.locked(LockId(lock), || {
                    let at = lock as usize;
                    counters.write(t, at, counters.read(t, at) + 1);
                });
            }
            // Every thread owns one element of units that several nodes write.
            neighbours.write(t, t.id(), neighbours.read(t, t.id()) + 1);
            // Elements wider than a word are never torn.
            let value = (round * threads + t.id()) as u64;
            wide.write(t, round % 4, [value; 4]);
            let seen = wide.read(t, (round + 1) % 4);
            assert!(seen.iter().all(|v| *v == seen[0]), "torn: {seen:?}");
            // Ranges with borders in the middle of units, two of them nested.
            let mine = t.id() * 64..t.id() * 64 + 64;
            let next = (t.id() + 1) % threads;
            // SAFETY: each thread writes its own range, and between barriers nobody reads others' ranges.
            unsafe { field.range_mut(t, mine, |f| f.iter_mut().for_each(|v| *v += 1)) };
            t.barrier();
            // SAFETY: nobody writes between these barriers.
            unsafe {
                field.range(t, next * 64..next * 64 + 64, |f| {
                    assert!(f.iter().all(|v| *v == round as i32 + 1), "round {round}: {f:?}");
                });
            }
            let mut sum = [1_i64, t.id() as i64];
            t.reduce_i64(Operator::Sum, &mut sum);
            assert_eq!(sum, [threads as i64, (threads * (threads - 1) / 2) as i64]);
            if t.id() == 0 {
                t.flag_set(FlagId(9), round as u64 + 1);
            }
            assert!(t.flag_wait(FlagId(9), round as u64 + 1) > round as u64);
            t.post(next, &(round as u64).to_be_bytes()).expect("a message can be posted");
            t.receive();
        }
        t.barrier();
        let expected = (rounds * threads) as u32;
        for at in 0..4 {
            assert_eq!(counters.read(t, at), expected, "counter {at} lost increments");
        }
        assert_eq!(neighbours.read(t, t.id()), rounds as u64);
    });
    if comem.node() == 0 {
        println!("stress: {rounds} rounds, {threads} threads, ok");
    }
    comem.finish()
}
