//! Page tables, intervals, the home queue and the bytes, each by itself. How they do together is the simulator's
//! business.

#![allow(clippy::single_range_in_vec_init)] // lists of runs, often of one

mod atomic;
mod batch_protect;
mod first_touch;
mod forbid_writes;
mod freed;
mod home_queue;
mod home_twin;
mod intervals;
mod kept_diffs;
mod multicast;
mod notice_logs;
mod page_table;
mod piggyback;
mod premap;
mod push;
mod serve;
mod sharing;
mod untrack_idle;
mod update_in_place;
mod wire;
mod write_predictor;
mod write_prefetch;

use super::page_table::{ChunkLayout, DiffSink, Fault, FirstTouch, PageTable, PrefetchPlan};
use super::policy::sync_phase::SyncPhase;
use super::{
    Access, ByteMarks, Context, OneSidedMemory, PAGE_BYTES, PageEngine, PageMapping, PageMemory, PageNo, PageTwins,
    Tally, push_range,
};
use crate::coherence::Misbehaved;
use crate::ids::{NodeId, Slot};
use crate::outbox::Outbox;
use std::collections::BTreeMap;
use std::ops::Range;

const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

/// A memory that writes down what is asked of it.
#[derive(Default)]
struct Recorder {
    notes: bool,
    calls: Vec<String>,
    /// Pages that a scan will report.
    written: Vec<PageNo>,
    /// Other nodes can copy pages by themselves, and are copying these.
    offers: bool,
    taken: Vec<PageNo>,
    /// The units, by their first pages, that have twins.
    twins: Vec<PageNo>,
    /// Copies are as their twins.
    unchanged: bool,
    /// Copies of other pages than these are.
    unchanged_but: Option<Vec<PageNo>>,
    /// Homes' memory can be written.
    puts: bool,
    /// What a look at a few words of any page gives.
    sample: u32,
    /// What has no memory here is filled in one step.
    fills: bool,
    /// Stores can be forbidden.
    forbids: bool,
    /// How many pages beyond one a home maps together.
    more_together: u32,
    /// Runs that concern nobody, as it was told of late.
    disregarded: Vec<Range<PageNo>>,
    /// The table of claims, whoever's it is; there is one if it is not empty.
    claims: BTreeMap<PageNo, NodeId>,
}

impl Recorder {
    fn note(&mut self, call: &str, pages: Range<PageNo>) {
        self.calls.push(format!("{call} {}..{}", pages.start, pages.end));
    }
}

impl PageMapping for Recorder {
    fn notes_writes(&self) -> bool {
        self.notes
    }
    fn mapped_together(&self) -> u32 {
        1 + self.more_together
    }
    fn map_read(&mut self, pages: Range<PageNo>) {
        self.note("map_read", pages);
    }
    fn map_write(&mut self, pages: Range<PageNo>) {
        self.note("map_write", pages);
    }
    fn protect(&mut self, pages: Range<PageNo>) {
        self.note("protect", pages);
    }
    fn unmap(&mut self, pages: Range<PageNo>) {
        self.note("unmap", pages);
    }
    fn written(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        self.written.iter().filter(|page| pages.contains(page)).for_each(|page| push_range(written, *page..page + 1));
        self.note("written", pages);
    }
    fn collect(&mut self, pages: Range<PageNo>, written: &mut Vec<Range<PageNo>>) {
        for page in self.written.extract_if(.., |page| pages.contains(page)) {
            push_range(written, page..page + 1);
        }
        self.note("collect", pages);
    }
    fn untrack(&mut self, pages: Range<PageNo>) {
        self.disregarded.push(pages);
    }
    fn track(&mut self, pages: Range<PageNo>) {
        self.note("regard", pages);
    }
    fn forbid_writes(&mut self, pages: Range<PageNo>) -> bool {
        self.note("forbid_writes", pages);
        self.forbids
    }
    fn allow_writes(&mut self, pages: Range<PageNo>) {
        self.note("allow_writes", pages);
    }
    fn sample(&mut self, _unit: Range<PageNo>) -> u32 {
        self.sample
    }
}

