use super::intervals::LOCK;
use super::*;
use crate::coherence::pages::home_queue::HomeQueue;
use crate::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use crate::coherence::pages::serve::{self, Listing, PageState};
use crate::coherence::pages::wire::{DiffsHead, Fetch, Group, Groups, Pages, RequiredDiff, put_part};
use crate::ids::{Channel, Seq};
use crate::outbox::Target;
use crate::sync::IntervalMark;
use crate::tuning::Tuning;
use crate::wire::message::Ticket;
use smallvec::smallvec;

/// A home with a page table and a queue.
struct Home {
    bench: Bench,
    home_queue: HomeQueue,
    /// Of diffs that were applied: their writer, epoch and page.
    applied: Vec<(NodeId, u32, PageNo)>,
    /// Up to which serial [`OTHER`] has put its diffs here by itself, and up to which nodes that look by themselves are
    /// told that they are in.
    put: u64,
    told_in: u64,
}

impl PageState for Home {
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
    fn diff_applied(&mut self, writer: NodeId, epoch: u32, page: PageNo, _diff: &[u8]) {
        self.applied.push((writer, epoch, page));
    }
    fn diffs_put(&mut self, writer: NodeId) -> u64 {
        if writer == OTHER { self.put } else { 0 }
    }
    fn diffs_are_in(&mut self, writer: NodeId, serial: u64) {
        assert_eq!(writer, OTHER);
        self.told_in = serial;
    }
}

impl Home {
    fn new() -> Home {
        Home { bench: Bench::new(ME, true), home_queue: HomeQueue::new(), applied: Vec::new(), put: 0, told_in: 0 }
    }

    fn diffs(&mut self, epoch: u32, serial: u64, page: PageNo) -> Outbox {
        let (mut body, mut out) = (Vec::new(), Outbox::new());
        DiffsHead { epoch, serial, needs: Vec::new() }.emit(&mut body);
        put_part(&mut body, page, &[0]);
        serve::on_diffs(self, OTHER, &body, &mut out).unwrap();
        out
    }

    fn fetch(&mut self, epoch: u32, serial: u64, runs: Vec<Range<PageNo>>) -> Outbox {
        let needs = if serial == 0 { Vec::new() } else { vec![RequiredDiff { writer: OTHER, serial }] };
        let (mut body, mut out) = (Vec::new(), Outbox::new());
        Fetch { epoch, claim: false, direct: false, needs, runs: runs.into() }.emit(&mut body);
        serve::on_fetch(self, ticket(), &body, &mut out).unwrap();
        out
    }

    fn applied(&self) -> Vec<&str> {
        self.bench.memory.calls.iter().filter(|c| c.starts_with("apply")).map(|c| &c[6..]).collect()
    }
}

fn ticket() -> Ticket {
    let channel = Channel { node: NodeId(3), slot: Slot::thread(0) };
    Ticket { channel, seq: Seq::guarded(channel, 1) }
}

#[test]
fn diffs_are_reported_as_of_the_epoch_in_which_they_were_made() {
    let mut home = Home::new();
    home.home_queue.open(3);
    home.diffs(2, 1, 0);
    home.diffs(3, 3, 1);
    assert_eq!(home.applied, [(OTHER, 2, 0)], "the second one waits for the one before it");
    home.diffs(2, 2, 2);
    assert_eq!(home.applied, [(OTHER, 2, 0), (OTHER, 2, 2), (OTHER, 3, 1)]);
}

#[test]
fn diffs_of_one_node_are_applied_in_their_order() {
    let mut home = Home::new();
    home.diffs(0, 3, 2);
    home.diffs(0, 2, 1);
    assert!(home.applied().is_empty());
    assert_eq!(home.home_queue.kept(), 2);
    home.diffs(0, 1, 0);
    assert_eq!(home.applied(), ["0..1", "1..2", "2..3"]);
    home.diffs(0, 2, 1);
    assert_eq!((home.applied().len(), home.home_queue.kept()), (3, 0), "and each once");
}

/// What a node has put into this home's memory by itself is looked for now and then, and may be behind what it has sent
/// since.
#[test]
fn what_is_in_stays_in_whatever_is_heard_afterwards() {
    let mut queue = HomeQueue::new();
    queue.applied(OTHER, 5);
    queue.applied(OTHER, 3);
    assert!(queue.meets(&[RequiredDiff { writer: OTHER, serial: 5 }]));
    assert_eq!(queue.all_applied(), [RequiredDiff { writer: OTHER, serial: 5 }]);
}

#[test]
fn a_fetch_is_answered_once_when_the_diffs_that_it_names_have_been_applied() {
    let mut home = Home::new();
    assert!(home.fetch(0, 2, vec![0..1]).is_empty());
    assert!(home.diffs(0, 1, 0).is_empty());
    let out = home.diffs(0, 2, 0);
    assert_eq!(out.sends().iter().map(|s| s.target).collect::<Vec<_>>(), [Target::Reply(ticket())]);
    assert_eq!(home.bench.memory.calls.last().map(String::as_str), Some("copy_out 0..1"));
    assert!(home.diffs(0, 3, 0).is_empty());
}

