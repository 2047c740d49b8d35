//! The victim's pages whose diffs stay with their writers: one page table over plain memory.

use super::NODES;
use comem_protocol::coherence::Misbehaved;
use comem_protocol::coherence::pages::atomic::Atomic;
use comem_protocol::coherence::pages::home_queue::HomeQueue;
use comem_protocol::coherence::pages::kept_diffs::Stamp;
use comem_protocol::coherence::pages::kept_diffs::serve::{
    on_base, on_fetch_base, on_fetch_diffs, on_kept_diffs, send_asks,
};
use comem_protocol::coherence::pages::kept_diffs::wire::{
    put_base_asks, put_diff_asks, take_base_asks, take_bases, take_diff_asks, take_told,
};
use comem_protocol::coherence::pages::page_table::{ChunkLayout, DiffSink, Fault, FirstTouch, PageTable, PrefetchPlan};
use comem_protocol::coherence::pages::policy::sync_phase::SyncPhase;
use comem_protocol::coherence::pages::serve::{Listing, PageState};
use comem_protocol::coherence::pages::{
    Access, Context, OneSidedMemory, PAGE_BYTES, PageEngine, PageMapping, PageMemory, PageNo, PageTwins, Tally,
    push_range,
};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::tuning::Tuning;
use comem_protocol::wire::message::{Message, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Pages of the region, which has units of two. As many behind it are those of a region that was freed.
const PAGES: u32 = 4;
/// The stamp of the last interval that has closed.
const CLOSED: Stamp = 5;
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
        assert!(pages.end <= PAGES, "pages {pages:?} belong to no region");
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
    table: PageTable,
    memory: Memory,
    home_queue: HomeQueue,
    tally: Tally,
    stamp: Stamp,
}

impl VictimPages {
    /// Pages that nobody has used, managed by all nodes in turn.
    pub fn new(me: NodeId) -> VictimPages {
        let layout = ChunkLayout {
            first: 0,
            pages: PAGES,
            unit_pages: UNIT,
            first_touch: FirstTouch::Never,
            write_detection: true,
            engine: PageEngine::Lrc,
        };
        let bytes = vec![0; PAGES as usize * PAGE_BYTES];
        VictimPages {
            table: PageTable::new(me, layout, |page| NodeId((page / UNIT) as u16 % NODES as u16)),
            memory: Memory { bytes, twins: BTreeMap::new(), written: BTreeSet::new() },
            home_queue: HomeQueue::new(),
            tally: Tally::default(),
            stamp: 0,
        }
    }

    fn step<R>(
        &mut self,
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>, &mut Stamps<'_>) -> R,
    ) -> R {
        let (memory, tally) = (&mut self.memory, &mut self.tally);
        let mut cx = Context { me: NodeId(0), caller: None, sync_phase: SyncPhase::default(), memory, out, tally };
        step(&mut self.table, &mut cx, &mut Stamps(&mut self.stamp))
    }

    /// A thread uses a page, or hears of another's writes, or an interval or an epoch ends.
    pub fn want(&mut self, number: u64, caller: Slot, out: &mut Outbox) {
        let page = (number / 8) as PageNo % PAGES;
        match number % 8 {
            0..3 if !self.table.unit(page).is_fetching() => {
                let access = if number.is_multiple_of(2) { Access::Read } else { Access::Write };
                let fault = self.step(out, |table, cx, _| table.fault(cx, caller, page, access, PrefetchPlan::NOTHING));
                match fault {
                    Fault::Ask(asks) => {
                        send_asks(&asks, 0, out);
                    }
                    _ => self.memory.bytes[page as usize * PAGE_BYTES + number as usize % PAGE_BYTES] = number as u8,
                }
            }
            3 | 4 => {
                let writer = NodeId(1 + (number / 32) as u16 % (NODES as u16 - 1));
                self.step(out, |table, cx, stamps| {
                    table.note_written(&(page..page + 1), writer, number % 7 + 1);
                    table.invalidate(cx, std::slice::from_ref(&(page..page + 1)), stamps);
                });
            }
            5 => self.step(out, |table, cx, stamps| table.close(cx, stamps, None, &mut Vec::new())),
            6 if number.is_multiple_of(5) => {
                let mut asks = Vec::new();
                self.step(out, |table, cx, _| table.begin_collection(cx, &mut asks));
                send_asks(&asks, 0, out);
            }
            // Who lies may have kept a manager from what it needs.
            7 if number.is_multiple_of(11) => {
                let _ = self.step(out, |table, cx, _| table.finish_collection(cx, number % 7));
            }
            _ => {}
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
            _ => return None,
        };
        assert!(self.tally.diffs_kept >= 0 && self.table.kept_bytes() as i64 == self.tally.diffs_kept);
        Some(result)
    }
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
        (page < PAGES).then(|| self.step(out, |table, cx, _| step(table, cx)))
    }
    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.home_queue)
    }
    fn is_freed(&mut self, page: PageNo) -> bool {
        (PAGES..2 * PAGES).contains(&page)
    }
}
