//! Who reads what this home writes: nodes that ask for a page again whenever the home has written it are sent it
//! unasked ([`push`](crate::coherence::pages::push)).
//!
//! | event | of a reader of a unit |
//! |---|---|
//! | asks, after an epoch in which the home wrote the unit | has asked |
//! | asks for this unit alone, which nobody is known to write | is new: has asked, if few units are sent early |
//! | asks for what it was sent | has asked; must ask twice as often from now on before it is sent the unit |
//! | says that what it was sent was of no use | the same, and the row of its questions is over |
//! | a barrier, the home wrote it, the reader has asked or was sent it | one more in a row; sent it if that is enough |
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

use super::Predictor;
use super::small_lists::SmallLists;
use crate::coherence::pages::is_over;
use crate::ids::NodeId;
use crate::tuning::PageTuning;
use smallvec::SmallVec;

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

/// Who reads what is written in a table of home pages.
#[derive(Clone, Default, Debug)]
pub struct PushPredictor {
    readers: SmallLists<Reader>,
    /// How often units were sent in vain of late.
    unused_pushes: u8,
    round: Round,
}

/// A barrier at which units are sent.
#[derive(Clone, Copy, Default, Debug)]
struct Round {
    /// So many questions in a row are wanted.
    least: u8,
    /// So many units may still be sent after one question less.
    early: usize,
    /// So many of those that were sent before were of use.
    used: usize,
}

/// What has happened to home pages.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A node asks for a unit.
    Asked {
        /// Its place.
        unit: usize,
        /// The node.
        node: NodeId,
        /// The epoch in which that node is.
        epoch: u32,
        /// The home wrote it in the last epoch.
        home_wrote: bool,
        /// It is asked for alone, and nobody is known to have written it.
        new: bool,
    },
    /// A node says that it was sent the unit at this place in vain.
    Unused(usize, NodeId),
    /// This node arrives at a barrier, and has told of what it wrote.
    Arrives {
        /// Barriers alone have ordered writes for a long time, and what is told of was written.
        is_sure: bool,
    },
    /// The unit at this place could not be sent to a node at this barrier.
    NotSent(usize, NodeId),
    /// All that is sent at this barrier was.
    Arrived,
    /// What was known of the readers of the unit at this place counts no more.
    Forgotten(usize),
    /// The memory is freed.
    Freed,
}

/// At a barrier: to whom is a unit sent that was told of?
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Its place.
    pub unit: usize,
    /// The epoch that ends.
    pub epoch: u32,
    /// It was probably not written.
    pub spurious: bool,
}

impl PushPredictor {
    /// The units that may have readers.
    pub fn units(&self) -> std::ops::Range<usize> {
        if self.readers.is_empty() { 0..0 } else { self.readers.units() }
    }

    fn count_unused(&mut self, numbers: &PageTuning) {
        self.unused_pushes = self.unused_pushes.saturating_add(numbers.push_unused_weight).min(unused_max(numbers));
    }

    fn on_asked(
        &mut self,
        numbers: &PageTuning,
        (unit, node, epoch): (usize, NodeId, u32),
        home_wrote: bool,
        new: bool,
    ) {
        let new = new && numbers.push_new_readers;
        if let Some(reader) = self.readers.find(unit, |r| r.node == node) {
            // A question of before says nothing of what was sent since.
            let late = reader.pushed.is_some_and(|sent| is_over(sent, epoch)) && reader.was_no_use(numbers);
            reader.asked = true;
            if late {
                self.count_unused(numbers);
            }
        } else if (home_wrote || new && self.readers.len() < numbers.push_early_units_max)
            && self.readers.of(unit).count() < numbers.push_readers_max
        {
            self.readers.push(unit, Reader { node, asked: true, new, pushed: None, row: 0, after: 1 });
        }
    }
}

