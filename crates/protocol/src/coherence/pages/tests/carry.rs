use super::chunk::first_in_use;
use super::ledger::{LOCK, ledger};
use super::{Bench, ME, OTHER};
use crate::coherence::pages::carry::{self, Wishes};
use crate::coherence::pages::chunk::{Chunk, FirstTouch};
use crate::coherence::pages::desk::Desk;
use crate::coherence::pages::ledger::{Ledger, Needs};
use crate::coherence::pages::push::Stash;
use crate::coherence::pages::serve::{Listing, PageRooms};
use crate::coherence::pages::wire::{DiffsHead, Group, Groups, Need};
use crate::coherence::pages::{Access, Context, PAGE_BYTES, PageEngine, PageMemory, PageNo};
use crate::faults::Rng;
use crate::ids::NodeId;
use crate::outbox::Outbox;
use crate::sync::Mark;
use smallvec::smallvec;
use std::ops::Range;
use std::sync::Arc;

const THIRD: NodeId = NodeId(3);

/// One of two nodes between which a lock's token goes: its pages and its ledger.
struct Node {
    bench: Bench,
    desk: Desk,
    stash: Stash,
    ledger: Ledger,
    needs: Needs,
}

impl PageRooms for Node {
    fn listed_chunk<R>(
        &mut self,
        (page, _): (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.bench.chunk_with(page, out, step)
    }
    fn page_desk<R>(&mut self, step: impl FnOnce(&mut Desk) -> R) -> R {
        step(&mut self.desk)
    }
    fn stash<R>(&mut self, step: impl FnOnce(&mut Stash) -> R) -> Option<R> {
        Some(step(&mut self.stash))
    }
}

impl Node {
    /// A node with copies of pages of `home`, which it has had in use.
    fn new(number: u16, home: NodeId, engine: PageEngine) -> Node {
        let mut bench = Bench::new(home, true);
        if home != ME {
            bench.fetch(0..4);
            bench.invalidate(0..4);
            bench.fetch(0..4);
        }
        let ledger = ledger(number, engine);
        Node { bench, desk: Desk::new(), stash: Stash::default(), ledger, needs: Needs::default() }
    }

    /// An interval ends in which these pages of [`OTHER`] were written.
    fn writes(&mut self, pages: Range<PageNo>, serial: u64) {
        let group = Group { home: OTHER, serial, runs: smallvec![(pages, true)] };
        self.ledger.close([smallvec![group], Groups::new()]);
    }

    /// Takes the token of a lock from `giver`, and wishes for these pages; gives those that can be used now without asking their home.
    fn takes_from(&mut self, giver: &mut Node, wanted: Range<PageNo>, fresh: bool) -> Vec<Range<PageNo>> {
        let (mut request, mut payload) = (Vec::new(), Vec::new());
        self.ledger.knowledge(LOCK, &mut request);
        let plain = request.clone();
        carry::wishes(self, &[wanted]).emit(&mut request);
        let (seen, wishes) = carry::split(&request);
        assert_eq!(seen, plain);
        giver.ledger.tell((LOCK, Mark::NOW), seen, &mut payload);
        let (told, ledger) = (payload.clone(), giver.ledger.clone());
        if let Some(wishes) = wishes {
            carry::load(giver, &ledger, (wishes, fresh), &told, &mut payload);
        }
        let (rest, carried) = carry::take_off(&payload);
        assert_eq!(rest, told);
        for entry in self.ledger.learn(LOCK, rest, &mut self.needs).unwrap() {
            entry.groups.iter().flat_map(|g| &g.runs).for_each(|(run, _)| {
                self.stash.void(run);
                self.bench.invalidate(run.clone());
            });
        }
        let (ledger, mut homes) = (self.ledger.clone(), Vec::new());
        carried.into_iter().for_each(|c| carry::unload(self, &ledger, |home| homes.push(home), c).unwrap());
        homes.into_iter().for_each(|home| self.needs.pass_by(home));
        (0..4).filter(|page| self.stash.has(&(*page..page + 1))).map(|page| page..page + 1).collect()
    }
}

fn two(engine: PageEngine) -> (Node, Node) {
    (Node::new(4, OTHER, engine), Node::new(5, OTHER, engine))
}

#[test]
fn what_the_giver_has_written_comes_with_the_token_and_nothing_else() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(1..3, 1);
    assert_eq!(taker.takes_from(&mut giver, 0..3, true), [1..2, 2..3], "page 0 is valid, and stays so");
    let (mut picked, mut left) = (Vec::new(), Vec::new());
    taker.stash.pick(OTHER, &[1..2, 2..3], &mut picked, &mut left);
    assert_eq!(picked.iter().map(|p| p.bytes().len()).sum::<usize>(), 2 * PAGE_BYTES);
    assert!(left.is_empty() && picked.iter().all(|p| !p.from_home));
}

