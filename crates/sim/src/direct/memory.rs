//! The nodes' memories, and stores on their way there.

use super::program::{MAGIC, Setup, WORDS};
use comem_protocol::coherence::direct::Entry;
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;

/// A store on its way to memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Write {
    /// A word of a unit. `is_own` if the program stores it, and not the protocol.
    Word { unit: usize, word: usize, value: u16, is_own: bool },
    /// The entry of a line.
    Entry { unit: usize, line: usize, entry: Entry },
    /// The wide words of a unit.
    Wide { unit: usize, holders: NodeSet },
    /// The units for which a thread has raised its hazard.
    Hazard { thread: usize, units: Vec<usize> },
}

impl Write {
    /// Whether it stores this value to this word.
    pub fn is_of(&self, (in_unit, at): (usize, usize), stored: u16) -> bool {
        matches!(*self, Write::Word { unit, word, value, .. } if (unit, word, value) == (in_unit, at, stored))
    }
}

/// One node's memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Memory {
    words: Vec<[u16; WORDS]>,
    entries: Vec<Vec<Entry>>,
    wide: Vec<NodeSet>,
    /// The units for which each of the job's threads has raised its hazard.
    hazards: Vec<Vec<usize>>,
    /// Whether each unit's memory can be looked at.
    pub mapped: Vec<bool>,
}

impl Memory {
    /// The memory of node `me` when nothing has happened.
    pub fn new(setup: &Setup, me: NodeId) -> Memory {
        let units = setup.homes.len();
        let is_home = |unit: usize| setup.homes[unit] == me;
        let first = |unit| if is_home(unit) { Entry::exclusive(!setup.has_barrier) } else { Entry::NOT_EXCLUSIVE };
        let mut memory = Memory {
            words: (0..units).map(|unit| [if is_home(unit) { 0 } else { MAGIC }; WORDS]).collect(),
            entries: (0..units).map(|unit| vec![first(unit); setup.lines]).collect(),
            wide: vec![NodeSet::new(); units],
            hazards: vec![Vec::new(); setup.threads.len()],
            mapped: (0..units).map(|unit| is_home(unit) || !setup.is_untouched).collect(),
        };
        for unit in 0..units {
            if !memory.mapped[unit] {
                memory.zero(unit);
            }
        }
        memory
    }

    /// A word, as a load finds it.
    pub fn word(&self, unit: usize, word: usize) -> u16 {
        self.words[unit][word]
    }

    /// The entry of a unit's line.
    pub fn entry(&self, unit: usize, line: usize) -> Entry {
        self.entries[unit][line]
    }

    /// The wide words of a unit.
    pub fn wide(&self, unit: usize) -> &NodeSet {
        &self.wide[unit]
    }

    /// Whether any thread has raised a hazard for the unit.
    pub fn has_hazard(&self, unit: usize) -> bool {
        self.hazards.iter().any(|units| units.contains(&unit))
    }

    /// A store reaches memory.
    pub fn write(&mut self, write: Write) {
        match write {
            Write::Word { unit, word, value, .. } => self.words[unit][word] = value,
            Write::Entry { unit, line, entry } => self.entries[unit][line] = entry,
            Write::Wide { unit, holders } => self.wide[unit] = holders,
            Write::Hazard { thread, units } => self.hazards[thread] = units,
        }
    }

    /// Zeros, as the kernel gives them.
    fn zero(&mut self, unit: usize) {
        self.words[unit] = [0; WORDS];
        self.entries[unit].fill(Entry::default());
    }

    /// Fills untouched memory: all words MAGIC, no entry exclusive.
    pub fn fill(&mut self, unit: usize) {
        self.words[unit] = [MAGIC; WORDS];
        self.entries[unit].fill(Entry::NOT_EXCLUSIVE);
    }
}