impl OneSidedMemory for Recorder {
    fn can_offer(&self) -> bool {
        self.offers
    }
    fn offer(&mut self, pages: Range<PageNo>) {
        self.note("offer", pages);
    }
    fn withdraw(&mut self, pages: Range<PageNo>) {
        self.note("withdraw", pages);
    }
    fn was_taken(&mut self, unit: PageNo) -> bool {
        self.taken.extract_if(.., |page| *page == unit).count() > 0
    }
    fn claim(&mut self, _: NodeId, unit: PageNo, node: NodeId) -> Option<NodeId> {
        (!self.claims.is_empty()).then(|| *self.claims.entry(unit).or_insert(node))
    }
    fn claimant(&mut self, _: NodeId, unit: PageNo) -> Option<NodeId> {
        self.claims.get(&unit).copied()
    }
    fn put(&mut self, _: NodeId, unit: Range<PageNo>, changed: &mut dyn FnMut(PageNo, &ByteMarks)) -> Option<usize> {
        if self.puts {
            changed(unit.start, &[1; PAGE_BYTES / 64]);
            self.note("put", unit);
        }
        self.puts.then_some(1)
    }
}

impl PageTwins for Recorder {
    fn make_twin(&mut self, unit: Range<PageNo>, _many: bool) {
        self.twins.push(unit.start);
        self.note("make_twin", unit);
    }
    fn has_twin(&self, unit: Range<PageNo>) -> bool {
        self.twins.contains(&unit.start)
    }
    fn copy_twin(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> bool {
        let has = self.has_twin(unit.clone());
        if has {
            out.resize(out.len() + (unit.end - unit.start) as usize * PAGE_BYTES, 2);
            self.note("copy_twin", unit);
        }
        has
    }
    fn drop_twin(&mut self, unit: Range<PageNo>) {
        self.twins.retain(|page| *page != unit.start);
        self.note("drop_twin", unit);
    }
    fn diff(&mut self, unit: Range<PageNo>, out: &mut Vec<u8>) -> usize {
        let unchanged = self.unchanged || self.unchanged_but.as_ref().is_some_and(|but| !but.contains(&unit.start));
        self.note("diff", unit);
        out.extend((!unchanged).then_some(7));
        usize::from(!unchanged)
    }
    fn renew(&mut self, unit: Range<PageNo>, _bytes: &[u8]) {
        self.note("renew", unit);
    }
}

impl PageMemory for Recorder {
    fn atomic(&mut self, page: PageNo, offset: usize, _: super::atomic::Atomic) -> u64 {
        self.note(&format!("atomic {offset}"), page..page + 1);
        7
    }
    fn patch(&mut self, unit: Range<PageNo>, at: usize, bytes: &[u8]) {
        self.note(&format!("patch {at} with {bytes:?}"), unit);
    }
    fn apply(&mut self, unit: Range<PageNo>, _: &[u8]) -> Result<(), Misbehaved> {
        self.note("apply", unit);
        Ok(())
    }
    fn copy_out(&mut self, pages: Range<PageNo>, out: &mut Vec<u8>) {
        out.resize(out.len() + (pages.end - pages.start) as usize * PAGE_BYTES, 0);
        self.note("copy_out", pages);
    }
    fn install(&mut self, pages: Range<PageNo>, _: &[u8]) {
        self.note("install", pages);
    }
    fn fill(&mut self, pages: Range<PageNo>, _: u32, _: &[u8], _twins: bool, _many: bool) -> bool {
        if self.fills {
            self.note("fill", pages);
        }
        self.fills
    }
    fn discard(&mut self, pages: Range<PageNo>) {
        self.note("discard", pages);
    }
}

/// The diffs that a step flushed: home and page. Which home's memory it may write, and what was put there. The stamp of
/// diffs that stay here.
#[derive(Default)]
struct Flushed(Vec<(NodeId, PageNo)>, Option<NodeId>, Vec<PageNo>, u64);

impl DiffSink for Flushed {
    fn diff(&mut self, home: NodeId, page: PageNo, _: &[u8]) {
        self.0.push((home, page));
    }
    fn puts(&mut self, home: NodeId) -> bool {
        self.1 == Some(home)
    }
    fn was_put(&mut self, _: NodeId, page: PageNo, _: &ByteMarks) {
        self.2.push(page);
    }
    fn stamp(&mut self) -> u64 {
        self.3
    }
}

/// A chunk of four units of one page each, and everything around it.
struct Bench {
    table: PageTable,
    memory: Recorder,
    out: Outbox,
    tally: Tally,
    flushed: Flushed,
    sync_phase: SyncPhase,
}

impl Bench {
    /// The units' home is `home`; with `notes` the memory notes writes.
    fn new(home: NodeId, notes: bool) -> Bench {
        Bench::with_shape(home, notes, |_| ())
    }

