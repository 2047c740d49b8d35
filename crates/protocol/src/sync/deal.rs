//! Loops whose items are dealt out while they run (OpenMP's `schedule(dynamic)` and `schedule(guided)`).
//!
//! The job's loops are numbered: every thread takes part in every loop, in the same order. A loop lives at its
//! *manager*, which knows the first item that nobody has. A node asks it for a *batch* and deals that out to its
//! threads chunk by chunk, so most chunks cost no message. Nothing is released or acquired by that, and no write
//! notices travel.
//!
//! A batch is as large as the node wants, which grows while batches are soon used up ([`Batches`]). But it is at most
//! a fair share of half of what is left: so no node keeps the rest of the loop to itself, and towards the end batches
//! are single chunks.
//!
//! A loop is forgotten when every node has been told that nothing is left; each is told once.

use crate::coherence::Misbehaved;
use crate::ids::{NodeId, manager_of};
use crate::time::Span;
use crate::tuning::SyncTuning;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a node asks a loop's manager for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchRequest {
    /// How many items the loop has, as the asker says.
    pub total: u64,
    /// How many items belong together; at least 1.
    pub chunk: u64,
    /// How many chunks the node wants at most; at least 1.
    pub chunks: u64,
}

/// What it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dealt {
    /// These items, which are the node's from now on; none: nothing is left.
    Items(Range<u64>),
    /// Another node has said something else of the loop: so many items, in such chunks.
    Unlike(u64, u64),
}

#[derive(Clone, Debug)]
struct Loop {
    total: u64,
    chunk: u64,
    next: u64,
    /// How many nodes have been told that nothing is left.
    told: usize,
}

/// The loops of which this node is the manager.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    open: BTreeMap<u64, Loop>,
}

/// The node that manages loop `number` among `nodes`.
pub fn manager(number: u64, nodes: usize) -> NodeId {
    manager_of(number ^ 0xDEA1 << 48, nodes)
}

impl Loops {
    /// A node asks for items of loop `number`.
    ///
    /// # Errors
    /// When no correct node would have asked so.
    pub fn deal(&mut self, number: u64, wanted: BatchRequest, nodes: usize) -> Result<Dealt, Misbehaved> {
        let BatchRequest { total, chunk, chunks } = wanted;
        if chunk == 0 || chunks == 0 {
            return Err(Misbehaved("asked for no items of a loop"));
        }
        let this = self.open.entry(number).or_insert(Loop { total, chunk, next: 0, told: 0 });
        if (this.total, this.chunk) != (total, chunk) {
            return Ok(Dealt::Unlike(this.total, this.chunk));
        }
        let left = total - this.next;
        if left == 0 {
            this.told += 1;
            if this.told >= nodes {
                self.open.remove(&number);
            }
            return Ok(Dealt::Items(total..total));
        }
        let fair = left.div_ceil(2 * nodes as u64) / chunk;
        let items = chunk.saturating_mul(chunks.min(fair.max(1))).min(left);
        this.next += items;
        Ok(Dealt::Items(this.next - items..this.next))
    }

    /// How many loops are not over here.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

/// How many chunks a node asks for at a time: few at first, and as many as last about a millisecond. Then messages are
/// a small part of the time, and what nodes wait for one another at a loop's end is as short.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    chunks: u64,
}

impl Batches {
    /// For a node with so many threads.
    pub fn new(threads: usize) -> Batches {
        Batches { chunks: threads.max(1) as u64 }
    }

    /// How many chunks to ask for now.
    pub fn chunks(self) -> u64 {
        self.chunks
    }

    /// The last batch lasted so long.
    pub fn lasted(&mut self, tuning: &SyncTuning, span: Span) {
        if span < Span::from_us(tuning.batch_short_us) {
            self.chunks = (self.chunks * 2).min(tuning.batch_chunks_max);
        } else if span > Span::from_us(tuning.batch_long_us) {
            self.chunks = (self.chunks / 2).max(1);
        }
    }
}

