//! What a job reads of an earlier one.
#![no_main]

use comem_bench::fuzz::check_history;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| check_history(input));