#[test]
fn what_the_givers_threads_have_stored_since_does_not_come() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(1..2, 1);
    giver.bench.memory.make_twin(1..2, false);
    assert_eq!(taker.takes_from(&mut giver, 1..2, true), [1..2]);
    let (mut picked, mut left) = (Vec::new(), Vec::new());
    taker.stash.pick(OTHER, &[1..2], &mut picked, &mut left);
    assert!(picked.iter().all(|p| p.bytes().iter().all(|byte| *byte == 2)), "the twin's bytes, and not the memory's");
}

#[test]
fn what_the_taker_has_lost_before_comes_too_if_the_giver_still_has_it() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    taker.bench.invalidate(0..2);
    giver.bench.invalidate(1..2);
    assert_eq!(taker.takes_from(&mut giver, 0..4, true), [0..1]);
}

#[test]
fn nothing_comes_under_scope_nor_in_another_epoch() {
    let (mut giver, mut taker) = two(PageEngine::Scope);
    giver.writes(1..3, 1);
    assert_eq!(taker.takes_from(&mut giver, 0..4, true), []);
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    taker.bench.invalidate(0..2);
    giver.desk.open(1);
    assert_eq!(taker.takes_from(&mut giver, 0..4, true), [], "homes may be about to migrate");
}

#[test]
fn what_was_given_in_one_epoch_is_of_no_use_in_another() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    taker.bench.invalidate(1..3);
    let (mut request, mut payload) = (vec![0; 4], Vec::new());
    carry::wishes(&mut taker, &[1..3]).emit(&mut request);
    let (wishes, ledger) = (carry::split(&request).1.unwrap(), giver.ledger.clone());
    assert_eq!(carry::load(&mut giver, &ledger, (wishes, true), &[], &mut payload), 2);
    let carried = carry::take_off(&payload).1.unwrap();
    for epoch in [1, 0] {
        let mut ledger = taker.ledger.clone();
        ledger.has_come_to(epoch);
        carry::unload(&mut taker, &ledger, |_| (), carried).unwrap();
        assert_eq!(taker.stash.has(&(1..3)), epoch == 0);
    }
}

#[test]
fn a_page_that_the_giver_has_not_seen_written_is_of_no_use() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    taker.writes(1..2, 1);
    taker.bench.invalidate(0..3);
    assert_eq!(taker.takes_from(&mut giver, 0..3, true), [0..1, 2..3], "what it wrote itself is at the home");
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    let mut third = Node::new(6, OTHER, PageEngine::Hlrc);
    third.writes(2..3, 1);
    taker.takes_from(&mut third, 0..0, true);
    assert_eq!(taker.takes_from(&mut giver, 2..3, true), []);
}

#[test]
fn a_page_whose_own_bytes_are_on_their_way_is_of_no_use() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(0..2, 1);
    taker.bench.memory.written = vec![1];
    assert_eq!(taker.takes_from(&mut giver, 0..2, true), [0..1], "page 1 was flushed when it ended");
}

#[test]
fn a_home_sends_its_pages_when_what_it_has_heard_of_is_in() {
    for (fresh, expected) in [(false, vec![]), (true, vec![2..3])] {
        let mut home = Node::new(1, ME, PageEngine::Hlrc);
        home.bench.fault(2, Access::Write);
        let mut taker = Node::new(5, OTHER, PageEngine::Hlrc);
        taker.bench.invalidate(2..3);
        assert_eq!(taker.takes_from(&mut home, 2..3, fresh), expected);
    }
}

#[test]
fn diffs_of_pages_that_came_with_a_token_name_what_was_in_them() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(1..2, 7);
    taker.needs.raise(OTHER, ME, 3);
    assert_eq!(taker.needs.before_diffs(OTHER, ME), [], "no page has passed its home by");
    assert_eq!(taker.takes_from(&mut giver, 1..2, true), [1..2]);
    let need = Need { writer: NodeId(4), serial: 7 };
    assert_eq!(taker.needs.before_diffs(OTHER, ME), [need]);
    assert_eq!(taker.needs.before_diffs(THIRD, ME), []);
    taker.needs.confirm(OTHER, &[need]);
    assert_eq!(taker.needs.before_diffs(OTHER, ME), []);
}

