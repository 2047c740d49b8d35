//! Short lists, one for each unit of a chunk, in one array.
//!
//! A home notes who asks for each of 60 pages before its answer leaves. With a list of its own and a place in a tree
//! for each page that took 30 us; here it is a store behind the last entry.

/// No entry.
const NONE: u16 = u16::MAX;

/// A list of `T` for each unit.
#[derive(Clone, Debug)]
pub(super) struct SmallLists<T> {
    /// Each unit's first entry; as long as the last unit that ever had one asked for.
    heads: Vec<u16>,
    /// Entries, each with the next of its unit, or the next free one.
    entries: Vec<(T, u16)>,
    /// The first free entry.
    free: u16,
    /// How many entries are in lists.
    used: usize,
}

impl<T> Default for SmallLists<T> {
    fn default() -> SmallLists<T> {
        SmallLists { heads: Vec::new(), entries: Vec::new(), free: NONE, used: 0 }
    }
}

impl<T: Copy> SmallLists<T> {
    /// Most entries of all lists together.
    const MOST: usize = NONE as usize;

    /// Whether all lists are empty.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many entries are in lists.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Empties all lists, and gives their memory back.
    pub fn clear(&mut self) {
        *self = SmallLists::default();
    }

    /// The units that may have entries.
    pub fn units(&self) -> std::ops::Range<usize> {
        0..self.heads.len()
    }

    fn head(&self, unit: usize) -> u16 {
        self.heads.get(unit).copied().unwrap_or(NONE)
    }

    /// The unit's entries, in the order in which they came.
    pub fn of(&self, unit: usize) -> impl Iterator<Item = &T> {
        let entry = |at: u16| self.entries.get(usize::from(at));
        std::iter::successors(entry(self.head(unit)), move |(_, next)| entry(*next)).map(|(entry, _)| entry)
    }

    /// The unit's first entry of which this is true.
    pub fn find(&mut self, unit: usize, is: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut at = self.head(unit);
        while at != NONE {
            let (entry, next) = &self.entries[usize::from(at)];
            if is(entry) {
                return Some(&mut self.entries[usize::from(at)].0);
            }
            at = *next;
        }
        None
    }

    /// Adds an entry behind the unit's others; `false` when there is no room for more.
    pub fn push(&mut self, unit: usize, entry: T) -> bool {
        if self.used == Self::MOST {
            return false;
        }
        let new = match self.free {
            NONE => {
                self.entries.push((entry, NONE));
                (self.entries.len() - 1) as u16
            }
            at => {
                let place = &mut self.entries[usize::from(at)];
                self.free = place.1;
                *place = (entry, NONE);
                at
            }
        };
        self.used += 1;
        if self.heads.len() <= unit {
            self.heads.resize(unit + 1, NONE);
        }
        if self.heads[unit] == NONE {
            self.heads[unit] = new;
            return true;
        }
        let mut last = usize::from(self.heads[unit]);
        while self.entries[last].1 != NONE {
            last = usize::from(self.entries[last].1);
        }
        self.entries[last].1 = new;
        true
    }

    /// Keeps those of the unit's entries of which this is true.
    pub fn retain(&mut self, unit: usize, mut keep: impl FnMut(&mut T) -> bool) {
        let (mut before, mut at) = (NONE, self.head(unit));
        while at != NONE {
            let place = usize::from(at);
            let next = self.entries[place].1;
            if keep(&mut self.entries[place].0) {
                before = at;
            } else {
                match before {
                    NONE => self.heads[unit] = next,
                    before => self.entries[usize::from(before)].1 = next,
                }
                self.entries[place].1 = self.free;
                self.free = at;
                self.used -= 1;
            }
            at = next;
        }
    }

    /// Empties the unit's list.
    pub fn remove(&mut self, unit: usize) {
        self.retain(unit, |_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn lists_in_one_array_hold_what_lists_by_themselves_hold() {
        let (mut chains, mut lists) = (SmallLists::default(), BTreeMap::<usize, Vec<u32>>::new());
        let mut state = 7_u32;
        for step in 0..4000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (unit, what) = ((state >> 16) as usize % 12, state >> 28);
            match what {
                0 => {
                    chains.remove(unit);
                    lists.remove(&unit);
                }
                1..5 => {
                    chains.retain(unit, |entry| *entry % 3 != state % 3);
                    lists.entry(unit).or_default().retain(|entry| *entry % 3 != state % 3);
                }
                _ => {
                    assert!(chains.push(unit, step));
                    lists.entry(unit).or_default().push(step);
                }
            }
            let list = lists.get(&unit).cloned().unwrap_or_default();
            assert!(chains.of(unit).eq(&list), "unit {unit} after {step} steps");
            assert_eq!(chains.find(unit, |entry| entry % 2 == 0).copied(), list.into_iter().find(|e| e % 2 == 0));
            assert_eq!(chains.len(), lists.values().map(Vec::len).sum::<usize>());
            assert_eq!(chains.is_empty(), lists.values().all(Vec::is_empty));
        }
        assert!(chains.entries.len() < 400, "places are used again");
    }
}
