//! Who reads what this home writes: nodes that ask for a page again whenever the home has written it are sent it
//! unasked ([`push`](super::super::push)).
//!
//! | event | of a reader of a unit |
//! |---|---|
//! | asks, after an epoch in which the home wrote the unit | has asked |
//! | asks for this unit alone before the home is known to write it, and nobody else has written it | is new: has asked, if few units are sent after one question less |
//! | asks for what it was sent | has asked; must ask twice as often from now on before it is sent the unit |
//! | says that what it was sent was of no use | the same, and the row of its questions is over |
//! | a barrier, the home wrote the unit, the reader has asked or was sent it | one more in a row; sent the unit if the row is long enough |
//! | a barrier, the home wrote the unit, the reader has not asked | half as many |
//! | a barrier, the unit was told of and probably not written | is sent nothing |
//! | another node writes the unit, it migrates | forgotten |
//!
//! Pages of one array are mostly read alike. So the chunk remembers how often what it sent was of no use, and wants
//! longer rows then of readers that it does not know yet.
//!
//! Where barriers alone order writes the same steps come again and again: a few units of a chunk are sent at a barrier
//! after one question less, and as many new readers are remembered. Not where homes presume that pages are written: of
//! those some are told of that were not.

use super::{HOME_DIRTY_LAST_EPOCH, NOTICED_THIS_EPOCH, PageTable, REMOTE_DIRTY, State};
use crate::coherence::pages::push::Pushes;
use crate::coherence::pages::{Context, PageNo, is_over};
use crate::ids::NodeId;
use crate::tuning::PageTuning;
use smallvec::SmallVec;
use std::ops::Range;

/// So much is counted of what was sent in vain at most.
fn unused_max(tuning: &PageTuning) -> u8 {
    4 * tuning.push_unused_step - 1
}

/// A node that asks for a unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reader {
    node: NodeId,
    /// It has asked since the home's writes were last told of.
    asked: bool,
    /// It has asked once, before the home was known to write the unit.
    new: bool,
    /// The epoch at whose end it was sent the unit, when they were.
    pushed: Option<u32>,
    /// How often in a row it has asked, or was sent the unit and did not say that it was of no use.
    row: u8,
    /// The row after which it is sent the unit.
    after: u8,
}

impl Reader {
    /// Gives whether it was sent the unit.
    fn was_no_use(&mut self, tuning: &PageTuning) -> bool {
        let sent = self.pushed.take().is_some();
        if sent {
            self.row = 0;
            self.after = self.after.max(tuning.push_after).saturating_mul(2).min(tuning.push_after_max);
        }
        sent
    }

    /// The home has written the unit, and tells of it at the end of `epoch`; at `least` so many questions are wanted,
    /// or one less if it may be `early`. Gives `false` when the reader can be forgotten.
    fn on_notice(&mut self, epoch: u32, least: u8, early: bool) -> bool {
        if std::mem::take(&mut self.new) && !early {
            self.asked = false;
            return true;
        }
        let least = least - u8::from(early);
        let again = self.asked || self.pushed.is_some();
        if !again && self.row == 0 {
            return false;
        }
        self.row = if again { self.row.saturating_add(1) } else { self.row / 2 };
        if self.pushed.is_some() && self.row / 2 >= self.after {
            self.after = (self.after / 2).max(least);
        }
        self.asked = false;
        let wanted = if self.pushed.is_some() { self.after } else { self.after.max(least) };
        self.pushed = (self.row >= wanted).then_some(epoch);
        true
    }
}

impl PageTable {
    /// A node in `epoch` has asked for these pages, and gets their bytes.
    pub fn note_reader(&mut self, runs: &[Range<PageNo>], node: NodeId, epoch: u32) {
        if !self.tuning.push {
            return;
        }
        let tuning = self.tuning;
        let units: SmallVec<[Range<usize>; 2]> = runs.iter().map(|run| self.units_in(run)).collect();
        // What is asked for beside it may be of no use.
        let alone = units.iter().map(ExactSizeIterator::len).sum::<usize>() == 1;
        for unit in units.into_iter().flatten() {
            if self.units[unit].state != State::Home {
                continue;
            }
            let (hot, new) = (
                self.units[unit].has(HOME_DIRTY_LAST_EPOCH),
                tuning.push_new_readers && alone && !self.units[unit].has(HOME_DIRTY_LAST_EPOCH | REMOTE_DIRTY),
            );
            if let Some(reader) = self.readers.find(unit, |r| r.node == node) {
                // A question of before says nothing of what was sent since.
                let late = reader.pushed.is_some_and(|sent| is_over(sent, epoch)) && reader.was_no_use(&tuning);
                reader.asked = true;
                if late {
                    self.count_unused_push();
                }
            } else if (hot || new && self.readers.len() < tuning.push_early_units_max)
                && self.readers.of(unit).count() < tuning.push_readers_max
            {
                self.readers.push(unit, Reader { node, asked: true, new, pushed: None, row: 0, after: 1 });
            }
        }
    }

    /// A reader says that these pages were sent in vain.
    pub fn on_unused(&mut self, pages: &Range<PageNo>, node: NodeId) {
        for unit in self.units_in(pages) {
            let reader = self.readers.find(unit, |r| r.node == node);
            if reader.is_some_and(|reader| reader.was_no_use(&self.tuning)) {
                self.count_unused_push();
            }
        }
    }

    fn count_unused_push(&mut self) {
        let most = unused_max(&self.tuning);
        self.unused_pushes = self.unused_pushes.saturating_add(self.tuning.push_unused_weight).min(most);
    }

    /// This node arrives at the barrier that ends `epoch`, and has told of what it wrote: whom to send which units.
    pub fn pushes(&mut self, cx: &Context<'_>, epoch: u32, pushes: &mut Pushes) {
        if !self.may_be_noticed || self.readers.is_empty() {
            return;
        }
        let first = self.layout.first;
        let tuning = self.tuning;
        let least = (tuning.push_after << (self.unused_pushes / tuning.push_unused_step)).min(tuning.push_after_max);
        let is_sure = least == tuning.push_after && cx.sync_phase.is_quiet() && cx.memory.notes_writes();
        let mut soon = if is_sure && least > 1 { tuning.push_early_units_max } else { 0 };
        let mut used = 0;
        let mut readers = std::mem::take(&mut self.readers);
        for unit in readers.units() {
            if self.units[unit].state != State::Home {
                readers.remove(unit);
            } else if self.units[unit].has(NOTICED_THIS_EPOCH) && self.notice_was_spurious(unit) {
                // Who reads it when it was written does not want it now, but the next time.
                readers.retain(unit, |reader| {
                    let sent = reader.pushed.take().is_some();
                    used += usize::from(sent);
                    reader.asked |= sent;
                    true
                });
            } else if self.units[unit].has(NOTICED_THIS_EPOCH) {
                readers.retain(unit, |reader| {
                    used += usize::from(reader.pushed.is_some());
                    let early = soon > 0;
                    let stays = reader.on_notice(epoch, least, early);
                    soon -= usize::from(early && reader.pushed.is_some() && reader.row < least);
                    if stays && reader.pushed.is_some() && !pushes.add(reader.node, first, self.pages(unit..unit + 1)) {
                        reader.pushed = None;
                    }
                    stays
                });
            }
        }
        self.readers = readers;
        self.unused_pushes = self.unused_pushes.saturating_sub(used.min(usize::from(u8::MAX)) as u8);
    }

    /// What was known of a unit's readers counts no more.
    pub(super) fn forget_readers(&mut self, unit: usize) {
        if !self.readers.is_empty() {
            self.readers.remove(unit);
        }
    }
}
