//! The victim's pages whose diffs stay with their writers: a page table under `lrc` and one under `multicast`, over
//! plain memory.

use super::NODES;
use comem_protocol::coherence::Misbehaved;
use comem_protocol::coherence::pages::atomic::Atomic;
use comem_protocol::coherence::pages::home_queue::HomeQueue;
use comem_protocol::coherence::pages::kept_diffs::serve::{
    on_base, on_fetch_base, on_fetch_diffs, on_kept_diffs, send_asks,
};
use comem_protocol::coherence::pages::kept_diffs::wire::{
    put_base_asks, put_diff_asks, take_base_asks, take_bases, take_diff_asks, take_told,
};
use comem_protocol::coherence::pages::kept_diffs::{Ask, Stamp, clock};
use comem_protocol::coherence::pages::multicast::placement::{USES, Uses};
use comem_protocol::coherence::pages::multicast::serve::Bystander;
use comem_protocol::coherence::pages::multicast::{self, carry};
use comem_protocol::coherence::pages::page_table::multicast::MemberChanges;
use comem_protocol::coherence::pages::page_table::{ChunkLayout, DiffSink, Fault, FirstTouch, PageTable, PrefetchPlan};
use comem_protocol::coherence::pages::policy::sync_phase::SyncPhase;
use comem_protocol::coherence::pages::serve::{Listing, PageState};
use comem_protocol::coherence::pages::{
    Access, Context, OneSidedMemory, PAGE_BYTES, PageEngine, PageMapping, PageMemory, PageNo, PageTwins, Tally,
    push_range,
};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::{IntervalMark, Payload, Scope};
use comem_protocol::tuning::Tuning;
use comem_protocol::wire::message::{Message, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Pages of each of two regions, which have units of two. As many behind them are those of regions that were freed.
const PAGES: u32 = 4;
const ALL_PAGES: u32 = 2 * PAGES;
/// The stamp of the last interval that has closed.
const CLOSED: Stamp = 5;
/// What the victim says of itself where sets are asked.
const BY: Bystander = Bystander { me: NodeId(0), nodes: NODES, closed: CLOSED, barrier: CLOSED };
/// A unit has at most so many waiting threads, which are the victim's.
const UNIT: u32 = 2;

/// Memory that is patched within its units alone.
struct Memory {
    bytes: Vec<u8>,
    twins: BTreeMap<PageNo, Vec<u8>>,
    written: BTreeSet<PageNo>,
}

impl Memory {
    fn of(&mut self, pages: Range<PageNo>) -> &mut [u8] {
        assert!(pages.end <= ALL_PAGES, "pages {pages:?} belong to no region");
        &mut self.bytes[pages.start as usize * PAGE_BYTES..pages.end as usize * PAGE_BYTES]
    }
}

impl PageMapping for Memory {
    fn notes_writes(&self) -> bool {
        true
    }
    fn map_read(&mut self, _: Range<PageNo>) {}
    fn map_write(&mut self, pages: Range<PageNo>) {
        self.written.extend(pages);
    }
    fn protect(&mut self, _: Range<PageNo>) {}
    fn unmap(&mut self, _: Range<PageNo>) {}
    fn written(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        self.written.range(pages).for_each(|page| push_range(written, *page..page + 1));
    }
    fn collect(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        self.written(pages.clone(), written);
        self.written.retain(|page| !pages.contains(page));
    }
}

impl OneSidedMemory for Memory {}

impl PageTwins for Memory {
    fn make_twin(&mut self, unit: Range<PageNo>, _: bool) {
        let bytes = self.of(unit.clone()).to_vec();
        self.twins.insert(unit.start, bytes);
    }
    fn has_twin(&self, unit: Range<PageNo>) -> bool {
        self.twins.contains_key(&unit.start)
    }
    fn copy_twin(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> bool {
        let twin = self.twins.get(&unit.start);
        twin.map(|twin| out.extend_from_slice(twin)).is_some()
    }
    fn drop_twin(&mut self, unit: Range<PageNo>) {
        self.twins.remove(&unit.start);
    }
    fn diff(&mut self, unit: Range<PageNo>, _: &mut Vec<u8>) -> usize {
        let now = self.of(unit.clone()).to_vec();
        let before = self.twins.insert(unit.start, now.clone()).unwrap_or_else(|| now.clone());
        before.iter().zip(&now).filter(|(old, new)| old != new).count()
    }
    fn renew(&mut self, _: Range<PageNo>, _: &[u8]) {}
}

impl PageMemory for Memory {
    fn patch(&mut self, unit: Range<PageNo>, at: usize, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a patch of nothing");
        self.of(unit)[at..at + bytes.len()].copy_from_slice(bytes);
    }
    fn apply(&mut self, _: Range<PageNo>, _: &[u8]) -> Result<(), Misbehaved> {
        Err(Misbehaved("sent diffs to pages without a home"))
    }
    fn atomic(&mut self, _: PageNo, _: usize, _: Atomic) -> u64 {
        0
    }
    fn copy_out(&mut self, pages: Range<PageNo>, out: &mut Vec<u8>) {
        let bytes = self.of(pages);
        out.extend_from_slice(bytes);
    }
    fn install(&mut self, pages: Range<PageNo>, bytes: &[u8]) {
        self.of(pages).copy_from_slice(bytes);
    }
    fn discard(&mut self, pages: Range<PageNo>) {
        self.of(pages).fill(0);
    }
}

/// Gives each diff a stamp of its own.
struct Stamps<'a>(&'a mut Stamp);

impl DiffSink for Stamps<'_> {
    fn diff(&mut self, _: NodeId, _: PageNo, _: &[u8]) {
        unreachable!("diffs stay here");
    }
    fn stamp(&mut self) -> Stamp {
        *self.0 += 1;
        *self.0
    }
}

