//! A long close, one page table at a time.
//!
//! When another node asks for locks that rest here, the service thread closes the interval, which may mean thousands of
//! diffs. Others would wait meanwhile: for pages, for other locks. So if much was written since the last close, such a
//! request waits while the service thread closes one page table at a time and looks into its socket in between. Each of
//! these slices is an interval of its own. When all page tables that were active have had their turn the request is
//! carried out, and the close that belongs to it finds what was written since.
//!
//! A release by an application thread closes by itself, in that thread.

use crate::coherence::pages::PageNo;
use crate::time::{Span, Time};
use crate::tuning::LockTuning;

/// What is to be done next about a close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// None is under way.
    Nothing,
    /// The page table with this first page is closed.
    Close(PageNo),
    /// All are closed.
    Over,
}

/// A close under way.
#[derive(Clone, Debug, Default)]
pub struct IncrementalClose {
    is_under_way: bool,
    /// The page tables that are still to be closed, by their first pages.
    left: Vec<PageNo>,
}

impl IncrementalClose {
    /// A message needs the interval closed. Whether it waits for a close bit by bit: one is under way, or begins with
    /// these page tables, if there are too many to close at once.
    pub fn joins_or_begins(&mut self, long: impl FnOnce() -> Option<Vec<PageNo>>) -> bool {
        if !self.is_under_way
            && let Some(left) = long()
        {
            (self.is_under_way, self.left) = (true, left);
        }
        self.is_under_way
    }

    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Goes on with what comes next, which is given.
    pub fn advance(&mut self) -> Next {
        if !self.is_under_way {
            return Next::Nothing;
        }
        match self.left.pop() {
            Some(table) => Next::Close(table),
            None => {
                self.is_under_way = false;
                Next::Over
            }
        }
    }
}

/// Whether a close would take long. The last one was at `closed`. So many pages were written since then, where the
/// kernel tells, and so many page tables are active: these are asked only if enough time has passed.
pub fn is_long(tuning: &LockTuning, closed: Time, now: Time, written: impl FnOnce() -> (Option<u32>, usize)) -> bool {
    if (now - closed).0 < Span::from_us(tuning.closed_lately_us).0 {
        return false;
    }
    match written() {
        (Some(pages), _) => pages >= tuning.long_close_pages,
        (None, tables) => tables >= tuning.long_close_tables,
    }
}
