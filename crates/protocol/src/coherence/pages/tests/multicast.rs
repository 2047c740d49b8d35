//! Units whose diffs are told to sets: the table's transitions, and what others may ask and tell.

use super::*;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::home_queue::HomeQueue;
use crate::coherence::pages::intervals::{EARLY, IntervalState, MEMBERS, RequiredDiffs};
use crate::coherence::pages::kept_diffs::runs::{StampMap, StampRun};
use crate::coherence::pages::kept_diffs::serve::on_base;
use crate::coherence::pages::kept_diffs::wire::put_base;
use crate::coherence::pages::kept_diffs::{Ask, INTERVAL_STAMP_MAX, STAMP_MAX, Stamp, Wants};
use crate::coherence::pages::multicast::carry;
use crate::coherence::pages::multicast::history::Choice;
use crate::coherence::pages::multicast::placement::{Placement, Uses};
use crate::coherence::pages::multicast::serve::{Asked, Bystander, on_asked, on_told, repair, repair_wait, send_asks};
use crate::coherence::pages::multicast::unit::Unasked;
use crate::coherence::pages::multicast::wire::*;
use crate::coherence::pages::page_table::multicast::MemberChanges;
use crate::coherence::pages::serve::{Listing, PageState};
use crate::coherence::pages::wire::Groups;
use crate::coherence::pages::write_notices::add_notice;
use crate::outbox::Target;
use crate::time::Span;
use crate::tuning::{MulticastTuning, Tuning};
use crate::wire::message::types;

const THIRD: NodeId = NodeId(3);

/// All intervals up to 100 have closed, and the last barrier told of those up to 50.
const BY: Bystander = Bystander { me: ME, nodes: 5, closed: 100, barrier: 50 };

/// A node with one table of four pages, of which the last was freed.
struct Sets(Bench, HomeQueue);

impl Sets {
    /// All units are managed by `manager`.
    fn managed_by(manager: NodeId, engine: PageEngine) -> Sets {
        Sets(Bench::with_shape(manager, true, |layout| layout.engine = engine), HomeQueue::new())
    }
}

impl PageState for Sets {
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
    fn is_freed(&mut self, page: PageNo) -> bool {
        page == 3
    }
}

/// The copyset of page 0 has these nodes.
fn sets(members: &[NodeId]) -> Sets {
    let mut sets = Sets::managed_by(ME, PageEngine::Multicast);
    for node in members {
        sets.0.step(|table, _, _| table.note_member(ME, &(0..1), *node, true));
    }
    sets
}

/// What a message to a set has in it: its type, who is asked, who is told, and its body.
type Sent = (crate::wire::header::MsgType, NodeSet, NodeSet, Vec<u8>);

fn sent(out: &Outbox) -> Vec<Sent> {
    let to_set = |send: &crate::outbox::Send| match send.target {
        Target::Set(id) => {
            let audience = out.audience(id).clone();
            Some((send.ty, audience.asked, audience.told, out.body(send).to_vec()))
        }
        _ => None,
    };
    out.sends().iter().filter_map(to_set).collect()
}

fn nodes(nodes: &[NodeId]) -> NodeSet {
    nodes.iter().copied().collect()
}

impl Sets {
    fn note(&mut self, writer: NodeId, stamp: Stamp) {
        self.0.step(|table, _, _| table.note_written(&(0..1), writer, stamp));
        self.0.invalidate(0..1);
    }

    /// A fault on page 0, and what goes out for it.
    fn faults(&mut self) -> (Fault, Asked, Outbox) {
        let (fault, mut out) = (self.0.fault(0, Access::Read), Outbox::new());
        let asked = match &fault {
            Fault::Ask(asks) => send_asks(self, asks, BY, &mut out),
            _ => Asked::default(),
        };
        (fault, asked, out)
    }

    fn told(&mut self, from: NodeId, stamps: (Stamp, Stamp), bytes: &[u8]) -> Result<Outbox, String> {
        let (mut body, mut out) = (Vec::new(), Outbox::new());
        let run = StampRun { start: 8, end: 8 + bytes.len() as u32, stamp: stamps.1 };
        put_told(&mut body, 0, stamps, [(run, bytes)].into_iter().filter(|_| !bytes.is_empty()));
        self.0.memory.calls.clear();
        on_told(self, from, &body, &mut out).map(|()| out).map_err(|e| e.to_string())
    }

