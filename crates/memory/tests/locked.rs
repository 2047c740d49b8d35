//! Memory that the program has locked. A test program of its own: once the system has refused to unmap pages of several
//! mappings in one call, as it does for these, nobody asks it again.

mod common;

use comem_memory::pages::PAGE_BYTES;
use common::{subjects, undisturbed};

#[test]
#[allow(clippy::single_range_in_vec_init)] // lists of runs, often of one
fn pages_that_the_program_has_locked_into_memory_can_be_unmapped() {
    undisturbed(
        || subjects(4),
        |s| {
            s.arena.map_write(0..2).unwrap();
            s.store(0, 5);
            s.store(1, 6);
            // It fails, for some pages are not there, and locks the others all the same.
            // SAFETY: the application's view, of which no byte changes.
            unsafe { libc::mlock(std::ptr::with_exposed_provenance(s.arena.base()), 4 * PAGE_BYTES) };
            s.arena.unmap(0..1).unwrap();
            let before = s.faults();
            assert_eq!((s.load(0), s.faults()), (5, (before.0 + 1, before.1)), "{}", s.name());
            if !s.arena.unmap_all(&[1..2]) {
                s.arena.unmap(1..2).unwrap();
            }
            assert_eq!((s.load(1), s.faults()), (6, (before.0 + 2, before.1)), "{}", s.name());
            // SAFETY: as above.
            unsafe { libc::munlock(std::ptr::with_exposed_provenance(s.arena.base()), 4 * PAGE_BYTES) };
        },
    );
}
