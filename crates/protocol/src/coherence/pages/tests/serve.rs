//! What a home does when it is asked for pages, and who asked when they come.

use super::*;
use crate::coherence::pages::home_queue::HomeQueue;
use crate::coherence::pages::serve::{Listing, PageState, on_fetch, on_pages};
use crate::coherence::pages::wire::{Fetch, Pages};
use crate::ids::{Channel, Seq, Slot};
use crate::outbox::Outbox;
use crate::tuning::Tuning;
use crate::wire::message::Ticket;

/// The page state of a node with one chunk, which knows in which kind of step pages were copied out or mapped.
struct TestPages {
    bench: Bench,
    home_queue: HomeQueue,
    seen: Vec<Listing>,
    /// Regions with these pages were freed, and no more than that is known of them.
    fallen: Range<PageNo>,
    /// Freed as other nodes say.
    gone: Vec<PageNo>,
}

impl TestPages {
    fn new(bench: Bench) -> TestPages {
        TestPages { bench, home_queue: HomeQueue::default(), seen: Vec::new(), fallen: 0..0, gone: Vec::new() }
    }
}

impl PageState for TestPages {
    fn tuning(&self) -> &Tuning {
        &Tuning::DEFAULT
    }

    fn listed_chunk<R>(
        &mut self,
        (page, listing): (PageNo, Listing),
        _: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        if self.fallen.contains(&page) || (listing == Listing::Live && self.is_freed(page)) {
            return None;
        }
        let result = self.bench.step(|table, cx, _| step(table, cx));
        let counts = |call: &&String| call.starts_with("copy_out") || call.starts_with("map_read");
        let count = self.bench.memory.calls.iter().filter(counts).count();
        self.seen.extend((0..count).map(|_| listing));
        Some(result)
    }

    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.home_queue)
    }

    fn is_freed(&mut self, page: PageNo) -> bool {
        self.fallen.contains(&page)
    }

    fn on_freed_elsewhere(&mut self, pages: &Range<PageNo>) {
        self.gone.push(pages.start);
    }
}

/// What a home answers to a fetch of this run.
fn answer_to(state: &mut TestPages, run: Range<PageNo>) -> Pages {
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    let (mut body, mut out) = (Vec::new(), Outbox::new());
    Fetch { epoch: 0, claim: false, direct: false, needs: Vec::new(), runs: vec![run].into() }.emit(&mut body);
    on_fetch(state, ticket, &body, &mut out).unwrap();
    Pages::parse(out.body(&out.sends()[0])).unwrap().0
}

/// A chunk of four pages of which `home` is the home, behind four others.
fn behind(home: NodeId) -> TestPages {
    TestPages::new(Bench::with_shape(home, true, |shape| shape.first = 4))
}

#[test]
fn a_run_over_two_regions_of_which_one_has_fallen_is_answered_for_both() {
    let mut state = TestPages::new(Bench::new(ME, true));
    state.fallen = 4..8;
    let answer = answer_to(&mut state, 2..6);
    assert_eq!((answer.runs.to_vec(), answer.freed), (vec![2..4], vec![4..6]));
    let mut state = behind(ME);
    state.fallen = 0..4;
    let answer = answer_to(&mut state, 2..6);
    assert_eq!((answer.runs.to_vec(), answer.freed), (vec![4..6], vec![2..4]));
}

#[test]
fn who_asked_for_pages_of_two_regions_waits_for_none_of_them_when_one_has_fallen_here() {
    for freed in [false, true] {
        let mut state = behind(OTHER);
        (4..6).for_each(|page| assert!(matches!(state.bench.fault(page, Access::Read), Fault::Fetch { .. })));
        state.fallen = 0..4;
        let (run, mut body) = (vec![2..6], Vec::new());
        let pages = if freed {
            Pages { freed: run, ..Pages::default() }
        } else {
            Pages { runs: run.into(), ..Pages::default() }
        };
        pages.emit(&mut body);
        body.resize(body.len() + if freed { 0 } else { 4 * PAGE_BYTES }, 0);
        on_pages(&mut state, OTHER, &body, &mut Outbox::new()).unwrap();
        assert!(
            (4..6)
                .all(|page| !state.bench.table.unit(page).is_fetching()
                    && state.bench.table.unit(page).is_here() != freed)
        );
        assert_eq!(state.gone.last(), freed.then_some(&4), "the second region, too");
    }
}

/// A thread may write behind the copying and end its interval before it is over: then that must come by this chunk.
#[test]
fn pages_are_copied_out_in_steps_that_closes_know_of() {
    let mut state = TestPages::new(Bench::new(ME, true));
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    let mut body = Vec::new();
    Fetch { epoch: 0, claim: false, direct: false, needs: Vec::new(), runs: vec![0..2].into() }.emit(&mut body);
    on_fetch(&mut state, ticket, &body, &mut Outbox::new()).unwrap();
    assert_eq!(state.seen, [Listing::Live]);
}

/// A thread may write to a copy as soon as it is mapped.
#[test]
fn copies_are_taken_in_in_steps_that_closes_know_of() {
    for notes in [true, false] {
        let mut state = TestPages::new(Bench::new(OTHER, notes));
        assert!(matches!(state.bench.fault(1, Access::Read), Fault::Fetch { .. }));
        let mut body = Vec::new();
        Pages { runs: vec![1..2].into(), ..Pages::default() }.emit(&mut body);
        body.resize(body.len() + PAGE_BYTES, 0);
        on_pages(&mut state, OTHER, &body, &mut Outbox::new()).unwrap();
        assert_eq!(state.seen, [Listing::Mapped]);
    }
}

/// It may be late: it was sent again, or lay in the socket of a thread that computes.
#[test]
fn an_answer_that_comes_when_its_region_has_fallen_is_nobodys_mistake() {
    let mut state = TestPages::new(Bench::new(OTHER, true));
    let mut bytes = Vec::new();
    Pages { runs: vec![1..3].into(), ..Pages::default() }.emit(&mut bytes);
    bytes.resize(bytes.len() + 2 * PAGE_BYTES, 0);
    let mut freed = Vec::new();
    Pages { freed: vec![1..3], ..Pages::default() }.emit(&mut freed);
    for fallen in [0..4, 0..0] {
        state.fallen = fallen;
        for body in [&bytes, &freed] {
            assert!(on_pages(&mut state, OTHER, body, &mut Outbox::new()).is_ok());
        }
    }
    assert_eq!(state.seen, []);
}

#[test]
fn what_is_written_to_copies_and_to_home_pages_that_others_hold_is_told() {
    let mut copy = Bench::new(OTHER, true);
    assert!(!copy.table.unit(1).may_need_notices(), "it is not here");
    copy.fault(1, Access::Read);
    assert!(copy.table.unit(1).may_need_notices(), "it is mapped when it comes");
    copy.arrive(1..2);
    assert!(copy.table.unit(1).may_need_notices() && !copy.table.unit(2).may_need_notices());
    let mut home = Bench::new(ME, true);
    assert!(!home.table.unit(1).may_need_notices(), "nobody else holds it");
    home.copy_out(1..2);
    assert!(home.table.unit(1).may_need_notices() && !home.table.unit(2).may_need_notices());
}