    fn asked(
        &mut self,
        from: NodeId,
        page: PageNo,
        sets: (&[NodeId], &[NodeId]),
        writers: &[AskedWriter],
    ) -> Result<Vec<Sent>, String> {
        let (mut body, mut out) = (Vec::new(), Outbox::new());
        put_set_ask(&mut body, (&nodes(sets.0), &nodes(sets.1)), page, writers, false);
        on_asked(self, from, &body, BY, &mut out).map(|()| sent(&out)).map_err(|e| e.to_string())
    }

    /// What this node says of copysets as it arrives: joins, leaves, and what it wants told early.
    fn changes(&mut self) -> [Vec<Range<PageNo>>; 3] {
        let mut changes = MemberChanges::default();
        self.0.step(|table, cx, _| table.change_members(cx, &mut changes));
        [changes.joins, changes.leaves, changes.early]
    }

    /// How many messages it tells early.
    fn tells_early(&mut self) -> usize {
        let mut messages = Vec::new();
        self.0.step(|table, cx, _| table.tell_early(cx.me, 100, &mut messages));
        messages.len()
    }

    fn is_here(&self) -> bool {
        self.0.table.unit(0).is_here()
    }

    fn patches(&self) -> Vec<&str> {
        self.0.memory.calls.iter().filter(|call| call.starts_with("patch")).map(String::as_str).collect()
    }

    /// Node `ME` has used page 0.
    fn used(members: &[NodeId]) -> Sets {
        let mut sets = sets(members);
        assert_eq!(sets.0.fault(0, Access::Read), Fault::Mapped);
        sets
    }
}

fn writer(node: NodeId, since: Stamp, need: Stamp) -> AskedWriter {
    AskedWriter { node, since, need }
}

#[test]
fn a_fault_asks_the_writers_in_one_message_and_waits_for_what_they_tell() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, 5);
    sets.note(THIRD, 7);
    let (_, asked, out) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets, asked.repairs), (0, 1, vec![(0, 2)]));
    let [(types::DIFFS_ASKED, to, told, body)] = &sent(&out)[..] else { panic!("{:?}", out.sends()) };
    assert_eq!((to, told), (&nodes(&[OTHER, THIRD]), &nodes(&[])), "nobody has anything to hear but the asked");
    assert_eq!(SetAsk::parse(body).unwrap().writers, [writer(OTHER, 0, 5), writer(THIRD, 0, 7)]);
    sets.told(OTHER, (0, 9), b"new").unwrap();
    assert!(!sets.is_here() && sets.patches() == ["patch 8 with [110, 101, 119] 0..1"]);
    sets.told(THIRD, (0, 7), b"old!").unwrap();
    assert!(sets.is_here() && sets.patches() == ["patch 11 with [33] 0..1"], "older bytes overwrite no newer ones");
    sets.told(THIRD, (0, 7), b"old!").unwrap();
    assert!(sets.patches().is_empty(), "what comes again stores nothing");
}

#[test]
fn what_came_unasked_needs_no_message() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.told(OTHER, (0, 5), b"one").unwrap();
    assert!(sets.patches().is_empty() && sets.is_here(), "a thread may be looking");
    sets.note(OTHER, 5);
    assert_eq!(sets.faults().0, Fault::Mapped);
    assert_eq!(sets.patches(), ["patch 8 with [111, 110, 101] 0..1"]);
    // One that lacks something before it is patched, and asked for all the same.
    sets.note(OTHER, 9);
    sets.told(OTHER, (7, 9), b"two").unwrap();
    let (_, asked, _) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets), (0, 1));
}

#[test]
fn what_others_have_asked_for_is_expected_and_not_asked_for_again() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD, NodeId(4)]);
    let asks = [writer(THIRD, 0, 7), writer(NodeId(4), 0, 8)];
    assert_eq!(sets.asked(OTHER, 0, (&[THIRD], &[ME, NodeId(4)]), &asks).unwrap(), []);
    sets.note(THIRD, 7);
    sets.note(NodeId(4), 8);
    let (_, asked, _) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets, &asked.repairs[..]), (0, 0, &[(0, 2)][..]));
    // The timer asks for what does not come.
    sets.told(THIRD, (0, 7), b"").unwrap();
    let mut out = Outbox::new();
    assert_eq!(repair(&mut sets, (0, 1), &mut out), 0, "of another round");
    assert_eq!(repair(&mut sets, (0, 2), &mut out), 1);
    assert!(matches!(out.sends()[0].target, Target::Request { node: NodeId(4), .. }));
    assert_eq!(repair(&mut sets, (0, 2), &mut out), 0, "the answer to that comes for sure");
}

