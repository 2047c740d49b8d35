//! Pages that their home sends before they are asked for.
//!
//! A barrier ends the copies of what their homes wrote, and nodes that had them in use ask for them again at once. A
//! home sees who asks again every time ([`push_predictor`](super::policy::push_predictor)), and from then on sends such
//! pages unasked: before it arrives at the barrier, all pages for a node in one message, which may lie until the
//! barrier has opened there. What comes so is a hint. It may be lost, late or double; who has not got it asks as ever.
//!
//! The receiver's [`PushBuffer`] keeps it apart from the page table:
//!
//! | event | in the buffer |
//! |---|---|
//! | a message comes | kept, if it goes to a barrier that this node has not passed |
//! | that barrier opens | a page can be used, unless a notice names it whose bytes its home had not applied yet |
//! | a notice, own bytes leave for the home, the memory is freed or allocated | the page is of no use any more |
//! | the page is fetched | taken from the buffer; asked for if it is not there |
//!
//! So a page that is in the buffer after a barrier is as good as a valid copy: what ends the one ends the other. The
//! home counts it among the copies that others hold. What was of no use is told to the home, which then waits until it
//! has been asked more often.

use super::PageNo;
use super::wire::{Entry, PUSH_PAGES_MAX, Push, Runs};
use super::{PAGE_BYTES, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::tuning::NoticeTuning;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A message for a barrier that is not open yet.
#[derive(Clone, Debug)]
struct Coming {
    push: Push,
    bytes: Arc<Vec<u8>>,
}

/// A page that can be used.
#[derive(Clone, Debug)]
struct Kept {
    home: NodeId,
    /// Whether the home sent it, and wants to know if that was in vain.
    from_home: bool,
    /// With which epoch it can be used.
    epoch: u32,
    bytes: Arc<Vec<u8>>,
    /// Where in the bytes it begins.
    at: usize,
}

/// A run of pages out of the buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushedPages {
    /// Which, as whole units.
    pub pages: Range<PageNo>,
    /// Whether their home sent them; else they came with a token.
    pub from_home: bool,
    bytes: Arc<Vec<u8>>,
    at: usize,
}

impl PushedPages {
    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.at..self.at + self.pages.len() * PAGE_BYTES]
    }

    /// Whether `next` stands right behind it.
    fn goes_on_with(&self, next: &PushedPages) -> bool {
        let end = self.at + self.pages.len() * PAGE_BYTES;
        let same = self.from_home == next.from_home && Arc::ptr_eq(&self.bytes, &next.bytes);
        same && self.pages.end == next.pages.start && end == next.at
    }
}

/// What other nodes have sent this one unasked.
#[derive(Clone, Debug, Default)]
pub struct PushBuffer {
    /// The epoch of this node.
    epoch: u32,
    /// By the epoch that ends with the barrier, and home.
    coming: BTreeMap<(u32, NodeId), Coming>,
    here: BTreeMap<PageNo, Kept>,
    unused: BTreeMap<NodeId, Vec<PageNo>>,
    /// What was allocated in this epoch: what homes send of it may be of memory that was there before.
    allocated: Vec<Range<PageNo>>,
    tuning: NoticeTuning,
}

impl PushBuffer {
    /// An empty one, bounded by these numbers.
    pub fn new(tuning: NoticeTuning) -> PushBuffer {
        PushBuffer { tuning, ..PushBuffer::default() }
    }

    /// Whether nothing can be used.
    pub fn is_empty(&self) -> bool {
        self.here.is_empty()
    }

    /// A message has come. It is forgotten if this node has passed the barrier that it goes to, if one from this node
    /// is here already, or if there is too much. Whoever is first out of a barrier may come to the next before this
    /// node is out.
    pub fn keep(&mut self, from: NodeId, push: Push, bytes: &[u8]) {
        let next = self.epoch.wrapping_add(1);
        let barrier = if Rule::PushesAreForOneBarrier.on() { push.epoch } else { self.epoch };
        let pages: usize = self.coming.values().map(|c| c.bytes.len() / PAGE_BYTES).sum();
        let room = pages + bytes.len() / PAGE_BYTES <= self.tuning.coming_pages_max;
        if (barrier == self.epoch || barrier == next) && room && !self.coming.contains_key(&(barrier, from)) {
            self.coming.insert((barrier, from), Coming { push, bytes: Arc::new(bytes.to_vec()) });
        }
    }