/// The pages, and what belongs to them.
pub struct VictimPages {
    /// Under `lrc`, and under `multicast`.
    tables: [PageTable; 2],
    memory: Memory,
    home_queue: HomeQueue,
    tally: Tally,
    stamp: Stamp,
    /// Units and rounds for which a timer is armed.
    repairs: Vec<(PageNo, u32)>,
}

impl VictimPages {
    /// Pages that nobody has used, managed by all nodes in turn.
    pub fn new(me: NodeId) -> VictimPages {
        let table = |first, engine| {
            let (first_touch, write_detection) = (FirstTouch::Never, true);
            let layout = ChunkLayout { first, pages: PAGES, unit_pages: UNIT, first_touch, write_detection, engine };
            PageTable::new(me, layout, |page| NodeId((page / UNIT) as u16 % NODES as u16))
        };
        let bytes = vec![0; ALL_PAGES as usize * PAGE_BYTES];
        VictimPages {
            tables: [table(0, PageEngine::Lrc), table(PAGES, PageEngine::Multicast)],
            memory: Memory { bytes, twins: BTreeMap::new(), written: BTreeSet::new() },
            home_queue: HomeQueue::new(),
            tally: Tally::default(),
            stamp: 0,
            repairs: Vec::new(),
        }
    }

    fn step<R>(
        &mut self,
        page: PageNo,
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>, &mut Stamps<'_>) -> R,
    ) -> R {
        let (memory, tally) = (&mut self.memory, &mut self.tally);
        let mut cx = Context { me: NodeId(0), caller: None, sync_phase: SyncPhase::default(), memory, out, tally };
        step(&mut self.tables[(page / PAGES) as usize], &mut cx, &mut Stamps(&mut self.stamp))
    }

    fn send(&mut self, asks: &[(NodeId, Ask)], out: &mut Outbox) {
        match asks.first() {
            Some((_, ask)) if ask.page >= PAGES => {
                let asked = multicast::serve::send_asks(self, asks, BY, out);
                self.repairs.extend(asked.repairs);
            }
            _ => _ = send_asks(asks, 0, out),
        }
    }

    /// A thread uses a page, or hears of another's writes, or an interval or an epoch ends.
    pub fn want(&mut self, number: u64, caller: Slot, out: &mut Outbox) {
        let page = (number / 8) as PageNo % ALL_PAGES;
        let table = &self.tables[(page / PAGES) as usize];
        match number % 8 {
            0..3 if !table.unit(page).is_fetching() => {
                let access = if number.is_multiple_of(2) { Access::Read } else { Access::Write };
                let plan = PrefetchPlan::NOTHING;
                match self.step(page, out, |table, cx, _| table.fault(cx, caller, page, access, plan)) {
                    Fault::Ask(asks) => self.send(&asks, out),
                    _ => self.memory.bytes[page as usize * PAGE_BYTES + number as usize % PAGE_BYTES] = number as u8,
                }
            }
            3 | 4 => {
                let writer = NodeId(1 + (number / 32) as u16 % (NODES as u16 - 1));
                self.step(page, out, |table, cx, stamps| {
                    table.note_written(&(page..page + 1), writer, number % 7 + 1);
                    table.invalidate(cx, std::slice::from_ref(&(page..page + 1)), stamps);
                });
            }
            5 if number.is_multiple_of(3) => self.at_barrier(page, number, out),
            5 => self.step(page, out, |table, cx, stamps| table.close(cx, stamps, None, &mut Vec::new())),
            6 if number.is_multiple_of(5) => {
                let mut asks = Vec::new();
                self.step(page, out, |table, cx, _| table.begin_collection(cx, &mut asks));
                self.send(&asks, out);
            }
            6 => {
                if let Some(round) = self.repairs.pop() {
                    multicast::serve::repair(self, round, out);
                }
            }
            // Who lies may have kept a manager from what it needs.
            7 if number.is_multiple_of(11) => {
                let _ = self.step(page, out, |table, cx, _| table.finish_collection(cx, number % 7));
            }
            _ => {}
        }
    }