#[test]
fn a_writer_tells_the_whole_set_once_and_is_silent_to_those_in_it() {
    let mut sets = sets(&[OTHER, THIRD]);
    assert_eq!(sets.0.fault(0, Access::Write), Fault::Mapped);
    let first = sets.asked(OTHER, 0, (&[ME], &[THIRD]), &[writer(ME, 0, 40)]).unwrap();
    let [(types::DIFFS_TOLD, asked, told, _)] = &first[..] else { panic!("{first:?}") };
    assert_eq!((asked, told), (&nodes(&[]), &nodes(&[OTHER, THIRD])));
    assert_eq!(sets.asked(THIRD, 0, (&[ME], &[OTHER]), &[writer(ME, 0, 40)]).unwrap(), [], "it is on its way");
    assert_eq!(sets.asked(NodeId(4), 0, (&[ME], &[]), &[writer(ME, 0, 40)]).unwrap().len(), 1, "it was not told");
}

#[test]
fn what_only_a_lock_told_goes_point_to_point_and_so_does_a_pair() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, 60);
    let (fault, asked, _) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets, asked.repairs), (1, 0, vec![]));
    let wants = Wants::Diffs { since: 0, need: 60 };
    assert_eq!(fault, Fault::Ask(vec![(OTHER, Ask { page: 0, pages: 1, wants })]));
    let mut pair = Sets::used(&[ME, OTHER]);
    pair.note(OTHER, 6);
    let (_, asked, _) = pair.faults();
    assert_eq!((asked.requests, asked.to_sets, asked.repairs), (1, 0, vec![]));
}

#[test]
fn asks_and_tells_that_no_correct_node_would_send_are_refused_and_change_nothing() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    let mut refused = |from, page, to: (&[NodeId], &[NodeId]), writers: &[AskedWriter]| {
        sets.asked(from, page, to, writers).err().unwrap_or_default()
    };
    assert!(refused(OTHER, 0, (&[ME], &[]), &[writer(ME, 0, 101)]).contains("has not closed"));
    assert!(refused(OTHER, 0, (&[ME], &[NodeId(7)]), &[writer(ME, 0, 4)]).contains("whom the job has not"));
    assert!(refused(OTHER, 0, (&[ME], &[OTHER]), &[writer(ME, 0, 4)]).contains("it is itself"));
    assert!(refused(OTHER, 0, (&[ME], &[]), &[writer(ME, 4, 4)]).contains("makes no sense"));
    assert_eq!(refused(OTHER, 9, (&[ME], &[]), &[writer(ME, 0, 4)]), "", "its region may not be known yet");
    // What is for others is nobody's mistake: the network has brought it here.
    assert_eq!(sets.asked(OTHER, 0, (&[THIRD], &[]), &[writer(THIRD, 0, 4)]), Ok(vec![]));
    let mut body = Vec::new();
    let at = PAGE_BYTES as u32 - 1;
    put_told(&mut body, 0, (0, 4), [(StampRun { start: at, end: at + 2, stamp: 4 }, &b"no"[..])].into_iter());
    let error = on_told(&mut sets, OTHER, &body, &mut Outbox::new()).unwrap_err().to_string();
    assert!(error.contains("leaves its unit"), "{error}");
    let mut other = Sets::managed_by(ME, PageEngine::Lrc);
    let error = other.asked(OTHER, 0, (&[ME], &[]), &[writer(ME, 0, 4)]).unwrap_err();
    assert!(error.contains("not told to sets"), "{error}");
}

