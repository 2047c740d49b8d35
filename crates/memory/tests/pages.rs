//! Arenas under the real kernel, with every detector that it has.

#![allow(clippy::single_range_in_vec_init, reason = "lists of page ranges are what is collected")]

mod common;

use comem_memory::pages::fault;
use comem_memory::pages::{Arena, Detector, PAGE_BYTES, Tracking};
use common::{Subject, detectors, free_base, subject, subjects, undisturbed};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

fn on_each(pages: usize, body: impl Fn(&'static Subject)) {
    undisturbed(|| subjects(pages), body);
}

/// Where the kernel notes writes.
fn on_noting(pages: usize, body: impl Fn(&'static Subject)) {
    undisturbed(|| subjects(pages).filter(|subject| subject.arena.notes_writes()), body);
}

#[test]
fn only_the_async_detector_notes_writes_and_only_when_tracked() {
    on_each(4, |s| {
        let expected = s.arena.detector() == Detector::Async && s.arena.tracking() == Tracking::Tracked;
        assert_eq!(s.arena.notes_writes(), expected, "{}", s.name());
    });
}

#[test]
fn a_read_of_an_unmapped_page_faults_once_and_finds_the_files_bytes() {
    on_each(4, |s| {
        // SAFETY: a word of the service view.
        unsafe { s.service(2).write_volatile(42) };
        assert_eq!((s.load(2), s.load(2)), (42, 42), "{}", s.name());
        assert_eq!(s.load(1), 0, "a page that nobody wrote reads as zero");
        assert_eq!(s.faults(), (2, 0), "{}", s.name());
    });
}

#[test]
fn a_write_to_a_readable_page_is_noted_or_faults() {
    on_each(4, |s| {
        s.arena.map_read(0..4).unwrap();
        s.store(1, 5);
        s.store(1, 6);
        let expected = if s.arena.notes_writes() { (0, 0) } else { (0, 1) };
        assert_eq!(s.faults(), expected, "{}", s.name());
        // SAFETY: a word of the service view.
        assert_eq!(unsafe { s.service(1).read_volatile() }, 6);
    });
}

#[test]
fn where_stores_are_forbidden_loads_find_what_is_there_and_a_store_faults_until_they_are_allowed() {
    on_noting(6, |s| {
        s.arena.map_read(0..3).unwrap();
        s.store(1, 5);
        assert!(s.arena.forbid_writes(0..4), "{}", s.name());
        // Mapped before and meanwhile: both can be loaded from.
        s.arena.map_read(3..4).unwrap();
        assert_eq!((s.load(1), s.load(3), s.faults()), (5, 0, (0, 0)));
        let mut written = Vec::new();
        s.arena.written(0..6, &mut written).unwrap();
        assert_eq!(written, [1..2], "what was stored before is noted still");
        s.allow_at_the_next_store(0..4);
        s.store(2, 6);
        s.store(3, 7);
        assert_eq!((s.load(2), s.load(3), s.faults()), (6, 7, (0, 1)), "one fault for all of it");
        written.clear();
        s.arena.written(0..6, &mut written).unwrap();
        assert_eq!(written, [1..4]);
    });
    on_each(4, |s| assert!(s.arena.notes_writes() || !s.arena.forbid_writes(0..4), "{}", s.name()));
}

#[test]
fn a_detached_arena_is_plain_memory_with_what_the_file_holds() {
    on_each(4, |s| {
        s.arena.map_write(1..2).unwrap();
        s.store(1, 7);
        // SAFETY: a word of the service view.
        unsafe { s.service(2).write_volatile(42) };
        s.arena.detach().unwrap();
        assert_eq!((s.load(1), s.load(2), s.load(3)), (7, 42, 0), "{}", s.name());
        s.store(3, 9);
        assert_eq!(s.faults(), (0, 0), "{}", s.name());
        // SAFETY: a word of the service view.
        assert_eq!(unsafe { s.service(3).read_volatile() }, 9);
        assert!(s.arena.is_detached() && s.arena.detach().is_ok(), "a second time does nothing");
    });
}

#[test]
fn an_arena_that_is_shrunk_leaves_private_memory_where_it_is_kept_and_free_addresses_elsewhere() {
    on_each(8, |s| {
        s.arena.map_write(0..8).unwrap();
        (0..8).for_each(|page| s.store(page, u64::from(page) + 1));
        s.arena.detach().unwrap();
        let at = |page: usize| s.arena.base() + page * PAGE_BYTES;
        let kept = || (0..8).filter(|page| !Arena::is_free(at(*page), PAGE_BYTES)).collect::<Vec<_>>();
        let keep = [at(6)..at(7), at(2)..at(4)];
        // SAFETY: only what is kept is used from here on, and a subject is never dropped.
        unsafe { s.arena.shrink_to(&keep).unwrap() };
        assert_eq!((kept(), s.load(2), s.load(3), s.load(6)), (vec![2, 3, 6], 3, 4, 7), "{}", s.name());
        s.store(3, 9);
        // SAFETY: the child reads and writes what it has, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let had = s.load(3);
            s.store(3, 10);
            // SAFETY: ends the process.
            unsafe { libc::_exit((had != 9 || s.load(3) != 10).into()) };
        }
        let mut status = -1;
        // SAFETY: waits for our child and writes a number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, s.load(3)), (0, 9), "{}: a child has a copy", s.name());
        // SAFETY: nobody uses these two pages any more.
        unsafe { s.arena.give_back(keep[1].clone()).unwrap() };
        assert_eq!((kept(), s.load(6)), (vec![6], 7), "{}", s.name());
    });
}

#[test]
fn no_core_dump_looks_at_an_arena_before_or_after_it_is_detached() {
    on_each(4, |s| {
        let left_out = || common::mapping_flags(s.arena.base()).split(' ').any(|flag| flag == "dd");
        let before = left_out();
        s.arena.detach().unwrap();
        assert_eq!((before, left_out()), (true, true), "{}", s.name());
    });
}

#[test]
fn a_write_to_an_unmapped_page_says_that_it_is_one() {
    if cfg!(not(target_arch = "x86_64")) {
        return println!("SKIP: this processor's fault context is not read");
    }
    on_each(4, |s| {
        s.store(3, 1);
        assert_eq!(s.faults(), (0, 1), "{}", s.name());
    });
}

#[test]
fn a_page_mapped_for_writing_does_not_fault_and_after_protecting_it_does_or_is_noted() {
    on_each(8, |s| {
        s.arena.map_write(0..8).unwrap();
        (0..8).for_each(|page| s.store(page, 1));
        assert_eq!(s.faults(), (0, 0), "{}", s.name());
        s.arena.protect(2..4).unwrap();
        assert_eq!(s.collect(2..4), [], "protecting clears");
        (0..8).for_each(|page| assert_eq!(s.load(page), 1));
        (0..8).for_each(|page| s.store(page, 2));
        let expected = if s.arena.notes_writes() { (0, 0) } else { (0, 2) };
        assert_eq!(s.faults(), expected, "{}", s.name());
    });
}

#[test]
fn ranges_that_are_mapped_in_part_become_readable_or_writable_as_a_whole() {
    on_each(16, |s| {
        s.arena.map_read(3..5).unwrap();
        s.arena.map_write(8..9).unwrap();
        s.arena.map_write(2..12).unwrap();
        (2..12).for_each(|page| s.store(page, 1));
        assert_eq!(s.faults(), (0, 0), "{}", s.name());
        s.arena.unmap(6..7).unwrap();
        s.arena.map_read(0..16).unwrap();
        assert_eq!(s.collect(0..16), [], "{}: mapping for reading leaves pages clean", s.name());
        (0..16).for_each(|page| s.store(page, 2));
        let expected = if s.arena.notes_writes() { (0, 0) } else { (0, 16) };
        assert_eq!(s.faults(), expected, "{}", s.name());
    });
}

#[test]
fn pages_are_filled_and_readable_whether_or_not_they_have_memory() {
    on_each(40, |s| {
        // SAFETY: words of the service view.
        unsafe {
            s.service(1).write_volatile(6);
            s.service(30).write_volatile(7);
        }
        let bytes: Vec<u8> = (0..40_u64).flat_map(|page| (page + 100).to_ne_bytes().repeat(PAGE_BYTES / 8)).collect();
        // The bytes need not lie like a page.
        let shifted = [vec![0; 3], bytes].concat();
        s.arena.fill(2..38, &shifted[3 + 2 * PAGE_BYTES..]).unwrap();
        for page in 2..38 {
            // SAFETY: a word of the service view.
            let in_file = unsafe { s.service(page).read_volatile() };
            assert_eq!((s.load(page), in_file), (u64::from(page) + 100, u64::from(page) + 100), "{}", s.name());
        }
        assert_eq!((s.faults(), s.collect(0..40)), ((0, 0), vec![]), "{}: they can be read, and are clean", s.name());
        assert_eq!((s.load(1), s.load(38)), (6, 0), "what was not filled stays");
        [4, 5, 30].iter().for_each(|page| s.store(*page, 1));
        let noted = if s.arena.notes_writes() { vec![4..6, 30..31] } else { vec![] };
        assert_eq!(s.collect(0..40), noted, "{}", s.name());
        let faulted = if s.arena.notes_writes() { 0 } else { 3 };
        assert_eq!(s.faults(), (2, faulted), "{}: stores are noted or fault", s.name());
        assert!(s.arena.fill(39..41, &shifted).is_err(), "pages outside");
        assert!(s.arena.fill(36..38, &shifted[..PAGE_BYTES]).is_err(), "too few bytes");
    });
}

#[test]
fn an_unmapped_page_faults_again_and_keeps_its_bytes() {
    on_each(4, |s| {
        s.store(1, 9);
        s.arena.unmap(0..4).unwrap();
        let before = s.faults();
        assert_eq!(s.load(1), 9);
        assert_eq!(s.faults(), (before.0 + 1, before.1), "{}", s.name());
    });
}

#[test]
fn a_discarded_page_reads_zero_and_its_memory_is_given_back() {
    on_each(64, |s| {
        (0..64).for_each(|page| s.store(page, 7));
        assert!(s.arena.resident_bytes() >= 64 * PAGE_BYTES as u64, "{}", s.name());
        s.arena.discard(0..63).unwrap();
        assert!(s.arena.resident_bytes() < 8 * PAGE_BYTES as u64, "{}", s.name());
        assert_eq!(s.collect(0..63), [], "a discarded page is clean");
        let before = s.faults();
        assert_eq!((s.load(5), s.load(63)), (0, 7), "{}", s.name());
        assert_eq!(s.faults().0, before.0 + 1, "only the discarded page faulted");
    });
}

#[test]
fn collecting_reports_exactly_what_was_written_and_reports_it_once() {
    on_noting(600, |s| {
        s.arena.map_read(0..600).unwrap();
        let wanted: Vec<u32> = (0..600).filter(|page| page % 7 == 0 || (100..200).contains(page)).collect();
        wanted.iter().for_each(|page| s.store(*page, 1));
        let found: Vec<u32> = s.collect(0..600).into_iter().flatten().collect();
        assert_eq!(found, wanted, "more runs than one scan has room for");
        assert_eq!(s.collect(0..600), []);
        s.store(3, 2);
        assert_eq!(s.collect(4..600), [], "outside the range");
        assert_eq!(s.collect(0..600), [3..4]);
        assert_eq!(s.faults(), (0, 0));
    });
}

#[test]
fn peeking_names_what_a_collection_would_and_leaves_it_there() {
    on_noting(1_200, |s| {
        s.arena.map_read(0..1_100).unwrap();
        [3, 600, 1_099].into_iter().for_each(|page| s.store(page, 1));
        let peek = || {
            let mut seen = Vec::new();
            s.arena.peek(0..1_200, &mut seen, |_, _| ()).unwrap();
            seen
        };
        assert_eq!(peek(), [3..4, 600..601, 1_099..1_100]);
        assert_eq!(s.collect(600..700), [600..601], "it was still noted");
        assert_eq!(peek(), [3..4, 1_099..1_100]);
        let (mut seen, mut looked) = (vec![7..8], Vec::new());
        s.arena.untrack(100..1_000);
        s.arena.peek(0..1_200, &mut seen, |span, found| looked.push((span, found.to_vec()))).unwrap();
        assert_eq!(
            looked,
            [(0..100, vec![3..4]), (1_000..1_100, vec![1_099..1_100])],
            "what was found in each stretch"
        );
        assert_eq!(seen, [7..8, 3..4, 1_099..1_100]);
        assert_eq!(s.faults(), (0, 0));
    });
}

#[test]
fn runs_that_are_unmapped_together_say_what_was_written_until_they_are_mapped_again() {
    on_noting(3_000, |s| {
        let runs: Vec<_> = (0..1_400).map(|run| run * 2..run * 2 + 1).collect();
        s.arena.map_read(0..3_000).unwrap();
        [4, 5, 2_000].into_iter().for_each(|page| s.store(page, 1));
        let together = s.arena.unmap_all(&runs);
        if !together {
            runs.iter().for_each(|run| s.arena.unmap(run.clone()).unwrap());
        }
        let written = || {
            let mut written = Vec::new();
            s.arena.written(0..3_000, &mut written).unwrap();
            written
        };
        assert_eq!(written(), [4..6, 2_000..2_001]);
        assert_eq!(written(), [4..6, 2_000..2_001], "nothing was taken");
        s.arena.map_read(4..5).unwrap();
        assert_eq!(written(), [5..6, 2_000..2_001], "what is mapped again is clean");
        let before = s.faults();
        assert_eq!((s.load(5), s.load(2_000)), (1, 1));
        assert_eq!(s.faults(), (before.0 + 1, before.1), "page 5 stayed mapped");
    });
}

#[test]
fn runs_that_are_unmapped_together_fault_again_and_others_do_not() {
    on_each(8, |s| {
        let unmap = || s.arena.unmap_all(&[1..2, 4..6]);
        (0..8).for_each(|page| s.store(page, u64::from(page)));
        let together = unmap();
        assert!(!s.arena.unmap_all(&[0..1, 7..9]), "{}: pages outside the arena", s.name());
        assert_eq!(unmap(), together, "{}: that was refused before the system was asked", s.name());
        if together {
            let before = s.faults();
            (0..8).for_each(|page| assert_eq!(s.load(page), u64::from(page)));
            assert_eq!(s.faults(), (before.0 + 3, before.1), "{}", s.name());
        }
    });
}

/// Else the places for them would be used up.
#[test]
fn arenas_may_come_and_go_without_end() {
    for detector in detectors() {
        for _ in 0..300 {
            let base = free_base(PAGE_BYTES);
            drop(Arena::new(base, PAGE_BYTES, Tracking::Tracked, detector).unwrap());
            assert!(Arena::is_free(base, PAGE_BYTES), "{detector}");
        }
    }
}

#[test]
fn a_child_does_not_have_the_applications_view() {
    on_each(4, |s| {
        s.store(1, 7);
        for detached in [false, true] {
            if detached {
                s.arena.detach().unwrap();
            }
            // SAFETY: the child asks whether an address is mapped, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(libc::msync(s.address(1).cast(), PAGE_BYTES, libc::MS_ASYNC) + 1) };
            }
            let mut status = -1;
            // SAFETY: writes one number.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "{}, detached: {detached}", s.name());
        }
    });
}

