use super::intervals::{LOCK, intervals};
use super::page_table::first_in_use;
use super::{Bench, ME, OTHER};
use crate::coherence::pages::home_queue::HomeQueue;
use crate::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use crate::coherence::pages::page_table::{FirstTouch, PageTable};
use crate::coherence::pages::piggyback::{self, PrefetchHint};
use crate::coherence::pages::push::PushBuffer;
use crate::coherence::pages::serve::{Listing, PageState};
use crate::coherence::pages::wire::{DiffsHead, Group, Groups, RequiredDiff};
use crate::coherence::pages::{Access, Context, PAGE_BYTES, PageEngine, PageNo, PageTwins};
use crate::faults::Rng;
use crate::ids::NodeId;
use crate::outbox::Outbox;
use crate::sync::IntervalMark;
use crate::tuning::Tuning;
use smallvec::smallvec;
use std::ops::Range;
use std::sync::Arc;

const THIRD: NodeId = NodeId(3);

/// One of two nodes between which a lock's token goes: its pages and its intervals.
struct Node {
    bench: Bench,
    home_queue: HomeQueue,
    push_buffer: PushBuffer,
    intervals: IntervalState,
    needs: RequiredDiffs,
}

impl PageState for Node {
    fn tuning(&self) -> &Tuning {
        &Tuning::DEFAULT
    }

    fn listed_chunk<R>(
        &mut self,
        (page, _): (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.bench.chunk_with(page, out, step)
    }
    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.home_queue)
    }
    fn push_buffer<R>(&mut self, step: impl FnOnce(&mut PushBuffer) -> R) -> Option<R> {
        Some(step(&mut self.push_buffer))
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
        let intervals = intervals(number, engine);
        Node {
            bench,
            home_queue: HomeQueue::new(),
            push_buffer: PushBuffer::default(),
            intervals,
            needs: RequiredDiffs::default(),
        }
    }

    /// An interval ends in which these pages of [`OTHER`] were written.
    fn writes(&mut self, pages: Range<PageNo>, serial: u64) {
        let group = Group { home: OTHER, serial, runs: smallvec![(pages, true)] };
        self.intervals.close([smallvec![group], Groups::new()]);
    }

    /// Takes the token of a lock from `giver`, and wishes for these pages; gives those that can be used now without
    /// asking their home.
    fn takes_from(&mut self, giver: &mut Node, wanted: Range<PageNo>, fresh: bool) -> Vec<Range<PageNo>> {
        let (mut request, mut payload) = (Vec::new(), Vec::new());
        self.intervals.knowledge(LOCK, &mut request);
        let plain = request.clone();
        piggyback::prefetch_hint(self, &[wanted]).emit(&mut request);
        let (seen, hint) = piggyback::split_request(&request);
        assert_eq!(seen, plain);
        giver.intervals.encode_notices((LOCK, IntervalMark::NOW), seen, &mut payload);
        let (told, intervals) = (payload.clone(), giver.intervals.clone());
        if let Some(hint) = hint {
            piggyback::attach(giver, &intervals, (hint, fresh), &told, &mut payload);
        }
        let (rest, attached) = piggyback::split_payload(&payload);
        assert_eq!(rest, told);
        for entry in self.intervals.apply_notices(LOCK, rest, &mut self.needs).unwrap() {
            entry.groups.iter().flat_map(|g| &g.runs).for_each(|(run, _)| {
                self.push_buffer.void(run);
                self.bench.invalidate(run.clone());
            });
        }
        let (intervals, mut homes) = (self.intervals.clone(), Vec::new());
        attached.into_iter().for_each(|c| piggyback::detach(self, &intervals, |home| homes.push(home), c).unwrap());
        homes.into_iter().for_each(|home| self.needs.note_unconfirmed_home(home));
        (0..4).filter(|page| self.push_buffer.has(&(*page..page + 1))).map(|page| page..page + 1).collect()
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
    let (mut pushed, mut left) = (Vec::new(), Vec::new());
    taker.push_buffer.pick(OTHER, &[1..2, 2..3], &mut pushed, &mut left);
    assert_eq!(pushed.iter().map(|p| p.bytes().len()).sum::<usize>(), 2 * PAGE_BYTES);
    assert!(left.is_empty() && pushed.iter().all(|p| !p.from_home));
}

#[test]
fn what_the_givers_threads_have_stored_since_does_not_come() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(1..2, 1);
    giver.bench.memory.make_twin(1..2, false);
    assert_eq!(taker.takes_from(&mut giver, 1..2, true), [1..2]);
    let (mut pushed, mut left) = (Vec::new(), Vec::new());
    taker.push_buffer.pick(OTHER, &[1..2], &mut pushed, &mut left);
    assert!(pushed.iter().all(|p| p.bytes().iter().all(|byte| *byte == 2)), "the twin's bytes, and not the memory's");
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
    giver.home_queue.open(1);
    assert_eq!(taker.takes_from(&mut giver, 0..4, true), [], "homes may be about to migrate");
}