#[test]
fn an_ask_for_freed_memory_is_told_so() {
    let mut sets = Sets::used(&[ME, OTHER]);
    let told = sets.asked(OTHER, 3, (&[ME], &[THIRD]), &[writer(ME, 0, 4)]).unwrap();
    let [(types::DIFFS_TOLD, _, to, body)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((to, take_told(body).unwrap()), (&nodes(&[OTHER]), vec![(3, ToldUnit::Freed(100))]));
}

/// Each thread of a node may take out what the node was told, and so may its service thread.
#[test]
fn whoever_takes_in_the_last_diff_wakes_the_thread_that_waits_for_it() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, 5);
    sets.note(THIRD, 7);
    assert_eq!(sets.faults().1.to_sets, 1);
    let waiter = Slot::thread(1);
    let waits = |sets: &mut Sets| sets.0.step(|table, _, _| table.wait_for_fetch(waiter, 0));
    assert!(waits(&mut sets));
    assert_eq!(sets.told(OTHER, (0, 5), b"one").unwrap().wakes(), [], "it lacks the other one");
    assert!(waits(&mut sets), "it looks again, and is noted once");
    assert_eq!(sets.told(THIRD, (0, 7), b"two").unwrap().wakes(), [waiter]);
    assert!(!waits(&mut sets));
    assert_eq!(sets.told(THIRD, (0, 9), b"two").unwrap().wakes(), [], "nobody waits any more");
}

/// A node that manages a unit completes its copy before diffs are dropped.
#[test]
fn a_writer_that_has_dropped_its_diffs_says_so_to_no_manager() {
    let collected = |sets: &mut Sets| {
        let mut body = Vec::new();
        put_told_collected(&mut body, 0, 5);
        on_told(sets, OTHER, &body, &mut Outbox::new()).map_err(|e| e.to_string())
    };
    let mut managed = Sets::used(&[ME, OTHER, THIRD]);
    managed.note(OTHER, 5);
    assert_eq!(managed.faults().1.to_sets, 1);
    let error = collected(&mut managed).unwrap_err();
    assert!(error.contains("the manager of their page lacks") && managed.0.table.unit(0).is_fetching(), "{error}");
    // Another node begins again with the manager's copy.
    let mut other = Sets::managed_by(THIRD, PageEngine::Multicast);
    assert_eq!(other.0.fault(0, Access::Read), Fault::Mapped);
    other.note(OTHER, 5);
    assert_eq!(other.faults().1.requests, 1);
    collected(&mut other).unwrap();
    assert_eq!(other.faults().0, Fault::Ask(vec![(THIRD, Ask { page: 0, pages: 1, wants: Wants::Base })]));
}

#[test]
fn what_is_too_long_for_a_datagram_is_asked_for_point_to_point() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, 5);
    assert_eq!(sets.faults().1.to_sets, 1);
    let (mut body, mut out) = (Vec::new(), Outbox::new());
    put_too_long(&mut body, 0, 6);
    on_told(&mut sets, OTHER, &body, &mut out).unwrap();
    assert!(!sets.0.table.unit(0).is_fetching(), "whoever waits asks again");
    let (_, asked, _) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets), (1, 0));
}

/// Another region had these addresses, and was freed. All that it was told of is no later than the barriers since then.
#[test]
fn what_was_told_of_a_region_that_was_freed_does_not_reach_the_one_that_has_its_addresses() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.0.step(|table, _, _| table.set_birth(50));
    sets.told(OTHER, (0, 50), b"old").unwrap();
    assert_eq!(sets.asked(OTHER, 0, (&[ME], &[THIRD]), &[writer(ME, 0, 50)]).unwrap(), [], "nor is it answered");
    sets.note(OTHER, 50);
    assert_eq!(sets.faults().0, Fault::Mapped, "nothing is missing, and nothing came");
    assert!(sets.patches().is_empty());
    let said = |sets: &mut Sets, put: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        put(&mut body);
        on_told(sets, OTHER, &body, &mut Outbox::new()).unwrap();
        sets.0.table.unit(0).is_fetching()
    };
    sets.note(OTHER, 60);
    assert_eq!(sets.faults().1.requests + sets.faults().1.to_sets, 1);
    assert!(said(&mut sets, &|body| put_told_freed(body, 0, 50)) && said(&mut sets, &|body| put_too_long(body, 0, 40)));
    sets.told(OTHER, (0, 60), b"new").unwrap();
    assert!(sets.is_here() && sets.patches() == ["patch 8 with [110, 101, 119] 0..1"]);
}