#[test]
fn nothing_is_wished_for_of_memory_that_is_new_in_this_epoch() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(0..4, 1);
    taker.stash.on_allocation(1..3);
    assert_eq!(taker.takes_from(&mut giver, 0..4, true), [0..1, 3..4]);
    assert_eq!(carry::wishes(&mut taker, &[0..4]).pages(), 2, "the others are here");
    taker.stash.put(OTHER, &(1..3), &Arc::new(vec![0; 2 * PAGE_BYTES]), 0);
    assert!(!taker.stash.has(&(1..3)), "nor is it taken if it comes");
}

#[test]
fn diffs_wait_for_what_they_name() {
    let mut desk = Desk::new();
    let head = |serial, needs: &[Need]| DiffsHead { epoch: 0, serial, needs: needs.to_vec() };
    let needs = [Need { writer: THIRD, serial: 2 }];
    assert!(!desk.take_diffs(OTHER, head(1, &needs), b"a"));
    assert!(!desk.take_diffs(OTHER, head(2, &[]), b"b"), "nor do those overtake it");
    desk.applied(THIRD, 1);
    assert_eq!(desk.next_diffs(), None);
    desk.applied(THIRD, 2);
    assert_eq!(desk.next_diffs(), Some((OTHER, head(1, &needs), b"a".to_vec())));
    desk.applied(OTHER, 1);
    assert_eq!(desk.next_diffs(), Some((OTHER, head(2, &[]), b"b".to_vec())));
}

#[test]
fn no_bytes_whatever_make_giver_or_taker_panic() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.below(40)).map(|_| rng.below(5) as u8).collect();
        if rng.below(2) == 0 {
            // A page, or nearly one, behind a head that may be one.
            bytes.truncate(18);
            bytes.resize(18 + PAGE_BYTES - rng.below(2) as usize, 1);
        }
        let (gives, takes) = (giver.ledger.clone(), taker.ledger.clone());
        carry::load(&mut giver, &gives, (&bytes, true), &bytes, &mut Vec::new());
        let _ = carry::unload(&mut taker, &takes, |_| (), &bytes);
        taker.stash.void(&(0..4));
    }
}

#[test]
fn only_so_much_is_wished_for_as_a_token_carries() {
    let mut taker = Node::new(5, OTHER, PageEngine::Hlrc);
    let wishes = carry::wishes(&mut taker, &[0..3, 1..4, 0..4, 2..3]);
    assert_eq!((wishes.pages(), wishes.lacking.len()), (carry::CARRIED_PAGES_MAX, 0));
    let mut none = Vec::new();
    Wishes::default().emit(&mut none);
    assert!(none.is_empty());
}

#[test]
fn of_what_comes_with_a_token_whole_units_are_used_whose_home_is_known_and_that_are_not_kept() {
    let usable = |bench: &Bench, pages: Range<PageNo>| bench.chunk.can_use_carried(&pages);
    let pairs = Bench::with_shape(OTHER, true, |shape| shape.unit_pages = 2);
    assert_eq!((usable(&pairs, 0..1), usable(&pairs, 0..2)), (None, Some(OTHER)));
    let mut fresh = Bench::with_shape(OTHER, true, |shape| shape.first_touch = FirstTouch::Late);
    assert_eq!((usable(&fresh, 0..1), fresh.chunk.would_fetch(0)), (None, None));
    fresh.fetch(0..1);
    fresh.invalidate(0..1);
    assert_eq!(usable(&fresh, 0..1), Some(OTHER));
    let mut kept = first_in_use();
    kept.step(|chunk, cx, flushed| chunk.invalidate_in_place(cx, &[0..1], flushed));
    assert_eq!(usable(&kept, 0..1), None);
}

#[test]
fn what_came_with_a_token_is_not_used_while_it_may_lack_an_atomic_operation_of_this_node() {
    let mut taker = first_in_use();
    taker.invalidate(0..1);
    assert_eq!(taker.chunk.can_use_carried(&(0..1)), Some(OTHER));
    assert!(!taker.chunk.atomic_done(0), "there is no copy that would have to end");
    assert_eq!(taker.chunk.can_use_carried(&(0..1)), None);
    taker.close();
    assert_eq!(taker.chunk.can_use_carried(&(0..1)), Some(OTHER), "from now on the giver's knowledge tells");
}