#[test]
fn what_was_given_in_one_epoch_is_of_no_use_in_another() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    taker.bench.invalidate(1..3);
    let (mut request, mut payload) = (vec![0; 4], Vec::new());
    piggyback::prefetch_hint(&mut taker, &[1..3]).emit(&mut request);
    let (hint, intervals) = (piggyback::split_request(&request).1.unwrap(), giver.intervals.clone());
    assert_eq!(piggyback::attach(&mut giver, &intervals, (hint, true), &[], &mut payload), 2);
    let attached = piggyback::split_payload(&payload).1.unwrap();
    for epoch in [1, 0] {
        let mut intervals = taker.intervals.clone();
        intervals.has_come_to(epoch);
        piggyback::detach(&mut taker, &intervals, |_| (), attached).unwrap();
        assert_eq!(taker.push_buffer.has(&(1..3)), epoch == 0);
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
    let need = RequiredDiff { writer: NodeId(4), serial: 7 };
    assert_eq!(taker.needs.before_diffs(OTHER, ME), [need]);
    assert_eq!(taker.needs.before_diffs(THIRD, ME), []);
    taker.needs.confirm(OTHER, &[need]);
    assert_eq!(taker.needs.before_diffs(OTHER, ME), []);
}

#[test]
fn nothing_is_wished_for_of_memory_that_is_new_in_this_epoch() {
    let (mut giver, mut taker) = two(PageEngine::Hlrc);
    giver.writes(0..4, 1);
    taker.push_buffer.on_allocation(1..3);
    assert_eq!(taker.takes_from(&mut giver, 0..4, true), [0..1, 3..4]);
    assert_eq!(piggyback::prefetch_hint(&mut taker, &[0..4]).pages(), 2, "the others are here");
    taker.push_buffer.put(OTHER, &(1..3), &Arc::new(vec![0; 2 * PAGE_BYTES]), 0);
    assert!(!taker.push_buffer.has(&(1..3)), "nor is it taken if it comes");
}

#[test]
fn diffs_wait_for_what_they_name() {
    let mut queue = HomeQueue::new();
    let head = |serial, needs: &[RequiredDiff]| DiffsHead { epoch: 0, serial, needs: needs.to_vec() };
    let needs = [RequiredDiff { writer: THIRD, serial: 2 }];
    assert!(!queue.take_diffs(OTHER, head(1, &needs), b"a"));
    assert!(!queue.take_diffs(OTHER, head(2, &[]), b"b"), "nor do those overtake it");
    queue.applied(THIRD, 1);
    assert_eq!(queue.next_diffs(), None);
    queue.applied(THIRD, 2);
    assert_eq!(queue.next_diffs(), Some((OTHER, head(1, &needs), b"a".to_vec())));
    queue.applied(OTHER, 1);
    assert_eq!(queue.next_diffs(), Some((OTHER, head(2, &[]), b"b".to_vec())));
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
        let (gives, takes) = (giver.intervals.clone(), taker.intervals.clone());
        piggyback::attach(&mut giver, &gives, (&bytes, true), &bytes, &mut Vec::new());
        let _ = piggyback::detach(&mut taker, &takes, |_| (), &bytes);
        taker.push_buffer.void(&(0..4));
    }
}

#[test]
fn only_so_much_is_wished_for_as_a_token_carries() {
    let mut taker = Node::new(5, OTHER, PageEngine::Hlrc);
    let hint = piggyback::prefetch_hint(&mut taker, &[0..3, 1..4, 0..4, 2..3]);
    assert_eq!((hint.pages(), hint.lacking.len()), (piggyback::PIGGYBACK_PAGES_MAX, 0));
    let mut none = Vec::new();
    PrefetchHint::default().emit(&mut none);
    assert!(none.is_empty());
}

#[test]
fn of_what_comes_with_a_token_whole_units_are_used_whose_home_is_known_and_that_are_not_kept() {
    let usable = |bench: &Bench, pages: Range<PageNo>| bench.table.units().can_use_piggybacked(&pages);
    let pairs = Bench::with_shape(OTHER, true, |shape| shape.unit_pages = 2);
    assert_eq!((usable(&pairs, 0..1), usable(&pairs, 0..2)), (None, Some(OTHER)));
    let mut fresh = Bench::with_shape(OTHER, true, |shape| shape.first_touch = FirstTouch::Late);
    assert_eq!((usable(&fresh, 0..1), fresh.table.would_fetch(0)), (None, None));
    fresh.fetch(0..1);
    fresh.invalidate(0..1);
    assert_eq!(usable(&fresh, 0..1), Some(OTHER));
    let mut kept = first_in_use();
    kept.step(|table, cx, flushed| table.invalidate_in_place(cx, &[0..1], flushed));
    assert_eq!(usable(&kept, 0..1), None);
}

#[test]
fn what_came_with_a_token_is_not_used_while_it_may_lack_an_atomic_operation_of_this_node() {
    let mut taker = first_in_use();
    taker.invalidate(0..1);
    assert_eq!(taker.table.units().can_use_piggybacked(&(0..1)), Some(OTHER));
    assert!(!taker.table.atomic_done(0), "there is no copy that would have to end");
    assert_eq!(taker.table.units().can_use_piggybacked(&(0..1)), None);
    taker.close();
    assert_eq!(
        taker.table.units().can_use_piggybacked(&(0..1)),
        Some(OTHER),
        "from now on the giver's knowledge tells"
    );
}
