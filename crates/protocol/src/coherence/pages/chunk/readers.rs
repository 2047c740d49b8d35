//! Who reads what this home writes: nodes that ask for a page again whenever the home has written it are sent it unasked ([`push`](super::super::push)).
//!
//! | event | of a reader of a unit |
//! |---|---|
//! | asks, after an epoch in which the home wrote the unit | has asked |
//! | asks for what it was sent | has asked; must ask twice as often from now on before it is sent the unit |
//! | says that what it was sent was of no use | the same, and the row of its questions is over |
//! | a barrier, the home wrote the unit, the reader has asked or was sent it | one more in a row; sent the unit if the row is long enough |
//! | a barrier, the home wrote the unit, the reader has not asked | one less |
//! | another node writes the unit, it migrates | forgotten |

use super::{Chunk, HOT, State, WROTE};
use crate::coherence::pages::PageNo;
use crate::coherence::pages::push::Pushes;
use crate::ids::NodeId;
use std::ops::Range;

/// Readers of a unit that are remembered.
const READERS_MAX: usize = 16;
/// After so many questions in a row a page is sent unasked.
pub(super) const PUSH_AFTER: u8 = 2;
/// Most questions in a row that are wanted after pages were of no use.
const PUSH_AFTER_MAX: u8 = 16;

/// A node that asks for a unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reader {
    node: NodeId,
    /// It has asked since the home's writes were last told of.
    asked: bool,
    /// The epoch at whose end it was sent the unit, when they were.
    pushed: Option<u32>,
    /// How often in a row it has asked, or was sent the unit and did not say that it was of no use.
    row: u8,
    /// The row after which it is sent the unit.
    after: u8,
}

impl Reader {
    fn was_no_use(&mut self) {
        if self.pushed.take().is_some() {
            self.row = 0;
            self.after = (self.after * 2).min(PUSH_AFTER_MAX);
        }
    }

    /// The home has written the unit, and tells of it. Gives `false` when the reader can be forgotten.
    fn on_told(&mut self, epoch: u32, least: u8) -> bool {
        let again = self.asked || self.pushed.is_some();
        if !again && self.row == 0 {
            return false;
        }
        self.row = if again { self.row.saturating_add(1) } else { self.row - 1 };
        if self.pushed.is_some() && self.row / 2 >= self.after {
            self.after = (self.after / 2).max(least);
        }
        self.asked = false;
        self.pushed = (self.row >= self.after).then_some(epoch);
        true
    }
}

impl Chunk {
    /// Pages are sent unasked after so many questions in a row, instead of [`PUSH_AFTER`].
    pub fn set_push_after(&mut self, questions: u8) {
        self.push_after = questions;
    }

    /// A node in `epoch` has asked for these pages, and gets their bytes.
    pub fn note_reader(&mut self, runs: &[Range<PageNo>], node: NodeId, epoch: u32) {
        let units: Vec<Range<usize>> = runs.iter().map(|run| self.units_in(run)).collect();
        for unit in units.into_iter().flatten() {
            if self.units[unit].state != State::Home {
                continue;
            }
            let known = self.readers.get_mut(&(unit as u16)).and_then(|all| all.iter_mut().find(|r| r.node == node));
            if let Some(reader) = known {
                // A question of before says nothing of what was sent since.
                if reader.pushed.is_some_and(|sent| epoch > sent) {
                    reader.was_no_use();
                }
                reader.asked = true;
            } else if self.units[unit].has(HOT) {
                let after = self.push_after;
                let all = self.readers.entry(unit as u16).or_default();
                if all.len() < READERS_MAX {
                    all.push(Reader { node, asked: true, pushed: None, row: 0, after });
                }
            }
        }
    }

    /// A reader says that these pages were sent in vain.
    pub fn on_unused(&mut self, pages: &Range<PageNo>, node: NodeId) {
        for unit in self.units_in(pages) {
            let all = self.readers.get_mut(&(unit as u16));
            all.into_iter().flatten().filter(|r| r.node == node).for_each(Reader::was_no_use);
        }
    }

    /// This node arrives at the barrier that ends `epoch`, and has told of what it wrote: whom to send which units.
    pub fn pushes(&mut self, epoch: u32, pushes: &mut Pushes) {
        if !self.told || self.readers.is_empty() {
            return;
        }
        let (first, least) = (self.shape.first, self.push_after);
        let mut readers = std::mem::take(&mut self.readers);
        readers.retain(|unit, all| {
            let unit = usize::from(*unit);
            if self.units[unit].state != State::Home {
                return false;
            }
            if self.units[unit].has(WROTE) {
                all.retain_mut(|reader| reader.on_told(epoch, least));
                for reader in all.iter_mut().filter(|reader| reader.pushed.is_some()) {
                    if !pushes.add(reader.node, first, self.pages(unit..unit + 1)) {
                        reader.pushed = None;
                    }
                }
            }
            !all.is_empty()
        });
        self.readers = readers;
    }

    /// What was known of a unit's readers counts no more.
    pub(super) fn forget_readers(&mut self, unit: usize) {
        if !self.readers.is_empty() {
            self.readers.remove(&(unit as u16));
        }
    }
}
