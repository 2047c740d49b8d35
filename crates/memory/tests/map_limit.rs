//! `mprotect` against the limit on mappings. A test program of its own: while it has all of the process's mappings,
//! nobody else gets any.

mod common;

use comem_memory::pages::{Arena, Detector, PAGE_BYTES, TooManyRanges, Tracking, map_count_limit};
use common::free_base;

#[test]
fn scattered_mprotect_meets_the_limit_clearly_and_unmapping_helps() {
    const PAGES: u32 = 140_000;
    if map_count_limit() >= PAGES as usize {
        return println!("SKIP: vm.max_map_count is {}", map_count_limit());
    }
    let base = free_base(PAGES as usize * PAGE_BYTES);
    let arena = Arena::new(base, PAGES as usize * PAGE_BYTES, Tracking::Tracked, Detector::Mprotect).unwrap();
    let scattered = (0..PAGES).step_by(2).map(|page| arena.map_read(page..page + 1));
    let error = scattered.filter_map(Result::err).next().expect("a limit");
    // At once: other tests of this process need mappings, too.
    arena.unmap(0..PAGES).unwrap();
    assert!(TooManyRanges::is(&error) && error.to_string().contains("vm.max_map_count"), "{error}");
    arena.map_read(1..2).unwrap();
}
