//! The paper's message test: every thread sends COUNT messages to the next thread as fast as it can, and checks that
//! every message of its predecessor arrives exactly once.
//!
//! `message_test [COUNT]` (1,000,000 if not given).

use std::time::Instant;

fn main() -> comem::Result<()> {
    let count: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("COUNT is a number"));
    let comem = comem::start()?;
    let begin = Instant::now();
    comem.parallel(|t| {
        let next = (t.id() + 1) % t.threads();
        let mut seen = vec![0_u64; count.div_ceil(64) as usize];
        let mut missing = count;
        let mut take = |bytes: Vec<u8>| {
            let number = u64::from_be_bytes(bytes.try_into().expect("a message has eight bytes"));
            let (word, bit) = (&mut seen[(number / 64) as usize], 1 << (number % 64));
            assert_eq!(*word & bit, 0, "message {number} came twice");
            *word |= bit;
            missing -= 1;
            missing
        };
        let mut left = count;
        for number in 0..count {
            t.post(next, &number.to_be_bytes()).expect("a message can be posted");
            while let Some((_, bytes)) = t.try_receive() {
                left = take(bytes);
            }
        }
        while left > 0 {
            left = take(t.receive().1);
        }
        t.barrier();
    });
    if comem.node() == 0 {
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "message_test: {} threads, {count} messages each, exactly once, time_s={seconds:.3} ok",
            comem.threads()
        );
    }
    comem.finish()
}