/// A writer drops its diffs after the copy here has them. What it says of that is late.
#[test]
fn a_late_word_of_what_was_collected_ends_no_copy() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, 60);
    sets.faults();
    let mut body = Vec::new();
    sets.0.step(|table, _, _| table.set_floor(55));
    put_told_collected(&mut body, 0, 55);
    on_told(&mut sets, OTHER, &body, &mut Outbox::new()).unwrap();
    assert!(sets.0.table.unit(0).is_fetching());
    sets.told(OTHER, (0, 60), b"new").unwrap();
    assert!(sets.is_here());
}

#[test]
fn who_is_told_what_is_of_no_use_leaves_and_the_last_member_stays() {
    let mut sets = Sets::used(&[ME, OTHER]);
    assert_eq!(sets.changes(), [vec![], vec![], vec![]]);
    for stamp in 1..4 {
        sets.told(OTHER, (stamp - 1, stamp), b"x").unwrap();
        assert_eq!(sets.changes(), [vec![], vec![], vec![]], "after {stamp} tells");
    }
    sets.told(OTHER, (3, 4), b"x").unwrap();
    assert_eq!(sets.changes(), [vec![], vec![0..1], vec![]]);
    for (node, left) in [(ME, &[OTHER][..]), (OTHER, &[OTHER][..])] {
        sets.0.step(|table, _, _| table.note_member(ME, &(0..1), node, false));
        assert_eq!(sets.0.table.members(0), nodes(left), "the last member stays");
    }
    // It uses the page again: what it was told and did not keep comes point to point, and it joins.
    sets.note(OTHER, 9);
    let (_, asked, _) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets), (1, 0));
    assert_eq!(sets.changes(), [vec![0..1], vec![], vec![]]);
}

#[test]
fn what_nodes_ask_for_at_the_same_time_is_told_early_where_all_agree_and_something_was_written() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    assert_eq!(sets.0.fault(0, Access::Write), Fault::Mapped);
    sets.note(OTHER, 5);
    assert_eq!(sets.faults().1.to_sets, 1);
    sets.asked(OTHER, 0, (&[ME], &[THIRD]), &[writer(ME, 0, 40)]).unwrap();
    assert_eq!(sets.changes(), [vec![], vec![], vec![0..1]]);
    assert_eq!(sets.tells_early(), 0, "nobody has agreed to that yet");
    sets.0.step(|table, _, _| table.note_early(&(0..1)));
    assert_eq!(sets.tells_early(), 0, "nothing was written");
    // The ask may bring the last for which the node itself waits.
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, 5);
    assert_eq!(sets.faults().1.to_sets, 1);
    let (mut body, run) = (Vec::new(), StampRun { start: 8, end: 9, stamp: 5 });
    put_set_ask(&mut body, (&nodes(&[ME]), &nodes(&[THIRD])), 0, &[writer(ME, 0, 40)], true);
    put_told_diffs(&mut body, (0, 5), [(run, &b"x"[..])].into_iter());
    on_asked(&mut sets, OTHER, &body, BY, &mut Outbox::new()).unwrap();
    assert!(sets.is_here());
    assert_eq!(sets.changes()[2], vec![0..1]);
}

#[test]
fn joins_and_leaves_ride_on_arrivals() {
    let mut state = IntervalState::new(OTHER, PageEngine::Multicast);
    let mut groups = Groups::new();
    add_notice(&mut groups, OTHER, || 40, 0..1, true);
    state.close([groups, Groups::new()]);
    let mut said = Vec::new();
    state.arrive(&mut said);
    let uses = Uses { epochs: 3, reads: true, sixteenths: 4 };
    let changes = MemberChanges {
        joins: vec![2..4],
        leaves: vec![7..8, 9..12],
        early: vec![2..3],
        uses: [(uses.number(), vec![5..6])].into(),
    };
    state.announce_members(&changes, &mut said);
    let mut heard = IntervalState::new(ME, PageEngine::Multicast);
    let told = heard.open(&said, &mut RequiredDiffs::default()).unwrap();
    assert_eq!((told.len(), heard.homes_stay(), heard.barrier_stamp()), (1, false, 40));
    let members = heard.take_members();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].writer, OTHER);
    let [of_members, early, of_uses] = &members[0].groups[..] else { panic!("{members:?}") };
    assert_eq!(of_members.runs[..], [(2..4, true), (7..8, false), (9..12, false)]);
    assert_eq!((of_members.serial, early.serial, &early.runs[..]), (MEMBERS, EARLY, &[(2..3, true)][..]));
    assert_eq!((Uses::of_number(of_uses.serial), &of_uses.runs[..]), (Some(uses), &[(5..6, true)][..]));
    assert_eq!(heard.take_members(), []);
}