#[test]
fn what_a_node_has_put_by_itself_counts_as_applied() {
    let mut home = Home::new();
    home.put = 2;
    assert!(!home.fetch(0, 2, vec![0..1]).is_empty(), "a fetch needs nothing more");
    let mut home = Home::new();
    home.put = 2;
    home.diffs(0, 3, 1);
    assert_eq!((home.applied(), home.told_in), (vec!["1..2"], 3), "nor does what it sends next");
}

#[test]
fn what_comes_from_a_later_epoch_waits_until_the_node_has_come_as_far() {
    let mut home = Home::new();
    assert!(home.diffs(1, 1, 0).is_empty());
    assert!(home.fetch(1, 0, vec![0..1]).is_empty());
    assert!(home.applied().is_empty());
    home.home_queue.open(1);
    let mut out = Outbox::new();
    serve::rerun(&mut home, &mut out).unwrap();
    assert_eq!((home.applied().len(), out.sends().len(), home.home_queue.kept()), (1, 1, 0));
}

#[test]
fn one_answer_brings_all_the_runs_that_were_asked_for() {
    let mut home = Home::new();
    let out = home.fetch(0, 0, vec![0..2, 3..4]);
    assert_eq!(out.sends().len(), 1);
    let (pages, bytes) = Pages::parse(out.body(&out.sends()[0])).unwrap();
    assert_eq!((pages.runs.to_vec(), pages.moved), (vec![0..2, 3..4], vec![]));
    assert_eq!(bytes.len(), 3 * PAGE_BYTES);
}

#[test]
fn pages_with_another_home_are_named_and_the_others_sent() {
    let mut home = Home::new();
    home.bench.step(|table, cx, _| table.migrate(cx, &(1..2), OTHER));
    let out = home.fetch(0, 0, vec![0..3]);
    let (pages, _) = Pages::parse(out.body(&out.sends()[0])).unwrap();
    assert_eq!((pages.runs.to_vec(), pages.moved), (vec![0..1, 2..3], vec![(1..2, OTHER)]));
}

#[test]
fn a_fetch_of_pages_that_do_not_exist_is_refused() {
    let (mut home, mut body) = (Home::new(), Vec::new());
    Fetch { runs: vec![3..9].into(), ..Fetch::default() }.emit(&mut body);
    assert!(serve::on_fetch(&mut home, ticket(), &body, &mut Outbox::new()).is_err());
}

#[test]
fn a_home_has_met_its_needs_when_all_are_met() {
    let mut queue = HomeQueue::new();
    let needs = [RequiredDiff { writer: OTHER, serial: 2 }, RequiredDiff { writer: NodeId(3), serial: 1 }];
    assert!(queue.meets(&[]));
    queue.applied(OTHER, 2);
    assert!(!queue.meets(&needs));
    queue.applied(NodeId(3), 1);
    assert!(queue.meets(&needs));
}

#[test]
fn serials_go_on_beyond_32_bits() {
    let mut home = Home::new();
    let before = u32::MAX - 5;
    home.home_queue.applied(OTHER, before.into());
    let mut intervals = IntervalState::new(OTHER, PageEngine::Hlrc);
    intervals.has_sent(ME, before.into());
    for round in 1..=10 {
        let serial = intervals.next_serial(ME);
        home.diffs(0, serial, 0);
        assert_eq!((home.applied().len() as u64, home.home_queue.kept()), (round, 0), "message {round}");
        assert_eq!(home.fetch(0, serial, vec![0..1]).sends().len(), 1, "message {round}");
        assert!(home.fetch(0, serial + 1, vec![0..1]).is_empty(), "what has not been sent yet");
        intervals.close([
            smallvec![Group { home: ME, serial: intervals.last_serial(ME), runs: smallvec![(0..1, true)] }],
            Groups::new(),
        ]);
        let (mut needs, mut told) = (RequiredDiffs::default(), Vec::new());
        let (mut third, mut knowledge) = (IntervalState::new(NodeId(3), PageEngine::Hlrc), Vec::new());
        third.knowledge(LOCK, &mut knowledge);
        intervals.encode_notices((LOCK, IntervalMark::NOW), &knowledge, &mut told);
        third.apply_notices(LOCK, &told, &mut needs).unwrap();
        assert_eq!(needs.at(ME), [RequiredDiff { writer: OTHER, serial: u64::from(before) + round }]);
    }
}

#[test]
fn epochs_go_on_beyond_32_bits() {
    let mut home = Home::new();
    home.home_queue.open(u32::MAX);
    assert!(home.fetch(0, 0, vec![0..1]).is_empty() && home.diffs(0, 1, 0).is_empty(), "homes may move before");
    assert_eq!((home.applied().len(), home.home_queue.kept()), (0, 2));
    home.home_queue.open(0);
    serve::rerun(&mut home, &mut Outbox::new()).unwrap();
    assert_eq!((home.applied().len(), home.home_queue.kept()), (1, 0));
    home.diffs(u32::MAX, 2, 0);
    assert_eq!(home.applied().len(), 2, "a late one");
}
