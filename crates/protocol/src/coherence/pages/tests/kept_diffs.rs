//! Units whose diffs stay with their writers: the table's transitions, and what others may ask and tell.

use super::*;
use crate::coherence::pages::home_queue::HomeQueue;
use crate::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use crate::coherence::pages::kept_diffs::runs::StampRun;
use crate::coherence::pages::kept_diffs::serve::{on_base, on_fetch_base, on_fetch_diffs, on_kept_diffs};
use crate::coherence::pages::kept_diffs::wire::*;
use crate::coherence::pages::kept_diffs::{Ask, INTERVAL_STAMP_MAX, Stamp, Wants};
use crate::coherence::pages::serve::{Listing, PageState, rerun};
use crate::coherence::pages::wire::Groups;
use crate::coherence::pages::write_notices::add_notice;
use crate::ids::{Channel, Seq};
use crate::tuning::Tuning;
use crate::wire::message::Ticket;

const THIRD: NodeId = NodeId(3);

/// A node with one table of four pages, of which the last was freed.
struct Kept(Bench, HomeQueue, Stamp);

impl PageState for Kept {
    fn tuning(&self) -> &Tuning {
        &Tuning::DEFAULT
    }
    fn listed_chunk<R>(
        &mut self,
        (page, _): (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.0.chunk_with(page, out, step)
    }
    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.1)
    }
    fn closed_stamp(&self) -> Stamp {
        self.2
    }
    fn is_freed(&mut self, page: PageNo) -> bool {
        page == 3
    }
}

/// The manager of all units is `manager`.
fn kept(manager: NodeId, notes: bool) -> Kept {
    Kept(Bench::with_shape(manager, notes, |layout| layout.engine = PageEngine::Lrc), HomeQueue::new(), 0)
}

impl Kept {
    fn note(&mut self, page: PageNo, writer: NodeId, stamp: Stamp) {
        self.0.step(|table, _, _| table.note_written(&(page..page + 1), writer, stamp));
        self.0.invalidate(page..page + 1);
    }

    fn diffs(
        &mut self,
        from: NodeId,
        page: PageNo,
        through: Stamp,
        runs: &[(u32, Stamp, &[u8])],
    ) -> Result<(), String> {
        let mut body = Vec::new();
        let run = |start: u32, stamp, bytes: &[u8]| StampRun { start, end: start + bytes.len() as u32, stamp };
        put_diffs(&mut body, page, through, runs.iter().map(|(at, stamp, bytes)| (run(*at, *stamp, bytes), *bytes)));
        self.0.memory.calls.clear();
        on_kept_diffs(self, from, &body, &mut Outbox::new()).map_err(|e| e.to_string())
    }

    fn patches(&self) -> Vec<&str> {
        self.0.memory.calls.iter().filter(|call| call.starts_with("patch")).map(String::as_str).collect()
    }

    fn asks(&mut self, page: PageNo) -> Vec<(NodeId, Ask)> {
        match self.0.fault(page, Access::Read) {
            Fault::Ask(asks) => asks,
            other => panic!("{other:?}"),
        }
    }
}

fn diffs(page: PageNo, since: Stamp, need: Stamp) -> Ask {
    Ask { page, pages: 1, wants: Wants::Diffs { since, need } }
}

fn base(page: PageNo) -> Ask {
    Ask { page, pages: 1, wants: Wants::Base }
}

#[test]
fn what_nobody_wrote_is_mapped_without_a_message_and_what_others_wrote_is_asked_for() {
    for notes in [true, false] {
        let mut kept = kept(ME, notes);
        assert_eq!(kept.0.fault(0, Access::Read), Fault::Mapped);
        assert!(kept.0.table.unit(0).is_here());
        kept.note(0, OTHER, 5);
        kept.note(0, THIRD, 3);
        kept.note(0, OTHER, 4);
        assert_eq!(kept.asks(0), [(OTHER, diffs(0, 0, 5)), (THIRD, diffs(0, 0, 3))]);
        assert_eq!(kept.0.fault(0, Access::Read), Fault::Wait, "another thread waits for the same");
        kept.diffs(OTHER, 0, 5, &[(8, 5, b"new")]).unwrap();
        assert!(kept.0.table.unit(0).is_fetching(), "one writer has not answered");
        kept.diffs(THIRD, 0, 6, &[(8, 3, b"old!")]).unwrap();
        assert_eq!(kept.patches(), ["patch 11 with [33] 0..1"], "older bytes never overwrite newer ones");
        assert!(kept.0.table.unit(0).is_here());
        kept.diffs(THIRD, 0, 6, &[(8, 9, b"late")]).unwrap();
        assert!(kept.patches().is_empty(), "an answer that comes again stores nothing");
        kept.note(0, THIRD, 9);
        assert_eq!(kept.asks(0), [(THIRD, diffs(0, 6, 9))], "what has come is not asked for again");
    }
}