#[test]
fn peeking_passes_over_what_is_disregarded_until_it_is_mapped_or_protected_again() {
    on_noting(8, |s| {
        let peek = || {
            let mut seen = Vec::new();
            s.arena.peek(0..8, &mut seen, |_, _| ()).unwrap();
            seen
        };
        s.arena.map_write(0..8).unwrap();
        s.arena.untrack(2..6);
        assert_eq!(peek(), [0..2, 6..8]);
        s.arena.map_read(2..3).unwrap();
        s.arena.protect(4..5).unwrap();
        (2..5).for_each(|page| s.store(page, 1));
        assert_eq!(peek(), [0..3, 4..5, 6..8]);
        s.arena.track(5..6);
        assert_eq!(peek(), [0..3, 4..8], "it was written before");
        assert_eq!(s.collect(0..8), [0..8], "the notes are there all the same");
    });
}

#[test]
fn a_page_that_is_loaded_or_written_by_the_service_view_is_clean() {
    on_noting(4, |s| {
        s.arena.map_read(0..4).unwrap();
        assert_eq!(s.load(0), 0);
        // SAFETY: a word of the service view.
        unsafe { s.service(1).write_volatile(3) };
        assert_eq!(s.collect(0..4), []);
        assert_eq!(s.load(1), 3);
    });
}

