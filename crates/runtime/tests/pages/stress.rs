//! Threads write while others fetch, diff, protect and invalidate the same pages. Every word has one writer, all
//! writers have words in every page, and no update may get lost: a writer knows what its words hold at any time,
//! readers see each word go up only, and after a barrier everybody can tell what every word holds.

use crate::matrix::times;
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, PageEngine, PageSlice, RegionOptions};
use comem::{Comem, LockId, NodeId, Thread};

const PAGES: usize = 4;
/// Words of each thread in each page that are in use.
const EACH: usize = 6;
const STEPS: usize = 150;

/// A generator of numbers that all threads can run for each other.
struct Chance(u64);

impl Chance {
    fn new(round: usize, id: usize) -> Chance {
        Chance(
            (round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (id as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95),
        )
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

/// Where word `n` of a thread lies: neighbours in memory belong to different threads.
fn place(n: usize, id: usize, threads: usize) -> usize {
    let (page, word) = (n / EACH, n % EACH);
    page * WORDS + (word * 67) % (WORDS - threads) + id
}

/// Which of its words a thread writes in one step.
fn choice(chance: &mut Chance) -> usize {
    chance.below(PAGES * EACH)
}

/// What the words of thread `id` hold after a round, from what they held before.
fn replay(words: &mut [u64], round: usize, id: usize, steps: usize) {
    let mut chance = Chance::new(round, id);
    (0..steps).for_each(|_| words[choice(&mut chance)] += 1);
}

/// Every thread writes, reads, locks and meets the others; where homes migrate, in a region of the job's engine and one
/// of another at once.
pub fn words_of_all_in_every_page(comem: &Comem) {
    let steps = times(STEPS);
    let other = if comem.page_engine().is_scoped() { PageEngine::Hlrc } else { PageEngine::Scope };
    for (homes, unit_pages) in [(Home::Cyclic(1), 1), (Home::On(NodeId(0)), 2), (Home::Automatic, 1)] {
        let engines = if homes == Home::Automatic { vec![None, Some(other)] } else { vec![None] };
        let options = RegionOptions { home: homes, unit_pages, ..RegionOptions::default() };
        let region = |engine| pages_of(comem, PAGES, &RegionOptions { engine, ..options.clone() });
        let slices: Vec<_> = engines.into_iter().map(region).collect();
        comem.parallel(|t| rounds(t, &slices, steps));
        slices.into_iter().for_each(|slice| give_back(comem, slice));
    }
}

fn rounds(t: &Thread, slices: &[PageSlice<u64>], steps: usize) {
    let mut words = vec![vec![0; PAGES * EACH]; t.threads()];
    for round in 0..3 {
        one_round(t, slices, round, (steps, &mut words[t.id()].clone()));
        t.barrier();
        for (id, words) in words.iter_mut().enumerate() {
            replay(words, round, id, steps);
            for (n, word) in words.iter().enumerate() {
                let at = place(n, id, t.threads());
                for slice in slices {
                    assert_eq!(
                        slice.get(at),
                        *word,
                        "round {round}: word {n} of thread {id} (index {at}) lost an update"
                    );
                }
            }
        }
        t.barrier();
    }
}

fn one_round(t: &Thread, slices: &[PageSlice<u64>], round: usize, (steps, own): (usize, &mut [u64])) {
    let mut chance = Chance::new(round, t.id());
    // What others do beside is up to each thread alone.
    let mut side = Chance::new(round + 1000, t.id());
    let mut seen = vec![0; slices.len() * PAGES * EACH * t.threads()];
    for step in 0..steps {
        let n = choice(&mut chance);
        let at = place(n, t.id(), t.threads());
        for slice in slices {
            assert_eq!(slice.get(at), own[n], "step {step} of round {round}: own word {n} (index {at}) lost an update");
            slice.set(at, own[n] + 1);
        }
        own[n] += 1;
        let (other, n) = (side.below(t.threads()), side.below(PAGES * EACH));
        let now = slices[step % slices.len()].get(place(n, other, t.threads()));
        let before = &mut seen[(step % slices.len() * t.threads() + other) * PAGES * EACH + n];
        assert!(now >= *before, "word {n} of thread {other} went back from {before} to {now}");
        *before = now;
        if side.below(6) == 0 {
            t.locked(LockId(60 + side.below(3) as u64), || ());
        }
    }
}