impl Predictor for PushPredictor {
    type Numbers = PageTuning;
    type Event<'a> = Event;
    type Query<'a> = Told;
    /// The nodes to which the unit is sent.
    type Prediction = SmallVec<[NodeId; 8]>;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.push
    }

    fn learn(&mut self, numbers: &PageTuning, event: Event) {
        match event {
            Event::Asked { unit, node, epoch, home_wrote, new } => {
                self.on_asked(numbers, (unit, node, epoch), home_wrote, new);
            }
            Event::Unused(unit, node) => {
                let reader = self.readers.find(unit, |r| r.node == node);
                if reader.is_some_and(|reader| reader.was_no_use(numbers)) {
                    self.count_unused(numbers);
                }
            }
            Event::Arrives { is_sure } => {
                let doublings = self.unused_pushes / numbers.push_unused_step;
                let least = (numbers.push_after << doublings).min(numbers.push_after_max);
                let early = is_sure && least == numbers.push_after && least > 1;
                self.round = Round { least, early: if early { numbers.push_early_units_max } else { 0 }, used: 0 };
            }
            Event::NotSent(unit, node) => {
                if let Some(reader) = self.readers.find(unit, |r| r.node == node) {
                    reader.pushed = None;
                }
            }
            Event::Arrived => {
                let used = self.round.used.min(usize::from(u8::MAX)) as u8;
                self.unused_pushes = self.unused_pushes.saturating_sub(used);
            }
            Event::Forgotten(unit) => self.readers.remove(unit),
            Event::Freed => self.readers.clear(),
        }
    }

    fn answer(&mut self, _: &PageTuning, Told { unit, epoch, spurious }: Told) -> SmallVec<[NodeId; 8]> {
        let (mut sent, round) = (SmallVec::new(), &mut self.round);
        self.readers.retain(unit, |reader| {
            round.used += usize::from(reader.pushed.is_some());
            if spurious {
                // Who reads it when it was written does not want it now, but the next time.
                reader.asked |= reader.pushed.take().is_some();
                return true;
            }
            let early = round.early > 0;
            let stays = reader.on_notice(epoch, round.least, early);
            round.early -= usize::from(early && reader.pushed.is_some() && reader.row < round.least);
            if stays && reader.pushed.is_some() {
                sent.push(reader.node);
            }
            stays
        });
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PageTuning = PageTuning::DEFAULT;
    const READER: NodeId = NodeId(4);

    /// A barrier at which unit 3 is told of, after some nodes have asked for it; to whom it is sent.
    fn barrier(push: &mut PushPredictor, epoch: u32, askers: &[NodeId], is_sure: bool) -> Vec<NodeId> {
        for node in askers {
            let asked = Event::Asked { unit: 3, node: *node, epoch, home_wrote: true, new: false };
            push.observe(&NUMBERS, asked);
        }
        push.observe(&NUMBERS, Event::Arrives { is_sure });
        let sent = push.predict(&NUMBERS, Told { unit: 3, epoch, spurious: false });
        push.observe(&NUMBERS, Event::Arrived);
        sent.to_vec()
    }

    #[test]
    fn who_has_asked_twice_is_sent_the_unit_and_once_where_barriers_alone_order_writes() {
        let mut push = PushPredictor::default();
        assert_eq!(barrier(&mut push, 1, &[READER], false), []);
        assert_eq!(barrier(&mut push, 2, &[READER], false), [READER]);
        assert_eq!(barrier(&mut push, 3, &[], false), [READER], "without another question");
        assert_eq!(barrier(&mut PushPredictor::default(), 1, &[READER], true), [READER]);
    }

    #[test]
    fn after_pages_of_no_use_more_questions_are_wanted() {
        let mut push = PushPredictor::default();
        (1..3).for_each(|epoch| drop(barrier(&mut push, epoch, &[READER], false)));
        push.observe(&NUMBERS, Event::Unused(3, READER));
        let until_sent = (3..20).take_while(|epoch| barrier(&mut push, *epoch, &[READER], false).is_empty()).count();
        assert_eq!(until_sent, 3);
    }

    #[test]
    fn what_was_not_sent_or_not_written_is_no_push() {
        let mut push = PushPredictor::default();
        (1..3).for_each(|epoch| drop(barrier(&mut push, epoch, &[READER], false)));
        push.observe(&NUMBERS, Event::NotSent(3, READER));
        push.observe(&NUMBERS, Event::Unused(3, READER));
        assert_eq!(push.unused_pushes, 0);
        push.observe(&NUMBERS, Event::Arrives { is_sure: false });
        assert!(push.predict(&NUMBERS, Told { unit: 3, epoch: 3, spurious: true }).is_empty());
    }

    #[test]
    fn readers_are_forgotten_with_the_unit() {
        for event in [Event::Forgotten(3), Event::Freed] {
            let mut push = PushPredictor::default();
            barrier(&mut push, 1, &[READER], false);
            push.observe(&NUMBERS, event);
            assert_eq!(barrier(&mut push, 2, &[], false), []);
            assert!(push.readers.is_empty());
        }
    }
}