    /// A barrier has opened at which all nodes said `entries`, and `epoch` begins: what those name is out of date, and
    /// what was sent for this barrier can be used. Gives what was of no use since the barrier before, by home.
    pub fn open<'a>(
        &mut self,
        epoch: u32,
        entries: impl Iterator<Item = &'a Entry> + Clone,
    ) -> Vec<(NodeId, Vec<Range<PageNo>>)> {
        if !self.here.is_empty() {
            for entry in entries.clone() {
                entry.groups.iter().flat_map(|g| &g.runs).for_each(|(run, _)| self.void(run));
            }
            let most = self.tuning.unused_epochs_max;
            let old = |kept: &Kept| epoch.wrapping_sub(kept.epoch) > most;
            let old: Vec<PageNo> = self.here.iter().filter(|(_, kept)| old(kept)).map(|(page, _)| *page).collect();
            old.into_iter().for_each(|page| self.void(&(page..page + 1)));
        }
        let ended = std::mem::replace(&mut self.epoch, epoch);
        for ((barrier, home), coming) in std::mem::take(&mut self.coming) {
            if barrier == ended {
                self.unpack(home, coming, entries.clone());
            } else if barrier == epoch {
                self.coming.insert((barrier, home), coming);
            }
        }
        self.allocated.clear();
        std::mem::take(&mut self.unused).into_iter().map(|(home, pages)| (home, runs_of(pages))).collect()
    }

    fn unpack<'a>(&mut self, home: NodeId, coming: Coming, entries: impl Iterator<Item = &'a Entry>) {
        let Coming { push, bytes } = coming;
        let places = push.runs.iter().flat_map(Clone::clone).zip((0..).step_by(PAGE_BYTES));
        let mut pages: SmallVec<[(PageNo, usize); 4]> = places.collect();
        pages.sort_unstable();
        for entry in entries.filter(|entry| entry.writer != home && Rule::PushedPagesMeetNeeds.on()) {
            for group in entry.groups.iter().filter(|group| group.home == home) {
                let applied = push.applied.iter().find(|a| a.writer == entry.writer);
                if applied.is_some_and(|a| a.serial >= group.serial) {
                    continue;
                }
                for (run, _) in &group.runs {
                    let of_run = |end: PageNo| pages.partition_point(|(page, _)| *page < end);
                    let lacking = of_run(run.start)..of_run(run.end);
                    if !lacking.is_empty() {
                        self.unused.entry(home).or_default().extend(pages.drain(lacking).map(|(page, _)| page));
                    }
                }
            }
        }
        for (page, at) in pages {
            if self.allocated.iter().any(|new| new.contains(&page)) {
                continue;
            }
            let kept = Kept { home, from_home: true, epoch: self.epoch, bytes: bytes.clone(), at };
            self.replace(page, kept);
        }
    }

    fn replace(&mut self, page: PageNo, kept: Kept) {
        if let Some(before) = self.here.insert(page, kept).filter(|before| before.from_home) {
            self.unused.entry(before.home).or_default().push(page);
        }
    }

    /// Whether a page of these can be used.
    pub fn has(&self, pages: &Range<PageNo>) -> bool {
        self.here.range(pages.clone()).next().is_some()
    }

    /// Whether a page of these was allocated in this epoch.
    pub fn is_new(&self, pages: &Range<PageNo>) -> bool {
        self.allocated.iter().any(|new| new.start < pages.end && pages.start < new.end)
    }

    /// These pages of `home` have come with a token ([`piggyback`](super::piggyback)) and can be used at once; their
    /// bytes begin at `at`.
    pub(super) fn put(&mut self, home: NodeId, pages: &Range<PageNo>, bytes: &Arc<Vec<u8>>, at: usize) {
        if self.is_new(pages) {
            return;
        }
        for (page, at) in pages.clone().zip((at..).step_by(PAGE_BYTES)) {
            self.replace(page, Kept { home, from_home: false, epoch: self.epoch, bytes: bytes.clone(), at });
        }
    }

    /// These pages are new memory.
    pub fn on_allocation(&mut self, pages: Range<PageNo>) {
        self.void(&pages);
        push_range(&mut self.allocated, pages);
        if self.allocated.len() > self.tuning.allocated_runs_max {
            // Without barriers the list would grow for ever.
            let start = self.allocated.iter().map(|run| run.start).min().unwrap_or_default();
            let end = self.allocated.iter().map(|run| run.end).max().unwrap_or_default();
            self.allocated.clear();
            self.allocated.push(start..end);
        }
    }

    /// Notices name these pages: what is here of them is out of date.
    pub fn void(&mut self, pages: &Range<PageNo>) {
        if self.here.is_empty() || !Rule::NoticesEndPushedPages.on() {
            return;
        }
        while let Some(page) = self.here.range(pages.clone()).next().map(|(page, _)| *page) {
            if let Some(before) = self.here.remove(&page).filter(|before| before.from_home) {
                self.unused.entry(before.home).or_default().push(page);
            }
        }
    }

    /// Takes what is here of these units, which are being fetched from `home`; appends it to `pushed`, and to `left`
    /// what must be asked for. Nothing of them stays.
    pub fn pick(
        &mut self,
        home: NodeId,
        units: &[Range<PageNo>],
        pushed: &mut Vec<PushedPages>,
        left: &mut Vec<Range<PageNo>>,
    ) {
        for unit in units {
            match self.pick_unit(home, unit) {
                Some(next) => match pushed.last_mut() {
                    Some(last) if last.goes_on_with(&next) => last.pages.end = next.pages.end,
                    _ => pushed.push(next),
                },
                None => push_range(left, unit.clone()),
            }
        }
    }

    fn pick_unit(&mut self, home: NodeId, unit: &Range<PageNo>) -> Option<PushedPages> {
        let mut whole: Option<PushedPages> = None;
        let mut fits = true;
        for page in unit.clone() {
            let next = self.here.remove(&page).filter(|kept| kept.home == home);
            let next = next.map(|Kept { bytes, at, from_home, .. }| PushedPages {
                pages: page..page + 1,
                from_home,
                bytes,
                at,
            });
            whole = match (whole, next) {
                (None, Some(first)) if page == unit.start => Some(first),
                (Some(whole), Some(next)) if whole.goes_on_with(&next) => {
                    Some(PushedPages { pages: whole.pages.start..page + 1, ..whole })
                }
                (whole, _) => {
                    fits = false;
                    whole
                }
            };
        }
        whole.filter(|_| fits)
    }
}

