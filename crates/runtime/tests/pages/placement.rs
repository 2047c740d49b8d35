//! Wherever the homes of pages are, and wherever they go: a read sees the last write before the barrier.

use crate::matrix::times;
use comem::heap::{Dealt, Home, PageSlice, RegionOptions};
use comem::{Comem, NodeId, Thread, split};

/// Words in a page.
pub const WORDS: usize = 512;

/// A shared slice of so many pages.
pub fn pages_of(comem: &Comem, pages: usize, options: &RegionOptions) -> PageSlice<u64> {
    comem.page_slice(pages * WORDS, options).expect("there is room for a slice")
}

/// Everybody has read; each node gives its handle back.
pub fn give_back(comem: &Comem, slice: PageSlice<u64>) {
    comem.parallel(|t| t.barrier());
    comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
}

fn value(round: usize, index: usize) -> u64 {
    (round * 1_000_003 + index * 7 + 1) as u64
}

/// Each round, every thread writes the share of another thread than in the round before, and reads a sample of
/// everything.
pub fn shares_that_wander(t: &Thread, slice: &PageSlice<u64>, rounds: usize) {
    for index in t.split(slice.len()).step_by(37) {
        assert_eq!(slice.get(index), 0, "new memory is zero");
    }
    t.barrier();
    for round in 0..rounds {
        let mine = split(slice.len(), (t.id() + round) % t.threads(), t.threads());
        for index in mine {
            slice.set(index, value(round, index));
        }
        t.barrier();
        let step = 61;
        for index in (round..slice.len()).step_by(step).chain([0, slice.len() - 1]) {
            assert_eq!(slice.get(index), value(round, index), "word {index} in round {round}");
        }
        t.barrier();
    }
}

/// Block, cyclic, dealt out in runs and rounds, on one node, at the first touch, moving, claimed late; in units of 1, 2
/// and 8 pages.
pub fn every_placement(comem: &Comem) {
    let last = NodeId((comem.nodes() - 1) as u16);
    let runs = Home::Dealt(Dealt::runs(&[3, 1], last).expect("lengths that make sense"));
    let rounds = Home::Dealt(Dealt::rounds(&[2, 1, 5], last).expect("lengths that make sense"));
    let plain = [Home::Block, Home::Cyclic(1), Home::Cyclic(3), Home::On(last), Home::FirstTouch, Home::Automatic];
    for homes in plain.into_iter().chain([runs, rounds, Home::Claimed]) {
        for unit_pages in &[2, 1, 8][..times(3)] {
            let (homes, unit_pages) = (homes.clone(), *unit_pages);
            let slice = pages_of(comem, 17, &RegionOptions { home: homes, unit_pages, ..RegionOptions::default() });
            comem.parallel(|t| shares_that_wander(t, &slice, 2));
            give_back(comem, slice);
        }
    }
}

/// Each page has one writer for a while, so that its home goes there; then another one.
pub fn writers_that_change(comem: &Comem) {
    let slice = pages_of(comem, 24, &RegionOptions::default());
    comem.parallel(|t| {
        for round in 0..times(24) {
            // Each writer stays three rounds, and sees its own and the others' earlier words meanwhile.
            let turn = round / 3;
            for page in (0..24).filter(|page| (page + turn) % t.threads() == t.id()) {
                for word in 0..8 {
                    let index = page * WORDS + word * 64 + round;
                    slice.set(index, slice.get(index) + value(round, index));
                }
            }
            t.barrier();
            for page in (round % 3..24).step_by(3) {
                for before in 0..=round {
                    let index = page * WORDS + (before % 8) * 64 + before;
                    assert_eq!(slice.get(index), value(before, index), "page {page}: round {before} seen in {round}");
                }
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// All threads touch one unit first at once; there is one home nevertheless.
pub fn first_touch(comem: &Comem) {
    [Home::FirstTouch, Home::Claimed].into_iter().for_each(|homes| touched_at_once(comem, homes));
}

fn touched_at_once(comem: &Comem, homes: Home) {
    let options = RegionOptions { home: homes, ..RegionOptions::default() };
    let slice = pages_of(comem, 16, &options);
    comem.parallel(|t| {
        t.begin_work();
        for page in 0..16 {
            slice.set(page * WORDS + t.id(), value(1, t.id()));
        }
        t.barrier();
        for page in 0..16 {
            for id in 0..t.threads() {
                assert_eq!(slice.get(page * WORDS + id), value(1, id), "page {page}, thread {id}");
            }
        }
    });
    give_back(comem, slice);
}
