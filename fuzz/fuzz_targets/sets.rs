//! The head of a datagram to sets of nodes: what the receiver makes of bytes, and what an author makes of sets.
#![no_main]

use comem_bench::fuzz::check_sets;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| check_sets(input));
