//! A unit in one node's memory, and what a miss does to the memory of the thread's own node.

use super::pause::Pause;
use crate::inline::LineUnit;
use comem_memory::lines::LinesMemory;
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, MAGIC, Op, Reply, Want};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// Most bytes of a unit.
const UNIT_BYTES_MAX: usize = 2048;
/// An aligned buffer for a copy of a unit.
#[repr(align(64))]
struct Copy([u8; UNIT_BYTES_MAX]);

/// Where a unit lies in every node's lines memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// Its first line.
    pub(crate) line: usize,
    /// How many lines it has: a power of two.
    pub(crate) lines: usize,
}

impl Span {
    pub(crate) fn of(unit: &LineUnit) -> Span {
        Span { line: unit.line as usize, lines: unit.lines as usize }
    }

    pub(crate) fn offset(&self) -> usize {
        self.line * LINE_BYTES
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines * LINE_BYTES
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.line..self.line + self.lines
    }
}

/// The wide words of a unit that begins at `line`, as a set.
pub(crate) fn wide_at(memory: &LinesMemory, line: usize) -> NodeSet {
    let mut set = NodeSet::new();
    for (index, word) in memory.wide(line).iter().enumerate() {
        let word = word.load(Ordering::Relaxed);
        let bits = (0..64).filter(|bit| word & (1 << bit) != 0);
        bits.for_each(|bit| _ = set.insert(NodeId((index * 64 + bit) as u16)));
    }
    set
}

/// The words of a wide set, as many as a unit has.
pub(crate) fn wide_words(holders: &NodeSet, words: usize) -> impl Iterator<Item = u64> + '_ {
    let bit = |word: usize, bit: usize| u64::from(holders.contains(NodeId((word * 64 + bit) as u16))) << bit;
    (0..words).map(move |word| (0..64).map(|at| bit(word, at)).sum())
}

/// The memory of the thread's own node, with the access for which it has missed.
pub(crate) struct Here<'a> {
    pub(crate) me: NodeId,
    pub(crate) memory: &'a LinesMemory,
    pub(crate) span: Span,
    pub(crate) want: Want,
    /// Makes the access on the unit, whose first byte it is told.
    pub(crate) access: &'a mut dyn FnMut(*mut u8),
    /// Whether the job is lost. It is told whether the thread sleeps by now, and not spins.
    pub(crate) is_lost: &'a dyn Fn(bool) -> bool,
    pub(crate) pause: Pause,
    /// Operations on other nodes.
    pub(crate) remote: u64,
    /// Entries that were locked when the thread wanted to lock them.
    pub(crate) retries: u64,
}

impl Here<'_> {
    /// Does what an operation asks for on this node's own memory, or to this thread.
    ///
    /// # Panics
    /// Where the operation needs another node.
    pub(crate) fn operate(&mut self, op: &Op) -> Reply {
        debug_assert!(op.target(self.me).is_none(), "{op:?} is about another node");
        let Span { line, lines } = self.span;
        match *op {
            Op::FetchAndSet { .. } => return Reply::Entry(self.memory.fetch_and_set(line, self.me)),
            Op::GetWide { .. } => return Reply::Wide(wide_at(self.memory, line)),
            Op::PutEntry { entry, .. } => self.memory.put_entries(self.span.range(), entry),
            Op::PutMirrors { entry, .. } => self.memory.put_entries(line + 1..line + lines, entry),
            Op::PutWide { ref holders, .. } => {
                let words = self.memory.wide(line);
                let values = wide_words(holders, words.len());
                words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
            }
            Op::PutMagic { .. } => self.memory.fill_magic(self.span.offset(), self.span.bytes()),
            // What this thread stores, its own loads find.
            Op::GetData { .. } => {}
            Op::Flush => fence(Ordering::SeqCst),
            Op::Quiesce { .. } => unreachable!("nobody revokes a unit from its own node"),
            Op::Peek => return self.peek(),
            Op::Access => (self.access)(self.memory.data(self.span.offset(), self.span.bytes())),
            Op::Pause { .. } => {
                let (entry, lost) = (self.memory.entry(line), self.is_lost);
                return wait(&mut self.pause, || !Entry(entry.load(Ordering::Acquire)).is_busy(), lost);
            }
        }
        Reply::Done
    }

    /// Loads the value again. The unit may be invalidated meanwhile, so the load is made on a copy in which no word is:
    /// each word of it was valid when it was copied.
    fn peek(&mut self) -> Reply {
        let mut copy = Copy([0; UNIT_BYTES_MAX]);
        let bytes = &mut copy.0[..self.span.bytes()];
        self.memory.read(self.span.offset(), bytes);
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        let is_magic = words.any(has_magic);
        if !is_magic {
            (self.access)(bytes.as_mut_ptr());
        }
        Reply::Peeked { is_magic }
    }
}

/// Whether a half of the word has the value of an invalid one.
fn has_magic(word: u64) -> bool {
    word as u32 == MAGIC || (word >> 32) as u32 == MAGIC
}

/// Waits for a while, or until it `is_over`; [`Reply::Lost`] if the job is lost.
pub(crate) fn wait(pause: &mut Pause, is_over: impl Fn() -> bool, is_lost: &dyn Fn(bool) -> bool) -> Reply {
    pause.wait(is_over);
    if is_lost(pause.sleeps()) { Reply::Lost } else { Reply::Done }
}
