//! A child made by `fork` has the program's global variables for itself. (A program of its own: a process has one
//! window.)

mod common;

use comem_memory::mapping::Mapping;
use comem_memory::pages::{PAGE_BYTES, Tracking};
use common::{detectors, subject};
use std::io::Read;

#[test]
fn a_child_has_the_windows_memory_as_it_was_and_what_it_writes_stays_with_it() {
    for detector in detectors() {
        let s = subject(4, Tracking::Tracked, detector);
        let memory = Mapping::new(2 * PAGE_BYTES).unwrap();
        let word = memory.start().cast::<u64>();
        // SAFETY: a mapping of this length that nobody uses.
        unsafe { s.arena.open_window(1..3, word.expose_provenance()).unwrap() };
        std::mem::forget(memory);
        // SAFETY: within the window; the handler makes the page writable.
        unsafe { word.write_volatile(7) };
        let second = word.wrapping_add(PAGE_BYTES / 8);
        // SAFETY: page 2 of the arena, in the window's second page; the first is another.
        unsafe { second.write_volatile(17) };
        let (mut wait, go) = std::io::pipe().unwrap();
        // SAFETY: the child does nothing but look at memory of its own and end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(go);
            let _ = wait.read(&mut [0]);
            // SAFETY: as above; nobody answers faults here, so that one would end the child by a signal.
            unsafe {
                let seen = word.read_volatile();
                word.write_volatile(8);
                libc::_exit(i32::from(seen != 7 || second.read_volatile() != 17 || word.read_volatile() != 8));
            }
        }
        // SAFETY: as above. The child looks behind this.
        unsafe { word.write_volatile(9) };
        drop(go);
        let mut status = -1;
        // SAFETY: writes one number.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "{detector}: the child found what was there and could write");
        // SAFETY: within the window.
        assert_eq!(unsafe { word.read_volatile() }, 9, "{detector}: the parent does not see the child's write");
        s.arena.close_window().unwrap();
        // SAFETY: the program's own memory again.
        unsafe { word.write_volatile(11) };
        // SAFETY: the child looks at memory of its own and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(word.read_volatile() != 11)) };
        }
        // SAFETY: writes one number.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "{detector}: a closed window is memory like any other");
    }
}
