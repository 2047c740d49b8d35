//! Everything that reads bytes from the network, guided by coverage; what `make fuzz` does by seed.
#![no_main]

use comem_bench::fuzz::Victim;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut victim = Victim::new();
    victim.feed(input);
});
