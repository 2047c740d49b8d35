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

use super::PageTable;
use super::small_lists::SmallLists;
use super::state::Writers;
use super::units::Units;
use super::write_predictor::WritePredictor;
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
struct Reader {
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
            self.after = self.after.max(tuning.push_after).max(2).saturating_mul(2).min(tuning.push_after_max);
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

/// Who reads what is written in a chunk of home pages.
#[derive(Clone, Default, Debug)]
pub(super) struct PushPredictor {
    readers: SmallLists<Reader>,
    /// How often units were sent in vain of late.
    unused_pushes: u8,
}

impl PageTable {
    /// A node in `epoch` has asked for these pages, and gets their bytes.
    pub fn note_reader(&mut self, runs: &[Range<PageNo>], node: NodeId, epoch: u32) {
        if self.units.tuning.push {
            self.push_predictor.note_reader(&self.units, runs, node, epoch);
        }
    }

    /// A reader says that these pages were sent in vain.
    pub fn on_unused(&mut self, pages: &Range<PageNo>, node: NodeId) {
        self.push_predictor.on_unused(&self.units.tuning, self.units.within(pages), node);
    }

    /// This node arrives at the barrier that ends `epoch`, and has told of what it wrote: whom to send which units.
    pub fn pushes(&mut self, cx: &Context<'_>, epoch: u32, pushes: &mut Pushes) {
        if self.close_state.may_be_noticed {
            self.push_predictor.pushes(cx, (&self.units, &self.write_predictor), epoch, pushes);
        }
    }
}

impl PushPredictor {
    fn note_reader(&mut self, table: &Units, runs: &[Range<PageNo>], node: NodeId, epoch: u32) {
        let tuning = &table.tuning;
        let units: SmallVec<[Range<usize>; 2]> = runs.iter().map(|run| table.within(run)).collect();
        // What is asked for beside it may be of no use.
        let alone = units.iter().map(ExactSizeIterator::len).sum::<usize>() == 1;
        for unit in units.into_iter().flatten() {
            let Some(home) = table[unit].state.home() else { continue };
            let hot = home.writers.home_wrote_last_epoch();
            let new = tuning.push_new_readers && alone && home.writers == Writers::Nobody;
            if let Some(reader) = self.readers.find(unit, |r| r.node == node) {
                // A question of before says nothing of what was sent since.
                let late = reader.pushed.is_some_and(|sent| is_over(sent, epoch)) && reader.was_no_use(tuning);
                reader.asked = true;
                if late {
                    self.count_unused(tuning);
                }
            } else if (hot || new && self.readers.len() < tuning.push_early_units_max)
                && self.readers.of(unit).count() < tuning.push_readers_max
            {
                self.readers.push(unit, Reader { node, asked: true, new, pushed: None, row: 0, after: 1 });
            }
        }
    }

    fn on_unused(&mut self, tuning: &PageTuning, units: Range<usize>, node: NodeId) {
        for unit in units {
            let reader = self.readers.find(unit, |r| r.node == node);
            if reader.is_some_and(|reader| reader.was_no_use(tuning)) {
                self.count_unused(tuning);
            }
        }
    }

    fn count_unused(&mut self, tuning: &PageTuning) {
        self.unused_pushes = self.unused_pushes.saturating_add(tuning.push_unused_weight).min(unused_max(tuning));
    }

    fn pushes(
        &mut self,
        cx: &Context<'_>,
        (units, writes): (&Units, &WritePredictor),
        epoch: u32,
        pushes: &mut Pushes,
    ) {
        if self.readers.is_empty() {
            return;
        }
        let first = units.layout.first;
        let tuning = &units.tuning;
        let least = (tuning.push_after << (self.unused_pushes / tuning.push_unused_step)).min(tuning.push_after_max);
        let is_sure = least == tuning.push_after && cx.sync_phase.is_quiet() && cx.memory.notes_writes();
        let mut soon = if is_sure && least > 1 { tuning.push_early_units_max } else { 0 };
        let mut used = 0;
        let mut readers = std::mem::take(&mut self.readers);
        for unit in readers.units() {
            let told = units[unit].notices.are_told();
            if !units[unit].is_home() {
                readers.remove(unit);
            } else if told && writes.notice_was_spurious(unit) {
                // Who reads it when it was written does not want it now, but the next time.
                readers.retain(unit, |reader| {
                    let sent = reader.pushed.take().is_some();
                    used += usize::from(sent);
                    reader.asked |= sent;
                    true
                });
            } else if told {
                readers.retain(unit, |reader| {
                    used += usize::from(reader.pushed.is_some());
                    let early = soon > 0;
                    let stays = reader.on_notice(epoch, least, early);
                    soon -= usize::from(early && reader.pushed.is_some() && reader.row < least);
                    if stays && reader.pushed.is_some() && !pushes.add(reader.node, first, units.pages_of(unit)) {
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
    pub(super) fn forget(&mut self, unit: usize) {
        if !self.readers.is_empty() {
            self.readers.remove(unit);
        }
    }

    /// The memory is freed.
    pub(super) fn forget_all(&mut self) {
        self.readers.clear();
    }
}
