//! This node's lines memory as other nodes' one-sided operations act on it, where they are emulated.

use super::here::{wide_at, wide_words};
use comem_memory::lines::{Lines, barrier};
use comem_protocol::coherence::direct::Entry;
use comem_protocol::coherence::direct::remote::{Found, RemoteMemory, UnitAt};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Lines memory that is a target.
pub(crate) struct Target<'a, F> {
    pub(crate) lines: &'a Lines,
    /// How many nodes the job has.
    pub(crate) nodes: usize,
    /// What is where a unit should be.
    pub(crate) find: F,
}

fn lines_of(unit: UnitAt) -> Range<usize> {
    let Range { start, end } = unit.range();
    start as usize..end as usize
}

impl<F: Fn(UnitAt) -> Found> RemoteMemory for Target<'_, F> {
    fn find(&self, unit: UnitAt) -> Found {
        let is_there = unit.lies_in(&(0..self.lines.extent().lines() as u64));
        if is_there { (self.find)(unit) } else { Found::Nothing }
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn fetch_and_set(&self, unit: UnitAt, holder: NodeId) -> Entry {
        self.lines.fetch_and_set(unit.first() as usize, holder)
    }

    fn entry(&self, unit: UnitAt) -> Entry {
        Entry(self.lines.entry(unit.first() as usize).load(Ordering::Acquire))
    }

    fn put_entries(&self, lines: Range<u64>, entry: Entry) {
        self.lines.put_entries(lines.start as usize..lines.end as usize, entry);
    }

    fn copy_data(&self, unit: UnitAt, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + unit.bytes(), 0);
        self.lines.read(unit.offset() as usize, &mut out[start..]);
    }

    fn put_magic(&self, unit: UnitAt) {
        self.lines.fill_magic(unit.offset() as usize, unit.bytes());
    }

    fn wide(&self, unit: UnitAt) -> NodeSet {
        wide_at(self.lines, unit.first() as usize)
    }

    fn put_wide(&self, unit: UnitAt, holders: &NodeSet) {
        let words = self.lines.wide(unit.first() as usize);
        let values = wide_words(holders, words.len());
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    fn barrier(&self) {
        // Where the system has none no unit is biased that a thread of this node has ever stored to.
        let _ = barrier::own_threads();
    }

    fn has_hazard(&self, unit: UnitAt) -> bool {
        self.lines.has_hazard(lines_of(unit))
    }
}