#[test]
fn a_notice_while_diffs_are_asked_for_makes_the_unit_need_more() {
    let mut kept = kept(ME, true);
    kept.note(1, OTHER, 5);
    assert_eq!(kept.asks(1), [(OTHER, diffs(1, 0, 5))]);
    kept.note(1, OTHER, 7);
    kept.diffs(OTHER, 1, 5, &[]).unwrap();
    assert!(!kept.0.table.unit(1).is_here() && !kept.0.table.unit(1).is_fetching());
    assert_eq!(kept.asks(1), [(OTHER, diffs(1, 5, 7))]);
}

#[test]
fn a_first_copy_comes_from_the_manager_with_its_stamps_and_then_from_the_writers() {
    let mut kept = kept(OTHER, true);
    kept.note(2, THIRD, 5);
    kept.note(2, OTHER, 6);
    assert_eq!(kept.asks(2), [(OTHER, base(2))]);
    let mut body = Vec::new();
    let stamps = crate::coherence::pages::kept_diffs::runs::StampMap::of(vec![StampRun { start: 0, end: 8, stamp: 6 }]);
    put_base(&mut body, 2, 0, (&[(OTHER, 6)].into_iter().collect(), &stamps), Some(PAGE_BYTES));
    body.resize(body.len() + PAGE_BYTES, 1);
    on_base(&mut kept, OTHER, &body, &mut Outbox::new()).unwrap();
    assert_eq!(kept.asks(2), [(THIRD, diffs(2, 0, 5))], "the manager's own writes are in");
    kept.diffs(THIRD, 2, 5, &[(4, 5, &[9; 8])]).unwrap();
    assert_eq!(kept.patches(), ["patch 8 with [9, 9, 9, 9] 2..3"]);
    assert!(kept.0.table.unit(2).is_here());
}

#[test]
fn what_was_written_is_kept_told_with_this_node_for_home_and_given_to_who_lacks_it() {
    let mut kept = kept(OTHER, true);
    assert_eq!(kept.0.fault(0, Access::Write), Fault::Mapped);
    kept.0.memory.written = vec![0];
    assert_eq!(kept.0.close(), [], "the twin says that nothing changed");
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    let (mut body, mut out) = (Vec::new(), Outbox::new());
    put_diff_asks(&mut body, &[DiffAsk { page: 0, since: 0, need: 4 }, DiffAsk { page: 3, since: 0, need: 1 }]);
    kept.2 = 4;
    on_fetch_diffs(&mut kept, ticket, &body, &mut out).unwrap();
    let told = take_told(out.body(&out.sends()[0])).unwrap();
    let nothing = Told::Diffs(Diffs { through: 4, ..Diffs::default() });
    assert_eq!(told, [(0, nothing), (3, Told::Freed)]);
}

