//! False sharing: pages that several nodes write in one epoch, at different bytes.
//!
//! A page's home hears from each other node which bytes that node changed. It keeps them for the epoch, to the byte,
//! and when the next one begins looks for writers of a page that had no byte in common. A page of which every two have
//! written a common byte is shared on purpose.
//!
//! Of its own writes a home knows the page alone. So it counts as one of the writers only where no two others have a
//! byte in common.
//!
//! That must cost little. Most nodes write the same bytes of every line that they write, or all: that takes two words
//! ([`Touched`]). Other pages take half a kilobyte for each writer, for at most [`MASKS_MAX`] writers; what is beyond
//! is passed over, and counted. And of a page that was shared falsely in [`WATCHED_EPOCHS`] epochs nothing is kept any
//! more.

use super::{ByteMarks, PageNo, is_later};
use crate::hash_map::NumberMap;
use crate::ids::NodeId;
use std::ops::{Deref, Range};

/// After so many epochs of false sharing a page is not watched any more.
pub const WATCHED_EPOCHS: u64 = 16;
/// As many writers of pages may have marks of half a kilobyte at a time.
pub const MASKS_MAX: usize = 1 << 14;

/// So many marks and lists of writers are kept for the next epoch: memory given back after each would be cleared by the
/// system for the next.
const SPARE_MARKS_MAX: usize = 1 << 12;

/// Which bytes of a page changed, in two words where they say it all, else in marks of the kind `M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched<M> {
    /// In each of these 64-byte lines these bytes, and nothing else.
    Alike {
        /// One bit for each line.
        lines: u64,
        /// One bit for each byte of a line.
        bytes: u64,
    },
    /// One bit for each byte.
    Each(M),
}

impl<'m> Touched<&'m ByteMarks> {
    /// The bytes that are marked.
    pub fn of(marks: &'m ByteMarks) -> Touched<&'m ByteMarks> {
        match Touched::alike(marks) {
            Some((lines, bytes)) => Touched::Alike { lines, bytes },
            None => Touched::Each(marks),
        }
    }

    /// The lines in which something is marked and the bytes that are marked in each of them, if these are the same.
    pub fn alike(marks: &ByteMarks) -> Option<(u64, u64)> {
        // Whole pages are frequent, and soon told.
        let (all, any) = marks.iter().fold((u64::MAX, 0), |(all, any), bytes| (all & bytes, any | bytes));
        if all == any {
            return Some((if any == 0 { 0 } else { u64::MAX }, any));
        }
        let (mut lines, mut alike) = (0, 0);
        for (line, bytes) in marks.iter().enumerate().filter(|(_, bytes)| **bytes != 0) {
            if lines != 0 && *bytes != alike {
                return None;
            }
            lines |= 1 << line;
            alike = *bytes;
        }
        Some((lines, alike))
    }
}

impl<M: Deref<Target = ByteMarks>> Touched<M> {
    fn line(&self, line: usize) -> u64 {
        match self {
            Touched::Alike { lines, bytes } if lines >> line & 1 != 0 => *bytes,
            Touched::Alike { .. } => 0,
            Touched::Each(marks) => marks[line],
        }
    }

    fn is_apart_from(&self, other: &Touched<impl Deref<Target = ByteMarks>>) -> bool {
        (0..64).all(|line| self.line(line) & other.line(line) == 0)
    }
}

type Kept = Touched<Box<ByteMarks>>;

/// What earlier epochs have left of memory.
#[derive(Clone, Debug, Default)]
struct Spares {
    #[allow(clippy::vec_box)] // they go on as they are
    marks: Vec<Box<ByteMarks>>,
    lists: Vec<Vec<(NodeId, Kept)>>,
}

impl Spares {
    fn keep(&mut self, touched: Touched<&ByteMarks>) -> Kept {
        match touched {
            Touched::Alike { lines, bytes } => Touched::Alike { lines, bytes },
            Touched::Each(marks) => Touched::Each(match self.marks.pop() {
                Some(mut kept) => {
                    *kept = *marks;
                    kept
                }
                None => Box::new(*marks),
            }),
        }
    }

    fn add(&mut self, kept: &mut Kept, other: Touched<&ByteMarks>) {
        match (&mut *kept, other) {
            (Touched::Each(marks), other) => {
                marks.iter_mut().enumerate().for_each(|(line, bytes)| *bytes |= other.line(line));
            }
            (Touched::Alike { lines, bytes }, Touched::Alike { lines: l, bytes: b }) if (*lines, *bytes) == (l, b) => {}
            (Touched::Alike { .. }, other) => {
                *kept = self.keep(Touched::of(&std::array::from_fn(|line| kept.line(line) | other.line(line))));
            }
        }
    }

    fn take_back(&mut self, mut writers: Vec<(NodeId, Kept)>) {
        for (_, kept) in writers.drain(..) {
            if let Touched::Each(marks) = kept
                && self.marks.len() < SPARE_MARKS_MAX
            {
                self.marks.push(marks);
            }
        }
        if writers.capacity() > 0 && self.lists.len() < SPARE_MARKS_MAX {
            self.lists.push(writers);
        }
    }
}

/// What is known of a page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// Who wrote it in this epoch, and where.
    writers: Vec<(NodeId, Kept)>,
    /// Its home wrote it in this epoch, nobody knows where.
    home: Option<NodeId>,
    /// There was no room for all writers of this epoch.
    passed_over: bool,
    found: Found,
}

/// False sharing of a page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Epochs in which several nodes wrote the page at different bytes.
    pub times: u64,
    /// Who did.
    pub nodes: Vec<NodeId>,
}

impl Page {
    fn is_open(&self) -> bool {
        self.passed_over || self.home.is_some() || !self.writers.is_empty()
    }