    fn with_shape(home: NodeId, notes: bool, change: impl FnOnce(&mut ChunkLayout)) -> Bench {
        let engine = PageEngine::Hlrc;
        let mut layout = ChunkLayout {
            first: 0,
            pages: 4,
            unit_pages: 1,
            first_touch: FirstTouch::Never,
            write_detection: true,
            engine,
        };
        change(&mut layout);
        Bench {
            table: PageTable::new(ME, layout, |_| home),
            memory: Recorder { notes, ..Recorder::default() },
            out: Outbox::new(),
            tally: Tally::default(),
            flushed: Flushed::default(),
            sync_phase: SyncPhase::default(),
        }
    }

    fn step<R>(&mut self, step: impl FnOnce(&mut PageTable, &mut Context<'_>, &mut Flushed) -> R) -> R {
        self.memory.calls.clear();
        self.memory.disregarded.clear();
        self.out.clear();
        self.flushed.0.clear();
        let (memory, out, tally) = (&mut self.memory, &mut self.out, &mut self.tally);
        let mut cx = Context { me: ME, caller: None, sync_phase: self.sync_phase, memory, out, tally };
        step(&mut self.table, &mut cx, &mut self.flushed)
    }

    /// A step of the chunk for [`PageState`](super::serve::PageState), if the page is in it.
    fn chunk_with<R>(
        &mut self,
        page: PageNo,
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let Bench { table, memory, tally, sync_phase, .. } = self;
        (page < 4)
            .then(|| step(table, &mut Context { me: ME, caller: None, sync_phase: *sync_phase, memory, out, tally }))
    }

    fn fault(&mut self, page: PageNo, access: Access) -> Fault {
        self.step(|table, cx, _| table.fault(cx, Slot::thread(0), page, access, PrefetchPlan::NOTHING))
    }

    /// Makes the copies of these pages valid.
    fn fetch(&mut self, pages: Range<PageNo>) {
        for page in pages {
            assert!(matches!(self.fault(page, Access::Read), Fault::Fetch { .. }));
            self.arrive(page..page + 1);
        }
    }

    fn arrive(&mut self, pages: Range<PageNo>) {
        let bytes = vec![0; (pages.end - pages.start) as usize * PAGE_BYTES];
        self.step(|table, cx, _| table.on_pages(cx, pages, &bytes));
    }

    /// Ends the interval; gives the notices.
    fn close(&mut self) -> Vec<(Range<PageNo>, NodeId, bool)> {
        let mut notices = Vec::new();
        self.sync_phase.close();
        self.step(|table, cx, flushed| table.close(cx, flushed, None, &mut notices));
        notices
    }

    /// As [`Bench::close`], after a look at the kernel's notes that named these pages.
    fn close_having_seen(&mut self, seen: &[Range<PageNo>]) -> Vec<(Range<PageNo>, NodeId, bool)> {
        let mut notices = Vec::new();
        self.sync_phase.close();
        self.step(|table, cx, flushed| table.close(cx, flushed, Some(seen), &mut notices));
        notices
    }

    /// Heeds takers, then ends the interval.
    fn close_and_heed(&mut self) -> Vec<(Range<PageNo>, NodeId, bool)> {
        self.step(|table, cx, _| table.collect_remote_gets(cx));
        self.close()
    }

    /// A barrier has opened.
    fn open(&mut self) {
        self.sync_phase.open();
        self.step(|table, cx, _| table.open(cx));
    }

    fn invalidate(&mut self, pages: Range<PageNo>) {
        self.step(|table, cx, flushed| table.invalidate(cx, std::slice::from_ref(&pages), flushed));
    }

    /// Begins to fetch what was in use among these pages; gives the runs.
    fn fetch_ahead(&mut self, pages: Range<PageNo>) -> Vec<Range<PageNo>> {
        let mut runs = Vec::new();
        let ask = |home, unit| {
            assert_eq!(home, OTHER);
            push_range(&mut runs, unit);
        };
        self.step(|table, _, _| table.fetch_ahead(&pages, ask));
        runs
    }

    fn copy_out(&mut self, pages: Range<PageNo>) {
        self.step(|table, cx, _| table.share(cx, std::slice::from_ref(&pages), Some(&mut Vec::new())));
    }
}
