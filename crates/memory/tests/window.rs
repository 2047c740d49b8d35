//! Pages that a program sees at an address of its own, under every detector and both kinds of tracking.

#![allow(clippy::single_range_in_vec_init, reason = "lists of page ranges are what is collected")]

mod common;

use comem_memory::mapping::Mapping;
use comem_memory::pages::PAGE_BYTES;
use common::{Subject, subjects, undisturbed};
use std::ops::Range;

/// The pages of 16 that the window shows.
const SHOWN: Range<u32> = 4..12;

/// Memory of the program's, as its global variables are.
fn globals() -> *mut u8 {
    let memory = Mapping::new(SHOWN.len() * PAGE_BYTES).unwrap();
    let start = memory.start();
    std::mem::forget(memory);
    start
}

/// Arenas of 16 pages, each with a window.
fn on_windows(body: impl Fn((&'static Subject, *mut u8))) {
    let with_window = |s: &'static Subject| {
        let start = globals();
        // SAFETY: a mapping of this length that nobody uses.
        unsafe { s.arena.open_window(SHOWN, start.expose_provenance()).unwrap() };
        (s, start)
    };
    undisturbed(|| subjects(16).map(with_window), body);
}

/// Where the program sees a page of the window.
fn word(start: *mut u8, page: u32) -> *mut u64 {
    start.wrapping_add((page - SHOWN.start) as usize * PAGE_BYTES).cast()
}

fn load(at: *mut u64) -> u64 {
    // SAFETY: within the arena or its window; the handler makes the page readable.
    unsafe { at.read_volatile() }
}

fn store(at: *mut u64, value: u64) {
    // SAFETY: within the arena or its window; the handler makes the page writable.
    unsafe { at.write_volatile(value) }
}

#[test]
fn the_window_shows_the_files_bytes_after_one_fault() {
    on_windows(|(s, start)| {
        store(s.service(5), 42);
        assert_eq!((load(word(start, 5)), load(word(start, 5))), (42, 42), "{}", s.name());
        assert_eq!(s.faults(), (1, 0), "{}", s.name());
        store(word(start, 5), 43);
        assert_eq!(load(s.service(5)), 43, "a store is seen in the service view: {}", s.name());
    });
}

#[test]
fn a_range_across_both_ends_of_the_window_changes_as_a_whole() {
    on_windows(|(s, start)| {
        s.arena.map_read(2..14).unwrap();
        let seen = [s.address(2), s.address(3), word(start, 4), word(start, 11), s.address(12), s.address(13)];
        seen.iter().for_each(|at| assert_eq!(load(*at), 0));
        assert_eq!(s.faults(), (0, 0), "{}", s.name());
        s.arena.unmap(3..12).unwrap();
        seen.iter().for_each(|at| assert_eq!(load(*at), 0));
        assert_eq!(s.faults(), (3, 0), "{}", s.name());
        s.arena.map_write(0..16).unwrap();
        seen.iter().for_each(|at| store(*at, 1));
        s.arena.protect(0..16).unwrap();
        assert_eq!(s.collect(0..16), [], "protecting clears: {}", s.name());
        seen.iter().for_each(|at| store(*at, 2));
        let expected = if s.arena.notes_writes() { (3, 0) } else { (3, 6) };
        assert_eq!(s.faults(), expected, "{}", s.name());
        let found = s.collect(0..16);
        let expected = if s.arena.notes_writes() { vec![2..5, 11..14] } else { vec![] };
        assert_eq!(found, expected, "{}", s.name());
    });
}

#[test]
fn writes_in_the_window_are_collected_exactly_also_after_it_was_unmapped() {
    on_windows(|(s, start)| {
        if !s.arena.notes_writes() {
            return;
        }
        s.arena.map_read(SHOWN).unwrap();
        store(word(start, 6), 1);
        s.arena.unmap(SHOWN).unwrap();
        assert_eq!(s.collect(0..16), [6..7]);
        s.arena.map_read(SHOWN).unwrap();
        assert_eq!(s.collect(0..16), [], "what was collected is clean");
        assert_eq!(load(word(start, 6)), 1);
    });
}

#[test]
fn pages_given_back_are_zero_in_the_window() {
    on_windows(|(s, start)| {
        store(word(start, 7), 9);
        s.arena.discard(7..8).unwrap();
        assert_eq!(load(word(start, 7)), 0, "{}", s.name());
        assert_eq!(s.collect(0..16), [], "{}", s.name());
    });
}

#[test]
fn an_address_is_a_page_where_the_program_sees_it_and_nowhere_else() {
    on_windows(|(s, start)| {
        assert_eq!(s.arena.page_of(word(start, 11).addr()), Some(11));
        assert_eq!(s.arena.page_of(word(start, 12).addr()), None);
        assert_eq!(s.arena.page_of(start.addr() - 1), None);
        let of_arena = [3, 4, 11, 12].map(|page| s.arena.page_of(s.address(page).addr()));
        assert_eq!(of_arena, [Some(3), None, None, Some(12)], "{}", s.name());
    });
}

#[test]
fn a_closed_window_leaves_the_program_its_memory() {
    on_windows(|(s, start)| {
        store(word(start, 5), 3);
        let before = s.faults();
        s.arena.close_window().unwrap();
        assert_eq!(load(word(start, 5)), 3, "{}", s.name());
        store(word(start, 9), 4);
        s.arena.unmap(0..16).unwrap();
        s.arena.map_write(0..16).unwrap();
        assert_eq!((load(word(start, 9)), load(s.service(9))), (4, 0), "it is the program's own: {}", s.name());
        assert_eq!(s.faults(), before, "{}", s.name());
    });
}

#[test]
fn no_core_dump_looks_at_a_window_until_it_is_closed() {
    on_windows(|(s, start)| {
        let left_out = || common::mapping_flags(start.addr()).split(' ').any(|flag| flag == "dd");
        let open = left_out();
        s.arena.close_window().unwrap();
        assert_eq!((open, left_out()), (true, false), "{}", s.name());
        store(word(start, 5), 3);
        s.arena.close_window().unwrap();
        assert_eq!(load(word(start, 5)), 3, "{}: a second time does nothing", s.name());
    });
}

#[test]
fn a_window_must_be_whole_pages_of_the_arena_and_there_is_one() {
    on_windows(|(s, _)| {
        let kept = globals();
        store(kept.cast(), 7);
        let place = kept.expose_provenance();
        // SAFETY: a mapping that nobody uses.
        let open = |pages, at| unsafe { s.arena.open_window(pages, at) }.unwrap_err().kind();
        assert_eq!(open(0..1, place), std::io::ErrorKind::AlreadyExists);
        assert_eq!(open(0..17, place), std::io::ErrorKind::InvalidInput);
        assert_eq!(open(0..1, place + 8), std::io::ErrorKind::InvalidInput);
        assert_eq!(open(5..5, place), std::io::ErrorKind::InvalidInput);
        assert_eq!(load(kept.cast()), 7, "what stands there stays");
    });
}
