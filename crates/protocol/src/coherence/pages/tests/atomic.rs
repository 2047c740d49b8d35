//! Atomic operations at a word's home, and what becomes of the asker's copy and notices.

use super::*;
use crate::coherence::pages::atomic::{Answer, Atomic, Kind, Op, Request};
use crate::coherence::pages::home_queue::HomeQueue;
use crate::coherence::pages::page_table::atomic::Place;
use crate::coherence::pages::serve::{Listing, PageState, on_atomic, on_diffs, rerun};
use crate::coherence::pages::wire::{DiffsHead, RequiredDiff};
use crate::ids::{Channel, Seq};
use crate::tuning::Tuning;
use crate::wire::message::Ticket;

const ADD: Atomic = Atomic { kind: Kind::U64, op: Op::Add, operand: 3, expected: 0 };

/// A node with one chunk of four pages.
struct TestPages {
    bench: Bench,
    home_queue: HomeQueue,
    freed: Range<PageNo>,
}

impl TestPages {
    fn new(home: NodeId) -> TestPages {
        TestPages { bench: Bench::new(home, true), home_queue: HomeQueue::new(), freed: 0..0 }
    }

    /// Asks for an addition to a word of a page.
    fn ask(&mut self, page: PageNo, epoch: u32, needs: Vec<RequiredDiff>) -> (Result<(), Misbehaved>, Vec<Answer>) {
        let mut body = Vec::new();
        Request { epoch, page, offset: 16, atomic: ADD, needs }.emit(&mut body);
        let mut out = Outbox::new();
        let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
        let result = on_atomic(self, ticket, &body, &mut out);
        (result, answers(&out))
    }
}

fn answers(out: &Outbox) -> Vec<Answer> {
    out.sends().iter().map(|send| Answer::parse(out.body(send)).unwrap()).collect()
}

impl PageState for TestPages {
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

    fn is_freed(&mut self, page: PageNo) -> bool {
        self.freed.contains(&page)
    }
}

#[test]
fn the_home_carries_an_operation_out_and_says_what_the_word_held() {
    let mut state = TestPages::new(ME);
    // The recorder's words hold 7.
    assert_eq!(state.ask(2, 0, Vec::new()), (Ok(()), vec![Answer::Done(7)]));
    assert_eq!(state.bench.memory.calls, ["atomic 16 2..3"]);
    assert_eq!(state.bench.close(), [], "the asker tells of it");
}

#[test]
fn nothing_is_done_elsewhere_in_freed_memory_or_where_no_region_is() {
    let mut state = TestPages::new(OTHER);
    assert_eq!(state.ask(2, 0, Vec::new()), (Ok(()), vec![Answer::Elsewhere]));
    state = TestPages::new(ME);
    state.freed = 1..2;
    assert_eq!(state.ask(1, 0, Vec::new()), (Ok(()), vec![Answer::Freed]));
    let (refused, said) = state.ask(4, 0, Vec::new());
    assert!(refused.is_err() && said.is_empty(), "a page beyond all regions");
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    assert!(on_atomic(&mut state, ticket, b"nonsense", &mut Outbox::new()).is_err());
    assert_eq!(state.bench.memory.calls, [""; 0], "no word was touched");
}

#[test]
fn an_operation_waits_for_the_diffs_that_it_names_and_for_its_epoch() {
    let mut state = TestPages::new(ME);
    let needs = vec![RequiredDiff { writer: OTHER, serial: 1 }];
    assert_eq!(state.ask(2, 0, needs), (Ok(()), vec![]));
    assert_eq!(state.ask(3, 1, Vec::new()), (Ok(()), vec![]));
    assert_eq!((state.home_queue.kept(), state.bench.memory.calls.len()), (2, 0));
    let (mut body, mut out) = (Vec::new(), Outbox::new());
    DiffsHead { epoch: 0, serial: 1, needs: Vec::new() }.emit(&mut body);
    on_diffs(&mut state, OTHER, &body, &mut out).unwrap();
    assert_eq!((answers(&out), state.home_queue.kept()), (vec![Answer::Done(7)], 1));
    out.clear();
    state.home_queue.open(1);
    rerun(&mut state, &mut out).unwrap();
    assert_eq!((answers(&out), state.home_queue.kept()), (vec![Answer::Done(7)], 0));
}

#[test]
fn the_asker_ends_its_copy_and_tells_of_the_page_once_in_its_next_interval() {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(1..2);
    let place = |bench: &mut Bench, page| bench.step(|table, _, _| table.unit(page).place_of_atomic());
    assert_eq!([place(&mut bench, 0), place(&mut bench, 1)], [Place::At(OTHER), Place::AtAfterCopy(OTHER)]);
    bench.invalidate(1..2);
    assert_eq!(place(&mut bench, 1), Place::At(OTHER));
    for _ in 0..3 {
        assert!(!bench.step(|table, _, _| table.atomic_done(1)), "there is no copy that could lack it");
    }
    // A fetch that is under way may bring what was there before.
    assert!(matches!(bench.fault(1, Access::Read), Fault::Fetch { .. }));
    assert!(bench.step(|table, _, _| table.atomic_done(1)));
    bench.invalidate(1..2);
    bench.arrive(1..2);
    assert!(!bench.table.unit(1).is_here());
    assert!(bench.table.may_be_dirty() && bench.table.units().has_pending_notices());
    assert_eq!(bench.close(), [(1..2, OTHER, false)]);
    assert_eq!(bench.flushed.0, [(OTHER, 1)], "an empty diff has a serial");
    assert_eq!((bench.close(), bench.flushed.0.len()), (vec![], 0), "once");
}

#[test]
fn an_empty_diff_changes_nothing_at_the_home() {
    let mut bench = Bench::new(ME, true);
    assert_eq!(bench.step(|table, cx, _| table.on_diff(cx, 2, &[])), Ok(true));
    assert_eq!(bench.memory.calls, [""; 0]);
}

#[test]
fn at_home_and_before_anybody_has_touched_a_page_nobody_is_asked() {
    let mut bench = Bench::new(ME, true);
    assert_eq!(bench.step(|table, _, _| (table.unit(0).place_of_atomic(), table.atomic_done(0))), (Place::Here, false));
    assert_eq!(bench.close(), [], "the home's own writes are noted as ever");
    for home in [ME, OTHER] {
        let mut bench = Bench::with_shape(home, true, |shape| shape.first_touch = FirstTouch::Always);
        assert_eq!(bench.step(|table, _, _| table.unit(0).place_of_atomic()), Place::Unclaimed);
    }
}