#[test]
fn memory_that_is_given_out_again_is_written_though_it_is_as_it_was() {
    for notes in [true, false] {
        let mut kept = kept(OTHER, notes);
        let store = |kept: &mut Kept, page| {
            // Where stores fault, the first fault maps the page and the second one makes its twin.
            (0..2).for_each(|_| assert_eq!(kept.0.fault(page, Access::Write), Fault::Mapped));
            kept.0.memory.written = vec![page];
        };
        let told_after = |kept: &mut Kept, page, since| {
            let mut body = Vec::new();
            let ask = DiffAsk { page, since, need: 9 };
            kept.0.step(|table, _, _| table.tell_diffs(ask, 9, &mut body)).unwrap();
            match take_told(&body).unwrap().remove(0).1 {
                Told::Diffs(diffs) => (diffs.runs, diffs.bytes.to_vec()),
                other => panic!("{other:?}"),
            }
        };
        let run = |start: usize, end: usize| StampRun { start: start as u32, end: end as u32, stamp: 4 };
        kept.0.flushed.3 = 4;
        // What begins in one page ends in the next.
        kept.0.step(|table, _, _| table.note_reused(PAGE_BYTES - 8..PAGE_BYTES + 16));
        store(&mut kept, 0);
        assert_eq!(kept.0.close(), [(0..1, ME, true)], "{notes}");
        assert_eq!(told_after(&mut kept, 0, 0), (vec![run(PAGE_BYTES - 8, PAGE_BYTES)], vec![0; 8]));
        assert_eq!(told_after(&mut kept, 0, 4), (Vec::new(), Vec::new()));
        // Once, and of what is written then.
        store(&mut kept, 0);
        assert_eq!(kept.0.close(), []);
        store(&mut kept, 1);
        assert_eq!(kept.0.close(), [(1..2, ME, true)]);
        assert_eq!(told_after(&mut kept, 1, 0), (vec![run(0, 16)], vec![0; 16]));
    }
}

#[test]
fn who_is_told_of_a_free_stores_later_than_all_that_the_freer_had_heard_of() {
    let mut state = IntervalState::new(ME, PageEngine::Lrc);
    assert_eq!((state.last_stamp(), state.take_stamp()), (0, 1));
    state.hear_of_free(70);
    assert_eq!((state.last_stamp(), state.stamp_diff(), state.take_stamp()), (70, 71, 72));
    state.hear_of_free(9);
    assert_eq!(state.last_stamp(), 72, "what is long known changes nothing");
}

#[test]
fn a_manager_that_lacks_what_all_drop_says_so() {
    let mut kept = kept(ME, true);
    kept.note(2, OTHER, 5);
    let mut asks = Vec::new();
    kept.0.step(|table, cx, _| table.begin_collection(cx, &mut asks));
    assert_eq!(asks, [(OTHER, diffs(2, 0, 5))]);
    // The next barrier opens, and the writer has not answered.
    assert_eq!(kept.0.step(|table, cx, _| table.finish_collection(cx, 5)), Err(2));
}

#[test]
fn a_manager_lacks_nothing_of_a_region_that_a_writer_has_freed() {
    let mut kept = kept(ME, true);
    kept.note(2, OTHER, 5);
    let mut asks = Vec::new();
    kept.0.step(|table, cx, _| table.begin_collection(cx, &mut asks));
    let mut body = Vec::new();
    put_freed(&mut body, 2);
    on_kept_diffs(&mut kept, OTHER, &body, &mut Outbox::new()).unwrap();
    assert!(!kept.0.table.unit(2).is_fetching());
    assert_eq!(kept.0.step(|table, cx, _| table.finish_collection(cx, 5)), Ok(()));
}

#[test]
fn no_writer_drops_what_the_manager_of_a_page_lacks() {
    for (manager, is_wrong) in [(ME, true), (THIRD, false)] {
        let mut kept = kept(manager, true);
        assert_eq!(kept.0.fault(1, Access::Read), Fault::Mapped);
        kept.note(1, OTHER, 5);
        assert_eq!(kept.asks(1), [(OTHER, diffs(1, 0, 5))]);
        let mut body = Vec::new();
        put_collected(&mut body, 1, 5);
        let refused = on_kept_diffs(&mut kept, OTHER, &body, &mut Outbox::new()).err().map(|e| e.to_string());
        assert_eq!(refused.is_some_and(|text| text.contains("the manager of their page lacks")), is_wrong);
        assert_eq!(kept.0.table.unit(1).is_fetching(), is_wrong, "nothing has happened, or a base is asked for next");
    }
}

#[test]
fn a_million_runs_in_one_list_are_no_diff_of_a_page() {
    let mut kept = kept(ME, true);
    kept.note(1, OTHER, 5);
    kept.asks(1);
    let runs: Vec<(u32, Stamp, &[u8])> = (0..1_000_000).map(|at| (at, 1 + Stamp::from(at) % 2, &b"x"[..])).collect();
    let refused = kept.diffs(OTHER, 1, 5, &runs).unwrap_err();
    assert!(refused.contains("leaves its unit"), "{refused}");
    // As many as there can be, each byte in an interval of its own.
    kept.diffs(OTHER, 1, 5, &runs[..PAGE_BYTES]).unwrap();
    assert_eq!(kept.patches().len(), PAGE_BYTES);
    assert!(kept.0.table.unit(1).is_here());
}