    fn masks(&self) -> usize {
        self.writers.iter().filter(|(_, touched)| matches!(touched, Touched::Each(_))).count()
    }

    fn add(&mut self, writer: NodeId, touched: Touched<&ByteMarks>, spares: &mut Spares) {
        match self.writers.iter_mut().find(|(node, _)| *node == writer) {
            Some((_, before)) => spares.add(before, touched),
            None => {
                if self.writers.capacity() == 0 {
                    self.writers = spares.lists.pop().unwrap_or_default();
                }
                self.writers.push((writer, spares.keep(touched)));
            }
        }
    }

    /// The epoch is over.
    fn settle(&mut self, spares: &mut Spares) {
        let nodes = if self.passed_over { Vec::new() } else { self.apart() };
        self.found.times += u64::from(!nodes.is_empty());
        for node in nodes {
            if !self.found.nodes.contains(&node) {
                self.found.nodes.push(node);
            }
        }
        spares.take_back(std::mem::take(&mut self.writers));
        *self = Page { found: std::mem::take(&mut self.found), ..Page::default() };
    }

    /// The writers that had no byte in common with some other one.
    fn apart(&self) -> Vec<NodeId> {
        let others = |at: usize| self.writers[..at].iter().chain(&self.writers[at + 1..]);
        let is_apart = |at: usize, other: &Kept| self.writers[at].1.is_apart_from(other);
        let all = 0..self.writers.len();
        if let Some(home) = self.home
            && all.clone().all(|at| self.writers[..at].iter().all(|(_, other)| is_apart(at, other)))
        {
            let nodes = self.writers.iter().map(|(node, _)| *node);
            return if self.writers.is_empty() { Vec::new() } else { nodes.chain([home]).collect() };
        }
        let apart = all.filter(|at| others(*at).any(|(_, other)| is_apart(*at, other)));
        apart.map(|at| self.writers[at].0).collect()
    }
}

/// Who wrote where to pages whose home is here.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    epoch: u32,
    pages: NumberMap<PageNo, Page>,
    /// Those of which something is kept of this epoch.
    open: Vec<PageNo>,
    masks: usize,
    passed_over: u64,
    spares: Spares,
}

impl Sharing {
    /// Whether the page has been shared falsely so often that nothing more is noted of it.
    pub fn is_known(&self, page: PageNo) -> bool {
        self.pages.get(&page).is_some_and(|page| page.found.times >= WATCHED_EPOCHS)
    }

    /// In this epoch another node has changed these bytes of a page.
    pub fn note(&mut self, epoch: u32, writer: NodeId, number: PageNo, touched: Touched<&ByteMarks>) {
        if !self.turn(epoch) {
            return;
        }
        let page = self.pages.entry(number).or_default();
        if page.found.times >= WATCHED_EPOCHS || page.passed_over {
            return;
        }
        if !page.is_open() {
            self.open.push(number);
        }
        self.masks -= page.masks();
        page.add(writer, touched, &mut self.spares);
        if self.masks + page.masks() > MASKS_MAX {
            self.spares.take_back(std::mem::take(&mut page.writers));
            page.passed_over = true;
            self.passed_over += 1;
        }
        self.masks += page.masks();
    }

    /// In this epoch the home itself has written these pages; those that no other node has ever written do not matter.
    pub fn note_home(&mut self, epoch: u32, home: NodeId, pages: Range<PageNo>) {
        if !self.turn(epoch) {
            return;
        }
        let open = &mut self.open;
        let mut note = |number: PageNo, page: &mut Page| {
            if page.found.times >= WATCHED_EPOCHS {
                return;
            }
            if !page.is_open() {
                open.push(number);
            }
            page.home = Some(home);
        };
        if pages.len() > self.pages.len() {
            let here = self.pages.iter_mut().filter(|(number, _)| pages.contains(number));
            return here.for_each(|(number, page)| note(*number, page));
        }
        for number in pages {
            self.pages.get_mut(&number).into_iter().for_each(|page| note(number, page));
        }
    }

    /// Whether what is told of this epoch may be noted: what comes too late may not.
    fn turn(&mut self, epoch: u32) -> bool {
        if is_later(self.epoch, epoch) {
            return false;
        }
        if epoch != self.epoch {
            self.settle();
            self.epoch = epoch;
        }
        true
    }

    /// Looks for false sharing in what has been noted.
    pub fn settle(&mut self) {
        for number in self.open.drain(..) {
            self.pages.get_mut(&number).into_iter().for_each(|page| page.settle(&mut self.spares));
        }
        self.masks = 0;
    }

    /// Forgets pages that were freed.
    pub fn forget(&mut self, pages: &Range<PageNo>) {
        let gone: Vec<Page> = if pages.len() > self.pages.len() {
            self.pages.extract_if(|number, _| pages.contains(number)).map(|(_, page)| page).collect()
        } else {
            pages.clone().filter_map(|number| self.pages.remove(&number)).collect()
        };
        self.masks -= gone.iter().map(Page::masks).sum::<usize>();
    }

    /// Pages that have been shared falsely.
    pub fn found(&self, pages: Range<PageNo>) -> Vec<(PageNo, &Found)> {
        let mut numbers: Vec<PageNo> = if pages.len() > self.pages.len() {
            self.pages.keys().copied().filter(|number| pages.contains(number)).collect()
        } else {
            pages.collect()
        };
        numbers.sort_unstable();
        let found = numbers.into_iter().filter_map(|number| Some((number, &self.pages.get(&number)?.found)));
        found.filter(|(_, found)| found.times > 0).collect()
    }

    /// How often a page was passed over for an epoch, since too many were written.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }
}