#[test]
fn a_page_written_and_then_unmapped_is_reported_once_and_a_clean_one_never() {
    on_noting(8, |s| {
        s.arena.map_read(0..4).unwrap();
        s.store(2, 1);
        s.arena.unmap(0..8).unwrap();
        assert_eq!(s.collect(0..8), [2..3], "neither clean pages nor those that were never mapped");
        assert_eq!(s.collect(0..8), []);
    });
}

#[test]
fn mapping_for_reading_forgets_what_was_written_before() {
    on_noting(4, |s| {
        s.arena.map_read(0..4).unwrap();
        s.store(1, 1);
        s.arena.unmap(1..2).unwrap();
        s.arena.map_read(1..2).unwrap();
        assert_eq!(s.collect(0..4), []);
    });
}

#[test]
fn a_page_mapped_for_writing_counts_as_written() {
    on_noting(4, |s| {
        s.arena.map_write(1..2).unwrap();
        assert_eq!(s.collect(0..4), [1..2]);
        assert_eq!(s.collect(0..4), [], "and is protected by the collection");
        s.arena.map_write(1..2).unwrap();
        assert_eq!(s.collect(0..4), [1..2], "also when it was readable before");
    });
}

/// A store that runs beside collections is in one of them or in the next: the counts must meet.
#[test]
fn no_store_falls_between_two_collections() {
    on_noting(2, |s| {
        s.arena.map_read(0..2).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                fault::prepare_thread().unwrap();
                let mut word = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    word += 1;
                    s.store(1, word);
                }
                word
            });
            let mut seen = 0;
            for _ in 0..3_000 {
                if s.collect(0..2) == [1..2] {
                    // SAFETY: a word of the service view.
                    seen = unsafe { s.service(1).read_volatile() };
                }
            }
            stop.store(true, Ordering::Relaxed);
            let last = writer.join().unwrap();
            if s.collect(0..2) == [1..2] {
                // SAFETY: as above.
                seen = unsafe { s.service(1).read_volatile() };
            }
            assert_eq!(seen, last);
        });
    });
}