#[test]
fn the_timer_waits_four_round_trips_and_two_milliseconds_at_least() {
    let wait = |us| repair_wait(&MulticastTuning::DEFAULT, Span::from_us(us)).as_us();
    assert_eq!((wait(50), wait(500), wait(10_000)), (2_000, 2_000, 40_000));
}

/// Two bytes of the node `OTHER`, from its interval 60, which a token carries.
fn carried() -> Unasked {
    let covers = std::iter::once((OTHER, 60)).collect();
    let runs = vec![StampRun { start: 0, end: 2, stamp: 60 }];
    Unasked { since: 50, covers, runs, bytes: b"hi".to_vec(), is_carried: true }
}

impl Sets {
    /// A token comes that tells of it.
    fn token(&mut self) {
        self.0.step(|table, _, _| table.note_whole(&(0..1), 50));
        self.note(OTHER, 60);
        self.0.step(|table, cx, _| table.take_unasked(cx, 0, carried()));
    }
}

#[test]
fn what_comes_with_a_token_counts_where_the_copy_has_all_up_to_the_barrier() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.token();
    assert_eq!(sets.faults().0, Fault::Mapped);
    assert_eq!(sets.patches(), ["patch 0 with [104, 105] 0..1"]);
    // It lacks what was told at the barrier, and perhaps something of the token's writer.
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(THIRD, 40);
    sets.token();
    let (fault, asked, _) = sets.faults();
    let Fault::Ask(asks) = fault else { panic!("{fault:?}") };
    assert_eq!(asks.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [THIRD, OTHER]);
    assert_eq!((asked.requests, asked.to_sets), (1, 1), "the barrier's by a set, the lock's point to point");
}

#[test]
fn a_copy_of_what_nobody_had_written_up_to_the_barrier_begins_with_zeros() {
    let managed_elsewhere = || Sets::managed_by(OTHER, PageEngine::Multicast);
    let mut sets = managed_elsewhere();
    sets.token();
    assert_eq!(sets.faults().0, Fault::Mapped);
    let mut sets = managed_elsewhere();
    sets.note(THIRD, 40);
    sets.token();
    assert_eq!(sets.faults().0, Fault::Ask(vec![(OTHER, Ask { page: 0, pages: 1, wants: Wants::Base })]));
}

#[test]
fn a_token_carries_what_was_written_since_the_barrier_as_far_as_there_is_room() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.token();
    assert_eq!(sets.faults().0, Fault::Mapped);
    let mut payload = Vec::new();
    carry::begin(&mut payload, 50);
    let begun = payload.len();
    sets.0.step(|table, cx, _| table.carry(cx, 0, (50, 100), 8, &mut payload));
    assert_eq!(payload.len(), begun, "there is no room");
    sets.0.step(|table, cx, _| table.carry(cx, 0, (50, 100), 1000, &mut payload));
    let units = carry::parse(carry::carried(&payload).unwrap()).unwrap();
    let [(0, diffs)] = &units[..] else { panic!("{units:?}") };
    assert_eq!(diffs.covers[..], [(OTHER, 60), (ME, 100)]);
    assert_eq!((&diffs.runs[..], &diffs.bytes[..]), (&carried().runs[..], &[2, 2][..]), "the bytes of the twin");
}

/// How a node used page 0 in a window.
fn uses(epochs: u8, reads: bool, sixteenths: u64) -> Uses {
    Uses { epochs, reads, sixteenths }
}

impl Sets {
    /// A barrier tells how nodes used page 0.
    fn placed(&mut self, said: &[(NodeId, Uses)]) -> Placement {
        self.0.step(|table, cx, _| {
            said.iter().for_each(|(node, uses)| table.note_uses(&(0..1), *node, *uses));
            table.decide_placement(cx, false);
        });
        self.0.table.placement(0)
    }