#[test]
fn nobody_asks_for_what_has_not_closed_or_is_elsewhere_or_is_no_unit() {
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    let mut kept = kept(OTHER, true);
    let mut asked = |page, need, closed| {
        let (mut body, mut out) = (Vec::new(), Outbox::new());
        put_diff_asks(&mut body, &[DiffAsk { page, since: 0, need }]);
        kept.2 = closed;
        on_fetch_diffs(&mut kept, ticket, &body, &mut out).map_err(|e| e.to_string())
    };
    assert!(asked(0, 5, 4).unwrap_err().contains("has not closed"));
    assert!(asked(9, 5, 5).unwrap_err().contains("no region has"));
    assert!(asked(0, 5, 5).is_ok());
    let mut body = Vec::new();
    put_base_asks(&mut body, 0, &[0]);
    let refused = on_fetch_base(&mut kept, ticket, &body, &mut Outbox::new()).unwrap_err().to_string();
    assert!(refused.contains("another node"), "{refused}");
}

#[test]
fn who_has_left_a_barrier_gets_a_base_when_its_manager_has_left_it_too() {
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    let (mut kept, mut body, mut out) = (kept(ME, true), Vec::new(), Outbox::new());
    put_base_asks(&mut body, 1, &[0]);
    on_fetch_base(&mut kept, ticket, &body, &mut out).unwrap();
    rerun(&mut kept, &mut out).unwrap();
    assert!(out.sends().is_empty() && kept.1.kept() == 1);
    kept.1.open(1);
    rerun(&mut kept, &mut out).unwrap();
    assert_eq!((out.sends().len(), kept.1.kept()), (1, 0));
    assert!(matches!(take_bases(out.body(&out.sends()[0])).unwrap()[..], [(0, Base::Copy(_))]));
}

#[test]
fn answers_that_leave_their_unit_or_that_nobody_asked_for_change_nothing() {
    let mut kept = kept(ME, true);
    kept.note(1, OTHER, 5);
    kept.asks(1);
    let refused = kept.diffs(OTHER, 1, 5, &[(PAGE_BYTES as u32 - 1, 5, b"no")]).unwrap_err();
    assert!(refused.contains("leaves its unit"), "{refused}");
    assert!(kept.patches().is_empty() && kept.0.table.unit(1).is_fetching());
    assert!(kept.diffs(OTHER, 9, 5, &[]).unwrap_err().contains("nobody asked for"));
    kept.diffs(THIRD, 1, 5, &[(0, 5, b"unasked")]).unwrap();
    kept.diffs(OTHER, 3, 5, &[(0, 5, b"freed")]).unwrap();
    assert!(kept.patches().is_empty() && kept.0.table.unit(1).is_fetching());
    let mut body = Vec::new();
    put_base(&mut body, 1, 0, (&Default::default(), &Default::default()), Some(8));
    body.resize(body.len() + 8, 1);
    assert!(on_base(&mut kept, OTHER, &body, &mut Outbox::new()).is_err(), "a base is as long as its unit");
}

#[test]
fn a_collection_completes_managed_copies_and_drops_what_all_have() {
    let mut kept = kept(ME, true);
    kept.note(0, OTHER, 5);
    let mut asks = Vec::new();
    kept.0.step(|table, cx, _| table.begin_collection(cx, &mut asks));
    assert_eq!(asks, [(OTHER, diffs(0, 0, 5))], "the manager has never used it");
    kept.diffs(OTHER, 0, 5, &[(0, 5, b"x")]).unwrap();
    assert!(!kept.0.memory.calls.iter().any(|call| call.starts_with("map")), "nobody has touched it");
    assert_eq!(kept.0.step(|table, cx, _| table.finish_collection(cx, 5)), Ok(()));
    assert_eq!(kept.0.table.missing_at(0), []);
    assert_eq!(kept.0.fault(0, Access::Read), Fault::Mapped);
    // Of what was dropped there is nothing to tell.
    kept.note(0, OTHER, 5);
    assert_eq!(kept.0.table.missing_at(0), []);
}