    /// What nodes say at barriers of pages that are told to sets.
    fn at_barrier(&mut self, page: PageNo, number: u64, out: &mut Outbox) {
        let (pages, node) = (page..page + 1, NodeId((number / 64) as u16 % NODES as u16));
        let uses = Uses::of_number((number * 0x9e37) | USES).unwrap_or_default();
        self.step(page, out, |table, cx, _| {
            let (mut changes, mut early) = (MemberChanges::default(), Vec::new());
            table.change_members(cx, &mut changes);
            table.say_uses(&mut changes);
            table.tell_early(cx.me, CLOSED, &mut early);
            table.note_member(cx.me, &pages, node, !number.is_multiple_of(5));
            table.note_early(&pages);
            table.note_uses(&pages, node, uses);
            table.decide_placement(cx, number.is_multiple_of(7));
            table.set_birth(number % 3);
        });
    }

    /// What a lock's token brings.
    fn on_token(&mut self, payload: &[u8]) {
        let (_, out) = (clock::heard(payload), &mut Outbox::new());
        let units = carry::carried(payload).map(carry::parse);
        for (page, diffs) in units.and_then(Result::ok).into_iter().flatten().filter(|(page, _)| *page < ALL_PAGES) {
            let end = diffs.runs.last().map_or(0, |run| run.end.into());
            self.step(page, out, |table, cx, _| {
                if table.check_answer(page, end, false).is_ok() {
                    table.take_unasked(cx, page, diffs);
                }
            });
        }
    }

    /// Takes a message about such pages; `None`: it is none.
    pub fn on_message(
        &mut self,
        (from, ticket): (NodeId, Option<Ticket>),
        message: &Message<'_>,
        out: &mut Outbox,
    ) -> Option<Result<(), Misbehaved>> {
        let sent = out.sends().len();
        let told = |out: &Outbox| out.sends().get(sent).map(|send| out.body(send).to_vec()).unwrap_or_default();
        let result = match (message, ticket) {
            (Message::FetchDiffs { body }, Some(ticket)) => {
                if let Ok(asks) = take_diff_asks(body) {
                    let mut again = Vec::new();
                    put_diff_asks(&mut again, &asks);
                    assert_eq!(take_diff_asks(&again), Ok(asks));
                }
                let done = on_fetch_diffs(self, ticket, body, out);
                assert!(done.is_err() || take_told(&told(out)).is_ok(), "an answer that nobody understands");
                done
            }
            (Message::FetchBase { body }, Some(ticket)) => {
                if let Ok((epoch, pages)) = take_base_asks(body) {
                    let mut again = Vec::new();
                    put_base_asks(&mut again, epoch, &pages);
                    assert_eq!(take_base_asks(&again), Ok((epoch, pages)));
                }
                let done = on_fetch_base(self, ticket, body, out);
                let may_wait = out.sends().len() == sent;
                let understood = may_wait || take_bases(&told(out)).is_ok();
                assert!(done.is_err() || understood, "a base that nobody understands");
                done
            }
            (Message::KeptDiffs { body }, _) => on_kept_diffs(self, from, body, out),
            (Message::Base { body }, _) => on_base(self, from, body, out),
            (Message::DiffsAsked { body }, _) => multicast::serve::on_asked(self, from, body, BY, out),
            (Message::DiffsTold { body }, _) => multicast::serve::on_told(self, from, body, out),
            _ => return None,
        };
        let kept: usize = self.tables.iter().map(PageTable::kept_bytes).sum();
        assert!(self.tally.diffs_kept >= 0 && kept as i64 == self.tally.diffs_kept);
        // What comes unasked is bounded, for each unit.
        let unasked = self.tables[1].unasked_bytes();
        assert!(unasked <= PAGES as usize * 4 * PAGE_BYTES, "{unasked} bytes came unasked and are kept");
        Some(result)
    }
}

/// What releases tell comes to the pages.
impl Payload for VictimPages {
    fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
    fn mark(&mut self) -> IntervalMark {
        IntervalMark::NOW
    }
    fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], _: IntervalMark, _: &mut Vec<u8>) {}
    fn on_acquire(&mut self, _: Scope, bytes: &[u8]) {
        self.on_token(bytes);
    }
    fn deposit(&mut self, _: Scope, _: &[u8], _: &mut Vec<u8>) {}
    fn withdraw(&mut self, _: Scope, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}
}

impl PageState for VictimPages {
    fn closed_stamp(&self) -> Stamp {
        CLOSED
    }
    fn tuning(&self) -> &Tuning {
        &Tuning::DEFAULT
    }
    fn listed_chunk<R>(
        &mut self,
        (page, _): (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        (page < ALL_PAGES).then(|| self.step(page, out, |table, cx, _| step(table, cx)))
    }
    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.home_queue)
    }
    fn is_freed(&mut self, page: PageNo) -> bool {
        (ALL_PAGES..2 * ALL_PAGES).contains(&page)
    }
}