    /// Page 0 is written by two other nodes that do not read it, and managed by one of them.
    fn homed() -> Sets {
        let mut sets = Sets::used(&[ME, OTHER, THIRD]);
        let said = [(OTHER, uses(4, false, 64)), (THIRD, uses(3, false, 64)), (ME, uses(3, true, 0))];
        assert_eq!(sets.placed(&said), Placement { manager: OTHER, is_homed: true });
        sets
    }
}

#[test]
fn a_manager_that_moves_takes_its_copy_out_of_the_bound_and_the_old_one_counts_it() {
    let mut sets = Sets::used(&[ME, OTHER]);
    let held = |sets: &Sets| sets.0.tally.held;
    let before = held(&sets);
    assert_eq!(sets.placed(&[(OTHER, uses(2, true, 0))]).manager, OTHER);
    assert_eq!(held(&sets) - before, 1, "it is an ordinary copy now");
    assert_eq!(sets.placed(&[(ME, uses(2, true, 0)), (OTHER, uses(2, true, 0))]).manager, OTHER);
    assert_eq!(sets.placed(&[(ME, uses(3, true, 0)), (OTHER, uses(2, true, 0))]).manager, ME);
    assert_eq!((held(&sets) - before, sets.0.tally.managers_moved), (0, 1));
    assert_eq!(sets.placed(&[]).manager, ME, "nobody said anything");
    // Nothing moves as a collection ends, and what was said then is forgotten.
    sets.0.step(|table, cx, _| {
        table.note_uses(&(0..1), OTHER, uses(9, true, 0));
        table.decide_placement(cx, true);
        table.decide_placement(cx, false);
    });
    assert_eq!(sets.0.table.placement(0).manager, ME);
}

#[test]
fn a_node_says_in_how_many_epochs_it_used_what_it_has_and_how_much_it_wrote() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    let said = |sets: &mut Sets| {
        let mut changes = MemberChanges::default();
        sets.0.step(|table, _, _| table.say_uses(&mut changes));
        changes.uses.into_iter().map(|(number, runs)| (Uses::of_number(number).unwrap(), runs)).collect::<Vec<_>>()
    };
    sets.changes();
    sets.note(OTHER, 5);
    sets.faults();
    sets.told(OTHER, (0, 5), b"x").unwrap();
    sets.changes();
    sets.changes();
    assert_eq!(said(&mut sets), [(uses(2, true, 0), vec![0..1])], "it read in two of three epochs");
    assert_eq!(said(&mut sets), [], "a window has begun");
    assert_eq!(sets.0.fault(1, Access::Write), Fault::Mapped);
    sets.changes();
    assert_eq!(said(&mut sets), [(uses(1, false, 0), vec![1..2])], "a store is no read");
}

#[test]
fn a_homed_unit_is_asked_of_its_manager_and_what_that_lacks_of_its_writers() {
    let mut sets = Sets::homed();
    sets.note(OTHER, 40);
    sets.note(THIRD, 41);
    let (_, asked, out) = sets.faults();
    assert_eq!((asked.requests, asked.to_sets, asked.repairs), (1, 0, vec![]));
    assert!(out.sends().iter().all(|send| send.ty == types::FETCH_BASE), "{:?}", out.sends());
    // What a writer tells meanwhile is no answer of the manager.
    sets.told(THIRD, (0, 41), b"three").unwrap();
    assert!(sets.0.table.unit(0).is_fetching());
    let mut body = Vec::new();
    let had = [(OTHER, 40)].into_iter().collect();
    let stamps = StampMap::of(vec![StampRun { start: 0, end: 4, stamp: 40 }]);
    put_base(&mut body, 0, 0, (&had, &stamps), Some(PAGE_BYTES));
    body.resize(body.len() + PAGE_BYTES, 7);
    on_base(&mut sets, OTHER, &body, &mut Outbox::new()).unwrap();
    assert!(!sets.0.table.unit(0).is_fetching() && !sets.is_here(), "it lacks what the third node wrote");
    let (fault, asked, _) = sets.faults();
    let Fault::Ask(asks) = fault else { panic!("{fault:?}") };
    let wants = Wants::Diffs { since: 0, need: 41 };
    assert_eq!(asks, [(THIRD, Ask { page: 0, pages: 1, wants })]);
    assert_eq!((asked.requests, asked.to_sets), (1, 0), "it was told before, and will not be told again");
}

