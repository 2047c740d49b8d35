//! The diffs of one step on their way to their homes: what goes to one home travels together.
//!
//! Where this node can write a home's memory, changes are stored there unit by unit (a *put*, decision 0018), else they
//! are gathered into messages. All that one batch puts into a home's memory has one serial. The home's table says that
//! it is in when all of it is, before anybody is told.

use super::NodeEffects;
use crate::coherence::pages::intervals::IntervalState;
use crate::coherence::pages::kept_diffs::Stamp;
use crate::coherence::pages::page_table::DiffSink;
use crate::coherence::pages::wire::{DIFFS_BYTES, DIFFS_HEAD_BYTES, DiffsHead, put_part};
use crate::coherence::pages::{ByteMarks, PageNo};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::collections::BTreeMap;

/// What a batch asks of its node in the midst of a page table's step, so nothing here may come to a page table.
pub trait DiffEffects {
    /// The next diffs for `home` have this serial. Whoever fetches these pages again waits there for this node's own
    /// diffs. The page table is locked now, so another thread that finds the copy ended finds the need too.
    fn numbered(&mut self, home: NodeId, serial: u64);
    /// Bytes of this page leave for its home: what was sent to this node unasked of it is out of date.
    fn leaves(&mut self, page: PageNo);
    /// Most bytes of a message, with [`DIFFS_HEAD_BYTES`].
    fn diffs_bytes(&self) -> usize {
        DIFFS_BYTES
    }
    /// Memory for a message of so many bytes at least.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        Vec::with_capacity(bytes)
    }
    /// Up to which serial this node's diffs are in at a home whose memory it can write; `None` where it cannot.
    fn put_at(&self, _home: NodeId) -> Option<u64> {
        None
    }
    /// These bytes of a page were stored into its home's memory in this epoch; for reports.
    fn was_put(&mut self, _home: NodeId, _epoch: u32, _page: PageNo, _marks: &ByteMarks) {}
}

/// A home as this batch finds it.
#[derive(Debug)]
struct Home {
    node: NodeId,
    /// Whether its memory may be written in this batch.
    puts: bool,
    /// The serial of what was put there, if anything was.
    serial: Option<u64>,
}

/// Diffs on their way. The state of intervals stays locked meanwhile, so that no thread of this node is between a diff
/// and its serial.
#[derive(Default, Debug)]
pub struct DiffBatch {
    homes: Vec<Home>,
    /// Messages with their serials, each behind room for its head.
    by_home: BTreeMap<NodeId, Vec<(u64, Vec<u8>)>>,
}

impl DiffBatch {
    /// Where a step of a page table puts its diffs.
    pub fn sink<'a, E: DiffEffects>(&'a mut self, intervals: &'a mut IntervalState, effects: E) -> BatchSink<'a, E> {
        BatchSink { batch: self, intervals, effects }
    }

    /// Says what was put, and puts or sends the rest, in the order that the homes will apply it.
    pub fn send(self, node: &mut impl NodeEffects, intervals: &IntervalState) {
        for home in &self.homes {
            if let Some(serial) = home.serial {
                node.puts_are_in(home.node, serial);
            }
        }
        for (home, messages) in self.by_home {
            send_to(node, intervals, home, messages);
        }
    }

    /// Sends what has grown so long that more goes into another message: the memory is used again for the next, and
    /// homes have something to do meanwhile. Not where something was put before it: that is not said to be in yet, and
    /// nobody at the home would look for what waits for it.
    pub fn send_full(&mut self, node: &mut impl NodeEffects, intervals: &IntervalState) {
        if self.by_home.values().all(|messages| messages.len() == 1) {
            return;
        }
        let side = std::mem::take(node.side());
        for (home, messages) in &mut self.by_home {
            if self.homes.iter().any(|h| h.node == *home && h.serial.is_some()) {
                continue;
            }
            let last = messages.len() - 1;
            send_to(node, intervals, *home, messages.drain(..last));
        }
        node.side_leaves();
        *node.side() = side;
    }
}

fn send_to(
    node: &mut impl NodeEffects,
    intervals: &IntervalState,
    home: NodeId,
    messages: impl IntoIterator<Item = (u64, Vec<u8>)>,
) {
    let me = node.me();
    let needs = node.needs(|needs| needs.before_diffs(home, me));
    for (serial, message) in messages {
        let head = DiffsHead { epoch: intervals.epoch(), serial, needs: needs.clone() };
        node.send_diffs(intervals, home, &head, message);
    }
}

/// Where a step of a page table puts its diffs.
pub struct BatchSink<'a, E> {
    batch: &'a mut DiffBatch,
    intervals: &'a mut IntervalState,
    effects: E,
}

impl<E: DiffEffects> BatchSink<'_, E> {
    fn home(&mut self, node: NodeId) -> &mut Home {
        let homes = &mut self.batch.homes;
        let at = homes.iter().position(|home| home.node == node).unwrap_or_else(|| {
            let puts = self.effects.put_at(node).is_some_and(|put| {
                let in_order = put == self.intervals.last_serial(node);
                (in_order || !Rule::PutsKeepTheirOrder.on()) && self.intervals.may_close()
            });
            homes.push(Home { node, puts, serial: None });
            homes.len() - 1
        });
        &mut homes[at]
    }

    /// The serial of what leaves for a home next.
    fn next_serial(&mut self, home: NodeId) -> u64 {
        let serial = self.intervals.next_serial(home);
        self.effects.numbered(home, serial);
        serial
    }
}

impl<E: DiffEffects> DiffSink for BatchSink<'_, E> {
    fn diff(&mut self, home: NodeId, page: PageNo, diff: &[u8]) {
        self.effects.leaves(page);
        // What is put behind it in this batch would be said to be in before it: so nothing is.
        let of = self.home(home);
        of.puts &= of.serial.is_some();
        let most = self.effects.diffs_bytes();
        let last = self.batch.by_home.get(&home).and_then(|messages| messages.last());
        if last.is_none_or(|(_, m)| m.len() + diff.len() > most) {
            let serial = self.next_serial(home);
            let mut message = self.effects.buffer(DIFFS_HEAD_BYTES + 8 + diff.len());
            message.resize(DIFFS_HEAD_BYTES, 0);
            self.batch.by_home.entry(home).or_default().push((serial, message));
        }
        if let Some((_, last)) = self.batch.by_home.get_mut(&home).and_then(|messages| messages.last_mut()) {
            put_part(last, page, diff);
        }
    }

    fn puts(&mut self, home: NodeId) -> bool {
        self.home(home).puts
    }

    fn stamp(&mut self) -> Stamp {
        self.intervals.stamp_diff()
    }

    fn was_put(&mut self, home: NodeId, page: PageNo, marks: &ByteMarks) {
        if self.home(home).serial.is_none() {
            let serial = self.next_serial(home);
            self.home(home).serial = Some(serial);
        }
        self.effects.was_put(home, self.intervals.epoch(), page, marks);
    }
}