/// Where writes are announced, a store that runs beside protections is visible afterwards or faults.
#[test]
fn no_store_slips_past_a_protection() {
    for s in subjects(1).filter(|s| !s.arena.notes_writes()) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                fault::prepare_thread().unwrap();
                let mut word = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    word += 1;
                    s.store(0, word);
                }
            });
            let slipped = (0..200).find_map(|_| {
                let faults = s.alone(|| {
                    s.arena.map_read(0..1).unwrap();
                    s.writes.load(Ordering::SeqCst)
                });
                // SAFETY: a word of the service view.
                let word = unsafe { s.service(0).read_volatile() };
                std::thread::yield_now();
                // SAFETY: as above.
                let later = unsafe { s.service(0).read_volatile() };
                let faulted = s.writes.load(Ordering::SeqCst) > faults;
                (word != later && !faulted).then_some((word, later))
            });
            stop.store(true, Ordering::Relaxed);
            assert_eq!(slipped, None, "{}", s.name());
        });
    }
}

#[test]
fn threads_that_fault_on_one_page_all_come_through() {
    on_each(256, |s| {
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    fault::prepare_thread().unwrap();
                    for page in 0..256 {
                        together.wait();
                        assert_eq!(s.load(page), 0);
                    }
                });
            }
        });
        assert!((256..=512).contains(&s.faults().0), "{}: {:?}", s.name(), s.faults());
    });
}

