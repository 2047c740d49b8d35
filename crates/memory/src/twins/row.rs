//! The twins of units that follow each other, as far as there are any.
//!
//! Where a twin lies is kept in groups of [`GROUP_UNITS`] units. A group comes with the first twin in it and goes with
//! the last, so that a page used alone costs little, and of many a run costs what its twins do.

use super::{Block, Twins, copy, stretch};
use std::ops::Range;

/// Units of a group.
const GROUP_UNITS: usize = 32;

#[derive(Debug, Default)]
struct Group {
    blocks: [Option<Block>; GROUP_UNITS],
    /// How many there are.
    held: usize,
}

/// The twins of units that follow each other, all of one size. They go back to their pool when the row is dropped.
#[derive(Debug)]
pub struct Row {
    pool: Twins,
    units: usize,
    unit_bytes: usize,
    /// Empty before the first twin.
    groups: Box<[Option<Box<Group>>]>,
}

impl Twins {
    /// A row of so many units of `unit_bytes` bytes each, without a twin.
    ///
    /// # Panics
    /// When `unit_bytes` is not a multiple of 4096, or 0.
    pub fn row(&self, units: usize, unit_bytes: usize) -> Row {
        assert!(unit_bytes > 0 && unit_bytes.is_multiple_of(4096));
        Row { pool: self.clone(), units, unit_bytes, groups: Box::default() }
    }
}

impl Row {
    /// The unit's twin, if it has one.
    pub fn get(&self, unit: usize) -> Option<&[u8]> {
        let start = self.block(unit)?.0.as_ptr();
        // SAFETY: the block is as long as a unit, holds bytes, and is this row's alone; the pool keeps its piece.
        Some(unsafe { std::slice::from_raw_parts(start, self.unit_bytes) })
    }

    /// The unit's twin, if it has one, to be changed.
    pub fn get_mut(&mut self, unit: usize) -> Option<&mut [u8]> {
        let start = self.block(unit)?.0.as_ptr();
        // SAFETY: as above, and `self` is borrowed for writing.
        Some(unsafe { std::slice::from_raw_parts_mut(start, self.unit_bytes) })
    }

    /// Gives each of these units a twin that has none, with arbitrary contents, in one look at the pool; in the order
    /// of their addresses, so that many lie one behind the other. Whether the pool had to give of what has just got its
    /// memory.
    ///
    /// # Panics
    /// When there are no such units; when the system has no memory for them, as any allocation would.
    pub fn take(&mut self, units: Range<usize>) -> bool {
        assert!(units.end <= self.units, "units {units:?} of {}", self.units);
        let missing = units.clone().filter(|unit| self.block(*unit).is_none()).count();
        if missing == 0 {
            return false;
        }
        if self.groups.is_empty() {
            self.groups = (0..self.units.div_ceil(GROUP_UNITS)).map(|_| None).collect();
        }
        if missing == 1 {
            let (block, fresh) = self.pool.take(self.unit_bytes);
            self.place(units, [block]);
            return fresh;
        }
        let (blocks, fresh) = self.pool.take_many(missing, self.unit_bytes);
        self.place(units, blocks);
        fresh
    }