#[test]
fn a_copy_out_of_use_ends_with_the_collection_and_comes_again_from_the_manager() {
    let mut kept = kept(OTHER, true);
    assert_eq!(kept.0.fault(1, Access::Read), Fault::Mapped);
    kept.0.step(|table, cx, flushed| table.evict(cx, &(1..2), flushed));
    assert_eq!(kept.0.fault(1, Access::Read), Fault::Mapped, "nobody has written it still");
    assert_eq!(kept.0.fault(0, Access::Read), Fault::Mapped);
    kept.note(0, THIRD, 5);
    kept.0.step(|table, cx, _| {
        let mut asks = Vec::new();
        table.begin_collection(cx, &mut asks);
        assert_eq!(table.finish_collection(cx, 5), Ok(()));
    });
    assert_eq!(kept.asks(0), [(OTHER, base(0))]);
    // One that is from before the manager's collection may lack something.
    let mut body = Vec::new();
    put_base(&mut body, 0, 0, (&Default::default(), &Default::default()), None);
    on_base(&mut kept, OTHER, &body, &mut Outbox::new()).unwrap();
    assert_eq!(kept.asks(0), [(OTHER, base(0))]);
    body.clear();
    put_base(&mut body, 0, 5, (&Default::default(), &Default::default()), None);
    on_base(&mut kept, OTHER, &body, &mut Outbox::new()).unwrap();
    assert!(kept.0.table.unit(0).is_here());
}

/// An interval of a node in which it wrote page 0, which it tells at a barrier.
fn interval_at(node: NodeId, stamp: Stamp) -> (IntervalState, Vec<u8>) {
    let (mut state, mut said) = (IntervalState::new(node, PageEngine::Lrc), Vec::new());
    let mut groups = Groups::new();
    add_notice(&mut groups, node, || stamp, 0..1, true);
    state.close([groups, Groups::new()]);
    state.arrive(&mut said);
    (state, said)
}

#[test]
fn stamps_grow_with_what_is_told_and_beyond_their_limit_are_refused() {
    let (_, said) = interval_at(OTHER, 40);
    let mut state = IntervalState::new(ME, PageEngine::Lrc);
    assert_eq!((state.take_stamp(), state.stamp_diff()), (1, 2));
    let told = state.open(&said, &mut RequiredDiffs::default()).unwrap();
    assert_eq!((told.len(), state.take_stamp()), (1, 41));
    for (stamp, is_fine) in [(INTERVAL_STAMP_MAX, true), (INTERVAL_STAMP_MAX + 1, false), (u64::MAX, false)] {
        let (_, said) = interval_at(OTHER, stamp);
        let mut state = IntervalState::new(ME, PageEngine::Lrc);
        assert_eq!(state.open(&said, &mut RequiredDiffs::default()).is_ok(), is_fine, "{stamp}");
        assert_eq!(state.is_used_up(), is_fine, "who has come to the last stamp closes no more");
    }
}

#[test]
fn a_collection_begins_at_the_barrier_where_it_is_announced_and_ends_at_the_next() {
    let (other, mut said) = interval_at(OTHER, 40);
    other.announce_collection(&mut said);
    let mut state = IntervalState::new(ME, PageEngine::Lrc);
    let told = state.open(&said, &mut RequiredDiffs::default()).unwrap();
    assert_eq!((told.len(), state.homes_stay()), (1, false));
    assert_eq!(state.collections(), (None, Some(40)));
    state.open(&[], &mut RequiredDiffs::default()).unwrap();
    assert_eq!(state.collections(), (Some(40), None));
    assert_eq!(state.collections(), (None, None));
    // None begins while threads go on beside a barrier.
    let (other, mut said) = interval_at(OTHER, 50);
    other.keep_homes(&mut said);
    other.announce_collection(&mut said);
    let mut state = IntervalState::new(ME, PageEngine::Lrc);
    state.open(&said, &mut RequiredDiffs::default()).unwrap();
    assert_eq!((state.homes_stay(), state.collections()), (true, (None, None)));
}