#[test]
fn a_copy_that_comes_of_a_manager_is_not_whole_up_to_the_barrier() {
    let mut sets = Sets::homed();
    sets.0.step(|table, _, _| table.note_whole(&(0..1), 50));
    sets.note(OTHER, 40);
    sets.note(THIRD, 41);
    sets.faults();
    let mut body = Vec::new();
    put_base(&mut body, 0, 0, (&Default::default(), &StampMap::default()), None);
    on_base(&mut sets, OTHER, &body, &mut Outbox::new()).unwrap();
    // A token's diffs, for copies that have all up to the barrier.
    let mut of_token = carried();
    of_token.covers = [(OTHER, 60)].into_iter().collect();
    sets.0.step(|table, cx, _| table.take_unasked(cx, 0, of_token));
    let (fault, ..) = sets.faults();
    let Fault::Ask(asks) = fault else { panic!("{fault:?}") };
    assert!(asks.iter().any(|(node, _)| *node == OTHER), "the base has not what it wrote: {asks:?}");
}

#[test]
fn a_manager_that_is_told_everything_keeps_no_more_than_some_copies_of_it() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    let said = [(OTHER, uses(4, false, 64)), (THIRD, uses(3, false, 64)), (ME, uses(5, true, 0))];
    assert_eq!(sets.placed(&said), Placement { manager: ME, is_homed: true });
    for stamp in 1..100 {
        sets.told(OTHER, (0, stamp), &[7; PAGE_BYTES - 8]).unwrap();
        let kept = sets.0.table.unasked_bytes();
        assert!(kept <= 4 * PAGE_BYTES, "{kept} bytes");
    }
    // A copy that nobody sees is patched at once.
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    assert!(sets.placed(&said).is_homed);
    sets.note(THIRD, 3);
    sets.told(OTHER, (0, 5), b"two").unwrap();
    assert_eq!((sets.patches().len(), sets.0.table.unasked_bytes()), (1, 0));
}

#[test]
fn the_next_run_starts_with_what_was_arrived_at() {
    let mut sets = Sets::homed();
    sets.0.step(|table, _, _| table.note_early(&(0..1)));
    let choices = sets.0.table.choices();
    let placement = Placement { manager: OTHER, is_homed: true };
    let members = nodes(&[ME, OTHER, THIRD]);
    assert_eq!(choices, [(0..1, Choice { placement, is_early: true, members, epochs: 4 })]);
    let mut next = Sets::managed_by(ME, PageEngine::Multicast);
    assert_eq!(next.0.table.choices(), [], "of units that nobody has used nothing is known");
    next.0.step(|table, _, _| choices.iter().for_each(|(run, choice)| table.start_with(run, choice)));
    let halved: Vec<_> = choices.into_iter().map(|(run, choice)| (run, Choice { epochs: 2, ..choice })).collect();
    assert_eq!(next.0.table.choices(), halved, "the next run starts with half of the epochs");
}

/// No number that a stamp may have overflows, and whoever tells of the last one has told all that it ever will.
#[test]
fn stamps_at_their_limit_are_read_and_lead_nowhere() {
    let mut sets = Sets::used(&[ME, OTHER, THIRD]);
    sets.note(OTHER, STAMP_MAX - 1);
    sets.note(THIRD, STAMP_MAX);
    sets.told(OTHER, (STAMP_MAX - 1, STAMP_MAX), b"gap").unwrap();
    sets.told(OTHER, (0, STAMP_MAX), b"all").unwrap();
    assert!(sets.asked(OTHER, 0, (&[ME], &[]), &[writer(ME, 0, STAMP_MAX)]).unwrap_err().contains("has not closed"));
    sets.0.step(|table, _, _| table.set_birth(STAMP_MAX));
    sets.told(THIRD, (0, STAMP_MAX), b"old").unwrap();
    assert_eq!(sets.asked(OTHER, 0, (&[ME], &[]), &[writer(ME, 0, 7)]).unwrap(), [], "of a region of before");
    let mut intervals = IntervalState::new(ME, PageEngine::Multicast);
    intervals.hear_clock(INTERVAL_STAMP_MAX);
    assert!(intervals.is_used_up(), "this node ends in a sentence");
}