    /// Gives these blocks to the units that have none.
    fn place(&mut self, mut units: Range<usize>, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            let Some(unit) = units.find(|unit| self.block(*unit).is_none()) else { return };
            let group = self.groups[unit / GROUP_UNITS].get_or_insert_default();
            group.blocks[unit % GROUP_UNITS] = Some(block);
            group.held += 1;
        }
    }

    /// The unit has no twin any more.
    pub fn drop_twin(&mut self, unit: usize) {
        let Some(place) = self.groups.get_mut(unit / GROUP_UNITS) else { return };
        let Some(group) = place else { return };
        let Some(block) = group.blocks[unit % GROUP_UNITS].take() else { return };
        group.held -= 1;
        if group.held == 0 {
            *place = None;
        }
        self.pool.put(block, self.unit_bytes);
    }

    /// Makes the unit's twin a copy of what lies at `from`, past the caches where `stream` says that this twin will not
    /// be looked at soon (pages that arrive in runs): then the copy costs the caches nothing.
    ///
    /// # Safety
    /// A unit's bytes are readable at `from`, and nobody stores there meanwhile.
    pub unsafe fn copy_from(&mut self, unit: usize, from: *const u8, stream: bool) {
        self.take(unit..unit + 1);
        let to = self.block(unit).map(|block| block.0.as_ptr());
        // SAFETY: as many bytes on both sides; blocks are whole pages, and this one is ours alone.
        to.inspect(|to| unsafe { copy::one(from, *to, self.unit_bytes, stream) });
    }

    /// Makes the twins of these units copies of bytes that stand one behind the other at `from`, past the caches unless
    /// they are there since the system cleared them; and writes them to `also`, if that is given: for units that arrive
    /// in runs, which are more than the caches hold. The units' memory need not be brought near to be overwritten then.
    /// Each byte at `from` is read but once: where that is another node's memory, it may change meanwhile, and twin and
    /// unit must be the same.
    ///
    /// # Safety
    /// The units' bytes are readable at `from` and writable at `also`, which is a page's beginning; nobody stores to
    /// `also` meanwhile. Without `also`, nobody stores to what lies at `from` either.
    pub unsafe fn copy_run(&mut self, units: Range<usize>, from: *const u8, also: Option<*mut u8>) {
        let fresh = self.take(units.clone());
        let blocks = units.filter_map(|unit| self.block(unit));
        for (index, block) in blocks.enumerate() {
            let at = index * self.unit_bytes;
            // SAFETY: as many bytes on all sides, and blocks are ours alone and whole pages.
            unsafe { copy::pass(from.add(at), block.0.as_ptr(), also.map(|to| to.add(at)), self.unit_bytes, fresh) };
        }
        copy::settle();
    }

    /// What the first unit's twin holds, with those behind it as far as they lie one behind the other in memory too;
    /// empty if it has none.
    pub fn stretch(&self, units: Range<usize>) -> &[u8] {
        stretch(units.map_while(|unit| self.get(unit)))
    }

    /// Bytes that this row takes beside its twins' and its own.
    pub fn table_bytes(&self) -> usize {
        let groups = self.groups.iter().flatten().count();
        size_of_val(&*self.groups) + groups * size_of::<Group>()
    }

    fn block(&self, unit: usize) -> Option<Block> {
        self.groups.get(unit / GROUP_UNITS)?.as_ref()?.blocks[unit % GROUP_UNITS]
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        let blocks = groups.iter().flatten().flat_map(|group| group.blocks).flatten();
        blocks.for_each(|block| self.pool.put(block, self.unit_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the table with no group, and of a group.
    const TABLE: usize = 512 / GROUP_UNITS * 8;
    const GROUP: usize = GROUP_UNITS * 8 + 8;

    #[test]
    fn a_twin_alone_costs_one_group_and_nothing_after_it() {
        let pool = Twins::new();
        let mut row = pool.row(512, 4096);
        assert_eq!((row.table_bytes(), size_of::<Row>()), (0, 40));
        row.take(100..101);
        assert_eq!((row.table_bytes(), TABLE + GROUP), (TABLE + GROUP, 392));
        row.take(126..130);
        assert_eq!((row.table_bytes(), pool.bytes_in_use()), (TABLE + 2 * GROUP, 5 * 4096));
        row.drop_twin(100);
        row.drop_twin(100);
        (126..130).for_each(|unit| row.drop_twin(unit));
        assert_eq!((row.table_bytes(), pool.bytes_in_use()), (TABLE, 0));
        row.take(0..512);
        assert_eq!(row.table_bytes(), TABLE + 16 * GROUP);
        drop(row);
        assert_eq!(pool.bytes_in_use(), 0);
    }

    #[test]
    fn runs_go_across_groups() {
        let pool = Twins::new();
        let mut row = pool.row(128, 4096);
        let source: Vec<u8> = (0..80 * 4096).map(|at| (at * 7 % 251) as u8).collect();
        row.take(50..51);
        let kept = row.get(50).map(<[u8]>::as_ptr);
        // SAFETY: the source has as many bytes.
        unsafe { row.copy_run(20..100, source.as_ptr(), None) };
        assert_eq!(row.get(50).map(<[u8]>::as_ptr), kept);
        let of_units: Vec<u8> = (0..128).filter_map(|unit| row.get(unit)).flatten().copied().collect();
        assert!(of_units == source);
        assert!(row.stretch(60..100) == &source[40 * 4096..], "one behind the other across two borders");
        assert_eq!(row.stretch(49..100).len(), 4096, "the twin that was there before lies elsewhere");
        assert!([row.stretch(19..40), row.stretch(100..128), row.stretch(7..7)].iter().all(|none| none.is_empty()));
    }

    #[test]
    #[should_panic(expected = "of 2")]
    fn a_row_has_no_twins_of_units_behind_its_end() {
        Twins::new().row(2, 4096).take(1..3);
    }

    #[test]
    fn units_without_a_twin_have_none() {
        let mut row = Twins::new().row(2, 8192);
        assert!(row.get(0).is_none() && row.get(9).is_none() && row.get_mut(1).is_none());
        row.drop_twin(1);
        row.take(1..2);
        row.get_mut(1).expect("it has one now").fill(3);
        assert_eq!((row.get(1).map(<[u8]>::len), row.get(0)), (Some(8192), None));
    }
}