/// Units by the first page of their chunk: mostly few of one or two.
pub(super) type Parts = SmallVec<[(PageNo, Runs); 2]>;

/// What a home tells a node at a barrier, in one message: at most [`PUSH_PAGES_MAX`] pages, and no more than `most`.
#[derive(Clone, Debug, Default)]
pub struct Pushes {
    most: u32,
    by_node: SmallVec<[OfNode; 2]>,
}

/// What a node is told.
#[derive(Clone, Debug)]
struct OfNode {
    node: NodeId,
    /// How many pages that is.
    pages: u32,
    parts: Parts,
}

impl Pushes {
    /// Nothing yet; at most `most` pages for a node.
    pub fn new(most: u32) -> Pushes {
        Pushes { most: most.min(PUSH_PAGES_MAX), by_node: SmallVec::new() }
    }

    /// Adds a unit of the chunk that begins at `first_page`, for a node, if there is room.
    pub(super) fn add(&mut self, node: NodeId, first_page: PageNo, unit: Range<PageNo>) -> bool {
        let at = self.by_node.binary_search_by_key(&node, |of| of.node).unwrap_or_else(|at| {
            self.by_node.insert(at, OfNode { node, pages: 0, parts: Parts::new() });
            at
        });
        let OfNode { pages, parts, .. } = &mut self.by_node[at];
        let more = unit.end - unit.start;
        if *pages + more > self.most
            || parts.iter().map(|(_, runs)| runs.len()).sum::<usize>() >= super::wire::FETCH_RUNS_MAX
        {
            return false;
        }
        *pages += more;
        match parts.last_mut() {
            Some((of, runs)) if *of == first_page => push_range(runs, unit),
            _ => parts.push((first_page, Runs::from_iter([unit]))),
        }
        true
    }

    /// The units for each node that is sent any.
    pub(super) fn into_messages(self) -> impl Iterator<Item = (NodeId, Parts)> {
        self.by_node.into_iter().map(|of| (of.node, of.parts)).filter(|(_, parts)| !parts.is_empty())
    }
}

/// Pages in any order as runs, at most so many as one message names.
fn runs_of(mut pages: Vec<PageNo>) -> Vec<Range<PageNo>> {
    pages.sort_unstable();
    pages.dedup();
    pages.truncate(PUSH_PAGES_MAX as usize);
    let mut runs = Vec::new();
    pages.into_iter().for_each(|page| push_range(&mut runs, page..page + 1));
    runs
}