#[test]
fn eight_tebibytes_cost_nothing_and_their_last_page_works() {
    const BYTES: usize = 8 << 40;
    for detector in detectors() {
        let base = free_base(BYTES);
        let arena = Arena::new(base, BYTES, Tracking::Tracked, detector).unwrap();
        assert!(!Arena::is_free(base, PAGE_BYTES) && !Arena::is_free(base + BYTES - PAGE_BYTES, PAGE_BYTES));
        assert_eq!((arena.base(), arena.pages(), arena.resident_bytes()), (base, 1 << 31, 0));
        let last = arena.pages() - 1;
        assert_eq!(arena.page_of(base + BYTES - 1), Some(last));
        assert_eq!((arena.page_of(base + BYTES), arena.page_of(base - 1)), (None, None));
        arena.map_write(last..last + 1).unwrap();
        // SAFETY: the arena's last byte, mapped for writing.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(base + BYTES - 1).write_volatile(8) };
        // SAFETY: the same byte in the service view.
        assert_eq!(unsafe { arena.service().add(BYTES - 1).read_volatile() }, 8);
        assert!(arena.resident_bytes() <= 1 << 21);
        drop(arena);
        assert!(Arena::is_free(base, BYTES));
    }
}

#[test]
fn an_arena_is_refused_where_something_is_mapped_and_for_crooked_sizes() {
    on_each(4, |s| {
        let new = |base, bytes| Arena::new(base, bytes, s.arena.tracking(), s.arena.detector()).map(drop);
        let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
        let free = free_base(1 << 20);
        assert_eq!(kind(new(s.arena.base(), PAGE_BYTES)), std::io::ErrorKind::AlreadyExists);
        for (base, bytes) in [(free, 100), (free + 1, PAGE_BYTES), (free, 0), (free, 32 << 40)] {
            assert_eq!(kind(new(base, bytes)), std::io::ErrorKind::InvalidInput);
        }
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        for pages in [3..5, 2..1] {
            assert_eq!(kind(s.arena.map_read(pages.clone())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.collect(pages.clone(), &mut Vec::new())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.written(pages.clone(), &mut Vec::new())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.peek(pages.clone(), &mut Vec::new(), |_, _| ())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.map_write(pages.clone())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.protect(pages.clone())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.unmap(pages.clone())), std::io::ErrorKind::InvalidInput);
            assert_eq!(kind(s.arena.discard(pages.clone())), std::io::ErrorKind::InvalidInput);
            // Wishes, and looks ahead, pass over what there is not.
            s.arena.untrack(pages.clone());
            s.arena.track(pages.clone());
            s.arena.prepare(pages.clone());
            s.arena.look_ahead(pages.clone());
            s.arena.prefault_service_view(pages);
            s.arena.prefault_service_view(2..u32::MAX);
        }
    });
}

#[test]
fn userfaultfd_never_meets_the_limit_on_mappings() {
    const PAGES: u32 = 140_000;
    for detector in detectors().into_iter().filter(|detector| *detector != Detector::Mprotect) {
        let s = subject(PAGES as usize, Tracking::Tracked, detector);
        for page in (0..PAGES).step_by(2) {
            s.arena.map_read(page..page + 1).unwrap();
        }
        s.arena.discard(0..PAGES).unwrap();
    }
}