/// How many of `left` items a thread takes in one go in a loop without a chunk of its own, where the node has so many
/// threads: a fair share of half of them (OpenMP's guided schedule).
pub fn guided(left: u64, threads: usize) -> u64 {
    left.div_ceil(2 * threads.max(1) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Rng;

    /// Nodes ask in an order of chance until all have been told that nothing is left: what each got.
    fn run(seed: u64, nodes: usize, wanted: impl Fn(usize) -> BatchRequest) -> Vec<Vec<Range<u64>>> {
        let (mut loops, mut rng) = (Loops::default(), Rng::new(seed));
        let (mut got, mut left) = (vec![Vec::new(); nodes], (0..nodes).collect::<Vec<_>>());
        while !left.is_empty() {
            let at = rng.below(left.len() as u64) as usize;
            let node = left[at];
            match loops.deal(7, wanted(node), nodes) {
                Ok(Dealt::Items(items)) if items.is_empty() => drop(left.swap_remove(at)),
                Ok(Dealt::Items(items)) => got[node].push(items),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(loops.open(), 0, "all have been told, and nothing is kept");
        got
    }

    #[test]
    fn every_item_is_dealt_once_and_in_whole_chunks() {
        for (seed, (total, chunk)) in
            [(0, 1), (1, 1), (1000, 7), (64, 64), (63, 64), (100_000, 10)].into_iter().enumerate()
        {
            for nodes in [1, 2, 4, 7] {
                let wanted = |node| BatchRequest { total, chunk, chunks: 1 + node as u64 * 5 };
                let mut all: Vec<Range<u64>> = run(seed as u64, nodes, wanted).into_iter().flatten().collect();
                all.sort_by_key(|items| items.start);
                assert!(all.iter().all(|items| items.start.is_multiple_of(chunk)), "{all:?}");
                let end = all.iter().fold(0, |end, items| {
                    assert_eq!(items.start, end);
                    items.end
                });
                assert_eq!(end, total);
            }
        }
    }

    #[test]
    fn who_wants_everything_gets_a_fair_share_of_half_of_what_is_left() {
        let mut loops = Loops::default();
        let all = BatchRequest { total: 1024, chunk: 1, chunks: u64::MAX };
        let mut sizes = Vec::new();
        while let Ok(Dealt::Items(items)) = loops.deal(0, all, 4)
            && !items.is_empty()
        {
            sizes.push(items.end - items.start);
        }
        assert_eq!(sizes[..3], [128, 112, 98]);
        assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes.last() == Some(&1), "{sizes:?}");
    }

    #[test]
    fn nodes_that_say_different_things_of_a_loop_hear_of_it() {
        let mut loops = Loops::default();
        let wanted = BatchRequest { total: 10, chunk: 2, chunks: 1 };
        assert_eq!(loops.deal(3, wanted, 2), Ok(Dealt::Items(0..2)));
        assert_eq!(loops.deal(3, BatchRequest { total: 11, ..wanted }, 2), Ok(Dealt::Unlike(10, 2)));
        assert_eq!(loops.deal(4, BatchRequest { total: 11, ..wanted }, 2), Ok(Dealt::Items(0..2)), "another loop");
        assert!(loops.deal(3, BatchRequest { chunk: 0, ..wanted }, 2).is_err());
        assert!(loops.deal(3, BatchRequest { chunks: 0, ..wanted }, 2).is_err());
        let huge = BatchRequest { total: u64::MAX, chunk: u64::MAX, chunks: u64::MAX };
        assert_eq!(loops.deal(5, huge, 2), Ok(Dealt::Items(0..u64::MAX)), "no number overflows");
    }

    #[test]
    fn batches_grow_while_they_are_short() {
        let mut batches = Batches::new(2);
        (0..3).for_each(|_| batches.lasted(&SyncTuning::DEFAULT, Span::from_us(10)));
        assert_eq!(batches.chunks(), 16);
        batches.lasted(&SyncTuning::DEFAULT, Span::from_ms(1));
        assert_eq!(batches.chunks(), 16);
        (0..9).for_each(|_| batches.lasted(&SyncTuning::DEFAULT, Span::from_ms(50)));
        assert_eq!(batches.chunks(), 1);
        assert_eq!([guided(100, 2), guided(3, 2), guided(1, 8)], [25, 1, 1]);
    }
}
