//! Which pages change homes to and fro if they may, and who keeps them.
//!
//! A unit that several nodes wrote is *contested* for a while. In programs whose nodes have rows or blocks of their own
//! in one page, some epochs see but one of them write, and in the next the old home would have to fetch what it had. So
//! one of the writers is the unit's *keeper*, and the home moves to no other node meanwhile. Who copies a page that
//! others write too has more to do than its home: twins, comparisons, diffs, and the copy again. The keepers share this
//! evenly; what one node had initialised would stay there else.

use super::Predictor;
use crate::coherence::pages::PageNo;
use crate::hash_map::NumberMap;
use crate::ids::NodeId;
use crate::tuning::HomeTuning;

/// A unit that several nodes wrote.
#[derive(Clone, Copy, Debug)]
struct Contested {
    /// The last epoch in which it is that.
    until: u32,
    /// The only node that may become its home.
    keeper: NodeId,
}

impl Contested {
    /// Whether the unit, which was contested for so many epochs, is contested still in this one.
    fn lasts(&self, numbers: &HomeTuning, epoch: u32) -> bool {
        self.until.wrapping_sub(epoch) <= numbers.contested_epochs
    }
}

/// The keepers of contested units. All nodes' copies of it know the same, since all have the notices of all.
#[derive(Clone, Debug, Default)]
pub struct Keepers {
    /// By the unit's first page.
    contested: NumberMap<PageNo, Contested>,
}

/// What a barrier tells.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Several nodes wrote a unit in an epoch.
    Contested {
        /// Its first page.
        page: PageNo,
        /// Who wrote it, in order, each once; not empty.
        writers: &'a [NodeId],
        /// The epoch.
        epoch: u32,
    },
    /// All that was written in this epoch has been told.
    Over {
        /// The epoch.
        epoch: u32,
    },
}

/// May a unit's only writer of an epoch become its home?
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The unit's first page.
    pub page: PageNo,
    /// The writer.
    pub writer: NodeId,
    /// The epoch.
    pub epoch: u32,
}

impl Predictor for Keepers {
    type Numbers = HomeTuning;
    type Event<'a> = Event<'a>;
    type Query<'a> = Move;
    type Prediction = bool;

    fn is_on(&self, numbers: &HomeTuning) -> bool {
        numbers.keeper
    }

    fn otherwise(&self, _: &HomeTuning, _: Move) -> bool {
        true
    }

    fn learn(&mut self, numbers: &HomeTuning, event: Event<'_>) {
        let (page, writers, epoch) = match event {
            Event::Contested { page, writers, epoch } => (page, writers, epoch),
            Event::Over { epoch } => {
                if self.contested.len() > numbers.contested_units_max {
                    self.contested.retain(|_, contested| contested.lasts(numbers, epoch));
                }
                return;
            }
        };
        let until = epoch.wrapping_add(numbers.contested_epochs);
        // It keeps the keeper that it has.
        if let Some(contested) = self.contested.get_mut(&page).filter(|contested| contested.lasts(numbers, epoch)) {
            contested.until = until;
            return;
        }
        // Rows are often powers of two apart: no power of two may give all of them to one node.
        let place = (page / numbers.same_keeper_pages).wrapping_mul(0x9E37_79B1) >> 16;
        let keeper = writers[place as usize % writers.len()];
        self.contested.insert(page, Contested { until, keeper });
    }

    fn answer(&mut self, numbers: &HomeTuning, Move { page, writer, epoch }: Move) -> bool {
        let contested = self.contested.get(&page).filter(|contested| contested.lasts(numbers, epoch));
        contested.is_none_or(|contested| writer == contested.keeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: HomeTuning = HomeTuning::DEFAULT;
    const WRITERS: [NodeId; 2] = [NodeId(1), NodeId(2)];

    fn keeper(keepers: &mut Keepers, page: PageNo, epoch: u32) -> Vec<NodeId> {
        let may = |writer: &NodeId| keepers.predict(&NUMBERS, Move { page, writer: *writer, epoch });
        WRITERS.into_iter().filter(may).collect()
    }

    #[test]
    fn a_contested_unit_has_one_keeper_for_some_epochs_and_the_same_one_if_it_is_contested_again() {
        let mut keepers = Keepers::default();
        keepers.observe(&NUMBERS, Event::Contested { page: 7, writers: &WRITERS, epoch: 1 });
        let first = keeper(&mut keepers, 7, 2);
        assert_eq!(first.len(), 1);
        let last = 1 + NUMBERS.contested_epochs;
        assert_eq!(keeper(&mut keepers, 7, last), first);
        assert_eq!(keeper(&mut keepers, 7, last + 1), WRITERS);
        keepers.observe(&NUMBERS, Event::Contested { page: 7, writers: &[first[0], NodeId(9)], epoch: last });
        assert_eq!(keeper(&mut keepers, 7, last + 1), first);
        assert_eq!(keeper(&mut keepers, 8, 2), WRITERS, "another unit");
    }

    #[test]
    fn what_is_contested_no_more_is_forgotten_when_there_is_much_of_it() {
        let numbers = HomeTuning { contested_units_max: 2, ..NUMBERS };
        let mut keepers = Keepers::default();
        for page in 0..3 {
            keepers.observe(&numbers, Event::Contested { page, writers: &WRITERS, epoch: 8 * page });
        }
        keepers.observe(&numbers, Event::Over { epoch: 16 });
        assert_eq!(keepers.contested.keys().copied().collect::<Vec<_>>().len(), 2, "that of epoch 0");
    }
}
